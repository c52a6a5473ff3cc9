"""Queries prepared for a search: rounded, expanded, cut into bit planes, and measured against the cells."""

import numpy as np

from cccf_index.kernels.block import array_at, at
from cccf_index.kernels.heaps import entry, kernel


# O(G) for each query.
@entry
def round_queries(weights, scale, most, most_scale, whole, item_scale, rounded, scales, bias_scales, divisors):
    """Fill weights times their scale, rounded; return the largest, and whether all of some query were lost.

    Without a `scale` the largest weight of each query becomes `most`. If biases are multiplied too, scales are `whole`.
    Scores are to be divided by the product with `item_scale`.
    """
    largest, any_lost = 0.0, False
    for q in range(weights.shape[0]):
        peak = np.float64(0)
        for k in range(weights.shape[1]):
            peak = max(peak, np.float64(weights[q, k]))
        scales[q] = scale if scale > 0 else most / peak if peak > 0 else 1.0
        bias_scales[q] = 1
        if whole:
            scales[q] = scale if scale > 0 else np.floor(min(max(scales[q], 1.0), most_scale))
            bias_scales[q] = np.int64(scales[q])
        divisors[q] = scales[q] * item_scale
        top = np.rint(peak * scales[q])
        for k in range(weights.shape[1]):
            rounded[q, k] = np.int64(np.rint(weights[q, k] * scales[q])) if top < 2.0**62 else 0
        largest = max(largest, top)
        any_lost |= peak > 0 and top == 0
    return largest, any_lost


# O(4 d): entry v of a nibble's table is the sum of its 4 values, each plus where v has a one and minus elsewhere.
@kernel
def fill_sums(query, n_bits, n_components, sums):
    """Fill `sums` (G * nibbles of a code * 16,) with the partial inner products of `query` (G * r,)."""
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


# Invariant: no |factor * agreement| and no sum of a sketch's terms leaves 16 bits, whatever the item.
@kernel
def sketch_code(words, weights, n_bits, t, vector, reach, planes, factors):
    """Prepare the sketches of a coded query; return what one unit of ``factor * agreement`` is worth."""
    largest, total = 0.0, 0.0
    for k in range(weights.size):
        size = np.float64(weights[k]) * n_bits
        largest = max(largest, size)
        total += size * at(t.ceilings, k, np.float64)
    unit = max(largest / 32000, total / (512 * 28000))
    unit = unit if unit > 0 else 1.0
    n_words, word_bits = words.shape[1], 8 * words.itemsize
    for k in range(weights.size):
        weight = np.float64(weights[k])
        factor = np.rint(weight / unit)
        factors[k] = np.int16(factor)
        reach[0, k], reach[1, k] = weight * n_bits, factor * n_bits
        reach[2, k] = abs(weight / unit - factor) * n_bits
        for w in range(n_words):
            word = np.uint64(words[k, w])
            planes[k * n_words + w] = words[k, w]
            for j in range(k * n_bits + w * word_bits, k * n_bits + min(n_bits, (w + 1) * word_bits)):
                vector[j] = weight if word & np.uint64(1) else -weight
                word >>= np.uint64(1)
    return unit


# The same invariant. A value becomes an odd integer below 2^planes in size.
@kernel
def sketch_vector(query, n_bits, n_words, n_planes, t, vector, reach, planes, factors):
    """Prepare the sketches of a real-valued query; return what one unit of ``factor * agreement`` is worth."""
    top = 2**n_planes - 1
    word_bits = 8 * planes.itemsize
    largest, total = 0.0, 0.0
    for k in range(factors.size):
        size = 0.0
        for j in range(k * n_bits, (k + 1) * n_bits):
            vector[j] = query[j]
            size += abs(query[j])
            largest = max(largest, np.float64(abs(query[j])))
        reach[0, k] = size
        total += size * at(t.ceilings, k, np.float64)
    unit = max(largest / top, total / (512 * 22000))
    unit = unit if unit > 0 else 1.0
    planes[:] = 0
    largest, total = 0.0, 0.0
    for k in range(factors.size):
        size, error = 0.0, 0.0
        for j in range(n_bits):
            value = query[k * n_bits + j] / unit
            level = np.int64(min(max((value + top) / 2 + 0.5, 0.0), float(top)))
            size += abs(2 * level - top)
            error += abs(value - (2 * level - top))
            first = (k * n_words + j // word_bits) * n_planes
            for b in range(n_planes):
                planes[first + b] |= planes.dtype.type(((level >> (n_planes - 1 - b)) & 1) << (j % word_bits))
        reach[1, k], reach[2, k] = size, error
        largest = max(largest, size)
        total += size * at(t.ceilings, k, np.float64)
    factor = np.floor(min(32767 / largest, 512 * 27000 / max(total, 1.0)))
    for k in range(factors.size):
        factors[k] = np.int16(factor)
        reach[1, k] *= factor
        reach[2, k] *= factor
    return unit / factor


# O(cells * d), vectorised over the cells. Invariant: caps and slips are safe against rounding, and so are the radii.
@kernel
def measure_cells(t, vector, reach, products, caps, slips):
    """Fill the products with the centres, the caps by weights and the slips of sketches; return |query|."""
    n_cells = t.n_cells
    centres = array_at(t.centres, vector.size * n_cells, np.float32)
    peaks = array_at(t.peaks, t.n_components * n_cells, np.float32)
    products[:] = 0
    caps[:] = 0
    slips[:] = t.n_components + 1
    square = 0.0
    for j in range(vector.size):
        value = vector[j]
        square += np.float64(value) * value
        if value != 0:
            row = centres[j * n_cells : (j + 1) * n_cells]
            for c in range(n_cells):
                products[c] += value * row[c]
    for k in range(t.n_components):
        most = reach[0, k] * np.float32(1 + 1e-4)
        error = reach[2, k] * (1.001 / 512 / t.step)  # in float64: a step may be tiny
        certain = (reach[1, k] + reach[2, k]) * np.float32(1.001 * t.slip / 512)
        row = peaks[k * n_cells : (k + 1) * n_cells]
        for c in range(n_cells):
            caps[c] += most * row[c]
            slips[c] += np.float32(error * row[c]) + certain
    return np.sqrt(square)
