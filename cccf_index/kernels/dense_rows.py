"""Vectors become dense components: how often an error changes a list, and values rounded at the best step.

What becomes of a row depends on no other row.
"""

import numpy as np

from cccf_index.kernels.decorators import training_entry, training_kernel
from cccf_index.kernels.levels import LEVELS
from cccf_index.kernels.linear_algebra import multiply_tile
from cccf_index.kernels.memory import address_of, read

COLUMNS = 256  # probes that are compared with a few rows at a time: their vectors stay in the second cache
TILE = 32  # rows
REACH = 1.6  # deviations, half the width of a ramp that has the same area beside it as a Gaussian's distribution
STEPS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.52, 0.45, 0.38)  # of the step at which no value is cut off


# O(m * (p + lists * kinds)) for each row.
@training_entry
def count_losses(x, lengths, probes, lasts, shares, means, deviations, scores, losses, start, stop):
    """Fill `losses` of the rows `start` to `stop`: in how many lists each changes sides, by codes of some kinds.

    A code estimates a score s by ``mean * s``, with a deviation relative to that of the row's scores. It changes sides
    if score and estimate are not on the same side of the score of a list's last item.

    x: float32 (n, p), contiguous; lengths: float32 (n,), deviations of the rows' scores; probes: float32 (p, padded m);
    lasts: float32 (lists, padded m), the score of the last item of each list; shares: float32 (lists, padded m), what
    it counts, 0 in the padding; means, deviations: float32 (kinds,); scores: float32 (TILE, COLUMNS), working memory;
    losses: float32 (n, kinds).
    """
    p, width, room = x.shape[1], probes.shape[1], address_of(scores)
    for row in range(start, stop):
        for kind in range(means.size):
            losses[row, kind] = 0
    for first in range(0, width, COLUMNS):
        n = min(COLUMNS, width - first)
        for tile in range(start, stop, TILE):
            n_rows = min(TILE, stop - tile)
            at = address_of(x) + 4 * tile * p
            multiply_tile(at, p, address_of(probes) + 4 * first, width, p, room, np.int64(COLUMNS), n, n_rows)
            for row in range(tile, tile + n_rows):
                for kind in range(means.size):
                    reach = np.float32(2 * REACH) * deviations[kind] * lengths[row]
                    inverse, mean = np.float32(1) / max(reach, np.float32(1e-30)), means[kind]
                    for i in range(lasts.shape[0]):
                        own, behind = room + 4 * COLUMNS * (row - tile), 4 * (i * width + first)
                        losses[row, kind] += sum_flips(
                            own, address_of(lasts) + behind, address_of(shares) + behind, mean, inverse, n
                        )


@training_kernel
def sum_flips(scores, lasts, shares, mean, inverse, n):
    """Return the chances, summed, that estimates are not on the same side of the last scores as n scores.

    In the mean they are `mean` times the scores. The distribution function of an estimate is taken for a ramp; inverse:
    of its width. scores, lasts, shares: addresses of float32 (n,).
    """
    total = np.float32(0)
    for j in range(n):
        score, last = read(scores, j, np.float32), read(lasts, j, np.float32)
        below = (last - mean * score) * inverse
        chance = np.float32(0.5) + (below if score > last else -below)
        total += read(shares, j, np.float32) * min(max(chance, np.float32(0)), np.float32(1))
    return total


@training_kernel
def round_value(value, inverse, level):
    """Return which value of a level is nearest to ``value * inverse``, in units of the level's worth."""
    least, factor, most = np.float32(level.least), np.float32(level.factor), np.float32((1 << level.bits) - 1)
    share = np.float32(1) / factor
    return factor * min(max(np.rint((value * inverse - least) * share), np.float32(0)), most) + least


@training_kernel
def measure_values(x, squares):
    """Return the largest size of a value, and the sum of squares; squares: what each counts."""
    peak, energy = np.float32(0), np.float32(0)
    for j in range(x.size):
        peak = max(peak, abs(x[j]))
        energy += squares[j] * x[j] * x[j]
    return peak, energy


@training_kernel
def add_products(x, squares, step, level):
    """Return the inner products of values rounded at a level with `x`, and with themselves, for a step.

    squares: what each counts.
    """
    cross, square, worth = np.float32(0), np.float32(0), np.float32(level.worth)
    inverse = np.float32(1) / (step * worth)
    for j in range(x.size):
        value = round_value(x[j], inverse, level)
        cross += squares[j] * value * x[j]
        square += squares[j] * value * value
    return worth * cross, worth * worth * square


# O(dimensions * STEPS) for each row. Invariant: of all steps tried, that whose values are most parallel to the row.
@training_entry
def fill_values(x, squares, precision, weights, values, start, stop):
    """Round the rows `start` to `stop` of `x`, float32 (n, p), at a precision: fill weights (n,) and values (n, p).

    The weight is such that scores are right in the mean, if the row itself is the query: with the least squared error
    they would all be too small, and lose their places in lists to rows of smaller errors. All dimensions that the
    precision leaves out become zero. squares: float32 (p,), what squared errors count; precision: int64 (levels,);
    weights: float32; values: int8.
    """
    for row in range(start, stop):
        largest, energy, first = np.float32(0), np.float32(0), 0
        for place in range(len(LEVELS)):
            level, last = LEVELS[place], first + precision[place]
            most = level.worth * (level.factor * ((1 << level.bits) - 0.5) + level.least)  # and half a step
            peak, more = measure_values(x[row, first:last], squares[first:last])
            largest, energy, first = max(largest, peak / np.float32(most)), energy + more, last
        best, step = np.float32(0), np.float32(0)
        weights[row] = 0
        for j in range(x.shape[1]):
            values[row, j] = 0
        if largest < np.float32(1e-30):
            continue
        for share in STEPS:
            tried, cross, square, first = np.float32(largest * share), np.float32(0), np.float32(0), 0
            for place in range(len(LEVELS)):
                last = first + precision[place]
                more = add_products(x[row, first:last], squares[first:last], tried, LEVELS[place])
                cross, square, first = cross + more[0], square + more[1], last
            gain = cross * cross / square if square > 0 else np.float32(0)  # the squared cosine, times the energy
            if gain > best:
                best, step, weights[row] = gain, tried, energy / cross
            if precision[0] == first or precision[len(LEVELS) - 1] == first:
                break  # a byte has values enough for all, and of a sign only the weight matters
        if best <= 0:
            continue
        first = 0
        for place in range(len(LEVELS)):
            level = LEVELS[place]
            worth = np.float32(level.worth)
            for j in range(first, first + precision[place]):
                values[row, j] = np.int8(worth * round_value(x[row, j], np.float32(1) / (step * worth), level))
            first += precision[place]
