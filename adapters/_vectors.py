"""What the adapters of vector models share: codes find objects, the model's own vectors rank the best of them."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cccf_index import CompositionalCodes, IndexCCCF, IndexRefineCCCF, SearchParametersCCCF, _check
from cccf_index.quantizer import CompositionalQuantizer

QUERIES = ("coded", "real")
COSINES = 4  # times as many candidates: vectors of one length are harder to tell apart by their codes
Vectors = NDArray[np.float32]


def no_framework(package: str, extra: str, error: ImportError) -> NoReturn:
    """Say which extra brings a package that cannot be imported."""
    raise ImportError(
        f'This adapter needs {package}, which cannot be imported ({error}). `pip install "cccf-index[{extra}]"`.'
    ) from error


class CodedVectors:
    """An index of objects, the vectors of both sides, and the codes of the subjects that search it.

    Parameters
    ----------
    index : IndexCCCF
        Of the objects' vectors, under ids 0, 1, ...
    subjects, objects : array_like of float, shapes (n_subjects, p) and (n_objects, p)
    k_factor : float or None
        So many objects are found by their codes for each that is asked for, and ranked by their vectors: scores are
        inner products. None to rank by codes alone.
    queries : {"coded", "real"}
        Whether codes of the subjects search, or real-valued queries, which are slower and more accurate.
    num_threads : int
        0 takes what `faiss.omp_set_num_threads` allows.
    codes : CompositionalCodes, optional
        Those of the subjects, if they are known.
    """

    def __init__(
        self,
        index: IndexCCCF,
        subjects: ArrayLike,
        objects: ArrayLike,
        k_factor: float | None = 2.0,
        queries: str = "coded",
        num_threads: int = 0,
        codes: CompositionalCodes | None = None,
    ) -> None:
        self.index, self.num_threads = index, num_threads
        self.subjects, self.objects = (np.ascontiguousarray(x, dtype=np.float32) for x in (subjects, objects))
        quantizer = index.quantizer
        if quantizer is None or index.ntotal != len(self.objects):
            raise ValueError("the index does not fit the vectors")
        self._quantizer = quantizer
        if queries == "coded" and codes is None:
            codes = quantizer.encode_users(self.subjects)
        if codes is not None and len(codes) != len(self.subjects):
            raise ValueError("the codes do not fit the vectors")
        self.codes = codes
        self._refined = None if k_factor is None else IndexRefineCCCF(index, self.objects, k_factor=k_factor)

    @classmethod
    def learned(
        cls,
        subjects: ArrayLike,
        objects: ArrayLike,
        n_components: int = 8,
        n_bits: int = 16,
        k_factor: float | None = 2.0,
        queries: str = "coded",
        num_threads: int = 0,
        **params: Any,
    ) -> CodedVectors:
        """Learn codes, with `params` of `CompositionalQuantizer`."""
        check_options(n_components, n_bits, k_factor, queries, num_threads, **params)
        index = IndexCCCF.from_embeddings(objects, subjects, n_components, n_bits, **params)
        return cls(index, subjects, objects, k_factor, queries, num_threads)

    def __len__(self) -> int:
        return len(self.objects)

    def search(
        self, k: int, *, rows: Any = None, vectors: Any = None, exclude: Any = None, allow: Any = None
    ) -> tuple[Vectors, NDArray[np.int64]]:
        """Return scores and objects, (nq, k) each, best first, the lowest float32 and -1 where there are no more.

        Parameters
        ----------
        k : int
        rows : ndarray of int, shape (nq,), optional
            Which subjects ask; or, for others,
        vectors : array_like of float, shape (nq, p), optional
            theirs.
        exclude, allow
            See `IndexCCCF.search`.
        """
        params = SearchParametersCCCF(num_threads=self.num_threads)
        x = self.subjects[rows] if vectors is None else _check.matrix(vectors, "vectors", self.subjects.shape[1])
        codes = None
        if self.codes is not None:
            codes = self.codes[rows] if vectors is None else self._quantizer.encode_users(x)
        if self._refined is not None:
            return self._refined.search(x, k, codes=codes, params=params, exclude=exclude, allow=allow)
        scores, found = self.index.search(x if codes is None else codes, k, params=params, exclude=exclude, allow=allow)
        if codes is not None:
            np.add(scores, (x @ self._quantizer.item_mean_)[:, None], out=scores, where=found != -1)
        return scores, found


def check_options(
    n_components: int = 8,
    n_bits: int = 16,
    k_factor: Any = 2.0,
    queries: Any = "coded",
    num_threads: Any = 0,
    **params: Any,
) -> None:
    """Refuse bad options of `CodedVectors.learned`, before anything is trained."""
    if k_factor is not None:
        _check.number(k_factor, "k_factor", 1.0)
    _check.choice(queries, "queries", QUERIES)
    _check.integer(num_threads, "num_threads", 0)
    CompositionalQuantizer(n_components, n_bits, **params).check()


def checked_ids(value: Any, name: str, n: int | None) -> NDArray[np.int64]:
    """Return one id or many as int64 (n,); one that is not from 0 to n - 1 is an IndexError, as in the frameworks."""
    array = np.atleast_1d(np.asarray(value))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(f"`{name}` must be an integer or a list of integers, got {value!r}.")
    if n is not None and array.size and not 0 <= array.min() <= array.max() < n:
        wrong = array[(array < 0) | (array >= n)][0]
        raise IndexError(f"`{name}` must be from 0 to {n - 1}, got {wrong}.")
    return array.astype(np.int64)


def unit(vectors: ArrayLike) -> Vectors:
    """Return vectors of length 1, whose inner products are cosines; what is zero stays zero."""
    rows = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, np.float32(1))


def for_cosines(k_factor: float | None) -> float | None:
    """Return how many objects must be found for each that is asked for where none is longer than others."""
    return None if k_factor is None else COSINES * k_factor


def lifted(subjects: ArrayLike, objects: ArrayLike) -> tuple[Vectors, Vectors]:
    """Return vectors whose inner products are squared lengths of subjects less squared distances to objects."""
    x, y = np.asarray(subjects, dtype=np.float32), np.asarray(objects, dtype=np.float32)
    return lifted_queries(x), np.hstack([y, np.square(y).sum(axis=1, keepdims=True)])


def lifted_queries(subjects: ArrayLike) -> Vectors:
    """Return the first of `lifted`."""
    x = np.asarray(subjects, dtype=np.float32)
    return np.hstack([2 * x, np.full((len(x), 1), -1, dtype=np.float32)])


def distances(subjects: Vectors, scores: Vectors) -> Vectors:
    """Return the squared distances that scores of `lifted` vectors stand for; rounding makes none negative."""
    lengths = np.square(subjects).sum(axis=1, keepdims=True)
    return np.where(scores > np.finfo(np.float32).min, np.maximum(lengths - scores, 0), np.inf).astype(np.float32)
