"""Which blocks a search may look at: all, or those of the most used items, as many as a budget allows.

Rows that have nothing but a dense component are the items that fill most lists, and their groups stand in the order of
how many places an item fills: the last group comes first. Of a group that the budget does not cover, the rows farthest
from the centres are looked at, an equal share of each cell. What is left of the budget goes to the blocks of the other
cells that suit the query best, see `search.probe`.
"""

import numpy as np

from cccf_index.kernels.decorators import kernel
from cccf_index.kernels.memory import read, write

# What a search looks at:
PROMISING = np.int64(0)  # so many blocks as the budget says, those that suit the query best
EVERY = np.int64(1)  # first these, then all others that may hold an item that is good enough
MOST_USED = np.int64(2)  # so many blocks as the budget says, those of the most used items, see `allow_most_used`


@kernel
def count_cell_blocks(segment, first, last):
    """Return how many blocks the cells `first` to `last` have."""
    return read(segment.block_starts, last, np.int64) - read(segment.block_starts, first, np.int64)


@kernel
def allow_all(segment, call):
    """Let all blocks be looked at."""
    call.first_cell = 0
    for c in range(segment.n_cells):
        write(call.stops, c, read(segment.block_starts, c + 1, np.int64))


# O(cells).
@kernel
def allow_most_used(segment, call, budget):
    """Let only blocks of dense rows be looked at, so many of the most used, unless these are too few.

    Return how many blocks of other cells may be looked at. Filled are `stops`, and `first_cell` of the call.
    """
    allow_all(segment, call)
    last = segment.n_cells
    while last > segment.binary_stop and budget > 0:
        first = last - 1
        group = read(segment.cell_groups, first, np.int64)
        while first > segment.binary_stop and read(segment.cell_groups, first - 1, np.int64) == group:
            first -= 1
        n = count_cell_blocks(segment, first, last)
        for c in range(first, last):
            own = (count_cell_blocks(segment, c, c + 1) * min(budget, n) + n - 1) // n
            write(call.stops, c, read(segment.block_starts, c, np.int64) + own)
        budget -= min(budget, n)
        last = first
    call.first_cell = last if budget == 0 else 0
    return min(budget, count_cell_blocks(segment, 0, segment.binary_stop))
