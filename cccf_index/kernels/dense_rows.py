"""Vectors become dense components: how often an error changes a list, and values rounded at the best step.

What becomes of a row depends on no other row.
"""

import numpy as np

from cccf_index.kernels.decorators import training_entry, training_kernel
from cccf_index.kernels.limits import HALF_MAX, HALF_MIN, HALF_STEP, VALUE_MAX
from cccf_index.kernels.memory import address_of
from cccf_index.kernels.row_updates import multiply_tile

COLUMNS = 256  # probes that are compared with a few rows at a time: their vectors stay in the second cache
TILE = 32  # rows
REACH = 1.6  # deviations, half the width of a ramp that has the same area beside it as a Gaussian's distribution
STEPS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.52, 0.45, 0.38)  # of the step at which no value is cut off


# O(m * (p + lists * errors)) for each row.
@training_entry
def count_losses(x, lengths, probes, lasts, shares, errors, scores, losses, start, stop):
    """Fill `losses` of the rows `start` to `stop`: in how many lists each changes sides, by errors of some sizes.

    A code whose error is a share e of its row estimates a score s by ``(1 - e^2) s`` in the mean, as the best code
    does, with a deviation of ``e * sqrt(1 - e^2)`` times that of the row's scores. It changes sides if score and
    estimate are not on the same side of the score of a list's last item.

    x: float32 (n, p), contiguous; lengths: float32 (n,), deviations of the rows' scores; probes: float32 (p, padded m);
    lasts: float32 (lists, padded m), the score of the last item of each list; shares: float32 (lists, padded m), what
    it counts, 0 in the padding; errors: float32 (any,), as shares of a row's length; scores: float32 (TILE, COLUMNS),
    working memory; losses: float32 (n, any).
    """
    p, width, room = x.shape[1], probes.shape[1], address_of(scores)
    for row in range(start, stop):
        for e in range(errors.size):
            losses[row, e] = 0
    for first in range(0, width, COLUMNS):
        n = min(COLUMNS, width - first)
        for tile in range(start, stop, TILE):
            n_rows = min(TILE, stop - tile)
            at = address_of(x) + 4 * tile * p
            multiply_tile(at, p, address_of(probes) + 4 * first, width, p, room, np.int64(COLUMNS), n, n_rows)
            for row in range(tile, tile + n_rows):
                for e in range(errors.size):
                    share = np.float32(1) - min(errors[e] * errors[e], np.float32(0.999))
                    reach = np.float32(2 * REACH) * np.sqrt(share * (np.float32(1) - share)) * lengths[row]
                    inverse = np.float32(1) / max(reach, np.float32(1e-30))
                    for i in range(lasts.shape[0]):
                        losses[row, e] += sum_flips(scores[row - tile], lasts[i], shares[i], share, inverse, first, n)


@training_kernel
def sum_flips(scores, lasts, shares, share, inverse, first, n):
    """Return the chances, summed, that estimates are not on the same side of the last scores as n scores.

    In the mean they are ``share`` of the scores.

    The distribution function of an estimate is taken for a ramp; inverse: of its width.
    """
    total = np.float32(0)
    for j in range(n):
        last = lasts[first + j]
        below = (last - share * scores[j]) * inverse
        chance = np.float32(0.5) + (below if scores[j] > last else -below)
        total += shares[first + j] * min(max(chance, np.float32(0)), np.float32(1))
    return total


@training_kernel
def round_value(value, inverse, least, most):
    """Return a value divided by the step, rounded and cut off."""
    return min(max(np.rint(value * inverse), least), most)


@training_kernel
def find_peak(x):
    """Return the largest size of a value."""
    peak = np.float32(0)
    for j in range(x.size):
        peak = max(peak, abs(x[j]))
    return peak


@training_kernel
def add_products(x, squares, inverse, least, most):
    """Return the inner products of rounded values with `x`, and with themselves; squares: what each counts."""
    cross, square = np.float32(0), np.float32(0)
    for j in range(x.size):
        value = round_value(x[j], inverse, least, most)
        cross += squares[j] * value * x[j]
        square += squares[j] * value * value
    return cross, square


# O(dimensions * STEPS) for each row. Invariant: of all steps tried, the one with the least squared error is taken.
@training_entry
def fill_values(x, squares, n_full, n_half, weights, values, start, stop):
    """Round the rows `start` to `stop` of `x`, float32 (n, p), at a precision: fill weights (n,) and values (n, p).

    The weight is the best factor for the values, so it is not quite the step. Those of half a byte are multiples of
    HALF_STEP. All dimensions after the first `n_full` and the next `n_half` become zero. squares: float32 (p,), what
    squared errors count; weights: float32; values: int8.
    """
    byte, half_least, half_most = np.float32(VALUE_MAX), np.float32(HALF_MIN), np.float32(HALF_MAX)
    wide = np.float32(HALF_STEP)
    for row in range(start, stop):
        full, half = x[row, :n_full], x[row, n_full : n_full + n_half]
        coarse = find_peak(half) / ((half_most + np.float32(0.5)) * wide)
        fine = find_peak(full) / byte
        largest = max(coarse, fine)
        best, step = np.float32(0), np.float32(0)
        weights[row] = 0
        for j in range(x.shape[1]):
            values[row, j] = 0
        if largest < np.float32(1e-30):
            continue
        for share in STEPS:
            tried = np.float32(largest * share)
            inverse = np.float32(1) / tried
            cross, square = add_products(full, squares, inverse, -byte, byte)
            more = add_products(half, squares[n_full:], inverse / wide, half_least, half_most)
            cross, square = cross + wide * more[0], square + wide * wide * more[1]
            gain = cross * cross / square if square > 0 else np.float32(0)  # by this the squared error falls
            if gain > best:
                best, step, weights[row] = gain, tried, cross / square
            if n_half == 0:
                break
        if best <= 0:
            continue
        inverse = np.float32(1) / step
        for j in range(n_full):
            values[row, j] = np.int8(round_value(full[j], inverse, -byte, byte))
        for j in range(n_half):
            values[row, n_full + j] = np.int8(wide * round_value(half[j], inverse / wide, half_least, half_most))
