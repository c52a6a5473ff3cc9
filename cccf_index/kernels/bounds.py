"""How good the items of a cell, or of a block of it, can be at most: the bounds by which most blocks are skipped.

A query x scores at most ``x.c + |x| * |y - c|`` with an item y of the cell around c (the *ball* bound), and at most
what the largest weights in the cell allow (the *weight* bound). Both leave room for rounding. The items of a cell have
only some components: only these components of x count. The dense component is measured in a *metric*: items' values are
multiplied by it and the query's divided, which changes no product. The bounds are best where both have their energy in
the same dimensions.
"""

import numpy as np

from cccf_index.kernels.decorators import ZERO, kernel
from cccf_index.kernels.limits import LANE_MAX, TERM_DIVISOR
from cccf_index.kernels.linear_algebra import multiply_rows
from cccf_index.kernels.memory import find_query, power_of_two, read, view_row, write
from cccf_index.kernels.stored import count_components, has_component, has_dense

TINY = 1e-37  # below, the rounding of float32 is not relative any more
LIKELY = 0.3  # good items have about this share of what their distance from the centre could add to their score


# O(cells * dimensions that they have). Invariant: caps and slips are safe against rounding, and so are the radii.
@kernel
def measure_cells(segment, call, i):
    """Measure the prepared query at place i of the tile against the cells from `first_cell` on.

    Filled are, float32 (cells,): products, with the centres; norms, the length of those components of the query that
    the cell's items have; caps, what their weights allow; slips, how far sketches are off at most by rounding the
    query, near_slips, the same at the centre; and in the query's record what else sketches are off by.
    """
    query, near_slips = find_query(call, i), view_row(call.near_slips, i, segment.n_cells, np.float32)
    query.floors, query.slope, query.weight_slip = segment.n_components + 1.0, 0.0, 0.0
    first_cell, n_cells = call.first_cell, segment.n_cells
    products, caps = view_row(call.products, i, n_cells, np.float32), view_row(call.caps, i, n_cells, np.float32)
    slips, norms = view_row(call.slips, i, n_cells, np.float32), view_row(call.norms, i, n_cells, np.float32)
    for c in range(first_cell, n_cells):
        products[c], caps[c], slips[c], near_slips[c], norms[c] = 0, 0, 0, 0, 0
    multiply_centres(segment, call, products)
    for c in range(max(first_cell, segment.dense_start), n_cells):
        caps[c] = np.float32(query.dense_norm * (1 + 1e-4)) * read(segment.dense_peaks, c, np.float32)
        norms[c] = np.float32(query.dense_norm**2)
    for k in range(count_components(segment, call)):
        square = np.float32(0)
        for j in range(k * call.n_bits, (k + 1) * call.n_bits):
            square += read(call.vector, j, np.float32) ** 2
        most = read(call.reach, k, np.float32) * np.float32(1 + 1e-4)
        error = read(call.sketch_error, k, np.float32) * (1.001 / TERM_DIVISOR)  # in float64, as a step may be tiny
        reach = read(call.sketch_reach, k, np.float32) * (1.001 / TERM_DIVISOR)
        query.weight_slip += (reach + error) * segment.slip
        scaled = error / segment.step
        query.slope += scaled / np.sqrt(call.n_bits)
        row = view_row(segment.peaks, k, n_cells, np.float32)
        sizes = view_row(segment.centre_sizes, k, n_cells, np.float32)
        for c in range(first_cell, n_cells):
            caps[c] += most * row[c]
            norms[c] += square if row[c] > 0 else np.float32(0)
            slips[c] += np.float32(scaled * row[c])
            near_slips[c] += np.float32(scaled * sizes[c])
    for c in range(first_cell, n_cells):
        norms[c] = np.sqrt(norms[c]) * np.float32(1 + 1e-4)


@kernel
def multiply_centres(segment, call, products):
    """Set the products, float32 (cells,), of the prepared query with the centres; those at zero are not stored."""
    last = np.int64(-1)
    for c in range(call.first_cell, segment.n_cells):
        start, stop = read(segment.centre_starts, c, np.int64), read(segment.centre_starts, c + 1, np.int64)
        if start < stop:
            group = read(segment.cell_groups, c, np.int64)
            if group != last:
                gather_components(segment, call, group)
                last = group
            n = stop - start
            centre = view_row(segment.centres + 4 * start, ZERO, n, np.float32)
            products[c] = multiply_rows(view_row(call.gathered, ZERO, n, np.float32), centre)


@kernel
def gather_components(segment, call, group):
    """Fill `gathered` with the components of the prepared query that a group has, one after the other."""
    place, d = ZERO, segment.n_components * call.n_bits
    for k in range(segment.n_components):
        if has_component(segment, group, k):
            for j in range(k * call.n_bits, (k + 1) * call.n_bits):
                write(call.gathered, place, read(call.vector, j, np.float32))
                place += 1
    if segment.n_dense and has_dense(segment, group):
        for j in range(d, d + segment.n_dense):
            write(call.gathered, place, read(call.vector, j, np.float32))
            place += 1


# Invariant: an item of cell c that is nearer to the centre than the first value returned scores less than the query's
# `worst`, and so does one whose sketch, if it were exact, would be below the second.
@kernel
def find_thresholds(query, c, segment, bias_scale, slack, product, norm, cap):
    """Return how far from the centre of cell c an item must be to be good enough, and what its sketch must reach.

    query: its record; slack: how much of a score may be rounding; product, norm, cap: of the cell, by `measure_cells`.
    """
    worst = query.worst
    bias = read(segment.bias_peaks, c, np.float64) * bias_scale
    least = worst - bias - slack * (abs(worst) + abs(bias) + cap) - TINY
    estimate = least / query.unit
    if cap < least:
        return np.inf, estimate
    if norm > 0:
        return (least - product) / norm, estimate
    return least, estimate  # a query of zeros: all items score their biases, and least <= 0 keeps them all


@kernel
def find_error(query, slip, near_slip, radius, shift):
    """Return how far a sketch may be off in a block of a given radius and shift; slips: of its cell."""
    return query.floors * power_of_two(-shift) + min(slip, near_slip + query.slope * radius) + query.weight_slip


@kernel
def find_limit(estimate, error, shift):
    """Return which sketch, times 2^shift, a row must reach to be good enough by `find_thresholds`."""
    limit = np.floor((estimate - error) * power_of_two(shift))
    return np.int16(min(max(limit, -LANE_MAX - 1.0), float(LANE_MAX)))


@kernel
def estimate_best(c, block, segment, call, bias_scale, product, cap, norm):
    """Return what the best item of a block of cell c may well score; minus infinity if there is no such block."""
    if block >= read(call.stops, c, np.int64):
        return -np.inf
    likely = product + LIKELY * norm * read(segment.radii, block, np.float32)
    return min(likely, np.float64(cap)) + read(segment.bias_peaks, c, np.float64) * bias_scale
