"""The two sides, users and items: their moments, the error over all pairs, and the problem that each side poses."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index import _threads
from cccf_index.learning.moments import BLOCK, compute_moment, compute_moments
from cccf_index.learning.rows import CodedRows, Frame, solve

LARGEST = 1e8  # root mean square of vectors: products of their second moments must fit into float32


def sample_rows(n: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return up to `most` of n rows, chosen at random, in ascending order."""
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))


def sample_by_size(
    sizes: NDArray[Any], most: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return up to `most` rows, large ones rather than small ones, in ascending order, and how many each stands for.

    A sum over all rows is estimated without bias if each sampled row counts that many times (priority sampling). Half
    of a row's chance is its size, so that few rows that hold most of a sum are all sampled.
    """
    n = len(sizes)
    if n <= most:
        return np.arange(n), np.ones(n)
    shares = sizes / max(sizes.sum(dtype=np.float64), np.finfo(np.float64).tiny) + 1 / n
    keys = shares / (1 - rng.random(n))
    order = np.argpartition(keys, n - most - 1)
    rows = np.sort(order[n - most :])
    return rows, np.maximum(1, keys[order[n - most - 1]] / shares[rows])


class Moments(NamedTuple):
    """The second moments of the codes of one side, which pose the problem of the other side."""

    own: NDArray[np.float64]  # (d, d)
    cross: NDArray[np.float64]  # (d, p): of codes and vectors

    def build_frame(self) -> Frame:
        """Return the problem of the other side's codes, with these fixed."""
        return Frame.from_moments(self.own, self.cross)


class Sides(NamedTuple):
    """The vectors that codes are learned from: centred items, users, and how much each item counts."""

    items: NDArray[np.float32]  # (n_items, p), less their mean
    users: NDArray[np.float32]  # (n_users, p)
    item_weights: NDArray[np.float64]  # (n_items,); they sum to 1
    numbers: NDArray[np.float64]  # (n_items,): how many items of the catalogue each stands for
    user_moment: NDArray[np.float64]  # (p, p)
    item_moment: NDArray[np.float64]  # (p, p), weighted
    mean: NDArray[np.float32]  # (p,), of the items

    @classmethod
    def from_vectors(
        cls,
        items: NDArray[np.float32],
        users: NDArray[np.float32],
        counts: NDArray[np.float32] | None,
        most: int,
        rng: np.random.Generator,
    ) -> Sides:
        """Centre the items, and weight them by `counts`; if that is None, by the root mean square of their scores.

        If there are more than `most` items, a sample stands for them, by how much each counts in the error.
        """
        for x, name in ((items, "item_vectors"), (users, "user_vectors")):
            blocks = (x[start : start + BLOCK] for start in range(0, len(x), BLOCK))
            size = float(np.sqrt(sum(np.square(block, dtype=np.float64).sum() for block in blocks) / x.size))
            if size and not 1 / LARGEST <= size <= LARGEST:
                raise ValueError(
                    f"`{name}` must have a root mean square from {1 / LARGEST:g} to {LARGEST:g}, got {size:g}. "
                    "Rescale them: multiplying by a number changes no ranking."
                )
        mean = _compute_mean(items, counts)
        second = compute_moment(users, np.full(len(users), 1 / len(users)))
        scores = _measure_scores(items, mean, second)
        sizes = scores if counts is None else counts.astype(np.float64)
        rows, numbers = sample_by_size(sizes * np.square(scores), most, rng)
        sample = items if len(rows) == len(items) else items[rows]
        return cls._weight(sample - mean, users, sizes[rows], numbers, second, mean)

    @classmethod
    def _weight(
        cls,
        items: NDArray[np.float32],
        users: NDArray[np.float32],
        sizes: NDArray[np.float64],
        numbers: NDArray[np.float64],
        second: NDArray[np.float64],
        mean: NDArray[np.float32],
    ) -> Sides:
        weights = sizes * numbers
        total = weights.sum()
        weights = weights / total if total else np.full(len(items), 1 / len(items))
        return cls(items, users, weights, numbers, second, compute_moment(items, weights), mean)

    def sample(self, n: int, rng: np.random.Generator) -> Sides:
        """Return up to n rows of each side, of the items rather those that count most in the error."""
        scores = _measure_scores(self.items, np.zeros_like(self.mean), self.user_moment)
        rows, numbers = sample_by_size(self.item_weights * np.square(scores), n, rng)
        users = self.users[sample_rows(len(self.users), n, rng)]
        second = compute_moment(users, np.full(len(users), 1 / len(users)))
        weights = self.item_weights[rows] / self.numbers[rows]
        return self._weight(self.items[rows], users, weights, self.numbers[rows] * numbers, second, self.mean)

    def compute_error(self, users: Moments, items: Moments) -> float:
        """Return the squared error over all pairs, as a share of the mean square of the scores."""
        scores = float(np.sum(self.user_moment * self.item_moment))
        common, coded = float(np.sum(users.cross * items.cross)), float(np.sum(users.own * items.own))
        return max(0.0, (scores - 2 * common + coded) / scores) if scores else 0.0  # rounding may make it negative

    def measure_users(self, users: CodedRows) -> Moments:
        """Return the moments of coded users."""
        return Moments(*compute_moments(users, np.full(len(self.users), 1 / len(self.users)), None, self.users))

    def measure_items(self, items: CodedRows) -> Moments:
        """Return the weighted moments of coded items."""
        return Moments(*compute_moments(items, self.item_weights, None, self.items))

    def build_query_frame(self, query_map: NDArray[np.float32]) -> Frame:
        """Return the problem of the items' codes, with queries fixed: users mapped by `query_map` (d, p)."""
        cross = query_map @ self.user_moment
        return Frame.from_moments(cross @ query_map.T, cross)

    def fit_user_start(self, users: Moments) -> NDArray[np.float32]:
        """Return the linear map (d, p) from users to their codes with the least squared error."""
        return solve(self.user_moment, users.cross.T).T.astype(np.float32)

    def fit_item_start(self, items: Moments) -> NDArray[np.float32]:
        """Return the linear map (d, p) from items to their codes with the least squared error."""
        return solve(self.item_moment, items.cross.T).T.astype(np.float32)


def _compute_mean(items: NDArray[np.float32], counts: NDArray[np.float32] | None) -> NDArray[np.float32]:
    """Return the mean of the items, weighted by `counts`, without a copy of all of them."""
    weights = np.ones(len(items), np.float32) if counts is None else counts
    starts = range(0, len(items), BLOCK)
    sums = [weights[start : start + BLOCK].astype(np.float64) @ items[start : start + BLOCK] for start in starts]
    return (np.sum(sums, axis=0) / weights.sum(dtype=np.float64)).astype(np.float32)


def _measure_scores(
    items: NDArray[np.float32], mean: NDArray[np.float32], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the root mean square of the scores of each item less the mean, by the second moment of the users."""
    sizes, n_blocks = np.empty(len(items)), -(-len(items) // BLOCK)
    form = second.astype(np.float32)

    def work(first: int, last: int) -> None:
        for start in range(first * BLOCK, last * BLOCK, BLOCK):
            block = items[start : start + BLOCK] - mean
            sizes[start : start + BLOCK] = np.einsum("ij,ij->i", block @ form, block)

    _threads.run_chunks(work, n_blocks, _threads.thread_count(0), least=1, most=4)
    return np.sqrt(np.maximum(sizes, 0))
