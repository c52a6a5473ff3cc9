"""What must not be returned: deleted items, items that a selector leaves out, and items excluded for one query."""

import numpy as np

from cccf_index.kernels.decorators import kernel
from cccf_index.kernels.lookup import find_sorted, get_stored
from cccf_index.kernels.memory import read


@kernel
def is_deleted(call, row):
    """Whether a row is deleted, or not selected."""
    return call.deleted != 0 and ((read(call.deleted, row >> 3, np.uint8) >> (row & 7)) & 1) != 0


@kernel
def is_excluded(call, q, identity):
    """Whether an id is excluded for query q."""
    start, stop = read(call.exclude_starts, q, np.int64), read(call.exclude_starts, q + 1, np.int64)
    return start < stop and find_sorted(get_stored, call.exclude_ids, start, stop, identity) >= 0
