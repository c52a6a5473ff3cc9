"""Popularity against plain loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from cccf_index._check import NotFittedError
from cccf_index.baselines import Popularity
from cccf_index.evaluation import catalogue_ndcg, coverage, rated_ndcg, recall

TRAIN = sparse.csr_matrix(np.array([[1.0, 0.0, 2.0, 0.0], [1.0, 5.0, 0.0, 0.0], [1.0, 5.0, 0.0, 0.0]]))


def test_the_most_rated_items_come_first_whatever_their_ratings():
    model = Popularity().fit(TRAIN)
    assert (model.n_users_, model.n_items_, model.item_counts_.tolist()) == (3, 4, [3, 2, 1, 0])
    D, I = model.recommend([2, 0], 3)
    assert I.tolist() == [[0, 1, 2]] * 2
    assert D.tolist() == [[3, 2, 1]] * 2
    assert (D.dtype, I.dtype) == (np.float32, np.int64)
    assert model.predict(0, [1, 0, 3]).tolist() == [2, 3, 0]


def test_what_is_excluded_is_left_out_and_the_rest_is_padded():
    D, I = Popularity().fit(TRAIN).recommend(exclude=TRAIN, k=3)
    assert I.tolist() == [[1, 3, -1], [2, 3, -1], [2, 3, -1]]
    assert (D[:, 2] == np.finfo(np.float32).min).all()
    assert Popularity().fit(TRAIN).recommend([1], 2, exclude=[[1, 1, 0]])[1].tolist() == [[2, 3]]


@settings(max_examples=60)
@given(st.integers(1, 6), st.integers(1, 12), st.integers(1, 14), st.integers(0, 2**31))
def test_popularity_agrees_with_plain_loops(m, n, k, seed):
    rng = np.random.default_rng(seed)
    train = sparse.random(m, n, 0.4, "csr", random_state=rng)
    seen = sparse.random(m, n, rng.random(), "csr", random_state=rng)
    counts = np.bincount(train.indices, minlength=n)
    order = sorted(range(n), key=lambda item: (-counts[item], item))
    found = Popularity().fit(train).recommend(None, k, exclude=seen)[1]
    for user in range(m):
        expected = [item for item in order if item not in seen[[user]].indices][:k]
        assert found[user].tolist() == expected + [-1] * (k - len(expected))


def test_every_metric_takes_popularity_as_a_model():
    test = sparse.csr_matrix(np.array([[0.0, 5.0, 0.0, 1.0], [0.0, 0.0, 4.0, 0.0], [0.0, 0.0, 0.0, 4.0]]))
    model = Popularity().fit(TRAIN)
    assert rated_ndcg(model, test) == 1
    assert catalogue_ndcg(model, test, 1, train=TRAIN) == pytest.approx(2 / 3)
    assert recall(model, test, 2, train=TRAIN) == 1
    assert coverage(model, 1, train=TRAIN) == (2, pytest.approx(2 / 3))


def test_wrong_use_is_explained():
    with pytest.raises(NotFittedError, match="Call `fit`"):
        Popularity().recommend()
    with pytest.raises(NotFittedError, match="Call `fit`"):
        Popularity().predict(0, 0)
    model = Popularity().fit(TRAIN)
    with pytest.raises(ValueError, match="`users` must be rows from 0 to 2, got 3"):
        model.recommend([3])
    with pytest.raises(ValueError, match="`users` must be 1-dimensional"):
        model.recommend(1)
    with pytest.raises(ValueError, match="`items` must be rows from 0 to 3, got 4"):
        model.predict(0, 4)
    with pytest.raises(ValueError, match="`k` must be"):
        model.recommend(k=0)
