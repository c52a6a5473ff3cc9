"""Limits of codes, and why no sketch overflows: every constant of the proof stands here with its arithmetic.

A sketch estimates a score in a lane of 16 bits: the sum of ``floor(factor * agreement * coarse / TERM_DIVISOR)`` over
components, where ``factor`` stands for the query's weight, ``agreement`` for how far code and query agree, and
``coarse`` for the item's weight in one byte. Two things must stay within a lane, whatever the item:
``factor * agreement``, and the sum.
"""

MAX_COMPONENTS = 64  # a set of components is one 64-bit mask
MAX_BITS = 512
BLOCK = 64  # rows of a block: those that reach a limit are one 64-bit mask

LANE_MAX = 2**15 - 1
TERM_DIVISOR = 2**9  # a term is the upper half of the 32 bits of (factor * agreement) * (coarse * 2^7): / 2^16 * 2^7
ENTRY_MAX = 127  # half bytes of codes look up whole numbers from -ENTRY_MAX to ENTRY_MAX, stored as bytes from 0 on
MAX_LOOKUPS = MAX_BITS // 4
assert 2 * ENTRY_MAX * MAX_LOOKUPS < 2**16

VALUE_MAX = 127  # values of the dense component are at most so large; -128 is one, too
DENSE_STEP = 16  # dimensions of the dense component come in multiples of it
MAX_DENSE = 4096
# Integer weights of the dense component are 2^DENSE_SHIFT times finer than those of binary ones: an item's values are
# many times smaller than its length.
DENSE_SHIFT = 8
STRIP = 16  # rows whose values stand together,
QUAD = 4  # so many bytes of each
PIECE = QUAD * STRIP  # bytes
STAGE_GROWTH = 4  # stages begin after one step of dimensions, after 4, after 16, and so on
LONGEST_RUN = 4  # steps of dimensions whose products are summed before they are converted to float32
MAX_PRECISIONS = 5  # of a segment: so many groups of rows have a dense component
TOGETHER = 4  # queries that are multiplied with a block of dense rows at a time
DENSE_REACH = 2**22  # a score of the dense component is at most so many units of a sketch

HASH_BITS = 11  # of the hash tables of excluded ids: 4 KB for each query of a tile
HASH_SLOTS = 2**HASH_BITS

SUMS = 32  # partial inner products for each byte of a code: 16 for each half of it

COARSE_MAX = 255
MAX_SHIFT = 7  # coarse weights of a block of small ones are multiplied by up to 2^MAX_SHIFT; the proof holds for those
COARSE_ERROR = 0.501  # of a coarse weight: half a unit, and the rounding of the division
# n_bits * (coarse + COARSE_ERROR) is at most this, as `max_coarse` keeps n_bits * coarse <= LANE_MAX
COARSE_REACH = LANE_MAX + MAX_BITS * COARSE_ERROR

# The floor of each term takes away less than 1, and 1 more is left for the rounding of float64.
SUM_MAX = LANE_MAX - MAX_COMPONENTS - 1
# Coded queries: rounding a factor moves it by at most 1/2, so |factor * agreement| by n_bits / 2 ...
CODED_PEAK = LANE_MAX - MAX_BITS / 2
# ... and each term of the sum by coarse * n_bits / 2 / TERM_DIVISOR.
CODED_SUM = SUM_MAX - MAX_COMPONENTS * COARSE_REACH / 2 / TERM_DIVISOR
# Real-valued queries: rounding an entry moves it by at most 1/2, so |factor * agreement| by factor / 2 for each lookup.
# The factor is rounded up to a whole number; what a whole 1 more adds to that is left out of the peak ...
REAL_PEAK = LANE_MAX - MAX_LOOKUPS / 2
# ... and of the sum: coarse * n_bits / 4 / 2 / TERM_DIVISOR for each term.
REAL_SUM = SUM_MAX - MAX_COMPONENTS * COARSE_REACH / 8 / TERM_DIVISOR


def max_coarse(n_bits: int) -> int:
    """Return the largest coarse weight for codes of `n_bits`, so that ``n_bits * coarse <= LANE_MAX``."""
    return min(COARSE_MAX, LANE_MAX // n_bits)
