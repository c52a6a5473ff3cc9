"""Ratings from files or made up, with the ids of their users and items, and ways to cut them."""

from __future__ import annotations

import csv
import gzip
import io
import os
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cccf_index import _check

SEPARATORS = {".dat": "::", ".csv": ",", ".tsv": "\t"}
NPZ_NAMES = ("user", "item", "rating")


@dataclass(frozen=True)
class Ratings:
    """A matrix of ratings, and what its rows and columns stand for.

    Parameters
    ----------
    user_items : scipy.sparse.csr_matrix of float32, shape (n_users, n_items)
        A stored zero is a rating of zero.
    user_ids, item_ids : ndarray, shapes (n_users,) and (n_items,)
        The ids that the file has for rows and columns, ascending: ``user_ids[row]`` is the user of a row, and
        ``numpy.searchsorted(user_ids, id)`` the row of a user.
    user_features, item_features : ndarray of float32, shapes (n_users, any) and (n_items, any), optional
        Side features.
    """

    user_items: sparse.csr_matrix
    user_ids: NDArray[Any]
    item_ids: NDArray[Any]
    user_features: NDArray[np.float32] | None = None
    item_features: NDArray[np.float32] | None = None

    def __repr__(self) -> str:
        m, n = self.user_items.shape
        return f"Ratings({m} users, {n} items, {self.user_items.nnz} ratings)"


def read_ratings(
    path: str | os.PathLike[str],
    *,
    sep: str | None = None,
    columns: Sequence[int | str] | None = None,
    duplicates: str = "error",
) -> Ratings:
    """Read ratings from a file: MovieLens ``.dat`` and ``.csv``, other delimited text, or ``.npz``.

    Parameters
    ----------
    path : str or path-like
        A ``.npz`` holds arrays ``user``, ``item`` and ``rating``, or a matrix of `scipy.sparse.save_npz`. Anything else
        is UTF-8 text, one rating a line, also gzipped (``.gz``). A first line whose rating is no number is a header.
    sep : str, optional
        What separates columns. None takes ``::`` for ``.dat``, a comma for ``.csv``, a tab for ``.tsv``, and
        white space for anything else. Fields may stand in double quotes, except with ``::`` or white space.
    columns : sequence of 2 or 3 int or str, optional
        Where user, item and rating stand: places from 0, or names in the header. Two columns are implicit feedback, a
        rating of 1 each. None takes the first three.
    duplicates : {"error", "last", "mean"}
        What to do when a user rated an item more than once.

    Returns
    -------
    Ratings
        Ids are integers where all of them are, otherwise strings.
    """
    _check.choice(duplicates, "duplicates", ("error", "last", "mean"))
    name = os.fspath(path)
    if name.endswith(".npz"):
        if sep is not None or columns is not None:
            raise ValueError("`sep` and `columns` must be None for .npz files.")
        users, items, values = _read_npz(name)
    else:
        base = name.removesuffix(".gz")
        separator = SEPARATORS.get(os.path.splitext(base)[1].lower()) if sep is None else sep
        if separator == "":
            raise ValueError("`sep` must be a string of at least one character, or None, got ''.")
        users, items, values = _read_text(name, separator, columns)
    if len(users) == 0:
        raise ValueError(f"{name} holds no ratings.")
    return _numbered(users, items, values, name, duplicates)


def k_core(ratings: Ratings, k: int = 10) -> Ratings:
    """Keep only users and items with at least k ratings among those that are kept (the paper's 10-core).

    Rows and columns are numbered anew; `user_ids` and `item_ids` go with them.
    """
    k = _check.integer(k, "k", 0)
    matrix = ratings.user_items
    users, items = np.arange(matrix.shape[0]), np.arange(matrix.shape[1])
    while True:
        user_ok = np.diff(matrix.indptr) >= k
        item_ok = np.bincount(matrix.indices, minlength=matrix.shape[1]) >= k
        if user_ok.all() and item_ok.all():
            break
        users, items = users[user_ok], items[item_ok]
        matrix = matrix[user_ok][:, item_ok]
    if matrix.nnz == 0:
        raise ValueError(f"No user and item have {k} ratings each: the {k}-core is empty. Use a smaller `k`.")
    return replace(
        ratings,
        user_items=matrix,
        user_ids=ratings.user_ids[users],
        item_ids=ratings.item_ids[items],
        user_features=None if ratings.user_features is None else ratings.user_features[users],
        item_features=None if ratings.item_features is None else ratings.item_features[items],
    )


def split_ratings(
    user_items: Any, test_size: float = 0.3, seed: int = 0
) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """Hold out a random share of each user's ratings (the paper: 30 %, five times, by five seeds).

    Parameters
    ----------
    user_items : scipy.sparse matrix
        Ratings.
    test_size : float
        The share to hold out, above 0 and below 1: ``floor(test_size * n)`` of n ratings, so that nobody loses all.
    seed : int
        Of the random choice.

    Returns
    -------
    train, test : scipy.sparse.csr_matrix of float32, of the shape of `user_items`
    """
    if not 0 < _check.number(test_size, "test_size") < 1:
        raise ValueError(f"`test_size` must be above 0 and below 1, got {test_size}.")
    rng = np.random.default_rng(_check.integer(seed, "seed", 0))
    matrix = _check.ratings(user_items, "user_items")
    counts = np.diff(matrix.indptr)
    users = np.repeat(np.arange(len(counts)), counts)
    place = np.empty(matrix.nnz, dtype=np.int64)
    place[np.lexsort((rng.random(matrix.nnz), users))] = np.arange(matrix.nnz)
    held_out = np.floor(test_size * counts + 1e-9).astype(np.int64)
    kept = place - matrix.indptr[users] >= held_out[users]
    train, test = (
        sparse.csr_matrix((matrix.data[part].astype(np.float32), (users[part], matrix.indices[part])), matrix.shape)
        for part in (kept, ~kept)
    )
    return train, test


def synthetic_ratings(
    n_users: int = 2000,
    n_items: int = 1000,
    *,
    n_groups: int = 8,
    ratings_per_user: int = 50,
    noise: float = 0.5,
    seed: int = 0,
) -> Ratings:
    """Make up ratings from 1 to 5 with planted groups of taste.

    Each user and item belongs to one of `n_groups` groups, whose members are alike up to individual differences. Users
    differ in how many items they rate and how well they rate on the whole, items in popularity and quality. A rating
    is the match of the two, rounded, with Gaussian noise.

    Returns
    -------
    Ratings
        The features of users and items tell their group, one column for each.
    """
    n_users = _check.integer(n_users, "n_users", 1)
    n_items = _check.integer(n_items, "n_items", 2)
    n_groups = _check.integer(n_groups, "n_groups", 1)
    ratings_per_user = _check.integer(ratings_per_user, "ratings_per_user", 1)
    noise = _check.number(noise, "noise", 0)
    rng = np.random.default_rng(_check.integer(seed, "seed", 0))
    dimension = 16
    user_groups, item_groups = rng.integers(0, n_groups, n_users), rng.integers(0, n_groups, n_items)
    tastes = rng.standard_normal((n_groups, dimension))
    users = tastes[user_groups] + 0.5 * rng.standard_normal((n_users, dimension))
    items = tastes[item_groups] + 0.5 * rng.standard_normal((n_items, dimension))
    quality, mildness = 0.4 * rng.standard_normal(n_items), 0.3 * rng.standard_normal(n_users)
    popularity = np.cumsum(rng.permutation(1 / (np.arange(n_items) + 10)))

    counts = np.clip(np.rint(ratings_per_user * rng.gamma(4, 0.25, n_users)), 1, n_items // 2).astype(np.int64)
    rows = np.repeat(np.arange(n_users), counts + counts // 2)  # more than wanted: some draws fall together
    drawn = np.searchsorted(popularity, rng.random(len(rows)) * popularity[-1])
    rows, columns = np.divmod(np.unique(rows * n_items + np.minimum(drawn, n_items - 1)), n_items)
    order = np.lexsort((rng.random(len(rows)), rows))  # of each user's items, keep as many as wanted at random
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)
    kept = order[place < counts[rows]]
    rows, columns = rows[kept], columns[kept]

    match = np.einsum("ij,ij->i", users[rows], items[columns]) / dimension
    values = 3.5 + match + quality[columns] + mildness[rows] + noise * rng.standard_normal(len(rows))
    values = np.clip(np.rint(values), 1, 5).astype(np.float32)
    return Ratings(
        sparse.csr_matrix((values, (rows, columns)), (n_users, n_items)),
        np.arange(n_users),
        np.arange(n_items),
        np.eye(n_groups, dtype=np.float32)[user_groups],
        np.eye(n_groups, dtype=np.float32)[item_groups],
    )


def _numbered(
    users: NDArray[Any], items: NDArray[Any], values: NDArray[np.float32], source: str, duplicates: str
) -> Ratings:
    """Give users and items numbers from 0, in the order of their ids."""
    user_ids, rows = np.unique(users, return_inverse=True)
    item_ids, columns = np.unique(items, return_inverse=True)
    order = np.lexsort((columns, rows))  # stable: of equal pairs the last stays last
    rows, columns, values = rows[order], columns[order], values[order]
    new = np.concatenate([[True], (np.diff(rows) != 0) | (np.diff(columns) != 0)])
    if not new.all():
        if duplicates == "error":
            user, item = (ids[part[~new][0]] for ids, part in ((user_ids, rows), (item_ids, columns)))
            raise ValueError(
                f"{source} holds the pair of user {user} and item {item} more than once. "
                'Pass duplicates="last" or "mean" to keep one rating.'
            )
        if duplicates == "mean":
            values = (np.add.reduceat(values, np.flatnonzero(new)) / np.diff([*np.flatnonzero(new), len(new)])).astype(
                np.float32
            )
        else:
            values = values[np.concatenate([new[1:], [True]])]
        rows, columns = rows[new], columns[new]
    return Ratings(sparse.csr_matrix((values, (rows, columns)), (len(user_ids), len(item_ids))), user_ids, item_ids)


def _read_npz(path: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]]:
    expected = "Expected arrays user, item and rating, or a matrix of scipy.sparse.save_npz."
    try:
        with np.load(path, allow_pickle=False) as file:
            if "format" in file:
                matrix = sparse.load_npz(path).tocoo()
                arrays = [matrix.row, matrix.col, matrix.data]
            else:
                arrays = [file[name] for name in NPZ_NAMES if name in file]
    except (ValueError, EOFError, zipfile.BadZipFile, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{path} is no .npz file of ratings: {error}. {expected}") from error
    if len(arrays) < 3:
        raise ValueError(f"{path} is no .npz file of ratings. {expected}")
    users, items, values = arrays
    if not (users.ndim == 1 and users.shape == items.shape == values.shape):
        raise ValueError(f"{path}: user, item and rating must have one length, got {[a.shape for a in arrays]}.")
    if users.dtype.kind not in "iuSU" or items.dtype.kind not in "iuSU" or values.dtype.kind not in "fiub":
        raise ValueError(
            f"{path}: ids must be integers or strings and ratings numbers, got {[str(a.dtype) for a in arrays]}."
        )
    if not np.isfinite(values).all():
        raise ValueError(f"{path}: ratings must be finite, got {values[~np.isfinite(values)][0]}.")
    return users, items, values.astype(np.float32)


def _read_text(
    path: str, sep: str | None, columns: Sequence[int | str] | None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]]:
    """Read integers fast; a file with other ids, or with a line that is wrong, is read again line by line."""
    with _open(path) as file:
        places, header = _layout(file, path, sep, columns)
    with _open(path) as file:
        # numpy splits at one character only
        lines: Any = (line.replace(sep, "\t") for line in file) if sep == "::" else file
        types = [("user", "i8"), ("item", "i8"), ("rating", "f8")][: len(places)]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of an empty file we speak ourselves
                table = np.loadtxt(
                    lines,
                    dtype=types,
                    delimiter="\t" if sep == "::" else sep,
                    skiprows=header,
                    usecols=places,
                    ndmin=1,
                    comments=None,
                    quotechar='"' if sep not in ("::", None) else None,
                )
            values = table["rating"] if len(places) == 3 else np.ones(len(table))
            if np.isfinite(values).all():
                return table["user"], table["item"], values.astype(np.float32)
        except (ValueError, TypeError, OverflowError):
            pass
    with _open(path) as file:
        return _read_lines(file, path, sep, places, header)


def _open(path: str) -> TextIO:
    if path.endswith(".gz"):
        return io.TextIOWrapper(gzip.open(path), encoding="utf-8-sig", errors="replace", newline=None)
    return open(path, encoding="utf-8-sig", errors="replace")


def _fields(file: TextIO, sep: str | None) -> Iterator[list[str]]:
    if sep is not None and len(sep) == 1:
        return csv.reader(file, delimiter=sep)
    return (line.rstrip("\n").split(sep) for line in file)


def _layout(file: TextIO, path: str, sep: str | None, columns: Any) -> tuple[list[int], int]:
    """Return the places of user, item and rating, and how many lines are header."""
    first = next(_fields(file, sep), [])
    names = [name.strip() for name in first]
    wanted = [0, 1, 2] if columns is None else list(columns)
    if columns is None and len(first) == 2:
        wanted = [0, 1]
    if len(wanted) not in (2, 3):
        raise ValueError(f"`columns` must be those of user, item and perhaps rating, got {columns!r}.")
    by_name = any(isinstance(column, str) for column in wanted)
    places = []
    for column in wanted:
        if isinstance(column, str):
            if column not in names:
                raise ValueError(f"`columns` must be in the header of {path}, which has {names}, got {column!r}.")
            places.append(names.index(column))
        else:
            places.append(_check.integer(column, "columns", 0))
    if by_name:
        return places, 1
    header = len(places) == 3 and places[2] < len(names) and not _is_number(names[places[2]])
    return places, int(header)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_lines(
    file: TextIO, path: str, sep: str | None, places: list[int], header: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]]:
    users, items, values = [], [], []
    rows = _fields(file, sep)
    for number, fields in enumerate(rows, start=1):
        if number <= header or not any(field.strip() for field in fields):
            continue
        line = getattr(rows, "line_num", number)  # a quoted field may hold line ends
        if len(fields) <= max(places):
            shown = "white space" if sep is None else repr(sep)
            raise ValueError(
                f"{path}, line {line}: expected at least {max(places) + 1} fields separated by {shown}, "
                f"got {len(fields)}: {(sep or ' ').join(fields)[:80]!r}. Pass `sep=` if it is another."
            )
        rating = fields[places[2]].strip() if len(places) == 3 else "1"
        if not _is_number(rating) or not np.isfinite(float(rating)):
            raise ValueError(f"{path}, line {line}: expected a number for a rating, got {rating!r}.")
        user, item = fields[places[0]].strip(), fields[places[1]].strip()
        if not user or not item:
            raise ValueError(f"{path}, line {line}: expected ids of a user and an item, got {user!r} and {item!r}.")
        users.append(user)
        items.append(item)
        values.append(float(rating))
    return _ids(users), _ids(items), np.array(values, dtype=np.float32)


def _ids(texts: list[str]) -> NDArray[Any]:
    try:
        return np.array([int(text) for text in texts], dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(texts, dtype=str)
