"""Kernels that build segments."""

import numpy as np

from cccf_index.kernels.decorators import entry
from cccf_index.kernels.memory import address_of
from cccf_index.kernels.stored import read_weight


# O(n * d), of float64 sums.
@entry
def fill_distances(octets, weights, weight_size, is_float, n_bits, cells, centres, distances):
    """Fill the distance of each row's expanded vector from the centre of its cell.

    octets: uint8 (n, G, bytes of a code); weights: uint8 (n, G * weight_size), the bytes of float32 or unsigned
    integers; cells: int64 (n,); centres: float32 (cells, G * r); distances: float64 (n,). As bytes, so that one kernel
    serves all types.
    """
    n_components, address = octets.shape[1], address_of(weights)
    for i in range(distances.size):
        square = 0.0
        for k in range(n_components):
            weight = read_weight(address, i * n_components + k, weight_size, is_float, np.float64)
            for j in range(n_bits):
                bit = (octets[i, k, j >> 3] >> np.uint8(j & 7)) & np.uint8(1)
                off = (weight if bit else -weight) - centres[cells[i], k * n_bits + j]
                square += off * off
        distances[i] = np.sqrt(square)
