"""IndexCCCF: exact top-k over compositional codes, behind the methods of a faiss index."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cccf_index import _check
from cccf_index._exclude import Exclude
from cccf_index._items import CodedItems
from cccf_index.codes import CompositionalCodes
from cccf_index.quantizer import CompositionalQuantizer
from cccf_index.search import scan, tuning
from cccf_index.search.alone import find_alone, is_plain
from cccf_index.search.parameters import Allow, Parameters, SearchOptions, SearchParametersCCCF, find_used_columns
from cccf_index.search.queries import Queries
from cccf_index.search.reading import Batch, QueryReader
from cccf_index.storage.selectors import PreparedSelector
from cccf_index.storage.state import State
from cccf_index.storage.vectors import VectorStore

BYTES_PER_ITEM = 28  # of `from_embeddings`, with ids: what 8 components of 16 bits take


class IndexCCCF(CodedItems):
    """Exact top-k by inner product over compositional codes, with the methods of a faiss index.

    `search` returns the k items with the largest inner product between the query and the items' expanded vectors, the
    same as `faiss.IndexFlatIP` over `reconstruct_n()`. With a scale, the weights of items and of coded queries are
    rounded first. Equal scores are ordered by ascending id. Threads may search while others add and remove items.

    Parameters
    ----------
    n_components : int
        G, 1 to 64.
    n_bits : int
        r, the bits of one component, 1 to 512. It must be given.
    scale : int, "auto" or None
        Weights of items and queries are multiplied by it and rounded (the paper's e, section 3.8), so that scores are
        exact integers. "auto" uses the largest scale that cannot overflow: the first items added fit one byte, and
        each query uses what 32 bits allow. None keeps float weights (the paper's EXACT).
    d : int, optional
        Make an index of vectors of this dimension: `train` learns how to encode them, then items and queries are
        vectors. `from_embeddings` does both in one call.
    quantizer : CompositionalQuantizer, optional
        Make an index of vectors that are encoded by this quantizer.
    n_dense : int
        For an index of codes: the dimensions of their dense component, if they have one, a multiple of 16.

    Examples
    --------
    >>> import numpy as np
    >>> import cccf_index as ci
    >>> rng = np.random.default_rng(0)
    >>> items = ci.CompositionalCodes.from_signs(rng.random((1000, 8, 16)) < 0.5, rng.random((1000, 8)))
    >>> index = ci.IndexCCCF(n_components=8, n_bits=16)
    >>> index.add(items)
    >>> D, I = index.search(items[:2], 1)
    >>> I.ravel().tolist()
    [0, 1]
    """

    metric_type = faiss.METRIC_INNER_PRODUCT

    def __init__(
        self,
        n_components: int,
        n_bits: int | None = None,
        scale: int | str | None = 100,
        *,
        d: int | None = None,
        quantizer: CompositionalQuantizer | None = None,
        n_dense: int = 0,
    ) -> None:
        super().__init__(n_components, n_bits, scale, d, quantizer, n_dense)
        self._reader = QueryReader(self._n_components, self._n_bits, self._scale)

    @classmethod
    def from_embeddings(
        cls,
        item_vectors: ArrayLike,
        user_vectors: ArrayLike | None = None,
        n_components: int | None = None,
        n_bits: int | None = None,
        *,
        bytes_per_item: float | None = None,
        ids: ArrayLike | None = None,
        scale: int | str | None = "auto",
        **params: Any,
    ) -> IndexCCCF:
        """Encode item embeddings and return an index that is searched with user embeddings.

        Parameters
        ----------
        item_vectors : array_like of float, shape (n_items, p)
        user_vectors : array_like of float, shape (n_users, p), optional
            The queries, or a sample of them; see `CompositionalQuantizer.fit`.
        n_components : int, optional
            G, 8 by default. With `n_components`, `n_bits` or `max_active`, and without `bytes_per_item`, all items have
            codes of the same length.
        n_bits : int, optional
            r, 16 by default.
        bytes_per_item : float, optional
            Codes of different lengths, which take so many bytes per item in the mean: more for items that lead many
            lists. 28 by default.
        ids : array_like of int, shape (n_items,), optional
            0, 1, ... by default.
        scale : int, "auto" or None
            See `IndexCCCF`.
        **params
            Parameters of `CompositionalQuantizer`: `k`, `max_active`, `seed`, ...

        Examples
        --------
        >>> import numpy as np
        >>> from cccf_index import IndexCCCF
        >>> rng = np.random.default_rng(0)
        >>> users, items = rng.standard_normal((500, 32)), rng.standard_normal((1000, 32))
        >>> index = IndexCCCF.from_embeddings(items, users)
        >>> D, I = index.search(users[:3], 10)
        >>> I.shape
        (3, 10)
        """
        if bytes_per_item is None and n_components is None and n_bits is None and params.get("max_active") is None:
            bytes_per_item = BYTES_PER_ITEM
        shape = (8 if n_components is None else n_components, 16 if n_bits is None else n_bits)
        quantizer = CompositionalQuantizer(*shape, bytes_per_item=bytes_per_item, **params)
        index = cls(*shape, scale, quantizer=quantizer)
        if ids is not None:
            ids = _check.unique(_check.ids(ids, "ids", len(_check.numbers(item_vectors, "item_vectors"))), "ids")
        index.train(item_vectors, user_vectors)
        if ids is None:
            index.add(item_vectors)
        else:
            index.add_with_ids(item_vectors, ids)
        return index

    def __repr__(self) -> str:
        name = f"IndexCCCF(n_components={self.n_components}, n_bits={self.n_bits}, scale={self.scale!r})"
        vectors = "" if self._state.quantizer is None else f", d={self.d if self._d or self.is_trained else None}"
        return f"<{name}{vectors}, ntotal={self.ntotal}>"

    def train(self, x: ArrayLike | CompositionalCodes, queries: ArrayLike | None = None) -> None:
        """Learn how to encode vectors like those of `x`; an index of codes needs no training and only checks `x`.

        Parameters
        ----------
        x : array_like of float, shape (n, d)
            The items, or a sample of them.
        queries : array_like of float, shape (nq, d), optional
            The queries, or a sample of them. By default they are assumed to be like `x`, with a warning; pass `x` again
            if they are.
        """
        if isinstance(x, CompositionalCodes):
            self._check_codes(x)
            return
        quantizer = self.quantizer
        known = quantizer is None or quantizer.is_fitted or self._d
        vectors = _check.matrix(x, "x", self.d if known else (0, *np.shape(x))[-1])
        if quantizer is None:
            return
        users = None if queries is None else _check.matrix(queries, "queries", vectors.shape[1])
        self._refuse_training()
        quantizer._learn(vectors, users, None)
        with self._lock:
            self._refuse_training()
            self._publish(self._make_empty(quantizer))

    def _refuse_training(self) -> None:
        if self.ntotal:
            raise ValueError("An index that holds items cannot be trained again. Call `reset` first.")

    def search(
        self,
        x: ArrayLike | CompositionalCodes,
        k: int,
        *,
        params: Parameters | None = None,
        D: NDArray[np.float32] | None = None,
        I: NDArray[np.int64] | None = None,
        exclude: Exclude | None = None,
        allow: Allow | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Find the k items with the largest inner product.

        Parameters
        ----------
        x : CompositionalCodes or array_like of float, shape (nq, d)
            Codes and expanded vectors are scored in integers (in float32 with ``scale=None``), any other vector in
            float32. An index of vectors takes vectors; scores approximate their inner products with the items' vectors.
        k : int
            The number of items, at least 1.
        params : SearchParametersCCCF or faiss.SearchParameters, optional
            A selector, the number of threads, and how much of the index to look at.
        D, I : ndarray, shape (nq, k), optional
            float32 and int64 arrays for the result.
        exclude : list of array_like of int, ndarray or scipy.sparse matrix, optional
            Items that are never returned to a query, for example those that a user has seen: the ids of each query
            (``[[3, 5], [], ...]``), an integer array of ids padded with -1, a boolean mask (nq, any) or a sparse matrix
            (nq, any) whose columns are ids. Stored zeros of a sparse matrix count.
        allow : array_like of int or bool, faiss.IDSelector or PreparedSelector, optional
            Return only these items, for all queries: ids, a boolean mask (any,) whose positions are ids, a selector, or
            one that `prepare` made for many searches.

        Returns
        -------
        D : ndarray of float32, shape (nq, k)
            Scores, best first; the lowest float32 where fewer than k items were found.
        I : ndarray of int64, shape (nq, k)
            Ids; -1 where fewer than k items were found.
        """
        if D is None and I is None and exclude is None and allow is None and is_plain(params):
            found = find_alone(self._snapshot(), self._reader, x, k, params)
            if found is not None:
                return found
        return self._search(x, k, params, D, I, exclude, allow)

    def _search(
        self, x: Any, k: int, params: Any, D: Any, I: Any, exclude: Any, allow: Any, exact: bool = True
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Do as `search`; if not `exact`, D and the order of items are estimates, see `scan.find_top_k`."""
        k = _check.integer(k, "k", 1)
        state = self._snapshot()
        batches, nq = self._make_batches(state, x, params)
        distances = _check.output(D, "D", (nq, k), np.float32)
        labels = _check.output(I, "I", (nq, k), np.int64)
        options = SearchOptions.from_keywords(state, nq, params, exclude, allow)
        for rows, queries in batches:
            out = (distances, labels) if rows is None else (distances[rows], labels[rows])
            scan.find_top_k(queries, options.excluded_ids(rows), options, *out, exact)
            if rows is not None:
                distances[rows], labels[rows] = out
        return distances, labels

    def prepare(self, allow: Allow) -> PreparedSelector:
        """Return a selector that looks up the allowed items now, so that later searches with it need not.

        Parameters
        ----------
        allow : array_like of int or bool, faiss.IDSelector or PreparedSelector
            Ids, a boolean mask (any,) whose positions are ids (ids beyond it are not allowed), or a selector.

        Returns
        -------
        selector : PreparedSelector
            For `allow` or `params.sel` of searches. It holds a copy of the allowed items where fewer than three
            quarters of a segment are, and it stays correct when the index changes.
        """
        selector = allow if isinstance(allow, PreparedSelector) else PreparedSelector(allow)
        selector.restrict(self._snapshot().parts)
        return selector

    def __reduce__(self) -> tuple[Any, ...]:
        from cccf_index import deserialize_index, serialize_index  # names of the public face, which lie above this file

        return deserialize_index, (serialize_index(self).tobytes(),)

    def assign(
        self, x: ArrayLike | CompositionalCodes, k: int, labels: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Return only the ids of `search`, int64 (nq, k)."""
        return self.search(x, k, I=labels)[1]

    def tune(
        self,
        x: ArrayLike | CompositionalCodes,
        k: int,
        recall: float = 0.99,
        *,
        params: SearchParametersCCCF | None = None,
        item_vectors: ArrayLike | None = None,
        ids: ArrayLike | None = None,
    ) -> SearchParametersCCCF:
        """Return parameters of the fastest search that reaches a target recall, measured on sample queries.

        Found are `max_items` and `most_used`, and with `item_vectors` also whether queries are coded. An exact search
        that is as fast is preferred.

        Parameters
        ----------
        x : CompositionalCodes or array_like of float, shape (nq, d)
            Sample queries; a few hundred measure recall to a fraction of a percent.
        k : int
            The number of items.
        recall : float
            The share of the exact top-k over all queries that must be found; an equal score counts as found.
        params : SearchParametersCCCF, optional
            The other parameters of the searches.
        item_vectors : array_like of float, shape (n, d), optional
            For an index of vectors: measure the recall of the top-k by these, instead of that by the codes.
        ids : array_like of int, shape (n,), optional
            The id of each of `item_vectors`; 0, 1, ... by default.

        Examples
        --------
        >>> import numpy as np
        >>> import cccf_index as ci
        >>> rng = np.random.default_rng(0)
        >>> items = ci.CompositionalCodes.from_signs(rng.random((9000, 4, 16)) < 0.5, rng.random((9000, 4)))
        >>> index = ci.IndexCCCF(4, 16)
        >>> index.add(items)
        >>> params = index.tune(items[:100], 10, recall=0.9)
        >>> D, I = index.search(items[:100], 10, params=params)
        """
        wanted, params = tuning.check_target(recall, params, self.ntotal, len(x))  # type: ignore[arg-type]
        if item_vectors is None and ids is not None:
            raise ValueError("`ids` must be None without `item_vectors`, whose ids they are.")
        k = min(_check.integer(k, "k", 1), self.ntotal)
        snapshot = copy.copy(self)  # another thread may add items meanwhile
        knows_most_used = snapshot._snapshot().knows_most_used
        queries = x if isinstance(x, CompositionalCodes) else _check.matrix(x, "x", self.d)
        queries = queries[tuning.sample_queries(len(queries), k)]
        if item_vectors is None:
            exact = snapshot.search(queries, k, params=params)[0]
            trials = tuning.Trials(lambda p: snapshot.search(queries, k, params=p)[0], lambda D: D, exact)
            return tuning.tune_search(trials, snapshot.ntotal, wanted, [params], False, knows_most_used)
        if self.quantizer is None or isinstance(queries, CompositionalCodes):
            raise ValueError("`item_vectors` must be None unless the index and `x` are of vectors.")
        known = snapshot._select_ids(params)
        store = VectorStore.build_for(known, _check.matrix(item_vectors, "item_vectors", self.d), ids)
        trials = tuning.Trials(
            lambda p: snapshot.search(queries, k, params=p)[1],
            lambda I: tuning.score_found(queries, store, I),
            tuning.find_largest(queries, store, known, k),
            tuning.ROUNDING,
        )
        variants = [params] if params.coded or params.shortlist else [params, replace(params, coded=True)]
        return tuning.tune_search(trials, snapshot.ntotal, wanted, variants, False, knows_most_used)

    def _select_ids(self, params: Any) -> NDArray[np.int64]:
        """Return the ids of all items that a search with these parameters may return."""
        parts = SearchOptions.from_keywords(self._snapshot(), 1, params, None, None).parts
        return np.concatenate([np.empty(0, np.int64), *(p.segment.ids[~p.dead_mask] for p in parts)])

    def range_search(
        self,
        x: ArrayLike | CompositionalCodes,
        thresh: float,
        *,
        params: Parameters | None = None,
        exclude: Exclude | None = None,
        allow: Allow | None = None,
    ) -> tuple[NDArray[np.uint64], NDArray[np.float32], NDArray[np.int64]]:
        """Find all items whose score D is greater than `thresh`; the other parameters are those of `search`.

        Returns
        -------
        lims : ndarray of uint64, shape (nq + 1,)
            The results of query i are at ``lims[i]`` to ``lims[i + 1]``, best first.
        D : ndarray of float32, shape (lims[-1],)
            Scores.
        I : ndarray of int64, shape (lims[-1],)
            Ids.
        """
        threshold = np.float32(_check.number(thresh, "thresh"))
        for name in ("max_items", "shortlist"):
            if getattr(params, name, None) is not None:
                raise ValueError(f"`params.{name}` must be None: `range_search` finds all items above the threshold.")
        state = self._snapshot()
        batches, nq = self._make_batches(state, x, params)
        options = SearchOptions.from_keywords(state, nq, params, exclude, allow)
        distances, labels = [np.empty(0, np.float32)] * nq, [np.empty(0, np.int64)] * nq
        for rows, queries in batches:
            found = scan.find_in_range(queries, threshold, options.excluded_ids(rows), options)
            for row, result in zip(range(nq) if rows is None else rows, found, strict=True):
                distances[row], labels[row] = result
        lims = np.zeros(nq + 1, dtype=np.uint64)
        np.cumsum([len(found) for found in labels], out=lims[1:])
        if not nq:
            return lims, np.empty(0, np.float32), np.empty(0, np.int64)
        return lims, np.concatenate(distances), np.concatenate(labels)

    def search_and_reconstruct(
        self,
        x: ArrayLike | CompositionalCodes,
        k: int,
        *,
        params: Parameters | None = None,
        D: NDArray[np.float32] | None = None,
        I: NDArray[np.int64] | None = None,
        R: NDArray[np.float32] | None = None,
        exclude: Exclude | None = None,
        allow: Allow | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]:
        """Search, and return the vectors of the items found as well, (nq, k, d); NaN where no item was found."""
        snapshot = copy.copy(self)  # another thread may remove an item between the search and its reconstruction
        D, labels = snapshot.search(x, k, params=params, D=D, I=I, exclude=exclude, allow=allow)
        vectors = _check.output(R, "R", (*labels.shape, self.d), np.float32)
        found = labels != -1
        vectors[~found] = np.nan
        vectors[found] = snapshot.reconstruct_batch(labels[found])
        return D, labels, vectors

    def _make_batches(self, state: State, x: ArrayLike | CompositionalCodes, params: Any) -> tuple[list[Batch], int]:
        """Return the queries by kind, and their total number."""
        if isinstance(x, CompositionalCodes):
            codes = self._check_codes(x)
            return [(None, self._reader.read_codes(state, codes))], len(codes)
        if state.quantizer is None:
            vectors = _check.matrix(x, "x", self._reader.d + state.n_dense, is_checked_later=True)
            return self._reader.split_vectors(state, vectors), len(vectors)
        quantizer, is_coded = self._require_trained(state.quantizer), getattr(params, "coded", False)
        vectors = _check.matrix(x, "x", quantizer.item_mean_.size, is_checked_later=True)
        used = None if is_coded else find_used_columns(state.parts, self._reader.d)
        transformed, shifts = quantizer._transform(vectors, "x", getattr(params, "num_threads", 0), is_coded, used)
        queries: Queries
        if is_coded:
            queries = self._reader.read_codes(state, quantizer.encode_users(vectors))
        else:
            queries = self._reader.read_vectors(state, transformed)
        queries.shifts = shifts
        return [(None, queries)], len(vectors)
