"""Run the tests of the adapters, each in an environment of its own with the real framework.

    python3 tests/frameworks.py                  # all of them
    python3 tests/frameworks.py cornac rectools  # some

Environments are made in `.venvs/`, and kept: a second run only brings them up to date.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import tarfile
import time
import venv

ROOT = pathlib.Path(__file__).resolve().parents[1]
PLACE = ROOT / ".venvs"
COMMON = ["pytest>=8", "hypothesis>=6.100"]
IMPLICIT = "implicit==0.7.3"
TIMEOUT = 1800  # seconds for each step
# What pip installs, one call after the other, and the tests; a torch without CUDA, where there is one, must come first.
FRAMEWORKS = {
    "implicit": ([["-e", ".", IMPLICIT, *COMMON]], ["implicit", "implicit_mixin"]),
    "ann_benchmarks": ([["-e", ".", "pyyaml", *COMMON]], ["ann_benchmarks"]),
    "cornac": ([["-e", ".[cornac]", "cornac==3.0.1", *COMMON]], ["cornac"]),
    "rectools": ([["-e", ".[rectools]", "rectools==0.19.0", *COMMON]], ["rectools"]),
    "lenskit": ([["torch==2.13.0"], ["-e", ".[lenskit]", "lenskit==2025.8.1", IMPLICIT, *COMMON]], ["lenskit"]),
}


def environment(name: str) -> pathlib.Path:
    """Make or update an environment; return its Python."""
    python = PLACE / name / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        venv.create(PLACE / name, with_pip=True)
    for packages in FRAMEWORKS[name][0]:
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], cwd=ROOT, check=True, timeout=TIMEOUT)
    return python


def implicits_own_tests(python: pathlib.Path) -> pathlib.Path:
    """Return the folder of the tests in implicit's source distribution."""
    folder = PLACE / "implicit-source"
    if not any(folder.glob("*/tests/recommender_base_test.py")):
        download = [
            python,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            "implicit",
            "-d",
            folder,
            IMPLICIT,
        ]
        subprocess.run(download, check=True, timeout=TIMEOUT)
        with tarfile.open(next(folder.glob("*.tar.gz"))) as source:
            source.extractall(folder, [m for m in source.getmembers() if m.isfile() and "/tests/" in m.name])
    return next(folder.glob("*/tests/recommender_base_test.py")).parent


def run(name: str) -> bool:
    """Return whether the tests of an adapter pass."""
    print(f"\n== {name}", flush=True)
    start = time.perf_counter()
    python = environment(name)
    variables = dict(os.environ)
    if name == "implicit":
        variables["PYTHONPATH"] = str(implicits_own_tests(python))
    tests = [f"tests/test_adapter_{test}.py" for test in FRAMEWORKS[name][1]]
    # a framework's own warnings are not ours to turn into errors
    command = [python, "-m", "pytest", "-q", "-W", "default", "--disable-warnings", *tests]
    passed = subprocess.run(command, cwd=ROOT, env=variables, check=False, timeout=TIMEOUT).returncode == 0
    print(f"{name}: {'passed' if passed else 'FAILED'}, {time.perf_counter() - start:.0f} s", flush=True)
    return passed


def main() -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(FRAMEWORKS)}")
    names = parser.parse_args().names or list(FRAMEWORKS)
    unknown = sorted(set(names) - set(FRAMEWORKS))
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}, only {', '.join(FRAMEWORKS)}")
    if sys.version_info < (3, 11) and "lenskit" in names:
        print("LensKit needs Python 3.11: it is left out.")
        names.remove("lenskit")
    failed = [name for name in names if not run(name)]
    print(f"\n{'All passed.' if not failed else 'FAILED: ' + ', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
