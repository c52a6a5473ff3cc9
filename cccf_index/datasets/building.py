"""From the columns of a file or a frame to a matrix of ratings, with checks that the columns are the right ones."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cccf_index import _check
from cccf_index.datasets.headers import GIVEN, HEADER, Columns, find_role
from cccf_index.datasets.ratings import Ratings

DUPLICATES = ("error", "last", "mean", "sum")
MIN_TIME = 1e8  # seconds since 1970, in 1973: no rating and no count is that large throughout
MANY = 100  # ratings, or users, from which statistics say something

Triples = tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]]


@dataclass(frozen=True)
class Layout:
    """What the caller says about a file, see `read_ratings`; `by_position` ignores the names in a header."""

    sep: str | None = None
    columns: Sequence[int | str] | None = None
    header: bool | None = None
    ids: str = "auto"
    by_position: bool = False


class Table(NamedTuple):
    """Users, items and ratings, each of the same length, and where they come from."""

    users: NDArray[Any]
    items: NDArray[Any]
    values: NDArray[np.float32]
    columns: Columns | None  # None if they are not in doubt
    name: str
    note: str = ""

    def describe(self) -> str | None:
        """Return one line: the name, and the columns that were read."""
        return None if self.columns is None else f"{self.name}: {self.columns.describe()}{self.note}"


def build_ratings(table: Table, duplicates: str, check: bool = True) -> Ratings:
    """Build the matrix: rows and columns in the order of their ids, each pair once."""
    if len(table.users) == 0:
        raise ValueError(f"{table.name} holds no ratings. Check that it is the right file.")
    user_ids, rows = np.unique(table.users, return_inverse=True)
    item_ids, columns = np.unique(table.items, return_inverse=True)
    if check and table.columns is not None:
        _check_values(table, table.columns)
        _check_sides(table, table.columns, np.bincount(rows), len(item_ids))
    values = table.values
    order = np.lexsort((columns, rows))  # stable: of equal pairs the last stays last
    rows, columns, values = rows[order], columns[order], values[order]
    new = np.concatenate([[True], (np.diff(rows) != 0) | (np.diff(columns) != 0)])
    if not new.all():
        if duplicates == "error":
            user, item = (ids[part[~new][0]] for ids, part in ((user_ids, rows), (item_ids, columns)))
            raise ValueError(
                f"{table.name} holds a rating of user {user} and item {item} more than once. "
                'Pass duplicates="last" or "mean" to keep one rating, or "sum" to add up counts.'
            )
        values = _join_values(values, new, duplicates)
        rows, columns = rows[new], columns[new]
    matrix = sparse.csr_matrix((values, (rows, columns)), (len(user_ids), len(item_ids)))
    return Ratings(matrix, user_ids, item_ids, source=table.describe())


def _join_values(values: NDArray[np.float32], new: NDArray[np.bool_], duplicates: str) -> NDArray[np.float32]:
    """Return one value for each pair; `new` marks the first value of a pair."""
    if duplicates == "last":
        return values[np.concatenate([new[1:], [True]])]
    starts = np.flatnonzero(new)
    sums = np.add.reduceat(values, starts, dtype=np.float64)
    return (sums / np.diff([*starts, len(new)]) if duplicates == "mean" else sums).astype(np.float32)


def _check_values(table: Table, columns: Columns) -> None:
    """Refuse timestamps in place of ratings, and warn of ids."""
    if len(columns.places) < 3:
        return
    values, shown = table.values, columns.show(columns.places[2])
    advice = "Name the columns of user, item and rating with `columns=`; without the third, all ratings are 1."
    if values.min() >= MIN_TIME:
        text = f"{table.name}: the ratings in {shown} look like timestamps, all of them are at least 1e8. {advice}"
        if columns.origin != GIVEN:
            raise ValueError(text)
        warnings.warn(text, stacklevel=4)
    elif columns.origin != HEADER and _look_like_ids(values):
        text = f"{table.name}: the ratings in {shown} look like ids, nearly all are different integers. {advice}"
        warnings.warn(text, stacklevel=4)


def _look_like_ids(values: NDArray[np.float32]) -> bool:
    whole = len(values) >= MANY and bool((values == np.round(values)).all())
    return whole and len(np.unique(values)) > 0.99 * len(values)


def _check_sides(table: Table, columns: Columns, ratings_of_user: NDArray[np.int64], n_items: int) -> None:
    """Warn if users and items seem to be swapped: by the header, or by the numbers of ratings."""
    user, item = columns.places[:2]
    roles = [find_role(str(columns.name(place))) for place in (user, item)]
    n_users = len(ratings_of_user)
    if columns.origin != HEADER and roles == ["item", "user"]:
        reason = f"users are read from {columns.show(user)} and items from {columns.show(item)}"
    elif columns.origin == HEADER or roles == ["user", "item"]:
        return
    elif n_users >= MANY and n_users > 10 * n_items and np.mean(ratings_of_user == 1) > 0.5:
        reason = f"there are {n_users:,} users, most of them with one rating, and only {n_items:,} items"
    else:
        return
    swapped = [columns.name(place) for place in (item, user, *columns.places[2:])]
    warnings.warn(f"{table.name}: {reason}. If users and items are swapped, pass `columns={swapped}`.", stacklevel=4)


def make_ids(values: Any, where: str, role: str, as_text: bool = False) -> NDArray[Any]:
    """Return ids as int64 or text; whole floats are integers, as in frames that had gaps.

    Parameters
    ----------
    values : array-like of int, str or whole float, shape (n,)
    where, role : str
        The name of the source, and "user" or "item", for errors.
    as_text : bool
        Return text in any case.
    """
    ids = np.asarray(values)
    if ids.dtype.kind == "S":
        ids = np.char.decode(ids, "utf-8")
    if ids.dtype.kind == "O":
        ids = _make_object_ids(ids, where, role)
    if ids.dtype.kind == "f" and (ids == np.floor(ids)).all() and (np.abs(ids) < 2**53).all():
        ids = ids.astype(np.int64)
    if ids.dtype.kind == "u" and ids.size and ids.max() >= 2**63:
        raise ValueError(f"{where}: ids must be below 2^63, got {ids.max()}. Store them as strings.")
    if ids.dtype.kind not in "iuU":
        raise ValueError(f"{where}: {role} ids must be integers or strings, got {ids.dtype}.")
    if ids.dtype.kind == "U":
        return ids
    return ids.astype(str if as_text else np.int64)


def _make_object_ids(ids: NDArray[Any], where: str, role: str) -> NDArray[Any]:
    """Return objects as integers if all of them are, else as text."""
    whole = [isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in ids]
    if len(ids) and all(whole):
        return np.array([int(value) for value in ids])  # int64, uint64, or objects again beyond 2^64
    for row, (value, is_whole) in enumerate(zip(ids, whole, strict=True)):
        if not is_whole and (not isinstance(value, str) or not value):
            raise ValueError(f"{where}, row {row}: {role} ids must be integers or strings, got {value!r}.")
    return ids.astype(str)


def make_values(values: Any, where: str) -> NDArray[np.float32]:
    """Return ratings as float32; missing, infinite and enormous ones are refused."""
    try:
        ratings = np.asarray(values)
        if ratings.dtype.kind not in "fiubOU":
            raise TypeError(f"got {ratings.dtype}")
        ratings = ratings.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{where}: ratings must be numbers: {error}. Pass `columns=` if they are elsewhere."
        ) from error
    wrong = ~(np.abs(ratings) <= _check.MAX_FLOAT)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"{where}, row {row}: ratings must be finite and at most {_check.MAX_FLOAT:g} in magnitude, "
            f"got {ratings[row]}."
        )
    return ratings.astype(np.float32)
