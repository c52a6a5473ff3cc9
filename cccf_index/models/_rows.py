"""Ratings as rows of users and rows of items, and the row updates of training, on all threads."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cccf_index import _threads
from cccf_index.kernels import rating_rows


class RatingRows(NamedTuple):
    """The pattern of the ratings from one side, as CSR: row i has entries ``indptr[i]`` to ``indptr[i + 1]``."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]  # rows of the other side

    @classmethod
    def from_matrix(cls, matrix: sparse.csr_array) -> RatingRows:
        """Return the pattern of a CSR matrix."""
        return cls(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32))

    def compute_ridges(self, regularization: float) -> NDArray[np.float64]:
        """Return ``regularization * count`` for each row; without ratings that of one rating, but never 0."""
        return np.where(self.counts > 0, regularization * self.counts, max(regularization, 1e-6))

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of ratings of each row, int64 (n,)."""
        return np.diff(self.indptr)

    def solve_ridge(
        self,
        targets: Any,
        other: Any,
        pull: Any,
        ridge: Any,
        out: Any,
        weights: Any = None,
        other_weights: Any = None,
        diagonal: Any = None,
    ) -> None:
        """Solve the ridge regression of every row into `out`, with the other side fixed; see `rating_rows.solve_rows`.

        `ridge` holds the ridge of each row. Weights default to 1. `diagonal` (r,) is added to the ridge of every row.
        """
        sides = _fill_weights(out, other, weights, other_weights)
        none = np.empty(0, dtype=out.dtype)
        sizes, shared = ridge.astype(out.dtype), none if diagonal is None else diagonal

        def work(start: int, stop: int) -> None:
            scratch = rating_rows.make_scratch(other.shape[1], out.dtype)
            row = rating_rows.solve_rows(*self, targets, other, *sides, pull, shared, sizes, out, scratch, start, stop)
            if row >= 0:
                raise ValueError(
                    f"The least squares of row {row} overflowed {out.dtype}. "
                    "Use a `regularization` above 0, and smaller ratings, weights or features."
                )

        self._run_on_threads(work)

    def flip_bits(
        self, targets: Any, other: Any, pull: Any, max_sweeps: int, signs: Any, weights: Any, other_weights: Any
    ) -> None:
        """Improve the code of every row in place, with the other side fixed; see `rating_rows.flip_rows`."""

        def work(start: int, stop: int) -> None:
            longest = int(np.diff(self.indptr[start : stop + 1]).max())
            room = np.empty((other.shape[1], longest), np.int8), np.empty((2, longest), targets.dtype)
            sides = targets, other, weights, other_weights, pull
            rating_rows.flip_rows(*self, *sides, max_sweeps, signs, *room, start, stop)

        self._run_on_threads(work)

    def add_scores(
        self, values: Any, left: Any, right: Any, factor: int, weights: Any = None, other_weights: Any = None
    ) -> None:
        """Add `factor` times its score in one component to the value of each rating, in place; weights default to 1."""
        sides = _fill_weights(left, right, weights, other_weights, values.dtype)

        def work(start: int, stop: int) -> None:
            rating_rows.add_scores(*self, values, left, right, *sides, factor, start, stop)

        self._run_on_threads(work)

    def _run_on_threads(self, work: Any) -> None:
        _threads.run_chunks(work, len(self.indptr) - 1, _threads.thread_count(0))


def _fill_weights(left: Any, right: Any, weights: Any, other_weights: Any, dtype: Any = None) -> tuple[Any, Any]:
    """Return the weights of both sides, ones instead of None."""
    return (
        np.ones(len(left), dtype=dtype or left.dtype) if weights is None else weights,
        np.ones(len(right), dtype=dtype or right.dtype) if other_weights is None else other_weights,
    )


class Observed(NamedTuple):
    """All observed ratings from both sides; values are in the order of the users' rows."""

    users: RatingRows
    items: RatingRows
    values: NDArray[np.float64]
    order: NDArray[np.int64]  # ``values[order]`` is in the order of the items' rows

    @classmethod
    def from_matrix(cls, matrix: sparse.csr_array) -> Observed:
        """Return the ratings of a checked CSR matrix (n_users, n_items)."""
        places = sparse.csr_array((np.arange(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
        by_item = places.T.tocsr()
        return cls(RatingRows.from_matrix(matrix), RatingRows.from_matrix(by_item), matrix.data, by_item.data)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of users and of items."""
        return len(self.users.indptr) - 1, len(self.items.indptr) - 1
