"""Trials: which of several allocations loses the fewest places in the lists of queries that none was made for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index.learning.allocation import Allocation
from cccf_index.learning.dense import DenseSpace
from cccf_index.learning.losses import SHARES, find_lasts, list_lengths


class Trial(NamedTuple):
    """Queries that were held out, and a sample of the items with their binary codes."""

    queries: NDArray[np.float32]  # (m, n_dense): coordinates in the dense space
    centred: NDArray[np.float32]  # (n, p): items
    items: NDArray[np.float32]  # (n, n_dense): their coordinates
    decoded: NDArray[np.float32]  # (n, n_dense): the coordinates of what their binary codes decode to
    numbers: NDArray[np.float64]  # (n,): how many items each stands for
    lengths: list[int]  # of lists
    lasts: NDArray[np.float32]  # (lists, m): the score of the last item of each list

    @classmethod
    def prepare(
        cls,
        space: DenseSpace,
        users: NDArray[np.float32],
        items: NDArray[np.float32],
        decoded: NDArray[np.float32],
        numbers: NDArray[np.float64],
        k: int,
    ) -> Trial:
        """Find the lists of users (m, p) among centred items (n, p), whose binary codes are decoded to (n, p)."""
        queries, own, other = users @ space.queries.T, space.map_items(items), space.map_items(decoded)
        lengths = list_lengths(k, int(numbers.sum()))
        return cls(queries, items, own, other, numbers, lengths, find_lasts(queries, own, numbers, lengths))

    def measure_loss(self, allocation: Allocation) -> float:
        """Return the share of the places in lists that other items take by the codes of an allocation."""
        kinds = allocation.assign(self.centred)
        coded = allocation.round_items(self.centred, kinds).expand()
        is_binary = allocation.is_binary[kinds]
        coded[is_binary] = self.decoded[is_binary]
        coded_lasts = find_lasts(self.queries, coded, self.numbers, self.lengths)
        scores, estimates = (self.queries @ x.T for x in (self.items, coded))
        losses = []
        for length, last, coded_last in zip(self.lengths, self.lasts, coded_lasts, strict=True):
            is_lost = (scores >= last[:, None]) & (estimates < coded_last[:, None])
            losses.append(float((is_lost @ self.numbers).mean()) / length)
        return float(SHARES @ losses)
