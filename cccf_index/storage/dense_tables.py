"""The tables of a segment that hold the dense component of its rows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index.dense import DenseRows
from cccf_index.kernels.calls import LINE
from cccf_index.kernels.layout import SegmentTables
from cccf_index.kernels.levels import list_runs, list_stages, no_precisions, row_sizes
from cccf_index.kernels.limits import BLOCK, DENSE_STEP
from cccf_index.storage.cells import Cells
from cccf_index.storage.item_rows import ItemRows, dense_unit, shrink_weights
from cccf_index.storage.precisions import count_octets, pack_values, unpack_values

STEP = 8192  # rows whose lengths are measured at a time
HOPEFUL = 0.8  # of the length of rows: if more is left after a stage, hardly any can be ruled out


def store_dense(
    rows: ItemRows,
    cells: Cells,
    member: NDArray[Any],
    precisions: NDArray[np.int64],
    dtype: np.dtype,
    metric: NDArray[np.float32],
) -> dict[str, NDArray[Any]]:
    """Return the stored tables; member: the groups of the rows in the order of the cells; dtype: of other weights."""
    stages = np.array(list_stages(rows.n_dense), np.int64)
    tables = no_dense(len(precisions), len(cells.groups), dtype.kind == "f")
    tables |= {"precisions": precisions, "dense_stages": stages, "dense_metric": metric}
    tables["dense_rests"] = np.empty((0, len(stages)), np.float32)
    if rows.dense is None:
        return tables
    tables["dense_octets"] = make_aligned(
        int(count_octets(np.bincount(member, minlength=len(precisions)), precisions).sum())
    )
    start, weights = 0, [tables["dense_weights"]]
    for g in np.flatnonzero(precisions.any(axis=1)):
        own = rows.dense.select(cells.order[member == g])
        octets = pack_values(own.values, precisions[g])
        tables["dense_octets"][start : start + len(octets)] = octets
        start += len(octets)
        weights.append(own.weights)
    tables["dense_weights"] = shrink_weights(np.concatenate(weights))
    lengths = measure_lengths(rows.dense, metric)[:, cells.order]
    filled = np.diff(cells.starts) > 0
    tables["dense_peaks"][filled] = np.maximum.reduceat(lengths[0], cells.starts[:-1][filled])
    first = find_dense_cell({"precisions": precisions, "cell_groups": cells.groups})
    counts = np.diff(cells.block_starts)[first:]
    starts = np.repeat(cells.starts[first:-1] - BLOCK * cells.block_starts[first:-1], counts)
    starts += BLOCK * np.arange(cells.block_starts[first], cells.block_starts[-1])
    if len(starts):
        chosen = choose_stages(lengths)
        tables["dense_stages"] = stages[chosen]
        tables["dense_rests"] = np.ascontiguousarray(np.maximum.reduceat(lengths[chosen], starts, axis=1).T)
    return tables


def no_dense(n_groups: int, n_cells: int, float_weights: bool) -> dict[str, NDArray[Any]]:
    """Return the stored tables of a segment without a dense component: files have none of them."""
    return {
        "precisions": no_precisions(n_groups),
        "dense_octets": np.empty(0, np.uint8),
        "dense_weights": np.empty(0, np.float32 if float_weights else np.uint8),
        "dense_peaks": np.zeros(n_cells, np.float32),
        "dense_stages": np.empty(0, np.int64),
        "dense_rests": np.empty((0, 0), np.float32),
        "dense_metric": np.empty(0, np.float32),
    }


def choose_stages(lengths: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return which stages are worth it, by the lengths (stages, n) of rows from each on: those that leave less."""
    totals = lengths.sum(axis=1, dtype=np.float64)
    is_worth_it = np.asarray(totals <= HOPEFUL * totals[0])
    is_worth_it[0] = True
    return is_worth_it


def make_aligned(n: int) -> NDArray[np.uint8]:
    """Return n bytes that begin at a cache line, as those of a file do: kernels read whole lines."""
    room = np.empty(n + LINE, np.uint8)
    first = -room.ctypes.data % LINE
    return room[first : first + n]


def measure_lengths(dense: DenseRows, metric: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the lengths (stages, n) of rows in the metric, from the first dimension of each stage of a search on."""
    edges = [*(DENSE_STEP * step for step in list_stages(dense.p)), dense.p]
    lengths, which = np.zeros((len(edges) - 1, len(dense.weights)), np.float32), np.flatnonzero(dense.is_present)
    for start in range(0, len(which), STEP):
        part = which[start : start + STEP]
        values = dense.values[start : start + STEP] * metric
        squares = np.stack([np.square(values[:, a:b]).sum(axis=1, dtype=np.float64) for a, b in pairwise(edges)])
        tails = np.sqrt(squares[::-1].cumsum(axis=0)[::-1])
        lengths[:, part] = tails * (dense.weights[part] * dense_unit(dense.weights) * (1 + 1e-6))
    return lengths


def find_dense_cell(tables: dict[str, NDArray[Any]]) -> int:
    """Return the first cell whose rows have a dense component, or the number of all cells."""
    has_dense = tables["precisions"][tables["cell_groups"]].any(axis=1)
    return int(np.argmax(has_dense)) if has_dense.any() else len(has_dense)


def place_dense(d: int, tables: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the tables that follow from those stored; d: dimensions of the binary components."""
    has_dense: NDArray[np.bool_] = np.asarray(tables["precisions"].any(axis=1))
    sizes = np.diff(tables["starts"])
    bases = np.cumsum(sizes * has_dense) - sizes * has_dense
    n_octets = count_octets(sizes, tables["precisions"])
    groups, first = tables["cell_groups"], find_dense_cell(tables)
    is_binary = (~has_dense | (tables["slots"] >= 0).any(axis=1))[groups]
    stages = tables["dense_stages"].tolist()
    runs = [list_runs(precision, stages) for precision in tables["precisions"]]
    return {
        "dense_runs": np.concatenate(runs),
        "run_starts": np.concatenate([[0], np.cumsum([len(own) for own in runs])]).astype(np.int64),
        "dense_starts": np.cumsum(n_octets) - n_octets,
        "dense_row_sizes": row_sizes(tables["precisions"]),
        "dense_bases": bases,
        "dense_unit": dense_unit(tables["weights"]),
        "dense_ceiling": float(tables["dense_peaks"].max(initial=0.0)),
        "binary_stop": len(groups) - int(np.argmax(is_binary[::-1])) if is_binary.any() else 0,
        "dense_start": first,
        "first_dense_block": int(tables["block_starts"][first]),
        "n_dense": len(tables["centres"]) - d,
    }


def decode_dense(t: SegmentTables, which: NDArray[Any], group: NDArray[np.int64]) -> DenseRows | None:
    """Return the dense component of the given rows of a segment, whose groups are known."""
    if not t.n_dense:
        return None
    weights = np.zeros(len(which), dtype=t.dense_weights.dtype)
    values = np.zeros((len(which), t.n_dense), dtype=np.int8)
    ends = [*t.dense_starts[1:], len(t.dense_octets)]
    for g in np.flatnonzero(t.precisions.any(axis=1)):
        own = group == g
        place = which[own] - t.starts[g]
        weights[own] = t.dense_weights[t.dense_bases[g] + place]
        values[own] = unpack_values(t.dense_octets[t.dense_starts[g] : ends[g]], t.precisions[g], t.n_dense, place)
    return DenseRows(weights, values[weights > 0])
