"""``cccf bench``: your own items and users, searched by us and by what faiss has instead."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

import faiss
import numpy as np

from cccf_index import IndexCCCF
from cccf_index.catalogue import Catalogue
from cccf_index.cli._console import Console, table
from cccf_index.cli._files import positive, vectors_of
from cccf_index.cli._outputs import check_file, new_file
from cccf_index.codes import CompositionalCodes
from cccf_index.comparison import (
    GRAPH_LIMIT,
    Method,
    Vectors,
    cccf,
    flat,
    hnsw,
    ivf,
    pq,
    recall_by_scores,
    threads_key,
    timed,
)
from cccf_index.plots import check_plot, plot_race

NAME, HELP = "bench", "race our index against those of faiss on your own data"
EXAMPLES = """  cccf bench items.cccf
  cccf bench --embeddings items.npy --queries users.npy --plot race.png
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what only this command takes."""
    parser.add_argument("index", nargs="?", metavar="INDEX", help="a file of `cccf build`")
    parser.add_argument("--embeddings", metavar="FILE", help="vectors of items, .npy")
    parser.add_argument("--queries", metavar="FILE", help="vectors of users, .npy")
    parser.add_argument(
        "--components", type=positive, default=8, metavar="G", help="of codes of embeddings (default: 8)"
    )
    parser.add_argument("--bits", type=positive, default=16, metavar="R", help="of a component (default: 16)")
    parser.add_argument("-k", type=positive, default=10, help="items for each user (default: 10)")
    parser.add_argument("--sample", type=positive, default=2048, metavar="N", help="users asked for (default: 2048)")
    parser.add_argument("--no-graphs", action="store_true", help="leave out HNSW, which takes long to build")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--plot", metavar="FILE", help="draw queries a second against recall")
    parser.add_argument("--force", action="store_true", help="replace files that are there")


def _sampled(queries: Any, n: int, seed: int) -> Any:
    rows = np.random.default_rng(seed).choice(len(queries), min(n, len(queries)), replace=False)
    return queries[np.sort(rows)]


def _of_file(arguments: argparse.Namespace, console: Console) -> tuple[IndexCCCF, Vectors, Any, Vectors]:
    """Return an index, the vectors of its items, and queries as they are and as vectors."""
    index = (catalogue := Catalogue.load(arguments.index)).index
    if not index.ntotal:
        raise ValueError(f"{arguments.index} holds no items.")
    items = index.reconstruct_n()
    console.note("Recall is that of the index's own exact answer; against your vectors it is told by --embeddings.")
    queries: Any = catalogue.queries
    if not len(queries):
        console.note(f"{arguments.index} holds no users: its own items search it.")
        queries = items
    queries = _sampled(queries, arguments.sample, arguments.seed)
    vectors = queries.to_vectors() if isinstance(queries, CompositionalCodes) else np.asarray(queries)
    return index, items, queries, vectors


def _of_embeddings(arguments: argparse.Namespace, console: Console) -> tuple[IndexCCCF, Vectors, Any, Vectors]:
    items = np.ascontiguousarray(vectors_of(arguments.embeddings), dtype=np.float32)
    users = np.ascontiguousarray(vectors_of(arguments.queries), dtype=np.float32)
    console.note("learning codes ...")
    options = {"seed": arguments.seed, "verbose": not console.quiet}
    index = IndexCCCF.from_embeddings(items, users, arguments.components, arguments.bits, **options)
    queries = _sampled(users, arguments.sample, arguments.seed)
    return index, items, queries, queries


def _entries(
    arguments: argparse.Namespace, index: IndexCCCF, items: Vectors, queries: Any, vectors: Vectors, console: Console
) -> Iterator[Method]:
    graphs = () if arguments.no_graphs or len(items) > GRAPH_LIMIT else (hnsw,)
    for contestant in (flat, pq, ivf, *graphs):
        try:
            yield from contestant(items, vectors)
        except RuntimeError as error:  # of faiss, as with fewer items than centres
            console.note(f"{contestant.__name__} is left out: {str(error).splitlines()[-1]}")
    yield from cccf(index, queries, arguments.k, index.quantizer is not None)


def _raced(
    arguments: argparse.Namespace, entries: Iterator[Method], items: Vectors, vectors: Vectors, console: Console
) -> dict[str, dict[str, Any]]:
    """Return recall and speed of each method."""
    k, threads = min(arguments.k, len(items)), arguments.threads or faiss.omp_get_max_threads()
    exact = faiss.IndexFlatIP(items.shape[1])
    exact.add(items)
    least = exact.search(vectors, k)[0][:, -1]
    results: dict[str, dict[str, Any]] = {}
    for method in entries:
        found = method.rows(method.search(slice(None), k, threads))
        figures: dict[str, Any] = {"family": method.family, "bytes an item": method.bytes}
        figures["recall"] = recall_by_scores(found, vectors, items, least)
        figures |= timed(method, len(vectors), k, threads)
        results[method.name] = figures
        figures["faster"] = results["IndexFlatIP"]["batch, us"] / figures["batch, us"]
        console.note(f"  {method.name}: {figures['batch, us']:.1f} us")
    faiss.omp_set_num_threads(threads)
    return results


def _table(results: dict[str, dict[str, Any]], threads: int) -> str:
    head = ("one thread", "bytes", "recall", "batch, us", "faster", "one query, us", f"{threads} threads, us")
    rows = [
        (
            name,
            f"{row['bytes an item']:.0f}",
            f"{row['recall']:.3f}",
            f"{row['batch, us']:.1f}",
            f"{row['faster']:.1f}x",
            f"{row['one query, us']:.1f}",
            f"{row[threads_key(threads)]:.1f}",
        )
        for name, row in results.items()
    ]
    return table([head, *rows])


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Race, and print a table."""
    if (arguments.index is None) == (arguments.embeddings is None):
        arguments.usage("give an INDEX, or --embeddings FILE and --queries FILE")
    if (arguments.embeddings is None) != (arguments.queries is None):
        arguments.usage("--embeddings and --queries go together")
    if arguments.output:
        check_file(arguments.output, arguments.force)
    if arguments.plot:
        check_file(arguments.plot, arguments.force)
        check_plot(arguments.plot)
    index, items, queries, vectors = (_of_file if arguments.index else _of_embeddings)(arguments, console)
    console.note(f"{len(items):,} items of {items.shape[1]} dimensions, {len(vectors):,} queries")
    threads = arguments.threads or faiss.omp_get_max_threads()
    entries = _entries(arguments, index, items, queries, vectors, console)
    results = _raced(arguments, entries, items, vectors, console)
    result = {"items": len(items), "queries": len(vectors), "k": arguments.k, "threads": threads, "methods": results}
    if arguments.output:
        with new_file(arguments.output) as beside, open(beside, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
    if arguments.plot:
        with new_file(arguments.plot) as beside:
            plot_race(results, beside)
    console.result(_table(results, threads), result)
