"""Retrieval races: our index and what faiss has instead, over the same vectors, asked in the same way and timed.

A contestant is a function of the vectors of items and queries that yields one or more `Method`s; those of one that
differ in an effort (`nprobe`, `efSearch`, ...) make a curve. The first, `flat`, is exact: the others are judged by it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cccf_index.codes import CompositionalCodes
from cccf_index.search.parameters import SearchParametersCCCF

Vectors = NDArray[np.float32]
Found = NDArray[np.int64]
GRAPH = {"M": 32, "construction": 100}  # links of a node, and the effort of building
EFFORTS = (10, 20, 40, 80, 160)
GRAPH_LIMIT = 200_000  # items: beyond, graphs take many minutes to build
RUNS, PATIENCE = 7, 2.0  # as many runs as take so many seconds
SINGLES = 100  # queries asked one at a time


@dataclass
class Method:
    """One line of the race. `search(rows, k, threads)` returns the ids found for the queries in `rows`."""

    name: str
    family: str
    bytes: float  # an item
    search: Callable[[Any, int, int], Found]
    quantizes: bool = False  # NDCG is measured for what changes scores, recall tells all of what only misses items
    exact: bool = False
    ids: NDArray[np.int64] | None = None  # of the items, ascending, where they are not 0, 1, ...

    def rows(self, found: Found) -> Found:
        """Return places of items for the ids that a search found; -1 stays."""
        return found if self.ids is None else np.where(found >= 0, np.searchsorted(self.ids, found), -1)


def of_faiss(name: str, family: str, size: float, index: Any, queries: Any, params: Any = None, **kinds: Any) -> Method:
    """Return a method that searches an index of faiss, or one that behaves like it."""
    options = {} if params is None else {"params": params}

    def search(rows: Any, k: int, threads: int) -> Found:
        faiss.omp_set_num_threads(threads)
        return index.search(queries[rows], k, **options)[1]

    return Method(name, family, size, search, **kinds)


def of_cccf(name: str, index: Any, queries: Any, params: Any = None, family: str = "CCCF") -> Method:
    """Return a method that searches an IndexCCCF."""
    return of_faiss(name, family, index.nbytes / index.ntotal, index, queries, params, quantizes=True)


def flat(items: Vectors, queries: Vectors) -> Iterator[Method]:
    """Yield exact dot products."""
    index = faiss.IndexFlatIP(items.shape[1])
    index.add(items)
    yield of_faiss("IndexFlatIP", "IndexFlatIP", 4 * items.shape[1], index, queries, exact=True)


def pq(items: Vectors, queries: Vectors) -> Iterator[Method]:
    """Yield product quantization in registers, and RaBitQ after a rotation."""
    d = items.shape[1]
    parts = next(parts for parts in (32, 16, 8, 4, 2, 1) if d % parts == 0)
    for description in (f"PQ{parts}x4fs", f"RR{d},RaBitQ"):
        index = faiss.index_factory(d, description, faiss.METRIC_INNER_PRODUCT)
        if hasattr(index, "pq"):
            index.pq.cp.min_points_per_centroid = 1  # few items are no reason for a warning
        index.train(items[:: max(1, len(items) // 100_000)])
        index.add(items)
        size = index.sa_code_size() if hasattr(index, "sa_code_size") else index.code_size
        yield of_faiss(description, description, size, index, queries, quantizes=True)


def ivf(items: Vectors, queries: Vectors) -> Iterator[Method]:
    """Yield inverted lists."""
    n_lists = int(2 ** np.round(np.log2(4 * np.sqrt(len(items)))))
    index = faiss.index_factory(items.shape[1], f"IVF{n_lists},Flat", faiss.METRIC_INNER_PRODUCT)
    index.cp.min_points_per_centroid = 1
    index.train(items[:: max(1, len(items) // 200_000)])
    index.add(items)
    size = 4 * items.shape[1] + 8
    for nprobe in (1, 4, 16, 64):
        params = faiss.SearchParametersIVF(nprobe=nprobe)
        yield of_faiss(f"IndexIVFFlat({n_lists}), nprobe={nprobe}", "IndexIVFFlat", size, index, queries, params)


def hnsw(items: Vectors, queries: Vectors) -> Iterator[Method]:
    """Yield faiss's graph."""
    index = faiss.IndexHNSWFlat(items.shape[1], GRAPH["M"], faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = GRAPH["construction"]
    index.add(items)
    size = 4 * items.shape[1] + 8 * GRAPH["M"] + 4 * GRAPH["M"] / 8
    for effort in EFFORTS:
        params = faiss.SearchParametersHNSW(efSearch=effort)
        yield of_faiss(f"IndexHNSWFlat(M=32), efSearch={effort}", "IndexHNSWFlat", size, index, queries, params)


def binary(items: CompositionalCodes, users: CompositionalCodes, name: str) -> Method:
    """Return an IndexBinaryFlat of codes of one component, whose weights do not count."""
    item_bits, user_bits = (np.ascontiguousarray(codes.bits[:, 0]).view(np.uint8) for codes in (items, users))
    index = faiss.IndexBinaryFlat(8 * item_bits.shape[1])
    index.add(item_bits)
    return of_faiss(name, "IndexBinaryFlat", item_bits.shape[1], index, user_bits, quantizes=True)


def cccf(index: Any, queries: Any, k: int, vectors: bool) -> Iterator[Method]:
    """Yield an IndexCCCF searched exactly, and with 99 % of the exact answer; with `vectors` also as codes."""
    kinds: list[tuple[str, Any]] = [("", None)]
    if vectors:
        kinds = [(", coded queries", SearchParametersCCCF(coded=True)), (", real-valued queries", None)]
    for label, params in kinds:
        name = f"CCCF {index.n_components}x{index.n_bits}{label}"
        tuned = index.tune(queries[:500], k, 0.99, params=params)
        for title, own in ((name, params), (f"{name}, max_items={tuned.max_items}", tuned)):
            yield replace(of_cccf(title, index, queries, own, name), ids=index.ids)


def best_seconds(work: Callable[[], Any], runs: int = 5) -> float:
    """Return the seconds of the fastest of several runs, after one that does not count."""
    work()
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def patient_seconds(work: Callable[[], Any]) -> float:
    """Return the seconds of the fastest run, of as many as there is patience for."""
    begin = time.perf_counter()
    work()
    return best_seconds(work, int(np.clip(PATIENCE / (time.perf_counter() - begin), 1, RUNS)))


def threads_key(threads: int) -> str:
    """Return what `timed` calls a batch on so many threads."""
    return f"batch on {'two' if threads == 2 else threads} threads, us"


def timed(method: Method, nq: int, k: int, threads: int = 2) -> dict[str, float]:
    """Return microseconds of a query: in a batch, one at a time, and in a batch on more threads."""
    singles = [slice(row, row + 1) for row in range(min(SINGLES, nq))]

    def one_by_one() -> None:
        for row in singles:
            method.search(row, k, 1)

    def batch(n: int) -> float:
        return patient_seconds(lambda: method.search(slice(None), k, n)) / nq * 1e6

    figures = {"batch, us": batch(1), "one query, us": patient_seconds(one_by_one) / len(singles) * 1e6}
    return figures | {threads_key(threads): batch(threads)}


def recall_by_scores(found: Found, users: Vectors, items: Vectors, least: NDArray[np.float32]) -> float:
    """Return the share of `found` that scores, by the vectors themselves, no less than `least`, the exact k-th."""
    known = found >= 0
    for ids, good in zip(found, known, strict=True):
        assert len(np.unique(ids[good])) == good.sum(), "an item was returned twice"
    scores = np.einsum("qd,qkd->qk", users, items[np.maximum(found, 0)])
    scores[~known] = -np.inf
    return float(np.greater_equal(scores, least[:, None] - 1e-5 * np.abs(least[:, None])).mean())


def unseen(found: Found, seen: Any, k: int) -> Found:
    """Return the first k of each row of `found` that the same row of a sparse matrix does not hold; -1 for none."""
    result = np.full((len(found), k), -1, dtype=np.int64)
    for row, items in enumerate(found):
        kept = items[(items >= 0) & ~np.isin(items, seen.indices[seen.indptr[row] : seen.indptr[row + 1]])][:k]
        result[row, : len(kept)] = kept
    return result
