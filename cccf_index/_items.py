"""What an index holds: items under ids, added, removed, replaced, merged and given back, from any thread."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import replace
from typing import Any, TypeVar

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cccf_index import _check, _threads
from cccf_index._check import NotFittedError
from cccf_index.codes import (
    MAX_BIAS,
    MAX_BITS,
    MAX_COMPONENTS,
    MAX_SCALE,
    CompositionalCodes,
    expand,
    round_weights,
    word_layout,
)
from cccf_index.learning.plan import MAX_DIMENSION
from cccf_index.quantizer import CompositionalQuantizer
from cccf_index.storage.segment import Rows
from cccf_index.storage.selectors import listed_ids, members
from cccf_index.storage.state import State

Items = TypeVar("Items", bound="CodedItems")


class CodedItems:
    """The part of `IndexCCCF` that does not search."""

    def __init__(
        self,
        n_components: int,
        n_bits: int,
        scale: int | str | None = 100,
        d: int | None = None,
        quantizer: CompositionalQuantizer | None = None,
    ) -> None:
        self._n_components = _check.integer(n_components, "n_components", 1, MAX_COMPONENTS)
        self._n_bits = _check.integer(n_bits, "n_bits", 1, MAX_BITS)
        if isinstance(scale, str):
            if scale != "auto":
                raise ValueError(f'`scale` must be an integer, "auto" or None, got {scale!r}.')
        elif scale is not None:
            scale = _check.integer(scale, "scale", 1, MAX_SCALE, or_else='"auto" or None')
        self._scale = scale
        self._d = None if d is None else _check.integer(d, "d", 1, MAX_DIMENSION)
        self.verbose = False
        self._lock = _threads.Lock()
        self._state = self._empty(self._checked_quantizer(d, quantizer))
        self._waiting: tuple[tuple[Rows, ...], set[int]] = ((), set())

    def _checked_quantizer(self, d: Any, quantizer: Any) -> CompositionalQuantizer | None:
        """Return the quantizer of an index of vectors: a given one, or one to be trained for vectors of `d`."""
        if quantizer is None:
            if d is None:
                return None
            quantizer = CompositionalQuantizer(self.n_components, self.n_bits, verbose=False)
        if not isinstance(quantizer, CompositionalQuantizer):
            raise TypeError(f"`quantizer` must be a CompositionalQuantizer, got {type(quantizer).__name__}.")
        found, wanted = (quantizer.n_components, quantizer.n_bits), (self.n_components, self.n_bits)
        if found != wanted:
            raise ValueError(f"`quantizer` must make codes of {wanted[0]}x{wanted[1]} bits, got {found[0]}x{found[1]}.")
        if d is not None and quantizer.is_fitted and quantizer.d != d:
            raise ValueError(f"`d` must be {quantizer.d}, as that of the quantizer, got {d}.")
        quantizer.check()
        return quantizer.without_codes()  # of our own: a later fit of theirs does not change the index

    def _empty(self, quantizer: CompositionalQuantizer | None) -> State:
        return State(scale=float(self.scale) if isinstance(self.scale, int) else None, quantizer=quantizer)

    @property
    def n_components(self) -> int:
        """G, the number of components."""
        return self._n_components

    @property
    def n_bits(self) -> int:
        """r, the bits of one component."""
        return self._n_bits

    @property
    def scale(self) -> int | str | None:
        """The scale asked for: an integer, "auto" or None."""
        return self._scale

    @property
    def d(self) -> int:
        """The dimension of vectors: G * r of expanded ones, or that of the vectors that a quantizer takes."""
        quantizer = self._state.quantizer
        return self.n_components * self.n_bits if quantizer is None else self._d or quantizer.d

    @property
    def quantizer(self) -> CompositionalQuantizer | None:
        """A copy of what makes codes of vectors; None where items are codes or expanded vectors."""
        return copy(self._state.quantizer)

    @property
    def is_trained(self) -> bool:
        """Whether items can be added."""
        return self._state.quantizer is None or self._state.quantizer.is_fitted

    @property
    def ntotal(self) -> int:
        """The number of items."""
        return self._state.ntotal

    @property
    def scale_(self) -> float | None:
        """What item weights are multiplied by; None where they stay floats, or "auto" is not settled yet."""
        return self._state.scale

    @property
    def ids(self) -> NDArray[np.int64]:
        """All ids in ascending order, int64 (ntotal,): the rows of `reconstruct_n()`."""
        return self._snapshot().ids()

    @property
    def nbytes(self) -> int:
        """Bytes of all codes, weights, ids and tables; those of a quantizer are `quantizer.nbytes`."""
        return sum(part.segment.nbytes + part.dead.nbytes for part in self._snapshot().parts)

    def __len__(self) -> int:
        return self.ntotal

    def __copy__(self: Items) -> Items:
        """Return an index of its own that shares the immutable segments: it costs nothing."""
        other = type(self)(self.n_components, self.n_bits, self.scale)
        other._d = self._d
        other.verbose = self.verbose
        other._state = self._state
        return other

    def __deepcopy__(self: Items, memo: dict[int, Any]) -> Items:
        return self.__copy__()

    def add(self, x: ArrayLike | CompositionalCodes, *, bias: ArrayLike | None = None) -> None:
        """Add items, under ids that follow the largest id there ever was.

        Parameters
        ----------
        x : CompositionalCodes or array_like of float, shape (n, d)
            Codes or their expanded vectors; with a quantizer, codes or vectors, which it encodes.
        bias : array_like of float, shape (n,), optional
            Added to the items' scores (a model's item bias, a boost), rounded at the index's scale.
        """
        quantizer = self._state.quantizer
        codes, boosts = self._checked(x, bias)
        with self._lock:
            state, codes = self._state, self._still(quantizer, x, codes)
            if state.next_id + len(codes) - 1 > _check.MAX_ID:
                raise ValueError("There are no ids left above the largest one. Use `add_with_ids`.")
            ids = np.arange(state.next_id, state.next_id + len(codes))
            self._publish(self._added(state, codes, boosts, ids))

    def add_with_ids(self, x: ArrayLike | CompositionalCodes, ids: ArrayLike, *, bias: ArrayLike | None = None) -> None:
        """Add items under the given ids, int64 (n,), each unique and not in the index; see `add`."""
        quantizer = self._state.quantizer
        codes, boosts = self._checked(x, bias)
        keys = _check.unique(_check.ids(ids, "ids", len(codes)), "ids")
        with self._lock:
            state, codes = self._state, self._still(quantizer, x, codes)
            if len(keys) and keys.min() < state.next_id:
                self._refuse_known(state, keys, "Use `update_vectors` to replace items.")
            new = self._added(state, codes, boosts, keys)
            if self._waiting[0] is state.pending:
                self._waiting[1].update(keys.tolist())
                self._waiting = (new.pending, self._waiting[1])
            self._publish(new)

    def update_vectors(
        self, keys: ArrayLike, x: ArrayLike | CompositionalCodes, *, bias: ArrayLike | None = None
    ) -> None:
        """Replace the items under the ids `keys`, (n,); without `bias` they keep theirs."""
        quantizer = self._state.quantizer
        codes, boosts = self._checked(x, bias)
        ids = _check.unique(_check.ids(keys, "keys", len(codes)), "keys")
        if not len(ids):
            return
        with self._lock:
            state, codes = self._snapshot(), self._still(quantizer, x, codes)
            old = self._known(state, ids, "keys")
            state = replace(state, scale=self._scale_for(state, codes, boosts))
            rows = self._rows(state.scale, codes, boosts, ids)
            if boosts is None:
                rows = replace(rows, bias=old.bias)
            self._publish(state.removed(*state.find(ids)).added(rows))

    def remove_ids(self, x: ArrayLike | faiss.IDSelector) -> int:
        """Remove the items with these ids, or that a faiss selector accepts; return how many there were."""
        with self._lock:
            state = self._snapshot()
            ids = listed_ids(x, "x")
            left = state.removed(*state.find(members(x, state.ids()) if ids is None else ids))
            if not left.ntotal:
                left = replace(left, scale=self._empty(None).scale)  # "auto" is to be settled anew
            self._publish(left)
            return state.ntotal - left.ntotal

    def reset(self) -> None:
        """Remove all items; ids begin at 0 again."""
        with self._lock:
            self._publish(self._empty(self._state.quantizer))

    def check_compatible_for_merge(self, otherIndex: Any) -> None:
        """Raise an error unless `merge_from` can take the other index."""
        if not isinstance(otherIndex, CodedItems):
            raise TypeError(f"`otherIndex` must be an IndexCCCF, got {type(otherIndex).__name__}.")
        if otherIndex is self:
            raise ValueError("`otherIndex` must be another index, got this one.")
        if (otherIndex.n_components, otherIndex.n_bits) != (self.n_components, self.n_bits):
            raise ValueError(
                f"`otherIndex` must have codes of {self.n_components}x{self.n_bits} bits, "
                f"got {otherIndex.n_components}x{otherIndex.n_bits}."
            )
        same = otherIndex.quantizer is None if self.quantizer is None else self.quantizer.equals(otherIndex.quantizer)
        if not same:
            raise ValueError("`otherIndex` must have the same quantizer. Add its vectors instead.")
        scales = {index.scale_ for index in (self, otherIndex) if index.ntotal or index.scale != "auto"}
        if (self.scale is None) != (otherIndex.scale is None) or len(scales - {None}) > 1:
            raise ValueError(
                f"`otherIndex` must have the same scale, got {otherIndex.scale_} and not {self.scale_}. "
                "Add its codes instead."
            )

    def merge_from(self, otherIndex: Any, add_id: int = 0) -> None:
        """Move all items of another index here, with `add_id` added to their ids; the other is empty then."""
        add_id = _check.integer(add_id, "add_id", 0, _check.MAX_ID)
        self.check_compatible_for_merge(otherIndex)
        first, second = sorted((self, otherIndex), key=id)  # always in one order: no deadlock
        with first._lock, second._lock:
            mine, other = self._snapshot(), otherIndex._snapshot()
            self.check_compatible_for_merge(otherIndex)
            if not other.ntotal:
                return
            ids = other.ids()
            if int(ids[-1]) + add_id > _check.MAX_ID or (ids == -1 - add_id).any():
                raise ValueError(f"`add_id` must leave ids up to {_check.MAX_ID} and none -1, got {add_id}.")
            self._refuse_known(mine, ids + add_id, f"Pass `add_id`, for example {mine.next_id - min(0, int(ids[0]))}.")
            self._publish(mine.merged(other, add_id, int(ids[-1]) + add_id))
            otherIndex.reset()

    def reconstruct(self, key: int, x: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the expanded vector, float32 (d,), of the item with id `key`."""
        key = _check.integer(key, "key", _check.MIN_ID, _check.MAX_ID)
        vector = _check.output(x, "x", (self.d,), np.float32)
        vector[:] = self.reconstruct_batch(np.array([key]))[0]
        return vector

    def reconstruct_batch(self, key: ArrayLike, x: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the expanded vectors, float32 (n, d), of the items with ids `key`, in their order."""
        return self._vectors(self._snapshot(), _check.ids(key, "key"), x)

    def reconstruct_n(self, n0: int = 0, ni: int = -1, x: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the expanded vectors of the items n0 to n0 + ni - 1 in the order of their ids; ni = -1: all.

        While ids are consecutive from 0, as `add` gives them, n0 is an id, as in faiss. In general row i
        belongs to ``index.ids[i]``.
        """
        state = self._snapshot()
        n0 = _check.integer(n0, "n0", 0, state.ntotal)
        ni = _check.integer(ni, "ni", -1, state.ntotal - n0)
        return self._vectors(state, state.ids()[n0 : state.ntotal if ni == -1 else n0 + ni], x)

    def _vectors(self, state: State, ids: NDArray[np.int64], out: NDArray[np.float32] | None) -> NDArray[np.float32]:
        vectors = _check.output(out, "x", (len(ids), self.d), np.float32)
        if len(ids):
            rows = self._known(state, ids, "key")
            weights = rows.weights.astype(np.float64) / state.divisor
            expanded = expand(rows.words, weights.astype(np.float32), self.n_bits)
            vectors[:] = expanded if state.quantizer is None else state.quantizer._decode_vectors(expanded)
        return vectors

    @property
    def _sa_dtype(self) -> np.dtype:
        """An item as `sa_encode` writes it: its packed bits and float32 weights."""
        word, n_words = word_layout(self.n_bits)
        return np.dtype([("bits", word, (self.n_components, n_words)), ("weights", "<f4", (self.n_components,))])

    def sa_code_size(self) -> int:
        """Return the bytes of one item as `sa_encode` writes it."""
        return self._sa_dtype.itemsize

    def sa_encode(self, x: ArrayLike | CompositionalCodes, codes: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Return items as bytes, uint8 (n, sa_code_size()), their weights rounded as `add` would."""
        items, _ = self._checked(x, None)
        octets = _check.output(codes, "codes", (len(items), self.sa_code_size()), np.uint8)
        scale = self._scale_for(self._state, items, None)
        records = np.empty(len(items), dtype=self._sa_dtype)
        records["bits"] = items.bits
        records["weights"] = self._rows(scale, items, None, np.arange(len(items))).weights / np.float64(scale or 1.0)
        octets[:] = records.view(np.uint8).reshape(octets.shape)
        return octets

    def sa_decode(self, codes: NDArray[np.uint8], x: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the expanded vectors, float32 (n, d), of what `sa_encode` wrote."""
        octets = np.asarray(codes)
        if octets.dtype != np.uint8:
            raise TypeError(f"`codes` must be uint8, got {octets.dtype}.")
        if octets.ndim != 2 or octets.shape[1] != self.sa_code_size():
            raise ValueError(f"`codes` must be of shape (n, {self.sa_code_size()}), got {octets.shape}.")
        vectors = _check.output(x, "x", (len(octets), self.d), np.float32)
        records = np.ascontiguousarray(octets).view(self._sa_dtype).reshape(len(octets))
        items = CompositionalCodes(records["bits"], records["weights"], self.n_bits)
        quantizer = self._state.quantizer
        vectors[:] = items.to_vectors() if quantizer is None else self._trained(quantizer).decode(items)
        return vectors

    def _checked(self, x: Any, bias: Any) -> tuple[CompositionalCodes, NDArray[np.float32] | None]:
        """Return items to add as codes, and their biases."""
        if not isinstance(x, CompositionalCodes):
            quantizer = self._state.quantizer
            if quantizer is None:
                x = CompositionalCodes.from_vectors(x, self.n_components, self.n_bits)
            else:
                x = self._trained(quantizer).encode_items(_check.matrix(x, "x", self.d))
        if (x.n_components, x.n_bits) != (self.n_components, self.n_bits):
            raise ValueError(
                f"`x` must be codes of {self.n_components}x{self.n_bits} bits, got {x.n_components}x{x.n_bits}."
            )
        return x, None if bias is None else _check.vector(bias, "bias", len(x))

    def _trained(self, quantizer: CompositionalQuantizer) -> CompositionalQuantizer:
        if not quantizer.is_fitted:
            raise NotFittedError("This index is not trained yet. Call `train` with vectors first.")
        return quantizer

    def _still(self, quantizer: Any, x: Any, codes: CompositionalCodes) -> CompositionalCodes:
        """Return codes of `x` by the present quantizer, which another thread may have trained. The lock is held."""
        return codes if self._state.quantizer is quantizer else self._checked(x, None)[0]

    def _scale_for(self, state: State, codes: CompositionalCodes, bias: Any) -> float | None:
        """Return the scale of item weights; "auto" is settled by the first items that have a weight or bias."""
        if self.scale != "auto" or state.scale is not None:
            return state.scale
        weight = float(codes.weights.max(initial=0.0))
        boost = 0.0 if bias is None else float(np.abs(bias).max(initial=0.0))
        if not weight:
            return 255.0 / boost if boost else None
        return 255.0 / weight if 255.0 / weight * boost <= MAX_BIAS else MAX_BIAS / 2 / boost

    def _rows(self, scale: float | None, codes: CompositionalCodes, bias: Any, ids: NDArray[np.int64]) -> Rows:
        """Return codes as the segments store them."""
        if self.scale is None:
            return Rows(codes.bits, codes.weights, bias, ids)
        weights = round_weights(codes.weights, scale or 1.0, "x")
        lost = codes.weights.any(axis=1) & ~weights.any(axis=1)
        if lost.sum() > len(codes) / 10:
            warnings.warn(
                f"All weights of {lost.sum()} of {len(codes)} items round to 0 at scale={self.scale}: they score 0. "
                'Use a larger scale, "auto" or None.',
                stacklevel=4,
            )
        if bias is not None:
            boosts = np.rint(bias.astype(np.float64) * (scale or 1.0))
            if np.abs(boosts).max(initial=0.0) > MAX_BIAS:
                raise ValueError(
                    f"`bias` must be at most {MAX_BIAS} in size after scaling by {scale:g}, "
                    f"got {np.abs(bias).max():g}. Use a smaller scale, or None."
                )
            if bias.any() and not boosts.any():
                warnings.warn(
                    f"All biases round to 0 at scale={self.scale}. Use a larger scale, or None.", stacklevel=4
                )
            bias = boosts.astype(np.int32)
        return Rows(codes.bits, weights, bias, ids)

    def _added(self, state: State, codes: CompositionalCodes, bias: Any, ids: NDArray[np.int64]) -> State:
        if not len(codes):
            return state
        scale = self._scale_for(state, codes, bias)
        return replace(state, scale=scale).added(self._rows(scale, codes, bias, ids))

    def _publish(self, state: State) -> None:
        """Make a state the present one, after grouping its pending batches if they are many. The lock is held."""
        self._state = state.sealed(self.n_bits) if state.is_due() else state
        if not self._state.pending:
            self._waiting = ((), set())

    def _snapshot(self) -> State:
        """Return the present state, with nothing pending."""
        state = self._state
        if state.pending:
            with self._lock:
                self._publish(self._state.sealed(self.n_bits))
                state = self._state
        return state

    def _known(self, state: State, ids: NDArray[np.int64], name: str) -> Rows:
        """Return the items with these ids, or say which is unknown."""
        rows = state.rows_of(ids)
        if rows is None:
            unknown = ids[state.find(ids)[0] < 0][0]
            raise ValueError(f"`{name}` must be in the index, got {unknown}, which is not. See `index.ids`.")
        return rows

    def _refuse_known(self, state: State, ids: NDArray[np.int64], advice: str) -> None:
        known = ids[state.find(ids)[0] >= 0].tolist() or list(self._waiting_ids(state).intersection(ids.tolist()))
        if known:
            raise ValueError(f"`ids` must not be in the index yet, got {known[0]}, which is. {advice}")

    def _waiting_ids(self, state: State) -> set[int]:
        """Return the ids of the pending batches; kept beside the state, so that a small batch need not group them."""
        if self._waiting[0] is not state.pending:
            self._waiting = (state.pending, {i for rows in state.pending for i in rows.ids.tolist()})
        return self._waiting[1]
