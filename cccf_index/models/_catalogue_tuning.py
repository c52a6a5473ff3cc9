"""Tuning of the catalogue teacher: its parameters by NDCG@10 of held-out ratings among all items.

A small model walks over a grid, one parameter at a time, as long as that helps. Each trial starts from the factors of
the best one so far, so two iterations are enough. The budget is a number of trials, of ratings and of ranked scores,
not of seconds, so that the choice depends on nothing but the ratings and the seed; it is about 20 s on two cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from tqdm import tqdm

from cccf_index.datasets import split_ratings
from cccf_index.evaluation import choose_threshold
from cccf_index.models._als import Alternation, Ridge
from cccf_index.models._rows import Observed
from cccf_index.models._teacher_tuning import compute_item_bias, compute_user_means

FLOORS = (1.0, 0.6, 0.3, 0.0)  # preferences for the lowest rating that are tried
POWERS = (0.5, 1.0, 1.5)  # of `Ridge`
VALLEY = 0.65  # the best regularization falls with this power of the weight of unobserved pairs
SHARES = (0.02, 0.05, 0.1, 0.2)  # of the item biases
GAIN = 1.002  # by which a trial has to be better
TRIALS = 14
TRIAL_FACTORS = 48
FIRST_ITERATIONS, ITERATIONS = 5, 2
FINE_TRIALS, FINE_FACTORS, FINE_ITERATIONS, FINE_STEP = 5, 128, 3, 1.3  # of the last steps, of the regularization only
TRIAL_RATINGS = 1_000_000  # ratings of a trial, of whole users
TRIAL_SCORES = 60_000_000  # scores that a trial ranks: up to 2,000 users, at least 300
HELD_OUT = 0.15  # share of the ratings
LEAST_RELEVANT = 0.1  # share of the ratings that must be relevant
CUTOFF = 10
CHUNK = 64  # users that are ranked at a time


class Preference(NamedTuple):
    """What a rating should score: the highest 1, the lowest `floor`. An unobserved pair should score 0."""

    floor: float
    low: float
    high: float

    @classmethod
    def from_ratings(cls, floor: float, values: NDArray[Any]) -> Preference:
        """Take the scale of ratings. Of counts, whose largest are far from the others, one in a hundred is cut off."""
        low, high = float(values.min()), float(np.quantile(values, 0.99, method="lower"))
        return cls(floor, low, high if high > low else float(values.max()))

    def choose_threshold(self, values: NDArray[Any]) -> float:
        """Return the rating that is three quarters up the scale or, if few reach it, the median."""
        threshold = choose_threshold(np.array([self.low, self.high]))
        return threshold if np.mean(values >= threshold) >= LEAST_RELEVANT else float(np.median(values))

    def grade(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return the preferences of ratings, float32 of the same shape; all 1 if all ratings are equal."""
        if self.high == self.low:
            return np.ones(np.shape(values), dtype=np.float32)
        place = np.clip((np.asarray(values) - self.low) / (self.high - self.low), 0, 1)
        return (self.floor + (1 - self.floor) * place).astype(np.float32)


class CatalogueChoice(NamedTuple):
    """The tuned parameters of a catalogue teacher: of `Preference`, of `MF`, and shares of two item biases."""

    floor: float = 0.6
    unobserved: float = 16.0
    regularization: float = 0.005
    ridge_power: float = 1.0
    popularity: float = 0.0  # preference for ten times as many ratings
    quality: float = 0.0  # preference for items that their users rate above their mean, from the lowest to the highest

    def list_neighbours(self, fixed: frozenset[str]) -> Iterator[list[CatalogueChoice]]:
        """Yield, for each parameter that is not `fixed`, the choices one step up and down."""
        if "regularization" not in fixed:
            yield [self._replace(regularization=self.regularization * factor) for factor in (1.6, 1 / 1.6)]
        if "floor" not in fixed:
            yield [self._replace(floor=value) for value in _list_adjacent(FLOORS, self.floor)]
        if "unobserved" not in fixed:
            steps = [self._replace(unobserved=self.unobserved * factor) for factor in (0.5, 2.0)]
            if "regularization" not in fixed:
                steps = [
                    step._replace(regularization=self.regularization * (self.unobserved / step.unobserved) ** VALLEY)
                    for step in steps
                ]
            yield steps
        yield [self._replace(ridge_power=value) for value in _list_adjacent(POWERS, self.ridge_power)]


def _list_adjacent(values: tuple[float, ...], value: float) -> list[float]:
    place = values.index(value)
    return [values[i] for i in (place - 1, place + 1) if 0 <= i < len(values)]


class Validation(NamedTuple):
    """Held-out ratings of some users, by which rankings of the whole catalogue are judged."""

    train: Observed  # the other ratings, of these and more users
    users: NDArray[np.int64]  # rows of `train`
    seen: sparse.csr_array  # (len(users), n_items): what is not ranked
    relevant: sparse.csr_array  # (len(users), n_items)

    @classmethod
    def hold_out(cls, matrix: sparse.csr_array, threshold: float, seed: int) -> Validation | None:
        """Split the ratings of a sample of users; None if no held-out rating reaches the threshold."""
        rng = np.random.default_rng(seed)
        order = rng.permutation(matrix.shape[0])
        total = np.cumsum(np.diff(matrix.indptr)[order])
        sample = np.sort(order[: max(1, np.searchsorted(total, TRIAL_RATINGS, side="right"))])
        inner, held = (sparse.csr_array(part) for part in split_ratings(matrix[sample], HELD_OUT, seed))
        held.data = (held.data >= threshold).astype(np.float32)
        held.eliminate_zeros()
        users = np.flatnonzero(np.diff(held.indptr))
        if not len(users):
            return None
        n = int(np.clip(TRIAL_SCORES // matrix.shape[1], 300, 2000))
        users = np.sort(rng.permutation(users)[:n])
        return cls(Observed.from_matrix(inner), users, inner[users], held[users])

    def judge(self, users: NDArray[Any], items: NDArray[Any], bias: NDArray[Any] | float = 0.0) -> float:
        """Return NDCG@10 of the scores of factors plus a bias of each item."""
        discounts = 1 / np.log2(np.arange(CUTOFF) + 2)
        ideal = np.concatenate([[0], np.cumsum(discounts)])
        gains = np.zeros(len(self.users))
        for start in range(0, len(self.users), CHUNK):
            rows = slice(start, start + CHUNK)
            scores = users[self.users[rows]] @ items.T
            scores += np.float32(bias)
            seen = self.seen[rows].tocoo()
            scores[seen.row, seen.col] = -np.inf
            for row, own in enumerate(scores, start):
                wanted = self.relevant.indices[self.relevant.indptr[row] : self.relevant.indptr[row + 1]]
                places = np.count_nonzero(own > own[wanted, None], axis=1)
                places += np.array([np.count_nonzero(own[:item] == own[item]) for item in wanted])  # ties by row
                gains[row] = discounts[places[places < CUTOFF]].sum() / ideal[min(len(wanted), CUTOFF)]
        return float(gains.mean())


class Trial(NamedTuple):
    """A choice, what it reached, and its factors; those of the items are where the next trial starts."""

    choice: CatalogueChoice
    ndcg: float
    users: NDArray[np.float32]
    items: NDArray[np.float32]


def compute_popularity(counts: NDArray[Any]) -> NDArray[np.float32]:
    """Return the popularity of items, by their numbers of ratings: 1 more for ten times as many."""
    return np.log10(1 + counts).astype(np.float32)


def choose_catalogue_teacher(
    matrix: sparse.csr_array, n_factors: int, fixed: dict[str, float], seed: int, verbose: bool
) -> CatalogueChoice:
    """Return the parameters of a teacher with so many factors that rank held-out high ratings best.

    Parameters in `fixed` are not tuned. If no rating can be held out, the others keep their defaults.
    """
    scale = Preference.from_ratings(1.0, matrix.data)
    explicit = scale.low < scale.high
    first = CatalogueChoice(**fixed) if explicit else CatalogueChoice(**fixed, floor=1.0)
    still = frozenset(fixed) | (set() if explicit else {"floor"})
    validation = Validation.hold_out(matrix, scale.choose_threshold(matrix.data), seed)
    if validation is None:
        return first
    ratings = validation.train
    rng = np.random.default_rng(seed)
    few, many = min(TRIAL_FACTORS, n_factors), min(FINE_FACTORS, n_factors)
    items = rng.standard_normal((matrix.shape[1], few)) * (0.1 / np.sqrt(few))
    with tqdm(total=TRIALS + FINE_TRIALS, desc="choosing the teacher", disable=None if verbose else True) as progress:

        def run_trial(choice: CatalogueChoice, start: NDArray[np.float32], iterations: int) -> Trial:
            n_users, n_items = ratings.shape
            weight = choice.unobserved * len(ratings.values) / (n_users * n_items)
            values = scale._replace(floor=choice.floor).grade(ratings.values)
            ridge = Ridge(choice.regularization, choice.ridge_power)
            model = Alternation(ratings, values, start, ridge, weight)
            for _ in range(iterations):
                model.iterate()
            model.solve_users()
            ndcg = validation.judge(model.users, model.items)
            progress.update()
            progress.set_postfix(ndcg=f"{ndcg:.4f}")
            return Trial(choice, ndcg, model.users, model.items)

        best = run_trial(first, items.astype(np.float32), FIRST_ITERATIONS)
        best = _walk(best, still, lambda choice, trial: run_trial(choice, trial.items, ITERATIONS))
        if "regularization" not in fixed:
            extra = rng.standard_normal((matrix.shape[1], many - few), np.float32) * best.items.std()
            best = best._replace(items=np.hstack([best.items, extra]))
            best = _refine(best, lambda choice, trial: run_trial(choice, trial.items, FINE_ITERATIONS))
    best = _add_bias(best, validation, "popularity", compute_popularity(ratings.items.counts))
    if explicit:
        inner = sparse.csr_array((ratings.values, ratings.users.indices, ratings.users.indptr), ratings.shape)
        quality = compute_item_bias(inner.T.tocsr(), compute_user_means(inner)) / (scale.high - scale.low)
        best = _add_bias(best, validation, "quality", quality, compute_popularity(ratings.items.counts))
    return best.choice


def _add_bias(best: Trial, validation: Validation, name: str, bias: Any, popularity: Any = 0.0) -> Trial:
    """Try shares of an item bias, from small to large, as long as that helps."""
    for share in SHARES:
        ndcg = validation.judge(best.users, best.items, best.choice.popularity * popularity + share * bias)
        if ndcg <= GAIN * best.ndcg:
            break
        best = best._replace(choice=best.choice._replace(**{name: share}), ndcg=ndcg)
    return best


def _refine(start: Trial, run_trial: Callable[[CatalogueChoice, Trial], Trial]) -> Trial:
    """Step along the regularization with more factors: those that a small model lacks want less of it, or more."""
    best = run_trial(start.choice, start)
    left = FINE_TRIALS - 1
    for factor in (1 / FINE_STEP, FINE_STEP):
        first = best
        while left:
            left -= 1
            step = best.choice._replace(regularization=best.choice.regularization * factor)
            trial = run_trial(step, best)
            if trial.ndcg <= best.ndcg:
                break
            best = trial
        if best is not first:
            break
    return best


def _walk(best: Trial, fixed: frozenset[str], run_trial: Callable[[CatalogueChoice, Trial], Trial]) -> Trial:
    """Step to a better neighbour, one parameter after the other, until none is better or the trials are used up."""
    tried = {best.choice}
    improved = True
    while improved:
        improved = False
        for number in range(len(list(best.choice.list_neighbours(fixed)))):
            for direction in (0, 1):
                while True:  # further in the same direction, as long as that helps
                    steps = list(best.choice.list_neighbours(fixed))[number]
                    if direction >= len(steps) or steps[direction] in tried:
                        break
                    if len(tried) >= TRIALS:
                        return best
                    tried.add(steps[direction])
                    trial = run_trial(steps[direction], best)
                    if trial.ndcg <= GAIN * best.ndcg:
                        break
                    best, improved = trial, True
    return best
