"""Inner products with stored vectors, of float32, float16 or 8 bits, for re-ranking.

Vectors are passed as one record of addresses, as segments are (see `layout`); `storage.vectors` fills it.
"""

import numpy as np

from cccf_index.kernels.calls import BUCKETS
from cccf_index.kernels.decorators import ONE, ZERO, entry, kernel, reordering_kernel
from cccf_index.kernels.heaps import LOWEST
from cccf_index.kernels.linear_algebra import multiply_rows
from cccf_index.kernels.lookup import find_sorted, get_stored
from cccf_index.kernels.memory import address_of, half_to_float, make_viewer, prefetch, read, view_row
from cccf_index.kernels.sorting import rank_score, sort_found, unrank

TWO = np.int64(2)
FLOAT32, FLOAT16, INT8 = 0, 1, 2  # kinds of stored values
AHEAD = 8  # vectors that are on their way from memory while one is scored
LINE = 64  # bytes of a cache line
MAX_LINES = 16  # of a vector to ask for: more would push out others, and by then the processor reads ahead itself

# Addresses are 0 where there is no such array.
VECTOR_RECORD = np.dtype(
    [
        (name, "i8")
        for name in (
            "kind",
            "d",
            "row_size",  # bytes of a vector, without its scale
            "n_base",  # rows of the first array; the rows after them are in the second
            "n_rows",
            "base", "tail",  # (n, d) of the kind's type
            "base_scales", "tail_scales",  # float32 (n,): what 8-bit values are multiplied by
            "n_ids",
            "ids",  # int64 (n_ids,), ascending; none: row i has id i
            "rows",  # uint32 (n_ids,): the row of each id; none: row i has the id at place i
            "directory",  # uint32: ids at the distance b from the first are at directory[b] to directory[b + 1]
            "shift",  # how far right these distances are shifted
        )
    ]
)  # fmt: skip
view_vectors = make_viewer(VECTOR_RECORD, "Return the record of stored vectors at an address.")


# O(1) for ids that are spread, O(log n) at most.
@kernel
def find_row(vectors, identity):
    """Return the row of an id, or -1."""
    if vectors.ids == 0:
        return identity if 0 <= identity < vectors.n_rows else np.int64(-1)
    first, last = read(vectors.ids, ZERO, np.int64), read(vectors.ids, vectors.n_ids - 1, np.int64)
    if identity < first or identity > last:
        return np.int64(-1)
    bucket = np.int64((np.uint64(identity) - np.uint64(first)) >> np.uint64(vectors.shift))
    start = np.int64(read(vectors.directory, bucket, np.uint32))
    stop = np.int64(read(vectors.directory, bucket + 1, np.uint32))
    place = find_sorted(get_stored, vectors.ids, start, stop, identity)
    if place < 0 or vectors.rows == 0:
        return place
    return np.int64(read(vectors.rows, place, np.uint32))


@kernel
def locate(vectors, row):
    """Return the address of a row's values."""
    if row < vectors.n_base:
        return vectors.base + row * vectors.row_size
    return vectors.tail + (row - vectors.n_base) * vectors.row_size


@kernel
def prefetch_row(vectors, row):
    """Ask for the first cache lines of a row."""
    start = locate(vectors, row)
    for offset in range(0, min(vectors.row_size, LINE * MAX_LINES), LINE):
        prefetch(start + offset)
    prefetch(start + min(vectors.row_size, LINE * MAX_LINES) - 1)


@kernel
def read_scale(vectors, row):
    """Return what the 8-bit values of a row are multiplied by."""
    if row < vectors.n_base:
        return read(vectors.base_scales, row, np.float32)
    return read(vectors.tail_scales, row - vectors.n_base, np.float32)


@reordering_kernel
def multiply_halves(query, values):
    """Return the inner product with float16 values, given by their bits as uint16."""
    total = np.float32(0)
    for i in range(query.size):
        total += query[i] * half_to_float(values[i])
    return total


@reordering_kernel
def multiply_bytes(query, values):
    """Return the inner product with int8 values."""
    total = np.float32(0)
    for i in range(query.size):
        total += query[i] * np.float32(values[i])
    return total


# O(d).
@kernel
def score_row(query, vectors, row):
    """Return the inner product of a query with a row."""
    start = locate(vectors, row)
    if vectors.kind == INT8:
        return read_scale(vectors, row) * multiply_bytes(query, view_row(start, ZERO, vectors.d, np.int8))
    if vectors.kind == FLOAT16:
        return multiply_halves(query, view_row(start, ZERO, vectors.d, np.uint16))
    return multiply_rows(query, view_row(start, ZERO, vectors.d, np.float32))


def count_words(n: int) -> int:
    """Return how many words of uint64 `rank_candidates` needs for n candidates."""
    return 4 * n + (2 * n + BUCKETS + 1) // 2


# O(n * d) for n candidates. Invariant: the vectors of the next AHEAD candidates are on their way.
@kernel
def score_candidates(query, vectors, candidates, rows, ranks, ids):
    """Fill `ranks` and `ids` with the candidates that have a vector; return their number, and (missing, wrong).

    candidates: int64 (n,), ids or -1; room: rows, int64 (n,); see `rank_candidates`.
    """
    n, n_scored, missing, wrong = candidates.size, 0, np.int64(-1), np.int64(-1)
    for j in range(n):
        rows[j] = find_row(vectors, candidates[j]) if candidates[j] != -1 else np.int64(-1)
        if rows[j] < 0 and candidates[j] != -1:
            missing = candidates[j]
        if rows[j] >= 0 and j < AHEAD:
            prefetch_row(vectors, rows[j])
    for j in range(n):
        if j + AHEAD < n and rows[j + AHEAD] >= 0:
            prefetch_row(vectors, rows[j + AHEAD])
        if rows[j] < 0:
            continue
        score = score_row(query, vectors, rows[j])
        if not np.isfinite(score):
            wrong, score = candidates[j], np.float32(0)
        ranks[n_scored], ids[n_scored] = rank_score(score), candidates[j]
        n_scored += 1
    return n_scored, missing, wrong


# O(n * d) for n candidates, and the sort of n scores.
@entry
def rank_candidates(address, queries, found, words, D, I):
    """Fill D and I with the best of the candidates `found`, by their vectors; return (missing, wrong).

    missing: an id that has no vector; wrong: one whose score is not finite; -1 where there is none.

    address: of a VECTOR_RECORD; queries: float32 (nq, d); found: int64 (nq, n) ids, or -1; words: uint64
    (count_words(n),), working memory; D, I: float32 and int64 (nq, k), padded as faiss does.
    """
    vectors, missing, wrong = view_vectors(address), np.int64(-1), np.int64(-1)
    n, k, room = found.shape[1], D.shape[1], address_of(words)
    keys, spare_keys = view_row(room, ZERO, n, np.uint64), view_row(room, ONE, n, np.uint64)
    ids, rows = view_row(room, TWO, n, np.int64), view_row(room, ONE, n, np.int64)
    ranks, room = view_row(room + 24 * n, ZERO, n, np.int64), room + 32 * n
    order, spare_order = view_row(room, ZERO, n, np.int32), view_row(room, ONE, n, np.int32)
    counts = view_row(room + 8 * n, ZERO, BUCKETS, np.int32)
    for q in range(found.shape[0]):
        n_scored, no_vector, not_finite = score_candidates(queries[q], vectors, found[q], rows, ranks, ids)
        missing, wrong = no_vector if no_vector != -1 else missing, not_finite if not_finite != -1 else wrong
        sort_found(ranks, ids, n_scored, keys, order, spare_keys, spare_order, counts)
        for j in range(k):
            D[q, j], I[q, j] = LOWEST, -1
            if j < n_scored:
                D[q, j], I[q, j] = np.float32(unrank(ranks[order[j]], ONE)), ids[order[j]]
    return missing, wrong
