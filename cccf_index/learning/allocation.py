"""Allocation: how many bytes the code of an item gets, by what its errors cost the lists of the queries.

Few items fill most lists, and most items are far from the end of any. The *loss* of an item by errors of some size is
the share of the lists' places that it gains or loses: how often its score is so near that of a list's last item that
the errors decide. Longer codes have smaller errors. The best codes for a mean number of bytes have one price of a byte
for all items, and each item has the code for which loss and price together are least. So an item's code depends on no
other item, also if it is added later.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index import _threads
from cccf_index.dense import DenseRows
from cccf_index.kernels import dense_rows
from cccf_index.kernels.limits import DENSE_STEP
from cccf_index.learning.dense import DenseSpace
from cccf_index.learning.plan import ID_BYTES
from cccf_index.learning.probes import find_largest
from cccf_index.learning.rows import pad_columns
from cccf_index.learning.sides import Sides, sample_by_size, sample_rows

WEIGHT_BYTES = 2  # of a dense component; those of binary ones take a byte
PROBES = 2048  # example queries
LISTS = {1.0: 1.0, 0.1: 1.0, 10.0: 0.3}  # lists of so many times k items, and how much each counts
EXAMPLES = 1024  # items on which the errors of precisions are measured
TRIED = 4096  # items on which allocations are compared
MOST_PRECISIONS = 3  # that items get
ERRORS = np.float32(2.0) ** -np.arange(9, dtype=np.float32)  # for which losses are measured; others lie between
SPARE = 1e-3  # of the mean loss, at least: what an item counts even if it is near the end of no list
BATCH = 64  # probes that are compared with all items at a time
BISECTIONS = 24


class ListEnds(NamedTuple):
    """Example queries of equal lengths, and the score of the last item of their lists.

    Queries and items are known by their leading coordinates: what the others add does not change who is near the end.
    """

    probes: NDArray[np.float32]  # (m, leading coordinates)
    lasts: NDArray[np.float32]  # (lists, m)
    shares: NDArray[np.float32]  # (lists,): what a place of such a list counts, so that all lists together count 1

    @classmethod
    def find(
        cls, sides: Sides, items: NDArray[np.float32], space: DenseSpace, k: int, rng: np.random.Generator
    ) -> ListEnds:
        """Sample queries, and find the last items of their lists of k items, of fewer and of more.

        items: the leading coordinates of those of `sides`.
        """
        probes = sides.users[sample_rows(len(sides.users), PROBES, rng)]
        probes = probes @ space.queries[: items.shape[1]].T
        # errors are alike in all directions in which queries have the same size: they are as large as the query is long
        sizes = np.linalg.norm(probes / space.leading_sizes, axis=1) / np.float32(np.sqrt(items.shape[1]))
        probes = np.ascontiguousarray(probes[sizes > 0] / sizes[sizes > 0, None])
        n_items = float(sides.numbers.sum())
        lengths = [max(1, min(int(n * k), int(n_items) // 10)) for n in LISTS]
        lasts = np.empty((len(lengths), len(probes)), np.float32)
        n_batches = -(-len(probes) // BATCH)  # of one size, whatever the threads: BLAS rounds depending on the batch

        def work(start: int, stop: int) -> None:
            for batch in range(start, stop):
                rows = range(len(probes) * batch // n_batches, len(probes) * (batch + 1) // n_batches)
                scores = probes[rows.start : rows.stop] @ items.T
                for row, line in zip(rows, scores, strict=True):
                    lasts[:, row] = [find_largest(line, length, sides.numbers)[0] for length in lengths]

        _threads.run_chunks(work, n_batches, _threads.thread_count(0), least=1, most=4)
        shares = np.array([*LISTS.values()]) / (sum(LISTS.values()) * np.array(lengths) * max(1, len(probes)))
        return cls(probes, lasts, shares.astype(np.float32))

    def halve(self) -> list[ListEnds]:
        """Return two halves of the queries."""
        return [ListEnds(self.probes[i::2], self.lasts[:, i::2], 2 * self.shares) for i in (0, 1)]

    def count_losses(
        self, items: NDArray[np.float32], lengths: NDArray[np.float32], errors: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return the losses (n, any) by errors (any,), which are shares of `lengths` (n,).

        items: leading coordinates (n, any).
        """
        m, n = len(self.probes), len(items)
        table = pad_columns(np.ascontiguousarray(self.probes.T))
        missing = ((0, 0), (0, table.shape[1] - m))
        lasts = np.pad(self.lasts, missing)
        shares = np.pad(np.repeat(self.shares[:, None], m, axis=1), missing)
        losses = np.empty((n, len(errors)), np.float32)

        def work(start: int, stop: int) -> None:
            scores = np.empty((dense_rows.TILE, dense_rows.COLUMNS), np.float32)
            dense_rows.count_losses(items, lengths, table, lasts, shares, errors, scores, losses, start, stop)

        _threads.run_chunks(work, n, _threads.thread_count(0), least=64, most=2048)
        return losses


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
    precisions: NDArray[np.int64]  # (kinds, 2): of dense components, by rising bytes; zeros for binary codes
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
        return cls(space, ends, precisions, *(arrays[name] for name in ("errors", "prices", "trust", "spare")))

    def assign(self, centred: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the kind of the code of each centred item (n, p): a row of `precisions`."""
        return np.argmin(self.weigh(self.space.map_leading(np.ascontiguousarray(centred))), axis=1)

    def weigh(self, leading: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return what each kind of code costs an item, (n, kinds): loss and price; leading: coordinates (n, any)."""
        lengths = self.space.measure(leading)
        losses = self.ends.count_losses(leading, lengths, self.errors) * self.trust
        return losses + self.spare * lengths[:, None] + self.prices

    def round_items(self, centred: NDArray[np.float32], kinds: NDArray[np.int64]) -> DenseRows:
        """Return the dense components of centred items (n, p) by the kinds of their codes."""
        weights, parts = np.zeros(len(centred), np.float32), []
        for kind, (n_full, n_half) in enumerate(self.precisions.tolist()):
            rows = np.flatnonzero(kinds == kind)
            if n_full + n_half and len(rows):
                n = n_full + n_half
                found = self.space.round_items(self.space.map_items(centred[rows], n), (n_full, n_half))
                weights[rows] = found.weights
                parts.append((rows[found.is_present], n, found.values))
        values = np.zeros((int(np.count_nonzero(weights)), len(self.space.items)), np.int8)
        order = np.cumsum(weights > 0) - 1
        for rows, n, own in parts:
            values[order[rows], :n] = own
        return DenseRows(weights, values)


class Offers(NamedTuple):
    """All kinds of codes with their bytes and errors, and what examples of the items would lose by each."""

    space: DenseSpace
    ends: ListEnds
    precisions: NDArray[np.int64]  # (kinds, 2), the binary code first
    errors: NDArray[np.float32]  # (kinds,)
    choice: Choice  # of items that have much to lose, to compare kinds
    examples: NDArray[np.float32]  # (n, any): leading coordinates of other items, whose bytes are counted
    trust: NDArray[np.float32]  # (ERRORS,): see `Allocation`
    spare: NDArray[np.float32]  # (ERRORS,)

    @classmethod
    def measure(
        cls,
        sides: Sides,
        examples: NDArray[np.float32],
        k: int,
        binary: tuple[float, NDArray[np.float32]],
        rng: np.random.Generator,
    ) -> Offers:
        """Learn the dense space, and measure all kinds of codes for lists of k items.

        examples: centred items (n, p), any of all; binary: the bytes of an item with a binary code, and what such codes
        decode to, (n, p), of the items of `sides`.
        """
        space = DenseSpace.learn(sides, rng)
        leading = space.map_leading(sides.items)
        ends, lengths = ListEnds.find(sides, leading, space, k, rng), space.measure(leading)
        halves = [half.count_losses(leading, lengths, ERRORS) for half in ends.halve()]
        trust, spare = judge_losses(halves[0], halves[1], lengths, sides.numbers)
        whole = trust * (halves[0] + halves[1]) / 2 + spare * lengths[:, None]
        sizes, errors, precisions = measure_kinds(sides, space, whole[:, 0], binary, rng)
        rows, counts = sample_by_size(whole[:, 0] * sides.numbers, TRIED, rng)
        choice = Choice(sizes, interpolate(whole[rows], errors), sides.numbers[rows] * counts)
        return cls(space, ends, precisions, errors, choice, space.map_leading(examples), trust, spare)

    def choose_kinds(self, budget: float) -> tuple[list[int], float]:
        """Return kinds of codes for `budget` bytes in the mean, by rising bytes, and the share of places that is lost.

        They are chosen one after the other, each so that the least is lost.
        """
        choice, kinds = self.choice, [0]
        others, lost = choice.find_hull(), choice.take([0]).spend(budget)[1]
        while len(kinds) <= MOST_PRECISIONS:
            found = [(choice.take([*kinds, kind]).spend(budget)[1], kind) for kind in others if kind not in kinds]
            if not found or min(found)[0] >= lost:
                break
            lost, kind = min(found)
            kinds.append(kind)
        return sorted(kinds, key=lambda kind: float(choice.sizes[kind])), lost

    def find_budget(self, least: float, most_lost: float) -> float | None:
        """Return a number of bytes, more than `least`, by which at most a share of the places is lost, if there is."""
        for budget in np.geomspace(least, self.choice.sizes.max(), 9)[1:].tolist():
            if self.choose_kinds(budget)[1] <= most_lost:
                return float(np.ceil(budget))
        return None

    def allocate(self, budget: float) -> Allocation:
        """Choose the kinds of codes and the price of a byte, so that items take `budget` bytes in the mean."""
        kinds, _ = self.choose_kinds(budget)
        sizes, errors = self.choice.sizes[kinds], self.errors[kinds]
        trust, spare = (interpolate(of_errors[None], errors)[0] for of_errors in (self.trust, self.spare))
        free = np.zeros(len(kinds), np.float32)
        allocation = Allocation(self.space, self.ends, self.precisions[kinds], errors, free, trust, spare)
        price, _ = Choice(sizes, allocation.weigh(self.examples), np.ones(len(self.examples))).spend(budget)
        return allocation._replace(prices=(price * sizes).astype(np.float32))


def judge_losses(
    first: NDArray[np.float32],
    second: NDArray[np.float32],
    lengths: NDArray[np.float32],
    numbers: NDArray[np.float64],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return how far losses counted on examples can be trusted, and what items lose anyway for each unit of length.

    first, second: (n, errors), by two halves of the examples; numbers: (n,), how many items each row stands for. What
    the halves have in common is worth of items, the rest is chance. Where all is chance, all items are worth their
    length.
    """
    shares = numbers / numbers.sum()
    both = (first.astype(np.float64) + second) / 2
    means = shares @ both
    common = shares @ ((first - means) * (second - means))
    whole = shares @ np.square(both - means)
    trust = np.clip(common / np.maximum(whole, 1e-300), 0, 1 - SPARE)
    spare = (1 - trust) * means / max(float(shares @ lengths), 1e-30)
    return trust.astype(np.float32), spare.astype(np.float32)


def measure_kinds(
    sides: Sides,
    space: DenseSpace,
    losses: NDArray[np.float32],
    binary: tuple[float, NDArray[np.float32]],
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.float32], NDArray[np.int64]]:
    """Return bytes, errors and precisions of all kinds of codes, the binary one first.

    Errors are means over examples, by what the items have to lose.
    """
    chances = np.maximum(losses * sides.numbers, np.finfo(np.float32).tiny)
    n = min(EXAMPLES, len(chances))
    rows = np.sort(rng.choice(len(chances), n, replace=False, p=chances / chances.sum()))
    x = space.map_items(sides.items[rows])
    own = np.maximum(space.measure(x), np.finfo(np.float32).tiny)

    def measure_error(coded: NDArray[np.float32]) -> float:
        return float((space.measure(x - coded) / own).mean())

    kinds = [(binary[0], measure_error(space.map_items(binary[1][rows])), (0, 0))]
    for precision in list_precisions(x.shape[1]):
        size = precision[0] + precision[1] / 2 + WEIGHT_BYTES + ID_BYTES
        kinds.append((size, measure_error(space.round_items(x, precision).expand()), precision))
    sizes, errors, precisions = zip(*kinds, strict=True)
    return np.array(sizes), np.array(errors, np.float32), np.array(precisions, np.int64)


def interpolate(losses: NDArray[np.float32], errors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return losses (n, any) by some errors, from those by ERRORS; below the least they are proportional."""
    found = np.empty((len(losses), len(errors)), np.float32)
    for place, error in enumerate(errors):
        i = int(np.clip(np.searchsorted(-ERRORS, -error), 1, len(ERRORS) - 1))  # ERRORS fall
        if error <= ERRORS[-1]:
            found[:, place] = losses[:, -1] * (error / ERRORS[-1])
        else:
            share = np.clip((error - ERRORS[i]) / (ERRORS[i - 1] - ERRORS[i]), 0, 1)
            found[:, place] = share * losses[:, i - 1] + (1 - share) * losses[:, i]
    return found


def list_precisions(n_dense: int) -> list[tuple[int, int]]:
    """Return precisions to choose from: of all multiples of DENSE_STEP where they are few, else of growing ones."""
    ends, end = [0], 0
    while end < n_dense:
        end = min(end + max(1, end // DENSE_STEP // 6) * DENSE_STEP, n_dense)
        ends.append(end)
    return [(first, last - first) for last in ends[1:] for first in ends if first <= last]
