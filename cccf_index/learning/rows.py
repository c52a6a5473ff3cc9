"""Rows as codes while they are learned: starts, row updates on all threads, the error over all pairs.

The error of codes x, y for vectors u, v is ``sum_ij p_i * q_j * (u_i.v_j - x_i.y_j)^2`` over *all* pairs, with weights
p and q that sum to 1. It only needs the second moments of both sides, never a number for each pair.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index import _threads
from cccf_index.codes import CompositionalCodes
from cccf_index.kernels import code_rows

ROUNDS = 4  # of bits and weights in one update of a row
ITQ_ITERATIONS = 30
RANK_TOLERANCE = 1e-6  # of a singular value: float32 vectors know no smaller ones


class Frame(NamedTuple):
    """What codes of one side are fitted to: the quadratic form that the other side makes of a row's error."""

    gram: NDArray[np.float32]  # (d, d): the second moment of the other side's codes
    cross: NDArray[np.float32]  # (d, p): what takes a vector to the linear term of its row

    @classmethod
    def of(cls, gram: NDArray[Any], cross: NDArray[Any]) -> Frame:
        """Take moments of any precision."""
        return cls(*(np.ascontiguousarray(part, dtype=np.float32) for part in (gram, cross)))

    def best_map(self) -> NDArray[np.float32]:
        """Return the map (d, p) that takes a vector to the real-valued row with the least error."""
        return solve(self.gram, self.cross).astype(np.float32)


class Pairs(NamedTuple):
    """Pairs that count besides all pairs: CSR rows with scores, the other side's codes, a size for each row."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    targets: NDArray[np.float32]
    sizes: NDArray[np.float32]
    other: NDArray[np.float32]

    @classmethod
    def none(cls, n: int, d: int) -> Pairs:
        """Return no pairs for n rows."""
        numbers = np.empty(0, np.float32)
        return cls(np.zeros(n + 1, np.int64), np.empty(0, np.int32), numbers, numbers, np.empty((0, d), np.float32))


class Coded(NamedTuple):
    """Rows as signs (n, G * r) and weights (n, G), which an update changes in place."""

    signs: NDArray[np.int8]
    weights: NDArray[np.float32]

    @classmethod
    def of(cls, x: NDArray[Any], n_components: int, max_active: int) -> Coded:
        """Start from real-valued rows: their signs, and the mean size of each component, the largest ones of a row."""
        sizes = np.abs(x).reshape(len(x), n_components, x.shape[1] // n_components).mean(axis=2).astype(np.float32)
        if max_active < n_components:
            least = np.argpartition(sizes, n_components - max_active, axis=1)[:, : n_components - max_active]
            np.put_along_axis(sizes, least, 0, axis=1)
        return cls(np.where(x < 0, np.int8(-1), np.int8(1)), np.ascontiguousarray(sizes))

    def _parts(self) -> NDArray[np.int8]:
        return self.signs.reshape(*self.weights.shape, self.signs.shape[1] // self.weights.shape[1])

    def vectors(self) -> NDArray[np.float32]:
        """Return the expanded vectors."""
        return (self._parts() * self.weights[:, :, None]).reshape(self.signs.shape)

    def codes(self) -> CompositionalCodes:
        """Return the rows packed."""
        return CompositionalCodes.from_signs(self._parts(), self.weights)

    def reordered(self, order: NDArray[np.int64]) -> Coded:
        """Return the rows with their components in another order."""
        signs = np.ascontiguousarray(self._parts()[:, order]).reshape(self.signs.shape)
        return Coded(signs, np.ascontiguousarray(self.weights[:, order]))

    def improve(
        self, x: NDArray[Any], frame: Frame, max_active: int, pairs: Pairs | None = None, rounds: int = ROUNDS
    ) -> None:
        """Lower the error of each row, a code of the vector in `x`, with the other side fixed."""
        linear = mapped(x, frame.cross)
        extra = Pairs.none(len(x), linear.shape[1]) if pairs is None else pairs

        def work(start: int, stop: int) -> None:
            form = (extra.indptr, extra.indices, extra.targets, extra.sizes, extra.other, linear, frame.gram)
            code_rows.code_rows(*form, max_active, rounds, self.signs, self.weights, start, stop)

        _threads.run_chunks(work, len(x), _threads.thread_count(0), least=64, most=1024)


def mapped(x: NDArray[np.float32], matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return ``x @ matrix.T``, each row as if it were alone."""
    return times_columns(x, np.ascontiguousarray(matrix.T), 0)


def times_columns(x: NDArray[np.float32], columns: NDArray[np.float32], num_threads: int) -> NDArray[np.float32]:
    """Return ``x @ columns``, each row as if it were alone; 0 threads: as many as faiss uses."""
    out = np.empty((len(x), columns.shape[1]), dtype=np.float32)

    def work(start: int, stop: int) -> None:
        code_rows.map_rows(x, columns, out, start, stop)

    _threads.run_chunks(work, len(x), _threads.thread_count(num_threads), least=64, most=4096)
    return out


def solve(gram: NDArray[Any], right: NDArray[Any]) -> NDArray[np.float64]:
    """Solve a system of second moments; directions without energy get nothing."""
    ridge = RANK_TOLERANCE * max(np.trace(gram) / len(gram), np.finfo(np.float32).tiny)
    return np.linalg.solve(gram.astype(np.float64) + ridge * np.eye(len(gram)), right.astype(np.float64))


def moment(x: NDArray[Any], weights: NDArray[Any], y: NDArray[Any] | None = None) -> NDArray[np.float64]:
    """Return ``sum_i weights_i * x_i y_i^T``; y is x where it is not given."""
    weighted = (x * weights[:, None].astype(np.float32)).astype(np.float32)
    return (weighted.T @ (x if y is None else y)).astype(np.float64)


def balanced_maps(users: NDArray[Any], items: NDArray[Any], rank: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return maps (p, k) of both sides to the first singular directions of all scores, by falling singular value.

    `users` and `items` are second moments (p, p). The mapped sides have equal, diagonal second moments, and their
    inner products are the best approximation of rank k <= `rank` to the scores.
    """
    left, left_inverse = _roots(users)
    right, right_inverse = _roots(items)
    P, sizes, Q = np.linalg.svd(left @ right)
    k = min(rank, int(np.count_nonzero(sizes > RANK_TOLERANCE * max(sizes[0], np.finfo(np.float32).tiny))))
    spread = np.sqrt(sizes[:k])
    return left_inverse @ P[:, :k] * spread, right_inverse @ Q[:k].T * spread


def _roots(second: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the symmetric root of a second moment, and its pseudo-inverse."""
    values, Q = np.linalg.eigh(second)
    roots = np.sqrt(np.maximum(values, 0))
    kept = roots > RANK_TOLERANCE * roots[-1]
    inverse = np.where(kept, 1 / np.where(kept, roots, 1), 0)
    return (Q * roots) @ Q.T, (Q * inverse) @ Q.T


def turned(x: NDArray[Any], Q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn the map Q, with orthonormal rows, so that signs of ``x @ Q`` lose least (ITQ)."""
    for _ in range(ITQ_ITERATIONS if len(Q) else 0):
        P, _, R = np.linalg.svd(x.T @ np.where(x @ Q < 0, -1.0, 1.0), full_matrices=False)
        Q = P @ R
    return Q


def dealt(x: NDArray[Any], n_components: int, n_bits: int, together: bool, rng: np.random.Generator) -> NDArray[Any]:
    """Return a map (k, G * r) that deals k singular directions to components, and turns them inside each.

    Neighbours come together, which suits flat spectra; or they are dealt like cards, one to each component in turn.
    That is better where few directions hold most of the energy: the weight of a component then is a coordinate along
    its strongest direction.
    """
    k = x.shape[1]
    parts = np.array_split(np.arange(k), n_components)
    full = np.zeros((k, n_components * n_bits))
    for number in range(n_components):
        part = parts[number] if together else np.arange(number, k, n_components)
        Q = np.linalg.qr(rng.standard_normal((n_bits, n_bits)))[0][: len(part)]
        full[part, number * n_bits : (number + 1) * n_bits] = turned(x[:, part], Q)
    return full


def grouped(x: NDArray[Any], n_components: int, n_bits: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a map (k, G * r) that turns all directions at once.

    Axes whose sizes rise and fall together share a component: so it finds the axes of vectors that are codes.
    """
    d = n_components * n_bits
    Q = turned(x, np.linalg.qr(rng.standard_normal((d, d)))[0][: x.shape[1]])
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
