"""How weights and biases become integers: scales that are given, "auto", and what does not fit them."""

import warnings

import faiss
import numpy as np
import pytest
from helpers import filled_index, random_codes

from cccf_index import CompositionalCodes, IndexCCCF
from cccf_index.codes import MAX_WEIGHT

CODES = random_codes(np.random.default_rng(0), 20)


def test_auto_scale_uses_one_byte_for_items_and_ranks_like_floats():
    rng = np.random.default_rng(3)
    weights = rng.random((2000, 8)) * 3e-4
    codes = CompositionalCodes.from_signs(rng.random((2000, 8, 16)) < 0.5, weights)
    index = filled_index(codes, scale="auto")
    assert index.scale_ == pytest.approx(255 / codes.weights.max())
    assert index.nbytes < 29 * 2000
    flat = faiss.IndexFlatIP(index.d)
    flat.add(index.reconstruct_n())
    D, I = index.search(codes[:50], 10)
    wanted_D, wanted_I = flat.search(codes[:50].to_vectors(), 10)
    np.testing.assert_allclose(D, wanted_D, rtol=1e-3)
    assert np.mean(wanted_I == I) > 0.98
    larger = CompositionalCodes(codes.bits[:5], codes.weights[:5] * 100, 16)  # beyond a byte: a wider segment
    index.add(larger)
    np.testing.assert_allclose(index.reconstruct(2000), larger.to_vectors()[0], rtol=0.01, atol=1 / index.scale_)


def test_auto_scale_of_items_with_only_a_bias_comes_from_the_bias():
    index = IndexCCCF(2, 4, scale="auto")
    nothing = CompositionalCodes.from_signs(np.ones((3, 2, 4)), np.zeros((3, 2)))
    index.add(nothing)
    assert index.scale_ is None
    index.add(nothing, bias=[0.25, 0.5, 0.125])
    D, I = index.search(nothing[:1], 6)
    np.testing.assert_array_equal(I, [[4, 3, 5, 0, 1, 2]])
    np.testing.assert_allclose(D, [[0.5, 0.25, 0.125, 0, 0, 0]], atol=0.002)


def test_an_emptied_auto_index_settles_its_scale_anew():
    one = CompositionalCodes.from_signs(np.ones((1, 4, 8)))
    index = filled_index(CompositionalCodes(one.bits, one.weights * 100, 8), scale="auto")
    index.remove_ids([0])
    assert index.scale_ is None
    index.merge_from(filled_index(one, scale="auto"), 5)
    np.testing.assert_allclose(index.reconstruct(5), 1)
    index = filled_index(CompositionalCodes(one.bits, one.weights * 0, 8), scale="auto")
    index.update_vectors([0], CompositionalCodes(one.bits, one.weights * 3, 8))
    index.add(one)
    np.testing.assert_allclose(index.reconstruct(0), 3)


@pytest.mark.parametrize("size", [1e-30, 1e-11, 1.0, 1e8, 1e15])
def test_auto_scale_works_at_any_magnitude(size):
    codes = CompositionalCodes(CODES.bits, CODES.weights * size, 8)
    index = filled_index(codes, scale="auto")
    same = filled_index(CODES, scale="auto")
    np.testing.assert_array_equal(index.search(codes, 5)[1], same.search(CODES, 5)[1])
    np.testing.assert_allclose(index.reconstruct_n(), codes.to_vectors(), atol=codes.weights.max() / 255)


def test_auto_scale_makes_room_for_a_bias_far_above_the_weights():
    codes = CompositionalCodes(CODES.bits, CODES.weights * 1e-5, 8)
    index = IndexCCCF(4, 8, scale="auto")
    index.add(codes, bias=np.full(20, 10.0))
    np.testing.assert_allclose(index.search(codes[:1], 1)[0], 10, rtol=1e-3)


def test_an_auto_index_takes_the_scale_of_the_first_it_merges():
    first, second = IndexCCCF(4, 8, scale="auto"), filled_index(CODES, scale="auto")
    first.merge_from(second)
    assert first.scale_ == pytest.approx(255 / CODES.weights.max())
    other = filled_index(CompositionalCodes(CODES.bits, CODES.weights * 2, 8), scale="auto")
    with pytest.raises(ValueError, match="same scale"):
        first.merge_from(other, 100)
    assert other.ntotal == 20


def test_weights_that_all_round_to_zero_are_warned_of():
    index = IndexCCCF(4, 8)
    tiny = CompositionalCodes(CODES.bits, CODES.weights / 1000, 8)
    with pytest.warns(UserWarning, match='All weights of .* of 20 items .*"auto" or None'):
        index.add(tiny)
    with pytest.warns(UserWarning, match="every item scores 0"):
        index.search(tiny[CODES.weights.any(axis=1)], 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index.add(CompositionalCodes(CODES.bits, CODES.weights * 0, 8))
    with pytest.warns(UserWarning, match="All biases round to 0"):
        index.add(CODES, bias=np.full(20, 0.001))


def test_the_first_weight_beyond_the_limit_is_refused_when_it_is_added():
    for scale in (1, 1000):
        index = IndexCCCF(1, 1, scale=scale)
        one = np.ones((1, 1, 1))
        index.add(CompositionalCodes.from_signs(one, [[MAX_WEIGHT / scale]]))
        with pytest.raises(ValueError, match="row 0, component 0"):
            index.add(CompositionalCodes.from_signs(one, [[(MAX_WEIGHT + 1) / scale]]))
        assert index.ntotal == 1
        assert index.search(one[0], 1)[0][0, 0] == pytest.approx(MAX_WEIGHT / scale)
