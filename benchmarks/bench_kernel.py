"""How close is the inner loop to the limit of the processor?

    python benchmarks/bench_kernel.py --save

A block of 64 rows is sketched again and again, from the first-level caches. The clock rate is measured with a chain of
additions, each of which takes one cycle. Vector instructions are counted in the machine code of the loop over
components. The processor of the committed results, an AMD EPYC (Zen 4), executes at most two 512-bit instructions per
cycle.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from common import make_parser, report_results
from numba import njit

from cccf_index.comparison import time_best
from cccf_index.kernels.block import sketch_block
from cccf_index.kernels.layout import SEGMENT_RECORD
from cccf_index.kernels.limits import BLOCK
from cccf_index.kernels.memory import view_segment

COMPONENTS = 8
ROWS = 8192
CHAIN = 10_000_000
PER_CYCLE = 2  # 512-bit instructions of Zen 4


@njit(nogil=True)
def add_chain(n: Any, step: Any) -> Any:
    """Add n times; each addition waits for the previous one."""
    total = 0
    for _ in range(n):
        total = (total + step) ^ n
    return total


@njit(nogil=True, _nrt=False)
def scan(handle: Any, start: Any, n: Any, planes: Any, n_planes: Any, factors: Any, top: Any) -> Any:
    """Sketch n rows and count the blocks that reach the limit, which is so high that none does."""
    segment, found = view_segment(handle), 0
    for first in range(start, start + n, BLOCK):
        if sketch_block(segment, 0, first, 1, planes, n_planes, factors, np.int16(top), np.int16(32767)):
            found += 1
    return found


def count_instructions() -> int | None:
    """Return the 512-bit instructions per component of a coded query, in the machine code compiled last."""
    code = list(scan.inspect_asm().values())[-1]
    blocks = [block.splitlines() for block in re.split(r"^\.LBB\S+:", code, flags=re.MULTILINE)]
    wide = [[line for line in block if "zmm" in line] for block in blocks]
    first = [lines for lines in wide if sum("vpopcnt" in line for line in lines) == 2 and "vmovdqu" in lines[0]]
    last = [lines for lines in wide if any("vpmulhw" in line for line in lines)]
    return len(first[0]) + len(last[0]) if first and last else None


def align_copy(values: Any) -> Any:
    """Return a copy that starts at a multiple of 64 bytes."""
    buffer = np.empty(values.nbytes + 64, dtype=np.uint8)
    start = -buffer.ctypes.data % 64
    copy = buffer[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[:] = values
    return copy


def measure_kernel(word_bits: int, n_planes: int, gigahertz: float, start: int = 1) -> dict[str, float]:
    """Return the time of a block; `start` is its first row, which in an index may be any."""
    rng = np.random.default_rng(0)
    words = np.dtype(f"u{word_bits // 8}")
    size = ROWS + BLOCK
    codes = align_copy(rng.integers(0, 2**word_bits, (COMPONENTS, size), dtype=words))
    coarse = align_copy(rng.integers(1, 32767 // max(word_bits, 128), COMPONENTS * size).astype(np.uint8))
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
    seconds = time_best(lambda: scan(record.ctypes.data, start, ROWS, planes, n_planes, factors, top), 300)
    nanoseconds = seconds / (ROWS / BLOCK) * 1e9
    return {
        "ns per block": nanoseconds,
        "ns per item and component": nanoseconds / BLOCK / COMPONENTS,
        "cycles per component of a block": nanoseconds * gigahertz / COMPONENTS,
    }


def main() -> None:
    arguments = make_parser(__doc__, "benchmarks/results/kernel.json").parse_args()
    gigahertz = 2 * CHAIN / time_best(lambda: add_chain(CHAIN, 3), 5) / 1e9
    results: dict[str, Any] = {"clock": {"GHz": gigahertz}}
    for word_bits, n_planes, start in ((16, 1, 0), (16, 1, 1), (8, 1, 1), (32, 1, 1), (64, 1, 1), (16, 6, 1)):
        figures = measure_kernel(word_bits, n_planes, gigahertz, start)
        if word_bits == 16 and n_planes == 1:
            count = count_instructions()
            if count is not None:  # None on a processor without them
                figures["512-bit instructions per component"] = count
                per_cycle = count / figures["cycles per component of a block"]
                figures[f"512-bit instructions per cycle (limit {PER_CYCLE})"] = per_cycle
        kind = "coded" if n_planes == 1 else f"real-valued, {n_planes} planes"
        where = ", on a 64-byte boundary" if start == 0 else ""
        results[f"{COMPONENTS} components of {word_bits} bits, {kind}{where}"] = figures
    report_results("kernel", "python benchmarks/bench_kernel.py --save", results, arguments.save)


if __name__ == "__main__":
    main()
