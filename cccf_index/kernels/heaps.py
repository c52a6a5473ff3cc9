"""Heaps: what each query has found, the worst first, and cells, the most promising first.

The order of a result is decided here, by `is_worse`: score descending, then id ascending.
"""

from typing import Any

import numpy as np

from cccf_index.kernels.decorators import entry, kernel

EMPTY_ID = np.iinfo(np.int64).max
LOWEST = np.finfo(np.float32).min  # what faiss pads inner products with


@kernel
def is_worse(score, identity, other_score, other_identity):
    """Whether an item stands below another in a result: a lower score, or the same score and a larger id."""
    return score < other_score or (score == other_score and identity > other_identity)


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
def replace_worst(scores, ids, k, score, identity):
    """Put an item in the place of the worst entry of a heap, the first k of `scores` and `ids`."""
    place = 0
    while True:
        child = 2 * place + 1
        if child >= k:
            break
        other = child + 1
        if other < k and is_worse(scores[other], ids[other], scores[child], ids[child]):
            child = other
        if is_worse(score, identity, scores[child], ids[child]):
            break
        scores[place], ids[place] = scores[child], ids[child]
        place = child
    scores[place], ids[place] = score, identity


@kernel
def push(scores, ids, score, identity):
    """Put an item into the heap if it is better than the worst entry."""
    if is_worse(scores[0], ids[0], score, identity):
        replace_worst(scores, ids, scores.size, score, identity)


def make_heaps(nq: int, k: int, lowest: Any) -> tuple[Any, Any]:
    """Return empty heaps (nq, k): scores of the type of `lowest`, which is below any score, and int64 ids."""
    scores, ids = np.empty((nq, k), lowest.dtype), np.empty((nq, k), np.int64)
    scores.fill(lowest)
    ids.fill(EMPTY_ID)
    return scores, ids


@kernel
def is_sorted(scores, ids):
    """Whether a heap is sorted, the worst first, as a search leaves it."""
    for j in range(1, scores.size):
        if is_worse(scores[j], ids[j], scores[j - 1], ids[j - 1]):
            break
    else:
        return True
    return False


# O(k log k): taking out the worst entry again and again leaves the best first.
@kernel
def sort_heap(scores, ids):
    """Sort a heap, the worst first."""
    for last in range(scores.size - 1, 0, -1):
        score, identity = scores[0], ids[0]
        replace_worst(scores, ids, last, scores[last], ids[last])
        scores[last], ids[last] = score, identity
    for j in range(scores.size // 2):
        other = scores.size - 1 - j
        scores[j], scores[other] = scores[other], scores[j]
        ids[j], ids[other] = ids[other], ids[j]


# O(k) for each query whose heap is sorted, O(k log k) for others.
@kernel
def sort_results(scores, ids, divisors, shifts, D, I):
    """Sort each heap, and write it to D and I, contiguous (nq, at least k), padded as faiss does.

    scores, ids: heaps (nq, k), which are changed; divisors: float64 (nq,), what scores are divided by for the user;
    shifts: float32 (nq,), what is added then, or empty.
    """
    k = scores.shape[1]
    for q in range(scores.shape[0]):
        row_scores, row_ids = scores[q], ids[q]
        if not is_sorted(row_scores, row_ids):
            sort_heap(row_scores, row_ids)
        for j in range(D.shape[1]):
            place = k - 1 - j
            D[q, j], I[q, j] = LOWEST, -1
            if place >= 0 and row_ids[place] != EMPTY_ID:
                D[q, j], I[q, j] = np.float32(row_scores[place] / divisors[q]), row_ids[place]
                if shifts.size:
                    D[q, j] += shifts[q]


@entry
def fill_results(scores, ids, divisors, shifts, D, I):
    """See `sort_results`."""
    sort_results(scores, ids, divisors, shifts, D, I)
