"""How much recall do bytes buy: codes of different lengths against other quantizers, from 16 to 150 bytes?

    python benchmarks/bench_quantizer.py --data DIR --save
    python benchmarks/bench_quantizer.py --data DIR --times --save

Factors have 128 dimensions (see catalogues.py); queries are users that no method was trained on. Recall at k is the
share of the factors' own top k that is among the k items found. The bytes of CCCF are those of the whole index, with
ids and tables; those of the others are of codes alone. Last come texts, sentence embeddings of 384 dimensions that
are searched with other texts and with the items themselves, and made-up clustered vectors of 768 dimensions.

With --times: microseconds per query in a batch, on one thread, of an index of 28 bytes per item, beside codes of the
same length of 8 x 16 bits, which take as many, and IndexFlatIP.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import faiss
import numpy as np
from catalogues import ALS, fit_als, fit_mf
from common import IMAGES, RIDGES, load_ratings, make_parser, print_machine, read_results, save_results
from numpy.typing import NDArray
from quantizer_peers import build_all
from texts import embed_texts

from cccf_index import IndexCCCF, SearchParametersCCCF
from cccf_index.comparison import drop_seen
from cccf_index.curves import learn_once
from cccf_index.datasets import split_ratings
from cccf_index.evaluation import catalogue_ndcg, recall
from cccf_index.quantizer import CompositionalQuantizer

BUDGETS: tuple[float, ...] = (16, 24, 28, 32, 36, 48, 64, 96, 128)
BUDGETS_OF_LONG_LISTS: tuple[float, ...] = (28, 36)
BUDGETS_OF_OTHERS: tuple[float, ...] = (48, 96)
LENGTHS = (10, 100, 1000)
QUERIES = 1024
REPEATS = 15
DATASETS = ("gowalla", "ml-1m", "amazon-dfm", "ciao")
OTHERS = ("texts", "texts, items as queries", "clusters")  # vectors of other makers


class Case(NamedTuple):
    """Vectors of items, those of users to learn from, and queries."""

    items: NDArray[np.float32]
    users: NDArray[np.float32]
    queries: NDArray[np.float32]
    wanted: NDArray[np.int64]  # (nq, 1000): the best items of each query
    seen: Any = None  # sparse (nq, items): ratings that the vectors were trained on,
    held_out: Any = None  # and others

    @classmethod
    def make(cls, items: Any, users: Any, queries: Any, seen: Any = None, held_out: Any = None) -> Case:
        """Find the best items by dot products."""
        flat = faiss.IndexFlatIP(items.shape[1])
        flat.add(items)
        return cls(items, users, queries, flat.search(queries, max(LENGTHS))[1], seen, held_out)

    def measure(self, found: NDArray[np.int64]) -> list[float]:
        """Return the recall at each length."""
        return [float(recall(found[:, :k], self.wanted[:, :k], [k])[0]) for k in LENGTHS]


def make_case(data: str, dataset: str) -> Case:
    """Train factors on 70 % of each user's items, and take some users out."""
    train, test = split_ratings(load_ratings(data, dataset).user_items, seed=0)
    users, items = fit_als(train, *ALS[dataset]) if dataset in ALS else fit_mf(train, RIDGES[dataset])
    chosen, some = np.zeros(len(users), dtype=bool), np.flatnonzero(np.diff(test.indptr))
    chosen[np.random.default_rng(0).choice(some, min(QUERIES, len(some) // 2), replace=False)] = True
    return Case.make(items, users[~chosen], users[chosen], train[chosen], test[chosen])


def make_other(name: str) -> Case:
    """Make vectors of other makers: no item is used much more than others."""
    if name == "clusters":
        rng = np.random.default_rng(0)
        centres = rng.standard_normal((1000, 768), dtype=np.float32)
        sizes = (100_000, 5_000, QUERIES)
        noise = (np.float32(0.7) * rng.standard_normal((n, 768), dtype=np.float32) for n in sizes)
        return Case.make(*(centres[rng.integers(0, len(centres), len(own))] + own for own in noise))
    items, users, queries = embed_texts()
    if "items" in name:
        users, queries = items, items[:: len(items) // QUERIES][:QUERIES]
    return Case.make(items, users, queries)


def measure_ndcg(one: Case, found: NDArray[np.int64], is_implicit: bool) -> float:
    """Return NDCG@10 of held-out items, by the best items of each query, of which those seen are dropped."""
    return float(catalogue_ndcg(drop_seen(found, one.seen, 10), one.held_out, threshold=0.0 if is_implicit else 4.0))


def measure_peers(one: Case, most: float) -> Iterator[dict[str, Any]]:
    """Yield bytes and recall of every quantizer of at most so many bytes."""
    for peer in build_all(one.items, most):
        found = peer.search(one.queries, max(LENGTHS))
        yield {
            "family": peer.family, "name": peer.name, "bytes": peer.n_bytes, "recall": one.measure(found),
            "build, s": peer.seconds,
        }  # fmt: skip


def measure_budgets(one: Case, budgets: tuple[float, ...], k: int = 100) -> Iterator[dict[str, Any]]:
    """Yield bytes and recall of our codes for lists of k items, which are learned once."""
    begin = time.perf_counter()
    quantizer = CompositionalQuantizer(bytes_per_item=budgets[0], k=k, verbose=False)
    build_index = learn_once(quantizer, one.items, one.users)
    learning = time.perf_counter() - begin
    for budget in budgets:
        begin = time.perf_counter()
        index = build_index(budget)
        seconds = learning + time.perf_counter() - begin
        for family, coded in (("CCCF", False), ("CCCF, coded queries", True)):
            found = index.search(one.queries, max(LENGTHS), params=SearchParametersCCCF(coded=coded))[1]
            yield {
                "family": family, "name": f"{budget} bytes asked" + (f", k={k}" if k != 100 else ""),
                "bytes": index.nbytes / index.ntotal, "recall": one.measure(found), "build, s": seconds,
            }  # fmt: skip


def measure_times(one: Case, is_implicit: bool) -> dict[str, dict[str, Any]]:
    """Return microseconds per query, recall and NDCG; searches take turns, and the best time of each counts."""
    budget = IndexCCCF.from_embeddings(one.items, one.users, bytes_per_item=28, verbose=False)
    equal = IndexCCCF.from_embeddings(one.items, one.users, 8, 16, verbose=False)
    flat = faiss.IndexFlatIP(one.items.shape[1])
    flat.add(one.items)
    methods: dict[str, tuple[Any, Any, Any]] = {"IndexFlatIP": (flat, one.queries, {})}
    for name, index in (("28 bytes", budget), ("8x16", equal)):
        params = {"params": SearchParametersCCCF(num_threads=1)}
        methods[f"{name}, real-valued queries"] = (index, one.queries, params)
        methods[f"{name}, coded queries"] = (index, index.quantizer.encode_users(one.queries), params)  # type: ignore
    results: dict[str, dict[str, Any]] = {name: {"us": [], "recall": []} for name in methods}
    n_threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    for k in LENGTHS:
        best = dict.fromkeys(methods, np.inf)
        for _ in range(REPEATS):
            for name, (index, queries, params) in methods.items():
                begin = time.perf_counter()
                found = index.search(queries, k, **params)[1]
                best[name] = min(best[name], (time.perf_counter() - begin) / len(queries) * 1e6)
                if len(results[name]["recall"]) < len(results[name]["us"]) + 1:
                    share = recall(found, one.wanted[:, :k], [k])[0]
                    results[name]["recall"].append(float(share))
        for name, (index, queries, params) in methods.items():
            results[name]["us"].append(best[name])
            if k == max(LENGTHS):
                results[name]["NDCG@10"] = measure_ndcg(one, index.search(queries, k, **params)[1], is_implicit)
    faiss.omp_set_num_threads(n_threads)
    return results


def plot_curves(results: dict[str, dict[str, Any]]) -> None:
    """Draw recall against bytes: a row for each length of lists, a column for each catalogue."""
    import matplotlib.pyplot as plt

    colours = plt.get_cmap("tab10").colors
    families = list(dict.fromkeys(row["family"] for rows in results.values() for row in rows.values()))
    families.remove("TurboQuant")  # it is made for vectors of length 1
    figure, axes = plt.subplots(
        len(LENGTHS), len(results), figsize=(3.1 * len(results), 7.4), sharex=True, squeeze=False, layout="constrained"
    )
    for column, (name, rows) in enumerate(results.items()):
        for place, k in enumerate(LENGTHS):
            axis = axes[place, column]
            for number, family in enumerate(families):
                own = sorted(
                    (row["bytes"], row["recall"][place])
                    for row in rows.values()
                    if row["family"] == family and not row["name"].endswith("k=1000")
                )
                is_ours = family.startswith("CCCF")
                style = (
                    {"linewidth": 2.4, "markersize": 5}
                    if is_ours
                    else {"linewidth": 1, "markersize": 3.5, "alpha": 0.9}
                )
                dash = "--" if "coded" in family else "-"
                axis.plot(
                    *zip(*own, strict=True),
                    dash,
                    marker="os^DvPXd"[number % 8],
                    color=colours[number],
                    label=family,
                    **style,
                )
            axis.set_ylim(0.4, 1.01)
            axis.grid(alpha=0.3)
            if place == 0:
                axis.set_title(name)
            if column == 0:
                axis.set_ylabel(f"recall at {k:,}")
            if place == len(LENGTHS) - 1:
                axis.set_xlabel("bytes per item")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(8, len(labels)), frameon=False)
    figure.savefig(IMAGES / "bytes.png", dpi=110)


def main() -> None:
    parser = make_parser(
        __doc__, "benchmarks/results/quantizer.json and docs/images/bytes.png", ".npz of " + ", ".join(DATASETS)
    )
    parser.add_argument("--only", nargs="+", help="only these catalogues")
    parser.add_argument("--ours", action="store_true", help="leave out other quantizers: their results stay")
    parser.add_argument("--times", action="store_true", help="measure searches instead; writes quantizer-times.json")
    arguments = parser.parse_args()
    print_machine()
    if arguments.times:
        chosen = arguments.only or DATASETS
        times = {name: measure_times(make_case(arguments.data, name), name in ALS) for name in chosen}
        for name, methods in times.items():
            for method, row in methods.items():
                shares = [round(share, 3) for share in row["recall"]]
                print(name, method, [round(us, 1) for us in row["us"]], shares, round(row["NDCG@10"], 4))
        if arguments.save:
            save_results("quantizer-times", "python benchmarks/bench_quantizer.py --data DIR --times --save", times)
        return
    results: dict[str, dict[str, Any]] = {}
    for name in arguments.only or (*DATASETS, *OTHERS):
        is_other = name in OTHERS
        one = make_other(name) if is_other else make_case(arguments.data, name)
        budgets, most = (BUDGETS_OF_OTHERS, 120.0) if is_other else (BUDGETS, 150.0)
        print(f"\n{name}: {len(one.items)} items of {one.items.shape[1]} dimensions, {len(one.queries)} queries\n")
        print("| | bytes | 10 | 100 | 1,000 | build, s |\n|---|---|---|---|---|---|")
        results[name] = {}
        long = () if is_other else measure_budgets(one, BUDGETS_OF_LONG_LISTS, 1000)
        for row in chain(measure_budgets(one, budgets), long, () if arguments.ours else measure_peers(one, most)):
            results[name][f"{row['family']}, {row['name']}"] = row
            cells = " | ".join(f"{share:.3f}" for share in row["recall"])
            print(
                f"| {row['family']}: {row['name']} | {row['bytes']:.1f} | {cells} | {row['build, s']:.1f} |",
                flush=True,
            )
        if arguments.save:
            save_results("quantizer", "python benchmarks/bench_quantizer.py --data DIR --save", results, keep=True)
            plot_curves({name: rows for name, rows in read_results("quantizer").items() if name in DATASETS})


if __name__ == "__main__":
    main()
