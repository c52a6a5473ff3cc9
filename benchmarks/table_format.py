"""What the tables of the pages are made of: results, rows of Markdown, numbers with a sensible number of digits."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Any

RESULTS = pathlib.Path(__file__).parent / "results"


def load_results(name: str) -> dict[str, Any]:
    """Return the results of a benchmark."""
    return dict(json.loads((RESULTS / f"{name}.json").read_text())["results"])


def to_markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table: names to the left, numbers to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_time(value: float) -> str:
    """Return microseconds or seconds with about three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.3f}"


def format_ratio(value: float) -> str:
    """Return how many times faster."""
    return f"{value:.0f}x" if value >= 9.95 else f"{value:.1f}x"
