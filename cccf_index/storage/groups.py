"""Groups: items with the same set of non-zero components stand together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MIN_GROUP = 256  # sets of components with fewer items share a group that covers them all
MAX_PADDING = 1.1  # one group for all, if it stores at most so many codes for each that is not zero


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
