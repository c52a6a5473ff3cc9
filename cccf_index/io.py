"""Indexes as files and bytes: a checksummed container of arrays and of shards in faiss's own binary format."""

from __future__ import annotations

import copyreg
import os
from collections.abc import Iterator
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cccf_index import _check
from cccf_index.codes import code_size
from cccf_index.index import IndexCCCF
from cccf_index.kernels.block import BLOCK
from cccf_index.quantizer import CompositionalQuantizer
from cccf_index.storage import container
from cccf_index.storage.segment import Segment, needs_no_coarse
from cccf_index.storage.state import Part, State

KIND = "index"
QUANTIZER = "quantizer."  # before the names of its arrays
SHARD_HEADER = 33  # bytes that faiss writes before the codes of an IndexBinaryFlat
LAYOUT = 2  # of a part's arrays; 1 had no cells
INT64, FLOAT32, FLOAT64 = ("i8",), ("f4",), ("f8",)
INTEGER_TYPES = {
    "starts": INT64,
    "slots": INT64,
    "weights": ("u1", "u2", "u4"),
    "bias": ("i4",),
    "id_offsets": ("u4", "i8"),
    "cell_groups": INT64,
    "cell_starts": INT64,
    "block_starts": INT64,
    "centres": FLOAT32,
    "radii": FLOAT32,
    "peaks": FLOAT32,
    "bias_peaks": FLOAT64,
    "coarse": ("u1",),
}
FLOAT_TYPES = {**INTEGER_TYPES, "weights": FLOAT32, "bias": FLOAT32}
TABLES = tuple(INTEGER_TYPES)


def write_index(index: IndexCCCF, path: str | os.PathLike[str]) -> None:
    """Write an index to a file.

    The file appears whole or not at all: it is written beside `path` and renamed into place, so that a full disk
    or an interrupt leaves an older index as it was.
    """
    meta, arrays = _contents(index)
    container.write_file(path, KIND, meta, arrays)


def read_index(path: str | os.PathLike[str], mmap: bool = False, verify: bool = True) -> IndexCCCF:
    """Read an index that `write_index` wrote; a damaged, foreign or newer file is a ValueError.

    Parameters
    ----------
    path : str or path-like
        The file.
    mmap : bool
        Map the file instead of reading it: codes and weights stay on the disk, and processes share them.
    verify : bool
        Check the checksum of every array, which reads the whole file once. Without it a mapped file opens at
        once, whatever its size, but it must be one that you trust: damage goes unnoticed.
    """
    meta, arrays = container.read_file(path, KIND, mmap, verify)
    return _restored(meta, arrays, os.fspath(path), verify)


def serialize_index(index: IndexCCCF) -> NDArray[np.uint8]:
    """Return an index as a uint8 array, the bytes of its file."""
    meta, arrays = _contents(index)
    return container.write_bytes(KIND, meta, arrays)


def deserialize_index(data: NDArray[np.uint8] | bytes) -> IndexCCCF:
    """Return the index that `serialize_index` wrote."""
    buffer = np.frombuffer(data, dtype=np.uint8) if isinstance(data, (bytes, bytearray, memoryview)) else data
    if not isinstance(buffer, np.ndarray) or buffer.dtype != np.uint8 or buffer.ndim != 1:
        raise TypeError("`data` must be bytes or a 1-dimensional array of uint8.")
    aligned: NDArray[np.uint8] = np.empty(buffer.size + 64, dtype=np.uint8)
    aligned = aligned[-aligned.ctypes.data % 64 :][: buffer.size]
    aligned[:] = buffer  # a copy of our own: the caller may change theirs
    meta, arrays = container.read(aligned, KIND, "data")
    return _restored(meta, arrays, "data", verify=True)


def _contents(index: IndexCCCF) -> tuple[container.Meta, Iterator[tuple[str, NDArray[Any], int]]]:
    if not isinstance(index, IndexCCCF):
        advice = "Use faiss.write_index." if isinstance(index, faiss.Index) else "The index comes first."
        raise TypeError(f"`index` must be an IndexCCCF, got {type(index).__name__}. {advice}")
    state = index._snapshot()
    meta = {
        "n_components": index.n_components,
        "n_bits": index.n_bits,
        "scale": index.scale,
        "item_scale": None if state.scale is None else state.scale.hex(),
        "next_id": state.next_id,
        "d": index._d,
        "quantizer": None if state.quantizer is None else state.quantizer._describe(),
        "layout": LAYOUT,
        "parts": [{"first_id": int(p.segment.tables.first_id), "n_dead": p.n_dead} for p in state.parts],
    }

    def arrays() -> Iterator[tuple[str, NDArray[Any], int]]:
        for name, array in state.quantizer._collect_arrays().items() if state.quantizer else ():
            yield QUANTIZER + name, array, 0
        for number, part in enumerate(state.parts):
            for name, array in part.segment.stored().items():
                yield f"{number}.{name}", array, 0
            yield f"{number}.dead", part.dead, 0
            for k, shard in enumerate(part.segment.shards):
                yield f"{number}.{k}.faiss", faiss.serialize_index_binary(shard), SHARD_HEADER

    return meta, arrays()


def _restored(meta: container.Meta, arrays: dict[str, NDArray[Any]], source: str, verify: bool) -> IndexCCCF:
    """Build the index; what does not fit together is a ValueError, though its checksums be right."""
    if meta.get("layout") != LAYOUT:
        raise ValueError(f"{source} was written by another version of cccf-index. Build the index anew from its codes.")
    try:
        quantizer = None
        if meta.get("quantizer") is not None:
            own = {n.removeprefix(QUANTIZER): array for n, array in arrays.items() if n.startswith(QUANTIZER)}
            quantizer = CompositionalQuantizer._restore(meta["quantizer"], own)
        index = IndexCCCF(meta["n_components"], meta["n_bits"], meta["scale"], d=meta.get("d"), quantizer=quantizer)
        scale = None if meta["item_scale"] is None else float.fromhex(meta["item_scale"])
        if index.scale == "auto":
            _require(scale is None or 0 < scale < np.inf, "item_scale")
        else:
            _require(scale == index.scale_, "item_scale")
        next_id = _check.integer(meta["next_id"], "next_id", 0, _check.MAX_ID + 1)
        parts = []
        for number, entry in enumerate(meta["parts"]):
            own = {name.split(".", 1)[1]: array for name, array in arrays.items() if name.startswith(f"{number}.")}
            parts.append(_restored_part(index, entry, own, next_id if verify else None))
        _require(
            scale is not None or index.scale is None or not any(p.segment.peaks.any() for p in parts), "item_scale"
        )
        index._state = State(
            tuple(parts), ntotal=sum(map(len, parts)), next_id=next_id, scale=scale, quantizer=index._state.quantizer
        )
    except container.BROKEN as error:
        raise container.damaged(source, error) from error
    return index


def _restored_part(index: IndexCCCF, entry: container.Meta, own: dict[str, NDArray[Any]], next_id: int | None) -> Part:
    """Build a part; with `next_id`, which its ids must be below, look at every row of its tables."""
    shards = tuple(_restored_shard(own[f"{k}.faiss"]) for k in range(index.n_components))
    tables = {name: own[name] for name in TABLES}
    first_id = np.int64(_check.integer(entry["first_id"], "first_id", _check.MIN_ID, _check.MAX_ID))
    _check_tables(index, shards, tables)
    segment = Segment.assemble(index.n_bits, shards, first_id=first_id, **tables)
    part = Part(segment, own["dead"], _check.integer(entry["n_dead"], "n_dead", 0, len(segment) - 1))
    octets = -(-len(segment) // 8) if part.n_dead else 0
    _require(part.dead.dtype == np.uint8 and part.dead.shape == (octets,), "dead")
    if next_id is not None:
        _require(part.dead_mask.sum() == part.n_dead, "dead")
        ids = segment.ids
        _require(_check.distinct(ids) and -1 not in ids, "ids")
        _require(ids[~part.dead_mask].max() < next_id, "next_id")
    return part


def _restored_shard(data: NDArray[np.uint8]) -> faiss.IndexBinaryFlat:
    """Return a faiss index whose codes stay where they are, in the file's memory."""
    shard = faiss.read_index_binary(faiss.ZeroCopyIOReader(faiss.swig_ptr(data), data.size))
    _require(shard.ntotal * shard.code_size == data.size - SHARD_HEADER, "shards")
    faiss.add_to_referenced_objects(shard, data)
    return shard


def _check_tables(index: IndexCCCF, shards: tuple[Any, ...], t: dict[str, NDArray[Any]]) -> None:
    """Make sure that no kernel will read outside the arrays, and that all have types it knows."""
    types = FLOAT_TYPES if index.scale is None else INTEGER_TYPES
    for name, array in t.items():
        _require(array.dtype in map(np.dtype, types[name]), name)
    starts, slots = t["starts"], t["slots"]
    _check_starts(starts, "starts")
    n, sizes = int(starts[-1]), np.diff(starts)[:, None]
    stored = np.array([shard.ntotal for shard in shards])
    _require(all(shard.code_size == code_size(index.n_bits) for shard in shards), "shards")
    _require(slots.shape == (len(sizes), len(shards)), "slots")
    _require(((slots == -1) | ((slots >= 0) & (slots <= stored - sizes))).all(), "slots")
    _require(t["weights"].shape == (stored.sum(),), "weights")
    _require(t["coarse"].shape in ((0,), t["weights"].shape), "coarse")
    peak = float(t["peaks"].max(initial=0.0))  # not of all weights: a mapped file is to open at once
    _require(t["coarse"].size == t["weights"].size or needs_no_coarse(t["weights"], peak, index.n_bits), "coarse")
    for name in ("bias", "id_offsets"):
        _require(t[name].shape in ((0,), (n,)), name)
    groups, cell_starts, block_starts = t["cell_groups"], t["cell_starts"], t["block_starts"]
    _check_starts(cell_starts, "cell_starts")
    n_cells = len(cell_starts) - 1
    _require(cell_starts[-1] == n and groups.shape == (n_cells,), "cell_starts")
    _require(((groups >= 0) & (groups < len(sizes))).all(), "cell_groups")
    _require(
        (cell_starts[:-1] >= starts[groups]).all() and (cell_starts[1:] <= starts[groups + 1]).all(), "cell_groups"
    )
    blocks = np.concatenate(([0], np.cumsum(-(-np.diff(cell_starts) // BLOCK))))
    _require(np.array_equal(block_starts, blocks) and t["radii"].shape == (blocks[-1],), "block_starts")
    _require(t["centres"].shape == (index.n_components * index.n_bits, n_cells), "centres")
    _require(t["peaks"].shape == (index.n_components, n_cells) and t["bias_peaks"].shape == (n_cells,), "peaks")


def _check_starts(starts: NDArray[np.int64], name: str) -> None:
    _require(starts.ndim == 1 and len(starts) > 1 and starts[0] == 0 and (starts[1:] >= starts[:-1]).all(), name)


def _require(fits: Any, name: str) -> None:
    if not fits:
        raise ValueError(f"its {name} does not fit the rest")


def _reduced(index: IndexCCCF) -> tuple[Any, ...]:
    return deserialize_index, (serialize_index(index).tobytes(),)


copyreg.pickle(IndexCCCF, _reduced)
