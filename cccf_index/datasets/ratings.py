"""Ratings from files or made up, with the ids of their users and items, and ways to cut them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from cccf_index import _check
from cccf_index.datasets import reading
from cccf_index.datasets.reading import INTEGER

SEPARATORS = {".dat": "::", ".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True, eq=False)
class Ratings:
    """A matrix of ratings, and what its rows and columns stand for; frozen, see `dataclasses.replace`.

    Parameters
    ----------
    user_items : scipy.sparse.csr_matrix of float32, shape (n_users, n_items)
        A stored zero is a rating of zero.
    user_ids, item_ids : ndarray, shapes (n_users,) and (n_items,)
        What your data calls the users of the rows and the items of the columns; each once.
    user_features, item_features : ndarray of float32, shapes (n_users, any) and (n_items, any), optional
        Side features.
    """

    user_items: sparse.csr_matrix
    user_ids: NDArray[Any]
    item_ids: NDArray[Any]
    user_features: NDArray[np.float32] | None = None
    item_features: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if not sparse.issparse(self.user_items):
            raise TypeError(f"`user_items` must be a scipy.sparse matrix, got {type(self.user_items).__name__}.")
        for axis, word in enumerate(("user", "item")):
            n = self.user_items.shape[axis]
            ids, features = np.asarray(getattr(self, f"{word}_ids")), getattr(self, f"{word}_features")
            if ids.shape != (n,) or len(np.unique(ids)) != n:
                raise ValueError(f"`{word}_ids` must be {n} different ids, got {ids.dtype} of shape {ids.shape}.")
            object.__setattr__(self, f"{word}_ids", ids)
            if features is not None and (np.ndim(features) != 2 or features.shape[0] != n):
                raise ValueError(f"`{word}_features` must be of shape ({n}, any), got {np.shape(features)}.")

    def user_rows(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return the rows of users by their ids; an id that is not there is a ValueError."""
        return rows_of(self.user_ids, ids, "users in these ratings")

    def item_rows(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return the columns of items by their ids, which are the rows of items in models and indexes."""
        return rows_of(self.item_ids, ids, "items in these ratings")

    def __repr__(self) -> str:
        m, n = self.user_items.shape
        return f"Ratings({m} users, {n} items, {self.user_items.nnz} ratings)"


def read_ratings(
    path: str | os.PathLike[str],
    *,
    sep: str | None = None,
    columns: Sequence[int | str] | None = None,
    header: bool | None = None,
    duplicates: str = "error",
    ids: str = "auto",
) -> Ratings:
    r"""Read ratings from a file: MovieLens ``.dat`` and ``.csv``, other delimited text, or ``.npz``.

    Parameters
    ----------
    path : str or path-like
        A ``.npz`` holds arrays ``user``, ``item`` and ``rating``, or a matrix of `scipy.sparse.save_npz`. Anything else
        is UTF-8 text, one rating a line, also gzipped (``.gz``).
    sep : str, optional
        What separates columns. None takes ``::`` for ``.dat``, a comma for ``.csv``, a tab for ``.tsv``, and
        white space for anything else. Fields may stand in double quotes, except with ``::`` or white space.
    columns : sequence of 2 or 3 int or str, optional
        Where user, item and rating stand: places from 0, or names in the header. Two columns are implicit feedback, a
        rating of 1 each. None takes the first three, or two where there are no more.
    header : bool, optional
        Whether the first line is a header. None takes it for one if it has a word for a rating and for the ids;
        without a column of ratings, if it has words for ids where the second line has integers.
    duplicates : {"error", "last", "mean"}
        What to do when a user rated an item more than once.
    ids : {"auto", "str"}
        "str" keeps ids of text files as they are written; "auto" makes integers of them where all are such, so that
        007 and 7 are one.

    Returns
    -------
    Ratings
        Users and items in the order of their ids.

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
            raise ValueError("`sep` and `columns` must be None for .npz files.")
        users, items, values = reading.read_npz(name)
    else:
        base = name.removesuffix(".gz")
        separator = SEPARATORS.get(os.path.splitext(base)[1].lower()) if sep is None else sep
        if separator is not None and (not isinstance(separator, str) or separator == ""):
            raise ValueError(f"`sep` must be a string of at least one character, or None, got {separator!r}.")
        users, items, values = reading.read_text(name, separator, columns, ids == "str", header)
    if len(users) == 0:
        raise ValueError(f"{name} holds no ratings.")
    return _numbered(users, items, values, name, duplicates)


def k_core(ratings: Ratings, k: int = 10) -> Ratings:
    """Keep only users and items with at least k ratings among those that are kept (the paper's 10-core).

    Rows and columns are numbered anew; `user_ids` and `item_ids` go with them.
    """
    k = _check.integer(k, "k", 0)
    if not isinstance(ratings, Ratings):
        raise TypeError(
            f"`ratings` must be Ratings, got {type(ratings).__name__}. Pass `Ratings(matrix, rows, columns)`."
        )
    matrix = ratings.user_items.tocsr()
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
    held_out = np.minimum(np.floor(test_size * counts + 1e-9).astype(np.int64), counts - 1)
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
    affinity: float = 0.0,
    seed: int = 0,
) -> Ratings:
    """Make up ratings from 1 to 5 with planted groups of taste.

    Each user and item belongs to one of `n_groups` groups, whose members are alike up to individual differences. Users
    differ in how many items they rate and how well they rate on the whole, items in popularity and quality. A rating
    is the match of the two, rounded, with Gaussian noise. Of the items that a user rates a share of `affinity` is of
    their own group; the others are of any.

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
    if _check.number(affinity, "affinity", 0) > 1:
        raise ValueError(f"`affinity` must be at most 1, got {affinity}.")
    rng = np.random.default_rng(_check.integer(seed, "seed", 0))
    dimension = 16
    user_groups, item_groups = rng.integers(0, n_groups, n_users), rng.integers(0, n_groups, n_items)
    tastes = rng.standard_normal((n_groups, dimension))
    users = tastes[user_groups] + 0.5 * rng.standard_normal((n_users, dimension))
    items = tastes[item_groups] + 0.5 * rng.standard_normal((n_items, dimension))
    quality, mildness = 0.4 * rng.standard_normal(n_items), 0.3 * rng.standard_normal(n_users)
    popularity = rng.permutation(1 / (np.arange(n_items) + 10))

    counts = np.clip(np.rint(ratings_per_user * rng.gamma(4, 0.25, n_users)), 1, n_items // 2).astype(np.int64)
    rows = np.repeat(np.arange(n_users), counts + counts // 2)  # more than wanted: some draws fall together
    drawn = _drawn(rng, popularity, np.arange(n_items), len(rows))
    for group in range(n_groups) if affinity else ():
        own = np.flatnonzero((user_groups[rows] == group) & (rng.random(len(rows)) < affinity))
        members = np.flatnonzero(item_groups == group)
        if len(members):
            drawn[own] = _drawn(rng, popularity, members, len(own))
    rows, columns = np.divmod(np.unique(rows * n_items + drawn), n_items)
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


def _drawn(
    rng: np.random.Generator, popularity: NDArray[np.float64], items: NDArray[np.int64], n: int
) -> NDArray[np.int64]:
    """Draw n of these items, each as often as it is popular."""
    share = np.cumsum(popularity[items])
    return items[np.minimum(np.searchsorted(share, rng.random(n) * share[-1]), len(items) - 1)]


def places(known: NDArray[Any], wanted: ArrayLike) -> NDArray[np.int64]:
    """Return where each id stands among those that are known, -1 where it does not.

    Numbers that are given as text are found among numbers, 007 as 7, and numbers among text as they are written.
    """
    ids = np.asarray(wanted)
    if known.dtype.kind in "iu" and ids.dtype.kind not in "iu":
        texts = ids.ravel()
        number = np.array([bool(INTEGER.fullmatch(str(text))) and len(text) < 19 for text in texts], dtype=bool)
        found = np.full(ids.size, -1)
        found[number] = places(known, texts[number].astype(np.int64))
        return found.reshape(ids.shape)
    if known.dtype.kind not in "iu":
        ids = ids.astype(str)
    if not len(known):
        return np.full(ids.shape, -1)
    order = np.argsort(known, kind="stable")
    place = np.minimum(np.searchsorted(known[order], ids), len(known) - 1)
    return np.where(known[order][place] == ids, order[place], -1)


def rows_of(known: NDArray[Any], ids: ArrayLike, what: str) -> NDArray[np.int64]:
    """Return where each id stands; one that is not known is a ValueError: `what` says of what they must be ids."""
    found = places(known, ids)
    if (found < 0).any():
        raise ValueError(f"`ids` must be ids of {what}, got {np.asarray(ids)[found < 0].tolist()[0]!r}.")
    return found


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
