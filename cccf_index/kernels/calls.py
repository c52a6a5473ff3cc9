"""One call of a search kernel: queries, filters, heaps and working tables, as addresses in one record.

It is as with segments (see `layout`): what a kernel passes on to another is one address. So kernels are compiled for
the types of words and scores alone, and quickly.
"""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index.kernels.decorators import shared
from cccf_index.kernels.limits import BLOCK, PLANES

TILE = 16  # queries that look at a block while it is in the first cache
LINE = 64  # bytes of a cache line: tables begin at its multiples

_ARGUMENTS = (
    "words",  # (nq, G, W): codes of the queries; of real-valued ones only the type
    "weights",  # int64 or float32 (nq, G): of coded queries
    "bias_scales",  # of the same type (nq,): what items' biases are multiplied by; 0 where that is 1
    "vectors",  # float32 (nq, G * r): real-valued queries
    "deleted",  # bit i for row i, which is deleted or not selected; 0 where no row is
    "exclude_starts",  # int64 (nq + 1,)
    "exclude_ids",  # int64, ascending for each query
    "scores",  # int64 or float32 (nq, k): heaps
    "ids",  # int64 (nq, k)
    "n_queries", "k", "n_bits", "n_words", "word_size", "tile",
    "n_planes",  # bits of a value in a sketch: 1 for codes
)  # fmt: skip
_TABLES = (
    "planes",  # words (tile, G * W * planes): see `block.sketch_block`
    "factors",  # int16 (tile, G)
    "sums",  # float32 (tile, G * bytes of a code * 2 * 16): of real-valued queries, see `sketches.fill_sums`
    "products",  # float32 (tile, cells): see `bounds.measure_cells`
    "caps",  # float32 (tile, cells)
    "slips",  # float32 (tile, cells)
    "next_block",  # int64 (tile, cells): the blocks before it have been looked at
    "keys",  # float32 (cells,): what the next block of a cell may well score
    "heap",  # int64 (cells,): cells, the one with the largest key first
    "units",  # float64 (tile,): what 1 of a sketch is worth
    "norms",  # float64 (tile,)
    "min_distances",  # float64 (tile,): see `bounds.find_thresholds`
    "min_sketches",  # int16 (tile,)
    "stale",  # int16 (tile,): whether those two must be computed again
    "room",  # int64 or float32 (BLOCK,): exact scores of a block
    "item_weights",  # int64 or float32 (BLOCK,): the weights of its rows in one component
    "vector",  # float32 (G * r,): one query's expanded vector, or itself
    "reach",  # float32 (G,): the most that an item of weight 1 in component k can score with it
    "sketch_reach",  # float32 (G,): the largest |factor * agreement| of its sketches
    "sketch_error",  # float32 (G,): the largest error of that, from rounding the query
)
CALL_RECORD = np.dtype([*((name, "i8") for name in (*_ARGUMENTS, *_TABLES)), ("slack", "f8")])


@shared
def round_up(n):
    """Return the next multiple of a cache line."""
    return (n + LINE - 1) // LINE * LINE


# Invariant: what follows from the address and counts alone; `count_bytes` runs the same lines in Python.
@shared
def place_tables(call, address, n_components, n_cells):
    """Place the working tables from an address on; return where they end."""
    tile, n_bits = call.tile, call.n_bits
    n_bytes = 0 if call.n_planes == 1 else (n_bits + 7) // 8
    call.planes = address
    call.factors = call.planes + round_up(tile * n_components * call.n_words * call.n_planes * call.word_size)
    call.sums = call.factors + round_up(tile * n_components * 2)
    call.products = call.sums + round_up(tile * n_components * n_bytes * 2 * 16 * 4)
    call.caps = call.products + round_up(tile * n_cells * 4)
    call.slips = call.caps + round_up(tile * n_cells * 4)
    call.next_block = call.slips + round_up(tile * n_cells * 4)
    call.keys = call.next_block + round_up(tile * n_cells * 8)
    call.heap = call.keys + round_up(n_cells * 4)
    call.units = call.heap + round_up(n_cells * 8)
    call.norms = call.units + round_up(tile * 8)
    call.min_distances = call.norms + round_up(tile * 8)
    call.min_sketches = call.min_distances + round_up(tile * 8)
    call.stale = call.min_sketches + round_up(tile * 2)
    call.room = call.stale + round_up(tile * 2)
    call.item_weights = call.room + BLOCK * 8
    call.vector = call.item_weights + BLOCK * 8
    call.reach = call.vector + round_up(n_components * n_bits * 4)
    call.sketch_reach = call.reach + round_up(n_components * 4)
    call.sketch_error = call.sketch_reach + round_up(n_components * 4)
    return call.sketch_error + round_up(n_components * 4)


@lru_cache(maxsize=256)
def count_bytes(
    tile: int, n_bits: int, n_words: int, word_size: int, n_planes: int, n_components: int, n_cells: int
) -> int:
    """Return the bytes that a call needs for its record and tables, wherever they begin."""
    call: Any = SimpleNamespace(tile=tile, n_bits=n_bits, n_words=n_words, word_size=word_size, n_planes=n_planes)
    return 2 * LINE + CALL_RECORD.itemsize + place_tables(call, 0, n_components, n_cells)


class CodedBatch(NamedTuple):
    """Queries that are codes, as the entry points take them."""

    words: NDArray[Any]  # (nq, G, W), contiguous and read-only
    weights: NDArray[Any]  # int64, or read-only float32 (nq, G)
    bias_scales: NDArray[np.int64]  # (nq,), or empty
    n_bits: int
    slack: float  # how much of a score may be rounding


class RealBatch(NamedTuple):
    """Queries that are real-valued vectors, as the entry points take them."""

    words: NDArray[Any]  # (0, G, W), of the type of items' codes
    vectors: NDArray[np.float32]  # (nq, G * r), contiguous and read-only
    n_bits: int
    slack: float  # how much of a score may be rounding


def make_room(batch: CodedBatch | RealBatch, n: int, n_cells: int) -> NDArray[np.uint8]:
    """Return room for the record and tables of a call with n queries of a batch."""
    _, n_components, n_words = batch.words.shape
    n_planes = 1 if isinstance(batch, CodedBatch) else PLANES
    size = count_bytes(min(n, TILE), batch.n_bits, n_words, batch.words.itemsize, n_planes, n_components, n_cells)
    return np.empty(size, np.uint8)


class Filters(NamedTuple):
    """What must not be returned from one segment to a batch of queries, as the entry points take it."""

    deleted: NDArray[np.uint8]  # bit i for row i, which is deleted or not selected; empty where no row is
    exclude_starts: NDArray[np.int64]  # (nq + 1,)
    exclude_ids: NDArray[np.int64]  # ascending for each query
