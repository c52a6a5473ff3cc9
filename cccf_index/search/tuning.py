"""Tuning: the fastest search of a target recall, found by trial on sample queries."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cccf_index import _check
from cccf_index.kernels.heaps import LOWEST
from cccf_index.kernels.limits import BLOCK
from cccf_index.search.parameters import SearchParametersCCCF
from cccf_index.storage.vectors import VectorStore

GRID = 8  # values tried between a number of items and twice as many
FACTORS = (1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0)
MORE_FACTORS = 4  # tried after the least that is enough: with fewer items to look at they may be faster
TIMES = 3  # that a search is timed
ROUNDING = 1e-5  # of inner products, relative to the k-th
STEP = 65536  # vectors decoded at a time
ENOUGH = 50_000  # items of all results together: more sample queries would only take longer
FEWEST = 50  # queries


def measure_recall(D: NDArray[np.float32], exact: NDArray[np.float32], rounding: float = 0.0) -> float:
    """Return the share of the exact result that was found; an item that scores no less than its last one counts."""
    is_item = exact != LOWEST
    last = np.where(is_item, exact, np.float32(np.inf)).min(axis=1, keepdims=True)
    last = last - rounding * np.abs(last)
    found = int(np.count_nonzero((last <= D) & is_item))
    return found / max(1, int(np.count_nonzero(is_item)))


class Trials:
    """Searches of the sample queries with different parameters, none of which is repeated.

    `search` returns scores (nq, k) for given parameters, which are compared with the `exact` ones.
    """

    def __init__(
        self,
        search: Callable[[SearchParametersCCCF], Any],
        score: Callable[[Any], NDArray[np.float32]],
        exact: NDArray[np.float32],
        rounding: float = 0.0,
    ) -> None:
        self._search, self._score, self._exact, self._rounding = search, score, exact, rounding
        self._recalls: dict[tuple[Any, ...], float] = {}

    def measure_recall(self, params: SearchParametersCCCF) -> float:
        """Return the recall of a search."""
        key = (params.coded, params.k_factor, params.max_items, params.most_used)
        if key not in self._recalls:
            scores = self._score(self._search(params))
            self._recalls[key] = measure_recall(scores, self._exact, self._rounding)
        return self._recalls[key]

    def find_budget(self, params: SearchParametersCCCF, n_items: int, wanted: float) -> SearchParametersCCCF:
        """Return `params` with the smallest `max_items`, on a grid, that reaches a recall; None if all are needed."""
        steps = int(np.ceil(GRID * np.log2(max(2.0, n_items / BLOCK))))
        low, high = 0, steps  # the budget of `high` is enough, that of any below `low` is not
        while low < high:
            middle = (low + high) // 2
            share = self.measure_recall(replace(params, max_items=grid_budget(middle)))
            low, high = (low, middle) if share >= wanted else (middle + 1, high)
        return replace(params, max_items=grid_budget(high)) if high < steps else replace(params, most_used=False)

    def choose_fastest(self, candidates: Sequence[SearchParametersCCCF]) -> SearchParametersCCCF:
        """Return the parameters whose search takes the least time; they are timed in turn."""
        seconds = [np.inf] * len(candidates)
        for _ in range(TIMES):
            for number, params in enumerate(candidates):
                begin = time.perf_counter()
                self._search(params)
                seconds[number] = min(seconds[number], time.perf_counter() - begin)
        return candidates[int(np.argmin(seconds))]


def grid_budget(step: int) -> int:
    """Return the number of items at a step of the grid, a multiple of the block."""
    return int(np.ceil(2 ** (step / GRID))) * BLOCK


def sample_queries(n: int, k: int) -> slice:
    """Return which of n sample queries are searched for k items."""
    return slice(None, None, max(1, n // max(FEWEST, ENOUGH // k)))


def check_target(
    recall: float, params: SearchParametersCCCF | None, n_items: int, n_queries: int
) -> tuple[float, SearchParametersCCCF]:
    """Return what the caller of `tune` wants, checked; `params` without what is to be found."""
    wanted = _check.number(recall, "recall", 0.0)
    if wanted > 1:
        raise ValueError(f"`recall` must be at most 1, got {recall}.")
    params = SearchParametersCCCF() if params is None else params
    if not isinstance(params, SearchParametersCCCF) or not params.prune:
        raise ValueError("`params` must be SearchParametersCCCF that prune.")
    if not n_items:
        raise ValueError("An index without items cannot be tuned. Call `add` first.")
    if not n_queries:
        raise ValueError("`x` must hold at least one sample query, got none.")
    return wanted, replace(params, max_items=None, most_used=False)


def tune_search(
    trials: Trials,
    n_items: int,
    wanted: float,
    variants: Sequence[SearchParametersCCCF],
    has_factors: bool,
    knows_most_used: bool = False,
) -> SearchParametersCCCF:
    """Return the fastest parameters that reach a recall: one of the variants, with any `max_items` and `k_factor`.

    If none does, the variant with the highest recall is returned, with a warning. The variants themselves are
    candidates, so nothing is slower than to look at all items. knows_most_used: whether `most_used` makes a difference.
    """
    candidates: list[SearchParametersCCCF] = []
    for variant in variants:
        for complete in _find_factors(trials, wanted, variant) if has_factors else (variant,):
            if trials.measure_recall(complete) >= wanted:
                candidates += [complete, trials.find_budget(complete, n_items, wanted)]
                if knows_most_used:
                    candidates.append(trials.find_budget(replace(complete, most_used=True), n_items, wanted))
    if candidates:
        return trials.choose_fastest(candidates)
    most = [replace(variant, k_factor=FACTORS[-1]) if has_factors else variant for variant in variants]
    best = max(most, key=trials.measure_recall)
    warnings.warn(
        f"A recall of {wanted:g} is not reached: {trials.measure_recall(best):.3f} is the most. Re-rank with the "
        "vectors (IndexRefineCCCF), or use more components or bits.",
        stacklevel=3,
    )
    return best


def _find_factors(trials: Trials, wanted: float, variant: SearchParametersCCCF) -> Iterator[SearchParametersCCCF]:
    """Yield a variant with the least `k_factor` that reaches a recall, and with a few larger ones."""
    if variant.k_factor is not None:
        yield variant
        return
    complete = [replace(variant, k_factor=factor) for factor in FACTORS]
    low, high = 0, len(FACTORS)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if trials.measure_recall(complete[middle]) >= wanted else (middle + 1, high)
    yield from complete[low : low + 1 + MORE_FACTORS]


def find_largest(
    queries: NDArray[np.float32], store: VectorStore, ids: NDArray[np.int64], k: int
) -> NDArray[np.float32]:
    """Return the k largest inner products of each query with the vectors of some ids, descending, (nq, k)."""
    best = np.full((len(queries), 0), LOWEST, dtype=np.float32)
    for start in range(0, len(ids), STEP):
        vectors = store.decode(ids[start : start + STEP])
        D, _ = faiss.knn(queries, vectors, min(k, len(vectors)), metric=faiss.METRIC_INNER_PRODUCT)
        best = -np.sort(-np.concatenate([best, D], axis=1), axis=1)[:, :k]
    padding = np.full((len(queries), max(0, k - best.shape[1])), LOWEST, dtype=np.float32)
    return np.concatenate([best, padding], axis=1)


def score_found(queries: NDArray[np.float32], store: VectorStore, I: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the inner products of each query with the vectors of the items that were found for it, as I (nq, k)."""
    D = np.full(I.shape, LOWEST, dtype=np.float32)
    for q, row in enumerate(I):
        found = row != -1
        D[q, found] = store.decode(row[found]) @ queries[q]
    return D
