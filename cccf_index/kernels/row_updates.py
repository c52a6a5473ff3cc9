"""Row updates of learned codes: the steps of `code_rows` for one row of a tile, and the weights of a whole tile.

With the other side fixed, the value of a row x, the expanded vector of its code, is ``x^T gram x - 2 * <linear, x>``. A
row's `products` (G, d) are `gram` times the signs of each component; they are kept up to date, and so is the
least-squares system of its weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index.kernels.decorators import ZERO, training_kernel
from cccf_index.kernels.linear_algebra import add_scaled, copy_row
from cccf_index.kernels.memory import address_of, lowest_bit
from cccf_index.kernels.row_vectors import (
    LANES,
    TILE,
    add_chosen,
    add_to_both,
    find_above,
    multiply_four,
    multiply_one,
    solve_tile,
)

ALL_LANES = np.uint64(2**LANES - 1)
LEAST_RIDGE = 1e-30


class Scratch(NamedTuple):
    """Room for a tile of rows; `code_rows` says what stands where."""

    room: NDArray[np.float32]  # (TILE * (G + 3) + 3, padded d)
    sizes: NDArray[np.float32]  # (TILE, G): the weights
    systems: NDArray[np.float64]  # (2 * G * (G + 2) + 5, TILE)
    active: NDArray[np.bool_]  # (TILE, G + 1): active components; the last column tells rows that are not finished
    shares: NDArray[np.float32]  # (most pairs of a row,)


def make_scratch(d: int, n_components: int, most_pairs: int) -> Scratch:
    """Return the room that the kernels need, which do not allocate."""
    G, width = n_components, -(-d // LANES) * LANES
    return Scratch(
        np.zeros((TILE * (G + 3) + 3, width), np.float32),
        np.empty((TILE, G), np.float32),
        np.empty((2 * G * (G + 2) + 5, TILE)),
        np.empty((TILE, G + 1), np.bool_),
        np.empty(most_pairs, np.float32),
    )


# Lines of `room` after the products, TILE * G of them: signs, linear terms and diagonals of each row, then one line
# each of the row that is being flipped: its gradient, the limits above which bits flip, and a line of its own matrix.
@training_kernel
def find_lines(t, n_components):
    """Return the lines of row t in `room`: products, signs, linear term, diagonal; then gradient, limits, line."""
    first = TILE * n_components
    last = first + 3 * TILE
    return t * n_components, first + t, first + TILE + t, first + 2 * TILE + t, last, last + 1, last + 2


# Lines of `systems`: those of all rows, a copy that is being solved, G pivots, G solutions, and single numbers
@training_kernel
def find_numbers(n_components):
    """Return the lines of `systems` with a number for each row: value, old value, energy, ridge, least pivot."""
    first = 2 * n_components * (n_components + 2)
    return first, first + 1, first + 2, first + 3, first + 4


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


# d^2 products for a row: the Gram matrix times the signs of each component
@training_kernel
def multiply_signs(gram, room, n_components, r, n_rows):
    """Set the products of each row, for all columns, from its signs."""
    width = gram.shape[1]
    signs, out = address_of(room[find_lines(ZERO, n_components)[1]]), address_of(room)
    for k in range(n_components):
        begin = 4 * k * r
        matrix = address_of(gram) + begin * width
        multiply_tile(signs + begin, width, matrix, width, r, out + 4 * k * width, n_components * width, width, n_rows)


# (G + 2) * d products for each pair
@training_kernel
def add_pairs(t, places, targets, size, other, room, shares, n_components, r):
    """Add to the terms of row t what ``size * sum (target - <other row, x>)^2`` adds to its value."""
    width = other.shape[1]
    products, signs, term, diagonal = find_lines(t, n_components)[:4]
    for j in range(places.size):
        shares[j] = size * targets[j]
        y, squares = other[places[j]], room[diagonal]
        for q in range(width):
            squares[q] += size * y[q] * y[q]
    rows = address_of(shares), address_of(places), places.size, address_of(other), width, width
    add_chosen(address_of(room[term]), *rows)
    for k in range(n_components):
        for j in range(places.size):
            y, total = other[places[j]], np.float32(0)
            for q in range(k * r, (k + 1) * r):
                total += y[q] * room[signs, q]
            shares[j] = size * total
        add_chosen(address_of(room[products + k]), *rows)


# G^2 * r / 2 products
@training_kernel
def fill_system(t, room, systems, n_components, r):
    """Fill the system of row t: the upper triangle, and the right side as the last column."""
    products, signs, term = find_lines(t, n_components)[:3]
    b = room[signs]
    for k in range(n_components):
        for other in range(k, n_components):
            line, total = room[products + k], np.float32(0)
            for q in range(other * r, (other + 1) * r):
                total += line[q] * b[q]
            systems[k * (n_components + 1) + other, t] = total
        line, total = room[term], np.float32(0)
        for q in range(k * r, (k + 1) * r):
            total += line[q] * b[q]
        systems[k * (n_components + 1) + n_components, t] = total


# G + 2 * d products, and d for each pair of the row
@training_kernel
def flip_bit(t, q, places, size, gram, other, room, sizes, systems, shares):
    """Flip bit q of row t; update its products, gradient and system."""
    n_components, width = sizes.shape[1], gram.shape[1]
    r = gram.shape[0] // n_components
    k = q // r
    products, signs, term, diagonal, gradient, _, own = find_lines(t, n_components)
    change = np.float32(-2) * room[signs, q]
    columns = n_components + 1
    for j in range(n_components):
        line = j * columns + k if j < k else k * columns + j
        systems[line, t] += change * room[products + j, q] * (2 if j == k else 1)
    systems[k * columns + k, t] += 4 * room[diagonal, q]
    systems[k * columns + n_components, t] += change * room[term, q]
    line = address_of(gram) + 4 * q * width
    if places.size:
        for j in range(places.size):
            shares[j] = size * other[places[j], q]
        copy_row(room[own], gram[q])
        line = address_of(room[own])
        add_chosen(line, address_of(shares), address_of(places), places.size, address_of(other), width, width)
    both = address_of(room[products + k]), change, address_of(room[gradient]), change * sizes[t, k]
    add_to_both(line, *both, width)
    room[signs, q] = -room[signs, q]


# d for each bit that flips, and 1 / LANES for each that does not: the gradient is kept up to date
@training_kernel
def flip_bits(t, places, size, max_sweeps, gram, other, room, sizes, systems, active, shares):
    """Flip single bits of row t as long as that lowers its value; return how many did.

    The bits of a component without weight turn to where a weight would help.
    """
    n_components, width = sizes.shape[1], gram.shape[1]
    r = gram.shape[0] // n_components
    products, signs, term, diagonal, gradient, limits, _ = find_lines(t, n_components)
    slope = address_of(room[gradient])
    multiply_one(address_of(sizes[t]), ZERO, address_of(room[products]), width, n_components, slope, ZERO, width)
    add_scaled(room[gradient], room[term], np.float32(-1))
    for k in range(n_components):
        for q in range(k * r, (k + 1) * r):
            room[limits, q] = sizes[t, k] * room[diagonal, q] if active[t, k] else np.float32(np.inf)
    look = address_of(room[signs]), slope, address_of(room[limits])
    flips = 0
    for _ in range(max_sweeps):
        before = flips
        for first in range(0, width, LANES):
            bits = find_above(*look, first)
            while bits:
                place = lowest_bit(bits)
                flip_bit(t, first + np.int64(place), places, size, gram, other, room, sizes, systems, shares)
                flips += 1
                bits = find_above(*look, first) & (ALL_LANES << (place + np.uint64(1)))
        if flips == before:
            break
    return flips


# G^3 / 6 vector operations for a tile, twice where components of a row depend on each other
@training_kernel
def solve_weights(r, room, sizes, systems, active):
    """Set the weights of unfinished rows to their least squares, those of inactive components to 0; and the values.

    A negative weight becomes positive by turning the signs of its component. A system that is singular up to rounding
    is solved with a ridge of that size, or weights would grow without bound. Rounding is relative to the energy that a
    component may well have: signs that are at right angles to all of the other side have none.
    """
    G = sizes.shape[1]
    n = G * (G + 1)
    pivots, found = 2 * n, 2 * n + G
    values, _, energies, ridges, least = find_numbers(G)
    for t in range(TILE):
        largest = 0.0
        for k in range(G):
            if active[t, k]:
                largest = max(largest, systems[k * (G + 1) + k, t])
        systems[ridges, t] = 1e-6 * largest + LEAST_RIDGE
        systems[least, t] = G * r * np.finfo(np.float32).eps * max(largest, systems[energies, t])
    for attempt in range(2):
        for line in range(n):
            copy_row(systems[n + line], systems[line])
        for k in range(G):
            add_scaled(systems[n + k * (G + 1) + k], systems[ridges], 1.0)
        solve_tile(address_of(systems[n]), G, address_of(systems[pivots]), address_of(systems[found]))
        is_singular = False
        for t in range(TILE):
            if not active[t, G]:
                continue
            smallest = np.inf
            for k in range(G):
                if active[t, k] and not systems[pivots + k, t] >= smallest:
                    smallest = systems[pivots + k, t]
            if attempt == 0 and not smallest >= systems[least, t]:
                systems[ridges, t] = systems[least, t] + LEAST_RIDGE
                is_singular = True
            elif not smallest > 0:
                for k in range(G):
                    systems[found + k, t] = 0
        if not is_singular:
            break
    for t in range(TILE):
        if active[t, G]:
            systems[values, t] = set_weights(t, found, r, room, sizes, systems)


@training_kernel
def set_weights(t, found, r, room, sizes, systems):
    """Set the weights of row t to those from line `found` on, turning signs of negative ones; return its value."""
    G = sizes.shape[1]
    products, signs = find_lines(t, G)[:2]
    value = 0.0
    for k in range(G):
        weight = systems[found + k, t]
        value -= systems[k * (G + 1) + G, t] * weight
        sizes[t, k] = abs(weight)
    for k in range(G):
        if systems[found + k, t] < 0:
            for q in range(k * r, (k + 1) * r):
                room[signs, q] = -room[signs, q]
            for q in range(room.shape[1]):
                room[products + k, q] = -room[products + k, q]
            for j in range(G + 1):
                if j != k:
                    line = j * (G + 1) + k if j < k else k * (G + 1) + j
                    systems[line, t] = -systems[line, t]
    return value


@training_kernel
def evaluate_row(t, sizes, systems):
    """Return the value of row t by its system: ``w^T S w - 2 * <right, w>``."""
    G = sizes.shape[1]
    value = 0.0
    for k in range(G):
        total = systems[k * (G + 1) + k, t] * sizes[t, k] - 2 * systems[k * (G + 1) + G, t]
        for other in range(k + 1, G):
            total += 2 * systems[k * (G + 1) + other, t] * sizes[t, other]
        value += sizes[t, k] * total
    return value


@training_kernel
def drop_component(t, room, sizes, systems, active):
    """Make the active component of row t with the least energy, ``weight^2 * b^T gram b``, inactive.

    Its products become zero, and with them all that they add to gradients and systems.
    """
    G = sizes.shape[1]
    least, found = np.inf, -1
    for k in range(G):
        if active[t, k]:
            energy = systems[k * (G + 1) + k, t] * sizes[t, k] * sizes[t, k]
            if found < 0 or energy < least:
                least, found = energy, k
    active[t, found] = False
    for q in range(room.shape[1]):
        room[find_lines(t, G)[0] + found, q] = 0
    for j in range(G + 1):
        systems[j * (G + 1) + found if j < found else found * (G + 1) + j, t] = 0
    systems[found * (G + 1) + found, t] = 1
