"""CCCFRanker: a ranker of RecTools that searches compositional codes; `with_cccf` makes a vector model use it."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from cccf_index import _check
from cccf_index.adapters._vectors import (
    CodedVectors,
    check_ids,
    lift_sides,
    raise_missing_framework,
    to_distances,
    to_unit_length,
)
from cccf_index.adapters.options import CodeOptions

try:
    from rectools.exceptions import NotFittedError
    from rectools.models.rank import Distance
    from rectools.models.vector import VectorModel
except ImportError as error:
    raise_missing_framework("RecTools", "rectools", error)

Triplet = tuple[NDArray[Any], NDArray[np.int64], NDArray[np.float32]]


class CCCFRanker:
    """A `Ranker` of RecTools that searches an index of compositional codes.

    Codes find ``k_factor * k`` objects and the factors re-rank them, so scores are those of `ImplicitRanker`.
    `n_components`, `n_bits`, `k_factor`, `queries`, `num_threads` and further keywords are explained by
    `cccf_index.adapters.options.CodeOptions`.

    Parameters
    ----------
    distance : rectools.models.rank.Distance
        DOT, COSINE or EUCLIDEAN.
    subjects_factors, objects_factors : ndarray of float, shapes (n_subjects, p) and (n_objects, p)

    Attributes
    ----------
    index : IndexCCCF

    Examples
    --------
    >>> import numpy as np
    >>> from rectools.models.rank import Distance
    >>> from cccf_index.adapters.rectools import CCCFRanker
    >>> rng = np.random.default_rng(0)
    >>> users, items = rng.standard_normal((500, 16)), rng.standard_normal((300, 16))
    >>> ranker = CCCFRanker(Distance.DOT, users, items, num_threads=1)
    >>> user_ids, item_ids, scores = ranker.rank(np.array([3, 4]), k=5)
    >>> user_ids.tolist()
    [3, 3, 3, 3, 3, 4, 4, 4, 4, 4]
    """

    def __init__(
        self,
        distance: Distance,
        subjects_factors: ArrayLike,
        objects_factors: ArrayLike,
        n_components: int = 8,
        n_bits: int = 16,
        k_factor: float | None = 2.0,
        queries: str = "coded",
        num_threads: int = 0,
        **params: Any,
    ) -> None:
        for name, factors in (("subjects_factors", subjects_factors), ("objects_factors", objects_factors)):
            if sparse.issparse(factors):
                raise TypeError(f"`{name}` must be a dense array, got a sparse matrix. Use ImplicitRanker for those.")
            if np.ndim(factors) != 2:
                raise ValueError(f"`{name}` must be of shape (n, p), got {np.shape(factors)}.")
        self.distance = Distance(distance)
        # copies, as implicit trains its factors in place and `fits` must notice
        self.subjects_factors = np.array(subjects_factors, dtype=np.float32)
        self.objects_factors = np.array(objects_factors, dtype=np.float32)
        sides = (self.subjects_factors, self.objects_factors)
        options = CodeOptions(n_components, n_bits, k_factor, queries, num_threads, {"verbose": False, **params})
        if self.distance == Distance.EUCLIDEAN:
            sides = lift_sides(*sides)
        elif self.distance == Distance.COSINE:
            sides, options = (to_unit_length(sides[0]), to_unit_length(sides[1])), options.for_cosines()
        self._vectors = CodedVectors.learn(*sides, options)
        self.index = self._vectors.index

    def rank(
        self,
        subject_ids: ArrayLike,
        k: int | None = None,
        filter_pairs_csr: sparse.csr_matrix | None = None,
        sorted_object_whitelist: NDArray[np.int64] | None = None,
    ) -> Triplet:
        """Return subjects, objects and scores as three flat arrays, the best objects of each subject first.

        Parameters
        ----------
        subject_ids : array_like of int, shape (n,)
        k : int, optional
            Number of objects for each subject; None for all.
        filter_pairs_csr : scipy.sparse.csr_matrix, shape (n, n_objects), optional
            Objects to leave out, a row for each subject.
        sorted_object_whitelist : ndarray of int, optional
            The only objects that may be returned.
        """
        rows = check_ids(subject_ids, "subject_ids", len(self.subjects_factors))
        allow = None
        if sorted_object_whitelist is not None:
            allow = check_ids(sorted_object_whitelist, "sorted_object_whitelist", len(self.objects_factors))
        if filter_pairs_csr is not None:
            _check.pairs(filter_pairs_csr, "filter_pairs_csr", len(rows))
        n = len(self.objects_factors) if allow is None else len(allow)
        count = n if k is None else min(_check.integer(k, "k", 1), n)
        if not len(rows) or not count:
            return rows[:0], np.empty(0, np.int64), np.empty(0, np.float32)
        scores, found = self._vectors.search(count, rows=rows, exclude=filter_pairs_csr, allow=allow)
        if self.distance == Distance.EUCLIDEAN:
            scores = np.sqrt(to_distances(self.subjects_factors[rows], scores))
        there = found >= 0
        return np.repeat(rows, there.sum(axis=1)), found[there], scores[there]

    def fits(self, subjects: NDArray[Any], objects: NDArray[Any]) -> bool:
        """Return whether this ranker was built from these vectors."""
        return all(
            own.shape == given.shape and np.array_equal(own, np.asarray(given, dtype=np.float32))
            for own, given in ((self.subjects_factors, subjects), (self.objects_factors, objects))
        )


class _Coded:
    """Mixin placed before the class of a vector model: it ranks with a `CCCFRanker`."""

    _rankers: dict[str, CCCFRanker]
    _options: dict[str, Any]

    def _get_ranker(self, task: str, distance: Distance, vectors: tuple[NDArray[Any], NDArray[Any]]) -> CCCFRanker:
        ranker = self._rankers.get(task)
        if ranker is None or not ranker.fits(*vectors):
            ranker = self._rankers[task] = CCCFRanker(distance, *vectors, **self._options)
        return ranker

    def _recommend_u2i(
        self, user_ids: Any, dataset: Any, k: int, filter_viewed: bool, sorted_item_ids_to_recommend: Any
    ) -> Triplet:
        seen = dataset.get_user_item_matrix(include_weights=False)[user_ids] if filter_viewed else None
        ranker = self._get_ranker("u2i", self.u2i_dist, self._get_u2i_vectors(dataset))  # type: ignore[attr-defined]
        return ranker.rank(user_ids, k, seen, sorted_item_ids_to_recommend)

    def _recommend_i2i(self, target_ids: Any, dataset: Any, k: int, sorted_item_ids_to_recommend: Any) -> Triplet:
        ranker = self._get_ranker("i2i", self.i2i_dist, self._get_i2i_vectors(dataset))  # type: ignore[attr-defined]
        return ranker.rank(target_ids, k, None, sorted_item_ids_to_recommend)

    def _get_config(self) -> Any:
        raise NotImplementedError("A model made by `with_cccf` has no config. Use the config of the original model.")

    @classmethod
    def from_config(cls, config: Any) -> Any:
        """Raise an error: codes are learned from a fitted model, not from a config."""
        raise NotImplementedError(
            "A model with codes has no config. Fit the original model and pass it to `with_cccf`."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_model, (type(self).__mro__[2], vars(self))


@cache
def _make_coded_class(kind: type) -> type:
    """Return the class of a vector model with `_Coded` before it; cached, as pickle compares classes."""
    return type(f"CCCF{kind.__name__}", (_Coded, kind), {})


def _restore_model(kind: type, state: dict[str, Any]) -> Any:
    model: Any = object.__new__(_make_coded_class(kind))
    vars(model).update(state)
    return model


_restored = _restore_model  # the name in models pickled by version 0.6 and older


def with_cccf(model: Any, dataset: Any = None, **options: Any) -> Any:
    """Return a copy of a fitted vector model whose `recommend` and `recommend_to_items` use a `CCCFRanker`.

    The original model is not changed. Codes are learned when they are first needed, separately for users and for
    similar items, and again whenever the model's vectors have changed.

    Parameters
    ----------
    model : rectools.models.vector.VectorModel
        `ImplicitALSWrapperModel`, `ImplicitBPRWrapperModel`, `LightFMWrapperModel`, `PureSVDModel`, ...
    dataset : rectools.dataset.Dataset, optional
        Given to learn the codes for users at once.
    **options
        Options of `CCCFRanker`, see `cccf_index.adapters.options.CodeOptions`.

    Examples
    --------
    >>> import pandas as pd
    >>> from rectools import Columns
    >>> from rectools.dataset import Dataset
    >>> from rectools.models import PureSVDModel
    >>> from cccf_index.adapters.rectools import with_cccf
    >>> from cccf_index.datasets import synthetic_ratings
    >>> pairs = synthetic_ratings(n_users=300, n_items=200).user_items.tocoo()
    >>> table = pd.DataFrame({Columns.User: pairs.row, Columns.Item: pairs.col, Columns.Weight: pairs.data})
    >>> dataset = Dataset.construct(table.assign(**{Columns.Datetime: "2026-01-01"}))
    >>> model = with_cccf(PureSVDModel(factors=16).fit(dataset), dataset, num_threads=1)
    >>> len(model.recommend([3, 4], dataset, k=5, filter_viewed=True))
    10
    """
    if not isinstance(model, VectorModel):
        raise TypeError(f"`model` must be a vector model of RecTools, got {type(model).__name__}.")
    if not model.is_fitted:
        raise NotFittedError(type(model).__name__)
    CodeOptions.from_keywords(**options)  # invalid options are an error here, not at the first search
    kind = type(model).__mro__[2] if isinstance(model, _Coded) else type(model)
    state = copy.deepcopy({name: value for name, value in vars(model).items() if name != "_rankers"})
    coded = _restore_model(kind, {**state, "_rankers": {}, "_options": options})
    if dataset is not None:
        coded._get_ranker("u2i", coded.u2i_dist, coded._get_u2i_vectors(dataset))
    return coded
