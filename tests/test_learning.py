"""Row updates and starts of learned codes, against dense algebra over all pairs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_helpers import embeddings

from cccf_index.learning.moments import compute_moment
from cccf_index.learning.rows import CodedRows, ExtraPairs, Frame, pad_columns
from cccf_index.learning.start import compute_balanced_maps


def row_problem(seed, n, n_components, r, n_pairs=0):
    rng = np.random.default_rng(seed)
    d = n_components * r
    y = rng.standard_normal((3 * d, d)).astype(np.float32)
    frame = Frame.from_moments(y.T @ y / len(y), rng.standard_normal((d, d)))
    x = rng.standard_normal((n, d)).astype(np.float32)
    coded = CodedRows.from_vectors(rng.standard_normal((n, d)), n_components, n_components)
    pairs = None
    if n_pairs:
        counts = rng.integers(0, n_pairs + 1, n)
        starts = np.concatenate([[0], np.cumsum(counts)])
        pairs = ExtraPairs(
            starts[:-1],
            starts[1:],
            rng.integers(0, len(y), starts[-1]).astype(np.int32),
            rng.standard_normal(starts[-1]).astype(np.float32),
            rng.random(n).astype(np.float32),
            pad_columns(y),
        )
    return x, frame, coded, pairs


def values(x, frame, coded, pairs):
    """The value of each row by its definition, in float64."""
    rows = coded.expand().astype(np.float64)
    result = np.einsum("ij,ij->i", rows @ frame.gram, rows) - 2 * np.einsum("ij,ij->i", rows, x @ frame.cross.T)
    for i in range(len(rows) if pairs else 0):
        own = slice(pairs.starts[i], pairs.stops[i])
        errors = pairs.targets[own] - pairs.other[pairs.indices[own], : rows.shape[1]] @ rows[i]
        result[i] += pairs.sizes[i] * (np.square(errors).sum() - np.square(pairs.targets[own]).sum())
    return result


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 12), st.integers(0, 10_000), st.data())
def test_a_row_update_never_raises_its_value(n_components, r, n_pairs, seed, data):
    x, frame, coded, pairs = row_problem(seed, 20, n_components, r, n_pairs)
    active = data.draw(st.integers(1, n_components))
    coded = CodedRows.from_vectors(coded.expand(), n_components, active)
    before = values(x, frame, coded, pairs)
    coded.improve(x, frame, active, pairs)
    after = values(x, frame, coded, pairs)
    assert (after <= before + 1e-4 * (1 + np.abs(before))).all()
    assert (coded.weights >= 0).all()
    assert (np.count_nonzero(coded.weights, axis=1) <= active).all()
    assert set(np.unique(coded.signs)) <= {-1, 1}


@pytest.mark.parametrize("n_pairs", [0, 5])
def test_weights_are_the_least_squares_of_their_bits_and_no_single_flip_helps(n_pairs):
    x, frame, coded, pairs = row_problem(3, 30, 4, 6, n_pairs)
    for _ in range(5):
        coded.improve(x, frame, 4, pairs)
    best = values(x, frame, coded, pairs)
    for q in range(24):
        turned = CodedRows(coded.signs.copy(), coded.weights)
        turned.signs[:, q] *= -1
        assert (values(x, frame, turned, pairs) >= best - 1e-3).all()
    for k in range(4):
        for factor in (0.99, 1.01):
            scaled = CodedRows(coded.signs, coded.weights.copy())
            scaled.weights[:, k] *= factor
            assert (values(x, frame, scaled, pairs) >= best - 1e-4).all()


def test_sparse_rows_drop_the_component_with_the_least_energy():
    """With orthogonal directions the best two of three components are the two largest."""
    gram = np.eye(12)
    frame = Frame.from_moments(gram, np.eye(12))
    x = np.repeat([[3.0, 0.1, 2.0]], 4, axis=1).astype(np.float32)
    coded = CodedRows.from_vectors(x[:, ::-1].copy(), 3, 2)
    coded.improve(x, frame, 2)
    assert coded.weights.round(4).tolist() == [[3.0, 0.0, 2.0]]


def test_balanced_maps_are_the_singular_directions_of_the_scores():
    users, items = embeddings(p=10)
    even = np.full(400, 1 / 400), np.full(300, 1 / 300)
    left, right = compute_balanced_maps(compute_moment(users, even[0]), compute_moment(items, even[1]), 6)
    scores = users.astype(np.float64) @ items.T
    P, sizes, Q = np.linalg.svd(scores, full_matrices=False)
    wanted = (P[:, :6] * sizes[:6]) @ Q[:6]
    np.testing.assert_allclose((users @ left) @ (items @ right).T, wanted, atol=1e-3 * np.abs(wanted).max())
    mapped = compute_moment(users @ left, even[0])
    np.testing.assert_allclose(mapped, np.diag(np.diag(mapped)), atol=1e-4 * mapped.max())


def test_the_kernel_leaves_a_row_that_it_cannot_improve():
    gram = np.zeros((8, 8), np.float32)
    coded = CodedRows.from_vectors(np.ones((3, 8), np.float32), 2, 2)
    coded.improve(np.ones((3, 8), np.float32), Frame(gram, gram), 2)
    assert np.isfinite(coded.weights).all()


def test_signs_at_right_angles_to_the_other_side_get_no_endless_weight():
    """They have no energy but rounding; divided by that, weights of 1e21 came out where users were all alike."""
    coded = CodedRows(np.ones((1, 8), np.int8), np.full((1, 2), 0.8, np.float32))
    direction = np.array([1, -1, 1, -1, 0, 0, 0, 0], np.float32)
    linear = 0.0012 * direction * (1 + 1e-6 * np.arange(8, dtype=np.float32))
    frame = Frame(np.float32(0.0016) * np.outer(direction, direction), linear[:, None].astype(np.float32))
    coded.improve(np.ones((1, 1), np.float32), frame, 2)
    assert 0.1 < coded.weights.max() < 1  # 0.1875 is the best of all codes
