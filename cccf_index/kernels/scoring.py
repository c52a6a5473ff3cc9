"""Exact scores: the sum of ``query weight * item weight * (r - 2 * hamming)`` over components from first to last.

The dense component comes after them. It does not depend on where an item stands, so neither do results. Scores are
computed for at most BLOCK rows at a time, in int64 or float32, the `number`.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from cccf_index.kernels.decorators import INNER, ZERO, kernel
from cccf_index.kernels.dense import add_dense
from cccf_index.kernels.limits import SUMS
from cccf_index.kernels.memory import address_of, popcount, read, view_row, write
from cccf_index.kernels.stored import (
    bias_scale,
    find_slot,
    has_component,
    read_bias,
    read_weight,
    read_weights,
)


@kernel
def start_scores(scores, n, row, segment, call, q):
    """Set the first n scores for query q to the biases of the rows from `row` on, or to zero."""
    if segment.bias == 0:
        for i in range(n):
            scores[i] = 0
        return
    number, factor = scores.dtype.type, bias_scale(call, q)
    for i in range(n):
        scores[i] = number(read_bias(segment, row + i)) * number(factor)


# O(n) for each component that the query and the group share. Invariant: row .. row + n lie in the group.
@kernel
def score_codes(scores, n, row, group, segment, call, q, word):
    """Add the scores of n rows from `row` on, for coded query q; word: the type of the codes' words."""
    number, n_words, n_bits = scores.dtype.type, call.n_words, call.n_bits
    words = view_row(call.words, q, segment.n_components * n_words, word)
    query_weights = view_row(call.weights, q, call.n_weights, number)
    weights = view_row(call.block_weights, 0, n, number)
    for k in range(segment.n_components):
        query_weight = query_weights[k]
        if query_weight == 0 or not has_component(segment, group, k):
            continue
        slot = find_slot(segment, group, k, row)
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


@kernel
def read_sum(sums, b, octet):
    """Return the inner product of 8 values of a query with byte b of a code."""
    return read(sums, SUMS * b + (octet & 15), np.float32) + read(sums, SUMS * b + 16 + (octet >> 4), np.float32)


# O(n * r / 4) for each component of the group. Invariant: row .. row + n lie in the group.
@kernel
def score_vector(scores, n, row, group, segment, call, place):
    """Add the scores of n rows for the real-valued query at a place of the tile, by its sums for half bytes."""
    code_size, n_bytes = call.n_words * call.word_size, (call.n_bits + 7) // 8
    table_size = n_bytes * SUMS * 4
    sums = call.sums + place * segment.n_components * table_size
    weights, size, is_float = segment.weights, segment.weight_size, segment.float_weights
    for k in range(segment.n_components):
        if has_component(segment, group, k):
            slot = find_slot(segment, group, k, row)
            first = read(segment.bases, k, np.int64) + slot
            code = read(segment.shards, k, np.int64) + slot * code_size
            for i in range(n):
                total = np.float32(0)
                for b in range(n_bytes):
                    total += read_sum(sums, b, np.int64(read(code, b, np.uint8)))
                scores[i] += read_weight(weights, first + i, size, is_float, np.float32) * total
                code += code_size
        sums += table_size


# O(n) for each component that the query and the group share. Bit for bit the scores of `score_codes`.
@kernel
def score_scattered_codes(scores, n, rows, group, segment, call, q, word, number):
    """Add the scores of n rows of a group, wherever they are, for coded query q; scores, rows: addresses."""
    n_words, n_bits = call.n_words, call.n_bits
    words = call.words + q * segment.n_components * n_words * call.word_size
    weights, size, is_float = segment.weights, segment.weight_size, segment.float_weights
    for k in range(segment.n_components):
        query_weight = read(call.weights, q * call.n_weights + k, number)
        if query_weight == 0 or not has_component(segment, group, k):
            continue
        slot, first = find_slot(segment, group, k, ZERO), k * n_words  # where row 0 would stand
        codes, base = read(segment.shards, k, np.int64), read(segment.bases, k, np.int64) + slot
        for i in range(n):
            row = read(rows, i, np.int64)
            hamming = np.int32(popcount(read(codes, (slot + row) * n_words, word) ^ read(words, first, word)))
            for w in range(1, n_words):
                code = read(codes, (slot + row) * n_words + w, word)
                hamming += np.int32(popcount(code ^ read(words, first + w, word)))
            weight = read_weight(weights, base + row, size, is_float, number)
            write(scores, i, number(read(scores, i, number) + query_weight * weight * number(n_bits - 2 * hamming)))


# O(n * r / 4) for each component of the group. Bit for bit the scores of `score_vector`.
@kernel
def score_scattered_vector(scores, n, rows, group, segment, call, place):
    """Add the scores of n rows of a group for the real-valued query at a place of the tile; scores, rows: addresses."""
    code_size, n_bytes = call.n_words * call.word_size, (call.n_bits + 7) // 8
    table_size = n_bytes * SUMS * 4
    sums = call.sums + place * segment.n_components * table_size
    weights, size, is_float = segment.weights, segment.weight_size, segment.float_weights
    for k in range(segment.n_components):
        if has_component(segment, group, k):
            slot = find_slot(segment, group, k, ZERO)  # where row 0 would stand
            codes, base = read(segment.shards, k, np.int64), read(segment.bases, k, np.int64) + slot
            for i in range(n):
                row = read(rows, i, np.int64)
                code = codes + (slot + row) * code_size
                total = read_sum(sums, ZERO, np.int64(read(code, ZERO, np.uint8)))
                for b in range(1, n_bytes):
                    total += read_sum(sums, b, np.int64(read(code, b, np.uint8)))
                weight = read_weight(weights, base + row, size, is_float, np.float32)
                write(scores, i, read(scores, i, np.float32) + weight * total)
        sums += table_size


@kernel
def start_scattered(scores, n, rows, segment, call, q, number):
    """Set the first n scores for query q to the biases of rows, or to zero; scores, rows: addresses."""
    has_bias, factor = segment.bias != 0, number(bias_scale(call, q))
    for i in range(n):
        bias = number(read_bias(segment, read(rows, i, np.int64))) * factor if has_bias else number(0)
        write(scores, i, number(bias))


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
        at, number = address_of(scores), scores.dtype.type
        add_dense(at, n, ZERO, row, group, segment, call, q, i, number, real)

    def score_real(scores, n, row, group, segment, call, q, i, word, real):
        start_scores(scores, n, row, segment, call, q)
        score_vector(scores, n, row, group, segment, call, i)
        at, number = address_of(scores), scores.dtype.type
        add_dense(at, n, ZERO, row, group, segment, call, q, i, number, real)

    return score_coded if isinstance(real, types.NoneType) else score_real


def score_scattered(
    scores: int, n: int, rows: int, group: int, segment: Any, call: Any, q: int, i: int, word: Any, number: Any,
    real: Any,
) -> None:  # fmt: skip
    """Fill the scores of n rows of a group, wherever they are, for query q at place i of the tile.

    scores, rows: addresses, of `number` and int64.
    """


@overload(score_scattered, jit_options=INNER)
def pick_score_scattered(scores, n, rows, group, segment, call, q, i, word, number, real):
    """Pick the coded or the real-valued variant at compile time."""

    def score_coded(scores, n, rows, group, segment, call, q, i, word, number, real):
        start_scattered(scores, n, rows, segment, call, q, number)
        score_scattered_codes(scores, n, rows, group, segment, call, q, word, number)
        add_dense(scores, n, rows, ZERO, group, segment, call, q, i, number, real)

    def score_real(scores, n, rows, group, segment, call, q, i, word, number, real):
        start_scattered(scores, n, rows, segment, call, q, number)
        score_scattered_vector(scores, n, rows, group, segment, call, i)
        add_dense(scores, n, rows, ZERO, group, segment, call, q, i, number, real)

    return score_coded if isinstance(real, types.NoneType) else score_real
