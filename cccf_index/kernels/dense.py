"""The dense component: queries prepared for it, estimates of blocks of rows, and exact scores.

Estimates multiply queries that are rounded to bytes, at a scale for each stage (see `levels`). Several queries look at
a block together, so that its values are unpacked once for all of them. The first dimensions hold most of the energy:
what the others can add at most rules out many rows after each stage.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from cccf_index.kernels.decorators import INNER, ZERO, finite_kernel, kernel
from cccf_index.kernels.dense_products import multiply_floats, multiply_integers
from cccf_index.kernels.dense_strips import add_run_to_one, add_run_to_several, coarse_value_max, find_reaching
from cccf_index.kernels.levels import LEVELS, RUN_RECORD
from cccf_index.kernels.limits import BLOCK, DENSE_STEP, QUAD, STRIP, TOGETHER
from cccf_index.kernels.memory import find_query, is_plain, read, view_row, view_run, write
from cccf_index.kernels.stored import bias_scale, has_dense, read_bias, read_run, read_weight

FLOAT_ERROR = 1e-4  # of an estimate in float32, and of its limit: far more than a rounding for each run
LEAST_PEAK = 1e-28  # values of a stage that are all smaller are taken for zero
RUN_SIZE = RUN_RECORD.itemsize


@kernel
def locate_row(segment, group, place):
    """Return the address of the first values of a group's row, and that of its precision."""
    start, number = segment.dense_octets + read(segment.dense_starts, group, np.int64), place % STRIP
    row = start + (place - number) * read(segment.dense_row_sizes, group, np.int64) + QUAD * number
    return row, segment.precisions + 8 * len(LEVELS) * group


@kernel
def read_dense_weight(segment, group, place, number):
    """Return the weight of the dense component of a group's row."""
    place += read(segment.dense_bases, group, np.int64)
    return read_weight(segment.dense_weights, place, segment.dense_weight_size, segment.float_weights, number)


@kernel
def prepare_code(segment, call, q, i, number):
    """Prepare the dense component of coded query q at place i of the tile; see `prepare_values`."""
    # in integers, the others' weights are finer by the factor by which items' dense weights are
    weight = np.float64(read(call.weights, q * call.n_weights + segment.n_components, number)) / segment.dense_unit
    values = view_row(call.dense_query, ZERO, call.n_dense, np.float32)
    for j in range(call.n_dense):
        values[j] = weight * read(call.dense, q * call.n_dense + j, np.int8)
    return prepare_values(segment, call, i, values)


@kernel
def prepare_vector(segment, call, q, i):
    """Prepare the dense component of real-valued query q at place i of the tile; see `prepare_values`."""
    d = segment.n_components * call.n_bits
    address = call.vectors + 4 * (q * (d + call.n_dense) + d)
    return prepare_values(segment, call, i, view_row(address, ZERO, call.n_dense, np.float32))


def prepare_dense(segment: Any, call: Any, q: int, i: int, number: Any, real: Any) -> Any:
    """Prepare the dense component, if any, of query q at place i of the tile; return its length."""


@overload(prepare_dense, jit_options=INNER)
def pick_prepare_dense(segment, call, q, i, number, real):
    """Pick nothing, the coded or the real-valued variant at compile time."""

    def prepare_nothing(segment, call, q, i, number, real):
        return 0.0

    def prepare_coded(segment, call, q, i, number, real):
        return prepare_code(segment, call, q, i, number) if segment.n_dense else 0.0

    def prepare_real(segment, call, q, i, number, real):
        return prepare_vector(segment, call, q, i) if segment.n_dense else 0.0

    if is_plain(segment):
        return prepare_nothing
    return prepare_coded if isinstance(real, types.NoneType) else prepare_real


# O(dimensions). Invariant: the rounded query is off by `dense_slip`, in the metric, or less.
@kernel
def prepare_values(segment, call, i, values):
    """Round the values of a query's dense component, float32 (n_dense,), at place i of the tile; return its length.

    Filled are its part of `vector`, what estimates read of it, and in the query's record what they are worth.
    """
    query, n = find_query(call, i), call.n_dense
    metric = view_row(segment.dense_metric, ZERO, n, np.float32)
    vector = view_row(call.vector + 4 * segment.n_components * call.n_bits, ZERO, n, np.float32)
    rounded, peak = view_row(call.dense_values, i, n, np.int8), find_peak(values)
    most, square, off, stage, stop = coarse_value_max(), 0.0, 0.0, segment.n_stages - 1, n
    while stop > 0:  # the last stage first
        start = DENSE_STEP * read(segment.dense_stages, stage, np.int64)
        own, more, error = round_values(
            values[start:stop], metric[start:stop], most, vector[start:stop], rounded[start:stop]
        )
        square, off = square + more, off + error
        write(call.dense_tails, i * segment.n_stages + stage, np.float32(np.sqrt(square)))
        write(call.dense_scales, stage, own / peak if own > 0 else np.float32(0))
        stop, stage = start, stage - 1
    fill_runs(segment, call, i)
    query.dense_step = np.float64(peak) / most * segment.dense_unit
    query.dense_slip = np.sqrt(off) + FLOAT_ERROR * np.sqrt(square)
    for stage in range(segment.n_stages):  # in units of a step, as totals are
        tail = read(call.dense_tails, i * segment.n_stages + stage, np.float32)
        write(call.dense_tails, i * segment.n_stages + stage, scale_limit(np.float64(tail), query.dense_step))
    return np.sqrt(square)


@finite_kernel
def find_peak(values):
    """Return the largest size of a value."""
    peak = np.float32(0)
    for j in range(values.size):
        peak = max(peak, abs(values[j]))
    return peak


@finite_kernel
def round_values(values, metric, most, vector, rounded):
    """Round values of one stage so that the largest becomes `most`; return that one, and two sums.

    These are the squares of the values in the metric, which become `vector`, and of the errors. All float32, but for
    `rounded`, int8.
    """
    peak, square, off = find_peak(values), 0.0, 0.0  # squares may be too small for float32
    peak = peak if peak > LEAST_PEAK else np.float32(0)
    unit, inverse = peak / most, most / peak if peak > 0 else np.float32(0)
    for j in range(values.size):
        value = np.rint(values[j] * inverse)
        rounded[j] = np.int8(value)
        vector[j] = values[j] / metric[j]
        error = np.float64((values[j] - value * unit) / metric[j])
        square += np.float64(vector[j]) * np.float64(vector[j])
        off += error * error
    return peak, square, off


@kernel
def fill_runs(segment, call, i):
    """Fill `dense_factors` and `dense_offsets` of the rounded query at place i of the tile."""
    rounded, total = view_row(call.dense_values, i, call.n_dense, np.int8), np.int64(0)
    for step in range(call.n_dense // DENSE_STEP):
        write(call.dense_sums, step, np.int32(total))
        for j in range(step * DENSE_STEP, (step + 1) * DENSE_STEP):
            total += np.int64(rounded[j])
    write(call.dense_sums, call.n_dense // DENSE_STEP, np.int32(total))
    for r in range(segment.n_runs):
        run, place = view_run(segment.dense_runs + RUN_SIZE * r), i * segment.n_runs + r
        scale, first = read(call.dense_scales, np.int64(run.stage), np.float32), np.int64(run.dimension) // DENSE_STEP
        total = read(call.dense_sums, first + np.int64(run.n) * QUAD // DENSE_STEP, np.int32)
        total -= read(call.dense_sums, first, np.int32)
        write(call.dense_factors, place, scale * run.factor)
        write(call.dense_offsets, place, scale * run.least * np.float32(total))


# O(dimensions) for each row and query. Invariant: all rows are found that may reach the limit of a query.
@kernel
def find_together(group, first, n, block, n_looking, segment, call):
    """Find which of n rows of a group reach the `dense_limits` of queries; return how many queries found any.

    The places of the queries in the tile are the first of `looking`; those of queries that found rows come first then.
    Filled are `dense_totals` and `dense_found`, bit j for row j. first: place of the first row in the group, a multiple
    of STRIP; block: number of the block.
    """
    weights = view_row(call.block_weights, ZERO, BLOCK, np.float32)
    place = read(segment.dense_bases, group, np.int64) + first
    read_run(segment.dense_weights, place, n, segment.dense_weight_size, segment.float_weights, weights)
    for j in range(n, BLOCK):
        weights[j] = 0
    strips, size = locate_row(segment, group, first)[0], STRIP * read(segment.dense_row_sizes, group, np.int64)
    start, n_left, n_strips = read(segment.run_starts, group, np.int64), n_looking, -(-n // STRIP)
    for r in range(start, read(segment.run_starts, group + 1, np.int64)):
        run, done = view_run(segment.dense_runs + RUN_SIZE * r), ZERO
        for j in range(n_left, n_left + TOGETHER):
            write(call.looking, j, call.tile)  # nobody
        while done < n_left:
            places, is_first = call.looking + 8 * done, np.int64(r == start)
            if n_left - done > 1:
                add_run_to_several(call, run, r, segment.n_runs, strips, size, n_strips, places, is_first)
                done += TOGETHER
            else:
                add_run_to_one(call, run, r, segment.n_runs, strips, size, n_strips, places, is_first)
                done += 1
        if run.is_last:
            n_left = drop_hopeless(n_left, block, np.int64(run.stage) + 1, segment, call)
            if n_left == 0:
                return n_left
    return drop_hopeless(n_left, block, segment.n_stages, segment, call)


@kernel
def find_rest(block, stage, segment):
    """Return the largest length of the rows of a block, in the metric, from the first dimension of a stage on."""
    place = (block - segment.first_dense_block) * segment.n_stages + stage
    return read(segment.dense_rests, place, np.float32)


@kernel
def drop_hopeless(n_left, block, stage, segment, call):
    """Fill `dense_found` of the first of `looking` before a stage, or after all; return how many may find any row.

    These come first then.
    """
    n_found, is_end = ZERO, stage == segment.n_stages
    rest = np.float32(0) if is_end else find_rest(block, stage, segment)
    for j in range(n_left):
        i, found = read(call.looking, j, np.int64), ~np.uint64(0)
        limit = read(call.dense_limits, i, np.float32)
        if not is_end:
            limit -= read(call.dense_tails, i * segment.n_stages + stage, np.float32) * rest
        if is_end or limit > 0:  # else there is no hope to drop any
            found = find_reaching(call.dense_totals + 4 * BLOCK * i, call.block_weights, limit)
        write(call.dense_found, i, found)
        if found:
            write(call.looking, n_found, i)
            n_found += 1
    return n_found


@kernel
def fill_estimates(row, n, segment, call, q, i):
    """Fill `block_scores`, as float64, with the estimates of n rows from `row` on for query q at place i of the tile.

    Invariant: none is off by more than `dense_slip` times the length of the longest row.
    """
    totals = view_row(call.dense_totals, i, BLOCK, np.float32)
    weights = view_row(call.block_weights, ZERO, BLOCK, np.float32)
    scores, step = view_row(call.block_scores, ZERO, BLOCK, np.float64), find_query(call, i).dense_step
    for j in range(BLOCK):  # of all: that is faster than one by one
        scores[j] = np.float64(totals[j]) * (step * np.float64(weights[j]))
    if segment.bias != 0:
        factor = np.float64(bias_scale(call, q))
        for j in range(n):
            scores[j] += read_bias(segment, row + j) * factor


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


def add_dense(
    scores: int, n: int, rows: int, first: int, group: int, segment: Any, call: Any, q: int, i: int, number: Any,
    real: Any,
) -> None:  # fmt: skip
    """Add the dense component, if the group has it, to the scores of n rows, for query q at place i of the tile.

    rows: the address of their numbers, or 0 for those from `first` on; scores: an address, of `number`.
    """


@overload(add_dense, jit_options=INNER)
def pick_add_dense(scores, n, rows, first, group, segment, call, q, i, number, real):
    """Pick what adds nothing, where no segment has a dense component, at compile time."""

    def add_nothing(scores, n, rows, first, group, segment, call, q, i, number, real):
        pass

    def add_products(scores, n, rows, first, group, segment, call, q, i, number, real):
        if segment.n_dense == 0 or not has_dense(segment, group):
            return
        start = read(segment.starts, group, np.int64)
        for j in range(n):
            place = (read(rows, j, np.int64) if rows else first + j) - start
            own = score_dense(place, group, segment, call, q, number, real)
            write(scores, j, number(read(scores, j, number) + own))

    return add_nothing if is_plain(segment) else add_products
