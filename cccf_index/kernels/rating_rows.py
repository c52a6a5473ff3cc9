"""Row updates of models of ratings: least squares, flips of single bits, scores.

A *side* (users or items) is updated while the other is fixed, so its rows are independent: any split of the rows over
threads gives the same result. Rows are those of a CSR matrix: row i is rated by the entries ``indptr[i]`` to
``indptr[i + 1]`` of `indices` (rows of the other side) and `targets`. In component k a pair's score is
``weights[i] * other_weights[j] * <row i, other row j>``.

Shapes: indptr int64 (n + 1,); indices int32 and targets (ratings,); other (m, r), weights (n,), other_weights (m,),
pull (n, r), diagonal (r,), ridge (n,), out and signs (n, r). Rows `start` to `stop` are updated.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index.kernels.decorators import training_entry, training_kernel
from cccf_index.kernels.linear_algebra import (
    PANEL,
    WIDTH,
    add_outer,
    add_ridge,
    add_row,
    add_scaled,
    cholesky_solve,
    copy_row,
    flush_panel,
)


# n * p^2 / 2 + p^3 / 6 products for n ratings: (X^T X + diagonal + ridge) x = X^T targets + pull, X by panels of rows.
@training_kernel
def solve_long_row(indices, targets, other, weight, other_weights, pull, diagonal, ridge, scratch, out):
    """Solve the least squares of a row that has many ratings; False if that overflows."""
    r, one = other.shape[1], out.dtype.type(1)
    p = -(-r // WIDTH) * WIDTH
    gram = scratch[: p * p].reshape(p, p)
    panel = scratch[p * p : p * (p + PANEL)].reshape(PANEL, p)
    right = scratch[p * (p + PANEL) : p * (p + PANEL + 1)]
    scratch[: p * (p + PANEL + 1)] = 0
    copy_row(right, pull)
    for q in range(diagonal.size):
        gram[q, q] = diagonal[q]
    for t in range(indices.size):
        j = indices[t]
        add_row(gram, right, panel, t, other, j, weight * other_weights[j], one, targets[t])
    flush_panel(gram, panel, indices.size)
    add_ridge(gram, ridge, r)
    if not cholesky_solve(gram, right):
        return False
    copy_row(out, right[:r])
    return True


# n^2 * p / 2 + n^3 / 6 products: x = S (z + Z^T y), where D = diagonal + ridge, its smallest entry is d,
# S = (d / D)^(1/2), Z = X S, z = S pull / d, and (Z Z^T + d) y = targets - Z z. Without a diagonal S is 1.
@training_kernel
def solve_short_row(indices, targets, other, weight, other_weights, pull, diagonal, ridge, scratch, out):
    """Solve the least squares of a row that has fewer ratings than columns; False if that overflows."""
    n, r = indices.size, other.shape[1]
    width, height = -(-n // WIDTH) * WIDTH, -(-r // PANEL) * PANEL
    gram = scratch[: width * width].reshape(width, width)
    columns = scratch[width * width : width * (width + height)].reshape(height, width)  # Z^T
    right = scratch[width * (width + height) : width * (width + height + 1)]
    scales = scratch[width * (width + height + 1) : width * (width + height + 1) + r]
    scratch[: width * (width + height + 1)] = 0
    scales[:] = 1
    if diagonal.size:
        least = ridge + diagonal[0]
        for q in range(1, r):
            least = min(least, ridge + diagonal[q])
        for q in range(r):
            scales[q] = np.sqrt(least / (ridge + diagonal[q]))
        ridge = least
    for t in range(n):
        j = indices[t]
        size = weight * other_weights[j]
        for q in range(r):
            columns[q, t] = size * other[j, q] * scales[q]
    for q in range(0, height, PANEL):
        add_outer(gram, columns[q : q + PANEL], 0, 1)
    ridge = add_ridge(gram, ridge, n)
    copy_row(right, targets)
    for q in range(r):
        out[q] = scales[q] * pull[q] / ridge
        add_scaled(right, columns[q], -out[q])
    if not cholesky_solve(gram, right):
        return False
    for q in range(r):
        row = columns[q]
        for t in range(n):
            out[q] += row[t] * right[t]
        out[q] *= scales[q]
    return True


def make_scratch(r: int, dtype: Any) -> NDArray[Any]:
    """Return the room that `solve_rows` needs for systems of r columns; kernels do not allocate."""
    p = -(-r // WIDTH) * WIDTH
    return np.empty(p * (2 * p + PANEL + 2), dtype=dtype)


# ratings * p * min(n, p) / 2 + rows * min(n, p)^3 / 6 products, with n ratings in a row
@training_entry
def solve_rows(
    indptr, indices, targets, other, weights, other_weights, pull, diagonal, ridge, out, scratch, start, stop
):
    """Set each row x to the minimum of ``sum (target - score)^2 + x^T (diagonal + ridge) x - 2 * <pull, x>``.

    An empty `diagonal` is none. Returns the first row whose system is not positive definite (an overflow), or -1.
    """
    r = other.shape[1]
    for row in range(start, stop):
        first, last = indptr[row], indptr[row + 1]
        j, values = indices[first:last], targets[first:last]
        x, size, term, weight = out[row], ridge[row], pull[row], weights[row]
        if j.size < r:
            solved = solve_short_row(j, values, other, weight, other_weights, term, diagonal, size, scratch, x)
        else:
            solved = solve_long_row(j, values, other, weight, other_weights, term, diagonal, size, scratch, x)
        if not solved:
            return row
    return -1


# ratings * r * (sweeps + 1) products; a row ends at a code that no single flip improves, or after `max_sweeps`.
@training_entry
def flip_rows(
    indptr, indices, targets, other, weights, other_weights, pull, max_sweeps, signs, columns, lines, start, stop
):
    """Improve each code b by flips of single bits of ``sum (target - score)^2 - 2 * <pull, b>`` (paper, section 3.4).

    ``signs`` and ``other`` are int8 of -1 and +1. Bit q wants the sign of ``sum_j w_j * e_j * d_jq + sum_j w_j^2 * b_q
    + pull_q``, where e is the residual with all bits as they are: the other bits' scores never have to be subtracted.

    Room for the longest row: columns: int8 (r, longest); lines: (2, longest), of the targets' type.
    """
    r = other.shape[1]
    residual, square = lines[0], lines[1]  # the residual times the pair's weight, and the square of that weight
    for row in range(start, stop):
        n = indptr[row + 1] - indptr[row]
        total = square.dtype.type(0)
        for t in range(n):
            j = indices[indptr[row] + t]
            score = 0
            for q in range(r):
                columns[q, t] = other[j, q]
                score += signs[row, q] * other[j, q]
            weight = weights[row] * other_weights[j]
            square[t] = weight * weight
            total += square[t]
            residual[t] = weight * (targets[indptr[row] + t] - weight * score)
        for _ in range(max_sweeps):
            changed = False
            for q in range(r):
                wanted = pull[row, q] + total * signs[row, q]
                for t in range(n):
                    wanted += residual[t] * columns[q, t]
                if wanted * signs[row, q] < 0:
                    change = square.dtype.type(2 * signs[row, q])
                    for t in range(n):
                        residual[t] += change * square[t] * columns[q, t]
                    signs[row, q] = -signs[row, q]
                    changed = True
            if not changed:
                break


# ratings * r products
@training_entry
def add_scores(indptr, indices, values, left, right, left_weights, right_weights, factor, start, stop):
    """Add to each rating's value its score in one component, times `factor`."""
    for row in range(start, stop):
        for entry in range(indptr[row], indptr[row + 1]):
            j = indices[entry]
            score = values.dtype.type(0)
            for q in range(left.shape[1]):
                score += left[row, q] * right[j, q]
            values[entry] += factor * left_weights[row] * right_weights[j] * score
