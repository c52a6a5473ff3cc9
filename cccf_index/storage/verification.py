"""Checks of a segment that comes from a file: what does not fit together is refused, whatever its checksums say."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index.codes import code_size
from cccf_index.kernels.layout import FLOAT_TYPES, INTEGER_TYPES
from cccf_index.kernels.levels import list_stages, no_precisions
from cccf_index.kernels.limits import BLOCK, DENSE_STEP, MAX_PRECISIONS, STRIP
from cccf_index.storage.container import require
from cccf_index.storage.dense_tables import find_dense_cell
from cccf_index.storage.item_rows import needs_no_coarse
from cccf_index.storage.precisions import count_octets


def check_tables(
    n_components: int,
    n_bits: int,
    n_dense: int,
    float_weights: bool,
    shards: tuple[Any, ...],
    tables: dict[str, NDArray[Any]],
) -> None:
    """Make sure that no kernel will read outside the arrays, and that all have types it knows."""
    types = FLOAT_TYPES if float_weights else INTEGER_TYPES
    for name, array in tables.items():
        require(array.dtype in map(np.dtype, types[name]), name)
    starts, slots = tables["starts"], tables["slots"]
    _check_starts(starts, "starts")
    n, sizes = int(starts[-1]), np.diff(starts)[:, None]
    stored = np.array([shard.ntotal for shard in shards])
    require(all(shard.code_size == code_size(n_bits) for shard in shards), "shards")
    require(slots.shape == (len(sizes), len(shards)), "slots")
    require(((slots == -1) | ((slots >= 0) & (slots <= stored - sizes))).all(), "slots")
    weights, coarse = tables["weights"], tables["coarse"]
    require(weights.shape == (stored.sum(),), "weights")
    require(coarse.shape in ((0,), weights.shape), "coarse")
    peak = float(tables["peaks"].max(initial=0.0))  # not of all weights: a mapped file opens at once
    require(coarse.size == weights.size or needs_no_coarse(weights, peak, n_bits), "coarse")
    for name in ("bias", "id_offsets"):
        require(tables[name].shape in ((0,), (n,)), name)
    groups, cell_starts, block_starts = tables["cell_groups"], tables["cell_starts"], tables["block_starts"]
    _check_starts(cell_starts, "cell_starts")
    n_cells = len(cell_starts) - 1
    require(cell_starts[-1] == n and groups.shape == (n_cells,), "cell_starts")
    require(((groups >= 0) & (groups < len(sizes))).all(), "cell_groups")
    require((cell_starts[:-1] >= starts[groups]).all() and (cell_starts[1:] <= starts[groups + 1]).all(), "cell_groups")
    blocks = np.concatenate(([0], np.cumsum(-(-np.diff(cell_starts) // BLOCK))))
    require(np.array_equal(block_starts, blocks) and tables["radii"].shape == (blocks[-1],), "block_starts")
    require(tables["centres"].shape == (n_components * n_bits + n_dense, n_cells), "centres")
    _check_dense(n_dense, np.diff(starts), n_cells, tables)
    require(tables["peaks"].shape == (n_components, n_cells) and tables["bias_peaks"].shape == (n_cells,), "peaks")


def _check_dense(n_dense: int, sizes: NDArray[np.int64], n_cells: int, tables: dict[str, NDArray[Any]]) -> None:
    precisions = tables["precisions"]
    require(precisions.shape == no_precisions(len(sizes)).shape and (precisions >= 0).all(), "precisions")
    require((precisions % DENSE_STEP == 0).all() and (precisions.sum(axis=1) <= n_dense).all(), "precisions")
    require(np.count_nonzero(precisions.any(axis=1)) <= MAX_PRECISIONS, "precisions")
    require(tables["dense_octets"].shape == (int(count_octets(sizes, precisions).sum()),), "dense_octets")
    require(tables["dense_weights"].shape == (int(sizes @ precisions.any(axis=1)),), "dense_weights")
    require(tables["dense_peaks"].shape == (n_cells,), "dense_peaks")
    is_apart = (tables["cell_starts"][:-1] - tables["starts"][tables["cell_groups"]]) % STRIP > 0
    only_dense = np.asarray(precisions.any(axis=1) & (tables["slots"] < 0).all(axis=1))
    require(not (is_apart & only_dense[tables["cell_groups"]]).any(), "cell_starts")
    n_blocks = int(tables["block_starts"][-1] - tables["block_starts"][find_dense_cell(tables)])
    stages = tables["dense_stages"].tolist()
    is_known = tables["dense_stages"].ndim == 1 and set(stages) <= set(list_stages(n_dense))
    require(is_known and stages == sorted(set(stages)) and stages[:1] == list_stages(n_dense)[:1], "dense_stages")
    require(tables["dense_rests"].shape == (n_blocks, len(stages)), "dense_rests")
    require(tables["dense_metric"].shape == (n_dense,) and (tables["dense_metric"] > 0).all(), "dense_metric")


def _check_starts(starts: NDArray[np.int64], name: str) -> None:
    require(starts.ndim == 1 and len(starts) > 1 and starts[0] == 0 and (starts[1:] >= starts[:-1]).all(), name)
