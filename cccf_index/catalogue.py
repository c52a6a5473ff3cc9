"""An index together with the names of its items and users and the users' queries, in one file to serve from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from cccf_index import _check, io
from cccf_index._exclude import Exclude
from cccf_index.codes import CompositionalCodes
from cccf_index.datasets.ratings import Ratings, find_places, find_rows
from cccf_index.index import IndexCCCF
from cccf_index.refine import IndexRefineCCCF
from cccf_index.search.parameters import Parameters
from cccf_index.storage import container

PREFIX = "catalogue."  # of the arrays that are not the index's own
Named = Iterator[tuple[str, NDArray[Any], int]]


@dataclass(frozen=True, eq=False)
class Catalogue:
    """An index, the names of its items and users, and the query of each user.

    `save` writes one file. `cccf_index.read_index` reads it as well, and skips the names and queries.

    Parameters
    ----------
    index : IndexCCCF or IndexRefineCCCF
        A refined index needs vectors as queries. If `item_ids` is given, the ids of the index are positions in it:
        0, 1, ...
    item_ids : ndarray of int64 or str, shape (n_items,), optional
        Names of the items in your data; None if the ids of the index are the names.
    user_ids : ndarray of int64 or str, shape (n_users,)
        Names of the users in your data.
    queries : CompositionalCodes or ndarray of float32, shape (n_users, d)
        The query of each user.
    slope : float
    intercepts : ndarray of float32, shape (n_users,)
        A score of the index predicts the rating ``intercepts[user] + slope * score``.

    Examples
    --------
    >>> from cccf_index import Catalogue
    >>> from cccf_index.datasets import synthetic_ratings
    >>> from cccf_index.models import DCF
    >>> ratings = synthetic_ratings(n_users=200, n_items=100)
    >>> catalogue = Catalogue.of_model(DCF(n_bits=16).fit(ratings.user_items), ratings.user_ids, ratings.item_ids)
    >>> users = catalogue.user_rows([7, 12])
    >>> scores, items = catalogue.recommend(users, 3, exclude=catalogue.seen(ratings, users))
    >>> items.shape
    (2, 3)
    """

    index: IndexCCCF | IndexRefineCCCF
    item_ids: NDArray[Any] | None
    user_ids: NDArray[Any]
    queries: CompositionalCodes | NDArray[np.float32]
    slope: float
    intercepts: NDArray[np.float32]

    @classmethod
    def of_model(
        cls, model: Any, user_ids: NDArray[Any], item_ids: NDArray[Any], scale: int | str | None = "auto"
    ) -> Catalogue:
        """Return the catalogue of a fitted model with codes, and the names of its users and items."""
        rows = np.arange(model.n_users_)
        zero, one = (float(value) for value in model.to_ratings(np.array([0.0, 1.0])))
        bias = getattr(model, "user_bias_", np.zeros(len(rows), dtype=np.float32))
        intercepts = np.asarray(bias + zero, dtype=np.float32)
        return cls(model.to_index(scale), item_ids, user_ids, model._get_queries(rows), one - zero, intercepts)

    @classmethod
    def of_vectors(
        cls,
        index: IndexCCCF | IndexRefineCCCF,
        vectors: NDArray[np.float32],
        user_ids: NDArray[Any],
        item_ids: NDArray[Any] | None,
        offset: float = 0.0,
    ) -> Catalogue:
        """Return the catalogue of an index of embeddings, and the vectors of its users.

        `offset` is the rating that a score of 0 predicts.
        """
        queries = _check.matrix(vectors, "vectors", index.d)
        return cls(index, item_ids, user_ids, queries, 1.0, np.full(len(queries), offset, dtype=np.float32))

    def user_rows(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return the rows of users by their names; an unknown name raises a ValueError."""
        return find_rows(self.user_ids, ids, "users in this catalogue")

    def recommend(
        self, users: NDArray[np.int64], k: int, *, exclude: Exclude | None = None, params: Parameters | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return predicted ratings and ids of the index, (n, k) each, best first, padded with -1.

        Parameters
        ----------
        users : ndarray of int64, shape (n,)
            Rows of users.
        k : int
        exclude : list of array_like of int, ndarray or scipy.sparse matrix, optional
            Items to leave out for each user, by ids of the index, as in `IndexCCCF.search`; see `seen`.
        params : SearchParametersCCCF, optional
        """
        queries: Any = self.queries[users]
        scores, items = self.index.search(queries, k, exclude=exclude, params=params)
        rated = np.float32(self.slope) * scores + self.intercepts[users][:, None]
        return np.where(items >= 0, rated, scores), items

    def names(self, items: NDArray[np.int64]) -> NDArray[Any]:
        """Return the names of items by their ids; -1 is not allowed."""
        return items if self.item_ids is None else self.item_ids[items]

    def seen(self, ratings: Ratings, users: NDArray[np.int64]) -> sparse.csr_matrix:
        """Return the items these users rated, with ids of the index as columns; unknown users and items are left out.

        Returns
        -------
        scipy.sparse.csr_matrix, shape (len(users), largest id + 1)
        """
        rows = find_places(ratings.user_ids, self.user_ids[users])
        if self.item_ids is None:
            wanted = ratings.item_ids if ratings.item_ids.dtype.kind in "iu" else np.full(len(ratings.item_ids), -1)
            columns = np.where(wanted >= 0, wanted.astype(np.int64), -1)
        else:
            columns = find_places(self.item_ids, ratings.item_ids)
        matrix = ratings.user_items.tocsr()
        found = np.flatnonzero(rows >= 0)
        part = matrix[rows[found]].tocoo()
        known = columns[part.col] >= 0
        pairs = (found[part.row[known]], columns[part.col[known]])
        width = int(columns.max(initial=0)) + 1
        return sparse.csr_matrix((np.ones(known.sum(), np.float32), pairs), shape=(len(users), width))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the catalogue to one file, with checksums and atomically."""
        kind, meta, arrays = io.index_contents(self.index)
        coded = isinstance(self.queries, CompositionalCodes)
        names = {"user_ids": self.user_ids} | ({} if self.item_ids is None else {"item_ids": self.item_ids})
        kinds = {name: ids.dtype.kind for name, ids in names.items()}
        meta["catalogue"] = {"slope": float(self.slope).hex(), "coded": coded, "ids": kinds}
        own: dict[str, NDArray[Any]] = {"intercepts": self.intercepts}
        if isinstance(self.queries, CompositionalCodes):
            own |= {"bits": self.queries.bits, "weights": self.queries.weights}
        else:
            own["vectors"] = self.queries
        for name, ids in names.items():
            own |= {f"{name}.{part}": array for part, array in _pack_names(ids).items()}
        extra: Named = ((PREFIX + name, np.ascontiguousarray(array), 0) for name, array in own.items())
        container.write_file(path, kind, meta, chain(arrays, extra))

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool = False) -> Catalogue:
        """Read a saved catalogue, or a file of `write_index`: then ids are the names and there are no users."""
        source = os.fspath(path)
        if os.path.isdir(source):
            raise ValueError(f"{source} is a folder, not an index. Build one from a model with `cccf build {source}`.")
        meta, arrays = container.read_file(path, io.KINDS, mmap)
        index = io.restore_index(meta, arrays, source, verify=True)
        if "catalogue" not in meta:
            none = np.empty(0, dtype=np.int64)
            return cls(index, None, none, np.empty((0, index.d), np.float32), 1.0, np.empty(0, np.float32))
        try:
            about = meta["catalogue"]
            own = {name.removeprefix(PREFIX): array for name, array in arrays.items() if name.startswith(PREFIX)}
            ids = {name: _unpack_names(own, name, kind) for name, kind in about["ids"].items()}
            queries = (
                own["vectors"] if not about["coded"] else _make_codes(own["bits"], own["weights"], meta["n_bits"], mmap)
            )
            users, items = ids["user_ids"], ids.get("item_ids")
            if not len(users) == len(queries) == len(own["intercepts"]):
                raise ValueError("the numbers of users and queries do not fit")
            if items is not None and index.ntotal and not 0 <= index.ids[0] <= index.ids[-1] < len(items):
                raise ValueError("the names do not fit the items")
            return cls(index, items, users, queries, float.fromhex(about["slope"]), own["intercepts"])
        except container.BROKEN as error:
            raise container.damage_error(source, error) from error


def _make_codes(bits: NDArray[Any], weights: NDArray[Any], n_bits: int, mmap: bool) -> CompositionalCodes:
    """Return codes; memory-mapped ones are not copied or checked again, as the checksum proves they are unchanged."""
    if mmap and len(bits):
        CompositionalCodes(bits[:1], weights[:1], n_bits)  # checks types and shapes
        if len(bits) == len(weights):
            return CompositionalCodes._trusted(bits, weights, n_bits)
    return CompositionalCodes(bits, weights, n_bits)


def _pack_names(ids: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return names as arrays of numbers: integers as they are, text as UTF-8 bytes and offsets."""
    if ids.dtype.kind in "iu":
        return {"numbers": ids.astype(np.int64)}
    texts = [str(text).encode() for text in ids.tolist()]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return {"text": np.frombuffer(b"".join(texts), dtype=np.uint8), "ends": ends}


def _unpack_names(arrays: dict[str, NDArray[Any]], name: str, kind: str) -> NDArray[Any]:
    if kind in "iu":
        return arrays[f"{name}.numbers"]
    text, ends = arrays[f"{name}.text"].tobytes(), arrays[f"{name}.ends"].tolist()
    return np.array([text[begin:end].decode() for begin, end in pairwise(ends)], dtype=str)
