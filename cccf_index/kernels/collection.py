"""What a query collects while it looks at a segment: rows that may be good enough, with estimates of their scores.

A histogram counts how many rows certainly reach an estimate, so it is known at any time what the k best rows reach at
least, the `worst` of the query. Rows are scored exactly in the end, and only those that the known error of their
estimates cannot rule out. One sort makes the result of them.

An estimate is a sketch, of whatever shift, plus the item's bias, in units of 1 / FINE of a sketch.
"""

import numpy as np

from cccf_index.kernels.bounds import TINY
from cccf_index.kernels.calls import BINS, BUCKETS
from cccf_index.kernels.decorators import ONE, ZERO, kernel
from cccf_index.kernels.heaps import EMPTY_ID
from cccf_index.kernels.limits import BLOCK, MAX_SHIFT
from cccf_index.kernels.lookup import read_id
from cccf_index.kernels.memory import bits_to_float, find_query, float_to_bits, lowest_bit, read, view_row, write
from cccf_index.kernels.scoring import score_scattered
from cccf_index.kernels.sorting import rank_score, sort_found, unrank
from cccf_index.kernels.stored import bias_scale, read_bias

FINE = 2**MAX_SHIFT  # estimates for 1 of a sketch
FAR = 2.0**30  # estimates lie between -FAR and FAR
MANTISSA = 6  # bits of an estimate, after its leading one, that tell its bin: 1.6 %
LEADING = 23 - MANTISSA  # bits of a float32 that do not
FIRST = (127 + MAX_SHIFT) << MANTISSA  # these bits of FINE: where estimates are not worth telling apart
ZERO_BIN = BINS // 2
STRIDE = 16  # bins that are skipped at a time
assert ((127 + 31) << MANTISSA) - FIRST < ZERO_BIN


# O(cells + BINS).
@kernel
def start_collection(segment, call, q, i):
    """Start to collect for query q at place i of the tile, which has been measured against all cells."""
    query, n_cells, bias = find_query(call, i), segment.n_cells, np.float64(bias_scale(call, q))
    largest = 0.0
    for c in range(call.first_cell, n_cells):
        place = i * n_cells + c
        peak = read(segment.bias_peaks, c, np.float64) * bias
        largest = max(largest, read(call.caps, place, np.float32) + abs(peak))
        if not call.exact:
            write(call.slips, place, np.float32(0))
    if not call.exact:
        query.floors, query.weight_slip, query.dense_slip = 0.0, 0.0, 0.0
    query.rounding = call.slack * largest + TINY
    query.worst = unrank(read(call.ranks, q * call.k, np.int64), call.is_float)
    query.n, query.above = 0, 0
    # No estimate is larger, nor of those below zero any smaller: an error is no larger than a score may be.
    most = 2 * largest / query.unit + segment.n_components + 2
    query.bin = query.first_bin = find_bin(-np.int64(min(most * FINE, FAR)))
    for b in range(i * BINS + query.bin, (i + 1) * BINS - query.bin + STRIDE):
        write(call.bins, b, np.int32(0))


@kernel
def find_bin(estimate):
    """Return the bin of an estimate: its leading bits, so that bins are narrow where estimates are small."""
    size = (np.int64(float_to_bits(np.float32(abs(estimate) + FINE))) >> LEADING) - FIRST
    return ZERO_BIN + size if estimate >= 0 else ZERO_BIN - size - 1


@kernel
def find_edge(b):
    """Return the lowest estimate of a bin, or less."""
    size = b - ZERO_BIN if b >= ZERO_BIN else ZERO_BIN - b
    edge = np.float64(bits_to_float(np.int32((FIRST + size) << LEADING))) - FINE
    return np.floor(edge) if b >= ZERO_BIN else -np.ceil(edge)


# O(bins between two values of `worst`).
@kernel
def raise_worst(query, bins, k):
    """Let `worst` follow the histogram at an address; return whether it is higher than before."""
    b, above = query.bin, query.above
    if above < k:
        return False
    while above - read(bins, b, np.int32) >= k:
        several = np.int64(0)
        for j in range(STRIDE):
            several += read(bins, b + j, np.int32)
        if above - several < k:
            break
        above -= several
        b += STRIDE
    while above - read(bins, b, np.int32) >= k:
        above -= read(bins, b, np.int32)
        b += 1
    query.bin, query.above = b, above
    certain = find_edge(query.bin) * (query.unit / FINE) - query.rounding
    if certain <= query.worst:
        return False
    query.worst = certain
    return True


@kernel
def estimate_bias(segment, row, factor, unit):
    """Return the bias of a row times `factor`, in units of sketches, rounded down."""
    return np.int64(min(max(np.floor(read_bias(segment, row) * factor / unit), -FAR), FAR))


# O(1) for each row. Invariant: all rows of the segment so far that may be among the k best are in the buffer or heap.
@kernel
def collect_rows(found, row, group, shift, error, has_sketches, segment, call, q, i):
    """Collect the rows of a block that a mask tells, bit j for ``row + j``, and count those that are certainly good.

    Return whether the query's `worst` has risen. There must be space for a block. shift, error: of the block's
    sketches; without sketches its exact scores are estimates.
    """
    query, size = find_query(call, i), call.capacity
    n, above, bins = i * size + query.n, query.above, call.bins + 4 * i * BINS
    unit, b, k, shift = query.unit / FINE, query.bin, call.k, MAX_SHIFT - shift
    rows, groups, estimates, errors = call.rows, call.groups, call.estimates, call.errors
    sketches, has_bias, last = call.sketches, segment.bias != 0, BINS - query.first_bin
    off = np.int64(min(np.ceil(error * FINE), FAR)) + (1 if call.exact and (has_bias or not has_sketches) else 0)
    factor = np.float64(bias_scale(call, q))
    while found:
        j = np.int64(lowest_bit(found))
        found &= found - np.uint64(1)
        if has_sketches:
            estimate = np.int64(read(sketches, j, np.int16)) << shift
            if has_bias:
                estimate += estimate_bias(segment, row + j, factor, unit)
        else:
            score = read(call.block_scores, j, np.float64)
            estimate = np.int64(min(max(np.floor(score / unit), -FAR), FAR))
        write(rows, n, row + j)
        write(groups, n, np.int32(group))
        write(estimates, n, np.int32(estimate))
        write(errors, n, np.int32(off))
        n += 1
        reached = min(find_bin(estimate - off), last)
        if reached >= b:
            write(bins, reached, np.int32(read(bins, reached, np.int32) + 1))
            above += 1
    query.n, query.above = n - i * size, above
    return raise_worst(query, bins, k)


@kernel
def find_least(query):
    """Return the estimate that a row must reach to be good enough, with its error."""
    least = np.floor((query.worst - query.rounding) / query.unit * FINE)
    return np.int64(min(max(least, -4 * FAR), 4 * FAR))


@kernel
def make_space(call, i):
    """Drop collected rows that are not good enough any more; return whether enough are."""
    query, n, size = find_query(call, i), 0, call.capacity
    rows, groups = view_row(call.rows, i, size, np.int64), view_row(call.groups, i, size, np.int32)
    estimates, errors = view_row(call.estimates, i, size, np.int32), view_row(call.errors, i, size, np.int32)
    least = find_least(query)
    for j in range(query.n):
        if np.int64(estimates[j]) + errors[j] >= least:
            rows[n], groups[n], estimates[n], errors[n] = rows[j], groups[j], estimates[j], errors[j]
            n += 1
    query.n = n
    return n + max(BLOCK, size // 4) <= size


# O(n) exact scores, as many at a time as stand in one group.
@kernel
def score_chosen(segment, call, q, i, first, last, word, number, real):
    """Rank the chosen rows `first` to `last` by their scores, exactly if that is wanted.

    Their rows stand in `identities`, their groups in `sort_places`, their estimates in `sort_keys`.
    """
    most = call.capacity + call.k
    groups, unit = view_row(call.sort_places, 0, most, np.int32), find_query(call, i).unit / FINE
    while first < last and call.exact:
        group, stop = groups[first], first + 1
        while stop < last and groups[stop] == group:
            stop += 1
        scores, rows = call.chosen_ranks + 8 * first, call.identities + 8 * first
        score_scattered(scores, stop - first, rows, np.int64(group), segment, call, q, i, word, number, real)
        for j in range(stop - first - 1, -1, -1):  # the last first, as ranks may need more room
            write(scores, j, rank_score(read(scores, j, number)))
        first = stop
    for j in range(first, last):
        write(call.chosen_ranks, j, rank_score(number(read(call.sort_keys, j, np.int64) * unit)))


@kernel
def choose_rows(call, i, n, certain, least, are_certain):
    """Choose collected rows: those that certainly reach `certain`, or the others that may reach `least`.

    Put them behind the n rows that have been chosen, and return how many there are. are_certain: 1 or 0.
    """
    size = call.capacity
    rows, groups = call.rows + 8 * i * size, call.groups + 4 * i * size
    estimates, errors = call.estimates + 4 * i * size, call.errors + 4 * i * size
    for j in range(find_query(call, i).n):
        estimate, error = np.int64(read(estimates, j, np.int32)), np.int64(read(errors, j, np.int32))
        is_certain = 1 if estimate - error >= certain else 0
        if is_certain == are_certain and (are_certain or estimate + error >= least):
            write(call.identities, n, read(rows, j, np.int64))
            write(call.sort_places, n, read(groups, j, np.int32))
            write(call.sort_keys, n, estimate)
            n += 1
    return n


# O(n) exact scores and a sort of n rows.
@kernel
def settle(segment, call, q, i, word, number, real):
    """Score what query q has collected, as far as it may be good enough, and put the best into its heap, sorted.

    First come the rows that are certainly good: the worst of them tells which of the others may be good enough.
    """
    query, k, n, certain = find_query(call, i), call.k, ZERO, np.int64(8 * FAR)
    if query.above >= k:
        certain = np.int64(find_edge(query.bin))
        n = choose_rows(call, i, ZERO, certain, ZERO, ONE)
        score_chosen(segment, call, q, i, ZERO, n, word, number, real)
    if n >= k and call.exact:
        worst = read(call.chosen_ranks, ZERO, np.int64)
        for j in range(1, n):
            worst = min(worst, read(call.chosen_ranks, j, np.int64))
        query.worst = max(query.worst, unrank(worst, call.is_float))
    n_certain = n
    n = choose_rows(call, i, n, certain, find_least(query), ZERO)
    score_chosen(segment, call, q, i, n_certain, n, word, number, real)
    if not segment.by_row:
        for j in range(n):
            write(call.identities, j, read_id(segment, read(call.identities, j, np.int64)))
    query.n = 0
    merge_sorted(call, q, n)
    query.worst = max(query.worst, unrank(read(call.ranks, q * k, np.int64), call.is_float))


@kernel
def merge_sorted(call, q, n):
    """Put the best of n ranked rows and of the heap of query q into the heap, sorted, the worst first."""
    k, most = call.k, call.capacity + call.k
    heap_ranks, heap_ids = view_row(call.ranks, q, k, np.int64), view_row(call.ids, q, k, np.int64)
    ranks, ids = view_row(call.chosen_ranks, 0, most, np.int64), view_row(call.identities, 0, most, np.int64)
    for j in range(k):
        if heap_ids[j] != EMPTY_ID:
            ranks[n], ids[n] = heap_ranks[j], heap_ids[j]
            n += 1
    keys, spare_keys = view_row(call.sort_keys, 0, most, np.uint64), view_row(call.sort_keys, 1, most, np.uint64)
    order, spare_order = view_row(call.sort_places, 0, most, np.int32), view_row(call.sort_places, 1, most, np.int32)
    counts = view_row(call.sort_counts, 0, BUCKETS, np.int32)
    sort_found(ranks, ids, n, keys, order, spare_keys, spare_order, counts)
    for j in range(min(n, k)):
        heap_ranks[k - 1 - j], heap_ids[k - 1 - j] = ranks[order[j]], ids[order[j]]
