"""Row updates of learned codes: the steps of `code_rows` for one row of a tile, and the weights of a whole tile.

With the other side fixed, the value of a row x, the expanded vector of its code, is ``x^T gram x - 2 * <linear, x>``. A
row's `products` (G, d) are `gram` times the signs of each component; they are kept up to date, and so is the
least-squares system of its weights.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index.kernels.decorators import ZERO, training_kernel
from cccf_index.kernels.linear_algebra import add_scaled, copy_row, fill_row, multiply_rows, multiply_tile, scale_row
from cccf_index.kernels.memory import address_of, lowest_bit, read, view_row, write
from cccf_index.kernels.row_vectors import (
    LANES,
    TILE,
    add_chosen,
    add_to_both,
    find_above,
    multiply_one,
    solve_tile,
)

ALL_LANES = np.uint64(2**LANES - 1)
LEAST_RIDGE = 1e-30
MOST_KEPT = 2**20  # bytes of scratch that a thread keeps
_kept = threading.local()


class Scratch(NamedTuple):
    """Room for a tile of rows; `code_rows` says what stands where."""

    room: NDArray[np.float32]  # (TILE * (G + 3) + 3, padded d)
    sizes: NDArray[np.float32]  # (TILE, G): the weights
    systems: NDArray[np.float64]  # (2 * G * (G + 2) + 6, TILE)
    active: NDArray[np.bool_]  # (TILE, G + 1): active components; the last column tells rows that are not finished
    marks: NDArray[np.float32]  # (TILE * most pairs of a row + 1, padded G + 1)
    errors: NDArray[np.float32]  # (2, most pairs of a row)


def make_scratch(d: int, n_components: int, most_pairs: int) -> Scratch:
    """Return the room that the kernels need, which do not allocate."""
    G, width = n_components, -(-d // LANES) * LANES
    return Scratch(
        np.zeros((TILE * (G + 3) + 3, width), np.float32),
        np.empty((TILE, G), np.float32),
        np.empty((2 * G * (G + 2) + 6, TILE)),
        np.empty((TILE, G + 1), np.bool_),
        np.zeros((TILE * most_pairs + 1, -(-(G + 1) // LANES) * LANES), np.float32),
        np.empty((2, most_pairs), np.float32),
    )


def borrow_scratch(d: int, n_components: int, most_pairs: int) -> Scratch:
    """Return the room of this thread, which is kept for the next call unless it is large."""
    key = (d, n_components, most_pairs)
    if getattr(_kept, "key", None) == key:
        return _kept.scratch
    scratch = make_scratch(*key)
    if scratch.room.nbytes + scratch.systems.nbytes + scratch.marks.nbytes <= MOST_KEPT:
        _kept.key, _kept.scratch = key, scratch
    return scratch


# Lines of `room` after the products, TILE * G of them: signs, linear terms and diagonals of each row, then one line
# each of the row that is being flipped: its gradient, the limits above which bits flip, the gradient with extra pairs.
@training_kernel
def find_lines(t, n_components):
    """Return the lines of row t in `room`: products, signs, linear term, diagonal; then gradient, limits, slope."""
    first = TILE * n_components
    last = first + 3 * TILE
    return t * n_components, first + t, first + TILE + t, first + 2 * TILE + t, last, last + 1, last + 2


# Lines of `systems`: those of all rows, a copy that is being solved, G pivots, G solutions, and single numbers
@training_kernel
def find_numbers(n_components):
    """Return the lines of `systems` with a number for each row: value, old value, energy, ridge, least pivot, pairs."""
    first = 2 * n_components * (n_components + 2)
    return first, first + 1, first + 2, first + 3, first + 4, first + 5


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


# G^2 * r / 2 products
@training_kernel
def fill_system(t, room, systems, n_components, r):
    """Fill the system of row t: the upper triangle, and the right side as the last column."""
    products, signs, term = find_lines(t, n_components)[:3]
    b, terms = address_of(room[signs]), address_of(room[term])
    for k in range(n_components):
        own, line = address_of(room[products + k]), k * (n_components + 1)
        for other in range(k, n_components):
            systems[line + other, t] = multiply_parts(own, b, other, r)
        systems[line + n_components, t] = multiply_parts(terms, b, k, r)


@training_kernel
def multiply_parts(x, y, k, r):
    """Return the inner product of component k, r values, of two rows at addresses."""
    return multiply_rows(view_row(x, k, r, np.float32), view_row(y, k, r, np.float32))


# `marks` has a line for each pair of each row: the inner products of its other side with the signs of each component,
# and its target; in the last line of all are sums of such lines. `errors` has, for the row that is being flipped, the
# weighted errors of its pairs, and one column of their other sides.
@training_kernel
def sum_marks(t, n, marks, errors):
    """Set the last line of `marks` to ``sum_j column[j] * mark[j]``, over the n pairs of row t."""
    first, totals, width = marks[t * errors.shape[1]], marks[marks.shape[0] - 1], marks.shape[1]
    multiply_one(address_of(errors[1]), ZERO, address_of(first), width, n, address_of(totals), ZERO, width)


# (2 + G) * d products for each pair
@training_kernel
def add_pairs(t, places, targets, size, other, room, systems, marks, errors, n_components, r):
    """Add to the system and the diagonal of row t what ``size * sum (target - <other row, x>)^2`` adds to its value."""
    signs, _, diagonal = find_lines(t, n_components)[1:4]
    first, n, columns = t * errors.shape[1], places.size, n_components + 1
    for j in range(n):
        y = other[places[j]]
        add_squares(room[diagonal], y, size)
        for k in range(n_components):
            marks[first + j, k] = multiply_parts(address_of(y), address_of(room[signs]), k, r)
        marks[first + j, n_components] = targets[j]
    for k in range(n_components):
        for j in range(n):
            errors[1, j] = marks[first + j, k]
        sum_marks(t, n, marks, errors)
        totals = marks[marks.shape[0] - 1]
        for j in range(k, columns):
            systems[k * columns + j, t] += size * totals[j]


@training_kernel
def add_squares(x, y, size):
    """Add ``size * y^2`` to `x`."""
    for q in range(x.size):
        x[q] += size * y[q] * y[q]


@training_kernel
def add_to_system(systems, t, columns, j, k, value):
    """Add to element (j, k) of the system of row t, and to (k, j): only the upper triangle is kept."""
    place = (min(j, k) * columns + max(j, k)) * TILE + t
    value = np.float64(value) * (2 if j == k else 1)
    write(address_of(systems), place, read(address_of(systems), place, np.float64) + value)


# G + 2 * d products, and G + 2 for each pair of the row
@training_kernel
def flip_bit(t, q, places, size, gram, other, room, sizes, systems, marks, errors):
    """Flip bit q of row t; update its products, gradient and system, and the errors of its pairs."""
    G, width = sizes.shape[1], gram.shape[1]
    k, n = q // (gram.shape[0] // G), places.size
    products, signs, term, diagonal, gradient = find_lines(t, G)[:5]
    change = np.float32(-2) * room[signs, q]
    own = address_of(room[products])
    totals = marks[marks.shape[0] - 1]
    if n:
        for j in range(n):
            errors[1, j] = other[places[j], q]
        sum_marks(t, n, marks, errors)
    else:
        fill_row(totals, np.float32(0))
    for j in range(G):
        add_to_system(systems, t, G + 1, j, k, change * (read(own, j * width + q, np.float32) + size * totals[j]))
    add_to_system(systems, t, G + 1, k, G, change * (room[term, q] + size * totals[G]))
    systems[k * (G + 1) + k, t] += 4 * room[diagonal, q]
    column, wrong, first = address_of(errors[1]), address_of(errors), t * errors.shape[1]
    for j in range(n):
        value = change * read(column, j, np.float32)
        place = (first + j) * marks.shape[1] + k
        write(address_of(marks), place, read(address_of(marks), place, np.float32) + value)
        write(wrong, j, read(wrong, j, np.float32) + size * sizes[t, k] * value)
    line, change_of_slope = address_of(gram) + 4 * q * width, change * sizes[t, k]
    add_to_both(line, address_of(room[products + k]), change, address_of(room[gradient]), change_of_slope, width)
    room[signs, q] = -room[signs, q]


@training_kernel
def start_flips(t, n, size, room, sizes, active, marks, errors, r):
    """Set the gradient of row t without its n pairs, the errors of these, and the limits of its bits."""
    G, width = sizes.shape[1], room.shape[1]
    products, _, term, diagonal, gradient, limits, _ = find_lines(t, G)
    slope = address_of(room[gradient])
    multiply_one(address_of(sizes[t]), ZERO, address_of(room[products]), width, G, slope, ZERO, width)
    add_scaled(room[gradient], room[term], np.float32(-1))
    for j in range(n):
        mark = marks[t * errors.shape[1] + j]
        errors[0, j] = size * (multiply_parts(address_of(mark), address_of(sizes[t]), ZERO, G) - mark[G])
    for k in range(G):
        own = view_row(address_of(room[limits]), k, r, np.float32)
        if active[t, k]:
            copy_row(own, view_row(address_of(room[diagonal]), k, r, np.float32))
            scale_row(own, sizes[t, k])
        else:
            fill_row(own, np.float32(np.inf))


@training_kernel
def find_bits(t, first, places, other, room, errors, n_components):
    """Return as bits which of LANES signs of row t from `first` on should flip."""
    _, signs, _, _, gradient, limits, slope = find_lines(t, n_components)
    found = address_of(room[gradient])
    if places.size:
        sizes, matrix = address_of(errors), address_of(other) + 4 * first
        base, found = found + 4 * first, address_of(room[slope])
        add_chosen(found + 4 * first, base, sizes, address_of(places), places.size, matrix, other.shape[1])
    return find_above(address_of(room[signs]), found, address_of(room[limits]), first)


# (2 + pairs / LANES) * d for each bit that flips, and pairs + 1 / LANES for each that is looked at
@training_kernel
def flip_bits(t, places, size, max_sweeps, gram, other, room, sizes, systems, active, marks, errors):
    """Flip single bits of row t as long as that lowers its value; return how many did.

    The bits of a component without weight turn to where a weight would help.
    """
    G = sizes.shape[1]
    start_flips(t, places.size, size, room, sizes, active, marks, errors, gram.shape[0] // G)
    flips = 0
    for _ in range(max_sweeps):
        before = flips
        for first in range(0, room.shape[1], LANES):
            bits = find_bits(t, first, places, other, room, errors, G)
            while bits:
                place = lowest_bit(bits)
                q = first + np.int64(place)
                flip_bit(t, q, places, size, gram, other, room, sizes, systems, marks, errors)
                flips += 1
                bits = find_bits(t, first, places, other, room, errors, G) & (ALL_LANES << (place + np.uint64(1)))
        if flips == before:
            break
    return flips


# G^3 / 6 vector operations for a tile, twice where components of a row depend on each other
@training_kernel
def solve_weights(r, room, sizes, systems, active, marks, most):
    """Set the weights of unfinished rows to their least squares, those of inactive components to 0; and the values.

    A negative weight becomes positive by turning the signs of its component. A system that is singular up to rounding
    is solved with a ridge of that size, or weights would grow without bound. Rounding is relative to the energy that a
    component may well have: signs that are at right angles to all of the other side have none.
    """
    G = sizes.shape[1]
    n = G * (G + 1)
    pivots, found = 2 * n, 2 * n + G
    values, _, energies, ridges, least, _ = find_numbers(G)
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
            systems[values, t] = set_weights(t, found, r, room, sizes, systems, marks, most)


@training_kernel
def set_weights(t, found, r, room, sizes, systems, marks, most):
    """Set the weights of row t to those from line `found` on, turning signs of negative ones; return its value."""
    G = sizes.shape[1]
    products, signs = find_lines(t, G)[:2]
    counts = find_numbers(G)[5]
    value = 0.0
    for k in range(G):
        weight = systems[found + k, t]
        value -= systems[k * (G + 1) + G, t] * weight
        sizes[t, k] = abs(weight)
    for k in range(G):
        if systems[found + k, t] < 0:
            for q in range(k * r, (k + 1) * r):
                room[signs, q] = -room[signs, q]
            scale_row(room[products + k], np.float32(-1))
            for j in range(t * most, t * most + int(systems[counts, t])):
                marks[j, k] = -marks[j, k]
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
def drop_component(t, room, sizes, systems, active, marks, most):
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
    fill_row(room[find_lines(t, G)[0] + found], np.float32(0))
    for j in range(t * most, t * most + int(systems[find_numbers(G)[5], t])):
        marks[j, found] = 0
    for j in range(G + 1):
        systems[j * (G + 1) + found if j < found else found * (G + 1) + j, t] = 0
    systems[found * (G + 1) + found, t] = 1
