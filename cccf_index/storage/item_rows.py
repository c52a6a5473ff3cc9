"""Items as plain arrays, and the compact types in which a segment stores their ids and weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index.dense import DenseRows
from cccf_index.kernels.limits import DENSE_SHIFT, LANE_MAX, max_coarse


@dataclass(frozen=True, eq=False)
class ItemRows:
    """Items as plain arrays, in any order: what segments are made of, and what they decode to."""

    words: NDArray[Any]  # (n, G, W)
    weights: NDArray[Any]  # unsigned integers, or float32 (n, G)
    bias: NDArray[Any] | None  # int32 or float32 (n,)
    ids: NDArray[np.int64]  # (n,)
    dense: DenseRows | None = None  # integer weights are 2^DENSE_SHIFT times finer than `weights`

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def concatenate(cls, parts: list[ItemRows]) -> ItemRows:
        """Stack rows; where only some have a bias, the others' is zero."""
        if len(parts) == 1:
            return parts[0]
        bias = None
        known = next((part.bias for part in parts if part.bias is not None), None)
        if known is not None:
            bias = np.concatenate([np.zeros(len(p), known.dtype) if p.bias is None else p.bias for p in parts])
        return cls(
            np.concatenate([part.words for part in parts]),
            np.concatenate([part.weights for part in parts]),
            bias,
            np.concatenate([part.ids for part in parts]),
            DenseRows.concatenate([part.dense for part in parts], [len(part) for part in parts]),
        )

    @property
    def n_dense(self) -> int:
        """The dimensions of the dense component; 0 if there is none."""
        return 0 if self.dense is None else self.dense.p

    def select(self, rows: NDArray[Any]) -> ItemRows:
        """Return some of the rows."""
        bias = None if self.bias is None else self.bias[rows]
        dense = None if self.dense is None else self.dense.select(rows)
        return ItemRows(self.words[rows], self.weights[rows], bias, self.ids[rows], dense)


def dense_unit(weights: NDArray[Any]) -> float:
    """Return what 1 of the dense component's weights is worth, in units of binary components' weights."""
    return 1.0 if weights.dtype.kind == "f" else 2.0**-DENSE_SHIFT


def compact_ids(ids: NDArray[np.int64]) -> tuple[np.int64, NDArray[Any]]:
    """Return the smallest id and the offsets from it: none for consecutive ids, 4 bytes each where they fit."""
    first = ids.min()
    if int(ids.max()) - int(first) >= 2**63:  # too far apart for an offset
        return np.int64(0), ids
    offsets = ids - first
    if np.array_equal(offsets, np.arange(len(ids))):
        return first, np.empty(0, dtype=np.uint32)
    return first, offsets.astype(np.uint32) if offsets.max() < 2**32 else offsets


def shrink_weights(weights: NDArray[Any]) -> NDArray[Any]:
    """Return integer weights in the smallest of uint8, uint16, uint32 that holds them; floats as they are."""
    if weights.dtype.kind == "f":
        return weights
    return weights.astype(np.min_scalar_type(weights.max(initial=0)), copy=False)


def coarse_step(peak: float, n_bits: int) -> float:
    """Return what one unit of a coarse weight is worth, where the largest weight is `peak`."""
    return float(peak) / max_coarse(n_bits) if peak > 0 else 1.0


def coarse_weights(weights: NDArray[Any], n_bits: int) -> NDArray[np.uint8]:
    """Return weights in one byte each, for sketches; none where the weights themselves will do."""
    peak = float(weights.max(initial=0))
    if needs_no_coarse(weights, peak, n_bits):
        return np.empty(0, dtype=np.uint8)
    return np.rint(weights.astype(np.float64) / coarse_step(peak, n_bits)).astype(np.uint8)


def needs_no_coarse(weights: NDArray[Any], peak: float, n_bits: int) -> bool:
    """Tell whether sketches can take the weights themselves, the largest of which is `peak`."""
    return weights.dtype == np.uint8 and peak * n_bits <= LANE_MAX
