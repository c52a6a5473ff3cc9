"""Small vector helpers shared by models and adapters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def normalize_rows(x: ArrayLike) -> NDArray[Any]:
    """Return the vectors of the last axis divided by their length; a zero vector stays zero.

    float32 stays float32, everything else becomes float64.
    """
    array = np.asarray(x)
    if array.dtype != np.float32:
        array = array.astype(np.float64)
    lengths = np.linalg.norm(array, axis=-1, keepdims=True)
    return np.asarray(array / np.where(lengths > 0, lengths, array.dtype.type(1)))
