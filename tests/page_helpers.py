"""The pages: README.md and docs/, and the Python examples in them."""

import pathlib
import re
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ADAPTER = re.compile(r"cccf_index\.adapters\.(\w+) import")
OWN_ENVIRONMENT = ("rectools", "cornac", "lenskit")  # whose tests, and examples, tests/frameworks.py runs


class Example(NamedTuple):
    page: str
    adapter: str | None  # that it imports
    code: object

    def run(self):
        exec(self.code, {"__name__": "example"})


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def python_of(text):
    """The Python blocks of a page, each on the lines where it stands: a traceback then names the line of the page."""
    kept, inside = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = not inside and line == "```python"
            line = ""
        kept.append(line if inside else "")
    return "\n".join(kept) + "\n"


def examples():
    """One for each page with Python blocks; the blocks of a page follow one another, in one namespace."""
    for path in PAGES:
        source = python_of(path.read_text(encoding="utf-8"))
        if source.strip():
            found = ADAPTER.search(source)
            yield Example(name_of(path), found[1] if found else None, compile(source, name_of(path), "exec"))
