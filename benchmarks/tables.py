"""Write the tables of README.md and RESULTS.md into them, from the results; a test holds the pages to these.

python benchmarks/tables.py
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

RESULTS = pathlib.Path(__file__).parent / "results"
DATASETS = ("ml-1m", "yelp-dfm", "amazon-dfm")
RECALL = "recall of the factors' first ten"
KINDS = ("batch", "one query")
PAPER = {"ml-1m": (6.97, 1.49), "yelp-dfm": (7.86, 1.43), "amazon-dfm": (7.12, 1.48)}  # table 2: MF and DCF / CCCF


def results(name: str) -> dict[str, Any]:
    """Return the results of an experiment."""
    return dict(json.loads((RESULTS / f"{name}.json").read_text())["results"])


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float) -> str:
    """Return microseconds or seconds with three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.3f}"


def times(value: float) -> str:
    """Return a ratio."""
    return f"{value:.0f}x" if value >= 9.95 else f"{value:.1f}x"


def retrieval() -> str:
    """Return the race against faiss and implicit."""
    catalogues = {"gowalla": "gowalla, 41k", "amazon-dfm": "amazon, 33k", "ciao": "ciao, 105k"}
    catalogues |= {"146469": "146k", "1000000": "10^6"}
    found = results("retrieval")
    methods: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
        "`IndexFlatIP(128)`": lambda rows: rows.get("IndexFlatIP"),
        "implicit's top-k": lambda rows: rows.get("implicit's top-k"),
        "`PQ32x4fs`": lambda rows: rows.get("PQ32x4fs"),
        "`RR128,RaBitQ`": lambda rows: rows.get("RR128,RaBitQ"),
        "`IndexHNSWFlat`": lambda rows: first(rows, "IndexHNSWFlat"),
        "hnswlib": lambda rows: first(rows, "hnswlib"),
        "`IndexIVFFlat`, nprobe up to 64": lambda rows: first(rows, "IndexIVFFlat"),
        "**CCCF, coded queries**": lambda rows: rows.get("CCCF 8x16, coded queries"),
        "**CCCF, real-valued queries**": lambda rows: rows.get("CCCF 8x16, real-valued queries"),
        "**CCCF + refine**": lambda rows: first(rows, "CCCF 8x16, refine"),
    }
    lines = []
    for name, choose in methods.items():
        own = {catalogue: choose(found[catalogue]) for catalogue in catalogues}
        base = own["gowalla"]
        assert base is not None
        line = [name, f"{base['bytes an item']:.0f}"]
        line.append(f"{base['NDCG@10']:.3f}" if "NDCG@10" in base else "")
        for row in own.values():
            if row is None:
                line.append("")
                continue
            faster = (times(row[f"{kind}, IndexFlatIP / this"]) for kind in KINDS)
            shown = (f"{number(row[f'{kind}, us'])} ({speed})" for kind, speed in zip(KINDS, faster, strict=True))
            line.append(f"{row[RECALL]:.2f}: {' / '.join(shown)}")
        lines.append(line)
    head = ["recall: us in a batch / alone", "bytes", "NDCG@10, gowalla", *catalogues.values()]
    return markdown(head, lines)


def first(rows: dict[str, Any], family: str) -> dict[str, Any] | None:
    """Return the fastest row of a family with a recall of 0.97 of the factors, or the one that comes nearest."""
    own = [row for row in rows.values() if row["family"] == family]
    good = [row for row in own if row[RECALL] >= 0.97]
    if good:
        return min(good, key=lambda row: row["batch, us"])
    return max(own, key=lambda row: row[RECALL]) if own else None


def ranking() -> str:
    """Return NDCG@10 of all models."""
    names = {
        "mean and popularity": "item mean; popularity",
        "MF, BITS bits": "MF, as many factors",
        "MF, all pairs, BITS bits": "`MF(unobserved=0.1)`, as many factors",
        "BCCF, BITS bits": "BCCF",
        "DCF, BITS bits": "DCF",
        "DCMF, BITS bits": "DCMF, genres as features",
        "CCCF, kernel, BITS bits": "CCCF, kernel weights (the paper's)",
        "CCCF, learned, BITS bits, coded queries": "**CCCF, learned weights**",
        "CCCF, learned, BITS bits, real-valued queries": "**the same, real-valued queries**",
    }
    found = {dataset: results(f"accuracy-{dataset}") for dataset in DATASETS}
    lines = []
    for name, label in names.items():
        line = [label]
        for dataset, bits, protocol in COLUMNS:
            row = found[dataset].get(name.replace("BITS", str(bits)))
            line.append("" if row is None else f"{row[protocol][-1]:.{3 if protocol == 'rated' else 4}f}")
        lines.append(line)
    head = ["NDCG@10", *(f"{dataset}, {bits}" for dataset, bits, protocol in COLUMNS if protocol == "rated")]
    return markdown([*head, *(f"{d}, all items" for d, _, protocol in COLUMNS if protocol == "catalogue")], lines)


COLUMNS = (
    ("ml-1m", 32, "rated"),
    ("ml-1m", 64, "rated"),
    ("ml-1m", 128, "rated"),
    *((dataset, bits, "rated") for dataset in DATASETS[1:] for bits in (32, 128)),
    *((dataset, 128, "catalogue") for dataset in DATASETS),
)


def costs() -> str:
    """Return the seconds for all users, and the ratios of the paper."""
    found, lines = results("costs"), []
    for dataset, (paper_mf, paper_dcf) in PAPER.items():
        row = found[dataset]
        lines.append([
            f"{dataset}, {row['users']:,} users, {row['items']:,} items",
            number(row["MF, IndexFlatIP"]), number(row["DCF, IndexBinaryFlat"]), number(row["CCCF learned, IWS"]),
            times(row["MF / CCCF learned"]), f"{paper_mf:.1f}x", times(row["DCF / CCCF learned"]), f"{paper_dcf:.1f}x",
        ])  # fmt: skip
    head = ["s, one thread", "MF", "DCF", "CCCF", "MF / CCCF", "paper", "DCF / CCCF", "paper"]
    return markdown(head, lines)


def exact() -> str:
    """Return integer against float weights."""
    found, lines = results("costs"), []
    for dataset in DATASETS:
        for label, key in (("learned", "CCCF learned"), ("kernel, h = 0.5", "h = 0.5"), ("kernel, h = 1.2", "h = 1.2")):
            floats, integers = (found[dataset][f"{key}, {kind}"] for kind in ("EXACT", "IWS"))
            lines.append([f"{dataset}, {label}", f"{floats:.3f}", f"{integers:.3f}", f"{floats / integers:.2f}x"])
    return markdown(["s, one thread", "EXACT", "IWS", "EXACT / IWS"], lines)


def scales() -> str:
    """Return NDCG@10 with weights that are rounded at e."""
    found, lines = results("weights"), []
    sizes = (1, 10, 50, 100, 500, 1000)
    for dataset in DATASETS:
        for label, part, prefix in (
            ("kernel, h = 0.8", "kernel", "h = 0.8, "),
            ("kernel, h = 1.2", "kernel", "h = 1.2, "),
            ("learned", "learned", ""),
        ):
            row = found[f"{dataset}, {part}"]
            plain = row["float"] if part == "learned" else row[prefix.removesuffix(", ")]
            values = [row[f"{prefix}e = {size}"]["mean"] for size in sizes]
            lines.append([f"{dataset}, {label}", *(f"{value:.4f}" for value in values), f"{plain['mean']:.4f}"])
    return markdown(["NDCG@10", *(f"e = {size}" for size in sizes), "float"], lines)


def bandwidths() -> str:
    """Return NDCG@10, active components and seconds by bandwidth."""
    found, seconds, lines = results("weights"), results("costs"), []
    widths = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2)
    for dataset in DATASETS:
        row = found[f"{dataset}, kernel"]
        lines.append([f"{dataset}, NDCG@10", *(f"{row[f'h = {h}']['mean']:.4f}" for h in widths)])
        active = [row[f"h = {h}, active of an item"]["mean"] for h in widths]
        lines.append(["active components of an item", *(f"{value:.1f}" for value in active)])
        lines.append(["s, all users, one thread", *(number(seconds[dataset][f"h = {h}, IWS"]) for h in widths)])
    return markdown(["", *(f"h = {h}" for h in widths)], lines)


def components() -> str:
    """Return NDCG@10 with fixed bits in all, by the number of components."""
    found, lines = results("components"), []
    for dataset in DATASETS:
        for part in ("kernel", "learned"):
            row = found[f"{dataset}, {part}"]
            for total in (32, 128):
                values = [f"{row[f'{G}x{total // G}']['mean']:.4f}" for G in (1, 2, 4, 8, 16, 32)]
                lines.append([f"{dataset}, {part}, {total} bits, {row['splits']} splits", *values])
    return markdown(["NDCG@10", *(f"G = {G}" for G in (1, 2, 4, 8, 16, 32))], lines)


def convergence() -> str:
    """Return NDCG@10 and the objective after some iterations."""
    found, lines = results("convergence"), []
    for dataset in DATASETS:
        for part in ("initialised", "random start"):
            row = found[f"{dataset}, {part}"]
            values = [f"{row[f'NDCG@10 after {n}']['mean']:.4f}" for n in (0, 1, 2, 4, 10)]
            objective = row["objective"]["mean"]
            lines.append([f"{dataset}, {part}", *values, f"{objective[1]:.4f}", f"{objective[-1]:.4f}"])
    head = ["NDCG@10", "start", "1", "2", "4", "10 iterations", "objective after 1", "after 10"]
    return markdown(head, lines)


def adapters() -> str:
    """Return what the adapters do, and how fast they and their frameworks recommend."""
    about = {
        "implicit": (
            "[implicit](#implicit)",
            "a `RecommenderBase`: batches with liked items filtered, `filter_items`, `items`, `recalculate_user`, "
            "`similar_items`, `similar_users`, `save`, `load`",
            "`FaissModel`: one user at a time when liked items are filtered; no `items`, `recalculate_user`, "
            "`similar_users`, `save`, `load`, nor a model that is fitted already",
        ),
        "rectools": (
            "[RecTools](#rectools)",
            "a `Ranker`; under any fitted vector model: `recommend`, `recommend_to_items`, filters, whitelists, biases",
            "`tools.ann` stands beside the models: `recommend` does not use it, and what is allowed is picked from "
            "what was found, so that lists may be short",
        ),
        "cornac": (
            "[Cornac](#cornac)",
            "a `BaseANN`: `rank` among candidates, `recommend_batch` of unseen items, `knn_query`, `save`, `load`, "
            "inner product, cosine, distance",
            "`FaissANN` and others rank all items and then keep the candidates; with numpy 2 their `rank` fails",
        ),
        "lenskit": (
            "[LensKit](#lenskit)",
            "a scorer, and a recommender that scores no candidates; users by history, `rng`, pickle",
            "it has none",
        ),
    }
    found, lines = results("adapters"), []
    for name, text in about.items():
        line = list(text)
        for dataset in ("ml-1m", "gowalla"):
            row = found[f"{name}, {dataset}"]
            base, own = row["by itself"], row["adapter"]
            speed = times(own["times as fast"])
            if "times as fast on two threads" in own:
                speed += f" / {times(own['times as fast on two threads'])}"
            seconds = f"{number(base['seconds'])} s to {number(own['seconds'])} s"
            line.append(f"{speed}, {seconds}; NDCG {own['NDCG, % more']:+.1f} %")
        lines.append(line)
    head = ["", "what works", "what its own wrapper of an index leaves out", "ml-1m", "gowalla"]
    return markdown(head, lines)


def genres() -> str:
    """Return how often the nearest movies have the same genre."""
    found = results("map")
    keys = ("same genre among nearest, by codes", "same genre among nearest, in the drawing", "by chance")
    lines = [[name, *(f"{row[key]:.3f}" for key in keys)] for name, row in found.items() if name != "movies"]
    head = ["share with the same genre, of the ten nearest", "by codes", "in the drawing", "by chance"]
    return markdown(head, lines)


TABLES = (retrieval, ranking, costs, components, exact, scales, bandwidths, convergence, genres, adapters)
PAGES = ("README.md", "benchmarks/RESULTS.md")


def filled(text: str) -> str:
    """Return a page with the tables that stand between ``<!-- table NAME -->`` and ``<!-- end -->`` made anew."""
    for table in TABLES:
        mark = f"<!-- table {table.__name__} -->"
        if mark in text:
            before, rest = text.split(mark)
            text = f"{before}{mark}\n{table()}\n<!-- end -->{rest.split('<!-- end -->', 1)[1]}"
    return text


def main() -> None:
    for name in PAGES:
        path = RESULTS.parents[1] / name
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
