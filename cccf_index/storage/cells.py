"""Cells: items of a group around a centre, the farthest first: after a block that is too near, all others are, too."""

from __future__ import annotations

from typing import Any, NamedTuple

import faiss
import numpy as np
from numpy.typing import NDArray

from cccf_index import _threads
from cccf_index.codes import expand
from cccf_index.kernels.building import fill_distances
from cccf_index.kernels.layout import freeze
from cccf_index.kernels.limits import BLOCK, STRIP
from cccf_index.storage.item_rows import ItemRows, dense_unit

MIN_CLUSTERED = 4096  # segments with fewer items are not worth a k-means
CELL = 10.0  # times the root of the segment's items: about so many share a cell
SAMPLE = 128  # items for each cell that k-means learns from
ITERATIONS = 8
MAX_CLUSTERED_DIMENSION = 2048  # longer expanded vectors are not clustered
STEP = 65536  # vectors expanded at a time
MIN_RADIUS = 1e-37  # below, float32 is less exact


class Cells(NamedTuple):
    """Rows in cells, the farthest from the centre first."""

    order: NDArray[np.int64]  # (n,): the rows, cell after cell
    groups: NDArray[np.int64]  # (cells,)
    starts: NDArray[np.int64]  # (cells + 1,)
    block_starts: NDArray[np.int64]  # (cells + 1,)
    centres: NDArray[np.float32]  # (G * r, cells)
    radii: NDArray[np.float32]  # (blocks,)


def arrange_cells(
    rows: ItemRows,
    weights: NDArray[Any],
    n_bits: int,
    metric: NDArray[np.float32],
    member: NDArray[Any],
    n_groups: int,
    clustered: bool = True,
) -> Cells:
    """Divide rows, whose weights (n, G) are given as they will be stored, into cells; `member` (n,): their groups.

    metric: of the dense component, see `SegmentTables`. A group that is small, or not to be `clustered`, is one cell
    around zero.
    """
    n, d = len(rows), weights.shape[1] * n_bits
    vectors = ExpandedRows(rows, weights, n_bits, metric)
    is_large = n >= MIN_CLUSTERED and d + rows.n_dense <= MAX_CLUSTERED_DIMENSION
    per_cell = CELL * np.sqrt(n) if clustered and is_large else np.inf
    sizes = np.bincount(member, minlength=n_groups)
    counts = np.maximum(1, np.rint(sizes / per_cell)).astype(np.int64)
    firsts = np.cumsum(counts) - counts
    cell = firsts[member]
    centres = np.zeros((int(counts.sum()), d + rows.n_dense), dtype=np.float32)
    with _threads.faiss_threads():
        for g in np.flatnonzero(counts > 1):
            own = np.flatnonzero(member == g)
            nearest = vectors.cluster(own, centres[firsts[g] : firsts[g] + counts[g]])
            cell[own] += nearest
    distances = vectors.measure_distances(cell, centres)
    if rows.dense is not None and (counts > 1).any():
        is_dense = rows.dense.is_present & ~weights.any(axis=1)
        moved = align_cells(cell, distances, firsts, counts, np.bincount(member[is_dense], minlength=n_groups) > 0)
        distances[moved] = vectors.select(moved).measure_distances(cell[moved], centres)
    order = np.lexsort((rows.ids, -distances, cell))
    sizes = np.bincount(cell, minlength=len(centres))
    starts = np.concatenate(([0], np.cumsum(sizes)))
    n_blocks = -(-sizes // BLOCK)
    block_starts = np.concatenate(([0], np.cumsum(n_blocks)))
    heads = np.repeat(starts[:-1] - BLOCK * block_starts[:-1], n_blocks) + BLOCK * np.arange(n_blocks.sum())
    # leave room for the rounding, in float32, of products with the centre (d terms) and of scores
    sure = (1e-4 + centres.shape[1] * 2.0**-23) * np.linalg.norm(centres.astype(np.float64), axis=1)
    radii = distances[order][heads] * (1 + 1e-4) + np.repeat(sure, n_blocks) + MIN_RADIUS
    groups = np.repeat(np.arange(n_groups), counts)
    return Cells(order, groups, starts, block_starts, np.ascontiguousarray(centres.T), radii.astype(np.float32))


def align_cells(
    cell: NDArray[np.int64],
    distances: NDArray[np.float64],
    firsts: NDArray[np.int64],
    counts: NDArray[np.int64],
    chosen: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """Let the cells of the chosen groups have multiples of STRIP rows, but for the last; return the rows that changed.

    The rows nearest to the centre of a cell go to the next.
    """
    moved = np.zeros(len(cell), dtype=bool)
    for g in np.flatnonzero(chosen & (counts > 1)):
        for c in range(firsts[g], firsts[g] + counts[g] - 1):
            own = np.flatnonzero(cell == c)
            extra = len(own) % STRIP
            if extra:
                own = own[np.argsort(distances[own], kind="stable")[:extra]]
                cell[own], moved[own] = c + 1, True
    return np.flatnonzero(moved)


class ExpandedRows(NamedTuple):
    """Rows as vectors, made when they are needed: the binary components, then the dense one."""

    rows: ItemRows
    weights: NDArray[Any]
    n_bits: int
    metric: NDArray[np.float32]

    def select(self, which: NDArray[np.int64]) -> ExpandedRows:
        """Return some of the rows."""
        return ExpandedRows(self.rows.select(which), self.weights[which], self.n_bits, self.metric)

    def find_active(self, which: NDArray[np.int64]) -> tuple[NDArray[np.int64], bool]:
        """Return the binary components that some of these rows have, and whether any has the dense one."""
        has_dense = self.rows.dense is not None and bool(self.rows.dense.is_present[which].any())
        return np.flatnonzero(self.weights[which].any(axis=0)), has_dense

    def expand(self, which: NDArray[np.int64], active: NDArray[np.int64], has_dense: bool) -> NDArray[np.float32]:
        """Return vectors of some rows, of their active components."""
        weights = self.weights[which][:, active].astype(np.float32)
        vectors = expand(self.rows.words[which][:, active], weights, self.n_bits)
        if not has_dense:
            return vectors
        return np.concatenate([vectors, self.expand_dense(which)], axis=1)

    def expand_dense(self, which: Any) -> NDArray[np.float32]:
        """Return the dense component of some rows in the metric, in units of the weights of the others."""
        assert self.rows.dense is not None
        dense = self.rows.dense.select(which)
        vectors = np.zeros((len(dense.weights), dense.p), np.float32)
        sizes = dense.weights[dense.is_present].astype(np.float32) * np.float32(dense_unit(dense.weights))
        vectors[dense.is_present] = dense.values * self.metric * sizes[:, None]
        return vectors

    def cluster(self, which: NDArray[np.int64], centres: NDArray[np.float32]) -> NDArray[np.int64]:
        """Fill centres (cells, d) by k-means of some rows; return which of them is nearest to each row."""
        active, has_dense = self.find_active(which)
        nearest = np.zeros(len(which), dtype=np.int64)
        if not len(active) and not has_dense:
            return nearest
        rng = np.random.default_rng(0)
        some = rng.choice(which, min(len(which), SAMPLE * len(centres)), replace=False)
        used = (active[:, None] * self.n_bits + np.arange(self.n_bits)).ravel()
        if has_dense:
            used = np.concatenate([used, np.arange(self.weights.shape[1] * self.n_bits, centres.shape[1])])
        means = faiss.Kmeans(
            len(used), len(centres), niter=ITERATIONS, seed=1, min_points_per_centroid=1, max_points_per_centroid=SAMPLE
        )
        means.train(self.expand(some, active, has_dense))
        for start in range(0, len(which), STEP):
            vectors = self.expand(which[start : start + STEP], active, has_dense)
            nearest[start : start + STEP] = means.index.search(vectors, 1)[1][:, 0]
        centres[:, used] = means.centroids
        return nearest

    def measure_distances(self, cell: NDArray[np.int64], centres: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the distance of each row from the centre of its cell (n,)."""
        weights, d = self.weights, self.weights.shape[1] * self.n_bits
        distances = np.empty(len(weights))
        octets, weight_octets = freeze(self.rows.words).view(np.uint8), freeze(weights).view(np.uint8)
        own = np.ascontiguousarray(centres[:, :d])
        is_float = weights.dtype.kind == "f"
        fill_distances(octets, weight_octets, weights.itemsize, is_float, self.n_bits, cell, own, distances)
        if self.rows.dense is None:
            return distances
        # a row without the dense component is as far off as the dense part of its centre is long
        squares = np.square(distances) + np.square(centres[:, d:], dtype=np.float64).sum(axis=1)[cell]
        which = np.flatnonzero(self.rows.dense.is_present)
        for start in range(0, len(which), STEP // 8):
            part = which[start : start + STEP // 8]
            off = self.expand_dense(part) - centres[cell[part], d:]
            squares[part] = np.square(distances[part]) + np.einsum("ij,ij->i", off, off)
        return np.sqrt(squares)
