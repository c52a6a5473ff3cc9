"""Ids and rows: the id of a row, and binary search for the row of an id."""

import numpy as np

from cccf_index.kernels.decorators import ZERO, entry, kernel
from cccf_index.kernels.memory import address_of, read, view_segment


@kernel
def read_id(segment, row):
    """Return the id of a row."""
    if segment.id_offsets == 0:
        return segment.first_id + row
    if segment.id_size == 4:
        return segment.first_id + np.int64(read(segment.id_offsets, row, np.uint32))
    return segment.first_id + read(segment.id_offsets, row, np.int64)


# O(log n).
@kernel
def find_sorted(get, source, start, stop, wanted):
    """Return the place of a value among the ascending ``get(source, place)`` from `start` to `stop`, or -1."""
    low, high = np.int64(start), np.int64(stop)
    while low < high:
        middle = (low + high) // 2
        if get(source, middle) < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < stop and get(source, low) == wanted else np.int64(-1)


@kernel
def get_element(array, place):
    """Return one element, for `find_sorted`."""
    return array[place]


@kernel
def get_stored(address, place):
    """Return one int64 of those at an address, for `find_sorted`."""
    return read(address, place, np.int64)


@kernel
def read_row(address, place, size):
    """Return one row of those at an address, which are unsigned integers of `size` bytes."""
    if size == 1:
        return np.int64(read(address, place, np.uint8))
    if size == 2:
        return np.int64(read(address, place, np.uint16))
    return np.int64(read(address, place, np.uint32)) if size == 4 else read(address, place, np.int64)


@kernel
def get_ordered_id(source, place):
    """Return the id at a place of the ascending order of a segment's ids, for `find_sorted`."""
    segment, address, size = source
    return read_id(segment, read_row(address, place, size))


# O(log n) for each wanted id.
@entry
def find_rows(address, wanted, order, size, rows):
    """Fill `rows` with the row of each wanted id in the segment at an address, or -1.

    wanted: int64 (m,); order: uint8, the bytes of the rows by ascending id, `size` for each; rows: int64 (m,).
    """
    segment, ordered, n = view_segment(address), address_of(order), order.size // size
    for i in range(wanted.size):
        place = find_sorted(get_ordered_id, (segment, ordered, size), ZERO, n, wanted[i])
        rows[i] = read_row(ordered, place, size) if place >= 0 else -1


# O(ids).
@entry
def check_lists(starts, ids):
    """Return 0 if the ids of each list ascend (an id may come twice), 1 if not, 2 if the lists do not lie within `ids`.

    starts: int64 (lists + 1,), where each list starts; ids: int64 (any,).
    """
    if starts[0] != 0 or starts[starts.size - 1] > ids.size:
        return 2
    for i in range(starts.size - 1):
        if starts[i] > starts[i + 1]:
            return 2
    for i in range(starts.size - 1):
        for place in range(starts[i] + 1, starts[i + 1]):
            if ids[place] < ids[place - 1]:
                return 1
    return 0
