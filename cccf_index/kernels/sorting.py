"""The best of a list of scores in order, without a heap.

A comparison of scores in random order cannot be predicted, and costs more than moving them twice. So scores become
whole steps below the best one, thousands or millions of them, which two passes sort by their lower and upper digits;
only items on the same step are compared.
"""

import numpy as np

from cccf_index.kernels.decorators import ZERO, kernel
from cccf_index.kernels.memory import bits_to_float, float_to_bits

FEW, MANY = 128, 1024  # up to so many items digits have 6 and 8 bits, then 11
MAX_DIGIT = 2**11
SHORT = 24  # items that are sorted by insertion; more by a heap
HALF, LOW_HALF = np.uint64(32), np.uint64(2**32 - 1)


def count_words(n: int) -> int:
    """Return how many words of uint64 `sort_best` needs for n items: places twice, scores, and the counts of digits."""
    return 3 * n + 2 * MAX_DIGIT


@kernel
def write_score(words, n, place, score):
    """Keep the score of the item at a place of n."""
    words[2 * n + place] = np.uint64(float_to_bits(score + np.float32(0)))  # -0.0 becomes 0.0


@kernel
def read_score(words, n, place):
    """Return the score of the item at a place of n."""
    return bits_to_float(np.uint32(words[2 * n + place]))


@kernel
def comes_before(words, n, ids, word, other):
    """Whether an item stands above another: a larger score, or the same score and a smaller id."""
    place, other_place = np.int64(word & LOW_HALF), np.int64(other & LOW_HALF)
    score, other_score = read_score(words, n, place), read_score(words, n, other_place)
    return score > other_score or (score == other_score and ids[place] < ids[other_place])


# O(log m). Invariant: the first word of the heap is the last in order.
@kernel
def sink(words, n, ids, start, m, place, word):
    """Put a word into the heap of m words from `start` on, at a place or below it."""
    while True:
        child = 2 * place + 1
        if child >= m:
            break
        if child + 1 < m and comes_before(words, n, ids, words[start + child], words[start + child + 1]):
            child += 1
        if not comes_before(words, n, ids, word, words[start + child]):
            break
        words[start + place] = words[start + child]
        place = child
    words[start + place] = word


# O(m^2) for up to SHORT words, else O(m log m).
@kernel
def sort_by_comparison(words, n, ids, start, stop):
    """Sort the words from `start` to `stop` by score and id."""
    m = stop - start
    if m > SHORT:
        for place in range(m // 2 - 1, -1, -1):
            sink(words, n, ids, start, m, place, words[start + place])
        for last in range(m - 1, 0, -1):
            word = words[start + last]
            words[start + last] = words[start]
            sink(words, n, ids, start, last, ZERO, word)
        return
    for i in range(start + 1, stop):
        word, j = words[i], i
        while j > start and comes_before(words, n, ids, word, words[j - 1]):
            words[j] = words[j - 1]
            j -= 1
        words[j] = word


# Rounding keeps the order: a larger score has no more steps.
@kernel
def write_steps(words, n, m, bits):
    """Put the steps of m items before their places in the first m words, and count their digits."""
    low = high = np.float64(read_score(words, n, np.int64(words[0])))
    for i in range(1, m):
        score = np.float64(read_score(words, n, np.int64(words[i])))
        low, high = min(low, score), max(high, score)
    n_steps = 1 << (2 * bits)
    per_score = (n_steps - 1) / (high - low) if high > low else 0.0
    counts, size = 3 * n, 1 << bits
    for i in range(counts, counts + 2 * size):
        words[i] = np.uint64(0)
    for i in range(m):
        steps = np.int64((high - np.float64(read_score(words, n, np.int64(words[i])))) * per_score)
        words[i] |= np.uint64(steps) << HALF
        words[counts + (steps & (size - 1))] += np.uint64(1)
        words[counts + size + (steps >> bits)] += np.uint64(1)


@kernel
def move_by_digit(words, source, target, m, counts, size, shift):
    """Move m words from `source` to `target`, sorted by the digit at `shift` and else in the same order."""
    begin = np.uint64(target)
    for i in range(counts, counts + size):
        begin, words[i] = begin + words[i], begin
    for i in range(source, source + m):
        place = counts + (np.int64(words[i] >> shift) & (size - 1))
        words[np.int64(words[place])] = words[i]
        words[place] += np.uint64(1)


# O(m + k) unless scores crowd in a small part of their range, then O(m log m).
@kernel
def sort_best(words, n, m, k, ids):
    """Sort the first m words, places of items whose scores were written, until the best k come first in order.

    words: uint64 (count_words(n),); m: at most n; ids: int64 (n,), the id at each place. Read results by `read_place`.
    """
    if m <= SHORT:
        sort_by_comparison(words, n, ids, ZERO, m)
        return
    bits = 6 if m <= FEW else 8 if m <= MANY else 11
    write_steps(words, n, m, bits)
    counts, size = 3 * n, 1 << bits
    move_by_digit(words, ZERO, n, m, counts, size, HALF)
    move_by_digit(words, n, ZERO, m, counts + size, size, HALF + np.uint64(bits))
    start = ZERO
    while start < min(k, m):
        stop = start + 1
        while stop < m and (words[stop] >> HALF) == (words[start] >> HALF):
            stop += 1
        if stop > start + 1:
            sort_by_comparison(words, n, ids, start, stop)
        start = stop


@kernel
def read_place(words, rank):
    """Return the place of the item of a rank below k."""
    return np.int64(words[rank] & LOW_HALF)
