"""The training of DCF, DCMF and CCCF: relaxed start, discrete coordinate descent, balanced surrogates.

It minimises ``sum (r_ij - sum_k eta_ik * xi_jk * <b_i^k, d_j^k>)^2 - 2 alpha tr(B^T X) - 2 beta tr(D^T Y)`` (paper,
section 3.3) over signs B, D and balanced, decorrelated X, Y; the weights eta, xi are fixed. DCF is the case of one
component with weights 1. Arrays are component-major: codes (G, n, r), weights (G, n).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from cccf_index.learning.history import Iteration
from cccf_index.models._features import FeatureFit
from cccf_index.models._rows import Observed, RatingRows
from cccf_index.models._surrogate import compute_surrogate

FOLD_IN_ROUNDS = 5


@dataclass(frozen=True)
class TrainingPlan:
    """The checked parameters of training; all but `scale` are parameters of the models."""

    n_bits: int
    scale: float  # ratings are scaled to -scale to +scale
    regularization: float
    initialize: bool
    init_iter: int
    max_iter: int
    max_sweeps: int
    tol: float
    seed: int
    verbose: bool


@dataclass
class Side:
    """Users or items in training; `codes` are float32 during the relaxed start, and int8 signs afterwards."""

    rows: RatingRows
    weights: NDArray[np.float32]  # (G, n)
    strength: float  # alpha or beta: the weight of balance and decorrelation
    features: FeatureFit | None = None
    codes: NDArray[Any] = field(init=False)  # (G, n, r)
    surrogate: NDArray[np.float32] = field(init=False)  # (G, n, r); zero in rows without ratings

    def start(self, codes: NDArray[Any]) -> None:
        """Set the first codes, and fit the surrogates and regressions to them."""
        self.codes = codes
        if self.strength:
            self.surrogate = np.zeros(codes.shape, dtype=np.float32)
        for k in range(len(codes)):
            self.renew(k)

    def renew(self, k: int) -> None:
        """Fit the surrogate and the regression on the features to the codes of component k."""
        if self.strength:
            rated = self.rows.counts > 0
            self.surrogate[k][rated] = compute_surrogate(self.codes[k][rated])
        if self.features:
            self.features.fit(k, self.codes[k])

    def compute_pull(self, k: int) -> NDArray[np.float32]:
        """Return the linear term of every row, (n, r), of surrogate and features; without ratings, of features only."""
        pull = np.zeros(self.codes.shape[1:], dtype=np.float32)
        if self.strength:
            np.multiply(self.surrogate[k], np.float32(self.strength), out=pull)
        if self.features:
            pull += np.float32(self.features.strength) * self.features.predict(k)
        return pull

    def compute_penalty(self) -> float:
        """Return the terms of this side in the objective, besides the squared errors and up to a constant."""
        total = self.features.compute_penalty(self.codes) if self.features else 0.0
        if self.strength:
            for codes, surrogate in zip(self.codes, self.surrogate, strict=True):
                total -= 2 * self.strength * float(np.einsum("ij,ij->", codes, surrogate, dtype=np.float64))
        return total

    def take_signs(self, spare: NDArray[np.int8]) -> None:
        """End the relaxed start: round codes to signs; zeros, as in rows without ratings, get the `spare` signs."""
        self.codes = np.where(self.codes == 0, spare, np.sign(self.codes)).astype(np.int8)


def draw_balanced_signs(shape: tuple[int, int, int], rng: np.random.Generator) -> NDArray[np.int8]:
    """Return random signs, where each code (the last axis) has as many +1 as -1, or one more."""
    half = np.where(np.arange(shape[2]) % 2, np.int8(-1), np.int8(1))
    return rng.permuted(np.broadcast_to(half, shape), axis=2)


Update = Callable[[Side, int, NDArray[np.float32], Side, TrainingPlan], None]


def train(ratings: Observed, users: Side, items: Side, plan: TrainingPlan) -> list[Iteration]:
    """Learn the codes of both sides, and return the objective at the start and after each iteration."""
    rng = np.random.default_rng(plan.seed)
    begin = time.perf_counter()
    if plan.initialize:
        _relax(ratings, users, items, plan, rng)
    for side in (users, items):
        signs = draw_balanced_signs((side.weights.shape[0], side.weights.shape[1], plan.n_bits), rng)
        if plan.initialize:
            side.take_signs(signs)
        else:
            side.start(signs)
    residual = _compute_residual(ratings.users, ratings.values, users, items)
    history = [Iteration(_compute_objective(residual, users, items) / plan.scale**2, time.perf_counter() - begin)]
    with tqdm(total=plan.max_iter, desc="codes", disable=None if plan.verbose else True) as progress:
        for _ in range(plan.max_iter):
            begin = time.perf_counter()
            _sweep(ratings, users, items, residual, _flip, plan)
            history.append(
                Iteration(_compute_objective(residual, users, items) / plan.scale**2, time.perf_counter() - begin)
            )
            progress.update()
            if history[-2].objective - history[-1].objective < plan.tol * max(ratings.shape):
                break
    return history


def _relax(ratings: Observed, users: Side, items: Side, plan: TrainingPlan, rng: np.random.Generator) -> None:
    """Solve the problem with real-valued codes by alternating ridge regressions (paper, section 3.5)."""
    for side in (users, items):
        side.start(rng.standard_normal((*side.weights.shape, plan.n_bits), dtype=np.float32))
    residual = _compute_residual(ratings.users, ratings.values, users, items)
    for _ in tqdm(range(plan.init_iter), desc="relaxed", disable=None if plan.verbose else True):
        _sweep(ratings, users, items, residual, _solve, plan)


def fold_in(side: Side, other: Side, targets: NDArray[Any], plan: TrainingPlan) -> None:
    """Learn the codes of new rows, with the other side fixed; `targets` are their scaled ratings in row order.

    The steps are those of training, real-valued codes, signs and flips, but without surrogates, which belong to whole
    matrices. The code of a row does not depend on the other new rows.
    """
    side.codes = np.zeros((*side.weights.shape, plan.n_bits), dtype=np.float32)
    _improve(side, other, targets, _solve, plan)
    side.take_signs(draw_balanced_signs((len(side.weights), 1, plan.n_bits), np.random.default_rng(plan.seed)))
    _improve(side, other, targets, _flip, plan)


def _improve(side: Side, other: Side, targets: NDArray[Any], update: Update, plan: TrainingPlan) -> None:
    """Update the components of one side in turn."""
    residual = _compute_residual(side.rows, targets, side, other)
    for _ in range(FOLD_IN_ROUNDS if len(side.codes) > 1 else 1):  # a single component depends on no other
        for k in range(len(side.codes)):
            _add_scores(side.rows, residual, side, other, k, 1)
            update(side, k, residual, other, plan)
            _add_scores(side.rows, residual, side, other, k, -1)


def _solve(side: Side, k: int, targets: NDArray[np.float32], other: Side, plan: TrainingPlan) -> None:
    """Solve the real-valued codes of component k by least squares."""
    # the ridge applies to weight * code, the expanded vector, so that it does not depend on the weights
    weight = np.where(side.weights[k] > 0, side.weights[k], 1)
    size = side.rows.compute_ridges(plan.regularization * plan.scale) * weight**2
    size += side.features.strength if side.features else 0.0
    weights = (side.weights[k], other.weights[k])
    side.rows.solve_ridge(targets, other.codes[k], side.compute_pull(k), size, side.codes[k], *weights)


def _flip(side: Side, k: int, targets: NDArray[np.float32], other: Side, plan: TrainingPlan) -> None:
    """Flip the bits of component k as long as that lowers the objective."""
    weights = (side.weights[k], other.weights[k])
    side.rows.flip_bits(targets, other.codes[k], side.compute_pull(k), plan.max_sweeps, side.codes[k], *weights)


def _sweep(
    ratings: Observed, users: Side, items: Side, residual: NDArray[np.float32], update: Update, plan: TrainingPlan
) -> None:
    """Update both sides of each component, to fit the residual of the other components."""
    for k in range(len(users.codes)):
        _add_scores(ratings.users, residual, users, items, k, 1)
        update(users, k, residual, items, plan)
        update(items, k, residual[ratings.order], users, plan)
        _add_scores(ratings.users, residual, users, items, k, -1)
        users.renew(k)
        items.renew(k)


def _compute_residual(rows: RatingRows, values: NDArray[Any], side: Side, other: Side) -> NDArray[np.float32]:
    """Return the ratings minus the scores of the codes."""
    residual = values.astype(np.float32)
    for k in range(len(side.codes)):
        _add_scores(rows, residual, side, other, k, -1)
    return residual


def _add_scores(rows: RatingRows, values: NDArray[np.float32], side: Side, other: Side, k: int, factor: int) -> None:
    rows.add_scores(values, side.codes[k], other.codes[k], factor, side.weights[k], other.weights[k])


def _compute_objective(residual: NDArray[np.float32], users: Side, items: Side) -> float:
    return float(np.square(residual, dtype=np.float64).sum()) + users.compute_penalty() + items.compute_penalty()
