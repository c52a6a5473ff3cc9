"""The dense component of codes: coordinates in which a few bits for each keep most of the scores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index import _threads
from cccf_index.dense import DenseRows
from cccf_index.kernels import dense_rows
from cccf_index.kernels.limits import DENSE_STEP
from cccf_index.learning.rows import multiply_rows
from cccf_index.learning.sides import Sides

LEADING = 128  # coordinates that tell well enough which items are near the end of a list
LEAST_SIZE = 1e-4  # of queries in a direction, relative to the first
UNSEEN = 0.1  # queries have at least so many times the energy that one direction of one example query has on average


class DenseSpace(NamedTuple):
    """Maps to coordinates by falling energy of the scores; items have the same energy in all of them.

    So any number of bits is used well in all of them, and it is the energy of the queries that tells how many bits a
    coordinate is worth. Energies are spread evenly over DENSE_STEP neighbouring coordinates by a rotation.
    """

    queries: NDArray[np.float32]  # (n_dense, p): maps users
    items: NDArray[np.float32]  # (n_dense, p): maps centred items; inner products stay the same
    sizes: NDArray[np.float32]  # (n_dense,): the deviation of the queries

    @classmethod
    def learn(cls, sides: Sides, rng: np.random.Generator) -> DenseSpace:
        """Find the directions of two sides: singular ones of the scores."""
        p = len(sides.user_moment)
        energy = float(np.trace(sides.user_moment)) / p or 1.0
        ridge = energy * min(1.0, UNSEEN * p / len(sides.users))
        values, Q = np.linalg.eigh(sides.user_moment + ridge * np.eye(p))
        roots = np.sqrt(np.maximum(values, 1e-12 * values[-1]))
        root = (Q * roots) @ Q.T
        energies, directions = np.linalg.eigh(root @ sides.item_moment @ root)
        scores = np.sqrt(np.maximum(energies[::-1], 0))
        scores = np.maximum(scores, LEAST_SIZE * scores[0]) if scores[0] else np.ones(p)
        sizes, turns = np.empty(p), np.zeros((p, p))
        for first in range(0, p, DENSE_STEP):
            rows = slice(first, first + DENSE_STEP)
            sizes[rows] = scores[rows].mean()
            turns[rows, rows] = np.linalg.qr(rng.standard_normal((len(sizes[rows]),) * 2))[0]
        # A direction's deviation s of scores is a of items times s / a of queries. Rounding errors are alike in all
        # directions of a step, so they cost sum(a^2) * sum((s / a)^2), which is least if a^2 is in proportion to s.
        shares = np.sqrt(scores / sizes)
        missing, directions = -p % DENSE_STEP, directions[:, ::-1]
        maps = (Q / roots) @ Q.T @ (directions * scores / shares) @ turns, root @ (directions * shares / scores) @ turns
        queries, items = (np.pad(to.T.astype(np.float32, order="C"), ((0, missing), (0, 0))) for to in maps)
        return cls(queries, items, np.pad(sizes.astype(np.float32), (0, missing)))

    def map_items(self, centred: NDArray[np.float32], n: int | None = None) -> NDArray[np.float32]:
        """Return the first n coordinates of centred items (n, any), or all."""
        return multiply_rows(centred, np.ascontiguousarray(self.items[:n].T), 0)

    def map_leading(self, centred: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the first coordinates of centred items (n, any): LEADING of them, or all."""
        return self.map_items(centred, len(self.leading_sizes))

    @property
    def leading_sizes(self) -> NDArray[np.float32]:
        """The deviation of queries in the first coordinates, without padding."""
        return self.sizes[: min(LEADING, int(np.count_nonzero(self.sizes)))]

    def code_users(self, users: NDArray[np.float32]) -> DenseRows:
        """Return the dense components of users (n, p): all coordinates in a byte each."""
        x = multiply_rows(users, np.ascontiguousarray(self.queries.T), 0)
        return round_rows(x, np.ones(x.shape[1], np.float32), np.array([x.shape[1], 0, 0, 0]))

    def round_items(self, x: NDArray[np.float32], precision: NDArray[np.int64]) -> DenseRows:
        """Return the dense components of items by their coordinates (n, any), at least those that it needs."""
        return round_rows(x, np.square(self.sizes[: x.shape[1]]), precision)

    def measure(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the deviation of the scores of items by their coordinates, or the first of them, (n, any)."""
        return np.linalg.norm(x * self.sizes[: x.shape[1]], axis=1)


def round_rows(x: NDArray[np.float32], squares: NDArray[np.float32], precision: NDArray[np.int64]) -> DenseRows:
    """Round coordinates (n, n_dense) at a precision, see `storage.precisions`; a row depends on no other.

    squares: (n_dense,), what squared errors count.
    """
    weights, values = np.empty(len(x), np.float32), np.empty(x.shape, np.int8)

    def work(start: int, stop: int) -> None:
        dense_rows.fill_values(x, squares, precision, weights, values, start, stop)

    _threads.run_chunks(work, len(x), _threads.thread_count(0), least=64, most=4096)
    return DenseRows(weights, values if weights.all() else values[weights > 0])
