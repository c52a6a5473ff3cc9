"""Who finds the first ten items fastest: exactly, nearly, one query at a time, in how many bytes?

    python benchmarks/bench_retrieval.py --data DIR --save

Factors and codes are made once and kept in `--cache`. Each method is asked for the first ten items of the same users,
in a batch and one at a time, on one thread, the batch on two as well; the best of several runs counts, after one that
does not. What a method returned is judged by the factors' own scores of it, whatever scores it says: recall is the
share of items that score no less than the factors' tenth. NDCG@10 is that of held-out items, without those of the
training part. Coded queries are codes already, real-valued ones are the users' factors as they are.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import faiss
import numpy as np
from catalogues import Catalogue, Store
from common import print_machine, save
from numpy.typing import NDArray
from peers import GRAPHS, NAMES, PEERS

from cccf_index import IndexCCCF, IndexRefineCCCF, SearchParametersCCCF
from cccf_index.comparison import GRAPH_LIMIT, Method, binary, of_cccf, patient_seconds, recall_by_scores, timed, unseen
from cccf_index.evaluation import catalogue_ndcg

K = 10
QUERIES, FEWER = 2048, 1024  # the second of large catalogues; in smaller batches faiss does not use BLAS there
LARGE = 200_000
RECALL_KEY = "recall of the factors' first ten"
DEPTH = 1000  # items that are asked for, so that enough are left without those of the training part
CATALOGUES = ("gowalla", "ciao", "amazon-dfm", "146469", "1000000")
SIZES = ("100000", "1000000", "10000000")
EXPLICIT = ("amazon-dfm",)
RECALL = 0.99


def ours(store: Store, one: Catalogue, rows: NDArray[np.int64], active: int) -> Iterator[Method]:
    """Yield our own index in all its forms."""
    items = store.items(one.name, active)
    codes, _ = store.users(one.name, active)
    codes, vectors = codes[rows], one.users[rows]
    quantizer = store.quantizer(one.source, active)
    label = "CCCF 8x16" + ("" if active == 8 else f", {active} of 8 active")

    def method(kind: str, family: str, index: Any, queries: Any, params: Any = None, exact: bool = False) -> Method:
        found = of_cccf(f"{label}, {kind}", index, queries, params, f"{label}, {family}")
        return replace(found, exact=exact, quantizes=exact)

    index = IndexCCCF(8, 16, "auto", quantizer=quantizer)
    index.add(items)
    yield method("coded queries", "coded", index, codes, exact=True)
    floats = IndexCCCF(8, 16, None)
    floats.add(items)
    yield method("coded queries, float weights (EXACT)", "EXACT", floats, codes, exact=True)
    tuned = index.tune(codes, K, RECALL)
    yield method(f"coded queries, max_items={tuned.max_items}", "coded", index, codes, tuned)
    yield method("real-valued queries", "real-valued", index, vectors, exact=True)
    tuned = index.tune(vectors, K, RECALL)
    yield method(f"real-valued queries, max_items={tuned.max_items}", "real-valued", index, vectors, tuned)
    for share in (2, 4) if active == 8 else ():
        params = SearchParametersCCCF(shortlist=share)
        yield method(f"real-valued queries, shortlist={share}", "shortlist", index, vectors, params)
    for k_factor in (1.5, 2, 4, 8):
        refined = IndexRefineCCCF(index, one.items, k_factor=k_factor)
        yield method(f"real-valued queries, refine, k_factor={k_factor:g}", "refine", refined, vectors)


def binary_codes(store: Store, one: Catalogue, rows: NDArray[np.int64]) -> Method:
    """Return DCF's codes of 128 bits in an IndexBinaryFlat, or those of a quantizer where there are no ratings."""
    users, items = store.binary(one)
    name = f"IndexBinaryFlat(128), {'DCF' if one.has_ratings else 'signs of a quantizer'}"
    return binary(items, users[rows], name)


def ndcg(method: Method, one: Catalogue, rows: NDArray[np.int64]) -> float:
    """Return NDCG@10 of held-out items."""
    assert one.train is not None
    found = method.search(slice(None), min(DEPTH, len(one.items)), 2)
    return catalogue_ndcg(
        unseen(found, one.train[rows], K), one.test[rows], threshold=4.0 if one.name in EXPLICIT else 0.0
    )


def race(store: Store, name: str, methods: list[str] | None) -> dict[str, Any]:
    """Measure all methods on one catalogue."""
    one = store.catalogue(name)
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

    def entries() -> Iterator[Method]:
        for peer in PEERS:
            if methods and peer in GRAPHS and not any(part in NAMES[peer] for part in methods):
                continue  # they take long to build
            if peer in GRAPHS and len(one.items) > GRAPH_LIMIT:
                print(f"{NAMES[peer]} is left out above {GRAPH_LIMIT:,} items", file=sys.stderr)
                continue
            try:
                yield from peer(one.items, queries)
            except ImportError as error:
                print(f"{peer.__name__} is left out: {error}", file=sys.stderr)
        yield binary_codes(store, one, rows)
        for active in (8, 4):
            yield from ours(store, one, rows, active)

    for method in entries():
        if methods and not any(part in method.name for part in methods):
            continue
        figures: dict[str, Any] = {"family": method.family, "bytes an item": method.bytes}
        figures[RECALL_KEY] = recall_by_scores(method.search(slice(None), K, 2), one.users[rows], one.items, tenth)
        if one.has_test and (method.exact or method.quantizes):
            figures["NDCG@10"] = ndcg(method, one, rows)
        figures.update(timed(method, len(queries), K))
        results[method.name] = figures
        reference = results.get("IndexFlatIP", figures)
        for kind in ("batch", "one query"):
            figures[f"{kind}, IndexFlatIP / this"] = reference[f"{kind}, us"] / figures[f"{kind}, us"]
        figures["two threads, faster"] = figures["batch, us"] / figures["batch on two threads, us"]
        print(line(method.name, figures), flush=True)
    return results


def line(name: str, f: dict[str, Any]) -> str:
    """Return one line of the table."""
    quality = f"{f['NDCG@10']:.4f}" if "NDCG@10" in f else ""
    return (
        f"| {name} | {f['bytes an item']:.0f} | {f[RECALL_KEY]:.3f} | {quality} "
        f"| {f['batch, us']:.1f} | {f['batch, IndexFlatIP / this']:.1f}x | {f['one query, us']:.0f} "
        f"| {f['one query, IndexFlatIP / this']:.1f}x | {f['two threads, faster']:.2f}x |"
    )


def growth(store: Store) -> dict[str, Any]:
    """Time catalogues of growing size; the exponent e of ``time ~ items^e`` between two of them."""
    results: dict[str, Any] = {}
    rows = np.random.default_rng(0).choice(len(store.catalogue("gowalla").users), 512, replace=False)
    for name in SIZES:
        codes, vectors = store.users(name, 8)
        index = IndexCCCF(8, 16, "auto")
        begin = time.perf_counter()
        index.add(store.items(name, 8))
        figures = {"build, s": (index.nbytes, time.perf_counter() - begin)[1]}
        params = SearchParametersCCCF(num_threads=1)
        tuned = index.tune(codes[rows], K, RECALL, params=params)
        searches = {
            "coded": partial(index.search, codes[rows], K, params=params),
            f"coded, recall {RECALL}": partial(index.search, codes[rows], K, params=tuned),
            "real-valued": partial(index.search, vectors[rows], K, params=params),
        }
        for kind, search in searches.items():
            figures[f"{kind}, us"] = patient_seconds(search) / len(rows) * 1e6
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
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", required=True, help="folder with gowalla.npz, ciao.npz, amazon-dfm.npz")
    parser.add_argument("--cache", default="benchmarks/cache", help="folder for factors and codes")
    parser.add_argument("--catalogues", nargs="*", default=CATALOGUES, help="data sets, or numbers of sampled items")
    parser.add_argument("--methods", nargs="*", help="only those whose name holds one of these")
    parser.add_argument("--no-growth", action="store_true", help="leave out 10^5 to 10^7 items")
    parser.add_argument(
        "--save",
        action="store_true",
        help="write benchmarks/results/retrieval.json and draw it; of a part of it only what is measured",
    )
    arguments = parser.parse_args()
    print_machine()
    store = Store(arguments.data, arguments.cache)
    results: dict[str, Any] = {name: race(store, name, arguments.methods) for name in arguments.catalogues}
    if not arguments.no_growth:
        results["growth"] = growth(store)
    if arguments.save:
        partly = bool(arguments.methods) or arguments.no_growth or tuple(arguments.catalogues) != CATALOGUES
        save("retrieval", "python benchmarks/bench_retrieval.py --data DIR --save", results, keep=partly)
        from plot_retrieval import plot

        plot()


if __name__ == "__main__":
    main()
