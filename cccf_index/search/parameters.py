"""How to search: what a caller may ask for, and what it comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cccf_index import _check, _threads
from cccf_index.search import scan
from cccf_index.storage.selectors import restrict
from cccf_index.storage.state import Part, State


@dataclass
class SearchParametersCCCF:
    """How to search, in the manner of `faiss.SearchParameters`.

    Parameters
    ----------
    sel : faiss.IDSelector or array_like of int, optional
        Only items that it accepts are returned.
    num_threads : int
        0 takes what `faiss.omp_set_num_threads` allows.
    prune : bool
        Skip items whose bound is below the k-th best score. It never changes a result; False scores every item.
    coded : bool
        For an index of vectors: encode queries before the search, which scores them in integers: faster, somewhat less
        accurate. Otherwise they stay real-valued.
    max_items : int, optional
        Look at so many items only, in blocks of 64, the likeliest first: the result is approximate. `IndexCCCF.tune`
        finds the number for a wanted recall.
    shortlist : int, optional
        For real-valued queries: their nearest codes choose ``shortlist * k`` items, which the queries themselves rank,
        from the items' codes: approximate. Queries that are codes do without.

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
        self.max_items = _count(self.max_items, "max_items")
        self.shortlist = _count(self.shortlist, "shortlist")
        if not self.prune and (self.max_items or self.shortlist):
            raise ValueError("`prune` must be True with `max_items` or `shortlist`: without it every item is scored.")
        if self.coded and self.shortlist:
            raise ValueError("`shortlist` must be None with `coded`: it is for queries that stay real-valued.")


def _count(value: int | None, name: str) -> int | None:
    return None if value is None else _check.integer(value, name, 1, or_else="or None")


DEFAULT = SearchParametersCCCF()
NOTHING = np.zeros(2, dtype=np.int64)


class Options(NamedTuple):
    """What the keywords of a search come to."""

    parts: tuple[Part, ...]
    exclude: sparse.csr_array | None
    nq: int
    n_threads: int
    effort: scan.Effort

    @classmethod
    def of(cls, state: State, nq: int, params: Any, exclude: Any, allow: Any) -> Options:
        if params is None:
            params = DEFAULT
        if not hasattr(params, "sel"):
            raise TypeError(
                f"`params` must be SearchParametersCCCF or faiss.SearchParameters, got {type(params).__name__}."
            )
        parts = state.parts
        if params.sel is not None or allow is not None:
            parts = restrict(restrict(parts, params.sel, "params.sel", nq), allow, "allow", nq)
        return cls(
            parts,
            None if exclude is None else _check.pairs(exclude, "exclude", nq),
            nq,
            _threads.thread_count(getattr(params, "num_threads", 0)),
            scan.Effort(
                bool(getattr(params, "prune", True)),
                _count(getattr(params, "max_items", None), "max_items"),
                _count(getattr(params, "shortlist", None), "shortlist"),
            ),
        )

    def excluded(self, rows: NDArray[np.int64]) -> scan.Pairs:
        """Return the excluded ids of the queries in `rows`."""
        if self.exclude is None:
            return (NOTHING if len(rows) == 1 else np.zeros(len(rows) + 1, dtype=np.int64)), NOTHING[:0]
        chosen = self.exclude if len(rows) == self.nq else self.exclude[rows]
        return chosen.indptr.astype(np.int64), chosen.indices.astype(np.int64)
