"""Alternating least squares: of the ratings and, with a small weight, of all other pairs.

The loss is ``sum over ratings (value - u.v)^2 + pair_weight * sum over all pairs (u.v)^2``, and a ridge for each row.
The second sum only needs the Gram matrix of a side. In the basis of its eigenvectors it is a diagonal, so a row with
few ratings stays a small system (`kernels.rating_rows.solve_short_row`), and unobserved pairs cost next to nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index.learning.rows import multiply_rows
from cccf_index.models._rows import Observed, RatingRows


class Ridge(NamedTuple):
    """The ridge of a row by its size: the number of its ratings plus the weight of its other pairs.

    It is ``regularization * size``; with another `power` than 1 it grows with that power of the size instead, and is
    the same at the typical size.
    """

    regularization: float
    power: float = 1.0

    def compute(self, rows: RatingRows, pair_weight: float, n_others: int, typical: float) -> NDArray[np.float64]:
        """Return the ridge of each row, float64 (n,); never 0."""
        pairs = pair_weight * n_others
        if self.power == 1:
            return rows.compute_ridges(self.regularization) + self.regularization * pairs
        sizes = np.maximum(rows.counts + pairs, 1e-6)
        return np.maximum(self.regularization * typical * (sizes / typical) ** self.power, 1e-6)


def solve_rows(
    rows: RatingRows,
    values: NDArray[Any],
    other: NDArray[Any],
    ridges: NDArray[np.float64],
    pair_weight: float,
) -> NDArray[Any]:
    """Return the factors of rows (n, p), with those of the other side (m, p) fixed. A row depends on no other row."""
    turned, rotation, energies = _diagonalize(other, pair_weight)
    out = np.empty((len(rows.counts), other.shape[1]), dtype=other.dtype)
    rows.solve_ridge(values, turned, np.zeros_like(out), ridges, out, diagonal=energies)
    return out if energies is None else multiply_rows(out, np.ascontiguousarray(rotation.T), 0)


class Alternation:
    """The factors of both sides, which are improved in turn.

    Parameters
    ----------
    ratings : Observed
    values : ndarray, shape (n_ratings,)
        What the ratings should score, in the order of the users' rows; unobserved pairs should score 0.
    items : ndarray, shape (n_items, p)
        First factors of the items. Their type is that of all computations.
    ridge : Ridge
    pair_weight : float
        The weight of each pair, where a rating has weight 1.
    """

    def __init__(
        self, ratings: Observed, values: NDArray[Any], items: NDArray[Any], ridge: Ridge, pair_weight: float
    ) -> None:
        self.ratings, self.pair_weight = ratings, pair_weight
        self.values = values.astype(items.dtype)
        self.by_item = self.values[ratings.order]
        self.users: NDArray[Any] = np.zeros((ratings.shape[0], items.shape[1]), items.dtype)
        self.items = items.copy()
        self.sizes = compute_sizes(ratings, pair_weight)
        self.ridges = [
            ridge.compute(rows, pair_weight, n, size)
            for rows, n, size in zip(ratings[:2], ratings.shape[::-1], self.sizes, strict=True)
        ]

    def iterate(self) -> None:
        """Solve both sides once."""
        self.solve_users()
        self._solve(self.ratings.items, self.by_item, self.users, self.ridges[1], self.items)

    def solve_users(self) -> None:
        """Solve the users, with the items fixed."""
        self._solve(self.ratings.users, self.values, self.items, self.ridges[0], self.users)

    def _solve(self, rows: RatingRows, values: Any, other: Any, ridges: Any, out: Any) -> None:
        """Solve one side into `out`; the other keeps its scores, but turns to the basis of its eigenvectors."""
        other[:], _, energies = _diagonalize(other, self.pair_weight)
        rows.solve_ridge(values, other, np.zeros_like(out), ridges, out, diagonal=energies)

    def compute_objective(self) -> float:
        """Return the loss, ridges included."""
        residual = self.values.copy()
        self.ratings.users.add_scores(residual, self.users, self.items, -1)
        total = float(np.square(residual, dtype=np.float64).sum())
        for ridges, factors in zip(self.ridges, (self.users, self.items), strict=True):
            total += float(ridges @ np.einsum("ij,ij->i", factors, factors))
        if self.pair_weight:
            grams = [factors.astype(np.float64).T @ factors for factors in (self.users, self.items)]
            total += self.pair_weight * float(np.sum(grams[0] * grams[1]))
        return total


def compute_sizes(ratings: Observed, pair_weight: float) -> list[float]:
    """Return the mean size of the users and of the items, see `Ridge`."""
    n_users, n_items = ratings.shape
    return [
        len(ratings.values) / n_users + pair_weight * n_items,
        len(ratings.values) / n_items + pair_weight * n_users,
    ]


def _diagonalize(factors: NDArray[Any], pair_weight: float) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
    """Return factors in the basis of their Gram matrix's eigenvectors, that basis, and the diagonal of all pairs.

    Without unobserved pairs the factors stay as they are.
    """
    if not pair_weight:
        return factors, np.eye(factors.shape[1], dtype=factors.dtype), None
    energies, vectors = np.linalg.eigh(pair_weight * (factors.T @ factors))
    rotation = vectors.astype(factors.dtype)
    return factors @ rotation, rotation, np.maximum(energies, 0).astype(factors.dtype)
