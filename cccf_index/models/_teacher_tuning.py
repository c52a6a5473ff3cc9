"""Tuning of the teacher: its regularization, the weight of unobserved pairs, and the share of an item bias."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cccf_index.datasets import split_ratings
from cccf_index.evaluation import rated_ndcg
from cccf_index.models.mf import MF

GRID = (0.02, 0.03, 0.05, 0.07, 0.09, 0.12, 0.16, 0.2, 0.3, 0.45, 0.7)
FIRST = 4  # the place in the grid where the search begins
SHARES = (0.0, 0.5, 1.0, 2.0)  # factors of the item bias that are tried
UNOBSERVED = 0.1
TOLERANCE = 0.0005  # loss of NDCG that is accepted for unobserved pairs: they help rankings of the whole catalogue
HELD_OUT = 0.1  # share of the ratings
TRIAL_FACTORS = 32
TRIAL_ITERATIONS = 6
USER_DAMPING, ITEM_DAMPING = 5.0, 3.0  # pseudo-ratings at the mean that are added to each row


class Choice(NamedTuple):
    """The tuned parameters of a teacher."""

    regularization: float
    unobserved: float
    bias_share: float


def compute_item_bias(item_users: sparse.csr_array, user_means: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return how far items are rated above the means of their users, (n_items,), damped if ratings are few."""
    counts = np.diff(item_users.indptr)
    rows = np.repeat(np.arange(len(counts)), counts)
    sums = np.bincount(rows, item_users.data - user_means[item_users.indices], minlength=len(counts))
    return (sums / (counts + ITEM_DAMPING)).astype(np.float32)


def compute_user_means(user_items: sparse.csr_array) -> NDArray[np.float64]:
    """Return the mean rating of each user, (n_users,), damped if ratings are few."""
    counts = np.diff(user_items.indptr)
    sums = np.bincount(np.repeat(np.arange(len(counts)), counts), user_items.data, minlength=len(counts))
    return (sums + USER_DAMPING * user_items.data.mean()) / (counts + USER_DAMPING)


def choose_teacher(user_items: sparse.csr_array, unobserved: float | None, seed: int) -> Choice:
    """Return the parameters that rank a held-out tenth of each user's ratings best.

    Small models step through a grid of regularizations as long as that helps. Then unobserved pairs are tried, unless
    their weight is given.
    """
    inner, held = (sparse.csr_array(part) for part in split_ratings(user_items, HELD_OUT, seed))
    low, high = float(user_items.data.min()), float(user_items.data.max())
    unit = (high - low) / 4  # the grid is for ratings from 1 to 5; the ridge scales with the ratings
    grid = [unit * value for value in GRID]
    if not held.nnz or inner.data.min() == inner.data.max():
        return Choice(grid[FIRST], unobserved or 0.0, 0.0)
    users = np.repeat(np.arange(held.shape[0]), np.diff(held.indptr))
    bias = compute_item_bias(inner.T.tocsr(), compute_user_means(inner))[held.indices]
    graded = sparse.csr_array(((held.data - low) * (4 / (high - low)) + 1, held.indices, held.indptr), held.shape)
    found: dict[tuple[float, float], tuple[float, float]] = {}

    def judge(regularization: float, share: float) -> tuple[float, float]:
        """Return the best NDCG, and minus the share of the bias that reaches it."""
        if (regularization, share) not in found:
            model = MF(TRIAL_FACTORS, regularization, TRIAL_ITERATIONS, unobserved=share, seed=seed, verbose=False).fit(
                inner
            )
            scores = model.predict(users, held.indices)
            found[regularization, share] = max((rated_ndcg(scores + s * bias, graded), -s) for s in SHARES)
        return found[regularization, share]

    weight = unobserved or 0.0
    place = FIRST
    for step in (1, -1):
        while 0 <= place + step < len(grid) and judge(grid[place + step], weight) > judge(grid[place], weight):
            place += step
    if unobserved is None and judge(grid[place], UNOBSERVED)[0] >= judge(grid[place], 0.0)[0] - TOLERANCE:
        weight = UNOBSERVED
    return Choice(grid[place], weight, -judge(grid[place], weight)[1])
