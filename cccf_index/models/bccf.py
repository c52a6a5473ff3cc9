"""BCCF: binary codes in two stages, real-valued factors that are then rotated and rounded (Zhou and Zha, KDD 2012)."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from cccf_index import _check, _threads
from cccf_index.codes import MAX_BITS, CompositionalCodes
from cccf_index.learning.history import Iteration
from cccf_index.models._coded import CodeModel, find_rating_range, scale_ratings
from cccf_index.models._rows import Observed, RatingRows
from cccf_index.models._training import draw_balanced_signs


class BCCF(CodeModel):
    """Binary codes from real-valued factors: balanced matrix factorisation, an orthogonal rotation, then signs.

    The rotation brings the factors as close to their signs as possible (ITQ), and changes no inner product of factors.

    Parameters
    ----------
    n_bits : int
        The number of bits of a code, 1 to 512.
    regularization : float
        The ridge of a row per rating, in units of the scaled ratings.
    balance : float
        How strongly the mean factors of users and of items are pulled to zero, in the same units.
    max_iter : int
        The number of iterations; each solves both sides.
    n_rotations : int
        The number of iterations that improve the rotation.
    seed : int
        Seed of the first factors and of the rotation.
    verbose : bool
        Show a progress bar if the output is a terminal.

    Attributes
    ----------
    user_codes_, item_codes_ : CompositionalCodes
        The signs of the factors: one component, all weights 1.
    user_factors_, item_factors_ : ndarray of float32, shapes (n_users, n_bits) and (n_items, n_bits)
        The rotated factors.

    Examples
    --------
    >>> from cccf_index.datasets import synthetic_ratings
    >>> from cccf_index.models import BCCF
    >>> ratings = synthetic_ratings(n_users=200, n_items=100, seed=0)
    >>> BCCF(n_bits=16).fit(ratings.user_items).item_codes_
    CompositionalCodes(n=100, n_components=1, n_bits=16, sparsity=0.00)
    """

    user_factors_: NDArray[np.float32]
    item_factors_: NDArray[np.float32]

    def __init__(
        self,
        n_bits: int = 64,
        regularization: float = 0.06,
        balance: float = 0.01,
        max_iter: int = 8,
        n_rotations: int = 50,
        seed: int = 0,
        verbose: bool = True,
    ) -> None:
        self.n_bits = n_bits
        self.regularization = regularization
        self.balance = balance
        self.max_iter = max_iter
        self.n_rotations = n_rotations
        self.seed = seed
        self.verbose = verbose

    @_threads.limit_blas()
    def fit(self, user_items: Any, *, item_features: Any = None, user_features: Any = None) -> BCCF:
        """Learn codes from a scipy.sparse matrix of ratings (n_users, n_items); a stored zero is a rating of zero."""
        n_bits = _check.integer(self.n_bits, "n_bits", 1, MAX_BITS)
        max_iter = _check.integer(self.max_iter, "max_iter", 1)
        n_rotations = _check.integer(self.n_rotations, "n_rotations", 0)
        self._check_ridge(), self._check_balance()
        rng = np.random.default_rng(_check.integer(self.seed, "seed", 0))
        ratings = self._check_observed(user_items, item_features=item_features, user_features=user_features)
        scale = float(n_bits)
        scaled = ratings._replace(values=scale_ratings(ratings.values, find_rating_range(ratings), scale))
        users, items = (rng.standard_normal((n, n_bits), dtype=np.float32) for n in ratings.shape)
        users[ratings.users.counts == 0], items[ratings.items.counts == 0] = 0, 0
        history = self._relax(scaled, users, items, max_iter, scale)
        lengths = np.linalg.norm(users), np.linalg.norm(items)
        size = np.sqrt(lengths[0] / lengths[1]) if min(lengths) > 0 else 1.0  # gives both sides the same influence
        rotation = _find_rotation(np.concatenate([users / size, items * size]).astype(np.float64), n_rotations, rng)
        users, items = ((factors @ rotation).astype(np.float32) for factors in (users, items))
        self._take(ratings, scale, self._round_to_signs(users), self._round_to_signs(items), history)
        self.user_factors_, self.item_factors_ = users, items
        return self

    def _check_ridge(self) -> float:
        return _check.number(self.regularization, "regularization", 0)

    def _check_balance(self) -> float:
        return _check.number(self.balance, "balance", 0)

    def _relax(
        self, ratings: Observed, users: NDArray[np.float32], items: NDArray[np.float32], max_iter: int, scale: float
    ) -> list[Iteration]:
        values = ratings.values.astype(np.float32)
        history = [Iteration(self._compute_objective(ratings, values, users, items, scale), 0.0)]
        for _ in tqdm(range(max_iter), desc="BCCF", disable=None if self.verbose else True):
            begin = time.perf_counter()
            self._solve(ratings.users, values, items, users, scale, self._check_balance())
            self._solve(ratings.items, values[ratings.order], users, items, scale, self._check_balance())
            history.append(
                Iteration(self._compute_objective(ratings, values, users, items, scale), time.perf_counter() - begin)
            )
        return history

    def _solve(
        self,
        rows: RatingRows,
        values: NDArray[Any],
        other: NDArray[np.float32],
        out: NDArray[np.float32],
        scale: float,
        balance: float = 0.0,
    ) -> None:
        """Solve the rows of one side, with the other fixed.

        The penalty ``n * |mean x|^2`` couples all rows. For any z it is at most the sum over rows of
        ``|x_i - (z_i - mean z)|^2``, and equal to it at x = z. So with the previous rows for z, each row can be solved
        on its own, and the objective never rises.
        """
        ridge, pull = rows.compute_ridges(self._check_ridge() * scale), np.zeros_like(out)
        if balance:
            size = np.float32(balance * scale * rows.counts.mean())
            ridge += size
            np.multiply(out - out.mean(axis=0), size, out=pull)
            pull[rows.counts == 0] = 0  # rows without ratings stay 0
        rows.solve_ridge(values, other, pull, ridge, out)

    def _compute_objective(
        self, ratings: Observed, values: NDArray[Any], users: NDArray[Any], items: NDArray[Any], scale: float
    ) -> float:
        residual = values.copy()
        ratings.users.add_scores(residual, users, items, -1)
        total = float(np.square(residual, dtype=np.float64).sum())
        for rows, factors in ((ratings.users, users), (ratings.items, items)):
            sizes = np.einsum("ij,ij->i", factors, factors)
            mean = factors.mean(axis=0, dtype=np.float64)
            total += float(rows.compute_ridges(self._check_ridge() * scale) @ sizes)
            total += self._check_balance() * scale * float(rows.counts.sum() * (mean @ mean))
        return total / scale**2

    def _encode(self, matrix: Any, side: str) -> CompositionalCodes:
        other = self.item_factors_ if side == "user" else self.user_factors_
        factors = np.empty((matrix.shape[0], other.shape[1]), dtype=np.float32)
        values = scale_ratings(matrix.data, self.rating_range_, self.rating_scale_).astype(np.float32)
        self._solve(RatingRows.from_matrix(matrix), values, other, factors, self.rating_scale_)
        return self._round_to_signs(factors)

    def _round_to_signs(self, factors: NDArray[np.float32]) -> CompositionalCodes:
        """Return the signs of factors; zeros, as in rows without ratings, get the signs of one balanced code."""
        spare = draw_balanced_signs((1, 1, factors.shape[1]), np.random.default_rng(self.seed))[0]
        return CompositionalCodes.from_signs(np.where(factors == 0, spare, np.sign(factors))[:, None])

    def _verify(self) -> None:
        super()._verify()
        n_bits = self.item_codes_.n_bits
        shapes = (self.n_users_, n_bits), (self.n_items_, n_bits)
        if (self.user_factors_.shape, self.item_factors_.shape) != shapes:
            raise ValueError("the factors and the codes differ in shape")


def _find_rotation(factors: NDArray[np.float64], n_rotations: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the orthogonal matrix that brings factors closest to signs, by alternating signs and Procrustes (ITQ).

    In float64: the order in which BLAS adds depends on its threads, and must not decide a sign.
    """
    rotation = np.linalg.qr(rng.standard_normal((factors.shape[1],) * 2))[0]
    for _ in range(n_rotations):
        left, _, right = np.linalg.svd(factors.T @ np.sign(factors @ rotation))
        rotation = left @ right
    return rotation
