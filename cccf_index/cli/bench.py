"""``cccf bench``: compare our index with those of faiss on your own items and users."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

import faiss
import numpy as np

from cccf_index import IndexCCCF, IndexRefineCCCF
from cccf_index.catalogue import Catalogue
from cccf_index.cli._console import Console, format_table
from cccf_index.cli._files import parse_positive, read_vectors
from cccf_index.cli._outputs import check_file, replace_file
from cccf_index.codes import CompositionalCodes
from cccf_index.comparison import (
    GRAPH_LIMIT,
    Method,
    Vectors,
    build_cccf,
    build_flat,
    build_hnsw,
    build_ivf,
    build_pq,
    measure_recall,
    name_threads_key,
    time_method,
)
from cccf_index.plots import check_plot, plot_comparison

NAME, HELP = "bench", "compare our index with those of faiss on your own data"
EXAMPLES = """  cccf bench items.cccf
  cccf bench --embeddings items.npy --queries users.npy --plot bench.png
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("index", nargs="?", metavar="INDEX", help="file written by `cccf build`")
    parser.add_argument("--embeddings", metavar="FILE", help="item vectors, .npy")
    parser.add_argument("--queries", metavar="FILE", help="user vectors, .npy")
    parser.add_argument(
        "--components", type=parse_positive, default=8, metavar="G", help="components of a code (default: 8)"
    )
    parser.add_argument(
        "--bits", type=parse_positive, default=16, metavar="R", help="bits of a component (default: 16)"
    )
    parser.add_argument("-k", type=parse_positive, default=10, help="items per user (default: 10)")
    parser.add_argument(
        "--sample", type=parse_positive, default=2048, metavar="N", help="number of queries (default: 2048)"
    )
    parser.add_argument("--no-graphs", action="store_true", help="leave out HNSW, which is slow to build")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the results as JSON")
    parser.add_argument("--plot", metavar="FILE", help="draw queries per second against recall")
    parser.add_argument("--force", action="store_true", help="replace existing files")


def _sample_rows(queries: Any, n: int, seed: int) -> Any:
    rows = np.random.default_rng(seed).choice(len(queries), min(n, len(queries)), replace=False)
    return queries[np.sort(rows)]


def _load_index(arguments: argparse.Namespace, console: Console) -> tuple[IndexCCCF, Vectors, Any, Vectors]:
    """Return an index, the vectors of its items, and its queries, in their own form and as vectors."""
    index = (catalogue := Catalogue.load(arguments.index)).index
    if not index.ntotal:
        raise ValueError(f"{arguments.index} has no items.")
    items = index.reconstruct_n()
    if isinstance(index, IndexRefineCCCF):
        index = index.base_index
        if index.quantizer is None:
            raise ValueError(f"{arguments.index} holds codes and other vectors, which no query fits. Use --embeddings.")
        console.note("Recall is that of the codes, without re-ranking, against the stored vectors.")
    else:
        console.note(
            "Recall is measured against the exact result of the codes; use --embeddings to measure it against vectors."
        )
    queries: Any = catalogue.queries
    if not len(queries):
        console.note(f"{arguments.index} has no users: its own items serve as queries.")
        queries = items
    queries = _sample_rows(queries, arguments.sample, arguments.seed)
    vectors = queries.to_vectors() if isinstance(queries, CompositionalCodes) else np.asarray(queries)
    return index, items, queries, vectors


def _learn_index(arguments: argparse.Namespace, console: Console) -> tuple[IndexCCCF, Vectors, Any, Vectors]:
    items = np.ascontiguousarray(read_vectors(arguments.embeddings), dtype=np.float32)
    users = np.ascontiguousarray(read_vectors(arguments.queries), dtype=np.float32)
    console.note("learning codes ...")
    options = {"seed": arguments.seed, "verbose": not console.quiet}
    index = IndexCCCF.from_embeddings(items, users, arguments.components, arguments.bits, **options)
    queries = _sample_rows(users, arguments.sample, arguments.seed)
    return index, items, queries, queries


def _build_methods(
    arguments: argparse.Namespace, index: IndexCCCF, items: Vectors, queries: Any, vectors: Vectors, console: Console
) -> Iterator[Method]:
    graphs = () if arguments.no_graphs or len(items) > GRAPH_LIMIT else (build_hnsw,)
    for build in (build_flat, build_pq, build_ivf, *graphs):
        try:
            yield from build(items, vectors)
        except RuntimeError as error:  # of faiss, for example with fewer items than centres
            name = build.__name__.removeprefix("build_")
            console.note(f"{name} is left out: {str(error).splitlines()[-1]}")
    yield from build_cccf(index, queries, arguments.k, index.quantizer is not None)


def _measure_methods(
    arguments: argparse.Namespace, methods: Iterator[Method], items: Vectors, vectors: Vectors, console: Console
) -> dict[str, dict[str, Any]]:
    """Return recall and speed of each method."""
    k, threads = min(arguments.k, len(items)), arguments.threads or faiss.omp_get_max_threads()
    exact = faiss.IndexFlatIP(items.shape[1])
    exact.add(items)
    least = exact.search(vectors, k)[0][:, -1]
    results: dict[str, dict[str, Any]] = {}
    for method in methods:
        found = method.rows(method.search(slice(None), k, threads))
        figures: dict[str, Any] = {"family": method.family, "bytes per item": method.bytes}
        figures["recall"] = measure_recall(found, vectors, items, least)
        figures |= time_method(method, len(vectors), k, threads)
        results[method.name] = figures
        figures["faster"] = results["IndexFlatIP"]["batch, us"] / figures["batch, us"]
        console.note(f"  {method.name}: {figures['batch, us']:.1f} us")
    faiss.omp_set_num_threads(threads)
    return results


def _format_results(results: dict[str, dict[str, Any]], threads: int) -> str:
    head = ("one thread", "bytes", "recall", "batch, us", "faster", "one query, us", f"{threads} threads, us")
    rows = [
        (
            name,
            f"{row['bytes per item']:.0f}",
            f"{row['recall']:.3f}",
            f"{row['batch, us']:.1f}",
            f"{row['faster']:.1f}x",
            f"{row['one query, us']:.1f}",
            f"{row[name_threads_key(threads)]:.1f}",
        )
        for name, row in results.items()
    ]
    return format_table([head, *rows])


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Measure all methods and print a table."""
    if (arguments.index is None) == (arguments.embeddings is None):
        arguments.usage("give either an INDEX or --embeddings FILE and --queries FILE")
    if (arguments.embeddings is None) != (arguments.queries is None):
        arguments.usage("--embeddings and --queries must be given together")
    if arguments.output:
        check_file(arguments.output, arguments.force)
    if arguments.plot:
        check_file(arguments.plot, arguments.force)
        check_plot(arguments.plot)
    index, items, queries, vectors = (_load_index if arguments.index else _learn_index)(arguments, console)
    console.note(f"{len(items):,} items of {items.shape[1]} dimensions, {len(vectors):,} queries")
    threads = arguments.threads or faiss.omp_get_max_threads()
    methods = _build_methods(arguments, index, items, queries, vectors, console)
    results = _measure_methods(arguments, methods, items, vectors, console)
    result = {"items": len(items), "queries": len(vectors), "k": arguments.k, "threads": threads, "methods": results}
    if arguments.output:
        with replace_file(arguments.output) as temporary, open(temporary, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
    if arguments.plot:
        with replace_file(arguments.plot) as temporary:
            plot_comparison(results, temporary)
    console.print_result(_format_results(results, threads), result)
