"""What does ann-benchmarks itself say: its runner, its settings of other libraries, its recall and its plot?

    python benchmarks/bench_ann_benchmarks.py --checkout DIR --data DIR --save

The checkout is a clone of erikbern/ann-benchmarks, to which our module is copied. Its runner is used as it is
(`run.py --local`), on one processor, one query at a time. It has no inner products, so an item gets one more coordinate
that makes all items equally long, and a query a zero: then angles order the items as inner products do.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import runpy
import shutil
import subprocess
import sys
from typing import Any

import numpy as np
from catalogues import Store
from common import IMAGES, make_parser, print_machine, save_results
from numpy.typing import NDArray

GOWALLA, RANDOM = "gowalla-129-angular", "random-xs-20-angular"
ALGORITHMS = ("cccf", "hnswlib", "scann", "faiss-ivf")
OURS = pathlib.Path(__file__).resolve().parents[1] / "adapters" / "ann_benchmarks"
QUERIES, COUNT, RUNS = 1000, 10, 3
TRIES = 40  # of the runner, for each algorithm
PICTURES = {GOWALLA: "ann-gowalla.png", RANDOM: "ann-random.png"}


def lengthen(items: NDArray[np.float32], queries: NDArray[np.float32]) -> tuple[Any, Any]:
    """Return items of equal length, and queries, whose angles order the items as the inner products of the given do."""
    squares = np.einsum("ij,ij->i", items, items, dtype=np.float64)
    rest = np.sqrt(squares.max() - squares).astype(np.float32)
    return np.column_stack([items, rest]), np.column_stack([queries, np.zeros(len(queries), np.float32)])


def register_gowalla(data: str, folder: str) -> None:
    """Add the factors of gowalla to the data sets of ann-benchmarks, which makes the file when it is first needed."""
    datasets: Any = importlib.import_module("ann_benchmarks.datasets")

    def write(path: str) -> None:
        one = Store(data, folder).get_factors("gowalla")
        known = np.flatnonzero(np.abs(one.users).sum(axis=1) > 0)
        chosen = np.random.default_rng(0).choice(known, QUERIES, replace=False)
        datasets.write_output(*lengthen(one.items, one.users[chosen]), path, "angular")

    datasets.DATASETS[GOWALLA] = write


def run_algorithm(dataset: str, algorithm: str) -> None:
    """Run every setting of an algorithm that has no results yet.

    The runner is called until nothing is left: its worker ends at once if the queue of its tasks is not filled yet.
    """
    main: Any = importlib.import_module("ann_benchmarks.main")
    sys.argv = ["run.py", "--local", "--dataset", dataset, "--algorithm", algorithm]
    sys.argv += ["--count", str(COUNT), "--runs", str(RUNS)]
    for _ in range(TRIES):
        try:
            main.main()
        except Exception as error:
            if str(error) == "Nothing to run":
                return
            raise
    print(f"{algorithm}: some settings have no results after {TRIES} tries", file=sys.stderr)


def read_runs(dataset: str) -> dict[str, Any]:
    """Return the figures of every setting, as ann-benchmarks computes them."""
    datasets: Any = importlib.import_module("ann_benchmarks.datasets")
    utils: Any = importlib.import_module("ann_benchmarks.plotting.utils")
    results: Any = importlib.import_module("ann_benchmarks.results")
    rows = {}
    for run in utils.compute_metrics_all_runs(datasets.get_dataset(dataset)[0], results.load_all_results(dataset)):
        rows[f"{run['algorithm']}: {run['parameters']}"] = {
            "algorithm": run["algorithm"],
            "recall": float(run["k-nn"]),
            "queries per second": float(run["qps"]),
            "build, s": float(run["build"]),
            "index, kB": float(run["indexsize"]),
        }
    return rows


def draw(dataset: str) -> None:
    """Draw ann-benchmarks' own plot into the pictures of the pages."""
    sys.argv = ["plot.py", "--dataset", dataset, "--count", str(COUNT), "-o", str(IMAGES / PICTURES[dataset])]
    sys.argv += ["--y-scale", "log"]
    runpy.run_path("plot.py", run_name="__main__")


def name_commit() -> str:
    """Return the commit of the checkout."""
    shown = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    return shown.stdout.strip()


def main() -> None:
    parser = make_parser(__doc__, "benchmarks/results/ann-benchmarks.json", "gowalla.npz")
    parser.add_argument("--checkout", required=True, help="folder of a clone of ann-benchmarks")
    parser.add_argument("--cache", default="benchmarks/cache", help="folder for factors and codes")
    parser.add_argument("--datasets", nargs="*", default=[GOWALLA, RANDOM], choices=(GOWALLA, RANDOM))
    arguments = parser.parse_args()
    print_machine()
    data, folder = (os.path.abspath(path) for path in (arguments.data, arguments.cache))
    shutil.copytree(OURS, pathlib.Path(arguments.checkout, "ann_benchmarks/algorithms/cccf"), dirs_exist_ok=True)
    os.chdir(arguments.checkout)
    sys.path.insert(0, os.getcwd())
    os.environ["OMP_NUM_THREADS"] = "1"
    os.sched_setaffinity(0, {0})  # as its containers do
    register_gowalla(data, folder)
    found = {}
    for dataset in arguments.datasets:
        for algorithm in ALGORITHMS:
            run_algorithm(dataset, algorithm)
        found[dataset] = read_runs(dataset)
        if arguments.save:
            draw(dataset)
    if arguments.save:
        command = "python benchmarks/bench_ann_benchmarks.py --checkout DIR --data DIR --save"
        config = {"ann-benchmarks": name_commit(), "count": COUNT, "runs": RUNS, "queries": QUERIES}
        save_results("ann-benchmarks", command, found, keep=True, config=config)


if __name__ == "__main__":
    main()
