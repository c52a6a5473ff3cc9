"""A segment: an immutable run of items, grouped by their non-zero components, as the kernels scan it.

Items with the same set of active components stand together, in cells. The codes of component k of all groups that have
it are one `faiss.IndexBinaryFlat` shard; its weights stand in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cccf_index.codes import word_layout
from cccf_index.kernels import search
from cccf_index.kernels.layout import Tables, handle
from cccf_index.storage.cells import arrange

MIN_GROUP = 256  # sets of components with fewer items share a group that covers them all
MAX_PADDING = 1.1  # a single group may store so many codes for each that is not zero


@dataclass(frozen=True, eq=False)
class Rows:
    """Items as plain arrays, in any order: what segments are made of, and what they decode to."""

    words: NDArray[Any]  # (n, G, W)
    weights: NDArray[Any]  # unsigned integers, or float32 (n, G)
    bias: NDArray[Any] | None  # int32 or float32 (n,)
    ids: NDArray[np.int64]  # (n,)

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def concatenate(cls, parts: list[Rows]) -> Rows:
        """Stack rows; where only some have a bias, the others' is zero."""
        if len(parts) == 1:
            return parts[0]
        bias = None
        known = next((part.bias for part in parts if part.bias is not None), None)
        if known is not None:
            bias = np.concatenate([np.zeros(len(p), known.dtype) if p.bias is None else p.bias for p in parts])
        return cls(
            np.concatenate([part.words for part in parts]),
            np.concatenate([part.weights for part in parts]),
            bias,
            np.concatenate([part.ids for part in parts]),
        )


def component_sets(weights: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the set of active components of each row as a mask, bit k for component k."""
    octets = np.packbits(weights > 0, axis=1, bitorder="little")
    padded = np.zeros((len(weights), 8), dtype=np.uint8)
    padded[:, : octets.shape[1]] = octets
    return padded.view(np.uint64)[:, 0]


def set_sizes(sets: Any) -> Any:
    """Return how many components each set has."""
    return np.unpackbits(np.asarray(sets)[..., None].view(np.uint8), axis=-1).sum(axis=-1, dtype=np.int64)


def assign_groups(sets: NDArray[np.uint64]) -> tuple[NDArray[Any], NDArray[np.uint64]]:
    """Return the group of each row and the set of components that each group covers.

    Where nearly all rows have nearly all components, they are one group. Else a set of at least `MIN_GROUP` rows is
    a group of its own, and smaller ones join their neighbours in numeric order, which share their highest
    components, until a group has about that many rows: tiny groups never dominate a scan.
    """
    masks, member, counts = np.unique(sets, return_inverse=True, return_counts=True)
    cover = np.bitwise_or.reduce(masks)
    if len(sets) * set_sizes(cover) <= MAX_PADDING * (counts @ set_sizes(masks)):
        return np.zeros(len(sets), dtype=np.uint8), cover[None]
    tiny = counts < MIN_GROUP
    group = np.empty(len(masks), dtype=np.int64)
    # every step of the running count is below MIN_GROUP, so no group number is left out
    group[tiny] = (np.cumsum(counts[tiny]) - 1) // MIN_GROUP
    n_shared = int(group[tiny][-1]) + 1 if tiny.any() else 0
    group[~tiny] = n_shared + np.arange(len(masks) - tiny.sum())
    covers = np.zeros(n_shared + len(masks) - int(tiny.sum()), dtype=np.uint64)
    np.bitwise_or.at(covers, group, masks)
    return group.astype(np.min_scalar_type(len(covers)))[member.ravel()], covers


def compact_ids(ids: NDArray[np.int64]) -> tuple[np.int64, NDArray[Any]]:
    """Return the smallest id and the offsets from it: none for consecutive ids, 4 bytes each where they fit."""
    first = ids.min()
    if int(ids.max()) - int(first) >= 2**63:  # too far apart for an offset
        return np.int64(0), ids
    offsets = ids - first
    if np.array_equal(offsets, np.arange(len(ids))):
        return first, np.empty(0, dtype=np.uint32)
    return first, offsets.astype(np.uint32) if offsets.max() < 2**32 else offsets


def smallest_unsigned(weights: NDArray[Any]) -> NDArray[Any]:
    """Return integer weights in the smallest of uint8, uint16, uint32 that holds them; floats as they are."""
    if weights.dtype.kind == "f":
        return weights
    return weights.astype(np.min_scalar_type(weights.max(initial=0)), copy=False)


def coarse_step(peak: float, n_bits: int) -> float:
    """Return what one unit of a coarse weight is worth: 255 are the most, or what 16 bits allow times `n_bits`."""
    return float(peak) / min(255, 32767 // n_bits) if peak > 0 else 1.0


def coarse_weights(weights: NDArray[Any], n_bits: int) -> NDArray[np.uint8]:
    """Return weights as bytes for sketches, or none where they are such themselves."""
    peak = float(weights.max(initial=0))
    if needs_no_coarse(weights, peak, n_bits):
        return np.empty(0, dtype=np.uint8)
    return np.rint(weights.astype(np.float64) / coarse_step(peak, n_bits)).astype(np.uint8)


def needs_no_coarse(weights: NDArray[Any], peak: float, n_bits: int) -> bool:
    """Tell whether sketches can take the weights themselves, the largest of which is `peak`."""
    return weights.dtype == np.uint8 and peak * n_bits <= 32767


@dataclass(frozen=True, eq=False)
class Segment:
    """Grouped items: `tables` for the kernels, and `shards` that own the codes."""

    n_bits: int
    shards: tuple[faiss.IndexBinaryFlat, ...]
    tables: Tables
    _records: tuple[NDArray[Any], NDArray[Any]] = field(init=False)
    _addresses: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        records = handle(self.tables), handle(self.tables, by_row=True)  # at once: threads must see the same ones
        object.__setattr__(self, "_records", records)
        object.__setattr__(self, "_addresses", tuple(int(record.ctypes.data) for record in records))

    @classmethod
    def build(cls, rows: Rows, n_bits: int, clustered: bool = True) -> Segment:
        """Group and store `rows`, at least one; O(n log n), and if `clustered` a k-means where there are many."""
        n_components = rows.words.shape[1]
        member, covers = assign_groups(component_sets(rows.weights))
        weights = smallest_unsigned(rows.weights)
        cells = arrange(rows.words, weights, n_bits, rows.ids, member, len(covers), clustered)
        member = member[cells.order]
        sizes = np.bincount(member, minlength=len(covers))
        has = (covers[:, None] >> np.arange(n_components, dtype=np.uint64)) & np.uint64(1) > 0
        filled = np.cumsum(has * sizes[:, None], axis=0)

        shards, columns = [], []
        peaks = np.zeros((n_components, len(cells.groups)), dtype=np.float32)
        filled_cells = np.diff(cells.starts) > 0
        for k in range(n_components):
            column = weights[cells.order, k]
            peaks[k, filled_cells] = np.maximum.reduceat(column, cells.starts[:-1][filled_cells])
            chosen = slice(None) if has[:, k].all() else has[member, k]
            shards.append(make_shard(rows.words[cells.order[chosen], k]))
            columns.append(column[chosen])
        stored = np.concatenate(columns)
        bias: NDArray[Any] = np.empty(0, dtype=np.float32 if weights.dtype.kind == "f" else np.int32)
        bias_peaks = np.zeros(len(cells.groups))
        if rows.bias is not None:
            bias = rows.bias[cells.order]
            bias_peaks[filled_cells] = np.maximum.reduceat(bias, cells.starts[:-1][filled_cells])
        first_id, id_offsets = compact_ids(rows.ids[cells.order])
        return cls.assemble(
            n_bits, tuple(shards), starts=np.concatenate(([0], np.cumsum(sizes))),
            slots=np.where(has, filled - sizes[:, None], -1), weights=stored, bias=bias,
            first_id=first_id, id_offsets=id_offsets, cell_groups=cells.groups, cell_starts=cells.starts,
            block_starts=cells.block_starts, centres=cells.centres, radii=cells.radii, peaks=peaks,
            bias_peaks=bias_peaks, coarse=coarse_weights(stored, n_bits),
        )  # fmt: skip

    @classmethod
    def assemble(cls, n_bits: int, shards: tuple[faiss.IndexBinaryFlat, ...], **arrays: Any) -> Segment:
        """Put a segment together from its shards and the other arrays of its tables."""
        addresses = np.array([int(shard.xb.data()) if shard.ntotal else 0 for shard in shards], dtype=np.int64)
        bases = np.concatenate(([0], np.cumsum([shard.ntotal for shard in shards]))).astype(np.int64)
        ceilings = arrays["peaks"].max(axis=1).astype(np.float64)
        step, slip = 1.0, 0.0
        if arrays["coarse"].size:
            step, slip = coarse_step(ceilings.max(), n_bits), 0.501
        else:
            arrays["coarse"] = arrays["weights"]
        tables = Tables(shards=addresses, bases=bases, step=step, slip=slip, ceilings=ceilings / step + slip, **arrays)
        for array in tables:
            if isinstance(array, np.ndarray):
                array.flags.writeable = False  # as they are in a mapped file: one compiled kernel serves both
        return cls(n_bits, shards, tables)

    def __len__(self) -> int:
        return self._length

    @cached_property
    def _length(self) -> int:
        return int(self.tables.starts[-1])

    @property
    def n_components(self) -> int:
        """G."""
        return len(self.shards)

    @property
    def ids(self) -> NDArray[np.int64]:
        """The ids in the order of the rows, int64 (n,)."""
        return self.decode_ids(np.arange(len(self)))

    @property
    def handle(self) -> int:
        """The address of the record by which the kernels know the tables."""
        return self._addresses[0]

    @property
    def row_handle(self) -> int:
        """The same for a search that finds rows instead of ids."""
        return self._addresses[1]

    @cached_property
    def weight_type(self) -> NDArray[Any]:
        """An empty array of the type of weights."""
        return self.tables.weights[:0]

    @cached_property
    def order(self) -> NDArray[Any]:
        """The rows by ascending id, unsigned (n,): made when an id is first looked up."""
        return np.argsort(self.ids).astype(np.min_scalar_type(len(self)))

    @cached_property
    def peaks(self) -> NDArray[Any]:
        """The largest weight of each component (G,)."""
        return self.tables.peaks.max(axis=1).astype(np.float64)

    @property
    def nbytes(self) -> int:
        """Bytes of codes, weights, ids and tables."""
        arrays = [a for a in self.tables if isinstance(a, np.ndarray)]
        distinct = {array.ctypes.data: array.nbytes for array in arrays if array.size}
        return sum(s.ntotal * s.code_size for s in self.shards) + sum(distinct.values())

    def stored(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that `assemble` takes, for a file."""
        derived = {"shards", "bases", "first_id", "step", "slip", "ceilings"}
        arrays = {name: array for name, array in self.tables._asdict().items() if name not in derived}
        if arrays["coarse"] is self.tables.weights:
            arrays["coarse"] = np.empty(0, dtype=np.uint8)
        return arrays

    def find(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each id, or -1."""
        rows = np.empty(len(ids), dtype=np.int64)
        search.find_rows(self.handle, ids, self.order, rows)
        return rows

    def decode(self, which: NDArray[Any]) -> Rows:
        """Return the items of the given rows."""
        t = self.tables
        dtype, n_words = word_layout(self.n_bits)
        group = np.searchsorted(t.starts, which, side="right") - 1
        words = np.zeros((len(which), self.n_components, n_words), dtype=dtype)
        weights = np.zeros((len(which), self.n_components), dtype=t.weights.dtype)
        for k, shard in enumerate(self.shards):
            slot = t.slots[group, k]
            has = slot >= 0
            place = (slot + which - t.starts[group])[has]
            if len(place):
                words[has, k] = shard_words(shard, dtype, n_words)[place]
                weights[has, k] = t.weights[t.bases[k] + place]
        bias = t.bias[which] if t.bias.size else None
        return Rows(words, weights, bias, self.decode_ids(which))

    def decode_ids(self, which: NDArray[Any]) -> NDArray[np.int64]:
        """Return the ids of the given rows."""
        offsets = self.tables.id_offsets
        return (offsets[which] if offsets.size else which).astype(np.int64) + self.tables.first_id

    def shifted(self, add_id: int) -> Segment:
        """Return the same items with `add_id` added to their ids, sharing all memory."""
        return replace(self, tables=self.tables._replace(first_id=self.tables.first_id + np.int64(add_id)))


def make_shard(words: NDArray[Any]) -> faiss.IndexBinaryFlat:
    """Return a faiss index that owns a copy of the codes (n, W)."""
    octets = np.ascontiguousarray(words).view(np.uint8)
    shard = faiss.IndexBinaryFlat(8 * octets.shape[1])
    shard.add(octets)
    return shard


def shard_words(shard: faiss.IndexBinaryFlat, dtype: np.dtype, n_words: int) -> NDArray[Any]:
    """Return a view (n, W) of a shard's codes, without a copy."""
    octets = faiss.rev_swig_ptr(shard.xb.data(), shard.ntotal * shard.code_size)
    return octets.view(dtype).reshape(shard.ntotal, n_words)
