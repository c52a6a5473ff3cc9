"""Indexes as files and bytes: a checksummed container of arrays and of shards in faiss's own binary format."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cccf_index import _check
from cccf_index._refined_items import Halves
from cccf_index.index import IndexCCCF
from cccf_index.kernels.layout import INTEGER_TYPES
from cccf_index.quantizer import CompositionalQuantizer
from cccf_index.refine import IndexRefineCCCF
from cccf_index.storage import container
from cccf_index.storage.container import require
from cccf_index.storage.dense_tables import no_dense
from cccf_index.storage.segment import Segment
from cccf_index.storage.state import Part, State
from cccf_index.storage.vectors import VectorStore
from cccf_index.storage.verification import check_tables

INDEX, REFINED = "index", "refined index"
KINDS = (INDEX, REFINED)  # what files of indexes hold
QUANTIZER = "quantizer."  # before the names of its arrays
VECTORS = "vectors."  # before those of a refined index's vectors
SHARD_HEADER = 33  # bytes that faiss writes before the codes of an IndexBinaryFlat
LAYOUT, DENSE_LAYOUT = (
    2,
    6,
)  # of a part's arrays, without and with a dense component; 1 had no cells; 3 to 5 were drafts


AnyIndex = IndexCCCF | IndexRefineCCCF
Named = Iterator[tuple[str, NDArray[Any], int]]


def write_index(index: AnyIndex, path: str | os.PathLike[str]) -> None:
    """Write an index to a file; a refined one with its vectors.

    The file is written beside `path` and renamed into place, so a full disk or an interrupt leaves an older file
    unchanged.
    """
    container.write_file(path, *index_contents(index))


def read_index(path: str | os.PathLike[str], mmap: bool = False, verify: bool = True) -> Any:
    """Read an index that `write_index` wrote; a damaged, foreign or newer file is a ValueError.

    Parameters
    ----------
    path : str or path-like
        The file.
    mmap : bool
        Map the file instead of reading it: codes, weights and vectors stay on disk, and processes share them.
    verify : bool
        Check the checksum of every array, which reads the whole file once. With False a mapped file of any size opens
        at once, but damage inside arrays goes unnoticed: use it only for files that you trust.

    Returns
    -------
    index : IndexCCCF or IndexRefineCCCF
        What was written.
    """
    meta, arrays = container.read_file(path, KINDS, mmap, verify)
    return restore_index(meta, arrays, os.fspath(path), verify)


def serialize_index(index: AnyIndex) -> NDArray[np.uint8]:
    """Return an index as a uint8 array with the bytes of its file."""
    return container.write_bytes(*index_contents(index))


def deserialize_index(data: NDArray[np.uint8] | bytes) -> Any:
    """Return the index that `serialize_index` wrote."""
    buffer = np.frombuffer(data, dtype=np.uint8) if isinstance(data, (bytes, bytearray, memoryview)) else data
    if not isinstance(buffer, np.ndarray) or buffer.dtype != np.uint8 or buffer.ndim != 1:
        raise TypeError("`data` must be bytes or a 1-dimensional array of uint8.")
    aligned: NDArray[np.uint8] = np.empty(buffer.size + 64, dtype=np.uint8)
    aligned = aligned[-aligned.ctypes.data % 64 :][: buffer.size]
    aligned[:] = buffer  # a copy: the caller may change the original
    meta, arrays = container.read(aligned, KINDS, "data")
    return restore_index(meta, arrays, "data", verify=True)


def index_contents(index: AnyIndex) -> tuple[str, container.Meta, Named]:
    """Return what a container holds of an index: its kind, the manifest's part, and the arrays one by one."""
    if isinstance(index, IndexRefineCCCF):
        halves = index._halves
        meta, arrays = _describe_index(halves.index)
        meta["vectors"] = {"storage": halves.vectors.storage, "k_factor": index.k_factor.hex()}
        return REFINED, meta, chain(arrays, _list_vectors(halves))
    if not isinstance(index, IndexCCCF):
        advice = "Use faiss.write_index." if isinstance(index, faiss.Index) else "Pass the index first, then the path."
        raise TypeError(f"`index` must be an IndexCCCF or IndexRefineCCCF, got {type(index).__name__}. {advice}")
    return INDEX, *_describe_index(index)


def _list_vectors(halves: Halves) -> Named:
    """Yield the arrays of a refined index's vectors, made when it is their turn to be written."""
    for name, array in halves.vectors.collect_arrays(halves.index.ids).items():
        yield VECTORS + name, array, 0


def _describe_index(index: IndexCCCF) -> tuple[container.Meta, Named]:
    state = index._snapshot()
    meta = {
        "n_components": index.n_components,
        "n_bits": index.n_bits,
        "scale": index.scale,
        "item_scale": None if state.scale is None else state.scale.hex(),
        "next_id": state.next_id,
        "d": index._d,
        "quantizer": None if state.quantizer is None else state.quantizer._describe(),
        "layout": DENSE_LAYOUT if state.n_dense else LAYOUT,
        **({"n_dense": state.n_dense} if state.n_dense else {}),
        "parts": [{"first_id": int(p.segment.tables.first_id), "n_dead": p.n_dead} for p in state.parts],
    }

    def arrays() -> Named:
        for name, array in state.quantizer._collect_arrays().items() if state.quantizer else ():
            yield QUANTIZER + name, array, 0
        for number, part in enumerate(state.parts):
            for name, array in part.segment.stored().items():
                yield f"{number}.{name}", array, 0
            yield f"{number}.dead", part.dead, 0
            for k, shard in enumerate(part.segment.shards):
                yield f"{number}.{k}.faiss", faiss.serialize_index_binary(shard), SHARD_HEADER

    return meta, arrays()


def restore_index(meta: container.Meta, arrays: dict[str, NDArray[Any]], source: str, verify: bool) -> Any:
    """Build the index of a container; what does not fit together is a ValueError, even if its checksums are right."""
    index = _restore_plain(meta, arrays, source, verify)
    if "vectors" not in meta:
        return index
    try:
        about = meta["vectors"]
        own = {n.removeprefix(VECTORS): array for n, array in arrays.items() if n.startswith(VECTORS)}
        store = VectorStore.restore(about["storage"], own, index.ntotal)
        require(index.quantizer is None or store.d == index.d, "vectors")
        if verify:
            store.verify(index.ids)
        return IndexRefineCCCF._of_halves(index, store, float.fromhex(about["k_factor"]))
    except container.BROKEN as error:
        raise container.damage_error(source, error) from error


def _restore_plain(meta: container.Meta, arrays: dict[str, NDArray[Any]], source: str, verify: bool) -> IndexCCCF:
    if meta.get("layout") not in (LAYOUT, DENSE_LAYOUT):
        raise ValueError(
            f"{source} was written by another version of cccf-index. Build the index again from its codes."
        )
    try:
        quantizer = None
        if meta.get("quantizer") is not None:
            own = {n.removeprefix(QUANTIZER): array for n, array in arrays.items() if n.startswith(QUANTIZER)}
            quantizer = CompositionalQuantizer._restore(meta["quantizer"], own)
        n_dense = meta["n_dense"] if meta["layout"] == DENSE_LAYOUT else 0
        shape = (meta["n_components"], meta["n_bits"], meta["scale"])
        index = IndexCCCF(*shape, d=meta.get("d"), quantizer=quantizer, n_dense=0 if quantizer else n_dense)
        require(index.n_dense == n_dense, "n_dense")
        scale = None if meta["item_scale"] is None else float.fromhex(meta["item_scale"])
        if index.scale == "auto":
            require(scale is None or 0 < scale < np.inf, "item_scale")
        else:
            require(scale == index.scale_, "item_scale")
        next_id = _check.integer(meta["next_id"], "next_id", 0, _check.MAX_ID + 1)
        parts = []
        for number, entry in enumerate(meta["parts"]):
            own = {name.split(".", 1)[1]: array for name, array in arrays.items() if name.startswith(f"{number}.")}
            parts.append(_restore_part(index, entry, own, next_id if verify else None))
        require(
            scale is not None or index.scale is None or not any(p.segment.largest_weights.any() for p in parts),
            "item_scale",
        )
        state = State(
            tuple(parts), ntotal=sum(map(len, parts)), next_id=next_id, scale=scale, quantizer=index._state.quantizer,
            metric=index._state.metric,
        )  # fmt: skip
    except container.BROKEN as error:
        raise container.damage_error(source, error) from error
    return index._with_state(state)


def _restore_part(index: IndexCCCF, entry: container.Meta, own: dict[str, NDArray[Any]], next_id: int | None) -> Part:
    """Build a part; with `next_id`, which its ids must be below, check every row of its tables."""
    shards = tuple(_restore_shard(own[f"{k}.faiss"]) for k in range(index.n_components))
    if "precisions" not in own:
        own |= no_dense(len(own["slots"]), len(own["cell_groups"]), index.scale is None)
    tables = {name: own[name] for name in INTEGER_TYPES}
    first_id = np.int64(_check.integer(entry["first_id"], "first_id", _check.MIN_ID, _check.MAX_ID))
    n_dense = len(tables["centres"]) - index.n_components * index.n_bits  # 0 where no item of the part has any
    require(n_dense in (0, index.n_dense), "centres")
    check_tables(index.n_components, index.n_bits, n_dense, index.scale is None, shards, tables)
    segment = Segment.assemble(index.n_bits, shards, first_id=first_id, **tables)
    part = Part(segment, own["dead"], _check.integer(entry["n_dead"], "n_dead", 0, len(segment) - 1))
    octets = -(-len(segment) // 8) if part.n_dead else 0
    require(part.dead.dtype == np.uint8 and part.dead.shape == (octets,), "dead")
    if next_id is not None:
        require(part.dead_mask.sum() == part.n_dead, "dead")
        ids = segment.ids
        require(_check.distinct(ids) and -1 not in ids, "ids")
        require(ids[~part.dead_mask].max() < next_id, "next_id")
    return part


def _restore_shard(data: NDArray[np.uint8]) -> faiss.IndexBinaryFlat:
    """Return a faiss index whose codes stay where they are, in the memory of the file."""
    shard = faiss.read_index_binary(faiss.ZeroCopyIOReader(faiss.swig_ptr(data), data.size))
    require(shard.ntotal * shard.code_size == data.size - SHARD_HEADER, "shards")
    faiss.add_to_referenced_objects(shard, data)
    return shard
