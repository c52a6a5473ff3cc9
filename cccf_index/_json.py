"""Convert values to what JSON can hold."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np


def to_plain(value: Any) -> Any:
    """Return `value` with numpy arrays as lists and numbers as Python's own; all else is unchanged."""
    if isinstance(value, bool):
        return value
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, dict):
        return {key: to_plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(part) for part in value]
    return value
