"""Tables of the race at equal recall of the vectors."""

from __future__ import annotations

from typing import Any

from table_format import format_ratio, format_time, load_results, to_markdown

CATALOGUES = {
    "gowalla": "gowalla, 41k",
    "ciao": "ciao, 105k",
    "amazon-dfm": "amazon-dfm, 33k",
    "texts": "texts, 50k",
    "146469": "sampled, 146k",
    "1000000": "sampled, 10^6",
}
OURS = ("CCCF", "CCCF + refine")
BATCH, THREADS, ALONE = "batch, us", "batch on two threads, us", "one query, us"
LENGTHS, RECALLS = (10, 100, 1000), (0.9, 0.95, 0.99)
SHOWN = ("IndexFlatIP", "hnswlib", "ScaNN", "SVS", "rabitqlib", *OURS)  # in the README
README_CATALOGUES = ("gowalla", "1000000")


def name_key(k: int, recall: float) -> str:
    """Return the key of figures in the results."""
    return f"k={k}, recall {recall}"


def find_best(found: dict[str, Any], measure: str, ours: bool) -> dict[str, Any] | None:
    """Return the figures of our fastest family, or of the fastest other one; None if none reaches the recall."""
    good = [one for family, one in found.items() if (family in OURS) == ours and measure in one]
    return min(good, key=lambda one: one[measure], default=None)


def list_families() -> list[str]:
    """Return all families in the order in which they were measured, ours last."""
    found = load_results("race")
    names = dict.fromkeys(name for catalogue in found.values() for one in catalogue.values() for name in one)
    return [*(name for name in names if name not in OURS), *OURS]


def _mark(family: str) -> str:
    return f"**{family}**" if family in OURS else family


def _compare(measure: str, head: str) -> str:
    """Return how many times as long the fastest other library takes, for each length, recall and catalogue."""
    results, lines = load_results("race"), []
    for k in LENGTHS:
        for recall in RECALLS:
            cells = []
            for name in CATALOGUES:
                found = results.get(name, {}).get(name_key(k, recall), {})
                own, other = (find_best(found, measure, ours) for ours in (True, False))
                cells.append("" if own is None or other is None else format_ratio(other[measure] / own[measure]))
            lines.append([f"k = {k:,}, recall {recall:.2f}", *cells])
    return to_markdown([head, *CATALOGUES.values()], lines)


def race_batch() -> str:
    """Return by how much we are faster than the fastest other library, in batches."""
    return _compare(BATCH, "fastest other / ours, batch")


def race_threads() -> str:
    """Return the same on two threads."""
    return _compare(THREADS, "fastest other / ours, batch, two threads")


def race_alone() -> str:
    """Return the same for one query at a time."""
    return _compare(ALONE, "fastest other / ours, one query")


def _list_times(k: int, measure: str, head: str, recall: float = 0.95) -> str:
    """Return microseconds per query of each family at a recall; empty where it is not reached."""
    results, lines = load_results("race"), []
    for family in list_families():
        cells = []
        for name in CATALOGUES:
            figures = results.get(name, {}).get(name_key(k, recall), {}).get(family, {})
            cells.append(format_time(figures[measure]) if measure in figures else "")
        if any(cells):
            lines.append([_mark(family), *cells])
    return to_markdown([head, *CATALOGUES.values()], lines)


def race_batch_10() -> str:
    """Return times in batches for lists of 10."""
    return _list_times(10, BATCH, "us per query, k = 10, batch")


def race_batch_100() -> str:
    """Return times in batches for lists of 100."""
    return _list_times(100, BATCH, "us per query, k = 100, batch")


def race_batch_1000() -> str:
    """Return times in batches for lists of 1,000."""
    return _list_times(1000, BATCH, "us per query, k = 1,000, batch")


def race_alone_10() -> str:
    """Return times of one query for lists of 10."""
    return _list_times(10, ALONE, "us per query, k = 10, alone")


def race_alone_100() -> str:
    """Return times of one query for lists of 100."""
    return _list_times(100, ALONE, "us per query, k = 100, alone")


def _list_sizes(measure: str, head: str) -> str:
    """Return a figure of what each family chose in batches for lists of 10 at recall 0.95."""
    results, lines = load_results("race"), []
    for family in list_families():
        found = [results.get(name, {}).get(name_key(10, 0.95), {}).get(family, {}) for name in CATALOGUES]
        if any(measure in one for one in found):
            lines.append([_mark(family), *(f"{one[measure]:.0f}" if measure in one else "" for one in found)])
    return to_markdown([head, *CATALOGUES.values()], lines)


def race_bytes() -> str:
    """Return bytes per item."""
    return _list_sizes("bytes per item", "bytes per item")


def race_build() -> str:
    """Return seconds of building."""
    return _list_sizes("build, s", "seconds to build")


def race_settings() -> str:
    """Return which of our settings were the fastest in batches."""
    results, lines = load_results("race"), []
    for name, label in CATALOGUES.items():
        for k in LENGTHS:
            own = find_best(results.get(name, {}).get(name_key(k, 0.95), {}), BATCH, ours=True)
            if own is not None:
                lines.append([f"{label}, k = {k:,}", *_split_setting(own["name"], own["setting"])])
    head = ["recall 0.95, batch", "bytes asked for", "re-ranked with", "k_factor", "queries", "max_items", "which"]
    return to_markdown(head, lines)


def _split_setting(index: str, setting: str) -> list[str]:
    """Return the cells of an index and a setting, named as in race_ours.py."""
    parts, others = index.removeprefix("CCCF, ").split(", "), setting.split(", ")
    refine = next((part.removeprefix("refine ") for part in parts if part.startswith("refine ")), "")
    factor = next((other.removeprefix("k_factor=") for other in others if other.startswith("k_factor=")), "")
    looked = next((other.split(" ", 1) for other in others if " most " in other), ["", ""])
    return [parts[0].removesuffix(" bytes"), refine, factor, others[0], *looked]


def race_readme() -> str:
    """Return the table of the README: lists of 10 and 100 at recall 0.95, two catalogues."""
    results, lines = load_results("race"), []
    for family in SHOWN:
        by_name = {name: results.get(name, {}) for name in README_CATALOGUES}
        sizes = [one.get(name_key(10, 0.95), {}).get(family, {}).get("bytes per item") for one in by_name.values()]
        cells = ["" if size is None else f"{size:.0f}" for size in sizes]
        for one in by_name.values():
            for k, measure in ((10, BATCH), (10, ALONE), (100, BATCH)):
                figures = one.get(name_key(k, 0.95), {}).get(family, {})
                cells.append(format_time(figures[measure]) if measure in figures else "")
        lines.append([_mark(family), *cells])
    labels = [CATALOGUES[name] for name in README_CATALOGUES]
    kinds = ("k = 10, batch", "k = 10, alone", "k = 100, batch")
    head = [
        "us per query at recall 0.95",
        *(f"{label}: bytes per item" for label in labels),
        *(f"{label}: {kind}" for label in labels for kind in kinds),
    ]
    return to_markdown(head, lines)


TABLES = (
    race_batch, race_threads, race_alone, race_batch_10, race_batch_100, race_batch_1000, race_alone_10,
    race_alone_100, race_bytes, race_build, race_settings, race_readme,
)  # fmt: skip
