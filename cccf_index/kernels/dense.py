"""The dense component: queries prepared for it, estimates of blocks of rows, and exact scores.

Half bytes are first multiplied with a query of bytes: most rows need no more.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from cccf_index.kernels.decorators import INNER, ZERO, kernel
from cccf_index.kernels.dense_products import (
    find_reaching,
    multiply_coarse,
    multiply_exact,
    multiply_four,
    multiply_four_coarsely,
    multiply_rounded,
)
from cccf_index.kernels.limits import BLOCK, DENSE_STEP, DENSE_SUM, HALF_MIN, HALF_STEP, VALUE_MAX
from cccf_index.kernels.memory import find_query, lowest_bit, read, view_row, write
from cccf_index.kernels.stored import bias_scale, read_bias, read_run, read_weight

FLOAT_ERROR = 1e-5  # of an estimate in float32


@kernel
def has_dense(segment, group):
    """Whether the rows of a group have a dense component."""
    return read(segment.precisions, 2 * group, np.int64) + read(segment.precisions, 2 * group + 1, np.int64) > 0


@kernel
def locate_dense(segment, group, place):
    """Return the address of the values of a group's row, its bytes, and how many dimensions take 8 and 4 bits."""
    n_full = read(segment.precisions, 2 * group, np.int64)
    n_half = read(segment.precisions, 2 * group + 1, np.int64)
    size = n_full + n_half // 2
    start = segment.dense_octets + read(segment.dense_starts, group, np.int64)
    return start + place * size, size, n_full, n_half


@kernel
def read_dense_weight(segment, group, place, number):
    """Return the weight of the dense component of a group's row."""
    place += read(segment.dense_bases, group, np.int64)
    return read_weight(segment.dense_weights, place, segment.dense_weight_size, segment.float_weights, number)


@kernel
def prepare_dense_code(segment, call, q, i, number):
    """Prepare the dense component of coded query q at place i of the tile; return its length.

    Filled are its values as int16, its part of `vector`, and in the query's record what a product is worth.
    """
    query, n, d = find_query(call, i), call.n_dense, segment.n_components * call.n_bits
    # in integers, the others' weights are finer by the factor by which items' dense weights are
    weight = np.float64(read(call.weights, q * call.n_weights + segment.n_components, number)) / segment.dense_unit
    square = 0.0
    for j in range(n):
        value = read(call.dense, q * n + j, np.int8)
        write(call.dense_values, i * n + j, np.int16(value))
        size = weight * value / read(segment.dense_metric, j, np.float32)
        write(call.vector, d + j, np.float32(size))
        square += size * size
    query.dense_step, query.dense_slip = weight * segment.dense_unit, 0.0
    query.coarse_ratio, query.coarse_slip = 1.0, 0.0
    round_coarsely(segment, call, i, 1.0)
    return np.sqrt(square)


@kernel
def prepare_dense_vector(segment, call, q, i):
    """Prepare the dense component of real-valued query q at place i of the tile; see `prepare_dense_code`."""
    query, n, d = find_query(call, i), call.n_dense, segment.n_components * call.n_bits
    values = view_row(call.vectors + 4 * (q * (d + n) + d), ZERO, n, np.float32)
    peak, square, off = 0.0, 0.0, 0.0
    for j in range(n):
        peak = max(peak, np.float64(abs(values[j])))
    most = np.float64(min(DENSE_SUM // ((VALUE_MAX + 1) * n), 2**15 - 1))
    step = peak / most
    for j in range(n):
        rounded, metric = np.rint(values[j] / step) if step > 0 else 0.0, read(segment.dense_metric, j, np.float32)
        write(call.dense_values, i * n + j, np.int16(rounded))
        size = np.float64(values[j]) / metric
        write(call.vector, d + j, np.float32(size))
        square += size * size
        off += (size - step * rounded / metric) ** 2
    query.dense_step, query.dense_slip = step * segment.dense_unit, np.sqrt(off)
    query.coarse_ratio = most / VALUE_MAX
    query.coarse_slip = step * np.sqrt(round_coarsely(segment, call, i, most / VALUE_MAX)) + query.dense_slip
    return np.sqrt(square)


@kernel
def round_coarsely(segment, call, i, ratio):
    """Round the int16 values of the query at place i of the tile to bytes, 1 of which is worth `ratio` of them.

    Return the square of what they are off by. Filled are also the sums up to each block of dimensions.
    """
    n, half, off, total = call.n_dense, DENSE_STEP // 2, 0.0, 0
    for block in range(n // DENSE_STEP):
        write(call.coarse_sums, i * (n // DENSE_STEP + 1) + block, np.int32(total))
        for j in range(DENSE_STEP):
            value = np.float64(read(call.dense_values, i * n + block * DENSE_STEP + j, np.int16))
            rounded = np.rint(value / ratio)
            metric = read(segment.dense_metric, block * DENSE_STEP + j, np.float32)
            off += ((value - ratio * rounded) / metric) ** 2
            place = i * n + block * half + j
            write(call.coarse_values, place if j < half else place - half + n // 2, np.int8(rounded))
            total += np.int64(rounded)
    write(call.coarse_sums, i * (n // DENSE_STEP + 1) + n // DENSE_STEP, np.int32(total))
    return off


@kernel
def multiply_all(n, row, stride, query, n_full, n_half, out):
    """Write to `out`, int32, the products of n rows with a query of int16."""
    for j in range(0, n - 3, 4):
        multiply_four(row + j * stride, stride, query, n_full, n_half, out + 4 * j)
    for j in range(n - n % 4, n):
        write(out, j, multiply_rounded(row + j * stride, query, n_full, n_half))


@kernel
def multiply_all_coarsely(n, row, stride, query, n_half, far, out):
    """Write to `out`, int32, the sums of n rows of half bytes with bytes of a query."""
    for j in range(0, n - 3, 4):
        multiply_four_coarsely(row + j * stride, stride, query, n_half, far, out + 4 * j)
    for j in range(n - n % 4, n):
        write(out, j, multiply_coarse(row + j * stride, query, n_half, far))


@kernel
def fill_integers(address, n, value):
    """Set n int32 at an address."""
    for j in range(n):
        write(address, j, np.int32(value))


# O(n_full + n_half / 2) bytes read for each row. Invariant: no estimate of a row in the mask is off by more than
# `dense_slip` times the length of the longest; all rows are in it that may reach the limit.
@kernel
def estimate_block(group, first, n, limit, length, segment, call, q, i):
    """Fill `block_scores`, as float64, with estimates of the best of n rows of a group; return a mask of these.

    They are those that may reach a limit without their biases; the estimates include them. first: place of the first
    row in the group; length: of the longest row.
    """
    query, n_dense = find_query(call, i), call.n_dense
    row, size, n_full, n_half = locate_dense(segment, group, first)
    values, step, slip = call.dense_values + 2 * i * n_dense, query.dense_step, query.dense_slip
    products, coarse, ratio = call.sketches, call.sketches + 4 * BLOCK, np.float64(0)
    if n_full > 0:
        multiply_all(n, row, size, values, n_full, ZERO, products)
    else:
        fill_integers(products, BLOCK, ZERO)
    if n_half > 0:
        slip, ratio = query.coarse_slip, query.coarse_ratio * HALF_STEP
        sums = call.coarse_sums + 4 * (i * (n_dense // DENSE_STEP + 1) + n_full // DENSE_STEP)
        offset = HALF_MIN * (read(sums, n_half // DENSE_STEP, np.int32) - read(sums, ZERO, np.int32))
        own = call.coarse_values + i * n_dense + n_full // 2
        multiply_all_coarsely(n, row + n_full, size, own, n_half, n_dense // 2, coarse)
        for j in range(n):
            write(coarse, j, np.int32(read(coarse, j, np.int32) + offset))
    else:
        fill_integers(coarse, BLOCK, ZERO)
    weights = view_row(call.block_weights, ZERO, BLOCK, np.float32)
    place = read(segment.dense_bases, group, np.int64) + first
    read_run(segment.dense_weights, place, n, segment.dense_weight_size, segment.float_weights, weights)
    reach = limit - (slip + FLOAT_ERROR * query.dense_norm) * length - FLOAT_ERROR * abs(limit)
    reach = min(max(reach / step, -3e38), 3e38) if step > 0 else -np.inf
    found = find_reaching(products, coarse, np.float32(ratio), call.block_weights, np.float32(reach))
    found &= ~np.uint64(0) >> np.uint64(BLOCK - n)
    left, limit = np.uint64(0), limit - query.dense_slip * length
    while found:
        j = np.int64(lowest_bit(found))
        found &= found - np.uint64(1)
        product = np.float64(read(products, j, np.int32)) + ratio * np.float64(read(coarse, j, np.int32))
        if slip > query.dense_slip:
            product = np.float64(multiply_rounded(row + j * size, values, n_full, n_half))
        score = product * step * np.float64(weights[j])
        if score >= limit:
            left |= np.uint64(1) << np.uint64(j)
            if segment.bias != 0:
                at = read(segment.starts, group, np.int64) + first + j
                score += read_bias(segment, at) * np.float64(bias_scale(call, q))
            write(call.block_scores, j, score)
    return left


def score_dense(place: int, group: int, segment: Any, call: Any, q: int, i: int, number: Any, real: Any) -> Any:
    """Return what the dense component adds to the score of a group's row, for query q at place i of the tile."""


@overload(score_dense, jit_options=INNER)
def pick_score_dense(place, group, segment, call, q, i, number, real):
    """Pick the coded or the real-valued variant at compile time."""

    def score_coded(place, group, segment, call, q, i, number, real):
        row, _, n_full, n_half = locate_dense(segment, group, place)
        weight = read(call.weights, q * call.n_weights + segment.n_components, number)
        product = multiply_rounded(row, call.dense_values + 2 * i * call.n_dense, n_full, n_half)
        return weight * read_dense_weight(segment, group, place, number) * number(product)

    def score_real(place, group, segment, call, q, i, number, real):
        row, _, n_full, n_half = locate_dense(segment, group, place)
        d, n = segment.n_components * call.n_bits, call.n_dense
        product = multiply_exact(row, call.vectors + 4 * (q * (d + n) + d), n_full, n_half)
        weight = read_dense_weight(segment, group, place, np.float32) * np.float32(segment.dense_unit)
        return weight * product

    return score_coded if isinstance(real, types.NoneType) else score_real
