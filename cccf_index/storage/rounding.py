"""Item weights and biases as a segment stores them: rounded at a scale, or floats."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index.codes import MAX_BIAS, CompositionalCodes, round_weights
from cccf_index.dense import DenseRows
from cccf_index.kernels.limits import DENSE_SHIFT
from cccf_index.storage.item_rows import ItemRows

VALUES_OF_WEIGHT = 16  # of a dense component: so many times its weight counts as a weight where none is binary
MAX_DENSE_WEIGHT = 2**20 - 1  # times a query's of 15 bits, 2 values of 7 bits and 2^12 dimensions: below 2^61


def choose_scale(codes: CompositionalCodes, bias: NDArray[np.float32] | None) -> float | None:
    """Return the scale for ``"auto"`` from the first items; None while they have neither a weight nor a bias."""
    weight = float(codes.weights.max(initial=0.0))
    if not weight and codes.dense is not None:
        weight = VALUES_OF_WEIGHT * float(codes.dense.weights.max(initial=0.0))
    boost = 0.0 if bias is None else float(np.abs(bias).max(initial=0.0))
    if not weight:
        return 255.0 / boost if boost else None
    return 255.0 / weight if 255.0 / weight * boost <= MAX_BIAS else MAX_BIAS / 2 / boost


def round_items(
    codes: CompositionalCodes, bias: Any, ids: NDArray[np.int64], requested: int | str | None, scale: float | None
) -> ItemRows:
    """Return items as segments store them: weights and biases times `scale`, rounded.

    `requested` is the scale that the user asked for: an integer, "auto", or None for float weights.
    """
    if requested is None:
        return ItemRows(codes.bits, codes.weights, bias, ids, codes.dense)
    weights = round_weights(codes.weights, scale or 1.0, "x")
    dense, had_any, has_any = None, codes.weights.any(axis=1), weights.any(axis=1)
    if codes.dense is not None:
        dense = round_dense(codes.dense, scale or 1.0)
        had_any, has_any = had_any | codes.dense.is_present, has_any | dense.is_present
    lost = had_any & ~has_any
    if lost.sum() > len(codes) / 10:
        warnings.warn(
            f"All weights of {lost.sum()} of {len(codes)} items round to 0 at scale={requested}: they score 0. "
            'Use a larger scale, "auto" or None.',
            stacklevel=4,
        )
    if bias is not None:
        boosts = np.rint(bias.astype(np.float64) * (scale or 1.0))
        if np.abs(boosts).max(initial=0.0) > MAX_BIAS:
            raise ValueError(
                f"`bias` must be at most {MAX_BIAS} in size after scaling by {scale:g}, "
                f"got {np.abs(bias).max():g}. Use a smaller scale, or None."
            )
        if bias.any() and not boosts.any():
            warnings.warn(f"All biases round to 0 at scale={requested}. Use a larger scale, or None.", stacklevel=4)
        bias = boosts.astype(np.int32)
    return ItemRows(codes.bits, weights, bias, ids, dense)


def round_dense(dense: DenseRows, scale: float) -> DenseRows:
    """Return a dense component with integer weights; see `limits.DENSE_SHIFT`."""
    scaled = np.rint(dense.weights.astype(np.float64) * (scale * 2**DENSE_SHIFT))
    if scaled.max(initial=0.0) > MAX_DENSE_WEIGHT:
        raise ValueError(
            f"`x` must have dense weights of at most {MAX_DENSE_WEIGHT / 2**DENSE_SHIFT:g} after scaling by {scale:g}, "
            f"got {dense.weights.max():g}. Use a smaller scale, or None."
        )
    weights = scaled.astype(np.uint32)
    return DenseRows(weights, dense.values[weights[dense.is_present] > 0])
