"""The two sides, users and items: their moments, the error over all pairs, and the problem that each side poses."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index.learning.rows import CodedRows, Frame, compute_moment, solve

LARGEST = 1e8  # root mean square of vectors: products of their second moments must fit into float32


def sample_rows(n: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return up to `most` of n rows, chosen at random, in ascending order."""
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))


class Sides(NamedTuple):
    """The vectors that codes are learned from: centred items, users, and how much each item counts."""

    items: NDArray[np.float32]  # (n_items, p), less their mean
    users: NDArray[np.float32]  # (n_users, p)
    item_weights: NDArray[np.float64]  # (n_items,); they sum to 1
    user_moment: NDArray[np.float64]  # (p, p)
    mean: NDArray[np.float32]  # (p,), of the items

    @classmethod
    def from_vectors(
        cls, items: NDArray[np.float32], users: NDArray[np.float32], counts: NDArray[np.float32] | None
    ) -> Sides:
        """Centre the items, and weight them by `counts`; if that is None, by the root mean square of their scores."""
        for x, name in ((items, "item_vectors"), (users, "user_vectors")):
            size = float(np.sqrt(np.square(x, dtype=np.float64).mean()))
            if size and not 1 / LARGEST <= size <= LARGEST:
                raise ValueError(
                    f"`{name}` must have a root mean square from {1 / LARGEST:g} to {LARGEST:g}, got {size:g}. "
                    "Rescale them: multiplying by a number changes no ranking."
                )
        mean = np.average(items, axis=0, weights=counts).astype(np.float32)
        centred = items - mean
        second = compute_moment(users, np.full(len(users), 1 / len(users)))
        sizes = np.sqrt(np.maximum(np.einsum("ij,ij->i", centred @ second, centred), 0)) if counts is None else counts
        total = sizes.sum(dtype=np.float64)
        weights = sizes / total if total else np.full(len(items), 1 / len(items))
        return cls(centred, users, weights, second, mean)

    def sample(self, n: int, rng: np.random.Generator) -> Sides:
        """Return up to n random rows of each side."""
        rows = sample_rows(len(self.items), n, rng)
        weights = self.item_weights[rows]
        total = weights.sum()
        weights = weights / total if total else np.full(len(weights), 1 / len(weights))
        users = self.users[sample_rows(len(self.users), n, rng)]
        second = compute_moment(users, np.full(len(users), 1 / len(users)))
        return Sides(self.items[rows], users, weights, second, self.mean)

    def compute_error(self, users: CodedRows, items: CodedRows) -> float:
        """Return the squared error over all pairs, as a share of the mean square of the scores."""
        x, y = users.expand(), items.expand()
        even = np.full(len(x), 1 / len(x))
        scores = float(np.sum(self.user_moment * compute_moment(self.items, self.item_weights)))
        common = float(np.sum(compute_moment(x, even, self.users) * compute_moment(y, self.item_weights, self.items)))
        coded = float(np.sum(compute_moment(x, even) * compute_moment(y, self.item_weights)))
        return (scores - 2 * common + coded) / scores if scores else 0.0

    def build_user_frame(self, items: CodedRows) -> Frame:
        """Return the problem of the users' codes, with the coded items fixed."""
        y, weights = items.expand(), self.item_weights
        return Frame.from_moments(compute_moment(y, weights), compute_moment(y, weights, self.items))

    def build_item_frame(self, users: CodedRows) -> Frame:
        """Return the problem of the items' codes, with the coded users fixed."""
        x = users.expand()
        even = np.full(len(x), 1 / len(x))
        return Frame.from_moments(compute_moment(x, even), compute_moment(x, even, self.users))

    def build_query_frame(self, query_map: NDArray[np.float32]) -> Frame:
        """Return the problem of the items' codes, with queries fixed: users mapped by `query_map` (d, p)."""
        cross = query_map @ self.user_moment
        return Frame.from_moments(cross @ query_map.T, cross)

    def fit_user_start(self, users: CodedRows) -> NDArray[np.float32]:
        """Return the linear map (d, p) from users to their codes with the least squared error."""
        even = np.full(len(self.users), 1 / len(self.users))
        return solve(self.user_moment, compute_moment(self.users, even, users.expand())).T.astype(np.float32)

    def fit_item_start(self, items: CodedRows) -> NDArray[np.float32]:
        """Return the linear map (d, p) from items to their codes with the least squared error."""
        second = compute_moment(self.items, self.item_weights)
        return solve(second, compute_moment(self.items, self.item_weights, items.expand())).T.astype(np.float32)
