"""The search of a segment: which blocks of 64 rows are looked at, and in which order.

The most promising blocks come first, so that the k-th best score is good early. Then a block whose bound is below it is
skipped; of the others a *sketch* of the scores, in 16-bit lanes, tells the few rows that may be good enough, and only
those are scored exactly.

Kernels are compiled for the types of words and scores, their arguments `word` and `number`, and for codes, where `real`
is None, or vectors.
"""

import numpy as np

from cccf_index.kernels.block import sketch_block
from cccf_index.kernels.bounds import estimate_best, find_thresholds, measure_cells
from cccf_index.kernels.decorators import ONE, ZERO, kernel
from cccf_index.kernels.filters import drop_excluded, fill_excluded, find_deleted, is_deleted, is_excluded
from cccf_index.kernels.heaps import push, sift_down
from cccf_index.kernels.limits import BLOCK, TERM_DIVISOR
from cccf_index.kernels.lookup import read_id
from cccf_index.kernels.memory import lowest_bit, popcount, read, view_row, write
from cccf_index.kernels.scoring import bias_scale, score_rows
from cccf_index.kernels.sketches import count_planes, prepare_query

PROBES = 24  # blocks that are looked at, the most promising first, before all others in their order
MANY = 8  # rows of a block that are scored together rather than one by one


@kernel
def offer(score, row, segment, call, q, i, scores, ids):
    """Put a row into the heap of query q (`scores`, `ids`), (k,) each, unless it is too bad, deleted or excluded.

    i: the place of the query in the tile.
    """
    if score < scores[0] or is_deleted(call, row):
        return
    identity = read_id(segment, row)
    if not is_excluded(call, i, q, identity):
        push(scores, ids, score, row if segment.by_row else identity)


@kernel
def locate_block(c, block, segment):
    """Return the group of a block of cell c, the first of its rows to read, how many, and a mask of those in the block.

    64 rows are read, also where the block has fewer: the others are its neighbours in the group. A group of fewer rows
    is read whole.
    """
    group = read(segment.cell_groups, c, np.int64)
    start, stop = read(segment.starts, group, np.int64), read(segment.starts, group + 1, np.int64)
    row = read(segment.cell_starts, c, np.int64) + (block - read(segment.block_starts, c, np.int64)) * BLOCK
    n = min(BLOCK, read(segment.cell_starts, c + 1, np.int64) - row)
    first = max(start, min(row, stop - BLOCK))
    mask = (~np.uint64(0) >> np.uint64(BLOCK - n)) << np.uint64(row - first)
    return group, first - start, min(BLOCK, stop - first), mask


# O(G * W * planes) vector operations, and O(G + log k) for each row whose sketch is good enough.
@kernel
def offer_block(group, first, n, found, segment, call, q, i, min_sketch, word, number, real):
    """Offer rows of a block to the heap of query q if their sketch reaches `min_sketch`; return whether any does.

    group, first, n, found: of `locate_block`; i: the place of the query in the tile.
    """
    row = first + read(segment.starts, group, np.int64)
    found &= ~find_deleted(call, row, n)
    if found != 0 and n == BLOCK:
        n_components, n_words, n_planes = segment.n_components, call.n_words, count_planes(real)
        planes = view_row(call.planes, i, n_components * n_words * n_planes, word)
        factors = view_row(call.factors, i, n_components, np.int16)
        top = np.int16(call.n_bits * ((1 << n_planes) - 1))
        found &= sketch_block(segment, group, first, n_words, planes, n_planes, factors, top, min_sketch)
    found = drop_excluded(found, row, segment, call, i, q)  # seen items pass most sketches: they need not be scored
    if found == 0:
        return False
    scores, ids = view_row(call.scores, q, call.k, number), view_row(call.ids, q, call.k, np.int64)
    block_scores = view_row(call.block_scores, 0, BLOCK, number)
    together = popcount(found) > MANY
    if together:
        score_rows(block_scores, n, row, group, segment, call, q, i, word, real)
    while found:
        place = np.int64(lowest_bit(found))
        found &= found - np.uint64(1)
        if not together:
            score_rows(block_scores[place:], ONE, row + place, group, segment, call, q, i, word, real)
        if block_scores[place] >= scores[0]:  # most are not, and a call costs more than the test
            push(scores, ids, block_scores[place], row + place if segment.by_row else read_id(segment, row + place))
    return True


# O(cells * d + budget * (G + log cells)).
@kernel
def probe(segment, call, q, i, budget, word, number, real):
    """Prepare query q at place i of the tile, and offer its `budget` most promising blocks to its heap."""
    n_cells = segment.n_cells
    products, caps = view_row(call.products, i, n_cells, np.float32), view_row(call.caps, i, n_cells, np.float32)
    slips, next_block = view_row(call.slips, i, n_cells, np.float32), view_row(call.next_block, i, n_cells, np.int64)
    keys, heap = view_row(call.keys, 0, n_cells, np.float32), view_row(call.heap, 0, n_cells, np.int64)
    bias = np.float64(bias_scale(call, q))
    fill_excluded(call, q, i)
    unit = prepare_query(segment, call, q, i, word, number, real) * TERM_DIVISOR * segment.step
    norm = measure_cells(segment, call, i)
    write(call.units, i, unit)
    write(call.norms, i, norm)
    for c in range(n_cells):
        next_block[c] = read(segment.block_starts, c, np.int64)
        heap[c] = c
        keys[c] = estimate_best(c, next_block[c], segment, bias, products[c], caps[c], norm)
    for place in range(n_cells // 2 - 1, -1, -1):
        sift_down(heap, keys, place)
    at_once = 1 + budget // 64  # blocks of a cell before the heap is put in order again
    while budget > 0 and keys[heap[0]] > -np.inf:
        c = heap[0]
        for _ in range(at_once):
            block, worst = next_block[c], np.float64(read(call.scores, q * call.k, number))
            keys[c] = estimate_best(c, block, segment, bias, products[c], caps[c], norm)
            if keys[c] == -np.inf:
                break
            min_distance, min_sketch = find_thresholds(
                worst, c, segment, bias, call.slack, products[c], caps[c], norm, unit, slips[c]
            )
            if read(segment.radii, block, np.float32) < min_distance:
                keys[c] = -np.inf
                break
            group, first, n, rows = locate_block(c, block, segment)
            offer_block(group, first, n, rows, segment, call, q, i, min_sketch, word, number, real)
            next_block[c] = block + 1
            budget -= 1
        if keys[c] > -np.inf:
            keys[c] = estimate_best(c, next_block[c], segment, bias, products[c], caps[c], norm)
        sift_down(heap, keys, ZERO)


# Blocks outside, queries inside: a block comes into the first cache once for all queries of a tile.
@kernel
def sweep(segment, call, start, n, word, number, real):
    """Offer all other blocks that may hold a good item to the heaps of the queries `start` to `start + n`."""
    n_cells = segment.n_cells
    min_distances, stale = view_row(call.min_distances, 0, n, np.float64), view_row(call.stale, 0, n, np.int16)
    min_sketches = view_row(call.min_sketches, 0, n, np.int16)
    for c in range(n_cells):
        start_block, stop = read(segment.block_starts, c, np.int64), read(segment.block_starts, c + 1, np.int64)
        for i in range(n):
            stale[i] = True
        for block in range(start_block, stop):
            wanted = False
            group, first, n_rows, rows = locate_block(c, block, segment)
            for i in range(n):
                q, place = start + i, i * n_cells + c
                if stale[i]:
                    min_distances[i], min_sketches[i] = find_thresholds(
                        np.float64(read(call.scores, q * call.k, number)), c, segment, np.float64(bias_scale(call, q)),
                        call.slack, read(call.products, place, np.float32), read(call.caps, place, np.float32),
                        read(call.norms, i, np.float64), read(call.units, i, np.float64),
                        read(call.slips, place, np.float32),
                    )  # fmt: skip
                    stale[i] = False
                if read(segment.radii, block, np.float32) < min_distances[i]:
                    continue
                wanted = True
                if block >= read(call.next_block, place, np.int64):
                    stale[i] = offer_block(
                        group, first, n_rows, rows, segment, call, q, i, min_sketches[i], word, number, real
                    )  # fmt: skip
            if not wanted:  # nor is any block after it
                break


# O(cells * d) for each query, and O(G) for each row of the blocks that no bound excludes.
@kernel
def search(segment, call, budget, complete, word, number, real):
    """Offer a segment's items to the heaps of a call: for each query the `budget` most promising blocks first.

    If `complete`, then all others that may hold an item that is good enough.
    """
    for first in range(0, call.n_queries, call.tile):
        n = min(call.tile, call.n_queries - first)
        for i in range(n):
            probe(segment, call, first + i, i, budget, word, number, real)
        if complete:
            sweep(segment, call, first, n, word, number, real)


@kernel
def score_all(segment, call, q, word, real, scores):
    """Fill `scores` (n,) with the exact score of every row of a segment for query q."""
    prepare_query(segment, call, q, ZERO, word, scores.dtype.type, real)
    for group in range(segment.n_groups):
        stop = read(segment.starts, group + 1, np.int64)
        for row in range(read(segment.starts, group, np.int64), stop, BLOCK):
            score_rows(scores[row:], min(BLOCK, stop - row), row, group, segment, call, q, ZERO, word, real)


@kernel
def search_brute_force(segment, call, word, real, every):
    """Offer all items of a segment to the heaps, each scored exactly: what `search` must agree with.

    every: room for the scores of all rows, (n,).
    """
    for q in range(call.n_queries):
        scores, ids = view_row(call.scores, q, call.k, every.dtype.type), view_row(call.ids, q, call.k, np.int64)
        score_all(segment, call, q, word, real, every)
        fill_excluded(call, q, ZERO)
        for row in range(every.size):
            offer(every[row], row, segment, call, q, ZERO, scores, ids)
