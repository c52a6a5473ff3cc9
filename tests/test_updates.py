"""The training kernels against dense algebra, and codes against all codes that there are."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from scipy import sparse

from cccf_index.kernels import linear_algebra
from cccf_index.kernels.decorators import ENTRY, TRAINING_MATH
from cccf_index.models._rows import RatingRows


def problem(rng, m, n, r, density=0.5, dtype=np.float64):
    """Random ratings with some empty rows, weights with zeros, signs on both sides and a pull."""
    pattern = rng.random((m, n)) < density
    pattern[rng.random(m) < 0.2] = False
    matrix = sparse.csr_array(pattern.astype(float))
    targets = rng.normal(0, r, matrix.nnz).astype(dtype)
    weights = (rng.random(m) * (rng.random(m) < 0.8)).astype(dtype)
    other_weights = (rng.random(n) * (rng.random(n) < 0.8)).astype(dtype)
    signs, other = (rng.choice(np.array([-1, 1], dtype=np.int8), (size, r)) for size in (m, n))
    pull = (rng.normal(0, 1, (m, r)) * rng.integers(0, 2)).astype(dtype)
    return RatingRows.from_matrix(matrix), targets, weights, other_weights, signs, other, pull


cholesky_solve = njit(fastmath=TRAINING_MATH, **ENTRY)(linear_algebra.cholesky_solve.py_func)


def row_of(rows, targets, row):
    entries = slice(rows.indptr[row], rows.indptr[row + 1])
    return rows.indices[entries], targets[entries]


@pytest.mark.parametrize("p", [16, 32, 144])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cholesky_solves_a_positive_definite_system(p, dtype):
    rng = np.random.default_rng(p)
    x = rng.standard_normal((2 * p, p))
    gram, right = x.T @ x + np.eye(p), rng.standard_normal(p)
    result = right.astype(dtype)
    assert cholesky_solve(gram.astype(dtype), result)
    np.testing.assert_allclose(
        result,
        np.linalg.solve(gram, right),
        rtol=1e-4 if dtype == np.float32 else 1e-10,
        atol=1e-4 if dtype == np.float32 else 1e-10,
    )


def test_cholesky_reports_a_matrix_that_is_not_positive_definite():
    assert not cholesky_solve(-np.eye(16), np.ones(16))
    assert not cholesky_solve(np.full((16, 16), np.nan), np.ones(16))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**31))
def test_ridge_rows_are_the_minimum_of_their_objective(r, m, n, seed):
    rng = np.random.default_rng(seed)
    rows, targets, weights, other_weights, _, _, pull = problem(rng, m, n, r)
    other = rng.standard_normal((n, r))
    ridge = rng.random(m) + 0.1
    out = np.full((m, r), np.nan)
    rows.solve_ridge(targets, other, pull, ridge, out, weights, other_weights)
    for row in range(m):
        j, values = row_of(rows, targets, row)
        features = (weights[row] * other_weights[j])[:, None] * other[j]
        expected = np.linalg.solve(features.T @ features + ridge[row] * np.eye(r), features.T @ values + pull[row])
        np.testing.assert_allclose(out[row], expected, rtol=1e-8, atol=1e-8)


def test_ridge_rows_survive_a_system_that_is_singular_in_their_precision():
    rows = RatingRows(np.array([0, 3]), np.array([0, 1, 2], dtype=np.int32))
    other = np.ones((3, 20), dtype=np.float32)  # rank 1
    out = np.empty((1, 20), dtype=np.float32)
    rows.solve_ridge(np.full(3, 20, np.float32), other, np.zeros_like(out), np.zeros(1), out)
    np.testing.assert_allclose(other @ out[0], 20, rtol=1e-3)


def test_ridge_rows_say_which_row_overflows():
    rows = RatingRows(np.array([0, 1, 2]), np.array([0, 1], dtype=np.int32))
    other = np.array([[1.0], [np.inf]], dtype=np.float32)
    with pytest.raises(ValueError, match="row 1 overflowed float32"):
        rows.solve_ridge(
            np.ones(2, np.float32), other, np.zeros((2, 1), np.float32), np.ones(2), np.zeros((2, 1), np.float32)
        )


def code_objective(rows, targets, weights, other_weights, other, pull, row, code):
    j, values = row_of(rows, targets, row)
    scores = weights[row] * other_weights[j] * (other[j].astype(float) @ code)
    return ((values - scores) ** 2).sum() - 2 * pull[row] @ code


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 8), st.integers(1, 10), st.integers(1, 14), st.integers(0, 2**31))
def test_flips_end_at_codes_that_no_flip_improves_and_no_worse_than_their_start(r, m, n, seed):
    rng = np.random.default_rng(seed)
    rows, targets, weights, other_weights, start, other, pull = problem(rng, m, n, r)
    signs = start.copy()
    rows.flip_bits(targets, other, pull, 100, signs, weights, other_weights)
    assert set(np.unique(signs)) <= {-1, 1}
    for row in range(m):

        def value(code, row=row):
            return code_objective(rows, targets, weights, other_weights, other, pull, row, np.array(code, dtype=float))

        every = {code: value(code) for code in itertools.product((-1, 1), repeat=r)}
        found, scale = every[tuple(signs[row])], 1e-9 * (1 + max(map(abs, every.values())))
        assert found <= every[tuple(start[row])] + scale
        assert found >= min(every.values()) - scale
        for q in range(r):
            flipped = signs[row].copy()
            flipped[q] *= -1
            assert found <= every[tuple(flipped)] + scale


def test_one_bit_is_solved_exactly_and_kept_where_both_signs_are_as_good():
    rows = RatingRows(np.array([0, 2, 2]), np.array([0, 1], dtype=np.int32))
    other = np.array([[1], [-1]], dtype=np.int8)
    ones = np.ones(2)
    for start in (-1, 1):
        signs = np.array([[start], [start]], dtype=np.int8)
        rows.flip_bits(np.array([5.0, -4.0]), other, np.zeros((2, 1)), 10, signs, ones, ones)
        assert signs.ravel().tolist() == [1, start]  # the second row has no ratings: nothing pulls at it
        signs = np.array([[start], [start]], dtype=np.int8)
        rows.flip_bits(np.array([2.0, 2.0]), other, np.zeros((2, 1)), 10, signs, ones, ones)
        assert signs.ravel().tolist() == [start, start]


def test_sweeps_are_limited():
    rng = np.random.default_rng(3)
    rows, targets, _, _, start, other, pull = problem(rng, 50, 60, 16)
    ones = np.ones(60)
    once, often = start.copy(), start.copy()
    rows.flip_bits(targets, other, pull, 1, once, ones, ones)
    rows.flip_bits(targets, other, pull, 50, often, ones, ones)
    assert (once != often).any()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 20), st.integers(1, 10), st.integers(1, 10), st.integers(0, 2**31), st.booleans())
def test_scores_are_those_of_dense_algebra(r, m, n, seed, relaxed):
    rng = np.random.default_rng(seed)
    rows, targets, weights, other_weights, left, right, _ = problem(rng, m, n, r)
    if relaxed:
        left, right = rng.standard_normal((m, r)), rng.standard_normal((n, r))
    values = targets.copy()
    rows.add_scores(values, left, right, -1, weights, other_weights)
    dense = weights[:, None] * other_weights * (left.astype(float) @ right.astype(float).T)
    owner = np.repeat(np.arange(m), rows.counts)
    np.testing.assert_allclose(values, targets - dense[owner, rows.indices], atol=1e-9)
