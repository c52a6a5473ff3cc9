"""CCCF for the whole catalogue: the tuned teacher, its solver, and queries fitted to the head of their lists."""

import numpy as np
import pytest
from model_helpers import MATRIX, fitted
from scipy import sparse

from cccf_index.baselines import Popularity
from cccf_index.datasets import split_ratings, synthetic_ratings
from cccf_index.evaluation import catalogue_ndcg
from cccf_index.learning.heads import SHARE
from cccf_index.models import CCCF, MF
from cccf_index.models._als import Ridge, solve_rows
from cccf_index.models._catalogue_tuning import (
    TRIALS,
    CatalogueChoice,
    Preference,
    Trial,
    Validation,
    _walk,
    choose_catalogue_teacher,
)
from cccf_index.models._rows import RatingRows

LARGE = synthetic_ratings(800, 600, n_groups=12, ratings_per_user=40, affinity=0.6, popularity=0.8, seed=3).user_items
TRAIN, TEST = split_ratings(LARGE)


@pytest.fixture(scope="module")
def model():
    return CCCF(8, 16, n_factors=48, queries="real", verbose=False).fit(TRAIN)


def equal_ratings():
    ones = TRAIN.copy()
    ones.data[:] = 1
    return ones


@pytest.mark.parametrize("power", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_solved_like_the_dense_least_squares_of_all_pairs(power, dtype):
    rng = np.random.default_rng(0)
    other = rng.standard_normal((40, 12)).astype(dtype)
    matrix = sparse.random(9, 40, density=0.4, random_state=1, format="csr")
    matrix.data[:] = rng.random(matrix.nnz) + 0.5
    rows = RatingRows.from_matrix(matrix)
    rows.indptr[-1] = rows.indptr[-2]  # the last row has no ratings
    ridges = Ridge(0.03, power).compute(rows, 0.2, 40, 20.0)
    found = solve_rows(rows, matrix.data.astype(dtype), other, ridges, 0.2)
    for i in range(9):
        part = slice(rows.indptr[i], rows.indptr[i + 1])
        rated, values = other[rows.indices[part]], matrix.data[part]
        size = len(values) + 0.2 * 40
        ridge = 0.03 * (20 * (size / 20) ** power if power != 1 else size + (len(values) == 0))
        gram = rated.T @ rated + 0.2 * other.T @ other + ridge * np.eye(12)
        np.testing.assert_allclose(found[i], np.linalg.solve(gram, rated.T @ values), rtol=2e-3, atol=1e-4)


def test_a_rating_of_unobserved_pairs_makes_equal_ratings_trainable():
    ones = equal_ratings()
    with pytest.raises(ValueError, match="different ratings"):
        MF(8, unobserved=8, verbose=False).fit(ones)
    trained = MF(16, 0.005, unobserved=8, unobserved_rating=0, verbose=False).fit(ones)
    assert catalogue_ndcg(trained, TEST, train=TRAIN) > catalogue_ndcg(Popularity().fit(TRAIN), TEST, train=TRAIN)
    objectives = [entry.objective for entry in trained.history_]
    assert (np.diff(objectives) <= 1e-5 * np.abs(objectives[:-1])).all()


def test_the_default_beats_popularity_and_its_codes_keep_the_ranking(model):
    popularity = catalogue_ndcg(Popularity().fit(TRAIN), TEST, train=TRAIN)
    vectors = model._get_teacher()
    scores = vectors.extend_users(model.latents_.user_factors_) @ np.hstack(
        [model.latents_.item_factors_, model.item_bias_[:, None]]
    ).T.astype(np.float32)
    scores[TRAIN.nonzero()] = -np.inf
    teacher = catalogue_ndcg(np.argsort(-scores, axis=1)[:, :10], TEST)
    real = catalogue_ndcg(model, TEST, train=TRAIN)
    coded = catalogue_ndcg(model.to_index().search(model.user_codes_, 10, exclude=TRAIN)[1], TEST)
    assert teacher > 1.3 * popularity
    assert real > 0.97 * teacher
    assert coded > 0.93 * teacher


def test_queries_keep_the_head_of_their_list_better_than_codes_of_all_scores(model):
    quantizer, teacher = model.quantizer_, model._get_teacher()
    users = teacher.extend_users(model.latents_.user_factors_)
    items = teacher.extend_items(model.latents_.item_factors_, model.item_bias_)
    expanded = model.item_codes_.to_vectors()
    wanted = users @ (items - quantizer.item_mean_).T
    lists = model.to_index().search(quantizer.transform_users(users), 50, exclude=TRAIN)[1]

    def compute_error(queries):
        errors = np.square(queries @ expanded.T - wanted)
        return np.take_along_axis(errors, lists, axis=1).mean()

    assert compute_error(model.user_queries_) < compute_error(quantizer.transform_users(users))
    assert compute_error(model.user_codes_.to_vectors()) < compute_error(quantizer.encode_users(users).to_vectors())


def test_real_queries_are_the_least_squares_of_all_items_and_the_head(model):
    quantizer, teacher = model.quantizer_, model._get_teacher()
    users = teacher.extend_users(model.latents_.user_factors_[:5])
    items = teacher.extend_items(model.latents_.item_factors_, model.item_bias_) - quantizer.item_mean_
    expanded, frame = model.item_codes_.to_vectors().astype(np.float64), quantizer._encoder.users
    lists = model.to_index().search(quantizer.transform_users(users), 50, exclude=TRAIN[:5])[1]
    for user, head, query in zip(users, lists, model.user_queries_, strict=False):
        gram = frame.gram + SHARE / 50 * expanded[head].T @ expanded[head]
        right = frame.cross @ user + SHARE / 50 * expanded[head].T @ (items[head] @ user)
        scores = expanded @ np.linalg.lstsq(gram, right, rcond=1e-7)[0]
        assert np.corrcoef(scores, expanded @ query)[0, 1] > 0.999


def test_new_users_are_encoded_like_those_of_the_fit(model):
    folded, own = model.transform_users(TRAIN[:50]), model.user_queries_[:50]
    assert np.square(folded - own).sum() < 0.1 * np.square(own).sum()
    alone = np.vstack([model.transform_users(TRAIN[i]) for i in range(3)])
    np.testing.assert_array_equal(alone, folded[:3])


def test_equal_ratings_are_implicit_feedback_whatever_their_value():
    ones, fives = equal_ratings(), equal_ratings() * 5
    one, five = (CCCF(4, 8, n_factors=16, verbose=False).fit(matrix) for matrix in (ones, fives))
    assert (one.feedback_, one.choice_["floor"]) == ("implicit", 1.0)
    assert one.item_codes_ == five.item_codes_
    assert one.encode_users(ones[:5]) == five.encode_users(fives[:5])


def test_explicit_ratings_may_be_trained_as_implicit_feedback():
    forced = CCCF(4, 8, n_factors=16, feedback="implicit", verbose=False).fit(TRAIN)
    assert forced.item_codes_ == CCCF(4, 8, n_factors=16, verbose=False).fit(equal_ratings()).item_codes_


def test_parameters_that_are_given_are_not_tuned():
    matrix = sparse.csr_array(TRAIN)
    choice = choose_catalogue_teacher(matrix, 16, {"regularization": 0.03, "unobserved": 7.0}, 0, False)
    assert (choice.regularization, choice.unobserved) == (0.03, 7.0)
    model = CCCF(2, 8, n_factors=8, regularization=0.03, unobserved=7.0, verbose=False).fit(TRAIN)
    assert (model.latents_.regularization, model.latents_.unobserved) == (0.03, 7.0)


def test_ratings_that_cannot_be_held_out_keep_the_defaults():
    few = sparse.csr_array(sparse.csr_matrix(np.array([[1.0, 0, 0], [0, 3, 0], [0, 0, 5]])))
    assert choose_catalogue_teacher(few, 16, {}, 0, False) == CatalogueChoice()
    assert CCCF(1, 2, n_factors=2, verbose=False).fit(sparse.csr_matrix(few)).n_items_ == 3


def test_the_validation_ranks_like_catalogue_ndcg():
    validation = Validation.hold_out(sparse.csr_array(TRAIN), 4.0, 0)
    rng = np.random.default_rng(0)
    users, items = rng.integers(-2, 3, (800, 3)).astype(np.float32), rng.integers(-2, 3, (600, 3)).astype(np.float32)
    bias = rng.integers(0, 2, 600).astype(np.float32)
    scores = users[validation.users] @ items.T + bias
    scores[validation.seen.nonzero()] = -np.inf
    ranking = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    wanted = catalogue_ndcg(ranking, validation.relevant, threshold=1)
    assert validation.judge(users, items, bias) == pytest.approx(wanted)


def test_the_walk_finds_the_best_neighbour_and_keeps_to_its_budget():
    best = CatalogueChoice(floor=0.3, unobserved=64.0, ridge_power=0.5)
    calls = []

    def run_trial(choice, _):
        calls.append(choice)
        miss = abs(np.log2(choice.unobserved / best.unobserved)) + abs(choice.floor - best.floor)
        return Trial(choice, 1 / (1 + miss + abs(choice.ridge_power - best.ridge_power)), None, None)

    found = _walk(run_trial(CatalogueChoice(), None), frozenset(), run_trial).choice
    assert (found.floor, found.unobserved, found.ridge_power) == (0.3, 64.0, 0.5)
    assert len(calls) <= TRIALS


@pytest.mark.parametrize("floor", [0.0, 0.3, 1.0])
def test_preferences_rise_from_the_floor_to_one(floor):
    graded = Preference(floor, 1.0, 5.0).grade(np.array([1.0, 3.0, 5.0, 9.0]))
    np.testing.assert_allclose(graded, [floor, (1 + floor) / 2, 1, 1], rtol=1e-6)
    assert (Preference(floor, 3.0, 3.0).grade(np.array([3.0, 3.0])) == 1).all()


def test_counts_with_a_long_tail_have_a_scale_of_most_of_them():
    counts = np.concatenate([np.arange(1.0, 100), [40_000.0]])
    scale = Preference.from_ratings(0.0, counts)
    assert (scale.low, scale.high) == (1.0, 99.0)
    assert 0.1 <= np.mean(counts >= scale.choose_threshold(counts)) <= 0.5
    stars = np.repeat([1.0, 2, 3, 4, 5], 20)
    assert Preference.from_ratings(0.0, stars).choose_threshold(stars) == 4.0


def test_a_model_of_the_catalogue_is_saved_whole(tmp_path, model):
    model.save(tmp_path / "model")
    again = CCCF.load(tmp_path / "model")
    assert (again.choice_, again.objective_, again.feedback_) == (model.choice_, "catalogue", "explicit")
    np.testing.assert_array_equal(again.transform_users(TRAIN[:4]), model.transform_users(TRAIN[:4]))
    assert again.encode_items(TRAIN.T.tocsr()[:4]) == model.encode_items(TRAIN.T.tocsr()[:4])


def test_a_failed_fit_leaves_the_model_as_it_was():
    model = fitted("CCCF")
    before = model.predict(0, np.arange(120))
    with pytest.raises(ValueError, match="above 0"):
        model.set_params(feedback="implicit").fit(MATRIX * 0)
    np.testing.assert_array_equal(model.predict(0, np.arange(120)), before)
