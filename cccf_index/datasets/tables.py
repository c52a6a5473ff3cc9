"""Tables with named, typed columns: JSON lines, Parquet, data frames, and lists of tuples."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

import numpy as np

from cccf_index import _check
from cccf_index.datasets.building import DUPLICATES, Layout, Table, build_ratings, make_ids, make_values
from cccf_index.datasets.headers import Columns, is_number, match_header, take_columns, take_first
from cccf_index.datasets.opening import TextFile
from cccf_index.datasets.ratings import Ratings


def from_frame(frame: Any, columns: Sequence[int | str] | None = None, duplicates: str = "error") -> Ratings:
    """Return the ratings of a pandas or polars data frame, or of a pyarrow table.

    Parameters
    ----------
    frame : pandas.DataFrame, polars.DataFrame or pyarrow.Table
        One rating per row.
    columns : sequence of 2 or 3 int or str, optional
        The columns of user, item and rating: names, or positions from 0. None means to go by their names, as
        `read_ratings` does with a header; without a rating column every row is a rating of 1.
    duplicates : {"error", "last", "mean", "sum"}
        What to do if a user rated an item more than once: raise an error, keep the last rating, or take the mean or
        the sum.

    Returns
    -------
    Ratings
        Users and items are sorted by id; `source` says which columns were read.

    Examples
    --------
    >>> import pyarrow
    >>> from cccf_index.datasets import from_frame
    >>> frame = pyarrow.table({"movieId": [17, 17, 4], "userId": ["ann", "bob", "bob"], "stars": [5, 2, 3]})
    >>> ratings = from_frame(frame)
    >>> ratings, ratings.source
    (Ratings(2 users, 2 items, 3 ratings), 'Table: users from "userId", items from "movieId", ratings from "stars"')
    """
    _check.choice(duplicates, "duplicates", DUPLICATES)
    return build_ratings(read_frame(frame, type(frame).__name__, Layout(columns=columns)), duplicates)


def from_tuples(
    tuples: Iterable[Sequence[Any]], columns: Sequence[int] | None = None, duplicates: str = "error"
) -> Ratings:
    """Return the ratings of tuples ``(user, item, rating)``, or ``(user, item)`` for ratings of 1.

    Parameters
    ----------
    tuples : iterable of tuples
        All of the same length. What follows the rating, such as a timestamp, is left out.
    columns : sequence of 2 or 3 int, optional
        The positions of user, item and rating in a tuple. None means the first three, or two if there are only two.
    duplicates : {"error", "last", "mean", "sum"}
        What to do if a user rated an item more than once: raise an error, keep the last rating, or take the mean or
        the sum.

    Returns
    -------
    Ratings
        Users and items are sorted by id.

    Examples
    --------
    >>> from cccf_index.datasets import from_tuples
    >>> from_tuples([("ann", 17, 5), ("bob", 17, 2), ("bob", 4, 3)]).user_items.toarray()
    array([[0., 5.],
           [3., 2.]], dtype=float32)
    """
    _check.choice(duplicates, "duplicates", DUPLICATES)
    rows = list(tuples)
    for number, row in enumerate(rows):
        if not isinstance(row, (tuple, list, np.ndarray)) or not 2 <= len(row) == len(rows[0]):
            raise ValueError(
                f"`tuples` must be tuples (user, item, rating) or (user, item), all of one length, got {row!r} in "
                f"row {number}."
            )
    if not rows:
        raise ValueError("`tuples` must hold at least one rating, got none.")
    names = [str(place) for place in range(len(rows[0]))]
    chosen = _choose_columns(names, [], Layout(columns=columns), "`tuples`", named=False)
    parts = [[row[place] for row in rows] for place in chosen.places]
    return build_ratings(_make_table(parts, chosen, "`tuples`"), duplicates)


def read_frame(frame: Any, name: str, layout: Layout) -> Table:
    """Return the columns of a data frame."""
    keys: list[Any] = list(getattr(frame, "column_names", getattr(frame, "columns", ())))
    if len(keys) < 2 or len(set(keys)) < len(keys):
        raise TypeError(
            f"`frame` must be a data frame with columns of user and item, of different names, got "
            f"{type(frame).__name__}{f' with columns {keys}' if keys else ''}. Pass lists to `from_tuples`."
        )
    named = any(isinstance(key, str) for key in keys)  # pandas numbers the columns of files without a header
    sample = ["".join(map(str, np.asarray(frame[key][:1]))) for key in keys]
    columns = _choose_columns([str(key) for key in keys], sample, layout, name, named)
    return _make_table([frame[keys[place]] for place in columns.places], columns, name, layout.ids == "str")


def read_parquet(path: str, layout: Layout) -> Table:
    """Return the columns of a Parquet file; the others are not read."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            f'Reading {path} needs pyarrow: `pip install "cccf-index[parquet]"`, or convert it to a .csv file.'
        ) from None
    with open(path, "rb") as file:
        try:
            content = pyarrow.parquet.ParquetFile(file)
            names = content.schema_arrow.names
            kinds = [field.type for field in content.schema_arrow]
            numeric = [pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) for kind in kinds]
            sample = ["1" if is_numeric else "" for is_numeric in numeric]
            columns = _choose_columns(names, sample, layout, path)
            table = content.read([names[place] for place in columns.places])
        except pyarrow.ArrowException as error:
            raise ValueError(f"{path} is not a Parquet file: {error}. Check that it is the right file.") from error
    parts = [table.column(names[place]) for place in columns.places]
    return _make_table(parts, columns, path, layout.ids == "str")


def read_json(file: TextFile, layout: Layout) -> Table:
    """Return the columns of JSON lines, or of a JSON list of objects."""
    with file.open() as text:
        records = _parse_records(text, file.name)
        head = list(itertools.islice(records, 100))  # a key may be missing in some records
        if not head:
            raise ValueError(f"{file.name} holds no ratings. Check that it is the right file.")
        known: dict[str, Any] = {}
        for _, record in head:
            known |= {key: value for key, value in record.items() if known.get(key) is None}
        names = list(known)
        sample = ["" if isinstance(value, bool) else str(value) for value in known.values()]
        columns = _choose_columns(names, sample, layout, file.name)
        keys = [names[place] for place in columns.places]
        parts: list[list[Any]] = [[] for _ in keys]
        for number, record in itertools.chain(head, records):
            for place, (key, part) in enumerate(zip(keys, parts, strict=True)):
                value = record.get(key)
                fits = isinstance(value, (str, int)) and value != "" if place < 2 else is_number(str(value))
                if not fits:
                    wanted = ("the id of a user", "the id of an item", "a number for a rating")[place]
                    raise ValueError(
                        f'{file.name}, record {number}: expected {wanted} in "{key}", got {value!r}. '
                        "Pass `columns=` if it is elsewhere."
                    )
                part.append(value)
    return _make_table(parts, columns, file.name, layout.ids == "str")


def _parse_records(text: TextIO, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of JSON lines, or of a JSON list, with their numbers from 1."""
    lines: Iterator[Any] = (line for line in text if line.strip())
    first = next(lines, None)
    if first is None:
        return
    lines = itertools.chain([first], lines)
    number = 0
    try:
        records = json.loads("".join(lines)) if first.lstrip().startswith("[") else map(json.loads, lines)
        for number, record in enumerate(records, start=1):
            if not isinstance(record, dict):
                raise ValueError(f"expected an object with names, got {str(record)[:80]}")
            yield number, record
    except ValueError as error:
        if isinstance(error, UnicodeDecodeError):
            raise  # it may be text in another encoding
        raise ValueError(
            f"{name}, record {number + isinstance(error, json.JSONDecodeError)} is not JSON with one object per line: "
            f"{error}. Convert it first."
        ) from error


def _choose_columns(
    names: Sequence[str], sample: Sequence[str], layout: Layout, where: str, named: bool = True
) -> Columns:
    """Return the columns of a table with names; those of a table that is not `named` are known by position only."""
    if layout.columns is not None:
        columns = take_columns(layout.columns, names if named else [], len(names), named, where)
        if max(columns.places) >= len(names):
            raise ValueError(f"`columns` must be positions below {len(names)}, got {max(columns.places)}.")
        return columns
    if named and not layout.by_position:
        return match_header(names, sample, where)
    return take_first(len(names), names if named else None)


def _make_table(parts: Sequence[Any], columns: Columns, name: str, as_text: bool = False) -> Table:
    """Return a table of the columns of user, item and, if there is one, rating."""
    users, items = (make_ids(part, name, role, as_text) for part, role in zip(parts, ("user", "item"), strict=False))
    values = make_values(parts[2], name) if len(parts) == 3 else np.ones(len(users), dtype=np.float32)
    return Table(users, items, values, columns, name)
