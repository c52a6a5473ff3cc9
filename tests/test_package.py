"""The package as a whole: what it installs, and that every example runs."""

import ast
import doctest
import importlib
import importlib.metadata
import pathlib
import re
import subprocess
import sys

import pytest

import cccf_index
import cccf_index.catalogue
import cccf_index.models

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "cccf_index"
MODULES = sorted(".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.py"))

ADAPTERS = {
    "_vectors": (),
    "options": (),
    "implicit": ("implicit",),
    "rectools": ("rectools",),
    "cornac": ("cornac",),
    "lenskit": ("lenskit", "pydantic"),
    "faiss": ("faiss",),
    "matlab": (),
}


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_imports_its_own_framework_only(name):
    tree = ast.parse((ROOT / "adapters" / f"{name}.py").read_text())
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    packages = {module.split(".")[0] for module in found} - sys.stdlib_module_names - {"__future__"}
    assert packages <= {"cccf_index", "numpy", "scipy", *ADAPTERS[name]}
    own = {module for module in found if module.startswith("cccf_index.adapters")}
    assert own <= {"cccf_index.adapters._vectors", "cccf_index.adapters.options"}


@pytest.mark.parametrize("name", ["implicit", "rectools", "cornac", "lenskit"])
def test_a_framework_that_is_not_there_is_named_with_its_extra(name):
    code = f"import sys; sys.modules[{name!r}] = None; import cccf_index.adapters.{name}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 1
    assert f'`pip install "cccf-index[{name}]"`' in run.stderr.splitlines()[-1]


def test_public_names_exist_and_are_documented():
    assert len(cccf_index.__all__) <= 12
    for name in cccf_index.__all__:
        assert getattr(cccf_index, name).__doc__


def test_dir_shows_what_is_public():
    assert set(dir(cccf_index)) == {*cccf_index.__all__, "__version__"}
    with pytest.raises(AttributeError, match="no attribute 'catalog'"):
        cccf_index.catalog  # noqa: B018


def test_a_catalogue_is_imported_when_it_is_used():
    code = (
        "import sys, cccf_index as ci; ci.IndexCCCF, ci.read_index; "
        "assert 'cccf_index.datasets' not in sys.modules; ci.Catalogue.load"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, timeout=300).returncode == 0
    assert cccf_index.Catalogue is cccf_index.catalogue.Catalogue


def test_the_import_of_the_package_alone_is_light():
    """The command line can be interrupted only after it."""
    code = "import sys, cccf_index; sys.exit(any(name in sys.modules for name in ('numpy', 'numba', 'faiss')))"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, timeout=300).returncode == 0


def test_a_star_import_brings_all_public_names():
    names = {}
    exec("from cccf_index import *", names)
    assert set(cccf_index.__all__) <= set(names)


def test_modules_of_the_package_need_no_import_of_their_own():
    code = "import cccf_index as ci; ci.codes.CompositionalCodes, ci.io, ci.quantizer, ci.models.CCCF"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, timeout=300).returncode == 0


def test_the_adapters_stand_in_the_package_of_a_checkout():
    """An editable install finds them, and mypy their types, through a link; git on Windows may write a file instead."""
    assert (PACKAGE / "adapters" / "__init__.py").samefile(ROOT / "adapters" / "__init__.py")


def test_the_index_does_without_models():
    """Whoever only searches need not load what trains."""
    code = "import sys; from cccf_index import IndexCCCF, read_index; sys.exit(any(name.startswith('cccf_index.models') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, timeout=300).returncode == 0


@pytest.mark.parametrize("module", MODULES)
def test_docstring_examples_run(module):
    name = f"cccf_index.{module}".removesuffix(".__init__")
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_packages_are_the_folders():
    assert {path.stem for path in (ROOT / "adapters").glob("*.py")} == {"__init__", *ADAPTERS}
    project = (ROOT / "pyproject.toml").read_text()  # tomllib is new in Python 3.11
    folders = {"cccf_index"} | {f"cccf_index.{path.parent.name}" for path in PACKAGE.glob("*/__init__.py")}
    folders.add("cccf_index.adapters")
    assert set(ast.literal_eval(re.search(r"^packages = (\[.*?^\])$", project, re.MULTILINE | re.DOTALL)[1])) == folders
    assert (PACKAGE / "py.typed").exists()


def test_the_version_stands_in_the_changelog_and_in_the_citation():
    version = cccf_index.__version__
    assert importlib.metadata.version("cccf-index") == version
    assert f"\n## {version} (20" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "cccf_index", "--version"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert run.stdout.startswith("cccf-index ")


def test_an_index_is_pickled_by_itself():
    """In a process that has not loaded the functions for files."""
    code = """
import pickle
import numpy as np
from cccf_index.index import IndexCCCF
index = IndexCCCF(2, 4)
index.add(np.ones((3, 8), np.float32))
print(pickle.loads(pickle.dumps(index)).ntotal)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert run.stdout == "3\n"


def test_what_the_package_does_not_have_is_no_attribute():
    assert not hasattr(cccf_index, "nothing")
    assert not hasattr(cccf_index, "models.nothing")
