"""Vectors become real-valued queries."""

import numpy as np

from cccf_index.kernels.decorators import ONE, training_entry, training_kernel
from cccf_index.kernels.linear_algebra import map_row, multiply_rows, multiply_tile
from cccf_index.kernels.memory import address_of, view_row
from cccf_index.kernels.row_vectors import LANES


# d * p products for a query, four queries at a time. Invariant: a query's result does not depend on the others.
@training_kernel
def transform_rows(x, start, n, matrix, mean, most_squares, first, last, address, shifts):
    """Set n rows of the float32 (nq, d) at an address, from `start` on, to those of ``x @ matrix``; return if safe.

    That is whether no sum of squares of their vectors is above `most_squares`. Their shifts become ``x @ mean``. x:
    float32 (nq, p); matrix: float32 (p, d); mean: float32 (p,); address: 0 for the shifts alone; shifts: float32 (nq,).
    Columns before `first` and from `last` on may be left out: nothing reads them.
    """
    (p, d), are_safe = matrix.shape, True
    for row in range(start, start + n):
        shifts[row] = multiply_rows(x[row], mean)
        are_safe &= multiply_rows(x[row], x[row]) <= most_squares  # which NaN is not
    if address != 0 and d % LANES == 0:
        first, last = first - first % LANES, last + -last % LANES
        place = address + 4 * (start * d + first)
        multiply_tile(address_of(x) + 4 * start * p, p, address_of(matrix) + 4 * first, d, p, place, d, last - first, n)
    elif address != 0:
        for row in range(start, start + n):
            map_row(x[row], matrix, view_row(address, row, d, np.float32))
    return are_safe


@training_kernel
def transform_query(x, row, matrix, mean, most_squares, first, last, address, shifts):
    """Transform one row; see `transform_rows`."""
    return transform_rows(x, row, ONE, matrix, mean, most_squares, first, last, address, shifts)


@training_entry
def transform_queries(x, matrix, mean, most_squares, first, last, out, shifts, start, stop):
    """Transform the rows `start` to `stop` into `out`, float32 (nq, d) or empty; return whether all are safe.

    See `transform_rows`.
    """
    return transform_rows(x, start, stop - start, matrix, mean, most_squares, first, last, address_of(out), shifts)
