"""One query alone: what does not depend on it is made once, and one call of a kernel does all the rest."""

from __future__ import annotations

import threading
import weakref
from functools import partial
from types import NoneType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cccf_index import _check
from cccf_index.codes import CompositionalCodes
from cccf_index.kernels.calls import KEPT_BYTES, CodedBatch, RealBatch, make_room
from cccf_index.kernels.entries import find_coded, find_real
from cccf_index.kernels.layout import freeze
from cccf_index.kernels.query_vectors import transform_queries
from cccf_index.search.parameters import (
    NONE_FOR_ONE,
    SearchParametersCCCF,
    choose_effort,
    count_blocks,
    find_used_columns,
)
from cccf_index.search.queries import (
    FLOAT_SLACK,
    INTEGER_SLACK,
    NO_BIAS,
    NO_SHIFTS,
    QueryScale,
    join_weights,
    spread_values,
)
from cccf_index.search.reading import QueryReader
from cccf_index.storage.state import State

Result: TypeAlias = tuple[NDArray[np.float32], NDArray[np.int64]]
_kept = threading.local()  # the arguments of this thread's last searches, as the next is likely to need the same


class Task(NamedTuple):
    """What is asked of an index, besides the query."""

    k: int
    max_items: int | None
    most_used: bool
    exact: bool  # whether items are scored exactly in the end; see `scan.find_top_k`


class Arguments:
    """The arguments of an entry point that one query shares with the next, and room for what becomes of it."""

    def __init__(self, state: State, reader: QueryReader, task: Task) -> None:
        self.state, self.task, self.k = weakref.ref(state), task, task.k
        parts, n_cells, n_rows = state.table
        n, budgets = min(task.k, state.ntotal), count_blocks(state.parts, state.ntotal, task.max_items)
        effort = choose_effort(task.max_items, task.most_used)
        self.parts, self.sizes = (parts, budgets, effort, task.exact), (1, n_cells, n, n_rows)
        self.heaps = (*NONE_FOR_ONE, np.empty((1, n), np.int64), np.empty((1, n), np.int64))
        self.divisors = np.full(1, state.divisor)
        self.room: tuple[NDArray[np.uint8], NDArray[np.int64]] | None = None

    def make_result(self) -> Result:
        """Return D and I, to be filled."""
        return np.empty((1, self.k), np.float32), np.empty((1, self.k), np.int64)

    def keep_room(self, batch: CodedBatch | RealBatch) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return room for a call, the same as before if it is of a size to be kept."""
        if self.room is None:
            room = make_room(batch, *self.sizes)
            if room[0].size > KEPT_BYTES:
                return room
            self.room = room
        return self.room


class RealArguments(Arguments):
    """For a vector that stays real-valued."""

    def __init__(self, state: State, reader: QueryReader, task: Task) -> None:
        super().__init__(state, reader, task)
        columns = find_used_columns(state.parts, reader.d, *self.parts[1:3])
        self.first = (*state.quantizer._make_columns(), _check.SAFE_SQUARES, *columns, *self.parts)
        query = freeze(np.zeros((1, reader.d + state.n_dense), np.float32))
        no_values = spread_values(None, 0, state.n_dense)
        self.batch = RealBatch(reader.no_words, query, no_values, reader.n_bits, FLOAT_SLACK)
        self.last = (*self.batch, *self.heaps, self.divisors, np.empty(1, np.float32))
        self.x = np.empty((1, state.quantizer.item_mean_.size), np.float32)
        self.frozen = freeze(self.x)  # a view: to make one for each query takes longer than to copy it

    def find(self, x: NDArray[np.float32]) -> Result | None:
        """Return D and I (1, k) for `x` (1, p); None if its values must be checked first."""
        self.x[:] = x
        room, out = self.keep_room(self.batch), self.make_result()
        return out if find_real(self.frozen, *self.first, *room, *self.last, *out) else None


class IntegerArguments(Arguments):
    """For codes with integer weights, in an index with a scale."""

    def __init__(self, state: State, reader: QueryReader, task: Task) -> None:
        super().__init__(state, reader, task)
        assert reader.scale is not None
        scales = QueryScale.choose(reader.scale, reader.d, state.n_dense)
        self.first = (*scales, float(state.divisor), *self.parts)
        self.n_weights, self.n_dense = reader.no_words.shape[1] + (state.n_dense > 0), state.n_dense
        self.rounded = np.empty((1, self.n_weights), np.int64)
        self.rest = (np.empty(1, np.int64) if state.has_bias else NO_BIAS, reader.n_bits, INTEGER_SLACK)

    def find_code(self, batch: CodedBatch, given: NDArray[np.float32], shifts: NDArray[np.float32]) -> Result | None:
        """Return D and I (1, k) for a code, whose weights are `given`; None if they must be checked first."""
        room, out = self.keep_room(batch), self.make_result()
        is_good = find_coded(given, *self.first, *room, *batch, *self.heaps, self.divisors, shifts, *out)
        return out if is_good else None


class CodedArguments(IntegerArguments):
    """For a code."""

    def find(self, codes: CompositionalCodes) -> Result | None:
        """Return D and I (1, k) for one code; None if its weights must be checked first."""
        values = spread_values(codes.dense, 1, self.n_dense)
        batch = CodedBatch(freeze(codes.bits), self.rounded, values, *self.rest)
        return self.find_code(batch, freeze(join_weights(codes.weights, codes.dense, self.n_dense)), NO_SHIFTS)


class EncodedArguments(IntegerArguments):
    """For a vector that becomes a code."""

    def __init__(self, state: State, reader: QueryReader, task: Task) -> None:
        super().__init__(state, reader, task)
        (columns, mean), encoder = state.quantizer._make_columns(), state.quantizer._make_encoders()[2]
        self.x, self.shifts = np.empty((1, len(mean)), np.float32), np.empty(1, np.float32)
        bits, weights = encoder.make_codes(1)
        no_query = np.empty((1, 0), np.float32)
        self.encode = partial(encoder.prepare(self.x, encoder.none, bits, weights), 0, 1)
        self.shift = partial(
            transform_queries, freeze(self.x), columns, mean, _check.SAFE_SQUARES, 0, 0, no_query, self.shifts, 0, 1
        )
        self.coded, self.joined = weights, np.zeros((1, self.n_weights), np.float32)
        self.values, self.allocation = np.empty((1, self.n_dense), np.int8), state.quantizer._encoder.allocation
        values = freeze(self.values) if self.n_dense else None
        self.batch = CodedBatch(freeze(bits), self.rounded, values, *self.rest)
        self.given = freeze(self.joined) if self.n_dense else freeze(weights)

    def find(self, x: NDArray[np.float32]) -> Result | None:
        """Return D and I (1, k) for `x` (1, p); None if its values must be checked first."""
        self.x[:] = x
        if not (self.encode() and self.shift()):
            return None
        if self.allocation is not None:
            dense = self.allocation.space.code_users(self.x)
            self.joined[:, :-1], self.joined[:, -1] = self.coded, dense.weights
            self.values[:] = dense.values if len(dense.values) else 0
        return self.find_code(self.batch, self.given, self.shifts)


def get_arguments(kind: type[Any], state: State, reader: QueryReader, task: tuple[Any, ...]) -> Any:
    """Return this thread's arguments of a kind; task: the values of a `Task`."""
    kept = getattr(_kept, kind.__name__, None)
    if kept is None or kept.task != task or kept.state() is not state:
        kept = kind(state, reader, Task(*task))
        setattr(_kept, kind.__name__, kept)
    return kept


def is_plain(params: Any) -> bool:
    """Whether parameters ask for nothing that one query alone cannot do."""
    if params is None:
        return True
    if type(params) is not SearchParametersCCCF or params.sel is not None or params.prune is not True:
        return False
    return params.shortlist is None and type(params.max_items) in (int, NoneType)


def find_alone(state: State, reader: QueryReader, x: Any, k: int, params: Any, exact: bool = True) -> Result | None:
    """Return D and I of one query; None if it is not the plain case of a code or a vector, or is bad."""
    if type(k) is not int or k < 1 or not state.ntotal:
        return None
    most = None if params is None else params.max_items
    if most is not None and most < 1:
        return None
    task = (k, most, most is not None and bool(params.most_used), exact)  # a plain tuple takes less time
    quantizer = state.quantizer
    if type(x) is not CompositionalCodes:
        if quantizer is None or not quantizer.is_fitted or type(x) is not np.ndarray or x.dtype != np.float32:
            return None
        if x.shape != (1, quantizer.item_mean_.size):
            return None
        if not getattr(params, "coded", False):
            return get_arguments(RealArguments, state, reader, task).find(x)
        return get_arguments(EncodedArguments, state, reader, task).find(x) if reader.scale is not None else None
    if (
        reader.scale is None
        or len(x) != 1
        or x.bits.shape[1:] != reader.no_words.shape[1:]
        or x.n_bits != reader.n_bits
        or x.n_dense not in (0, state.n_dense)
    ):
        return None
    return get_arguments(CodedArguments, state, reader, task).find(x)
