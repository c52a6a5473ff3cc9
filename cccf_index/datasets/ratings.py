"""Ratings: a matrix of ratings with the ids of its users and items, and lookups by id."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

INTEGER = re.compile("[+-]?[0-9]+")
EXAMPLES = 3  # known ids that an error shows


@dataclass(frozen=True, eq=False)
class Ratings:
    """A matrix of ratings with the ids of its rows and columns. Frozen: use `dataclasses.replace` to change it.

    Parameters
    ----------
    user_items : scipy.sparse.csr_matrix of float32, shape (n_users, n_items)
        A stored zero is a rating of zero.
    user_ids, item_ids : ndarray, shapes (n_users,) and (n_items,)
        The ids of the rows (users) and columns (items) in your data. They must be unique.
    user_features, item_features : ndarray of float32, shapes (n_users, any) and (n_items, any), optional
        Side features, one row per user or item.
    source : str, optional
        One line on where they were read from: the file, and its columns of users, items and ratings.
    """

    user_items: sparse.csr_matrix
    user_ids: NDArray[Any]
    item_ids: NDArray[Any]
    user_features: NDArray[np.float32] | None = None
    item_features: NDArray[np.float32] | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        if not sparse.issparse(self.user_items):
            raise TypeError(f"`user_items` must be a scipy.sparse matrix, got {type(self.user_items).__name__}.")
        for axis, word in enumerate(("user", "item")):
            n = self.user_items.shape[axis]
            ids, features = np.asarray(getattr(self, f"{word}_ids")), getattr(self, f"{word}_features")
            if ids.shape != (n,) or len(np.unique(ids)) != n:
                raise ValueError(f"`{word}_ids` must be {n} unique ids, got {ids.dtype} of shape {ids.shape}.")
            object.__setattr__(self, f"{word}_ids", ids)
            if features is not None and (np.ndim(features) != 2 or features.shape[0] != n):
                raise ValueError(f"`{word}_features` must be of shape ({n}, any), got {np.shape(features)}.")

    @property
    def feedback(self) -> str:
        """The kind of ratings: "implicit" if all of them are equal, as of data without ratings, else "explicit"."""
        values = self.user_items.data
        return "implicit" if not values.size or values.min() == values.max() else "explicit"

    def user_rows(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return the rows of users, int64 of the shape of `ids`; an unknown id raises a ValueError."""
        return find_rows(self.user_ids, ids, "users in these ratings")

    def item_rows(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return the columns of items, int64 of the shape of `ids`: their rows in models and indexes."""
        return find_rows(self.item_ids, ids, "items in these ratings")

    def __repr__(self) -> str:
        m, n = self.user_items.shape
        return f"Ratings({m} users, {n} items, {self.user_items.nnz} ratings)"


def find_places(known: NDArray[Any], wanted: ArrayLike) -> NDArray[np.int64]:
    """Return the place of each wanted id among the known ids, int64 of the shape of `wanted`; -1 if it is unknown.

    If the known ids are integers, text is read as an integer: "007" finds 7. If the known ids are text, an integer
    is looked up as it is written: 7 finds "7".
    """
    ids = np.asarray(wanted)
    if known.dtype.kind in "iu" and ids.dtype.kind not in "iu":
        texts = ids.ravel()
        number = np.array([bool(INTEGER.fullmatch(str(text))) and len(text) < 19 for text in texts], dtype=bool)
        found = np.full(ids.size, -1)
        found[number] = find_places(known, texts[number].astype(np.int64))
        return found.reshape(ids.shape)
    if known.dtype.kind not in "iu":
        ids = ids.astype(str)
    if not len(known):
        return np.full(ids.shape, -1)
    order = np.argsort(known, kind="stable")
    place = np.minimum(np.searchsorted(known[order], ids), len(known) - 1)
    return np.where(known[order][place] == ids, order[place], -1)


def find_rows(known: NDArray[Any], ids: ArrayLike, what: str, name: str = "ids") -> NDArray[np.int64]:
    """Return the place of each id among the known ids; an unknown id raises a ValueError that shows some known ones.

    `what` was known, and `name` is the parameter of the caller.
    """
    found = find_places(known, ids)
    if (found < 0).any():
        unknown = np.asarray(ids)[found < 0].tolist()[0]
        examples = ", ".join(str(example) for example in known[:EXAMPLES].tolist())
        shown = f"Known ids are such as {examples}; there are {len(known):,}." if len(known) else "There are none."
        raise ValueError(f"`{name}` must be ids of {what}, got {unknown!r}. {shown}")
    return found
