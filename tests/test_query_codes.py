"""Vectors as queries: expanded codes are recognised among them, and their values are checked in the same pass."""

import numpy as np
import pytest
from helpers import assert_same, filled_index, random_codes
from hypothesis import given, settings
from hypothesis import strategies as st

from cccf_index import CompositionalCodes
from cccf_index.codes import no_words
from cccf_index.kernels.query_codes import read_codes


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_components=st.integers(1, 5),
    n_bits=st.sampled_from([2, 7, 8, 9, 16, 31, 64, 65, 130]),
    read_only=st.booleans(),
)
def test_expanded_codes_are_read_as_the_codes_that_they_come_from(seed, n_components, n_bits, read_only):
    rng = np.random.default_rng(seed)
    codes = random_codes(rng, 12, n_components, n_bits)
    vectors = codes.to_vectors()
    is_real = rng.random(12) < 0.4
    vectors[is_real, rng.integers(0, codes.d)] += 0.5
    vectors.flags.writeable = not read_only
    words = np.empty((12, *no_words(n_components, n_bits).shape[1:]), no_words(n_components, n_bits).dtype)
    weights = np.empty((12, n_components), np.float32)
    n_codes, is_safe = read_codes(vectors, n_bits, 1e30, words, weights)
    assert (n_codes, is_safe) == (12 - np.count_nonzero(is_real), True)
    assert ((weights[:, 0] >= 0) == ~is_real).all()
    np.testing.assert_array_equal(words[~is_real], codes.bits[~is_real])
    np.testing.assert_array_equal(weights[~is_real], codes.weights[~is_real])


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.0, 0.5, 1.0]), scale=st.sampled_from([100, "auto", None])
)
def test_codes_and_vectors_of_one_batch_have_the_results_that_they_have_alone(seed, share, scale):
    rng = np.random.default_rng(seed)
    items, queries = random_codes(rng, 300), random_codes(rng, 20)
    index = filled_index(items, scale=scale)
    vectors = queries.to_vectors()
    is_real = rng.random(20) < share
    vectors[is_real] += rng.standard_normal((np.count_nonzero(is_real), items.d)).astype(np.float32)
    D, I = index.search(vectors, 9)
    for row in range(20):
        query = vectors[row : row + 1] if is_real[row] else queries[row]
        assert_same((D[row : row + 1], I[row : row + 1]), index.search(query, 9))
        if is_real[row]:
            exact = index.reconstruct_n() @ vectors[row]
            np.testing.assert_allclose(D[row], np.sort(exact)[::-1][:9], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2e16, 1e38])
@pytest.mark.parametrize("row", [0, 3, 5])
@pytest.mark.parametrize("kind", ["codes", "vectors"])
def test_values_that_are_not_finite_or_too_large_are_refused_wherever_they_stand(value, row, kind):
    index = filled_index(random_codes(np.random.default_rng(0), 50))
    x = random_codes(np.random.default_rng(1), 6).to_vectors()
    if kind == "vectors":
        x += np.random.default_rng(2).random(x.shape, dtype=np.float32)
    x[row, 8:16] = value
    for batch in (x, x[row : row + 1]):
        with pytest.raises(ValueError, match="`x` must be finite and at most 1e"):
            index.search(batch, 3)
        with pytest.raises(ValueError, match="`x` must be finite and at most 1e"):
            index.range_search(batch, 0.5)


def test_large_values_are_no_error_as_long_as_scores_are_finite():
    codes = random_codes(np.random.default_rng(0), 50)
    index = filled_index(codes)
    x = np.random.default_rng(1).standard_normal((3, codes.d)).astype(np.float32)
    np.testing.assert_array_equal(index.search(x * np.float32(2**50), 5)[1], index.search(x, 5)[1])


def test_vectors_in_any_form_are_the_same_queries():
    codes = random_codes(np.random.default_rng(0), 50)
    index = filled_index(codes)
    x = np.random.default_rng(1).standard_normal((4, codes.d)).astype(np.float32)
    x[1] = codes[7].to_vectors()
    expected = index.search(x, 5)
    frozen = x.copy()
    frozen.flags.writeable = False
    for form in (
        x.tolist(),
        x.astype(np.float64),
        np.asfortranarray(x),
        frozen,
        x.astype(">f4"),
        np.repeat(x, 2, 0)[::2],
    ):
        assert_same(index.search(form, 5), expected)
    assert index.search(x[:0], 5)[1].shape == (0, 5)
    assert_same(index.search(CompositionalCodes.from_vectors(x[1:2], 4, 8), 5), (expected[0][1:2], expected[1][1:2]))
