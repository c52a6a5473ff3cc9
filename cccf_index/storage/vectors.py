"""Full vectors of items, or of some of them, by id: float32, float16, or 8 bits with a scale for each vector.

A store is immutable: a writer makes a new one and swaps it in, a reader keeps the one it started with. Stores share
their rows, which are never overwritten: new vectors are written behind the last row that any store knows.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cccf_index import _check, _threads
from cccf_index.kernels.refinement import FLOAT16, FLOAT32, INT8, VECTOR_RECORD
from cccf_index.storage.container import require
from cccf_index.storage.id_map import IdMap
from cccf_index.storage.state import MAX_DEAD

TYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "int8": np.dtype(np.int8),
}
KINDS = {"float32": FLOAT32, "float16": FLOAT16, "int8": INT8}
LEVELS = 127  # 8-bit values are -LEVELS to LEVELS
CHUNK = 4096  # rows that are converted at a time
ALIGN = 64  # bytes of a cache line: rows begin at one, where their size allows it
GROWTH, FIRST_ROWS = 1.5, 64  # of the room for new rows


@dataclass(frozen=True, eq=False)
class Rows:
    """Vectors as they are stored."""

    values: NDArray[Any]  # (n, d) of a type of TYPES
    scales: NDArray[np.float32]  # (n,): of 8-bit values; empty for floats

    def select(self, rows: Any) -> Rows:
        """Return some of the rows."""
        return Rows(self.values[rows], self.scales[rows] if len(self.scales) else self.scales)

    def decode(self) -> NDArray[np.float32]:
        """Return the vectors as float32 (n, d)."""
        if self.values.dtype == np.int8:
            return self.values.astype(np.float32) * self.scales[:, None]
        return self.values.astype(np.float32)

    def write(self, start: int, other: Rows) -> None:
        """Put other rows into those from `start` on."""
        stop = start + len(other.values)
        self.values[start:stop] = other.values
        if len(self.scales):
            self.scales[start:stop] = other.scales


def _allocate(n: int, d: int, storage: str) -> Rows:
    """Return room for n rows that begin at cache lines, where their size allows it."""
    size = n * d * TYPES[storage].itemsize
    memory = np.empty(size + ALIGN, dtype=np.uint8)
    memory = memory[-memory.ctypes.data % ALIGN :][:size]
    scales = np.empty(n if storage == "int8" else 0, dtype=np.float32)
    return Rows(memory.view(TYPES[storage]).reshape(n, d), scales)


def encode(x: NDArray[Any], storage: str, name: str) -> Rows:
    """Return vectors as they are stored; values that are not finite or do not fit are refused."""
    rows = _allocate(len(x), x.shape[1], storage)
    limit = float(np.finfo(np.float16).max if storage == "float16" else np.float32(_check.MAX_FLOAT))
    for start in range(0, len(x), CHUNK):
        chunk = np.asarray(x[start : start + CHUNK], dtype=np.float64)
        wrong = ~(np.abs(chunk) <= limit)  # NaN and infinity too
        if wrong.any():
            row, column = (int(i) for i in np.argwhere(wrong)[0])
            raise ValueError(
                f"`{name}` must be finite and at most {limit:g} in size, got {chunk[row, column]:g} at position "
                f"{(start + row, column)}."
            )
        rows.write(start, _round(chunk) if storage == "int8" else Rows(chunk, rows.scales))
    return rows


# The scale has the least squared error for the rounded values: <x, q> / <q, q>.
def _round(x: NDArray[np.float64]) -> Rows:
    steps = np.abs(x).max(axis=1, keepdims=True) / LEVELS
    values = np.rint(np.divide(x, steps, out=np.zeros_like(x), where=steps > 0))
    squares = np.square(values).sum(axis=1)
    scales = (x * values).sum(axis=1) / np.maximum(squares, 1)
    return Rows(values.astype(np.int8), scales.astype(np.float32))


class _Tail:
    """Room for new rows, which stores share; each knows how many of them are its own."""

    def __init__(self, rows: Rows, filled: int) -> None:
        self.rows, self.filled = rows, filled
        self._lock = _threads.Lock()

    def append(self, n: int, new: Rows) -> _Tail:
        """Write new rows behind the first n; return where they are: elsewhere if others are in the way."""
        end = n + len(new.values)
        with self._lock:
            is_free = self.filled == n and end <= len(self.rows.values)
            if is_free:
                self.filled = end  # whatever happens now, no other store will write there
        tail = self
        if not is_free:
            d, storage = new.values.shape[1], new.values.dtype.name
            tail = _Tail(_allocate(max(end, int(GROWTH * n), FIRST_ROWS), d, storage), end)
            tail.rows.write(0, self.rows.select(slice(n)))
        tail.rows.write(n, new)
        return tail


@dataclass(frozen=True, eq=False)
class VectorStore:
    """Vectors by id. The first rows are those it was built of, maybe in a mapped file; others came later."""

    storage: str
    base: Rows
    tail: _Tail
    id_map: IdMap

    @classmethod
    def build(
        cls, vectors: ArrayLike, ids: NDArray[np.int64] | None, storage: str | None, name: str = "item_vectors"
    ) -> VectorStore:
        """Return a store of vectors (n, d); floats that need no conversion are not copied.

        ids: int64 (n,), unique; None for 0, 1, ...; storage: one of TYPES; None for that of the vectors.
        """
        array = _check.numbers(vectors, name)
        if array.ndim != 2 or not array.shape[1]:
            raise ValueError(f"`{name}` must be of shape (n, d), got {array.shape}.")
        if storage is None:
            storage = array.dtype.name
            if storage not in ("float32", "float16"):
                raise TypeError(
                    f"`{name}` must be float32 or float16, got {array.dtype}. Convert them once, or pass `storage`."
                )
        _check.choice(storage, "storage", tuple(TYPES))
        is_same = array.dtype == TYPES[storage] and array.dtype.kind == "f"
        none = np.empty(0, dtype=np.float32)
        base = Rows(np.require(array, requirements=["C", "ALIGNED"]), none) if is_same else encode(array, storage, name)
        return cls._of_rows(storage, base, IdMap(len(array)) if ids is None else IdMap.build(ids))

    @classmethod
    def build_for(
        cls, known: NDArray[np.int64], vectors: NDArray[Any], ids: Any, storage: str | None = None
    ) -> VectorStore:
        """Return a store of `vectors` (n, d) with `ids`, which must hold a vector for each of the `known` ids."""
        keys = None if ids is None else _check.unique(_check.ids(ids, "ids", len(vectors)), "ids")
        store = cls.build(vectors, keys, storage)
        missing = known[store.find(known) < 0]
        if len(missing):
            raise ValueError(
                "`item_vectors` must hold a vector for each item of the index, but there is none for id "
                f"{missing[0]}. Pass `ids`."
            )
        return store

    @classmethod
    def _of_rows(cls, storage: str, base: Rows, id_map: IdMap) -> VectorStore:
        return cls(storage, base, _Tail(_allocate(0, base.values.shape[1], storage), 0), id_map)

    def __len__(self) -> int:
        return len(self.id_map)

    @property
    def d(self) -> int:
        """The dimension of vectors."""
        return int(self.base.values.shape[1])

    @property
    def row_nbytes(self) -> int:
        """Bytes of one vector."""
        return self.d * TYPES[self.storage].itemsize + (4 if self.storage == "int8" else 0)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows and of the table of ids, in memory or on disk."""
        return self.id_map.n_rows * self.row_nbytes + self.id_map.nbytes

    @property
    def is_mapped(self) -> bool:
        """Whether the first rows are in a mapped file."""
        owner: Any = self.base.values
        while isinstance(owner, np.ndarray):
            if isinstance(owner, np.memmap):
                return True
            owner = owner.base
        return isinstance(owner, mmap.mmap)

    @property
    def address(self) -> int:
        """The address of a VECTOR_RECORD, which is valid as long as the store is."""
        made = self.__dict__.get("_made")
        if made is None:  # several threads may make one, and all take the first that is kept
            made = self.__dict__.setdefault("_made", self._make_record())
        return int(made[0])

    def _make_record(self) -> tuple[int, NDArray[Any], dict[str, NDArray[Any] | None]]:
        """Return the address of a new record, and what must live as long as it does."""
        record = np.zeros(1, dtype=VECTOR_RECORD)
        directory, shift = self.id_map.directory
        arrays = {
            "base": self.base.values,
            "base_scales": self.base.scales,
            "tail": self.tail.rows.values,
            "tail_scales": self.tail.rows.scales,
            "ids": self.id_map.ids,
            "rows": self.id_map.rows,
            "directory": directory,
        }
        for name, array in arrays.items():
            record[name] = array.ctypes.data if array is not None and array.size else 0
        record["kind"], record["d"], record["shift"] = KINDS[self.storage], self.d, shift
        record["row_size"] = self.d * TYPES[self.storage].itemsize
        record["n_base"], record["n_ids"] = len(self.base.values), len(self.id_map)
        record["n_rows"] = self.id_map.n_rows if len(self.id_map) else 0
        return int(record.ctypes.data), record, arrays

    def find(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each id, or -1."""
        return self.id_map.find(ids)

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """Return a copy of rows as they are stored."""
        n_base = len(self.base.values)
        taken = _allocate(len(rows), self.d, self.storage)
        for source, first, places in (
            (self.base, 0, np.flatnonzero(rows < n_base)),
            (self.tail.rows, n_base, np.flatnonzero(rows >= n_base)),
        ):
            if len(places):
                found = source.select(rows[places] - first)
                taken.values[places] = found.values
                if len(taken.scales):
                    taken.scales[places] = found.scales
        return taken

    def decode(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vectors of known ids, float32 (n, d)."""
        return self.take(self.find(ids)).decode()

    def encode(self, x: NDArray[np.float32], name: str = "x") -> Rows:
        """Return vectors as this store keeps them."""
        return encode(x, self.storage, name)

    def put(self, ids: NDArray[np.int64], new: Rows) -> VectorStore:
        """Return the store with the vectors of these unique ids added or replaced."""
        if not len(ids):
            return self
        tail = self.tail.append(self.id_map.n_rows - len(self.base.values), new)
        return replace(self, tail=tail, id_map=self.id_map.append(ids))._tidy()

    def remove(self, ids: NDArray[np.int64]) -> VectorStore:
        """Return the store without these ids; unknown ones are ignored."""
        return replace(self, id_map=self.id_map.remove(ids))._tidy()

    def clear(self) -> VectorStore:
        """Return an empty store."""
        return self._of_rows(self.storage, _allocate(0, self.d, self.storage), IdMap(0))

    def _tidy(self) -> VectorStore:
        """Drop unused rows if they are many; those of a mapped file stay where they are, on disk."""
        n_rows, n_base = self.id_map.n_rows, len(self.base.values)
        if n_rows - len(self) <= MAX_DEAD * n_rows:
            return self
        if not self.is_mapped:
            ids = self.id_map.list_ids()
            return self._of_rows(self.storage, self.take(self.find(ids)), IdMap.build(ids))
        ids, rows = self.id_map.list_ids(), self.id_map.list_rows().astype(np.int64)
        late = rows >= n_base
        if n_rows - n_base - late.sum() <= MAX_DEAD * (n_rows - n_base):
            return self
        tail = _Tail(self.take(rows[late]), int(late.sum()))
        rows[late] = n_base + np.arange(late.sum())
        return replace(self, tail=tail, id_map=IdMap(n_base + tail.filled, ids, rows.astype(np.uint32)))

    def collect_arrays(self, ids: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return the arrays of a file with the vectors of these ascending ids, all of them known."""
        is_plain = len(ids) == 0 or (ids[0] == 0 and ids[-1] == len(ids) - 1)
        is_whole = is_plain and self.id_map.is_plain and len(self.base.values) == len(ids) == self.id_map.n_rows
        rows = self.base if is_whole else self.take(self.find(ids))
        own: dict[str, NDArray[Any]] = {"values": rows.values}
        if self.storage == "int8":
            own["scales"] = rows.scales
        return own if is_plain else {**own, "ids": ids}

    @classmethod
    def restore(cls, storage: str, arrays: dict[str, NDArray[Any]], n: int) -> VectorStore:
        """Return the store of n vectors that `collect_arrays` wrote; what does not fit is a ValueError."""
        values = arrays["values"]
        require(storage in TYPES and values.dtype == TYPES[storage], "vectors")
        require(values.ndim == 2 and values.shape[1] and len(values) == n, "vectors")
        scales = arrays["scales"] if storage == "int8" else np.empty(0, dtype=np.float32)
        require(scales.dtype == np.float32 and scales.shape == (n if storage == "int8" else 0,), "scales")
        ids = arrays.get("ids")
        require(ids is None or (ids.dtype == np.int64 and ids.shape == (n,)), "ids of vectors")
        return cls._of_rows(storage, Rows(values, scales), IdMap(n, ids))

    def verify(self, ids: NDArray[np.int64]) -> None:
        """Raise a ValueError unless a store from a file holds vectors of these ascending ids, with finite scales."""
        require(np.array_equal(self.id_map.list_ids(), ids), "ids of vectors")
        require((np.abs(self.base.scales) <= _check.MAX_FLOAT).all(), "scales")
