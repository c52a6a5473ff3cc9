"""Allocation: how many bytes the code of an item gets, by what its errors cost the lists of the queries.

Longer codes have smaller errors. The best codes for a mean number of bytes have one price of a byte for all items, and
each item has the code for which loss and price together are least. So an item's code depends on no other item, also if
it is added later.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index.dense import DenseRows
from cccf_index.kernels.limits import DENSE_STEP
from cccf_index.learning.dense import DenseSpace
from cccf_index.learning.losses import ListEnds, describe_estimates

BISECTIONS = 24
FACTORS = ("gains", "errors", "prices", "trust", "spare")  # of an allocation, float32 (kinds,) each


class Choice(NamedTuple):
    """Kinds of codes that items may get, and what they cost at a price of a byte."""

    sizes: NDArray[np.float64]  # (kinds,): bytes of an item, with its id
    losses: NDArray[np.float32]  # (n, kinds)
    numbers: NDArray[np.float64]  # (n,): how many items each row stands for

    def take(self, kinds: Any) -> Choice:
        """Return only some of the kinds."""
        return Choice(self.sizes[kinds], self.losses[:, kinds], self.numbers)

    def assign(self, price: float) -> NDArray[np.int64]:
        """Return the kind of each row, if a byte costs `price`: of equal ones the first, as `argmin` would."""
        kinds, best = np.zeros(len(self.losses), np.int64), self.losses[:, 0] + np.float32(price * self.sizes[0])
        for kind in range(1, len(self.sizes)):  # they are few: `argmin` takes ten times as long
            costs = self.losses[:, kind] + np.float32(price * self.sizes[kind])
            kinds[costs < best] = kind
            best = np.minimum(best, costs)
        return kinds

    def spend(self, budget: float) -> tuple[float, float]:
        """Return the price at which rows take `budget` bytes in the mean, or less, and what is lost in all."""
        low, high, lost = -100.0, 20.0, np.inf  # of the price, as powers of 2
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            kinds = self.assign(2.0**middle)
            if self.numbers @ self.sizes[kinds] > budget * self.numbers.sum():
                low = middle
            else:
                high, lost = middle, float(self.numbers @ self.losses[np.arange(len(kinds)), kinds])
        return 2.0**high, lost

    def find_hull(self) -> list[int]:
        """Return the kinds that would be best for all items together, at some price of a byte, by rising bytes."""
        totals, hull = self.numbers @ self.losses, list[int]()

        def slope(left: int, right: int) -> float:
            return float((totals[right] - totals[left]) / (self.sizes[right] - self.sizes[left]))

        for kind in np.lexsort((totals, self.sizes)).tolist():
            if hull and (totals[kind] >= totals[hull[-1]] or self.sizes[kind] == self.sizes[hull[-1]]):
                continue
            while len(hull) > 1 and slope(hull[-2], hull[-1]) >= slope(hull[-1], kind):
                hull.pop()
            hull.append(kind)
        return hull


class Allocation(NamedTuple):
    """How codes of different lengths are chosen and made; saved by field name."""

    space: DenseSpace
    ends: ListEnds
    precisions: NDArray[np.int64]  # (kinds, levels): of dense components, by rising bytes; zeros for binary codes
    gains: NDArray[np.float32]  # (kinds,): by which weights are raised for the dimensions that are left out
    errors: NDArray[np.float32]  # (kinds,): as shares of the scores
    prices: NDArray[np.float32]  # (kinds,): of the bytes of an item
    trust: NDArray[np.float32]  # (kinds,): what a loss that is counted on examples counts,
    spare: NDArray[np.float32]  # (kinds,): and what an item loses anyway for each unit of its length

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[Any]]) -> Allocation:
        """Put together what was saved, checked arrays by name."""
        space = DenseSpace(*(arrays[f"space.{name}"] for name in DenseSpace._fields))
        ends = ListEnds(*(arrays[f"ends.{name}"] for name in ListEnds._fields))
        precisions, n_dense = arrays["precisions"], len(space.items)
        is_good = (precisions >= 0).all() and not (precisions % DENSE_STEP).any() and not n_dense % DENSE_STEP
        if not is_good or (precisions.sum(axis=1) > n_dense).any():
            raise ValueError("its precisions do not fit")
        return cls(space, ends, precisions, *(arrays[name] for name in FACTORS))

    @property
    def is_binary(self) -> NDArray[np.bool_]:
        """Which kinds are binary codes, (kinds,)."""
        return np.asarray(~self.precisions.any(axis=1))

    def assign(self, centred: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the kind of the code of each centred item (n, p): a row of `precisions`."""
        if len(self.precisions) == 1:
            return np.zeros(len(centred), np.int64)
        return np.argmin(self.weigh(self.space.map_leading(np.ascontiguousarray(centred))), axis=1)

    def weigh(self, leading: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return what each kind of code costs an item, (n, kinds): loss and price; leading: coordinates (n, any)."""
        lengths = self.space.measure(leading)
        estimates = describe_estimates(self.errors, self.is_binary)
        losses = self.ends.count_losses(leading, lengths, *estimates) * self.trust
        return losses + self.spare * lengths[:, None] + self.prices

    def round_items(self, centred: NDArray[np.float32], kinds: NDArray[np.int64]) -> DenseRows:
        """Return the dense components of centred items (n, p) by the kinds of their codes."""
        weights, parts = np.zeros(len(centred), np.float32), []
        for kind, n in enumerate(self.precisions.sum(axis=1).tolist()):
            rows = np.flatnonzero(kinds == kind)
            if n and len(rows):
                found = self.space.round_items(self.space.map_items(centred[rows], n), self.precisions[kind])
                weights[rows] = found.weights * self.gains[kind]
                parts.append((rows[found.is_present], n, found.values))
        values = np.zeros((int(np.count_nonzero(weights)), len(self.space.items)), np.int8)
        order = np.cumsum(weights > 0) - 1
        for rows, n, own in parts:
            values[order[rows], :n] = own
        return DenseRows(weights, values)
