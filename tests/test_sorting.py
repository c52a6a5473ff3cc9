"""The sort of what a query has found: score descending, then id ascending."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from cccf_index.kernels.calls import BUCKETS
from cccf_index.kernels.decorators import ENTRY
from cccf_index.kernels.sorting import sort_found


@st.composite
def scores_and_ids(draw):
    """Scores of several kinds of spread: with many ties, outliers, both signs, both zeros and the smallest numbers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.sampled_from([0, 1, 2, 7, 25, 60, 300, 5000]))
    kind = draw(st.sampled_from(["normal", "ties", "outlier", "equal", "zeros", "tiny", "huge", "two"]))
    scores = {
        "normal": lambda: rng.standard_normal(n),
        "ties": lambda: rng.integers(-3, 4, n) / 4,
        "outlier": lambda: np.where(rng.random(n) < 0.01, 1e30, rng.random(n)),
        "equal": lambda: np.full(n, -2.5),
        "zeros": lambda: rng.choice([0.0, -0.0], n),
        "tiny": lambda: rng.integers(-5, 5, n) * 1e-45,
        "huge": lambda: rng.choice([-1, 1], n) * 3e38 * rng.random(n),
        "two": lambda: rng.choice([1.0, np.nextafter(np.float32(1), np.float32(2))], n),
    }[kind]()
    ids = rng.choice(np.arange(-(2**62), 2**62, 2**50), n, replace=False)
    if draw(st.booleans()):
        return scores.astype(np.float32), ids
    return np.clip(scores * draw(st.sampled_from([1, 1000, 2**40])), -(2.0**62), 2.0**62).astype(np.int64), ids


@njit(**ENTRY)
def sort(scores, ids, n, keys, places, spare_keys, spare_places, counts):
    sort_found(scores, ids, n, keys, places, spare_keys, spare_places, counts)


@settings(max_examples=200, deadline=None)
@given(scores_and_ids())
def test_the_best_scores_come_first_and_ties_are_in_the_order_of_ids(case):
    scores, ids = case
    n = len(ids)
    keys, places = np.empty((2, n), np.uint64), np.empty((2, n), np.int32)
    sort(scores, ids, n, keys[0], places[0], keys[1], places[1], np.empty(BUCKETS, np.int32))
    np.testing.assert_array_equal(places[0], np.lexsort((ids, -scores)))
