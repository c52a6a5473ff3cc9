"""Queries prepared for sketches, the 16-bit estimates of scores: rounded, and cut into bit planes.

What one unit of ``factor * agreement`` is worth is chosen so that no lane overflows, whatever the item; `limits` has
the proof.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic, overload

from cccf_index.kernels.decorators import INNER, kernel
from cccf_index.kernels.limits import (
    CODED_PEAK,
    CODED_SUM,
    LANE_MAX,
    PLANES,
    REAL_SUM,
    SUM_MAX,
    SUMS,
    TERM_DIVISOR,
    TOP,
)
from cccf_index.kernels.memory import read, view_row, write


@intrinsic
def count_planes(context, real):
    """Return the bits of a value in a sketch, which the compiler knows: 1 for codes, where `real` is None."""
    n = 1 if isinstance(real, types.NoneType) else PLANES

    def generate(context, builder, signature, arguments):
        return context.get_constant(types.int64, n)

    return types.int64(real), generate


@kernel
def sketch_code(segment, call, q, i, word, number):
    """Prepare the sketches of coded query q at place i of the tile; return what 1 of ``factor * agreement`` is worth.

    Filled are its planes and factors, and the tables of one query; word, number: the types of words and weights.
    """
    n_components, n_bits, n_words = segment.n_components, call.n_bits, call.n_words
    words = view_row(call.words, q, n_components * n_words, word)
    planes = view_row(call.planes, i, n_components * n_words, word)
    weights = view_row(call.weights, q, n_components, number)
    vector = view_row(call.vector, 0, n_components * n_bits, np.float32)
    largest, total = 0.0, 0.0
    for k in range(n_components):
        size = np.float64(weights[k]) * n_bits
        largest = max(largest, size)
        total += size * read(segment.ceilings, k, np.float64)
    unit = max(largest / CODED_PEAK, total / (TERM_DIVISOR * CODED_SUM))
    unit = unit if unit > 0 else 1.0
    for k in range(n_components):
        weight = np.float64(weights[k])
        factor = np.rint(weight / unit)
        write(call.factors, i * n_components + k, np.int16(factor))
        write(call.reach, k, np.float32(weight * n_bits))
        write(call.sketch_reach, k, np.float32(factor * n_bits))
        write(call.sketch_error, k, np.float32(abs(weight / unit - factor) * n_bits))
        for w in range(n_words):
            code = words[k * n_words + w]
            planes[k * n_words + w] = code
            bits, first = np.uint64(code), w * 8 * call.word_size
            for j in range(k * n_bits + first, k * n_bits + min(n_bits, first + 8 * call.word_size)):
                vector[j] = weight if bits & np.uint64(1) else -weight
                bits >>= np.uint64(1)
    return unit


@kernel
def sketch_vector(segment, call, q, i, word):
    """Prepare the sketches of real-valued query q at place i; return what 1 of ``factor * agreement`` is worth.

    Its values become odd integers from -TOP to TOP, given by bit planes. Filled is the same as by `sketch_code`.
    """
    n_components, n_bits, n_words, n_planes = segment.n_components, call.n_bits, call.n_words, PLANES
    word_bits = 8 * call.word_size
    query = view_row(call.vectors, q, n_components * n_bits, np.float32)
    planes = view_row(call.planes, i, n_components * n_words * n_planes, word)
    vector = view_row(call.vector, 0, n_components * n_bits, np.float32)
    sketch_reach = view_row(call.sketch_reach, 0, n_components, np.float32)
    sketch_error = view_row(call.sketch_error, 0, n_components, np.float32)
    largest, total = 0.0, 0.0
    for k in range(n_components):
        size = 0.0
        for j in range(k * n_bits, (k + 1) * n_bits):
            vector[j] = query[j]
            value = np.float64(abs(query[j]))
            size += value
            largest = max(largest, value)
        write(call.reach, k, np.float32(size))
        total += size * read(segment.ceilings, k, np.float64)
    unit = max(largest / TOP, total / (TERM_DIVISOR * REAL_SUM))
    unit = unit if unit > 0 else 1.0
    for place in range(planes.size):
        planes[place] = 0
    largest, total = 0.0, 0.0
    for k in range(n_components):
        size, error = 0.0, 0.0
        for j in range(n_bits):
            value = query[k * n_bits + j] / unit
            level = np.int64(min(max((value + TOP) / 2 + 0.5, 0.0), float(TOP)))
            size += abs(2 * level - TOP)
            error += abs(value - (2 * level - TOP))
            first = (k * n_words + j // word_bits) * n_planes
            for b in range(n_planes):
                planes[first + b] |= word(((level >> (n_planes - 1 - b)) & 1) << (j % word_bits))
        sketch_reach[k], sketch_error[k] = size, error
        largest = max(largest, size)
        total += size * read(segment.ceilings, k, np.float64)
    factor = np.floor(min(LANE_MAX / largest, TERM_DIVISOR * SUM_MAX / max(total, 1.0)))
    for k in range(n_components):
        write(call.factors, i * n_components + k, np.int16(factor))
        sketch_reach[k] *= factor
        sketch_error[k] *= factor
    return unit / factor


# O(4 d): entry v of half a byte is the sum of its 4 values, each plus where v has a one and minus elsewhere.
@kernel
def fill_sums(segment, call, q, i):
    """Fill the `sums` of place i with the partial inner products of query q, 16 for each half of a code's bytes."""
    n_bits, n_bytes = call.n_bits, (call.n_bits + 7) // 8
    query = view_row(call.vectors, q, segment.n_components * n_bits, np.float32)
    sums = view_row(call.sums, i, segment.n_components * n_bytes * SUMS, np.float32)
    first = 0
    for k in range(segment.n_components):
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
        return sketch_vector(segment, call, q, i, word)

    return prepare_coded if isinstance(real, types.NoneType) else prepare_real
