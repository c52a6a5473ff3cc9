"""Draw docs/images/design.png: how codes are scored, how an index stores them, and which blocks a search visits.

python benchmarks/draw_design.py
"""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
from common import IMAGES

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle

INK, RED, BLUE, PALE = "#2c3e50", "#c0392b", "#2874a6", "#d6dbdf"
SHADES = ("#c0392b", "#e67e22", "#16a085", "#8e44ad")  # of components


def prepare_panel(axes: Any, title: str, width: float, height: float) -> None:
    """Set up a panel without axes."""
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    axes.axis("off")
    axes.set_title(title, fontsize=12, color=INK, loc="left", fontweight="bold")


def write_caption(axes: Any, lines: tuple[str, ...], top: float = 0.75) -> None:
    """Write lines below the drawing."""
    for place, line in enumerate(lines):
        axes.text(0.2, top - 0.7 * place, line, fontsize=9.5, color=INK)


def draw_code(axes: Any, x: float, y: float, bits: Any, weights: Any, label: str) -> None:
    """Draw a code: a strip of bits for each component and its weight below; a component without weight is empty."""
    axes.text(x - 0.3, y + 0.35, label, ha="right", va="center", fontsize=10, color=INK)
    for k, (own, weight) in enumerate(zip(bits, weights, strict=True)):
        left = x + k * 2.5
        for q, bit in enumerate(own):
            face = "white" if weight == 0 else SHADES[k] if bit else "#fdfefe"
            edge = PALE if weight == 0 else SHADES[k]
            axes.add_patch(Rectangle((left + 0.26 * q, y), 0.26, 0.7, facecolor=face, edgecolor=edge, linewidth=0.8))
        text = f"weight {weight:g}" if weight else "no weight"
        axes.text(left + 1.04, y - 0.35, text, ha="center", fontsize=8, color=SHADES[k] if weight else "#95a5a6")


def draw_scoring(axes: Any) -> None:
    """Draw the score of a pair."""
    prepare_panel(axes, "1. A code is G short binary codes with weights", 13, 8)
    rng = np.random.default_rng(70)
    user, item = rng.random((2, 4, 8)) < 0.5
    draw_code(axes, 2.6, 6.2, user, (0.9, 0.4, 0.7, 0), "user")
    draw_code(axes, 2.6, 4.2, item, (0.5, 0.8, 0, 0.3), "item")
    agree = [int((user[k] == item[k]).sum()) for k in range(4)]
    for k, (a, b) in enumerate(((0.9, 0.5), (0.4, 0.8))):
        dot = 2 * agree[k] - 8
        axes.text(3.64 + 2.5 * k, 2.9, f"{a} · {b} · ({dot})", ha="center", fontsize=9, color=SHADES[k])
    axes.text(2.3, 2.9, "score  =", ha="right", fontsize=10, color=INK)
    axes.text(4.9, 2.9, "+", ha="center", fontsize=10, color=INK)
    lines = (
        "For each component that both have: xor, popcount, two multiplications.",
        "Weights are integers: the score is exact, and ties are broken by id.",
    )
    write_caption(axes, lines, 1.5)


def draw_storage(axes: Any) -> None:
    """Draw groups and shards."""
    prepare_panel(axes, "2. Items with the same components form a group", 13, 8)
    groups = (((0, 1, 2, 3), 1.5), ((0, 1, 3), 1.1), ((1, 2), 0.9), ((0,), 0.7))
    y = 6.4
    for k in range(4):
        axes.text(4.4 + 2 * k, 7.0, f"shard {k}", ha="center", fontsize=9, color=SHADES[k])
    for members, height in groups:
        y -= height + 0.15
        axes.text(3.2, y + height / 2, f"group {{{', '.join(map(str, members))}}}", ha="right", va="center", fontsize=9,
                  color=INK)  # fmt: skip
        for k in range(4):
            has = k in members
            style: dict[str, Any] = {"facecolor": SHADES[k], "alpha": 0.75} if has else {"facecolor": "none"}
            edge = "white" if has else PALE
            axes.add_patch(
                Rectangle((3.6 + 2 * k, y), 1.6, height, edgecolor=edge, linestyle="-" if has else ":", **style)
            )
    lines = (
        "A shard is a faiss.IndexBinaryFlat; kernels read its memory.",
        "An item takes no space in components that it does not have.",
    )
    write_caption(axes, lines)


def draw_search(axes: Any) -> None:
    """Draw cells, blocks and the bound."""
    prepare_panel(axes, "3. A search visits only blocks that the bound allows", 13, 8)
    axes.set_aspect("equal", anchor="NW")
    rng = np.random.default_rng(2)
    cells = (((2.6, 5.6), 1.35, 26), ((6.0, 6.1), 1.1, 20), ((5.4, 3.3), 1.3, 24), ((9.6, 4.6), 1.5, 30))
    best = np.array([1.0, 0.25]) / np.hypot(1, 0.25)
    limit = 11.2
    for (x, y), radius, n in cells:
        angle, distance = rng.uniform(0, 2 * np.pi, n), radius * np.sqrt(rng.random(n))
        points = np.array([x + distance * np.cos(angle), y + distance * np.sin(angle)]).T
        reach = np.array([x, y]) @ best + radius > limit
        axes.add_patch(Circle((x, y), radius, facecolor="#fdedec" if reach else "#f4f6f7",
                              edgecolor=RED if reach else "#aab7b8", linewidth=1.2))  # fmt: skip
        good = points @ best > limit
        axes.scatter(*points[~good].T, s=9, color=RED if reach else "#aab7b8", alpha=0.45)
        axes.scatter(*points[good].T, s=22, color=RED)
        axes.plot([x], [y], "+", color=INK, markersize=7)
    ends = np.array([limit * best + along * np.array([-best[1], best[0]]) for along in (0.2, 4.6)])
    axes.plot(*ends.T, "--", color=INK, linewidth=1)
    axes.text(*(ends[1] + (0, 0.15)), "k-th best so far", fontsize=8.5, color=INK, ha="center")
    axes.add_patch(
        FancyArrowPatch((0.4, 2.2), (2.6, 2.75), arrowstyle="-|>", mutation_scale=14, color=BLUE, linewidth=2)
    )
    axes.text(0.4, 2.75, "query x", fontsize=9.5, color=BLUE)
    lines = (
        "An item y of the cell around c scores at most  x·c + |x|·|y-c|.",
        "Cells are cut into blocks of 64 items, which are scored together.",
    )
    write_caption(axes, lines)


def draw() -> None:
    """Draw the three panels."""
    figure, (one, two, three) = plt.subplots(1, 3, figsize=(19, 5.2))
    draw_scoring(one)
    draw_storage(two)
    draw_search(three)
    figure.tight_layout()
    figure.savefig(IMAGES / "design.png", dpi=90)


if __name__ == "__main__":
    draw()
