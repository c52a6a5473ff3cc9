"""IndexCCCF: exact top-k over compositional codes, behind the methods of a faiss index."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from cccf_index import _check, _scan, _threads
from cccf_index._filters import restrict
from cccf_index._items import CodedItems
from cccf_index._store import Part, State
from cccf_index.codes import CompositionalCodes, code_size, split


@dataclass
class SearchParametersCCCF:
    """How to search, in the manner of `faiss.SearchParameters`.

    Parameters
    ----------
    sel : faiss.IDSelector or array_like of int, optional
        Only items that it accepts are returned.
    num_threads : int
        0 takes what `faiss.omp_set_num_threads` allows.
    prune : bool
        Skip groups of items whose bound is below the k-th best score. It never changes a result.

    Examples
    --------
    >>> import faiss
    >>> from cccf_index import SearchParametersCCCF
    >>> params = SearchParametersCCCF(sel=faiss.IDSelectorRange(0, 100), num_threads=1)
    """

    sel: Any = None
    num_threads: int = 0
    prune: bool = True

    def __post_init__(self) -> None:
        self.num_threads = _check.integer(self.num_threads, "num_threads", 0)


class IndexCCCF(CodedItems):
    """Exact top-k by inner product over compositional codes, with the methods of a faiss index.

    `search` returns the k items with the largest inner product between the query and the items' expanded
    vectors: `faiss.IndexFlatIP` over `reconstruct_n()` gives the same. With a scale the weights of items and of coded
    queries are rounded first. Equal scores are ordered by ascending id. Any number of threads may search while
    others add and remove.

    Parameters
    ----------
    n_components : int
        G, 1 to 64.
    n_bits : int
        r, the bits of one component, 1 to 512.
    scale : int, "auto" or None
        Weights of items and queries are multiplied by it and rounded (the paper's e, section 3.8), so that
        scores are exact integers. "auto" takes the largest that cannot overflow: the first items added
        fit one byte, and each query takes what 32 bits allow. None keeps float weights (the paper's EXACT).

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
    is_trained = True

    def __init__(self, n_components: int, n_bits: int, scale: int | str | None = 100) -> None:
        super().__init__(n_components, n_bits, scale)

    def __repr__(self) -> str:
        name = f"IndexCCCF(n_components={self.n_components}, n_bits={self.n_bits}, scale={self.scale!r})"
        return f"<{name}, ntotal={self.ntotal}>"

    def train(self, x: ArrayLike | CompositionalCodes) -> None:
        """Check the dimension of `x`; codes come trained."""
        if isinstance(x, CompositionalCodes):
            self._checked(x, None)
        else:
            _check.matrix(x, "x", self.d)

    def search(
        self,
        x: ArrayLike | CompositionalCodes,
        k: int,
        *,
        params: Any = None,
        D: NDArray[np.float32] | None = None,
        I: NDArray[np.int64] | None = None,
        exclude: Any = None,
        allow: Any = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Find the k items with the largest inner product.

        Parameters
        ----------
        x : CompositionalCodes or array_like of float, shape (nq, d)
            Codes and expanded vectors are scored in integers, any other vector as it is, in float32.
        k : int
            How many items, at least 1.
        params : SearchParametersCCCF or faiss.SearchParameters, optional
            A selector for all queries, the number of threads.
        D, I : ndarray, shape (nq, k), optional
            float32 and int64 arrays to put the result into.
        exclude : scipy.sparse matrix, shape (nq, any), optional
            Stored entries (query, item id) are never returned: the items that a user has seen. Columns are
            ids, as `add_with_ids` gave them. Explicit zeros count as stored.
        allow : array_like of int or faiss.IDSelector, optional
            Only these items may be returned, to all queries.

        Returns
        -------
        D : ndarray of float32, shape (nq, k)
            Scores, best first; the lowest float32 where fewer than k items were found.
        I : ndarray of int64, shape (nq, k)
            Ids; -1 where fewer than k items were found.
        """
        k = _check.integer(k, "k", 1)
        state = self._snapshot()
        batches, nq = self._batches(state, x)
        distances = _check.output(D, "D", (nq, k), np.float32)
        labels = _check.output(I, "I", (nq, k), np.int64)
        options = _Options.of(state, nq, params, exclude, allow)
        for rows, queries in batches:
            mixed = len(rows) < nq
            out = (distances[rows], labels[rows]) if mixed else (distances, labels)
            _scan.top_k(options.parts, queries, options.excluded(rows), options.prune, options.n_threads, *out)
            if mixed:
                distances[rows], labels[rows] = out
        return distances, labels

    def assign(
        self, x: ArrayLike | CompositionalCodes, k: int, labels: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Return only the ids of `search`, int64 (nq, k)."""
        return self.search(x, k, I=labels)[1]

    def range_search(
        self,
        x: ArrayLike | CompositionalCodes,
        thresh: float,
        *,
        params: Any = None,
        exclude: Any = None,
        allow: Any = None,
    ) -> tuple[NDArray[np.uint64], NDArray[np.float32], NDArray[np.int64]]:
        """Find all items whose score D is greater than `thresh`; the other arguments are those of `search`.

        Returns
        -------
        lims : ndarray of uint64, shape (nq + 1,)
            The results of query i stand at ``lims[i]`` to ``lims[i + 1]``, best first.
        D : ndarray of float32, shape (lims[-1],)
            Scores.
        I : ndarray of int64, shape (lims[-1],)
            Ids.
        """
        threshold = np.float32(_check.number(thresh, "thresh"))
        state = self._snapshot()
        batches, nq = self._batches(state, x)
        options = _Options.of(state, nq, params, exclude, allow)
        distances, labels = [np.empty(0, np.float32)] * nq, [np.empty(0, np.int64)] * nq
        for rows, queries in batches:
            found = _scan.in_range(options.parts, queries, threshold, options.excluded(rows), options.n_threads)
            for row, result in zip(rows, found, strict=True):
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
        params: Any = None,
        D: NDArray[np.float32] | None = None,
        I: NDArray[np.int64] | None = None,
        R: NDArray[np.float32] | None = None,
        exclude: Any = None,
        allow: Any = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32]]:
        """Search, and return the expanded vectors of what was found too, (nq, k, d), NaN where nothing was."""
        snapshot = copy.copy(self)  # another thread may remove an item between the search and its reconstruction
        D, labels = snapshot.search(x, k, params=params, D=D, I=I, exclude=exclude, allow=allow)
        vectors = _check.output(R, "R", (*labels.shape, self.d), np.float32)
        found = labels != -1
        vectors[~found] = np.nan
        vectors[found] = snapshot.reconstruct_batch(labels[found])
        return D, labels, vectors

    def _batches(
        self, state: State, x: ArrayLike | CompositionalCodes
    ) -> tuple[list[tuple[NDArray[np.int64], _scan.Queries]], int]:
        """Return the queries by kind, codes or real vectors, each with their rows in `x`; and how many in all."""
        batches: list[tuple[NDArray[np.int64], _scan.Queries]] = []
        if isinstance(x, CompositionalCodes):
            codes, _ = self._checked(x, None)
            rows = np.arange(len(codes))
            return [(rows, self._coded(state, codes, rows))], len(codes)
        vectors = _check.matrix(x, "x", self.d)
        weights, coded = split(vectors, self.n_components)
        is_code = coded.all(axis=1)
        rows = np.flatnonzero(is_code)
        if len(rows):
            codes = CompositionalCodes._from_split(vectors[rows], weights[rows], self.n_bits)
            batches.append((rows, self._coded(state, codes, rows)))
        rows = np.flatnonzero(~is_code)
        if len(rows):
            batches.append(
                (rows, _scan.VectorQueries(vectors[rows], state.divisor, self.n_bits, code_size(self.n_bits)))
            )
        return batches, len(vectors)

    def _coded(self, state: State, codes: CompositionalCodes, rows: NDArray[np.int64]) -> _scan.CodedQueries:
        if self.scale is None:
            return _scan.CodedQueries.floating(codes)
        scale = None if self.scale == "auto" else int(self.scale)
        with_bias = any(part.segment.tables.bias.size for part in state.parts)
        return _scan.CodedQueries.integer(codes, scale, state.divisor, with_bias, rows)


@dataclass(frozen=True)
class _Options:
    """What the keywords of a search come to."""

    parts: tuple[Part, ...]
    exclude: sparse.csr_array | None
    nq: int
    n_threads: int
    prune: bool

    @classmethod
    def of(cls, state: State, nq: int, params: Any, exclude: Any, allow: Any) -> _Options:
        if params is None:
            params = SearchParametersCCCF()
        if not hasattr(params, "sel"):
            raise TypeError(
                f"`params` must be SearchParametersCCCF or faiss.SearchParameters, got {type(params).__name__}."
            )
        parts = restrict(restrict(state.parts, params.sel, "params.sel", nq), allow, "allow", nq)
        return cls(
            parts=parts,
            exclude=None if exclude is None else _check.pairs(exclude, "exclude", nq),
            nq=nq,
            n_threads=_threads.thread_count(getattr(params, "num_threads", 0)),
            prune=bool(getattr(params, "prune", True)),
        )

    def excluded(self, rows: NDArray[np.int64]) -> _scan.Pairs:
        """Return the excluded ids of the queries in `rows`."""
        if self.exclude is None:
            return np.zeros(len(rows) + 1, dtype=np.int64), np.empty(0, dtype=np.int64)
        chosen = self.exclude if len(rows) == self.nq else self.exclude[rows]
        return chosen.indptr.astype(np.int64), chosen.indices.astype(np.int64)


def index_factory(
    description: str, d: int | None = None, metric: int = faiss.METRIC_INNER_PRODUCT, *, scale: int | str | None = 100
) -> IndexCCCF:
    """Make an index from a description such as ``"CCCF8x16"``: 8 components of 16 bits.

    ``"IDMap,"`` and ``"IDMap2,"`` before it are accepted, as every IndexCCCF keeps ids. faiss's own order of the
    first two arguments works too.

    Examples
    --------
    >>> from cccf_index import index_factory
    >>> index_factory("IDMap2,CCCF8x16")
    <IndexCCCF(n_components=8, n_bits=16, scale=100), ntotal=0>
    """
    if isinstance(d, str):
        description, d = d, description
    found = re.fullmatch(r"(?:IDMap2?,)?CCCF(\d+)x(\d+)", description) if isinstance(description, str) else None
    if found is None:
        raise ValueError(
            f'`description` must be like "CCCF8x16" (components x bits), with "IDMap2," before it or not, '
            f"got {description!r}."
        )
    index = IndexCCCF(int(found[1]), int(found[2]), scale)
    if d is not None and _check.integer(d, "d", 1) != index.d:
        raise ValueError(f"`d` must be {index.d} for {description}, got {d}.")
    if metric != faiss.METRIC_INNER_PRODUCT:
        raise ValueError(f"`metric` must be faiss.METRIC_INNER_PRODUCT, the only one there is, got {metric}.")
    return index


def clone_index(index: IndexCCCF) -> IndexCCCF:
    """Return an index of its own with the same items; they share memory until one of them changes."""
    if not isinstance(index, IndexCCCF):
        raise TypeError(f"`index` must be an IndexCCCF, got {type(index).__name__}. Use faiss.clone_index.")
    return copy.copy(index)
