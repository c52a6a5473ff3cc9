"""Compare retrieval methods: our index and those of faiss, over the same vectors, with the same queries, timed.

Each `build_...` function takes the vectors of items and queries and yields one or more `Method`s. Methods that differ
only in a setting (`nprobe`, `efSearch`, ...) share a family and make a curve. `build_flat` is exact: recall of the
others is measured against it.
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
GRAPH = {"M": 32, "construction": 100}  # links per node, and efConstruction
EFFORTS = (10, 20, 40, 80, 160)  # efSearch of graphs
GRAPH_LIMIT = 200_000  # items; larger graphs take many minutes to build
MAX_RUNS, TIME_BUDGET = 7, 2.0  # repeat a measurement at most so often, within so many seconds
SINGLE_QUERIES = 100  # queries for the time of one query


@dataclass
class Method:
    """One row of the comparison. `search(rows, k, threads)` returns the ids found for the queries in `rows`."""

    name: str
    family: str
    bytes: float  # per item
    search: Callable[[Any, int, int], Found]
    quantizes: bool = False  # True if scores change, so that NDCG must be measured besides recall
    exact: bool = False
    ids: NDArray[np.int64] | None = None  # ids of the items, ascending; None for 0, 1, ...

    def rows(self, found: Found) -> Found:
        """Return the rows of items for the ids of a search; -1 stays -1."""
        return found if self.ids is None else np.where(found >= 0, np.searchsorted(self.ids, found), -1)


def wrap_faiss(
    name: str, family: str, size: float, index: Any, queries: Any, params: Any = None, **kinds: Any
) -> Method:
    """Return a method that searches a faiss index, or one with the same interface; `size` is in bytes per item."""
    options = {} if params is None else {"params": params}

    def search(rows: Any, k: int, threads: int) -> Found:
        faiss.omp_set_num_threads(threads)
        return index.search(queries[rows], k, **options)[1]

    return Method(name, family, size, search, **kinds)


def wrap_cccf(name: str, index: Any, queries: Any, params: Any = None, family: str = "CCCF") -> Method:
    """Return a method that searches an IndexCCCF."""
    return wrap_faiss(name, family, index.nbytes / index.ntotal, index, queries, params, quantizes=True)


def build_flat(items: Vectors, queries: Vectors) -> Iterator[Method]:
    """Yield exact search by dot products."""
    index = faiss.IndexFlatIP(items.shape[1])
    index.add(items)
    yield wrap_faiss("IndexFlatIP", "IndexFlatIP", 4 * items.shape[1], index, queries, exact=True)


def build_pq(items: Vectors, queries: Vectors) -> Iterator[Method]:
    """Yield product quantization (fast scan), and RaBitQ after a random rotation."""
    d = items.shape[1]
    parts = next(parts for parts in (32, 16, 8, 4, 2, 1) if d % parts == 0)
    for description in (f"PQ{parts}x4fs", f"RR{d},RaBitQ"):
        index = faiss.index_factory(d, description, faiss.METRIC_INNER_PRODUCT)
        if hasattr(index, "pq"):
            index.pq.cp.min_points_per_centroid = 1  # no warning for few items
        index.train(items[:: max(1, len(items) // 100_000)])
        index.add(items)
        size = index.sa_code_size() if hasattr(index, "sa_code_size") else index.code_size
        yield wrap_faiss(description, description, size, index, queries, quantizes=True)


def build_ivf(items: Vectors, queries: Vectors) -> Iterator[Method]:
    """Yield inverted lists at several values of `nprobe`."""
    n_lists = int(2 ** np.round(np.log2(4 * np.sqrt(len(items)))))
    index = faiss.index_factory(items.shape[1], f"IVF{n_lists},Flat", faiss.METRIC_INNER_PRODUCT)
    index.cp.min_points_per_centroid = 1
    index.train(items[:: max(1, len(items) // 200_000)])
    index.add(items)
    size = 4 * items.shape[1] + 8
    for nprobe in (1, 4, 16, 64):
        params = faiss.SearchParametersIVF(nprobe=nprobe)
        yield wrap_faiss(f"IndexIVFFlat({n_lists}), nprobe={nprobe}", "IndexIVFFlat", size, index, queries, params)


def build_hnsw(items: Vectors, queries: Vectors) -> Iterator[Method]:
    """Yield the HNSW graph of faiss at several values of `efSearch`."""
    index = faiss.IndexHNSWFlat(items.shape[1], GRAPH["M"], faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = GRAPH["construction"]
    index.add(items)
    size = 4 * items.shape[1] + 8 * GRAPH["M"] + 4 * GRAPH["M"] / 8
    for effort in EFFORTS:
        params = faiss.SearchParametersHNSW(efSearch=effort)
        yield wrap_faiss(f"IndexHNSWFlat(M=32), efSearch={effort}", "IndexHNSWFlat", size, index, queries, params)


def build_binary(items: CompositionalCodes, users: CompositionalCodes, name: str) -> Method:
    """Return an IndexBinaryFlat of codes with one component; weights are ignored."""
    item_bits, user_bits = (np.ascontiguousarray(codes.bits[:, 0]).view(np.uint8) for codes in (items, users))
    index = faiss.IndexBinaryFlat(8 * item_bits.shape[1])
    index.add(item_bits)
    return wrap_faiss(name, "IndexBinaryFlat", item_bits.shape[1], index, user_bits, quantizes=True)


def build_cccf(index: Any, queries: Any, k: int, vectors: bool) -> Iterator[Method]:
    """Yield an IndexCCCF searched exactly, and tuned to 99 % of the exact result.

    With `vectors`, queries are embeddings, and both are yielded for coded and for real-valued queries.
    """
    kinds: list[tuple[str, Any]] = [("", None)]
    if vectors:
        kinds = [(", coded queries", SearchParametersCCCF(coded=True)), (", real-valued queries", None)]
    for label, params in kinds:
        name = f"CCCF {index.n_components}x{index.n_bits}{label}"
        tuned = index.tune(queries[:500], k, 0.99, params=params)
        for title, own in ((name, params), (f"{name}, max_items={tuned.max_items}", tuned)):
            yield replace(wrap_cccf(title, index, queries, own, name), ids=index.ids)


def time_best(work: Callable[[], Any], runs: int = 5) -> float:
    """Return the seconds of the fastest of several runs, after a warm-up run."""
    work()
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def time_within_budget(work: Callable[[], Any]) -> float:
    """Return the seconds of the fastest run, of as many runs as fit into `TIME_BUDGET`."""
    begin = time.perf_counter()
    work()
    return time_best(work, int(np.clip(TIME_BUDGET / (time.perf_counter() - begin), 1, MAX_RUNS)))


def name_threads_key(threads: int) -> str:
    """Return the key of `time_method` for a batch on this number of threads."""
    return f"batch on {'two' if threads == 2 else threads} threads, us"


def time_method(method: Method, nq: int, k: int, threads: int = 2) -> dict[str, float]:
    """Return microseconds per query: in a batch, one query at a time, and in a batch on several threads."""
    singles = [slice(row, row + 1) for row in range(min(SINGLE_QUERIES, nq))]

    def search_one_by_one() -> None:
        for row in singles:
            method.search(row, k, 1)

    def time_batch(n: int) -> float:
        return time_within_budget(lambda: method.search(slice(None), k, n)) / nq * 1e6

    one = time_within_budget(search_one_by_one) / len(singles) * 1e6
    return {"batch, us": time_batch(1), "one query, us": one, name_threads_key(threads): time_batch(threads)}


def measure_recall(found: Found, users: Vectors, items: Vectors, least: NDArray[np.float32]) -> float:
    """Return the share of `found` items whose dot product reaches `least`, the exact k-th best score of each user."""
    known = found >= 0
    for ids, good in zip(found, known, strict=True):
        assert len(np.unique(ids[good])) == good.sum(), "an item was returned twice"
    scores = np.einsum("qd,qkd->qk", users, items[np.maximum(found, 0)])
    scores[~known] = -np.inf
    return float(np.greater_equal(scores, least[:, None] - 1e-5 * np.abs(least[:, None])).mean())


def drop_seen(found: Found, seen: Any, k: int) -> Found:
    """Return the first k items of each row of `found` that are not in the same row of a sparse matrix; -1 pads."""
    result = np.full((len(found), k), -1, dtype=np.int64)
    for row, items in enumerate(found):
        kept = items[(items >= 0) & ~np.isin(items, seen.indices[seen.indptr[row] : seen.indptr[row + 1]])][:k]
        result[row, : len(kept)] = kept
    return result
