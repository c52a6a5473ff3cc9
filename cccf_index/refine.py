"""IndexRefineCCCF: the best items of an index, re-ranked with the original vectors."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cccf_index import _check, _threads
from cccf_index._exclude import Exclude
from cccf_index.codes import CompositionalCodes
from cccf_index.index import IndexCCCF
from cccf_index.kernels.heaps import make_heaps, write_results
from cccf_index.kernels.refinement import rank_found
from cccf_index.search.parameters import Allow, Parameters

BELOW_ALL = np.float32(-np.inf)


class IndexRefineCCCF:
    """An index whose ``k_factor * k`` best items are re-ranked with their full vectors, like `faiss.IndexRefine`.

    Parameters
    ----------
    index : IndexCCCF
        The index that finds them: of vectors (`IndexCCCF.from_embeddings`), or of codes.
    item_vectors : array_like of float32 or float16, shape (n, d)
        The vectors of the items. An array in C order is not copied: ``numpy.load(path, mmap_mode="r")`` keeps it on
        disk.
    ids : array_like of int, shape (n,), optional
        The id of each vector; 0, 1, ... by default, as `add` assigns them.
    k_factor : float
        How many items are found by the index for each item of the result, at least 1.

    Examples
    --------
    >>> import numpy as np
    >>> from cccf_index import IndexCCCF, IndexRefineCCCF
    >>> rng = np.random.default_rng(0)
    >>> users, items = rng.standard_normal((500, 32)), rng.standard_normal((1000, 32)).astype(np.float32)
    >>> refined = IndexRefineCCCF(IndexCCCF.from_embeddings(items, users), items, k_factor=8)
    >>> D, I = refined.search(users[:3], 10)
    >>> bool(np.isclose(D[0, 0], items[I[0, 0]] @ users[0], atol=1e-4))
    True
    """

    def __init__(
        self, index: IndexCCCF, item_vectors: ArrayLike, ids: ArrayLike | None = None, k_factor: float = 4.0
    ) -> None:
        if not isinstance(index, IndexCCCF):
            raise TypeError(f"`index` must be an IndexCCCF, got {type(index).__name__}.")
        vectors = _check.numbers(item_vectors, "item_vectors")
        if vectors.dtype not in (np.float32, np.float16):
            raise TypeError(f"`item_vectors` must be float32 or float16, got {vectors.dtype}. Convert them once.")
        if vectors.ndim != 2 or not vectors.shape[1]:
            raise ValueError(f"`item_vectors` must be of shape (n, d), got {vectors.shape}.")
        if index.quantizer is not None and index.d != vectors.shape[1]:
            raise ValueError(
                f"`item_vectors` must have {index.d} columns, as those of the index, got {vectors.shape[1]}."
            )
        self.base_index = index
        self._vectors = np.ascontiguousarray(vectors)
        halves = vectors.dtype == np.float16
        self._floats = np.empty((0, 1), dtype=np.float32) if halves else self._vectors
        self._bits = self._vectors.view(np.uint16) if halves else np.empty((0, 1), dtype=np.uint16)
        self._order, self._sorted = np.empty((2, 0), dtype=np.int64)
        if ids is not None:
            keys = _check.unique(_check.ids(ids, "ids", len(vectors)), "ids")
            self._order = np.argsort(keys)
            self._sorted = keys[self._order]
        self.k_factor = k_factor
        known = self._sorted if ids is not None else np.arange(len(vectors))
        missing = np.setdiff1d(index.ids, known)
        if len(missing):
            raise ValueError(
                "`item_vectors` must hold a vector for each item of the index, but there is none for id "
                f"{missing[0]}. Pass `ids`."
            )

    @property
    def k_factor(self) -> float:
        """How many items are found by the index for each item of the result."""
        return self._k_factor

    @k_factor.setter
    def k_factor(self, value: float) -> None:
        self._k_factor = _check.number(value, "k_factor", 1.0)

    @property
    def d(self) -> int:
        """The dimension of vectors."""
        return int(self._vectors.shape[1])

    @property
    def ntotal(self) -> int:
        """The number of items."""
        return self.base_index.ntotal

    @property
    def nbytes(self) -> int:
        """Bytes of the index and of all vectors, in memory or on disk."""
        return self.base_index.nbytes + self._vectors.nbytes

    def __repr__(self) -> str:
        return f"<IndexRefineCCCF of {self.base_index!r}, {self._vectors.dtype}, k_factor={self.k_factor:g}>"

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
            Inner products with the full vectors, best first; the lowest float32 where fewer than k items were found.
        I : ndarray of int64, shape (nq, k)
            Ids, the smaller first where scores are equal; -1 where fewer than k items were found.
        """
        k = _check.integer(k, "k", 1)
        queries = _check.matrix(x, "x", self.d)
        if codes is None and self.base_index.d != self.d:
            raise ValueError(
                f"`codes` must be given: the index takes codes of {self.base_index.d} dimensions, not `x`."
            )
        if codes is not None and not isinstance(codes, CompositionalCodes):
            codes = _check.matrix(codes, "codes", self.base_index.d)
        if codes is not None and len(codes) != len(queries):
            raise ValueError(f"`codes` must be as many as `x`, {len(queries)}, got {len(codes)}.")
        distances = _check.output(D, "D", (len(queries), k), np.float32)
        labels = _check.output(I, "I", (len(queries), k), np.int64)
        n = max(k, int(min(np.ceil(k * self.k_factor), self.ntotal)))
        found = self.base_index.search(
            queries if codes is None else codes, n, params=params, exclude=exclude, allow=allow
        )[1]

        def work(start: int, stop: int) -> None:
            part = slice(start, stop)
            scores, ids = make_heaps(stop - start, k, BELOW_ALL)
            missing, wrong = rank_found(
                queries[part], self._floats, self._bits, self._sorted, self._order, found[part], scores, ids
            )
            if missing != -1:
                raise ValueError(
                    f"The index holds id {missing}, which has no vector. Create the IndexRefineCCCF again."
                )
            if wrong != -1:
                raise ValueError(
                    f"`item_vectors` must be finite, but the vector of id {wrong} is not, or is too large."
                )
            write_results(scores, ids, np.ones(stop - start), distances[part], labels[part])

        _threads.run_chunks(work, len(queries), _threads.thread_count(getattr(params, "num_threads", 0)))
        return distances, labels
