"""What must not be returned: deleted items, items that a selector leaves out, and items excluded for one query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cccf_index.kernels.decorators import kernel
from cccf_index.kernels.lookup import find_sorted, get_element


class Filters(NamedTuple):
    """For one segment and a batch of queries."""

    deleted: NDArray[np.uint8]  # bit i for row i, which is deleted or not selected; empty where no row is
    exclude_starts: NDArray[np.int64]  # (nq + 1,)
    exclude_ids: NDArray[np.int64]  # ascending for each query


@kernel
def is_deleted(filters, row):
    """Whether a row is deleted, or not selected."""
    return filters.deleted.size > 0 and ((filters.deleted[row >> 3] >> (row & 7)) & 1) != 0


@kernel
def is_excluded(filters, q, identity):
    """Whether an id is excluded for query q."""
    start, stop = filters.exclude_starts[q], filters.exclude_starts[q + 1]
    return start < stop and find_sorted(get_element, filters.exclude_ids, start, stop, identity) >= 0
