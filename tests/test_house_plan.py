"""Who imports whom: imports point one way, from the command line down to the kernels."""

import ast
import graphlib
import pathlib
import sys

import pytest

import cccf_index
import cccf_index.models

PACKAGE = pathlib.Path(cccf_index.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if path != PACKAGE / "__init__.py"
)
# A room (a module at the top, or a folder) may import itself and these; `storage.container`, files of arrays, is a leaf.
BASE = {"kernels", "_check", "_exclude", "_json", "_threads", "_vectors", "storage.container"}
CODES = BASE | {"dense", "codes"}
CODING = CODES | {"learning", "quantizer"}
INDEX = CODING | {"storage", "search", "_items", "index"}
REFINE = INDEX | {"_refined_items", "refine"}
MODELS = INDEX | {"datasets", "evaluation", "models"}
ROOMS = {
    "kernels": set(),
    "_check": set(),
    "_exclude": {"_check", "kernels"},
    "_json": set(),
    "_threads": set(),
    "_vectors": set(),
    "storage.container": set(),
    "dense": {"_check", "kernels"},
    "codes": BASE | {"dense"},
    "learning": CODES,
    "quantizer": CODES | {"learning"},
    "storage": CODES,
    "search": CODES | {"storage"},
    "_items": CODING | {"storage"},
    "index": CODING | {"storage", "search", "_items"},
    "_refined_items": INDEX,
    "refine": REFINE,
    "factory": REFINE,
    "io": REFINE,
    "reference": {"codes", "dense", "kernels"},
    "datasets": {"_check"},
    "evaluation": {"_check"},
    "baselines": {"_check", "_exclude"},
    "models": MODELS,
    "catalogue": MODELS | {"io", "refine"},
    "inspection": REFINE,
    "curves": INDEX | {"evaluation"},
    "comparison": INDEX,
    "race": {"comparison"},
    "plots": set(),
    "warming": MODELS | {"io", "refine"},
    "cli": MODELS | {"io", "baselines", "catalogue", "inspection", "curves", "comparison", "plots", "warming"},
    "__main__": {"cli"},
}
KERNEL_PACKAGES = {"numpy", "numba", "llvmlite"} | sys.stdlib_module_names


def room_of(module):
    """The room that a module stands in."""
    return module if module == "storage.container" else module.split(".")[0]


def imports(module):
    """The modules of this package, and the other packages, that a module imports."""
    path = PACKAGE / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    own, other = set(), set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            other |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module.split(".")[0] != "cccf_index":
            other.add(node.module.split(".")[0])
        elif isinstance(node, ast.ImportFrom):
            parent = node.module.removeprefix("cccf_index").removeprefix(".")
            for alias in node.names:
                name = f"{parent}.{alias.name}".removeprefix(".")
                if name in MODULES or parent:  # else a name of the public face
                    own.add(name if name in MODULES else parent)
    return own, other


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down_the_house_plan(module):
    room = room_of(module)
    assert room in ROOMS, "a new room needs a place in ROOMS, and in the map of CONTRIBUTING.md"
    own, other = imports(module)
    assert {room_of(name) for name in own} <= ROOMS[room] | {room}
    if room == "kernels":
        assert other <= KERNEL_PACKAGES


def test_no_two_modules_import_each_other():
    graphlib.TopologicalSorter({module: imports(module)[0] - {module} for module in MODULES}).prepare()


def test_nothing_imports_the_adapters():
    """They come last, and whoever needs none of them needs none of their frameworks."""
    assert not [module for module in MODULES if any(name.startswith("adapters") for name in imports(module)[0])]
