"""Indexes as files and bytes: a checksummed container of arrays and of shards in faiss's own binary format."""

from __future__ import annotations

import copyreg
import os
from collections.abc import Callable, Iterator
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cccf_index import _container
from cccf_index._store import Part, State
from cccf_index.codes import word_layout
from cccf_index.index import IndexCCCF
from cccf_index.segment import Segment

KIND = "index"
SHARD_HEADER = 33  # bytes that faiss writes before the codes of an IndexBinaryFlat
TABLES = ("starts", "slots", "weights", "peaks", "bias", "bias_peaks", "id_offsets")


def write_index(index: IndexCCCF, path: str | os.PathLike[str]) -> None:
    """Write an index to a file.

    The file appears whole or not at all: it is written beside `path` and renamed into place, so that a full disk
    or an interrupt leaves an older index as it was.
    """
    meta, arrays = _contents(index)
    _container.write_file(path, KIND, meta, arrays, SHARD_HEADER)


def read_index(path: str | os.PathLike[str], mmap: bool = False, verify: bool = True) -> IndexCCCF:
    """Read an index that `write_index` wrote; a damaged, foreign or newer file is a ValueError.

    Parameters
    ----------
    path : str or path-like
        The file.
    mmap : bool
        Map the file instead of reading it: codes and weights stay on the disk, and processes share them.
    verify : bool
        Check the checksum of every array, which reads the whole file once. Without it a mapped file
        opens at once, whatever its size, but damage in codes or weights goes unnoticed.
    """
    meta, arrays = _container.read_file(path, KIND, mmap, verify)
    return _restored(meta, arrays, os.fspath(path))


def serialize_index(index: IndexCCCF) -> NDArray[np.uint8]:
    """Return an index as a uint8 array, the bytes of its file."""
    meta, arrays = _contents(index)
    return _container.write_bytes(KIND, meta, arrays, SHARD_HEADER)


def deserialize_index(data: NDArray[np.uint8] | bytes) -> IndexCCCF:
    """Return the index that `serialize_index` wrote."""
    buffer = np.frombuffer(data, dtype=np.uint8) if isinstance(data, (bytes, bytearray, memoryview)) else data
    if not isinstance(buffer, np.ndarray) or buffer.dtype != np.uint8 or buffer.ndim != 1:
        raise TypeError("`data` must be bytes or a 1-dimensional array of uint8.")
    aligned = np.empty(buffer.size + 64, dtype=np.uint8)
    aligned = aligned[-aligned.ctypes.data % 64 :][: buffer.size]
    aligned[:] = buffer  # a copy of our own: the caller may change theirs
    meta, arrays = _container.read(aligned, KIND, "data")
    return _restored(meta, arrays, "data")


def _contents(index: IndexCCCF) -> tuple[_container.Meta, Iterator[tuple[str, NDArray[Any]]]]:
    if not isinstance(index, IndexCCCF):
        advice = "Use faiss.write_index." if isinstance(index, faiss.Index) else "The index comes first."
        raise TypeError(f"`index` must be an IndexCCCF, got {type(index).__name__}. {advice}")
    state = index._sealed()
    meta = {
        "n_components": index.n_components,
        "n_bits": index.n_bits,
        "scale": index.scale,
        "item_scale": None if state.scale is None else state.scale.hex(),
        "next_id": state.next_id,
        "parts": [{"first_id": int(p.segment.tables.first_id), "n_dead": p.n_dead} for p in state.parts],
    }

    def arrays() -> Iterator[tuple[str, NDArray[Any]]]:
        for number, part in enumerate(state.parts):
            for name in TABLES:
                yield f"{number}.{name}", getattr(part.segment.tables, name)
            yield f"{number}.order", part.segment.order
            yield f"{number}.dead", part.dead
            for k, shard in enumerate(part.segment.shards):
                yield f"{number}.{k}.faiss", faiss.serialize_index_binary(shard)

    return meta, arrays()


def _restored(meta: _container.Meta, arrays: dict[str, NDArray[Any]], source: str) -> IndexCCCF:
    """Build the index; what does not fit together is a ValueError, though its checksums be right."""
    try:
        index = IndexCCCF(meta["n_components"], meta["n_bits"], meta["scale"])
        parts = tuple(
            _restored_part(index, entry, lambda name, number=number: arrays[f"{number}.{name}"])  # type: ignore[misc]
            for number, entry in enumerate(meta["parts"])
        )
        scale = meta["item_scale"]
        index._state = State(
            parts=parts,
            ntotal=sum(map(len, parts)),
            next_id=meta["next_id"],
            scale=None if scale is None else float.fromhex(scale),
        )
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise ValueError(f"{source} is damaged: {error!r}. Write it again from its source.") from error
    return index


def _restored_part(index: IndexCCCF, entry: _container.Meta, array: Callable[[str], NDArray[Any]]) -> Part:
    shards = tuple(_restored_shard(array(f"{k}.faiss")) for k in range(index.n_components))
    tables = {name: array(name) for name in TABLES}
    segment = Segment.assemble(index.n_bits, shards, array("order"), first_id=np.int64(entry["first_id"]), **tables)
    _check_structure(segment, index)
    part = Part(segment, array("dead"), entry["n_dead"])
    if part.n_dead and (part.dead.size != -(-len(segment) // 8) or part.dead_mask.sum() != part.n_dead):
        raise ValueError("the deletion mask does not fit")
    return part


def _restored_shard(data: NDArray[np.uint8]) -> faiss.IndexBinaryFlat:
    """Return a faiss index whose codes stay where they are, in the file's memory."""
    shard = faiss.read_index_binary(faiss.ZeroCopyIOReader(faiss.swig_ptr(data), data.size))
    faiss.add_to_referenced_objects(shard, data)
    return shard


def _check_structure(segment: Segment, index: IndexCCCF) -> None:
    """Make sure that no kernel will read outside the arrays."""
    t, n = segment.tables, int(segment.tables.starts[-1])
    dtype, n_words = word_layout(index.n_bits)
    sizes, stored = np.diff(t.starts), np.diff(t.bases)
    groups = len(sizes)
    fits = (
        t.starts[0] == 0
        and (sizes > 0).all()
        and t.slots.shape == t.peaks.shape == (groups, index.n_components)
        and ((t.slots == -1) | ((t.slots >= 0) & (t.slots + sizes[:, None] <= stored))).all()
        and all(s.code_size == dtype.itemsize * n_words for s in segment.shards)
        and t.weights.shape == (t.bases[-1],)
        and t.bias_peaks.shape == (groups,)
        and t.bias.shape in ((0,), (n,))
        and t.id_offsets.shape in ((0,), (n,))
        and segment.order.shape in ((0,), (n,))
        and segment.order.max(initial=0) < n
        and {a.dtype.kind for a in (t.weights, t.peaks)} <= ({"f"} if index.scale is None else {"u", "i"})
    )
    if not fits:
        raise ValueError("its tables do not fit together")


def _reduced(index: IndexCCCF) -> tuple[Any, ...]:
    return deserialize_index, (serialize_index(index).tobytes(),)


copyreg.pickle(IndexCCCF, _reduced)
