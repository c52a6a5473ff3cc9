"""The pages show what was measured: their tables are those that the results make, their links lead somewhere."""

import importlib
import json
import re

import pytest
from page_helpers import PAGES, ROOT, name_of

BENCHMARKS = ROOT / "benchmarks"
LINKED = [*PAGES, BENCHMARKS / "README.md"]


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("tables")


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_tables_of_a_page_are_those_of_the_results(path, tables):
    text = path.read_text(encoding="utf-8")
    names = re.findall(r"<!-- table (\w+) -->", text)
    assert len(names) == len(set(names)) == text.count("<!-- end -->")
    assert set(names) <= {table.__name__ for table in tables.TABLES}
    assert tables.fill(text) == text


def test_every_table_is_on_a_page(tables):
    text = "".join(path.read_text(encoding="utf-8") for path in PAGES)
    for table in tables.TABLES:
        assert f"<!-- table {table.__name__} -->" in text


def test_a_cell_holds_one_number(tables):
    for table in tables.TABLES:
        for line in table().splitlines()[2:]:
            for cell in line.strip("| ").split(" | ")[1:]:
                assert len(re.findall(r"\d[\d,.]*", cell)) <= 1, (table.__name__, cell)


@pytest.mark.parametrize("path", LINKED, ids=name_of)
def test_links_and_pictures_of_a_page_exist(path):
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        assert link.startswith("https://") or (path.parent / link).exists(), link


def test_pictures_are_all_shown():
    text = "".join(path.read_text(encoding="utf-8") for path in PAGES)
    for picture in (ROOT / "docs" / "images").glob("*.png"):
        assert f"images/{picture.name})" in text


def test_the_site_lists_every_page():
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for path in PAGES[1:]:
        assert f" {path.relative_to(ROOT / 'docs').as_posix()}\n" in site


def test_results_tell_the_command_and_the_machine_that_made_them():
    for path in (BENCHMARKS / "results").glob("*.json"):
        content = json.loads(path.read_text())
        script = re.search(r"benchmarks/\w+\.py", content["command"])[0]
        assert (ROOT / script).exists(), path
        assert content["machine"]["cores"]
