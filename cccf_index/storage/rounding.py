"""Item weights and biases as a segment stores them: rounded at a scale, or floats."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index.codes import MAX_BIAS, CompositionalCodes, round_weights
from cccf_index.storage.item_rows import ItemRows


def choose_scale(codes: CompositionalCodes, bias: NDArray[np.float32] | None) -> float | None:
    """Return the scale for ``"auto"`` from the first items; None while they have neither a weight nor a bias."""
    weight = float(codes.weights.max(initial=0.0))
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
        return ItemRows(codes.bits, codes.weights, bias, ids)
    weights = round_weights(codes.weights, scale or 1.0, "x")
    lost = codes.weights.any(axis=1) & ~weights.any(axis=1)
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
    return ItemRows(codes.bits, weights, bias, ids)
