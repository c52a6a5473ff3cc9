"""How to search: the parameters of a caller, and the validated options of one search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cccf_index import _check, _threads
from cccf_index.kernels.limits import BLOCK
from cccf_index.kernels.search import PROBES
from cccf_index.storage.selectors import restrict_parts
from cccf_index.storage.state import Part, State


@dataclass
class SearchParametersCCCF:
    """How to search, in the manner of `faiss.SearchParameters`.

    Parameters
    ----------
    sel : faiss.IDSelector or array_like of int, optional
        Return only items that it accepts.
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
    shortlist : int, optional
        For real-valued queries: find ``shortlist * k`` items by the code nearest to the query, then rank them with the
        query itself: the result is approximate. Coded queries ignore it.

    Examples
    --------
    >>> import faiss
    >>> from cccf_index import SearchParametersCCCF
    >>> params = SearchParametersCCCF(sel=faiss.IDSelectorRange(0, 100), num_threads=1)
    """

    sel: Any = None
    num_threads: int = 0
    prune: bool = True
    coded: bool = False
    max_items: int | None = None
    shortlist: int | None = None

    def __post_init__(self) -> None:
        self.num_threads = _check.integer(self.num_threads, "num_threads", 0)
        self.max_items = _check_count(self.max_items, "max_items")
        self.shortlist = _check_count(self.shortlist, "shortlist")
        if not self.prune and (self.max_items or self.shortlist):
            raise ValueError("`prune` must be True with `max_items` or `shortlist`: without it every item is scored.")
        if self.coded and self.shortlist:
            raise ValueError("`shortlist` must be None with `coded`: it is for queries that stay real-valued.")


def _check_count(value: int | None, name: str) -> int | None:
    return None if value is None else _check.integer(value, name, 1, or_else="or None")


DEFAULT = SearchParametersCCCF()
NOTHING = np.zeros(2, dtype=np.int64)


class ExcludedIds(NamedTuple):
    """What must not be returned to each query of a batch."""

    starts: NDArray[np.int64]  # (nq + 1,)
    ids: NDArray[np.int64]  # ascending for each query


class SearchOptions(NamedTuple):
    """Validated search options."""

    parts: tuple[Part, ...]  # with only the items that may be returned
    n_items: int  # of all parts
    exclude: sparse.csr_array | None  # pairs of query and id
    nq: int
    n_threads: int
    prune: bool
    max_items: int | None
    shortlist: int | None

    @classmethod
    def from_keywords(cls, state: State, nq: int, params: Any, exclude: Any, allow: Any) -> SearchOptions:
        """Check the keywords of a search of a state by nq queries."""
        if params is None:
            params = DEFAULT
        if not hasattr(params, "sel"):
            raise TypeError(
                f"`params` must be SearchParametersCCCF or faiss.SearchParameters, got {type(params).__name__}."
            )
        parts = state.parts
        if params.sel is not None or allow is not None:
            parts = restrict_parts(restrict_parts(parts, params.sel, "params.sel", nq), allow, "allow", nq)
        return cls(
            parts,
            sum(map(len, parts)),
            None if exclude is None else _check.pairs(exclude, "exclude", nq),
            nq,
            _threads.thread_count(getattr(params, "num_threads", 0)),
            bool(getattr(params, "prune", True)),
            _check_count(getattr(params, "max_items", None), "max_items"),
            _check_count(getattr(params, "shortlist", None), "shortlist"),
        )

    @property
    def is_complete(self) -> bool:
        """Whether all items are looked at that may be good enough, however many."""
        return self.max_items is None

    def count_blocks(self, part: Part) -> int:
        """Return how many blocks of a part are looked at first, the most promising; with `max_items` no others."""
        if self.max_items is None:
            return PROBES
        return min(-(-self.max_items * len(part) // (self.n_items * BLOCK)), len(part.segment))

    def excluded_ids(self, rows: NDArray[np.int64]) -> ExcludedIds:
        """Return the excluded ids of the queries in `rows`."""
        if self.exclude is None:
            return ExcludedIds(NOTHING if len(rows) == 1 else np.zeros(len(rows) + 1, dtype=np.int64), NOTHING[:0])
        chosen = self.exclude if len(rows) == self.nq else self.exclude[rows]
        return ExcludedIds(chosen.indptr.astype(np.int64), chosen.indices.astype(np.int64))
