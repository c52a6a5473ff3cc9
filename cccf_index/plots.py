"""Plots of the command line; matplotlib is imported only when one is drawn."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

OURS, PEER, OTHER = "#c0392b", "#34495e", "#16a085"
COLOURS = ("#34495e", "#16a085", "#27ae60", "#82e0aa", "#2874a6", "#5dade2", "#8e44ad", "#7f8c8d")
FORMATS = (".png", ".svg", ".pdf")


def check_plot(path: str) -> None:
    """Raise an error for a file that cannot be drawn, before any work is done."""
    if not path.lower().endswith(FORMATS):
        raise ValueError(f"A plot file must end in {', '.join(FORMATS)}, got {path}.")
    _make_figure(1, 1)


def plot_demo(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Draw NDCG of the whole catalogue against queries per second; our model is the last row.

    Parameters
    ----------
    rows : sequence of mapping
        Each with ``"name"``, ``"catalogue NDCG@10"``, ``"queries per second"`` and ``"bytes per item"``. A row whose
        speed is None is drawn as a line: popularity, which needs no search.
    path : str or path-like
        The file to write; its suffix sets the format.
    """
    figure = _make_figure(8, 4.8)
    axes = figure.add_subplot()
    speeds = [row["queries per second"] for row in rows if row["queries per second"] is not None]
    peers = iter((PEER, OTHER) * len(rows))
    for row in rows:
        value, speed = row["catalogue NDCG@10"], row["queries per second"]
        if speed is None:
            axes.axhline(value, color="#7f8c8d", linestyle="--", linewidth=1.2)
            label, place, colour = f"{row['name']}: NDCG {value:.3f}", (min(speeds) / 2.8, value), "#7f8c8d"
            offset, align = (0, 5), "left"
        else:
            colour = OURS if row is rows[-1] else next(peers)
            axes.plot(speed, value, "o", color=colour, markersize=11)
            label = f"{row['name']}\nNDCG {value:.3f}, {speed:,.0f} queries/s, {row['bytes per item']:.0f} bytes/item"
            place, offset, align = (speed, value), (0, 11), "center"
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}  # or lines cross the text
        axes.annotate(label, place, offset, textcoords="offset points", ha=align, fontsize=8.5, color=colour, bbox=box)
    axes.set_xscale("log")
    axes.set_xlim(min(speeds) / 3, 3 * max(speeds))
    axes.set_ylim(0, 1.3 * max(row["catalogue NDCG@10"] for row in rows) or 1)
    axes.set_xlabel("queries per second, one thread")
    axes.set_ylabel("NDCG@10 of the whole catalogue")
    axes.set_title("Up and to the right is better", fontsize=10)
    axes.grid(visible=True, which="both", linewidth=0.3, alpha=0.6)
    _save_figure(figure, path)


def plot_recall_curve(curve: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Draw recall against bytes per item, what `cccf_index.curves.recall_curve` returned."""
    figure = _make_figure(7, 4.6)
    axes = figure.add_subplot()
    for k, colour in zip(curve[0]["recall"], (OURS, PEER, OTHER, *COLOURS[2:]), strict=False):
        for name, line in (("recall", "-"), ("recall, coded queries", "--")):
            shares = [point[name][k] for point in curve]
            label = f"top {k:,}" + ("" if name == "recall" else ", coded queries")
            axes.plot([point["bytes"] for point in curve], shares, line, marker="o", color=colour, label=label)
    axes.set_xlabel("bytes per item")
    axes.set_ylabel("recall of the vectors' own top k")
    axes.set_ylim(top=1.01)
    axes.set_title("Users that the codes were not learned from", fontsize=10)
    axes.grid(visible=True, linewidth=0.3, alpha=0.6)
    axes.legend(loc="lower right", fontsize=8.5)
    _save_figure(figure, path)


def plot_comparison(results: Mapping[str, Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Draw queries per second against recall, a curve for each family of methods of `cccf_index.comparison`."""
    figure = _make_figure(8, 5.5)
    axes = figure.add_subplot()
    families: dict[str, list[tuple[float, float]]] = {}
    for row in results.values():
        families.setdefault(row["family"], []).append((row["recall"], 1e6 / row["batch, us"]))
    peers = iter(COLOURS * len(families))
    ours = iter((OURS, "#e67e22") * len(families))
    for family, points in families.items():
        mine = family.startswith("CCCF")
        x, y = zip(*sorted(points), strict=True)
        axes.plot(x, y, "o-" if mine else "s-", color=next(ours if mine else peers), label=family, alpha=0.85)
    axes.set_yscale("log")
    axes.set_xlabel("recall of the exact top k")
    axes.set_ylabel("queries per second, one thread, in batches")
    axes.set_title("Up and to the right is better", fontsize=10)
    axes.grid(visible=True, which="both", linewidth=0.3, alpha=0.6)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    _save_figure(figure, path)


def plot_inspection(report: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Draw a report of `cccf_index.inspection.inspect_index`."""
    figure = _make_figure(13, 3.6)
    axes = figure.add_subplot(1, 3, 1)
    counts = np.asarray(report["items by active components"])
    axes.bar(np.arange(len(counts)), counts, color=PEER)
    axes.set_xlabel("active components per item")
    axes.set_ylabel("items")
    axes.set_title(f"{report['items']:,} items, sparsity {report['sparsity']:.2f}", fontsize=10)
    axes = figure.add_subplot(1, 3, 2)
    axes.bar(np.arange(report["components"]), report["mean weight where active"], color=OURS)
    axes.set_xlabel("component")
    axes.set_ylabel("mean weight where active")
    axes.set_title("weight of each component", fontsize=10)
    axes = figure.add_subplot(1, 3, 3)
    if report["share not pruned"]:
        left = np.sort(100 * np.asarray(report["share not pruned"]))
        axes.plot(left, np.linspace(0, 100, len(left)), color=OTHER, linewidth=2)
        axes.set_xlim(0, None)
        axes.set_xlabel("items not pruned, %")
        axes.set_ylabel("queries, %")
        axes.set_title(f"bounds leave {left.mean():.1f} % of the items on average", fontsize=10)
    else:
        parts = {name: size for name, size in report["bytes per item"].items() if name != "total"}
        axes.bar(list(parts), list(parts.values()), color=OTHER)
        axes.set_ylabel("bytes per item")
        axes.set_title(f"{report['bytes per item']['total']:.1f} bytes per item", fontsize=10)
    _save_figure(figure, path)


def _make_figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError('Plots need matplotlib: `pip install "cccf-index[plots]"`.') from None
    return Figure(figsize=(width, height), layout="constrained")


def _save_figure(figure: Any, path: str | os.PathLike[str]) -> None:
    figure.savefig(path, dpi=110)


plot_race = plot_comparison  # the former name
