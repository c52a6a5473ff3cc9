"""How to search: the parameters of a caller, and the validated options of one search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cccf_index import _check, _threads
from cccf_index._exclude import Exclude, read_exclusions
from cccf_index.kernels.budgets import EVERY, MOST_USED, PROMISING
from cccf_index.kernels.limits import BLOCK
from cccf_index.kernels.search import PROBES
from cccf_index.storage.selectors import PreparedSelector, restrict_parts
from cccf_index.storage.state import Part, PartTable, State


class Selector(Protocol):
    """Accepts some ids, as a `faiss.IDSelector` does."""

    def is_member(self, id: int, /) -> bool:
        """Whether an item with this id may be returned."""


class PlainParameters(Protocol):
    """Parameters with nothing but a selector, as `faiss.SearchParameters`."""

    sel: Any


@dataclass
class SearchParametersCCCF:
    """How to search, in the manner of `faiss.SearchParameters`.

    Parameters
    ----------
    sel : faiss.IDSelector, array_like of int or bool, or PreparedSelector, optional
        Return only items that it accepts, as `allow` of `IndexCCCF.search`.
    num_threads : int
        0 uses as many threads as `faiss.omp_set_num_threads` allows.
    prune : bool
        Skip items whose bound is below the k-th best score. It never changes a result; False scores every item.
    coded : bool
        For an index of vectors: encode the queries first and score in integers, which is faster and somewhat less
        accurate. By default queries stay real-valued.
    max_items : int, optional
        Look at only this many items, in blocks of 64, the most promising first: the result is approximate.
        `IndexCCCF.tune` finds the number for a target recall.
    most_used : bool
        With `max_items`: look first at the items that fill most lists, the same for all queries, not at those that
        suit a query best. It is for an index with `bytes_per_item`, which gives these items the longest codes. Best
        where few items fill most lists. Other indexes ignore it.
    shortlist : int, optional
        For real-valued queries: find ``shortlist * k`` items by the code nearest to the query, then rank them with the
        query itself: the result is approximate. Coded queries ignore it.
    k_factor : float, optional
        For `IndexRefineCCCF`, instead of its own: how many items are re-ranked for each item of the result, at least 1.
        Other indexes ignore it.

    Examples
    --------
    >>> import faiss
    >>> from cccf_index import SearchParametersCCCF
    >>> params = SearchParametersCCCF(sel=faiss.IDSelectorRange(0, 100), num_threads=1)
    """

    sel: Allow | None = None
    num_threads: int = 0
    prune: bool = True
    coded: bool = False
    max_items: int | None = None
    shortlist: int | None = None
    k_factor: float | None = None
    most_used: bool = False

    def __post_init__(self) -> None:
        self.num_threads = _check.integer(self.num_threads, "num_threads", 0)
        self.max_items = _check_count(self.max_items, "max_items")
        self.shortlist = _check_count(self.shortlist, "shortlist")
        if self.k_factor is not None:
            self.k_factor = _check.number(self.k_factor, "k_factor", 1.0)
        if not self.prune and (self.max_items or self.shortlist):
            raise ValueError("`prune` must be True with `max_items` or `shortlist`: without it every item is scored.")
        if self.coded and self.shortlist:
            raise ValueError("`shortlist` must be None with `coded`: it is for queries that stay real-valued.")


def _check_count(value: int | None, name: str) -> int | None:
    return None if value is None else _check.integer(value, name, 1, or_else="or None")


# What the keywords of a search take, with `Exclude`. faiss has no types: the protocols say what is needed of its own.
Allow: TypeAlias = ArrayLike | Selector
Parameters: TypeAlias = SearchParametersCCCF | PlainParameters

DEFAULT = SearchParametersCCCF()
NO_IDS = np.empty(0, dtype=np.int64)
PROBES_OF_ALL = np.array([PROBES])


class ExcludedIds(NamedTuple):
    """What must not be returned to each query of a batch."""

    starts: NDArray[np.int64]  # (nq + 1,)
    ids: NDArray[np.int64]  # ascending for each query

    def select(self, rows: NDArray[np.int64]) -> ExcludedIds:
        """Return those of the queries in `rows`."""
        counts = self.starts[rows + 1] - self.starts[rows]
        starts = np.concatenate([[0], np.cumsum(counts)])
        places = np.arange(starts[-1]) + np.repeat(self.starts[rows] - starts[:-1], counts)
        return ExcludedIds(starts, self.ids[places])


NONE_FOR_ONE = ExcludedIds(np.zeros(2, dtype=np.int64), NO_IDS)  # what most calls with one query need


class SearchOptions(NamedTuple):
    """Validated search options."""

    parts: tuple[Part, ...]  # with only the items that may be returned
    table: PartTable  # of the parts
    n_items: int  # of all parts
    exclude: ExcludedIds | None
    nq: int
    n_threads: int
    prune: bool
    max_items: int | None
    shortlist: int | None
    most_used: bool

    @classmethod
    def from_keywords(
        cls, state: State, nq: int, params: Parameters | None, exclude: Exclude | None, allow: Allow | None
    ) -> SearchOptions:
        """Check the keywords of a search of a state by nq queries."""
        excluded = None if exclude is None else ExcludedIds(*read_exclusions(exclude, "exclude", nq))
        if params is None and allow is None:
            n_threads = _threads.thread_count(0) if nq > 1 else 1  # to ask takes a while
            return cls(state.parts, state.table, state.ntotal, excluded, nq, n_threads, True, None, None, False)
        if params is None:
            params = DEFAULT
        else:
            _refuse_foreign(params)
        parts = state.parts
        if params.sel is not None or allow is not None:
            filters = [(params.sel, "params.sel"), (allow, "allow")]
            if isinstance(allow, PreparedSelector):  # it knows the parts of the state, not what the other makes of them
                filters.reverse()
            for allowed, name in filters:
                parts = restrict_parts(parts, allowed, name, nq)
        return cls(
            parts,
            state.table if parts is state.parts else PartTable.describe(parts),
            sum(map(len, parts)),
            excluded,
            nq,
            _threads.thread_count(getattr(params, "num_threads", 0)),
            bool(getattr(params, "prune", True)),
            _check_count(getattr(params, "max_items", None), "max_items"),
            _check_count(getattr(params, "shortlist", None), "shortlist"),
            bool(getattr(params, "most_used", False)),
        )

    @property
    def effort(self) -> np.int64:
        """What is looked at; see `choose_effort`."""
        return choose_effort(self.max_items, self.most_used)

    def count_blocks(self) -> NDArray[np.int64]:
        """Return how many blocks of each part are looked at first; see the function of this name."""
        return count_blocks(self.parts, self.n_items, self.max_items)

    def excluded_ids(self, rows: NDArray[np.int64] | None) -> ExcludedIds:
        """Return the excluded ids of the queries in `rows`, by default of all."""
        if self.exclude is None:
            nq = self.nq if rows is None else len(rows)
            return NONE_FOR_ONE if nq == 1 else ExcludedIds(np.zeros(nq + 1, dtype=np.int64), NO_IDS)
        return self.exclude if rows is None else self.exclude.select(rows)


def choose_effort(max_items: int | None, most_used: bool) -> np.int64:
    """Return what a search looks at, as its kernel takes it."""
    if max_items is None:
        return EVERY
    return MOST_USED if most_used else PROMISING


def count_blocks(parts: tuple[Part, ...], n_items: int, max_items: int | None) -> NDArray[np.int64]:
    """Return how many blocks of each part are looked at first; with `max_items` no others.

    One number stands for all parts. n_items: of all parts.
    """
    if max_items is None:
        return PROBES_OF_ALL
    every = n_items * BLOCK
    blocks = [min(-(-max_items * len(part) // every), len(part.segment)) for part in parts]
    return np.array([*blocks, 0], dtype=np.int64)


def find_used_columns(
    parts: tuple[Part, ...], n_binary: int, budgets: NDArray[np.int64] = PROBES_OF_ALL, effort: np.int64 = EVERY
) -> tuple[int, int]:
    """Return the first column of real-valued queries that a search reads, and the one after the last.

    Binary components, `n_binary` columns, are not read if all items that are looked at have none, nor are dimensions of
    the dense component for which no item has a value.
    """
    first, last = n_binary, 0
    for number, part in enumerate(parts):
        tables = part.segment.tables
        n_dense_blocks = tables.block_starts[-1] - tables.block_starts[tables.binary_stop]
        is_covered = effort == MOST_USED and budgets[min(number, len(budgets) - 1)] <= n_dense_blocks
        first = first if is_covered or tables.binary_stop == 0 else 0
        last = max(last, n_binary + int(tables.precisions.sum(axis=1).max(initial=0)))
    return min(first, last), last


def _refuse_foreign(params: Any) -> None:
    """Raise an error for parameters that have no effect on this index, rather than ignore them."""
    wanted = "`params` must be SearchParametersCCCF or faiss.SearchParameters"
    if not hasattr(params, "sel") or isinstance(params, type):
        got = f"the class {params.__name__}" if isinstance(params, type) else type(params).__name__
        raise TypeError(f"{wanted}, got {got}.")
    if isinstance(params, faiss.SearchParameters) and type(params) is not faiss.SearchParameters:
        raise TypeError(
            f"{wanted}, got {type(params).__name__}, which is for another kind of index. "
            "To look at fewer items pass SearchParametersCCCF(max_items=...); `tune` finds the number."
        )
