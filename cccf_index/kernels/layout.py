"""What the kernels read and fill. Arrays are addresses there: a kernel takes one number instead of twenty arrays.

Passing an array to a compiled function takes a fraction of a microsecond, and many instructions wherever it is passed
on; one query is done in a few microseconds. `at` and `array_at` in `_lanes.py` read from an address.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Tables(NamedTuple):
    """A segment: groups of rows with the same components, in cells around centres, which are cut into blocks."""

    starts: NDArray[np.int64]  # (groups + 1,): the rows of group g
    slots: NDArray[np.int64]  # (groups, G): where the group begins in component k's shard, -1 if it has no component k
    shards: NDArray[np.int64]  # (G,): the address of the codes of component k's shard
    bases: NDArray[np.int64]  # (G + 1,): where the weights of component k begin, which stand in the shard's order
    weights: NDArray[Any]  # uint8, uint16, uint32 or float32 (stored codes,)
    bias: NDArray[Any]  # int32 or float32 (n,), or empty
    first_id: np.int64
    id_offsets: NDArray[Any]  # uint32 or int64 (n,): row i has id first_id + id_offsets[i]; empty: first_id + i
    cell_groups: NDArray[np.int64]  # (cells,)
    cell_starts: NDArray[np.int64]  # (cells + 1,): the rows of cell c, the farthest from its centre first
    block_starts: NDArray[np.int64]  # (cells + 1,): its blocks
    centres: NDArray[np.float32]  # (G * r, cells)
    radii: NDArray[np.float32]  # (blocks,): no row of the block, nor of those after it, is farther from the centre
    peaks: NDArray[np.float32]  # (G, cells): the largest weight
    bias_peaks: NDArray[np.float64]  # (cells,): the largest bias
    coarse: NDArray[np.uint8]  # (stored codes,): weights / step for sketches, `weights` themselves where they are such
    step: float
    slip: float  # by how much `coarse` is off at the most
    ceilings: NDArray[np.float64]  # (G,): the largest weight / step


FLOATS = {"step", "slip"}
COUNTS = ("n_groups", "n_components", "n_cells", "float_bias", "id_size", "by_row")
HANDLE = np.dtype([(name, "f8" if name in FLOATS else "i8") for name in (*Tables._fields, *COUNTS)])


def handle(tables: Tables, by_row: bool = False) -> NDArray[Any]:
    """Return a record (1,) of addresses and sizes, which is valid as long as the tables are; 0 for an empty array.

    A search `by_row` finds rows instead of ids.
    """
    record = np.zeros(1, dtype=HANDLE)
    for name, value in tables._asdict().items():
        is_array = isinstance(value, np.ndarray)
        record[name] = (value.ctypes.data if value.size else 0) if is_array else value
    record["n_groups"], record["n_components"] = tables.slots.shape
    record["n_cells"] = len(tables.cell_groups)
    record["float_bias"] = tables.bias.dtype.kind == "f"
    record["by_row"] = by_row
    record["id_size"] = tables.id_offsets.itemsize
    return record


class Filters(NamedTuple):
    """What must not be returned."""

    blocked: NDArray[np.uint8]  # bit i for row i, or empty
    exclude_starts: NDArray[np.int64]  # (nq + 1,)
    exclude_ids: NDArray[np.int64]  # ascending for each query


class Batch(NamedTuple):
    """Queries. Codes and vectors are told apart by the type of `bias_scales` when a kernel is compiled."""

    words: NDArray[Any]  # (nq, G, W), of vectors (0, G, W)
    values: NDArray[Any]  # weights of codes, int64 or float32 (nq, G), or vectors, float32 (nq, G * r)
    bias_scales: NDArray[Any]  # what items' biases are multiplied by: int64 or float32 (nq,), of vectors float64 ones
    items: NDArray[Any]  # (0,), of the type of items' weights
    n_bits: int
    n_planes: int  # bits of a value in a sketch, 1 for codes
    slack: float  # how much of a score may be rounding


class Room(NamedTuple):
    """Where a tile of queries is prepared and blocks are chosen for it; row i is that of one query."""

    vector: NDArray[np.float32]  # (G * r,): one query at a time
    reach: NDArray[np.float32]  # (3, G): the most that weight 1 in component k can score, and of its sketch the
    # largest |factor * agreement|, and by how much that is off
    planes: NDArray[Any]  # (tile, G * W * planes): see `reaching`
    factors: NDArray[np.int16]  # (tile, G)
    sums: NDArray[np.float32]  # (tile, G * nibbles * 16): of real-valued queries, see `fill_sums`
    products: NDArray[np.float32]  # (tile, cells): with the centres
    caps: NDArray[np.float32]  # (tile, cells): what the weights allow
    slips: NDArray[np.float32]  # (tile, cells): by how much a sketch is off
    next_block: NDArray[np.int64]  # (tile, cells)
    keys: NDArray[np.float32]  # (cells,)
    heap: NDArray[np.int64]  # (cells,): cells, the one with the largest key first
    units: NDArray[np.float64]  # (tile,): what 1 of a sketch is worth
    norms: NDArray[np.float64]  # (tile,)
    needs: NDArray[np.float64]  # (tile,): see `needs`
    limits: NDArray[np.int16]  # (tile,)
    stale: NDArray[np.int16]  # (tile,): whether those are to be found anew
    scores: NDArray[Any]  # int64 or float32 (BLOCK,): exact ones of a block
