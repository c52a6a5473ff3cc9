"""Runs the kernels: queries over parts and threads, into one result."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index import _threads
from cccf_index.kernels.calls import Filters, make_room
from cccf_index.kernels.entries import draft_coded, rank_rows
from cccf_index.kernels.heaps import fill_results, make_heaps
from cccf_index.search.parameters import ExcludedIds, SearchOptions
from cccf_index.search.queries import Queries, RealQueries
from cccf_index.storage.state import NO_BITS, Part


def find_top_k(
    queries: Queries,
    excluded: ExcludedIds,
    options: SearchOptions,
    D: NDArray[np.float32],
    I: NDArray[np.int64],
    exact: bool = True,
) -> None:
    """Fill D and I (nq, k): score descending, then id ascending, padded as faiss does.

    If not `exact`, scores are estimates by the sketches, where a search is by bounds: some of the last items may be
    others.
    """
    k, whole = min(D.shape[1], options.n_items), len(queries)
    budgets = options.count_blocks()
    by_bounds = options.prune and not (options.shortlist and isinstance(queries, RealQueries))
    if not (D.flags.c_contiguous and I.flags.c_contiguous):  # kernels are compiled for contiguous arrays only
        distances, labels = np.empty(D.shape, np.float32), np.empty(I.shape, np.int64)
        find_top_k(queries, excluded, options, distances, labels, exact)
        D[:], I[:] = distances, labels
        return

    def work(start: int, stop: int) -> None:
        n, rows = stop - start, slice(start, stop)
        out = (queries.divisors, queries.shifts, D, I)
        starts = excluded.starts
        if n < whole:  # slices take as long as a few rows
            out = (queries.divisors[rows], queries.shifts[rows], D[rows], I[rows])
            starts = starts[start : stop + 1]
        if by_bounds:
            batch = queries.batch(rows)
            parts, n_cells, n_rows = options.table
            room = make_room(batch, n, n_cells, k, n_rows)
            heaps = np.empty((n, k), np.int64), np.empty((n, k), np.int64)
            queries.entries.find(
                *queries.entries.before,
                parts,
                budgets,
                options.effort,
                exact,
                *room,
                *batch,
                starts,
                excluded.ids,
                *heaps,
                *out,
            )
        else:
            ranks, ids = make_heaps(n, k)
            for number, part in enumerate(options.parts):
                budget = int(budgets[min(number, len(budgets) - 1)])
                filters = Filters(part.dead if part.n_dead else NO_BITS, starts, excluded.ids)
                _search_part(part, queries, rows, filters, options, budget, ranks, ids)
            fill_results(ranks, ids, queries.score_type.kind == "f", *out)

    _threads.run_chunks(work, whole, options.n_threads)


def _search_part(
    part: Part,
    queries: Queries,
    rows: slice,
    filters: Filters,
    options: SearchOptions,
    budget: int,
    ranks: Any,
    ids: Any,
) -> None:
    """Offer the items of a part to the heaps (`ranks`, `ids`) of the queries in `rows`, not by bounds alone."""
    segment, batch = part.segment, queries.batch(rows)
    (n, k), n_cells = ranks.shape, segment.n_cells
    room = make_room(batch, n, n_cells)
    if options.shortlist and isinstance(queries, RealQueries):
        wanted = min(options.shortlist * k, len(part))
        likely, chosen = make_heaps(n, wanted)
        drafts = queries.nearest_codes.batch(rows)
        draft_room = make_room(drafts, n, n_cells, wanted, len(segment))
        draft_coded(segment.row_address, *draft_room, *drafts, *filters, budget, options.effort, likely, chosen)
        rank_rows(segment.address, *room, *batch, chosen, np.zeros(n + 1, np.int64), ranks, ids)
    else:
        every = np.empty(len(segment), dtype=queries.score_type)
        queries.entries.brute_force(segment.address, *room, *batch, *filters, every, ranks, ids)


def find_in_range(
    queries: Queries,
    threshold: np.float32,
    excluded: ExcludedIds,
    options: SearchOptions,
) -> list[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Return for each query D and I of all items with D above the threshold, in the order of `find_top_k`."""
    shift = queries.shifts if queries.shifts.size else None
    found: list[Any] = [None] * len(queries)
    least = np.full(len(queries), threshold)
    if shift is not None:  # a little lower, so that rounding loses no result
        least = (threshold - shift - 1e-5 * (np.abs(threshold) + np.abs(shift))).astype(np.float32)

    def work(start: int, stop: int) -> None:
        for query in range(start, stop):
            hidden = excluded.ids[excluded.starts[query] : excluded.starts[query + 1]]
            scores, labels = _find_above(options.parts, queries, query, float(least[query]), hidden)
            if shift is not None:
                scores = scores + shift[query]
                scores, labels = scores[scores > threshold], labels[scores > threshold]
            found[query] = scores, labels

    _threads.run_chunks(work, len(queries), options.n_threads, least=1)
    return found


def _find_above(
    parts: tuple[Part, ...], queries: Queries, query: int, threshold: float, excluded: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    scores, distances, ids = [], [], []
    for part in parts:
        score = np.empty(len(part.segment), dtype=queries.score_type)
        batch = queries.batch(slice(query, query + 1))
        room = make_room(batch, 1, part.segment.n_cells)
        queries.entries.score(part.segment.address, *room, *batch, score)
        distance = (score / queries.divisors[query]).astype(np.float32)
        good = distance > threshold
        if part.n_dead:
            good &= ~part.dead_mask
        rows = np.flatnonzero(good)
        identity = part.segment.decode_ids(rows)
        if len(excluded):
            unseen = ~np.isin(identity, excluded)
            rows, identity = rows[unseen], identity[unseen]
        scores.append(score[rows])
        distances.append(distance[rows])
        ids.append(identity)
    if not ids:
        return np.empty(0, np.float32), np.empty(0, np.int64)
    score, distance, identity = np.concatenate(scores), np.concatenate(distances), np.concatenate(ids)
    # the order of `heaps.is_worse`
    best_first = np.lexsort((identity, -score.astype(np.float64 if score.dtype.kind == "f" else np.int64)))
    return distance[best_first], identity[best_first]
