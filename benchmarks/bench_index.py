"""How much do memory, building, adding, loading and compiling cost? For searches see `bench_retrieval.py`.

    python benchmarks/bench_index.py --save

Codes are synthetic: bits, active components and weights are uniformly random.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import faiss
import numpy as np
from common import make_parser, report_results

import cccf_index as ci
from cccf_index.comparison import time_best

FIRST_CALL = """
import sys, time
import numpy as np
import cccf_index as ci
rng = np.random.default_rng(0)
codes = ci.CompositionalCodes(rng.integers(0, 2**16, (1000, 8, 1), dtype=np.uint16), rng.random((1000, 8)), 16)
kind = sys.argv[1]
if kind == "from_embeddings, 20,000 x 64":
    vectors = rng.standard_normal((20_000, 64)).astype(np.float32)
    start = time.perf_counter()
    ci.IndexCCCF.from_embeddings(vectors, vectors[:5000])
    print(time.perf_counter() - start)
    sys.exit()
index = ci.IndexCCCF(8, 16, scale=None if kind == "float weights" else 100)
index.add(codes)
query = rng.standard_normal((1, 128)) if kind == "real-valued query" else codes[:1]
start = time.perf_counter()
index.search(query, 10)
print(time.perf_counter() - start)
"""


def make_codes(n: int, active: int = 8, seed: int = 0) -> ci.CompositionalCodes:
    """Return n random codes of 8 x 16 bits with `active` weights, none of which rounds to zero."""
    rng = np.random.default_rng(seed)
    weights = rng.random((n, 8), dtype=np.float32) + np.float32(0.01)
    if active < 8:
        weights[rng.random((n, 8), dtype=np.float32).argsort(axis=1) >= active] = 0
    return ci.CompositionalCodes(rng.integers(0, 2**16, (n, 8, 1), dtype=np.uint16), weights, 16)


def build_index(
    codes: ci.CompositionalCodes | np.ndarray,
    step: int | None = None,
    ids: np.ndarray | None = None,
    search: bool = False,
) -> ci.IndexCCCF:
    """Return a complete index, with the codes added `step` at a time."""
    index = ci.IndexCCCF(8, 16)
    for start in range(0, len(codes), step or len(codes)):
        part = slice(start, start + (step or len(codes)))
        if ids is None:
            index.add(codes[part])
        else:
            index.add_with_ids(codes[part], ids[part])
        if search:
            index.search(codes[:1], 10)
    assert index.nbytes  # builds the segments of pending items
    return index


def make_ids(n: int) -> np.ndarray:
    """Return n different random ids, like those of a hash function."""
    rng = np.random.default_rng(0)
    return rng.permutation(np.unique(rng.integers(-(2**62), 2**62, 2 * n))[:n])


def measure_memory(n: int) -> dict[str, float]:
    return {
        "dense, ids of add()": build_index(make_codes(n)).nbytes / n,
        "dense, arbitrary 64-bit ids": build_index(make_codes(n), ids=make_ids(n)).nbytes / n,
        "3 of 8 active, ids of add()": build_index(make_codes(n, 3)).nbytes / n,
        "IndexFlatIP(128)": 512.0,
    }


def measure_building(n: int) -> dict[str, float]:
    dense, sparse = make_codes(n), make_codes(n, 3)
    vectors = dense.to_vectors()
    some, ids = make_codes(200_000), make_ids(200_000)
    one, many = time_best(lambda: build_index(some)), time_best(lambda: build_index(some, 200))
    one_id, many_ids = time_best(lambda: build_index(some, None, ids)), time_best(lambda: build_index(some, 200, ids))
    return {
        f"{n:,} dense codes, s": time_best(lambda: build_index(dense), 2),
        f"{n:,} codes with 3 of 8 active, s": time_best(lambda: build_index(sparse), 2),
        f"{n:,} dense expanded vectors, s": time_best(lambda: build_index(vectors), 1),
        "1 add of 200,000, s": one,
        "1,000 adds of 200, s": many,
        "1,000 adds of 200 against 1 add of 200,000": many / one,
        "the same under arbitrary ids": many_ids / one_id,
        "1,000 adds of 200, a search after each, s": time_best(lambda: build_index(some, 200, search=True), runs=1),
    }


def measure_files(n: int) -> dict[str, float]:
    index = build_index(make_codes(n))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "items.cccf")
        return {
            f"write {n:,} items, s": time_best(lambda: ci.write_index(index, path), 3),
            "read, s": time_best(lambda: ci.read_index(path), 5),
            "read mmap=True, s": time_best(lambda: ci.read_index(path, mmap=True), 5),
            "read mmap=True, verify=False, s": time_best(lambda: ci.read_index(path, mmap=True, verify=False), 5),
        }


def measure_first_call() -> dict[str, float]:
    """Time the first call of new processes, with an empty and with a filled kernel cache."""
    results = {}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "CCCF_CACHE_DIR": cache}
        for state in ("compiling", "cached"):
            for kind in ("codes", "float weights", "real-valued query", "from_embeddings, 20,000 x 64"):
                command = [sys.executable, "-c", FIRST_CALL, kind]
                out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                results[f"{kind}, {state}, s"] = float(out.stdout)
    return results


def main() -> None:
    parser = make_parser(__doc__, "benchmarks/results/index.json")
    parser.add_argument(
        "--items", type=int, default=1_000_000, help="items for memory, building and files (default: 1000000)"
    )
    arguments = parser.parse_args()
    faiss.omp_set_num_threads(1)
    results = {
        "bytes per item": measure_memory(arguments.items),
        "building, one thread": measure_building(arguments.items),
        "files": measure_files(arguments.items),
        "first call in a process": measure_first_call(),
    }
    report_results("index", "python benchmarks/bench_index.py --save", results, arguments.save)


if __name__ == "__main__":
    main()
