"""Queries prepared for sketches, the 16-bit estimates of scores: factors of codes, tables of vectors.

What one unit of ``factor * agreement`` is worth is chosen so that no lane overflows, whatever the item; `limits` has
the proof.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from cccf_index.kernels.decorators import INNER, kernel
from cccf_index.kernels.dense import prepare_dense
from cccf_index.kernels.limits import (
    CODED_PEAK,
    CODED_SUM,
    DENSE_REACH,
    ENTRY_MAX,
    REAL_PEAK,
    REAL_SUM,
    SUMS,
    TERM_DIVISOR,
)
from cccf_index.kernels.memory import find_query, read, view_row, write
from cccf_index.kernels.stored import count_components


@kernel
def choose_unit(segment, call, i, least, length):
    """Return what 1 of ``factor * agreement`` is worth: `least`, or more if a dense component outweighs all others.

    length: of the query's dense component.
    """
    find_query(call, i).dense_norm = length
    unit = max(least, length * segment.dense_ceiling / (DENSE_REACH * TERM_DIVISOR * segment.step))
    return unit if unit > 0 else 1.0


@kernel
def sketch_code(segment, call, q, i, word, number):
    """Prepare the sketches of coded query q at place i of the tile; return what 1 of ``factor * agreement`` is worth.

    The agreement of a code is the count of `block.sketch_block` less its padding bits. Filled are the factors and
    offsets, and the tables of one query; word, number: the types of words and weights.
    """
    n_components, n_bits, n_words = count_components(segment, call), call.n_bits, call.n_words
    words = view_row(call.words, q, segment.n_components * n_words, word)
    weights = view_row(call.weights, q, call.n_weights, number)
    vector = view_row(call.vector, 0, n_components * n_bits, np.float32)
    largest, total = 0.0, 0.0
    for k in range(n_components):
        size = np.float64(weights[k]) * n_bits
        largest = max(largest, size)
        total += size * read(segment.ceilings, k, np.float64)
    length = prepare_dense(segment, call, q, i, number, None)
    unit = choose_unit(segment, call, i, max(largest / CODED_PEAK, total / (TERM_DIVISOR * CODED_SUM)), length)
    for k in range(n_components):
        weight = np.float64(weights[k])
        factor = np.rint(weight / unit)
        write(call.factors, i * n_components + k, np.int16(factor))
        write(call.offsets, i * n_components + k, np.int16(np.int64(factor) * (n_bits - n_words * 8 * call.word_size)))
        write(call.reach, k, np.float32(weight * n_bits))
        write(call.sketch_reach, k, np.float32(factor * n_bits))
        write(call.sketch_error, k, np.float32(abs(weight / unit - factor) * n_bits))
        for w in range(n_words):
            bits, first = np.uint64(words[k * n_words + w]), w * 8 * call.word_size
            for j in range(k * n_bits + first, k * n_bits + min(n_bits, first + 8 * call.word_size)):
                vector[j] = weight if bits & np.uint64(1) else -weight
                bits >>= np.uint64(1)
    return unit


# O(8 * half bytes) a component. Invariant: no entry is off by more than the error returned.
@kernel
def fill_lookups(sums, n_sums, tables, n_tables, scale):
    """Fill the tables of a component with its sums times `scale`, rounded, plus ENTRY_MAX; return three numbers.

    These are: the sum of all first entries, of the largest entries, and of the largest errors. sums: float32
    (n_sums, 16); tables: uint8 (n_tables, 16), of which the last stand for padding; both addresses.
    """
    first, largest, error = 0, 0.0, 0.0
    for half in range(n_tables):
        peak, worst = 0.0, 0.0
        for v in range(8):
            value = scale * read(sums, 16 * half + v, np.float32) if half < n_sums else 0.0
            entry = np.rint(value)
            write(tables, 16 * half + v, np.uint8(ENTRY_MAX + entry))
            write(tables, 16 * half + 15 - v, np.uint8(ENTRY_MAX - entry))  # all signs are turned
            worst = max(worst, abs(value - entry))
            peak = max(peak, abs(entry))
        first += np.int64(read(tables, 16 * half, np.uint8))
        largest += peak
        error += worst
    return first, largest, error


@kernel
def sketch_vector(segment, call, q, i):
    """Prepare the sketches of real-valued query q at place i; return what 1 of ``factor * agreement`` is worth.

    Each half byte of a code looks up its part of the inner product, rounded to a byte. Filled are these tables, and the
    same as by `sketch_code`. The `sums` of place i must have been filled.
    """
    n_components, n_bits = count_components(segment, call), call.n_bits
    n_sums, n_tables = 2 * ((n_bits + 7) // 8), 2 * call.n_words * call.word_size
    query = view_row(call.vectors, q, segment.n_components * n_bits + call.n_dense, np.float32)
    vector = view_row(call.vector, 0, n_components * n_bits, np.float32)
    steps = view_row(call.sketch_error, 0, n_components, np.float32)
    largest, total = 0.0, 0.0
    for k in range(n_components):
        size, peak = 0.0, 0.0
        for first in range(0, n_bits, 4):
            part = 0.0
            for j in range(k * n_bits + first, k * n_bits + min(first + 4, n_bits)):
                vector[j] = query[j]
                part += np.float64(abs(query[j]))
            size += part
            peak = max(peak, part)
        write(call.reach, k, np.float32(size))
        steps[k] = peak / ENTRY_MAX * (1 + 1e-6)
        size += n_sums / 2 * np.float64(steps[k])
        largest = max(largest, size)
        total += size * read(segment.ceilings, k, np.float64)
    length = prepare_dense(segment, call, q, i, np.float32, np.float32)
    unit = choose_unit(segment, call, i, max(largest / REAL_PEAK, total / (TERM_DIVISOR * REAL_SUM)), length)
    for k in range(n_components):
        factor = np.ceil(np.float64(steps[k]) / unit)
        place = i * n_components + k
        first, reach, error = fill_lookups(
            call.sums + place * 64 * n_sums, n_sums, call.lookups + place * 16 * n_tables, n_tables,
            1 / (unit * max(factor, 1.0)),
        )  # fmt: skip
        write(call.factors, place, np.int16(factor))
        write(call.offsets, place, np.int16(np.int64(-factor) * (ENTRY_MAX * n_tables + 256 * first)))
        write(call.sketch_reach, k, np.float32(factor * reach))
        write(call.sketch_error, k, np.float32(max(factor, 1.0) * error))
    return unit


# O(4 d): entry v of half a byte is the sum of its 4 values, each plus where v has a one and minus elsewhere.
@kernel
def fill_sums(segment, call, q, i):
    """Fill the `sums` of place i with the partial inner products of query q, 16 for each half of a code's bytes."""
    n_bits, n_bytes = call.n_bits, (call.n_bits + 7) // 8
    query = view_row(call.vectors, q, segment.n_components * n_bits + call.n_dense, np.float32)
    sums = view_row(call.sums, i, segment.n_components * n_bytes * SUMS, np.float32)
    first = 0
    for k in range(count_components(segment, call)):
        for half in range(0, 8 * n_bytes, 4):
            sums[first] = 0
            for j in range(4):
                value = query[k * n_bits + half + j] if half + j < n_bits else np.float32(0)
                for v in range(first, first + (1 << j)):
                    sums[v + (1 << j)] = sums[v] + value
                    sums[v] -= value
            first += 16


def prepare_query(segment: Any, call: Any, q: int, i: int, word: Any, number: Any, real: Any) -> Any:
    """Prepare query q at place i of the tile; return what 1 of ``factor * agreement`` is worth."""


@overload(prepare_query, jit_options=INNER)
def pick_prepare_query(segment, call, q, i, word, number, real):
    """Pick the coded or the real-valued variant at compile time."""

    def prepare_coded(segment, call, q, i, word, number, real):
        return sketch_code(segment, call, q, i, word, number)

    def prepare_real(segment, call, q, i, word, number, real):
        fill_sums(segment, call, q, i)
        return sketch_vector(segment, call, q, i)

    return prepare_coded if isinstance(real, types.NoneType) else prepare_real


def locate_query(segment: Any, call: Any, q: int, i: int, real: Any) -> Any:
    """Return the address of what `block.sketch_block` reads of query q at place i of the tile."""


@overload(locate_query, jit_options=INNER)
def pick_locate_query(segment, call, q, i, real):
    """Pick the coded or the real-valued variant at compile time."""

    def locate_words(segment, call, q, i, real):
        return call.words + q * segment.n_components * call.n_words * call.word_size

    def locate_lookups(segment, call, q, i, real):
        return call.lookups + i * segment.n_components * call.n_words * call.word_size * 32

    return locate_words if isinstance(real, types.NoneType) else locate_lookups
