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
# A query is measured against each centre, so cells must be worth it. About so many items share a cell, in roots of the
# segment's items, if they are so near to its centre, as a share of how far they are from zero.
WORTH_FINE = (4.0, 0.8)  # of dense rows, whose blocks take longest
WORTH = (10.0, 0.97)
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

    metric: of the dense component, see `SegmentTables`. A group that is small, not to be `clustered`, or without
    clusters, is one cell around zero.
    """
    n, d = len(rows), weights.shape[1] * n_bits
    vectors = ExpandedRows(rows, weights, n_bits, metric)
    is_large = n >= MIN_CLUSTERED and d + rows.n_dense <= MAX_CLUSTERED_DIMENSION
    has_dense = np.zeros(n_groups, dtype=bool)
    if rows.dense is not None:
        has_dense[member[rows.dense.is_present & ~weights.any(axis=1)]] = True
    found = [np.zeros((1, d + rows.n_dense), dtype=np.float32)] * n_groups
    place = np.zeros(n, dtype=np.int64)  # of a row's cell among those of the group
    if clustered and is_large:
        sizes = np.bincount(member, minlength=n_groups) / np.sqrt(n)
        with _threads.faiss_threads():
            for g in np.flatnonzero(sizes > min(WORTH[0], WORTH_FINE[0])):
                own = np.flatnonzero(member == g)
                kinds = (WORTH_FINE, WORTH) if has_dense[g] else (WORTH,)
                found[g] = vectors.find_centres(own, [(round(sizes[g] / size), share) for size, share in kinds])
                place[own] = vectors.find_nearest(own, found[g])
    centres, counts = np.concatenate(found), np.array([len(own) for own in found])
    firsts = np.cumsum(counts) - counts
    cell = firsts[member] + place
    distances = vectors.measure_distances(cell, centres)
    if rows.dense is not None and (counts > 1).any():
        moved = align_cells(cell, distances, firsts, counts, has_dense)
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

    def find_used(self, which: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], bool]:
        """Return which dimensions some of these rows have, and what `find_active` does."""
        active, has_dense = self.find_active(which)
        used = (active[:, None] * self.n_bits + np.arange(self.n_bits)).ravel()
        if has_dense:
            d = self.weights.shape[1] * self.n_bits
            used = np.concatenate([used, np.arange(d, d + len(self.metric))])
        return used, active, has_dense

    def find_centres(self, which: NDArray[np.int64], kinds: list[tuple[int, float]]) -> NDArray[np.float32]:
        """Return the centres (cells, d) of some rows that k-means finds, zero where none are worth it.

        kinds: numbers of cells, and how far from their centres rows may be then, as a share of their lengths: the first
        that is kept counts.
        """
        used, active, has_dense = self.find_used(which)
        d, kinds = self.weights.shape[1] * self.n_bits + len(self.metric), [kind for kind in kinds if kind[0] > 1]
        if not kinds or not len(used):
            return np.zeros((1, d), dtype=np.float32)
        rng, most = np.random.default_rng(0), SAMPLE * max(count for count, _ in kinds)
        sample = self.expand(rng.choice(which, min(len(which), most), replace=False), active, has_dense)
        length = np.linalg.norm(sample, axis=1).mean()
        for count, share in kinds:
            means = faiss.Kmeans(
                len(used), count, niter=ITERATIONS, seed=1, min_points_per_centroid=1, max_points_per_centroid=SAMPLE
            )
            means.train(sample)
            squares = means.index.search(sample, 1)[0]
            if np.sqrt(np.maximum(squares, 0)).mean() <= share * length:
                centres = np.zeros((count, d), dtype=np.float32)
                centres[:, used] = means.centroids
                return centres
        return np.zeros((1, d), dtype=np.float32)

    def find_nearest(self, which: NDArray[np.int64], centres: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return which of the centres (cells, d) is nearest to each of some rows."""
        nearest = np.zeros(len(which), dtype=np.int64)
        if len(centres) == 1:
            return nearest
        used, active, has_dense = self.find_used(which)
        index = faiss.IndexFlatL2(len(used))
        index.add(np.ascontiguousarray(centres[:, used]))
        for start in range(0, len(which), STEP):
            vectors = self.expand(which[start : start + STEP], active, has_dense)
            nearest[start : start + STEP] = index.search(vectors, 1)[1][:, 0]
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
