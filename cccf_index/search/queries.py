"""Queries of one kind: codes, scored in integers or float32, and real-valued vectors, scored in float32."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cccf_index.codes import MAX_SCALE, MAX_WEIGHT, CompositionalCodes, round_weights
from cccf_index.dense import DenseRows
from cccf_index.kernels.calls import CodedBatch, RealBatch
from cccf_index.kernels.entries import CODED, REAL, Entries
from cccf_index.kernels.layout import freeze
from cccf_index.kernels.limits import DENSE_SHIFT
from cccf_index.kernels.query_weights import round_queries

FLOAT_SLACK = 2e-5  # at most some 200 roundings of float32 in a score of 64 components of 512 bits
INTEGER_SLACK = 1e-15  # integers beyond 53 bits become float64 in bounds


NO_SCALES = freeze(np.empty(0, np.int64))
NO_BIAS = np.empty(0, np.int64)  # writable, as scales are where items have a bias: one compiled kernel serves both
NO_SHIFTS = np.empty(0, np.float32)


class QueryScale(NamedTuple):
    """How the weights of coded queries are rounded, as `round_weights` takes it."""

    scale: float  # 0 for one of its own for each query,
    most: int  # by which its largest weight becomes this
    most_scale: float  # where items have a bias
    most_weight: float

    @classmethod
    def choose(cls, scale: int | str, d: int, n_dense: int) -> QueryScale:
        """Return it for an index with a scale; with a dense component, weights become 2^DENSE_SHIFT times as large."""
        shift = DENSE_SHIFT if n_dense else 0
        most = min(2**16 - 1, (2**31 - 1) // (255 * d), MAX_WEIGHT >> shift)
        fixed = 0.0 if scale == "auto" else float(scale)
        return cls(fixed, most, float(MAX_SCALE >> shift), float(MAX_WEIGHT >> shift))


def join_weights(weights: NDArray[np.float32], dense: DenseRows | None, n_dense: int) -> NDArray[np.float32]:
    """Return the weights of coded queries as kernels take them: with that of the dense component last, if any."""
    if not n_dense:
        return weights
    return np.concatenate(
        [weights, np.zeros((len(weights), 1), np.float32) if dense is None else dense.weights[:, None]], axis=1
    )


def spread_values(dense: DenseRows | None, n: int, n_dense: int) -> NDArray[np.int8] | None:
    """Return the values of the dense component of n queries as kernels take them, zeros where a query has none."""
    if not n_dense:
        return None
    if dense is not None and len(dense.values) == n:
        return freeze(dense.values)
    values = np.zeros((n, n_dense), np.int8)
    if dense is not None:
        values[dense.is_present] = dense.values
    return freeze(values)


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
    weights: NDArray[Any]  # int64 or float32 (nq, G), or (nq, G + 1) with a dense component
    dense: NDArray[np.int8] | None  # (nq, n_dense); None if items have no dense component
    divisors: NDArray[np.float64]  # (nq,)
    bias_scales: NDArray[np.int64]  # (nq,): what the items' biases are multiplied by; empty: 1
    n_bits: int
    shifts: NDArray[np.float32] = field(default_factory=lambda: NO_SHIFTS)  # (nq,), or empty

    entries: ClassVar[Entries] = CODED

    @classmethod
    def from_integers(
        cls,
        codes: CompositionalCodes,
        n_dense: int,
        scale: int | str,
        item_scale: float,
        with_bias: bool,
        rows: Any,
    ) -> CodedQueries:
        """Round the weights at `scale`; "auto": for each query the largest scale at which scores fit 32 bits.

        They do so if item weights are one byte. Where items have a bias, scales are whole numbers, which biases can be
        multiplied by. `rows` are the places of the codes in what the user passed, None for 0, 1, ...
        """
        weights, nq = join_weights(codes.weights, codes.dense, n_dense), len(codes)
        rounded, divisors = np.empty(weights.shape, np.int64), np.empty(nq)
        bias_scales = np.empty(nq, np.int64) if with_bias else NO_BIAS
        fixed, most, most_scale, most_weight = QueryScale.choose(scale, codes.n_components * codes.n_bits, n_dense)
        largest, lost = round_queries(
            freeze(weights), fixed, most, most_scale, item_scale, n_dense > 0, rounded, divisors, bias_scales
        )
        if largest > most_weight:
            used = divisors[:, None] / (item_scale * (2**DENSE_SHIFT if n_dense else 1))
            round_weights(weights, used, "x", rows, int(most_weight))  # raises an error that says where
        if lost:
            warnings.warn(
                f"All weights of a query round to 0 at scale={scale}: every item scores 0 for it. "
                "Use a larger scale, or None.",
                stacklevel=5,
            )
        values = spread_values(codes.dense, nq, n_dense)
        return cls(freeze(codes.bits), rounded, values, divisors, bias_scales, codes.n_bits)

    @classmethod
    def from_floats(cls, codes: CompositionalCodes, n_dense: int) -> CodedQueries:
        """Keep the weights as they are."""
        weights, values = (
            join_weights(codes.weights, codes.dense, n_dense),
            spread_values(codes.dense, len(codes), n_dense),
        )
        return cls(freeze(codes.bits), freeze(weights), values, np.ones(len(codes)), NO_SCALES, codes.n_bits)

    def __len__(self) -> int:
        return len(self.words)

    @property
    def score_type(self) -> np.dtype:
        """Of scores in the kernels: int64 or float32."""
        return self.weights.dtype

    def batch(self, rows: slice) -> CodedBatch:
        """Return the queries in `rows` as the kernels take them."""
        slack = FLOAT_SLACK if self.weights.dtype.kind == "f" else INTEGER_SLACK
        words, weights, dense, bias_scales = self.words, self.weights, self.dense, self.bias_scales
        if rows.stop - rows.start < len(words):
            words, weights, bias_scales = words[rows], weights[rows], bias_scales[rows]
            dense = None if dense is None else dense[rows]
        return CodedBatch(words, weights, dense, bias_scales, self.n_bits, slack)


@dataclass(eq=False)
class RealQueries:
    """Real-valued queries: each nibble of a code looks up its share of the inner product, in float32."""

    vectors: NDArray[np.float32]  # (nq, G * r + n_dense)
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
        d, n_components = self.words.shape[1] * self.n_bits, self.words.shape[1]
        values, n_dense = self.vectors[:, :d].reshape(-1, n_components, self.n_bits), self.vectors.shape[1] - d
        codes = CompositionalCodes.from_signs(values > 0, np.abs(values).mean(axis=2))
        dense = DenseRows.from_vectors(self.vectors[:, d:]) if n_dense else None
        codes = CompositionalCodes._trusted(codes.bits, codes.weights, self.n_bits, dense)
        return CodedQueries.from_floats(codes, n_dense)

    def batch(self, rows: slice) -> RealBatch:
        """Return the queries in `rows` as the kernels take them."""
        vectors = self.vectors if rows.stop - rows.start == len(self.vectors) else self.vectors[rows]
        no_values = spread_values(None, 0, vectors.shape[1] - self.words.shape[1] * self.n_bits)
        return RealBatch(self.words, freeze(vectors), no_values, self.n_bits, FLOAT_SLACK)
