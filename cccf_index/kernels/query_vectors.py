"""Vectors become real-valued queries."""

from cccf_index.kernels.decorators import training_entry
from cccf_index.kernels.linear_algebra import map_row, multiply_rows


# d * p products for a query.
@training_entry
def transform_queries(x, matrix, mean, most_squares, out, shifts, start, stop):
    """Set rows of `out` (nq, d) to ``x @ matrix``, and `shifts` (nq,) to ``x @ mean``, from row `start` to `stop`.

    Return whether no sum of squares is above `most_squares`. x: float32 (nq, p); matrix: float32 (p, d), or (p, 0);
    mean: float32 (p,).
    """
    is_safe = True
    for row in range(start, stop):
        is_safe &= multiply_rows(x[row], x[row]) <= most_squares  # which NaN is not
        shifts[row] = multiply_rows(x[row], mean)
        if out.shape[1]:
            map_row(x[row], matrix, out[row])
    return is_safe
