"""Every training kernel. They fill what they are given, row by row, and never validate.

A *side* (users or items) is updated while the other is fixed, so its rows are independent: any split of the rows over
threads gives the same result. Rows are those of a CSR matrix: row i is rated by the entries ``indptr[i]`` to
``indptr[i + 1]`` of `indices` (rows of the other side) and `targets`. In component k a pair's score is
``weights[i] * other_weights[j] * <row i, other row j>``.
"""

import numpy as np
from numba import njit

# sums may be taken in any order, which is the same order in every run: that lets them use all lanes of a register
kernel = njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})

LANES = 16  # rows of Gram matrices are padded to whole registers
BLOCK = 8  # rows of one rank-BLOCK update: each element of a Gram matrix is loaded once for eight products


# 8 * p^2 / 2 products; only the upper triangle is valid. Unsigned indices spare LLVM the check for negative ones.
@kernel
def add_outer(gram, block, first, sign):
    """Add ``sign * block.T @ block`` to the rows of `gram` from `first` on."""
    sign = gram.dtype.type(sign)  # float32 times an integer would be float64
    p = np.uint64(gram.shape[0])
    for a in range(np.uint64(first), p):
        x0, x1, x2, x3 = sign * block[0, a], sign * block[1, a], sign * block[2, a], sign * block[3, a]
        x4, x5, x6, x7 = sign * block[4, a], sign * block[5, a], sign * block[6, a], sign * block[7, a]
        for b in range(a - a % np.uint64(LANES), p):
            low = (x0 * block[0, b] + x1 * block[1, b]) + (x2 * block[2, b] + x3 * block[3, b])
            gram[a, b] += low + ((x4 * block[4, b] + x5 * block[5, b]) + (x6 * block[6, b] + x7 * block[7, b]))


# p^3 / 6 products, by panels of eight rows; a pivot that is not positive makes the result False.
@kernel
def cholesky_solve(gram, right):
    """Solve ``gram @ x = right`` in place by Cholesky; the upper triangle of `gram` becomes its factor."""
    p = gram.shape[0]
    for panel in range(0, p, BLOCK):
        for a in range(panel, panel + BLOCK):
            if not gram[a, a] > 0:
                return False
            scale_row(gram[a, a:], gram.dtype.type(1 / np.sqrt(gram[a, a])))
            for row in range(a + 1, panel + BLOCK):
                add_scaled(gram[row, row:], gram[a, row:], -gram[a, row])
        add_outer(gram, gram[panel : panel + BLOCK], panel + BLOCK, -1)
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


@kernel
def scale_row(x, size):
    """Multiply `x` by a number of its own type."""
    for b in range(x.size):
        x[b] *= size


@kernel
def add_scaled(x, y, size):
    """Add ``size * y`` to `x`."""
    for b in range(x.size):
        x[b] += size * y[b]


@kernel
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


# n * p^2 / 2 + p^3 / 6 products for n ratings: (X^T X + base + ridge) x = X^T targets + pull, X by blocks of rows.
@kernel
def solve_long_row(indices, targets, other, weight, other_weights, pull, base, ridge, scratch, out):
    """Solve the least squares of a row that has many ratings; False if that overflows."""
    r = other.shape[1]
    p = -(-r // LANES) * LANES
    gram = scratch[: p * p].reshape(p, p)
    block = scratch[p * p : p * (p + BLOCK)].reshape(BLOCK, p)
    right = scratch[p * (p + BLOCK) : p * (p + BLOCK + 1)]
    scratch[: p * (p + BLOCK + 1)] = 0
    right[:r] = pull
    gram[: base.shape[0], : base.shape[0]] = base
    for t in range(indices.size):
        j, place = indices[t], t % BLOCK  # a view of `other` would count references, for which threads wait
        size = weight * other_weights[j]
        for q in range(r):
            block[place, q] = size * other[j, q]
            right[q] += targets[t] * block[place, q]
        if place == BLOCK - 1:
            add_outer(gram, block, 0, 1)
    if indices.size % BLOCK:
        block[indices.size % BLOCK :] = 0
        add_outer(gram, block, 0, 1)
    add_ridge(gram, ridge, r)
    if not cholesky_solve(gram, right):
        return False
    out[:] = right[:r]
    return True


# n^2 * p / 2 + n^3 / 6 products: x = z + X^T y with z = pull / ridge and (X X^T + ridge) y = targets - X z.
@kernel
def solve_short_row(indices, targets, other, weight, other_weights, pull, ridge, scratch, out):
    """Solve the least squares of a row that has fewer ratings than columns; False if that overflows."""
    n, r = indices.size, other.shape[1]
    width, height = -(-n // LANES) * LANES, -(-r // BLOCK) * BLOCK
    gram = scratch[: width * width].reshape(width, width)
    columns = scratch[width * width : width * (width + height)].reshape(height, width)  # X^T
    right = scratch[width * (width + height) : width * (width + height + 1)]
    scratch[: width * (width + height + 1)] = 0
    for t in range(n):
        j = indices[t]
        size = weight * other_weights[j]
        for q in range(r):
            columns[q, t] = size * other[j, q]
    for q in range(0, height, BLOCK):
        add_outer(gram, columns[q : q + BLOCK], 0, 1)
    ridge = add_ridge(gram, ridge, n)
    right[:n] = targets
    for q in range(r):
        out[q] = pull[q] / ridge
        add_scaled(right, columns[q], -out[q])
    if not cholesky_solve(gram, right):
        return False
    for q in range(r):
        row = columns[q]
        for t in range(n):
            out[q] += row[t] * right[t]
    return True


# ratings * p * min(n, p) / 2 + rows * min(n, p)^3 / 6 products, with n ratings in a row
@kernel
def ridge_rows(indptr, indices, targets, other, weights, other_weights, pull, base, ridge, out, start, stop):
    """Set each row x to the minimum of ``sum (target - score)^2 + x^T base x + ridge * |x|^2 - 2 * <pull, x>``.

    An empty `base` is none. Returns the first row whose system is not positive definite (an overflow), or -1.
    """
    r = other.shape[1]
    p = -(-r // LANES) * LANES
    scratch = np.empty(p * (2 * p + BLOCK + 1), dtype=out.dtype)
    for row in range(start, stop):
        j, values = indices[indptr[row] : indptr[row + 1]], targets[indptr[row] : indptr[row + 1]]
        x, size, term = out[row], ridge[row], pull[row]
        if j.size < r and base.size == 0:
            solved = solve_short_row(j, values, other, weights[row], other_weights, term, size, scratch, x)
        else:
            solved = solve_long_row(j, values, other, weights[row], other_weights, term, base, size, scratch, x)
        if not solved:
            return row
    return -1


# ratings * r * (sweeps + 1) products; a row ends at a code that no single flip improves, or after `max_sweeps`.
@kernel
def flip_rows(indptr, indices, targets, other, weights, other_weights, pull, max_sweeps, signs, start, stop):
    """Improve each code b by flips of single bits of ``sum (target - score)^2 - 2 * <pull, b>`` (paper, section 3.4).

    ``signs`` and ``other`` are int8 of -1 and +1. Bit q wants the sign of ``sum_j w_j * e_j * d_jq + sum_j w_j^2 * b_q
    + pull_q``, where e is the residual with all bits as they are: the other bits' scores never have to be subtracted.
    """
    r = other.shape[1]
    longest = 0
    for row in range(start, stop):
        longest = max(longest, indptr[row + 1] - indptr[row])
    columns = np.empty((r, longest), dtype=np.int8)
    residual = np.empty(longest, dtype=targets.dtype)  # times the pair's weight
    square = np.empty(longest, dtype=targets.dtype)  # of the pair's weight
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
@kernel
def add_scores(indptr, indices, values, left, right, left_weights, right_weights, factor, start, stop):
    """Add to each rating's value its score in one component, times `factor`."""
    for row in range(start, stop):
        for entry in range(indptr[row], indptr[row + 1]):
            j = indices[entry]
            score = values.dtype.type(0)
            for q in range(left.shape[1]):
                score += left[row, q] * right[j, q]
            values[entry] += factor * left_weights[row] * right_weights[j] * score


# d^2 sums: the Gram matrix times the signs of each component, from which systems and gradients follow
@kernel
def times_signs(gram, signs, products):
    """Set row k of `products` (G, d) to ``gram @ b^k``, the signs of component k with zeros for the others."""
    d, r = gram.shape[0], gram.shape[0] // products.shape[0]
    products[:] = 0
    for q in range(d):
        sign, k = gram.dtype.type(signs[q]), q // r
        for t in range(d):
            products[k, t] += sign * gram[q, t]


# G^2 * r + G^3 / 6 products
@kernel
def solve_weights(linear, products, active, signs, weights, system, vectors):
    """Set the weights of active components to their least squares, and the others to 0; return the row's value.

    A negative weight becomes positive by turning the signs of its component. `system` is padded to whole panels, and
    `vectors` (2, ...) as well.
    """
    G, r = products.shape[0], products.shape[1] // products.shape[0]
    system[:] = 0
    vectors[:] = 0
    right = vectors[0]
    largest = 0.0
    for k in range(G):
        if active[k]:
            for q in range(k * r, (k + 1) * r):
                right[k] += signs[q] * linear[q]
            for other in range(k, G):  # the upper triangle, which is all that Cholesky reads
                if active[other]:
                    for q in range(other * r, (other + 1) * r):
                        system[k, other] += products[k, q] * signs[q]
            largest = max(largest, system[k, k])
    for k in range(right.size):
        system[k, k] += 1e-6 * largest + 1e-30 if k < G and active[k] else 1.0
    vectors[1] = right
    value = 0.0
    if not cholesky_solve(system, right):
        right[:] = 0
    for k in range(G):
        value -= vectors[1, k] * right[k]
        if right[k] < 0:
            right[k] = -right[k]
            for q in range(k * r, (k + 1) * r):
                signs[q] = -signs[q]
            scale_row(products[k], products.dtype.type(-1))
        weights[k] = right[k]
    return value


# d for each bit that flips, and 1 for each that does not: the gradient is kept up to date
@kernel
def flip_bits(linear, gram, products, active, signs, weights, gradient, max_sweeps):
    """Flip single bits as long as that lowers ``x^T gram x - 2 * <linear, x>``; return how many did.

    The bits of a component without weight turn to where a weight would help.
    """
    G, r = products.shape[0], products.shape[1] // products.shape[0]
    for t in range(gradient.size):
        gradient[t] = -linear[t]
    for k in range(G):
        add_scaled(gradient, products[k], weights[k])
    flips = 0
    for _ in range(max_sweeps):
        before = flips
        for k in range(G):
            if not active[k]:
                continue
            for q in range(k * r, (k + 1) * r):
                if signs[q] * gradient[q] > weights[k] * gram[q, q]:
                    change = gram.dtype.type(-2 * signs[q])
                    add_scaled(products[k], gram[q], change)
                    add_scaled(gradient, gram[q], change * weights[k])
                    signs[q] = -signs[q]
                    flips += 1
        if flips == before:
            break
    return flips


@kernel
def row_value(linear, products, signs, weights):
    """Return ``x^T gram x - 2 * <linear, x>`` of the row's x."""
    r = products.shape[1] // products.shape[0]
    value = 0.0
    for k in range(weights.size):
        for q in range(weights.size * r):
            value += weights[k] * products[k, q] * weights[q // r] * signs[q]
        for q in range(k * r, (k + 1) * r):
            value -= 2 * weights[k] * signs[q] * linear[q]
    return value


@kernel
def drop_component(products, signs, weights, active):
    """Make the active component of least energy, ``weight^2 * b^T gram b``, inactive."""
    r = products.shape[1] // products.shape[0]
    least, found = np.inf, -1
    for k in range(weights.size):
        if active[k]:
            energy = 0.0
            for q in range(k * r, (k + 1) * r):
                energy += products[k, q] * signs[q]
            energy *= weights[k] * weights[k]
            if found < 0 or energy < least:
                least, found = energy, k
    active[found] = False


# n * d^2 / 2 products for n pairs
@kernel
def add_pairs(indices, targets, size, other, block, linear, gram):
    """Add to `linear` and `gram` what ``size * sum (target - <other row, x>)^2`` adds to a row's value."""
    root = gram.dtype.type(np.sqrt(size))
    for t in range(indices.size):
        j, place = indices[t], t % BLOCK
        for q in range(gram.shape[0]):
            block[place, q] = root * other[j, q]
            linear[q] += root * targets[t] * block[place, q]
        if place == BLOCK - 1:
            add_outer(gram, block, 0, 1)
    if indices.size % BLOCK:
        block[indices.size % BLOCK :] = 0
        add_outer(gram, block, 0, 1)
    for first in range(0, gram.shape[0], LANES):  # in tiles: each line of a column is loaded once
        for tile in range(0, first + 1, LANES):
            for a in range(first, min(first + LANES, gram.shape[0])):
                for b in range(tile, min(tile + LANES, a)):
                    gram[a, b] = gram[b, a]


# d * p products for a row; BLAS would round a row differently in company
@kernel
def map_rows(x, matrix, out, start, stop):
    """Set each row of `out` (n, d) to ``x @ matrix`` of its row, a matrix of (p, d)."""
    for row in range(start, stop):
        target = out[row]
        target[:] = 0
        for q in range(matrix.shape[0]):
            add_scaled(target, matrix[q], x[row, q])


# d^2 + rounds * (d * flips + G^2 * r) products for a row, and d^2 / 2 for each pair of its own; no value rises.
@kernel
def code_rows(indptr, indices, targets, sizes, other, linear, gram, max_active, rounds, signs, weights, start, stop):
    """Improve the bits and weights of each row x, of which at most `max_active` weights may not be zero.

    The value of a row is ``x^T gram x - 2 * <linear, x> + size * sum (target - <other row, x>)^2``, the sum taken over
    pairs of its own, if it has any. Of too many components those of least energy go, one after the other.
    """
    n_components, d = weights.shape[1], gram.shape[0]
    own, term, gradient = np.empty_like(gram), np.empty_like(gram[0]), np.empty_like(gram[0])
    block, products = np.empty((BLOCK, d), dtype=gram.dtype), np.empty((n_components, d), dtype=gram.dtype)
    padded = -(-n_components // BLOCK) * BLOCK
    system, vectors = np.empty((padded, padded)), np.empty((2, padded))
    active = np.empty(n_components, dtype=np.bool_)
    for row in range(start, stop):
        b, w = signs[row], weights[row]
        first, last = indptr[row], indptr[row + 1]
        matrix = gram
        term[:] = linear[row]
        if last > first:
            own[:] = gram
            add_pairs(indices[first:last], targets[first:last], sizes[row], other, block, term, own)
            matrix = own
        times_signs(matrix, b, products)
        old_signs, old_weights, old = b.copy(), w.copy(), row_value(term, products, b, w)
        active[:] = True
        value, left = old, n_components
        for turn in range(rounds):
            flips = flip_bits(term, matrix, products, active, b, w, gradient, rounds)
            value = solve_weights(term, products, active, b, w, system, vectors)
            if turn and not flips:
                break
        while left > max_active:
            drop_component(products, b, w, active)
            left -= 1
            solve_weights(term, products, active, b, w, system, vectors)
            flip_bits(term, matrix, products, active, b, w, gradient, rounds)
            value = solve_weights(term, products, active, b, w, system, vectors)
        if not value <= old:
            b[:] = old_signs
            w[:] = old_weights
