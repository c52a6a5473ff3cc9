"""Every search kernel. They fill what they are given, allocate next to nothing and never validate.

A score is a sum of ``query weight * item weight * (r - 2 * hamming)`` over components from the lowest to the highest,
whatever the grouping, so it does not depend on where an item stands. A search goes through *blocks* of 64 rows, the
likeliest first. A block whose bound is below the k-th best score is skipped; of the others a *sketch* of the scores, in
16-bit lanes, tells the few rows that may be good enough, and only those are scored exactly.
"""

import numpy as np
from numba import types
from numba.extending import overload

from cccf_index.kernels.block import BLOCK, array_at, at, lowest_bit, popcount, reaching, table
from cccf_index.kernels.heaps import EMPTY_ID, OPTIONS, allocating, entry, kernel, replace_worst, sift_down
from cccf_index.kernels.layout import Batch, Filters, Room
from cccf_index.kernels.sketches import fill_sums, measure_cells, sketch_code, sketch_vector

TINY = 1e-37  # below, the rounding of float32 is not relative any more
LIKELY = 0.3  # good items have about this share of what their distance from the centre could add to their score
PROBES = 24  # blocks that are scored, the likeliest first, before all others in their order
TILE = 16  # queries that look at a block while it is in the first cache
MANY = 8  # rows of a block that are scored together rather than one by one


@kernel
def item_id(t, row):
    """Return the id of a row."""
    if t.id_offsets == 0:
        return t.first_id + row
    if t.id_size == 4:
        return t.first_id + np.int64(at(t.id_offsets, row, np.uint32))
    return t.first_id + at(t.id_offsets, row, np.int64)


@kernel
def start_scores(scores, n, row, t, bias_scale):
    """Set the first n scores to the rows' biases, or to zero."""
    lane = scores.dtype.type
    for i in range(n):
        if t.bias == 0:
            scores[i] = 0
        elif t.float_bias:
            scores[i] = lane(at(t.bias, row + i, np.float32)) * bias_scale
        else:
            scores[i] = lane(at(t.bias, row + i, np.int32)) * bias_scale


# O(n) for each component that the query and group g share. Invariant: row .. row + n lie in group g.
@kernel
def score_codes(scores, n, row, g, t, items, words, query_weights, n_bits):
    """Add the scores of n rows from `row` on, for the query code `words` (G, W)."""
    n_words = words.shape[1]
    lane = scores.dtype.type
    for k in range(t.n_components):
        slot = at(t.slots, g * t.n_components + k, np.int64)
        query_weight = query_weights[k]
        if slot < 0 or query_weight == 0:
            continue
        slot += row - at(t.starts, g, np.int64)
        codes = array_at(at(t.shards, k, np.int64) + slot * n_words * words.itemsize, n * n_words, words)
        weights = array_at(t.weights + (at(t.bases, k, np.int64) + slot) * items.itemsize, n, items)
        if n_words == 1:
            word = words[k, 0]
            for i in range(n):
                agreement = n_bits - 2 * np.int32(popcount(codes[i] ^ word))
                scores[i] += query_weight * lane(weights[i]) * lane(agreement)
        else:
            for i in range(n):
                hamming = np.int32(0)
                for w in range(n_words):
                    hamming += np.int32(popcount(codes[i * n_words + w] ^ words[k, w]))
                scores[i] += query_weight * lane(weights[i]) * lane(n_bits - 2 * hamming)


# O(n * r / 4) for each component of group g. Invariant: row .. row + n lie in group g.
@kernel
def score_vector(scores, n, row, g, t, items, sums, code_size, n_bits):
    """Add the scores of n rows for a real-valued query, given by its `sums` for every nibble of a code."""
    n_nibbles = (n_bits + 3) // 4
    for k in range(t.n_components):
        slot = at(t.slots, g * t.n_components + k, np.int64)
        if slot < 0:
            continue
        slot += row - at(t.starts, g, np.int64)
        codes = array_at(at(t.shards, k, np.int64) + slot * code_size, n * code_size, np.uint8)
        weights = array_at(t.weights + (at(t.bases, k, np.int64) + slot) * items.itemsize, n, items)
        for i in range(n):
            total = np.float32(0)
            for b in range(n_nibbles):
                octet = np.int64(codes[i * code_size + (b >> 1)])
                total += sums[(k * n_nibbles + b) * 16 + ((octet >> (4 * (b & 1))) & 15)]
            scores[i] += np.float32(weights[i]) * total


def is_real(batch):
    """Tell by its type whether a batch is of vectors."""
    return batch.types[batch.fields.index("bias_scales")].dtype == types.float64


def score(scores, n, row, g, t, batch, q, sums):
    """Add the scores of n rows from `row` on, of group g, for query q."""


@overload(score, jit_options=OPTIONS)
def choose_score(scores, n, row, g, t, batch, q, sums):
    """Choose how to score when the kernel is compiled."""
    if not is_real(batch):

        def score_coded(scores, n, row, g, t, batch, q, sums):
            score_codes(scores, n, row, g, t, batch.items, batch.words[q], batch.values[q], batch.n_bits)

        return score_coded

    def score_real(scores, n, row, g, t, batch, q, sums):
        code_size = batch.words.shape[2] * batch.words.itemsize
        score_vector(scores, n, row, g, t, batch.items, sums, code_size, batch.n_bits)

    return score_real


def sketch(batch, q, t, s, i):
    """Prepare query q at place i of the tile; return what one unit of ``factor * agreement`` is worth."""


@overload(sketch, jit_options=OPTIONS)
def choose_sketch(batch, q, t, s, i):
    """Choose how to when the kernel is compiled."""
    if not is_real(batch):

        def sketch_coded(batch, q, t, s, i):
            planes, factors = s.planes[i], s.factors[i]
            return sketch_code(batch.words[q], batch.values[q], batch.n_bits, t, s.vector, s.reach, planes, factors)

        return sketch_coded

    def sketch_real(batch, q, t, s, i):
        query, n_bits, n_words = batch.values[q], batch.n_bits, batch.words.shape[2]
        fill_sums(query, n_bits, t.n_components, s.sums[i])
        return sketch_vector(
            query, n_bits, n_words, batch.n_planes, t, s.vector, s.reach, s.planes[i], s.factors[i]
        )  # fmt: skip

    return sketch_real


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


@kernel
def offer(score, row, t, blocked, excluded, scores, ids):
    """Offer a row to the heap, unless it is blocked or excluded."""
    if score < scores[0]:
        return
    if blocked.size and (blocked[row >> 3] >> (row & 7)) & 1:
        return
    identity = item_id(t, row)
    if excluded.size and is_excluded(identity, excluded):
        return
    identity = row if t.by_row else identity
    if score > scores[0] or identity < ids[0]:
        replace_worst(scores, ids, score, identity)


# Invariant: an item of cell c scores less than the worst of the heap if it is nearer, or sketched lower.
@kernel
def needs(worst, c, t, bias_scale, slack, product, cap, norm, unit, slip):
    """Return how far from the centre of cell c a row must be to be good enough, and what its sketch must reach."""
    bias = at(t.bias_peaks, c, np.float64) * bias_scale
    least = worst - bias - slack * (abs(worst) + abs(bias)) - TINY
    limit = np.int16(min(max(np.floor(least / unit - slip), -32768.0), 32767.0))
    if cap < least:
        return np.inf, limit
    return (least - product) / norm if norm > 0 else least, limit


@kernel
def likely_score(c, block, t, bias_scale, product, cap, norm):
    """Return what the best of a block of cell c may well score; minus infinity if there is no such block."""
    if block >= at(t.block_starts, c + 1, np.int64):
        return -np.inf
    likely = product + LIKELY * norm * at(t.radii, block, np.float32)
    return min(likely, np.float64(cap)) + at(t.bias_peaks, c, np.float64) * bias_scale


@kernel
def window(c, block, t):
    """Return where to read a block of cell c: its group, the first row, how many, and as a mask those of the block.

    They are 64 rows of the group, also where the block has fewer, or all rows of a group that has fewer.
    """
    g = at(t.cell_groups, c, np.int64)
    start, stop = at(t.starts, g, np.int64), at(t.starts, g + 1, np.int64)
    row = at(t.cell_starts, c, np.int64) + (block - at(t.block_starts, c, np.int64)) * BLOCK
    n = min(BLOCK, at(t.cell_starts, c + 1, np.int64) - row)
    first = max(start, min(row, stop - BLOCK))
    return g, first, min(BLOCK, stop - first), (~np.uint64(0) >> np.uint64(BLOCK - n)) << np.uint64(row - first)


# O(G + log k) for each row.
@kernel
def score_found(found, g, row, n, t, blocked, excluded, batch, q, sums, room, scores, ids):
    """Offer those of n rows from `row` on that a mask tells to the heap of query q."""
    together = popcount(found) > MANY
    if together:
        start_scores(room, n, row, t, batch.bias_scales[q])
        score(room, n, row, g, t, batch, q, sums)
    while found:
        place = np.int64(lowest_bit(found))
        found &= found - np.uint64(1)
        if not together:
            start_scores(room[place:], 1, row + place, t, batch.bias_scales[q])
            score(room[place:], 1, row + place, g, t, batch, q, sums)
        offer(room[place], row + place, t, blocked, excluded, scores, ids)


# O(cells * d + budget * (G + log cells)).
@kernel
def probe(t, filters, batch, q, s, i, budget, scores, ids):
    """Prepare query q at place i of the tile, and offer the `budget` likeliest blocks to its heap."""
    n_words, top = batch.words.shape[2], np.int16(batch.n_bits * (2**batch.n_planes - 1))
    products, caps, slips, next_block = s.products[i], s.caps[i], s.slips[i], s.next_block[i]
    bias_scale, slack = np.float64(batch.bias_scales[q]), batch.slack
    unit = sketch(batch, q, t, s, i) * 512 * t.step
    norm = measure_cells(t, s.vector, s.reach, products, caps, slips)
    s.units[i], s.norms[i] = unit, norm
    for c in range(t.n_cells):
        next_block[c] = at(t.block_starts, c, np.int64)
        s.heap[c] = c
        s.keys[c] = likely_score(c, next_block[c], t, bias_scale, products[c], caps[c], norm)
    for place in range(t.n_cells // 2 - 1, -1, -1):
        sift_down(s.heap, s.keys, place)
    excluded = filters.exclude_ids[filters.exclude_starts[q] : filters.exclude_starts[q + 1]]
    at_once = 1 + budget // 64  # blocks of a cell before the heap is put in order again
    while budget > 0 and s.keys[s.heap[0]] > -np.inf:
        c = s.heap[0]
        for _ in range(at_once):
            block, worst = next_block[c], np.float64(scores[0])
            s.keys[c] = likely_score(c, block, t, bias_scale, products[c], caps[c], norm)
            if s.keys[c] == -np.inf:
                break
            need, limit = needs(worst, c, t, bias_scale, slack, products[c], caps[c], norm, unit, slips[c])
            if at(t.radii, block, np.float32) < need:
                s.keys[c] = -np.inf
                break
            g, row, n, found = window(c, block, t)
            if n == BLOCK:
                first = row - at(t.starts, g, np.int64)
                found &= reaching(t, g, first, n_words, s.planes[i], batch.n_planes, s.factors[i], top, limit)
            if found:
                blocked = filters.blocked
                score_found(found, g, row, n, t, blocked, excluded, batch, q, s.sums[i], s.scores, scores, ids)
            next_block[c] = block + 1
            budget -= 1
        if s.keys[c] > -np.inf:
            s.keys[c] = likely_score(c, next_block[c], t, bias_scale, products[c], caps[c], norm)
        sift_down(s.heap, s.keys, 0)


# Blocks outside, queries inside: a block comes into the first cache once for all queries of a tile.
@kernel
def sweep(t, filters, batch, start, n, s, scores, ids):
    """Offer all other blocks that may hold a good item to the heaps of the queries `start` to `start + n`."""
    n_words, top = batch.words.shape[2], np.int16(batch.n_bits * (2**batch.n_planes - 1))
    for c in range(t.n_cells):
        first, stop = at(t.block_starts, c, np.int64), at(t.block_starts, c + 1, np.int64)
        for block in range(first, stop):
            wanted = False
            g, row, n_rows, rows = window(c, block, t)
            offset = row - at(t.starts, g, np.int64)
            for i in range(n):
                q = start + i
                if block == first:
                    s.stale[i] = True
                if s.stale[i]:
                    s.needs[i], s.limits[i] = needs(
                        np.float64(scores[q, 0]), c, t, np.float64(batch.bias_scales[q]), batch.slack,
                        s.products[i, c], s.caps[i, c], s.norms[i], s.units[i], s.slips[i, c],
                    )  # fmt: skip
                    s.stale[i] = False
                if at(t.radii, block, np.float32) < s.needs[i]:
                    continue
                wanted = True
                if block < s.next_block[i, c]:
                    continue
                found = rows
                if n_rows == BLOCK:
                    found &= reaching(
                        t, g, offset, n_words, s.planes[i], batch.n_planes, s.factors[i], top, s.limits[i]
                    )  # fmt: skip
                if found:
                    excluded = filters.exclude_ids[filters.exclude_starts[q] : filters.exclude_starts[q + 1]]
                    score_found(
                        found, g, row, n_rows, t, filters.blocked, excluded, batch, q, s.sums[i], s.scores, scores[q],
                        ids[q],
                    )  # fmt: skip
                    s.stale[i] = True
            if not wanted:  # nor is any after it
                break


@allocating
def new_room(t, batch, tile):
    """Allocate what a tile of queries needs."""
    n_components = t.n_components
    n_nibbles = 0 if batch.n_planes == 1 else (batch.n_bits + 3) // 4
    cells, places = np.empty((3 * tile + 1, t.n_cells), np.float32), np.empty((tile + 1, t.n_cells), np.int64)
    numbers = np.empty((3, tile))
    factors = np.empty((tile + 2, max(tile, n_components)), np.int16)
    return Room(
        np.empty(n_components * batch.n_bits, np.float32), np.empty((3, n_components), np.float32),
        np.empty((tile, n_components * batch.words.shape[2] * batch.n_planes), batch.words.dtype),
        factors[:tile, :n_components], np.empty((tile, n_components * n_nibbles * 16), np.float32),
        cells[:tile], cells[tile : 2 * tile], cells[2 * tile : 3 * tile], places[:tile], cells[3 * tile], places[tile],
        numbers[0], numbers[1], numbers[2], factors[tile], factors[tile + 1], np.empty(BLOCK, batch.values.dtype),
    )  # fmt: skip


# O(cells * d) for each query, and O(G) for each row of the blocks that no bound excludes.
@kernel
def search(t, filters, batch, budget, exact, s, scores, ids):
    """Offer a segment's items to the heaps (`scores`, `ids`), each (nq, k): the `budget` likeliest blocks first.

    If `exact`, then all others that may hold an item that is good enough.
    """
    nq = scores.shape[0]
    for first in range(0, nq, TILE):
        n = min(TILE, nq - first)
        for i in range(n):
            probe(t, filters, batch, first + i, s, i, budget, scores[first + i], ids[first + i])
        if exact:
            sweep(t, filters, batch, first, n, s, scores, ids)


# Arguments of what Python calls come one by one: to unpack them from tuples would take longer than a query.
@allocating
def search_segment(
    handle, blocked, exclude_starts, exclude_ids, words, values, bias_scales, items, n_bits, n_planes, slack, budget,
    exact, scores, ids,
):  # fmt: skip
    """Search a segment; see `Filters`, `Batch` and `search`."""
    t, filters = table(handle), Filters(blocked, exclude_starts, exclude_ids)
    batch = Batch(words, values, bias_scales, items, n_bits, n_planes, slack)
    search(t, filters, batch, budget, exact, new_room(t, batch, min(scores.shape[0], TILE)), scores, ids)


@kernel
def score_rows(t, batch, q, s, scores):
    """Fill `scores` (n,) with the exact score of every row of a segment for query q."""
    sketch(batch, q, t, s, 0)
    for g in range(t.n_groups):
        start, stop = at(t.starts, g, np.int64), at(t.starts, g + 1, np.int64)
        part = scores[start:stop]
        start_scores(part, part.size, start, t, batch.bias_scales[q])
        score(part, part.size, start, g, t, batch, q, s.sums[0])


@allocating
def score_segment(handle, words, values, bias_scales, items, n_bits, n_planes, slack, q, scores):
    """Fill `scores` (n,) with the exact score of every row of a segment for query q; see `Batch`."""
    t, batch = table(handle), Batch(words, values, bias_scales, items, n_bits, n_planes, slack)
    score_rows(t, batch, q, new_room(t, batch, 1), scores)


@allocating
def scan_segment(
    handle, blocked, exclude_starts, exclude_ids, words, values, bias_scales, items, n_bits, n_planes, slack, scores,
    ids,
):  # fmt: skip
    """Offer all items of a segment to the heaps, each scored exactly: what `search_segment` must agree with."""
    t, batch = table(handle), Batch(words, values, bias_scales, items, n_bits, n_planes, slack)
    s, every = new_room(t, batch, 1), np.empty(at(t.starts, t.n_groups, np.int64), values.dtype)
    for q in range(scores.shape[0]):
        score_rows(t, batch, q, s, every)
        excluded = exclude_ids[exclude_starts[q] : exclude_starts[q + 1]]
        for row in range(every.size):
            offer(every[row], row, t, blocked, excluded, scores[q], ids[q])


# O(G * r + log groups) for each row.
@allocating
def rank_rows(handle, words, values, bias_scales, items, n_bits, n_planes, slack, rows, scores, ids):
    """Offer the given rows of each query (nq, any), as far as they are not empty, to the heaps; see `Batch`."""
    t, batch = table(handle), Batch(words, values, bias_scales, items, n_bits, n_planes, slack)
    s = new_room(t, batch, 1)
    nothing, no_bits = np.empty(0, np.int64), np.empty(0, np.uint8)
    for q in range(rows.shape[0]):
        sketch(batch, q, t, s, 0)
        for row in rows[q]:
            if row != EMPTY_ID:
                g = np.searchsorted(array_at(t.starts, t.n_groups + 1, np.int64), row, side="right") - 1
                start_scores(s.scores, 1, row, t, batch.bias_scales[q])
                score(s.scores, 1, row, g, t, batch, q, s.sums[0])
                offer(s.scores[0], row, t, no_bits, nothing, scores[q], ids[q])


# O(log n) for each wanted id. Invariant: `order` lists the rows by ascending id.
@entry
def find_rows(handle, wanted, order, rows):
    """Fill `rows` with the row of each wanted id, or -1."""
    t = table(handle)
    for i in range(wanted.size):
        low, high = 0, order.size
        while low < high:
            middle = (low + high) // 2
            if item_id(t, np.int64(order[middle])) < wanted[i]:
                low = middle + 1
            else:
                high = middle
        rows[i] = -1
        if low < order.size and item_id(t, np.int64(order[low])) == wanted[i]:
            rows[i] = np.int64(order[low])
