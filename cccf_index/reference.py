"""The search of `IndexCCCF` in plain numpy, slow and obvious: the tests compare the index with it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index.codes import CompositionalCodes, expand, round_weights
from cccf_index.dense import DenseRows
from cccf_index.kernels.limits import DENSE_SHIFT


def integer_vectors(codes: CompositionalCodes, scale: float) -> NDArray[np.int64]:
    """Return the expanded vectors of codes whose weights are rounded at `scale`, int64 (n, d).

    For codes with a dense component this is the side of the items, with `query_vectors` as the other.
    """
    vectors = expand(codes.bits, round_weights(codes.weights, scale, "codes").astype(np.int64), codes.n_bits)
    if codes.dense is None:
        return vectors
    return np.concatenate([vectors, _round_dense(codes.dense, scale * 2**DENSE_SHIFT)], axis=1)


def query_vectors(codes: CompositionalCodes, scale: float) -> NDArray[np.int64]:
    """Return the side of the queries, where codes have a dense component: its weights of items are 2^8 times finer."""
    assert codes.dense is not None
    vectors = expand(codes.bits, round_weights(codes.weights, scale, "codes").astype(np.int64), codes.n_bits)
    return np.concatenate([vectors << DENSE_SHIFT, _round_dense(codes.dense, scale)], axis=1)


def _round_dense(dense: DenseRows, scale: float) -> NDArray[np.int64]:
    weights = np.rint(dense.weights.astype(np.float64) * scale).astype(np.uint32)
    return DenseRows(weights, dense.values[weights[dense.is_present] > 0]).expand()


def search(
    queries: NDArray[Any],
    items: NDArray[Any],
    k: int,
    ids: NDArray[np.int64] | None = None,
    bias: NDArray[Any] | None = None,
    exclude: Any = None,
    allow: NDArray[np.int64] | None = None,
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return scores and ids (nq, k), ordered by descending score, then ascending id; empty places are 0 and -1.

    Parameters
    ----------
    queries, items : ndarray, shape (nq, d) and (n, d)
        Expanded vectors. Integer vectors give exact scores, float vectors those of numpy.
    ids : ndarray of int64, shape (n,), optional
        0 to n - 1 by default.
    bias : ndarray, shape (n,), optional
        Added to the scores of the items, in units of the scores.
    exclude : scipy.sparse matrix, shape (nq, any), optional
        Entries (query, id) are not returned.
    allow : ndarray of int64, optional
        Only these ids are returned.
    """
    ids = np.arange(len(items)) if ids is None else ids
    scores = queries @ items.T + (0 if bias is None else bias)
    best_scores = np.zeros((len(queries), k), dtype=scores.dtype)
    best_ids = np.full((len(queries), k), -1, dtype=np.int64)
    for i in range(len(queries)):
        good = np.ones(len(items), dtype=bool) if allow is None else np.isin(ids, allow)
        if exclude is not None:
            row = exclude.tocsr()[[i]]
            good &= ~np.isin(ids, row.indices)
        rows = np.flatnonzero(good)
        order = rows[np.lexsort((ids[rows], -scores[i, rows]))][:k]
        best_scores[i, : len(order)] = scores[i, order]
        best_ids[i, : len(order)] = ids[order]
    return best_scores, best_ids
