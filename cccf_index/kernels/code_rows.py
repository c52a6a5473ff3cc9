"""Learned codes of rows: bits by single flips and weights by least squares, at most so many components a row.

Rows are updated in tiles of TILE: each flips its own bits, and the small systems of all are solved side by side. No row
touches another, so results do not depend on which rows share a tile.
"""

import numpy as np

from cccf_index.kernels.decorators import ZERO, training_entry, training_kernel
from cccf_index.kernels.linear_algebra import copy_row, map_row, multiply_rows, multiply_tile
from cccf_index.kernels.memory import address_of, view_row
from cccf_index.kernels.row_updates import (
    add_pairs,
    drop_component,
    evaluate_row,
    fill_system,
    find_lines,
    find_numbers,
    flip_bits,
    multiply_signs,
    solve_weights,
)
from cccf_index.kernels.row_vectors import TILE


# d^2 + rounds * (d * flips + G^2) products for a row, and (sweeps + 2) * d for each pair of its own; no value rises.
@training_kernel
def code_tile(row, n_rows, pairs, gram, max_active, rounds, scratch):
    """Improve the rows of a tile, whose signs, linear terms and weights are set; active[:, G] tells which improved.

    The value of a row is ``x^T gram x - 2 * <linear, x> + size * sum (target - <other row, x>)^2``, the sum taken over
    extra pairs of its own, if it has any. While a row has too many components, the one of least energy is dropped.
    """
    room, sizes, systems, active, marks, errors = scratch
    other, most = pairs[-1], errors.shape[1]
    G = sizes.shape[1]
    r = gram.shape[0] // G
    values, olds = find_numbers(G)[:2]
    multiply_signs(gram, room, G, r, n_rows)
    for t in range(TILE):
        for k in range(G + 1):
            active[t, k] = t < n_rows
        if t < n_rows:
            fill_terms(t, *find_pairs(row + t, pairs), gram, other, scratch)
            systems[olds, t] = evaluate_row(t, sizes, systems)
            systems[values, t] = systems[olds, t]
        else:
            for line in range(systems.shape[0]):
                systems[line, t] = 0
    step = 0  # first `rounds` of bits and weights; then a component is dropped, and bits and weights follow, in turn
    while step < rounds + 2 * (G - max_active):
        is_drop = step >= rounds and (step - rounds) % 2 == 0
        are_done = True
        for t in range(n_rows):
            if is_drop:
                active[t, G] = True
                drop_component(t, room, sizes, systems, active, marks, most)
            elif active[t, G]:
                places, _, size = find_pairs(row + t, pairs)
                flips = flip_bits(t, places, size, rounds, gram, other, *scratch)
                active[t, G] = step == 0 or step >= rounds or flips > 0
            are_done &= not active[t, G]
        if are_done:
            step = rounds
        else:
            solve_weights(r, room, sizes, systems, active, marks, most)
            step += 1
    for t in range(n_rows):
        active[t, G] = systems[values, t] <= systems[olds, t]


@training_kernel
def find_pairs(row, pairs):
    """Return the extra pairs of a row: places, targets, and how much they count."""
    starts, stops, places, targets, sizes, _ = pairs
    if starts.size == 0:
        return places[:0], targets[:0], np.float32(0)
    return places[starts[row] : stops[row]], targets[starts[row] : stops[row]], sizes[row]


@training_kernel
def fill_terms(t, places, targets, size, gram, other, scratch):
    """Fill the diagonal, the energy and the system of row t, with its extra pairs."""
    room, sizes, systems, _, marks, errors = scratch
    G = sizes.shape[1]
    r = gram.shape[0] // G
    diagonal = room[find_lines(t, G)[3]]
    for q in range(gram.shape[0]):
        diagonal[q] = gram[q, q]
    fill_system(t, room, systems, G, r)
    if places.size:
        add_pairs(t, places, targets, size, other, room, systems, marks, errors, G, r)
    energy = np.float32(0)
    for q in range(gram.shape[0]):
        energy = max(energy, diagonal[q])
    systems[find_numbers(G)[2], t] = energy * r
    systems[find_numbers(G)[5], t] = places.size


# x: the address of float32 (n, p); begin: float32 (p, padded d), or (0, any) to improve codes; cross: float32
# (p, padded d), the map to linear terms; starts, stops: int64 (n,), or (0,) if there are no pairs: where the pairs of
# each row stand in places: int32 (pairs,), rows of `other`, and targets: float32 (pairs,); pair_sizes: float32 (n,);
# other: float32 (m, padded d); gram: float32 (d, padded d); rounds: of bits and weights. Then follows a `Scratch`.
# One entry point for both: most of it is `code_tile`, which takes seconds to compile. d * p products for each map.
@training_entry
def code_rows(
    x, most_squares, begin, cross, starts, stops, places, targets, pair_sizes, other, gram, max_active, rounds,
    signs, bits, weights, room, sizes, systems, active, marks, errors, start, stop,
):  # fmt: skip
    """Improve the codes of rows `start` to `stop`, or encode them: the signs of ``x @ begin``, improved.

    Each gets at most `max_active` weights above zero; see `code_tile`. Codes to improve, in place, are signs: int8
    (n, d); encoded ones are bits: uint8 (n, G * bytes of a code), of each component from the lowest; both have weights:
    float32 (n, G). All are contiguous. Returns whether all weights are finite, and the squares of each vector add up to
    at most `most_squares`, float32.
    """
    is_safe, is_new = True, begin.shape[0] > 0
    G, p, width, d = weights.shape[1], cross.shape[0], cross.shape[1], gram.shape[0]
    pairs, scratch = (starts, stops, places, targets, pair_sizes, other), (room, sizes, systems, active, marks, errors)
    _, first, term = find_lines(ZERO, G)[:3]
    for row in range(start, stop, TILE):
        n_rows = min(TILE, stop - row)
        for is_term in range(0 if is_new else 1, 2):
            matrix, out = address_of(cross if is_term else begin), address_of(room[term if is_term else first])
            multiply_tile(x + 4 * row * p, p, matrix, width, p, out, width, width, n_rows)
        for t in range(n_rows):
            if is_new:
                round_row(room[first + t], sizes[t], d // G, max_active)
                write_code(room[first + t], sizes[t], d // G, bits[row + t], weights[row + t])
            else:
                copy_row(room[first + t], signs[row + t])
                copy_row(sizes[t], weights[row + t])
        code_tile(row, n_rows, pairs, gram, max_active, rounds, scratch)
        for t in range(n_rows):
            if active[t, G] and is_new:
                write_code(room[first + t], sizes[t], d // G, bits[row + t], weights[row + t])
            elif active[t, G]:
                for q in range(d):
                    signs[row + t, q] = np.int8(1) if room[first + t, q] > 0 else np.int8(-1)
                copy_row(weights[row + t], sizes[t])
            for k in range(G):
                is_safe &= np.isfinite(weights[row + t, k])
            vector = view_row(x, row + t, p, np.float32)
            is_safe &= multiply_rows(vector, vector) <= most_squares
    return is_safe


@training_kernel
def round_row(x, sizes, r, max_active):
    """Round a real-valued row x to its signs, in place, and the mean size of each component as its weight.

    Only the `max_active` largest components get a weight, of equal ones the first.
    """
    for k in range(sizes.size):
        total = np.float32(0)
        for q in range(k * r, (k + 1) * r):
            total += abs(x[q])
            x[q] = np.float32(-1) if x[q] < 0 else np.float32(1)
        sizes[k] = total / np.float32(r)
    for _ in range(sizes.size - max_active):
        least = -1
        for k in range(sizes.size):
            if sizes[k] > 0 and (least < 0 or sizes[k] <= sizes[least]):
                least = k
        if least >= 0:
            sizes[least] = 0


@training_kernel
def write_code(signs, sizes, r, bits, weights):
    """Pack the signs of a row, and copy its weights; the bits of a component without weight are 0."""
    n_bytes = bits.size // sizes.size
    for k in range(sizes.size):
        weights[k] = sizes[k]
        for place in range(n_bytes):
            octet = np.uint8(0)
            if sizes[k] > 0:
                for q in range(8 * place, min(8 * place + 8, r)):
                    if signs[k * r + q] > 0:
                        octet |= np.uint8(1) << np.uint8(q - 8 * place)
            bits[k * n_bytes + place] = octet


# d * p products for a row.
@training_entry
def map_rows(x, matrix, out, start, stop):
    """Set each row of `out` (n, d) to ``x @ matrix`` of its row, a matrix of (p, d)."""
    for row in range(start, stop):
        map_row(x[row], matrix, out[row])


# d * p products for a row, four rows at a time.
@training_entry
def map_tiles(x, matrix, out, start, stop):
    """Do as `map_rows` for float32 and a d that is a multiple of LANES."""
    (p, d), n = matrix.shape, stop - start
    rows, columns, to = address_of(x) + 4 * start * p, address_of(matrix), address_of(out) + 4 * start * d
    multiply_tile(rows, p, columns, d, p, to, d, d, n)
