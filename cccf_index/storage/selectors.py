"""Which items a search may return: allowed ids, faiss selectors, and selectors that are prepared for many searches.

A subset for a whole batch becomes a smaller or masked set of parts, so the scan knows nothing of selectors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

import faiss
import numpy as np
from numpy.typing import NDArray

from cccf_index import _check, _threads
from cccf_index.storage.segment import Segment
from cccf_index.storage.state import MAX_DEAD, Part

REBUILD = 1024  # grouping a row again costs about as much as skipping a masked one for this many queries
BUILD_ROWS = 1024  # a new segment costs as much as this many rows, however small it is


def list_ids(allowed: Any, name: str) -> NDArray[np.int64] | None:
    """Return the ids of an array, an IDSelectorArray or an IDSelectorBitmap, ascending; None for other selectors."""
    if type(allowed) is faiss.IDSelectorArray:
        allowed = faiss.rev_swig_ptr(allowed.ids, allowed.n) if allowed.n else []
        return np.unique(np.asarray(allowed, dtype=np.int64))
    if type(allowed) is faiss.IDSelectorBitmap:
        octets = faiss.rev_swig_ptr(allowed.bitmap, allowed.n) if allowed.n else np.empty(0, np.uint8)
        return np.flatnonzero(np.unpackbits(octets, bitorder="little"))
    return None if isinstance(allowed, faiss.IDSelector) else np.unique(_check.ids(allowed, name))


def list_allowed(allowed: Any, name: str) -> NDArray[np.int64] | None:
    """Return what `list_ids` does, and the ids where a mask (any,) is True."""
    if not isinstance(allowed, faiss.IDSelector):
        array = _check.to_array(allowed)
        if array.dtype.kind == "b" and array.ndim:
            if array.ndim > 1:
                raise ValueError(f"`{name}` must be 1-dimensional, one mask for all queries, got shape {array.shape}.")
            return np.flatnonzero(array)
    return list_ids(allowed, name)


def select_members(selector: faiss.IDSelector, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return those of the unique `ids` that the selector accepts, in no particular order.

    From Python faiss answers for one id a call, and its compound selectors do not show what they are made of.
    So the ids label a throw-away index, and faiss itself takes out what the selector's complement accepts.
    """
    if type(selector) is faiss.IDSelectorAll:
        return ids
    if type(selector) is faiss.IDSelectorRange:
        return ids[(ids >= selector.imin) & (ids < selector.imax)]
    flat = faiss.IndexBinaryFlat(8)
    labelled = faiss.IndexBinaryIDMap(flat)
    labelled.add_with_ids(np.zeros((len(ids), 1), dtype=np.uint8), np.ascontiguousarray(ids))
    labelled.remove_ids(faiss.IDSelectorNot(selector))
    return faiss.vector_to_array(labelled.id_map)


class PreparedSelector:
    """Allowed items that are looked up once, for all later searches; made by `IndexCCCF.prepare`.

    Pass it as `allow` or as `params.sel`. It is a rule, and what it came to for the items that an index held: it stays
    correct when items are added or removed, and with any other index. New items are looked up by the next search.
    Threads may share it. Ids and masks are copied; a faiss selector must not change any more.

    Parameters
    ----------
    allow : array_like of int or bool, faiss.IDSelector or PreparedSelector
        See `IndexCCCF.prepare`.

    Examples
    --------
    >>> import numpy as np
    >>> import cccf_index as ci
    >>> rng = np.random.default_rng(0)
    >>> items = ci.CompositionalCodes.from_signs(rng.random((1000, 8, 16)) < 0.5, rng.random((1000, 8)))
    >>> index = ci.IndexCCCF(n_components=8, n_bits=16)
    >>> index.add(items)
    >>> in_stock = index.prepare(allow=rng.random(1000) < 0.5)
    >>> D, I = index.search(items[:3], 10, allow=in_stock)
    >>> all(in_stock.is_member(i) for i in I.ravel())
    True
    """

    def __init__(self, allow: Any) -> None:
        if isinstance(allow, PreparedSelector):
            allow = allow._rule
        ids = list_allowed(allow, "allow")
        if type(allow) is faiss.IDSelectorRange:
            allow = faiss.IDSelectorRange(allow.imin, allow.imax)
        self._rule: Any = allow if ids is None else ids  # ascending ids, or a faiss selector
        self._lock = _threads.Lock()
        # Weak keys, and values that refer to none of them: segments that an index no longer holds are not kept alive.
        # Of a segment: its accepted rows as a mask, or as a segment of their own where they are fewer.
        self._accepted: WeakKeyDictionary[Segment, NDArray[np.bool_] | Segment] = WeakKeyDictionary()
        # Of a part: one with only the accepted items, nothing where there are none, or None where all are accepted.
        self._views: WeakKeyDictionary[Part, tuple[Part, ...] | None] = WeakKeyDictionary()

    def is_member(self, id: int, /) -> bool:
        """Whether an item with this id may be returned."""
        if isinstance(self._rule, np.ndarray):
            place = int(np.searchsorted(self._rule, id))
            return place < len(self._rule) and bool(self._rule[place] == id)
        return bool(self._rule.is_member(int(id)))

    def __repr__(self) -> str:
        is_list = isinstance(self._rule, np.ndarray)
        return f"<PreparedSelector of {f'{len(self._rule)} ids' if is_list else type(self._rule).__name__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return PreparedSelector, (self._rule,)

    def restrict(self, parts: Iterable[Part]) -> tuple[Part, ...]:
        """Return the parts with only the items that are accepted."""
        result: tuple[Part, ...] = ()
        for part in parts:
            try:
                view = self._views[part]
            except KeyError:
                view = self._make_view(part)
            result += (part,) if view is None else view
        return result

    def _make_view(self, part: Part) -> tuple[Part, ...] | None:
        with self._lock:
            if part not in self._views:
                accepted = self._accepted.get(part.segment)
                if accepted is None:
                    accepted = self._accepted[part.segment] = self._accept(part.segment)
                self._views[part] = _apply(accepted, part)
            return self._views[part]

    def _accept(self, segment: Segment) -> NDArray[np.bool_] | Segment:
        """Look up which rows of a segment are accepted. Searches are fastest where few others are in their way."""
        is_list = isinstance(self._rule, np.ndarray)
        rows = segment.find(self._rule if is_list else select_members(self._rule, segment.ids))
        mask = np.zeros(len(segment), dtype=bool)
        mask[rows[rows >= 0]] = True
        rows = np.flatnonzero(mask)
        return Part(segment).select(rows).segment if 0 < len(rows) < (1 - MAX_DEAD) * len(segment) else mask


def _apply(accepted: NDArray[np.bool_] | Segment, part: Part) -> tuple[Part, ...] | None:
    """Return a part with only the accepted rows, nothing if none is left; None if that is all of them."""
    if isinstance(accepted, Segment):
        alive = np.ones(len(accepted), dtype=bool)
        if part.n_dead:
            rows = accepted.find(part.segment.decode_ids(np.flatnonzero(part.dead_mask)))
            alive[rows[rows >= 0]] = False
        part = Part(accepted)
        if alive.all():
            return (part,)
    else:
        alive = accepted & ~part.dead_mask
        if np.count_nonzero(alive) == len(part):
            return None
    return (part.mask(alive),) if alive.any() else ()


def restrict_parts(parts: tuple[Part, ...], allowed: Any, name: str, n_queries: int) -> tuple[Part, ...]:
    """Return the parts with only the items that `allowed` accepts: ids, a mask, a faiss or a prepared selector."""
    if isinstance(allowed, PreparedSelector):
        return allowed.restrict(parts)
    if allowed is None or type(allowed) is faiss.IDSelectorAll:
        return parts
    wanted = list_allowed(allowed, name)
    result = []
    for part in parts:
        rows = part.find(select_members(allowed, part.segment.ids) if wanted is None else wanted)
        rows = rows[rows >= 0]
        if len(rows) == len(part):
            result.append(part)
        elif not len(rows):
            continue
        elif (len(rows) + BUILD_ROWS) * REBUILD < n_queries * len(part.segment):
            result.append(part.select(rows, clustered=False))
        else:
            alive = np.zeros(len(part.segment), dtype=bool)
            alive[rows] = True
            result.append(part.mask(alive))
    return tuple(result)
