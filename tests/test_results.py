"""The pages show what was measured: their tables are those that the results make."""

import importlib.util
import json
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"


def tables():
    spec = importlib.util.spec_from_file_location("tables", BENCHMARKS / "tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["README.md", "benchmarks/RESULTS.md"])
def test_tables_of_a_page_are_those_of_the_results(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text.count("<!-- table") >= 2
    assert tables().filled(text) == text


@pytest.mark.parametrize("page", ["README.md", "benchmarks/RESULTS.md", "benchmarks/README.md"])
def test_links_and_pictures_of_a_page_exist(page):
    path = ROOT / page
    links = re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8"))
    assert links
    for link in links:
        assert (path.parent / link).exists(), link


def test_results_tell_the_command_and_the_machine_that_made_them():
    for path in (BENCHMARKS / "results").glob("*.json"):
        content = json.loads(path.read_text())
        script = re.search(r"benchmarks/\w+\.py", content["command"])[0]
        assert (ROOT / script).exists(), path
        assert content["machine"]["cores"]
