"""Coded rows and their update: improve the code of each row while the other side is fixed.

The error of codes x, y for vectors u, v is ``sum_ij p_i * q_j * (u_i.v_j - x_i.y_j)^2`` over *all* pairs, with weights
p and q that sum to 1. It only depends on the second moments of both sides, so nothing is computed per pair.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index import _check, _threads
from cccf_index.codes import CompositionalCodes
from cccf_index.kernels import code_rows
from cccf_index.kernels.row_updates import borrow_scratch
from cccf_index.kernels.row_vectors import LANES

ROUNDS = 4  # of bits and weights in one update of a row
SAFE_SQUARES = np.float32(_check.SAFE_SQUARES)
RANK_TOLERANCE = 1e-6  # of the largest singular value: float32 vectors cannot tell smaller ones from rounding


class Frame(NamedTuple):
    """The problem that codes of one side solve: the error of a row as a quadratic form, with the other side fixed."""

    gram: NDArray[np.float32]  # (d, d): the second moment of the other side's codes
    cross: NDArray[np.float32]  # (d, p): maps a vector to the linear term of its row

    @classmethod
    def from_moments(cls, gram: NDArray[Any], cross: NDArray[Any]) -> Frame:
        """Round moments of any precision to float32."""
        return cls(*(np.ascontiguousarray(part, dtype=np.float32) for part in (gram, cross)))

    def solve_map(self) -> NDArray[np.float32]:
        """Return the map (d, p) from a vector to the real-valued row with the smallest error.

        A system that is singular up to rounding gets a larger ridge: otherwise the map would be rounding errors,
        multiplied by a million.
        """
        rounding = len(self.gram) * float(np.finfo(np.float32).eps)
        tolerance = rounding if is_singular(self.gram) else RANK_TOLERANCE
        return solve(self.gram, self.cross, tolerance).astype(np.float32)


class ExtraPairs(NamedTuple):
    """Pairs that count in addition to all pairs; those of row i stand from ``starts[i]`` to ``stops[i]``."""

    starts: NDArray[np.int64]  # (n,), or (0,) if no row has any
    stops: NDArray[np.int64]  # the same
    indices: NDArray[np.int32]  # (n_pairs,): rows of `other`
    targets: NDArray[np.float32]  # (n_pairs,): the scores to keep
    sizes: NDArray[np.float32]  # (n,): how much a squared error of the row counts
    other: NDArray[np.float32]  # (m, padded d): expanded codes or queries of the other side

    @classmethod
    def empty(cls, d: int) -> ExtraPairs:
        """Return no pairs, for any number of rows."""
        none, numbers = np.empty(0, np.int64), np.empty(0, np.float32)
        return cls(none, none, np.empty(0, np.int32), numbers, numbers, pad_columns(np.empty((0, d), np.float32)))

    def count_most(self) -> int:
        """Return the number of pairs of the row that has the most."""
        return int((self.stops - self.starts).max()) if len(self.starts) else 0


class CodedRows(NamedTuple):
    """Rows as signs (n, G * r) and weights (n, G), which an update changes in place."""

    signs: NDArray[np.int8]
    weights: NDArray[np.float32]

    @classmethod
    def from_vectors(cls, x: NDArray[Any], n_components: int, max_active: int) -> CodedRows:
        """Round real-valued rows (n, G * r): their signs, and the mean size of each component as its weight.

        Of each row only the `max_active` largest components get a weight.
        """
        sizes = np.abs(x).reshape(len(x), n_components, x.shape[1] // n_components).mean(axis=2).astype(np.float32)
        if max_active < n_components:
            least = np.argpartition(sizes, n_components - max_active, axis=1)[:, : n_components - max_active]
            np.put_along_axis(sizes, least, 0, axis=1)
        return cls(np.where(x < 0, np.int8(-1), np.int8(1)), np.ascontiguousarray(sizes))

    def _split(self) -> NDArray[np.int8]:
        """Return the signs by component, (n, G, r)."""
        return self.signs.reshape(*self.weights.shape, self.signs.shape[1] // self.weights.shape[1])

    def take(self, rows: slice) -> CodedRows:
        """Return some of the rows, which an update changes here as well."""
        return CodedRows(self.signs[rows], self.weights[rows])

    def expand(self) -> NDArray[np.float32]:
        """Return the expanded vectors (n, G * r): weight times sign."""
        return (self._split() * self.weights[:, :, None]).reshape(self.signs.shape)

    def pack(self) -> CompositionalCodes:
        """Return the rows as CompositionalCodes."""
        return CompositionalCodes.from_signs(self._split(), self.weights)

    def reorder(self, order: NDArray[np.int64]) -> CodedRows:
        """Return the rows with their components in another order."""
        signs = np.ascontiguousarray(self._split()[:, order]).reshape(self.signs.shape)
        return CodedRows(signs, np.ascontiguousarray(self.weights[:, order]))

    def improve(
        self, x: NDArray[Any], frame: Frame, max_active: int, pairs: ExtraPairs | None = None, rounds: int = ROUNDS
    ) -> None:
        """Lower the error of each row as the code of its vector in `x` (n, p), in place, with the other side fixed."""
        d, n_components = len(frame.gram), self.weights.shape[1]
        extra = ExtraPairs.empty(d) if pairs is None else pairs
        vectors = np.ascontiguousarray(x, dtype=np.float32)
        cross, most = pad_columns(frame.cross.T), extra.count_most()
        problem = (cross[:0], cross, *extra, pad_columns(frame.gram), max_active, rounds)
        codes = (self.signs, np.empty((0, 0), np.uint8), self.weights)

        def work(start: int, stop: int) -> None:
            scratch = borrow_scratch(d, n_components, most)
            code_rows.code_rows(get_address(vectors), SAFE_SQUARES, *problem, *codes, *scratch, start, stop)

        _threads.run_chunks(work, len(x), _threads.thread_count(0), least=16, most=1024)


def pad_columns(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a matrix as kernels read it: contiguous, with zeros up to whole vectors of columns."""
    missing = -matrix.shape[1] % LANES
    return np.ascontiguousarray(np.pad(matrix, ((0, 0), (0, missing))) if missing else matrix)


def get_address(x: NDArray[np.float32]) -> int:
    """Return where the values of an array stand: a kernel is compiled anew for a read-only array, but not for this."""
    return int(x.__array_interface__["data"][0])


def map_rows(x: NDArray[np.float32], matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return ``x @ matrix.T``; the result of a row does not depend on the other rows, as it would with BLAS."""
    return multiply_rows(x, np.ascontiguousarray(matrix.T), 0)


def multiply_rows(x: NDArray[np.float32], columns: NDArray[np.float32], num_threads: int) -> NDArray[np.float32]:
    """Return ``x @ columns``, each row independent of the others; 0 threads means as many as faiss uses."""
    n_columns, is_single = columns.shape[1], x.dtype == np.float32
    if is_single:
        x, columns = np.ascontiguousarray(x), pad_columns(columns)
    out = np.empty((len(x), columns.shape[1]), dtype=x.dtype)

    def work(start: int, stop: int) -> None:
        (code_rows.map_tiles if is_single else code_rows.map_rows)(x, columns, out, start, stop)

    _threads.run_chunks(work, len(x), _threads.thread_count(num_threads), least=64, most=4096)
    return out if out.shape[1] == n_columns else np.ascontiguousarray(out[:, :n_columns])


def solve(gram: NDArray[Any], right: NDArray[Any], tolerance: float = RANK_TOLERANCE) -> NDArray[np.float64]:
    """Solve ``gram @ x = right`` with a ridge of `tolerance` times the mean energy: without energy x is zero."""
    ridge = tolerance * max(np.trace(gram) / len(gram), np.finfo(np.float32).tiny)
    return np.linalg.solve(gram.astype(np.float64) + ridge * np.eye(len(gram)), right.astype(np.float64))


def is_singular(gram: NDArray[Any]) -> bool:
    """Whether a matrix of second moments has a pivot within the float32 rounding of its entries."""
    energy = float(np.trace(gram))
    try:
        factor = np.linalg.cholesky(gram.astype(np.float64) + RANK_TOLERANCE * energy / len(gram) * np.eye(len(gram)))
    except np.linalg.LinAlgError:
        return True
    return bool(np.square(np.diag(factor)).min() < np.finfo(np.float32).eps * energy)
