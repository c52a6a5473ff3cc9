"""CCCF with learned weights: as accurate as the MF that taught it, and what it takes besides ratings."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from model_helpers import MATRIX, dense_predictions, fitted
from scipy import sparse

from cccf_index.datasets import split_ratings, synthetic_ratings
from cccf_index.evaluation import catalogue_ndcg, rated_ndcg
from cccf_index.models import CCCF, DCF, MF
from cccf_index.models._teacher_tuning import GRID, choose_teacher, compute_item_bias, compute_user_means

LARGE = synthetic_ratings(1200, 500, n_groups=6, ratings_per_user=60, seed=2).user_items
TRAIN, TEST = split_ratings(LARGE)


@pytest.fixture(scope="module")
def large():
    return CCCF(8, 16, n_factors=32, objective="rated", verbose=False).fit(TRAIN)


@pytest.mark.slow
def test_learned_codes_rank_like_their_teacher_and_above_other_codes(large):
    teacher = rated_ndcg(large.latents_, TEST)
    assert rated_ndcg(large, TEST) > teacher - 0.01
    kernel = CCCF(8, 16, "kernel", verbose=False).fit(TRAIN)
    assert rated_ndcg(large, TEST) > max(rated_ndcg(kernel, TEST), rated_ndcg(DCF(128, verbose=False).fit(TRAIN), TEST))


@pytest.mark.slow
def test_real_queries_predict_nearer_to_the_teacher_than_coded_ones(large):
    real = CCCF(8, 16, n_factors=32, queries="real", objective="rated", verbose=False).fit(TRAIN)
    assert real.item_codes_ == large.item_codes_
    wanted = dense_predictions(real.latents_) + real.item_bias_
    errors = [np.square(dense_predictions(model) - wanted).mean() for model in (real, large)]
    assert errors[0] < errors[1] < 0.1 * wanted.var()
    folded, own = real.transform_users(TRAIN[:9]), real.user_queries_[:9]
    assert np.square(folded - own).sum() < 0.05 * np.square(own).sum()


def test_predictions_are_ratings(large):
    coo = TRAIN.tocoo()
    errors = large.predict(coo.row, coo.col) - coo.data
    assert abs(errors.mean()) < 0.2
    assert np.square(errors).mean() < coo.data.var()


def test_users_without_ratings_get_finite_codes():
    matrix = TRAIN.tolil()
    matrix[0] = 0
    model = CCCF(8, 16, n_factors=8, regularization=0.2, objective="rated", verbose=False).fit(matrix.tocsr())
    codes = model.encode_users(sparse.csr_matrix((1, 500)))
    assert np.isfinite(codes.weights).all()


def test_the_regularization_is_chosen_where_it_is_not_given():
    matrix = sparse.csr_array(TRAIN)
    choice = choose_teacher(matrix, None, 0)
    assert choice.regularization in [value * float(np.ptp(TRAIN.data)) / 4 for value in GRID]
    assert choice.unobserved in (0.0, 0.1)
    inner, held = split_ratings(TRAIN, 0.1, 0)
    mine = rated_ndcg(MF(32, choice.regularization, 6, unobserved=choice.unobserved, verbose=False).fit(inner), held)
    for other in (0.02, 0.7):
        assert mine >= rated_ndcg(MF(32, other, 6, verbose=False).fit(inner), held) - 0.005
    assert choose_teacher(matrix, 0.3, 0).unobserved == 0.3


def test_ratings_that_cannot_be_held_out_take_the_defaults():
    few = sparse.csr_array(sparse.csr_matrix(np.array([[1.0, 2, 0, 4], [0, 3, 5, 0], [2, 0, 0, 1]])))
    assert choose_teacher(few, None, 0) == (0.09, 0.0, 0.0)
    model = CCCF(2, 4, verbose=False).fit(few)
    assert np.isfinite(dense_predictions(model)).all()


def test_item_bias_is_the_damped_mean_above_the_users_means():
    dense = np.array([[5.0, 3, 0], [4, 0, 0]])
    matrix = sparse.csr_array(dense)
    means = compute_user_means(matrix)
    np.testing.assert_allclose(means, [(8 + 5 * 4) / 7, (4 + 5 * 4) / 6])
    bias = compute_item_bias(matrix.T.tocsr(), means)
    np.testing.assert_allclose(bias, [(9 - means.sum()) / 5, (3 - means[0]) / 4, 0], rtol=1e-6)


def test_a_given_regularization_is_taken():
    model = fitted("CCCF", regularization=0.25, unobserved=0.05)
    assert model.latents_.regularization == 0.25
    assert model.latents_.unobserved == 0.05
    assert model.bias_share_ == 0.0


def test_the_bias_survives_into_codes_and_new_items():
    model = fitted("rated CCCF", regularization=0.25)
    assert not model.item_bias_.any()
    teacher = fitted("rated CCCF")._get_teacher()._replace(bias_share=1.0, popularity_share=0.5)
    ratings = sparse.csr_array(MATRIX).T.tocsr()
    vectors = teacher.encode(ratings, ratings, "item")
    assert vectors.shape == (120, 16)
    popularity = np.log10(1 + np.diff(ratings.indptr))
    np.testing.assert_allclose(
        vectors[:, -1], compute_item_bias(ratings, teacher.user_means) + 0.5 * popularity, atol=1e-6
    )
    users = sparse.csr_array(MATRIX[:4])
    assert (teacher.encode(users, users, "user")[:, -1] == 1).all()


@pytest.mark.parametrize("active", [1, 2])
def test_sparse_codes_keep_to_their_number_of_components(active):
    model = fitted("CCCF", max_active=active, max_active_users=active)
    for codes in (model.user_codes_, model.item_codes_, model.encode_users(MATRIX[:20])):
        assert np.count_nonzero(codes.weights, axis=1).max() == active


def test_any_factors_can_teach():
    latents = MF(5, verbose=False).fit(MATRIX)
    pair = (latents.user_factors_, latents.item_factors_)
    models = [
        fitted("CCCF", latents=given)
        for given in (latents, pair, SimpleNamespace(user_factors=pair[0], item_factors=pair[1]))
    ]
    assert models[0].item_codes_ == models[1].item_codes_ == models[2].item_codes_
    unfitted = fitted("CCCF", latents=MF(5, verbose=False))
    assert unfitted.item_codes_ == models[0].item_codes_
    with pytest.raises(ValueError, match="must be fitted"):
        fitted("CCCF", latents=SimpleNamespace(user_factors=None, item_factors=None))


def test_given_factors_stand_in_a_file_once(tmp_path):
    latents = MF(5, verbose=False).fit(MATRIX)
    for given, name in (
        (MF(5, verbose=False), "unfitted"),
        (latents, "given"),
        ((latents.user_factors_, latents.item_factors_), "pair"),
    ):
        model = fitted("CCCF", latents=given, regularization=0.08)
        model.save(tmp_path / name)
        again = CCCF.load(tmp_path / name)
        np.testing.assert_array_equal(dense_predictions(again), dense_predictions(model))
        assert again.encode_users(MATRIX[:5]) == model.encode_users(MATRIX[:5])
        if name == "unfitted":
            assert not hasattr(again.latents, "history_")
        else:
            assert again.latents is again.latents_
    sizes = [(tmp_path / name).stat().st_size for name in ("unfitted", "given", "pair")]
    assert max(sizes) < 1.02 * min(sizes)


def implicit_feedback():
    matrix = LARGE.copy()
    matrix.data[:] = matrix.data >= 4
    matrix.eliminate_zeros()
    return split_ratings(matrix)


def test_implicit_feedback_takes_the_factors_of_any_model():
    train, test = implicit_feedback()
    dense = train.toarray()
    P, sizes, Q = np.linalg.svd(dense, full_matrices=False)
    pair = P[:, :16] * sizes[:16], Q[:16].T
    model = CCCF(8, 16, feedback="implicit", latents=pair, verbose=False).fit(train)
    scores = pair[0] @ pair[1].T
    scores[dense > 0] = -np.inf
    wanted = catalogue_ndcg(np.argsort(-scores, axis=1)[:, :10], test, threshold=0.5)
    assert catalogue_ndcg(model, test, train=train, threshold=0.5) > 0.85 * wanted
    folded = model.to_index().search(model.encode_users(train), 10, exclude=train)[1]
    assert catalogue_ndcg(folded, test, threshold=0.5) > 0.7 * wanted
    doubled = train * 2  # how often something was taken does not count
    assert model.encode_users(doubled[:5]) == model.encode_users(train[:5])
    assert model.transform_users(train[:5]).shape == (5, 128)


def test_how_often_something_was_taken_does_not_count():
    train, _ = implicit_feedback()
    taught = MF(6, unobserved=0.1, n_models=2, verbose=False).fit(LARGE)
    model = CCCF(2, 8, feedback="implicit", latents=taught, verbose=False).fit(train * 3)
    assert (model.latents_.offset_, model.latents_.n_models_) == (0.0, 1)
    own = taught.user_factors_ @ taught.item_factors_.T
    folded = model._encode_vectors(sparse.csr_array(train), "user")[:, :-1] @ taught.item_factors_.T
    assert np.corrcoef(own.ravel(), folded.ravel())[0, 1] > 0.2
    before = model.transform_users(train[:5])
    np.testing.assert_array_equal(model.set_params(feedback="explicit").transform_users(train[:5]), before)
    with pytest.raises(ValueError, match="above 0"):
        CCCF(2, 8, feedback="implicit", latents=taught, verbose=False).fit(train * 0)
    with pytest.raises(ValueError, match="must be fitted"):
        CCCF(2, 8, feedback="implicit", latents=MF(4), verbose=False).fit(train)


def test_the_unit_of_the_ratings_does_not_matter():
    one, other = (sparse.csr_array(TRAIN * unit) for unit in (1, 100))
    small, large_unit = choose_teacher(one, None, 0), choose_teacher(other, None, 0)
    assert large_unit.regularization == pytest.approx(100 * small.regularization)
    assert large_unit[1:] == small[1:]


def test_the_rated_objective_refuses_implicit_feedback():
    for params in ({}, {"feedback": "implicit"}):
        with pytest.raises(ValueError, match='objective="catalogue"'):
            CCCF(objective="rated", verbose=False, **params).fit(implicit_feedback()[0])


def test_a_refit_with_other_weights_forgets_the_old_ones(tmp_path):
    model = fitted("real CCCF")
    model.set_params(weights="kernel", queries="coded").fit(MATRIX)
    assert not hasattr(model, "quantizer_")
    assert not hasattr(model, "user_queries_")
    model.save(tmp_path / "model")
    assert CCCF.load(tmp_path / "model").encode_users(MATRIX[:3]) == model.encode_users(MATRIX[:3])
    with pytest.raises(ValueError, match="learned"):
        model.transform_users(MATRIX[:3])
    model.set_params(weights="learned").fit(MATRIX)
    assert not hasattr(model, "user_anchors_")


def test_pairs_without_ratings_lift_the_catalogue_ranking():
    plain, with_pairs = (MF(16, 0.09, unobserved=share, verbose=False).fit(TRAIN) for share in (0.0, 0.1))
    assert catalogue_ndcg(with_pairs, TEST, train=TRAIN) > catalogue_ndcg(plain, TEST, train=TRAIN)
    objectives = [entry.objective for entry in with_pairs.history_]
    assert all(after <= before for before, after in itertools.pairwise(objectives))


def test_all_pairs_least_squares_are_those_of_dense_algebra():
    model = MF(4, 0.1, 1, unobserved=0.5, dtype="float64", verbose=False).fit(MATRIX)
    dense, rated = MATRIX.toarray().astype(float), MATRIX.toarray() > 0
    weight = 0.5 * MATRIX.nnz / dense.size
    Y = model.item_factors_
    users = model.encode_users(MATRIX)
    for i in (0, 17):
        gram = Y[rated[i]].T @ Y[rated[i]] + weight * Y.T @ Y
        gram += 0.1 * (rated[i].sum() + weight * len(Y)) * np.eye(4)
        wanted = np.linalg.solve(gram, Y[rated[i]].T @ (dense[i, rated[i]] - 2))
        np.testing.assert_allclose(users[i], wanted, rtol=1e-6)
    assert model.offset_ == 2.0
    assert model.pair_weight_ == pytest.approx(weight)
