"""How few items a search must look at to find most of what an exact one finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cccf_index.kernels.block import BLOCK
from cccf_index.kernels.heaps import LOWEST
from cccf_index.search.parameters import SearchParametersCCCF

GRID = 8  # budgets for each doubling


def found_share(D: NDArray[np.float32], exact: NDArray[np.float32]) -> float:
    """Return the share of the exact answer's items for which one was found that scores no less than its last."""
    is_item = exact != LOWEST
    last = np.where(is_item, exact, np.float32(np.inf)).min(axis=1, keepdims=True)
    found = int(np.count_nonzero((last <= D) & is_item))
    return found / max(1, int(np.count_nonzero(is_item)))


def tuned(
    search: Callable[[SearchParametersCCCF], NDArray[np.float32]],
    n_items: int,
    wanted: float,
    params: SearchParametersCCCF,
) -> SearchParametersCCCF:
    """Return `params` with the smallest budget, on a grid, for which `search` finds the wanted share.

    `search` returns the scores D that are found with given parameters. Without a budget that is enough and less than
    all items, the exact parameters are returned.
    """
    exact = search(replace(params, max_items=None))
    steps = int(np.ceil(GRID * np.log2(max(2.0, n_items / BLOCK))))
    low, high = 0, steps  # the budget of `high` is enough, that of any below `low` is not
    while low < high:
        middle = (low + high) // 2
        share = found_share(search(replace(params, max_items=budget(middle))), exact)
        low, high = (low, middle) if share >= wanted else (middle + 1, high)
    return replace(params, max_items=budget(high) if high < steps else None)


def budget(step: int) -> int:
    """Return the number of items at a step of the grid, a multiple of the block."""
    return int(np.ceil(2 ** (step / GRID))) * BLOCK
