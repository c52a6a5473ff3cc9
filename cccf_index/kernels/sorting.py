"""Sorting of what a query has found: score descending, then id ascending, the order of `heaps.is_worse`.

The sort is by digits, the lowest first: it does not guess at branches, and costs as many passes as scores have
differing digits.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from cccf_index.kernels.calls import BUCKETS
from cccf_index.kernels.decorators import INNER, ZERO, kernel
from cccf_index.kernels.memory import address_of, bits_to_float, float_to_bits, leading_zeros, read, write

FEW = 24  # items that are sorted by insertion
SIGN = np.int64(-(2**63))
EMPTY_RANK = SIGN  # below the rank of any score
LEAST_FLOAT = np.int64(-(2**31) + 2**23)  # the rank of minus infinity
MIN_BITS, MAX_BITS = 6, BUCKETS.bit_length() - 1  # of a digit


def rank_score(score: Any) -> Any:
    """Return the rank of a score, an int64 that is larger for a larger score, and equal for equal ones.

    What is no number has the lowest rank.
    """


@overload(rank_score, jit_options=INNER)
def pick_rank_score(score):
    """Pick the variant for the type of scores at compile time."""

    def rank_float(score):
        if score != score:
            return EMPTY_RANK
        bits = np.int64(float_to_bits(score + np.float32(0)))  # minus zero is zero
        return bits if bits >= 0 else np.int64(-(2**31)) - bits  # sign and size

    return rank_float if score == types.float32 else lambda score: score


@kernel
def unrank(rank, is_float):
    """Return as float64 the score of a rank; is_float: whether scores are float32. Below all ranks is -inf."""
    if not is_float:
        return np.float64(rank)
    rank = max(rank, LEAST_FLOAT)
    return np.float64(bits_to_float(np.int32(rank if rank >= 0 else np.int64(-(2**31)) - rank)))


# O(n^2), for few items.
@kernel
def sort_few(keys, places, ids, first, n):
    """Sort n pairs of (key, place) from `first` on by ascending key, then by the id of the place."""
    for j in range(first + 1, first + n):
        key, place = keys[j], places[j]
        i = j
        while i > first and (keys[i - 1] > key or (keys[i - 1] == key and ids[places[i - 1]] > ids[place])):
            keys[i], places[i] = keys[i - 1], places[i - 1]
            i -= 1
        keys[i], places[i] = key, place


# O(n + 2^n_bits).
@kernel
def deal(keys, places, new_keys, new_places, n, shift, n_bits, counts):
    """Sort n pairs of (key, place) by `n_bits` of the key from bit `shift` on, into other arrays; all are addresses.

    Pairs with equal digits stay in their order.
    """
    shift, mask, start = np.uint64(shift), np.uint64((1 << n_bits) - 1), np.int32(0)
    for digit in range(1 << n_bits):
        write(counts, digit, np.int32(0))
    for j in range(n):
        digit = np.int64((read(keys, j, np.uint64) >> shift) & mask)
        write(counts, digit, np.int32(read(counts, digit, np.int32) + 1))
    for digit in range(1 << n_bits):
        stop = np.int32(start + read(counts, digit, np.int32))
        write(counts, digit, start)
        start = stop
    for j in range(n):
        key = read(keys, j, np.uint64)
        digit = np.int64((key >> shift) & mask)
        place = read(counts, digit, np.int32)
        write(new_keys, np.int64(place), key)
        write(new_places, np.int64(place), read(places, j, np.int32))
        write(counts, digit, np.int32(place + 1))


# O(n + 2^MAX_BITS) for each digit of the range of keys.
@kernel
def sort_digits(keys, places, spare_keys, spare_places, n, counts):
    """Sort n pairs of (key, place) by ascending key, all addresses; equal keys stay in their order.

    All keys become less by the same amount.
    """
    least = most = read(keys, ZERO, np.uint64)
    for j in range(n):
        key = read(keys, j, np.uint64)
        least, most = min(least, key), max(most, key)
    for j in range(n):
        write(keys, j, read(keys, j, np.uint64) - least)
    width = 64 - np.int64(leading_zeros(most - least))
    if width == 0:
        return
    n_passes = -(-width // min(max(64 - np.int64(leading_zeros(np.uint64(n))), MIN_BITS), MAX_BITS))
    n_bits = -(-width // n_passes)
    for turn in range(n_passes):
        if turn % 2 == 0:
            deal(keys, places, spare_keys, spare_places, n, turn * n_bits, n_bits, counts)
        else:
            deal(spare_keys, spare_places, keys, places, n, turn * n_bits, n_bits, counts)
    if n_passes % 2 == 1:
        for j in range(n):
            write(keys, j, read(spare_keys, j, np.uint64))
            write(places, j, read(spare_places, j, np.int32))


# Invariant: equal keys become a run, which is then sorted by ids.
@kernel
def sort_found(ranks, ids, n, keys, places, spare_keys, spare_places, counts):
    """Set the first n of `places` to the order of n items: rank descending, then id ascending.

    ranks: int64 (n,), of scores; ids: int64 (n,), all different. Room: keys, uint64, places, int32, both twice, and
    counts, int32 (BUCKETS,).
    """
    for j in range(n):
        keys[j] = ~np.uint64(ranks[j] ^ SIGN)  # ascending as unsigned, then turned around
        places[j] = j
    if n <= FEW:
        sort_few(keys, places, ids, ZERO, n)
        return
    at_keys, at_places, at_counts = address_of(keys), address_of(places), address_of(counts)
    at_spare_keys, at_spare_places = address_of(spare_keys), address_of(spare_places)
    sort_digits(at_keys, at_places, at_spare_keys, at_spare_places, n, at_counts)
    first = np.int64(0)
    while first < n:
        stop = first + 1
        while stop < n and keys[stop] == keys[first]:
            stop += 1
        if stop - first > FEW:
            for j in range(first, stop):
                keys[j] = np.uint64(ids[places[j]] ^ SIGN)
            sort_digits(
                at_keys + 8 * first, at_places + 4 * first, at_spare_keys, at_spare_places, stop - first, at_counts
            )
        elif stop - first > 1:
            sort_few(keys, places, ids, first, stop - first)
        first = stop
