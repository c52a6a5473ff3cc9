"""Levels of the dense component: how values are stored in 8, 4, 2 or 1 bits, and precisions.

All values of a row have one weight, at whatever level. If they are normally distributed, the best steps of 4 and 2
bits and the best size of 1 bit are 0.335, 0.996 and 0.798 deviations: these are 16, 48 and 38 units of 0.021.

A *precision* is a number of dimensions for each level: the first dimensions are stored at the first level, the next
at the second, and so on; the rest are zero.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index.kernels.limits import QUAD


class Level(NamedTuple):
    """A stored number s, from 0 to 2^bits - 1, stands for the value ``worth * (factor * s + least)``."""

    bits: int
    factor: int  # 1 or 2
    least: int
    worth: int

    @property
    def per_byte(self) -> int:
        """How many values a byte holds."""
        return 8 // self.bits


# At 4 bits values are multiples of 16 from -128 to 112, at 2 bits -72, -24, 24 or 72, at 1 bit -38 or 38.
LEVELS = (Level(8, 1, -128, 1), Level(4, 1, -8, 16), Level(2, 2, -3, 24), Level(1, 2, -1, 38))
BITS = np.array([level.bits for level in LEVELS])


def no_precisions(n: int) -> NDArray[np.int64]:
    """Return the precisions of n groups without a dense component."""
    return np.zeros((n, len(LEVELS)), np.int64)


def row_sizes(precisions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bytes of the values of a row in each precision (any, levels): whole quads at each level."""
    return QUAD * (-(-precisions // (QUAD * 8 // BITS))).sum(axis=1)
