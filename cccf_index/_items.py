"""The half of `IndexCCCF` that holds items: add, update, remove, merge and reconstruct, from any thread."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any, TypeVar

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cccf_index import _check, _threads
from cccf_index._check import NotFittedError
from cccf_index.codes import MAX_BITS, MAX_COMPONENTS, MAX_SCALE, CompositionalCodes, expand, explain_shape, word_layout
from cccf_index.dense import DenseRows
from cccf_index.kernels.limits import DENSE_STEP, MAX_DENSE
from cccf_index.learning.plan import MAX_DIMENSION
from cccf_index.quantizer import CompositionalQuantizer
from cccf_index.storage.item_rows import ItemRows, dense_unit
from cccf_index.storage.rounding import choose_scale, round_items
from cccf_index.storage.selectors import list_ids, select_members
from cccf_index.storage.state import State


def describe_shape(n_components: int, n_bits: int, n_dense: int) -> str:
    """Return the shape of codes in words."""
    return f"{n_components}x{n_bits} bits" + (f" and {n_dense} dense dimensions" if n_dense else "")


Items = TypeVar("Items", bound="CodedItems")


class CodedItems:
    """The part of `IndexCCCF` that does not search."""

    def __init__(
        self,
        n_components: int,
        n_bits: int | None,
        scale: int | str | None = 100,
        d: int | None = None,
        quantizer: CompositionalQuantizer | None = None,
        n_dense: int = 0,
    ) -> None:
        if n_bits is None:
            raise TypeError(f"`n_bits` must be given, got only {n_components!r}. {explain_shape(n_components)}")
        try:
            self._n_components = _check.integer(n_components, "n_components", 1, MAX_COMPONENTS)
        except ValueError as error:
            if quantizer is not None:
                raise
            raise ValueError(f"{error} {explain_shape(n_components)}") from None
        self._n_bits = _check.integer(n_bits, "n_bits", 1, MAX_BITS)
        if isinstance(scale, str):
            if scale != "auto":
                raise ValueError(f'`scale` must be an integer, "auto" or None, got {scale!r}.')
        elif scale is not None:
            scale = _check.integer(scale, "scale", 1, MAX_SCALE, or_else='"auto" or None')
        self._scale = scale
        self._d = None if d is None else _check.integer(d, "d", 1, MAX_DIMENSION)
        self._n_dense = self._check_dense(n_dense, d is not None or quantizer is not None)
        self.verbose = False
        self._lock = _threads.Lock()
        self._state = self._make_empty(self._check_quantizer(d, quantizer))
        self._waiting: tuple[tuple[ItemRows, ...], set[int]] = ((), set())

    def _check_dense(self, n_dense: Any, has_quantizer: bool) -> int:
        n_dense = _check.integer(n_dense, "n_dense", 0, MAX_DENSE)
        if n_dense % DENSE_STEP or (n_dense and has_quantizer):
            raise ValueError(
                f"`n_dense` must be a multiple of {DENSE_STEP}, and 0 with `d` or `quantizer`, which know it, "
                f"got {n_dense}."
            )
        return n_dense

    def _check_quantizer(self, d: Any, quantizer: Any) -> CompositionalQuantizer | None:
        """Return the quantizer of an index of vectors: the given one, or one to be trained for `d` dimensions."""
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
        return quantizer.without_codes()  # a copy: a later fit of the original does not change the index

    def _make_empty(self, quantizer: CompositionalQuantizer | None) -> State:
        is_fitted = quantizer is not None and quantizer.is_fitted
        metric = quantizer.dense_metric if is_fitted else np.ones(self._n_dense, np.float32)  # type: ignore[union-attr]
        return State(
            scale=float(self.scale) if isinstance(self.scale, int) else None, quantizer=quantizer, metric=metric
        )

    @property
    def n_components(self) -> int:
        """G, the number of components."""
        return self._n_components

    @property
    def n_bits(self) -> int:
        """r, the bits of one component."""
        return self._n_bits

    @property
    def n_dense(self) -> int:
        """The dimensions of the dense component of codes; 0 if they have none."""
        return self._state.n_dense

    @property
    def scale(self) -> int | str | None:
        """The scale asked for: an integer, "auto" or None."""
        return self._scale

    @property
    def d(self) -> int:
        """The dimension of vectors: that of expanded codes, or of the vectors that the quantizer encodes."""
        quantizer = self._state.quantizer
        return self.n_components * self.n_bits + self.n_dense if quantizer is None else self._d or quantizer.d

    @property
    def quantizer(self) -> CompositionalQuantizer | None:
        """A copy of the quantizer that encodes vectors; None where items are codes or expanded vectors."""
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
        """The factor by which item weights are multiplied; None for float weights, or before "auto" is settled."""
        return self._state.scale

    @property
    def ids(self) -> NDArray[np.int64]:
        """All ids in ascending order, int64 (ntotal,), the order of the rows of `reconstruct_n()`."""
        return self._snapshot().ids()

    @property
    def nbytes(self) -> int:
        """Bytes of all codes, weights, ids and tables, without the quantizer (`quantizer.nbytes`)."""
        return sum(part.segment.nbytes + part.dead.nbytes for part in self._snapshot().parts)

    def __len__(self) -> int:
        return self.ntotal

    def __copy__(self: Items) -> Items:
        """Return an independent index that shares the immutable segments: it costs nothing."""
        return self._with_state(self._state)

    def _with_state(self: Items, state: State) -> Items:
        """Return an index with the same parameters that holds the items of a state."""
        other = type(self)(self.n_components, self.n_bits, self.scale)
        other._d, other._n_dense = self._d, self._n_dense
        other.verbose = self.verbose
        other._state = state
        return other

    def __deepcopy__(self: Items, memo: dict[int, Any]) -> Items:
        return self.__copy__()

    def add(self, x: ArrayLike | CompositionalCodes, *, bias: ArrayLike | None = None) -> None:
        """Add items with consecutive ids that follow the largest id used so far.

        Parameters
        ----------
        x : CompositionalCodes or array_like of float, shape (n, d)
            Codes or their expanded vectors; with a quantizer, codes or vectors to encode.
        bias : array_like of float, shape (n,), optional
            Added to the items' scores: a model's item bias, or a boost. Rounded at the scale of the index.
        """
        quantizer = self._state.quantizer
        codes, boosts = self._encode_items(x, bias)
        with self._lock:
            state, codes = self._state, self._encode_again(quantizer, x, codes)
            if state.next_id + len(codes) - 1 > _check.MAX_ID:
                raise ValueError("No ids are left above the largest one. Use `add_with_ids`.")
            ids = np.arange(state.next_id, state.next_id + len(codes))
            self._publish(self._add_to(state, codes, boosts, ids))

    def add_with_ids(self, x: ArrayLike | CompositionalCodes, ids: ArrayLike, *, bias: ArrayLike | None = None) -> None:
        """Add items with the given ids, int64 (n,), unique and not in the index yet; see `add`."""
        quantizer = self._state.quantizer
        codes, boosts = self._encode_items(x, bias)
        keys = _check.unique(_check.ids(ids, "ids", len(codes)), "ids")
        with self._lock:
            state, codes = self._state, self._encode_again(quantizer, x, codes)
            if len(keys) and keys.min() < state.next_id:
                self._refuse_known(state, keys, "Use `update_vectors` to replace items.")
            new = self._add_to(state, codes, boosts, keys)
            if self._waiting[0] is state.pending:
                self._waiting[1].update(keys.tolist())
                self._waiting = (new.pending, self._waiting[1])
            self._publish(new)

    def update_vectors(
        self, keys: ArrayLike, x: ArrayLike | CompositionalCodes, *, bias: ArrayLike | None = None
    ) -> None:
        """Replace the items with ids `keys`, (n,); without `bias` they keep their biases."""
        quantizer = self._state.quantizer
        codes, boosts = self._encode_items(x, bias)
        ids = _check.unique(_check.ids(keys, "keys", len(codes)), "keys")
        if not len(ids):
            return
        with self._lock:
            state, codes = self._snapshot(), self._encode_again(quantizer, x, codes)
            old = self._find_known(state, ids, "keys")
            state = replace(state, scale=self._item_scale(state, codes, boosts))
            rows = round_items(codes, boosts, ids, self.scale, state.scale)
            if boosts is None:
                rows = replace(rows, bias=old.bias)
            self._publish(state.remove(*state.find(ids)).add(rows))

    def remove_ids(self, x: ArrayLike | faiss.IDSelector) -> int:
        """Remove the items with these ids, or those that a faiss selector accepts; return how many were removed."""
        with self._lock:
            state = self._snapshot()
            ids = list_ids(x, "x")
            left = state.remove(*state.find(select_members(x, state.ids()) if ids is None else ids))
            if not left.ntotal:
                left = replace(left, scale=self._make_empty(None).scale)  # "auto" is settled again by the next items
            self._publish(left)
            return state.ntotal - left.ntotal

    def reset(self) -> None:
        """Remove all items; ids start at 0 again."""
        with self._lock:
            self._publish(self._make_empty(self._state.quantizer))

    def check_compatible_for_merge(self, otherIndex: Any) -> None:
        """Raise an error unless `merge_from` can merge the other index."""
        if not isinstance(otherIndex, CodedItems):
            raise TypeError(f"`otherIndex` must be an IndexCCCF, got {type(otherIndex).__name__}.")
        if otherIndex is self:
            raise ValueError("`otherIndex` must be another index, got this one.")
        mine, other = ((i.n_components, i.n_bits, i.n_dense) for i in (self, otherIndex))
        if mine != other:
            raise ValueError(f"`otherIndex` must have codes of {describe_shape(*mine)}, got {describe_shape(*other)}.")
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
        """Move all items of another index into this one, with `add_id` added to their ids; the other becomes empty."""
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
            self._publish(mine.merge(other, add_id, int(ids[-1]) + add_id))
            otherIndex.reset()

    def reconstruct(self, key: int, x: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the expanded vector, float32 (d,), of the item with id `key`."""
        key = _check.integer(key, "key", _check.MIN_ID, _check.MAX_ID)
        vector = _check.output(x, "x", (self.d,), np.float32)
        vector[:] = self.reconstruct_batch(np.array([key]))[0]
        return vector

    def reconstruct_batch(self, key: ArrayLike, x: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the expanded vectors, float32 (n, d), of the items with ids `key`, in their order."""
        return self._reconstruct(self._snapshot(), _check.ids(key, "key"), x)

    def reconstruct_n(self, n0: int = 0, ni: int = -1, x: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the expanded vectors of the items n0 to n0 + ni - 1 in the order of their ids; all for ni = -1.

        While ids are consecutive from 0, as `add` assigns them, n0 is an id, as in faiss. In general row i belongs to
        ``index.ids[i]``.
        """
        state = self._snapshot()
        n0 = _check.integer(n0, "n0", 0, state.ntotal)
        ni = _check.integer(ni, "ni", -1, state.ntotal - n0)
        return self._reconstruct(state, state.ids()[n0 : state.ntotal if ni == -1 else n0 + ni], x)

    def _reconstruct(self, state: State, ids: NDArray[np.int64], out: Any) -> NDArray[np.float32]:
        vectors = _check.output(out, "x", (len(ids), self.d), np.float32)
        if len(ids):
            rows = self._find_known(state, ids, "key")
            weights = rows.weights.astype(np.float64) / state.divisor
            expanded = expand(rows.words, weights.astype(np.float32), self.n_bits)
            if state.n_dense:
                dense = rows.dense or DenseRows.empty(len(rows), state.n_dense)
                values = dense.expand() * (dense_unit(dense.weights) / state.divisor)
                expanded = np.concatenate([expanded, values.astype(np.float32)], axis=1)
            vectors[:] = expanded if state.quantizer is None else state.quantizer._decode_vectors(expanded)
        return vectors

    @property
    def _sa_dtype(self) -> np.dtype:
        """The record of one item in `sa_encode`: its packed bits and float32 weights."""
        word, n_words = word_layout(self.n_bits)
        fields: list[Any] = [("bits", word, (self.n_components, n_words)), ("weights", "<f4", (self.n_components,))]
        return np.dtype(fields + ([("dense", "i1", (self.n_dense,)), ("dense_weight", "<f4")] if self.n_dense else []))

    def sa_code_size(self) -> int:
        """Return the number of bytes per item in `sa_encode`."""
        return self._sa_dtype.itemsize

    def sa_encode(self, x: ArrayLike | CompositionalCodes, codes: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Return items as bytes, uint8 (n, sa_code_size()), with weights rounded as `add` rounds them."""
        items, _ = self._encode_items(x, None)
        octets = _check.output(codes, "codes", (len(items), self.sa_code_size()), np.uint8)
        scale = self._item_scale(self._state, items, None)
        rounded = round_items(items, None, np.arange(len(items)), self.scale, scale)
        records = np.zeros(len(items), dtype=self._sa_dtype)
        records["bits"] = items.bits
        records["weights"] = rounded.weights / np.float64(scale or 1.0)
        if rounded.dense is not None:
            records["dense"][rounded.dense.is_present] = rounded.dense.values
            records["dense_weight"] = rounded.dense.weights * (dense_unit(rounded.dense.weights) / (scale or 1.0))
        octets[:] = records.view(np.uint8).reshape(octets.shape)
        return octets

    def sa_decode(self, codes: NDArray[np.uint8], x: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the expanded vectors, float32 (n, d), of items encoded by `sa_encode`."""
        octets = np.asarray(codes)
        if octets.dtype != np.uint8:
            raise TypeError(f"`codes` must be uint8, got {octets.dtype}.")
        if octets.ndim != 2 or octets.shape[1] != self.sa_code_size():
            raise ValueError(f"`codes` must be of shape (n, {self.sa_code_size()}), got {octets.shape}.")
        vectors = _check.output(x, "x", (len(octets), self.d), np.float32)
        records = np.ascontiguousarray(octets).view(self._sa_dtype).reshape(len(octets))
        dense = None
        if self.n_dense:
            dense = (records["dense"][records["dense_weight"] > 0], records["dense_weight"])
        items = CompositionalCodes(records["bits"], records["weights"], self.n_bits, dense)
        quantizer = self._state.quantizer
        vectors[:] = items.to_vectors() if quantizer is None else self._require_trained(quantizer).decode(items)
        return vectors

    def _encode_items(self, x: Any, bias: Any) -> tuple[CompositionalCodes, NDArray[np.float32] | None]:
        """Return items to add as codes, and their biases."""
        if not isinstance(x, CompositionalCodes):
            quantizer = self._state.quantizer
            if quantizer is None and self.n_dense:
                raise TypeError(
                    "`x` must be CompositionalCodes for an index with a dense component, "
                    f"got {type(x).__name__}: values of vectors do not tell their weight."
                )
            if quantizer is None:
                x = CompositionalCodes.from_vectors(x, self.n_components, self.n_bits)
            else:
                x = self._require_trained(quantizer).encode_items(_check.matrix(x, "x", self.d))
        return self._check_codes(x), None if bias is None else _check.vector(bias, "bias", len(x))

    def _check_codes(self, x: CompositionalCodes) -> CompositionalCodes:
        """Return codes of the shape of the index."""
        mine, other = (self._n_components, self._n_bits, self.n_dense), (x.n_components, x.n_bits, x.n_dense)
        if mine[:2] != other[:2] or other[2] not in (0, mine[2]):
            raise ValueError(f"`x` must be codes of {describe_shape(*mine)}, got {describe_shape(*other)}.")
        return x

    def _require_trained(self, quantizer: CompositionalQuantizer) -> CompositionalQuantizer:
        if not quantizer.is_fitted:
            raise NotFittedError("This index is not trained yet. Call `train` with vectors first.")
        return quantizer

    def _encode_again(self, quantizer: Any, x: Any, codes: CompositionalCodes) -> CompositionalCodes:
        """Return codes of `x` by the current quantizer, which another thread may have trained. The lock is held."""
        return codes if self._state.quantizer is quantizer else self._encode_items(x, None)[0]

    def _item_scale(self, state: State, codes: CompositionalCodes, bias: Any) -> float | None:
        """Return the scale of item weights; "auto" is settled by the first items that have a weight or bias."""
        return choose_scale(codes, bias) if self.scale == "auto" and state.scale is None else state.scale

    def _add_to(self, state: State, codes: CompositionalCodes, bias: Any, ids: NDArray[np.int64]) -> State:
        if not len(codes):
            return state
        scale = self._item_scale(state, codes, bias)
        return replace(state, scale=scale).add(round_items(codes, bias, ids, self.scale, scale))

    def _publish(self, state: State) -> None:
        """Make a state the current one, after grouping its pending batches if they are many. The lock is held."""
        self._state = state.seal(self.n_bits) if state.is_due() else state
        if not self._state.pending:
            self._waiting = ((), set())

    def _snapshot(self) -> State:
        """Return the current state, with nothing pending."""
        state = self._state
        if state.pending:
            with self._lock:
                self._publish(self._state.seal(self.n_bits))
                state = self._state
        return state

    def _find_known(self, state: State, ids: NDArray[np.int64], name: str) -> ItemRows:
        """Return the items with these ids, or raise an error that names an unknown one."""
        rows = state.find_items(ids)
        if rows is None:
            unknown = ids[state.find(ids)[0] < 0][0]
            raise ValueError(f"`{name}` must be in the index, got {unknown}, which is not. See `index.ids`.")
        return rows

    def _refuse_known(self, state: State, ids: NDArray[np.int64], advice: str) -> None:
        known = ids[state.find(ids)[0] >= 0].tolist() or list(self._pending_ids(state).intersection(ids.tolist()))
        if known:
            raise ValueError(f"`ids` must not be in the index yet, got {known[0]}, which is. {advice}")

    def _pending_ids(self, state: State) -> set[int]:
        """Return the ids of the pending batches; cached, so that adding a small batch need not group them."""
        if self._waiting[0] is not state.pending:
            self._waiting = (state.pending, {i for rows in state.pending for i in rows.ids.tolist()})
        return self._waiting[1]
