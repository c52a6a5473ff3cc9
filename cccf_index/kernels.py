"""Every search kernel. They fill what they are given, allocate next to nothing and never validate.

A score is a sum of ``query weight * item weight * (r - 2 * hamming)`` over components from the lowest to the highest,
whatever the grouping, so it does not depend on where an item stands. A search goes through *blocks* of 64 rows, the
likeliest first. A block whose bound is below the k-th best score is skipped; of the others a *sketch* of the scores, in
16-bit lanes, tells the few rows that may be good enough, and only those are scored exactly.
"""

import numpy as np
from numba import njit
from numba.extending import overload

from cccf_index._lanes import BLOCK, array_at, at, lowest_bit, popcount, reaching, table
from cccf_index._tables import Coded, Room

OPTIONS = {"nogil": True, "_nrt": False}  # nothing is allocated; counting references would cost more than the rest
kernel = njit(cache=True, **OPTIONS)
allocating = njit(cache=True, nogil=True)

EMPTY_ID = np.iinfo(np.int64).max
LOWEST = np.finfo(np.float32).min  # what faiss pads inner products with
LIKELY = 0.3  # good items have about this share of what their distance from the centre could add to their score
PROBES = 16  # blocks that are scored, the likeliest first, before all others in their order
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


# O(4 d): entry v of a nibble's table is the sum of its 4 values, each plus where v has a one and minus elsewhere.
@kernel
def fill_sums(query, n_bits, n_components, sums):
    """Fill `sums` (G * nibbles of a code * 16,) with the partial inner products of `query` (G * r,)."""
    first = 0
    for k in range(n_components):
        for nibble in range(0, n_bits, 4):
            sums[first] = 0
            for j in range(4):
                value = query[k * n_bits + nibble + j] if nibble + j < n_bits else np.float32(0)
                for v in range(first, first + (1 << j)):
                    sums[v + (1 << j)] = sums[v] + value
                    sums[v] -= value
            first += 16


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


def score(scores, n, row, g, t, batch, q, sums):
    """Add the scores of n rows from `row` on, of group g, for query q."""


@overload(score, jit_options=OPTIONS)
def choose_score(scores, n, row, g, t, batch, q, sums):
    """Choose how to score when the kernel is compiled."""
    if batch.instance_class is Coded:

        def score_coded(scores, n, row, g, t, batch, q, sums):
            score_codes(scores, n, row, g, t, batch.items, batch.words[q], batch.values[q], batch.n_bits)

        return score_coded

    def score_real(scores, n, row, g, t, batch, q, sums):
        code_size = batch.words.shape[2] * batch.words.itemsize
        score_vector(scores, n, row, g, t, batch.items, sums, code_size, batch.n_bits)

    return score_real


# Invariant: no |factor * agreement| and no sum of a sketch's terms leaves 16 bits, whatever the item.
@kernel
def sketch_code(words, weights, n_bits, t, vector, reach, planes, factors):
    """Prepare the sketches of a coded query; return what one unit of ``factor * agreement`` is worth."""
    largest, total = 0.0, 0.0
    for k in range(weights.size):
        size = np.float64(weights[k]) * n_bits
        largest = max(largest, size)
        total += size * at(t.ceilings, k, np.float64)
    unit = max(largest / 32000, total / (512 * 28000))
    unit = unit if unit > 0 else 1.0
    n_words, word_bits = words.shape[1], 8 * words.itemsize
    for k in range(weights.size):
        weight = np.float64(weights[k])
        factor = np.rint(weight / unit)
        factors[k] = np.int16(factor)
        reach[0, k], reach[1, k] = weight * n_bits, factor * n_bits
        reach[2, k] = abs(weight / unit - factor) * n_bits
        for w in range(n_words):
            word = np.uint64(words[k, w])
            planes[k * n_words + w] = words[k, w]
            for j in range(k * n_bits + w * word_bits, k * n_bits + min(n_bits, (w + 1) * word_bits)):
                vector[j] = weight if word & np.uint64(1) else -weight
                word >>= np.uint64(1)
    return unit


# The same invariant. A value becomes an odd integer below 2^planes in size.
@kernel
def sketch_vector(query, n_bits, n_words, n_planes, t, vector, reach, planes, factors):
    """Prepare the sketches of a real-valued query; return what one unit of ``factor * agreement`` is worth."""
    top = 2**n_planes - 1
    word_bits = 8 * planes.itemsize
    largest, total = 0.0, 0.0
    for k in range(factors.size):
        size = 0.0
        for j in range(k * n_bits, (k + 1) * n_bits):
            vector[j] = query[j]
            size += abs(query[j])
            largest = max(largest, np.float64(abs(query[j])))
        reach[0, k] = size
        total += size * at(t.ceilings, k, np.float64)
    unit = max(largest / top, total / (512 * 22000))
    unit = unit if unit > 0 else 1.0
    planes[:] = 0
    largest, total = 0.0, 0.0
    for k in range(factors.size):
        size, error = 0.0, 0.0
        for j in range(n_bits):
            value = query[k * n_bits + j] / unit
            level = np.int64(min(max((value + top) / 2 + 0.5, 0.0), float(top)))
            size += abs(2 * level - top)
            error += abs(value - (2 * level - top))
            first = (k * n_words + j // word_bits) * n_planes
            for b in range(n_planes):
                planes[first + b] |= planes.dtype.type(((level >> (n_planes - 1 - b)) & 1) << (j % word_bits))
        reach[1, k], reach[2, k] = size, error
        largest = max(largest, size)
        total += size * at(t.ceilings, k, np.float64)
    factor = np.floor(min(32767 / largest, 512 * 27000 / max(total, 1.0)))
    for k in range(factors.size):
        factors[k] = np.int16(factor)
        reach[1, k] *= factor
        reach[2, k] *= factor
    return unit / factor


def sketch(batch, q, t, s, i):
    """Prepare query q at place i of the tile; return what one unit of ``factor * agreement`` is worth."""


@overload(sketch, jit_options=OPTIONS)
def choose_sketch(batch, q, t, s, i):
    """Choose how to when the kernel is compiled."""
    if batch.instance_class is Coded:

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


# O(cells * d), vectorised over the cells. Invariant: caps and slips are safe against rounding, and so are the radii.
@kernel
def measure_cells(t, vector, reach, products, caps, slips):
    """Fill the products with the centres, the caps by weights and the slips of sketches; return |query|."""
    n_cells = t.n_cells
    centres = array_at(t.centres, vector.size * n_cells, np.float32)
    peaks = array_at(t.peaks, t.n_components * n_cells, np.float32)
    products[:] = 0
    caps[:] = 0
    slips[:] = t.n_components + 1
    square = 0.0
    for j in range(vector.size):
        value = vector[j]
        square += np.float64(value) * value
        if value != 0:
            row = centres[j * n_cells : (j + 1) * n_cells]
            for c in range(n_cells):
                products[c] += value * row[c]
    for k in range(t.n_components):
        most = reach[0, k] * np.float32(1 + 1e-4)
        error = reach[2, k] * np.float32(1.001 / (512 * t.step))
        certain = (reach[1, k] + reach[2, k]) * np.float32(1.001 * t.slip / 512)
        row = peaks[k * n_cells : (k + 1) * n_cells]
        for c in range(n_cells):
            caps[c] += most * row[c]
            slips[c] += error * row[c] + certain
    return np.sqrt(square)


@kernel
def sift_down(heap, keys, place):
    """Move the cell at a place of the heap down until no key below it is larger."""
    cell = heap[place]
    while True:
        child = 2 * place + 1
        if child >= heap.size:
            break
        if child + 1 < heap.size and keys[heap[child + 1]] > keys[heap[child]]:
            child += 1
        if keys[heap[child]] <= keys[cell]:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = cell


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


@kernel
def offer(score, row, t, blocked, excluded, scores, ids):
    """Offer a row to the heap, unless it is blocked or excluded."""
    if score < scores[0]:
        return
    if blocked.size and (blocked[row >> 3] >> (row & 7)) & 1:
        return
    identity = item_id(t, row)
    if score == scores[0] and identity > ids[0]:
        return
    if excluded.size and is_excluded(identity, excluded):
        return
    replace_worst(scores, ids, score, identity)


# Invariant: an item of cell c scores less than the worst of the heap if it is nearer, or sketched lower.
@kernel
def needs(worst, c, t, bias_scale, slack, product, cap, norm, unit, slip):
    """Return how far from the centre of cell c a row must be to be good enough, and what its sketch must reach."""
    bias = at(t.bias_peaks, c, np.float64) * bias_scale
    least = worst - bias - slack * (abs(worst) + abs(bias))
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
def block_rows(c, block, t):
    """Return the first row of a block of cell c, and how many it has."""
    row = at(t.cell_starts, c, np.int64) + (block - at(t.block_starts, c, np.int64)) * BLOCK
    return row, min(BLOCK, at(t.cell_starts, c + 1, np.int64) - row)


# O(G) vectors of BLOCK rows. Invariant: a block is read inside its group, from where 64 rows are left.
@kernel
def sketched(c, block, t, n_words, planes, n_planes, factors, top, limit):
    """Return as a mask which rows of a block of cell c may be good enough; all of them in a group that is too small."""
    g = at(t.cell_groups, c, np.int64)
    start, stop = at(t.starts, g, np.int64), at(t.starts, g + 1, np.int64)
    row, n = block_rows(c, block, t)
    every = ~np.uint64(0) >> np.uint64(BLOCK - n)
    if stop - start < BLOCK:
        return every
    first = min(row, stop - BLOCK)
    found = reaching(t, g, first - start, n_words, planes, n_planes, factors, top, limit)
    return every & (found >> np.uint64(row - first))


# O(G + log k) for each row.
@kernel
def score_found(found, c, block, t, blocked, excluded, batch, q, sums, room, scores, ids):
    """Offer the rows of a mask to the heap of query q."""
    g = at(t.cell_groups, c, np.int64)
    row, n = block_rows(c, block, t)
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
    while budget > 0 and s.keys[s.heap[0]] > -np.inf:
        c = s.heap[0]
        block = next_block[c]
        worst = np.float64(scores[0])
        need, limit = needs(worst, c, t, bias_scale, slack, products[c], caps[c], norm, unit, slips[c])
        s.keys[c] = -np.inf
        if at(t.radii, block, np.float32) >= need:
            found = sketched(c, block, t, n_words, s.planes[i], batch.n_planes, s.factors[i], top, limit)
            if found:
                score_found(found, c, block, t, filters.blocked, excluded, batch, q, s.sums[i], s.scores, scores, ids)
            budget -= 1
            next_block[c] = block + 1
            s.keys[c] = likely_score(c, block + 1, t, bias_scale, products[c], caps[c], norm)
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
                found = sketched(c, block, t, n_words, s.planes[i], batch.n_planes, s.factors[i], top, s.limits[i])
                if found:
                    excluded = filters.exclude_ids[filters.exclude_starts[q] : filters.exclude_starts[q + 1]]
                    score_found(
                        found, c, block, t, filters.blocked, excluded, batch, q, s.sums[i], s.scores, scores[q], ids[q]
                    )
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
@allocating
def search(handle, filters, batch, budget, exact, scores, ids):
    """Offer a segment's items to the heaps (`scores`, `ids`), each (nq, k): the `budget` likeliest blocks first.

    If `exact`, then all others that may hold an item that is good enough.
    """
    t, nq = table(handle), scores.shape[0]
    s = new_room(t, batch, min(nq, TILE))
    for first in range(0, nq, TILE):
        n = min(TILE, nq - first)
        for i in range(n):
            probe(t, filters, batch, first + i, s, i, budget, scores[first + i], ids[first + i])
        if exact:
            sweep(t, filters, batch, first, n, s, scores, ids)


@allocating
def score_all(handle, batch, q, scores):
    """Fill `scores` (n,) with the exact score of every row of a segment for query q."""
    t = table(handle)
    s = new_room(t, batch, 1)
    sketch(batch, q, t, s, 0)
    for g in range(t.n_groups):
        start, stop = at(t.starts, g, np.int64), at(t.starts, g + 1, np.int64)
        part = scores[start:stop]
        start_scores(part, part.size, start, t, batch.bias_scales[q])
        score(part, part.size, start, g, t, batch, q, s.sums[0])


@allocating
def search_all(handle, filters, batch, scores, ids):
    """Offer all items of a segment to the heaps, each scored exactly: what `search` must agree with."""
    t = table(handle)
    every = np.empty(at(t.starts, t.n_groups, np.int64), batch.values.dtype)
    for q in range(scores.shape[0]):
        score_all(handle, batch, q, every)
        excluded = filters.exclude_ids[filters.exclude_starts[q] : filters.exclude_starts[q + 1]]
        for row in range(every.size):
            offer(every[row], row, t, filters.blocked, excluded, scores[q], ids[q])


@allocating
def new_heaps(nq, k, lowest):
    """Return empty heaps (nq, k): scores of the type of `lowest`, which is below any score, and ids."""
    scores, ids = np.full((nq, k), lowest), np.empty((nq, k), np.int64)
    ids[:] = EMPTY_ID
    return scores, ids


# O(k log k) for each query: taking out the worst entry again and again leaves the best first.
@kernel
def finish(scores, ids, divisors, D, I):
    """Order each heap by score descending, then id ascending, and write it to D and I as faiss would."""
    for q in range(scores.shape[0]):
        for last in range(scores.shape[1] - 1, 0, -1):
            score, identity = scores[q, 0], ids[q, 0]
            replace_worst(scores[q, :last], ids[q, :last], scores[q, last], ids[q, last])
            scores[q, last], ids[q, last] = score, identity
        for j in range(D.shape[1]):
            D[q, j], I[q, j] = LOWEST, -1
            if j < scores.shape[1] and ids[q, j] != EMPTY_ID:
                D[q, j], I[q, j] = np.float32(scores[q, j] / divisors[q]), ids[q, j]


# O(G) for each query.
@kernel
def round_queries(weights, scale, most, most_scale, whole, rounded, scales, bias_scales):
    """Fill weights times their scale, rounded; return the largest, and whether all of some query were lost.

    Without a `scale` the largest weight of each query becomes `most`. If biases are multiplied too, scales are `whole`.
    """
    largest, any_lost = 0.0, False
    for q in range(weights.shape[0]):
        peak = np.float64(0)
        for k in range(weights.shape[1]):
            peak = max(peak, np.float64(weights[q, k]))
        scales[q] = scale if scale > 0 else most / peak if peak > 0 else 1.0
        if whole:
            scales[q] = scale if scale > 0 else np.floor(min(max(scales[q], 1.0), most_scale))
            bias_scales[q] = np.int64(scales[q])
        top = np.rint(peak * scales[q])
        for k in range(weights.shape[1]):
            rounded[q, k] = np.int64(np.rint(weights[q, k] * scales[q])) if top < 2.0**62 else 0
        largest = max(largest, top)
        any_lost |= peak > 0 and top == 0
    return largest, any_lost


# O(log n) for each wanted id. Invariant: `order` lists the rows by ascending id.
@kernel
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


# O(n * d), of float64 sums.
@kernel
def fill_distances(words, weights, n_bits, cells, centres, distances):
    """Fill the distance of each row's expanded vector from its cell's centre, `centres` (cells, G * r)."""
    word_bits = 8 * words.itemsize
    for i in range(distances.size):
        square = 0.0
        for k in range(weights.shape[1]):
            weight = np.float64(weights[i, k])
            for j in range(n_bits):
                bit = (np.uint64(words[i, k, j // word_bits]) >> np.uint64(j % word_bits)) & np.uint64(1)
                off = (weight if bit else -weight) - centres[cells[i], k * n_bits + j]
                square += off * off
        distances[i] = np.sqrt(square)
