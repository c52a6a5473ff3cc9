"""CCCFANN: a recommender of Cornac that answers from compositional codes, beside Annoy, Faiss, HNSWLib and ScaNN."""

from __future__ import annotations

from typing import Any

import numpy as np
from cccf_index.adapters._vectors import (
    CodedVectors,
    check_options,
    checked_ids,
    distances,
    for_cosines,
    lifted,
    lifted_queries,
    no_framework,
    unit,
)
from numpy.typing import NDArray
from scipy import sparse

from cccf_index import _check, read_index, write_index

try:
    from cornac.models.ann.recom_ann_base import BaseANN
    from cornac.models.recommender import MEASURE_COSINE, MEASURE_DOT, MEASURE_L2
except ImportError as error:
    no_framework("Cornac", "cornac", error)


class CCCFANN(BaseANN):
    """Any model of Cornac with user and item vectors, whose lists come from an index of compositional codes.

    Codes find ``k_factor * k`` items, the vectors rank them. Unlike Cornac's own wrappers it ranks among the candidates
    that it is given, not all items first, and removes what users have seen inside the search: lists stay full.

    Parameters
    ----------
    model : cornac.models.Recommender
        One that supports nearest neighbours: `MF`, `BPR`, `PMF`, `WMF`, `LightGCN`, ...
    n_components, n_bits : int
        Of the codes: G and r.
    k_factor : float or None
        How many items are found by their codes for each that is asked for, four times as many for cosines; None to
        rank by codes alone.
    queries : {"coded", "real"}
        Whether codes of the users search, or real-valued queries: slower, more accurate.
    num_threads : int
        0 for all cores.
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
        check_options(n_components, n_bits, k_factor, queries, num_threads, seed=seed)
        super().__init__(model=model, name=name, verbose=verbose)
        self.n_components = n_components
        self.n_bits = n_bits
        self.k_factor = k_factor
        self.queries = queries
        self.num_threads = num_threads
        self.seed = seed
        self.ignored_attrs.extend(["index", "_vectors"])  # saved beside

    def build_index(self) -> None:
        """Learn codes of the model's vectors, and make the index; what fails leaves the last one."""
        if not self.model.is_fitted:
            raise _check.NotFittedError(f"This {self.model.name} is not fitted yet. Call `fit`.")
        before = dict(vars(self))
        try:
            super().build_index()
            shape, params = (self.n_components, self.n_bits), {"seed": self.seed, "verbose": self.verbose}
            self._vectors = CodedVectors.learned(*self._sides(), *shape, *self._serving(), **params)
        except BaseException:
            self.__dict__ = before
            raise
        self.index = self._vectors.index

    def _sides(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return vectors of users and items whose inner products order items as the model's measure does."""
        if self.measure == MEASURE_L2:
            return lifted(self.user_vectors, self.item_vectors)
        if self.measure == MEASURE_COSINE:
            return unit(self.user_vectors), unit(self.item_vectors)
        if self.measure != MEASURE_DOT:
            raise ValueError(f"`model` must measure by inner product, cosine or distance, got {self.measure!r}.")
        return np.asarray(self.user_vectors, dtype=np.float32), np.asarray(self.item_vectors, dtype=np.float32)

    def _serving(self) -> tuple[float | None, str, int]:
        """Return the options of `CodedVectors`."""
        k_factor = for_cosines(self.k_factor) if self.measure == MEASURE_COSINE else self.k_factor
        return k_factor, self.queries, self.num_threads

    def _built(self) -> CodedVectors:
        if self._vectors is None:
            raise _check.NotFittedError(
                "This CCCFANN has no index yet. Call `fit`, or `build_index` for a fitted model."
            )
        return self._vectors

    def knn_query(self, query: Any, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the k nearest items of vectors like the users', (n, k), and their distances, the smallest first.

        A distance is 1 less an inner product or a cosine, or a squared distance; -1 items are infinitely far.
        """
        vectors = self._built()
        x = _check.matrix(query, "query", self.user_vectors.shape[1])
        lift = lifted_queries if self.measure == MEASURE_L2 else unit if self.measure == MEASURE_COSINE else np.asarray
        scores, found = vectors.search(self._count(k), vectors=lift(x))
        if self.measure == MEASURE_L2:
            return found, distances(x, scores)
        return found, np.where(found < 0, np.inf, 1 - scores).astype(np.float32)

    def _count(self, k: int) -> int:
        n = len(self._built())
        return n if k == -1 else min(_check.integer(k, "k", 1), n)

    def rank(
        self, user_idx: int, item_indices: Any = None, k: int = -1, **kwargs: Any
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Rank candidate items for a user: the best k by the index, then the others, which have no score (-inf).

        As in Cornac, the scores are those of `item_indices`, in that order.
        """
        if kwargs:
            raise TypeError(f"`rank` takes no {sorted(kwargs)} here.")
        vectors = self._built()
        items = np.arange(self.num_items)
        if item_indices is not None:
            items = checked_ids(item_indices, "item_indices", max(self.total_items, len(vectors)))
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
                min(self._count(k), len(known)),
                rows=np.array([user_idx]),
                exclude=sparse.csr_array((np.ones(len(others)), others, starts), (1, len(vectors))) if few else None,
                allow=None if few else known,
            )
            best = found[0][found[0] >= 0]
            if self.measure == MEASURE_L2:
                scores = -distances(np.asarray(self.user_vectors[[user_idx]], dtype=np.float32), scores)
            scores_of[best] = scores[0][: len(best)]
            values, counts = np.unique(items, return_counts=True)
            best = np.repeat(best, counts[np.searchsorted(values, best)])  # as often as they were given
        rest = items[~np.isin(items, best)]
        return np.concatenate([best, rest]), scores_of[items]

    def recommend_batch(
        self, batch_users: Any, k: int = -1, remove_seen: bool = False, train_set: Any = None
    ) -> list[list[Any]]:
        """Return the k best items of each user, by their names; with `remove_seen` k that are not in `train_set`."""
        vectors = self._built()
        batch_users = list(batch_users)
        if k > self.total_items:
            raise ValueError(f"`k` must be at most {self.total_items}, the number of items, got {k}.")
        unknown = [user for user in batch_users if user not in self.uid_map]
        if unknown:
            raise ValueError(f"`batch_users` must be known to the model, got {unknown[0]!r}.")
        if remove_seen and train_set is None:
            raise ValueError("`train_set` must be given to remove what users have seen.")
        rows = np.array([self.uid_map[user] for user in batch_users], dtype=np.int64)
        if len(rows) and rows.max() >= len(vectors.subjects):
            raise ValueError(f"`batch_users` must have been trained, got {batch_users[int(rows.argmax())]!r}.")
        seen = None
        if remove_seen:
            matrix = train_set.csr_matrix
            if matrix.shape[0] < len(vectors.subjects):  # users after the last row have seen nothing
                matrix = matrix.copy()
                matrix.resize(len(vectors.subjects), matrix.shape[1])
            seen = matrix[rows]
        found = vectors.search(self._count(k), rows=rows, exclude=seen)[1]
        return [[self.item_ids[item] for item in row[row >= 0]] for row in found]

    def save(self, save_dir: Any = None, save_trainset: bool = False, metadata: Any = None) -> Any:
        """Save as Cornac does, and the index beside it: a file that `cccf_index.read_index` reads."""
        index = self._built().index
        path = super().save(save_dir, save_trainset, metadata)
        if path is not None:
            write_index(index, f"{path}.index")
        return path

    @staticmethod
    def load(model_path: Any, trainable: bool = False) -> CCCFANN:
        """Load what `save` saved."""
        ann = BaseANN.load(model_path, trainable)
        ann.index = read_index(f"{ann.load_from}.index")
        ann._vectors = CodedVectors(ann.index, *ann._sides(), *ann._serving())
        return ann
