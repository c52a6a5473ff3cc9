"""How long does training take, how does it grow with the ratings, and how much memory does it need?

    python benchmarks/bench_training.py --data DIR --save

Seconds are the best of several runs, initialization included, after a run on a small matrix that compiles the kernels.
Growth is measured on random parts of amazon-dfm. Memory is the peak allocation of a fit, without the ratings.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
from common import load_ratings, make_parser, report_results
from scipy import sparse

from cccf_index.datasets import split_ratings, synthetic_ratings
from cccf_index.models import BCCF, CCCF, DCF, MF

MODELS: dict[str, Callable[[], Any]] = {
    "MF, 128 factors, 8 iterations": lambda: MF(128, max_iter=8, verbose=False),
    "BCCF, 128 bits": lambda: BCCF(128, verbose=False),
    "DCF, 128 bits": lambda: DCF(128, verbose=False),
    "CCCF, 8 x 16 bits": lambda: CCCF(8, 16, "kernel", verbose=False),
    "CCCF, learned, 8 x 16 bits": lambda: CCCF(8, 16, objective="rated", verbose=False),
}
PARTS = (0.25, 0.5, 1.0)


def time_fit(make: Callable[[], Any], ratings: Any, runs: int) -> float:
    """Return the seconds of the fastest fit."""
    best = float("inf")
    for _ in range(runs):
        begin = time.perf_counter()
        make().fit(ratings)
        best = min(best, time.perf_counter() - begin)
    return best


def sample_part(matrix: Any, share: float) -> Any:
    """Return a random share of the ratings, without users and items that have none left."""
    coo = matrix.tocoo()
    kept = np.random.default_rng(0).random(coo.nnz) < share
    _, rows = np.unique(coo.row[kept], return_inverse=True)
    _, columns = np.unique(coo.col[kept], return_inverse=True)
    return sparse.csr_matrix((coo.data[kept], (rows, columns)))


def measure_peak(make: Callable[[], Any], ratings: Any) -> int:
    """Return the peak memory of a fit, in bytes."""
    tracemalloc.start()
    make().fit(ratings)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def main() -> None:
    parser = make_parser(__doc__, "benchmarks/results/training.json", "ml-1m.npz and amazon-dfm.npz")
    parser.add_argument("--runs", type=int, default=2, help="runs of each measurement (default: 2)")
    arguments = parser.parse_args()
    small, _ = split_ratings(load_ratings(arguments.data, "ml-1m").user_items)
    large = load_ratings(arguments.data, "amazon-dfm").user_items
    results: dict[str, Any] = {}
    warm = synthetic_ratings(300, 200, ratings_per_user=60).user_items
    for make in MODELS.values():
        make().fit(warm)
    cores = faiss.omp_get_max_threads()
    for threads in (1, cores):
        faiss.omp_set_num_threads(threads)
        results[f"ml-1m, {small.nnz:,} training ratings, {threads} thread(s), s"] = {
            name: time_fit(make, small, arguments.runs) for name, make in MODELS.items()
        }
    parts = [sample_part(large, share) for share in PARTS]
    for name, make in MODELS.items():
        figures: dict[str, Any] = {}
        for part in parts:
            taken = time_fit(make, part, max(1, arguments.runs - 1))
            m, n = part.shape
            figures[f"{part.nnz:,} ratings, {m:,} users, {n:,} items"] = taken
            figures[f"{part.nnz:,} ratings: s per million"] = taken / part.nnz * 1e6
        results[f"growth on parts of amazon-dfm, {cores} thread(s), s: {name}"] = figures
    m, n = large.shape
    for name, make in MODELS.items():
        results[f"memory on amazon-dfm: {name}"] = {
            "peak of a fit, MB": measure_peak(make, large) / 1e6,
            "the ratings as CSR, MB": (large.data.nbytes + large.indices.nbytes + large.indptr.nbytes) / 1e6,
            "factors of 128 floats for all users and items, MB": (m + n) * 128 * 4 / 1e6,
            "one float for each user and item, MB": m * n * 4 / 1e6,
        }
    report_results("training", "python benchmarks/bench_training.py --data DIR --save", results, arguments.save)


if __name__ == "__main__":
    main()
