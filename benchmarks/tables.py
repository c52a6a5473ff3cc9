"""Write the tables of README.md and of the pages in docs/ from the results; a test compares them.

python benchmarks/tables.py
"""

from __future__ import annotations

import pathlib

import tables_ann
import tables_codes
import tables_paper
import tables_quantizer
import tables_race
import tables_recommend
import tables_retrieval

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLES = (
    *tables_race.TABLES,
    *tables_ann.TABLES,
    *tables_retrieval.TABLES,
    *tables_quantizer.TABLES,
    *tables_codes.TABLES,
    *tables_recommend.TABLES,
    *tables_paper.TABLES,
)


def list_pages() -> list[pathlib.Path]:
    """Return the pages that may hold tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def fill(text: str) -> str:
    """Return a page with the tables between ``<!-- table NAME -->`` and ``<!-- end -->`` made from the results."""
    for table in TABLES:
        mark = f"<!-- table {table.__name__} -->"
        if mark in text:
            before, rest = text.split(mark)
            text = f"{before}{mark}\n\n{table()}\n\n<!-- end -->{rest.split('<!-- end -->', 1)[1]}"
    return text


def main() -> None:
    """Write all pages."""
    for path in list_pages():
        text = path.read_text(encoding="utf-8")
        if (filled := fill(text)) != text:
            path.write_text(filled, encoding="utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
