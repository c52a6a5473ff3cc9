"""Inner products with full vectors, of float32 or float16, for re-ranking."""

import numpy as np

from cccf_index.kernels.decorators import entry, reordering_kernel
from cccf_index.kernels.heaps import push
from cccf_index.kernels.lookup import find_vector
from cccf_index.kernels.memory import half_to_float


@reordering_kernel
def inner_product(query, vectors, row):
    """Return the inner product with a row of float32 vectors."""
    total = np.float32(0)
    for i in range(query.size):
        total += query[i] * vectors[row, i]
    return total


@reordering_kernel
def inner_product_half(query, vectors, row):
    """Return the inner product with a row of float16 vectors, given by their bits as uint16."""
    total = np.float32(0)
    for i in range(query.size):
        total += query[i] * half_to_float(vectors[row, i])
    return total


# O(k' * (d + log k)) for each query.
@entry
def rank_found(queries, vectors, halves, sorted_ids, order, found, scores, ids):
    """Offer the items `found`, int64 (nq, k'), to the heaps; return (missing, wrong).

    missing: an id that has no vector; wrong: one whose score is not finite; -1 where there is none.

    queries: float32 (nq, d); vectors: float32 (n, d), or halves: uint16 (n, d), the bits of float16: the other is
    empty; sorted_ids, order: see `find_vector`; scores, ids: the heaps, (nq, k) each.
    """
    n, missing, wrong = max(len(vectors), len(halves)), -1, -1
    for q in range(found.shape[0]):
        for identity in found[q]:
            row = find_vector(identity, n, sorted_ids, order)
            if row < 0:
                missing = identity if identity != -1 else missing
                continue
            if len(halves):
                score = inner_product_half(queries[q], halves, row)
            else:
                score = inner_product(queries[q], vectors, row)
            wrong = wrong if np.isfinite(score) else identity
            push(scores[q], ids[q], score, identity)
    return missing, wrong
