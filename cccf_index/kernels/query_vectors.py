"""Vectors become real-valued queries."""

import numpy as np

from cccf_index.kernels.decorators import training_entry, training_kernel
from cccf_index.kernels.linear_algebra import map_row, multiply_rows
from cccf_index.kernels.memory import address_of, view_row


# d * p products for a query.
@training_kernel
def transform_query(x, row, matrix, mean, most_squares, address, shifts):
    """Set row `row` of the float32 (nq, d) at an address to that of ``x @ matrix``, and its shift to ``x @ mean``.

    Return whether its sum of squares is not above `most_squares`. x: float32 (nq, p); matrix: float32 (p, d); mean:
    float32 (p,); address: 0 for the shift alone; shifts: float32 (nq,).
    """
    shifts[row] = multiply_rows(x[row], mean)
    if address != 0:
        map_row(x[row], matrix, view_row(address, row, matrix.shape[1], np.float32))
    return multiply_rows(x[row], x[row]) <= most_squares  # which NaN is not


@training_entry
def transform_queries(x, matrix, mean, most_squares, out, shifts, start, stop):
    """Transform the rows `start` to `stop` into `out`, float32 (nq, d) or empty; return whether all are safe.

    See `transform_query`.
    """
    are_safe = True
    for row in range(start, stop):
        are_safe &= transform_query(x, row, matrix, mean, most_squares, address_of(out), shifts)
    return are_safe
