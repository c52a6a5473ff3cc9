"""Encoding: the kernel from vectors to packed codes against its steps, and pairs of items and probes against all scores."""

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cccf_index.learning.encoding import RowEncoder
from cccf_index.learning.moments import compute_moments
from cccf_index.learning.plan import LearningPlan
from cccf_index.learning.probes import MOST_LISTS, MOST_SHARE, Probes, find_largest
from cccf_index.learning.rows import CodedRows, Frame, map_rows
from cccf_index.quantizer import CompositionalQuantizer


def make_probes(rng, m, p, d, items, nth):
    """Probes whose thresholds are the scores of their `nth` items, a little below so that rounding does not matter."""
    vectors = rng.standard_normal((m, p)).astype(np.float32) * rng.random((m, 1), dtype=np.float32)
    scores = np.sort(vectors.astype(np.float64) @ items.T, axis=1)[:, ::-1]
    thresholds = (scores[:, nth] + scores[:, nth - 1]) / 2
    queries = rng.standard_normal((m, d)).astype(np.float32)
    return Probes(vectors, queries, thresholds.astype(np.float32), np.array([0.1], np.float32))


def make_items(rng, n, p):
    items = rng.standard_normal((n, p)) * np.exp(rng.standard_normal((n, 1)))
    items[rng.random(n) < 0.05] = 0
    return items.astype(np.float32)


def list_pairs(pairs, i):
    own = slice(pairs.starts[i], pairs.stops[i])
    return dict(zip(pairs.indices[own].tolist(), pairs.targets[own].tolist(), strict=True))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 150), st.integers(1, 70), st.integers(1, 70), st.integers(0, 10_000), st.sampled_from([1e-6, 1, 1e6])
)
def test_pairs_are_the_items_at_the_head_of_lists(n, m, p, seed, size):
    rng = np.random.default_rng(seed)
    items = make_items(rng, n, p) * np.float32(size)
    probes = make_probes(rng, m, p, 5, items, int(rng.integers(1, n)))
    pairs = probes.make_table().find_pairs(items)
    scores = items.astype(np.float64) @ probes.vectors.T.astype(np.float64)
    lengths = np.linalg.norm(items, axis=1)[:, None] * np.linalg.norm(probes.vectors, axis=1)
    margin = 1e-5 * lengths + 1e-30
    for i in range(n):
        found = list_pairs(pairs, i)
        above = scores[i] - probes.thresholds
        assert set(np.flatnonzero(above > margin[i])) <= found.keys() <= set(np.flatnonzero(above >= -margin[i]))
        for j, score in found.items():
            assert abs(score - scores[i, j]) <= margin[i, j]


def test_an_item_of_many_lists_keeps_some_that_are_spread_over_all_and_count_no_more_than_a_share():
    rng = np.random.default_rng(0)
    items = make_items(rng, 60, 9)
    items[7] *= 1000
    probes = make_probes(rng, 3 * MOST_LISTS, 9, 5, items, 20)
    pairs = probes.make_table().find_pairs(items)
    above = items[7].astype(np.float64) @ probes.vectors.T - probes.thresholds
    assert np.count_nonzero(above > 0) > MOST_LISTS
    found = list_pairs(pairs, 7)
    assert len(found) == MOST_LISTS
    assert min(above[list(found)]) > -1e-5 * np.abs(above).max()
    needs = probes.thresholds / np.linalg.norm(probes.vectors, axis=1)
    order = np.argsort(needs[above > 0])
    ranks = np.empty(len(order))
    ranks[order] = np.arange(len(order))
    places = np.sort(ranks[np.isin(np.flatnonzero(above > 0), list(found))])
    assert np.diff(places).max() <= np.ceil(len(order) / MOST_LISTS)
    counts = pairs.stops - pairs.starts
    np.testing.assert_allclose(pairs.sizes, np.minimum(0.1, MOST_SHARE / np.maximum(counts, 1)), rtol=1e-6)


def test_equal_leads_are_kept_up_to_the_limit():
    probes = Probes(*(np.ones(shape, np.float32) for shape in ((MOST_LISTS + 50, 3), (MOST_LISTS + 50, 4), 306, 1)))
    pairs = probes.make_table().find_pairs(np.ones((2, 3), np.float32))
    assert len(list_pairs(pairs, 0)) == len(list_pairs(pairs, 1)) == MOST_LISTS


def make_encoder(rng, n_components, n_bits, p, active, probes):
    d = n_components * n_bits
    y = rng.standard_normal((2 * d + 3, d))
    frame = Frame.from_moments(y.T @ y / len(y), rng.standard_normal((d, p)))
    start = rng.standard_normal((d, p)).astype(np.float32)
    plan = LearningPlan(n_components, n_bits, active, active, 0, 1, 0, 1)
    return frame, start, RowEncoder.from_frame(frame, start, probes, plan, active)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 35), st.integers(1, 40), st.booleans(), st.integers(0, 10_000), st.data())
def test_encoding_is_the_signs_of_a_map_improved_and_packed(n_components, n_bits, p, is_item, seed, data):
    rng = np.random.default_rng(seed)
    items = make_items(rng, int(rng.integers(1, 40)) + 1, p)
    active = data.draw(st.integers(1, n_components))
    probes = make_probes(rng, 30, p, n_components * n_bits, items, 1) if is_item else None
    frame, start, encoder = make_encoder(rng, n_components, n_bits, p, active, probes)
    coded = CodedRows.from_vectors(map_rows(items, start), n_components, active)
    coded.improve(items, frame, active, probes.make_table().find_pairs(items) if probes else None)
    expected, found = coded.pack(), encoder.encode(items, "x")
    same = (expected.bits == found.bits).all(axis=(1, 2))
    assert same.mean() >= 0.9  # the first map is summed in another order, and a sign may be a matter of rounding
    np.testing.assert_allclose(found.weights[same], expected.weights[same], rtol=1e-3, atol=1e-4)
    assert (np.count_nonzero(found.weights, axis=1) <= active).all()
    assert not found.bits[found.weights == 0].any()


@pytest.mark.parametrize("is_item", [False, True])
@pytest.mark.parametrize("shape", [(8, 16), (3, 7), (2, 70)])
def test_a_code_depends_on_no_other_row(shape, is_item):
    rng = np.random.default_rng(1)
    items = make_items(rng, 203, 33)
    probes = make_probes(rng, 300, 33, shape[0] * shape[1], items, 9) if is_item else None
    encoder = make_encoder(rng, *shape, 33, shape[0], probes)[2]
    expected = encoder.encode(items, "x")
    threads = faiss.omp_get_max_threads()
    try:
        for n_threads in (1, 3):
            faiss.omp_set_num_threads(n_threads)
            assert encoder.encode(items, "x") == expected
    finally:
        faiss.omp_set_num_threads(threads)
    order = rng.permutation(len(items))
    assert encoder.encode(np.ascontiguousarray(items[order]), "x") == expected[order]
    assert encoder.encode(items[:0], "x") == expected[:0]
    for i in range(20):
        assert encoder.encode(items[i : i + 1], "x") == expected[i]
        assert encoder.encode(items[i : i + 5], "x") == expected[i : i + 5]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e20])
def test_vectors_that_only_the_kernel_looks_at_are_refused_if_not_finite(bad):
    rng = np.random.default_rng(0)
    users = rng.standard_normal((50, 6)).astype(np.float32)
    quantizer = CompositionalQuantizer(2, 8, verbose=False).fit(users, users)
    for rows in (1, 40):
        broken = users[:rows].copy()
        broken[rows // 2, 3] = bad
        with pytest.raises(ValueError, match="`user_vectors` must be finite"):
            quantizer.encode_users(broken)
    large = users[:3] * np.float32(1e15)  # its squares are beyond what is surely finite
    np.testing.assert_allclose(
        quantizer.encode_users(large).weights, 1e15 * quantizer.encode_users(users[:3]).weights, rtol=1e-3
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 500), st.integers(0, 10_000), st.integers(1, 60), st.integers(1, 1000))
def test_the_nth_largest_is_found_among_the_maxima_of_groups(n, seed, nth, n_values):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, n_values, n).astype(np.float32)
    numbers = rng.integers(1, 4, n)
    found, count = find_largest(scores, nth, numbers)
    each = np.sort(np.repeat(scores, numbers))
    assert found == each[-nth] if nth <= n else found <= scores.max()
    assert count == np.count_nonzero(each >= found)


@pytest.mark.parametrize("n", [1, 4095, 20_000])
def test_moments_are_those_of_dense_algebra_whatever_the_threads(n):
    rng = np.random.default_rng(0)
    coded = CodedRows.from_vectors(rng.standard_normal((n, 12)), 3, 3)
    weights, other = rng.random(n) / n, rng.standard_normal((n, 5)).astype(np.float32)
    threads, found = faiss.omp_get_max_threads(), []
    try:
        for n_threads in (1, 3):
            faiss.omp_set_num_threads(n_threads)
            found.append(compute_moments(coded, weights, None, other))
    finally:
        faiss.omp_set_num_threads(threads)
    x = coded.expand().astype(np.float64)
    for one, two, y in zip(*found, (x, other), strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_allclose(one, (x * weights[:, None]).T @ y, atol=1e-5)
