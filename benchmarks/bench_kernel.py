"""How far is the inner loop from what the processor can do at most?

    python benchmarks/bench_kernel.py --save

A block of 64 rows is sketched again and again, from the first caches. The clock is taken from a chain of additions, one
a cycle each; vector instructions are counted in the machine code of the loop over components. A processor like the AMD
EPYC of the results (Zen 4) does at most two 512-bit instructions a cycle.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

import numpy as np
from common import report
from numba import njit

from cccf_index.comparison import best_seconds
from cccf_index.kernels.block import sketch_block
from cccf_index.kernels.layout import SEGMENT_RECORD
from cccf_index.kernels.limits import BLOCK
from cccf_index.kernels.memory import view_segment

COMPONENTS = 8
ROWS = 8192
CHAIN = 10_000_000
PER_CYCLE = 2  # 512-bit instructions that Zen 4 can do


@njit(nogil=True)
def chain(n: Any, step: Any) -> Any:
    """Add n times; each addition waits for the one before."""
    total = 0
    for _ in range(n):
        total = (total + step) ^ n
    return total


@njit(nogil=True, _nrt=False)
def scan(handle: Any, start: Any, n: Any, planes: Any, n_planes: Any, factors: Any, top: Any) -> Any:
    """Sketch n rows; return how many blocks reach a limit that none does."""
    t, found = view_segment(handle), 0
    for first in range(start, start + n, BLOCK):
        if sketch_block(t, 0, first, 1, planes, n_planes, factors, np.int16(top), np.int16(32767)):
            found += 1
    return found


def instructions() -> int | None:
    """Return how many 512-bit instructions a component of coded queries takes, by the machine code compiled last."""
    code = list(scan.inspect_asm().values())[-1]
    blocks = [block.splitlines() for block in re.split(r"^\.LBB\S+:", code, flags=re.MULTILINE)]
    wide = [[line for line in block if "zmm" in line] for block in blocks]
    first = [lines for lines in wide if sum("vpopcnt" in line for line in lines) == 2 and "vmovdqu" in lines[0]]
    last = [lines for lines in wide if any("vpmulhw" in line for line in lines)]
    return len(first[0]) + len(last[0]) if first and last else None


def aligned(values: Any) -> Any:
    """Return a copy that begins at a multiple of 64 bytes."""
    buffer = np.empty(values.nbytes + 64, dtype=np.uint8)
    start = -buffer.ctypes.data % 64
    copy = buffer[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[:] = values
    return copy


def measured(word_bits: int, n_planes: int, gigahertz: float, start: int = 1) -> dict[str, float]:
    """Return the time of a block, and what it is of the limit; `start` is where rows begin, in an index anywhere."""
    rng = np.random.default_rng(0)
    words = np.dtype(f"u{word_bits // 8}")
    size = ROWS + BLOCK
    codes = aligned(rng.integers(0, 2**word_bits, (COMPONENTS, size), dtype=words))
    coarse = aligned(rng.integers(1, 32767 // max(word_bits, 128), COMPONENTS * size).astype(np.uint8))
    arrays: dict[str, Any] = {
        "slots": np.zeros((1, COMPONENTS), np.int64), "bases": np.arange(COMPONENTS + 1) * size, "coarse": coarse,
        "shards": np.array([codes[k].ctypes.data for k in range(COMPONENTS)]),
    }  # fmt: skip
    record = np.zeros(1, dtype=SEGMENT_RECORD)
    record["n_components"] = COMPONENTS
    for name, array in arrays.items():
        record[name] = array.ctypes.data
    planes = rng.integers(0, 2**word_bits, COMPONENTS * n_planes, dtype=words)
    factors = np.full(COMPONENTS, 20 if n_planes == 1 else 1, dtype=np.int16)
    top = word_bits * (2**n_planes - 1)
    seconds = best_seconds(lambda: scan(record.ctypes.data, start, ROWS, planes, n_planes, factors, top), 300)
    nanoseconds = seconds / (ROWS / BLOCK) * 1e9
    return {
        "a block, ns": nanoseconds,
        "an item and component, ns": nanoseconds / BLOCK / COMPONENTS,
        "cycles a component of a block": nanoseconds * gigahertz / COMPONENTS,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/kernel.json")
    arguments = parser.parse_args()
    gigahertz = 2 * CHAIN / best_seconds(lambda: chain(CHAIN, 3), 5) / 1e9
    results: dict[str, Any] = {"clock": {"GHz": gigahertz}}
    for word_bits, n_planes, start in ((16, 1, 0), (16, 1, 1), (8, 1, 1), (32, 1, 1), (64, 1, 1), (16, 6, 1)):
        figures = measured(word_bits, n_planes, gigahertz, start)
        if word_bits == 16 and n_planes == 1:
            count = instructions()
            if count is not None:  # the processor has them
                figures["512-bit instructions a component"] = count
                figures[f"of those a cycle (limit {PER_CYCLE})"] = count / figures["cycles a component of a block"]
        kind = "coded" if n_planes == 1 else f"real-valued, {n_planes} planes"
        where = ", on a 64-byte boundary" if start == 0 else ""
        results[f"{COMPONENTS} components of {word_bits} bits, {kind}{where}"] = figures
    report("kernel", "python benchmarks/bench_kernel.py --save", results, arguments.save)


if __name__ == "__main__":
    main()
