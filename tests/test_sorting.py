"""The sort of what a query has found: score descending, then id ascending."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from cccf_index.kernels.calls import BUCKETS
from cccf_index.kernels.decorators import ENTRY
from cccf_index.kernels.sorting import EMPTY_RANK, rank_score, sort_found, unrank


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
def rank(scores, ranks):
    for j in range(scores.size):
        ranks[j] = rank_score(scores[j])


@njit(**ENTRY)
def restore(ranks, is_float, scores):
    for j in range(ranks.size):
        scores[j] = unrank(ranks[j], is_float)


@njit(**ENTRY)
def sort(ranks, ids, n, keys, places, spare_keys, spare_places, counts):
    sort_found(ranks, ids, n, keys, places, spare_keys, spare_places, counts)


@settings(max_examples=200, deadline=None)
@given(scores_and_ids())
def test_the_best_scores_come_first_and_ties_are_in_the_order_of_ids(case):
    scores, ids = case
    n, ranks = len(ids), np.empty(len(ids), np.int64)
    rank(scores, ranks)
    keys, places = np.empty((2, n), np.uint64), np.empty((2, n), np.int32)
    sort(ranks, ids, n, keys[0], places[0], keys[1], places[1], np.empty(BUCKETS, np.int32))
    np.testing.assert_array_equal(places[0], np.lexsort((ids, -scores)))


@settings(max_examples=200, deadline=None)
@given(scores_and_ids())
def test_a_score_comes_back_from_its_rank(case):
    scores = np.concatenate([case[0], [0]]).astype(case[0].dtype)
    ranks, restored = np.empty(len(scores), np.int64), np.empty(len(scores))
    rank(scores, ranks)
    restore(ranks, int(scores.dtype.kind == "f"), restored)
    np.testing.assert_array_equal(restored, scores.astype(np.float64))
    assert (np.argsort(scores, kind="stable") == np.argsort(ranks, kind="stable")).all()


def test_nothing_ranks_below_an_empty_place():
    below = np.empty(2)
    restore(np.array([EMPTY_RANK, EMPTY_RANK]), 1, below)
    assert (below == -np.inf).all()
    restore(np.array([EMPTY_RANK, EMPTY_RANK]), 0, below)
    assert (below == -(2.0**63)).all()
