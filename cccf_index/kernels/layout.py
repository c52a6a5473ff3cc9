"""A segment as the kernels read it: arrays become addresses in one record.

Passing an array to a compiled function takes a fraction of a microsecond, and many instructions wherever it is passed
on; one query is done in a few microseconds. So a kernel takes one address instead of twenty arrays, and reads what it
needs by `memory.read` and `memory.view_row`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class SegmentTables(NamedTuple):
    """Groups of rows with the same components, in cells around centres, which are cut into blocks."""

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
    centres: NDArray[np.float32]  # (any,): the components that a cell has, one cell after the other; not of zeros
    centre_starts: NDArray[np.int64]  # (cells + 1,): where those of cell c begin
    radii: NDArray[np.float32]  # (blocks,): no row of the block, nor of those after it, is farther from the centre
    peaks: NDArray[np.float32]  # (G, cells): the largest weight
    bias_peaks: NDArray[np.float64]  # (cells,): the largest bias
    coarse: NDArray[np.uint8]  # (stored codes,): weights / step for sketches; `weights` themselves if they fit
    precisions: NDArray[np.int64]  # (groups, levels): dimensions of the dense component at each level; zeros if none
    dense_octets: NDArray[np.uint8]  # its values, group after group of those that have it; see `storage.precisions`
    dense_weights: NDArray[Any]  # (dense rows,): in the same order
    dense_peaks: NDArray[np.float32]  # (cells,): the largest length of it, in the metric
    dense_stages: NDArray[np.int64]  # (stages,): the steps of dimensions at which stages of a search begin
    dense_rests: NDArray[np.float32]  # (blocks from `first_dense_block` on, stages): from each stage on
    dense_metric: NDArray[np.float32]  # (dense dimensions,): what items' values are multiplied by, see `bounds`
    dense_starts: NDArray[np.int64]  # (groups,): where the values of a group begin
    dense_row_sizes: NDArray[np.int64]  # (groups,): bytes of a row; 0 if it has no dense component
    dense_bases: NDArray[np.int64]  # (groups,): where its weights begin
    dense_runs: NDArray[np.void]  # RUN_RECORD: those of each precision, group after group
    run_starts: NDArray[np.int64]  # (groups + 1,)
    dense_unit: float  # what 1 of `dense_weights` is worth, in units of `weights`
    dense_ceiling: float  # the largest length of all
    binary_stop: int  # the cells from here on have no binary component,
    dense_start: int  # and those before this one no dense one
    first_dense_block: int  # the first block of that cell
    n_dense: int  # dimensions
    step: float
    slip: float  # the largest error of `coarse`
    ceilings: NDArray[np.float64]  # (G,): the largest weight / step
    centre_sizes: NDArray[np.float32]  # (G, cells): the length of each component of the centre / root of r, rounded up
    shifts: NDArray[np.uint8]  # (blocks,): weights of the block times 2^shift are no larger than the largest of all


# The types that each stored array may have, integer weights and float weights; the other fields follow from these.
INTEGER_TYPES = {
    "starts": ("i8",),
    "slots": ("i8",),
    "weights": ("u1", "u2", "u4"),
    "bias": ("i4",),
    "id_offsets": ("u4", "i8"),
    "cell_groups": ("i8",),
    "cell_starts": ("i8",),
    "block_starts": ("i8",),
    "centres": ("f4",),
    "radii": ("f4",),
    "peaks": ("f4",),
    "bias_peaks": ("f8",),
    "coarse": ("u1",),
    "precisions": ("i8",),
    "dense_octets": ("u1",),
    "dense_weights": ("u1", "u2", "u4"),
    "dense_peaks": ("f4",),
    "dense_stages": ("i8",),
    "dense_rests": ("f4",),
    "dense_metric": ("f4",),
}
FLOAT_TYPES = {**INTEGER_TYPES, "weights": ("f4",), "bias": ("f4",), "dense_weights": ("f4",)}
# A file has these where any item has a dense component.
DENSE_NAMES = (
    "precisions", "dense_octets", "dense_weights", "dense_peaks", "dense_stages", "dense_rests", "dense_metric",
)  # fmt: skip

_FLOATS = {"step", "slip", "dense_unit", "dense_ceiling"}
_COUNTS = (
    "n_groups", "n_components", "n_cells", "weight_size", "float_weights", "id_size", "by_row", "dense_weight_size",
    "n_stages", "n_runs",
)  # fmt: skip
SEGMENT_RECORD = np.dtype([(name, "f8" if name in _FLOATS else "i8") for name in (*SegmentTables._fields, *_COUNTS)])
# The same record without what only kernels of the dense component read. Kernels that take a segment for this type are
# compiled without them, which takes less time: see `memory.view_part`.
DENSE_FIELDS = (
    "dense_octets", "dense_weights", "dense_stages", "dense_rests", "dense_metric", "dense_starts", "dense_bases",
    "dense_runs", "run_starts", "dense_weight_size", "n_stages", "n_runs",
)  # fmt: skip
PLAIN_RECORD = SEGMENT_RECORD[[name for name in SEGMENT_RECORD.names or () if name not in DENSE_FIELDS]]


def freeze(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array as kernels are compiled for it: contiguous and read-only, as in a mapped file."""
    flags = array.flags
    if not flags.c_contiguous:
        array = np.ascontiguousarray(array)
    elif not flags.writeable:
        return array
    if array.flags.writeable:
        array = array[:]
        array.flags.writeable = False
    return array


def make_record(tables: SegmentTables, by_row: bool = False) -> NDArray[Any]:
    """Return a record (1,) of addresses and sizes, which is valid as long as the tables are; 0 for an empty array.

    A search `by_row` finds rows instead of ids.
    """
    record = np.zeros(1, dtype=SEGMENT_RECORD)
    for name, value in tables._asdict().items():
        is_array = isinstance(value, np.ndarray)
        record[name] = (value.ctypes.data if value.size else 0) if is_array else value
    record["n_groups"], record["n_components"] = tables.slots.shape
    record["n_cells"] = len(tables.cell_groups)
    record["weight_size"], record["dense_weight_size"] = tables.weights.itemsize, tables.dense_weights.itemsize
    record["float_weights"] = tables.weights.dtype.kind == "f"  # and biases
    record["n_stages"], record["n_runs"] = len(tables.dense_stages), len(tables.dense_runs)
    record["by_row"] = by_row
    record["id_size"] = tables.id_offsets.itemsize
    return record
