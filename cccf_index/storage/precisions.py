"""Precisions: how the values of a dense component are stored, in bytes and half bytes.

A precision is a pair of numbers: so many of the first dimensions take a byte each, so many of the next half a byte,
which is enough for multiples of 16, and the rest are zero. Rows of one precision stand together, as those with the
same binary components do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index.kernels.limits import DENSE_STEP, HALF_STEP, QUAD, STRIP

MIN_ROWS = 64  # a precision that fewer rows need is not worth a group of its own
MAX_PRECISIONS = 4  # of a segment, and one more that covers what these do not
CHUNK = 8192  # rows that are looked at a time


def find_needs(values: NDArray[np.int8]) -> NDArray[np.int64]:
    """Return the smallest precision that holds each row of values (m, p) without loss, int64 (m, 2)."""
    needs = np.empty((len(values), 2), dtype=np.int64)
    for start in range(0, len(values), CHUNK):
        part = values[start : start + CHUNK].reshape(-1, values.shape[1] // DENSE_STEP, DENSE_STEP)
        n_full = _count_leading(np.any(part % HALF_STEP != 0, axis=2))
        needs[start : start + CHUNK, 0] = n_full
        needs[start : start + CHUNK, 1] = np.maximum(_count_leading(np.any(part != 0, axis=2)) - n_full, 0)
    return needs


def _count_leading(is_used: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the dimensions up to the last block that is used, for each row (m, blocks)."""
    last = is_used.shape[1] - np.argmax(is_used[:, ::-1], axis=1)
    return np.where(is_used.any(axis=1), last, 0) * DENSE_STEP


def choose_precisions(values: NDArray[np.int8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the precisions (any, 2) to store rows of values (m, p) in, and which one each row is stored in, (m,)."""
    kinds, member, counts = np.unique(find_needs(values), axis=0, return_inverse=True, return_counts=True)
    frequent = np.argsort(-counts, kind="stable")[:MAX_PRECISIONS]
    chosen = kinds[np.sort(frequent[counts[frequent] >= MIN_ROWS])]
    rest = kinds[~_covers(chosen, kinds).any(axis=1)]
    if len(rest):
        n_full = rest[:, 0].max()
        chosen = np.concatenate([chosen, [[n_full, rest.sum(axis=1).max() - n_full]]])
    costs = np.where(_covers(chosen, kinds), row_sizes(chosen), np.inf)
    used, best = np.unique(np.argmin(costs, axis=1), return_inverse=True)
    return chosen[used], best[member.ravel()]


def _covers(chosen: NDArray[np.int64], kinds: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each kind (n, 2) can be stored in each chosen precision (m, 2), (n, m)."""
    enough = kinds[:, None, 0] <= chosen[None, :, 0]
    return enough & (kinds.sum(axis=1)[:, None] <= chosen.sum(axis=1)[None, :])


def row_sizes(precisions: NDArray[Any]) -> NDArray[Any]:
    """Return the bytes of the values of a row in each precision (any, 2)."""
    return precisions[:, 0] + precisions[:, 1] // 2


def count_octets(sizes: NDArray[np.int64], precisions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bytes of the values of groups of some sizes (any,), each with its precision (any, 2)."""
    return -(-sizes // STRIP) * STRIP * row_sizes(precisions)


def pack_values(values: NDArray[np.int8], precision: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return rows of values (m, p) as bytes (any,): strip after strip, the last one padded with rows of zeros.

    A strip holds of each of its 16 rows the values of the first four dimensions, then of the next four, and so on. A
    byte is ``value + 128``, half a byte ``value / 16 + 8``. Where they are half bytes, four bytes hold eight
    dimensions, of which the lower half bytes are the first four.
    """
    n_full, n_half = (int(n) for n in precision)
    n_strips = -(-len(values) // STRIP)
    padded = np.zeros((n_strips * STRIP, n_full + n_half), dtype=np.int8)
    padded[: len(values)] = values[:, : n_full + n_half]
    octets = padded.view(np.uint8).reshape(n_strips, STRIP, -1) ^ np.uint8(128)  # + 128
    full = octets[..., :n_full].reshape(n_strips, STRIP, -1, QUAD)
    both = octets[..., n_full:].reshape(n_strips, STRIP, -1, 2, QUAD)
    half = (both[..., 0, :] >> 4) | (both[..., 1, :] & 240)
    return np.concatenate([full, half], axis=2).transpose(0, 2, 1, 3).reshape(-1)


def unpack_values(
    octets: NDArray[np.uint8], precision: NDArray[np.int64], p: int, places: NDArray[Any]
) -> NDArray[np.int8]:
    """Undo `pack_values`: return the rows at some places (m,) as values of p dimensions (m, p)."""
    n_full, n_half = (int(n) for n in precision)
    strips = octets.reshape(-1, (n_full + n_half // 2) // QUAD, STRIP, QUAD)
    quads = strips[places // STRIP, :, places % STRIP]  # (m, quads of a row, QUAD)
    full, half = quads[:, : n_full // QUAD], quads[:, n_full // QUAD :]
    both = np.stack([half << 4, half & 240], axis=2)
    values = np.zeros((len(places), p), dtype=np.int8)
    values[:, :n_full] = (full.reshape(len(places), n_full) ^ np.uint8(128)).view(np.int8)
    values[:, n_full : n_full + n_half] = (both.reshape(len(places), n_half) ^ np.uint8(128)).view(np.int8)
    return values
