"""What a model should rank better than: the most popular items."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from cccf_index import _check
from cccf_index._check import NotFittedError
from cccf_index._exclude import Exclude, make_exclusion_matrix


class Popularity:
    """Recommend the items with the most ratings to everyone, as a baseline of the metrics in `cccf_index.evaluation`.

    A model that ranks the whole catalogue worse than this has not learned what users like.

    Attributes
    ----------
    n_users_, n_items_ : int
        The shape of the fitted ratings.
    item_counts_ : ndarray of int64, shape (n_items,)
        The number of ratings of each item, whatever their values.

    Examples
    --------
    >>> from cccf_index.baselines import Popularity
    >>> from cccf_index.datasets import split_ratings, synthetic_ratings
    >>> from cccf_index.evaluation import catalogue_ndcg
    >>> train, test = split_ratings(synthetic_ratings(n_users=200, n_items=100).user_items)
    >>> model = Popularity().fit(train)
    >>> 0 < catalogue_ndcg(model, test, k=10, train=train) < 1
    True
    """

    n_users_: int
    n_items_: int
    item_counts_: NDArray[np.int64]

    def fit(self, user_items: Any) -> Popularity:
        """Count the ratings of each item in a scipy.sparse matrix (n_users, n_items)."""
        matrix = _check.ratings(user_items, "user_items")
        self.n_users_, self.n_items_ = matrix.shape
        self.item_counts_ = np.bincount(matrix.indices, minlength=self.n_items_).astype(np.int64)
        self._order = np.argsort(-self.item_counts_, kind="stable")
        self._places = np.argsort(self._order)
        return self

    def _check_fitted(self) -> None:
        if not hasattr(self, "item_counts_"):
            raise NotFittedError("This Popularity is not fitted yet. Call `fit` with ratings first.")

    def predict(self, users: ArrayLike, items: ArrayLike) -> NDArray[np.float64]:
        """Return the number of ratings of the items, for pairs of user and item, which are broadcast."""
        self._check_fitted()
        pairs = np.broadcast_arrays(
            _check.rows(users, "users", self.n_users_), _check.rows(items, "items", self.n_items_)
        )
        return self.item_counts_[pairs[1]].astype(np.float64)

    def recommend(
        self, users: ArrayLike | None = None, k: int = 10, *, exclude: Exclude | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the k most popular items that are not excluded for each user; equal counts come in order of rows.

        Parameters
        ----------
        users : array_like of int, shape (n,), optional
            Rows of users; None for all.
        k : int
            The number of items per user.
        exclude : list of array_like of int, ndarray or scipy.sparse matrix, optional
            Items that must not be returned to each of `users`, as for the models.

        Returns
        -------
        D : ndarray of float32, shape (n, k)
            Numbers of ratings; -FLT_MAX where there are no more items.
        I : ndarray of int64, shape (n, k)
            Rows of items; -1 where there are no more.
        """
        self._check_fitted()
        rows = _check.user_rows(users, self.n_users_)
        k = _check.integer(k, "k", 1)
        places = np.tile(np.arange(k), (len(rows), 1))
        if exclude is not None:
            places += self._count_skipped(make_exclusion_matrix(exclude, "exclude", len(rows), self.n_items_), k)
        found = places < self.n_items_
        I = np.where(found, self._order[np.minimum(places, self.n_items_ - 1)], -1)
        D = np.where(found, self.item_counts_[I], np.finfo(np.float32).min).astype(np.float32)
        return D, I

    def _count_skipped(self, exclude: sparse.csr_array, k: int) -> NDArray[np.int64]:
        """Return how many excluded items come before the first, second, ... k-th item that is not, (n, k)."""
        n = exclude.shape[0]
        rows = np.repeat(np.arange(n), np.diff(exclude.indptr))
        # by rows, and within them by place in the order of popularity; an item may be excluded twice
        rows, places = np.divmod(np.unique(rows * self.n_items_ + self._places[exclude.indices]), self.n_items_)
        before = places - (np.arange(len(rows)) - np.searchsorted(rows, rows))  # items that are not excluded
        early = before < k
        counts = np.bincount(rows[early] * k + before[early], minlength=n * k).reshape(n, k)
        return np.cumsum(counts, axis=1)
