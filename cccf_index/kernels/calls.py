"""One call of a search kernel: queries, filters, heaps and working tables, as addresses in one record.

It is as with segments (see `layout`): what a kernel passes on to another is one address. So kernels are compiled for
the types of words and scores alone, and quickly.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index.kernels.layout import freeze
from cccf_index.kernels.limits import BLOCK, HASH_SLOTS, PLANES, SUMS

TILE = 16  # queries that look at a block while it is in the first cache
LINE = 64  # bytes of a cache line: tables begin at its multiples

_ARGUMENTS = (
    "words",  # (nq, G, W): codes of the queries; of real-valued ones only the type
    "weights",  # int64 or float32 (nq, G): of coded queries
    "bias_scales",  # int64 (nq,): what items' biases are multiplied by; 0 where that is 1
    "vectors",  # float32 (nq, G * r): real-valued queries
    "deleted",  # bit i for row i, which is deleted or not selected; 0 where no row is
    "exclude_starts",  # int64 (nq + 1,)
    "exclude_ids",  # int64, ascending for each query
    "scores",  # int64 or float32 (nq, k): heaps
    "ids",  # int64 (nq, k)
    "n_queries", "k", "n_bits", "n_words", "word_size", "tile",
)  # fmt: skip
_TABLES = (
    "planes",  # words (tile, G * W * planes): see `block.sketch_block`
    "factors",  # int16 (tile, G)
    "sums",  # float32 (tile, G * bytes of a code * SUMS): of real-valued queries, see `sketches.fill_sums`
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
    "block_scores",  # int64 or float32 (BLOCK,): exact scores of a block
    "block_weights",  # int64 or float32 (BLOCK,): the weights of its rows in one component
    "vector",  # float32 (G * r,): one query's expanded vector, or itself
    "reach",  # float32 (G,): the most that an item of weight 1 in component k can score with it
    "sketch_reach",  # float32 (G,): the largest |factor * agreement| of its sketches
    "sketch_error",  # float32 (G,): the largest error of that, from rounding the query
    "excluded_slots",  # uint16 (tile, HASH_SLOTS): see `filters.is_excluded`
)
CALL_RECORD = np.dtype([*((name, "i8") for name in (*_ARGUMENTS, *_TABLES)), ("slack", "f8")])
FIRST_TABLE, N_TABLES = len(_ARGUMENTS), len(_TABLES)


@lru_cache(maxsize=256)
def place_tables(
    tile: int, n_bits: int, n_words: int, word_size: int, n_planes: int, n_components: int, n_cells: int
) -> tuple[NDArray[np.int64], int]:
    """Return where the tables begin, in bytes from the record on, int64 (N_TABLES,), and the bytes of the whole room.

    It begins anywhere, and the record at the next cache line.
    """
    per_code, per_cell = tile * n_components, tile * n_cells
    n_sums = 0 if n_planes == 1 else per_code * SUMS * ((n_bits + 7) // 8)
    sizes = {
        "planes": per_code * n_words * n_planes * word_size, "factors": 2 * per_code, "sums": 4 * n_sums,
        "products": 4 * per_cell, "caps": 4 * per_cell, "slips": 4 * per_cell, "next_block": 8 * per_cell,
        "keys": 4 * n_cells, "heap": 8 * n_cells, "units": 8 * tile, "norms": 8 * tile, "min_distances": 8 * tile,
        "min_sketches": 2 * tile, "stale": 2 * tile, "block_scores": 8 * BLOCK, "block_weights": 8 * BLOCK,
        "vector": 4 * n_components * n_bits, "reach": 4 * n_components, "sketch_reach": 4 * n_components,
        "sketch_error": 4 * n_components, "excluded_slots": 2 * HASH_SLOTS * tile,
    }  # fmt: skip
    lines = [-(-size // LINE) for size in (CALL_RECORD.itemsize, *(sizes[name] for name in _TABLES))]
    ends = LINE * np.cumsum(lines)
    return freeze(ends[:-1]), int(ends[-1]) + LINE


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


def make_room(batch: CodedBatch | RealBatch, n: int, n_cells: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return room for the record and tables of a call with n queries of a batch, and where the tables begin in it."""
    _, n_components, n_words = batch.words.shape
    n_planes = 1 if isinstance(batch, CodedBatch) else PLANES
    tile, word_size = min(n, TILE), batch.words.itemsize
    starts, size = place_tables(tile, batch.n_bits, n_words, word_size, n_planes, n_components, n_cells)
    return np.empty(size, np.uint8), starts


class Filters(NamedTuple):
    """What must not be returned from one segment to a batch of queries, as the entry points take it."""

    deleted: NDArray[np.uint8]  # bit i for row i, which is deleted or not selected; empty where no row is
    exclude_starts: NDArray[np.int64]  # (nq + 1,)
    exclude_ids: NDArray[np.int64]  # ascending for each query
