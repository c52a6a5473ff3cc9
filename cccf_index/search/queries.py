"""Queries of one kind: codes, scored in integers or float32, and real-valued vectors, scored in float32."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
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
NO_BIAS = np.empty(0, np.int64)  # writable, as scales are where items have a bias: one compiled kernel serves both
LARGEST_SCALE = float(MAX_SCALE)


NO_SHIFTS = np.empty(0, np.float32)


def choose_scale(scale: int | str, d: int) -> tuple[float, int]:
    """Return the scale of queries, 0 for one of its own for each, and what the largest weight becomes then."""
    return 0.0 if scale == "auto" else float(scale), min(2**16 - 1, (2**31 - 1) // (255 * d))


class Queries(Protocol):
    """A batch of queries of one kind."""

    entries: ClassVar[Entries]

    @property
    def score_type(self) -> np.dtype:
        """Of scores in the kernels: int64 or float32."""

    @property
    def divisors(self) -> NDArray[np.float64]:
        """What the scores of each query (nq,) are divided by for the user."""

    shifts: NDArray[np.float32]  # what is added to them then, (nq,); empty where that is nothing

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
    shifts: NDArray[np.float32] = field(default_factory=lambda: NO_SHIFTS)  # (nq,), or empty

    entries: ClassVar[Entries] = CODED

    @classmethod
    def from_integers(
        cls,
        words: NDArray[Any],
        weights: NDArray[np.float32],
        n_bits: int,
        scale: int | str,
        item_scale: float,
        with_bias: bool,
        rows: Any,
    ) -> CodedQueries:
        """Round the weights at `scale`; "auto": for each query the largest scale at which scores fit 32 bits.

        They do so if item weights are one byte. Where items have a bias, scales are whole numbers, which biases can be
        multiplied by. `rows` are the places of the codes in what the user passed, None for 0, 1, ...
        """
        nq, n_components = weights.shape
        rounded, divisors = np.empty((nq, n_components), np.int64), np.empty(nq)
        bias_scales = np.empty(nq, np.int64) if with_bias else NO_BIAS
        fixed, most = choose_scale(scale, n_components * n_bits)
        largest, lost = round_queries(
            freeze(weights), fixed, most, LARGEST_SCALE, item_scale, rounded, divisors, bias_scales
        )
        if largest > MAX_WEIGHT:
            round_weights(weights, divisors[:, None] / item_scale, "x", rows)  # raises an error that says where
        if lost:
            warnings.warn(
                f"All weights of a query round to 0 at scale={scale}: every item scores 0 for it. "
                "Use a larger scale, or None.",
                stacklevel=5,
            )
        return cls(freeze(words), rounded, divisors, bias_scales, n_bits)

    @classmethod
    def from_floats(cls, words: NDArray[Any], weights: NDArray[np.float32], n_bits: int) -> CodedQueries:
        """Keep the weights as they are."""
        return cls(freeze(words), freeze(weights), np.ones(len(words)), NO_SCALES, n_bits)

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
    shifts: NDArray[np.float32] = field(default_factory=lambda: NO_SHIFTS)  # (nq,), or empty

    entries: ClassVar[Entries] = REAL
    score_type: ClassVar[np.dtype] = np.dtype(np.float32)

    def __len__(self) -> int:
        return len(self.vectors)

    @cached_property
    def nearest_codes(self) -> CodedQueries:
        """The codes nearest to the queries."""
        values = self.vectors.reshape(len(self), self.words.shape[1], self.n_bits)
        codes = CompositionalCodes.from_signs(values > 0, np.abs(values).mean(axis=2))
        return CodedQueries.from_floats(codes.bits, codes.weights, self.n_bits)

    def batch(self, rows: slice) -> RealBatch:
        """Return the queries in `rows` as the kernels take them."""
        vectors = self.vectors if rows.stop - rows.start == len(self.vectors) else self.vectors[rows]
        return RealBatch(self.words, freeze(vectors), self.n_bits, FLOAT_SLACK)
