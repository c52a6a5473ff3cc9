"""Draw the figures of docs/paper.md from the results of the experiments.

python benchmarks/plot_experiments.py
"""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
from common import DATASETS, IMAGES, read_results
from numpy.typing import NDArray

mpl.use("Agg")
import matplotlib.pyplot as plt

RED, ORANGE, BLACK, BLUE, GREEN, PURPLE, GREY = (
    "#c0392b", "#e67e22", "black", "#2874a6", "#16a085", "#8e44ad", "#7f8c8d",
)  # fmt: skip
MODELS = {  # name of the row, with BITS: colour, style, label
    "MF, BITS bits": (BLACK, "s--", "MF (as many factors)"),
    "BCCF, BITS bits": (GREY, "^-", "BCCF"),
    "DCF, BITS bits": (GREEN, "^-", "DCF"),
    "DCMF, BITS bits": (BLUE, "^-", "DCMF (genres)"),
    "CCCF, kernel, BITS bits": (PURPLE, "o-", "CCCF, kernel weights (the paper's)"),
    "CCCF, learned, BITS bits, coded queries": (RED, "o-", "CCCF, learned weights"),
    "CCCF, learned, BITS bits, real-valued queries": (ORANGE, "o:", "the same, real-valued queries"),
}
BITS, CUTS = (32, 64, 128), (2, 4, 6, 8, 10)
SCALES = (1, 10, 50, 100, 500, 1000)


def finish_figure(figure: Any, name: str, title: str, bottom: float = 0.12, columns: int = 4) -> None:
    """Add the title and one legend below all panels, and write the figure."""
    shown: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    figure.suptitle(title, fontsize=11)
    figure.legend(shown.values(), shown.keys(), loc="lower center", ncol=columns, fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, bottom, 1, 0.98))
    figure.savefig(IMAGES / f"{name}.png", dpi=110)
    plt.close(figure)


def label_panel(axes: Any, title: str, x: str, y: str) -> None:
    """Label a panel and its axes."""
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.grid(visible=True, linewidth=0.3, alpha=0.6)


def plot_accuracy() -> None:
    """RQ1: NDCG against bits, and against the cut-off."""
    figure, grid = plt.subplots(2, 3, figsize=(13, 7.6))
    for column, dataset in enumerate(DATASETS):
        rows = read_results(f"accuracy-{dataset}")
        for name, (colour, style, label) in MODELS.items():
            own = {bits: rows[key] for bits in BITS if (key := name.replace("BITS", str(bits))) in rows}
            if not own:
                continue
            spread = [row["rated, standard deviation"][-1] for row in own.values()]
            grid[0, column].errorbar(
                list(own), [row["rated"][-1] for row in own.values()], spread, fmt=style, color=colour, label=label
            )
            grid[1, column].plot(CUTS, own[128]["rated"], style, color=colour, label=label)
        grid[0, column].set_xticks(BITS)
        grid[1, column].set_xticks(CUTS)
        label_panel(grid[0, column], dataset, "bits", "NDCG@10")
        label_panel(grid[1, column], f"{dataset}, 128 bits", "K", "NDCG@K")
    finish_figure(
        figure, "accuracy", "Learned weights match MF; the paper's weights are about as good as DCF (5 splits)"
    )


def plot_components() -> None:
    """RQ2: components and bits, with varied and with fixed total bits."""
    rows = read_results("components")
    shades = (PURPLE, BLUE, RED)
    lines = {
        "varied": [(f"{r} bits per component", [(G, r) for G in (1, 2, 4, 8, 16)]) for r in (4, 8, 16)],
        "fixed": [(f"{t} bits in total", [(G, t // G) for G in (1, 2, 4, 8, 16, 32)]) for t in (32, 64, 128)],
    }
    titles = {
        "varied": "More components and more bits help; beyond 8 components the gain is small",
        "fixed": "At fixed total bits, more components help learned weights and hurt the paper's",
    }
    for kind, curves in lines.items():
        figure, grid = plt.subplots(2, 3, figsize=(13, 7))
        for row, part in enumerate(("kernel", "learned")):
            for column, dataset in enumerate(DATASETS):
                axes, own = grid[row, column], rows.get(f"{dataset}, {part}", {})
                for (label, shapes), colour in zip(curves, shades, strict=True):
                    known = [(G, own[f"{G}x{r}"]) for G, r in shapes if f"{G}x{r}" in own]
                    if known:
                        x = [G for G, _ in known]
                        y, error = ([value[key] for _, value in known] for key in ("mean", "std"))
                        axes.errorbar(x, y, error, fmt="o-", color=colour, label=label)
                axes.set_xscale("log", base=2)
                axes.set_xticks([G for G, _ in curves[-1][1]], [str(G) for G, _ in curves[-1][1]])
                splits = f", {own['splits']} splits" if own else ""
                label_panel(axes, f"{dataset}, {part} weights{splits}", "components", "NDCG@10")
        finish_figure(figure, f"components-{kind}", titles[kind], bottom=0.06)


def plot_weights() -> None:
    """RQ3: rounding and sparsity against accuracy, and the time that sparsity saves."""
    rows, costs = read_results("weights"), read_results("costs")
    figure, grid = plt.subplots(3, 3, figsize=(13, 10))
    for column, dataset in enumerate(DATASETS):
        kernel, learned = (rows.get(f"{dataset}, {part}", {}) for part in ("kernel", "learned"))
        top, middle, bottom = grid[:, column]
        for own, prefix, colour, label in (
            (kernel, "h = 0.8, ", PURPLE, "kernel weights, h = 0.8"),
            (kernel, "h = 1.2, ", BLUE, "kernel weights, h = 1.2"),
            (learned, "", RED, "learned weights"),
        ):
            if own:
                y = [own[f"{prefix}e = {scale}"]["mean"] for scale in SCALES]
                top.plot(range(len(SCALES)), y, "o-", color=colour, label=label)
        top.set_xticks(range(len(SCALES)), [str(scale) for scale in SCALES])
        label_panel(top, dataset, "e", "NDCG@10")
        widths = sorted({float(key.split(",")[0][4:]) for key in kernel if key.startswith("h = ")})
        if widths:
            y, error = ([kernel[f"h = {h}"][key] for h in widths] for key in ("mean", "std"))
            middle.errorbar(widths, y, error, fmt="o-", color=BLACK, label="kernel weights, not rounded")
            for h in widths:
                active = kernel[f"h = {h}, active of an item"]["mean"]
                middle.annotate(f"{active:.1f}", (h, kernel[f"h = {h}"]["mean"]), (8, -9), textcoords="offset points",
                                ha="left", fontsize=8)  # fmt: skip
        label_panel(middle, f"{dataset}; numbers: active components per item", "h", "NDCG@10")
        middle.margins(x=0.12, y=0.15)
        own = costs.get(dataset, {})
        if own:
            seconds = [own[f"h = {h}, IWS"] for h in widths]
            bottom.plot(widths, seconds, "o-", color=GREY, label="seconds of kernel weights")
            bottom.set_ylim(0, 1.15 * max(seconds))
        label_panel(bottom, dataset, "h", "s for the top-10 of all users")
    title = "e = 100 loses nothing; sparse weights (small h) save time and cost accuracy"
    finish_figure(figure, "weights", title, bottom=0.05, columns=6)


def plot_costs() -> None:
    """RQ1 and RQ3: seconds for all users."""
    rows = read_results("costs")
    bars = {
        "MF, IndexFlatIP": ("MF\nIndexFlatIP", BLACK),
        "DCF, IndexBinaryFlat": ("DCF\nIndexBinaryFlat", GREEN),
        "CCCF learned, EXACT": ("CCCF\nEXACT", "#f1948a"),
        "CCCF learned, IWS": ("CCCF\nIWS", RED),
    }
    figure, grid = plt.subplots(1, 3, figsize=(13, 4))
    for axes, dataset in zip(grid, DATASETS, strict=True):
        own = rows.get(dataset, {})
        if not own:
            continue
        values = [own[name] for name in bars]
        drawn = axes.bar([label for label, _ in bars.values()], values, color=[colour for _, colour in bars.values()])
        axes.bar_label(drawn, [f"{value:.3g}" for value in values], fontsize=9)
        axes.tick_params(axis="x", labelsize=8)
        axes.set_ylim(0, 1.12 * max(values))
        label_panel(axes, f"{dataset}: {own['users']:,} users, {own['items']:,} items", "", "s, one thread")
    title = "Top 10 items of all users: CCCF is faster than both, with integer and with float weights"
    finish_figure(figure, "costs", title, bottom=0)


def plot_convergence() -> None:
    """Draw the objective and NDCG@10, from the relaxed solution and from random signs."""
    rows = read_results("convergence")
    figure, grid = plt.subplots(2, 3, figsize=(13, 7))
    for column, dataset in enumerate(DATASETS):
        for part, colour in (("initialised", RED), ("random start", GREY)):
            own = rows.get(f"{dataset}, {part}", {})
            if not own:
                continue
            grid[0, column].plot(own["objective"]["mean"], "o-", color=colour, label=part)
            after = {int(key.split()[-1]): value for key, value in own.items() if key.startswith("NDCG")}
            error = [value["std"] for value in after.values()]
            grid[1, column].errorbar(
                list(after), [v["mean"] for v in after.values()], error, fmt="o-", color=colour, label=part
            )
        label_panel(grid[0, column], dataset, "iteration", "objective per rating")
        label_panel(grid[1, column], dataset, "iteration", "NDCG@10")
    title = "Kernel weights, 8 x 16 bits: the relaxed start is nearly converged at once, and ends better"
    finish_figure(figure, "convergence", title, bottom=0.06)


def plot_map(points: dict[str, NDArray[Any]], genres: NDArray[Any], rows: dict[str, Any]) -> None:
    """RQ4: movies by t-SNE of their codes, coloured by genre."""
    names = [name for name in points if name != "MF"]
    figure, grid = plt.subplots(1, len(names), figsize=(15, 5.6))
    for axes, name in zip(grid, names, strict=True):
        for genre, label in enumerate(rows["movies"]):
            own = points[name][genres == genre]
            axes.scatter(
                own[:, 0], own[:, 1], 14, color=(RED, ORANGE, BLUE, PURPLE, GREEN)[genre], label=label, alpha=0.8
            )
        share = rows[name]["same genre among nearest, in the drawing"]
        axes.set_title(f"{name}: {share:.0%} of the ten nearest have the same genre", fontsize=10)
        axes.set_xticks([])
        axes.set_yticks([])
    chance = rows[names[0]]["by chance"]
    finish_figure(
        figure, "map", f"Movies of ml-1m, codes of 128 bits (by chance: {chance:.0%})", bottom=0.06, columns=5
    )


def plot() -> None:
    """Draw all figures but the map, whose points `bench_map.py` computes."""
    plot_accuracy()
    plot_components()
    plot_weights()
    plot_costs()
    plot_convergence()


if __name__ == "__main__":
    plot()
