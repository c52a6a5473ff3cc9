"""Runs the kernels: queries over parts and threads, in the lanes that their scores need."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cccf_index import _threads, kernels
from cccf_index._store import NO_BITS, Part
from cccf_index.codes import MAX_SCALE, CompositionalCodes, round_weights
from cccf_index.segment import Segment

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]  # row starts and ascending ids: excluded items

SLACK = 1e-5  # 131 roundings of float32, at the most, in a score of 64 components of 512 bits
EMPTY_ID = np.iinfo(np.int64).max
LOWEST = np.finfo(np.float32).min  # what faiss pads inner products with
LANES: dict[str, NDArray[Any]] = {
    "i4": np.array([-(2**31), 2**31 - 1], dtype=np.int32),
    "i8": np.array([-(2**63), 2**63 - 1], dtype=np.int64),
    "f4": np.array([-np.inf, np.inf], dtype=np.float32),
}


class Queries(Protocol):
    """A batch of queries of one kind."""

    @property
    def empty_score(self) -> Any:
        """A score below every real one."""

    def __len__(self) -> int: ...

    def scan(self, part: Part, exclude: Pairs, prune: bool, rows: slice, scores: Any, ids: Any) -> None:
        """Offer the items of a part to `scores` and `ids`, (len(rows), k), the heaps of the queries in `rows`."""

    def all_scores(self, segment: Segment, query: int) -> NDArray[Any]:
        """Return the score of every row of a segment."""

    def distances(self, scores: NDArray[Any], rows: Any) -> NDArray[np.float32]:
        """Return scores (queries in `rows`, any) as the float32 that the user sees."""


@dataclass(frozen=True, eq=False)
class CodedQueries:
    """Queries that are codes: scored by xor, popcount and weights, in integers or (EXACT) in float32."""

    words: NDArray[Any]  # (nq, G, W)
    weights: NDArray[Any]  # int64 or float32 (nq, G)
    scales: NDArray[np.float64]  # (nq,): what the weights were multiplied by
    bias_scales: NDArray[Any]  # int64 or float32 (nq,): what the items' biases are to be multiplied by
    item_scale: float
    n_bits: int

    @classmethod
    def integer(
        cls, codes: CompositionalCodes, scale: int | None, item_scale: float, with_bias: bool, rows: Any
    ) -> CodedQueries:
        """Round the weights at `scale`; None takes for each query the largest that cannot leave 32 bits.

        That is so against item weights of one byte. Where items have a bias, scales are whole numbers, which biases
        can be multiplied by. `rows` are the places of the codes in what the user passed.
        """
        if scale is None:
            most = min(2**16 - 1, (2**31 - 1) // (255 * codes.d))
            peaks = codes.weights.max(axis=1, initial=0).astype(np.float64)
            scales = most / np.where(peaks > 0, peaks, most)
            if with_bias:
                scales = np.floor(np.clip(scales, 1, MAX_SCALE))
        else:
            scales = np.full(len(codes), float(scale))
        weights = round_weights(codes.weights, scales[:, None], "x", rows).astype(np.int64)
        if (codes.weights.any(axis=1) & ~weights.any(axis=1)).any():
            warnings.warn(
                f"All weights of a query round to 0 at scale={scale or 'auto'}: every item scores 0 for it. "
                "Use a larger scale, or None.",
                stacklevel=5,
            )
        bias_scales = scales.astype(np.int64) if with_bias else np.ones(len(codes), dtype=np.int64)
        return cls(_contiguous(codes.bits), weights, scales, bias_scales, item_scale, codes.n_bits)

    @classmethod
    def floating(cls, codes: CompositionalCodes) -> CodedQueries:
        """Keep the weights as they are."""
        ones = np.ones(len(codes))
        return cls(_contiguous(codes.bits), codes.weights, ones, ones.astype(np.float32), 1.0, codes.n_bits)

    def __len__(self) -> int:
        return len(self.words)

    @property
    def empty_score(self) -> Any:
        return LANES["i8" if self.weights.dtype.kind == "i" else "f4"][0]

    def lane(self, segment: Segment, rows: slice) -> NDArray[Any]:
        """Return the limits of the narrowest lane that holds every score: 32 bits if no sum can leave them."""
        if self.weights.dtype.kind == "f":
            return LANES["f4"]
        largest = self.n_bits * (self.weights[rows] @ segment.peaks).astype(np.float64)
        largest += segment.bias_size * self.bias_scales[rows]
        return LANES["i4"] if largest.max(initial=0.0) < 2**31 else LANES["i8"]

    def scan(self, part: Part, exclude: Pairs, prune: bool, rows: slice, scores: Any, ids: Any) -> None:
        lane = self.lane(part.segment, rows)
        floating = lane.dtype.kind == "f"
        weights = self.weights[rows]
        reach = weights.astype(np.float64 if floating else np.int64) * self.n_bits
        kernels.scan_codes(
            part.segment.tables, _filters(part, exclude, rows), self.words[rows], weights.astype(lane.dtype), reach,
            self.bias_scales[rows], self.n_bits, SLACK if floating else 0, prune, lane, scores, ids,
        )  # fmt: skip

    def all_scores(self, segment: Segment, query: int) -> NDArray[Any]:
        lane = self.lane(segment, slice(query, query + 1))
        scores = np.empty(len(segment), dtype=lane.dtype)
        weights = self.weights[query].astype(lane.dtype)
        kernels.all_scores_codes(
            segment.tables, self.words[query], weights, self.bias_scales[query], self.n_bits, scores
        )
        return scores

    def distances(self, scores: NDArray[Any], rows: Any) -> NDArray[np.float32]:
        if self.weights.dtype.kind == "f":
            return scores.astype(np.float32)
        return (scores / (self.item_scale * self.scales[rows, None])).astype(np.float32)


@dataclass(frozen=True, eq=False)
class VectorQueries:
    """Real-valued queries: each byte of a code looks up its share of the inner product, in float32."""

    vectors: NDArray[np.float32]  # (nq, G * r)
    item_scale: float
    n_bits: int
    code_size: int

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def empty_score(self) -> Any:
        return LANES["f4"][0]

    def scan(self, part: Part, exclude: Pairs, prune: bool, rows: slice, scores: Any, ids: Any) -> None:
        vectors = self.vectors[rows]
        components = vectors.reshape(len(vectors), -1, self.n_bits)
        reach = np.abs(components, dtype=np.float64).sum(axis=2)
        kernels.scan_vectors(
            part.segment.tables, _filters(part, exclude, rows), vectors, reach,
            self.n_bits, self.code_size, SLACK, prune, LANES["f4"], scores, ids,
        )  # fmt: skip

    def all_scores(self, segment: Segment, query: int) -> NDArray[Any]:
        scores = np.empty(len(segment), dtype=np.float32)
        kernels.all_scores_vector(segment.tables, self.vectors[query], self.n_bits, self.code_size, scores)
        return scores

    def distances(self, scores: NDArray[Any], rows: Any) -> NDArray[np.float32]:
        return (scores / self.item_scale).astype(np.float32)


def _contiguous(words: NDArray[Any]) -> NDArray[Any]:
    """Return the words as the kernels are compiled for them: contiguous and read-only."""
    words = np.ascontiguousarray(words)
    words.flags.writeable = False
    return words


def _filters(part: Part, exclude: Pairs, rows: slice) -> kernels.Filters:
    return kernels.Filters(part.dead if part.n_dead else NO_BITS, exclude[0][rows.start : rows.stop + 1], exclude[1])


def top_k(
    parts: tuple[Part, ...],
    queries: Queries,
    exclude: Pairs,
    prune: bool,
    n_threads: int,
    D: NDArray[np.float32],
    I: NDArray[np.int64],
) -> None:
    """Fill D and I (nq, k): score descending, then id ascending, padded as faiss does."""

    def work(start: int, stop: int) -> None:
        rows = slice(start, stop)
        scores = np.full((stop - start, k), queries.empty_score)
        ids = np.full(scores.shape, EMPTY_ID)
        for part in parts:
            queries.scan(part, exclude, prune, rows, scores, ids)
        kernels.sort_heaps(scores, ids)
        empty = ids == EMPTY_ID
        D[rows, :k] = np.where(empty, LOWEST, queries.distances(scores, rows))
        I[rows, :k] = np.where(empty, -1, ids)

    k = min(D.shape[1], sum(map(len, parts)))
    D[:, k:], I[:, k:] = LOWEST, -1
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
        score = queries.all_scores(part.segment, query)
        distance = queries.distances(score[None], slice(query, query + 1))[0]
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
