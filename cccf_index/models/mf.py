"""MF: matrix factorisation by alternating least squares, the real-valued baseline and the teacher of the others."""

from __future__ import annotations

import time
from typing import Any

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from cccf_index import _check, _threads
from cccf_index.learning.history import Iteration
from cccf_index.models._als import Alternation, Ridge, solve_rows
from cccf_index.models._rows import Observed, RatingRows
from cccf_index.models.base import Recommender

SCORES = 2**22  # scores that are computed and ranked at a time
MAX_FACTORS = 4096


class MF(Recommender):
    """Matrix factorisation: a rating is the inner product of a user's and an item's factors.

    Trained by alternating least squares with weighted regularization (ALS-WR): a row with n ratings has the ridge
    ``regularization * n``. Ratings are not centred. With `unobserved`, pairs without a rating count a little, as if
    they were rated below average: what users do not rate is rarely what they like best. With a large `unobserved` this
    is the iALS of Rendle et al. ("Revisiting the performance of iALS on item recommendation benchmarks", 2021), at the
    cost of ALS without these pairs.

    Parameters
    ----------
    n_factors : int
        The number of factors.
    regularization : float
        The ridge of a row per rating.
    max_iter : int
        The number of iterations; each solves both sides.
    unobserved : float
        The total weight of all pairs, relative to the total weight of all ratings; 0 ignores unobserved pairs.
    unobserved_rating : float, optional
        The rating that unobserved pairs count as. None means a quarter of the way from the smallest to the largest.
        For implicit feedback, a matrix of ones, pass 0.
    ridge_power : float
        The power of its number of ratings (and of the weight of its other pairs) with which the ridge of a row grows.
        It changes the ridge of large and small rows, not that of a row of mean size.
    n_models : int
        The number of models, from different first factors, whose scores are averaged. Their factors are concatenated.
    dtype : {"float32", "float64"}
        The precision of the factors and of the solver.
    seed : int
        Seed of the first item factors.
    verbose : bool
        Show a progress bar if the output is a terminal.

    Attributes
    ----------
    user_factors_ : ndarray, shape (n_users, n_models * n_factors)
    item_factors_ : ndarray, shape (n_items, n_models * n_factors)
        Rows without ratings are zero.
    offset_ : float
        The rating of a pair with score 0.
    pair_weight_ : float
        The weight of each unobserved pair, where a rating has weight 1.
    row_sizes_ : list of float
        The mean weight of the pairs of a user and of an item, from which `ridge_power` counts.

    Examples
    --------
    >>> from cccf_index.datasets import synthetic_ratings
    >>> from cccf_index.models import MF
    >>> ratings = synthetic_ratings(n_users=200, n_items=100, seed=0)
    >>> model = MF(n_factors=8).fit(ratings.user_items)
    >>> D, I = model.recommend([0, 1], k=3, exclude=ratings.user_items[[0, 1]])
    >>> I.shape
    (2, 3)
    """

    user_factors_: NDArray[Any]
    item_factors_: NDArray[Any]
    offset_: float = 0.0  # files of version 0.2 lack these three
    pair_weight_: float = 0.0
    n_models_: int = 1
    row_sizes_: list[float] | None = None

    def __init__(
        self,
        n_factors: int = 64,
        regularization: float = 0.08,
        max_iter: int = 8,
        unobserved: float = 0.0,
        n_models: int = 1,
        dtype: str = "float32",
        seed: int = 0,
        verbose: bool = True,
        unobserved_rating: float | None = None,
        ridge_power: float = 1.0,
    ) -> None:
        self.n_factors = n_factors
        self.regularization = regularization
        self.max_iter = max_iter
        self.unobserved = unobserved
        self.n_models = n_models
        self.dtype = dtype
        self.seed = seed
        self.verbose = verbose
        self.unobserved_rating = unobserved_rating
        self.ridge_power = ridge_power

    @_threads.limit_blas()
    def fit(self, user_items: Any, *, item_features: Any = None, user_features: Any = None) -> MF:
        """Learn factors from a scipy.sparse matrix of ratings (n_users, n_items); a stored zero is a rating of zero."""
        n_factors = _check.integer(self.n_factors, "n_factors", 1, MAX_FACTORS)
        max_iter = _check.integer(self.max_iter, "max_iter", 1)
        dtype, ridge = self._check_numbers()
        unobserved = _check.number(self.unobserved, "unobserved", 0)
        offset = None if self.unobserved_rating is None else _check.number(self.unobserved_rating, "unobserved_rating")
        n_models = _check.integer(self.n_models, "n_models", 1, 64)
        rng = np.random.default_rng(_check.integer(self.seed, "seed", 0))
        features = {"item_features": item_features, "user_features": user_features}
        # equal ratings differ from unobserved pairs, if these have a rating of their own
        check = self._check_ratings if offset is None or not unobserved else self._check_matrix
        ratings = Observed.from_matrix(check(user_items, **features))
        begin = time.perf_counter()
        n_users, n_items = ratings.shape
        low, high = float(ratings.values.min()), float(ratings.values.max())
        if offset is None:
            offset = low + (high - low) / 4 if unobserved else 0.0
        weight = unobserved * len(ratings.values) / (n_users * n_items)
        models = []
        for _ in range(n_models):
            items = np.asarray(rng.standard_normal((n_items, n_factors)) / np.sqrt(n_factors), dtype)
            models.append(Alternation(ratings, ratings.values - offset, items, ridge, weight))

        def record() -> Iteration:
            total = sum(model.compute_objective() for model in models) / n_models
            return Iteration(total, time.perf_counter() - begin)

        history = [record()]
        for _ in tqdm(range(max_iter), desc="MF", disable=None if self.verbose else True):
            begin = time.perf_counter()
            for model in models:
                model.iterate()
            history.append(record())
        share = dtype.type(1 / np.sqrt(n_models))
        users, items = (np.hstack(parts) * share for parts in zip(*((m.users, m.items) for m in models), strict=True))
        self._take(users, items, offset, weight, n_models)
        self.row_sizes_, self.history_ = models[0].sizes, history
        return self

    @classmethod
    def from_factors(cls, user_factors: ArrayLike, item_factors: ArrayLike, **params: Any) -> MF:
        """Wrap the factors of any other model as a fitted MF, for example as `latents` of `CCCF`.

        Parameters
        ----------
        user_factors, item_factors : array_like of float, shapes (n_users, p) and (n_items, p)
        **params
            Parameters of `MF` that `encode_users` and `encode_items` use: ``regularization`` and ``dtype``.
        """
        if np.ndim(item_factors) != 2 or np.shape(item_factors)[1] == 0:
            raise ValueError(f"`item_factors` must be of shape (n_items, p), got {np.shape(item_factors)}.")
        width = np.shape(item_factors)[1]
        model = cls(n_factors=width, **params)
        dtype = model._check_numbers()[0]
        _check.matrix(user_factors, "user_factors", width)
        _check.matrix(item_factors, "item_factors", width)
        users, items = (_check.to_array(factors) for factors in (user_factors, item_factors))
        model._take(np.array(users, dtype=dtype, order="C"), np.array(items, dtype=dtype, order="C"))
        model.history_ = []
        return model

    def __sklearn_clone__(self) -> MF:
        """Return an unfitted copy; but return a model from factors as it is, as no `fit` could restore them."""
        return self if vars(self).get("history_") == [] else type(self)(**self.get_params())

    def to_index(self) -> faiss.IndexFlatIP:
        """Return a `faiss.IndexFlatIP` of the items; search it with ``user_factors_``."""
        self._check_fitted()
        index = faiss.IndexFlatIP(self.item_factors_.shape[1])
        index.add(self.item_factors_.astype(np.float32))
        return index

    def _check_numbers(self) -> tuple[np.dtype[Any], Ridge]:
        dtype = np.dtype(_check.choice(self.dtype, "dtype", ("float32", "float64")))
        regularization = _check.number(self.regularization, "regularization", 0)
        return dtype, Ridge(regularization, _check.number(self.ridge_power, "ridge_power", 0))

    def _take(
        self,
        users: NDArray[Any],
        items: NDArray[Any],
        offset: float = 0.0,
        pair_weight: float = 0.0,
        n_models: int = 1,
    ) -> None:
        self.user_factors_, self.item_factors_ = users, items
        self.offset_, self.pair_weight_, self.n_models_ = offset, pair_weight, n_models
        self.n_users_, self.n_items_ = len(users), len(items)

    def _encode(self, matrix: Any, side: str) -> NDArray[Any]:
        place = ("user", "item").index(side)
        other = self.item_factors_ if side == "user" else self.user_factors_
        rows = RatingRows.from_matrix(matrix)
        size = 1.0 if self.row_sizes_ is None else self.row_sizes_[place]
        ridges = self._check_numbers()[1].compute(rows, self.pair_weight_, len(other), size)
        values = (matrix.data - self.offset_).astype(other.dtype)
        share = other.dtype.type(np.sqrt(self.n_models_))
        parts = [
            solve_rows(rows, values, np.ascontiguousarray(part) * share, ridges, self.pair_weight_)
            for part in np.split(other, self.n_models_, axis=1)
        ]
        return np.hstack(parts) / share

    def to_ratings(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Convert scores of `to_index()` to ratings, of the same shape."""
        return scores + np.asarray(scores).dtype.type(self.offset_)

    def _get_vectors(self, users: Any, items: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        return self.user_factors_[users], self.item_factors_[items]

    def _search(self, users: NDArray[np.int64], k: int, exclude: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rank blocks of users by dot products: `IndexFlatIP` cannot exclude different items for each user."""
        D = np.full((len(users), k), np.finfo(np.float32).min, dtype=np.float32)
        I = np.full((len(users), k), -1, dtype=np.int64)
        k = min(k, self.n_items_)
        step = max(1, SCORES // self.n_items_)
        for start in range(0, len(users), step):
            scores = (self.user_factors_[users[start : start + step]] @ self.item_factors_.T).astype(np.float32)
            if exclude is not None:
                part = exclude[start : start + step].tocoo()
                scores[part.row, part.col] = -np.inf
            worst = np.partition(scores, self.n_items_ - k, axis=1)[:, [self.n_items_ - k]]
            tied = scores == worst
            room = k - np.count_nonzero(scores > worst, axis=1, keepdims=True)
            best = np.nonzero((scores > worst) | (tied & (np.cumsum(tied, axis=1) <= room)))[1].reshape(-1, k)
            values = np.take_along_axis(scores, best, axis=1)
            order = np.argsort(-values, axis=1, kind="stable")
            found, values = (np.take_along_axis(array, order, axis=1) for array in (best, values))
            allowed = values > -np.inf
            D[start : start + step, :k][allowed] = values[allowed]
            I[start : start + step, :k][allowed] = found[allowed]
        return D, I

    def _verify(self) -> None:
        users, items = self.user_factors_, self.item_factors_
        width = items.shape[-1]
        if self.n_models_ < 1 or width % self.n_models_:
            raise ValueError("the number of factors is not a multiple of the number of models")
        if (users.shape, items.shape) != ((self.n_users_, width), (self.n_items_, width)) or users.dtype != items.dtype:
            raise ValueError("the factors of users and items differ in shape or type")
