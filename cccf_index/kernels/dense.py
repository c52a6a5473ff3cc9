"""The dense component: queries prepared for it, estimates of blocks of rows, and exact scores.

Estimates multiply a query that is rounded to bytes, 16 dimensions at a time at a scale of their own. The first
dimensions hold most of the energy: what the others can add at most rules out most rows.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from cccf_index.kernels.decorators import INNER, ZERO, kernel
from cccf_index.kernels.dense_products import add_steps, find_reaching, multiply_floats, multiply_integers
from cccf_index.kernels.levels import LEVELS
from cccf_index.kernels.limits import BLOCK, COARSE_VALUE_MAX, DENSE_STEP, FIRST_STEPS, QUAD, STRIP
from cccf_index.kernels.memory import find_query, read, view_row
from cccf_index.kernels.stored import bias_scale, read_bias, read_run, read_weight

FLOAT_ERROR = 1e-4  # of an estimate in float32: more than a rounding for each of MAX_DENSE / DENSE_STEP steps
LEAST_STEP = 1e-30  # smaller values are taken for zero


@kernel
def locate_row(segment, group, place):
    """Return the address of the first values of a group's row, and that of its precision."""
    start, number = segment.dense_octets + read(segment.dense_starts, group, np.int64), place % STRIP
    row = start + (place - number) * read(segment.dense_row_sizes, group, np.int64) + QUAD * number
    return row, segment.precisions + 8 * len(LEVELS) * group


@kernel
def count_steps(precision):
    """Return how many steps the dimensions of a precision are, by its address."""
    n = ZERO
    for level in range(len(LEVELS)):
        n += read(precision, level, np.int64)
    return n // DENSE_STEP


@kernel
def read_dense_weight(segment, group, place, number):
    """Return the weight of the dense component of a group's row."""
    place += read(segment.dense_bases, group, np.int64)
    return read_weight(segment.dense_weights, place, segment.dense_weight_size, segment.float_weights, number)


@kernel
def prepare_dense_code(segment, call, q, i, number):
    """Prepare the dense component of coded query q at place i of the tile; see `prepare_dense`."""
    # in integers, the others' weights are finer by the factor by which items' dense weights are
    weight = np.float64(read(call.weights, q * call.n_weights + segment.n_components, number)) / segment.dense_unit
    values = view_row(call.dense_query, ZERO, call.n_dense, np.float32)
    for j in range(call.n_dense):
        values[j] = weight * read(call.dense, q * call.n_dense + j, np.int8)
    return prepare_dense(segment, call, i, values)


@kernel
def prepare_dense_vector(segment, call, q, i):
    """Prepare the dense component of real-valued query q at place i of the tile; see `prepare_dense`."""
    d = segment.n_components * call.n_bits
    address = call.vectors + 4 * (q * (d + call.n_dense) + d)
    return prepare_dense(segment, call, i, view_row(address, ZERO, call.n_dense, np.float32))


# O(dimensions). Invariant: the rounded query is off by `dense_slip`, in the metric, or less.
@kernel
def prepare_dense(segment, call, i, values):
    """Round the values of a query's dense component, float32 (n_dense,), at place i of the tile; return its length.

    Filled are its part of `vector`, what estimates read of it, and in the query's record what they are worth.
    """
    query, n, n_steps = find_query(call, i), call.n_dense, call.n_dense // DENSE_STEP
    metric = view_row(segment.dense_metric, ZERO, n, np.float32)
    vector = view_row(call.vector + 4 * segment.n_components * call.n_bits, ZERO, n, np.float32)
    rounded, scales = view_row(call.dense_values, i, n, np.int8), view_row(call.dense_scales, i, n_steps, np.float32)
    sums, tails = view_row(call.dense_sums, i, n_steps, np.int32), view_row(call.dense_tails, i, n_steps, np.float32)
    for s in range(n_steps):
        peak = np.float32(0)
        for j in range(s * DENSE_STEP, (s + 1) * DENSE_STEP):
            peak = max(peak, abs(values[j]))
            vector[j] = values[j] / metric[j]
        scales[s] = peak
    peak, square, off = np.float32(0), 0.0, 0.0
    for s in range(n_steps):
        peak = max(peak, scales[s])
    for s in range(n_steps - 1, -1, -1):
        own, total = np.float64(scales[s]) / COARSE_VALUE_MAX, 0
        inverse = 1 / own if own > LEAST_STEP else 0.0
        for j in range(s * DENSE_STEP, (s + 1) * DENSE_STEP):
            value = np.rint(values[j] * inverse)
            rounded[j] = np.int8(value)
            total += np.int64(value)
            error = (values[j] - value * own) / metric[j]
            square += np.float64(vector[j]) ** 2
            off += error * error
        sums[s], tails[s] = total, np.sqrt(square) * (1 + 1e-6)
        scales[s] = scales[s] / peak if inverse > 0 else np.float32(0)
    query.dense_step = np.float64(peak) / COARSE_VALUE_MAX * segment.dense_unit
    query.dense_slip = np.sqrt(off) + FLOAT_ERROR * np.sqrt(square)
    return np.sqrt(square)


# O(bytes of the rows). Invariant: no estimate of a row in the mask is off by more than
# `dense_slip` times the length of the longest; all rows are in it that may reach the limit.
@kernel
def estimate_block(group, first, n, block, limit, length, segment, call, q, i):
    """Fill `block_scores`, as float64, with estimates of the best of n rows of a group; return a mask of these.

    They are those that may reach a limit without their biases; the estimates include them. first: place of the first
    row in the group, a multiple of STRIP; block: number of the block; length: of the longest row.
    """
    query, totals = find_query(call, i), view_row(call.sketches, ZERO, BLOCK, np.float32)
    weights = view_row(call.block_weights, ZERO, BLOCK, np.float32)
    place = read(segment.dense_bases, group, np.int64) + first
    read_run(segment.dense_weights, place, n, segment.dense_weight_size, segment.float_weights, weights)
    found = find_best(group, first, n, block, limit - query.dense_slip * length, segment, call, i)
    found &= ~np.uint64(0) >> np.uint64(BLOCK - n)
    if found:
        scores, step = view_row(call.block_scores, ZERO, BLOCK, np.float64), query.dense_step
        for j in range(BLOCK):  # of all: that is faster than one by one
            scores[j] = np.float64(totals[j]) * (step * np.float64(weights[j]))
        if segment.bias != 0:
            row, factor = read(segment.starts, group, np.int64) + first, np.float64(bias_scale(call, q))
            for j in range(n):
                scores[j] += read_bias(segment, row + j) * factor
    return found


@kernel
def find_best(group, first, n, block, limit, segment, call, i):
    """Add up the totals of n rows, dimensions after dimensions, as long as any may reach a limit; return which do."""
    query, n_steps = find_query(call, i), call.n_dense // DENSE_STEP
    row, precision = locate_row(segment, group, first)
    values, scales, sums = call.dense_values, call.dense_scales, call.dense_sums
    values, scales, sums = values + i * call.n_dense, scales + 4 * i * n_steps, sums + 4 * i * n_steps
    rests = segment.dense_rests + 4 * (block - segment.first_dense_block) * segment.n_stages
    start, stop, end, stage, n_strips = ZERO, np.int64(FIRST_STEPS), count_steps(precision), 0, -(-n // STRIP)
    while stop < end:
        add_steps(row, n_strips, precision, values, scales, sums, start, stop, call.sketches)
        rest = np.float64(read(call.dense_tails, i * n_steps + stop, np.float32)) * read(rests, stage, np.float32)
        if find_reaching(call.sketches, call.block_weights, scale_limit(limit - rest, query.dense_step)) == 0:
            return np.uint64(0)
        start, stop, stage = stop, 2 * stop, stage + 1
    add_steps(row, n_strips, precision, values, scales, sums, start, end, call.sketches)
    return find_reaching(call.sketches, call.block_weights, scale_limit(limit, query.dense_step))


@kernel
def scale_limit(limit, step):
    """Return a limit in units of a step, as float32; minus infinity for a query of zeros."""
    return np.float32(min(max(limit / step, -3e38), 3e38)) if step > 0 else np.float32(-np.inf)


def score_dense(place: int, group: int, segment: Any, call: Any, q: int, number: Any, real: Any) -> Any:
    """Return what the dense component adds to the score of a group's row, for query q."""


@overload(score_dense, jit_options=INNER)
def pick_score_dense(place, group, segment, call, q, number, real):
    """Pick the coded or the real-valued variant at compile time."""

    def score_coded(place, group, segment, call, q, number, real):
        row, precision = locate_row(segment, group, place)
        weight = read(call.weights, q * call.n_weights + segment.n_components, number)
        product = multiply_integers(row, precision, call.dense + q * call.n_dense)
        return weight * read_dense_weight(segment, group, place, number) * number(product)

    def score_real(place, group, segment, call, q, number, real):
        row, precision = locate_row(segment, group, place)
        d, n = segment.n_components * call.n_bits, call.n_dense
        product = multiply_floats(row, precision, call.vectors + 4 * (q * (d + n) + d))
        weight = read_dense_weight(segment, group, place, np.float32) * np.float32(segment.dense_unit)
        return weight * product

    return score_coded if isinstance(real, types.NoneType) else score_real
