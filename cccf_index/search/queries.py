"""Queries of one kind: codes, scored in integers or float32, and real-valued vectors, scored in float32."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from cccf_index.codes import MAX_SCALE, MAX_WEIGHT, CompositionalCodes, round_weights
from cccf_index.kernels.calls import CodedBatch, RealBatch
from cccf_index.kernels.entries import CODED, REAL, Entries
from cccf_index.kernels.layout import freeze
from cccf_index.kernels.query_weights import round_queries

FLOAT_SLACK = 2e-5  # at most some 200 roundings of float32 in a score of 64 components of 512 bits
INTEGER_SLACK = 1e-15  # integers beyond 53 bits become float64 in bounds


NO_SCALES = freeze(np.empty(0, np.int64))


class Queries(Protocol):
    """A batch of queries of one kind."""

    entries: ClassVar[Entries]

    @property
    def score_type(self) -> np.dtype:
        """Of scores in the kernels: int64 or float32."""

    @property
    def divisors(self) -> NDArray[np.float64]:
        """What the scores of each query (nq,) are divided by for the user."""

    def __len__(self) -> int: ...

    def batch(self, rows: slice) -> CodedBatch | RealBatch:
        """Return the queries in `rows` as the kernels take them."""


@dataclass(eq=False)
class CodedQueries:
    """Queries that are codes: scored by xor, popcount and weights, in integers or (EXACT) in float32."""

    words: NDArray[Any]  # (nq, G, W)
    weights: NDArray[Any]  # int64 or float32 (nq, G)
    divisors: NDArray[np.float64]  # (nq,)
    bias_scales: NDArray[np.int64]  # (nq,): what the items' biases are multiplied by; empty: 1
    n_bits: int

    entries: ClassVar[Entries] = CODED

    @classmethod
    def from_integers(
        cls, codes: CompositionalCodes, scale: int | str, item_scale: float, with_bias: bool, rows: Any
    ) -> CodedQueries:
        """Round the weights at `scale`; "auto": for each query the largest scale at which scores fit 32 bits.

        They do so if item weights are one byte. Where items have a bias, scales are whole numbers, which biases can be
        multiplied by. `rows` are the places of the codes in what the user passed.
        """
        weights = np.empty(codes.weights.shape, dtype=np.int64)
        scales, divisors = np.empty((2, len(codes)))
        bias_scales = np.empty(len(codes), dtype=np.int64)
        most = min(2**16 - 1, (2**31 - 1) // (255 * codes.d))
        fixed = 0.0 if scale == "auto" else float(scale)
        given = freeze(codes.weights)
        largest, lost = round_queries(
            given, fixed, most, float(MAX_SCALE), with_bias, item_scale, weights, scales, bias_scales, divisors
        )
        if largest > MAX_WEIGHT:
            round_weights(codes.weights, scales[:, None], "x", rows)  # raises an error that says where
        if lost:
            warnings.warn(
                f"All weights of a query round to 0 at scale={scale}: every item scores 0 for it. "
                "Use a larger scale, or None.",
                stacklevel=5,
            )
        return cls(freeze(codes.bits), weights, divisors, bias_scales, codes.n_bits)

    @classmethod
    def from_floats(cls, codes: CompositionalCodes) -> CodedQueries:
        """Keep the weights as they are."""
        return cls(freeze(codes.bits), freeze(codes.weights), np.ones(len(codes)), NO_SCALES, codes.n_bits)

    def __len__(self) -> int:
        return len(self.words)

    @property
    def score_type(self) -> np.dtype:
        """Of scores in the kernels: int64 or float32."""
        return self.weights.dtype

    def batch(self, rows: slice) -> CodedBatch:
        """Return the queries in `rows` as the kernels take them."""
        slack = FLOAT_SLACK if self.weights.dtype.kind == "f" else INTEGER_SLACK
        words, weights, bias_scales = self.words, self.weights, self.bias_scales
        if rows.stop - rows.start < len(words):
            words, weights, bias_scales = words[rows], weights[rows], bias_scales[rows]
        return CodedBatch(words, weights, bias_scales, self.n_bits, slack)


@dataclass(eq=False)
class RealQueries:
    """Real-valued queries: each nibble of a code looks up its share of the inner product, in float32."""

    vectors: NDArray[np.float32]  # (nq, G * r)
    divisors: NDArray[np.float64]  # (nq,)
    n_bits: int
    words: NDArray[Any]  # (0, G, W), of the items' type

    entries: ClassVar[Entries] = REAL
    score_type: ClassVar[np.dtype] = np.dtype(np.float32)

    def __len__(self) -> int:
        return len(self.vectors)

    @cached_property
    def nearest_codes(self) -> CodedQueries:
        """The codes nearest to the queries."""
        values = self.vectors.reshape(len(self), self.words.shape[1], self.n_bits)
        return CodedQueries.from_floats(CompositionalCodes.from_signs(values > 0, np.abs(values).mean(axis=2)))

    def batch(self, rows: slice) -> RealBatch:
        """Return the queries in `rows` as the kernels take them."""
        return RealBatch(self.words, freeze(self.vectors[rows]), self.n_bits, FLOAT_SLACK)
