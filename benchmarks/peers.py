"""The usual alternatives besides faiss: each built over the same factors and searched in the same way.

See `cccf_index.comparison`. Packages that are not installed are named and left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cccf_index.comparison import EFFORTS, GRAPH, Found, Method, Vectors, build_flat, build_hnsw, build_ivf, build_pq


def build_gemm(items: Vectors, queries: Vectors) -> Iterator[Method]:
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


def build_hnswlib(items: Vectors, queries: Vectors) -> Iterator[Method]:
    import hnswlib

    index = hnswlib.Index(space="ip", dim=items.shape[1])
    index.init_index(max_elements=len(items), M=GRAPH["M"], ef_construction=GRAPH["construction"])
    index.add_items(items, num_threads=2)
    for effort in EFFORTS:

        def search(rows: Any, k: int, threads: int, effort: int = effort) -> Found:
            index.set_ef(effort)
            return index.knn_query(queries[rows], k=k, num_threads=threads)[0].astype(np.int64)

        yield Method(f"hnswlib(M=32), ef={effort}", "hnswlib", 4 * items.shape[1] + 8 * GRAPH["M"] + 16, search)


def build_usearch(items: Vectors, queries: Vectors) -> Iterator[Method]:
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


def build_implicit(items: Vectors, queries: Vectors) -> Iterator[Method]:
    from implicit.cpu.topk import topk

    def search(rows: Any, k: int, threads: int) -> Found:
        return topk(items, queries[rows], k, num_threads=threads)[0].astype(np.int64)

    yield Method("implicit's top-k", "implicit", 4 * items.shape[1], search, exact=True)


GRAPHS = (build_hnsw, build_hnswlib, build_usearch)
PEERS = (build_flat, build_gemm, build_implicit, build_pq, build_ivf, *GRAPHS)
NAMES = {build_hnsw: "IndexHNSWFlat", build_hnswlib: "hnswlib", build_usearch: "usearch"}
