"""Probes: example queries, so that the items at the head of ranked lists count more than all other pairs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index import _threads
from cccf_index.kernels import probe_pairs
from cccf_index.kernels.probe_pairs import LENGTH, SHORTEST
from cccf_index.kernels.row_vectors import LANES
from cccf_index.learning.rows import ExtraPairs, get_address, pad_columns
from cccf_index.learning.sides import Sides, sample_rows

LIST = 50  # items at the head of a probe's list, or a twentieth of all items if that is less
MOST_LISTS = 256  # lists that an item is fitted to, at most
LIST_SHARE = 0.1  # weight of the errors at the head of lists, relative to the errors of all pairs
MOST_SHARE = 0.5  # the same for one item at most: an item of many lists would be fitted to the probes alone
BATCH = 64  # probes that are compared with all items at a time
GROUP = 32  # scores of which only the largest is looked at first
CHUNK = 8192  # items that are compared with all probes at a time


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
        n_items = float(sides.numbers.sum())
        head = max(1, min(LIST, int(n_items) // 20))
        thresholds, tied = np.empty(len(vectors), dtype=np.float32), np.empty(len(vectors), dtype=bool)

        # batches of one size, whatever the threads: BLAS rounds differently depending on the batch
        n_batches = -(-len(vectors) // BATCH)

        def work(start: int, stop: int) -> None:
            for batch in range(start, stop):
                rows = slice(len(vectors) * batch // n_batches, len(vectors) * (batch + 1) // n_batches)
                scores = vectors[rows] @ sides.items.T
                for row, line in zip(range(*rows.indices(len(vectors))), scores, strict=True):
                    thresholds[row], count = find_largest(line, head, sides.numbers)
                    tied[row] = count > 2 * head

        _threads.run_chunks(work, n_batches, _threads.thread_count(0), least=1, most=4)
        vectors, thresholds = vectors[~tied], thresholds[~tied]  # a list of ties has no head
        if not len(vectors):
            return None
        size = LIST_SHARE * n_items / (head * len(vectors))
        return cls(vectors, np.empty((len(vectors), 0), np.float32), thresholds, np.array([size], np.float32))

    def map_queries(self, query_map: NDArray[np.float32]) -> Probes:
        """Return the probes with their real-valued queries by `query_map` (d, p)."""
        return self._replace(queries=self.vectors @ query_map.T)

    def make_table(self) -> ProbeTable:
        """Lay the probes out for a search of the lists that items belong to."""
        return ProbeTable.from_probes(self)


def find_largest(scores: NDArray[np.float32], nth: int, numbers: NDArray[np.float64]) -> tuple[np.float32, float]:
    """Return the `nth` largest score, if each is there as often as `numbers` say, and how many reach it.

    A number is at least 1, so `nth` scores are enough.
    """
    nth = min(nth, len(scores))
    n_groups, largest = len(scores) // GROUP, scores
    if n_groups >= nth:  # at least `nth` scores reach the `nth` largest of the groups' maxima, and few others
        largest = scores[: n_groups * GROUP].reshape(GROUP, n_groups).max(axis=0)
    least = np.partition(largest, -nth)[-nth]
    rows = np.flatnonzero(scores >= least)
    rows = rows[np.argsort(-scores[rows], kind="stable")]
    reached = np.cumsum(numbers[rows])
    found = scores[rows[min(int(np.searchsorted(reached, nth)), len(rows) - 1)]]
    return found, float(numbers[rows][scores[rows] >= found].sum())


class ProbeTable(NamedTuple):
    """Probes by rising need, ``threshold / length``: the length that an item must have to be in the list at all."""

    blocks: NDArray[np.int16]  # (blocks, pairs of dimensions, LANES, 2): scaled to equal lengths, and rounded
    needs: NDArray[np.float32]  # (LANES * blocks,), infinite at the end
    vectors: NDArray[np.float32]  # (m, p)
    thresholds: NDArray[np.float32]  # (m,)
    names: NDArray[np.int32]  # (m,): rows of `queries`
    queries: NDArray[np.float32]  # (m, padded d)
    size: np.float32

    @classmethod
    def from_probes(cls, probes: Probes) -> ProbeTable:
        """Sort and round the vectors."""
        lengths = np.maximum(np.linalg.norm(probes.vectors, axis=1), np.float32(SHORTEST))
        order = np.argsort(probes.thresholds / lengths, kind="stable").astype(np.int32)
        vectors, (m, p) = probes.vectors[order], probes.vectors.shape
        n_blocks = -(-m // LANES)
        words = np.zeros((n_blocks * LANES, p + p % 2), np.int16)
        words[:m, :p] = np.rint(vectors * (LENGTH / lengths[order, None]))
        blocks = np.ascontiguousarray(words.reshape(n_blocks, LANES, -1, 2).swapaxes(1, 2))
        needs = np.full(n_blocks * LANES, np.inf, np.float32)
        needs[:m] = (probes.thresholds / lengths)[order]
        own = pad_columns(probes.queries)
        return cls(blocks, needs, vectors, probes.thresholds[order], order, own, probes.size[0])

    def find_pairs(self, items: NDArray[np.float32]) -> ExtraPairs:
        """Return, for each item, contiguous (n, p), the probes that have it at the head of their list."""
        (m, p), n = self.vectors.shape, len(items)
        # rounding moves each vector by at most sqrt(p) / 2; then the rounding of float32 sums
        share = np.sqrt(p) / LENGTH + 0.25 * p / LENGTH**2 + 2 * p * np.finfo(np.float32).eps
        slack = np.float32(share * LENGTH**2)
        order = np.argsort(-np.einsum("ij,ij->i", items, items), kind="stable")  # of like lengths at a time
        counts, most = np.empty(n, np.int64), min(MOST_LISTS, m)
        places, targets = np.empty((n, most), np.int32), np.empty((n, most), np.float32)
        known = (self.blocks, self.needs, self.vectors, self.thresholds, self.names, slack)
        address = get_address(items)

        def work(start: int, stop: int) -> None:
            scratch = probe_pairs.make_pair_scratch(p, m)
            probe_pairs.find_pairs(address, order, *known, counts, places, targets, *scratch, start, stop)

        _threads.run_chunks(work, n, _threads.thread_count(0), least=16, most=1024)
        starts, kept = np.arange(n) * most, np.minimum(counts, most)
        sizes = np.minimum(self.size, MOST_SHARE / np.maximum(kept, 1)).astype(np.float32)
        return ExtraPairs(starts, starts + kept, places.reshape(-1), targets.reshape(-1), sizes, self.queries)
