"""Small dense systems for the training kernels: blocked Gram sums and Cholesky, padded to whole registers."""

import numpy as np

from cccf_index.kernels.decorators import ZERO, training_kernel
from cccf_index.kernels.row_vectors import multiply_four, multiply_one

WIDTH = 16  # Gram matrices are padded to multiples of it: whole registers
PANEL = 8  # rows of one update: each element of a Gram matrix is loaded once for eight products


# 8 * p^2 / 2 products; only the upper triangle is valid. With unsigned indices LLVM need not check for negative ones.
@training_kernel
def add_outer(gram, block, first, sign):
    """Add ``sign * block.T @ block`` to the rows of `gram`, (p, p), from `first` on; block: (PANEL, p)."""
    sign = gram.dtype.type(sign)  # float32 times an integer would be float64
    p = np.uint64(gram.shape[0])
    for a in range(np.uint64(first), p):
        x0, x1, x2, x3 = sign * block[0, a], sign * block[1, a], sign * block[2, a], sign * block[3, a]
        x4, x5, x6, x7 = sign * block[4, a], sign * block[5, a], sign * block[6, a], sign * block[7, a]
        for b in range(a - a % np.uint64(WIDTH), p):
            low = (x0 * block[0, b] + x1 * block[1, b]) + (x2 * block[2, b] + x3 * block[3, b])
            gram[a, b] += low + ((x4 * block[4, b] + x5 * block[5, b]) + (x6 * block[6, b] + x7 * block[7, b]))


# p^3 / 6 products, by panels of eight rows; a pivot that is not positive makes the result False.
@training_kernel
def cholesky_solve(gram, right):
    """Solve ``gram @ x = right`` in place by Cholesky; the upper triangle of `gram` becomes its factor."""
    p = gram.shape[0]
    for panel in range(0, p, PANEL):
        for a in range(panel, panel + PANEL):
            if not gram[a, a] > 0:
                return False
            scale_row(gram[a, a:], gram.dtype.type(1 / np.sqrt(gram[a, a])))
            for row in range(a + 1, panel + PANEL):
                add_scaled(gram[row, row:], gram[a, row:], -gram[a, row])
        add_outer(gram, gram[panel : panel + PANEL], panel + PANEL, -1)
    for a in range(p):
        right[a] /= gram[a, a]
        add_scaled(right[a + 1 :], gram[a, a + 1 :], -right[a])
    for a in range(p - 1, -1, -1):
        row, rest = gram[a, a + 1 :], right[a + 1 :]
        total = right[a]
        for b in range(row.size):
            total -= row[b] * rest[b]
        right[a] = total / gram[a, a]
    return True


# Not a slice assignment: numba would compile what words its error about shapes, for seconds.
@training_kernel
def copy_row(x, y):
    """Set the first elements of `x` to those of `y`."""
    for b in range(y.size):
        x[b] = y[b]


@training_kernel
def fill_row(x, value):
    """Set all elements of `x` to a number."""
    for b in range(x.size):
        x[b] = value


@training_kernel
def multiply_rows(x, y):
    """Return the inner product of two float32 rows."""
    total = np.float32(0)
    for b in range(x.size):
        total += x[b] * y[b]
    return total


@training_kernel
def scale_row(x, size):
    """Multiply `x` by a number of its own type."""
    for b in range(x.size):
        x[b] *= size


@training_kernel
def add_scaled(x, y, size):
    """Add ``size * y`` to `x`."""
    for b in range(x.size):
        x[b] += size * y[b]


@training_kernel
def add_ridge(gram, size, n):
    """Add a ridge to the first n diagonal elements, and 1 to those of the padding; return the ridge.

    It is at least of the size of rounding errors, which keeps the matrix positive definite in its precision.
    """
    largest = gram.dtype.type(0)
    for a in range(n):
        largest = max(largest, gram[a, a])
    floor = 2 * gram.shape[0] * np.finfo(gram.dtype).eps * largest
    ridge = gram.dtype.type(max(size, floor, np.finfo(gram.dtype).tiny))
    for a in range(gram.shape[0]):
        gram[a, a] += ridge if a < n else 1
    return ridge


# p products, and p^2 / 2 for each row on average, by panels of eight rows.
@training_kernel
def add_row(gram, right, panel, t, rows, j, size, target_size, target):
    """Add ``size * rows[j]`` as row t of a least-squares system: to `gram` once its panel is full, and to `right`.

    gram: (p, p); right: (p,); panel: (PANEL, p); rows: (m, r), r <= p; ``target_size * target`` is what the row should
    score. After the last row call `flush_panel`.
    """
    place = t % PANEL
    for q in range(rows.shape[1]):
        panel[place, q] = size * rows[j, q]
        right[q] += target_size * target * panel[place, q]
    if place == PANEL - 1:
        add_outer(gram, panel, 0, 1)


@training_kernel
def flush_panel(gram, panel, n):
    """Add to `gram` what `add_row` has left in the panel after n rows."""
    if n % PANEL:
        panel[n % PANEL :] = 0
        add_outer(gram, panel, 0, 1)


@training_kernel
def multiply_tile(x, x_step, matrix, step, n, out, out_step, width, n_rows):
    """Set `n_rows` rows of `out` to ``x @ matrix``; see `multiply_four`."""
    row = ZERO
    while row + 4 <= n_rows:
        multiply_four(x + 4 * row * x_step, x_step, matrix, step, n, out + 4 * row * out_step, out_step, width)
        row += 4
    while row < n_rows:
        multiply_one(x + 4 * row * x_step, x_step, matrix, step, n, out + 4 * row * out_step, out_step, width)
        row += 1


# d * p products for a row; BLAS would round a row differently depending on the batch
@training_kernel
def map_row(vector, matrix, out):
    """Set `out` (d,) to ``vector @ matrix``, a matrix of (p, d)."""
    for j in range(out.size):
        out[j] = 0
    for j in range(vector.size):
        add_scaled(out, matrix[j], vector[j])
