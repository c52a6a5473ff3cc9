"""Build the source distribution and the wheel, and use the wheel in a fresh environment, away from the checkout.

    python3 tests/packages.py

Then the same environment gets an editable install. A user's script must pass `mypy --strict` with both.

Everything happens in a temporary folder, which is removed at the end. The demo takes longest, as it
compiles all kernels.
"""

from __future__ import annotations

import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODULE = (ROOT / "cccf_index" / "__init__.py").read_text(encoding="utf-8")
VERSION = re.search(r'^__version__ = "(.*)"$', MODULE, re.MULTILINE)[1]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")  # tomllib is new in Python 3.11
PACKAGES = ast.literal_eval(re.search(r"^packages = (\[.*?^\])$", PROJECT, re.MULTILINE | re.DOTALL)[1])
TIMEOUT = 900  # seconds for each step
IN_SOURCE = [
    "LICENSE",
    "README.md",
    "CHANGELOG.md",
    "pyproject.toml",
    "adapters/implicit.py",
    "adapters/ann_benchmarks/module.py",
    "benchmarks/common.py",
    "cccf_index/py.typed",
    "tests/conftest.py",
    "tests/golden/0.6.0/answers.npz",
]
IN_WHEEL = ["cccf_index/__init__.py", "cccf_index/py.typed", "cccf_index/adapters/implicit.py"]
USED = """
import importlib.util, pathlib, sys
import cccf_index, cccf_index.adapters.faiss, cccf_index.adapters.implicit, cccf_index.adapters.matlab
assert pathlib.Path(cccf_index.__file__).is_relative_to(sys.argv[1]), cccf_index.__file__
print("cccf_index.adapters:", cccf_index.adapters.implicit.CCCFModel.__name__, "is there")
"""
ALONE = """
import importlib.util
assert importlib.util.find_spec("adapters") is None, "the name `adapters` belongs to another package"
"""
# mypy says so if an ignored error is none: then it has not found the types
TYPED = """
import numpy as np

import cccf_index as ci
from cccf_index.adapters.faiss import to_faiss
from cccf_index.models import CCCF

codes = ci.CompositionalCodes.from_signs(np.ones((3, 2, 8), dtype=bool), np.ones((3, 2)))
index = ci.IndexCCCF(n_components=2, n_bits=8)
index.add(codes)
params = ci.SearchParametersCCCF(num_threads=1)
D, I = index.search(codes, 2, params=params, exclude=[[0], [], [1, 2]], allow=[0, 1, 2])
index.search(codes, 2, params={"sel": None})  # type: ignore[arg-type]
index.search(codes, 2, exclude=3)  # type: ignore[arg-type]
index.search(codes, 2, allow=index)  # type: ignore[arg-type]
catalogue: ci.Catalogue = ci.Catalogue.load("items.cccf")
model: CCCF = CCCF(n_bits="16")  # type: ignore[arg-type]
to_faiss(3)  # type: ignore[arg-type]
"""


def run(*command: object, cwd: pathlib.Path) -> None:
    """Say what is run, and run it, without what would let it find the checkout."""
    words = [str(word) for word in command]
    print("$", " ".join(word if "\n" not in word else "..." for word in words), flush=True)
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(words, cwd=cwd, env=variables, check=True, timeout=TIMEOUT)


def environment(folder: pathlib.Path, *packages: object) -> pathlib.Path:
    """Make an environment with these packages; return the folder of its programs."""
    venv.create(folder, with_pip=True)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    run(programs / "python", "-m", "pip", "install", "-q", *packages, cwd=folder)
    return programs


def copy_source(folder: pathlib.Path) -> None:
    """Copy the files of the checkout that git knows or would add: a build leaves its traces there, not here."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=TIMEOUT).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():  # else it is deleted, but not committed
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)


def check_source(path: pathlib.Path) -> None:
    """Check what is in the source distribution."""
    with tarfile.open(path) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    missing = sorted(set(IN_SOURCE) - names)
    assert not missing, f"{path.name} lacks {missing}"


def check_wheel(path: pathlib.Path) -> None:
    """Check what is in the wheel, and that it installs one package only."""
    with zipfile.ZipFile(path) as file:
        names = set(file.namelist())
    missing = sorted(set(IN_WHEEL) - names)
    assert not missing, f"{path.name} lacks {missing}"
    about = f"cccf_index-{VERSION}.dist-info"
    assert {name.split("/")[0] for name in names} == {"cccf_index", about}, sorted(names)
    assert f"{about}/licenses/LICENSE" in names
    folders = {name.rpartition("/")[0].replace("/", ".") for name in names if name.startswith("cccf_index/")}
    assert folders == set(PACKAGES), sorted(folders)
    foreign = [name for name in names if name.startswith("cccf_index/") and not name.endswith((".py", "/py.typed"))]
    assert not foreign, f"{path.name} must hold code only, got {foreign}"


def main() -> None:
    """Build, check, install and use the packages."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="cccf-packaging-") as name:
        folder = pathlib.Path(name)
        source, dist, work = (folder / part for part in ("source", "dist", "work"))
        work.mkdir()
        copy_source(source)
        builder = environment(folder / "builder", "build>=1.2")
        run(builder / "python", "-m", "build", "--outdir", dist, source, cwd=work)
        check_source(dist / f"cccf_index-{VERSION}.tar.gz")
        wheel = next(dist.glob("*.whl"))
        check_wheel(wheel)
        programs = environment(folder / "fresh", f"{wheel}[implicit,plots]", "mypy>=1.14")
        (work / "typed.py").write_text(TYPED, encoding="utf-8")
        run(programs / "python", "-c", ALONE, cwd=work)
        run(programs / "python", "-c", USED, folder / "fresh", cwd=work)
        run(programs / "mypy", "--strict", "typed.py", cwd=work)
        run(programs / "cccf", "--version", cwd=work)
        run(programs / "cccf", "demo", cwd=work)
        assert (work / "cccf-demo" / "demo.json").exists()
        run(programs / "python", "-m", "pip", "install", "-q", "--no-deps", "-e", source, cwd=work)
        run(programs / "python", "-c", USED, source, cwd=work)
        run(programs / "mypy", "--strict", "typed.py", cwd=work)
    print(f"Packages of {VERSION} were built, installed and used in {time.perf_counter() - start:.0f} s.")


if __name__ == "__main__":
    sys.exit(main())
