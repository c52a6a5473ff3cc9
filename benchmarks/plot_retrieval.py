"""Draw docs/images/retrieval.png from results/retrieval.json: queries per second against recall and NDCG.

python benchmarks/plot_retrieval.py
"""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
from common import IMAGES, read_results

mpl.use("Agg")
import matplotlib.pyplot as plt

RECALL, NDCG, TIME, BYTES = "recall of the factors' first ten", "NDCG@10", "batch, us", "bytes per item"
PANELS = (
    ("gowalla", RECALL, "gowalla, 40,981 items"),
    ("146469", RECALL, "sampled, 146,469 items"),
    ("1000000", RECALL, "sampled, 1,000,000 items"),
    ("gowalla", NDCG, "gowalla, held-out items"),
    ("amazon-dfm", RECALL, "amazon-dfm, 33,195 items, ratings"),
    ("ciao", RECALL, "ciao, 105,096 items"),
)
STYLES = {  # family: colour, marker, name
    "CCCF 8x16, coded": ("#c0392b", "o", "CCCF 8x16, coded queries"),
    "CCCF 8x16, real-valued": ("#e67e22", "o", "CCCF 8x16, real-valued queries"),
    "CCCF 8x16, refine": ("#8e44ad", "o", "CCCF 8x16 + refine"),
    "CCCF 8x16, 4 of 8 active, coded": ("#f1948a", "o", "CCCF 8x16, 4 of 8 active, coded"),
    "implicit": ("#bdc3c7", "s", "implicit's top-k"),
    "IndexFlatIP": ("black", "*", "IndexFlatIP"),
    "IndexBinaryFlat": ("#16a085", "^", "IndexBinaryFlat, 128 bits"),
    "PQ32x4fs": ("#27ae60", "v", "PQ32x4fs"),
    "RR128,RaBitQ": ("#82e0aa", "P", "RaBitQ"),
    "IndexIVFFlat": ("#aed6f1", "D", "IndexIVFFlat"),
    "IndexHNSWFlat": ("#2874a6", "D", "IndexHNSWFlat"),
    "hnswlib": ("#5dade2", "D", "hnswlib"),
    "usearch": ("#85929e", "D", "usearch"),
}


def plot() -> None:
    """Draw the figure."""
    results = read_results("retrieval")
    figure, grid = plt.subplots(2, 3, figsize=(13, 8.2))
    shown: dict[str, Any] = {}
    for axes, (catalogue, measure, title) in zip(grid.flat, PANELS, strict=True):
        for family, (colour, marker, label) in STYLES.items():
            points = sorted(
                (row[measure], 1e6 / row[TIME], row[BYTES])
                for row in results.get(catalogue, {}).values()
                if row["family"] == family and measure in row
            )
            if not points:
                continue
            x, y, size = zip(*points, strict=True)
            axes.plot(x, y, color=colour, linewidth=1, alpha=0.6)
            areas = [36 + 4 * value**0.5 for value in size]  # so that one byte and one kilobyte are both visible
            shown[label] = axes.scatter(x, y, areas, color=colour, marker=marker, edgecolors="white", zorder=3)
        axes.set_yscale("log")
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("NDCG@10 of held-out items" if measure == NDCG else "recall of the factors' top 10")
        axes.grid(visible=True, which="both", linewidth=0.3, alpha=0.6)
    for axes in grid[:, 0]:
        axes.set_ylabel("queries per second, one thread, in batches")
    figure.suptitle("Up and to the right is better; larger marks use more memory per item", fontsize=11)
    figure.legend(shown.values(), shown.keys(), loc="lower center", ncol=5, fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0.09, 1, 0.98))
    figure.savefig(IMAGES / "retrieval.png", dpi=110)


if __name__ == "__main__":
    plot()
