"""Heaps: what each query has found, the worst first, and cells, the most promising first.

Scores are kept as ranks, see `sorting.rank_score`, so that one kernel serves all their types. The order of a result is
decided here, by `is_worse`: rank descending, then id ascending.
"""

from typing import Any

import numpy as np

from cccf_index.kernels.decorators import entry, kernel
from cccf_index.kernels.sorting import EMPTY_RANK, unrank

EMPTY_ID = np.iinfo(np.int64).max
LOWEST = np.finfo(np.float32).min  # what faiss pads inner products with


@kernel
def is_worse(rank, identity, other_rank, other_identity):
    """Whether an item stands below another in a result: a lower score, or the same score and a larger id."""
    return rank < other_rank or (rank == other_rank and identity > other_identity)


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


# O(log k). Invariant: entry 0 is the worst of the heap.
@kernel
def replace_worst(ranks, ids, k, rank, identity):
    """Put an item in the place of the worst entry of a heap, the first k of `ranks` and `ids`."""
    place = 0
    while True:
        child = 2 * place + 1
        if child >= k:
            break
        other = child + 1
        if other < k and is_worse(ranks[other], ids[other], ranks[child], ids[child]):
            child = other
        if is_worse(rank, identity, ranks[child], ids[child]):
            break
        ranks[place], ids[place] = ranks[child], ids[child]
        place = child
    ranks[place], ids[place] = rank, identity


@kernel
def push(ranks, ids, rank, identity):
    """Put an item into the heap if it is better than the worst entry, and its score a number."""
    if rank != EMPTY_RANK and is_worse(ranks[0], ids[0], rank, identity):
        replace_worst(ranks, ids, ranks.size, rank, identity)


def make_heaps(nq: int, k: int) -> tuple[Any, Any]:
    """Return empty heaps: ranks and ids, int64 (nq, k)."""
    return np.full((nq, k), EMPTY_RANK, np.int64), np.full((nq, k), EMPTY_ID, np.int64)


# O(k log k): taking out the worst entry again and again leaves the best first.
@kernel
def sort_heap(ranks, ids):
    """Sort a heap, the worst first."""
    for last in range(ranks.size - 1, 0, -1):
        rank, identity = ranks[0], ids[0]
        replace_worst(ranks, ids, last, ranks[last], ids[last])
        ranks[last], ids[last] = rank, identity
    for j in range(ranks.size // 2):
        other = ranks.size - 1 - j
        ranks[j], ranks[other] = ranks[other], ranks[j]
        ids[j], ids[other] = ids[other], ids[j]


@kernel
def write_results(ranks, ids, is_float, divisors, shifts, D, I):
    """Write sorted heaps, the worst first, to D and I, contiguous (nq, at least k), padded as faiss does.

    ranks, ids: heaps (nq, k); is_float: see `unrank`; divisors: float64 (nq,), what scores are divided by for the user;
    shifts: float32 (nq,), what is added then, or empty.
    """
    k = ranks.shape[1]
    for q in range(ranks.shape[0]):
        for j in range(D.shape[1]):
            place = k - 1 - j
            D[q, j], I[q, j] = LOWEST, -1
            if place >= 0 and ids[q, place] != EMPTY_ID:
                D[q, j], I[q, j] = np.float32(unrank(ranks[q, place], is_float) / divisors[q]), ids[q, place]
                if shifts.size:
                    D[q, j] += shifts[q]


@entry
def fill_results(ranks, ids, is_float, divisors, shifts, D, I):
    """Sort heaps, and write them; see `write_results`."""
    for q in range(ranks.shape[0]):
        sort_heap(ranks[q], ids[q])
    write_results(ranks, ids, np.int64(is_float), divisors, shifts, D, I)
