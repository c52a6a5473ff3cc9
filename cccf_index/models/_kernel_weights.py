"""The paper's component weights: kernels of the distance to anchors in a latent space (sections 3.3 and 3.6)."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cccf_index._vectors import normalize_rows

KERNELS = ("epanechnikov", "triangular", "uniform")
DISTANCES = ("angular", "arccos")
ANCHORS = ("kmeans", "random")


def choose_anchors(latents: NDArray[Any], how: str, n_anchors: int, seed: int) -> NDArray[np.float32]:
    """Return anchors (n_anchors, p): k-means centroids of the non-zero rows, or a random choice of these rows."""
    points = np.ascontiguousarray(latents[(latents != 0).any(axis=1)], dtype=np.float32)
    if len(points) < n_anchors:
        points = np.ascontiguousarray(latents, dtype=np.float32)
    if how == "random":
        return points[np.random.default_rng(seed).choice(len(points), n_anchors, replace=False)]
    kmeans = faiss.Kmeans(
        points.shape[1],
        n_anchors,
        niter=25,
        seed=seed % 2**31,
        min_points_per_centroid=1,
        max_points_per_centroid=max(1, 1_000_000 // n_anchors),
    )
    # one thread: in a forked process OpenMP cannot restart its threads, and would wait for them forever
    n_threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        kmeans.train(points)
    finally:
        faiss.omp_set_num_threads(n_threads)
    return kmeans.centroids.copy()


def compute_weights(
    latents: NDArray[Any], anchors: NDArray[np.float32], kernel: str, distance: str, bandwidth: float, normalize: bool
) -> NDArray[np.float32]:
    """Return weights (n, G): the kernel function of the distance between each row and each anchor.

    With ``distance="angular"`` the distance d is the angle in units of a right angle (0 to 2), and the kernel reaches
    zero at the bandwidth h: ``0.75 * (1 - (d / h)^2)`` for Epanechnikov, as in the authors' code. With ``"arccos"`` d
    is the angle in radians, and the kernel ``0.75 * (1 - d^2)`` is set to zero where d >= h, as in the paper, and where
    it is negative. A row without a positive weight gets weight 1 for its nearest anchor.
    """
    rows, centres = (normalize_rows(part.astype(np.float64)) for part in (latents, anchors))
    cosines = rows @ centres.T  # a zero row is at a right angle to every anchor
    angle = np.arccos(np.clip(cosines, -1, 1))
    if distance == "angular":
        x = angle * (2 / np.pi) / bandwidth
        inside = x < 1
    else:
        x, inside = angle, angle < bandwidth
    profiles = {"epanechnikov": 0.75 * (1 - x**2), "triangular": 1 - x, "uniform": np.ones_like(x)}
    weights = np.where(inside, np.maximum(profiles[kernel], 0), 0)
    alone = ~(weights > 0).any(axis=1)
    weights[alone, angle[alone].argmin(axis=1)] = 1
    if normalize:
        weights /= weights.sum(axis=1, keepdims=True)
    return weights.astype(np.float32)
