"""Output of a command: results go to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from cccf_index._json import to_plain


class Console:
    """Print results and progress according to ``--quiet`` and ``--json``."""

    def __init__(self, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet = quiet
        self.as_json = as_json

    def note(self, text: str) -> None:
        """Print a line about progress to standard error."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def print_result(self, text: str, value: Any) -> None:
        """Print the result as text, or its value as JSON."""
        print(json.dumps(to_plain(value), allow_nan=False) if self.as_json else text)

    def start_progress(self, total: int, done: int, label: str) -> Any:
        """Return a tqdm progress bar, which shows on a terminal only."""
        return tqdm(total=total, initial=done, desc=label, unit=" users", disable=True if self.quiet else None)


def format_table(rows: Sequence[Sequence[Any]]) -> str:
    """Return rows as aligned columns; the first column is left-aligned, the others are right-aligned."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in texts
    )
