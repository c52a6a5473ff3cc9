"""What must not be returned: deleted items, items that a selector leaves out, and items excluded for one query.

Seen items score high, so most rows that a search finds for a user with a long history are excluded. A small hash table
for each query of the tile says at once where in the query's list an id would be.
"""

import numpy as np

from cccf_index.kernels.decorators import kernel
from cccf_index.kernels.limits import BLOCK, HASH_BITS, HASH_SLOTS
from cccf_index.kernels.lookup import find_sorted, get_stored, read_id
from cccf_index.kernels.memory import lowest_bit, read, read_bits, view_row

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / the golden ratio: its product spreads ids over the upper bits
SHARED = np.uint16(2**16 - 1)  # a slot of several ids, or of one beyond what a slot can hold


@kernel
def find_slot(identity):
    """Return the slot of an id."""
    return np.int64((np.uint64(identity) * GOLDEN) >> np.uint64(64 - HASH_BITS))


# O(slots / 32 + ids of the query). Invariant: a slot holds 0 if no id of the query has it, 1 + the place of the id in
# the query's list if one has, else SHARED.
@kernel
def fill_excluded(call, q, i):
    """Make the hash table of query q at place i of the tile, which `is_excluded` needs."""
    if call.exclude_ids == 0:
        return
    slots = view_row(call.excluded_slots, i, HASH_SLOTS, np.uint16)
    for slot in range(HASH_SLOTS):
        slots[slot] = 0
    start, stop = read(call.exclude_starts, q, np.int64), read(call.exclude_starts, q + 1, np.int64)
    for place in range(stop - start):
        slot = find_slot(read(call.exclude_ids, start + place, np.int64))
        slots[slot] = SHARED if slots[slot] != 0 or place + 1 >= SHARED else np.uint16(place + 1)


# O(1) for most ids, else O(log of the query's ids).
@kernel
def is_excluded(call, i, q, identity):
    """Whether an id is excluded for query q, whose hash table is at place i of the tile."""
    if call.exclude_ids == 0:
        return False
    slot = read(call.excluded_slots, i * HASH_SLOTS + find_slot(identity), np.uint16)
    if slot == 0:
        return False
    start = read(call.exclude_starts, q, np.int64)
    if slot != SHARED:
        return read(call.exclude_ids, start + np.int64(slot) - 1, np.int64) == identity
    stop = read(call.exclude_starts, q + 1, np.int64)
    return find_sorted(get_stored, call.exclude_ids, start, stop, identity) >= 0


# O(rows in `found`).
@kernel
def drop_excluded(found, row, segment, call, i, q):
    """Return the bits of `found`, rows from `row` on, without those whose items are excluded for query q."""
    if call.exclude_ids == 0:
        return found
    left = found
    while found:
        lowest = found & (~found + np.uint64(1))
        if is_excluded(call, i, q, read_id(segment, row + np.int64(lowest_bit(found)))):
            left ^= lowest
        found ^= lowest
    return left


@kernel
def is_deleted(call, row):
    """Whether a row is deleted, or not selected."""
    return call.deleted != 0 and ((read(call.deleted, row >> 3, np.uint8) >> (row & 7)) & 1) != 0


# A few instructions for 64 rows. No byte is read that has no bit of the block.
@kernel
def find_deleted(call, row, n):
    """Return a bit for each of the n rows, at most 64, from `row` on: 1 if it is deleted, or not selected."""
    if call.deleted == 0:
        return np.uint64(0)
    if n < BLOCK:
        bits = np.uint64(0)
        for j in range(n):
            if is_deleted(call, row + j):
                bits |= np.uint64(1) << np.uint64(j)
        return bits
    first, offset = row >> 3, np.uint64(row & 7)
    bits = read_bits(call.deleted + first) >> offset
    if offset:
        bits |= np.uint64(read(call.deleted, first + 8, np.uint8)) << (np.uint64(64) - offset)
    return bits
