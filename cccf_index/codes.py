"""Compositional codes: G binary codes of r bits and a sparse weight row for each user or item."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cccf_index import _check
from cccf_index.dense import DenseRows
from cccf_index.kernels.limits import MAX_BITS as MAX_BITS
from cccf_index.kernels.limits import MAX_COMPONENTS as MAX_COMPONENTS
from cccf_index.storage import container

# No integer score can leave 63 bits: G * r * MAX_WEIGHT ** 2 < 2 ** 61, and so is MAX_BIAS * MAX_SCALE.
MAX_WEIGHT = 2**23 - 1  # weight / scale survives float32, too
MAX_BIAS = 2**31 - 1
MAX_SCALE = 2**30
COMMON_BITS, COMMON_D = 16, 128  # of the examples in errors

KIND = "codes"


def word_layout(n_bits: int) -> tuple[np.dtype, int]:
    """Return the dtype of the smallest words that hold `n_bits`, and how many of them."""
    if n_bits > 64:
        return np.dtype("<u8"), -(-n_bits // 64)
    n_bytes = next(size for size in (1, 2, 4, 8) if n_bits <= 8 * size)
    return np.dtype(f"<u{n_bytes}"), 1


def code_size(n_bits: int) -> int:
    """Return the bytes of one code of `n_bits`."""
    dtype, n_words = word_layout(n_bits)
    return int(dtype.itemsize * n_words)


def explain_shape(d: Any) -> str:
    """Return what G and r are, for a caller who passed a dimension, as to an index of faiss."""
    d = d if isinstance(d, int) and d % COMMON_BITS == 0 and 1 <= d // COMMON_BITS <= MAX_COMPONENTS else COMMON_D
    return (
        f"A code has n_components (1 to {MAX_COMPONENTS}) components of n_bits (1 to {MAX_BITS}) bits each; what faiss "
        f"calls d is n_components * n_bits. For codes with d = {d} write IndexCCCF({d // COMMON_BITS}, {COMMON_BITS}); "
        "for embeddings of any dimension IndexCCCF.from_embeddings(item_vectors, user_vectors)."
    )


@lru_cache
def no_words(n_components: int, n_bits: int) -> NDArray[Any]:
    """Return the words (0, G, W) of no codes: their type and shape."""
    dtype, n_words = word_layout(n_bits)
    return np.empty((0, n_components, n_words), dtype=dtype)


def pack(positive: NDArray[np.bool_]) -> NDArray[Any]:
    """Pack booleans (n, G, r) into words (n, G, W): bit q of a code is bit q of its words, from the lowest."""
    n, n_components, n_bits = positive.shape
    dtype, n_words = word_layout(n_bits)
    octets = np.packbits(positive, axis=2, bitorder="little")
    missing = code_size(n_bits) - octets.shape[2]
    if missing:
        octets = np.pad(octets, ((0, 0), (0, 0), (0, missing)))
    return np.ascontiguousarray(octets).view(dtype).reshape(n, n_components, n_words)


def unpack(words: NDArray[Any], n_bits: int) -> NDArray[np.uint8]:
    """Undo `pack`: words (n, G, W) to zeros and ones (n, G, r)."""
    octets = np.ascontiguousarray(words).view(np.uint8)
    return np.unpackbits(octets, axis=2, count=n_bits, bitorder="little")


def expand(words: NDArray[Any], weights: NDArray[Any], n_bits: int) -> NDArray[Any]:
    """Return the expanded vectors ``weight * sign``, (n, G * r), in the dtype of `weights`."""
    sizes = weights[:, :, None]
    vectors = np.where(unpack(words, n_bits).view(bool), sizes, 0 - sizes)  # 0 - 0.0 is 0.0, and -0.0 is not
    return vectors.reshape(len(words), weights.shape[1] * n_bits)


def split(x: NDArray[np.float32], n_components: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return the weights (n, G) that `x` has if it is expanded codes, and which components (n, G) are such.

    A component is one when all its values have the same size; its weight is that size.
    """
    sizes = np.abs(x).reshape(len(x), n_components, x.shape[1] // n_components)
    weights = sizes[:, :, 0]
    return weights, (sizes == weights[:, :, None]).all(axis=2)


def round_weights(
    weights: NDArray[np.float32], scale: Any, name: str, rows: Any = None, most: int = MAX_WEIGHT
) -> NDArray[np.uint32]:
    """Return the integers nearest to ``scale * weights`` (paper, section 3.8), or say which is above `most`.

    `rows` are the places that the weights have in `name`, if not 0, 1, ...
    """
    scaled = np.rint(weights.astype(np.float64) * scale)
    if scaled.size and scaled.max() > most:
        row, component = (int(i) for i in np.argwhere(scaled > most)[0])
        raise ValueError(
            f"`{name}` must be at most {most} after scaling, got a weight of {weights[row, component]:g} "
            f"at row {row if rows is None else rows[row]}, component {component}. "
            "Use a smaller scale, or None."
        )
    return scaled.astype(np.uint32)


@dataclass(frozen=True, init=False, eq=False, repr=False)
class CompositionalCodes:
    """Packed binary codes and component weights of n users or items; frozen.

    The score of a user and an item is ``sum_k eta[k] * xi[k] * <b^k, d^k>`` (paper, section 3.2), which is
    the inner product of their expanded vectors, see `to_vectors`.

    Parameters
    ----------
    bits : ndarray of uint8, uint16, uint32 or uint64, shape (n, G, W)
        Bit q is 1 where sign q is +1. Words are the smallest that hold a code; above 64 bits there are
        W words of 8 bytes. Bits of components without weight are stored as 0, and padding bits must be 0.
    weights : array_like of float, shape (n, G)
        Non-negative; zero where a component is not active.
    n_bits : int
        r, the bits of one component.
    dense : DenseRows or (values, weights), optional
        A dense component in addition: values of int8 (m, p), p a multiple of 16, and weights (n,), of which m are not
        zero: those of the rows that have one.

    Examples
    --------
    >>> import numpy as np
    >>> from cccf_index import CompositionalCodes
    >>> signs = np.array([[[1, -1, 1], [1, 1, 1]]])
    >>> codes = CompositionalCodes.from_signs(signs, weights=[[0.5, 0.0]])
    >>> codes
    CompositionalCodes(n=1, n_components=2, n_bits=3, sparsity=0.50)
    >>> codes.to_vectors().tolist()
    [[0.5, -0.5, 0.5, 0.0, 0.0, 0.0]]
    """

    bits: NDArray[Any]
    weights: NDArray[np.float32]
    n_bits: int
    dense: DenseRows | None

    def __init__(self, bits: NDArray[Any], weights: Any, n_bits: int, dense: Any = None) -> None:
        n_bits = _check.integer(n_bits, "n_bits", 1, MAX_BITS)
        dtype, n_words = word_layout(n_bits)
        bits = np.asarray(bits)
        if bits.dtype != dtype:
            raise TypeError(f"`bits` must be {dtype} for {n_bits} bits, got {bits.dtype}.")
        if bits.ndim != 3 or bits.shape[2] != n_words or not 1 <= bits.shape[1] <= MAX_COMPONENTS:
            raise ValueError(f"`bits` must be of shape (n, 1 to {MAX_COMPONENTS}, {n_words}), got {bits.shape}.")
        used = n_bits - 8 * dtype.itemsize * (n_words - 1)
        if used < 8 * dtype.itemsize and (bits[:, :, -1] >> dtype.type(used)).any():
            raise ValueError(f"`bits` must be 0 above bit {n_bits - 1} of each component.")
        weights = _check.weights(weights, "weights", (bits.shape[0], bits.shape[1]))
        if dense is not None:
            values, sizes = (dense.values, dense.weights) if isinstance(dense, DenseRows) else dense
            dense = DenseRows.check(values, sizes, len(bits))
        self._freeze(np.where(weights[:, :, None] > 0, bits, dtype.type(0)), weights, n_bits, dense)

    def _freeze(
        self, bits: NDArray[Any], weights: NDArray[np.float32], n_bits: int, dense: DenseRows | None = None
    ) -> None:
        for array in (bits, weights):
            array.flags.writeable = False
        object.__setattr__(self, "bits", bits)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "n_bits", n_bits)
        object.__setattr__(self, "dense", None if dense is None else dense.freeze())

    @classmethod
    def _trusted(
        cls, bits: NDArray[Any], weights: NDArray[np.float32], n_bits: int, dense: DenseRows | None = None
    ) -> CompositionalCodes:
        """Wrap arrays that come from checked codes and that nobody else will change."""
        codes = object.__new__(cls)
        codes._freeze(bits, weights, n_bits, dense)
        return codes

    @classmethod
    def from_signs(cls, signs: ArrayLike, weights: Any = None) -> CompositionalCodes:
        """Pack signs (n, G, r) of -1/+1 (or bool, True for +1) with weights (n, G).

        Weights may be dense or scipy.sparse; None stands for all ones (DCF codes are the case G = 1).
        """
        array = _check.to_array(signs)
        if array.ndim != 3:
            raise ValueError(f"`signs` must be of shape (n, n_components, n_bits), got {array.shape}.")
        n, n_components, n_bits = array.shape
        _check.integer(n_components, "n_components", 1, MAX_COMPONENTS)
        _check.integer(n_bits, "n_bits", 1, MAX_BITS)
        if array.dtype.kind not in "bif":
            raise TypeError(f"`signs` must be bool or numbers -1 and +1, got dtype {array.dtype}.")
        if array.dtype.kind != "b" and not (np.abs(array) == 1).all():
            raise ValueError(f"`signs` must be -1 or +1, got {array[np.abs(array) != 1][0]}. Pass `signs > 0`.")
        if weights is None:
            weights = np.ones((n, n_components), dtype=np.float32)
        return cls(pack(array > 0), weights, n_bits)

    @classmethod
    def from_vectors(cls, x: ArrayLike, n_components: int, n_bits: int) -> CompositionalCodes:
        """Undo `to_vectors` of codes without a dense component: a component of a row holds one size with any signs."""
        n_components = _check.integer(n_components, "n_components", 1, MAX_COMPONENTS)
        n_bits = _check.integer(n_bits, "n_bits", 1, MAX_BITS)
        vectors = _check.matrix(x, "x", n_components * n_bits)
        weights, coded = split(vectors, n_components)
        if not coded.all():
            row, component = (int(i) for i in np.argwhere(~coded)[0])
            raise ValueError(
                f"`x` must be expanded codes, but row {row} has different absolute values in component "
                f"{component} (columns {component * n_bits} to {(component + 1) * n_bits - 1}). Real-valued vectors "
                "can be queries, but items must be codes: `IndexCCCF.from_embeddings` encodes vectors."
            )
        return cls._from_split(vectors, weights, n_bits)

    @classmethod
    def _from_split(cls, vectors: NDArray[np.float32], weights: NDArray[np.float32], n_bits: int) -> CompositionalCodes:
        signs = vectors.reshape(weights.shape + (n_bits,)) > 0  # all False where the weight is 0
        return cls._trusted(pack(signs), np.ascontiguousarray(weights), n_bits)

    @classmethod
    def concatenate(cls, parts: Iterable[CompositionalCodes]) -> CompositionalCodes:
        """Stack codes with the same number of components and bits."""
        parts = list(parts)
        if not parts:
            raise ValueError("`parts` must hold at least one CompositionalCodes, got none.")
        for part in parts:
            if not isinstance(part, CompositionalCodes):
                raise TypeError(f"`parts` must be CompositionalCodes, got {type(part).__name__}.")
        shapes = {(part.n_components, part.n_bits) for part in parts}
        if len(shapes) > 1:
            raise ValueError(f"`parts` must have the same n_components and n_bits, got {sorted(shapes)}.")
        if len({part.n_dense for part in parts} - {0}) > 1:
            raise ValueError(f"`parts` must have the same n_dense, got {sorted({part.n_dense for part in parts})}.")
        bits, weights = (np.concatenate([getattr(part, name) for part in parts]) for name in ("bits", "weights"))
        dense = DenseRows.concatenate([part.dense for part in parts], [len(part) for part in parts])
        return cls._trusted(bits, weights, parts[0].n_bits, dense)

    @property
    def n_components(self) -> int:
        """G, the number of components."""
        return int(self.bits.shape[1])

    @property
    def n_dense(self) -> int:
        """The dimensions of the dense component; 0 if there is none."""
        return 0 if self.dense is None else self.dense.p

    @property
    def d(self) -> int:
        """The dimension G * r + n_dense of the expanded vectors."""
        return self.n_components * self.n_bits + self.n_dense

    @property
    def sparsity(self) -> float:
        """The share of weights that are zero."""
        return 1.0 - np.count_nonzero(self.weights) / max(1, self.weights.size)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays; an index stores only the active components, at smaller weights."""
        return int(self.bits.nbytes + self.weights.nbytes) + (self.dense.nbytes if self.dense else 0)

    def to_signs(self) -> NDArray[np.int8]:
        """Return the signs, int8 (n, G, r) of -1/+1, all -1 where the weight is zero."""
        return unpack(self.bits, self.n_bits).astype(np.int8) * np.int8(2) - np.int8(1)

    def to_vectors(self) -> NDArray[np.float32]:
        """Return the expanded vectors, float32 (n, d): weight * sign, component after component, the dense one last."""
        vectors = expand(self.bits, self.weights, self.n_bits)
        return vectors if self.dense is None else np.concatenate([vectors, self.dense.expand()], axis=1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a file, checksummed and atomically."""
        arrays = [("bits", self.bits, 0), ("weights", self.weights, 0)]
        if self.dense is not None:
            arrays += [("dense.values", self.dense.values, 0), ("dense.weights", self.dense.weights, 0)]
        container.write_file(path, KIND, {"n_bits": self.n_bits}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CompositionalCodes:
        """Read what `save` wrote; a damaged or foreign file is a ValueError."""
        meta, arrays = container.read_file(path, KIND)
        try:
            dense = (arrays["dense.values"], arrays["dense.weights"]) if "dense.values" in arrays else None
            return cls(arrays["bits"], arrays["weights"], meta["n_bits"], dense)
        except container.BROKEN as error:
            raise container.damage_error(os.fspath(path), error) from error

    def __len__(self) -> int:
        return len(self.bits)

    def __getitem__(self, rows: Any) -> CompositionalCodes:
        """Select rows by an integer (a single row stays 2-D), a slice, an integer array or a mask."""
        if not isinstance(rows, slice):
            rows = None if isinstance(rows, tuple) else np.atleast_1d(rows)
            if rows is None or rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iub"):
                raise TypeError("Codes are indexed by an integer, a slice, a list of integers or a mask of rows.")
            if not rows.size:
                rows = rows.astype(np.int64)  # numpy takes an empty list for floats
        dense = None if self.dense is None else self.dense.select(rows)
        return self._trusted(self.bits[rows], self.weights[rows], self.n_bits, dense)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CompositionalCodes):
            return NotImplemented
        return (
            self.n_bits == other.n_bits
            and np.array_equal(self.bits, other.bits)
            and np.array_equal(self.weights, other.weights)
            and (other.dense is None if self.dense is None else self.dense.equals(other.dense))
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return CompositionalCodes, (self.bits, self.weights, self.n_bits, self.dense)

    def __repr__(self) -> str:
        return (
            f"CompositionalCodes(n={len(self)}, n_components={self.n_components}, "
            f"n_bits={self.n_bits}, {f'n_dense={self.n_dense}, ' if self.dense else ''}sparsity={self.sparsity:.2f})"
        )
