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
from cccf_index.kernels.limits import BLOCK

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
    words: NDArray[Any],
    weights: NDArray[Any],
    n_bits: int,
    ids: NDArray[np.int64],
    member: NDArray[Any],
    n_groups: int,
    clustered: bool = True,
) -> Cells:
    """Divide rows with words (n, G, W), weights (n, G) and ids (n,) into cells; `member` (n,) is the group of each.

    A group that is small, or not to be `clustered`, is one cell around zero.
    """
    n, n_components = weights.shape
    is_large = n >= MIN_CLUSTERED and n_components * n_bits <= MAX_CLUSTERED_DIMENSION
    per_cell = CELL * np.sqrt(n) if clustered and is_large else np.inf
    sizes = np.bincount(member, minlength=n_groups)
    counts = np.maximum(1, np.rint(sizes / per_cell)).astype(np.int64)
    firsts = np.cumsum(counts) - counts
    cell = firsts[member]
    centres = np.zeros((int(counts.sum()), n_components * n_bits), dtype=np.float32)
    with _threads.faiss_threads():
        for g in np.flatnonzero(counts > 1):
            rows = np.flatnonzero(member == g)
            own = slice(firsts[g], firsts[g] + counts[g])
            centres[own], nearest = cluster(words[rows], weights[rows], n_bits, int(counts[g]))
            cell[rows] += nearest
    distances = np.empty(n)
    octets, weight_octets = freeze(words).view(np.uint8), freeze(weights).view(np.uint8)
    fill_distances(octets, weight_octets, weights.itemsize, weights.dtype.kind == "f", n_bits, cell, centres, distances)
    order = np.lexsort((ids, -distances, cell))
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


def cluster(
    words: NDArray[Any], weights: NDArray[Any], n_bits: int, n_cells: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return centres (cells, G * r) by k-means of the expanded vectors, and which is nearest to each row."""
    weights = weights.astype(np.float32)
    active = np.flatnonzero(weights.any(axis=0))
    if not len(active):
        return np.zeros((n_cells, weights.shape[1] * n_bits), dtype=np.float32), np.zeros(len(words), dtype=np.int64)
    rng = np.random.default_rng(0)
    some = rng.choice(len(words), min(len(words), SAMPLE * n_cells), replace=False)
    d = len(active) * n_bits
    means = faiss.Kmeans(
        d, n_cells, niter=ITERATIONS, seed=1, min_points_per_centroid=1, max_points_per_centroid=SAMPLE
    )
    means.train(expand(words[some][:, active], weights[some][:, active], n_bits))
    nearest = np.empty(len(words), dtype=np.int64)
    for start in range(0, len(words), STEP):
        part = slice(start, start + STEP)
        vectors = expand(words[part][:, active], weights[part][:, active], n_bits)
        nearest[part] = means.index.search(vectors, 1)[1][:, 0]
    centres = np.zeros((n_cells, weights.shape[1], n_bits), dtype=np.float32)
    centres[:, active] = means.centroids.reshape(n_cells, len(active), n_bits)
    return centres.reshape(n_cells, -1), nearest
