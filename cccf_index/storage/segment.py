"""A segment: an immutable run of items, grouped by their non-zero components, as the kernels scan it.

Items with the same set of active components stand together, in cells. The codes of component k of all groups that have
it are one `faiss.IndexBinaryFlat` shard; its weights stand in the same order. So do the values and weights of the dense
component.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cccf_index.codes import word_layout
from cccf_index.kernels.layout import DENSE_NAMES, INTEGER_TYPES, SegmentTables, freeze, make_record
from cccf_index.kernels.limits import COARSE_ERROR, MAX_SHIFT
from cccf_index.kernels.lookup import find_rows
from cccf_index.storage.cells import arrange_cells
from cccf_index.storage.dense_tables import decode_dense, place_dense, store_dense
from cccf_index.storage.groups import Groups
from cccf_index.storage.item_rows import ItemRows, coarse_step, coarse_weights, compact_ids, shrink_weights

NO_METRIC = np.empty(0, dtype=np.float32)
NO_METRIC.flags.writeable = False


@dataclass(frozen=True, eq=False)
class Segment:
    """Grouped items: `tables` for the kernels, and `shards` that own the codes."""

    n_bits: int
    shards: tuple[faiss.IndexBinaryFlat, ...]
    tables: SegmentTables
    _records: tuple[NDArray[Any], NDArray[Any]] = field(init=False)
    _addresses: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        # made now, not when first needed: all threads must see the same ones
        records = make_record(self.tables), make_record(self.tables, by_row=True)
        object.__setattr__(self, "_records", records)
        object.__setattr__(self, "_addresses", tuple(int(record.ctypes.data) for record in records))

    @classmethod
    def build(
        cls, rows: ItemRows, n_bits: int, metric: NDArray[np.float32] = NO_METRIC, clustered: bool = True
    ) -> Segment:
        """Group and store `rows`, at least one; O(n log n), and if `clustered` a k-means where there are many.

        metric: (n_dense,), see `SegmentTables`.
        """
        n_components = rows.words.shape[1]
        member, covers, precisions = Groups.assign(rows)
        weights = shrink_weights(rows.weights)
        metric = metric if rows.n_dense else NO_METRIC
        cells = arrange_cells(rows, weights, n_bits, metric, member, len(covers), clustered)
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
            **store_dense(rows, cells, member, precisions, weights.dtype, metric),
        )  # fmt: skip

    @classmethod
    def assemble(cls, n_bits: int, shards: tuple[faiss.IndexBinaryFlat, ...], **arrays: Any) -> Segment:
        """Put a segment together from its shards and the other arrays of its tables."""
        addresses = np.array([int(shard.xb.data()) if shard.ntotal else 0 for shard in shards], dtype=np.int64)
        bases = np.concatenate(([0], np.cumsum([shard.ntotal for shard in shards]))).astype(np.int64)
        ceilings = arrays["peaks"].max(axis=1).astype(np.float64)
        step, slip = 1.0, 0.0
        if arrays["coarse"].size:
            step, slip = coarse_step(ceilings.max(), n_bits), COARSE_ERROR
        else:
            arrays["coarse"] = arrays["weights"]
        derived = {
            "shards": addresses, "bases": bases, "step": step, "slip": slip, "ceilings": ceilings / step + slip,
            "centre_sizes": measure_centres(arrays["centres"][: len(shards) * n_bits], n_bits),
        }  # fmt: skip
        derived["shifts"] = find_shifts(n_bits, step, slip, derived["centre_sizes"], arrays)
        derived |= place_dense(len(shards) * n_bits, arrays)
        derived |= pack_centres(arrays.pop("centres"), find_dimensions(n_bits, arrays), arrays["cell_groups"])
        tables = SegmentTables(**derived, **arrays)
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
    def n_cells(self) -> int:
        """How many cells its rows are in."""
        return len(self.tables.cell_groups)

    @property
    def n_components(self) -> int:
        """G."""
        return len(self.shards)

    @property
    def ids(self) -> NDArray[np.int64]:
        """The ids in the order of the rows, int64 (n,)."""
        return self.decode_ids(np.arange(len(self)))

    @property
    def address(self) -> int:
        """The address of the record from which the kernels read the tables."""
        return self._addresses[0]

    @property
    def row_address(self) -> int:
        """The same for a search that finds rows instead of ids."""
        return self._addresses[1]

    @cached_property
    def order(self) -> NDArray[Any]:
        """The rows by ascending id, unsigned (n,): made when an id is first looked up."""
        return np.argsort(self.ids).astype(np.min_scalar_type(len(self)))

    @cached_property
    def largest_weights(self) -> NDArray[Any]:
        """The largest weight of each component (G,)."""
        return self.tables.peaks.max(axis=1).astype(np.float64)

    @property
    def nbytes(self) -> int:
        """Bytes of codes, weights, ids and tables."""
        arrays = [a for a in self.tables if isinstance(a, np.ndarray)]
        distinct = {array.ctypes.data: array.nbytes for array in arrays if array.size}
        return sum(s.ntotal * s.code_size for s in self.shards) + sum(distinct.values())

    def stored(self) -> dict[str, NDArray[Any]]:
        """Return by name the arrays that a file holds and `assemble` takes."""
        arrays = {name: getattr(self.tables, name) for name in INTEGER_TYPES} | {"centres": self.expand_centres()}
        if arrays["coarse"] is self.tables.weights:
            arrays["coarse"] = np.empty(0, dtype=np.uint8)
        return arrays if self.tables.n_dense else {n: a for n, a in arrays.items() if n not in DENSE_NAMES}

    def expand_centres(self) -> NDArray[np.float32]:
        """Return the centres of the cells, (G * r + dense dimensions, cells), the last in the metric."""
        t = self.tables
        has = find_dimensions(self.n_bits, t._asdict())
        has = has[t.cell_groups] & (np.diff(t.centre_starts) > 0)[:, None]
        centres = np.zeros(has.shape, np.float32)
        centres[has] = t.centres
        return np.ascontiguousarray(centres.T)

    def find(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each id, or -1."""
        rows = np.empty(len(ids), dtype=np.int64)
        find_rows(self.address, freeze(ids), freeze(self.order).view(np.uint8), self.order.itemsize, rows)
        return rows

    def decode(self, which: NDArray[Any]) -> ItemRows:
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
        return ItemRows(words, weights, bias, self.decode_ids(which), decode_dense(t, which, group))

    def decode_ids(self, which: NDArray[Any]) -> NDArray[np.int64]:
        """Return the ids of the given rows."""
        offsets = self.tables.id_offsets
        return (offsets[which] if offsets.size else which).astype(np.int64) + self.tables.first_id

    def shift_ids(self, add_id: int) -> Segment:
        """Return the same items with `add_id` added to their ids, sharing all memory."""
        return replace(self, tables=self.tables._replace(first_id=self.tables.first_id + np.int64(add_id)))


def find_dimensions(n_bits: int, tables: dict[str, Any]) -> NDArray[np.bool_]:
    """Return which dimensions each group has, (groups, G * r + dense dimensions)."""
    binary, dense = tables["slots"] >= 0, tables["precisions"].any(axis=1)
    return np.concatenate(
        [np.repeat(binary, n_bits, axis=1), np.repeat(dense[:, None], len(tables["dense_metric"]), axis=1)], axis=1
    )


def pack_centres(
    centres: NDArray[np.float32], has: NDArray[np.bool_], groups: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    """Return as tables what cells, whose groups are given, need of the centres (d, cells); has: (groups, d)."""
    kept = has[groups] & np.asarray(centres.any(axis=0))[:, None]
    starts = np.concatenate(([0], np.cumsum(kept.sum(axis=1)))).astype(np.int64)
    return {"centres": np.ascontiguousarray(centres.T)[kept], "centre_starts": starts}


def measure_centres(centres: NDArray[np.float32], n_bits: int) -> NDArray[np.float32]:
    """Return the length of each component of each centre (G * r, cells), divided by the root of r, (G, cells)."""
    components = centres.reshape(-1, n_bits, centres.shape[1]).astype(np.float64)
    return (np.sqrt(np.square(components).mean(axis=1)) * (1 + 1e-6)).astype(np.float32)


def find_shifts(
    n_bits: int, step: float, slip: float, centre_sizes: NDArray[np.float32], arrays: dict[str, NDArray[Any]]
) -> NDArray[np.uint8]:
    """Return for each block by which power of two its weights may be multiplied, so that sketches tell them apart.

    Most items of a catalogue have much smaller weights than the largest. No item of a block is farther from the centre
    than its radius, nor is any component of it.
    """
    blocks = np.diff(arrays["block_starts"])
    shifts = np.full(len(arrays["radii"]), MAX_SHIFT, dtype=np.uint8)
    for k, peaks in enumerate(arrays["peaks"].astype(np.float64)):
        if peaks.any():
            largest = np.repeat(centre_sizes[k], blocks) + arrays["radii"] * ((1 + 1e-6) / np.sqrt(n_bits))
            largest = np.maximum(np.minimum(largest, np.repeat(peaks, blocks)), peaks.max() / 2**MAX_SHIFT)
            ratio = (peaks.max() + slip * step) / (largest + slip * step)
            _, exponents = np.frexp(ratio)  # 2^exponent / 2 is no larger
            shifts = np.minimum(shifts, exponents - 1).astype(np.uint8)
    return shifts


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
