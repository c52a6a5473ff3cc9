"""Run the tests of the adapters with the real frameworks, each in a virtual environment of its own.

    python3 tests/frameworks.py                  # all of them
    python3 tests/frameworks.py cornac rectools  # some

Environments are created in `.venvs/` and kept: a second run only updates them.
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
TIMEOUT = 1800  # seconds for a subprocess; installing torch over a slow line takes long
# Arguments of pip, one call after the other, and the test files. torch without CUDA, if there is one, must come first.
FRAMEWORKS = {
    "implicit": ([["-e", ".", IMPLICIT, *COMMON]], ["adapter_implicit", "adapter_implicit_mixin"]),
    "ann_benchmarks": ([["-e", ".", "pyyaml", *COMMON]], ["adapter_ann_benchmarks"]),
    "cornac": ([["-e", ".[cornac]", "cornac==3.0.1", *COMMON]], ["adapter_cornac"]),
    "rectools": ([["-e", ".[rectools]", "rectools==0.19.0", *COMMON]], ["adapter_rectools"]),
    "lenskit": (
        [["torch==2.13.0"], ["-e", ".[lenskit]", "lenskit==2025.8.1", IMPLICIT, *COMMON]],
        ["adapter_lenskit", "tensors"],
    ),
}


def call(python: pathlib.Path, *arguments: object, variables: dict[str, str] | None = None) -> int:
    """Run a Python module in the project's folder and return its exit code; it is killed after `TIMEOUT`."""
    command = [str(python), "-m", *map(str, arguments)]
    try:
        # `run` kills the child when the time is up, and when this process is interrupted
        return subprocess.run(command, cwd=ROOT, env=variables, check=False, timeout=TIMEOUT).returncode
    except subprocess.TimeoutExpired:
        print(f"killed after {TIMEOUT} s: {' '.join(command)}", file=sys.stderr, flush=True)
        return 1


def install(python: pathlib.Path, *arguments: object) -> None:
    """Run pip, and raise an error if it fails."""
    if call(python, "pip", *arguments) != 0:
        raise RuntimeError(f"pip {' '.join(map(str, arguments))} failed")


def make_environment(name: str) -> pathlib.Path:
    """Create or update an environment and return its Python."""
    python = PLACE / name / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        venv.create(PLACE / name, with_pip=True)
    for packages in FRAMEWORKS[name][0]:
        install(python, "install", "-q", *packages)
    return python


def fetch_implicit_tests(python: pathlib.Path) -> pathlib.Path:
    """Return the folder of the tests in implicit's source distribution."""
    folder = PLACE / "implicit-source"
    if not any(folder.glob("*/tests/recommender_base_test.py")):
        install(python, "download", "-q", "--no-deps", "--no-binary", "implicit", "-d", folder, IMPLICIT)
        with tarfile.open(next(folder.glob("*.tar.gz"))) as source:
            source.extractall(folder, [m for m in source.getmembers() if m.isfile() and "/tests/" in m.name])
    return next(folder.glob("*/tests/recommender_base_test.py")).parent


def run_tests(name: str) -> bool:
    """Return whether the tests of an adapter pass."""
    print(f"\n== {name}", flush=True)
    start = time.perf_counter()
    try:
        python = make_environment(name)
        variables = dict(os.environ)
        if name == "implicit":
            variables["PYTHONPATH"] = str(fetch_implicit_tests(python))
        tests = [f"tests/test_{test}.py" for test in FRAMEWORKS[name][1]]
        # the frameworks' own warnings are not errors
        passed = call(python, "pytest", "-q", "-W", "default", "--disable-warnings", *tests, variables=variables) == 0
    except RuntimeError as error:
        print(error, file=sys.stderr)
        passed = False
    print(f"{name}: {'passed' if passed else 'FAILED'}, {time.perf_counter() - start:.0f} s", flush=True)
    return passed


def main() -> int:
    """Run the tests of the frameworks named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help=f"{', '.join(FRAMEWORKS)} (default: all)")
    names = parser.parse_args().names or list(FRAMEWORKS)
    unknown = sorted(set(names) - set(FRAMEWORKS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(FRAMEWORKS)}")
    if sys.version_info < (3, 11) and "lenskit" in names:
        print("LensKit is left out: it needs Python 3.11.")
        names.remove("lenskit")
    failed = [name for name in names if not run_tests(name)]
    print(f"\n{'All passed.' if not failed else 'FAILED: ' + ', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
