"""Delimited text: separator, header, and lines of user, item and rating. Errors name the file and the line."""

from __future__ import annotations

import csv
import itertools
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from cccf_index import _check
from cccf_index.datasets.building import Layout, Table, Triples
from cccf_index.datasets.headers import Columns, is_header, is_number, match_header, take_columns, take_first
from cccf_index.datasets.opening import TextFile
from cccf_index.datasets.ratings import INTEGER

# None is white space; the first that fits is taken
SEPARATORS = {".csv": (",", ";", "\t", "|"), ".tsv": ("\t", ",", ";", "|"), ".dat": ("::", "\t", ",", ";", "|", None)}
OTHER_SEPARATORS = ("\t", None, "::", ",", ";", "|")
AMAZON_ITEM, AMAZON_USER = re.compile("B0[0-9A-Z]{8}|[0-9]{9}[0-9X]"), re.compile("A[0-9A-Z]{9,}")


def read_delimited(file: TextFile, layout: Layout) -> Table:
    """Read integer ids fast, with numpy; if that fails, read line by line, which also finds a malformed line."""
    sep = layout.sep
    try:
        if sep is None:
            with file.open() as lines:
                sep = guess_separator(lines, file.suffix)
        with file.open() as lines:
            columns, skipped = _find_columns(lines, sep, layout, file.name)
        triples = None if layout.ids == "str" else _read_integers(file, sep, columns.places, skipped)
        if triples is None:
            with file.open() as lines:
                triples = _read_lines(lines, file.name, sep, columns.places, skipped, layout.ids == "str")
    except csv.Error as error:
        raise ValueError(
            f"{file.name} is not delimited text: {error}. Pass `sep=` if the separator differs."
        ) from error
    note = "" if file.encoding == "utf-8-sig" else f" (read as {file.encoding}, it is not UTF-8)"
    return Table(*triples, columns, file.name, note)


def guess_separator(lines: Iterable[str], suffix: str) -> str | None:
    """Return the separator that splits the first two lines into as many fields each; None means white space.

    A separator that makes three fields comes before one that makes two: with decimal commas, ``1;2;3,5`` has three.
    """
    known = SEPARATORS.get(suffix, OTHER_SEPARATORS)
    start = list(itertools.islice((line.strip() for line in lines if line.strip()), 2))
    counts = {sep: [len(fields) for fields in split_lines(start, sep)] for sep in known}
    for least, used in ((3, 2), (2, 2), (2, 1)):
        for sep in known:
            if len(set(counts[sep][:used])) == 1 and counts[sep][0] >= least:
                return sep
    return known[0] if suffix in SEPARATORS else None


def split_lines(lines: Iterable[str], sep: str | None) -> Iterator[list[str]]:
    """Split lines into fields; with a separator of one character, fields may be in double quotes."""
    if sep is not None and len(sep) == 1:
        return csv.reader(lines, delimiter=sep)
    return (line.rstrip("\n").split(sep) for line in lines)


def _find_columns(file: TextIO, sep: str | None, layout: Layout, where: str) -> tuple[Columns, int]:
    """Return the columns of user, item and rating, and how many lines to skip: 1 if there is a header."""
    lines = ([field.strip() for field in fields] for fields in split_lines(file, sep))
    first = next(lines, [])
    second = next((fields for fields in lines if any(fields)), [])
    header = layout.header
    if layout.columns is not None:
        named = isinstance(layout.columns, str) or any(isinstance(column, str) for column in layout.columns)
        has_header = named or is_header(first, second) if header is None else header
        return take_columns(layout.columns, first, len(first), has_header, where), int(has_header)
    has_header = is_header(first, second) if header is None else header
    if has_header and not layout.by_position:
        return match_header(first, second, where), 1
    columns = take_first(len(first), first if has_header else None)
    if (
        not layout.by_position
        and len(first) > 1
        and AMAZON_ITEM.fullmatch(first[0])
        and AMAZON_USER.fullmatch(first[1])
    ):
        columns = Columns((1, 0, *columns.places[2:]), columns.width, columns.names, columns.origin)
    return columns, int(has_header)


def _read_integers(file: TextFile, sep: str | None, places: tuple[int, ...], skipped: int) -> Triples | None:
    """Read integer ids with numpy; None if something else is among them."""
    with file.open() as text:
        # numpy only splits at single characters
        lines: Any = (line.replace(sep, "\x1f") for line in text) if sep == "::" else text
        types = [("user", "i8"), ("item", "i8"), ("rating", "f8")][: len(places)]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an empty file is reported by `build_ratings`
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
        except (ValueError, TypeError, OverflowError):
            return None
    values = table["rating"] if len(places) == 3 else np.ones(len(table))
    if not (np.abs(values) <= _check.MAX_FLOAT).all():
        return None
    return table["user"], table["item"], values.astype(np.float32)


def _read_lines(
    file: TextIO, path: str, sep: str | None, places: tuple[int, ...], header: int, as_text: bool
) -> Triples:
    """Read a file whose ids are not all integers, or raise an error that names the malformed line."""
    users, items, values = [], [], []
    rows = split_lines(file, sep)
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
        if not is_number(rating) or not abs(float(rating)) <= _check.MAX_FLOAT:
            raise ValueError(
                f"{path}, line {line}: expected a number for a rating, got {rating!r}. "
                "Pass `columns=` if the ratings are in another column, or if there are none."
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
