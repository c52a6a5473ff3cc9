"""Which method finds the top 10 items fastest: exactly, approximately, one query at a time, and in how many bytes?

    python benchmarks/bench_retrieval.py --data DIR --save

Factors and codes are made once and kept in `--cache`. Each method searches the top 10 items of the same users, in a
batch and one at a time, on one thread, and the batch also on two. The best of several runs counts, after a warm-up.
Recall is computed from the factors, not from the scores that a method returns: it is the share of returned items that
score at least as high as the factors' tenth item. NDCG@10 is measured on held-out items, without training items. Coded
queries are codes already, real-valued queries are the users' factors. Then lists of 10, 100 and 1,000 items are timed,
in a batch on one thread, and so are refined indexes with 8-bit vectors, tuned to a recall of 0.97 on other users.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import faiss
import numpy as np
from catalogues import FactorSet, Store
from common import make_parser, print_machine, save_results
from numpy.typing import NDArray
from peers import GRAPHS, NAMES, PEERS

from cccf_index import IndexCCCF, IndexRefineCCCF, SearchParametersCCCF
from cccf_index.comparison import (
    GRAPH_LIMIT,
    Method,
    build_binary,
    drop_seen,
    measure_recall,
    time_method,
    time_within_budget,
    wrap_cccf,
)
from cccf_index.evaluation import catalogue_ndcg

K = 10
QUERIES, FEWER = 2048, 1024  # the latter for large catalogues; faiss does not use BLAS for smaller batches
LARGE = 200_000
RECALL_KEY = "recall of the factors' first ten"
DEPTH = 1000  # items to search for, so that enough are left without training items
CATALOGUES = ("gowalla", "ciao", "amazon-dfm", "146469", "1000000")
SIZES = ("100000", "1000000", "10000000")
EXPLICIT = ("amazon-dfm",)
RECALL = 0.99
LENGTHS = (10, 100, 1000)
LIST_RECALL = 0.97
SAMPLE = 512  # users to tune with


def build_ours(store: Store, one: FactorSet, rows: NDArray[np.int64], active: int) -> Iterator[Method]:
    """Yield our own index in all its variants."""
    items = store.get_item_codes(one.name, active)
    codes, _ = store.get_user_queries(one.name, active)
    codes, vectors = codes[rows], one.users[rows]
    quantizer = store.get_quantizer(one.source, active)
    label = "CCCF 8x16" + ("" if active == 8 else f", {active} of 8 active")

    def make(kind: str, family: str, index: Any, queries: Any, params: Any = None, exact: bool = False) -> Method:
        found = wrap_cccf(f"{label}, {kind}", index, queries, params, f"{label}, {family}")
        return replace(found, exact=exact, quantizes=exact)

    index = IndexCCCF(8, 16, "auto", quantizer=quantizer)
    index.add(items)
    yield make("coded queries", "coded", index, codes, exact=True)
    floats = IndexCCCF(8, 16, None)
    floats.add(items)
    yield make("coded queries, float weights (EXACT)", "EXACT", floats, codes, exact=True)
    tuned = index.tune(codes, K, RECALL)
    yield make(f"coded queries, max_items={tuned.max_items}", "coded", index, codes, tuned)
    yield make("real-valued queries", "real-valued", index, vectors, exact=True)
    tuned = index.tune(vectors, K, RECALL)
    yield make(f"real-valued queries, max_items={tuned.max_items}", "real-valued", index, vectors, tuned)
    for share in (2, 4) if active == 8 else ():
        params = SearchParametersCCCF(shortlist=share)
        yield make(f"real-valued queries, shortlist={share}", "shortlist", index, vectors, params)
    for k_factor in (1.5, 2, 4, 8):
        refined = IndexRefineCCCF(index, one.items, k_factor=k_factor)
        yield make(f"real-valued queries, refine, k_factor={k_factor:g}", "refine", refined, vectors)


def build_binary_codes(store: Store, one: FactorSet, rows: NDArray[np.int64]) -> Method:
    """Return an IndexBinaryFlat of 128-bit codes: those of DCF, or of a quantizer if there are no ratings."""
    users, items = store.get_binary_codes(one)
    name = f"IndexBinaryFlat(128), {'DCF' if one.has_ratings else 'signs of a quantizer'}"
    return build_binary(items, users[rows], name)


def measure_ndcg(method: Method, one: FactorSet, rows: NDArray[np.int64]) -> float:
    """Return NDCG@10 of held-out items."""
    assert one.train is not None
    found = method.search(slice(None), min(DEPTH, len(one.items)), 2)
    return catalogue_ndcg(
        drop_seen(found, one.train[rows], K), one.test[rows], threshold=4.0 if one.name in EXPLICIT else 0.0
    )


def compare_methods(store: Store, name: str, methods: list[str] | None) -> dict[str, Any]:
    """Return the figures of all methods on one catalogue."""
    one = store.get_factors(name)
    rng = np.random.default_rng(0)
    allowed = np.flatnonzero(np.diff(one.test.indptr)) if one.test is not None else np.arange(len(one.users))
    nq = min(QUERIES if len(one.items) < LARGE else FEWER, len(allowed))
    rows = np.sort(rng.choice(allowed, nq, replace=False))
    queries = np.ascontiguousarray(one.users[rows])
    exact = faiss.IndexFlatIP(queries.shape[1])
    exact.add(one.items)
    tenth = exact.search(queries, K)[0][:, -1]
    del exact
    print(f"\n{name}: {len(one.items):,} items, {len(queries):,} queries", flush=True)
    print("| | bytes | recall | NDCG@10 | batch, us | faster | one query, us | faster | two threads |")
    print("|---|---|---|---|---|---|---|---|---|")
    results: dict[str, Any] = {}

    def build_methods() -> Iterator[Method]:
        for peer in PEERS:
            if methods and peer in GRAPHS and not any(part in NAMES[peer] for part in methods):
                continue  # slow to build
            if peer in GRAPHS and len(one.items) > GRAPH_LIMIT:
                print(f"{NAMES[peer]} is left out above {GRAPH_LIMIT:,} items", file=sys.stderr)
                continue
            try:
                yield from peer(one.items, queries)
            except ImportError as error:
                print(f"{peer.__name__.removeprefix('build_')} is left out: {error}", file=sys.stderr)
        yield build_binary_codes(store, one, rows)
        for active in (8, 4):
            yield from build_ours(store, one, rows, active)

    for method in build_methods():
        if methods and not any(part in method.name for part in methods):
            continue
        figures: dict[str, Any] = {"family": method.family, "bytes per item": method.bytes}
        figures[RECALL_KEY] = measure_recall(method.search(slice(None), K, 2), one.users[rows], one.items, tenth)
        if one.has_test and (method.exact or method.quantizes):
            figures["NDCG@10"] = measure_ndcg(method, one, rows)
        figures.update(time_method(method, len(queries), K))
        results[method.name] = figures
        reference = results.get("IndexFlatIP", figures)
        for kind in ("batch", "one query"):
            figures[f"{kind}, IndexFlatIP / this"] = reference[f"{kind}, us"] / figures[f"{kind}, us"]
        figures["two threads, faster"] = figures["batch, us"] / figures["batch on two threads, us"]
        print(format_line(method.name, figures), flush=True)
    return results


def format_line(name: str, f: dict[str, Any]) -> str:
    """Return a line of the table."""
    quality = f"{f['NDCG@10']:.4f}" if "NDCG@10" in f else ""
    return (
        f"| {name} | {f['bytes per item']:.0f} | {f[RECALL_KEY]:.3f} | {quality} "
        f"| {f['batch, us']:.1f} | {f['batch, IndexFlatIP / this']:.1f}x | {f['one query, us']:.0f} "
        f"| {f['one query, IndexFlatIP / this']:.1f}x | {f['two threads, faster']:.2f}x |"
    )


def measure_lists(store: Store, name: str) -> dict[str, Any]:
    """Time lists of growing length on one catalogue, in a batch on one thread."""
    one, rng = store.get_factors(name), np.random.default_rng(0)
    rows = rng.permutation(len(one.users))[: FEWER + SAMPLE]
    samples, rows = rows[:SAMPLE], rows[SAMPLE:]
    queries = np.ascontiguousarray(one.users[rows])
    codes, _ = store.get_user_queries(one.name, 8)
    codes, params = codes[rows], SearchParametersCCCF(num_threads=1)
    flat = faiss.IndexFlatIP(queries.shape[1])
    flat.add(one.items)
    index = IndexCCCF(8, 16, "auto", quantizer=store.get_quantizer(one.source, 8))
    index.add(store.get_item_codes(one.name, 8))
    refined = IndexRefineCCCF(index, one.items, storage="int8")
    results: dict[str, Any] = {}
    faiss.omp_set_num_threads(1)
    for k in LENGTHS:
        tuned = refined.tune(one.users[samples], k, LIST_RECALL, params=params)
        searches = {
            "IndexFlatIP": partial(flat.search, queries, k),
            "coded": partial(index.search, codes, k, params=params),
            "real-valued": partial(index.search, queries, k, params=params),
            "refine, int8, tuned": partial(refined.search, queries, k, params=tuned),
        }
        last = flat.search(queries, k)[0][:, -1]
        for kind, search in searches.items():
            figures = results.setdefault(kind, {})
            figures[f"k={k}, us"] = time_within_budget(search) / len(rows) * 1e6
            figures[f"k={k}, recall"] = measure_recall(search()[1], queries, one.items, last)
            figures[f"k={k}, IndexFlatIP / this"] = results["IndexFlatIP"][f"k={k}, us"] / figures[f"k={k}, us"]
            figures[f"k={k} / k={LENGTHS[0]}"] = figures[f"k={k}, us"] / figures[f"k={LENGTHS[0]}, us"]
        results["refine, int8, tuned"][f"k={k}, max_items"] = tuned.max_items
        results["refine, int8, tuned"][f"k={k}, k_factor"] = tuned.k_factor
    faiss.omp_set_num_threads(2)
    for kind, figures in results.items():
        print(f"{name}, {kind}:", {key: round(value, 3) for key, value in figures.items() if value}, flush=True)
    return results


def measure_growth(store: Store) -> dict[str, Any]:
    """Time catalogues of growing size, and compute the exponent e of ``time ~ items^e`` between two sizes."""
    results: dict[str, Any] = {}
    rows = np.random.default_rng(0).choice(len(store.get_factors("gowalla").users), 512, replace=False)
    for name in SIZES:
        codes, vectors = store.get_user_queries(name, 8)
        index = IndexCCCF(8, 16, "auto")
        begin = time.perf_counter()
        index.add(store.get_item_codes(name, 8))
        figures = {"build, s": (index.nbytes, time.perf_counter() - begin)[1]}
        params = SearchParametersCCCF(num_threads=1)
        tuned = index.tune(codes[rows], K, RECALL, params=params)
        searches = {
            "coded": partial(index.search, codes[rows], K, params=params),
            f"coded, recall {RECALL}": partial(index.search, codes[rows], K, params=tuned),
            "real-valued": partial(index.search, vectors[rows], K, params=params),
        }
        for kind, search in searches.items():
            figures[f"{kind}, us"] = time_within_budget(search) / len(rows) * 1e6
        results[f"{int(name):,} items"] = figures
        print(name, {key: round(value, 2) for key, value in figures.items()}, flush=True)
    names = list(results)
    for small, large in pairwise(names):
        results[f"exponent, {small} to {large}"] = {
            key.removesuffix(", us"): float(np.log10(results[large][key] / results[small][key]))
            for key in results[small]
            if key.endswith("us") and key in results[large]
        }
        print(f"exponent, {small} to {large}", results[f"exponent, {small} to {large}"])
    return results


def main() -> None:
    output = "benchmarks/results/retrieval.json, .png and lists.json; of a partial run only what was measured"
    parser = make_parser(__doc__, output, "gowalla.npz, ciao.npz and amazon-dfm.npz")
    parser.add_argument("--cache", default="benchmarks/cache", help="folder for factors and codes")
    parser.add_argument("--catalogues", nargs="*", default=CATALOGUES, help="data sets, or numbers of sampled items")
    parser.add_argument("--methods", nargs="*", help="only methods whose name contains one of these")
    parser.add_argument("--no-growth", action="store_true", help="leave out the growth from 10^5 to 10^7 items")
    parser.add_argument("--lists", action="store_true", help="only lists of 10, 100 and 1,000 items")
    arguments = parser.parse_args()
    print_machine()
    store = Store(arguments.data, arguments.cache)
    results: dict[str, Any] = {}
    if not arguments.lists:
        results = {name: compare_methods(store, name, arguments.methods) for name in arguments.catalogues}
        if not arguments.no_growth:
            results["growth"] = measure_growth(store)
    if not arguments.methods:
        lists = {name: measure_lists(store, name) for name in arguments.catalogues}
        if arguments.save:
            command = "python benchmarks/bench_retrieval.py --data DIR --lists --save"
            save_results("lists", command, lists, keep=tuple(arguments.catalogues) != CATALOGUES)
    if arguments.save and not arguments.lists:
        partly = bool(arguments.methods) or arguments.no_growth or tuple(arguments.catalogues) != CATALOGUES
        save_results("retrieval", "python benchmarks/bench_retrieval.py --data DIR --save", results, keep=partly)
        from plot_retrieval import plot

        plot()


if __name__ == "__main__":
    main()
