"""Checks at the door: each returns the cleaned value, or raises an error that says what was wrong.

Everything behind the door (segments, kernels) trusts its input.
"""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

MIN_ID = -(2**63)
MAX_ID = 2**63 - 2  # the largest int64 marks an empty place in the heap
MAX_FLOAT = 1e16  # G * r * MAX_FLOAT ** 2 still is a finite float32
SAFE_SQUARES = 1e30  # a sum of squares that tells that no value is larger than MAX_FLOAT


class NotFittedError(ValueError, AttributeError):
    """A model or a quantizer was asked before `fit`."""


def integer(value: Any, name: str, low: int, high: int | None = None, or_else: str = "") -> int:
    """Return `value` as int; numpy integers are welcome, floats and bools are not."""
    if type(value) is int and value >= low and high is None:
        return value
    error: type[Exception]
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)
        if number >= low and (high is None or number <= high):
            return number
        error, got = ValueError, str(number)
    except TypeError:
        error, got = TypeError, repr(value)
    wanted = f"an integer >= {low}" if high is None else f"an integer from {low} to {high}"
    wanted += f", {or_else}" if or_else else ""
    raise error(f"`{name}` must be {wanted}, got {got}.")


def number(value: Any, name: str, low: float | None = None) -> float:
    """Return `value` as float; NaN is none, and with a lower bound infinity neither."""
    if not isinstance(value, Real):
        raise TypeError(f"`{name}` must be a number, got {value!r}.")
    if math.isnan(value):
        raise ValueError(f"`{name}` must be a number, got nan.")
    if low is not None and not low <= float(value) < math.inf:
        raise ValueError(f"`{name}` must be a finite number >= {low:g}, got {value}.")
    return float(value)


def choice(value: Any, name: str, choices: tuple[str, ...]) -> str:
    """Return `value`, one of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(map(repr, choices))}, got {value!r}.")
    return str(value)


def to_array(x: Any) -> NDArray[Any]:
    """Return `x` as an array, also a tensor that numpy does not take: with gradients, on a GPU or of bfloat16."""
    try:
        array = np.asarray(x)
    except (TypeError, RuntimeError):
        if not hasattr(x, "detach"):
            raise
        tensor = x.detach().cpu()
        try:
            array = np.asarray(tensor)
        except (TypeError, RuntimeError):  # numpy has no bfloat16
            array = np.asarray(tensor.float())
    is_foreign = array.dtype.isbuiltin != 1  # the name of a dtype takes longer than all other checks of a query
    return array.astype(np.float32) if is_foreign and array.dtype.name == "bfloat16" else array  # of ml_dtypes


def numbers(x: ArrayLike, name: str) -> NDArray[Any]:
    try:
        array = to_array(x)
    except ValueError as error:
        raise ValueError(f"`{name}` must be a rectangular array: {str(error).rstrip('.')}.") from None
    if array.dtype.kind not in "fiub":
        got = f"dtype {array.dtype}" if isinstance(x, (np.ndarray, list, tuple)) else type(x).__name__
        advice = " Pass its `toarray()`." if sparse.issparse(x) else ""
        raise TypeError(f"`{name}` must be an array of real numbers, got {got}.{advice}")
    return array


def _float32(array: NDArray[Any], name: str) -> NDArray[np.float32]:
    """Convert silently, as faiss does, but let no NaN, infinity or float32 overflow through."""
    if array.dtype == np.float32:
        result = _contiguous(array)
        values = result.reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            if values @ values <= SAFE_SQUARES:  # False for NaN and infinity: the quickest look at a short query
                return result
    with np.errstate(over="ignore"):
        result = np.ascontiguousarray(array, dtype=np.float32)
    # abs(x) <= limit is False for NaN and infinity too
    good = np.abs(result) <= MAX_FLOAT
    if not good.all():
        place = tuple(int(i) for i in np.argwhere(~good)[0])
        raise ValueError(
            f"`{name}` must be finite and at most {MAX_FLOAT:g} in size, got {array[place]} at position {place}."
        )
    return result


def _contiguous(array: NDArray[Any]) -> NDArray[Any]:
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def matrix(x: ArrayLike, name: str, d: int, is_checked_later: bool = False) -> NDArray[np.float32]:
    """Return `x` as a finite, C-contiguous float32 array of shape (n, d).

    A caller that checks sums of squares itself may leave out the check of float32 values, if it calls again without
    `is_checked_later` where a sum is above SAFE_SQUARES.
    """
    is_float32 = type(x) is np.ndarray and x.dtype == np.float32
    array: NDArray[Any] = x if is_float32 else numbers(x, name)  # type: ignore[assignment]
    if array.ndim == 2 and array.shape[1] == d:
        return _contiguous(array) if is_checked_later and is_float32 else _float32(array, name)
    if array.ndim == 1 and array.shape == (d,):
        one = f"[{name}]" if isinstance(x, (list, tuple)) else f"{name}[None]"
        raise ValueError(f"`{name}` must be of shape (n, {d}), got ({d},). For one vector pass `{one}`.")
    if array.shape == (0,):
        return np.empty((0, d), dtype=np.float32)
    advice = " Make codes of signs by `CompositionalCodes.from_signs`." if array.ndim == 3 else ""
    raise ValueError(f"`{name}` must be of shape (n, {d}), got {array.shape}.{advice}")


def vector(x: ArrayLike, name: str, n: int) -> NDArray[np.float32]:
    """Return `x` as a finite float32 array of shape (n,), a copy that the caller cannot change."""
    array = numbers(x, name)
    if array.shape != (n,):
        raise ValueError(f"`{name}` must be of shape ({n},), got {array.shape}.")
    return _float32(array, name).copy()


def weights(w: Any, name: str, shape: tuple[int, int]) -> NDArray[np.float32]:
    """Return non-negative component weights as float32 of the given shape; scipy.sparse is welcome."""
    array: Any = w if sparse.issparse(w) else numbers(w, name)
    if array.shape != shape:
        raise ValueError(f"`{name}` must be of shape {shape}, got {array.shape}.")
    if sparse.issparse(array):
        array = numbers(array.toarray(), name)
    result = _float32(array, name)
    if (result < 0).any():
        row, component = (int(i) for i in np.argwhere(result < 0)[0])
        raise ValueError(
            f"`{name}` must be non-negative, got {result[row, component]} at row {row}, component {component}. "
            "Flip the component's signs instead."
        )
    return np.abs(result)  # -0.0 becomes 0.0, so that equal codes are equal byte for byte


def ids(values: ArrayLike, name: str, n: int | None = None) -> NDArray[np.int64]:
    """Return `values` as a new int64 array of shape (n,): any int64 but -1, which says "none", and the largest."""
    array = to_array(values)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        got = f"dtype {array.dtype}" if array.ndim else type(values).__name__
        advice = {"b": " For a mask pass `index.ids[mask]`.", "f": " Pass `ids.astype(np.int64)`."}
        raise TypeError(f"`{name}` must be integers, got {got}.{advice.get(array.dtype.kind, '')}")
    if array.ndim != 1 or (n is not None and len(array) != n):
        wanted = "1-dimensional" if n is None else f"of shape ({n},)"
        advice_one = f" For one id pass [{array}]." if array.ndim == 0 else ""
        raise ValueError(f"`{name}` must be {wanted}, got shape {array.shape}.{advice_one}")
    wrong = (array == -1) | (array > MAX_ID)
    if wrong.any():
        raise ValueError(f"`{name}` must be int64 up to {MAX_ID} and not -1, got {array[wrong][0]}.")
    return np.array(array, dtype=np.int64)


def output(array: Any, name: str, shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
    """Return `array`, the caller's own place for a result, or a new one when it is None."""
    if array is None:
        return np.empty(shape, dtype=dtype)
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        got = getattr(array, "dtype", type(array).__name__)
        raise TypeError(f"`{name}` must be a numpy array of {np.dtype(dtype)}, got {got}.")
    if array.shape != shape or not array.flags.writeable:
        state = "" if array.flags.writeable else " (read-only)"
        raise ValueError(f"`{name}` must be writable and of shape {shape}, got {array.shape}{state}.")
    return array


def distinct(values: NDArray[np.int64]) -> bool:
    """Tell whether no value occurs twice."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    if high - low > 16 * len(values):
        return ascending(np.sort(values))
    seen = np.zeros(high - low + 1, dtype=bool)  # much faster than to sort
    seen[values - low] = True
    return int(np.count_nonzero(seen)) == len(values)


def ascending(values: NDArray[np.int64]) -> bool:
    """Tell whether each value is larger than the one before (differences of int64 may wrap)."""
    return bool((values[1:] > values[:-1]).all())


def unique(values: NDArray[np.int64], name: str) -> NDArray[np.int64]:
    """Return `values`, unless one occurs twice."""
    if not ascending(values):
        ordered = np.sort(values)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(twice):
            raise ValueError(f"`{name}` must be unique, got {twice[0]} more than once.")
    return values


def rows_error(name: str, n: int, got: str) -> ValueError:
    """Return the error for something that has not one row for each query."""
    return ValueError(
        f"`{name}` must have one row for each of the {n} queries, got {got}. "
        "For some users pass their rows only, in the order of the queries."
    )


def pairs(matrix: Any, name: str, n: int) -> sparse.csr_array:
    """Return a sparse (n, any) matrix of (query, item id) pairs as CSR with ascending ids in each row."""
    if not sparse.issparse(matrix):
        raise TypeError(
            f"`{name}` must be a scipy.sparse matrix of (query, item id) pairs, got {type(matrix).__name__}."
        )
    if matrix.ndim != 2 or matrix.shape[0] != n:
        raise rows_error(name, n, f"shape {matrix.shape}")
    csr = matrix.tocsr()
    # a new matrix, which does not remember whether its indices were once sorted
    csr = sparse.csr_array((csr.data, csr.indices, csr.indptr), shape=csr.shape, copy=matrix.format in ("bsr", "dia"))
    if matrix.format in ("bsr", "dia"):  # they store zeros that nobody asked for
        csr.eliminate_zeros()
    return csr if csr.has_sorted_indices else csr.sorted_indices()


def ratings(matrix: Any, name: str, n_columns: int | None = None) -> sparse.csr_array:
    """Return ratings as CSR of float64 with ascending columns in each row; a stored zero is a rating of zero.

    `n_columns` is how many columns the matrix must have, if that is known.
    """
    if not sparse.issparse(matrix):
        advice = "its `user_items`" if hasattr(matrix, "user_items") else "`scipy.sparse.csr_matrix(...)` of it"
        raise TypeError(
            f"`{name}` must be a scipy.sparse matrix of ratings, got {type(matrix).__name__}. Pass {advice}."
        )
    if matrix.dtype.kind not in "fiub":
        raise TypeError(f"`{name}` must hold real numbers, got dtype {matrix.dtype}.")
    if matrix.ndim != 2 or (n_columns is not None and matrix.shape[1] != n_columns):
        wanted = "2-dimensional" if n_columns is None else f"of shape (n, {n_columns})"
        advice = " Is it transposed?" if matrix.ndim == 2 and matrix.shape[0] == n_columns else ""
        raise ValueError(f"`{name}` must be {wanted}, got shape {matrix.shape}.{advice}")
    if matrix.format == "coo":  # scipy would add up what is given twice
        order = np.lexsort((matrix.col, matrix.row))
        starts = np.concatenate([[0], np.cumsum(np.bincount(matrix.row, minlength=matrix.shape[0]))])
        matrix = sparse.csr_array((matrix.data[order], matrix.col[order], starts), shape=matrix.shape)
    csr = pairs(matrix, name, matrix.shape[0])
    rows = np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))
    columns, values = csr.indices, csr.data.astype(np.float64)
    again = np.concatenate([[False], (np.diff(columns) == 0) & (np.diff(rows) == 0)])[: len(rows)]
    for wrong, problem, advice in (
        ((columns < 0) | (columns >= csr.shape[1]), "hold only columns that it has", "Check its indices."),
        (again, "hold each pair once", "Keep one rating of each pair."),
        (~(np.abs(values) <= MAX_FLOAT), f"be finite and at most {MAX_FLOAT:g}", "Leave out what is not known."),
    ):
        if wrong.any():
            entry = int(np.flatnonzero(wrong)[0])
            place = f"row {rows[entry]}, column {columns[entry]}"
            raise ValueError(f"`{name}` must {problem}, got {values[entry]:g} at {place}. {advice}")
    return sparse.csr_array((values, columns, csr.indptr), shape=csr.shape)


def features(x: Any, name: str, n: int, n_columns: int | None = None) -> Any:
    """Return side features as float64, (n, n_columns): a dense array, or CSR where they are sparse."""
    array: Any = sparse.csr_array(x) if sparse.issparse(x) else numbers(x, name)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"`{name}` must hold real numbers, got dtype {array.dtype}.")
    if array.ndim != 2 or array.shape[0] != n or (n_columns is not None and array.shape[1] != n_columns):
        columns = "any" if n_columns is None else n_columns
        raise ValueError(f"`{name}` must be of shape ({n}, {columns}), a row for each, got {array.shape}.")
    if array.shape[1] == 0:
        raise ValueError(f"`{name}` must have at least one column, got shape {array.shape}.")
    array = array.astype(np.float64)
    values = array.data if sparse.issparse(array) else array
    wrong = ~(np.abs(values) <= MAX_FLOAT)
    if wrong.any():
        raise ValueError(
            f"`{name}` must be finite and at most {MAX_FLOAT:g} in size, got {values[wrong][0]}. "
            "Fill in what is not known."
        )
    return array


def user_rows(users: ArrayLike | None, n: int) -> NDArray[np.int64]:
    """Return rows of a model's users, int64 (any,); None means all of them."""
    array = np.arange(n) if users is None else rows(users, "users", n)
    if array.ndim != 1:
        raise ValueError(f"`users` must be 1-dimensional, got shape {array.shape}. For one user pass [user].")
    return array


def rows(values: ArrayLike, name: str, n: int) -> NDArray[np.int64]:
    """Return rows of a model's users or items, which `name` says in the plural, as int64 of any shape."""
    array = to_array(values)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"`{name}` must be integers, the rows of {name} in the ratings, got dtype {array.dtype}. "
            f"For ids see `Ratings.{name[:-1]}_rows`, for a mask pass `numpy.flatnonzero` of it."
        )
    if array.size and not (array.min() >= 0 and array.max() < n):
        wrong = array[(array < 0) | (array >= n)].flat[0]
        raise ValueError(
            f"`{name}` must be rows from 0 to {n - 1}, got {wrong}. For ids see `Ratings.{name[:-1]}_rows`; "
            f"what the model never saw goes through `encode_{name}`."
        )
    return array.astype(np.int64)
