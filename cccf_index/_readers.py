"""Users, items and ratings as arrays from files; what is wrong with a file is said with its line."""

from __future__ import annotations

import csv
import gzip
import io
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cccf_index import _check

NPZ_NAMES = ("user", "item", "rating")

Triples = tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]]


def read_npz(path: str) -> Triples:
    """Read arrays `user`, `item` and `rating`, or a matrix of `scipy.sparse.save_npz`."""
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


def read_text(path: str, sep: str | None, columns: Sequence[int | str] | None, as_text: bool) -> Triples:
    """Read delimited text; see `datasets.read_ratings`."""
    try:
        return _read_text(path, sep, columns, as_text)
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is not UTF-8 text, plain or gzipped: {error}. Convert it first.") from error


def _read_text(path: str, sep: str | None, columns: Sequence[int | str] | None, as_text: bool) -> Triples:
    """Read integers fast; a file with other ids, or with a line that is wrong, is read again line by line."""
    with _open(path) as file:
        places, header = _layout(file, path, sep, columns)
    if as_text:
        with _open(path) as file:
            return _read_lines(file, path, sep, places, header, as_text)
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
        return _read_lines(file, path, sep, places, header, as_text)


def _open(path: str) -> TextIO:
    if path.endswith(".gz"):
        return io.TextIOWrapper(gzip.open(path), encoding="utf-8-sig", newline=None)
    return open(path, encoding="utf-8-sig")


def _fields(file: TextIO, sep: str | None) -> Iterator[list[str]]:
    if sep is not None and len(sep) == 1:
        return csv.reader(file, delimiter=sep)
    return (line.rstrip("\n").split(sep) for line in file)


def _layout(file: TextIO, path: str, sep: str | None, columns: Any) -> tuple[list[int], int]:
    """Return the places of user, item and rating, and how many lines are header."""
    lines = _fields(file, sep)
    first, second = next(lines, []), next(lines, [])
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
    if len(places) == 3:
        header = places[2] < len(names) and names[places[2]][:1] not in set("0123456789+-.")
    else:
        both = [
            (first[place].strip(), second[place].strip()) for place in places if place < min(len(first), len(second))
        ]
        header = any(below.isdecimal() for _, below in both) and not any(above.isdecimal() for above, _ in both)
    return places, int(header)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_lines(file: TextIO, path: str, sep: str | None, places: list[int], header: int, as_text: bool) -> Triples:
    """Read a file whose ids are not all integers, or say which line is wrong."""
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
                f"got {len(fields)}: {(sep or ' ').join(fields)[:80]!r}. Pass `sep=` or `columns=` if they are others."
            )
        rating = fields[places[2]].strip() if len(places) == 3 else "1"
        if not _is_number(rating) or not np.isfinite(float(rating)):
            raise ValueError(
                f"{path}, line {line}: expected a number for a rating, got {rating!r}. "
                "Pass `columns=` if it stands elsewhere."
            )
        user, item = fields[places[0]].strip(), fields[places[1]].strip()
        if not user or not item:
            raise ValueError(f"{path}, line {line}: expected ids of a user and an item, got {user!r} and {item!r}.")
        users.append(user)
        items.append(item)
        values.append(float(rating))
    ids = [np.array(part, dtype=str) if as_text else _ids(part) for part in (users, items)]
    return ids[0], ids[1], np.array(values, dtype=np.float32)


def _ids(texts: list[str]) -> NDArray[Any]:
    try:
        return np.array([int(text) for text in texts], dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(texts, dtype=str)
