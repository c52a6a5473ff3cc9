"""The dense component of codes: small whole numbers for each dimension, and one weight for each row that has them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index import _check
from cccf_index.kernels.limits import DENSE_STEP, MAX_DENSE, VALUE_MAX


class DenseRows(NamedTuple):
    """The dense component of n rows: ``weight * values``, for the rows whose weight is not zero.

    A binary code of r bits spends one bit on each dimension, at one weight. The dense component spends up to 8: it is
    for the few items that fill most lists, and for users.
    """

    weights: NDArray[Any]  # (n,): float32 or, as an index stores them, unsigned integers; zero for a row without values
    values: NDArray[np.int8]  # (m, p): of the m rows with a weight, in their order

    @classmethod
    def check(cls, values: Any, weights: Any, n: int) -> DenseRows:
        """Check what a user passes as the dense component of n rows."""
        values = np.asarray(values)
        if values.dtype != np.int8:
            raise TypeError(f"`dense` must hold values of int8, got {values.dtype}.")
        sizes = _check.vector(weights, "dense weights", n)
        if len(sizes) and sizes.min() < 0:
            raise ValueError(f"`dense` must have weights of at least 0, got {sizes.min():g}.")
        m = int(np.count_nonzero(sizes))
        p = values.shape[1] if values.ndim == 2 and len(values) == m else 0
        if not 1 <= p <= MAX_DENSE or p % DENSE_STEP:
            raise ValueError(
                f"`dense` must hold values of shape ({m}, a multiple of {DENSE_STEP} up to {MAX_DENSE}), one row for "
                f"each weight that is not 0, got {values.shape}."
            )
        return cls(sizes, np.ascontiguousarray(values))

    @classmethod
    def from_vectors(cls, x: NDArray[np.float32]) -> DenseRows:
        """Round vectors (n, p): each at a weight of its own, by which the largest value becomes VALUE_MAX."""
        weights = (np.abs(x).max(axis=1, initial=0) / VALUE_MAX).astype(np.float32)
        rows = weights > 0
        values = np.rint(x[rows] / weights[rows, None])
        return cls(weights, np.clip(values, -VALUE_MAX, VALUE_MAX).astype(np.int8))

    @classmethod
    def empty(cls, n: int, p: int, dtype: Any = np.float32) -> DenseRows:
        """Return n rows without values."""
        return cls(np.zeros(n, dtype), np.empty((0, p), np.int8))

    @classmethod
    def concatenate(cls, parts: list[DenseRows | None], sizes: list[int]) -> DenseRows | None:
        """Stack parts of given sizes; None is a part without any values."""
        known = next((part for part in parts if part is not None), None)
        if known is None:
            return None
        p, dtype = known.p, known.weights.dtype
        whole = [cls.empty(n, p, dtype) if part is None else part for part, n in zip(parts, sizes, strict=True)]
        return cls(np.concatenate([part.weights for part in whole]), np.concatenate([part.values for part in whole]))

    @property
    def p(self) -> int:
        """The number of dimensions."""
        return int(self.values.shape[1])

    @property
    def is_present(self) -> NDArray[np.bool_]:
        """Which rows have values, (n,)."""
        return self.weights > 0

    @property
    def nbytes(self) -> int:
        """Bytes of both arrays."""
        return int(self.weights.nbytes + self.values.nbytes)

    def find_places(self) -> NDArray[np.int64]:
        """Return where in `values` each row stands, if it has any."""
        return np.cumsum(self.is_present) - 1

    def select(self, rows: Any) -> DenseRows:
        """Return some of the rows, by a slice, an integer array or a mask."""
        weights = self.weights[rows]
        return DenseRows(weights, self.values[self.find_places()[rows][weights > 0]])

    def expand(self) -> NDArray[Any]:
        """Return the vectors ``weight * values`` (n, p), in the type of the weights, integers as int64."""
        is_float = self.weights.dtype.kind == "f"
        vectors = np.zeros((len(self.weights), self.p), self.weights.dtype if is_float else np.int64)
        rows = self.is_present
        vectors[rows] = self.values.astype(vectors.dtype) * self.weights[rows, None].astype(vectors.dtype)
        return vectors

    def freeze(self) -> DenseRows:
        """Make both arrays read-only, and return the rows."""
        for array in self:
            array.flags.writeable = False
        return self

    def equals(self, other: DenseRows | None) -> bool:
        """Whether both hold the same."""
        return other is not None and all(np.array_equal(a, b) for a, b in zip(self, other, strict=True))
