"""Balanced, decorrelated surrogates: their invariants, and that none does better."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cccf_index.models import _surrogate
from cccf_index.models._surrogate import compute_surrogate


def assert_feasible(X):
    m, r = X.shape
    X = X.astype(np.float64)
    np.testing.assert_allclose(X.T @ X / m, np.eye(r), atol=2e-5)
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 60), st.integers(0, 2**31), st.booleans())
def test_surrogates_are_balanced_and_decorrelated(r, extra, seed, relaxed):
    rng = np.random.default_rng(seed)
    m = r + extra
    codes = rng.standard_normal((m, r)) if relaxed else rng.choice(np.array([-1, 1], np.int8), (m, r))
    assert_feasible(compute_surrogate(codes))


def deficient(kind, rng):
    codes = rng.choice(np.array([-1, 1], np.int8), (50, 8))
    if kind == "equal columns":
        codes[:, 1] = codes[:, 0]
        codes[:, 5] = -codes[:, 3]
    elif kind == "constant columns":
        codes[:, :3] = 1
    elif kind == "equal rows":
        codes[:] = codes[0]
    elif kind == "zeros":
        codes = np.zeros((50, 8), dtype=np.float32)
    elif kind == "nearly equal columns":
        codes = codes + 1e-7 * rng.standard_normal(codes.shape)
        codes[:, 1] = codes[:, 0] + 1e-9
    return codes


@pytest.mark.parametrize("kind", ["equal columns", "constant columns", "equal rows", "zeros", "nearly equal columns"])
def test_rank_deficient_codes_have_surrogates_too(kind):
    codes = deficient(kind, np.random.default_rng(0))
    X = compute_surrogate(codes)
    assert_feasible(X)
    np.testing.assert_array_equal(X, compute_surrogate(codes))


@pytest.mark.parametrize("kind", ["full rank", "equal columns", "constant columns"])
def test_no_other_feasible_matrix_is_nearer(kind):
    rng = np.random.default_rng(1)
    codes = deficient(kind, rng)
    best = np.sum(codes * compute_surrogate(codes).astype(float))
    centred = codes - codes.mean(axis=0)
    assert best == pytest.approx(np.sqrt(50) * np.linalg.svd(centred, compute_uv=False).sum(), rel=1e-5)
    for _ in range(50):
        random = rng.standard_normal((50, 8)) + 3 * codes * rng.integers(0, 2)
        q = np.linalg.qr(random - random.mean(axis=0))[0] * np.sqrt(50)
        assert np.sum(codes * q) <= best + 1e-3


def test_slices_change_nothing(monkeypatch):
    codes = deficient("equal columns", np.random.default_rng(2))
    whole = compute_surrogate(codes)
    monkeypatch.setattr(_surrogate, "SLICE", 7)
    np.testing.assert_allclose(compute_surrogate(codes), whole, atol=1e-5)
