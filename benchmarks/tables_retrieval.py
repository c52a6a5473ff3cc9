"""Tables of searches: the race against other indexes, how time grows, what adapters gain, what an index costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from table_format import format_ratio, format_time, load_results, to_markdown

RECALL = "recall of the factors' first ten"
BATCH, ALONE = "batch, us", "one query, us"
WANTED = 0.97  # the recall at which graphs, inverted lists and refined codes are compared
CATALOGUES = {
    "gowalla": "gowalla, 41k",
    "amazon-dfm": "amazon-dfm, 33k",
    "ciao": "ciao, 105k",
    "146469": "sampled, 146k",
    "1000000": "sampled, 10^6",
}
Rows = dict[str, Any]
Choose = Callable[[Rows], Rows | None]


def by_name(name: str) -> Choose:
    """Choose the row of a name."""
    return lambda rows: rows.get(name)


def by_start(start: str) -> Choose:
    """Choose the first row whose name starts like this."""
    return lambda rows: next((row for name, row in rows.items() if name.startswith(start)), None)


def cheapest(family: str) -> Choose:
    """Choose the fastest setting of a family that reaches the wanted recall, else the one with the highest recall."""

    def choose(rows: Rows) -> Rows | None:
        own = [row for row in rows.values() if row["family"] == family]
        good = [row for row in own if row[RECALL] >= WANTED]
        if good:
            return min(good, key=lambda row: row[BATCH])
        return max(own, key=lambda row: row[RECALL]) if own else None

    return choose


CODED, REAL = "CCCF 8x16, coded queries", "CCCF 8x16, real-valued queries"
METHODS: dict[str, Choose] = {
    "`IndexFlatIP(128)`": by_name("IndexFlatIP"),
    "implicit's top-k": by_name("implicit's top-k"),
    "`IndexBinaryFlat(128)`": by_start("IndexBinaryFlat"),
    "`PQ32x4fs`": by_name("PQ32x4fs"),
    "`RR128,RaBitQ`": by_name("RR128,RaBitQ"),
    "`IndexIVFFlat` *": cheapest("IndexIVFFlat"),
    "`IndexHNSWFlat` *": cheapest("IndexHNSWFlat"),
    "hnswlib *": cheapest("hnswlib"),
    "usearch *": cheapest("usearch"),
    "**CCCF, coded**": by_name(CODED),
    "**CCCF, coded, float weights (EXACT)**": by_name(f"{CODED}, float weights (EXACT)"),
    "**CCCF, coded, 99 % of the exact result**": by_start(f"{CODED}, max_items="),
    "**CCCF, real-valued**": by_name(REAL),
    "**CCCF, real-valued, 99 % of the exact result**": by_start(f"{REAL}, max_items="),
    "**CCCF, 4 of 8 active, coded**": by_name("CCCF 8x16, 4 of 8 active, coded queries"),
    "**CCCF + refine** *": cheapest("CCCF 8x16, refine"),
}


def retrieval_by(show: Callable[[Rows], str], head: str) -> str:
    """Return one quantity of each method on each catalogue."""
    found, lines = load_results("retrieval"), []
    for name, choose in METHODS.items():
        rows = (choose(found[catalogue]) for catalogue in CATALOGUES)
        lines.append([name, *("" if row is None else show(row) for row in rows)])
    return to_markdown([head, *CATALOGUES.values()], lines)


def retrieval_recall() -> str:
    """Return the recall of each method on each catalogue."""
    return retrieval_by(lambda row: f"{row[RECALL]:.3f}", "recall@10")


def retrieval_batch() -> str:
    """Return the time of a query in a batch."""
    return retrieval_by(lambda row: format_time(row[BATCH]), "us per query, in a batch")


def retrieval_batch_ratio() -> str:
    """Return how many times faster than dot products, in a batch."""
    return retrieval_by(lambda row: format_ratio(row["batch, IndexFlatIP / this"]), "times as fast, in a batch")


def retrieval_alone() -> str:
    """Return the time of one query alone."""
    return retrieval_by(lambda row: format_time(row[ALONE]), "us per query, alone")


def retrieval_alone_ratio() -> str:
    """Return how many times faster than dot products, one query alone."""
    return retrieval_by(lambda row: format_ratio(row["one query, IndexFlatIP / this"]), "times as fast, alone")


def retrieval_settings() -> str:
    """Return every setting of every method on gowalla."""
    lines = []
    for name, row in load_results("retrieval")["gowalla"].items():
        ndcg = f"{row['NDCG@10']:.3f}" if "NDCG@10" in row else ""
        batch, alone = (format_ratio(row[f"{kind}, IndexFlatIP / this"]) for kind in ("batch", "one query"))
        line = [
            f"**{name}**" if name.startswith("CCCF") else name,
            f"{row['bytes per item']:.0f}",
            f"{row[RECALL]:.3f}",
        ]
        lines.append([*line, ndcg, format_time(row[BATCH]), batch, format_time(row[ALONE]), alone])
    head = ["gowalla, 40,981 items", "bytes per item", "recall@10", "NDCG@10"]
    return to_markdown([*head, "us, batch", "faster, batch", "us, alone", "faster, alone"], lines)


def retrieval_ndcg() -> str:
    """Return NDCG@10 of held-out items, where they were held out."""
    names = ("`IndexFlatIP(128)`", "`PQ32x4fs`", "`RR128,RaBitQ`", "**CCCF, coded**", "**CCCF, real-valued**")
    found, lines = load_results("retrieval"), []
    for name in names:
        rows = [METHODS[name](found[catalogue]) for catalogue in ("gowalla", "amazon-dfm")]
        lines.append([name, *("" if row is None else f"{row['NDCG@10']:.{3 + i}f}" for i, row in enumerate(rows))])
    return to_markdown(["NDCG@10", "gowalla", "amazon-dfm"], lines)


def growth() -> str:
    """Return how times grow with the number of items."""
    kinds = ("coded", "coded, recall 0.99", "real-valued")
    lines = []
    for name, row in load_results("retrieval")["growth"].items():
        if name.startswith("exponent"):
            lines.append([name.replace(" items", ""), "", *(f"{row[kind]:.2f}" for kind in kinds)])
        else:
            values = (f"{row[f'{kind}, us']:.1f}" for kind in kinds)
            lines.append([name, f"{row['build, s']:.1f}", *values])
    head = ["", "build, s", "coded, us", "coded, 99 % of the exact result, us", "real-valued, us"]
    return to_markdown(head, lines)


def lists() -> str:
    """Return how long lists of 10, 100 and 1,000 items take, and their recall."""
    labels = {
        "gowalla": "gowalla, 41k", "amazon-dfm": "amazon-dfm, 33k", "ciao": "ciao, 105k", "146469": "sampled, 146k",
        "1000000": "sampled, 10^6",
    }  # fmt: skip
    kinds = {
        "IndexFlatIP": "`IndexFlatIP(128)`", "coded": "coded", "real-valued": "real-valued",
        "refine, int8, tuned": "refine, 8-bit vectors, tuned",
    }  # fmt: skip
    lines = []
    for key, label in labels.items():
        for kind, name in kinds.items():
            row = load_results("lists")[key][kind]
            times = [f"{row[f'k={k}, us']:,.0f}" for k in (10, 100, 1000)]
            lines.append([f"{label}: {name}", *times, *(f"{row[f'k={k}, recall']:.3f}" for k in (10, 100, 1000))])
    head = [
        "",
        *(f"k = {k}, us" for k in ("10", "100", "1,000")),
        *(f"recall, k = {k}" for k in ("10", "100", "1,000")),
    ]
    return to_markdown(head, lines)


def inner_loop() -> str:
    """Return the time of the innermost loop."""
    lines = []
    for name, row in load_results("kernel").items():
        if name == "clock":
            continue
        rate = "512-bit instructions per cycle (limit 2)"
        cells = [f"{row['ns per block']:.1f}", f"{row['cycles per component of a block']:.1f}"]
        lines.append([name, *cells, f"{row[rate]:.2f}" if rate in row else ""])
    head = [
        "",
        "ns per block of 64 items",
        "cycles per component of a block",
        "512-bit instructions per cycle (limit 2)",
    ]
    return to_markdown(head, lines)


def adapters_by(which: str) -> str:
    """Return how fast frameworks recommend by themselves and with a kind of adapter."""
    names = {"implicit": "implicit", "rectools": "RecTools", "cornac": "Cornac", "lenskit": "LensKit"}
    found, lines = load_results("adapters"), []
    for key, name in names.items():
        for dataset in ("ml-1m", "gowalla"):
            row = found[f"{key}, {dataset}"]
            if which not in row:
                continue
            base, own = row["by itself"], row[which]
            two = own.get("times as fast on two threads")
            line = [
                f"{name}, {dataset}",
                f"{base['users']:,}",
                format_time(base["seconds"]),
                format_time(own["seconds"]),
            ]
            line += [format_ratio(own["times as fast"]), "" if two is None else format_ratio(two)]
            lines.append([*line, f"{base['NDCG@10']:.3f}", f"{own['NDCG@10']:.3f}", f"{own['NDCG, % more']:+.1f} %"])
    head = ["", "users", "s, by itself", "s, with the adapter", "faster, one thread", "faster, two threads"]
    return to_markdown([*head, "NDCG@10, by itself", "NDCG@10, with the adapter", "change of NDCG@10"], lines)


def adapters() -> str:
    """Return the adapters as they are by default: codes find, the factors re-rank."""
    return adapters_by("adapter")


def adapters_codes() -> str:
    """Return the adapters that rank by codes alone."""
    return adapters_by("adapter, codes alone")


def index_memory() -> str:
    """Return bytes per item."""
    return to_markdown(
        ["", "bytes per item"], [[k, f"{v:.0f}"] for k, v in load_results("index")["bytes per item"].items()]
    )


def index_costs() -> str:
    """Return what building, files and first searches cost."""
    found, lines = load_results("index"), []
    for topic in ("building, one thread", "files", "first call in a process"):
        for key, value in found[topic].items():
            text = f"{value:.1f}x"
            if key.endswith(", s"):
                text = f"{value:.1f} s" if value >= 0.1 else f"{1000 * value:.2g} ms"
            lines.append([f"{topic}: {key.removesuffix(', s')}", text])
    return to_markdown(["", "time, or how many times as long"], lines)


TABLES = (
    retrieval_recall,
    retrieval_batch,
    retrieval_batch_ratio,
    retrieval_alone,
    retrieval_alone_ratio,
    retrieval_settings,
    retrieval_ndcg,
    growth,
    lists,
    inner_loop,
    adapters,
    adapters_codes,
    index_memory,
    index_costs,
)
