"""IndexRefineCCCF: the best items of an index, re-ranked with their full vectors."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cccf_index import _check, _threads
from cccf_index._exclude import Exclude
from cccf_index._refined_items import Halves, RefinedItems
from cccf_index.codes import CompositionalCodes
from cccf_index.index import IndexCCCF
from cccf_index.kernels.layout import freeze
from cccf_index.kernels.refinement import count_words, rank_candidates
from cccf_index.search import tuning
from cccf_index.search.alone import Result, find_alone, is_plain
from cccf_index.search.parameters import Allow, Parameters, SearchParametersCCCF
from cccf_index.storage.selectors import PreparedSelector
from cccf_index.storage.vectors import VectorStore


class IndexRefineCCCF(RefinedItems):
    """An index whose ``k_factor * k`` best items are re-ranked with their full vectors, like `faiss.IndexRefine`.

    Items are added, replaced and removed together with their vectors, and `write_index` writes both into one file.
    Threads may search while others add and remove items.

    Parameters
    ----------
    index : IndexCCCF
        The index that finds the items: of vectors (`IndexCCCF.from_embeddings`), or of codes. The refined index takes a
        copy, which shares its memory: later changes of `index` itself do not show.
    item_vectors : array_like of float, shape (n, d)
        The vectors of the items; others may be among them.
    ids : array_like of int, shape (n,), optional
        The id of each vector; 0, 1, ... by default, as `add` assigns them.
    k_factor : float
        How many items are found by the index for each item of the result, at least 1.
    storage : {"float32", "float16", "int8"}, optional
        How vectors are stored. "int8" takes one byte per dimension, and 4 for the scale of each vector. By default they
        stay as they are, float32 or float16, and an array in C order is not copied:
        ``numpy.load(path, mmap_mode="r")`` keeps it on disk.

    Examples
    --------
    >>> import numpy as np
    >>> from cccf_index import IndexCCCF, IndexRefineCCCF
    >>> rng = np.random.default_rng(0)
    >>> users, items = rng.standard_normal((500, 32)), rng.standard_normal((1000, 32)).astype(np.float32)
    >>> refined = IndexRefineCCCF(IndexCCCF.from_embeddings(items, users), items, k_factor=8, storage="int8")
    >>> D, I = refined.search(users[:3], 10)
    >>> bool(np.isclose(D[0, 0], items[I[0, 0]] @ users[0], rtol=0.01))
    True
    >>> refined.add(items[:5])
    >>> refined.ntotal
    1005
    """

    def __init__(
        self,
        index: IndexCCCF,
        item_vectors: ArrayLike,
        ids: ArrayLike | None = None,
        k_factor: float = 4.0,
        storage: str | None = None,
    ) -> None:
        if not isinstance(index, IndexCCCF):
            raise TypeError(f"`index` must be an IndexCCCF, got {type(index).__name__}.")
        self.k_factor = k_factor
        vectors = _check.numbers(item_vectors, "item_vectors")
        if index.quantizer is not None and vectors.ndim == 2 and index.d != vectors.shape[1]:
            raise ValueError(
                f"`item_vectors` must have {index.d} columns, as those of the index, got {vectors.shape[1]}."
            )
        index._snapshot()
        own = copy.copy(index)
        super().__init__(own, VectorStore.build_for(own.ids, vectors, ids, storage))

    @classmethod
    def _of_halves(cls, index: IndexCCCF, vectors: VectorStore, k_factor: float) -> IndexRefineCCCF:
        refined = cls.__new__(cls)
        refined.k_factor = k_factor
        RefinedItems.__init__(refined, index, vectors)
        return refined

    @property
    def k_factor(self) -> float:
        """How many items are found by the index for each item of the result."""
        return self._k_factor

    @k_factor.setter
    def k_factor(self, value: float) -> None:
        self._k_factor = _check.number(value, "k_factor", 1.0)

    def __repr__(self) -> str:
        return f"<IndexRefineCCCF of {self.base_index!r}, {self.storage}, k_factor={self.k_factor:g}>"

    def __copy__(self) -> IndexRefineCCCF:
        """Return an independent index that shares codes and vectors until one of the two changes: it costs nothing."""
        return self._of_halves(copy.copy(self.base_index), self._halves.vectors, self.k_factor)

    def __deepcopy__(self, memo: dict[int, Any]) -> IndexRefineCCCF:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        from cccf_index import deserialize_index, serialize_index  # names of the public face, which lie above this file

        return deserialize_index, (serialize_index(self).tobytes(),)

    def search(
        self,
        x: ArrayLike,
        k: int,
        *,
        codes: ArrayLike | CompositionalCodes | None = None,
        params: Parameters | None = None,
        D: NDArray[np.float32] | None = None,
        I: NDArray[np.int64] | None = None,
        exclude: Exclude | None = None,
        allow: Allow | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Find the k items with the largest inner product among the ``k_factor * k`` best of the index.

        Parameters
        ----------
        x : array_like of float, shape (nq, d)
        k : int
        codes : CompositionalCodes or array_like, optional
            Queries for the index, if they are not `x`: an index of codes is searched with codes.
        params, D, I, exclude, allow
            See `IndexCCCF.search`.

        Returns
        -------
        D : ndarray of float32, shape (nq, k)
            Inner products with the stored vectors, best first; the lowest float32 where fewer than k items were found.
        I : ndarray of int64, shape (nq, k)
            Ids, the smaller first where scores are equal; -1 where fewer than k items were found.
        """
        halves = self._halves
        if codes is None and D is None and I is None and exclude is None and allow is None and is_plain(params):
            found = self._search_alone(halves, x, k, params)
            if found is not None:
                return found
        return self._search(halves, x, k, codes, params, D, I, exclude, allow)

    def assign(
        self,
        x: ArrayLike,
        k: int,
        labels: NDArray[np.int64] | None = None,
        *,
        codes: ArrayLike | CompositionalCodes | None = None,
    ) -> NDArray[np.int64]:
        """Return only the ids of `search`, int64 (nq, k)."""
        return self.search(x, k, codes=codes, I=labels)[1]

    def search_and_reconstruct(
        self,
        x: ArrayLike,
        k: int,
        *,
        codes: ArrayLike | CompositionalCodes | None = None,
        params: Parameters | None = None,
        D: NDArray[np.float32] | None = None,
        I: NDArray[np.int64] | None = None,
        R: NDArray[np.float32] | None = None,
        exclude: Exclude | None = None,
        allow: Allow | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]:
        """Search, and return the stored vectors of the items found as well, (nq, k, d); NaN where no item was found."""
        halves = self._halves  # another thread may remove an item between the search and its reconstruction
        scores, labels = self._search(halves, x, k, codes, params, D, I, exclude, allow)
        vectors = _check.output(R, "R", (*labels.shape, self.d), np.float32)
        found = labels != -1
        vectors[~found] = np.nan
        vectors[found] = halves.vectors.decode(labels[found])
        return scores, labels, vectors

    def prepare(self, allow: Allow) -> PreparedSelector:
        """Return a selector of these items that later searches use for nothing; see `IndexCCCF.prepare`."""
        return self.base_index.prepare(allow)

    def tune(
        self,
        x: ArrayLike,
        k: int,
        recall: float = 0.99,
        *,
        codes: ArrayLike | CompositionalCodes | None = None,
        params: SearchParametersCCCF | None = None,
    ) -> SearchParametersCCCF:
        """Return parameters of the fastest search whose recall of the vectors' top-k reaches a target.

        Found are `k_factor`, unless `params` gives it, `max_items`, `most_used`, and for an index of vectors whether
        queries are coded, all by trial on sample queries. The vectors' top-k is computed from the stored vectors.

        Parameters
        ----------
        x : array_like of float, shape (nq, d)
            Sample queries; a few hundred measure recall to a fraction of a percent.
        k : int
            The number of items.
        recall : float
            The share of the vectors' top-k over all queries that must be found; an equal score counts as found.
        codes : CompositionalCodes or array_like, optional
            See `search`.
        params : SearchParametersCCCF, optional
            The other parameters of the searches.

        Examples
        --------
        >>> import numpy as np
        >>> from cccf_index import IndexCCCF, IndexRefineCCCF
        >>> rng = np.random.default_rng(0)
        >>> users, items = rng.standard_normal((500, 32)), rng.standard_normal((9000, 32)).astype(np.float32)
        >>> refined = IndexRefineCCCF(IndexCCCF.from_embeddings(items, users), items, storage="int8")
        >>> params = refined.tune(users[:200], 10, recall=0.9)
        >>> D, I = refined.search(users, 10, params=params)
        """
        snapshot = copy.copy(self)
        halves = snapshot._halves
        queries = self._check_queries(halves, x)
        wanted, params = tuning.check_target(recall, params, halves.index.ntotal, len(queries))
        k = min(_check.integer(k, "k", 1), halves.index.ntotal)
        chosen = tuning.sample_queries(len(queries), k)
        drafts = None if codes is None else self._check_drafts(halves, queries, codes)[chosen]
        queries = np.ascontiguousarray(queries[chosen])
        exact = tuning.find_largest(queries, halves.vectors, halves.index._select_ids(params), k)
        trials = tuning.Trials(
            lambda p: snapshot.search(queries, k, codes=drafts, params=p)[0], lambda D: D, exact, tuning.ROUNDING
        )
        either = codes is None and not params.coded and not params.shortlist
        variants = [params, replace(params, coded=True)] if either else [params]
        return tuning.tune_search(
            trials, halves.index.ntotal, wanted, variants, True, halves.index._snapshot().knows_most_used
        )

    def _search(
        self, halves: Halves, x: Any, k: int, codes: Any, params: Any, D: Any, I: Any, exclude: Any, allow: Any
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        k = _check.integer(k, "k", 1)
        queries = freeze(self._check_queries(halves, x))
        drafts = self._check_drafts(halves, queries, codes)
        distances = _check.output(D, "D", (len(queries), k), np.float32)
        labels = _check.output(I, "I", (len(queries), k), np.int64)
        n = self._count_candidates(halves, k, params)
        found = _find_candidates(halves.index, drafts, n, params, exclude, allow)
        # the kernel is compiled for contiguous arrays only
        outputs = [a if a.flags.c_contiguous else np.empty_like(a, order="C") for a in (distances, labels)]

        def work(start: int, stop: int) -> None:
            part = slice(start, stop)
            words = np.empty(count_words(n), dtype=np.uint64)
            _rank(halves.vectors, queries[part], found[part], words, *(out[part] for out in outputs))

        _threads.run_chunks(work, len(queries), _threads.thread_count(getattr(params, "num_threads", 0)))
        for array, out in zip((distances, labels), outputs, strict=True):
            if out is not array:
                array[:] = out
        return distances, labels

    def _search_alone(self, halves: Halves, x: Any, k: int, params: Any) -> Result | None:
        """Return D and I of one query; None if it is not the plain case, or is bad. See `alone.find_alone`."""
        index = halves.index
        if type(x) is not np.ndarray or type(k) is not int or k < 1 or index.d != halves.vectors.d:
            return None
        n = self._count_candidates(halves, k, params)
        drafts = find_alone(index._snapshot(), index._reader, x, n, params, exact=False)
        if drafts is None:
            return None
        D, I = np.empty((1, k), np.float32), np.empty((1, k), np.int64)
        _rank(halves.vectors, freeze(x), drafts[1], np.empty(count_words(n), np.uint64), D, I)
        return D, I

    def _count_candidates(self, halves: Halves, k: int, params: Any) -> int:
        """Return how many items are re-ranked for lists of k items."""
        factor = getattr(params, "k_factor", None) or self.k_factor
        return max(1, math.ceil(min(k * factor, halves.index.ntotal)))

    @staticmethod
    def _check_queries(halves: Halves, x: Any) -> NDArray[np.float32]:
        if isinstance(x, CompositionalCodes):
            raise TypeError(
                "`x` must be vectors, got CompositionalCodes. Pass the queries' vectors as `x`, and codes as `codes`."
            )
        return _check.matrix(x, "x", halves.vectors.d)

    @staticmethod
    def _check_drafts(halves: Halves, queries: NDArray[np.float32], codes: Any) -> Any:
        """Return the queries for the index."""
        if codes is None:
            if halves.index.d != halves.vectors.d:
                raise ValueError(
                    f"`codes` must be given: the index takes codes of {halves.index.d} dimensions, not `x`."
                )
            return queries
        if not isinstance(codes, CompositionalCodes):
            codes = _check.matrix(codes, "codes", halves.index.d)
        if len(codes) != len(queries):
            raise ValueError(f"`codes` must be as many as `x`, {len(queries)}, got {len(codes)}.")
        return codes


def _rank(
    vectors: VectorStore, queries: NDArray[np.float32], found: NDArray[np.int64], words: NDArray[np.uint64],
    D: NDArray[np.float32], I: NDArray[np.int64],
) -> None:  # fmt: skip
    """Fill D and I with the best of the candidates `found`; see `rank_candidates`."""
    missing, wrong = rank_candidates(vectors.address, queries, found, words, D, I)
    if missing != -1:
        raise ValueError(
            f"The index holds id {missing}, which has no vector. Add items by `add` of the IndexRefineCCCF, "
            "not of its `base_index`."
        )
    if wrong != -1:
        raise ValueError(f"`item_vectors` must be finite, but the vector of id {wrong} is not, or is too large.")


def _find_candidates(
    index: IndexCCCF, queries: Any, n: int, params: Any, exclude: Any, allow: Any
) -> NDArray[np.int64]:
    """Return the ids of the n most promising items for each query, int64 (nq, n), padded with -1, in any order."""
    return index._search(queries, n, params, None, None, exclude, allow, exact=False)[1]
