"""Every search kernel. They fill what they are given, allocate next to nothing and never validate.

Scores of codes are sums of ``query weight * item weight * (r - 2 * hamming)``. They stand in a block, whose dtype
(int32, int64 or float32) is the lane that the caller proved wide enough. Each score is the sum over components
from the lowest to the highest, whatever the grouping, so it does not depend on where an item stands.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

kernel = njit(cache=True, nogil=True)

BLOCK = 512  # rows scored at a time: scores, codes and weights of a block stay in the L1 cache


class Tables(NamedTuple):
    """A segment as the kernels see it. Group g holds the rows ``starts[g]`` to ``starts[g + 1]``."""

    starts: Any  # int64 (groups + 1,)
    slots: Any  # int64 (groups, G): where the group begins in component k's shard, -1 if it has no component k
    shards: Any  # int64 (G,): the address of the codes of component k's shard
    bases: Any  # int64 (G + 1,): where the weights of component k begin, which stand in the shard's order
    weights: Any  # uint8, uint16, uint32 or float32 (stored codes,)
    peaks: Any  # int64 or float64 (groups, G): the largest weight
    bias: Any  # int32 or float32 (n,), or empty
    bias_peaks: Any  # int64 or float64 (groups,): the largest bias
    first_id: Any  # int64
    id_offsets: Any  # uint32 or int64 (n,): row i has id first_id + id_offsets[i]; empty: first_id + i


class Filters(NamedTuple):
    """What must not be returned."""

    blocked: Any  # uint8, bit i for row i, or empty
    exclude_starts: Any  # int64 (nq + 1,)
    exclude_ids: Any  # int64, ascending for each query


@intrinsic
def popcount(context, word):
    """Return the number of one bits: LLVM's ctpop, which vectorises."""

    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return word(word), generate


@intrinsic
def pointer(context, address):
    """Return an integer address as a pointer for `carray`: how a kernel reads a faiss shard without a copy."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


@kernel
def item_id(row, first_id, id_offsets):
    """Return the id of a row."""
    if id_offsets.size == 0:
        return first_id + row
    return first_id + np.int64(id_offsets[row])


@kernel
def start_block(block, n, row, bias, bias_scale):
    """Set the first n scores to the rows' biases, or to zero."""
    if bias.size == 0:
        for i in range(n):
            block[i] = 0
    else:
        for i in range(n):
            block[i] = bias[row + i] * bias_scale


# O(n) for each component that the query and group g share. Invariant: row .. row + n lie in group g.
@kernel
def score_codes(block, n, row, g, t, words, query_weights, n_bits):
    """Add to `block` the scores of n rows from `row` on, for the query code `words` (G, W)."""
    n_words = words.shape[1]
    lane = block.dtype.type
    for k in range(words.shape[0]):
        query_weight = query_weights[k]
        if t.slots[g, k] < 0 or query_weight == 0:
            continue
        slot = t.slots[g, k] + row - t.starts[g]
        address = pointer(t.shards[k] + slot * n_words * words.itemsize)
        codes = carray(address, (n * n_words,), words.dtype)
        weights = t.weights[t.bases[k] + slot : t.bases[k] + slot + n]
        if n_words == 1:
            word = words[k, 0]
            for i in range(n):
                agreement = n_bits - 2 * np.int32(popcount(codes[i] ^ word))
                block[i] += query_weight * lane(weights[i]) * lane(agreement)
        else:
            for i in range(n):
                hamming = np.int32(0)
                for w in range(n_words):
                    hamming += np.int32(popcount(codes[i * n_words + w] ^ words[k, w]))
                block[i] += query_weight * lane(weights[i]) * lane(n_bits - 2 * hamming)


# O(32 d): entry v of a byte's table is the sum of its 8 values, each plus where v has a one and minus elsewhere.
@kernel
def fill_sums(query, n_bits, sums):
    """Fill `sums` (G, bytes of a code, 256) with the partial inner products of `query` (G * r,)."""
    values = np.zeros(8)
    for k in range(sums.shape[0]):
        for b in range(sums.shape[1]):
            for j in range(8):
                bit = 8 * b + j
                values[j] = query[k * n_bits + bit] if bit < n_bits else 0.0
            for v in range(256):
                total = 0.0
                for j in range(8):
                    total += values[j] if (v >> j) & 1 else -values[j]
                sums[k, b, v] = total


# O(n * r / 8) for each component of group g. Invariant: row .. row + n lie in group g.
@kernel
def score_vector(block, n, row, g, t, sums, code_size):
    """Add to `block` the scores of n rows for a real-valued query, given by its `sums` for every byte of a code."""
    for k in range(sums.shape[0]):
        if t.slots[g, k] < 0:
            continue
        slot = t.slots[g, k] + row - t.starts[g]
        codes = carray(pointer(t.shards[k] + slot * code_size), (n * code_size,), np.uint8)
        weights = t.weights[t.bases[k] + slot : t.bases[k] + slot + n]
        for i in range(n):
            total = np.float32(0)
            for b in range(sums.shape[1]):
                total += sums[k, b, codes[i * code_size + b]]
            block[i] += np.float32(weights[i]) * total


@kernel
def is_excluded(identity, excluded):
    """Binary search in the query's ascending excluded ids."""
    low, high = 0, excluded.size
    while low < high:
        middle = (low + high) // 2
        if excluded[middle] < identity:
            low = middle + 1
        else:
            high = middle
    return low < excluded.size and excluded[low] == identity


# O(log k). Invariant: entry 0 is the worst of the heap, the lowest score or, among equals, the largest id.
@kernel
def replace_worst(scores, ids, score, identity):
    """Put (score, id) in the place of the heap's worst entry."""
    k = scores.size
    place = 0
    while True:
        child = 2 * place + 1
        if child >= k:
            break
        other = child + 1
        if other < k and (
            scores[other] < scores[child] or (scores[other] == scores[child] and ids[other] > ids[child])
        ):
            child = other
        if scores[child] > score or (scores[child] == score and ids[child] < identity):
            break
        scores[place], ids[place] = scores[child], ids[child]
        place = child
    scores[place], ids[place] = score, identity


# O(n), vectorised. `lane` holds the limits of the block's dtype, which the heap's may exceed.
@kernel
def any_reaches(block, n, worst, lane):
    """Return whether any of the first n scores is at least `worst`: for most blocks none is."""
    if worst > lane[1]:
        return False
    limit = block.dtype.type(max(worst, lane[0]))
    reached = np.int32(0)
    for i in range(n):
        reached += np.int32(block[i] >= limit)
    return reached > 0


# O(n + candidates * log k).
@kernel
def offer(block, n, row, t, blocked, excluded, scores, ids):
    """Offer n scored rows to the heap; rows that are blocked or excluded do not count."""
    for i in range(n):
        score = block[i]
        if score < scores[0]:
            continue
        if blocked.size and (blocked[(row + i) >> 3] >> ((row + i) & 7)) & 1:
            continue
        identity = item_id(row + i, t.first_id, t.id_offsets)
        if score == scores[0] and identity > ids[0]:
            continue
        if excluded.size and is_excluded(identity, excluded):
            continue
        replace_worst(scores, ids, score, identity)


# O(G). Invariant: no score of group g exceeds it; `slack` covers the rounding of float lanes (0 for integers).
@kernel
def group_bound(g, t, reach, bias_scale, slack):
    """Return sum_k reach[k] * peaks[g, k] + bias, where reach[k] bounds what weight 1 in component k can score."""
    total = reach[0] * t.peaks[g, 0]
    for k in range(1, reach.size):
        total += reach[k] * t.peaks[g, k]
    bias = t.bias_peaks[g] * bias_scale
    return total + bias + slack * (total + abs(bias))


# Blocks outside, queries inside: a block comes from memory once for all queries of a chunk.
@kernel
def scan_codes(t, filters, words, query_weights, reach, bias_scales, n_bits, slack, prune, lane, scores, ids):
    """Offer all items of a segment to the heaps (`scores`, `ids`), each (nq, k), of coded queries."""
    block = np.empty(BLOCK, lane.dtype)
    for g in range(t.starts.size - 1):
        for row in range(t.starts[g], t.starts[g + 1], BLOCK):
            n = min(BLOCK, t.starts[g + 1] - row)
            for q in range(words.shape[0]):
                if prune and scores[q, 0] > group_bound(g, t, reach[q], bias_scales[q], slack):
                    continue
                start_block(block, n, row, t.bias, bias_scales[q])
                score_codes(block, n, row, g, t, words[q], query_weights[q], n_bits)
                if any_reaches(block, n, scores[q, 0], lane):
                    excluded = filters.exclude_ids[filters.exclude_starts[q] : filters.exclude_starts[q + 1]]
                    offer(block, n, row, t, filters.blocked, excluded, scores[q], ids[q])


# Queries outside: the tables of byte sums (32 d floats) stay in the cache for one query.
@kernel
def scan_vectors(t, filters, queries, reach, n_bits, code_size, slack, prune, lane, scores, ids):
    """Offer all items of a segment to the heaps of real-valued queries (nq, G * r)."""
    block = np.empty(BLOCK, lane.dtype)
    sums = np.empty((t.slots.shape[1], (n_bits + 7) // 8, 256), np.float32)
    for q in range(queries.shape[0]):
        fill_sums(queries[q], n_bits, sums)
        excluded = filters.exclude_ids[filters.exclude_starts[q] : filters.exclude_starts[q + 1]]
        for g in range(t.starts.size - 1):
            bound = group_bound(g, t, reach[q], 1.0, slack)
            for row in range(t.starts[g], t.starts[g + 1], BLOCK):
                if prune and scores[q, 0] > bound:
                    break
                n = min(BLOCK, t.starts[g + 1] - row)
                start_block(block, n, row, t.bias, np.float32(1))
                score_vector(block, n, row, g, t, sums, code_size)
                if any_reaches(block, n, scores[q, 0], lane):
                    offer(block, n, row, t, filters.blocked, excluded, scores[q], ids[q])


@kernel
def all_scores_codes(t, words, query_weights, bias_scale, n_bits, scores):
    """Fill `scores` (n,) with the score of every row of a segment for one coded query."""
    for g in range(t.starts.size - 1):
        block = scores[t.starts[g] : t.starts[g + 1]]
        start_block(block, block.size, t.starts[g], t.bias, bias_scale)
        score_codes(block, block.size, t.starts[g], g, t, words, query_weights, n_bits)


@kernel
def all_scores_vector(t, query, n_bits, code_size, scores):
    """Fill `scores` (n,) with the score of every row of a segment for one real-valued query."""
    sums = np.empty((t.slots.shape[1], (n_bits + 7) // 8, 256), np.float32)
    fill_sums(query, n_bits, sums)
    for g in range(t.starts.size - 1):
        block = scores[t.starts[g] : t.starts[g + 1]]
        start_block(block, block.size, t.starts[g], t.bias, np.float32(1))
        score_vector(block, block.size, t.starts[g], g, t, sums, code_size)


# O(k log k) for each query: taking out the worst entry again and again leaves the best first.
@kernel
def sort_heaps(scores, ids):
    """Order each heap of (nq, k) by score descending, then id ascending."""
    for q in range(scores.shape[0]):
        for last in range(scores.shape[1] - 1, 0, -1):
            score, identity = scores[q, 0], ids[q, 0]
            replace_worst(scores[q, :last], ids[q, :last], scores[q, last], ids[q, last])
            scores[q, last], ids[q, last] = score, identity


# O(log n) for each wanted id. Invariant: `order` lists the rows by ascending id; empty where they stand so.
@kernel
def find_rows(wanted, first_id, id_offsets, order, n, rows):
    """Fill `rows` with the row of each wanted id, or -1."""
    for i in range(wanted.size):
        low, high = 0, n
        while low < high:
            middle = (low + high) // 2
            row = np.int64(order[middle]) if order.size else middle
            if item_id(row, first_id, id_offsets) < wanted[i]:
                low = middle + 1
            else:
                high = middle
        rows[i] = -1
        if low < n:
            row = np.int64(order[low]) if order.size else low
            if item_id(row, first_id, id_offsets) == wanted[i]:
                rows[i] = row
