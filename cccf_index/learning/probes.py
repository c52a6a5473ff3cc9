"""Probes: example queries, so that the items at the head of ranked lists count more than all other pairs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index import _threads
from cccf_index.learning.rows import ExtraPairs, pad_columns
from cccf_index.learning.sides import Sides, sample_rows

LIST = 50  # items at the head of a probe's list, or a twentieth of all items if that is less
MOST_LISTS = 256  # lists that an item is fitted to, at most
LIST_SHARE = 0.1  # weight of the errors at the head of lists, relative to the errors of all pairs
BATCH = 64  # probes that are compared with all items at a time
CHUNK = 2048  # items that are compared with all probes at a time


class Probes(NamedTuple):
    """Example queries: an item that is at the head of a probe's ranked list should keep its score there."""

    vectors: NDArray[np.float32]  # (m, p): users
    queries: NDArray[np.float32]  # (m, d): the same users as real-valued queries
    thresholds: NDArray[np.float32]  # (m,): an item with at least this score is at the head of the list
    size: NDArray[np.float32]  # (1,): how much a squared error there counts

    @classmethod
    def choose(cls, sides: Sides, n: int, rng: np.random.Generator) -> Probes | None:
        """Choose up to n users as probes, and find the head of each list; None if no list has one."""
        vectors = np.ascontiguousarray(sides.users[sample_rows(len(sides.users), n, rng)])
        head = max(1, min(LIST, len(sides.items) // 20))
        thresholds, tied = np.empty(len(vectors), dtype=np.float32), np.empty(len(vectors), dtype=bool)

        # batches of one size, whatever the threads: BLAS rounds differently depending on the batch
        n_batches = -(-len(vectors) // BATCH)

        def work(start: int, stop: int) -> None:
            for batch in range(start, stop):
                rows = slice(len(vectors) * batch // n_batches, len(vectors) * (batch + 1) // n_batches)
                scores = vectors[rows] @ sides.items.T
                thresholds[rows] = np.partition(scores, -head, axis=1)[:, -head]
                tied[rows] = np.count_nonzero(scores >= thresholds[rows, None], axis=1) > 2 * head

        _threads.run_chunks(work, n_batches, _threads.thread_count(0), least=1, most=4)
        vectors, thresholds = vectors[~tied], thresholds[~tied]  # a list of ties has no head
        if not len(vectors):
            return None
        size = LIST_SHARE * len(sides.items) / (head * len(vectors))
        return cls(vectors, np.empty((len(vectors), 0), np.float32), thresholds, np.array([size], np.float32))

    def map_queries(self, query_map: NDArray[np.float32]) -> Probes:
        """Return the probes with their real-valued queries by `query_map` (d, p)."""
        return self._replace(queries=self.vectors @ query_map.T)

    def find_pairs(self, items: NDArray[np.float32]) -> ExtraPairs:
        """Return, for each item, the probes that have it at the head of their list."""
        margin = 1e-5 * np.linalg.norm(self.vectors, axis=1) * np.linalg.norm(items, axis=1).max(initial=0)
        near, least = items @ self.vectors.T, self.thresholds - margin
        heads = near >= least
        counts = np.count_nonzero(heads, axis=1)
        for row in np.flatnonzero(counts > MOST_LISTS):  # an item far larger than those that were learned from
            heads[row, np.argpartition(near[row] - least, -MOST_LISTS)[:-MOST_LISTS]] = False
        rows, columns = np.divmod(np.flatnonzero(heads), len(least))
        # not `near`: BLAS rounds differently depending on the batch
        scores = np.einsum("ij,ij->i", items[rows], self.vectors[columns])
        kept = scores >= self.thresholds[columns]
        rows, columns, scores = rows[kept], columns[kept], scores[kept]
        starts = np.zeros(len(items) + 1, dtype=np.int64)
        np.cumsum(np.bincount(rows, minlength=len(items)), out=starts[1:])
        sizes = (self.size[0] * np.maximum(counts / MOST_LISTS, 1)).astype(np.float32)
        return ExtraPairs(starts[:-1], starts[1:], columns.astype(np.int32), scores, sizes, pad_columns(self.queries))
