"""Queries that are fitted to the head of their own list: what a search returns first should be right.

A code of few bits cannot keep all scores of a user. The scores of the items that lead the user's list matter most, so
they count again, in addition to the scores of all items.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index import _threads
from cccf_index.kernels import rating_rows
from cccf_index.learning.rows import RANK_TOLERANCE, CodedRows, ExtraPairs, Frame, map_rows, multiply_rows, pad_columns

HEAD = 50  # items at the head of a list
SHARE = 1.0  # weight of their errors, relative to the errors of all items


class Heads(NamedTuple):
    """The items at the head of each user's list, and what they should score."""

    users: NDArray[np.float32]  # (n, p)
    indptr: NDArray[np.int64]  # (n + 1,): where the pairs of each user begin
    pairs: ExtraPairs
    frame: Frame  # the problem of the users' codes for all items

    @classmethod
    def from_lists(
        cls,
        users: NDArray[np.float32],
        lists: NDArray[np.int64],
        items: NDArray[np.float32],
        expanded: NDArray[np.float32],
        frame: Frame,
    ) -> Heads:
        """Take lists (n, any) of rows of `items`, centred vectors (m, p) with expanded codes (m, d); -1 is no item."""
        rows, places = np.nonzero(lists >= 0)
        found = lists[rows, places]
        scores = np.empty(len(found), dtype=np.float32)
        for start in range(0, len(found), HEAD * 1024):
            part = slice(start, start + HEAD * 1024)
            scores[part] = np.einsum("ij,ij->i", users[rows[part]], items[found[part]])
        counts = np.bincount(rows, minlength=len(users))
        starts = np.concatenate([[0], np.cumsum(counts)])
        sizes = (SHARE / np.maximum(counts, 1)).astype(np.float32)
        pairs = ExtraPairs(starts[:-1], starts[1:], found.astype(np.int32), scores, sizes, pad_columns(expanded))
        return cls(users, starts, pairs, frame)

    def fit_codes(self, first: NDArray[np.float32], n_components: int, max_active: int) -> CodedRows:
        """Return codes, improved from the signs of the vectors `first` (n, d)."""
        coded = CodedRows.from_vectors(first, n_components, max_active)
        coded.improve(self.users, self.frame, max_active, self.pairs)
        return coded

    def fit_queries(self) -> NDArray[np.float32]:
        """Return real-valued queries, float32 (n, d): the least squares of all items and of the head."""
        energies, vectors = np.linalg.eigh(self.frame.gram.astype(np.float64))
        rotation = vectors.astype(np.float32)
        diagonal = np.maximum(energies, 0).astype(np.float32)
        pull = map_rows(self.users, (vectors.T @ self.frame.cross).astype(np.float32))
        other = multiply_rows(np.ascontiguousarray(self.pairs.other[:, : len(rotation)]), rotation, 0)
        roots = np.sqrt(self.pairs.sizes)
        targets = self.pairs.targets * np.repeat(roots, np.diff(self.indptr))
        ridges = np.full(len(self.users), RANK_TOLERANCE * max(float(diagonal.mean()), 1e-30), dtype=np.float32)
        ones, out = np.ones(len(other), dtype=np.float32), np.empty_like(pull)
        pattern = (self.indptr, self.pairs.indices)

        def work(start: int, stop: int) -> None:
            scratch, sides = rating_rows.make_scratch(other.shape[1], out.dtype), (targets, other, roots, ones)
            rating_rows.solve_rows(*pattern, *sides, pull, diagonal, ridges, out, scratch, start, stop)

        _threads.run_chunks(work, len(out), _threads.thread_count(0))
        return multiply_rows(out, np.ascontiguousarray(rotation.T), 0)
