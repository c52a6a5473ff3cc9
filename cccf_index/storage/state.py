"""The items of an index at one moment: immutable segments, deletion masks, and batches not yet grouped.

A writer makes a new `State` and swaps it in; a reader keeps the one it started with.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index import _check
from cccf_index.storage.item_rows import ItemRows
from cccf_index.storage.segment import NO_METRIC, Segment

FANOUT = 8  # this many parts of like size become one: an item is moved at most log8(n) times
MAX_PENDING = 65536  # rows added in small batches wait for each other, or for the next reader
MAX_BATCHES = 1024
MAX_DEAD = 0.25  # a part with a larger share of deleted rows is rebuilt
NO_BITS = np.empty(0, dtype=np.uint8)
NO_BITS.flags.writeable = False


@dataclass(frozen=True, eq=False)
class Part:
    """A segment and the rows of it that are deleted."""

    segment: Segment
    dead: NDArray[np.uint8] = field(default_factory=lambda: NO_BITS)  # bit i for row i; empty when no row is
    n_dead: int = 0

    def __len__(self) -> int:
        return len(self.segment) - self.n_dead

    @property
    def dead_mask(self) -> NDArray[np.bool_]:
        """The deleted rows as booleans (n,)."""
        if not self.n_dead:
            return np.zeros(len(self.segment), dtype=bool)
        return np.unpackbits(self.dead, count=len(self.segment), bitorder="little").view(bool)

    def rows(self) -> ItemRows:
        """Return the items that are not deleted."""
        return self.segment.decode(np.flatnonzero(~self.dead_mask))

    def find(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each id, or -1 where it is unknown or deleted."""
        rows = self.segment.find(ids)
        if self.n_dead:
            rows[(self.dead[rows >> 3] >> (rows & 7)) & 1 > 0] = -1
        return rows

    def select(self, rows: NDArray[np.int64], clustered: bool = True) -> Part:
        """Return a new part with only these rows, at least one."""
        segment = self.segment
        return Part(Segment.build(segment.decode(rows), segment.n_bits, segment.tables.dense_metric, clustered))

    def mask(self, alive: NDArray[np.bool_]) -> Part:
        """Return the part with only the `alive` rows, none of which may be deleted already."""
        dead = np.packbits(~alive, bitorder="little")
        dead.flags.writeable = False
        return Part(self.segment, dead, len(alive) - int(np.count_nonzero(alive)))

    def remove(self, rows: NDArray[np.int64]) -> Part | None:
        """Return the part with these rows deleted too, None when nothing is left."""
        alive = ~self.dead_mask
        alive[rows] = False
        left = np.flatnonzero(alive)
        if not len(left):
            return None
        return self.select(left) if len(left) < (1 - MAX_DEAD) * len(alive) else self.mask(alive)

    def shift_ids(self, add_id: int) -> Part:
        """Return the part with `add_id` added to its ids."""
        if self.n_dead and int(self.segment.ids.max()) + add_id > _check.MAX_ID:  # a deleted id may lie beyond
            return self.select(np.flatnonzero(~self.dead_mask)).shift_ids(add_id)
        return replace(self, segment=self.segment.shift_ids(add_id))


class PartTable(NamedTuple):
    """Parts as kernels take them; it is valid as long as they are."""

    parts: NDArray[np.int64]  # (parts, 2): the address of the segment's record, and that of the deleted bits or 0
    n_cells: int  # of the part that has most
    n_rows: int

    @classmethod
    def describe(cls, parts: tuple[Part, ...]) -> PartTable:
        """Return the table of some parts."""
        rows = [(part.segment.address, part.dead.ctypes.data if part.n_dead else 0) for part in parts]
        n_cells = max((part.segment.n_cells for part in parts), default=0)
        n_rows = max((len(part.segment) for part in parts), default=0)
        return cls(np.array(rows, dtype=np.int64).reshape(-1, 2), n_cells, n_rows)


@dataclass(frozen=True, eq=False)
class State:
    """All items of an index; every method returns a new state."""

    parts: tuple[Part, ...] = ()
    pending: tuple[ItemRows, ...] = ()
    n_pending: int = 0
    ntotal: int = 0
    next_id: int = 0
    scale: float | None = None  # what item weights were multiplied by; None: not known yet, or float weights
    quantizer: Any = None  # the CompositionalQuantizer of an index of vectors
    # (dimensions of the dense component of codes,), see `SegmentTables`
    metric: NDArray[np.float32] = field(default_factory=lambda: NO_METRIC)

    @property
    def divisor(self) -> float:
        """What integer weights are divided by to get them back; 1 where they are floats, or all zero."""
        return self.scale or 1.0

    @cached_property
    def has_bias(self) -> bool:
        """Whether any item has a bias."""
        return any(part.segment.tables.bias.size for part in self.parts)

    @cached_property
    def knows_most_used(self) -> bool:
        """Whether any rows have longer codes than others, as the most used items have."""
        return any(part.segment.tables.binary_stop < part.segment.n_cells for part in self.parts)

    @cached_property
    def table(self) -> PartTable:
        """The parts as kernels take them."""
        return PartTable.describe(self.parts)

    @property
    def n_dense(self) -> int:
        """The dimensions of the dense component of codes."""
        return len(self.metric)

    def add(self, rows: ItemRows) -> State:
        """Add a checked batch to the pending ones."""
        return replace(
            self,
            pending=self.pending + (rows,),
            n_pending=self.n_pending + len(rows),
            ntotal=self.ntotal + len(rows),
            next_id=max(self.next_id, int(rows.ids.max()) + 1),
        )

    def is_due(self) -> bool:
        """Whether the pending batches are worth a segment."""
        return self.n_pending >= MAX_PENDING or len(self.pending) >= MAX_BATCHES

    def seal(self, n_bits: int) -> State:
        """Group the pending batches into a segment, and merge parts of like size."""
        if not self.pending:
            return self
        new = Part(Segment.build(ItemRows.concatenate(list(self.pending)), n_bits, self.metric))
        return replace(self, parts=merge_alike(self.parts + (new,)), pending=(), n_pending=0)

    def find(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the part and the row of each id, -1 where it is in no part (though it may be pending)."""
        part_of = np.full(len(ids), -1, dtype=np.int64)
        row_of = np.full(len(ids), -1, dtype=np.int64)
        for number, part in enumerate(self.parts):
            rows = part.find(ids)
            part_of[rows >= 0] = number
            row_of[rows >= 0] = rows[rows >= 0]
        return part_of, row_of

    def remove(self, part_of: NDArray[np.int64], row_of: NDArray[np.int64]) -> State:
        """Delete rows found by `find`."""
        parts = []
        for number, part in enumerate(self.parts):
            rows = row_of[part_of == number]
            left = part.remove(rows) if len(rows) else part
            if left is not None:
                parts.append(left)
        return replace(self, parts=merge_alike(tuple(parts)), ntotal=sum(map(len, parts)))

    def merge(self, other: State, add_id: int, largest: int) -> State:
        """Take over the parts of another state, with `add_id` added to their ids, which end at `largest`."""
        moved = tuple(part.shift_ids(add_id) for part in other.parts)
        return replace(
            self,
            parts=merge_alike(self.parts + moved),
            ntotal=self.ntotal + other.ntotal,
            next_id=max(self.next_id, largest + 1),
            scale=other.scale if self.scale is None else self.scale,
        )

    def find_items(self, ids: NDArray[np.int64]) -> ItemRows | None:
        """Return the items with these ids in their order, or None if any is unknown. Nothing may be pending."""
        part_of, row_of = self.find(ids)
        if (part_of < 0).any():
            return None
        pieces, places = [], []
        for number, part in enumerate(self.parts):
            place = np.flatnonzero(part_of == number)
            if len(place):
                pieces.append(part.segment.decode(row_of[place]))
                places.append(place)
        return ItemRows.concatenate(pieces).select(np.argsort(np.concatenate(places)))

    def ids(self) -> NDArray[np.int64]:
        """Return all ids in ascending order. Nothing may be pending."""
        found = [part.segment.ids[~part.dead_mask] for part in self.parts]
        return np.sort(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)


def merge_alike(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Merge parts of like size (the same power of `FANOUT`) until fewer than `FANOUT` of each remain."""
    levels: dict[int, list[Part]] = {}
    for part in parts:
        levels.setdefault(_level(part), []).append(part)
    crowded = next((alike for alike in levels.values() if len(alike) >= FANOUT), None)
    if crowded is None:
        return parts
    rows = ItemRows.concatenate([part.rows() for part in crowded])
    metric = max((part.segment.tables.dense_metric for part in crowded), key=len)
    merged = Part(Segment.build(rows, crowded[0].segment.n_bits, metric))
    return merge_alike(tuple(part for part in parts if part not in crowded) + (merged,))


def _level(part: Part) -> int:
    return (len(part).bit_length() - 1) // (FANOUT.bit_length() - 1)
