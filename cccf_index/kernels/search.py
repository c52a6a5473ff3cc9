"""The search of a segment: which blocks of 64 rows are looked at, and in which order.

The most promising blocks come first, so that the k-th best score is good early. Then a block whose bound is below it is
skipped; of the others a *sketch* of the scores, in 16-bit lanes, tells the few rows that may be good enough, and only
those are scored exactly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index.kernels.batches import bias_scale, empty_scores
from cccf_index.kernels.block import sketch_block
from cccf_index.kernels.bounds import estimate_best, find_thresholds, measure_cells
from cccf_index.kernels.decorators import allocating_kernel, kernel
from cccf_index.kernels.filters import is_deleted, is_excluded
from cccf_index.kernels.heaps import push, sift_down
from cccf_index.kernels.limits import BLOCK, TERM_DIVISOR
from cccf_index.kernels.lookup import read_id
from cccf_index.kernels.memory import lowest_bit, popcount, read
from cccf_index.kernels.scoring import add_item_scores, start_scores
from cccf_index.kernels.sketches import PreparedQuery, prepare_query

PROBES = 24  # blocks that are looked at, the most promising first, before all others in their order
TILE = 16  # queries that look at a block while it is in the first cache
MANY = 8  # rows of a block that are scored together rather than one by one


class Workspace(NamedTuple):
    """Where a tile of queries is prepared and blocks are chosen for it; row i is that of one query."""

    prepared: PreparedQuery  # one query at a time
    planes: NDArray[Any]  # (tile, G * W * planes): see `sketch_block`
    factors: NDArray[np.int16]  # (tile, G)
    sums: NDArray[np.float32]  # (tile, G * nibbles * 16): of real-valued queries, see `fill_sums`
    products: NDArray[np.float32]  # (tile, cells): see `measure_cells`
    caps: NDArray[np.float32]  # (tile, cells)
    slips: NDArray[np.float32]  # (tile, cells)
    next_block: NDArray[np.int64]  # (tile, cells): the blocks before it have been looked at
    keys: NDArray[np.float32]  # (cells,): what the next block of a cell may well score
    heap: NDArray[np.int64]  # (cells,): cells, the one with the largest key first
    units: NDArray[np.float64]  # (tile,): what 1 of a sketch is worth
    norms: NDArray[np.float64]  # (tile,)
    min_distances: NDArray[np.float64]  # (tile,): see `find_thresholds`
    min_sketches: NDArray[np.int16]  # (tile,)
    stale: NDArray[np.int16]  # (tile,): whether those two must be computed again
    scores: NDArray[Any]  # int64 or float32 (BLOCK,): exact scores of a block


@allocating_kernel
def make_workspace(segment, batch, tile):
    """Allocate what a tile of queries needs, in few arrays: an allocation takes as long as a block."""
    n_components = segment.n_components
    n_nibbles = 0 if batch.n_planes == 1 else (batch.n_bits + 3) // 4
    reaches = np.empty((3, n_components), np.float32)
    cells = np.empty((3 * tile + 1, segment.n_cells), np.float32)
    places = np.empty((tile + 1, segment.n_cells), np.int64)
    numbers = np.empty((3, tile))
    lanes = np.empty((tile + 2, max(tile, n_components)), np.int16)
    return Workspace(
        PreparedQuery(np.empty(n_components * batch.n_bits, np.float32), reaches[0], reaches[1], reaches[2]),
        np.empty((tile, n_components * batch.words.shape[2] * batch.n_planes), batch.words.dtype),
        lanes[:tile, :n_components], np.empty((tile, n_components * n_nibbles * 16), np.float32),
        cells[:tile], cells[tile : 2 * tile], cells[2 * tile : 3 * tile], places[:tile], cells[3 * tile], places[tile],
        numbers[0], numbers[1], numbers[2], lanes[tile], lanes[tile + 1], empty_scores(batch, BLOCK),
    )  # fmt: skip


@kernel
def offer(score, row, segment, filters, q, scores, ids):
    """Put a row into the heap of query q (`scores`, `ids`), (k,) each, unless it is too bad, deleted or excluded."""
    if score < scores[0] or is_deleted(filters, row):
        return
    identity = read_id(segment, row)
    if not is_excluded(filters, q, identity):
        push(scores, ids, score, row if segment.by_row else identity)


@kernel
def locate_block(c, block, segment):
    """Return the group of a block of cell c, the first row to read, how many, and a mask of those in the block.

    64 rows are read, also where the block has fewer: the others are its neighbours in the group. A group of fewer rows
    is read whole.
    """
    group = read(segment.cell_groups, c, np.int64)
    start, stop = read(segment.starts, group, np.int64), read(segment.starts, group + 1, np.int64)
    row = read(segment.cell_starts, c, np.int64) + (block - read(segment.block_starts, c, np.int64)) * BLOCK
    n = min(BLOCK, read(segment.cell_starts, c + 1, np.int64) - row)
    first = max(start, min(row, stop - BLOCK))
    return group, first, min(BLOCK, stop - first), (~np.uint64(0) >> np.uint64(BLOCK - n)) << np.uint64(row - first)


# O(G + log k) for each row.
@kernel
def offer_found(found, group, row, n, segment, filters, batch, q, sums, room, scores, ids):
    """Score those of n rows from `row` on that the mask `found` tells, and offer them to the heap of query q.

    group: that of the rows; sums: of a real-valued query; room: for the scores of a block; scores, ids: the heap, (k,)
    each.
    """
    together = popcount(found) > MANY
    if together:
        start_scores(room, n, row, segment, bias_scale(batch, q))
        add_item_scores(room, n, row, group, segment, batch, q, sums)
    while found:
        place = np.int64(lowest_bit(found))
        found &= found - np.uint64(1)
        if not together:
            start_scores(room[place:], 1, row + place, segment, bias_scale(batch, q))
            add_item_scores(room[place:], 1, row + place, group, segment, batch, q, sums)
        if room[place] >= scores[0]:  # most are not, and a call costs more than the test
            offer(room[place], row + place, segment, filters, q, scores, ids)


# O(cells * d + budget * (G + log cells)).
@kernel
def probe(segment, filters, batch, q, workspace, i, budget, scores, ids):
    """Prepare query q at place i of the tile, and offer its `budget` most promising blocks to its heap."""
    n_words, top = batch.words.shape[2], np.int16(batch.n_bits * (2**batch.n_planes - 1))
    products, caps, slips = workspace.products[i], workspace.caps[i], workspace.slips[i]
    next_block, keys, heap = workspace.next_block[i], workspace.keys, workspace.heap
    bias, slack = np.float64(bias_scale(batch, q)), batch.slack
    unit = prepare_query(batch, q, segment, workspace, i) * TERM_DIVISOR * segment.step
    norm = measure_cells(segment, workspace.prepared, products, caps, slips)
    workspace.units[i], workspace.norms[i] = unit, norm
    for c in range(segment.n_cells):
        next_block[c] = read(segment.block_starts, c, np.int64)
        heap[c] = c
        keys[c] = estimate_best(c, next_block[c], segment, bias, products[c], caps[c], norm)
    for place in range(segment.n_cells // 2 - 1, -1, -1):
        sift_down(heap, keys, place)
    at_once = 1 + budget // 64  # blocks of a cell before the heap is put in order again
    while budget > 0 and keys[heap[0]] > -np.inf:
        c = heap[0]
        for _ in range(at_once):
            block, worst = next_block[c], np.float64(scores[0])
            keys[c] = estimate_best(c, block, segment, bias, products[c], caps[c], norm)
            if keys[c] == -np.inf:
                break
            min_distance, min_sketch = find_thresholds(
                worst, c, segment, bias, slack, products[c], caps[c], norm, unit, slips[c]
            )
            if read(segment.radii, block, np.float32) < min_distance:
                keys[c] = -np.inf
                break
            group, row, n, found = locate_block(c, block, segment)
            if n == BLOCK:
                first = row - read(segment.starts, group, np.int64)
                planes, factors = workspace.planes[i], workspace.factors[i]
                found &= sketch_block(segment, group, first, n_words, planes, batch.n_planes, factors, top, min_sketch)
            if found:
                offer_found(
                    found, group, row, n, segment, filters, batch, q, workspace.sums[i], workspace.scores, scores, ids
                )  # fmt: skip
            next_block[c] = block + 1
            budget -= 1
        if keys[c] > -np.inf:
            keys[c] = estimate_best(c, next_block[c], segment, bias, products[c], caps[c], norm)
        sift_down(heap, keys, 0)


# Blocks outside, queries inside: a block comes into the first cache once for all queries of a tile.
@kernel
def sweep(segment, filters, batch, start, n, workspace, scores, ids):
    """Offer all other blocks that may hold a good item to the heaps of the queries `start` to `start + n`."""
    n_words, top = batch.words.shape[2], np.int16(batch.n_bits * (2**batch.n_planes - 1))
    for c in range(segment.n_cells):
        first, stop = read(segment.block_starts, c, np.int64), read(segment.block_starts, c + 1, np.int64)
        for block in range(first, stop):
            wanted = False
            group, row, n_rows, rows = locate_block(c, block, segment)
            offset = row - read(segment.starts, group, np.int64)
            for i in range(n):
                q = start + i
                if block == first:
                    workspace.stale[i] = True
                if workspace.stale[i]:
                    workspace.min_distances[i], workspace.min_sketches[i] = find_thresholds(
                        np.float64(scores[q, 0]), c, segment, np.float64(bias_scale(batch, q)), batch.slack,
                        workspace.products[i, c], workspace.caps[i, c], workspace.norms[i], workspace.units[i],
                        workspace.slips[i, c],
                    )  # fmt: skip
                    workspace.stale[i] = False
                if read(segment.radii, block, np.float32) < workspace.min_distances[i]:
                    continue
                wanted = True
                if block < workspace.next_block[i, c]:
                    continue
                found = rows
                if n_rows == BLOCK:
                    found &= sketch_block(
                        segment, group, offset, n_words, workspace.planes[i], batch.n_planes, workspace.factors[i],
                        top, workspace.min_sketches[i],
                    )  # fmt: skip
                if found:
                    offer_found(
                        found, group, row, n_rows, segment, filters, batch, q, workspace.sums[i], workspace.scores,
                        scores[q], ids[q],
                    )  # fmt: skip
                    workspace.stale[i] = True
            if not wanted:  # nor is any block after it
                break


# O(cells * d) for each query, and O(G) for each row of the blocks that no bound excludes.
@kernel
def search(segment, filters, batch, budget, complete, workspace, scores, ids):
    """Offer a segment's items to the heaps (`scores`, `ids`), (nq, k) each: the `budget` most promising blocks first.

    If `complete`, then all others that may hold an item that is good enough.
    """
    nq = scores.shape[0]
    for first in range(0, nq, TILE):
        n = min(TILE, nq - first)
        for i in range(n):
            probe(segment, filters, batch, first + i, workspace, i, budget, scores[first + i], ids[first + i])
        if complete:
            sweep(segment, filters, batch, first, n, workspace, scores, ids)


@kernel
def score_all(segment, batch, q, workspace, scores):
    """Fill `scores` (n,) with the exact score of every row of a segment for query q."""
    prepare_query(batch, q, segment, workspace, 0)
    for group in range(segment.n_groups):
        start, stop = read(segment.starts, group, np.int64), read(segment.starts, group + 1, np.int64)
        part = scores[start:stop]
        start_scores(part, part.size, start, segment, bias_scale(batch, q))
        add_item_scores(part, part.size, start, group, segment, batch, q, workspace.sums[0])


@kernel
def search_brute_force(segment, filters, batch, every, workspace, scores, ids):
    """Offer all items of a segment to the heaps, each scored exactly: what `search` must agree with.

    every: room for the scores of all rows, (n,).
    """
    for q in range(scores.shape[0]):
        score_all(segment, batch, q, workspace, every)
        for row in range(every.size):
            offer(every[row], row, segment, filters, q, scores[q], ids[q])
