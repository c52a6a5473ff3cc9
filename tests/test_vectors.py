"""Rows scaled to length 1."""

import numpy as np
import pytest

from cccf_index._vectors import normalize_rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_have_length_one_and_keep_their_type_and_direction(dtype):
    x = np.random.default_rng(0).standard_normal((20, 5)).astype(dtype)
    unit = normalize_rows(x)
    assert unit.dtype == dtype
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(unit * np.linalg.norm(x, axis=1, keepdims=True), x, rtol=1e-5)
    np.testing.assert_array_equal(normalize_rows(x[3]), unit[3])


def test_a_zero_row_stays_zero():
    assert normalize_rows(np.array([[0.0, 0.0], [3.0, 4.0]])).tolist() == [[0, 0], [0.6, 0.8]]
