"""Synthetic ratings with planted groups, for examples and tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cccf_index import _check
from cccf_index.datasets.ratings import Ratings


def synthetic_ratings(
    n_users: int = 2000,
    n_items: int = 1000,
    *,
    n_groups: int = 8,
    ratings_per_user: int = 50,
    noise: float = 0.5,
    affinity: float = 0.0,
    seed: int = 0,
) -> Ratings:
    """Make up ratings from 1 to 5 with planted groups of taste.

    Each user and item belongs to one of `n_groups` groups, whose members are alike up to individual differences. Users
    differ in how many items they rate and how well they rate on the whole, items in popularity and quality. A rating
    is the match of the two, rounded, with Gaussian noise. Of the items that a user rates a share of `affinity` is of
    their own group; the others are of any.

    Returns
    -------
    Ratings
        The features of users and items tell their group, one column for each.
    """
    n_users = _check.integer(n_users, "n_users", 1)
    n_items = _check.integer(n_items, "n_items", 2)
    n_groups = _check.integer(n_groups, "n_groups", 1)
    ratings_per_user = _check.integer(ratings_per_user, "ratings_per_user", 1)
    noise = _check.number(noise, "noise", 0)
    if _check.number(affinity, "affinity", 0) > 1:
        raise ValueError(f"`affinity` must be at most 1, got {affinity}.")
    rng = np.random.default_rng(_check.integer(seed, "seed", 0))
    dimension = 16
    user_groups, item_groups = rng.integers(0, n_groups, n_users), rng.integers(0, n_groups, n_items)
    tastes = rng.standard_normal((n_groups, dimension))
    users = tastes[user_groups] + 0.5 * rng.standard_normal((n_users, dimension))
    items = tastes[item_groups] + 0.5 * rng.standard_normal((n_items, dimension))
    quality, mildness = 0.4 * rng.standard_normal(n_items), 0.3 * rng.standard_normal(n_users)
    popularity = rng.permutation(1 / (np.arange(n_items) + 10))

    counts = np.clip(np.rint(ratings_per_user * rng.gamma(4, 0.25, n_users)), 1, n_items // 2).astype(np.int64)
    rows = np.repeat(np.arange(n_users), counts + counts // 2)  # more than wanted: some draws fall together
    drawn = _drawn(rng, popularity, np.arange(n_items), len(rows))
    for group in range(n_groups) if affinity else ():
        own = np.flatnonzero((user_groups[rows] == group) & (rng.random(len(rows)) < affinity))
        members = np.flatnonzero(item_groups == group)
        if len(members):
            drawn[own] = _drawn(rng, popularity, members, len(own))
    rows, columns = np.divmod(np.unique(rows * n_items + drawn), n_items)
    order = np.lexsort((rng.random(len(rows)), rows))  # of each user's items, keep as many as wanted at random
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)
    kept = order[place < counts[rows]]
    rows, columns = rows[kept], columns[kept]

    match = np.einsum("ij,ij->i", users[rows], items[columns]) / dimension
    values = 3.5 + match + quality[columns] + mildness[rows] + noise * rng.standard_normal(len(rows))
    values = np.clip(np.rint(values), 1, 5).astype(np.float32)
    return Ratings(
        sparse.csr_matrix((values, (rows, columns)), (n_users, n_items)),
        np.arange(n_users),
        np.arange(n_items),
        np.eye(n_groups, dtype=np.float32)[user_groups],
        np.eye(n_groups, dtype=np.float32)[item_groups],
    )


def _drawn(
    rng: np.random.Generator, popularity: NDArray[np.float64], items: NDArray[np.int64], n: int
) -> NDArray[np.int64]:
    """Draw n of these items, each as often as it is popular."""
    share = np.cumsum(popularity[items])
    return items[np.minimum(np.searchsorted(share, rng.random(n) * share[-1]), len(items) - 1)]
