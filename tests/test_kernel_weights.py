"""Component weights against the formulas, written out pair by pair."""

import math

import numpy as np
import pytest

from cccf_index.models._kernel_weights import ANCHORS, DISTANCES, KERNELS, choose_anchors, compute_weights


def direct(latents, anchors, kernel, distance, h, normalize):
    rows = []
    for x in latents.astype(float):
        angles = []
        for a in anchors.astype(float):
            lengths = math.sqrt(x @ x) * math.sqrt(a @ a)
            angles.append(math.acos(max(-1.0, min(1.0, x @ a / lengths))) if lengths else math.pi / 2)
        row = []
        for angle in angles:
            d = 2 / math.pi * angle if distance == "angular" else angle
            u = d / h if distance == "angular" else d
            value = {"epanechnikov": 0.75 * (1 - u * u), "triangular": 1 - u, "uniform": 1.0}[kernel]
            row.append(max(value, 0.0) if d < h else 0.0)
        if not any(row):
            row[angles.index(min(angles))] = 1.0
        rows.append([value / sum(row) for value in row] if normalize else row)
    return np.array(rows)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("h", [0.05, 0.7, 1.2, 2.5])
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_weights_are_those_of_the_formula(kernel, distance, h, normalize):
    rng = np.random.default_rng(0)
    latents, anchors = rng.standard_normal((30, 5)), rng.standard_normal((4, 5)).astype(np.float32)
    latents[3] = 0
    latents[4] = anchors[2]
    weights = compute_weights(latents, anchors, kernel, distance, h, normalize)
    np.testing.assert_allclose(weights, direct(latents, anchors, kernel, distance, h, normalize), atol=1e-6)
    assert (weights > 0).any(axis=1).all()
    assert weights.dtype == np.float32


def test_a_smaller_bandwidth_means_fewer_components():
    rng = np.random.default_rng(1)
    latents, anchors = rng.standard_normal((200, 8)), rng.standard_normal((8, 8)).astype(np.float32)
    active = [
        np.count_nonzero(compute_weights(latents, anchors, "epanechnikov", "angular", h, True)) for h in (0.5, 0.9, 1.5)
    ]
    assert active[0] < active[1] < active[2]


@pytest.mark.parametrize("how", ANCHORS)
def test_anchors_find_planted_groups_and_ignore_empty_rows(how):
    rng = np.random.default_rng(2)
    centres = 10 * np.eye(3, dtype=np.float32)
    latents = np.concatenate([np.zeros((100, 3)), centres[np.arange(300) % 3] + 0.1 * rng.standard_normal((300, 3))])
    anchors = choose_anchors(latents, how, 3, seed=0)
    assert anchors.shape == (3, 3)
    assert (np.linalg.norm(anchors, axis=1) > 9).all()
    if how == "kmeans":
        np.testing.assert_allclose(np.sort(anchors.max(axis=1)), 10, atol=0.2)
        assert set(anchors.argmax(axis=1)) == {0, 1, 2}
    np.testing.assert_array_equal(anchors, choose_anchors(latents, how, 3, seed=0))


@pytest.mark.parametrize("how", ANCHORS)
def test_there_are_anchors_even_among_too_few_rows_with_ratings(how):
    latents = np.zeros((4, 2), dtype=np.float32)
    latents[0] = 1
    anchors = choose_anchors(latents, how, 3, seed=0)
    assert anchors.shape == (3, 2)
    assert np.isfinite(compute_weights(latents, anchors, "epanechnikov", "angular", 1.0, True)).all()
