"""Tuning: the smallest number of items that a search must look at for a target recall."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cccf_index.kernels.heaps import LOWEST
from cccf_index.kernels.limits import BLOCK
from cccf_index.search.parameters import SearchParametersCCCF

GRID = 8  # values tried between a number of items and twice as many


def measure_recall(D: NDArray[np.float32], exact: NDArray[np.float32]) -> float:
    """Return the share of the exact result that was found; an item that scores no less than its last one counts."""
    is_item = exact != LOWEST
    last = np.where(is_item, exact, np.float32(np.inf)).min(axis=1, keepdims=True)
    found = int(np.count_nonzero((last <= D) & is_item))
    return found / max(1, int(np.count_nonzero(is_item)))


def tune_budget(
    search: Callable[[SearchParametersCCCF], NDArray[np.float32]],
    n_items: int,
    wanted: float,
    params: SearchParametersCCCF,
) -> SearchParametersCCCF:
    """Return `params` with the smallest `max_items`, on a grid, for which `search` reaches the wanted recall.

    `search` returns the scores D for given parameters. If only all items reach it, the exact parameters are returned.
    """
    exact = search(replace(params, max_items=None))
    steps = int(np.ceil(GRID * np.log2(max(2.0, n_items / BLOCK))))
    low, high = 0, steps  # the budget of `high` is enough, that of any below `low` is not
    while low < high:
        middle = (low + high) // 2
        share = measure_recall(search(replace(params, max_items=grid_budget(middle))), exact)
        low, high = (low, middle) if share >= wanted else (middle + 1, high)
    return replace(params, max_items=grid_budget(high) if high < steps else None)


def grid_budget(step: int) -> int:
    """Return the number of items at a step of the grid, a multiple of the block."""
    return int(np.ceil(2 ** (step / GRID))) * BLOCK
