"""The balanced, decorrelated matrix nearest to a matrix of codes (paper, section 3.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

SLICE = 65536  # rows converted to float64 at a time
ZERO = 1e-9  # eigenvalues below this share of the largest are rounding errors


def compute_surrogate(codes: NDArray[Any]) -> NDArray[np.float32]:
    """Return X (m, r) that maximises ``tr(B^T X)`` subject to ``X^T X = m I`` and ``1^T X = 0``, for r < m.

    With centred codes ``Bc = P S Q^T`` it is ``sqrt(m) * P Q^T``, which is Bc times an r x r matrix. If Bc does not
    have full rank, P and Q are completed by orthonormal columns; those added to P are also orthogonal to 1.
    """
    m, r = codes.shape
    mean = codes.mean(axis=0, dtype=np.float64)
    values, Q = np.linalg.eigh(sum((part.T @ part for _, part in _centre_slices(codes, mean)), np.zeros((r, r))))
    kept = values > ZERO * max(values[-1], 0)
    half = Q[:, kept] / np.sqrt(values[kept])  # Bc @ half is P
    missing = _complete_basis(codes, mean, half, Q[:, ~kept])
    result = np.empty((m, r), dtype=np.float32)
    for rows, part in _centre_slices(codes, mean):
        result[rows] = np.sqrt(m) * (part @ half @ Q[:, kept].T + missing[rows] @ Q[:, ~kept].T)
    return result


def _centre_slices(codes: NDArray[Any], mean: NDArray[np.float64]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    for start in range(0, len(codes), SLICE):
        rows = slice(start, start + SLICE)
        yield rows, codes[rows] - mean


def _complete_basis(
    codes: NDArray[Any], mean: NDArray[np.float64], half: NDArray[np.float64], null: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return orthonormal columns, as many as `null` has, that are orthogonal to P and to 1.

    Gram-Schmidt on random vectors, twice because of rounding. The vectors rotate with `null`, and so does their polar
    factor: the surrogate does not depend on which basis of the null space the eigensolver happens to return.
    """
    if null.shape[1] == 0:
        return np.empty((len(codes), 0))
    columns = np.random.default_rng(0).standard_normal((len(codes), len(null))) @ null
    for _ in range(2):
        columns -= columns.mean(axis=0)
        shadow = sum((half.T @ part.T @ columns[rows] for rows, part in _centre_slices(codes, mean)), 0.0)
        for rows, part in _centre_slices(codes, mean):
            columns[rows] -= part @ half @ shadow
        left, _, right = np.linalg.svd(columns, full_matrices=False)
        columns = left @ right
    return columns
