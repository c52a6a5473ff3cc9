"""How close is the inner loop to the limit of the processor?

    python benchmarks/bench_kernel.py --save

A block of 64 rows is sketched again and again, from the first-level caches. The clock rate is measured with a chain of
additions, each of which takes one cycle. Vector instructions are counted in the machine code of the loop over
components, where the processor has 512-bit ones: an AMD EPYC (Zen 4) executes at most two of them per cycle.
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


def make_scan(word: Any, real: Any) -> Any:
    """Return a kernel for words of a type, and for codes (`real` is None) or vectors."""

    @njit(nogil=True, _nrt=False)
    def scan(handle: Any, start: Any, n: Any, query: Any, factors: Any, offsets: Any, sketches: Any) -> Any:
        """Sketch n rows and count the blocks that reach the limit, which is so high that none does."""
        segment, found, high = view_segment(handle), 0, np.int16(32767)
        for first in range(start, start + n, BLOCK):
            if sketch_block(segment, 0, first, 1, query, factors, offsets, np.int16(0), high, sketches, word, real):
                found += 1
        return found

    return scan


def count_instructions(scan: Any) -> int | None:
    """Return the 512-bit instructions per component of a coded query, in the machine code of a kernel."""
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


def measure_kernel(word_bits: int, is_real: bool, gigahertz: float, start: int = 1) -> dict[str, float]:
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
    query = rng.integers(0, 2**word_bits, COMPONENTS, dtype=words)
    if is_real:
        query = rng.integers(0, 255, (COMPONENTS, word_bits // 4, 16), dtype=np.uint8)
    factors, offsets = np.ones(COMPONENTS, dtype=np.int16), np.zeros(COMPONENTS, dtype=np.int16)
    sketches = np.zeros(BLOCK, dtype=np.int16)
    tables = [table.ctypes.data for table in (query, factors, offsets, sketches)]
    scan = make_scan(words.type, np.float32 if is_real else None)
    nanoseconds = time_best(lambda: scan(record.ctypes.data, start, ROWS, *tables), 300) / (ROWS / BLOCK) * 1e9
    count = None if is_real or word_bits != 16 else count_instructions(scan)
    counted = {}
    if count is not None:  # None on a processor without them
        counted["512-bit instructions per component"] = float(count)
        per_cycle = count / (nanoseconds * gigahertz / COMPONENTS)
        counted[f"512-bit instructions per cycle (limit {PER_CYCLE})"] = per_cycle
    return {
        "ns per block": nanoseconds,
        "ns per item and component": nanoseconds / BLOCK / COMPONENTS,
        "cycles per component of a block": nanoseconds * gigahertz / COMPONENTS,
        **counted,
    }


def main() -> None:
    arguments = make_parser(__doc__, "benchmarks/results/kernel.json").parse_args()
    gigahertz = 2 * CHAIN / time_best(lambda: add_chain(CHAIN, 3), 5) / 1e9
    results: dict[str, Any] = {"clock": {"GHz": gigahertz}}
    for word_bits, is_real, start in (
        (16, False, 0), (16, False, 1), (8, False, 1), (32, False, 1), (64, False, 1), (16, True, 1), (8, True, 1),
        (32, True, 1), (64, True, 1),
    ):  # fmt: skip
        kind, where = "real-valued" if is_real else "coded", ", on a 64-byte boundary" if start == 0 else ""
        figures = measure_kernel(word_bits, is_real, gigahertz, start)
        results[f"{COMPONENTS} components of {word_bits} bits, {kind}{where}"] = figures
    report_results("kernel", "python benchmarks/bench_kernel.py --save", results, arguments.save)


if __name__ == "__main__":
    main()
