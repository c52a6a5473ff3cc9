"""What Python calls to search a segment: one function for each kind of queries.

Entry points take flat arguments: unpacking a tuple costs more than a query. Those of a batch come in the order of
`CodedBatch` or `RealBatch`, those of filters in the order of `Filters`; the first argument is the address of the
segment's record.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cccf_index.kernels.batches import CodedBatch, RealBatch, bias_scale, empty_scores
from cccf_index.kernels.decorators import allocating_entry, allocating_kernel
from cccf_index.kernels.filters import Filters
from cccf_index.kernels.heaps import EMPTY_ID
from cccf_index.kernels.memory import read, view_array, view_segment
from cccf_index.kernels.scoring import add_item_scores, start_scores
from cccf_index.kernels.search import TILE, make_workspace, offer, score_all, search, search_brute_force
from cccf_index.kernels.sketches import prepare_query


@allocating_kernel
def _search(address, filters, batch, budget, complete, scores, ids):
    segment = view_segment(address)
    workspace = make_workspace(segment, batch, min(scores.shape[0], TILE))
    search(segment, filters, batch, budget, complete, workspace, scores, ids)


@allocating_kernel
def _search_brute_force(address, filters, batch, scores, ids):
    segment = view_segment(address)
    every = empty_scores(batch, read(segment.starts, segment.n_groups, np.int64))
    search_brute_force(segment, filters, batch, every, make_workspace(segment, batch, 1), scores, ids)


@allocating_kernel
def _score(address, batch, q, scores):
    segment = view_segment(address)
    score_all(segment, batch, q, make_workspace(segment, batch, 1), scores)


@allocating_entry
def search_coded(
    address, deleted, exclude_starts, exclude_ids, words, weights, bias_scales, item_weights, n_bits, n_planes, slack,
    budget, complete, scores, ids,
):  # fmt: skip
    """Search a segment with codes; see `search.search`."""
    batch = CodedBatch(words, weights, bias_scales, item_weights, n_bits, n_planes, slack)
    _search(address, Filters(deleted, exclude_starts, exclude_ids), batch, budget, complete, scores, ids)


@allocating_entry
def search_real(
    address, deleted, exclude_starts, exclude_ids, words, vectors, item_weights, n_bits, n_planes, slack, budget,
    complete, scores, ids,
):  # fmt: skip
    """Search a segment with vectors; see `search.search`."""
    batch = RealBatch(words, vectors, item_weights, n_bits, n_planes, slack)
    _search(address, Filters(deleted, exclude_starts, exclude_ids), batch, budget, complete, scores, ids)


@allocating_entry
def brute_force_coded(
    address, deleted, exclude_starts, exclude_ids, words, weights, bias_scales, item_weights, n_bits, n_planes, slack,
    scores, ids,
):  # fmt: skip
    """Score every item of a segment with codes; see `search.search_brute_force`."""
    batch = CodedBatch(words, weights, bias_scales, item_weights, n_bits, n_planes, slack)
    _search_brute_force(address, Filters(deleted, exclude_starts, exclude_ids), batch, scores, ids)


@allocating_entry
def brute_force_real(
    address, deleted, exclude_starts, exclude_ids, words, vectors, item_weights, n_bits, n_planes, slack, scores, ids
):
    """Score every item of a segment with vectors; see `search.search_brute_force`."""
    batch = RealBatch(words, vectors, item_weights, n_bits, n_planes, slack)
    _search_brute_force(address, Filters(deleted, exclude_starts, exclude_ids), batch, scores, ids)


@allocating_entry
def score_coded(address, words, weights, bias_scales, item_weights, n_bits, n_planes, slack, q, scores):
    """Fill `scores` (n,) with the exact score of every row of a segment for the code q of a batch."""
    _score(address, CodedBatch(words, weights, bias_scales, item_weights, n_bits, n_planes, slack), q, scores)


@allocating_entry
def score_real(address, words, vectors, item_weights, n_bits, n_planes, slack, q, scores):
    """Fill `scores` (n,) with the exact score of every row of a segment for the vector q of a batch."""
    _score(address, RealBatch(words, vectors, item_weights, n_bits, n_planes, slack), q, scores)


# O(G * r + log groups) for each row.
@allocating_entry
def rank_rows(address, words, vectors, item_weights, n_bits, n_planes, slack, rows, scores, ids):
    """Offer to the heaps of real-valued queries the given rows, int64 (nq, any), as far as they are not empty."""
    segment = view_segment(address)
    batch = RealBatch(words, vectors, item_weights, n_bits, n_planes, slack)
    workspace = make_workspace(segment, batch, 1)
    starts = view_array(segment.starts, segment.n_groups + 1, np.int64)
    nothing = Filters(np.empty(0, np.uint8), np.zeros(rows.shape[0] + 1, np.int64), np.empty(0, np.int64))
    for q in range(rows.shape[0]):
        prepare_query(batch, q, segment, workspace, 0)
        for row in rows[q]:
            if row != EMPTY_ID:
                group = np.searchsorted(starts, row, side="right") - 1
                start_scores(workspace.scores, 1, row, segment, bias_scale(batch, q))
                add_item_scores(workspace.scores, 1, row, group, segment, batch, q, workspace.sums[0])
                offer(workspace.scores[0], row, segment, nothing, q, scores[q], ids[q])


class Entries(NamedTuple):
    """The entry points for one kind of queries."""

    search: Any
    brute_force: Any
    score: Any


CODED = Entries(search_coded, brute_force_coded, score_coded)
REAL = Entries(search_real, brute_force_real, score_real)
