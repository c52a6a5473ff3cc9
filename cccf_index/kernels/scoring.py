"""Exact scores: the sum of ``query weight * item weight * (r - 2 * hamming)`` over components from first to last.

It does not depend on where an item stands, so neither do results.
"""

from typing import Any

import numpy as np
from numba.extending import overload

from cccf_index.kernels.batches import is_real
from cccf_index.kernels.decorators import OPTIONS, kernel
from cccf_index.kernels.memory import popcount, read, view_array


@kernel
def start_scores(scores, n, row, segment, bias_scale):
    """Set the first n scores to the biases of the rows from `row` on, or to zero."""
    number = scores.dtype.type
    for i in range(n):
        if segment.bias == 0:
            scores[i] = 0
        elif segment.float_bias:
            scores[i] = number(read(segment.bias, row + i, np.float32)) * bias_scale
        else:
            scores[i] = number(read(segment.bias, row + i, np.int32)) * bias_scale


@kernel
def find_slot(segment, group, k, row):
    """Return where a row of a group stands in component k's shard, or -1 if the group lacks the component."""
    slot = read(segment.slots, group * segment.n_components + k, np.int64)
    return slot if slot < 0 else slot + row - read(segment.starts, group, np.int64)


@kernel
def code_address(segment, k, slot, code_size):
    """Return the address of the code at a slot of component k."""
    return read(segment.shards, k, np.int64) + slot * code_size


@kernel
def weight_address(segment, k, slot, item_weights):
    """Return the address of the weight at a slot of component k."""
    return segment.weights + (read(segment.bases, k, np.int64) + slot) * item_weights.itemsize


# O(n) for each component that the query and the group share. Invariant: row .. row + n lie in the group.
@kernel
def score_codes(scores, n, row, group, segment, item_weights, words, query_weights, n_bits):
    """Add the scores of n rows from `row` on, for the query code `words` (G, W) with its weights (G,)."""
    n_words = words.shape[1]
    number = scores.dtype.type
    for k in range(segment.n_components):
        query_weight = query_weights[k]
        slot = find_slot(segment, group, k, row)
        if slot < 0 or query_weight == 0:
            continue
        codes = view_array(code_address(segment, k, slot, n_words * words.itemsize), n * n_words, words)
        weights = view_array(weight_address(segment, k, slot, item_weights), n, item_weights)
        if n_words == 1:
            word = words[k, 0]
            for i in range(n):
                agreement = n_bits - 2 * np.int32(popcount(codes[i] ^ word))
                scores[i] += query_weight * number(weights[i]) * number(agreement)
        else:
            for i in range(n):
                hamming = np.int32(0)
                for w in range(n_words):
                    hamming += np.int32(popcount(codes[i * n_words + w] ^ words[k, w]))
                scores[i] += query_weight * number(weights[i]) * number(n_bits - 2 * hamming)


# O(n * r / 4) for each component of the group. Invariant: row .. row + n lie in the group.
@kernel
def score_vector(scores, n, row, group, segment, item_weights, sums, code_size, n_bits):
    """Add the scores of n rows for a real-valued query, given by its `sums` for every nibble of a code."""
    n_nibbles = (n_bits + 3) // 4
    for k in range(segment.n_components):
        slot = find_slot(segment, group, k, row)
        if slot < 0:
            continue
        codes = view_array(code_address(segment, k, slot, code_size), n * code_size, np.uint8)
        weights = view_array(weight_address(segment, k, slot, item_weights), n, item_weights)
        for i in range(n):
            total = np.float32(0)
            for b in range(n_nibbles):
                octet = np.int64(codes[i * code_size + (b >> 1)])
                total += sums[(k * n_nibbles + b) * 16 + ((octet >> (4 * (b & 1))) & 15)]
            scores[i] += np.float32(weights[i]) * total


def add_item_scores(scores: Any, n: int, row: int, group: int, segment: Any, batch: Any, q: int, sums: Any) -> None:
    """Add the scores of n rows of a group, from `row` on, for query q; sums: of a real-valued query."""


@overload(add_item_scores, jit_options=OPTIONS)
def pick_add_item_scores(scores, n, row, group, segment, batch, q, sums):
    """Pick the coded or the real-valued variant at compile time."""

    def add_coded(scores, n, row, group, segment, batch, q, sums):
        words, weights = batch.words[q], batch.weights[q]
        score_codes(scores, n, row, group, segment, batch.item_weights, words, weights, batch.n_bits)

    def add_real(scores, n, row, group, segment, batch, q, sums):
        code_size = batch.words.shape[2] * batch.words.itemsize
        score_vector(scores, n, row, group, segment, batch.item_weights, sums, code_size, batch.n_bits)

    return add_real if is_real(batch) else add_coded
