"""Convert values to what JSON can hold."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np


def to_plain(value: Any) -> Any:
    """Return `value` with numpy arrays as lists and every number as bool, int or float, also inside dicts and lists.

    Anything else is returned unchanged.
    """
    if isinstance(value, dict):
        return {name: to_plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(part) for part in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value
