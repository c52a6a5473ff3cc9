"""The half of `IndexRefineCCCF` that holds items: codes and vectors, which change together, from any thread."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, TypeVar

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cccf_index import _check, _threads
from cccf_index.codes import CompositionalCodes
from cccf_index.index import IndexCCCF
from cccf_index.storage.selectors import list_ids, select_members
from cccf_index.storage.vectors import Rows, VectorStore

Items = TypeVar("Items", bound="RefinedItems")


@dataclass(frozen=True, eq=False)
class Halves:
    """Codes and vectors at one moment. A writer makes a new pair and swaps it in: nobody sees one without the other."""

    index: IndexCCCF  # changed only through a copy
    vectors: VectorStore


class RefinedItems:
    """The part of `IndexRefineCCCF` that does not search."""

    metric_type = faiss.METRIC_INNER_PRODUCT

    def __init__(self, index: IndexCCCF, vectors: VectorStore) -> None:
        self._halves = Halves(index, vectors)
        self._lock = _threads.Lock()

    @property
    def base_index(self) -> IndexCCCF:
        """The index that finds the items. Change items by the methods of the refined index, which keep them in step."""
        return self._halves.index

    @property
    def storage(self) -> str:
        """How vectors are stored: "float32", "float16" or "int8"."""
        return self._halves.vectors.storage

    @property
    def d(self) -> int:
        """The dimension of vectors."""
        return self._halves.vectors.d

    @property
    def is_trained(self) -> bool:
        """Whether items can be added."""
        return self.base_index.is_trained

    @property
    def ntotal(self) -> int:
        """The number of items."""
        return self.base_index.ntotal

    @property
    def ids(self) -> NDArray[np.int64]:
        """All ids in ascending order, int64 (ntotal,)."""
        return self.base_index.ids

    @property
    def nbytes(self) -> int:
        """Bytes of the index, of all vectors and of the table of their ids, in memory or on disk."""
        halves = self._halves
        return halves.index.nbytes + halves.vectors.nbytes

    def __len__(self) -> int:
        return self.ntotal

    def train(self, x: ArrayLike, queries: ArrayLike | None = None) -> None:
        """Learn how to encode vectors like those of `x`; see `IndexCCCF.train`."""
        index = copy.copy(self.base_index)
        if index._state.quantizer is None:
            _check.matrix(x, "x", self.d)
            return
        index.train(x, queries)
        with self._lock:
            self.base_index._refuse_training()
            self._halves = Halves(index, self._halves.vectors)

    def add(self, x: ArrayLike, *, codes: ArrayLike | CompositionalCodes | None = None) -> None:
        """Add items with consecutive ids that follow the largest id used so far.

        Parameters
        ----------
        x : array_like of float, shape (n, d)
            Their vectors, which an index of vectors also encodes.
        codes : CompositionalCodes or array_like of float, shape (n, base_index.d), optional
            Their codes, or expanded vectors of codes: an index of codes cannot make them of `x`.
        """
        vectors, items, quantizer = self._encode_items(x, codes)
        with self._lock:
            index, items = self.base_index, self._encode_again(quantizer, vectors[0], items, codes)
            first = index._state.next_id
            index = copy.copy(index)
            index.add(items)
            self._publish(index, np.arange(first, first + len(items)), vectors[1])

    def add_with_ids(
        self, x: ArrayLike, ids: ArrayLike, *, codes: ArrayLike | CompositionalCodes | None = None
    ) -> None:
        """Add items with the given ids, int64 (n,), unique and not in the index yet; see `add`."""
        vectors, items, quantizer = self._encode_items(x, codes)
        keys = _check.unique(_check.ids(ids, "ids", len(items)), "ids")
        with self._lock:
            index, items = self.base_index, self._encode_again(quantizer, vectors[0], items, codes)
            if (self._halves.vectors.find(keys) >= 0).any():  # else the index does not hold them either
                index._refuse_known(index._snapshot(), keys, "Use `update_vectors` to replace items.")
            state = index._add_to(index._state, items, None, keys)
            state = state.seal(index.n_bits) if state.is_due() else state
            self._publish(index._with_state(state), keys, vectors[1])

    def update_vectors(
        self, keys: ArrayLike, x: ArrayLike, *, codes: ArrayLike | CompositionalCodes | None = None
    ) -> None:
        """Replace the vectors, and so the codes, of the items with ids `keys`, (n,); see `add`."""
        vectors, items, quantizer = self._encode_items(x, codes)
        ids = _check.unique(_check.ids(keys, "keys", len(items)), "keys")
        with self._lock:
            index, items = self.base_index, self._encode_again(quantizer, vectors[0], items, codes)
            index._snapshot()
            index = copy.copy(index)
            index.update_vectors(ids, items)
            self._publish(index, ids, vectors[1])

    def remove_ids(self, x: ArrayLike | faiss.IDSelector) -> int:
        """Remove the items with these ids, or those that a faiss selector accepts; return how many were removed."""
        with self._lock:
            index, ids = self.base_index, list_ids(x, "x")
            if ids is None:
                ids = select_members(x, index.ids)
            index._snapshot()
            index = copy.copy(index)
            n = index.remove_ids(ids)
            self._halves = Halves(index, self._halves.vectors.remove(ids))
            return n

    def reset(self) -> None:
        """Remove all items; ids start at 0 again."""
        with self._lock:
            index = copy.copy(self.base_index)
            index.reset()
            self._halves = Halves(index, self._halves.vectors.clear())

    def merge_from(self, otherIndex: Any, add_id: int = 0) -> None:
        """Move all items of another refined index into this one, with `add_id` added to their ids; it becomes empty."""
        if not isinstance(otherIndex, RefinedItems):
            raise TypeError(f"`otherIndex` must be an IndexRefineCCCF, got {type(otherIndex).__name__}.")
        if otherIndex is self:
            raise ValueError("`otherIndex` must be another index, got this one.")
        first, second = sorted((self, otherIndex), key=id)  # always in one order: no deadlock
        with first._lock, second._lock:
            mine, other = self._halves.vectors, otherIndex._halves.vectors
            if (mine.storage, mine.d) != (other.storage, other.d):
                raise ValueError(
                    f"`otherIndex` must have vectors of {mine.storage} and {mine.d} dimensions, got {other.storage} "
                    f"and {other.d}. Add its `reconstruct_n()` instead."
                )
            ids = otherIndex.base_index.ids
            index, emptied = copy.copy(self.base_index), copy.copy(otherIndex.base_index)
            index.merge_from(emptied, add_id)
            self._publish(index, ids + add_id, other.take(other.find(ids)))
            otherIndex._halves = Halves(emptied, other.clear())

    def reconstruct(self, key: int, x: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the stored vector, float32 (d,), of the item with id `key`."""
        key = _check.integer(key, "key", _check.MIN_ID, _check.MAX_ID)
        vector = _check.output(x, "x", (self.d,), np.float32)
        vector[:] = self.reconstruct_batch(np.array([key]))[0]
        return vector

    def reconstruct_batch(self, key: ArrayLike, x: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the stored vectors, float32 (n, d), of the items with ids `key`, in their order."""
        return self._reconstruct(self._halves, _check.ids(key, "key"), x)

    def reconstruct_n(self, n0: int = 0, ni: int = -1, x: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the stored vectors of the items n0 to n0 + ni - 1 in the order of their ids; all for ni = -1."""
        halves = self._halves
        ids = halves.index.ids
        n0 = _check.integer(n0, "n0", 0, len(ids))
        ni = _check.integer(ni, "ni", -1, len(ids) - n0)
        return self._reconstruct(halves, ids[n0 : len(ids) if ni == -1 else n0 + ni], x)

    def _reconstruct(self, halves: Halves, ids: NDArray[np.int64], out: Any) -> NDArray[np.float32]:
        vectors = _check.output(out, "x", (len(ids), halves.vectors.d), np.float32)
        if len(ids):
            unknown = ids[halves.index._snapshot().find(ids)[0] < 0]
            if len(unknown):
                raise ValueError(f"`key` must be in the index, got {unknown[0]}, which is not. See `index.ids`.")
            vectors[:] = halves.vectors.decode(ids)
        return vectors

    def _encode_items(self, x: Any, codes: Any) -> tuple[tuple[NDArray[np.float32], Rows], CompositionalCodes, Any]:
        """Return items to add: vectors, also as they are stored, codes, and the quantizer that made these."""
        halves = self._halves
        if isinstance(x, CompositionalCodes):
            raise TypeError("`x` must be vectors, got CompositionalCodes. Pass vectors as `x`, and codes as `codes`.")
        vectors = _check.matrix(x, "x", halves.vectors.d)
        quantizer = halves.index._state.quantizer
        return (vectors, halves.vectors.encode(vectors)), self._make_codes(halves.index, vectors, codes), quantizer

    def _make_codes(self, index: IndexCCCF, vectors: NDArray[np.float32], codes: Any) -> CompositionalCodes:
        if codes is None:
            if index._state.quantizer is None:
                raise ValueError(
                    "`codes` must be given: the index holds codes, and cannot encode `x`. An index of vectors can, see "
                    "`IndexCCCF.from_embeddings`."
                )
            return index._encode_items(vectors, None)[0]
        if not isinstance(codes, CompositionalCodes):
            codes = CompositionalCodes.from_vectors(codes, index.n_components, index.n_bits)
        if len(codes) != len(vectors):
            raise ValueError(f"`codes` must be as many as `x`, {len(vectors)}, got {len(codes)}.")
        return index._check_codes(codes)

    def _encode_again(self, quantizer: Any, vectors: Any, items: CompositionalCodes, codes: Any) -> CompositionalCodes:
        """Return codes by the current quantizer, which another thread may have trained. The lock is held."""
        if codes is not None or self.base_index._state.quantizer is quantizer:
            return items
        return self._make_codes(self.base_index, vectors, None)

    def _publish(self, index: IndexCCCF, ids: NDArray[np.int64], rows: Rows) -> None:
        """Make an index with new or replaced vectors of these ids the current one. The lock is held."""
        self._halves = Halves(index, self._halves.vectors.put(ids, rows))
