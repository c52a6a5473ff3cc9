"""The best of a list of scores in order, without comparing all of them with each other.

An item is one word: 32 bits that are smaller the larger its score is, then its place in the list of ids. Words fall
into buckets by their scores; only buckets that reach the first k places are sorted. This is faster than a heap of k
items for every k, and several times so from k = 50 on.
"""

import numpy as np

from cccf_index.kernels.decorators import kernel
from cccf_index.kernels.memory import bits_to_float, float_to_bits

MAX_BUCKETS = 4096
SHORT = 24  # words that are sorted by insertion; more by a heap
HIGH_BIT, ALL_BITS, LOW_HALF = np.uint32(2**31), np.uint32(2**32 - 1), np.uint64(2**32 - 1)
HALF = np.uint64(32)


def count_words(n: int) -> int:
    """Return how many words of uint64 `sort_best` needs for n items: twice the items, and the buckets."""
    return 2 * n + MAX_BUCKETS + 1


@kernel
def make_word(score, place):
    """Return the word of an item with a finite score; of two, the one with the larger score has the smaller word."""
    bits = float_to_bits(score + np.float32(0))  # -0.0 equals 0.0
    falling = bits if bits & HIGH_BIT else bits ^ (ALL_BITS ^ HIGH_BIT)
    return (np.uint64(falling) << HALF) | np.uint64(place)


@kernel
def read_score(word):
    """Return the score of a word."""
    falling = np.uint32(word >> HALF)
    return bits_to_float(falling if falling & HIGH_BIT else falling ^ (ALL_BITS ^ HIGH_BIT))


@kernel
def read_place(word):
    """Return the place of a word's item."""
    return np.int64(word & LOW_HALF)


@kernel
def comes_before(word, other, ids):
    """Whether an item stands above another: a larger score, or the same score and a smaller id."""
    if (word >> HALF) != (other >> HALF):
        return word < other
    return ids[read_place(word)] < ids[read_place(other)]


@kernel
def sink(words, start, n, place, word, ids):
    """Put a word into the heap of n words from `start` on, whose first is the last in order, at or below a place."""
    while True:
        child = 2 * place + 1
        if child >= n:
            break
        if child + 1 < n and comes_before(words[start + child], words[start + child + 1], ids):
            child += 1
        if not comes_before(word, words[start + child], ids):
            break
        words[start + place] = words[start + child]
        place = child
    words[start + place] = word


# O(n^2) for up to SHORT words, else O(n log n).
@kernel
def sort_bucket(words, start, stop, ids):
    """Sort the words from `start` to `stop` by score and id."""
    n = stop - start
    if n > SHORT:
        for place in range(n // 2 - 1, -1, -1):
            sink(words, start, n, place, words[start + place], ids)
        for last in range(n - 1, 0, -1):
            word = words[start + last]
            words[start + last] = words[start]
            sink(words, start, last, 0, word, ids)
        return
    for i in range(start + 1, stop):
        word, j = words[i], i
        while j > start and comes_before(word, words[j - 1], ids):
            words[j] = words[j - 1]
            j -= 1
        words[j] = word


@kernel
def choose_buckets(words, n):
    """Return the largest score, how many buckets the distance of 1 from it is, and the number of buckets."""
    low, high = words[0], words[0]
    for i in range(1, n):
        low, high = min(low, words[i]), max(high, words[i])
    best, reach = np.float64(read_score(low)), np.float64(read_score(low)) - np.float64(read_score(high))
    n_buckets = 32
    while n_buckets < n and n_buckets < MAX_BUCKETS:
        n_buckets *= 2
    return best, (n_buckets - 1) / reach if reach > 0 else 0.0, n_buckets


@kernel
def find_bucket(word, best, density):
    """Return the bucket of a word. Rounding keeps the order of scores: a larger one is never in a later bucket."""
    return np.int64((best - np.float64(read_score(word))) * density)


# O(n + k) for scores that are spread, O(n log n) at most. Invariant: bucket b begins where counts[b] says.
@kernel
def sort_best(words, n, k, ids):
    """Sort the best k of n items; return where they begin in `words`.

    words: uint64 (count_words(n),), the first n of which hold the items; ids: int64, the id at each place.
    """
    if n == 0:
        return 0
    best, density, n_buckets = choose_buckets(words, n)
    counts = 2 * n
    for b in range(counts, counts + n_buckets + 1):
        words[b] = np.uint64(0)
    for i in range(n):
        words[counts + find_bucket(words[i], best, density) + 1] += np.uint64(1)
    needed, last = np.uint64(min(k, n)), 0  # the buckets before `last` hold the best k
    while words[counts + last] < needed:
        last += 1
        words[counts + last] += words[counts + last - 1]
    for i in range(n):
        b = find_bucket(words[i], best, density)
        if b < last:
            words[n + np.int64(words[counts + b])] = words[i]
            words[counts + b] += np.uint64(1)
    start = n
    for b in range(last):  # each begins now where the one after it began
        stop = n + np.int64(words[counts + b])
        sort_bucket(words, start, stop, ids)
        start = stop
    return n
