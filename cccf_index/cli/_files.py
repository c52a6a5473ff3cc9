"""What commands read: ratings with their options, names, vectors, and the folder of a model, which one writes."""

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

from cccf_index.datasets import Ratings, read_ratings
from cccf_index.models import load

MODEL, IDS, TRAIN, TEST = "model.cccf", "ids.npz", "train.npz", "test.npz"
UNREADABLE = (ValueError, KeyError, EOFError, zipfile.BadZipFile)  # what a file that is not numpy's may raise


def add_ratings_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what tells how files of ratings are written."""
    group = parser.add_argument_group("files of ratings (.csv, .tsv, MovieLens .dat, other text, .gz, .npz)")
    group.add_argument("--sep", help="what separates columns (default: by the name of the file)")
    group.add_argument("--columns", help="of user, item and rating: places from 0, or names in the header")
    group.add_argument("--header", action=argparse.BooleanOptionalAction, help="whether the first line is one")
    group.add_argument(
        "--duplicates", default="error", choices=("error", "last", "mean"), help="ratings of one item by one user"
    )
    group.add_argument("--ids", default="auto", choices=("auto", "str"), help="str: 007 and 7 are two")


def ratings_of(path: str, arguments: argparse.Namespace, *known: NDArray[Any]) -> Ratings:
    """Read a file of ratings as the options say; its ids as text where those that are known are such."""
    columns = None
    if arguments.columns is not None:
        columns = [int(word) if re.fullmatch("[0-9]+", word) else word for word in arguments.columns.split(",")]
    ids = "str" if any(ids.dtype.kind == "U" for ids in known) else arguments.ids
    options = {"sep": arguments.sep, "header": arguments.header, "duplicates": arguments.duplicates, "ids": ids}
    try:
        return read_ratings(path, columns=columns, **options)
    except ValueError as error:  # of whose advice some is for programs
        text = re.sub("`(sep|columns)=?`", r"--\1", str(error)).replace('duplicates="last" or', "--duplicates last or")
        raise ValueError(text) from error


def flag(option: str) -> str:
    """Return how an option is written."""
    return f"--{option.replace('_', '-')}"


def positive(text: str) -> int:
    """Return a number above 0, for argparse."""
    if not re.fullmatch("[0-9]+", text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return int(text)


def default_threshold(ratings: Any) -> float:
    """Return from where ratings are good: 4 of 1 to 5, and as far up on any other scale; all where they are equal."""
    low, high = float(ratings.min()), float(ratings.max())
    return low + 0.75 * (high - low)


def vectors_of(path: str) -> NDArray[np.float32]:
    """Map a .npy file of vectors, a row each."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except UNREADABLE as error:
        raise ValueError(f"{path} is no .npy file of vectors: {error}. Write it by numpy.save.") from error
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiu" or 0 in array.shape:
        shown = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else "several arrays"
        raise ValueError(f"{path} must hold numbers of shape (rows, dimensions), got {shown}.")
    return array


def lines_of(path: str) -> list[str]:
    """Return the lines of a file of text that are not empty."""
    text = pathlib.Path(path).read_text(encoding="utf-8-sig")
    return [line.strip() for line in text.splitlines() if line.strip()]


def names_of(path: str | None, n: int, what: str) -> NDArray[Any]:
    """Read n names, one a line or as .npy; 0, 1, ... where there is no file."""
    if path is None:
        return np.arange(n)
    if path.endswith(".npy"):
        try:
            names = np.load(path, allow_pickle=False)
        except UNREADABLE as error:
            raise ValueError(f"{path} is no .npy file of names: {error}.") from error
        if names.dtype.kind == "S":
            names = np.char.decode(names, "utf-8")
        if names.dtype.kind not in "iuU" or (names.dtype == np.uint64 and names.size and names.max() >= 2**63):
            raise ValueError(f"{path} must hold text or integers below 2^63, got {names.dtype}.")
    else:
        lines = lines_of(path)
        numbers = all(re.fullmatch("0|-?[1-9][0-9]{0,17}", line) for line in lines)  # not 007, which is not 7
        names = np.array(lines, dtype=np.int64 if numbers else str)
    if names.shape != (n,) or len(np.unique(names)) != n:
        raise ValueError(f"{path} must hold {n} different names, one for each of the {what}, got {names.shape}.")
    return names


@dataclass(frozen=True)
class ModelFolder:
    """What ``cccf train`` writes: a model, the names of its users and items, and the parts of a split."""

    model: Any
    user_ids: NDArray[Any]
    item_ids: NDArray[Any]

    def write(self, folder: str, train: Ratings | None = None, test: Ratings | None = None) -> None:
        """Write into a folder that is there, the parts of a split if there was one."""
        self.model.save(os.path.join(folder, MODEL))
        np.savez(os.path.join(folder, IDS), user_ids=self.user_ids, item_ids=self.item_ids)
        for name, part in ((TRAIN, train), (TEST, test)):
            if part is not None:
                write_ratings(os.path.join(folder, name), part)

    @classmethod
    def read(cls, folder: str) -> ModelFolder:
        """Read a folder; one that is none is a ValueError."""
        path = os.path.join(folder, MODEL)
        if not os.path.exists(folder):
            raise FileNotFoundError(2, "there is no such folder of a model", folder)
        if not os.path.isfile(path):
            raise ValueError(f"{folder} is no folder of `cccf train`: it has no {MODEL}.")
        model = load(path)
        names = os.path.join(folder, IDS)
        try:
            with np.load(names, allow_pickle=False) as file:
                ids = file["user_ids"], file["item_ids"]
        except (*UNREADABLE, OSError) as error:
            raise ValueError(f"{names} is missing or damaged: {error}. Train the model again.") from error
        if (len(ids[0]), len(ids[1])) != (model.n_users_, model.n_items_):
            raise ValueError(f"{names} does not fit {path}. Train the model again.")
        return cls(model, *ids)


def split_of(folder: str) -> tuple[Ratings | None, Ratings | None]:
    """Return the training and the held-out part that ``cccf train --test-size`` left in its folder."""
    paths = [os.path.join(folder, name) for name in (TRAIN, TEST)]
    train, test = (read_ratings(path) if os.path.isfile(path) else None for path in paths)
    return train, test


def write_ratings(path: str, ratings: Ratings) -> None:
    """Write ratings as a .npz that `read_ratings` reads."""
    matrix = ratings.user_items.tocoo()
    np.savez_compressed(path, user=ratings.user_ids[matrix.row], item=ratings.item_ids[matrix.col], rating=matrix.data)


def aligned(ratings: Ratings, rows: NDArray[np.int64], columns: NDArray[np.int64], shape: Any) -> sparse.csr_matrix:
    """Return ratings in the rows and columns of a model; those at -1 are left out."""
    matrix = ratings.user_items.tocoo()
    known = (rows[matrix.row] >= 0) & (columns[matrix.col] >= 0)
    pairs = (rows[matrix.row[known]], columns[matrix.col[known]])
    return sparse.csr_matrix((matrix.data[known], pairs), shape=shape)
