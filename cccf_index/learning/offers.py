"""Offers: all kinds of codes that items may get, and the choice of a few of them for a budget of bytes."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index.kernels.levels import BITS, no_precisions, row_sizes
from cccf_index.kernels.limits import DENSE_STEP
from cccf_index.learning.allocation import Allocation, Choice
from cccf_index.learning.dense import DenseSpace
from cccf_index.learning.losses import ERRORS, ListEnds, describe_estimates, interpolate, judge_losses
from cccf_index.learning.plan import ID_BYTES
from cccf_index.learning.sides import Sides, sample_by_size
from cccf_index.learning.trials import Trial

WEIGHT_BYTES = 2  # of a dense component; those of binary ones take a byte
PROBES = 2048  # example queries
EXAMPLES = 1024  # items on which the errors of precisions are measured
TRIED = 4096  # items on which sets of kinds are compared,
HELD_OUT = 512  # queries on which an allocation is compared with codes of one kind for all items,
HELD_OUT_ITEMS = 16384  # and items: with fewer, short lists hold hardly any of them
MOST_PRECISIONS = 3  # that items get
NORMAL_ERRORS = (1e-4, 0.0115, 0.1175, 0.3634)  # squared, of values of deviation 1 at each level, if they are normal
GROWTH = 1.04  # bits of a precision are at least so many times those of the one before it


class Offers(NamedTuple):
    """All kinds of codes with their bytes and errors, and what examples of the items would lose by each."""

    space: DenseSpace
    ends: ListEnds
    precisions: NDArray[np.int64]  # (kinds, levels), the binary code first
    gains: NDArray[np.float32]  # (kinds,)
    errors: NDArray[np.float32]  # (kinds,)
    choice: Choice  # of items that have much to lose, to compare kinds
    examples: NDArray[np.float32]  # (n, any): leading coordinates of other items, whose bytes are counted
    trust: NDArray[np.float32]  # (1 + ERRORS,): see `Allocation`; first for binary codes
    spare: NDArray[np.float32]  # (1 + ERRORS,)
    trial: Trial

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
        space, numbers = DenseSpace.learn(sides, rng), sides.numbers
        leading = space.map_leading(sides.items)
        users = sides.users[rng.permutation(len(sides.users))[: PROBES + HELD_OUT]]
        held_out, probes = np.split(users, [min(HELD_OUT, len(users) // 5)]) if len(users) >= 5 else (users, users)
        sizes = space.leading_sizes
        ends = ListEnds.find(probes @ space.queries[: len(sizes)].T, leading, numbers, sizes, k)
        lengths = space.measure(leading)

        def count_losses(means: NDArray[np.float32], deviations: NDArray[np.float32]) -> Any:
            halves = [half.count_losses(leading, lengths, means, deviations) for half in ends.halve()]
            trust, spare = judge_losses(halves[0], halves[1], lengths, numbers)
            return trust * (halves[0] + halves[1]) / 2 + spare * lengths[:, None], trust, spare

        nothing = np.zeros(1, np.float32)  # an item that scores 0 in all lists loses all its places
        worth = count_losses(nothing, nothing)[0][:, 0] * numbers
        kinds = measure_kinds(sides, space, worth, binary, rng)
        known = np.concatenate([kinds.errors[:1], ERRORS])
        losses, trust, spare = count_losses(*describe_estimates(known, np.arange(len(known)) == 0))
        rows, counts = sample_by_size(worth, TRIED, rng)
        choice = Choice(kinds.sizes, interpolate(losses[rows], kinds.errors), numbers[rows] * counts)
        rows, counts = sample_by_size(worth, HELD_OUT_ITEMS, rng)
        trial = Trial.prepare(space, held_out, sides.items[rows], binary[1][rows], numbers[rows] * counts, k)
        return cls(space, ends, *kinds[1:], choice, space.map_leading(examples), trust, spare, trial)

    def choose_kinds(self, budget: float) -> list[int]:
        """Return kinds of codes for `budget` bytes in the mean, by rising bytes.

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
        return sorted(kinds, key=lambda kind: float(choice.sizes[kind]))

    def allocate(self, budget: float) -> tuple[Allocation, float]:
        """Choose codes that take `budget` bytes in the mean; return also the share of the places in lists that is lost.

        It is counted on queries that were held out, and so it is found out whether codes of one kind for all items are
        better: where all items are used alike, what one counts on examples is chance.
        """
        fits = np.flatnonzero(self.choice.sizes <= budget)
        tried = [self.make_allocation(kinds, budget) for kinds in (fits[-1:].tolist(), self.choose_kinds(budget))]
        losses = [self.trial.measure_loss(allocation) for allocation in tried]
        best = int(np.argmin(losses))
        return tried[best], losses[best]

    def make_allocation(self, kinds: list[int], budget: float) -> Allocation:
        """Choose the price of a byte, so that items with codes of some kinds take `budget` bytes in the mean."""
        sizes, errors = self.choice.sizes[kinds], self.errors[kinds]
        trust, spare = (interpolate(of_errors[None], self.errors)[0, kinds] for of_errors in (self.trust, self.spare))
        free = np.zeros(len(kinds), np.float32)
        allocation = Allocation(
            self.space, self.ends, self.precisions[kinds], self.gains[kinds], errors, free, trust, spare
        )
        if len(kinds) == 1:
            return allocation
        price, _ = Choice(sizes, allocation.weigh(self.examples), np.ones(len(self.examples))).spend(budget)
        return allocation._replace(prices=(price * sizes).astype(np.float32))

    def find_budget(self, least: float, most_lost: float) -> float | None:
        """Return a number of bytes, more than `least`, by which at most a share of the places is lost, if there is."""
        budgets = np.geomspace(least, self.choice.sizes.max(), 9)[1:].tolist()
        enough = bisect_left(budgets, True, key=lambda budget: self.allocate(budget)[1] <= most_lost)
        return float(np.ceil(budgets[enough])) if enough < len(budgets) else None


class Kinds(NamedTuple):
    """Kinds of codes, the binary one first, then dense ones by rising bytes."""

    sizes: NDArray[np.float64]  # (kinds,): bytes of an item, with its id
    precisions: NDArray[np.int64]  # (kinds, levels)
    gains: NDArray[np.float32]  # (kinds,): see `Allocation`
    errors: NDArray[np.float32]  # (kinds,)


def measure_kinds(
    sides: Sides,
    space: DenseSpace,
    worth: NDArray[np.float64],
    binary: tuple[float, NDArray[np.float32]],
    rng: np.random.Generator,
) -> Kinds:
    """List all kinds of codes; gains and errors are means over examples, by what the items have to lose.

    worth: (n,), what those of `sides` have; binary: see `Offers.measure`.
    """
    chances = np.maximum(worth, np.finfo(np.float32).tiny)
    n = min(EXAMPLES, len(chances))
    rows = np.sort(rng.choice(len(chances), n, replace=False, p=chances / chances.sum()))
    x = space.map_items(sides.items[rows])
    own = np.maximum(space.measure(x), np.finfo(np.float32).tiny)

    def measure_error(coded: NDArray[np.float32]) -> float:
        return float((space.measure(x - coded) / own).mean())

    precisions = list_precisions(space.sizes)
    gains, errors = [1.0], [measure_error(space.map_items(binary[1][rows]))]
    for precision in precisions:
        kept = float(np.square(space.measure(x[:, : precision.sum()])).sum())
        gains.append(float(np.square(own).sum()) / kept if kept else 1.0)
        errors.append(measure_error(space.round_items(x, precision).expand() * np.float32(gains[-1])))
    sizes = np.concatenate([[binary[0]], row_sizes(precisions) + WEIGHT_BYTES + ID_BYTES])
    precisions = np.concatenate([no_precisions(1), precisions])
    return Kinds(sizes, precisions, np.array(gains, np.float32), np.array(errors, np.float32))


def list_precisions(sizes: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return precisions to choose from, (any, levels), by rising bytes, for queries of some deviations (n_dense,).

    Each is the best for some price of a bit, if values are normally distributed (reverse water-filling): the next bits
    go where they lower the squared error of the scores most. GROWTH keeps them few.
    """
    energies = np.square(sizes.reshape(-1, DENSE_STEP), dtype=np.float64).mean(axis=1)
    bits, errors = np.array([0, *BITS[::-1]]), np.array([1, *NORMAL_ERRORS[::-1]])
    gains = energies[:, None] * (-np.diff(errors) / np.diff(bits))  # (steps, levels), 1 bit first, falling in both
    order = np.argsort(-gains, axis=None, kind="stable")
    steps, raised = np.unravel_index(order, gains.shape)
    levels, found, last = np.zeros(len(energies), np.int64), [], 0.0
    for step, level in zip(steps, raised, strict=True):
        levels[step] = level + 1
        total = bits[levels].sum()
        if total >= last * GROWTH or total == len(energies) * BITS[0]:
            found.append(DENSE_STEP * np.bincount(len(BITS) - levels, minlength=len(bits))[:-1])
            last = total
    return np.array(found)
