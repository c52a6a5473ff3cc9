"""Groups: items with the same set of non-zero components stand together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index.kernels.levels import no_precisions
from cccf_index.storage.item_rows import ItemRows
from cccf_index.storage.precisions import choose_precisions

MIN_GROUP = 128  # sets of components with fewer items share a group that covers them all
MAX_PADDING = 1.1  # one group for all, if it stores at most so many codes for each that is not zero


class Groups(NamedTuple):
    """Rows by group; the groups without a dense component come first, those with nothing else last."""

    member: NDArray[Any]  # (n,): the group of each row
    covers: NDArray[np.uint64]  # (groups,): the binary components of each, bit k for component k
    precisions: NDArray[np.int64]  # (groups, levels): of dense values; zeros where there are none

    @classmethod
    def assign(cls, rows: ItemRows) -> Groups:
        """Assign rows to groups: by their binary components or, if they have a dense one, by its precision."""
        sets = find_component_sets(rows.weights)
        if rows.dense is None or not len(rows.dense.values):
            member, covers = assign_groups(sets)
            return cls(member, covers, no_precisions(len(covers)))
        has_dense = rows.dense.is_present
        kinds, kind_of = choose_precisions(rows.dense.values)
        also = np.zeros(len(kinds), np.uint64)  # the binary components of those rows
        np.bitwise_or.at(also, kind_of, sets[has_dense])
        order = np.argsort(also == 0, kind="stable")
        member, covers = np.empty(len(rows), np.int64), np.empty(0, np.uint64)
        if not has_dense.all():
            member[~has_dense], covers = assign_groups(sets[~has_dense])
        member[has_dense] = len(covers) + np.argsort(order)[kind_of]
        precisions = np.concatenate([no_precisions(len(covers)), kinds[order]])
        return cls(member, np.concatenate([covers, also[order]]), precisions)


def find_component_sets(weights: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the set of active components of each row as a mask, bit k for component k."""
    octets = np.packbits(weights > 0, axis=1, bitorder="little")
    padded = np.zeros((len(weights), 8), dtype=np.uint8)
    padded[:, : octets.shape[1]] = octets
    return padded.view(np.uint64)[:, 0]


def count_components(sets: Any) -> Any:
    """Return how many components each set has."""
    return np.unpackbits(np.asarray(sets)[..., None].view(np.uint8), axis=-1).sum(axis=-1, dtype=np.int64)


def assign_groups(sets: NDArray[np.uint64]) -> tuple[NDArray[Any], NDArray[np.uint64]]:
    """Return the group of each row and the set of components that each group covers.

    Where nearly all rows have nearly all components, they are one group. Else a set of at least `MIN_GROUP` rows is
    a group of its own, and smaller ones join their neighbours in numeric order, which share their highest
    components, until a group has about that many rows: tiny groups never dominate a scan.
    """
    masks, member, counts = np.unique(sets, return_inverse=True, return_counts=True)
    cover = np.bitwise_or.reduce(masks)
    if len(sets) * count_components(cover) <= MAX_PADDING * (counts @ count_components(masks)):
        return np.zeros(len(sets), dtype=np.uint8), cover[None]
    tiny = counts < MIN_GROUP
    group = np.empty(len(masks), dtype=np.int64)
    # every step of the running count is below MIN_GROUP, so no group number is left out
    group[tiny] = (np.cumsum(counts[tiny]) - 1) // MIN_GROUP
    n_shared = int(group[tiny][-1]) + 1 if tiny.any() else 0
    group[~tiny] = n_shared + np.arange(len(masks) - tiny.sum())
    covers = np.zeros(n_shared + len(masks) - int(tiny.sum()), dtype=np.uint64)
    np.bitwise_or.at(covers, group, masks)
    return group.astype(np.min_scalar_type(len(covers)))[member.ravel()], covers
