"""Levels of the dense component: how values are stored in 8, 4, 2 or 1 bits; precisions, and their runs.

All values of a row have one weight, at whatever level. If they are normally distributed, the best steps of 4 and 2
bits and the best size of 1 bit are 0.335, 0.996 and 0.798 deviations: these are 16, 48 and 38 units of 0.021.

A *precision* is a number of dimensions for each level: the first dimensions are stored at the first level, the next
at the second, and so on; the rest are zero.

A search goes by *stages*: the first 16 dimensions, the next 48, the next 192, and so on; or fewer stages, see
`storage.dense_tables`. A query is rounded at one scale for each stage, and after each it is looked whether the
dimensions that are left can make up for what is missing. A *run* is up to 64 neighbouring dimensions of one level in
one stage.
"""

from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index.kernels.limits import DENSE_STEP, LONGEST_RUN, MAX_PRECISIONS, QUAD, STAGE_GROWTH, STRIP


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
    return np.asarray(count_level_bytes(precisions, BITS).sum(axis=1))


RUN_RECORD = np.dtype(
    [
        ("offset", "i4"),  # from the begin of a strip to the first bytes of the run's level
        ("fold", "i4"),  # a byte holds 2^fold numbers
        ("first", "i4"),  # its first quad of dimensions, counted from the first of its level
        ("n", "i4"),  # quads
        ("dimension", "i4"),  # its first dimension
        ("stage", "i4"),
        ("is_last", "i4"),  # of its stage, where other stages follow
        ("factor", "f4"),  # a stored number times `factor` plus `least` is a value
        ("least", "f4"),
    ]
)


def list_stages(n_dense: int) -> list[int]:
    """Return at which steps of dimensions the stages begin at most."""
    starts, start = [0] if n_dense else [], 1
    while start < n_dense // DENSE_STEP:
        starts.append(start)
        start *= STAGE_GROWTH
    return starts


def count_runs(n_dense: int) -> int:
    """Return the largest number of runs that the precisions of a segment have together."""
    return MAX_PRECISIONS * (len(list_stages(n_dense)) + len(LEVELS) + n_dense // DENSE_STEP // LONGEST_RUN)


def list_runs(precision: NDArray[np.int64], stages: list[int]) -> NDArray[np.void]:
    """Return the runs of a precision (levels,), as RUN_RECORD; stages: the steps at which they begin."""
    runs, first, offset, last = [], 0, 0, int(precision.sum()) // DENSE_STEP
    for level, n in zip(LEVELS, precision.tolist(), strict=True):
        stop = first + n // DENSE_STEP
        edges = [first, *(step for step in stages if first < step < stop), stop]
        parts = [range(start, end, LONGEST_RUN) for start, end in pairwise(edges)]
        for start, end in pairwise([*chain(*parts), stop]):
            quads = (start - first) * DENSE_STEP // QUAD, (end - start) * DENSE_STEP // QUAD
            stage = sum(step <= start for step in stages) - 1
            values = level.worth * level.factor, level.worth * level.least
            fold = level.per_byte.bit_length() - 1
            runs.append((offset, fold, *quads, start * DENSE_STEP, stage, end in stages and end < last, *values))
        first, offset = stop, offset + STRIP * int(count_level_bytes(n, level.bits))
    return np.array(runs, RUN_RECORD)


def count_level_bytes(n: Any, bits: Any) -> Any:
    """Return the bytes of n dimensions of a row at a level of some bits: whole quads."""
    return QUAD * (-(-n // (QUAD * 8 // bits)))
