"""How codes start before they are improved: signs of singular directions that are dealt to components and rotated."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index.learning.plan import LearningPlan
from cccf_index.learning.rows import RANK_TOLERANCE, CodedRows
from cccf_index.learning.sides import Sides, sample_rows

WAYS = ("together", "apart", "grouped")  # to assign singular directions to components
EXAMPLES = 4096  # rows of each side that rotations are fitted to
ITQ_ITERATIONS = 30


def start_codes(
    sides: Sides, maps: tuple[NDArray[Any], NDArray[Any]], plan: LearningPlan, way: str
) -> tuple[CodedRows, CodedRows]:
    """Return the first codes of users and items; maps: of `compute_balanced_maps`; `way` is one of `WAYS`."""
    rng = np.random.default_rng(plan.seed)
    shape, rows = (plan.n_components, plan.n_bits), (sides.users, sides.items)
    examples = np.concatenate([x[sample_rows(len(x), EXAMPLES, rng)] @ to for x, to in zip(rows, maps, strict=True)])
    if way == "grouped":
        turn = group_directions(examples, *shape, rng)
    else:
        turn = deal_directions(examples, *shape, way == "together", rng)
    active = (plan.max_active_users, plan.max_active)
    users, items = (
        CodedRows.from_vectors(x @ (to @ turn).astype(np.float32), plan.n_components, most)
        for x, to, most in zip(rows, maps, active, strict=True)
    )
    return users, items


def compute_balanced_maps(users: NDArray[Any], items: NDArray[Any], rank: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return maps (p, k) of users and items to the leading singular directions of all scores, largest first.

    `users` and `items` are second moments (p, p). After the maps both sides have the same diagonal second moment, and
    their inner products are the best approximation of rank k <= `rank` to the scores.
    """
    left, left_inverse = _compute_roots(users)
    right, right_inverse = _compute_roots(items)
    P, sizes, Q = np.linalg.svd(left @ right)
    k = min(rank, int(np.count_nonzero(sizes > RANK_TOLERANCE * max(sizes[0], np.finfo(np.float32).tiny))))
    spread = np.sqrt(sizes[:k])
    return left_inverse @ P[:, :k] * spread, right_inverse @ Q[:k].T * spread


def _compute_roots(second: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the symmetric square root of a second moment, and the pseudo-inverse of that root."""
    values, Q = np.linalg.eigh(second)
    roots = np.sqrt(np.maximum(values, 0))
    kept = roots > RANK_TOLERANCE * roots[-1]
    inverse = np.where(kept, 1 / np.where(kept, roots, 1), 0)
    return (Q * roots) @ Q.T, (Q * inverse) @ Q.T


def rotate_to_signs(x: NDArray[Any], Q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rotate the map Q, which has orthonormal rows, so that the signs of ``x @ Q`` lose as little as possible (ITQ)."""
    for _ in range(ITQ_ITERATIONS if len(Q) else 0):
        P, _, R = np.linalg.svd(x.T @ np.where(x @ Q < 0, -1.0, 1.0), full_matrices=False)
        Q = P @ R
    return Q


def deal_directions(
    x: NDArray[Any], n_components: int, n_bits: int, together: bool, rng: np.random.Generator
) -> NDArray[Any]:
    """Return a map (k, G * r) that assigns k singular directions to components, and rotates them within each.

    With `together` neighbouring directions share a component, which suits flat spectra. Otherwise they are dealt like
    cards, one to each component in turn. That is better if few directions hold most of the energy: the weight of a
    component is then a coordinate along its strongest direction.
    """
    k = x.shape[1]
    parts = np.array_split(np.arange(k), n_components)
    full = np.zeros((k, n_components * n_bits))
    for number in range(n_components):
        part = parts[number] if together else np.arange(number, k, n_components)
        Q = np.linalg.qr(rng.standard_normal((n_bits, n_bits)))[0][: len(part)]
        full[part, number * n_bits : (number + 1) * n_bits] = rotate_to_signs(x[:, part], Q)
    return full


def group_directions(x: NDArray[Any], n_components: int, n_bits: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a map (k, G * r) that rotates all directions together, and then groups the rotated axes.

    Axes whose sizes correlate share a component. This recovers the components of vectors that are themselves codes.
    """
    d = n_components * n_bits
    Q = rotate_to_signs(x, np.linalg.qr(rng.standard_normal((d, d)))[0][: x.shape[1]])
    sizes = np.abs(x @ Q)
    sizes -= sizes.mean(axis=0)
    spread = np.maximum(np.linalg.norm(sizes, axis=0), np.finfo(np.float32).tiny)
    alike = (sizes.T @ sizes) / np.outer(spread, spread)
    left, order = list(range(d)), []
    for _ in range(n_components):
        first = max(left, key=lambda axis: spread[axis])
        chosen = sorted(left, key=lambda axis: -alike[first, axis])[:n_bits]
        order += chosen
        left = [axis for axis in left if axis not in chosen]
    return Q[:, order]
