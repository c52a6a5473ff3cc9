"""Which items a search may return: faiss selectors, allowed ids, excluded pairs.

A subset for a whole batch becomes a smaller or masked set of parts, so the scan knows nothing of selectors.
"""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cccf_index import _check
from cccf_index.storage.state import Part

REBUILD = 1024  # grouping a row again costs about as much as scoring it for this many queries


def list_ids(allowed: Any, name: str) -> NDArray[np.int64] | None:
    """Return the ids of an array or of an IDSelectorArray, ascending; None for other selectors."""
    if type(allowed) is faiss.IDSelectorArray:
        allowed = faiss.rev_swig_ptr(allowed.ids, allowed.n) if allowed.n else []
        return np.unique(np.asarray(allowed, dtype=np.int64))
    return None if isinstance(allowed, faiss.IDSelector) else np.unique(_check.ids(allowed, name))


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


def restrict_parts(parts: tuple[Part, ...], allowed: Any, name: str, n_queries: int) -> tuple[Part, ...]:
    """Return the parts with only the items that `allowed`, an array of ids or a faiss selector, accepts."""
    if allowed is None or type(allowed) is faiss.IDSelectorAll:
        return parts
    wanted = list_ids(allowed, name)
    result = []
    for part in parts:
        rows = part.find(select_members(allowed, part.segment.ids) if wanted is None else wanted)
        rows = rows[rows >= 0]
        if len(rows) == len(part):
            result.append(part)
        elif len(rows) * REBUILD < n_queries * len(part.segment):
            if len(rows):
                result.append(part.select(rows, clustered=False))
        else:
            alive = np.zeros(len(part.segment), dtype=bool)
            alive[rows] = True
            result.append(part.mask(alive))
    return tuple(result)
