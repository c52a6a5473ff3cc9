"""Read ratings from files. Errors about malformed content name the file and the line."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cccf_index import _check
from cccf_index.datasets.ratings import INTEGER, Ratings

SEPARATORS = {".dat": "::", ".csv": ",", ".tsv": "\t"}
NPZ_NAMES = ("user", "item", "rating")

Triples = tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]]


def read_ratings(
    path: str | os.PathLike[str],
    *,
    sep: str | None = None,
    columns: Sequence[int | str] | None = None,
    header: bool | None = None,
    duplicates: str = "error",
    ids: str = "auto",
) -> Ratings:
    r"""Read ratings from a file: MovieLens ``.dat`` and ``.csv``, any other delimited text, or ``.npz``.

    Parameters
    ----------
    path : str or path-like
        A ``.npz`` file holds arrays ``user``, ``item`` and ``rating``, or a matrix from `scipy.sparse.save_npz`. Any
        other file is UTF-8 text with one rating per line, optionally gzipped (``.gz``).
    sep : str, optional
        The column separator. None means ``::`` for ``.dat``, a comma for ``.csv``, a tab for ``.tsv`` and white space
        for any other file. Fields may be in double quotes, except with ``::`` or white space.
    columns : sequence of 2 or 3 int or str, optional
        The columns of user, item and rating: positions from 0, or names in the header. Without a rating column every
        line is implicit feedback, a rating of 1. None means the first three columns, or two if there are only two.
    header : bool, optional
        Whether the first line is a header. None means to guess: it is one if neither id is an integer and the
        rating starts with a letter. Without a rating column, it is one if the second line has an integer id instead.
    duplicates : {"error", "last", "mean"}
        What to do if a user rated an item more than once: raise an error, keep the last rating, or take the mean.
    ids : {"auto", "str"}
        How ids in text files are read. "str" keeps them as they are written. "auto" reads them as integers if all of
        them are integers, so 007 and 7 are the same id.

    Returns
    -------
    Ratings
        Users and items are sorted by id.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from cccf_index.datasets import read_ratings
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "ratings.csv")
    ...     _ = path.write_text("user,item,rating\nann,17,5\nbob,17,2\nbob,4,3\n")
    ...     ratings = read_ratings(path)
    >>> ratings
    Ratings(2 users, 2 items, 3 ratings)
    >>> ratings.user_rows(["bob"]), ratings.item_ids
    (array([1]), array([ 4, 17]))
    """
    _check.choice(duplicates, "duplicates", ("error", "last", "mean"))
    _check.choice(ids, "ids", ("auto", "str"))
    name = os.fspath(path)
    if name.endswith(".npz"):
        if sep is not None or columns is not None:
            raise ValueError("`sep` and `columns` must be None for .npz files: they have named arrays.")
        users, items, values = _read_npz(name)
    else:
        base = name.removesuffix(".gz")
        separator = SEPARATORS.get(os.path.splitext(base)[1].lower()) if sep is None else sep
        if separator is not None and (not isinstance(separator, str) or separator == ""):
            raise ValueError(f"`sep` must be a non-empty string or None, got {separator!r}.")
        users, items, values = _read_text(name, separator, columns, ids == "str", header)
    if len(users) == 0:
        raise ValueError(f"{name} holds no ratings. Check that it is the right file.")
    return _build_ratings(users, items, values, name, duplicates)


def _build_ratings(
    users: NDArray[Any], items: NDArray[Any], values: NDArray[np.float32], source: str, duplicates: str
) -> Ratings:
    """Build the matrix: rows and columns in the order of their ids, each pair once."""
    user_ids, rows = np.unique(users, return_inverse=True)
    item_ids, columns = np.unique(items, return_inverse=True)
    order = np.lexsort((columns, rows))  # stable: of equal pairs the last stays last
    rows, columns, values = rows[order], columns[order], values[order]
    new = np.concatenate([[True], (np.diff(rows) != 0) | (np.diff(columns) != 0)])
    if not new.all():
        if duplicates == "error":
            user, item = (ids[part[~new][0]] for ids, part in ((user_ids, rows), (item_ids, columns)))
            raise ValueError(
                f"{source} holds a rating of user {user} and item {item} more than once. "
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


def _read_npz(path: str) -> Triples:
    """Read arrays `user`, `item` and `rating`, or a matrix from `scipy.sparse.save_npz`."""
    expected = "Expected arrays user, item and rating, or a matrix from scipy.sparse.save_npz."
    try:
        with np.load(path, allow_pickle=False) as file:
            if "format" in file:
                matrix = sparse.load_npz(path).tocoo()
                arrays = [matrix.row, matrix.col, matrix.data]
            else:
                arrays = [file[name] for name in NPZ_NAMES if name in file]
    except (ValueError, EOFError, zipfile.BadZipFile, OSError, TypeError, KeyError, AttributeError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{path} is not a .npz file of ratings: {error}. {expected}") from error
    if len(arrays) < 3:
        raise ValueError(f"{path} is not a .npz file of ratings. {expected}")
    users, items, values = arrays
    if not (users.ndim == 1 and users.shape == items.shape == values.shape):
        raise ValueError(f"{path}: user, item and rating must have the same length, got {[a.shape for a in arrays]}.")
    users, items = (np.char.decode(ids, "utf-8") if ids.dtype.kind == "S" else ids for ids in (users, items))
    for ids in (users, items):
        if ids.dtype == np.uint64 and ids.size and ids.max() >= 2**63:
            raise ValueError(f"{path}: ids must be below 2^63, got {ids.max()}. Store them as strings.")
    if users.dtype.kind not in "iuU" or items.dtype.kind not in "iuU" or values.dtype.kind not in "fiub":
        raise ValueError(
            f"{path}: ids must be integers or strings, and ratings numbers, got {[str(a.dtype) for a in arrays]}."
        )
    wrong = ~(np.abs(values.astype(np.float64)) <= _check.MAX_FLOAT)
    if wrong.any():
        raise ValueError(
            f"{path}: ratings must be finite and at most {_check.MAX_FLOAT:g} in magnitude, got {values[wrong][0]}."
        )
    return users, items, values.astype(np.float32)


def _read_text(
    path: str, sep: str | None, columns: Sequence[int | str] | None, as_text: bool, header: bool | None
) -> Triples:
    """Read delimited text, see `read_ratings`."""
    try:
        return _read_fields(path, sep, columns, as_text, header)
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error, csv.Error) as error:
        raise ValueError(f"{path} is not UTF-8 text, plain or gzipped: {error}. Convert it first.") from error


def _read_fields(
    path: str, sep: str | None, columns: Sequence[int | str] | None, as_text: bool, header: bool | None
) -> Triples:
    """Read integer ids fast, with numpy; if that fails, read line by line, which also finds a malformed line."""
    with _open(path) as file:
        places, skipped = _find_columns(file, path, sep, columns, header)
    if as_text:
        with _open(path) as file:
            return _read_lines(file, path, sep, places, skipped, as_text)
    with _open(path) as file:
        # numpy only splits at single characters
        lines: Any = (line.replace(sep, "\x1f") for line in file) if sep == "::" else file
        types = [("user", "i8"), ("item", "i8"), ("rating", "f8")][: len(places)]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an empty file is reported by `read_ratings`
                table = np.loadtxt(
                    lines,
                    dtype=types,
                    delimiter="\x1f" if sep == "::" else sep,
                    skiprows=skipped,
                    usecols=places,
                    ndmin=1,
                    comments=None,
                    quotechar='"' if sep not in ("::", None) else None,
                )
            values = table["rating"] if len(places) == 3 else np.ones(len(table))
            if (np.abs(values) <= _check.MAX_FLOAT).all():
                return table["user"], table["item"], values.astype(np.float32)
        except (ValueError, TypeError, OverflowError):
            pass
    with _open(path) as file:
        return _read_lines(file, path, sep, places, skipped, as_text)


def _open(path: str) -> TextIO:
    if path.endswith(".gz"):
        return io.TextIOWrapper(gzip.open(path), encoding="utf-8-sig", newline=None)
    return open(path, encoding="utf-8-sig")


def _split_lines(file: TextIO, sep: str | None) -> Iterator[list[str]]:
    if sep is not None and len(sep) == 1:
        return csv.reader(file, delimiter=sep)
    return (line.rstrip("\n").split(sep) for line in file)


def _find_columns(file: TextIO, path: str, sep: str | None, columns: Any, header: bool | None) -> tuple[list[int], int]:
    """Return the positions of user, item and rating, and how many lines to skip: 1 if there is a header."""
    lines = ([field.strip() for field in fields] for fields in _split_lines(file, sep))
    first = next(lines, [])
    second = next((fields for fields in lines if any(fields)), [])
    wanted = list(range(min(3, max(2, len(first))))) if columns is None else list(columns)
    if len(wanted) not in (2, 3):
        raise ValueError(f"`columns` must be those of user, item and optionally rating, got {columns!r}.")
    places = []
    for column in wanted:
        if isinstance(column, str):
            if column not in first:
                raise ValueError(f"`columns` must be in the header of {path}, which is {first}, got {column!r}.")
            places.append(first.index(column))
        else:
            places.append(_check.integer(column, "columns", 0))
    if header is None:
        header = any(isinstance(column, str) for column in wanted) or _is_header(first, second, places)
    return places, int(header)


def _is_header(first: list[str], second: list[str], places: list[int]) -> bool:
    """Guess whether the first line is a header: text in place of ids and a rating."""
    if max(places) >= len(first) or any(INTEGER.fullmatch(first[place]) for place in places[:2]):
        return False
    if len(places) == 3:
        return re.match("[a-zA-Z_]", first[places[2]]) is not None and first[places[2]].lower() not in ("nan", "inf")
    return max(places) < len(second) and any(INTEGER.fullmatch(second[place]) for place in places)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # Python allows it between digits


def _read_lines(file: TextIO, path: str, sep: str | None, places: list[int], header: int, as_text: bool) -> Triples:
    """Read a file whose ids are not all integers, or raise an error that names the malformed line."""
    users, items, values = [], [], []
    rows = _split_lines(file, sep)
    for number, fields in enumerate(rows, start=1):
        if number <= header or not any(field.strip() for field in fields):
            continue
        line = getattr(rows, "line_num", number)  # a quoted field may span lines
        if len(fields) <= max(places):
            shown = "white space" if sep is None else repr(sep)
            raise ValueError(
                f"{path}, line {line}: expected at least {max(places) + 1} fields separated by {shown}, "
                f"got {len(fields)}: {(sep or ' ').join(fields)[:80]!r}. Pass `sep=` or `columns=` if the file differs."
            )
        rating = fields[places[2]].strip() if len(places) == 3 else "1"
        if not _is_number(rating) or not abs(float(rating)) <= _check.MAX_FLOAT:
            raise ValueError(
                f"{path}, line {line}: expected a number for a rating, got {rating!r}. "
                "Pass `columns=` if the ratings are in another column."
            )
        user, item = fields[places[0]].strip(), fields[places[1]].strip()
        if not user or not item:
            raise ValueError(f"{path}, line {line}: expected ids of a user and an item, got {user!r} and {item!r}.")
        users.append(user)
        items.append(item)
        values.append(float(rating))
    ids = [np.array(part, dtype=str) if as_text else _parse_ids(part) for part in (users, items)]
    return ids[0], ids[1], np.array(values, dtype=np.float32)


def _parse_ids(texts: list[str]) -> NDArray[Any]:
    if all(INTEGER.fullmatch(text) for text in texts):
        with suppress(OverflowError):
            return np.array([int(text) for text in texts], dtype=np.int64)
    return np.array(texts, dtype=str)
