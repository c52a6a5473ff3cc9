"""What Python calls to search a segment: one function for each kind of queries.

Entry points take flat arguments: unpacking a tuple costs more than a query. Those of queries come in the order of
`CodedBatch` or `RealBatch`, those of filters in the order of `Filters`; before them come the address of the segment's
record and what `make_room` made. Where `dense` is None, they are compiled without all that a dense component needs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cccf_index.kernels.calls import FIRST_TABLE, LINE, N_TABLES
from cccf_index.kernels.decorators import ONE, ZERO, entry, kernel
from cccf_index.kernels.heaps import EMPTY_ID, write_results
from cccf_index.kernels.layout import freeze
from cccf_index.kernels.memory import address_of, view_call, view_part, view_row, write
from cccf_index.kernels.query_vectors import transform_query
from cccf_index.kernels.query_weights import round_weights
from cccf_index.kernels.scoring import score_scattered
from cccf_index.kernels.search import offer, score_all, search, search_brute_force
from cccf_index.kernels.sketches import prepare_query
from cccf_index.kernels.sorting import EMPTY_RANK, rank_score


@kernel
def start_call(room, starts, words, n_bits, slack, n):
    """Write the record of a call with n queries into its room; return the record's address."""
    place = (address_of(room) + LINE - 1) // LINE * LINE
    call = view_call(place)
    call.words, call.weights, call.bias_scales, call.vectors, call.dense = address_of(words), 0, 0, 0, 0
    call.first_cell = 0
    call.n_words, call.word_size, call.n_bits = words.shape[2], words.itemsize, n_bits
    call.slack, call.n_queries, call.tile, call.capacity = slack, n, starts[N_TABLES], starts[N_TABLES + 1]
    for j in range(N_TABLES):
        write(place, FIRST_TABLE + j, place + starts[j])
    return place


@kernel
def start_coded(room, starts, words, weights, dense, bias_scales, n_bits, slack, n):
    """Start a call with n codes."""
    place = start_call(room, starts, words, n_bits, slack, n)
    call = view_call(place)
    call.weights, call.bias_scales, call.is_float = address_of(weights), address_of(bias_scales), weights.itemsize == 4
    call.n_weights = weights.shape[1]
    if dense is None:
        call.n_dense = 0
    else:
        call.dense, call.n_dense = address_of(dense), dense.shape[1]
    return place


@kernel
def start_real(room, starts, words, vectors, n_bits, slack, n):
    """Start a call with n vectors."""
    place = start_call(room, starts, words, n_bits, slack, n)
    call = view_call(place)
    call.vectors, call.is_float, call.n_dense = address_of(vectors), True, vectors.shape[1] - words.shape[1] * n_bits
    return place


@kernel
def describe_results(place, deleted, exclude_starts, exclude_ids, exact, ranks, ids):
    """Add filters and heaps to the record of a call; deleted: the address of its bits, or 0."""
    call = view_call(place)
    call.exact, call.deleted = exact, deleted
    call.exclude_starts, call.exclude_ids = address_of(exclude_starts), address_of(exclude_ids)
    call.ranks, call.ids, call.k = address_of(ranks), address_of(ids), ranks.shape[1]


@kernel
def empty_heaps(ranks, ids):
    """Make heaps (nq, k) empty."""
    for q in range(ranks.shape[0]):
        for j in range(ranks.shape[1]):
            ranks[q, j], ids[q, j] = EMPTY_RANK, EMPTY_ID


@entry
def find_coded(
    given, scale, most, most_scale, most_weight, item_scale, parts, budgets, effort, exact, room, starts, words,
    weights, dense, bias_scales, n_bits, slack, exclude_starts, exclude_ids, ranks, ids, divisors, shifts, D, I,
):  # fmt: skip
    """Search parts with codes, and write the results; return whether weights could be rounded well.

    If `given`, float32 as the weights, is not empty, the weights are not known yet: they are made of it here, see
    `round_weights`, and must be at most `most_weight`.

    parts: int64 (any, 2), see `PartTable`; budgets: int64, for each part, or one for all; effort: see `budgets`; ranks,
    ids: room for heaps (nq, k); divisors, shifts, D, I: see `write_results`. If not `exact`, scores are estimates.
    """
    if given.size:
        largest, any_lost = round_weights(
            given, scale, most, most_scale, item_scale, dense is not None, weights, divisors, bias_scales
        )
        if largest > most_weight or any_lost:
            return False
    empty_heaps(ranks, ids)
    for p in range(parts.shape[0]):
        place = start_coded(room, starts, words, weights, dense, bias_scales, n_bits, slack, ranks.shape[0])
        describe_results(place, parts[p, 1], exclude_starts, exclude_ids, exact, ranks, ids)
        segment, call = view_part(parts[p, 0], dense), view_call(place)
        search(segment, call, budgets[min(p, budgets.size - 1)], effort, words.dtype.type, weights.dtype.type, None)
    write_results(ranks, ids, np.int64(weights.itemsize == 4), divisors, shifts, D, I)
    return True


@entry
def find_real(
    x, matrix, mean, most_squares, first, last, parts, budgets, effort, exact, room, starts, words, vectors, dense,
    n_bits, slack, exclude_starts, exclude_ids, ranks, ids, divisors, shifts, D, I,
):  # fmt: skip
    """Search parts with vectors, and write the results; see `find_coded`. Return whether `x` is surely finite.

    If `x` is not empty, the vectors are not known yet: they are made of it here, from the column `first` to `last`, see
    `transform_query`.
    """
    for row in range(x.shape[0]):
        if not transform_query(x, row, matrix, mean, most_squares, first, last, address_of(vectors), shifts):
            return False
    empty_heaps(ranks, ids)
    for p in range(parts.shape[0]):
        place = start_real(room, starts, words, vectors, n_bits, slack, ranks.shape[0])
        describe_results(place, parts[p, 1], exclude_starts, exclude_ids, exact, ranks, ids)
        segment, call = view_part(parts[p, 0], dense), view_call(place)
        search(segment, call, budgets[min(p, budgets.size - 1)], effort, words.dtype.type, np.float32, np.float32)
    write_results(ranks, ids, ONE, divisors, shifts, D, I)
    return True


@entry
def draft_coded(
    address, room, starts, words, weights, dense, bias_scales, n_bits, slack, deleted, exclude_starts, exclude_ids,
    budget, effort, ranks, ids,
):  # fmt: skip
    """Offer the items of a segment to the heaps of codes (nq, k), by estimates. See `search.search`."""
    place = start_coded(room, starts, words, weights, dense, bias_scales, n_bits, slack, ranks.shape[0])
    describe_results(place, address_of(deleted), exclude_starts, exclude_ids, False, ranks, ids)
    search(view_part(address, dense), view_call(place), budget, effort, words.dtype.type, weights.dtype.type, None)


@entry
def brute_force_coded(
    address, room, starts, words, weights, dense, bias_scales, n_bits, slack, deleted, exclude_starts, exclude_ids,
    every, ranks, ids,
):  # fmt: skip
    """Score every item of a segment with codes; every: room for the scores. See `search.search_brute_force`."""
    place = start_coded(room, starts, words, weights, dense, bias_scales, n_bits, slack, ranks.shape[0])
    describe_results(place, address_of(deleted), exclude_starts, exclude_ids, True, ranks, ids)
    search_brute_force(view_part(address, dense), view_call(place), words.dtype.type, None, every)


@entry
def brute_force_real(
    address, room, starts, words, vectors, dense, n_bits, slack, deleted, exclude_starts, exclude_ids, every, ranks,
    ids,
):  # fmt: skip
    """Score every item of a segment with vectors; every: room for the scores. See `search.search_brute_force`."""
    place = start_real(room, starts, words, vectors, n_bits, slack, ranks.shape[0])
    describe_results(place, address_of(deleted), exclude_starts, exclude_ids, True, ranks, ids)
    search_brute_force(view_part(address, dense), view_call(place), words.dtype.type, np.float32, every)


@entry
def score_coded(address, room, starts, words, weights, dense, bias_scales, n_bits, slack, scores):
    """Fill `scores` (n,) with the exact score of every row of a segment for one code."""
    place = start_coded(room, starts, words, weights, dense, bias_scales, n_bits, slack, ONE)
    score_all(view_part(address, dense), view_call(place), ZERO, words.dtype.type, None, scores)


@entry
def score_real(address, room, starts, words, vectors, dense, n_bits, slack, scores):
    """Fill `scores` (n,) with the exact score of every row of a segment for one vector."""
    place = start_real(room, starts, words, vectors, n_bits, slack, ONE)
    score_all(view_part(address, dense), view_call(place), ZERO, words.dtype.type, np.float32, scores)


# O(G * r + log groups) for each row.
@entry
def rank_rows(address, room, starts, words, vectors, dense, n_bits, slack, rows, no_ids, ranks, ids):
    """Offer to the heaps of real-valued queries the given rows, int64 (nq, any), as far as they are not empty.

    no_ids: zeros, int64 (nq + 1,), as nothing is excluded.
    """
    word, real = words.dtype.type, np.float32
    place = start_real(room, starts, words, vectors, n_bits, slack, ranks.shape[0])
    describe_results(place, ZERO, no_ids, no_ids[:0], True, ranks, ids)
    segment, call = view_part(address, dense), view_call(place)
    group_starts = view_row(segment.starts, 0, segment.n_groups + 1, np.int64)
    score_at, score = call.block_scores, view_row(call.block_scores, 0, 1, np.float32)
    for q in range(rows.shape[0]):
        prepare_query(segment, call, q, ZERO, word, np.float32, real)
        for j in range(rows.shape[1]):
            row = rows[q, j]
            if row != EMPTY_ID:
                group = np.searchsorted(group_starts, row, side="right") - 1
                at_row = address_of(rows[q, j:])
                score_scattered(score_at, ONE, at_row, group, segment, call, q, ZERO, word, np.float32, real)
                offer(rank_score(score[0]), row, segment, call, q, ZERO, ranks[q], ids[q])


class Entries(NamedTuple):
    """The entry points for one kind of queries."""

    find: Any
    before: tuple[Any, ...]  # arguments of `find` where queries need not be made first
    brute_force: Any
    score: Any


NO_NUMBERS = freeze(np.empty((0, 0), np.float32))
CODED = Entries(find_coded, (NO_NUMBERS, 0.0, 0, 0.0, 0.0, 0.0), brute_force_coded, score_coded)
REAL = Entries(find_real, (NO_NUMBERS, NO_NUMBERS, NO_NUMBERS.reshape(0), 0.0, 0, 0), brute_force_real, score_real)
