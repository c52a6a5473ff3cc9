"""One call of a search kernel: queries, filters, heaps and working tables, as addresses in one record.

It is as with segments (see `layout`): what a kernel passes on to another is one address. So kernels are compiled for
the types of words and scores alone, and quickly.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index.kernels.layout import freeze
from cccf_index.kernels.levels import count_runs, list_stages
from cccf_index.kernels.limits import BLOCK, DENSE_STEP, HASH_SLOTS, SUMS, TOGETHER

TILE = 16  # queries that look at a block while it is in the first cache, at most
TILE_BYTES = 2**21  # of what they collect
COLLECTED = 8  # rows that a query may collect for each item of its result,
LEAST_COLLECTED = 1024  # and for all of them
KEPT_BYTES = 2**24  # of a thread's room between two calls
BINS = 4096  # of the histogram of estimates
BUCKETS = 2048  # of a sort
LINE = 64  # bytes of a cache line: tables begin at its multiples

_room = threading.local()

_ARGUMENTS = (
    "words",  # (nq, G, W): codes of the queries; of real-valued ones only the type
    "weights",  # int64 or float32 (nq, n_weights): of coded queries, that of the dense component last
    "dense",  # int8 (nq, n_dense): the values of the dense component of coded queries
    "bias_scales",  # int64 (nq,): what items' biases are multiplied by; 0 where that is 1
    "vectors",  # float32 (nq, G * r + n_dense): real-valued queries
    "deleted",  # bit i for row i, which is deleted or not selected; 0 where no row is
    "exclude_starts",  # int64 (nq + 1,)
    "exclude_ids",  # int64, ascending for each query
    "ranks",  # int64 (nq, k): heaps
    "ids",  # int64 (nq, k)
    "n_queries", "k", "n_bits", "n_words", "word_size", "n_weights", "n_dense", "tile",
    "capacity",  # rows that a query may collect
    "is_float",  # whether scores are float32, else int64
    "first_cell",  # the first cell that is looked at, see `budgets`
    "exact",  # whether what is collected is scored exactly in the end; else estimates are good enough
)  # fmt: skip
_TABLES = (
    "lookups",  # uint8 (tile, G * half bytes of a code, 16): of real-valued queries, see `block.sketch_block`
    "factors",  # int16 (tile, G)
    "offsets",  # int16 (tile, G)
    "sums",  # float32 (tile, G * bytes of a code * SUMS): of real-valued queries, see `sketches.fill_sums`
    "dense_query",  # float32 (n_dense,): the dense component of a coded query
    "dense_scales",  # float32 (stages,): what 1 of its rounded values is worth in each stage, at most 1,
    "dense_sums",  # int32 (n_dense / DENSE_STEP + 1,): and the sums of the values before each step; see `dense`
    "dense_values",  # int8 (tile + 1, n_dense): rounded values; the last query of these tables stands for none
    "dense_factors",  # float32 (tile + 1, runs): what products with the values of a run are multiplied by,
    "dense_offsets",  # float32 (tile + 1, runs): and what is added
    "dense_tails",  # float32 (tile, stages): the length of the query from the first dimension of a stage on,
    "dense_totals",  # float32 (tile + 1, BLOCK): products with the rows of one block, for a weight of 1,
    "dense_limits",  # float32 (tile,): what they must reach, times weights; these three in units of `dense_step`,
    "dense_found",  # uint64 (tile,): and which rows do
    "looking",  # int64 (tile + TOGETHER,): places of queries that look at the same block
    "products",  # float32 (tile, cells): see `bounds.measure_cells`
    "norms",  # float32 (tile, cells)
    "caps",  # float32 (tile, cells)
    "slips",  # float32 (tile, cells)
    "near_slips",  # float32 (tile, cells)
    "stops",  # int64 (cells,): no query looks at the blocks of a cell from there on
    "next_block",  # int64 (tile, cells): the blocks before it have been looked at
    "keys",  # float32 (cells,): what the next block of a cell may well score
    "heap",  # int64 (cells,): cells, the one with the largest key first
    "states",  # QUERY_RECORD (tile,)
    "min_distances",  # float64 (tile,): see `bounds.find_thresholds`
    "min_estimates",  # float64 (tile,)
    "stale",  # int16 (tile,): whether those two must be computed again
    "active",  # int64 (tile,): places of queries that look at the next block of a cell
    "rows",  # int64 (tile, capacity): what was collected, see `collection`
    "groups",  # int32 (tile, capacity)
    "estimates",  # int32 (tile, capacity)
    "errors",  # int32 (tile, capacity)
    "bins",  # int32 (tile, BINS)
    "chosen_ranks",  # int64 (capacity + k,): of what one query has collected, and what it had found
    "identities",  # int64 (capacity + k,)
    "sort_keys",  # uint64 (2, capacity + k)
    "sort_places",  # int32 (2, capacity + k)
    "sort_counts",  # int32 (BUCKETS,): see `sorting`
    "sketches",  # int16 (BLOCK,): of one block
    "block_scores",  # int64 or float32 (BLOCK,), then float64: exact scores of a block
    "block_weights",  # int64 or float32 (BLOCK,): the weights of its rows in one component
    "gathered",  # float32 (G * r + n_dense,): the components of it that a group has
    "vector",  # float32 (G * r + n_dense,): one query's expanded vector, or itself
    "reach",  # float32 (G,): the most that an item of weight 1 in component k can score with it
    "sketch_reach",  # float32 (G,): the largest |factor * agreement| of its sketches
    "sketch_error",  # float32 (G,): the largest error of that, from rounding the query
    "excluded_slots",  # uint16 (tile, HASH_SLOTS): see `filters.is_excluded`
)
CALL_RECORD = np.dtype([*((name, "i8") for name in (*_ARGUMENTS, *_TABLES)), ("slack", "f8")])
FIRST_TABLE, N_TABLES = len(_ARGUMENTS), len(_TABLES)

# One query of the tile, while a segment is searched; see `collection`.
QUERY_RECORD = np.dtype(
    [
        ("unit", "f8"),  # what 1 of a sketch is worth
        ("dense_norm", "f8"),  # the length of its dense component
        ("dense_step", "f8"),  # what 1 of a product with dense values is worth, for a weight of 1,
        ("dense_slip", "f8"),  # and how far it is off by rounding the query, for an item of length 1
        ("floors", "f8"),  # how far a sketch may be off by rounding down,
        ("slope", "f8"),  # by rounding the query, for each unit of distance from the centre of a cell,
        ("weight_slip", "f8"),  # and by rounding weights
        ("rounding", "f8"),  # how far a score may be off by rounding
        ("worst", "f8"),  # a score that k items certainly reach
        ("n", "i8"),  # rows collected
        ("first_bin", "i8"),  # of the histogram; the others are symmetrical
        ("bin", "i8"),  # the highest bin such that k rows are in it and above
        ("above", "i8"),  # how many rows that is; less than k as long as there is no such bin
    ]
)


@lru_cache(maxsize=256)
def place_tables(
    n_bits: int, n_words: int, word_size: int, is_real: bool, n_components: int, n_dense: int, n_cells: int, k: int,
    capacity: int, tile: int,
) -> tuple[NDArray[np.int64], int]:  # fmt: skip
    """Return where the tables begin, in bytes from the record on, int64 (N_TABLES + 2,), and the bytes of the room.

    It begins anywhere, and the record at the next cache line. The last two numbers are the tile and the capacity.
    """
    per_code, per_cell, collected, most = tile * n_components, tile * n_cells, tile * capacity, capacity + k
    n_bytes, code_size = (n_bits + 7) // 8, n_words * word_size
    n_steps, n_stages, n_runs = n_dense // DENSE_STEP, len(list_stages(n_dense)), count_runs(n_dense)
    table_bytes = {
        "lookups": 32 * per_code * code_size * is_real, "factors": 2 * per_code, "offsets": 2 * per_code,
        "sums": 4 * per_code * SUMS * n_bytes * is_real, "dense_query": 4 * n_dense,
        "dense_scales": 4 * n_stages, "dense_sums": 4 * (n_steps + 1), "dense_values": (tile + 1) * n_dense,
        "dense_factors": 4 * (tile + 1) * n_runs, "dense_offsets": 4 * (tile + 1) * n_runs,
        "dense_tails": 4 * tile * n_stages, "dense_totals": 4 * (tile + 1) * BLOCK, "dense_limits": 4 * tile,
        "dense_found": 8 * tile, "looking": 8 * (tile + TOGETHER),
        "products": 4 * per_cell, "norms": 4 * per_cell, "caps": 4 * per_cell,
        "slips": 4 * per_cell, "near_slips": 4 * per_cell, "stops": 8 * n_cells, "next_block": 8 * per_cell,
        "keys": 4 * n_cells, "heap": 8 * n_cells, "states": QUERY_RECORD.itemsize * tile, "min_distances": 8 * tile,
        "min_estimates": 8 * tile, "stale": 2 * tile, "active": 8 * tile, "rows": 8 * collected,
        "groups": 4 * collected, "estimates": 4 * collected, "errors": 4 * collected, "bins": 4 * tile * BINS,
        "chosen_ranks": 8 * most, "identities": 8 * most, "sort_keys": 16 * most, "sort_places": 8 * most,
        "sort_counts": 4 * BUCKETS, "sketches": 2 * BLOCK, "block_scores": 8 * BLOCK, "block_weights": 8 * BLOCK,
        "vector": 4 * (n_components * n_bits + n_dense), "gathered": 4 * (n_components * n_bits + n_dense),
        "reach": 4 * n_components, "sketch_reach": 4 * n_components,
        "sketch_error": 4 * n_components, "excluded_slots": 2 * HASH_SLOTS * tile,
    }  # fmt: skip
    lines = [-(-size // LINE) for size in (CALL_RECORD.itemsize, *(table_bytes[name] for name in _TABLES))]
    ends = LINE * np.cumsum(lines)
    return freeze(np.array([*ends[:-1], tile, capacity])), int(ends[-1]) + LINE


class CodedBatch(NamedTuple):
    """Queries that are codes, as the entry points take them."""

    words: NDArray[Any]  # (nq, G, W), contiguous and read-only
    weights: NDArray[Any]  # int64, or read-only float32 (nq, G) or, with a dense component, (nq, G + 1)
    dense: NDArray[np.int8] | None  # (nq, n_dense), contiguous and read-only; None if no item has a dense component
    bias_scales: NDArray[np.int64]  # (nq,), or empty
    n_bits: int
    slack: float  # how much of a score may be rounding


class RealBatch(NamedTuple):
    """Queries that are real-valued vectors, as the entry points take them."""

    words: NDArray[Any]  # (0, G, W), of the type of items' codes
    vectors: NDArray[np.float32]  # (nq, G * r + n_dense), contiguous and read-only
    dense: NDArray[np.int8] | None  # (0, n_dense), read-only; None if no item has a dense component
    n_bits: int
    slack: float  # how much of a score may be rounding


def make_room(
    batch: CodedBatch | RealBatch, n: int, n_cells: int, k: int = 0, n_rows: int = 0
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return room for a call with n queries of a batch, and where the record's tables begin in it.

    For a search by bounds k is the number of items wanted, and `n_rows` that of the segment. The room is used again by
    the next call of this thread.
    """
    _, n_components, n_words = batch.words.shape
    capacity = min(max(COLLECTED * k, LEAST_COLLECTED), n_rows) + BLOCK if k else 0
    tile = min(n, TILE, max(1, TILE_BYTES // (20 * capacity))) if k else 1
    is_real, word_size = isinstance(batch, RealBatch), batch.words.itemsize
    n_dense = 0 if batch.dense is None else batch.dense.shape[1]
    starts, size = place_tables(
        batch.n_bits, n_words, word_size, is_real, n_components, n_dense, n_cells, k, capacity, tile
    )
    memory = getattr(_room, "memory", None)
    if memory is None or memory.size < size:
        memory = np.empty(size, np.uint8)
        if size <= KEPT_BYTES:
            _room.memory = memory
    return memory, starts


class Filters(NamedTuple):
    """What must not be returned from one segment to a batch of queries, as the entry points take it."""

    deleted: NDArray[np.uint8]  # bit i for row i, which is deleted or not selected; empty where no row is
    exclude_starts: NDArray[np.int64]  # (nq + 1,)
    exclude_ids: NDArray[np.int64]  # ascending for each query
