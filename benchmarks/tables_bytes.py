"""Tables of recall against bytes per item."""

from __future__ import annotations

from typing import Any

from table_format import load_results, to_markdown

DATASETS = ("gowalla", "ciao", "ml-1m", "amazon-dfm")
LENGTHS = ("10", "100", "1,000")
SHOWN = (16, 28, 36, 48, 64, 96)  # bytes asked for
SLACK = 1.15  # a peer of so many times the bytes still counts as of the same size


def _find_asked(rows: list[dict[str, Any]], asked: float, coded: bool = False) -> dict[str, Any]:
    family = "CCCF, coded queries" if coded else "CCCF"
    return next(row for row in rows if row["family"] == family and row["name"].startswith(f"{asked:g} bytes"))


def _find_best(rows: list[dict[str, Any]], most: float, place: int) -> dict[str, Any] | None:
    """Return the peer of at most so many bytes with the highest recall."""
    peers = [row for row in rows if not row["family"].startswith("CCCF") and row["bytes"] <= most]
    return max(peers, key=lambda row: row["recall"][place], default=None)


def _find_small(rows: list[dict[str, Any]], family: str) -> dict[str, Any]:
    """Return ours of 28 bytes, or the largest of another family of at most 36."""
    if family.startswith("CCCF"):
        return _find_asked(rows, 28, coded="coded" in family)
    return max((row for row in rows if row["family"] == family and row["bytes"] <= 36), key=lambda row: row["bytes"])


def bytes_recall() -> str:
    """Return recall under budgets, and of the best quantizer of faiss that is no larger than the whole index."""
    found, lines = load_results("bytes"), []
    for asked in SHOWN:
        for place, k in enumerate(LENGTHS):
            cells = []
            for name in DATASETS:
                own = _find_asked(found[name], asked)
                peer = _find_best(found[name], SLACK * own["bytes"], place)
                cells += [f"**{own['recall'][place]:.3f}**", "" if peer is None else f"{peer['recall'][place]:.3f}"]
            lines.append([f"{asked} bytes, k = {k}", *cells])
    head = ["", *(label for name in DATASETS for label in (name, f"{name}, best of faiss"))]
    return to_markdown(head, lines)


def bytes_readme() -> str:
    """Return recall at the default of 28 bytes, beside quantizers of faiss of up to 36 bytes."""
    found, lines = load_results("bytes"), []
    labels = {"**CCCF, real-valued queries**": "CCCF", "**CCCF, coded queries**": "CCCF, coded queries"}
    labels |= {"`RR128,RaBitQ`": "RaBitQ", "`PQ32x8`": "PQ"}
    for label, family in labels.items():
        own = [_find_small(found[name], family) for name in DATASETS]
        cells = [f"{one['recall'][place]:.2f}" for one in own for place in (0, 1)]
        lines.append([label, f"{own[0]['bytes']:.0f}", *cells])
    head = ["recall of the vectors' own top k", "bytes per item, gowalla"]
    head += [f"{name}, k = {k}" for name in DATASETS for k in (10, 100)]
    return to_markdown(head, lines)


def bytes_texts() -> str:
    """Return recall of sentence embeddings, ours and of every quantizer that is not much larger."""
    found, lines = load_results("bytes"), []
    cases = ("texts", "texts, items as queries")
    for row in found[cases[0]]:
        other = next(one for one in found[cases[1]] if (one["family"], one["name"]) == (row["family"], row["name"]))
        label = f"**{row['family']}, {row['name']}**" if row["family"].startswith("CCCF") else f"`{row['name']}`"
        cells = [f"{one['recall'][place]:.3f}" for one in (row, other) for place in range(len(LENGTHS))]
        lines.append([label, f"{row['bytes']:.0f}", *cells])
    head = ["", "bytes", *(f"{name}, k = {k}" for name in ("questions", "items as queries") for k in LENGTHS)]
    return to_markdown(head, lines)


def bytes_times() -> str:
    """Return microseconds per query of 28 bytes per item, of both kinds."""
    found, lines = load_results("bytes-times"), []
    for method in next(iter(found.values())):
        cells = [f"{found[name][method]['us'][place]:.0f}" for name in DATASETS for place in range(len(LENGTHS))]
        lines.append([method, *cells])
    return to_markdown(["us per query", *(f"{name}, k = {k}" for name in DATASETS for k in LENGTHS)], lines)


TABLES = (bytes_recall, bytes_readme, bytes_texts, bytes_times)
