"""Precisions: how many dimensions of a dense component are stored at each level, from 8 bits to 1.

Precisions are defined in `kernels.levels`. Rows of one precision stand together, as those with the same binary
components do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index.kernels.levels import BITS, LEVELS, Level, row_sizes
from cccf_index.kernels.limits import DENSE_STEP, MAX_PRECISIONS, QUAD, STRIP

MIN_ROWS = 64  # a precision that fewer rows need is not worth a group of its own
CHUNK = 8192  # rows that are looked at a time
# Sets of levels are masks: the bits of each level, which are powers of two, and NONE for dimensions that are left out.
NONE = 16
ALL = np.array([*BITS, NONE], np.uint8)
HOLDERS = np.array([8, 8 | 4, 8 | 2, 8 | 1, 8 | 4 | NONE], np.uint8)  # where values of each of these can be stored


def find_needs(values: NDArray[np.int8]) -> NDArray[np.int64]:
    """Return the smallest precision that holds each row of values (m, p) without loss, int64 (m, levels)."""
    needs = np.empty((len(values), len(LEVELS)), dtype=np.int64)
    for start in range(0, len(values), CHUNK):
        part = values[start : start + CHUNK]
        octets = part.view(np.uint8).reshape(len(part), -1, DENSE_STEP)
        needs[start : start + CHUNK] = _enclose(np.bitwise_and.reduce(_find_holders()[octets], axis=2))
    return needs


def _find_holders() -> NDArray[np.uint8]:
    """Return at which levels each value can be stored, by its byte, (256,)."""
    masks = np.zeros(256, np.uint8)
    for level in LEVELS:
        values = level.worth * (level.factor * np.arange(2**level.bits) + level.least)
        masks[values.astype(np.int8).view(np.uint8)] |= np.uint8(level.bits)
    masks[0] |= np.uint8(NONE)
    return masks


def _enclose(masks: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the smallest precision for each row (m, levels) whose steps can be stored at the levels of `masks`.

    masks: (m, steps). From the last step on back, each level takes what it can, the one of fewer bits first.
    """
    n_steps = masks.shape[1]
    needs, rest = np.zeros((len(masks), len(LEVELS) + 1), np.int64), np.full(len(masks), n_steps)
    for column in range(len(LEVELS), -1, -1):
        fits = (masks & ALL[column] > 0) | (np.arange(n_steps) >= rest[:, None])
        start = n_steps - np.argmin(np.pad(fits[:, ::-1], ((0, 0), (0, 1))), axis=1)
        needs[:, column], rest = (rest - start) * DENSE_STEP, start
    return needs[:, :-1]


def choose_precisions(values: NDArray[np.int8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the precisions (any, levels) to store rows of values (m, p) in, and which each row is stored in, (m,).

    They are the most frequent ones, and one more that covers what these do not.
    """
    kinds, member, counts = np.unique(find_needs(values), axis=0, return_inverse=True, return_counts=True)
    frequent = np.argsort(-counts, kind="stable")[: MAX_PRECISIONS - 1]
    chosen = kinds[np.sort(frequent[counts[frequent] >= MIN_ROWS])]
    n_steps = values.shape[1] // DENSE_STEP
    rest = kinds[~_covers(chosen, kinds, n_steps).any(axis=1)]
    if len(rest):
        masks = np.bitwise_and.reduce(_spread(HOLDERS, rest, n_steps), axis=0)
        chosen = np.concatenate([chosen, _enclose(masks[None])])
    costs = np.where(_covers(chosen, kinds, n_steps), row_sizes(chosen), np.inf)
    used, best = np.unique(np.argmin(costs, axis=1), return_inverse=True)
    return chosen[used], best[member.ravel()]


def _spread(masks: NDArray[np.uint8], precisions: NDArray[np.int64], n_steps: int) -> NDArray[np.uint8]:
    """Return for each step of precisions (m, levels) what `masks` has for its level, (m, steps)."""
    counts = np.concatenate([precisions, n_steps * DENSE_STEP - precisions.sum(axis=1, keepdims=True)], axis=1)
    return np.array([np.repeat(masks, n) for n in counts // DENSE_STEP], np.uint8).reshape(-1, n_steps)


def _covers(chosen: NDArray[np.int64], kinds: NDArray[np.int64], n_steps: int) -> NDArray[np.bool_]:
    """Return whether each kind (n, levels) can be stored in each chosen precision (m, levels), (n, m)."""
    common = _spread(HOLDERS, kinds, n_steps)[:, None] & _spread(ALL, chosen, n_steps)
    return np.asarray((common > 0).all(axis=2))


def count_octets(sizes: NDArray[np.int64], precisions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bytes of the values of groups of some sizes (any,), each with its precision (any, levels)."""
    return -(-sizes // STRIP) * STRIP * row_sizes(precisions)


def pack_values(values: NDArray[np.int8], precision: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return rows of values (m, p) as bytes (any,): strip after strip, the last one padded with rows of zeros.

    A strip holds four bytes of each of its 16 rows, then the next four of each, and so on. At 8 bits four bytes are
    four dimensions. Where values take b bits, the lowest b bits of the four bytes are four dimensions, the next b bits
    the next four; what is left over in the last bytes of a level is zero.
    """
    n_strips = -(-len(values) // STRIP)
    padded = np.zeros((n_strips * STRIP, int(precision.sum())), dtype=np.int8)
    padded[: len(values)] = values[:, : padded.shape[1]]
    parts, first = [np.empty((n_strips, STRIP, 0, QUAD), np.uint8)], 0
    for level, n in zip(LEVELS, precision.tolist(), strict=True):
        stored = (padded[:, first : first + n] // np.int16(level.worth) - level.least) // level.factor
        stored = np.pad(stored.astype(np.uint8), ((0, 0), (0, -n % (QUAD * level.per_byte))))
        stored = stored.reshape(n_strips, STRIP, -1, level.per_byte, QUAD) << _shifts(level)
        parts.append(np.bitwise_or.reduce(stored, axis=3))
        first += n
    return np.concatenate(parts, axis=2).transpose(0, 2, 1, 3).reshape(-1)


def unpack_values(
    octets: NDArray[np.uint8], precision: NDArray[np.int64], p: int, places: NDArray[Any]
) -> NDArray[np.int8]:
    """Undo `pack_values`: return the rows at some places (m,) as values of p dimensions (m, p)."""
    strips = octets.reshape(-1, int(row_sizes(precision[None])[0]) // QUAD, STRIP, QUAD)
    quads = strips[places // STRIP, :, places % STRIP]  # (m, quads of a row, QUAD)
    values = np.zeros((len(places), p), dtype=np.int8)
    start = first = 0
    for level, n in zip(LEVELS, precision.tolist(), strict=True):
        stop = start - (-n // (QUAD * level.per_byte))
        stored = (quads[:, start:stop, None] >> _shifts(level)) & np.uint8(2**level.bits - 1)
        stored = stored.reshape(len(places), (stop - start) * QUAD * level.per_byte)[:, :n].astype(np.int16)
        values[:, first : first + n] = level.worth * (level.factor * stored + level.least)
        start, first = stop, first + n
    return values


def _shifts(level: Level) -> NDArray[np.uint8]:
    """Return the first bit of each value in a byte, (per_byte, 1)."""
    return np.arange(0, 8, level.bits, dtype=np.uint8)[:, None]
