"""Select ratings: the k-core, and a split into training and test ratings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from cccf_index import _check
from cccf_index.datasets.ratings import Ratings


def k_core(ratings: Ratings, k: int = 10) -> Ratings:
    """Return the k-core: the largest part in which every user and item has at least k ratings (the paper uses k=10).

    Rows and columns are renumbered; `user_ids`, `item_ids` and the features are reduced to match.

    Parameters
    ----------
    ratings : Ratings
    k : int
        The minimum number of ratings per user and per item.

    Returns
    -------
    Ratings
    """
    k = _check.integer(k, "k", 0)
    if not isinstance(ratings, Ratings):
        raise TypeError(
            f"`ratings` must be Ratings, got {type(ratings).__name__}. Pass `Ratings(matrix, user_ids, item_ids)`."
        )
    matrix = ratings.user_items.tocsr()
    users, items = np.arange(matrix.shape[0]), np.arange(matrix.shape[1])
    while True:
        user_ok = np.diff(matrix.indptr) >= k
        item_ok = np.bincount(matrix.indices, minlength=matrix.shape[1]) >= k
        if user_ok.all() and item_ok.all():
            break
        users, items = users[user_ok], items[item_ok]
        matrix = matrix[user_ok][:, item_ok]
    if matrix.nnz == 0:
        raise ValueError(f"The {k}-core is empty: too few users and items have {k} ratings each. Use a smaller `k`.")
    return replace(
        ratings,
        user_items=matrix,
        user_ids=ratings.user_ids[users],
        item_ids=ratings.item_ids[items],
        user_features=None if ratings.user_features is None else ratings.user_features[users],
        item_features=None if ratings.item_features is None else ratings.item_features[items],
    )


def split_ratings(
    user_items: Any, test_size: float = 0.3, seed: int = 0
) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """Hold out a random share of each user's ratings for testing.

    The paper holds out 30 % and repeats this with five seeds.

    Parameters
    ----------
    user_items : scipy.sparse matrix, shape (n_users, n_items)
        Ratings.
    test_size : float
        The share to hold out, above 0 and below 1. Of a user's n ratings ``floor(test_size * n)`` are held out, so
        every user keeps at least one.
    seed : int
        Seed of the random choice.

    Returns
    -------
    train, test : scipy.sparse.csr_matrix of float32, shape (n_users, n_items)
    """
    if not 0 < _check.number(test_size, "test_size") < 1:
        raise ValueError(f"`test_size` must be above 0 and below 1, got {test_size}.")
    rng = np.random.default_rng(_check.integer(seed, "seed", 0))
    matrix = _check.ratings(user_items, "user_items")
    counts = np.diff(matrix.indptr)
    users = np.repeat(np.arange(len(counts)), counts)
    place = np.empty(matrix.nnz, dtype=np.int64)
    place[np.lexsort((rng.random(matrix.nnz), users))] = np.arange(matrix.nnz)
    held_out = np.minimum(np.floor(test_size * counts + 1e-9).astype(np.int64), counts - 1)
    kept = place - matrix.indptr[users] >= held_out[users]
    train, test = (
        sparse.csr_matrix((matrix.data[part].astype(np.float32), (users[part], matrix.indices[part])), matrix.shape)
        for part in (kept, ~kept)
    )
    return train, test
