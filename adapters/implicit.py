"""CCCFModel: a recommender of implicit that searches compositional codes."""

from __future__ import annotations

import importlib
import os
from io import BytesIO
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cccf_index import CompositionalCodes, _check, io
from cccf_index._check import NotFittedError
from cccf_index._json import to_plain
from cccf_index.adapters._vectors import CodedVectors, check_ids, raise_missing_framework, to_unit_length
from cccf_index.adapters.options import OPTION_NAMES, CodeOptions
from cccf_index.storage import container

try:
    import implicit.cpu.matrix_factorization_base
    import implicit.gpu.matrix_factorization_base
    from implicit.recommender_base import RecommenderBase
except ImportError as error:
    raise_missing_framework("the package implicit", "implicit", error)

KIND = "implicit model"
FACTORIZATIONS = (
    implicit.cpu.matrix_factorization_base.MatrixFactorizationBase,
    implicit.gpu.matrix_factorization_base.MatrixFactorizationBase,
)
# a saved file names its model class by module; only these are imported
MODELS = {
    "implicit.cpu.als": "AlternatingLeastSquares",
    "implicit.cpu.bpr": "BayesianPersonalizedRanking",
    "implicit.cpu.lmf": "LogisticMatrixFactorization",
    "implicit.gpu.als": "AlternatingLeastSquares",
    "implicit.gpu.bpr": "BayesianPersonalizedRanking",
}


class CCCFModel(RecommenderBase):
    """A matrix factorization of implicit whose recommendations come from an index of compositional codes.

    A replacement for `implicit.ann.faiss.FaissModel` that also supports what that leaves out: whole batches when liked
    items are filtered, `items`, `recalculate_user`, `similar_users`, `save` and `load`. Codes find ``k_factor * N``
    items and the factors re-rank them, so scores are those of the model. `n_components`, `n_bits`, `k_factor`,
    `queries`, `num_threads` and further keywords are explained by `cccf_index.adapters.options.CodeOptions`.

    Parameters
    ----------
    model : implicit.cpu.matrix_factorization_base.MatrixFactorizationBase
        `AlternatingLeastSquares`, `BayesianPersonalizedRanking` or `LogisticMatrixFactorization`; GPU models work too.
    approximate_recommend, approximate_similar_items, approximate_similar_users : bool
        False to use the model's own search. The indexes of similar items and users are built when they are first
        needed.

    Attributes
    ----------
    recommend_index, similar_items_index, similar_users_index : IndexCCCF or None

    Examples
    --------
    >>> from implicit.als import AlternatingLeastSquares
    >>> from scipy import sparse
    >>> from cccf_index.adapters.implicit import CCCFModel
    >>> from cccf_index.datasets import synthetic_ratings
    >>> user_items = sparse.csr_matrix(synthetic_ratings(n_users=500, n_items=300).user_items, dtype="float32")
    >>> als = AlternatingLeastSquares(factors=16, random_state=0, num_threads=1)
    >>> als.fit(user_items, show_progress=False)
    >>> model = CCCFModel(als).build()  # or CCCFModel(als).fit(user_items), which trains both
    >>> ids, scores = model.recommend([3, 4], user_items[[3, 4]], N=10, filter_items=[7])
    >>> ids.shape
    (2, 10)
    """

    def __init__(
        self,
        model: Any,
        n_components: int = 8,
        n_bits: int = 16,
        k_factor: float | None = 2.0,
        queries: str = "coded",
        approximate_recommend: bool = True,
        approximate_similar_items: bool = True,
        approximate_similar_users: bool = True,
        num_threads: int = 0,
        **params: Any,
    ) -> None:
        if not isinstance(model, FACTORIZATIONS):
            raise TypeError(f"`model` must be a matrix factorization of implicit, got {type(model).__name__}.")
        CodeOptions(n_components, n_bits, k_factor, queries, num_threads, params)
        self.model = model
        self.n_components = n_components
        self.n_bits = n_bits
        self.k_factor = k_factor
        self.queries = queries
        self.approximate_recommend = approximate_recommend
        self.approximate_similar_items = approximate_similar_items
        self.approximate_similar_users = approximate_similar_users
        self.num_threads = num_threads
        self.params = params
        self._known: dict[str, CodedVectors] = {}
        super().__init__()

    def fit(self, user_items: Any, show_progress: bool = True, callback: Any = None) -> CCCFModel:
        """Train the model and build the index of its items."""
        self.model.fit(user_items, show_progress, callback=callback)
        return self.build(show_progress)

    def build(self, show_progress: bool = True) -> CCCFModel:
        """Build the index of a model that is already fitted; call it again when the factors have changed."""
        self._known = {"recommend": self._learn("recommend", show_progress)} if self.approximate_recommend else {}
        return self

    @property
    def recommend_index(self) -> Any:
        """The index that `recommend` searches."""
        return self._get_index("recommend")

    @property
    def similar_items_index(self) -> Any:
        """The index that `similar_items` searches, by cosine."""
        return self._get_index("similar_items")

    @property
    def similar_users_index(self) -> Any:
        """The index that `similar_users` searches, by cosine."""
        return self._get_index("similar_users")

    def _get_index(self, task: str) -> Any:
        return self._known[task].index if task in self._known else None

    def _get_sides(self, task: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the vectors that search and the vectors that are found."""
        users, items = (_to_numpy(part) for part in (self.model.user_factors, self.model.item_factors))
        if users is None or items is None:
            raise NotFittedError(f"This {type(self.model).__name__} is not fitted yet. Call `fit` first.")
        if task == "recommend":
            return users, items
        side = to_unit_length(items if task == "similar_items" else users)
        return side, side

    def _get_options(self, task: str, **params: Any) -> CodeOptions:
        """Return the options as they are now: attributes may have changed since the last index."""
        options = CodeOptions.from_attributes(self, **params)
        return options if task == "recommend" else options.for_cosines()

    def _get_vectors(self, task: str) -> CodedVectors:
        if task not in self._known:
            self._known[task] = self._learn(task, show_progress=False)
        return self._known[task]

    def _learn(self, task: str, show_progress: bool) -> CodedVectors:
        options = self._get_options(task, **{"verbose": show_progress, **self.params})
        return CodedVectors.learn(*self._get_sides(task), options)

    def recommend(
        self,
        userid: Any,
        user_items: Any,
        N: int = 10,
        filter_already_liked_items: bool = True,
        filter_items: Any = None,
        recalculate_user: bool = False,
        items: Any = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Recommend items to a user or to a batch of users; see `RecommenderBase.recommend`.

        If fewer than N items are left, the list is padded with id -1 and the lowest float32 as score. It is never
        longer than the number of items. With `items`, all of them are returned, as in implicit: filtered ones come
        last, with the lowest float32 as score. Duplicates in `items` count once.
        """
        if not self.approximate_recommend:
            return self.model.recommend(
                userid, user_items, N, filter_already_liked_items, filter_items, recalculate_user, items
            )
        known = self._require_index()
        users = check_ids(userid, "userid", len(known.subjects) if not recalculate_user else None)
        if filter_already_liked_items or recalculate_user:
            if not sparse.issparse(user_items) or user_items.format != "csr":
                raise ValueError("`user_items` must be a scipy.sparse.csr_matrix with a row for each user.")
            if user_items.shape[0] != len(users):
                raise ValueError(
                    f"`user_items` must have one row for each of the {len(users)} users, got {user_items.shape[0]}. "
                    "Pass `user_items[userid]`."
                )
        vectors = (
            np.atleast_2d(_to_numpy(self.model.recalculate_user(userid, user_items))) if recalculate_user else None
        )
        liked = user_items if filter_already_liked_items else None
        filters = CandidateFilters.make("items", len(known), len(users), liked, filter_items, items)
        return _search(known, userid, users, vectors, N, filters)

    def similar_items(
        self,
        itemid: Any,
        N: int = 10,
        recalculate_item: bool = False,
        item_users: Any = None,
        filter_items: Any = None,
        items: Any = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the items with the largest cosine; see `RecommenderBase.similar_items`."""
        if not self.approximate_similar_items:
            return self.model.similar_items(itemid, N, recalculate_item, item_users, filter_items, items)
        vectors = None
        if recalculate_item:
            vectors = to_unit_length(np.atleast_2d(_to_numpy(self.model.recalculate_item(itemid, item_users))))
        known = self._get_vectors("similar_items")
        wanted = check_ids(itemid, "itemid", len(known) if not recalculate_item else None)
        filters = CandidateFilters.make("items", len(known), len(wanted), None, filter_items, items)
        return _search(known, itemid, wanted, vectors, N, filters)

    def similar_users(
        self, userid: Any, N: int = 10, filter_users: Any = None, users: Any = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the users with the largest cosine; see `RecommenderBase.similar_users`."""
        if not self.approximate_similar_users:
            return self.model.similar_users(userid, N, filter_users, users)
        known = self._get_vectors("similar_users")
        wanted = check_ids(userid, "userid", len(known))
        filters = CandidateFilters.make("users", len(known), len(wanted), None, filter_users, users)
        return _search(known, userid, wanted, None, N, filters)

    def _require_index(self) -> CodedVectors:
        if "recommend" not in self._known:
            raise NotFittedError("This CCCFModel has no index yet. Call `fit`, or `build` if its model is fitted.")
        return self._known["recommend"]

    def save(self, file: str | os.PathLike[str] | BinaryIO) -> None:
        """Write the model, its indexes and their codes to a path, atomically, or to an open file."""
        place = type(self.model).__module__
        if MODELS.get(place) != type(self.model).__name__:
            known = ", ".join(sorted(set(MODELS.values())))
            raise TypeError(f"`model` must be one of {known} to be saved, got {type(self.model).__name__}.")
        for task, vectors in self._known.items():
            if [part.shape for part in self._get_sides(task)] != [vectors.subjects.shape, vectors.objects.shape]:
                raise ValueError(
                    "The model's users or items have changed since the index was built. Call `build` before `save`."
                )
        buffer = BytesIO()
        self.model.save(buffer)
        options = [*OPTION_NAMES, "params"]
        options += ["approximate_recommend", "approximate_similar_items", "approximate_similar_users"]
        meta = {
            "model": place,
            "tasks": list(self._known),
            "options": {name: to_plain(getattr(self, name)) for name in options},
        }
        arrays: list[tuple[str, NDArray[Any], int]] = [("model", np.frombuffer(buffer.getbuffer(), dtype=np.uint8), 0)]
        for task, vectors in self._known.items():
            arrays.append((f"{task}.index", io.serialize_index(vectors.index), 0))
            if vectors.codes is not None:
                arrays += [(f"{task}.bits", vectors.codes.bits, 0), (f"{task}.weights", vectors.codes.weights, 0)]
        if isinstance(file, (str, os.PathLike)):
            container.write_file(file, KIND, meta, arrays)
        else:
            container.write(file, KIND, meta, arrays)

    @classmethod
    def load(cls, fileobj_or_path: str | os.PathLike[str] | BinaryIO) -> CCCFModel:
        """Read a saved model; a damaged or foreign file raises a ValueError."""
        if isinstance(fileobj_or_path, (str, os.PathLike)):
            source = os.fspath(fileobj_or_path)
            meta, arrays = container.read_file(source, KIND)
        else:
            source = str(getattr(fileobj_or_path, "name", "the file"))
            meta, arrays = container.read(np.frombuffer(fileobj_or_path.read(), dtype=np.uint8), KIND, source)
        try:
            kind = MODELS[meta["model"]]
            inner = getattr(importlib.import_module(meta["model"]), kind).load(BytesIO(arrays["model"].tobytes()))
            saved = dict(meta["options"])
            model = cls(inner, **saved.pop("params"), **saved)
            for task in meta["tasks"]:
                index = io.deserialize_index(arrays[f"{task}.index"])
                codes = None
                if model.queries == "coded":
                    codes = CompositionalCodes(arrays[f"{task}.bits"], arrays[f"{task}.weights"], index.n_bits)
                model._known[task] = CodedVectors(
                    index, *model._get_sides(task), model._get_options(task, **model.params), codes
                )
        except container.BROKEN as error:
            raise container.damage_error(source, error) from error
        return model


class CandidateFilters(NamedTuple):
    """Which candidates a search may return, in the index's own terms.

    `listed` holds the ids that the caller asked to rank; all of them are returned.
    """

    exclude: Any = None
    allow: NDArray[np.int64] | None = None
    listed: NDArray[np.int64] | None = None

    @classmethod
    def make(cls, name: str, n: int, n_rows: int, liked: Any, without: Any, only: Any) -> CandidateFilters:
        """Return the filters of `n_rows` queries to `n` objects; `name` is the argument's name in errors."""
        if without is not None and np.size(without):
            if only is not None:
                raise ValueError(f"`{name}` and `filter_{name}` cannot be given together.")
            without = np.unique(check_ids(without, f"filter_{name}", n))
            if n_rows * len(without) <= n:
                return cls(_join_filters(liked, without, n_rows, n))
            return cls(liked, np.setdiff1d(np.arange(n), without, assume_unique=True))
        if only is None:
            return cls(liked)
        listed = np.unique(check_ids(only, name, n))
        if not len(listed):
            raise ValueError(f"`{name}` must hold at least one id, got none.")
        return cls(liked, listed, listed)


def _to_numpy(part: Any) -> Any:
    """Return factors as a numpy array; those of the GPU are copied."""
    return part.to_numpy() if hasattr(part, "to_numpy") else part


def _search(
    known: CodedVectors, requested: Any, rows: NDArray[np.int64], vectors: Any, N: int, filters: CandidateFilters
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Search for rows, or for vectors if given, and shape the result as implicit does: one id gives one row."""
    most = len(known) if filters.listed is None else len(filters.listed)
    count = min(_check.integer(N, "N", 1), most)
    queries = {"rows": rows} if vectors is None else {"vectors": vectors}
    scores, found = known.search(count, **queries, exclude=filters.exclude, allow=filters.allow)
    if filters.listed is not None:
        _fill_rows(found, filters.listed)
    ids = found.astype(np.int32)
    return (ids[0], scores[0]) if np.ndim(requested) == 0 else (ids, scores)


def _join_filters(liked: Any, without: NDArray[np.int64], n_rows: int, n_columns: int) -> Any:
    """Return a matrix with the entries of `liked`, and those of `without` in every row."""
    starts = np.arange(n_rows + 1) * len(without)
    columns = np.tile(without, n_rows)
    width = n_columns if liked is None else max(n_columns, liked.shape[1])
    everyone = sparse.csr_array((np.ones(len(columns), np.float32), columns, starts), shape=(n_rows, width))
    if liked is None:
        return everyone
    ones = np.ones(len(liked.indices), np.float32)
    return sparse.csr_array((ones, liked.indices, liked.indptr), shape=(n_rows, width)) + everyone


def _fill_rows(found: NDArray[np.int64], allowed: NDArray[np.int64]) -> None:
    """Fill the empty places of each row with the allowed ids that were not found."""
    for row in found:
        empty = row < 0
        if empty.any():
            row[empty] = np.setdiff1d(allowed, row)[: np.count_nonzero(empty)]
