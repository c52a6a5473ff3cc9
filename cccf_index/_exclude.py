"""Items that must not be returned, in the forms that callers have them: lists, arrays, masks, sparse matrices."""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import accumulate
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from cccf_index import _check
from cccf_index.kernels.lookup import check_lists

NO_IDS = np.empty(0, dtype=np.int64)


class SparseMatrix(Protocol):
    """A matrix of scipy.sparse, which has no types of its own."""

    @property
    def shape(self) -> Any:
        """Rows and columns."""

    def tocsr(self) -> Any:
        """Return the matrix by rows."""


Exclude: TypeAlias = SparseMatrix | NDArray[np.bool_] | NDArray[np.integer[Any]] | Sequence[ArrayLike | Set[int]]


def read_exclusions(values: Exclude, name: str, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the excluded ids of each of n queries: where those of a query start, (n + 1,), and the ids, ascending.

    `values` is a sparse matrix of (query, item id) pairs, a mask of the same form, an array of ids (n, any) padded with
    -1, or n sequences of ids.
    """
    if sparse.issparse(values):
        return _read_sparse(values, name, n)
    array = _check.to_array(values) if not isinstance(values, (list, tuple)) else None
    if array is not None and not (array.ndim == 1 and array.dtype.kind == "O"):  # which a pandas.Series of lists is
        rows, ids = _read_array(array, values, name, n)
        counts = np.bincount(rows, minlength=n).tolist()
    else:
        queries = [_read_query(query, name) for query in (values if array is None else array)]  # type: ignore[union-attr]
        if len(queries) != n:
            raise _check.rows_error(name, n, f"{len(queries)} rows")
        counts = [len(query) for query in queries]
        ids = queries[0] if n == 1 else np.concatenate([NO_IDS, *queries])
    starts = np.array([0, *accumulate(counts)], dtype=np.int64)
    if check_lists(starts, ids):
        ids = ids[np.lexsort((ids, np.repeat(np.arange(n), counts)))]
    return starts, ids


def _read_sparse(values: Any, name: str, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs of a sparse matrix; CSR with ascending ids, as most callers have it, is only copied."""
    if values.format == "csr" and values.shape[0] == n:
        starts, ids = values.indptr.astype(np.int64), values.indices.astype(np.int64)
        if len(starts) == n + 1 and check_lists(starts, ids) == 0:
            return starts, ids
    matrix = _check.pairs(values, name, n)
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)


def make_exclusion_matrix(values: Exclude, name: str, n: int, n_items: int) -> sparse.csr_array:
    """Return what `read_exclusions` reads as CSR (n, n_items); ids are rows of items."""
    table: Any = values if sparse.issparse(values) or isinstance(values, (list, tuple)) else _check.to_array(values)
    starts, ids = read_exclusions(table, name, n)
    if (sparse.issparse(table) or getattr(table, "dtype", None) == np.bool_) and table.shape[1] != n_items:
        raise ValueError(f"`{name}` must have a column for each of {n_items} items, got {table.shape}.")
    wrong = ids[(ids < 0) | (ids >= n_items)]
    if len(wrong):
        raise ValueError(f"`{name}` must be rows of items from 0 to {n_items - 1}, got {wrong[0]}.")
    return sparse.csr_array((np.ones(len(ids), dtype=bool), ids, starts), shape=(n, n_items))


def _read_array(array: NDArray[Any], values: Any, name: str, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs of a mask, or of an array of ids padded with -1, by rows."""
    if array.ndim != 2 or array.dtype.kind not in "biu":
        raise _make_error(values, array, name)
    if len(array) != n:
        raise _check.rows_error(name, n, f"shape {array.shape}")
    if array.dtype.kind == "b":
        rows, ids = np.nonzero(array)
        return rows.astype(np.int64), ids.astype(np.int64)
    ordered = np.sort(array, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != -1)
    if twice.any():  # zeros and ones are a mask, and small numbers are ratings: as ids they would exclude a few items
        raise ValueError(
            f"`{name}` must hold an id at most once in a row, as ids padded with -1 do, got "
            f"{ordered[:, 1:][twice][0]} twice. For a mask pass `{name}.astype(bool)`."
        )
    rows, places = np.nonzero(array != -1)
    return rows, array[rows, places].astype(np.int64)


def _read_query(values: Any, name: str) -> NDArray[np.int64]:
    """Return the ids of one query; -1 is padding, and a mask stands for the positions where it is True."""
    row = _check.to_array(list(values) if isinstance(values, Set) else values)
    if row.ndim != 1 or (row.size and row.dtype.kind not in "biu"):
        raise _make_error(values, row, name)
    if row.dtype.kind == "b":
        return np.flatnonzero(row)
    is_padding = row == -1
    return (row[~is_padding] if np.count_nonzero(is_padding) else row).astype(np.int64)


def _make_error(values: Any, array: NDArray[Any], name: str) -> TypeError:
    got = f"{array.dtype} of shape {array.shape}" if array.ndim else type(values).__name__
    advice = " For one query pass a list of one: `[[3, 5]]`." if array.ndim < 2 and array.dtype.kind in "iu" else ""
    return TypeError(
        f"`{name}` must be a list with the ids of each query, an integer array of ids padded with -1, a boolean mask "
        f"or a scipy.sparse matrix of (query, item id) pairs, got {got}.{advice}"
    )
