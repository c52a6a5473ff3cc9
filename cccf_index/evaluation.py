"""Metrics of rankings: NDCG by the paper's two protocols, recall, and coverage.

`rated_ndcg` ranks the held-out items of each user by predicted rating; the gain of an item is ``2^rating - 1``.
`catalogue_ndcg` ranks all items except those of the training data; held-out items rated at least `threshold` are
relevant, with equal gains. Discounts are ``1 / log2(position + 1)``. Each metric is the mean over all users that
have an item with a gain above 0. `coverage` tells whether all users get the same items; `cccf_index.baselines` has
what every model should rank better than.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from cccf_index import _check

MAX_RATING = 500  # sums of gains 2^rating stay finite
USERS = 4096  # users whose recommendations are requested at a time


class Coverage(NamedTuple):
    """How different the lists of users are."""

    distinct: int  # items that are in the list of some user
    top_share: float  # share of the users whose list holds the most recommended item


def choose_threshold(ratings: Any) -> float:
    """Return the rating from which items count as relevant: three quarters up the scale, 4 on a scale of 1 to 5.

    Parameters
    ----------
    ratings : scipy.sparse matrix, or array_like of float
        Ratings whose smallest and largest value are the ends of the scale.

    Returns
    -------
    threshold : float
        For `catalogue_ndcg` and `recall`. If all ratings are equal, all items count.
    """
    values = ratings.data if sparse.issparse(ratings) else np.asarray(ratings)
    if not values.size:
        raise ValueError("`ratings` must hold at least one rating, got none.")
    low, high = float(values.min()), float(values.max())
    return low + 0.75 * (high - low)


def rated_ndcg(scores: Any, test: Any, k: int | Sequence[int] = 10) -> Any:
    """Return NDCG@k of the held-out items of each user, ranked by predicted rating.

    Parameters
    ----------
    scores : model or array_like of float, shape (test.nnz,)
        A model with ``predict(users, items)``, or one score for each stored rating of ``test.tocsr()``.
    test : scipy.sparse matrix, shape (n_users, n_items)
        Held-out ratings.
    k : int or sequence of int
        One or more cut-offs.

    Returns
    -------
    ndcg : float, or ndarray of float64 for a sequence of cut-offs
        Items with equal scores each get the mean of their gains: the expected value over all orders of the ties.

    Examples
    --------
    >>> from scipy import sparse
    >>> from cccf_index.evaluation import rated_ndcg
    >>> test = sparse.csr_matrix([[5.0, 3.0, 0.0]])
    >>> rated_ndcg([0.1, 0.9], test, k=[1, 2]).round(3).tolist()
    [0.226, 0.75]
    """
    matrix = _check.ratings(test, "test")
    users = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    if hasattr(scores, "predict"):
        _check_shape(scores, matrix.shape)
        values = np.asarray(scores.predict(users, matrix.indices), dtype=np.float64)
    else:
        values = np.asarray(scores, dtype=np.float64)
        if values.shape != (matrix.nnz,):
            raise ValueError(f"`scores` must be of shape ({matrix.nnz},), one per test rating, got {values.shape}.")
        stored = sparse.csr_array(test)
        places = sparse.csr_array((np.arange(matrix.nnz), stored.indices, stored.indptr), shape=matrix.shape)
        values = values[places.sorted_indices().data]  # in the order of `matrix`, whose columns ascend in each row
    if np.isnan(values).any():
        raise ValueError("`scores` must be numbers, got nan.")
    if matrix.nnz and not 0 <= matrix.data.min() <= matrix.data.max() <= MAX_RATING:
        raise ValueError(
            f"`test` must hold ratings from 0 to {MAX_RATING}, as gains are 2^rating - 1, got {matrix.data.min():g} "
            f"to {matrix.data.max():g}. Shift or scale them."
        )
    gains = np.exp2(matrix.data) - 1
    found, best = (_compute_dcg(users, order, gains, k, matrix.shape[0]) for order in (values, gains))
    return _average_shares(found, best, k)


def catalogue_ndcg(
    ranking: Any, test: Any, k: int | Sequence[int] = 10, *, train: Any = None, threshold: float = 4.0
) -> Any:
    """Return NDCG@k of rankings of the whole catalogue.

    Parameters
    ----------
    ranking : model or array_like of int, shape (n_users, at least the largest k)
        A model with ``recommend(users, k, exclude=)``, or the items of each user, best first; -1 means no item.
    test : scipy.sparse matrix, shape (n_users, n_items)
        Held-out ratings.
    k : int or sequence of int
        One or more cut-offs.
    train : scipy.sparse matrix, shape (n_users, n_items), optional
        Items that a model must not recommend; ignored if `ranking` is an array.
    threshold : float
        Held-out items with at least this rating are relevant.

    Returns
    -------
    ndcg : float, or ndarray of float64 for a sequence of cut-offs
    """
    hits, counts = _find_hits(ranking, _select_relevant(test, "test", threshold), k, train)
    discounts = 1 / np.log2(np.arange(hits.shape[1]) + 2)
    ideal = np.concatenate([[0], np.cumsum(discounts)])
    found = np.stack([hits[:, :cut] @ discounts[:cut] for cut in _check_cutoffs(k)])
    return _average_shares(found, np.stack([ideal[np.minimum(counts, cut)] for cut in _check_cutoffs(k)]), k)


def recall(
    ranking: Any, relevant: Any, k: int | Sequence[int] = 10, *, train: Any = None, threshold: float | None = None
) -> Any:
    """Return recall@k: the share of the relevant items that are among the first k, averaged over users.

    Parameters
    ----------
    ranking : model or array_like of int, shape (n_users, at least the largest k)
        As for `catalogue_ndcg`.
    relevant : scipy.sparse matrix, shape (n_users, n_items), or array_like of int, shape (n_users, any)
        Held-out ratings, or the items to find, such as the top-k of an exact index; -1 means no item.
    k : int or sequence of int
        One or more cut-offs.
    train : scipy.sparse matrix, optional
        Items that a model must not recommend; ignored if `ranking` is an array.
    threshold : float, optional
        Held-out items with at least this rating are relevant; None for all.

    Returns
    -------
    recall : float, or ndarray of float64 for a sequence of cut-offs

    Examples
    --------
    >>> from cccf_index.evaluation import recall
    >>> recall([[4, 2, 7]], [[2, 9]], k=[1, 3]).tolist()
    [0.0, 0.5]
    """
    if sparse.issparse(relevant):
        matrix = _select_relevant(relevant, "relevant", threshold)
    else:
        matrix = _check_ranking(relevant, "relevant")
    hits, counts = _find_hits(ranking, matrix, k, train)
    found = np.stack([hits[:, :cut].sum(axis=1) for cut in _check_cutoffs(k)])
    return _average_shares(found, np.broadcast_to(counts, found.shape), k)


def coverage(ranking: Any, k: int = 10, *, train: Any = None) -> Coverage:
    """Return how many different items are recommended, and to how many users the most recommended one.

    Parameters
    ----------
    ranking : model or array_like of int, shape (n_users, at least k)
        A model with ``recommend(users, k, exclude=)`` and ``n_users_``, or the items of each user, best first; -1
        means no item.
    k : int
        The length of the lists.
    train : scipy.sparse matrix, shape (n_users, n_items), optional
        Items that a model must not recommend; ignored if `ranking` is an array.

    Returns
    -------
    Coverage
        ``(distinct, top_share)``. A model that recommends the same k items to everyone has (k, 1.0).

    Examples
    --------
    >>> from cccf_index.evaluation import coverage
    >>> coverage([[4, 2], [4, 7], [1, 4], [5, 6]], k=2)
    Coverage(distinct=6, top_share=0.75)
    """
    depth = _check.integer(k, "k", 1)
    if hasattr(ranking, "recommend"):
        items = _recommend_items(ranking, np.arange(ranking.n_users_), depth, train, ranking.n_users_)
    else:
        items = _check_ranking(ranking, "ranking")
        if items.shape[1] < depth:
            raise ValueError(f"`ranking` must be of shape (n_users, at least {depth}), got {items.shape}.")
    counts = np.unique(items[:, :depth][items[:, :depth] != -1], return_counts=True)[1]
    return Coverage(len(counts), float(counts.max() / len(items)) if len(counts) else 0.0)


def _recommend_items(model: Any, users: NDArray[Any], depth: int, train: Any, n_users: int) -> NDArray[np.int64]:
    """Return the best items of these users, (n, depth), without those of their training data."""
    exclude = None if train is None else _check.pairs(train, "train", n_users)
    items: NDArray[np.int64] = np.empty((len(users), depth), dtype=np.int64)
    for start in range(0, len(users), USERS):
        part = users[start : start + USERS]
        seen = None if exclude is None else exclude[part]
        items[start : start + USERS] = model.recommend(part, depth, exclude=seen)[1]
    return items


def _check_shape(model: Any, shape: tuple[int, int]) -> None:
    """Check that ratings have one row per user and one column per item of the model."""
    known = (getattr(model, "n_users_", shape[0]), getattr(model, "n_items_", shape[1]))
    if known != shape:
        raise ValueError(
            f"The ratings must be of the model's {known[0]} users and {known[1]} items, got shape {shape}. "
            "Pass the whole matrix; rows may be empty."
        )


def _check_cutoffs(k: Any) -> list[int]:
    values = [k] if np.ndim(k) == 0 else k
    if len(values) == 0:
        raise ValueError("`k` must hold at least one cut-off, got none.")
    return [_check.integer(value, "k", 1) for value in values]


def _compute_dcg(
    users: NDArray[Any], scores: NDArray[np.float64], gains: NDArray[np.float64], k: Any, n_users: int
) -> NDArray[np.float64]:
    """Return DCG (cut-offs, n_users) of ratings ranked by score within their user."""
    order = np.lexsort((-scores, users))
    owner, ranked = users[order], scores[order]
    starts = np.searchsorted(owner, np.arange(n_users))
    position = np.arange(len(order)) - starts[owner]
    group = np.cumsum(np.concatenate([[0], (owner[1:] != owner[:-1]) | (ranked[1:] != ranked[:-1])])[: len(order)])
    gain = (np.bincount(group, gains[order]) / np.bincount(group))[group] if len(order) else gains
    value = gain / np.log2(position + 2)
    return np.stack([np.bincount(owner, value * (position < cut), minlength=n_users) for cut in _check_cutoffs(k)])


def _average_shares(found: NDArray[np.float64], best: NDArray[np.float64], k: Any) -> Any:
    """Return the mean over users of found / best, (cut-offs,), or a float for one cut-off."""
    some = best[0] > 0
    if not some.any():
        raise ValueError("No user has a relevant held-out item. Check the ratings, or use a lower `threshold`.")
    result = (found[:, some] / best[:, some]).mean(axis=1)
    return float(result[0]) if np.ndim(k) == 0 else result


def _select_relevant(ratings: Any, name: str, threshold: float | None) -> sparse.csr_array:
    """Return the relevant held-out items as a sparse matrix of ones."""
    matrix = _check.ratings(ratings, name).tocoo()
    kept = slice(None) if threshold is None else matrix.data >= _check.number(threshold, "threshold")
    pairs = (matrix.row[kept], matrix.col[kept])
    return sparse.csr_array((np.ones(len(pairs[0])), pairs), shape=matrix.shape)


def _check_ranking(items: ArrayLike, name: str) -> NDArray[np.int64]:
    array = np.asarray(items)
    if array.ndim != 2 or array.dtype.kind not in "iu":
        raise ValueError(
            f"`{name}` must be a model or integers of shape (n_users, k), got {array.dtype} of shape {array.shape}."
        )
    ordered = np.sort(array, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != -1)
    if twice.any():
        raise ValueError(
            f"`{name}` must hold each item of a row once, got an item twice in row {np.nonzero(twice)[0][0]}."
        )
    return array.astype(np.int64)


def _find_hits(ranking: Any, relevant: Any, k: Any, train: Any) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Return, for users with relevant items, which ranked items are relevant (n, largest k), and how many exist."""
    depth = max(_check_cutoffs(k))
    if sparse.issparse(relevant):
        counts = np.diff(relevant.indptr)
        rows, ids = np.repeat(np.arange(len(counts)), counts), relevant.indices
    else:
        rows, places = np.nonzero(relevant != -1)
        ids, counts = relevant[rows, places], (relevant != -1).sum(axis=1)
    users = np.flatnonzero(counts)
    if hasattr(ranking, "recommend"):
        if sparse.issparse(relevant):
            _check_shape(ranking, relevant.shape)
        items = _recommend_items(ranking, users, depth, train, len(counts))
    else:
        items = _check_ranking(ranking, "ranking")
        if items.shape[0] != len(counts) or items.shape[1] < depth:
            raise ValueError(f"`ranking` must be of shape ({len(counts)}, at least {depth}), got {items.shape}.")
        items = items[users, :depth]
    names, numbers = np.unique(np.concatenate([ids, items.ravel()]), return_inverse=True)
    keys = rows * len(names) + numbers[: len(ids)]
    asked = users[:, None] * len(names) + numbers[len(ids) :].reshape(items.shape)
    return np.isin(asked, keys) & (items != -1), counts[users]
