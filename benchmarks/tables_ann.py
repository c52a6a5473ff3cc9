"""The table of ann-benchmarks' own runs."""

from __future__ import annotations

from table_format import load_results, to_markdown

DATASETS = {"gowalla-129-angular": "gowalla", "random-xs-20-angular": "random-xs-20"}
RECALLS = (0.9, 0.95, 0.99)


def ann_benchmarks() -> str:
    """Return the queries per second of each algorithm at a recall; empty where no setting reaches it."""
    results, lines = load_results("ann-benchmarks"), []
    found = [results[name] for name in DATASETS if name in results]
    for algorithm in dict.fromkeys(row["algorithm"] for rows in found for row in rows.values()):
        cells = []
        for rows in found:
            own = [row for row in rows.values() if row["algorithm"] == algorithm]
            for least in RECALLS:
                good = [row["queries per second"] for row in own if row["recall"] >= least]
                cells.append(f"{max(good):,.0f}" if good else "")
        lines.append([f"**{algorithm}**" if algorithm == "cccf" else algorithm, *cells])
    labels = [label for name, label in DATASETS.items() if name in results]
    columns = [f"{label}, recall {least:.2f}" for label in labels for least in RECALLS]
    return to_markdown(["queries per second, one at a time", *columns], lines)


TABLES = (ann_benchmarks,)
