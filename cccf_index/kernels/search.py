"""The search of a segment: which blocks of 64 rows are looked at, and in which order.

The most promising blocks come first, so that the k-th best score is good early. Then a block whose bound is below it is
skipped; of the others a *sketch* of the scores, in 16-bit lanes, tells the few rows that may be good enough. Those are
collected, and in the end the best of them are scored exactly.

Kernels are compiled for the types of words and scores, their arguments `word` and `number`, and for codes, where `real`
is None, or vectors.
"""

from typing import Any

import numpy as np
from numba.extending import overload

from cccf_index.kernels.block import sketch_block
from cccf_index.kernels.bounds import estimate_best, find_error, find_limit, find_thresholds, measure_cells
from cccf_index.kernels.budgets import EVERY, MOST_USED, allow_all, allow_most_used
from cccf_index.kernels.collection import collect_rows, make_space, settle, start_collection
from cccf_index.kernels.decorators import INNER, ONE, ZERO, kernel
from cccf_index.kernels.dense import fill_estimates, find_rest, find_together, scale_limit
from cccf_index.kernels.filters import drop_excluded, fill_excluded, find_deleted, is_deleted, is_excluded
from cccf_index.kernels.heaps import push, sift_down
from cccf_index.kernels.limits import BLOCK, TERM_DIVISOR, TOGETHER
from cccf_index.kernels.lookup import read_id
from cccf_index.kernels.memory import find_query, is_plain, read, view_row, write
from cccf_index.kernels.scoring import score_rows
from cccf_index.kernels.sketches import locate_query, prepare_query
from cccf_index.kernels.sorting import rank_score
from cccf_index.kernels.stored import bias_scale, has_dense

PROBES = 24  # blocks that are looked at, the most promising first, before all others in their order, at least
PROBED_SHARE = 32  # or so many of the segment's blocks, if a list is as long: the k-th best score is lower
DENSE_PROBES = 3  # the same for several queries where some rows are dense: these come first, and lists are full of them


@kernel
def offer(rank, row, segment, call, q, i, ranks, ids):
    """Put a row into the heap of query q (`ranks`, `ids`), (k,) each, unless it is too bad, deleted or excluded.

    i: the place of the query in the tile.
    """
    if rank < ranks[0] or is_deleted(call, row):
        return
    identity = read_id(segment, row)
    if not is_excluded(call, i, q, identity):
        push(ranks, ids, rank, row if segment.by_row else identity)


@kernel
def locate_block(c, block, segment):
    """Return the group of a block of cell c, the first of its rows to read, how many, and a mask of those in the block.

    64 rows are read, also where the block has fewer: the others are its neighbours in the group. A group of fewer rows
    is read whole. Blocks of dense rows begin where they are, at a strip.
    """
    group = read(segment.cell_groups, c, np.int64)
    start, stop = read(segment.starts, group, np.int64), read(segment.starts, group + 1, np.int64)
    row = read(segment.cell_starts, c, np.int64) + (block - read(segment.block_starts, c, np.int64)) * BLOCK
    n = min(BLOCK, read(segment.cell_starts, c + 1, np.int64) - row)
    first = row if c >= segment.binary_stop else max(start, min(row, stop - BLOCK))
    mask = (~np.uint64(0) >> np.uint64(BLOCK - n)) << np.uint64(row - first)
    return group, first - start, min(BLOCK, stop - first), mask


# O(G * W) vector operations for codes, O(G * r) for vectors; O(1) for each row whose sketch is good enough.
@kernel
def look_at_block(block, group, first, n, found, c, segment, call, q, i, min_estimate, word, number, real):
    """Collect rows of a block of cell c for query q that may reach an estimate; return whether its `worst` has risen.

    group, first, n, found: of `locate_block`; i: the place of the query in the tile. The rows of the cell have binary
    components.
    """
    query, n_components, row = find_query(call, i), segment.n_components, first + read(segment.starts, group, np.int64)
    found &= ~find_deleted(call, row, n)
    if found == 0:
        return False
    shift, error = np.int64(read(segment.shifts, block, np.uint8)), 0.0
    has_sketches = n == BLOCK and not (segment.dense_start <= c and has_dense(segment, group))
    if has_sketches:
        place, radius = i * segment.n_cells + c, np.float64(read(segment.radii, block, np.float32))
        slip, near_slip = read(call.slips, place, np.float32), read(call.near_slips, place, np.float32)
        error = find_error(query, np.float64(slip), near_slip, radius, shift)
        found &= sketch_block(
            segment, group, first, call.n_words, locate_query(segment, call, q, i, real),
            call.factors + 2 * i * n_components, call.offsets + 2 * i * n_components, np.int16(shift),
            find_limit(min_estimate, error, shift), call.sketches, word, real,
        )  # fmt: skip
        if found == 0:
            return False
    else:  # too few rows for a sketch, or too many components
        score_rows(view_row(call.block_scores, 0, BLOCK, number), n, row, group, segment, call, q, i, word, real)
        for j in range(n - 1, -1, -1):  # the last first, as float64 may need more room
            write(call.block_scores, j, np.float64(read(call.block_scores, j, number)))
    return keep_found(found, row, group, shift, error, has_sketches, segment, call, q, i, word, number, real)


@kernel
def keep_found(found, row, group, shift, error, has_sketches, segment, call, q, i, word, number, real):
    """Collect the rows of a mask but for excluded ones; return whether the query's `worst` has risen.

    See `collection.collect_rows`.
    """
    found = drop_excluded(found, row, segment, call, i, q)
    if find_query(call, i).n + BLOCK > call.capacity and not make_space(call, i):
        settle(segment, call, q, i, word, number, real)
    return collect_rows(found, row, group, shift, error, has_sketches, segment, call, q, i)


def look_together(
    block: int, group: int, first: int, n: int, rows: int, n_looking: int, segment: Any, call: Any, start: int,
    word: Any, number: Any, real: Any,
) -> None:  # fmt: skip
    """Let queries look at a block whose rows have nothing but a dense component.

    Their places are the first of `looking`, what rows must reach stands in `min_estimates`. Queries whose `worst` has
    risen become `stale`. group, first, n, rows: of `locate_block`; start: number of the first query of the tile.
    """


# O(dimensions) for each row and query; see `dense.find_together`.
@overload(look_together, jit_options=INNER)
def pick_look_together(block, group, first, n, rows, n_looking, segment, call, start, word, number, real):
    """Pick what does nothing, where no segment has a dense component, at compile time."""

    def look_at_nothing(block, group, first, n, rows, n_looking, segment, call, start, word, number, real):
        pass

    def look(block, group, first, n, rows, n_looking, segment, call, start, word, number, real):
        row = first + read(segment.starts, group, np.int64)
        rows &= ~find_deleted(call, row, n)
        if rows == 0:
            return
        length = np.float64(find_rest(block, ZERO, segment))
        for j in range(n_looking):
            i = read(call.looking, j, np.int64)
            query = find_query(call, i)
            least = read(call.min_estimates, i, np.float64) * query.unit
            write(call.dense_limits, i, scale_limit(least - query.dense_slip * length, query.dense_step))
        n_found = find_together(group, first, n, block, n_looking, segment, call)
        for j in range(n_found):
            i = read(call.looking, j, np.int64)
            found, query, q = read(call.dense_found, i, np.uint64) & rows, find_query(call, i), start + i
            if found:
                fill_estimates(row, n, segment, call, q, i)
                error, shift = query.dense_slip * length / query.unit, np.int64(read(segment.shifts, block, np.uint8))
                has_risen = keep_found(found, row, group, shift, error, False, segment, call, q, i, word, number, real)
                write(call.stale, i, np.int16(has_risen))

    return look_at_nothing if is_plain(segment) else look


# O(cells * d).
@kernel
def prepare(segment, call, q, i, word, number, real):
    """Prepare query q at place i of the tile, and measure it against the cells from `first_cell` on."""
    fill_excluded(call, q, i)
    unit = prepare_query(segment, call, q, i, word, number, real)
    find_query(call, i).unit = unit * TERM_DIVISOR * segment.step
    measure_cells(segment, call, i)
    start_collection(segment, call, q, i)
    next_block = view_row(call.next_block, i, segment.n_cells, np.int64)
    for c in range(call.first_cell, segment.n_cells):
        next_block[c] = read(segment.block_starts, c, np.int64)


# O(cells + budget * (G + log cells)).
@kernel
def probe(segment, call, q, i, first_cell, last_cell, budget, word, number, real):
    """Let query q at place i of the tile look at the `budget` most promising blocks of some cells.

    It has not seen any of them.
    """
    query, n_cells, n_heap = find_query(call, i), segment.n_cells, last_cell - first_cell
    products, caps = view_row(call.products, i, n_cells, np.float32), view_row(call.caps, i, n_cells, np.float32)
    next_block, norms = view_row(call.next_block, i, n_cells, np.int64), view_row(call.norms, i, n_cells, np.float32)
    keys, heap = view_row(call.keys, 0, n_cells, np.float32), view_row(call.heap, 0, n_heap, np.int64)
    bias = np.float64(bias_scale(call, q))
    for c in range(first_cell, last_cell):
        heap[c - first_cell] = c
        keys[c] = estimate_best(c, next_block[c], segment, call, bias, products[c], caps[c], norms[c])
    for place in range(n_heap // 2 - 1, -1, -1):
        sift_down(heap, keys, place)
    at_once = 1 + budget // 64  # blocks of a cell before the heap is put in order again
    while n_heap > 0 and budget > 0 and keys[heap[0]] > -np.inf:
        c = heap[0]
        for _ in range(at_once):
            block = next_block[c]
            keys[c] = estimate_best(c, block, segment, call, bias, products[c], caps[c], norms[c])
            if keys[c] == -np.inf:
                break
            min_distance, min_estimate = find_thresholds(
                query, c, segment, bias, call.slack, products[c], norms[c], caps[c]
            )
            if read(segment.radii, block, np.float32) < min_distance:
                keys[c] = -np.inf
                break
            group, first, n, rows = locate_block(c, block, segment)
            if c >= segment.binary_stop:
                write(call.looking, ZERO, i)
                write(call.min_estimates, i, min_estimate)
                look_together(block, group, first, n, rows, ONE, segment, call, q - i, word, number, real)
            else:
                look_at_block(block, group, first, n, rows, c, segment, call, q, i, min_estimate, word, number, real)
            next_block[c] = block + 1
            budget -= 1
        if keys[c] > -np.inf:
            keys[c] = estimate_best(c, next_block[c], segment, call, bias, products[c], caps[c], norms[c])
        sift_down(heap, keys, ZERO)


@kernel
def sweep(segment, call, start, n, first_cell, word, number, real):
    """Let the queries `start` to `start + n` look at all other blocks from `first_cell` on that may hold a good item.

    The last cells come first: theirs are the items with the longest codes, which most lists are full of.
    """
    for c in range(segment.n_cells - 1, first_cell - 1, -1):
        sweep_cell(c, segment, call, start, n, word, number, real)


# Blocks outside, queries inside: a block comes into the first cache once for all queries of a tile.
@kernel
def sweep_cell(c, segment, call, start, n, word, number, real):
    """Let the queries `start` to `start + n` look at the blocks of cell c.

    The blocks of a cell come nearer and nearer to its centre: a query that has no use for one has none for the rest.
    """
    stale, active = view_row(call.stale, 0, n, np.int16), view_row(call.active, 0, n, np.int64)
    for i in range(n):
        active[i], stale[i] = i, True
    n_active, n_cells = n, segment.n_cells
    for block in range(read(segment.block_starts, c, np.int64), read(call.stops, c, np.int64)):
        n_active = keep_active(c, block, n_active, segment, call, start)
        if n_active == 0:
            break
        group, first, n_rows, rows = locate_block(c, block, segment)
        n_looking = ZERO
        for j in range(n_active):
            i = active[j]
            if block < read(call.next_block, i * n_cells + c, np.int64):  # it has seen it
                continue
            if c >= segment.binary_stop:
                write(call.looking, n_looking, i)
                n_looking += 1
                continue
            stale[i] = look_at_block(
                block, group, first, n_rows, rows, c, segment, call, start + i,
                i, read(call.min_estimates, i, np.float64), word, number, real,
            )  # fmt: skip
        if n_looking:
            look_together(block, group, first, n_rows, rows, n_looking, segment, call, start, word, number, real)


@kernel
def keep_active(c, block, n_active, segment, call, start):
    """Keep the queries that have a use for a block of cell c, first in `active`; return how many.

    Thresholds of those that are `stale` are found again; start: number of the first query of the tile.
    """
    radius, j = read(segment.radii, block, np.float32), 0
    while j < n_active:
        i = read(call.active, j, np.int64)
        if read(call.stale, i, np.int16):
            place = i * segment.n_cells + c
            min_distance, min_estimate = find_thresholds(
                find_query(call, i), c, segment, np.float64(bias_scale(call, start + i)), call.slack,
                read(call.products, place, np.float32), read(call.norms, place, np.float32),
                read(call.caps, place, np.float32),
            )  # fmt: skip
            write(call.min_distances, i, min_distance)
            write(call.min_estimates, i, min_estimate)
            write(call.stale, i, np.int16(0))
        if radius < read(call.min_distances, i, np.float64):
            n_active -= 1
            write(call.active, j, read(call.active, n_active, np.int64))
        else:
            j += 1
    return n_active


# O(cells * d) for each query, and O(G) for each row of the blocks that no bound excludes.
@kernel
def search(segment, call, budget, effort, word, number, real):
    """Put the best items of a segment into the heaps of a call; effort: see `budgets`, as for the budget of blocks."""
    n_cells, n_others, first_cell = segment.n_cells, ZERO, ZERO
    n_blocks, is_dense = read(segment.block_starts, n_cells, np.int64), segment.binary_stop < n_cells
    if effort == MOST_USED and is_dense:
        n_others = allow_most_used(segment, call, budget)
        first_cell = max(call.first_cell, segment.binary_stop)
    else:
        allow_all(segment, call)
    is_swept = effort == EVERY or (effort == MOST_USED and is_dense)
    if is_swept and is_dense and (effort == MOST_USED or (call.tile >= TOGETHER and segment.binary_stop > 0)):
        budget = np.int64(DENSE_PROBES)
    elif is_swept:
        budget = max(budget, min(call.k, n_blocks // PROBED_SHARE))
    for start in range(0, call.n_queries, call.tile):
        n = min(call.tile, call.n_queries - start)
        for i in range(n):
            prepare(segment, call, start + i, i, word, number, real)
            probe(segment, call, start + i, i, first_cell, n_cells, budget, word, number, real)
        if is_swept:
            sweep(segment, call, start, n, first_cell, word, number, real)
        for i in range(n):
            if n_others > 0:
                probe(segment, call, start + i, i, ZERO, segment.binary_stop, n_others, word, number, real)
            settle(segment, call, start + i, i, word, number, real)


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
        ranks, ids = view_row(call.ranks, q, call.k, np.int64), view_row(call.ids, q, call.k, np.int64)
        score_all(segment, call, q, word, real, every)
        fill_excluded(call, q, ZERO)
        for row in range(every.size):
            offer(rank_score(every[row]), row, segment, call, q, ZERO, ranks, ids)
