"""Row updates of learned codes: bits by single flips and weights by least squares, at most so many components a row.

With the other side fixed, the value of a row x, the expanded vector of its code, is ``x^T gram x - 2 * <linear, x>``. A
row's `products` (G, d) are `gram` times the signs of each component; they are kept up to date.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index.kernels.decorators import training_entry, training_kernel
from cccf_index.kernels.linear_algebra import (
    PANEL,
    WIDTH,
    add_row,
    add_scaled,
    cholesky_solve,
    copy_row,
    flush_panel,
    scale_row,
)


# d^2 sums: the Gram matrix times the signs of each component, from which systems and gradients follow
@training_kernel
def multiply_signs(gram, signs, products):
    """Set row k of `products` (G, d) to ``gram @ b^k``, the signs of component k with zeros for the others."""
    d, r = gram.shape[0], gram.shape[0] // products.shape[0]
    products[:] = 0
    for q in range(d):
        sign, k = gram.dtype.type(signs[q]), q // r
        for t in range(d):
            products[k, t] += sign * gram[q, t]


# G^2 * r products; the upper triangle, which is all that Cholesky reads.
@training_kernel
def fill_system(linear, products, active, signs, system, right):
    """Fill the least-squares system of the active components' weights; return its largest diagonal element.

    `system` (padded G, padded G) and `right` (padded G,) are padded to whole panels.
    """
    G, r = products.shape[0], products.shape[1] // products.shape[0]
    system[:] = 0
    right[:] = 0
    largest = 0.0
    for k in range(G):
        if active[k]:
            for q in range(k * r, (k + 1) * r):
                right[k] += signs[q] * linear[q]
            for other in range(k, G):
                if active[other]:
                    for q in range(other * r, (other + 1) * r):
                        system[k, other] += products[k, q] * signs[q]
            largest = max(largest, system[k, k])
    return largest


# G^3 / 6 products; the system becomes its Cholesky factor.
@training_kernel
def solve_system(system, right, active, ridge, least):
    """Solve for the weights, in place of `right`; False if a pivot is below `least`, or not positive."""
    for k in range(right.size):
        system[k, k] += ridge if k < active.size and active[k] else 1.0
    if not cholesky_solve(system, right):
        return False
    smallest = np.inf
    for k in range(active.size):
        if active[k]:
            smallest = min(smallest, system[k, k] * system[k, k])
    return smallest >= least


# G^2 * r + G^3 / 6 products, twice where components depend on each other.
@training_kernel
def solve_weights(linear, products, active, signs, weights, energy, system, vectors):
    """Set the weights of active components to their least squares, and the others to 0; return the row's value.

    A negative weight becomes positive by turning the signs of its component. A system that is singular up to rounding
    is solved with a ridge of that size, or weights would grow without bound. Rounding is relative to `energy`, what a
    component may well have: signs that are at right angles to all of the other side have none. `vectors` is
    (2, padded G).
    """
    G, r = products.shape[0], products.shape[1] // products.shape[0]
    right = vectors[0]
    largest = fill_system(linear, products, active, signs, system, right)
    noise = products.shape[1] * np.finfo(products.dtype).eps * max(largest, energy)
    copy_row(vectors[1], right)
    if not solve_system(system, right, active, 1e-6 * largest + 1e-30, noise):
        fill_system(linear, products, active, signs, system, right)
        if not solve_system(system, right, active, noise + 1e-30, 0.0):
            right[:] = 0
    value = 0.0
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
@training_kernel
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


@training_kernel
def evaluate_row(linear, products, signs, weights):
    """Return ``x^T gram x - 2 * <linear, x>`` of the row's x."""
    r = products.shape[1] // products.shape[0]
    value = 0.0
    for k in range(weights.size):
        for q in range(weights.size * r):
            value += weights[k] * products[k, q] * weights[q // r] * signs[q]
        for q in range(k * r, (k + 1) * r):
            value -= 2 * weights[k] * signs[q] * linear[q]
    return value


@training_kernel
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
@training_kernel
def add_pairs(indices, targets, size, other, panel, linear, gram):
    """Add to `linear` and `gram` what ``size * sum (target - <other row, x>)^2`` adds to a row's value."""
    root = gram.dtype.type(np.sqrt(size))
    for t in range(indices.size):
        add_row(gram, linear, panel, t, other, indices[t], root, root, targets[t])
    flush_panel(gram, panel, indices.size)
    for first in range(0, gram.shape[0], WIDTH):  # in tiles: each line of a column is loaded once
        for tile in range(0, first + 1, WIDTH):
            for a in range(first, min(first + WIDTH, gram.shape[0])):
                for b in range(tile, min(tile + WIDTH, a)):
                    gram[a, b] = gram[b, a]


# d * p products for a row; BLAS would round a row differently depending on the batch
@training_entry
def map_rows(x, matrix, out, start, stop):
    """Set each row of `out` (n, d) to ``x @ matrix`` of its row, a matrix of (p, d)."""
    for row in range(start, stop):
        target = out[row]
        target[:] = 0
        for q in range(matrix.shape[0]):
            add_scaled(target, matrix[q], x[row, q])


class Scratch(NamedTuple):
    """Room for one row at a time."""

    room: NDArray[np.float32]  # (d + G + PANEL + 2, d): see `code_rows`
    systems: NDArray[np.float64]  # (padded G + 2, padded G): a least-squares system and two vectors
    active: NDArray[np.bool_]  # (G,)
    old_signs: NDArray[np.int8]  # (d,)
    old_weights: NDArray[np.float32]  # (G,)


def make_scratch(d: int, n_components: int) -> Scratch:
    """Return the room that `code_rows` needs; kernels do not allocate."""
    padded = -(-n_components // PANEL) * PANEL
    return Scratch(
        np.empty((d + n_components + PANEL + 2, d), np.float32),
        np.empty((padded + 2, padded)),
        np.empty(n_components, np.bool_),
        np.empty(d, np.int8),
        np.empty(n_components, np.float32),
    )


# d^2 + rounds * (d * flips + G^2 * r) products for a row, and d^2 / 2 for each pair of its own; no value rises.
@training_entry
def code_rows(
    indptr, indices, targets, sizes, other, linear, gram, max_active, rounds, signs, weights,
    room, systems, active, old_signs, old_weights, start, stop,
):  # fmt: skip
    """Improve the bits and weights of the rows `start` to `stop`, each with at most `max_active` weights above zero.

    The value of a row is ``x^T gram x - 2 * <linear, x> + size * sum (target - <other row, x>)^2``, the sum taken over
    extra pairs of its own, if it has any. While a row has too many components, the one of least energy is dropped.

    indptr: int64 (n + 1,), indices: int32 and targets: float32 (pairs,), the extra pairs by row; sizes: float32 (n,);
    other: float32 (m, d); linear: float32 (n, d); gram: float32 (d, d); rounds: of bits and weights. Changed in place
    are signs: int8 (n, d), and weights: float32 (n, G). Then follows a `Scratch`.
    """
    n_components, d = weights.shape[1], gram.shape[0]
    own, products, panel = room[:d], room[d : d + n_components], room[d + n_components : d + n_components + PANEL]
    term, gradient = room[d + n_components + PANEL], room[d + n_components + PANEL + 1]
    padded = systems.shape[1]
    system, vectors = systems[:padded], systems[padded:]
    for row in range(start, stop):
        b, w = signs[row], weights[row]
        first, last = indptr[row], indptr[row + 1]
        matrix = gram
        copy_row(term, linear[row])
        if last > first:
            for q in range(d):
                copy_row(own[q], gram[q])
            add_pairs(indices[first:last], targets[first:last], sizes[row], other, panel, term, own)
            matrix = own
        energy = 0.0
        for q in range(d):
            energy = max(energy, matrix[q, q] * (d // n_components))
        multiply_signs(matrix, b, products)
        old = evaluate_row(term, products, b, w)
        copy_row(old_signs, b)
        copy_row(old_weights, w)
        active[:] = True
        value, left = old, n_components
        for turn in range(rounds):
            flips = flip_bits(term, matrix, products, active, b, w, gradient, rounds)
            value = solve_weights(term, products, active, b, w, energy, system, vectors)
            if turn and not flips:
                break
        while left > max_active:
            drop_component(products, b, w, active)
            left -= 1
            solve_weights(term, products, active, b, w, energy, system, vectors)
            flip_bits(term, matrix, products, active, b, w, gradient, rounds)
            value = solve_weights(term, products, active, b, w, energy, system, vectors)
        if not value <= old:
            copy_row(b, old_signs)
            copy_row(w, old_weights)
