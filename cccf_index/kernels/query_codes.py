"""Queries that are expanded codes are recognised among vectors."""

import numpy as np

from cccf_index.kernels.decorators import entry, kernel
from cccf_index.kernels.linear_algebra import multiply_rows


# O(d).
@kernel
def read_code(vector, n_bits, words, weights):
    """Write the code and the weights of a vector; return False where its values in a component differ in size."""
    n_components, n_words = words.shape
    word_bits = 8 * words.itemsize
    for k in range(n_components):
        first = k * n_bits
        weight = abs(vector[first])
        for j in range(first + 1, first + n_bits):
            if abs(vector[j]) != weight:
                return False
        for w in range(n_words):
            start, bits = w * word_bits, np.uint64(0)
            for j in range(min(word_bits, n_bits - start)):
                bits |= np.uint64(vector[first + start + j] > 0) << np.uint64(j)
            words[k, w] = bits
        weights[k] = weight
    return True


# O(d) for each vector.
@entry
def read_codes(vectors, n_bits, most_squares, words, weights):
    """Recognise expanded codes; return how many there are, and whether no sum of squares is above `most_squares`.

    vectors: float32 (n, G * r). Filled are words: (n, G, W), and weights: float32 (n, G), of which the first of a
    vector is -1 where it is no code.
    """
    n_codes, is_safe = 0, True
    for q in range(vectors.shape[0]):
        is_safe &= multiply_rows(vectors[q], vectors[q]) <= most_squares  # which NaN is not
        if read_code(vectors[q], n_bits, words[q], weights[q]):
            n_codes += 1
        else:
            weights[q, 0] = -1
    return n_codes, is_safe
