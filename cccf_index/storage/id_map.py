"""Which row of a growing array belongs to an id. Immutable: every method returns a new map."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

MAX_ROWS = 2**32 - 1  # rows of ids that are not their rows are kept as uint32


def _no_ids() -> NDArray[np.int64]:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class IdMap:
    """Ids and rows. Rows are numbered in the order in which they came; those of removed or replaced ids are unused."""

    n_rows: int  # used and unused
    ids: NDArray[np.int64] | None = None  # ascending; None: row i has id i, and the map needs no memory
    rows: NDArray[np.uint32] | None = None  # of each of the ids; None: 0, 1, ...
    holes: NDArray[np.int64] = field(default_factory=_no_ids)  # ascending: removed ids, while `ids` is None

    @classmethod
    def build(cls, ids: NDArray[np.int64]) -> IdMap:
        """Return the map of rows with these unique ids."""
        order = np.argsort(ids, kind="stable")
        rows = np.arange(len(ids))
        if np.array_equal(ids, rows):
            return cls(len(ids))
        return cls(len(ids), ids[order], None if np.array_equal(order, rows) else order.astype(np.uint32))

    def __len__(self) -> int:
        return self.n_rows - len(self.holes) if self.ids is None else len(self.ids)

    @property
    def is_plain(self) -> bool:
        """Whether the ids are 0, 1, ... and the rows too, none of them unused."""
        return self.ids is None and not len(self.holes)

    @property
    def nbytes(self) -> int:
        """Bytes of the tables."""
        if self.ids is None:
            return self.holes.nbytes
        return self.ids.nbytes + self.directory[0].nbytes + (0 if self.rows is None else self.rows.nbytes)

    @cached_property
    def directory(self) -> tuple[NDArray[np.uint32], int]:
        """Where ids begin whose distance from the first, shifted right, is 0, 1, ...; and the shift.

        There are about half as many distances as ids, so that a look-up in ids that are spread takes a step or two.
        """
        if self.ids is None or not len(self.ids):
            return np.zeros(1, dtype=np.uint32), 0
        first, reach = int(self.ids[0]), int(self.ids[-1]) - int(self.ids[0])
        shift = max(0, reach.bit_length() - len(self.ids).bit_length() + 1)
        distances = self.ids.view(np.uint64) - np.uint64(first % 2**64)  # modulo 2^64, as ids may be any int64
        distances >>= np.uint64(shift)
        starts = np.zeros((reach >> shift) + 2, dtype=np.int64)
        starts[1:] = np.bincount(distances.view(np.int64), minlength=len(starts) - 1)
        return np.cumsum(starts, out=starts).astype(np.uint32), shift

    def list_ids(self) -> NDArray[np.int64]:
        """Return all ids, ascending."""
        if self.ids is not None:
            return self.ids
        return np.delete(np.arange(self.n_rows), self.holes)

    def list_rows(self) -> NDArray[np.uint32]:
        """Return the row of each of the ids."""
        if self.rows is not None:
            return self.rows
        return (np.arange(len(self.ids)) if self.ids is not None else self.list_ids()).astype(np.uint32)

    def find(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each id, or -1."""
        if self.ids is None:
            found = np.where((wanted >= 0) & (wanted < self.n_rows), wanted, -1)
            return np.where(np.isin(wanted, self.holes), -1, found) if len(self.holes) else found
        if not len(self.ids):
            return np.full(len(wanted), -1)
        places = np.minimum(np.searchsorted(self.ids, wanted), len(self.ids) - 1)
        rows = places if self.rows is None else self.rows[places].astype(np.int64)
        return np.where(self.ids[places] == wanted, rows, -1)

    def append(self, ids: NDArray[np.int64]) -> IdMap:
        """Give new rows to these unique ids, those that have a row already too."""
        n = self.n_rows + len(ids)
        if self.ids is None and np.array_equal(ids, np.arange(self.n_rows, n)):
            return replace(self, n_rows=n)
        if n > MAX_ROWS:
            raise ValueError(f"An index keeps at most {MAX_ROWS} vectors whose ids are not 0, 1, ...")
        left = self.remove(ids)
        known, rows = left.list_ids(), left.list_rows()
        order = np.argsort(ids, kind="stable")
        places = np.searchsorted(known, ids[order])
        new_rows = (self.n_rows + order).astype(np.uint32)
        return IdMap(n, np.insert(known, places, ids[order]), np.insert(rows, places, new_rows))

    def remove(self, ids: NDArray[np.int64]) -> IdMap:
        """Forget these ids; unknown ones are ignored."""
        known = ids[self.find(ids) >= 0]
        if not len(known):
            return self
        if self.ids is None:
            return replace(self, holes=np.union1d(self.holes, known))
        gone = np.searchsorted(self.ids, known)
        return IdMap(self.n_rows, np.delete(self.ids, gone), np.delete(self.list_rows(), gone))
