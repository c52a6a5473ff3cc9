"""Queries prepared for sketches, the 16-bit estimates of scores: rounded, and cut into bit planes.

What one unit of ``factor * agreement`` is worth is chosen so that no lane overflows, whatever the item; `limits` has
the proof.
"""

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from cccf_index.kernels.batches import is_real
from cccf_index.kernels.decorators import OPTIONS, kernel
from cccf_index.kernels.limits import CODED_PEAK, CODED_SUM, LANE_MAX, REAL_SUM, SUM_MAX, TERM_DIVISOR, TOP
from cccf_index.kernels.memory import read


class PreparedQuery(NamedTuple):
    """What the bounds need of one query."""

    vector: NDArray[np.float32]  # (G * r,): its expanded vector, or itself
    reach: NDArray[np.float32]  # (G,): the most that an item of weight 1 in component k can score with it
    sketch_reach: NDArray[np.float32]  # (G,): the largest |factor * agreement| of its sketches
    sketch_error: NDArray[np.float32]  # (G,): the largest error of that, from rounding the query


@kernel
def sketch_code(words, weights, n_bits, segment, prepared, planes, factors):
    """Prepare the sketches of a coded query; return what one unit of ``factor * agreement`` is worth.

    words: (G, W); weights: (G,). Filled are planes: words (G * W,); factors: int16 (G,); and `prepared`.
    """
    largest, total = 0.0, 0.0
    for k in range(weights.size):
        size = np.float64(weights[k]) * n_bits
        largest = max(largest, size)
        total += size * read(segment.ceilings, k, np.float64)
    unit = max(largest / CODED_PEAK, total / (TERM_DIVISOR * CODED_SUM))
    unit = unit if unit > 0 else 1.0
    n_words, word_bits = words.shape[1], 8 * words.itemsize
    for k in range(weights.size):
        weight = np.float64(weights[k])
        factor = np.rint(weight / unit)
        factors[k] = np.int16(factor)
        prepared.reach[k], prepared.sketch_reach[k] = weight * n_bits, factor * n_bits
        prepared.sketch_error[k] = abs(weight / unit - factor) * n_bits
        for w in range(n_words):
            word = np.uint64(words[k, w])
            planes[k * n_words + w] = words[k, w]
            for j in range(k * n_bits + w * word_bits, k * n_bits + min(n_bits, (w + 1) * word_bits)):
                prepared.vector[j] = weight if word & np.uint64(1) else -weight
                word >>= np.uint64(1)
    return unit


@kernel
def sketch_vector(query, n_bits, n_words, n_planes, segment, prepared, planes, factors):
    """Prepare the sketches of a real-valued query; return what one unit of ``factor * agreement`` is worth.

    query: float32 (G * r,), whose values become odd integers from -TOP to TOP. Filled are planes: words
    (G * W * planes,), and the same as by `sketch_code`.
    """
    word_bits = 8 * planes.itemsize
    largest, total = 0.0, 0.0
    for k in range(factors.size):
        size = 0.0
        for j in range(k * n_bits, (k + 1) * n_bits):
            prepared.vector[j] = query[j]
            size += abs(query[j])
            largest = max(largest, np.float64(abs(query[j])))
        prepared.reach[k] = size
        total += size * read(segment.ceilings, k, np.float64)
    unit = max(largest / TOP, total / (TERM_DIVISOR * REAL_SUM))
    unit = unit if unit > 0 else 1.0
    planes[:] = 0
    largest, total = 0.0, 0.0
    for k in range(factors.size):
        size, error = 0.0, 0.0
        for j in range(n_bits):
            value = query[k * n_bits + j] / unit
            level = np.int64(min(max((value + TOP) / 2 + 0.5, 0.0), float(TOP)))
            size += abs(2 * level - TOP)
            error += abs(value - (2 * level - TOP))
            first = (k * n_words + j // word_bits) * n_planes
            for b in range(n_planes):
                planes[first + b] |= planes.dtype.type(((level >> (n_planes - 1 - b)) & 1) << (j % word_bits))
        prepared.sketch_reach[k], prepared.sketch_error[k] = size, error
        largest = max(largest, size)
        total += size * read(segment.ceilings, k, np.float64)
    factor = np.floor(min(LANE_MAX / largest, TERM_DIVISOR * SUM_MAX / max(total, 1.0)))
    for k in range(factors.size):
        factors[k] = np.int16(factor)
        prepared.sketch_reach[k] *= factor
        prepared.sketch_error[k] *= factor
    return unit / factor


# O(4 d): entry v of a nibble's table is the sum of its 4 values, each plus where v has a one and minus elsewhere.
@kernel
def fill_sums(query, n_bits, n_components, sums):
    """Fill `sums`, float32 (G * nibbles of a code * 16,), with the partial inner products of `query`, (G * r,)."""
    first = 0
    for k in range(n_components):
        for nibble in range(0, n_bits, 4):
            sums[first] = 0
            for j in range(4):
                value = query[k * n_bits + nibble + j] if nibble + j < n_bits else np.float32(0)
                for v in range(first, first + (1 << j)):
                    sums[v + (1 << j)] = sums[v] + value
                    sums[v] -= value
            first += 16


def prepare_query(batch: Any, q: int, segment: Any, workspace: Any, i: int) -> Any:
    """Prepare query q at place i of the tile; return what one unit of ``factor * agreement`` is worth."""


@overload(prepare_query, jit_options=OPTIONS)
def pick_prepare_query(batch, q, segment, workspace, i):
    """Pick the coded or the real-valued variant at compile time."""

    def prepare_coded(batch, q, segment, workspace, i):
        planes, factors = workspace.planes[i], workspace.factors[i]
        return sketch_code(batch.words[q], batch.weights[q], batch.n_bits, segment, workspace.prepared, planes, factors)

    def prepare_real(batch, q, segment, workspace, i):
        query, n_bits, n_words = batch.vectors[q], batch.n_bits, batch.words.shape[2]
        planes, factors = workspace.planes[i], workspace.factors[i]
        fill_sums(query, n_bits, segment.n_components, workspace.sums[i])
        return sketch_vector(query, n_bits, n_words, batch.n_planes, segment, workspace.prepared, planes, factors)

    return prepare_real if is_real(batch) else prepare_coded
