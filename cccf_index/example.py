"""A tour in a minute: synthetic codes, an index over them, and the same search by `faiss.IndexFlatIP`.

Run it with ``python -m cccf_index.example``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cccf_index import CompositionalCodes, IndexCCCF


def synthetic_codes(n: int, active: int, seed: int) -> CompositionalCodes:
    """Return n codes of 8 components of 16 bits, `active` of them with a weight."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 101, (n, 8)) / 100
    weights[rng.random((n, 8)).argsort(axis=1) >= active] = 0
    return CompositionalCodes.from_signs(rng.random((n, 8, 16), dtype=np.float32) < 0.5, weights)


def agrees(found: tuple[NDArray[Any], NDArray[Any]], expected: tuple[NDArray[Any], NDArray[Any]]) -> bool:
    """Tell whether two results are the same up to the order of equal scores."""
    (D, I), (flat_D, flat_I) = found, expected
    clearly = flat_D > flat_D[:, -1:] + 1e-4  # the last score may be shared by items beyond the k-th
    same_items = all(set(flat_I[q, clearly[q]]) <= set(I[q]) for q in range(len(I)))
    return bool(np.allclose(D, flat_D, atol=1e-4)) and same_items


def timed(search: Callable[[], Any], runs: int = 5) -> tuple[Any, float]:
    """Return the result and the seconds of the best of several runs."""
    result, best = search(), float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        search()
        best = min(best, time.perf_counter() - start)
    return result, best


def main() -> None:
    """Build, search, compare and print."""
    parser = argparse.ArgumentParser(prog="python -m cccf_index.example", description=__doc__.split("\n")[0])
    parser.add_argument("--items", type=int, default=146_469, help="items in the catalogue (default: %(default)s)")
    parser.add_argument("--queries", type=int, default=1000, help="users in the batch (default: %(default)s)")
    parser.add_argument("--active", type=int, default=3, help="components with a weight, of 8 (default: %(default)s)")
    arguments = parser.parse_args()
    for name, value, least in (("items", arguments.items, 10), ("queries", arguments.queries, 1)):
        if value < least:
            parser.error(f"--{name} must be at least {least}, got {value}")
    if not 1 <= arguments.active <= 8:
        parser.error(f"--active must be from 1 to 8, got {arguments.active}")
    faiss.omp_set_num_threads(1)  # both use one thread: the ratio does not depend on the machine's cores

    items = synthetic_codes(arguments.items, arguments.active, seed=0)
    users = synthetic_codes(arguments.queries, arguments.active, seed=1)
    print(f"{len(items):,} items and {len(users):,} users: codes of 8 x 16 bits, {arguments.active} of 8 active")

    index = IndexCCCF(n_components=8, n_bits=16, scale=100)
    start = time.perf_counter()
    index.add(items)
    bytes_per_item = index.nbytes / len(items)  # groups the items, too
    print(f"IndexCCCF built in {time.perf_counter() - start:.2f} s")
    start = time.perf_counter()
    index.search(users[:1], 10)
    print(f"kernels ready in {time.perf_counter() - start:.1f} s (compiled once, then cached on the disk)")
    found, seconds = timed(lambda: index.search(users, 10))

    flat = faiss.IndexFlatIP(index.d)
    flat.add(index.reconstruct_n())
    queries = users.to_vectors()
    expected, flat_seconds = timed(lambda: flat.search(queries, 10), runs=2)

    print(f"\n{'top-10, one thread':22}{'us a query':>12}{'bytes an item':>15}")
    print(f"{'faiss IndexFlatIP(128)':22}{flat_seconds / len(users) * 1e6:12.1f}{4 * index.d:15.1f}")
    print(f"{'IndexCCCF 8x16':22}{seconds / len(users) * 1e6:12.1f}{bytes_per_item:15.1f}")
    print(f"\n{flat_seconds / seconds:.1f} times faster, same top-10: {'yes' if agrees(found, expected) else 'NO'}")


if __name__ == "__main__":
    main()
