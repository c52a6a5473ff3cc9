"""Heaps: of cells, the likeliest first, and of what each query has found, the worst first.

Kernels are compiled without reference counts, which cost more than all else in them; so they cannot allocate.
"""

from typing import Any

import numpy as np
from numba import njit

OPTIONS = {"nogil": True, "_nrt": False}
kernel = njit(**OPTIONS)  # called by other kernels
entry = njit(cache=True, **OPTIONS)  # called from Python
allocating = njit(cache=True, nogil=True)

EMPTY_ID = np.iinfo(np.int64).max
LOWEST = np.finfo(np.float32).min  # what faiss pads inner products with


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


@entry
def clear(scores, ids, lowest):
    """Empty the heaps: `lowest` is below any score."""
    scores[:] = lowest
    ids[:] = EMPTY_ID


def new_heaps(nq: int, k: int, lowest: Any) -> tuple[Any, Any]:
    """Return empty heaps (nq, k): scores of the type of `lowest`, which is below any score, and ids."""
    scores, ids = np.empty((nq, k), dtype=lowest.dtype), np.empty((nq, k), dtype=np.int64)
    clear(scores, ids, lowest)
    return scores, ids


# O(k log k) for each query: taking out the worst entry again and again leaves the best first.
@entry
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
