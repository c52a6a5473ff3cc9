"""What a caller passes as queries becomes batches of one kind: codes, or real-valued vectors."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cccf_index import _check
from cccf_index.codes import CompositionalCodes, no_words
from cccf_index.kernels.query_codes import read_codes
from cccf_index.search.queries import CodedQueries, Queries, RealQueries
from cccf_index.storage.state import State

Batch: TypeAlias = tuple[NDArray[np.int64] | None, Queries]  # rows in what the caller passed, None for all; queries


class QueryReader:
    """Reads the queries of an index of G components of r bits; `scale` is that of `IndexCCCF`."""

    def __init__(self, n_components: int, n_bits: int, scale: int | str | None) -> None:
        self.n_bits, self.scale, self.d = n_bits, scale, n_components * n_bits
        self.no_words = no_words(n_components, n_bits)

    def split_vectors(self, state: State, vectors: NDArray[np.float32]) -> list[Batch]:
        """Separate expanded codes from real vectors, (nq, d); check the values of both.

        Vectors with a dense component stay real-valued: any values of it may be those of a code.
        """
        if state.n_dense:
            return [(None, self.read_vectors(state, _check.matrix(vectors, "x", self.d + state.n_dense)))]
        nq, (_, n_components, n_words) = len(vectors), self.no_words.shape
        words = np.empty((nq, n_components, n_words), self.no_words.dtype)
        weights = np.empty((nq, n_components), np.float32)
        n_codes, is_safe = read_codes(vectors, self.n_bits, _check.SAFE_SQUARES, words, weights)
        if not is_safe:
            _check.matrix(vectors, "x", self.d)
        if not n_codes:
            return [(None, self.read_vectors(state, vectors))]
        codes = CompositionalCodes._trusted(words, weights, self.n_bits)
        if n_codes == nq:
            return [(None, self.read_codes(state, codes))]
        is_code = weights[:, 0] >= 0
        coded, real = np.flatnonzero(is_code), np.flatnonzero(~is_code)
        return [
            (coded, self.read_codes(state, codes[coded], coded)),
            (real, self.read_vectors(state, vectors[real])),
        ]

    def read_vectors(self, state: State, vectors: NDArray[np.float32]) -> RealQueries:
        """Return queries that stay real-valued."""
        divisors = np.empty(len(vectors))
        divisors.fill(state.divisor)
        return RealQueries(vectors, divisors, self.n_bits, self.no_words)

    def read_codes(
        self, state: State, codes: CompositionalCodes, rows: NDArray[np.int64] | None = None
    ) -> CodedQueries:
        """Return coded queries, with weights rounded where the index has a scale; rows: see `from_integers`."""
        if self.scale is None:
            return CodedQueries.from_floats(codes, state.n_dense)
        return CodedQueries.from_integers(codes, state.n_dense, self.scale, state.divisor, state.has_bias, rows)
