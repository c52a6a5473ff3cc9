"""Input files of the commands: ratings, names, vectors, and the folder of a trained model."""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cccf_index.cli._console import Console
from cccf_index.datasets import Ratings, read_ratings
from cccf_index.datasets.building import DUPLICATES
from cccf_index.models import load

MODEL, IDS, TRAIN, TEST = "model.cccf", "ids.npz", "train.npz", "test.npz"
UNREADABLE = (ValueError, KeyError, EOFError, zipfile.BadZipFile)  # raised by numpy for files in other formats


def add_ratings_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe the format of rating files."""
    group = parser.add_argument_group(
        "format of rating files (.csv, .tsv, .dat, other text, .json, .gz, .zip, .parquet, .npz)"
    )
    group.add_argument("--sep", help="column separator (default: from the file name and the first lines)")
    group.add_argument(
        "--columns",
        metavar="USER,ITEM[,RATING]",
        help="names in the header, or positions from 0 (default: by the names in the header, else the first three)",
    )
    group.add_argument("--header", action=argparse.BooleanOptionalAction, help="whether the first line is a header")
    group.add_argument(
        "--duplicates",
        default="error",
        choices=DUPLICATES,
        help="what to do if a user rated an item twice (default: error)",
    )
    group.add_argument(
        "--ids", default="auto", choices=("auto", "str"), help="str keeps ids as text, so that 007 is not 7"
    )


def read_ratings_file(path: str, arguments: argparse.Namespace, *known: NDArray[Any]) -> Ratings:
    """Read a file of ratings with the options of the command line, and note which columns were read.

    Ids are text if one of the `known` arrays is.
    """
    columns = None
    if arguments.columns is not None:
        columns = [int(word) if re.fullmatch("[0-9]+", word) else word for word in arguments.columns.split(",")]
    ids = "str" if any(ids.dtype.kind == "U" for ids in known) else arguments.ids
    options = {"sep": arguments.sep, "header": arguments.header, "duplicates": arguments.duplicates, "ids": ids}
    ratings = read_ratings(path, columns=columns, **options)
    if ratings.source is not None:
        Console(arguments.quiet).note(ratings.source)
    return ratings


def format_flag(option: str) -> str:
    """Return the name of an option as it is typed."""
    return f"--{option.replace('_', '-')}"


def parse_positive(text: str) -> int:
    """Return a number above 0, as a type of argparse."""
    if not re.fullmatch("[0-9]+", text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return int(text)


def read_vectors(path: str) -> NDArray[np.float32]:
    """Memory-map a .npy file with a vector in each row."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except UNREADABLE as error:
        raise ValueError(f"{path} is not a .npy file of vectors: {error}. Write it with numpy.save.") from error
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiu" or 0 in array.shape:
        shown = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else "several arrays"
        raise ValueError(f"{path} must hold numbers of shape (rows, dimensions), got {shown}.")
    return array


def read_lines(path: str) -> list[str]:
    """Return the non-empty lines of a text file."""
    text = pathlib.Path(path).read_text(encoding="utf-8-sig")
    return [line.strip() for line in text.splitlines() if line.strip()]


def read_names(path: str | None, n: int, what: str) -> NDArray[Any]:
    """Read n names, one per line or as .npy; without a file they are 0, 1, ..."""
    if path is None:
        return np.arange(n)
    if path.endswith(".npy"):
        try:
            names = np.load(path, allow_pickle=False)
        except UNREADABLE as error:
            raise ValueError(f"{path} is not a .npy file of names: {error}.") from error
        if names.dtype.kind == "S":
            names = np.char.decode(names, "utf-8")
        if names.dtype.kind not in "iuU" or (names.dtype == np.uint64 and names.size and names.max() >= 2**63):
            raise ValueError(f"{path} must hold text or integers below 2^63, got {names.dtype}.")
    else:
        lines = read_lines(path)
        numbers = all(re.fullmatch("0|-?[1-9][0-9]{0,17}", line) for line in lines)  # 007 is text: it is not 7
        names = np.array(lines, dtype=np.int64 if numbers else str)
    if names.shape != (n,) or len(np.unique(names)) != n:
        raise ValueError(f"{path} must hold {n} different names, one for each of the {what}, got shape {names.shape}.")
    return names


@dataclass(frozen=True)
class ModelFolder:
    """The output of ``cccf train``: a model, the names of its users and items, and the two parts of a split."""

    model: Any
    user_ids: NDArray[Any]
    item_ids: NDArray[Any]

    def write(self, folder: str, train: Ratings | None = None, test: Ratings | None = None) -> None:
        """Write the files into an existing folder, with the two parts of a split if given."""
        self.model.save(os.path.join(folder, MODEL))
        np.savez(os.path.join(folder, IDS), user_ids=self.user_ids, item_ids=self.item_ids)
        for name, part in ((TRAIN, train), (TEST, test)):
            if part is not None:
                write_ratings(os.path.join(folder, name), part)

    @classmethod
    def read(cls, folder: str) -> ModelFolder:
        """Read a folder; one without a model raises a ValueError."""
        path = os.path.join(folder, MODEL)
        if not os.path.exists(folder):
            raise FileNotFoundError(2, "there is no such model folder", folder)
        if not os.path.isfile(path):
            raise ValueError(f"{folder} was not written by `cccf train`: it has no {MODEL}.")
        model = load(path)
        names = os.path.join(folder, IDS)
        try:
            with np.load(names, allow_pickle=False) as file:
                ids = file["user_ids"], file["item_ids"]
        except (*UNREADABLE, OSError) as error:
            raise ValueError(f"{names} is missing or damaged: {error}. Train the model again.") from error
        if (len(ids[0]), len(ids[1])) != (model.n_users_, model.n_items_):
            raise ValueError(f"{names} does not match {path}. Train the model again.")
        return cls(model, *ids)


def read_split(folder: str) -> tuple[Ratings | None, Ratings | None]:
    """Return the training and the held-out ratings that ``cccf train --test-size`` wrote."""
    paths = [os.path.join(folder, name) for name in (TRAIN, TEST)]
    train, test = (read_ratings(path) if os.path.isfile(path) else None for path in paths)
    return train, test


def write_ratings(path: str, ratings: Ratings) -> None:
    """Write ratings as a .npz file for `read_ratings`."""
    matrix = ratings.user_items.tocoo()
    np.savez_compressed(path, user=ratings.user_ids[matrix.row], item=ratings.item_ids[matrix.col], rating=matrix.data)


def align_ratings(
    ratings: Ratings, rows: NDArray[np.int64], columns: NDArray[np.int64], shape: Any
) -> sparse.csr_matrix:
    """Return ratings in the rows and columns of a model; ratings whose row or column is -1 are left out."""
    matrix = ratings.user_items.tocoo()
    known = (rows[matrix.row] >= 0) & (columns[matrix.col] >= 0)
    pairs = (rows[matrix.row[known]], columns[matrix.col[known]])
    return sparse.csr_matrix((matrix.data[known], pairs), shape=shape)
