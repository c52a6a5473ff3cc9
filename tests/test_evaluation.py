"""NDCG and recall against cases computed by hand, plain loops and scikit-learn."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import ndcg_score

from cccf_index.evaluation import Coverage, catalogue_ndcg, choose_threshold, coverage, rated_ndcg, recall


def random_test(rng, m, n, density=0.5):
    rated = rng.random((m, n)) < density
    rated[0] = True
    return sparse.csr_matrix(rated * rng.integers(1, 6, (m, n)).astype(float))


def test_rated_ndcg_of_a_case_computed_by_hand():
    test = sparse.csr_matrix(np.array([[5.0, 1.0, 3.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 4.0]]))
    scores = [0.2, 0.9, 0.5, 0.1, 0.7]  # users 0, 0, 0, 2, 2
    first = (1 / 1 + 7 / math.log2(3)) / (31 / 1 + 7 / math.log2(3))
    second = (15 / 1 + 3 / math.log2(3)) / (15 / 1 + 3 / math.log2(3))
    assert rated_ndcg(scores, test, 2) == pytest.approx((first + second) / 2)
    whole = (1 + 7 / math.log2(3) + 31 / 2) / (31 + 7 / math.log2(3) + 1 / 2)
    np.testing.assert_allclose(
        rated_ndcg(scores, test, [1, 2, 10]), [(1 / 31 + 1) / 2, (first + 1) / 2, (whole + 1) / 2]
    )


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6), st.integers(1, 12), st.integers(1, 15), st.integers(0, 2**31))
def test_rated_ndcg_agrees_with_scikit_learn_ties_included(m, n, k, seed):
    rng = np.random.default_rng(seed)
    test = random_test(rng, m, max(n, 2))
    scores = rng.integers(0, 4, test.nnz).astype(float)
    expected = []
    for user in range(m):
        part = slice(test.indptr[user], test.indptr[user + 1])
        gains = 2 ** test.data[part] - 1
        if len(gains) == 1:
            expected.append(1.0)  # scikit-learn refuses a single item
        elif len(gains):
            expected.append(ndcg_score([gains], [scores[part]], k=k))
    assert rated_ndcg(scores, test, k) == pytest.approx(np.mean(expected))


def test_scores_belong_to_ratings_as_they_are_stored():
    test = sparse.csr_matrix((np.array([5.0, 1.0]), np.array([1, 0]), np.array([0, 2])), shape=(1, 2))
    assert rated_ndcg([0.9, 0.1], test, 1) == 1.0
    assert rated_ndcg([0.1, 0.9], test.tocoo(), 1) == 1.0  # whose tocsr() is in order


def test_infinite_scores_tie_as_others_do():
    test = sparse.csr_matrix(np.array([[5.0, 1.0]]))
    assert (
        rated_ndcg([-np.inf, -np.inf], test, 1) == rated_ndcg([0.0, 0.0], test, np.array(1)) == pytest.approx(16 / 31)
    )


def test_rated_ndcg_asks_a_model_for_the_test_pairs_only():
    test = sparse.csr_matrix(np.array([[0.0, 2.0, 5.0], [1.0, 0.0, 4.0]]))

    class Model:
        def predict(self, users, items):
            assert users.tolist() == [0, 0, 1, 1]
            assert items.tolist() == [1, 2, 0, 2]
            return test.data

    assert rated_ndcg(Model(), test) == 1.0
    assert rated_ndcg(-test.data, test) < 1.0


def test_a_zero_that_is_stored_is_a_rating_without_gain():
    test = sparse.csr_matrix((np.array([0.0, 5.0]), ([0, 0], [0, 1])), shape=(1, 3))
    assert rated_ndcg([1.0, 0.0], test, 1) == 0.0
    assert rated_ndcg([0.0, 1.0], test, 1) == 1.0


def test_catalogue_ndcg_and_recall_of_a_case_computed_by_hand():
    test = sparse.csr_matrix(np.array([[5.0, 1.0, 4.0, 0.0], [3.0, 0.0, 0.0, 3.0], [0.0, 0.0, 0.0, 4.5]]))
    ranking = np.array([[3, 0, 1, 2], [0, 1, 2, 3], [3, -1, -1, -1]])
    first = (1 / math.log2(3)) / (1 + 1 / math.log2(3))  # relevant are items 0 and 2
    assert catalogue_ndcg(ranking, test, 3) == pytest.approx((first + 1) / 2)  # user 1 has nothing to find
    assert catalogue_ndcg(ranking, test, 1) == pytest.approx((0 + 1) / 2)
    np.testing.assert_allclose(recall(ranking, test, [1, 2, 4], threshold=4), [0.5, 0.75, 1.0])
    np.testing.assert_allclose(recall(ranking, test, 4), 1.0)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(2, 12), st.integers(1, 8), st.integers(0, 2**31))
def test_catalogue_figures_agree_with_plain_loops(m, n, k, seed):
    rng = np.random.default_rng(seed)
    test = random_test(rng, m, n)
    test[0, 0] = 5
    ranking = np.array([rng.permutation(n) for _ in range(m)])
    ranking = np.pad(ranking, ((0, 0), (0, 8)), constant_values=-1)
    gains, shares = [], []
    for user in range(m):
        relevant = {j for j in range(n) if test[user, j] >= 4}
        if relevant:
            found = sum(1 / math.log2(p + 2) for p, j in enumerate(ranking[user, :k]) if j in relevant)
            gains.append(found / sum(1 / math.log2(p + 2) for p in range(min(k, len(relevant)))))
            shares.append(len(relevant & set(ranking[user, :k])) / len(relevant))
    assert catalogue_ndcg(ranking, test, k) == pytest.approx(np.mean(gains))
    assert recall(ranking, test, k, threshold=4) == pytest.approx(np.mean(shares))


def test_a_model_is_asked_for_users_with_something_to_find_without_their_training_items():
    test = sparse.csr_matrix(np.array([[5.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 4.0, 0.0]]))
    train = sparse.csr_matrix(np.array([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 2.0]]))

    class Model:
        def recommend(self, users, k, exclude):
            assert users.tolist() == [0, 2]
            np.testing.assert_array_equal(exclude.toarray(), train[[0, 2]].toarray())
            return None, np.array([[0, 2], [0, 1]])

    assert catalogue_ndcg(Model(), test, 2, train=train) == pytest.approx((1 + 1 / math.log2(3)) / 2)


def test_recall_compares_an_approximate_search_with_an_exact_one_under_any_ids():
    exact = np.array([[2**62, -7, 5], [1, 2, 3]])
    found = np.array([[5, 2**62, 0], [9, 8, -1]])
    np.testing.assert_allclose(recall(found, exact, [1, 3]), [(1 / 3) / 2, (2 / 3) / 2])
    assert recall(found, np.array([[5, -1], [-1, -1]]), 1) == 1.0  # -1 is nothing to find


def test_coverage_of_a_case_computed_by_hand():
    ranking = np.array([[3, 1, 0], [1, 2, 0], [1, -1, -1], [5, 4, -1]])
    assert coverage(ranking, 2) == Coverage(distinct=5, top_share=0.75)  # item 1, in three of four lists
    assert coverage(ranking, 1) == (3, 0.5)
    assert coverage(np.full((2, 3), -1), 3) == (0, 0.0)


def test_coverage_asks_a_model_for_all_users_without_their_training_items():
    train = sparse.csr_matrix(np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]))

    class Model:
        n_users_ = 3

        def recommend(self, users, k, exclude):
            assert (users.tolist(), k) == ([0, 1, 2], 1)
            np.testing.assert_array_equal(exclude.toarray(), train.toarray())
            return None, np.array([[0], [1], [0]])

    assert coverage(Model(), 1, train=train) == (2, pytest.approx(2 / 3))


def test_three_quarters_up_the_scale_are_relevant():
    assert choose_threshold([1, 5, 2]) == 4
    assert choose_threshold(sparse.csr_matrix(np.array([[0.0, 3.0], [1.0, 0.0]]))) == 2.5  # of what is stored
    assert choose_threshold(np.ones(3)) == 1
    with pytest.raises(ValueError, match="at least one rating, got none"):
        choose_threshold(sparse.csr_matrix((2, 2)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: rated_ndcg([1.0], t), "one per test rating"),
        (lambda t: rated_ndcg([1.0, np.nan], t), "nan"),
        (lambda t: rated_ndcg([1.0, 2.0], t * 1000), "ratings from 0 to 500"),
        (lambda t: rated_ndcg([1.0, 2.0], -t), "ratings from 0 to 500.*Shift"),
        (
            lambda t: recall([[1, 1], [2, 3]], [[1], [2]], 2),
            "`ranking` must hold each item of a row once, got an item twice in row 0",
        ),
        (lambda t: recall([[1], [1]], t * np.inf, 1), "`relevant` must be finite"),
        (lambda t: rated_ndcg([1.0, 2.0], t, k=0), "`k` must be"),
        (lambda t: rated_ndcg([1.0, 2.0], t, k=[]), "at least one cut-off"),
        (lambda t: rated_ndcg([], sparse.csr_matrix((2, 3))), "No user has a relevant held-out item"),
        (
            lambda t: catalogue_ndcg(np.array([[0, 1, 2]] * 2), t, 3, threshold=6),
            "No user has a relevant held-out item",
        ),
        (lambda t: catalogue_ndcg(np.array([[0, 1, 2]]), t, 3), r"\(2, at least 3\)"),
        (lambda t: catalogue_ndcg(np.array([[0, 1]] * 2), t, 3), r"\(2, at least 3\)"),
        (lambda t: catalogue_ndcg(np.zeros((2, 3)), t, 3), "integers"),
        (lambda t: coverage(np.array([[0, 1]] * 2), 3), r"\(n_users, at least 3\)"),
        (lambda t: coverage(np.array([[0, 1]] * 2), 0), "`k` must be"),
        (lambda t: recall(np.zeros((2, 3), int), [1, 2], 3), "`relevant` must be"),
    ],
)
def test_bad_input_is_explained(call, message):
    test = sparse.csr_matrix(np.array([[5.0, 0.0, 0.0], [0.0, 3.0, 0.0]]))
    with pytest.raises(ValueError, match=message):
        call(test)


def test_dense_ratings_are_a_type_error():
    with pytest.raises(TypeError, match=r"scipy\.sparse"):
        rated_ndcg([1.0], np.eye(2))
