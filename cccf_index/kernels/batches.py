"""Queries as the kernels take them: coded and real-valued batches are two types.

A kernel that treats them differently has two variants; numba picks one by the batch's type when it compiles.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from cccf_index.kernels.decorators import OPTIONS


class CodedBatch(NamedTuple):
    """Queries that are codes."""

    words: NDArray[Any]  # (nq, G, W)
    weights: NDArray[Any]  # int64 or float32 (nq, G)
    bias_scales: NDArray[Any]  # what items' biases are multiplied by, int64 or float32 (nq,)
    item_weights: NDArray[Any]  # (0,), of the type of items' weights
    n_bits: int
    n_planes: int  # 1
    slack: float  # how much of a score may be rounding


class RealBatch(NamedTuple):
    """Queries that are real-valued vectors."""

    words: NDArray[Any]  # (0, G, W), of the type of items' codes
    vectors: NDArray[np.float32]  # (nq, G * r)
    item_weights: NDArray[Any]  # (0,), of the type of items' weights
    n_bits: int
    n_planes: int  # bits of a value in a sketch
    slack: float  # how much of a score may be rounding


def is_real(batch: Any) -> bool:
    """Whether a numba type is that of a `RealBatch`."""
    return batch.instance_class is RealBatch


def bias_scale(batch: Any, q: int) -> Any:
    """Return what items' biases are multiplied by for query q."""


@overload(bias_scale, jit_options=OPTIONS)
def pick_bias_scale(batch, q):  # noqa: D103
    return (lambda batch, q: np.float32(1)) if is_real(batch) else (lambda batch, q: batch.bias_scales[q])


def empty_scores(batch: Any, n: int) -> Any:
    """Return an empty array for n scores, of their type."""


@overload(empty_scores)
def pick_empty_scores(batch, n):  # noqa: D103
    if is_real(batch):
        return lambda batch, n: np.empty(n, np.float32)
    return lambda batch, n: np.empty(n, batch.weights.dtype)
