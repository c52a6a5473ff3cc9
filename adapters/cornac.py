"""CCCFANN: a recommender of Cornac that searches compositional codes, next to its Annoy, Faiss and HNSWLib."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cccf_index import _check, read_index, write_index
from cccf_index.adapters._vectors import (
    CodedVectors,
    check_ids,
    lift_sides,
    lift_subjects,
    raise_missing_framework,
    to_distances,
    to_unit_length,
)
from cccf_index.adapters.options import CodeOptions

try:
    from cornac.models.ann.recom_ann_base import BaseANN
    from cornac.models.recommender import MEASURE_COSINE, MEASURE_DOT, MEASURE_L2
except ImportError as error:
    raise_missing_framework("Cornac", "cornac", error)


class CCCFANN(BaseANN):
    """A model of Cornac with user and item vectors whose recommendations come from an index of compositional codes.

    Codes find ``k_factor * k`` items and the vectors re-rank them. Unlike Cornac's own wrappers, it ranks only the
    candidates that it is given, and leaves out seen items inside the search, so lists stay full. `n_components`,
    `n_bits`, `k_factor`, `queries` and `num_threads` are explained by `cccf_index.adapters.options.CodeOptions`.

    Parameters
    ----------
    model : cornac.models.Recommender
        A model that supports nearest neighbours: `MF`, `BPR`, `PMF`, `WMF`, `LightGCN`, ...
    seed : int
    name : str
    verbose : bool

    Examples
    --------
    >>> import cornac
    >>> from cccf_index.adapters.cornac import CCCFANN
    >>> from cccf_index.datasets import synthetic_ratings
    >>> pairs = synthetic_ratings(n_users=300, n_items=200).user_items.tocoo()
    >>> data = [(f"u{u}", f"i{i}", r) for u, i, r in zip(pairs.row.tolist(), pairs.col.tolist(), pairs.data.tolist())]
    >>> train = cornac.data.Dataset.from_uir(data, seed=0)
    >>> mf = cornac.models.MF(k=8, max_iter=20, seed=0).fit(train)
    >>> ann = CCCFANN(mf, num_threads=1)
    >>> ann.build_index()
    >>> recommended = ann.recommend_batch(["u3", "u4"], k=5, remove_seen=True, train_set=train)
    >>> [len(items) for items in recommended]
    [5, 5]
    """

    index: Any = None
    _vectors: CodedVectors | None = None

    def __init__(
        self,
        model: Any,
        n_components: int = 8,
        n_bits: int = 16,
        k_factor: float | None = 2.0,
        queries: str = "coded",
        num_threads: int = 0,
        seed: int = 0,
        name: str = "CCCFANN",
        verbose: bool = False,
    ) -> None:
        CodeOptions(n_components, n_bits, k_factor, queries, num_threads, {"seed": seed})
        super().__init__(model=model, name=name, verbose=verbose)
        self.n_components = n_components
        self.n_bits = n_bits
        self.k_factor = k_factor
        self.queries = queries
        self.num_threads = num_threads
        self.seed = seed
        self.ignored_attrs.extend(["index", "_vectors"])  # `save` writes the index to a file of its own

    def build_index(self) -> None:
        """Learn codes of the model's vectors and build the index; on an error the previous index stays."""
        if not self.model.is_fitted:
            raise _check.NotFittedError(f"This {self.model.name} is not fitted yet. Call `fit`.")
        before = dict(vars(self))
        try:
            super().build_index()
            self._vectors = CodedVectors.learn(*self._get_sides(), self._get_options())
        except BaseException:
            self.__dict__ = before
            raise
        self.index = self._vectors.index

    def _get_sides(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return vectors of users and items whose inner products order items like the model's measure."""
        if self.measure == MEASURE_L2:
            return lift_sides(self.user_vectors, self.item_vectors)
        if self.measure == MEASURE_COSINE:
            return to_unit_length(self.user_vectors), to_unit_length(self.item_vectors)
        if self.measure != MEASURE_DOT:
            raise ValueError(f"`model` must measure by inner product, cosine or distance, got {self.measure!r}.")
        return np.asarray(self.user_vectors, dtype=np.float32), np.asarray(self.item_vectors, dtype=np.float32)

    def _get_options(self, index: Any = None) -> CodeOptions:
        """Return the options to learn codes with, or to search a loaded index with."""
        params = {"seed": self.seed, "verbose": self.verbose} if index is None else {}
        options = CodeOptions.from_attributes(self, index, **params)
        return options.for_cosines() if self.measure == MEASURE_COSINE else options

    def _require_index(self) -> CodedVectors:
        if self._vectors is None:
            raise _check.NotFittedError(
                "This CCCFANN has no index yet. Call `fit`, or `build_index` for a fitted model."
            )
        return self._vectors

    def knn_query(self, query: Any, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the k nearest items of query vectors, (n, k), and their distances, the smallest first.

        A distance is 1 minus the inner product or the cosine, or the squared distance. Padding is item -1 at infinity.
        """
        vectors = self._require_index()
        x = _check.matrix(query, "query", self.user_vectors.shape[1])
        lifts = {MEASURE_L2: lift_subjects, MEASURE_COSINE: to_unit_length}
        lift = lifts.get(self.measure, np.asarray)
        scores, found = vectors.search(self._limit_count(k), vectors=lift(x))
        if self.measure == MEASURE_L2:
            return found, to_distances(x, scores)
        return found, np.where(found < 0, np.inf, 1 - scores).astype(np.float32)

    def _limit_count(self, k: int) -> int:
        n = len(self._require_index())
        return n if k == -1 else min(_check.integer(k, "k", 1), n)

    def rank(
        self, user_idx: int, item_indices: Any = None, k: int = -1, **kwargs: Any
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Rank candidate items for a user: the best k, then the other candidates with a score of -inf.

        As in Cornac, the scores are in the order of `item_indices`.
        """
        if kwargs:
            raise TypeError(f"`rank` got unexpected arguments: {', '.join(sorted(kwargs))}.")
        vectors = self._require_index()
        items = np.arange(self.num_items)
        if item_indices is not None:
            items = check_ids(item_indices, "item_indices", max(self.total_items, len(vectors)))
        user_idx = _check.integer(user_idx, "user_idx", 0)
        if user_idx >= len(vectors.subjects):
            return items, np.full(len(items), self.default_score())
        known = items[items < len(vectors)]
        scores_of = np.full(max(self.total_items, len(vectors)), -np.inf)
        best = known[:0]
        if len(known):
            others = np.setdiff1d(np.arange(len(vectors)), known)
            few = len(others) < len(known)
            starts = np.array([0, len(others)])
            scores, found = vectors.search(
                min(self._limit_count(k), len(known)),
                rows=np.array([user_idx]),
                exclude=sparse.csr_array((np.ones(len(others)), others, starts), (1, len(vectors))) if few else None,
                allow=None if few else known,
            )
            best = found[0][found[0] >= 0]
            if self.measure == MEASURE_L2:
                scores = -to_distances(np.asarray(self.user_vectors[[user_idx]], dtype=np.float32), scores)
            scores_of[best] = scores[0][: len(best)]
            values, counts = np.unique(items, return_counts=True)
            best = np.repeat(
                best, counts[np.searchsorted(values, best)]
            )  # duplicates in `item_indices` stay duplicates
        rest = items[~np.isin(items, best)]
        return np.concatenate([best, rest]), scores_of[items]

    def recommend_batch(
        self, batch_users: Any, k: int = -1, remove_seen: bool = False, train_set: Any = None
    ) -> list[list[Any]]:
        """Return the names of the k best items of each user; with `remove_seen`, of k items not in `train_set`."""
        vectors = self._require_index()
        batch_users = list(batch_users)
        if k > self.total_items:
            raise ValueError(f"`k` must be at most {self.total_items}, the number of items, got {k}.")
        unknown = [user for user in batch_users if user not in self.uid_map]
        if unknown:
            raise ValueError(f"`batch_users` must be known to the model, got {unknown[0]!r}.")
        if remove_seen and train_set is None:
            raise ValueError("`train_set` must be given with `remove_seen=True`.")
        rows = np.array([self.uid_map[user] for user in batch_users], dtype=np.int64)
        if len(rows) and rows.max() >= len(vectors.subjects):
            raise ValueError(
                f"`batch_users` must be users of the training data, got {batch_users[int(rows.argmax())]!r}."
            )
        seen = None
        if remove_seen:
            matrix = train_set.csr_matrix
            if matrix.shape[0] < len(vectors.subjects):  # users after the last row have seen nothing
                matrix = matrix.copy()
                matrix.resize(len(vectors.subjects), matrix.shape[1])
            seen = matrix[rows]
        found = vectors.search(self._limit_count(k), rows=rows, exclude=seen)[1]
        return [[self.item_ids[item] for item in row[row >= 0]] for row in found]

    def save(self, save_dir: Any = None, save_trainset: bool = False, metadata: Any = None) -> Any:
        """Save the model as Cornac does, and the index in ``<path>.index``, a file for `cccf_index.read_index`."""
        index = self._require_index().index
        path = super().save(save_dir, save_trainset, metadata)
        if path is not None:
            write_index(index, f"{path}.index")
        return path

    @staticmethod
    def load(model_path: Any, trainable: bool = False) -> CCCFANN:
        """Load a saved model and its index."""
        ann = BaseANN.load(model_path, trainable)
        ann.index = read_index(f"{ann.load_from}.index")
        users, items = ann._get_sides()
        ann._vectors = CodedVectors(ann.index, users, items, ann._get_options(ann.index))
        return ann
