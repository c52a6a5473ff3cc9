"""Shared by the adapters of vector models: codes find candidates, the original vectors re-rank them."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cccf_index import CompositionalCodes, IndexCCCF, IndexRefineCCCF, SearchParametersCCCF, _check
from cccf_index._vectors import normalize_rows
from cccf_index.adapters.options import CodeOptions

Vectors = NDArray[np.float32]


def raise_missing_framework(package: str, extra: str, error: ImportError) -> NoReturn:
    """Raise an ImportError that names the extra which installs a missing package."""
    raise ImportError(
        f'This adapter needs {package}, which cannot be imported ({error}). `pip install "cccf-index[{extra}]"`.'
    ) from error


class CodedVectors:
    """An index of objects, the original vectors of subjects and objects, and the codes of the subjects.

    Subjects search, objects are found: users and items, or items and items.

    Parameters
    ----------
    index : IndexCCCF
        Codes of the objects, under ids 0, 1, ...
    subjects, objects : array_like of float, shapes (n_subjects, p) and (n_objects, p)
    options : CodeOptions
    codes : CompositionalCodes, optional
        Codes of the subjects, if they are known already.
    """

    def __init__(
        self,
        index: IndexCCCF,
        subjects: ArrayLike,
        objects: ArrayLike,
        options: CodeOptions,
        codes: CompositionalCodes | None = None,
    ) -> None:
        self.index, self.num_threads = index, options.num_threads
        self.subjects, self.objects = (np.ascontiguousarray(to_float32(x)) for x in (subjects, objects))
        quantizer = index.quantizer
        if quantizer is None or index.ntotal != len(self.objects):
            raise ValueError("the index does not fit the vectors")
        self._quantizer = quantizer
        if options.queries == "coded" and codes is None:
            codes = quantizer.encode_users(self.subjects)
        if codes is not None and len(codes) != len(self.subjects):
            raise ValueError("the codes do not fit the vectors")
        self.codes = codes
        self._refined = None
        if options.k_factor is not None:
            self._refined = IndexRefineCCCF(index, self.objects, k_factor=options.k_factor)

    @classmethod
    def learn(cls, subjects: ArrayLike, objects: ArrayLike, options: CodeOptions) -> CodedVectors:
        """Learn codes of both sides and build the index."""
        shape = (options.n_components, options.n_bits)
        return cls(IndexCCCF.from_embeddings(objects, subjects, *shape, **options.params), subjects, objects, options)

    def __len__(self) -> int:
        return len(self.objects)

    def search(
        self, k: int, *, rows: Any = None, vectors: Any = None, exclude: Any = None, allow: Any = None
    ) -> tuple[Vectors, NDArray[np.int64]]:
        """Return scores and objects, (nq, k) each, best first; padded with the lowest float32 and -1.

        Parameters
        ----------
        k : int
        rows : ndarray of int, shape (nq,), optional
            Search for these subjects. Give either `rows` or `vectors`.
        vectors : array_like of float, shape (nq, p), optional
            Search for these vectors.
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


def check_ids(value: Any, name: str, n: int | None) -> NDArray[np.int64]:
    """Return one id or many as int64 (n,); one outside 0 to n - 1 raises an IndexError, as in the frameworks."""
    array = np.atleast_1d(np.asarray(value))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(f"`{name}` must be an integer or a list of integers, got {value!r}.")
    if n is not None and array.size and not 0 <= array.min() <= array.max() < n:
        wrong = array[(array < 0) | (array >= n)][0]
        raise IndexError(f"`{name}` must be from 0 to {n - 1}, got {wrong}.")
    return array.astype(np.int64)


def to_float32(vectors: ArrayLike) -> Vectors:
    """Return vectors as float32, also those of a tensor with gradients."""
    return np.asarray(_check.to_array(vectors), dtype=np.float32)


def to_unit_length(vectors: ArrayLike) -> Vectors:
    """Return float32 vectors of length 1, whose inner products are cosines; zero vectors stay zero."""
    return normalize_rows(to_float32(vectors))


def lift_sides(subjects: ArrayLike, objects: ArrayLike) -> tuple[Vectors, Vectors]:
    """Return vectors with one more dimension whose inner products order objects by distance.

    The inner product is the squared length of the subject minus the squared distance to the object.
    """
    y = to_float32(objects)
    return lift_subjects(subjects), np.hstack([y, np.square(y).sum(axis=1, keepdims=True)])


def lift_subjects(subjects: ArrayLike) -> Vectors:
    """Return the subjects' side of `lift_sides`."""
    x = to_float32(subjects)
    return np.hstack([2 * x, np.full((len(x), 1), -1, dtype=np.float32)])


def to_distances(subjects: Vectors, scores: Vectors) -> Vectors:
    """Return squared distances from the scores of lifted vectors; padding becomes infinity."""
    lengths = np.square(subjects).sum(axis=1, keepdims=True)
    positive = np.maximum(lengths - scores, 0)  # rounding may leave a small negative number
    return np.where(scores > np.finfo(np.float32).min, positive, np.inf).astype(np.float32)
