"""What is particular to each model: the shared core, relaxation, features, rotation, latents."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from cccf_index.datasets import split_ratings, synthetic_ratings
from cccf_index.evaluation import catalogue_ndcg, rated_ndcg
from cccf_index.models import BCCF, CCCF, DCF, DCMF, MF
from cccf_index.models._features import FeatureFit
from cccf_index.models._rows import Observed
from cccf_index.models._training import Side, _compute_objective, _compute_residual, draw_balanced_signs

RATINGS = synthetic_ratings(400, 150, n_groups=5, ratings_per_user=40, seed=1)
MATRIX = RATINGS.user_items


@pytest.mark.parametrize("params", [{}, {"initialize": False}, {"alpha": 3.0, "beta": 0.0, "seed": 5, "max_iter": 2}])
def test_dcf_is_cccf_with_one_component_bit_for_bit(params):
    shared = {"alpha": 0.01, "beta": 0.01, "n_bits": 16, "verbose": False, **params}
    dcf = DCF(**shared).fit(MATRIX)
    cccf = CCCF(n_components=1, weights="kernel", n_factors=4, **shared).fit(MATRIX)
    assert cccf.user_codes_ == dcf.user_codes_
    assert cccf.item_codes_ == dcf.item_codes_
    assert [entry.objective for entry in cccf.history_] == [entry.objective for entry in dcf.history_]
    assert cccf.encode_users(MATRIX[:20]) == dcf.encode_users(MATRIX[:20])
    np.testing.assert_array_equal(cccf.predict(3, range(150)), dcf.predict(3, range(150)))


def test_the_objective_is_that_of_the_paper():
    """Computed from the finished codes, with X and Y that belong to them."""
    model = CCCF(3, 8, "kernel", alpha=0.5, beta=0.2, n_factors=6, max_iter=4, tol=0, verbose=False).fit(MATRIX)
    coo = MATRIX.tocoo()
    low, high = model.rating_range_
    targets = (coo.data - (high + low) / 2) / ((high - low) / 2) * model.rating_scale_
    scores = np.einsum("ij,ij->i", *model._get_vectors(coo.row, coo.col))
    total = ((targets - scores) ** 2).sum()
    for codes, strength in ((model.user_codes_, 0.5), (model.item_codes_, 0.2)):
        assert codes.sparsity == 0  # else signs of components without weight are not kept
        for k in range(3):
            signs = codes.to_signs()[:, k].astype(float)
            singular = np.linalg.svd(signs - signs.mean(axis=0), compute_uv=False)
            total -= 2 * strength * np.sqrt(len(signs)) * singular.sum()  # the largest tr(B^T X)
    assert model.history_[-1].objective == pytest.approx(total / model.rating_scale_**2, rel=1e-4)


@pytest.mark.parametrize("bandwidth", [0.3, 0.6, 1.2])
@pytest.mark.parametrize("normalize", [True, False])
def test_the_objective_never_rises_with_sparse_weights(bandwidth, normalize):
    model = CCCF(
        4, 8, "kernel", bandwidth=bandwidth, normalize=normalize, alpha=0.1, beta=0.1, max_iter=6, tol=0, verbose=False
    ).fit(MATRIX)
    objectives = np.array([entry.objective for entry in model.history_])
    assert (np.diff(objectives) <= 1e-5 * np.abs(objectives[:-1])).all()
    weights = model.user_codes_.weights
    assert (weights > 0).any(axis=1).all()
    if normalize:
        np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)


def test_a_smaller_bandwidth_makes_sparser_codes():
    sparsities = [
        CCCF(4, 8, "kernel", bandwidth=h, verbose=False).fit(MATRIX).item_codes_.sparsity for h in (0.3, 0.6, 2.0)
    ]
    assert sparsities[0] > sparsities[1] > sparsities[2] == 0


@pytest.mark.parametrize("kernel", ["epanechnikov", "triangular", "uniform"])
@pytest.mark.parametrize("distance", ["angular", "arccos"])
@pytest.mark.parametrize("anchors", ["kmeans", "random"])
def test_every_variant_of_the_weights_trains(kernel, distance, anchors):
    model = CCCF(3, 8, "kernel", kernel=kernel, distance=distance, anchors=anchors, bandwidth=0.9, verbose=False).fit(
        MATRIX
    )
    assert rated_ndcg(model, MATRIX) > rated_ndcg(np.zeros(MATRIX.nnz), MATRIX) + 0.02


def test_the_relaxed_start_is_better_than_a_random_one():
    started, random = (DCF(16, initialize=flag, verbose=False).fit(MATRIX) for flag in (True, False))
    assert started.history_[0].objective < 0.8 * random.history_[0].objective
    assert started.history_[-1].objective < random.history_[-1].objective


def test_training_stops_when_the_objective_hardly_falls():
    patient, hasty = (DCF(16, tol=tol, max_iter=50, verbose=False).fit(MATRIX) for tol in (1e-9, 0.1))
    assert len(hasty.history_) < len(patient.history_) < 51
    falls = -np.diff([entry.objective for entry in hasty.history_])
    assert falls[-1] < 0.1 * 400 <= falls[:-1].min()
    assert len(DCF(16, max_iter=0, verbose=False).fit(MATRIX).history_) == 1


def test_alpha_and_beta_balance_and_decorrelate_the_bits():
    def correlation(model):
        signs = model.user_codes_.to_signs()[:, 0].astype(float)
        return np.abs(signs.T @ signs / len(signs) - np.eye(16)).mean() + np.abs(signs.mean(axis=0)).mean()

    free, bound = (DCF(16, alpha=a, beta=a, verbose=False).fit(MATRIX) for a in (0.0, 300.0))
    assert correlation(bound) < 0.8 * correlation(free)


def test_few_rows_are_welcome_without_decorrelation():
    model = DCF(32, alpha=0, beta=0, verbose=False).fit(MATRIX[:10, :20])
    assert np.isfinite(model.predict(np.arange(10)[:, None], np.arange(20))).all()


def test_latents_may_be_given_and_are_kept(tmp_path):
    latents = MF(7, seed=3, verbose=False).fit(MATRIX)
    model = CCCF(3, 8, "kernel", latents=latents, verbose=False).fit(MATRIX)
    assert model.latents_.user_factors_ is latents.user_factors_
    other = MF.from_factors(latents.user_factors_, latents.item_factors_)
    assert CCCF(3, 8, "kernel", latents=other, verbose=False).fit(MATRIX).user_codes_ == model.user_codes_
    model.save(tmp_path / "model")
    again = CCCF.load(tmp_path / "model")
    assert again.encode_users(MATRIX[:9]) == model.encode_users(MATRIX[:9])
    assert isinstance(again.latents, MF)
    with pytest.raises(ValueError, match="`latents` must be of 400 users and 150 items"):
        CCCF(3, 8, "kernel", latents=MF(3, verbose=False).fit(MATRIX[:100]), verbose=False).fit(MATRIX)
    with pytest.raises(ValueError, match="`item_factors`"):
        MF.from_factors(np.ones((3, 2)), np.ones(3))
    assert MF.from_factors([[1 / 3]], [[1 / 3]], dtype="float64").user_factors_[0, 0] == 1 / 3
    with pytest.raises(ValueError, match="`user_factors`"):
        MF.from_factors(np.ones((3, 2)), np.ones((3, 4)))


def test_latents_that_are_fitted_again_change_nothing(tmp_path):
    latents = MF(7, verbose=False).fit(MATRIX)
    model = CCCF(3, 8, "kernel", latents=latents, verbose=False).fit(MATRIX)
    before = model.encode_users(MATRIX[:9])
    latents.fit(MATRIX[:50, :40])
    assert model.encode_users(MATRIX[:9]) == before
    model.set_params(latents=MF(5))
    model.save(tmp_path / "model")
    assert CCCF.load(tmp_path / "model").encode_users(MATRIX[:9]) == before
    with pytest.raises(ValueError, match="`kernel` must be one of"):
        model.set_params(kernel="gaussian").encode_users(MATRIX[:9])


def test_latents_that_are_not_fitted_yet_will_be():
    latents = MF(7, seed=3, verbose=False)
    model = CCCF(3, 8, "kernel", latents=latents, verbose=False).fit(MATRIX)
    assert not hasattr(latents, "history_")
    given = CCCF(3, 8, "kernel", latents=MF(7, seed=3, verbose=False).fit(MATRIX), verbose=False)
    assert given.fit(MATRIX).user_codes_ == model.user_codes_
    assert clone(given).fit(MATRIX).user_codes_ == model.user_codes_
    own = CCCF(3, 8, "kernel", latents=MF.from_factors(np.ones((400, 2)), np.ones((150, 2))), verbose=False)
    assert clone(own).latents is own.latents  # no fit could restore them


def test_components_that_no_rated_pair_shares_are_an_error():
    latents = np.eye(2)[[0] * 20 + [1] * 20]
    block = np.random.default_rng(0).integers(1, 6, (20, 20))
    ratings = sparse.csr_matrix(np.kron([[0, 1], [1, 0]], block))  # each half rates the other half's items
    model = CCCF(2, 4, "kernel", latents=MF.from_factors(latents, latents), bandwidth=0.5, verbose=False)
    with pytest.raises(ValueError, match="larger `bandwidth`"):
        model.fit(ratings)
    assert model.set_params(bandwidth=2.0).fit(ratings).rating_scale_ > 0


def test_mf_agrees_with_alternating_least_squares_in_numpy():
    model = MF(5, regularization=0.1, max_iter=3, dtype="float64", verbose=False).fit(MATRIX)
    dense, mask = MATRIX.toarray().astype(float), MATRIX.toarray() > 0
    V = np.random.default_rng(0).standard_normal((150, 5)) / np.sqrt(5)
    U = np.zeros((400, 5))
    for _ in range(3):
        for side, other, values, known in ((U, V, dense, mask), (V, U, dense.T, mask.T)):
            for i in range(len(side)):
                x = other[known[i]]
                side[i] = np.linalg.solve(x.T @ x + 0.1 * max(len(x), 1) * np.eye(5), x.T @ values[i, known[i]])
    np.testing.assert_allclose(model.user_factors_, U, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(model.item_factors_, V, rtol=1e-8, atol=1e-10)
    error = ((dense - U @ V.T)[mask] ** 2).sum()
    ridge = 0.1 * (mask.sum(axis=1) @ (U**2).sum(axis=1) + mask.sum(axis=0) @ (V**2).sum(axis=1))
    assert model.history_[-1].objective == pytest.approx(error + ridge)


def test_mf_without_regularization_and_with_empty_rows_is_finite():
    matrix = MATRIX.tolil()
    matrix[4] = 0
    model = MF(60, regularization=0.0, verbose=False).fit(matrix.tocsr())
    assert np.isfinite(model.user_factors_).all()
    assert not model.user_factors_[4].any()


def test_mf_recommends_in_blocks(monkeypatch):
    model = MF(5, verbose=False).fit(MATRIX)
    whole = model.recommend(k=6, exclude=MATRIX)
    monkeypatch.setattr("cccf_index.models.mf.SCORES", 1000)
    np.testing.assert_array_equal(model.recommend(k=6, exclude=MATRIX)[1], whole[1])


def test_bccf_rotates_without_changing_inner_products():
    turned, plain = (BCCF(12, n_rotations=n, verbose=False).fit(MATRIX) for n in (50, 0))
    products = [model.user_factors_ @ model.item_factors_.T for model in (turned, plain)]
    np.testing.assert_allclose(products[0], products[1], atol=1e-3 * np.abs(products[1]).max())

    def rounding(model):
        size = np.sqrt(np.linalg.norm(model.user_factors_) / np.linalg.norm(model.item_factors_))
        factors = np.concatenate([model.user_factors_ / size, model.item_factors_ * size])
        return np.abs(factors).sum() / np.linalg.norm(factors)

    assert rounding(turned) > rounding(plain)
    np.testing.assert_array_equal(turned.user_codes_.to_signs()[:, 0], np.sign(turned.user_factors_))


def test_bccf_survives_a_regularization_that_leaves_nothing():
    assert np.isfinite(BCCF(12, regularization=1e30, verbose=False).fit(MATRIX).predict(0, range(150))).all()


def test_bccf_balance_pulls_the_mean_to_zero():
    def mean(model):
        return np.linalg.norm(model.item_factors_.mean(axis=0)) / np.linalg.norm(model.item_factors_)

    assert mean(BCCF(12, balance=1.0, verbose=False).fit(MATRIX)) < 0.5 * mean(
        BCCF(12, balance=0.0, verbose=False).fit(MATRIX)
    )


def test_dcmf_predicts_items_without_ratings_from_their_features():
    train = MATRIX.tolil()
    cold = np.arange(0, 150, 5)
    train[:, cold] = 0
    test = sparse.csr_matrix(MATRIX.toarray() * np.isin(np.arange(150), cold))
    train = train.tocsr()
    features = {"item_features": RATINGS.item_features, "user_features": RATINGS.user_features}
    warm = DCMF(24, verbose=False).fit(train, **features)
    assert rated_ndcg(warm, test) > rated_ndcg(DCF(24, verbose=False).fit(train), test) + 0.03
    new = warm.encode_items(sparse.csr_matrix((len(cold), 400)), item_features=RATINGS.item_features[cold])
    scores = warm.user_codes_.to_vectors() @ new.to_vectors().T
    pairs = test.tocoo()
    found = rated_ndcg(scores[pairs.row, np.searchsorted(cold, pairs.col)], test)
    assert found > rated_ndcg(np.zeros(test.nnz), test) + 0.03


@pytest.mark.parametrize("seed", range(6))
def test_the_objective_never_rises_with_features_and_rows_without_ratings(seed):
    rng = np.random.default_rng(seed)
    matrix = MATRIX.tolil()
    matrix[:, rng.choice(150, 60, replace=False)] = 0
    model = DCMF(8, item_strength=10 ** rng.uniform(-4, 1), alpha=1.0, beta=1.0, tol=0, verbose=False)
    model.fit(matrix.tocsr(), item_features=rng.standard_normal((150, 12)))
    objectives = np.array([entry.objective for entry in model.history_])
    assert (np.diff(objectives) <= 1e-6 * np.abs(objectives[:-1])).all()


@pytest.mark.parametrize("make", [sparse.lil_matrix, sparse.dok_matrix, sparse.coo_array])
def test_dcmf_takes_features_of_any_sparse_format(make):
    model = DCMF(8, verbose=False).fit(MATRIX, item_features=make(RATINGS.item_features))
    assert model.item_coefficients_.any()
    with pytest.raises(ValueError, match="`item_features` must be finite and at most"):
        DCMF(8).fit(MATRIX, item_features=make(RATINGS.item_features * 1e30))


def test_dcmf_takes_sparse_features_as_dense_ones():
    dense, packed = (
        DCMF(12, verbose=False).fit(
            MATRIX, item_features=make(RATINGS.item_features), user_features=make(RATINGS.user_features)
        )
        for make in (np.asarray, sparse.csr_matrix)
    )
    assert dense.user_codes_ == packed.user_codes_
    np.testing.assert_allclose(dense.item_coefficients_, packed.item_coefficients_, rtol=1e-5, atol=1e-6)


def test_features_are_fitted_by_ridge_regression():
    rng = np.random.default_rng(0)
    F, B = rng.standard_normal((30, 4)), draw_balanced_signs((1, 30, 6), rng)
    fit = FeatureFit(F, 2.0, 0.5, np.zeros((1, 4, 6), np.float32))
    fit.fit(0, B[0])
    expected = np.linalg.solve(F.T @ F + 0.5 * np.eye(4), F.T @ B[0])
    np.testing.assert_allclose(fit.coefficients[0], expected, rtol=1e-5)
    penalty = 2.0 * (((B[0] - F @ expected) ** 2).sum() + 0.5 * (expected**2).sum())
    assert fit.compute_penalty(B) == pytest.approx(penalty, rel=1e-5)


def test_features_that_depend_on_each_other_need_a_ridge():
    features = np.repeat(RATINGS.item_features, 2, axis=1)
    with pytest.raises(ValueError, match="`feature_ridge` above 0"):
        DCMF(12, feature_ridge=0, verbose=False).fit(MATRIX, item_features=features)
    model = DCMF(12, feature_ridge=0, verbose=False).fit(MATRIX, item_features=RATINGS.item_features)
    assert len(model.encode_items(MATRIX.T.tocsr()[:1], item_features=RATINGS.item_features[:1])) == 1


def test_the_objective_counts_errors_surrogates_and_features():
    rng = np.random.default_rng(0)
    ratings = Observed.from_matrix(sparse.csr_array(MATRIX))
    F = FeatureFit(RATINGS.user_features.astype(float), 3.0, 1.0, np.zeros((2, 5, 4), np.float32))
    users = Side(ratings.users, rng.random((2, 400), dtype=np.float32), 0.5, F)
    items = Side(ratings.items, rng.random((2, 150), dtype=np.float32), 0.0)
    users.start(draw_balanced_signs((2, 400, 4), rng))
    items.start(draw_balanced_signs((2, 150, 4), rng))
    predicted = sum(
        (users.weights[k][:, None] * users.codes[k]) @ (items.weights[k][:, None] * items.codes[k]).T for k in range(2)
    )
    coo = MATRIX.tocoo()
    error = ((coo.data - predicted[coo.row, coo.col]) ** 2).sum()
    pulled = (users.codes * users.surrogate).sum(dtype=float)
    objective = _compute_objective(_compute_residual(ratings.users, ratings.values, users, items), users, items)
    assert objective == pytest.approx(error - 2 * 0.5 * pulled + F.compute_penalty(users.codes), rel=1e-5)


@pytest.mark.parametrize("length", [1, 2, 7, 16])
def test_balanced_signs_are_balanced(length):
    signs = draw_balanced_signs((3, 50, length), np.random.default_rng(0))
    assert (np.abs(signs) == 1).all()
    assert (np.abs(signs.sum(axis=2)) <= length % 2).all()
    if length > 2:
        assert len(np.unique(signs.reshape(-1, length), axis=0)) > 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:All weights of")  # nearly all items of the first fit have no rating
@pytest.mark.parametrize(
    "make",
    [
        lambda: MF(8, max_iter=2),
        lambda: DCF(8),
        lambda: CCCF(2, 4, "kernel", n_factors=4),
        lambda: CCCF(2, 4, n_factors=4),
        lambda: CCCF(2, 4, n_factors=4, objective="rated"),
        lambda: BCCF(8),
    ],
)
def test_nothing_as_large_as_users_times_items_is_allocated(make):
    rng = np.random.default_rng(0)
    m = n = 30_000
    pairs = np.unique(rng.integers(0, m * n, 60_000))
    matrix = sparse.csr_matrix((rng.integers(1, 6, len(pairs)).astype(np.float32), np.divmod(pairs, n)), (m, n))
    train, test = split_ratings(matrix)
    model = make().set_params(verbose=False)
    model.fit(matrix[:200])  # compiles
    tracemalloc.start()
    try:
        model.fit(train)
        model.recommend(np.arange(500), 10, exclude=train[:500])
        rated_ndcg(model, matrix)
        if not isinstance(model, MF):  # whose blocks of scores are the benchmark's matter
            catalogue_ndcg(model, test if test.nnz else matrix, train=train)
        assert tracemalloc.get_traced_memory()[1] < m * n / 8  # bits of a mask would be as large
    finally:
        tracemalloc.stop()


def test_progress_is_shown_on_a_terminal_only(capsys):
    DCF(8, verbose=True).fit(MATRIX)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
