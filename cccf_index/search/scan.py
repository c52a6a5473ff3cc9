"""Runs the kernels: queries over parts and threads."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cccf_index import _threads
from cccf_index.codes import MAX_SCALE, MAX_WEIGHT, CompositionalCodes, round_weights
from cccf_index.kernels import heaps, search, sketches
from cccf_index.kernels.block import BLOCK
from cccf_index.kernels.layout import Batch, Filters
from cccf_index.storage.segment import Segment
from cccf_index.storage.state import NO_BITS, Part

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]  # row starts and ascending ids: excluded items

FLOAT_SLACK = 2e-5  # some 200 roundings of float32, at the most, in a score of 64 components of 512 bits
INTEGER_SLACK = 1e-15  # integers beyond 53 bits become float64 in bounds
BELOW_ALL = {"i": np.int64(-(2**63)), "f": np.float32(-np.inf)}
PLANES = 6  # bits of a value of a real-valued query in its sketch


class Effort(NamedTuple):
    """How much of the items a search looks at."""

    prune: bool = True
    max_items: int | None = None  # None: all that may be good enough
    shortlist: int | None = None  # for each item that is asked for, how many are chosen by codes

    @property
    def exact(self) -> bool:
        """Whether no good item may be missed."""
        return self.max_items is None

    def blocks(self, part: Part, total: int) -> int:
        """Return how many blocks of a part are looked at, the likeliest first."""
        if self.max_items is None:
            return search.PROBES
        return min(-(-self.max_items * len(part) // (total * BLOCK)), len(part.segment))


class Queries(Protocol):
    """A batch of queries of one kind."""

    @property
    def kind(self) -> str:
        """Of scores: "i" or "f"."""

    @property
    def divisors(self) -> NDArray[np.float64]:
        """What the scores of each query (nq,) are divided by for the user."""

    def __len__(self) -> int: ...

    def batch(self, rows: slice, segment: Segment) -> Batch:
        """Return the queries in `rows` as the kernels take them."""


@dataclass(eq=False)
class CodedQueries:
    """Queries that are codes: scored by xor, popcount and weights, in integers or (EXACT) in float32."""

    words: NDArray[Any]  # (nq, G, W)
    weights: NDArray[Any]  # int64 or float32 (nq, G)
    divisors: NDArray[np.float64]  # (nq,)
    bias_scales: NDArray[Any]  # int64 or float32 (nq,): what the items' biases are to be multiplied by
    n_bits: int

    @classmethod
    def integer(
        cls, codes: CompositionalCodes, scale: int | None, item_scale: float, with_bias: bool, rows: Any
    ) -> CodedQueries:
        """Round the weights at `scale`; None takes for each query the largest that cannot leave 32 bits.

        That is so against item weights of one byte. Where items have a bias, scales are whole numbers, which biases
        can be multiplied by. `rows` are the places of the codes in what the user passed.
        """
        weights = np.empty(codes.weights.shape, dtype=np.int64)
        scales, divisors = np.empty((2, len(codes)))
        bias_scales = np.empty(len(codes), dtype=np.int64)
        most = min(2**16 - 1, (2**31 - 1) // (255 * codes.d))
        largest, lost = sketches.round_queries(
            codes.weights, float(scale or 0), most, float(MAX_SCALE), with_bias, item_scale, weights, scales,
            bias_scales, divisors,
        )  # fmt: skip
        if largest > MAX_WEIGHT:
            round_weights(codes.weights, scales[:, None], "x", rows)  # says where
        if lost:
            warnings.warn(
                f"All weights of a query round to 0 at scale={scale or 'auto'}: every item scores 0 for it. "
                "Use a larger scale, or None.",
                stacklevel=5,
            )
        return cls(_contiguous(codes.bits), weights, divisors, bias_scales, codes.n_bits)

    @classmethod
    def floating(cls, codes: CompositionalCodes) -> CodedQueries:
        """Keep the weights as they are."""
        ones = np.ones(len(codes))
        return cls(_contiguous(codes.bits), codes.weights, ones, ones.astype(np.float32), codes.n_bits)

    def __len__(self) -> int:
        return len(self.words)

    @property
    def kind(self) -> str:
        return self.weights.dtype.kind

    def batch(self, rows: slice, segment: Segment) -> Batch:
        slack = FLOAT_SLACK if self.weights.dtype.kind == "f" else INTEGER_SLACK
        words, weights, bias_scales = self.words, self.weights, self.bias_scales
        if rows.stop - rows.start < len(words):
            words, weights, bias_scales = words[rows], weights[rows], bias_scales[rows]
        return Batch(words, weights, bias_scales, segment.weight_type, self.n_bits, 1, slack)


@dataclass(eq=False)
class VectorQueries:
    """Real-valued queries: each nibble of a code looks up its share of the inner product, in float32."""

    vectors: NDArray[np.float32]  # (nq, G * r)
    divisors: NDArray[np.float64]  # (nq,)
    n_bits: int
    words: NDArray[Any]  # (0, G, W), of the items' type

    kind = "f"

    def __len__(self) -> int:
        return len(self.vectors)

    @cached_property
    def nearest(self) -> CodedQueries:
        """The codes that are nearest to the queries."""
        values = self.vectors.reshape(len(self), self.words.shape[1], self.n_bits)
        return CodedQueries.floating(CompositionalCodes.from_signs(values > 0, np.abs(values).mean(axis=2)))

    def batch(self, rows: slice, segment: Segment) -> Batch:
        vectors = self.vectors[rows]
        return Batch(self.words, vectors, np.ones(len(vectors)), segment.weight_type, self.n_bits, PLANES, FLOAT_SLACK)


def _contiguous(words: NDArray[Any]) -> NDArray[Any]:
    """Return the words as the kernels are compiled for them: contiguous and read-only."""
    words = np.ascontiguousarray(words)
    words.flags.writeable = False
    return words


def _filters(part: Part, exclude: Pairs, rows: slice) -> Filters:
    return Filters(part.dead if part.n_dead else NO_BITS, exclude[0][rows.start : rows.stop + 1], exclude[1])


def top_k(
    parts: tuple[Part, ...],
    queries: Queries,
    exclude: Pairs,
    effort: Effort,
    n_threads: int,
    D: NDArray[np.float32],
    I: NDArray[np.int64],
) -> None:
    """Fill D and I (nq, k): score descending, then id ascending, padded as faiss does."""
    total = sum(map(len, parts))
    k = min(D.shape[1], total)
    real = queries if effort.shortlist and isinstance(queries, VectorQueries) else None

    def work(start: int, stop: int) -> None:
        rows = slice(start, stop)
        scores, ids = heaps.new_heaps(stop - start, k, BELOW_ALL[queries.kind])
        for part in parts:
            segment, filters, blocks = part.segment, _filters(part, exclude, rows), effort.blocks(part, total)
            batch = queries.batch(rows, segment)
            if real is not None and effort.shortlist:
                n = min(effort.shortlist * k, len(part))
                likely, chosen = heaps.new_heaps(stop - start, n, BELOW_ALL["f"])
                drafts = real.nearest.batch(rows, segment)
                search.search_segment(segment.row_handle, *filters, *drafts, blocks, effort.exact, likely, chosen)
                search.rank_rows(segment.handle, *batch, chosen, scores, ids)
            elif effort.prune:
                search.search_segment(segment.handle, *filters, *batch, blocks, effort.exact, scores, ids)
            else:
                search.scan_segment(segment.handle, *filters, *batch, scores, ids)
        heaps.finish(scores, ids, queries.divisors[rows], D[rows], I[rows])

    _threads.run_chunks(work, len(queries), n_threads)


def in_range(
    parts: tuple[Part, ...], queries: Queries, thresholds: NDArray[np.float32], exclude: Pairs, n_threads: int
) -> list[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Return for each query D and I of all items with D > its threshold, in the order of `top_k`."""
    found: list[Any] = [None] * len(queries)

    def work(start: int, stop: int) -> None:
        for query in range(start, stop):
            found[query] = _in_range(parts, queries, query, float(thresholds[query]), exclude)

    _threads.run_chunks(work, len(queries), n_threads, least=1)
    return found


def _in_range(
    parts: tuple[Part, ...], queries: Queries, query: int, threshold: float, exclude: Pairs
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    excluded = exclude[1][exclude[0][query] : exclude[0][query + 1]]
    scores, distances, ids = [], [], []
    for part in parts:
        batch = queries.batch(slice(query, query + 1), part.segment)
        score = np.empty(len(part.segment), dtype=batch.values.dtype)
        search.score_segment(part.segment.handle, *batch, 0, score)
        distance = (score / queries.divisors[query]).astype(np.float32)
        good = distance > threshold
        if part.n_dead:
            good &= ~part.dead_mask
        rows = np.flatnonzero(good)
        identity = part.segment.decode_ids(rows)
        if len(excluded):
            unseen = ~np.isin(identity, excluded)
            rows, identity = rows[unseen], identity[unseen]
        scores.append(score[rows])
        distances.append(distance[rows])
        ids.append(identity)
    if not ids:
        return np.empty(0, np.float32), np.empty(0, np.int64)
    score, distance, identity = np.concatenate(scores), np.concatenate(distances), np.concatenate(ids)
    best_first = np.lexsort((identity, -score.astype(np.float64 if score.dtype.kind == "f" else np.int64)))
    return distance[best_first], identity[best_first]
