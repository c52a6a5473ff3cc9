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
from cccf_index.cli._files import check_free, new_file, vectors_of
from cccf_index.codes import CompositionalCodes
from cccf_index.race import GRAPH_LIMIT, Method, Vectors, cccf, flat, hnsw, ivf, pq, recall, timed

NAME, HELP = "bench", "race our index against those of faiss on your own data"
EXAMPLES = """  cccf bench items.cccf
  cccf bench --embeddings items.npy --queries users.npy --plot race.png
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what only this command takes."""
    parser.add_argument("index", nargs="?", metavar="INDEX", help="a file of `cccf build`")
    parser.add_argument("--embeddings", metavar="FILE", help="vectors of items, .npy")
    parser.add_argument("--queries", metavar="FILE", help="vectors of users, .npy")
    parser.add_argument("--components", type=int, default=8, metavar="G", help="of codes of embeddings (default: 8)")
    parser.add_argument("--bits", type=int, default=16, metavar="R", help="of a component (default: 16)")
    parser.add_argument("-k", type=int, default=10, help="items for each user (default: 10)")
    parser.add_argument("--sample", type=int, default=2048, metavar="N", help="users to ask for (default: 2048)")
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


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Race, and print a table."""
    if (arguments.index is None) == (arguments.embeddings is None):
        arguments.usage("give an INDEX, or --embeddings FILE and --queries FILE")
    if (arguments.embeddings is None) != (arguments.queries is None):
        arguments.usage("--embeddings and --queries go together")
    for path in (arguments.output, arguments.plot):
        if path:
            check_free(path, arguments.force)
    index, items, queries, vectors = (_of_file if arguments.index else _of_embeddings)(arguments, console)
    threads = arguments.threads or faiss.omp_get_max_threads()
    k = min(arguments.k, index.ntotal)
    exact = faiss.IndexFlatIP(items.shape[1])
    exact.add(items)
    least = exact.search(vectors, k)[0][:, -1]
    console.note(f"{len(items):,} items of {items.shape[1]} dimensions, {len(vectors):,} queries, top-{k}")
    results: dict[str, dict[str, Any]] = {}
    for method in _entries(arguments, index, items, queries, vectors, console):
        found = method.search(slice(None), k, threads)
        if method.family.startswith("CCCF"):
            found = np.where(found >= 0, np.searchsorted(index.ids, found), -1)
        figures: dict[str, Any] = {"family": method.family, "bytes an item": method.bytes}
        figures["recall"] = recall(found, vectors, items, least)
        figures |= timed(method, len(vectors), k, (1, threads))
        results[method.name] = figures
        figures["faster"] = results["IndexFlatIP"]["batch, us"] / figures["batch, us"]
        console.note(f"  {method.name}: {figures['batch, us']:.1f} us")
    faiss.omp_set_num_threads(threads)
    more = next((key for key in results["IndexFlatIP"] if key.startswith("batch on")), "batch, us")
    head = ("one thread", "bytes", "recall", "batch, us", "faster", "one query, us", f"{threads} threads, us")
    rows = [head] + [
        (
            name,
            f"{f['bytes an item']:.0f}",
            f"{f['recall']:.3f}",
            f"{f['batch, us']:.1f}",
            f"{f['faster']:.1f}x",
            f"{f['one query, us']:.1f}",
            f"{f[more]:.1f}",
        )
        for name, f in results.items()
    ]
    result = {"items": len(items), "queries": len(vectors), "k": k, "threads": threads, "methods": results}
    if arguments.output:
        with new_file(arguments.output) as beside, open(beside, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
    if arguments.plot:
        from cccf_index.plots import plot_race

        with new_file(arguments.plot) as beside:
            plot_race(results, beside)
    console.result(table(rows), result)
