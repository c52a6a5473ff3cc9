"""Tables of how well codes stand for embeddings, and of how long training takes."""

from __future__ import annotations

from typing import Any

from table_format import load_results, to_markdown

DATASETS = ("gowalla", "ml-1m", "amazon-dfm")
TEN, HUNDRED = "recall, 10 in 10", "recall, 10 in 100"
NAMES = {  # in the results: in the tables
    "factors themselves (IndexFlatIP)": "the factors themselves, `IndexFlatIP`",
    "CCCF 8x16, real-valued queries": "**CCCF 8x16, real-valued queries**",
    "CCCF 8x16, coded queries": "**CCCF 8x16, coded queries**",
    "OPQ48_144,PQ48x4fs": "`OPQ48_144,PQ48x4fs`",
    "OPQ32,PQ32x6": "`OPQ32,PQ32x6`",
    "PQ32x6": "`PQ32x6`",
    "RR128,RaBitQ": "`RR128,RaBitQ`",
    "SQ4 of 48 singular directions": "SQ4 of 48 singular directions",
    "SQ8 of 24 singular directions": "SQ8 of 24 singular directions",
    "signs, 192 bits (IndexBinaryFlat)": "signs, 192 bits, `IndexBinaryFlat`",
    "PQ32x4fs (fewer bytes)": "`PQ32x4fs`",
    "CCCF 8x16, 4 of 8 active (fewer bytes), real-valued": "CCCF 8x16, 4 of 8 active, real-valued",
    "SQ4 (more bytes)": "`SQ4`",
    "SQ8 (more bytes)": "`SQ8`",
}
SIZES = ("8x4", "8x8", "4x32", "12x8", "8x16", "16x8")
EFFORTS = (
    "8x16, 0 sweeps",
    "8x16, 2 sweeps",
    "8x16, 6 sweeps",
    "8x16, 12 sweeps",
    "8x16, no probes",
    "8x16, 16384 probes",
)


def codes_recall() -> str:
    """Return the recall of methods of compression."""
    found = load_results("codes")
    lines = []
    for name, label in NAMES.items():
        cells = [f"{found[d][name][TEN]:.2f}" for d in DATASETS] + [f"{found[d][name][HUNDRED]:.3f}" for d in DATASETS]
        lines.append([label, f"{found['gowalla'][name]['bytes']:.0f}", *cells])
    head = ["", "bytes", *(f"{d}, 10 in 10" for d in DATASETS), *(f"{d}, 10 in 100" for d in DATASETS)]
    return to_markdown(head, lines)


def codes_ranking() -> str:
    """Return NDCG@10 of held-out items, and what encoding costs."""
    found = load_results("codes")
    lines = []
    for name, label in NAMES.items():
        row = found["gowalla"][name]
        cells = [f"{found[d][name]['NDCG@10']:.{4 if d == 'amazon-dfm' else 3}f}" for d in DATASETS]
        speed = f"{row['items encoded per second']:,.0f}"
        lines.append([label, *cells, f"{row['training, s']:.1f}", speed])
    head = ["", *(f"NDCG@10, {d}" for d in DATASETS), "training on gowalla, s", "items encoded per second, gowalla"]
    return to_markdown(head, lines)


def sizes() -> str:
    """Return recall by the number of components and bits."""
    found = load_results("codes")
    lines = []
    for size in SIZES:
        rows = [found[d][f"{size}, {kind}"] for d in DATASETS[:2] for kind in ("real-valued", "coded")]
        recalls = (f"{row[TEN]:.3f}" for row in rows)
        lines.append([size, f"{rows[0]['bytes']:.0f}", *recalls, f"{rows[0]['training, s']:.1f}"])
    head = ["G x r", "bytes", *(f"{d}, {kind}" for d in DATASETS[:2] for kind in ("real-valued", "coded"))]
    return to_markdown([*head, "training on gowalla, s"], lines)


def sweeps() -> str:
    """Return recall by sweeps and example users."""
    found = load_results("codes")
    lines = []
    for name in EFFORTS:
        rows: list[Any] = [found[d][name] for d in DATASETS[:2]]
        lines.append([name, *(f"{row[TEN]:.3f}" for row in rows), f"{rows[0]['training, s']:.1f}"])
    return to_markdown(["recall, 10 in 10, real-valued", *DATASETS[:2], "training on gowalla, s"], lines)


def training() -> str:
    """Return seconds and memory of training."""
    found = load_results("training")
    labels = {"CCCF, 8 x 16 bits": "CCCF, kernel weights, 8 x 16 bits"}
    lines = []
    for name in found["ml-1m, 702,811 training ratings, 1 thread(s), s"]:
        own = [found[f"ml-1m, 702,811 training ratings, {n} thread(s), s"][name] for n in (1, 2)]
        grown = found[f"growth on parts of amazon-dfm, 2 thread(s), s: {name}"]
        own += [value for key, value in grown.items() if "s per million" not in key]
        peak = found[f"memory on amazon-dfm: {name}"]["peak of a fit, MB"]
        lines.append([labels.get(name, name), *(f"{value:.2f}" for value in own), f"{peak:.0f}"])
    head = ["", "ml-1m, one thread, s", "ml-1m, two threads, s"]
    head += [f"amazon-dfm, {n} ratings, s" for n in ("433,018", "865,542", "1,732,060")]
    return to_markdown([*head, "peak memory, amazon-dfm, MB"], lines)


TABLES = (codes_recall, codes_ranking, sizes, sweeps, training)
