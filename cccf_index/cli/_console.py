"""What a command says: results to standard output, all else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm


class Console:
    """Where results and progress go, as ``--quiet`` and ``--json`` want it."""

    def __init__(self, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet = quiet
        self.as_json = as_json

    def note(self, text: str) -> None:
        """Say how far we are."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def result(self, text: str, value: Any) -> None:
        """Print the result: text, or the value as JSON."""
        print(json.dumps(value, default=_plain, allow_nan=False) if self.as_json else text)

    def progress(self, total: int, done: int, what: str) -> Any:
        """Return a progress bar, of tqdm, which shows on a terminal only."""
        return tqdm(total=total, initial=done, desc=what, unit=" users", disable=True if self.quiet else None)


def _plain(value: Any) -> Any:
    """Return what JSON does not know as what it does."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no JSON")


def table(rows: Sequence[Sequence[Any]]) -> str:
    """Return rows, the first of them the head, in columns: the first to the left, the others to the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in texts
    )
