"""Read ratings from files. Errors about malformed content name the file and the line."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence

import numpy as np
from scipy import sparse

from cccf_index import _check
from cccf_index.datasets.building import DUPLICATES, Layout, Table, build_ratings, make_ids, make_values
from cccf_index.datasets.opening import TextFile, find_suffix, read_text
from cccf_index.datasets.ratings import Ratings
from cccf_index.datasets.tables import read_json, read_parquet
from cccf_index.datasets.text import read_delimited

JSON, PARQUET = (".json", ".jsonl", ".ndjson"), (".parquet", ".pq")
NPZ_NAMES = ("user", "item", "rating")


def read_ratings(
    path: str | os.PathLike[str],
    *,
    sep: str | None = None,
    columns: Sequence[int | str] | None = None,
    header: bool | None = None,
    duplicates: str = "error",
    ids: str = "auto",
) -> Ratings:
    r"""Read ratings from a file: delimited text, JSON lines, Parquet, or ``.npz``.

    The attribute `source` of the result says in one line which columns were read.

    Parameters
    ----------
    path : str or path-like
        A ``.npz`` file holds arrays ``user``, ``item`` and ``rating``, or a matrix from `scipy.sparse.save_npz`.
        ``.parquet`` needs the extra ``parquet``. ``.json`` and ``.jsonl`` hold an object per line, or a list of
        objects. Any other file is text with one rating per line. Text and JSON may be gzipped, or in a zip file with
        one file of ratings.
    sep : str, optional
        The column separator of text. None means to guess, from the name of the file (``::`` for ``.dat``, a comma for
        ``.csv``, a tab for ``.tsv``, a tab or white space for any other file) and the first two lines. Fields may be
        in double quotes, except with ``::`` or white space.
    columns : sequence of 2 or 3 int or str, optional
        The columns of user, item and rating: positions from 0, or names in the header. Without a rating column every
        line is implicit feedback, a rating of 1. None means to go by the names in the header, such as ``userId``,
        ``asin`` and ``stars``; without a header it means the first three columns, or two if there are only two.
    header : bool, optional
        Whether the first line of text is a header. None means to guess: it is one if it has names such as ``user_id``,
        or words where the second line has numbers.
    duplicates : {"error", "last", "mean", "sum"}
        What to do if a user rated an item more than once: raise an error, keep the last rating, or take the mean or
        the sum, which suits counts.
    ids : {"auto", "str"}
        How ids are read. "str" keeps them as they are written. "auto" reads those of text files as integers if all of
        them are integers, so 007 and 7 are the same id; JSON and Parquet tell integers from text.

    Returns
    -------
    Ratings
        Users and items are sorted by id.

    Warns
    -----
    UserWarning
        If users and items seem to be swapped, or the ratings seem to be ids or timestamps. Timestamps that nobody chose
        with `columns` are an error.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from cccf_index.datasets import read_ratings
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "ratings.csv")
    ...     _ = path.write_text("movieId,userId,time,rating\n17,ann,97830,5\n17,bob,97832,2\n4,bob,97831,3\n")
    ...     ratings = read_ratings(path)
    >>> ratings
    Ratings(2 users, 2 items, 3 ratings)
    >>> ratings.user_rows(["bob"]), ratings.item_ids
    (array([1]), array([ 4, 17]))
    >>> print(ratings.source.partition(": ")[2])
    users from "userId", items from "movieId", ratings from "rating"; left out: "time"
    """
    _check.choice(duplicates, "duplicates", DUPLICATES)
    return build_ratings(
        _read_table(path, Layout(sep, columns, header, _check.choice(ids, "ids", ("auto", "str")))), duplicates
    )


def read_feature_lines(
    path: str | os.PathLike[str], sep: str | None = None, header: bool | None = None, ids: str = "auto"
) -> Ratings:
    """Read lines of id, feature and optionally a value as a matrix: its rows are the ids, its columns the features.

    The arguments are those of `read_ratings`. The columns are the first two or three, whatever their names.
    """
    return build_ratings(_read_table(path, Layout(sep, None, header, ids, by_position=True)), "last", check=False)


def _read_table(path: str | os.PathLike[str], layout: Layout) -> Table:
    """Read a file of any format."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            f"`path` must be the name of a file, got {type(path).__name__}. "
            "Pass data frames to `from_frame`, and lists to `from_tuples`."
        )
    if layout.sep is not None and (not isinstance(layout.sep, str) or layout.sep == ""):
        raise ValueError(f"`sep` must be a non-empty string or None, got {layout.sep!r}.")
    name = os.fspath(path)
    if name.endswith(".npz"):
        if layout.sep is not None or layout.columns is not None:
            raise ValueError("`sep` and `columns` must be None for .npz files: they have named arrays.")
        return _read_npz(name)
    if find_suffix(name) in PARQUET:
        _check_no_text_options(name, layout)
        return read_parquet(name, layout)
    return read_text(name, lambda file: _read_text(file, layout))


def _read_text(file: TextFile, layout: Layout) -> Table:
    if file.suffix in JSON:
        _check_no_text_options(file.name, layout)
        return read_json(file, layout)
    return read_delimited(file, layout)


def _check_no_text_options(name: str, layout: Layout) -> None:
    if layout.sep is not None or layout.header is not None:
        raise ValueError(f"`sep` and `header` must be None for {name}: its columns have names.")


def _read_npz(path: str) -> Table:
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
    return Table(make_ids(users, path, "user"), make_ids(items, path, "item"), make_values(values, path), None, path)
