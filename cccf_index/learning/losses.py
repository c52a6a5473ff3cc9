"""Losses: what the errors of an item's code cost the lists of example queries.

Few items fill most lists, and most items are far from the end of any. The *loss* of an item by errors of some size is
the share of the lists' places that it gains or loses: how often its score is so near that of a list's last item that
the errors decide.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index import _threads
from cccf_index.kernels import dense_rows
from cccf_index.learning.probes import find_largest
from cccf_index.learning.rows import pad_columns

LISTS = {1.0: 1.0, 0.1: 1.0, 10.0: 0.3}  # lists of so many times k items, and how much each counts
SHARES = np.array([*LISTS.values()]) / sum(LISTS.values())
ERRORS = np.float32(2.0) ** -np.arange(-2, 9, dtype=np.float32)  # for which losses are measured; others lie between
SPARE = 1e-3  # of the mean loss, at least: what an item counts even if it is near the end of no list
BATCH = 64  # queries that are compared with all items at a time


def find_lasts(
    queries: NDArray[np.float32], items: NDArray[np.float32], numbers: NDArray[np.float64], lengths: list[int]
) -> NDArray[np.float32]:
    """Return the scores of the last items of the queries' lists of some lengths, (lists, m).

    numbers: (n,), how many items each row of `items` stands for.
    """
    lasts, n_batches = np.empty((len(lengths), len(queries)), np.float32), -(-len(queries) // BATCH)

    def work(start: int, stop: int) -> None:
        for batch in range(start, stop):  # of one size, whatever the threads: BLAS rounds depending on the batch
            rows = range(len(queries) * batch // n_batches, len(queries) * (batch + 1) // n_batches)
            scores = queries[rows.start : rows.stop] @ items.T
            for row, line in zip(rows, scores, strict=True):
                lasts[:, row] = [find_largest(line, length, numbers)[0] for length in lengths]

    _threads.run_chunks(work, n_batches, _threads.thread_count(0), least=1, most=4)
    return lasts


def list_lengths(k: int, n_items: int) -> list[int]:
    """Return the lengths of the lists that count, if k items are wanted."""
    return [max(1, min(int(n * k), n_items // 10)) for n in LISTS]


class ListEnds(NamedTuple):
    """Example queries of equal lengths, and the score of the last item of their lists.

    Queries and items are known by their leading coordinates: what the others add does not change who is near the end.
    """

    probes: NDArray[np.float32]  # (m, leading coordinates)
    lasts: NDArray[np.float32]  # (lists, m)
    shares: NDArray[np.float32]  # (lists,): what a place of such a list counts, so that all lists together count 1

    @classmethod
    def find(
        cls,
        probes: NDArray[np.float32],
        items: NDArray[np.float32],
        numbers: NDArray[np.float64],
        sizes: NDArray[np.float32],
        k: int,
    ) -> ListEnds:
        """Find the last items of the probes' lists of k items, of fewer and of more.

        probes, items: leading coordinates (any, p); numbers: see `find_lasts`; sizes: (p,), deviations of queries.
        """
        # errors are alike in all directions in which queries have the same size: they are as large as the query is long
        lengths = np.linalg.norm(probes / sizes, axis=1) / np.float32(np.sqrt(items.shape[1]))
        probes = np.ascontiguousarray(probes[lengths > 0] / lengths[lengths > 0, None])
        wanted = list_lengths(k, int(numbers.sum()))
        shares = SHARES / (np.array(wanted) * max(1, len(probes)))
        return cls(probes, find_lasts(probes, items, numbers, wanted), shares.astype(np.float32))

    def halve(self) -> list[ListEnds]:
        """Return two halves of the queries."""
        return [ListEnds(self.probes[i::2], self.lasts[:, i::2], 2 * self.shares) for i in (0, 1)]

    def count_losses(
        self,
        items: NDArray[np.float32],
        lengths: NDArray[np.float32],
        means: NDArray[np.float32],
        deviations: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """Return the losses (n, kinds) by codes whose estimates are ``mean`` times the score, with some deviation.

        items: leading coordinates (n, any); lengths: (n,), what deviations (kinds,) are relative to.
        """
        m, n = len(self.probes), len(items)
        table = pad_columns(np.ascontiguousarray(self.probes.T))
        missing = ((0, 0), (0, table.shape[1] - m))
        lasts = np.pad(self.lasts, missing)
        shares = np.pad(np.repeat(self.shares[:, None], m, axis=1), missing)
        losses = np.empty((n, len(means)), np.float32)

        def work(start: int, stop: int) -> None:
            scores = np.empty((dense_rows.TILE, dense_rows.COLUMNS), np.float32)
            dense_rows.count_losses(
                items, lengths, table, lasts, shares, means, deviations, scores, losses, start, stop
            )

        _threads.run_chunks(work, n, _threads.thread_count(0), least=64, most=2048)
        return losses


def describe_estimates(
    errors: NDArray[np.float32], is_binary: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return what the estimates of codes with some errors are in the mean, as shares of scores, and their deviations.

    Those of dense components are right in the mean. Binary codes have the least squared error, so a share of the score
    that is the square of the error is missing.
    """
    rest = np.maximum(1 - np.square(errors), 0)
    means = np.where(is_binary, rest, 1).astype(np.float32)
    return means, np.where(is_binary, errors * np.sqrt(rest), errors).astype(np.float32)


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


def interpolate(losses: NDArray[np.float32], errors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return losses (n, kinds) by errors of which the first is that of binary codes.

    losses: (n, 1 + ERRORS), by the first one and by ERRORS of dense components; below the least they are proportional.
    """
    found, known = np.empty((len(losses), len(errors)), np.float32), losses[:, 1:]
    found[:, 0] = losses[:, 0]
    for place, error in enumerate(errors[1:], 1):
        i = int(np.clip(np.searchsorted(-ERRORS, -error), 1, len(ERRORS) - 1))  # ERRORS fall
        if error <= ERRORS[-1]:
            found[:, place] = known[:, -1] * (error / ERRORS[-1])
        else:
            share = np.clip((error - ERRORS[i]) / (ERRORS[i - 1] - ERRORS[i]), 0, 1)
            found[:, place] = share * known[:, i - 1] + (1 - share) * known[:, i]
    return found
