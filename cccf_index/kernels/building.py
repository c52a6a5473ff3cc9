"""Kernels that build segments."""

from typing import Any

import numpy as np

from cccf_index.kernels.decorators import entry


# O(n * d), of float64 sums.
@entry
def fill_distances(words: Any, weights: Any, n_bits: Any, cells: Any, centres: Any, distances: Any) -> None:
    """Fill the distance of each row's expanded vector from the centre of its cell.

    words: (n, G, W); weights: (n, G); cells: int64 (n,); centres: float32 (cells, G * r); distances: float64 (n,).
    """
    word_bits = 8 * words.itemsize
    for i in range(distances.size):
        square = 0.0
        for k in range(weights.shape[1]):
            weight = np.float64(weights[i, k])
            for j in range(n_bits):
                bit = (np.uint64(words[i, k, j // word_bits]) >> np.uint64(j % word_bits)) & np.uint64(1)
                off = (weight if bit else -weight) - centres[cells[i], k * n_bits + j]
                square += off * off
        distances[i] = np.sqrt(square)
