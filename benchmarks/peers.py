"""What users would take instead: each peer built over the same factors, asked in the same way.

A peer is a function of a catalogue's item factors that yields one or more `Method`s; those of one peer that differ in
an effort (`nprobe`, `efSearch`, ...) make a curve. Packages that are not installed are named and left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Found = NDArray[np.int64]
GRAPH = {"M": 32, "construction": 100}  # links of a node, and the effort of building
EFFORTS = (10, 20, 40, 80, 160)
GRAPH_LIMIT = 200_000  # items: beyond, graphs take many minutes to build


@dataclass
class Method:
    """One line of the race. `search(rows, k, threads)` returns the ids found for the queries in `rows`."""

    name: str
    family: str
    bytes: float  # an item
    search: Callable[[Any, int, int], Found]
    quantizes: bool = False  # NDCG is measured for what changes scores, recall tells all of what only misses items
    exact: bool = False


def _faiss(name: str, family: str, size: float, index: Any, queries: Vectors, **kinds: bool) -> Method:
    def search(rows: Any, k: int, threads: int) -> Found:
        faiss.omp_set_num_threads(threads)
        return index.search(queries[rows], k)[1]

    return Method(name, family, size, search, **kinds)


def gemm(items: Vectors, queries: Vectors) -> Iterator[Method]:
    from threadpoolctl import threadpool_limits

    def search(rows: Any, k: int, threads: int) -> Found:
        wanted = queries[rows]
        result = np.empty((len(wanted), k), dtype=np.int64)
        with threadpool_limits(threads, "blas"):
            step = max(1, 50_000_000 // len(items))  # 200 MB of scores at a time
            for start in range(0, len(wanted), step):
                scores = wanted[start : start + step] @ items.T
                best = np.argpartition(scores, -k, axis=1)[:, -k:]
                order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
                result[start : start + step] = np.take_along_axis(best, order, axis=1)
        return result

    yield Method("numpy GEMM + argpartition", "numpy", 4 * items.shape[1], search, exact=True)


def flat(items: Vectors, queries: Vectors) -> Iterator[Method]:
    index = faiss.IndexFlatIP(items.shape[1])
    index.add(items)
    yield _faiss("IndexFlatIP", "IndexFlatIP", 4 * items.shape[1], index, queries, exact=True)


def pq(items: Vectors, queries: Vectors) -> Iterator[Method]:
    for description in ("PQ32x4fs", "RR128,RaBitQ"):
        index = faiss.index_factory(items.shape[1], description, faiss.METRIC_INNER_PRODUCT)
        index.train(items[:: max(1, len(items) // 100_000)])
        index.add(items)
        size = index.sa_code_size() if hasattr(index, "sa_code_size") else index.code_size
        yield _faiss(description, description, size, index, queries, quantizes=True)


def ivf(items: Vectors, queries: Vectors) -> Iterator[Method]:
    n_lists = int(2 ** np.round(np.log2(4 * np.sqrt(len(items)))))
    index = faiss.index_factory(items.shape[1], f"IVF{n_lists},Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(items[:: max(1, len(items) // 200_000)])
    index.add(items)
    for nprobe in (1, 4, 16, 64):

        def search(rows: Any, k: int, threads: int, nprobe: int = nprobe) -> Found:
            faiss.omp_set_num_threads(threads)
            return index.search(queries[rows], k, params=faiss.SearchParametersIVF(nprobe=nprobe))[1]

        name = f"IndexIVFFlat({n_lists}), nprobe={nprobe}"
        yield Method(name, "IndexIVFFlat", 4 * items.shape[1] + 8, search)


def hnsw(items: Vectors, queries: Vectors) -> Iterator[Method]:
    index = faiss.IndexHNSWFlat(items.shape[1], GRAPH["M"], faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = GRAPH["construction"]
    faiss.omp_set_num_threads(2)
    index.add(items)
    size = 4 * items.shape[1] + 8 * GRAPH["M"] + 4 * GRAPH["M"] / 8
    for effort in EFFORTS:

        def search(rows: Any, k: int, threads: int, effort: int = effort) -> Found:
            faiss.omp_set_num_threads(threads)
            return index.search(queries[rows], k, params=faiss.SearchParametersHNSW(efSearch=effort))[1]

        yield Method(f"IndexHNSWFlat(M=32), efSearch={effort}", "IndexHNSWFlat", size, search)


def hnswlib_graph(items: Vectors, queries: Vectors) -> Iterator[Method]:
    import hnswlib

    index = hnswlib.Index(space="ip", dim=items.shape[1])
    index.init_index(max_elements=len(items), M=GRAPH["M"], ef_construction=GRAPH["construction"])
    index.add_items(items, num_threads=2)
    for effort in EFFORTS:

        def search(rows: Any, k: int, threads: int, effort: int = effort) -> Found:
            index.set_ef(effort)
            return index.knn_query(queries[rows], k=k, num_threads=threads)[0].astype(np.int64)

        yield Method(f"hnswlib(M=32), ef={effort}", "hnswlib", 4 * items.shape[1] + 8 * GRAPH["M"] + 16, search)


def usearch_graph(items: Vectors, queries: Vectors) -> Iterator[Method]:
    from usearch.index import Index

    index: Any = Index(
        ndim=items.shape[1], metric="ip", dtype="f32", connectivity=GRAPH["M"], expansion_add=GRAPH["construction"]
    )
    index.add(np.arange(len(items)), items, threads=2)
    for effort in EFFORTS:

        def search(rows: Any, k: int, threads: int, effort: int = effort) -> Found:
            index.expansion_search = effort
            wanted = queries[rows]
            keys = index.search(wanted, k, threads=threads).keys
            return np.asarray(keys, dtype=np.int64).reshape(len(wanted), -1)

        yield Method(f"usearch(M=32), expansion={effort}", "usearch", index.memory_usage / len(items), search)


def implicit_topk(items: Vectors, queries: Vectors) -> Iterator[Method]:
    from implicit.cpu.topk import topk

    def search(rows: Any, k: int, threads: int) -> Found:
        return topk(items, queries[rows], k, num_threads=threads)[0].astype(np.int64)

    yield Method("implicit's top-k", "implicit", 4 * items.shape[1], search, exact=True)


GRAPHS = (hnsw, hnswlib_graph, usearch_graph)
PEERS = (flat, gemm, implicit_topk, pq, ivf, *GRAPHS)
NAMES = {hnsw: "IndexHNSWFlat", hnswlib_graph: "hnswlib", usearch_graph: "usearch"}


def binary(item_bits: NDArray[np.uint8], query_bits: NDArray[np.uint8], name: str) -> Method:
    """Return an IndexBinaryFlat of packed codes."""
    index = faiss.IndexBinaryFlat(8 * item_bits.shape[1])
    index.add(item_bits)

    def search(rows: Any, k: int, threads: int) -> Found:
        faiss.omp_set_num_threads(threads)
        return index.search(query_bits[rows], k)[1]

    return Method(name, "IndexBinaryFlat", item_bits.shape[1], search, quantizes=True)
