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
    popularity: float = 1.0,
    seed: int = 0,
) -> Ratings:
    """Generate ratings from 1 to 5 with planted groups of taste.

    Each user and each item belongs to one of `n_groups` groups, and members of a group are similar. Users also differ
    in how many items they rate and in how high they rate, items in popularity and quality. A rating is how well user
    and item match, plus Gaussian noise, rounded.

    Parameters
    ----------
    n_users : int
        The number of users.
    n_items : int
        The number of items.
    n_groups : int
        Groups of users and of items.
    ratings_per_user : int
        The mean number of ratings per user. No user rates more than half of the items.
    noise : float
        The standard deviation of the noise.
    affinity : float
        The share of a user's items that are drawn from the user's own group, 0 to 1. The others are drawn from all.
    popularity : float
        How much more often popular items are drawn: the item in place p with a weight of ``(p + 10) ** -popularity``.
        At 0 all items are equally popular.
    seed : int
        Seed of everything random.

    Returns
    -------
    Ratings
        `user_features` and `item_features` are one-hot groups, one column per group.
    """
    n_users = _check.integer(n_users, "n_users", 1)
    n_items = _check.integer(n_items, "n_items", 2)
    n_groups = _check.integer(n_groups, "n_groups", 1)
    ratings_per_user = _check.integer(ratings_per_user, "ratings_per_user", 1)
    noise = _check.number(noise, "noise", 0)
    if _check.number(affinity, "affinity", 0) > 1:
        raise ValueError(f"`affinity` must be at most 1, got {affinity}.")
    exponent = _check.number(popularity, "popularity", 0)
    rng = np.random.default_rng(_check.integer(seed, "seed", 0))
    dimension = 16
    user_groups, item_groups = rng.integers(0, n_groups, n_users), rng.integers(0, n_groups, n_items)
    tastes = rng.standard_normal((n_groups, dimension))
    users = tastes[user_groups] + 0.5 * rng.standard_normal((n_users, dimension))
    items = tastes[item_groups] + 0.5 * rng.standard_normal((n_items, dimension))
    quality, mildness = 0.4 * rng.standard_normal(n_items), 0.3 * rng.standard_normal(n_users)
    appeal = rng.permutation(1 / (np.arange(n_items) + 10.0) ** exponent)

    counts = np.clip(np.rint(ratings_per_user * rng.gamma(4, 0.25, n_users)), 1, n_items // 2).astype(np.int64)
    rows = np.repeat(np.arange(n_users), counts + counts // 2)  # more than needed: some draws repeat
    drawn = _draw_items(rng, appeal, np.arange(n_items), len(rows))
    for group in range(n_groups) if affinity else ():
        own = np.flatnonzero((user_groups[rows] == group) & (rng.random(len(rows)) < affinity))
        members = np.flatnonzero(item_groups == group)
        if len(members):
            drawn[own] = _draw_items(rng, appeal, members, len(own))
    rows, columns = np.divmod(np.unique(rows * n_items + drawn), n_items)
    order = np.lexsort((rng.random(len(rows)), rows))  # keep a random choice of each user's items
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


def _draw_items(
    rng: np.random.Generator, appeal: NDArray[np.float64], items: NDArray[np.int64], n: int
) -> NDArray[np.int64]:
    """Draw n of these items with replacement, in proportion to their appeal."""
    share = np.cumsum(appeal[items])
    return items[np.minimum(np.searchsorted(share, rng.random(n) * share[-1]), len(items) - 1)]
