"""Draw docs/images/race-batch.png and race-alone.png from results/race.json: time per query at recall 0.95.

python benchmarks/plot_race.py
"""

from __future__ import annotations

import matplotlib as mpl
from common import IMAGES, read_results
from tables_race import ALONE, BATCH, CATALOGUES, LENGTHS, name_key

mpl.use("Agg")
import matplotlib.pyplot as plt

STYLES = {  # family: colour that the colour-blind can tell apart, marker, name
    "IndexFlatIP": ("black", "*", "dot products (IndexFlatIP)"),
    "IVF-PQfs + refine": ("#999999", "v", "faiss IVF-PQ fast scan + refine"),
    "hnswlib": ("#56b4e9", "D", "hnswlib"),
    "SVS": ("#0072b2", "s", "Intel SVS"),
    "ScaNN": ("#009e73", "^", "ScaNN"),
    "rabitqlib": ("#cc79a7", "P", "rabitqlib (RaBitQ)"),
    "CCCF + refine": ("#e69f00", "o", "CCCF + refine"),
    "CCCF": ("#d55e00", "o", "CCCF"),
}
RECALL = 0.95


def plot(measure: str, title: str, file: str) -> None:
    """Draw one panel for each length of the lists."""
    results = read_results("race")
    names = [name for name in CATALOGUES if name in results]
    figure, panels = plt.subplots(1, len(LENGTHS), figsize=(13, 4.8), sharey=False)
    for axes, k in zip(panels, LENGTHS, strict=True):
        for number, (family, (colour, marker, label)) in enumerate(STYLES.items()):
            beside = 0.08 * (number - len(STYLES) / 2)  # so that no mark hides another
            points = [
                (place + beside, results[name].get(name_key(k, RECALL), {}).get(family, {}).get(measure))
                for place, name in enumerate(names)
            ]
            reached = [(place, value) for place, value in points if value is not None]
            if reached:
                size = 150 if marker == "*" else 80
                x, y = zip(*reached, strict=True)
                axes.scatter(x, y, size, color=colour, marker=marker, edgecolors="white", label=label, zorder=3)
        axes.set_yscale("log")
        axes.set_title(f"lists of {k:,}", fontsize=12)
        axes.set_xticks(range(len(names)), [CATALOGUES[name].replace(", ", "\n") for name in names], fontsize=8)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.grid(visible=True, axis="y", which="both", linewidth=0.3, alpha=0.6)
    panels[0].set_ylabel("microseconds per query, one thread")
    figure.suptitle(title, fontsize=13)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=len(STYLES), fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(IMAGES / file, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    plot(
        BATCH, "Time per query in batches, at recall 0.95 of the vectors' own lists: lower is better", "race-batch.png"
    )
    plot(ALONE, "Time of one query alone, at recall 0.95 of the vectors' own lists: lower is better", "race-alone.png")
