import pickle

import numpy as np
import pytest
from helpers import random_codes
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from cccf_index import CompositionalCodes

SHAPES = [
    (8, 16),
    (1, 1),
    (3, 5),
    (2, 7),
    (4, 8),
    (5, 9),
    (2, 24),
    (2, 33),
    (1, 64),
    (2, 65),
    (1, 128),
    (64, 3),
    (1, 512),
]


@pytest.mark.parametrize(
    ("n_bits", "dtype", "n_words"),
    [(1, "u1", 1), (8, "u1", 1), (9, "u2", 1), (16, "u2", 1), (17, "u4", 1), (32, "u4", 1), (33, "u8", 1),
     (64, "u8", 1), (65, "u8", 2), (128, "u8", 2), (512, "u8", 8)],
)  # fmt: skip
def test_bits_are_packed_into_the_smallest_words(n_bits, dtype, n_words):
    codes = CompositionalCodes.from_signs(np.ones((3, 2, n_bits), dtype=bool))
    assert codes.bits.dtype == np.dtype(dtype)
    assert codes.bits.shape == (3, 2, n_words)
    ones = np.unpackbits(codes.bits.view(np.uint8), bitorder="little").reshape(6, -1)
    assert ones[:, :n_bits].all()
    assert not ones[:, n_bits:].any()


@pytest.mark.parametrize(("n_components", "n_bits"), SHAPES)
def test_vectors_and_signs_come_back_as_they_went_in(n_components, n_bits):
    rng = np.random.default_rng(n_bits)
    codes = random_codes(rng, 20, n_components, n_bits)
    vectors = codes.to_vectors()
    assert vectors.dtype == np.float32
    assert vectors.shape == (20, n_components * n_bits)
    assert CompositionalCodes.from_vectors(vectors, n_components, n_bits) == codes
    assert CompositionalCodes.from_signs(codes.to_signs(), codes.weights) == codes


def test_expanded_vector_is_weight_times_sign_component_after_component():
    codes = CompositionalCodes.from_signs([[[1, -1], [-1, -1], [1, 1]]], [[0.5, 2.0, 0.0]])
    np.testing.assert_array_equal(codes.to_vectors(), [[0.5, -0.5, -2, -2, 0, 0]])


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(0, 5), m=st.integers(0, 5))
def test_concatenation_and_slicing_agree(seed, n, m):
    rng = np.random.default_rng(seed)
    first, second = random_codes(rng, n), random_codes(rng, m)
    both = CompositionalCodes.concatenate([first, second])
    assert len(both) == n + m
    assert both[:n] == first
    assert both[np.arange(n, n + m)] == second
    assert both[np.arange(n + m) < n] == first


def test_one_row_stays_codes_and_rows_can_be_iterated():
    codes = random_codes(np.random.default_rng(0), 3)
    assert codes[1] == codes[1:2]
    assert [row == codes[i] for i, row in enumerate(codes)] == [True] * 3
    with pytest.raises(IndexError):
        codes[3]
    assert codes[np.array(1)] == codes[1]
    for wrong in ((slice(None), 0), None, np.zeros((3, 4), int), [0.5], "a"):
        with pytest.raises(TypeError, match="indexed by an integer"):
            codes[wrong]


def test_bits_without_weight_do_not_matter():
    signs = np.ones((1, 2, 4), dtype=int)
    flipped = signs.copy()
    flipped[0, 1] = -1
    weights = [[1.0, 0.0]]
    assert CompositionalCodes.from_signs(signs, weights) == CompositionalCodes.from_signs(flipped, weights)


def test_equality_looks_at_bits_weights_and_shape():
    codes = random_codes(np.random.default_rng(0), 5, density=1)
    assert codes == codes[:]
    assert codes != codes[::-1]
    assert codes != CompositionalCodes(codes.bits, codes.weights * 2, codes.n_bits)
    assert codes != random_codes(np.random.default_rng(0), 5, n_bits=7)
    assert codes != "codes"


def test_codes_are_frozen_and_do_not_share_memory_with_their_source():
    bits, weights = np.zeros((2, 1, 1), dtype=np.uint8), np.ones((2, 1), dtype=np.float32)
    codes = CompositionalCodes(bits, weights, 8)
    weights[0] = 5
    bits[0] = 1
    assert codes.weights[0, 0] == 1
    assert codes.bits[0, 0, 0] == 0
    for change in (lambda: codes.weights.fill(0), lambda: codes.bits.fill(0), lambda: codes[:1].weights.fill(0)):
        with pytest.raises(ValueError, match="read-only"):
            change()
    with pytest.raises(AttributeError):
        codes.n_bits = 3
    with pytest.raises(TypeError):
        hash(codes)


def test_sparsity_and_bytes():
    codes = CompositionalCodes.from_signs(np.ones((2, 4, 16)), [[1, 0, 0, 0], [1, 1, 0, 0]])
    assert codes.sparsity == 5 / 8
    assert codes.nbytes == 2 * 4 * 2 + 2 * 4 * 4
    assert "sparsity=0.62" in repr(codes)


def test_weights_may_be_sparse_and_default_to_ones():
    signs = np.ones((2, 3, 4), dtype=bool)
    weights = np.array([[0, 1, 0], [2, 0, 0.5]])
    assert CompositionalCodes.from_signs(signs, sparse.csr_matrix(weights)) == CompositionalCodes.from_signs(
        signs, weights
    )
    assert (CompositionalCodes.from_signs(signs).weights == 1).all()  # DCF codes


def test_save_and_pickle_bring_codes_back(tmp_path):
    for shape in SHAPES:
        codes = random_codes(np.random.default_rng(1), 7, *shape)
        codes.save(tmp_path / "codes")
        assert CompositionalCodes.load(tmp_path / "codes") == codes
        copy = pickle.loads(pickle.dumps(codes))
        assert copy == codes
        assert not copy.weights.flags.writeable


def test_load_refuses_what_is_not_codes(tmp_path):
    (tmp_path / "text").write_text("not codes")
    with pytest.raises(ValueError, match="not a cccf-index file"):
        CompositionalCodes.load(tmp_path / "text")
    with pytest.raises(FileNotFoundError):
        CompositionalCodes.load(tmp_path / "missing")


SIGNS = np.ones((2, 3, 4))
WEIGHTS = np.ones((2, 3))


@pytest.mark.parametrize(
    ("error", "words", "make"),
    [
        (ValueError, "non-negative, got -1.0 at row 0, component 1", lambda: CompositionalCodes.from_signs(SIGNS, [[0, -1, 0]] * 2)),
        (ValueError, r"finite.* got nan at position \(0, 0\)", lambda: CompositionalCodes.from_signs(SIGNS, WEIGHTS * np.nan)),
        (ValueError, "finite", lambda: CompositionalCodes.from_signs(SIGNS, WEIGHTS * np.inf)),
        (ValueError, "finite", lambda: CompositionalCodes.from_signs(SIGNS, WEIGHTS * 1e300)),
        (ValueError, r"shape \(2, 3\)", lambda: CompositionalCodes.from_signs(SIGNS, np.ones((2, 4)))),
        (ValueError, "-1 or \\+1, got 0.0", lambda: CompositionalCodes.from_signs(SIGNS * 0, WEIGHTS)),
        (ValueError, "shape", lambda: CompositionalCodes.from_signs(SIGNS[0], WEIGHTS)),
        (TypeError, "signs", lambda: CompositionalCodes.from_signs(np.full((1, 1, 1), "a"))),
        (TypeError, "real numbers", lambda: CompositionalCodes.from_signs(SIGNS, np.full((2, 3), "a"))),
        (ValueError, "n_components", lambda: CompositionalCodes.from_signs(np.ones((1, 65, 1)))),
        (ValueError, "n_bits", lambda: CompositionalCodes.from_signs(np.ones((1, 1, 513)))),
        (TypeError, "must be uint8 for 4 bits, got int64", lambda: CompositionalCodes(np.zeros((2, 3, 1), np.int64), WEIGHTS, 4)),
        (ValueError, "0 above bit 3", lambda: CompositionalCodes(np.full((2, 3, 1), 16, np.uint8), WEIGHTS, 4)),
        (ValueError, "0 above bit 64", lambda: CompositionalCodes(np.full((2, 3, 2), 2, np.uint64), WEIGHTS, 65)),
        (ValueError, "`bits` must be of shape", lambda: CompositionalCodes(np.zeros((2, 3), np.uint8), WEIGHTS, 4)),
        (ValueError, "row 0 has different absolute values in component 1", lambda: CompositionalCodes.from_vectors([[1, -1, 1, 2]], 2, 2)),
        (ValueError, "shape", lambda: CompositionalCodes.from_vectors(np.ones((2, 5)), 2, 2)),
        (ValueError, "rectangular", lambda: CompositionalCodes.from_vectors([[1, 2], [3]], 1, 2)),
        (TypeError, "CompositionalCodes, got ndarray", lambda: CompositionalCodes.concatenate([SIGNS])),
        (ValueError, r"shape \(2, 3\), got \(1000000, 1000000\)", lambda: CompositionalCodes.from_signs(SIGNS, sparse.csr_matrix((10**6, 10**6)))),
        (ValueError, "at least one", lambda: CompositionalCodes.concatenate([])),
        (ValueError, "same n_components", lambda: CompositionalCodes.concatenate([CompositionalCodes.from_signs(SIGNS), CompositionalCodes.from_signs(SIGNS[:, :2])])),
    ],
)  # fmt: skip
def test_bad_input_is_explained(error, words, make):
    with pytest.raises(error, match=words):
        make()
