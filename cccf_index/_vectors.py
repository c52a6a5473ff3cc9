"""Arithmetic on rows of vectors that several rooms share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def normalize_rows(x: NDArray[Any]) -> NDArray[Any]:
    """Return the rows of `x`, or one vector, scaled to length 1; a zero row stays zero.

    The result is float32 or float64, as `x` is.
    """
    lengths = np.linalg.norm(x, axis=-1, keepdims=True)
    return x / np.where(lengths > 0, lengths, lengths.dtype.type(1))
