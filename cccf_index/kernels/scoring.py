"""Exact scores: the sum of ``query weight * item weight * (r - 2 * hamming)`` over components from first to last.

It does not depend on where an item stands, so neither do results. Scores are computed for at most BLOCK rows at a time,
in int64 or float32, the `number`.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from cccf_index.kernels.decorators import INNER, kernel
from cccf_index.kernels.limits import SUMS
from cccf_index.kernels.memory import popcount, read, view_row


@kernel
def copy_converted(address, first, n, kind, out):
    """Set the first n of `out` to the values of a kind from place `first` on."""
    number = out.dtype.type
    for i in range(n):
        out[i] = number(read(address, first + i, kind))


@kernel
def bias_scale(call, q):
    """Return what items' biases are multiplied by for query q."""
    return np.int64(1) if call.bias_scales == 0 else read(call.bias_scales, q, np.int64)


@kernel
def start_scores(scores, n, row, segment, call, q):
    """Set the first n scores for query q to the biases of the rows from `row` on, or to zero."""
    if segment.bias == 0:
        for i in range(n):
            scores[i] = 0
        return
    if segment.float_weights:
        copy_converted(segment.bias, row, n, np.float32, scores)
    else:
        copy_converted(segment.bias, row, n, np.int32, scores)
    factor = scores.dtype.type(bias_scale(call, q))
    for i in range(n):
        scores[i] *= factor


@kernel
def find_slot(segment, group, k, row):
    """Return where a row of a group stands in component k's shard, or -1 if the group lacks the component."""
    slot = read(segment.slots, group * segment.n_components + k, np.int64)
    return slot if slot < 0 else slot + row - read(segment.starts, group, np.int64)


@kernel
def read_weight(address, place, size, is_float, number):
    """Return a weight as `number`; size: its bytes."""
    if size == 1:
        return number(read(address, place, np.uint8))
    if size == 2:
        return number(read(address, place, np.uint16))
    return number(read(address, place, np.float32)) if is_float else number(read(address, place, np.uint32))


@kernel
def read_weights(segment, k, slot, n, out):
    """Set the first n of `out` to the weights from a slot of component k on."""
    first = read(segment.bases, k, np.int64) + slot
    if segment.weight_size == 1:
        copy_converted(segment.weights, first, n, np.uint8, out)
    elif segment.weight_size == 2:
        copy_converted(segment.weights, first, n, np.uint16, out)
    elif segment.float_weights:
        copy_converted(segment.weights, first, n, np.float32, out)
    else:
        copy_converted(segment.weights, first, n, np.uint32, out)


# O(n) for each component that the query and the group share. Invariant: row .. row + n lie in the group.
@kernel
def score_codes(scores, n, row, group, segment, call, q, word):
    """Add the scores of n rows from `row` on, for coded query q; word: the type of the codes' words."""
    number, n_words, n_bits = scores.dtype.type, call.n_words, call.n_bits
    words = view_row(call.words, q, segment.n_components * n_words, word)
    query_weights = view_row(call.weights, q, segment.n_components, number)
    weights = view_row(call.block_weights, 0, n, number)
    for k in range(segment.n_components):
        query_weight = query_weights[k]
        slot = find_slot(segment, group, k, row)
        if slot < 0 or query_weight == 0:
            continue
        codes = read(segment.shards, k, np.int64)
        read_weights(segment, k, slot, n, weights)
        if n_words == 1:
            for i in range(n):
                hamming = np.int32(popcount(read(codes, slot + i, word) ^ words[k]))
                scores[i] += query_weight * weights[i] * number(n_bits - 2 * hamming)
        else:
            for i in range(n):
                hamming = np.int32(0)
                for w in range(n_words):
                    code = read(codes, (slot + i) * n_words + w, word)
                    hamming += np.int32(popcount(code ^ words[k * n_words + w]))
                scores[i] += query_weight * weights[i] * number(n_bits - 2 * hamming)


# O(n * r / 4) for each component of the group. Invariant: row .. row + n lie in the group.
@kernel
def score_vector(scores, n, row, group, segment, call, place):
    """Add the scores of n rows for the real-valued query at a place of the tile, by its sums for half bytes."""
    code_size, n_bytes = call.n_words * call.word_size, (call.n_bits + 7) // 8
    table_size = n_bytes * SUMS * 4
    sums = call.sums + place * segment.n_components * table_size
    weights, size, is_float = segment.weights, segment.weight_size, segment.float_weights
    for k in range(segment.n_components):
        slot = find_slot(segment, group, k, row)
        if slot >= 0:
            first = read(segment.bases, k, np.int64) + slot
            code = read(segment.shards, k, np.int64) + slot * code_size
            for i in range(n):
                total = np.float32(0)
                for b in range(n_bytes):
                    octet = np.int64(read(code, b, np.uint8))
                    total += read(sums, SUMS * b + (octet & 15), np.float32)
                    total += read(sums, SUMS * b + 16 + (octet >> 4), np.float32)
                scores[i] += read_weight(weights, first + i, size, is_float, np.float32) * total
                code += code_size
        sums += table_size


def score_rows(
    scores: Any, n: int, row: int, group: int, segment: Any, call: Any, q: int, i: int, word: Any, real: Any
) -> None:
    """Fill the scores of n rows of a group, at most BLOCK, from `row` on, for query q at place i of the tile."""


@overload(score_rows, jit_options=INNER)
def pick_score_rows(scores, n, row, group, segment, call, q, i, word, real):
    """Pick the coded or the real-valued variant at compile time."""

    def score_coded(scores, n, row, group, segment, call, q, i, word, real):
        start_scores(scores, n, row, segment, call, q)
        score_codes(scores, n, row, group, segment, call, q, word)

    def score_real(scores, n, row, group, segment, call, q, i, word, real):
        start_scores(scores, n, row, segment, call, q)
        score_vector(scores, n, row, group, segment, call, i)

    return score_coded if isinstance(real, types.NoneType) else score_real
