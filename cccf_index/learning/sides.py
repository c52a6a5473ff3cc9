"""The two sides, users and items: their moments, the error over all pairs, and the problem that each side poses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index.learning.moments import BLOCK, compute_moment, compute_moments
from cccf_index.learning.rows import CodedRows, Frame, solve

LARGEST = 1e8  # root mean square of vectors: products of their second moments must fit into float32


def sample_rows(n: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return up to `most` of n rows, chosen at random, in ascending order."""
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))


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
    user_moment: NDArray[np.float64]  # (p, p)
    item_moment: NDArray[np.float64]  # (p, p), weighted
    mean: NDArray[np.float32]  # (p,), of the items

    @classmethod
    def from_vectors(
        cls, items: NDArray[np.float32], users: NDArray[np.float32], counts: NDArray[np.float32] | None
    ) -> Sides:
        """Centre the items, and weight them by `counts`; if that is None, by the root mean square of their scores."""
        for x, name in ((items, "item_vectors"), (users, "user_vectors")):
            blocks = (x[start : start + BLOCK] for start in range(0, len(x), BLOCK))
            size = float(np.sqrt(sum(np.square(block, dtype=np.float64).sum() for block in blocks) / x.size))
            if size and not 1 / LARGEST <= size <= LARGEST:
                raise ValueError(
                    f"`{name}` must have a root mean square from {1 / LARGEST:g} to {LARGEST:g}, got {size:g}. "
                    "Rescale them: multiplying by a number changes no ranking."
                )
        mean = np.average(items, axis=0, weights=counts).astype(np.float32)
        centred = items - mean
        second = compute_moment(users, np.full(len(users), 1 / len(users)))
        sizes = _measure_scores(centred, second) if counts is None else counts
        total = sizes.sum(dtype=np.float64)
        weights = sizes / total if total else np.full(len(items), 1 / len(items))
        return cls(centred, users, weights, second, compute_moment(centred, weights), mean)

    def sample(self, n: int, rng: np.random.Generator) -> Sides:
        """Return up to n random rows of each side."""
        rows = sample_rows(len(self.items), n, rng)
        weights = self.item_weights[rows]
        total = weights.sum()
        weights = weights / total if total else np.full(len(weights), 1 / len(weights))
        users = self.users[sample_rows(len(self.users), n, rng)]
        second = compute_moment(users, np.full(len(users), 1 / len(users)))
        items = self.items[rows]
        return Sides(items, users, weights, second, compute_moment(items, weights), self.mean)

    def compute_error(self, users: Moments, items: Moments) -> float:
        """Return the squared error over all pairs, as a share of the mean square of the scores."""
        scores = float(np.sum(self.user_moment * self.item_moment))
        common, coded = float(np.sum(users.cross * items.cross)), float(np.sum(users.own * items.own))
        return (scores - 2 * common + coded) / scores if scores else 0.0

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


def _measure_scores(items: NDArray[np.float32], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the root mean square of the scores of each item, by the second moment of the users."""
    sizes = np.empty(len(items))
    for start in range(0, len(items), BLOCK):
        block = items[start : start + BLOCK]
        sizes[start : start + BLOCK] = np.einsum("ij,ij->i", block @ second, block)
    return np.sqrt(np.maximum(sizes, 0))
