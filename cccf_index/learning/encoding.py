"""Encoding: vectors to codes in one pass of a kernel, from the first signs to packed bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index import _check, _threads
from cccf_index.codes import CompositionalCodes, no_words
from cccf_index.kernels import code_rows
from cccf_index.kernels.row_updates import borrow_scratch
from cccf_index.learning.plan import LearningPlan
from cccf_index.learning.probes import CHUNK, Probes, ProbeTable
from cccf_index.learning.rows import ROUNDS, SAFE_SQUARES, ExtraPairs, Frame, get_address, pad_columns

NO_SIGNS = np.empty((0, 0), np.int8)


class RowEncoder(NamedTuple):
    """What encodes the vectors of one side; its matrices are laid out for the kernel."""

    start: NDArray[np.float32]  # (p, padded d): maps vectors to rows whose signs are the first codes
    cross: NDArray[np.float32]  # (p, padded d): maps vectors to the linear terms of their rows
    gram: NDArray[np.float32]  # (d, padded d)
    none: ExtraPairs
    probes: ProbeTable | None
    shape: tuple[int, int]  # components and bits
    max_active: int

    @classmethod
    def from_frame(
        cls, frame: Frame, start: NDArray[np.float32], probes: Probes | None, plan: LearningPlan, max_active: int
    ) -> RowEncoder:
        """Lay out what was learned: `start` (d, p) maps vectors to the first codes, which `frame` improves."""
        first, cross, gram = (pad_columns(matrix) for matrix in (start.T, frame.cross.T, frame.gram))
        shape = plan.n_components, plan.n_bits
        return cls(
            first, cross, gram, ExtraPairs.empty(len(gram)), probes.make_table() if probes else None, shape, max_active
        )

    def make_codes(self, n: int) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Return bits (n, G, W) and weights (n, G), to be filled."""
        words = no_words(*self.shape)
        return np.empty((n, *words.shape[1:]), words.dtype), np.empty((n, self.shape[0]), np.float32)

    def encode(self, x: NDArray[np.float32], name: str) -> CompositionalCodes:
        """Return the codes of vectors `name` (n, p), contiguous; the code of a row depends on no other row.

        They need not be checked: the kernel tells whether they are finite, so that one query does not wait for that.
        """
        bits, weights = self.make_codes(len(x))
        if self.probes is None:
            is_safe = self._fill(x, self.none, bits, weights)
        else:
            is_safe = True
            for start in range(0, len(x), CHUNK):
                rows = slice(start, start + CHUNK)
                is_safe &= self._fill(x[rows], self.probes.find_pairs(x[rows]), bits[rows], weights[rows])
        if is_safe:
            return CompositionalCodes._trusted(bits, weights, self.shape[1])
        _check.matrix(x, name, x.shape[1])
        return CompositionalCodes(bits, weights, self.shape[1])  # the vectors are good: some weight may not be

    def _fill(
        self, x: NDArray[np.float32], pairs: ExtraPairs, bits: NDArray[Any], weights: NDArray[np.float32]
    ) -> bool:
        """Fill the codes of rows; return whether vectors and weights are surely finite."""
        if len(x) == 1:
            return self.prepare(x, pairs, bits, weights)(0, 1)
        are_safe = []

        def work(start: int, stop: int) -> None:
            are_safe.append(self.prepare(x, pairs, bits, weights)(start, stop))

        _threads.run_chunks(work, len(x), _threads.thread_count(0), least=16, most=1024)
        return all(are_safe)

    def prepare(
        self, x: NDArray[np.float32], pairs: ExtraPairs, bits: NDArray[Any], weights: NDArray[np.float32]
    ) -> Callable[[int, int], bool]:
        """Return what fills the codes of rows `start` to `stop`, see `_fill`, on this thread; it keeps the arrays."""
        octets = bits.reshape(len(x), bits.shape[1] * bits.shape[2]).view(np.uint8)
        problem = (self.start, self.cross, *pairs, self.gram, self.max_active, ROUNDS)
        scratch = borrow_scratch(len(self.gram), self.shape[0], pairs.count_most())
        return partial(code_rows.code_rows, get_address(x), SAFE_SQUARES, *problem, NO_SIGNS, octets, weights, *scratch)
