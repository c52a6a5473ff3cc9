"""Recommender: the interface that all models share, with the conventions of scikit-learn."""

from __future__ import annotations

import abc
import inspect
import os
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from cccf_index import _check, _threads
from cccf_index._check import NotFittedError
from cccf_index._exclude import Exclude, make_exclusion_matrix
from cccf_index.learning.history import Iteration
from cccf_index.models import _files
from cccf_index.models._rows import Observed

M = TypeVar("M", bound="Recommender")

PREDICT_BATCH = 8192  # pairs that `predict` expands at a time


class Recommender(abc.ABC):
    """A model of ratings.

    ``__init__`` only stores its parameters; `fit` checks them, and sets attributes whose names end in ``_``. Results
    depend on the parameters and the ratings only, not on the number of threads, which ``faiss.omp_set_num_threads``
    sets.

    Attributes
    ----------
    n_users_, n_items_ : int
        The shape of the fitted ratings.
    history_ : list of Iteration
        ``(objective, seconds)`` at the start and after each iteration.
    """

    n_users_: int
    n_items_: int
    history_: list[Iteration]

    def __init_subclass__(cls) -> None:
        _files.MODELS[cls.__name__] = cls

    @abc.abstractmethod
    def fit(self: M, user_items: Any, *, item_features: Any = None, user_features: Any = None) -> M:
        """Learn from a scipy.sparse matrix of ratings, shape (n_users, n_items)."""

    @abc.abstractmethod
    def _encode(self, matrix: sparse.csr_array, side: str) -> Any:
        """Represent new users (`side` is "user") or items ("item") by the rows of their ratings."""

    @_threads.limit_blas()
    def encode_users(self, user_items: Any) -> Any:
        """Represent new users by their ratings: the row update of `fit`, with the items fixed.

        Parameters
        ----------
        user_items : scipy.sparse matrix, shape (n, n_items)
            Their ratings, one row per user.

        Returns
        -------
        CompositionalCodes, or ndarray of shape (n, n_factors) for MF
            Queries for the index. A user without ratings gets a code without information, or zeros from MF.
        """
        self._check_fitted()
        return self._encode(_check.ratings(user_items, "user_items", self.n_items_), "user")

    @_threads.limit_blas()
    def encode_items(self, item_users: Any) -> Any:
        """Represent new items by their ratings: the row update of `fit`, with the users fixed.

        Parameters
        ----------
        item_users : scipy.sparse matrix, shape (n, n_users)
            Their ratings, one row per item.

        Returns
        -------
        CompositionalCodes, or ndarray of shape (n, n_factors) for MF
            Items that can be added to the index.
        """
        self._check_fitted()
        return self._encode(_check.ratings(item_users, "item_users", self.n_users_), "item")

    @abc.abstractmethod
    def to_index(self) -> Any:
        """Return an index of the items, whose ids are their rows."""

    @abc.abstractmethod
    def _get_vectors(self, users: Any, items: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the vectors of these users and items, whose inner products are the scores."""

    @abc.abstractmethod
    def _search(self, users: NDArray[np.int64], k: int, exclude: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return scores and items (n, k), best first, padded like faiss results."""

    @abc.abstractmethod
    def _verify(self) -> None:
        """Check the attributes that were read from a file; raise a ValueError if they do not match."""

    def to_ratings(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Convert scores of `to_index()` to ratings, of the same shape."""
        return scores

    @classmethod
    def _list_parameters(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; `deep` is accepted for scikit-learn, and ignored."""
        return {name: getattr(self, name) for name in self._list_parameters()}

    def set_params(self: M, **params: Any) -> M:
        """Set parameters by name for the next `fit`. `encode_users` and `encode_items` read them as well."""
        for name, value in params.items():
            if name not in self._list_parameters():
                raise ValueError(
                    f"`{name}` is not a parameter of {type(self).__name__}, which has {self._list_parameters()}."
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = {name: p.default for name, p in inspect.signature(type(self).__init__).parameters.items()}
        changed = [f"{name}={value!r}" for name, value in self.get_params().items() if value != defaults[name]]
        return f"{type(self).__name__}({', '.join(changed)})"

    def _check_observed(self, user_items: Any, **features: Any) -> Observed:
        """Check the ratings, and return them as rows of both sides; refuse features."""
        return Observed.from_matrix(self._check_ratings(user_items, **features))

    def _check_ratings(self, user_items: Any, **features: Any) -> sparse.csr_array:
        """Check the ratings, which must not all be equal; refuse features."""
        matrix = self._check_matrix(user_items, **features)
        if matrix.data.min() == matrix.data.max():
            raise ValueError(
                f"`user_items` must hold different ratings, got only {matrix.data[0]:g}. For implicit feedback use "
                'CCCF(feedback="implicit"), or add zeros for items that were shown and not chosen.'
            )
        return matrix

    def _check_matrix(self, user_items: Any, **features: Any) -> sparse.csr_array:
        """Check a matrix of ratings or feedback; refuse features."""
        for name, value in features.items():
            if value is not None:
                raise ValueError(f"`{name}` must be None: {type(self).__name__} ignores side features; use DCMF.")
        matrix = _check.ratings(user_items, "user_items")
        if max(matrix.shape) >= 2**31:
            raise ValueError(
                f"`user_items` must have fewer than 2^31 rows and columns, got shape {matrix.shape}. "
                "Number users and items from 0, as `cccf_index.datasets.read_ratings` does."
            )
        if matrix.nnz == 0:
            raise ValueError(f"`user_items` must hold ratings, got an empty matrix of shape {matrix.shape}.")
        return matrix

    def _check_fitted(self) -> None:
        if not hasattr(self, "history_"):
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet. Call `fit` with ratings first.")

    def predict(self, users: ArrayLike, items: ArrayLike) -> NDArray[Any]:
        """Predict the ratings of pairs of user and item.

        Parameters
        ----------
        users, items : array_like of int
            Rows of users and of items, which are broadcast: ``predict(3, [0, 1])``.

        Returns
        -------
        ratings : ndarray of float, of the broadcast shape
        """
        self._check_fitted()
        pairs = np.broadcast_arrays(
            _check.rows(users, "users", self.n_users_), _check.rows(items, "items", self.n_items_)
        )
        left, right = (part.ravel() for part in pairs)
        scores = []
        for start in range(0, max(left.size, 1), PREDICT_BATCH):
            part = slice(start, start + PREDICT_BATCH)
            scores.append(np.einsum("ij,ij->i", *self._get_vectors(left[part], right[part])))
        return self.to_ratings(np.concatenate(scores)).reshape(pairs[0].shape)

    def recommend(
        self, users: ArrayLike | None = None, k: int = 10, *, exclude: Exclude | None = None
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the k best items of each user, in the form of `index.search`.

        Parameters
        ----------
        users : array_like of int, shape (n,), optional
            Rows of users; None for all.
        k : int
            The number of items per user.
        exclude : list of array_like of int, ndarray or scipy.sparse matrix, optional
            Items that must not be returned to each of `users`: lists of rows of items, a boolean mask (n, n_items), or
            a sparse matrix such as ``user_items[users]``; see `IndexCCCF.search`.

        Returns
        -------
        D : ndarray of float32, shape (n, k)
            Predicted ratings, best first; -FLT_MAX where there are no more items. Models with codes rank by their
            index, whose weights are rounded.
        I : ndarray of int64, shape (n, k)
            Rows of items; -1 where there are no more, so check for it before using them as in ``item_ids[I]``.
        """
        self._check_fitted()
        rows = _check.user_rows(users, self.n_users_)
        k = _check.integer(k, "k", 1)
        if exclude is not None:
            exclude = make_exclusion_matrix(exclude, "exclude", len(rows), self.n_items_)
        scores, items = self._search(rows, k, exclude)
        found = items >= 0
        scores[found] = self.to_ratings(scores[found])
        return scores, items

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file; checksummed, and replaced atomically."""
        self._check_fitted()
        _files.write(path, self)

    @classmethod
    def load(cls: type[M], path: str | os.PathLike[str]) -> M:
        """Read a model that `save` wrote; a damaged file or one of another kind raises a ValueError."""
        return _files.read(path, cls)
