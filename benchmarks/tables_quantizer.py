"""Tables of recall against bytes per item."""

from __future__ import annotations

from typing import Any

from table_format import load_results, to_markdown

DATASETS = ("gowalla", "ciao", "ml-1m", "amazon-dfm")
LENGTHS = ("10", "100", "1,000")
OTHERS = ("texts", "texts, items as queries", "clusters")
SHOWN_OF_OTHERS = (48, 96)
SHOWN_OF_LONG_LISTS = (28, 36)
SHOWN = (16, 28, 36, 48, 64, 96)  # bytes asked for
SLACK = 1.15  # a peer of so many times the bytes still counts as of the same size


def _find_asked(rows: dict[str, Any], asked: float, coded: bool = False, long: bool = False) -> dict[str, Any]:
    family = "CCCF, coded queries" if coded else "CCCF"
    name = f"{asked:g} bytes asked" + (", k=1000" if long else "")
    return next(row for row in rows.values() if row["family"] == family and row["name"] == name)


def _find_best(rows: dict[str, Any], most: float, place: int) -> dict[str, Any] | None:
    """Return the peer of at most so many bytes with the highest recall."""
    peers = [row for row in rows.values() if not row["family"].startswith("CCCF") and row["bytes"] <= most]
    return max(peers, key=lambda row: row["recall"][place], default=None)


def bytes_recall() -> str:
    """Return recall under budgets, and of the best other quantizer that is no larger than the whole index."""
    return _compare_budgets(DATASETS, SHOWN)


def bytes_long() -> str:
    """Return the same at 1,000 items, for codes that were learned for lists of 1,000."""
    return _compare_budgets(DATASETS, SHOWN_OF_LONG_LISTS, long=True)


def bytes_others() -> str:
    """Return the same for sentence embeddings and clustered vectors."""
    return _compare_budgets(OTHERS, SHOWN_OF_OTHERS)


def _compare_budgets(catalogues: tuple[str, ...], budgets: tuple[int, ...], long: bool = False) -> str:
    found, lines = load_results("quantizer"), []
    for asked in budgets:
        for place, k in enumerate(LENGTHS):
            cells = []
            for name in catalogues:
                own = _find_asked(found[name], asked, long=long)
                peer = _find_best(found[name], SLACK * own["bytes"], place)
                cells += [f"**{own['recall'][place]:.3f}**", "" if peer is None else f"{peer['recall'][place]:.3f}"]
            lines.append([f"{asked} bytes, k = {k}", *cells])
    return to_markdown(["", *(label for name in catalogues for label in (name, f"{name}, best other"))], lines)


def bytes_times() -> str:
    """Return microseconds per query of 28 bytes per item, of both kinds."""
    found, lines = load_results("quantizer-times"), []
    for method in next(iter(found.values())):
        cells = [f"{found[name][method]['us'][place]:.0f}" for name in DATASETS for place in range(len(LENGTHS))]
        lines.append([method, *cells])
    return to_markdown(["us per query", *(f"{name}, k = {k}" for name in DATASETS for k in LENGTHS)], lines)


def bytes_ndcg() -> str:
    """Return NDCG@10 of held-out items."""
    found = load_results("quantizer-times")
    methods = next(iter(found.values()))
    lines = [[method, *(f"{found[name][method]['NDCG@10']:.4f}" for name in DATASETS)] for method in methods]
    return to_markdown(["NDCG@10 of held-out items", *DATASETS], lines)


TABLES = (bytes_recall, bytes_long, bytes_others, bytes_times, bytes_ndcg)
