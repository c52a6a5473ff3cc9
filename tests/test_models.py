"""The contract that every model keeps: parameters, shapes, files, threads, fold-in."""

import faulthandler
import os
from fractions import Fraction

import faiss
import numpy as np
import pytest
from model_helpers import MATRIX, MODELS, RATINGS, assert_equal_models, dense_predictions, every_model, fitted
from scipy import sparse
from sklearn.base import clone

import cccf_index.models
from cccf_index import CompositionalCodes, IndexCCCF
from cccf_index.datasets import split_ratings, synthetic_ratings
from cccf_index.evaluation import rated_ndcg
from cccf_index.models import BCCF, CCCF, DCF, MF, NotFittedError


@pytest.fixture(scope="module", params=list(MODELS))
def model(request):
    return fitted(request.param)


def test_fit_returns_the_model_with_the_shape_and_the_history(model):
    assert (model.n_users_, model.n_items_) == MATRIX.shape
    assert len(model.history_) >= 2
    assert all(seconds >= 0 for _, seconds in model.history_)


def test_the_objective_never_rises(model):
    objectives = np.array([entry.objective for entry in model.history_])
    assert (np.diff(objectives) <= 1e-5 * np.abs(objectives[:-1])).all()
    assert objectives[-1] < objectives[0] or objectives[0] < 1e-5  # a teacher of one direction is coded at once


def test_ratings_are_predicted_better_than_by_their_mean(model):
    coo = MATRIX.tocoo()
    predicted = model.predict(coo.row, coo.col)
    if getattr(model, "objective_", None) == "catalogue":  # preferences: rated items above the others
        assert predicted.mean() > 1.1 * dense_predictions(model).mean()
    else:
        assert ((predicted - coo.data) ** 2).mean() < 0.9 * coo.data.var()
    assert dense_predictions(model).dtype in (np.float32, np.float64)


def test_predict_broadcasts_and_keeps_the_shape(model):
    whole = dense_predictions(model)
    np.testing.assert_allclose(model.predict(3, [0, 5, 5]), whole[3, [0, 5, 5]], rtol=1e-5)
    np.testing.assert_allclose(model.predict([1, 2], [4, 0]), whole[[1, 2], [4, 0]], rtol=1e-5)
    assert model.predict(2, 3).shape == ()
    assert model.predict([], []).shape == (0,)


def test_predict_works_in_blocks(model, monkeypatch):
    whole = dense_predictions(model)
    monkeypatch.setattr(cccf_index.models.base, "PREDICT_BATCH", 7)
    np.testing.assert_allclose(dense_predictions(model), whole, rtol=1e-5)


def test_recommend_returns_the_best_predictions_without_what_is_excluded(model):
    users = [5, 3, 200]
    D, I = model.recommend(users, 7, exclude=MATRIX[users])
    scores = dense_predictions(model)[users].astype(float)
    scores[MATRIX[users].toarray() > 0] = -np.inf
    tolerance = 0.05 if isinstance(model, CCCF) else 1e-4  # the index rounds weights to a byte
    for row in range(len(users)):
        np.testing.assert_allclose(D[row], scores[row, I[row]], atol=tolerance)
        np.testing.assert_allclose(np.sort(D[row])[::-1], D[row])
        assert D[row, -1] >= np.sort(scores[row])[-7] - 2 * tolerance
    assert D.dtype == np.float32
    assert I.dtype == np.int64


def test_recommend_pads_where_items_run_out(model):
    D, I = model.recommend([0], model.n_items_ + 3, exclude=MATRIX[[0]])
    left = model.n_items_ - MATRIX[[0]].nnz
    assert (I[0, :left] >= 0).all()
    assert (I[0, left:] == -1).all()
    assert (D[0, left:] == np.finfo(np.float32).min).all()
    assert set(I[0, :left]) == set(range(model.n_items_)) - set(MATRIX[[0]].indices)


def test_recommend_takes_all_users_when_none_are_named(model):
    D, I = model.recommend(k=2)
    assert D.shape == I.shape == (300, 2)
    np.testing.assert_array_equal(I[[4, 9]], model.recommend([4, 9], 2)[1])


def test_the_index_returns_what_recommend_does(model):
    index = model.to_index()
    assert index.ntotal == 120
    if isinstance(model, MF):
        assert isinstance(index, faiss.IndexFlatIP)
        D, _ = index.search(model.user_factors_.astype(np.float32), 5)
        np.testing.assert_allclose(model.to_ratings(D), model.recommend(k=5)[0], rtol=1e-4)
    else:
        assert isinstance(index, IndexCCCF)
        D, I = index.search(getattr(model, "user_queries_", model.user_codes_), 200)
        expected = model.recommend(k=200)
        np.testing.assert_array_equal(I, expected[1])
        found = I >= 0
        bias = np.repeat(getattr(model, "user_bias_", np.zeros(300, np.float32))[:, None], 200, axis=1)
        np.testing.assert_allclose(model.to_ratings(D[found] + bias[found]), expected[0][found], rtol=1e-5)
        np.testing.assert_array_equal(D[~found], expected[0][~found])
        assert isinstance(model.item_codes_, CompositionalCodes)


def test_users_folded_in_are_as_good_as_trained_ones(model):
    if isinstance(model, MF):
        encoded = model.to_ratings(model.encode_users(MATRIX) @ model.item_factors_.T)
    else:
        scores = model.encode_users(MATRIX).to_vectors() @ model.item_codes_.to_vectors().T
        encoded = model.to_ratings(scores) + getattr(model, "user_bias_", np.zeros(300))[:, None]
    coo = MATRIX.tocoo()
    trained = ((model.predict(coo.row, coo.col) - coo.data) ** 2).mean()
    assert ((encoded[coo.row, coo.col] - coo.data) ** 2).mean() < 1.1 * trained


def test_items_folded_in_are_as_good_as_trained_ones(model):
    matrix = MATRIX.T.tocsr()
    if isinstance(model, MF):
        encoded = model.to_ratings(model.encode_items(matrix) @ model.user_factors_.T)
    else:
        scores = model.encode_items(matrix).to_vectors() @ model.user_codes_.to_vectors().T
        encoded = model.to_ratings(scores) + getattr(model, "user_bias_", np.zeros(300))
    coo = matrix.tocoo()
    trained = ((model.predict(coo.col, coo.row) - coo.data) ** 2).mean()
    assert ((encoded[coo.row, coo.col] - coo.data) ** 2).mean() < 1.1 * trained


def test_a_row_is_encoded_the_same_alone_and_among_others(model):
    matrix = sparse.vstack([MATRIX[:4], sparse.csr_matrix((2, 120))]).tocsr()
    together = model.encode_users(matrix)
    for row in range(6):
        alone = model.encode_users(matrix[[row]])
        if isinstance(model, MF):
            np.testing.assert_array_equal(alone[0], together[row])
        else:
            assert alone == together[[row]]
    assert len(model.encode_users(matrix[:0])) == 0


def test_files_keep_everything(model, tmp_path):
    path = tmp_path / "model.cccf"
    model.save(path)
    again = type(model).load(path)
    assert again.get_params() == {**model.get_params()} or isinstance(model, CCCF)
    assert_equal_models(model, again)
    assert again.history_ == model.history_
    first, second = model.encode_users(MATRIX[:5]), again.encode_users(MATRIX[:5])
    assert np.array_equal(first, second) if isinstance(model, MF) else first == second
    assert type(cccf_index.models.load(path)) is type(model)


def test_a_foreign_or_damaged_file_is_refused(model, tmp_path):
    path = tmp_path / "model.cccf"
    model.save(path)
    wrong = DCF if not isinstance(model, DCF) else BCCF
    with pytest.raises(ValueError, match=f"holds a model {type(model).__name__}, not {wrong.__name__}"):
        wrong.load(path)
    with pytest.raises(ValueError, match=r"Read it by cccf_index\.models\.load"):
        CompositionalCodes.load(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match="damaged"):
        type(model).load(path)
    path.write_bytes(bytes([*data[:200], data[200] ^ 1, *data[201:]]))
    with pytest.raises(ValueError, match="damaged"):
        type(model).load(path)


@pytest.mark.parametrize("part", ["factors", "codes", "range", "users", "class", "params", "history"])
def test_a_file_whose_parts_do_not_fit_is_refused(model, part, tmp_path):
    from cccf_index.storage import container

    path = tmp_path / "model.cccf"
    model.save(path)
    meta, arrays = container.read_file(path, "model")
    arrays = dict(arrays)
    if part == "factors":
        name = next(name for name in arrays if name.endswith(("factors_", "bits")))
        arrays[name] = arrays[name][:-1]
    elif part == "codes":
        arrays.pop(next(iter(arrays)))
    elif part == "range":
        meta["numbers"]["rating_range_" if "rating_range_" in meta["numbers"] else "history_"] = [5, 5]
    elif part == "users":
        meta["numbers"]["n_users_"] += 1
    elif part == "class":
        meta["class"] = "Nobody"
    elif part == "params":
        meta["params"]["colour"] = 3
    else:
        del meta["numbers"]["history_"]
    container.write_file(path, "model", meta, [(name, array, 0) for name, array in arrays.items()])
    with pytest.raises(ValueError, match="damaged"):
        type(model).load(path)


@every_model
def test_parameters_set_after_fit_wait_for_the_next_one(name, tmp_path):
    model = fitted(name)
    expected = model.encode_users(MATRIX[:5])
    before = dense_predictions(model)
    model.set_params(**{"n_factors" if name.startswith("MF") else "n_bits": 9})
    np.testing.assert_array_equal(dense_predictions(model), before)
    model.save(tmp_path / "model")
    for one in (model, type(model).load(tmp_path / "model")):
        encoded = one.encode_users(MATRIX[:5])
        assert np.array_equal(encoded, expected) if isinstance(one, MF) else encoded == expected
    assert (dense_predictions(fitted(name, **model.get_params())) != before).any()


@every_model
def test_a_fit_that_fails_leaves_the_model_as_it_was(name):
    model = fitted(name)
    before, new = dense_predictions(model), model.encode_users(MATRIX[:5])
    few = MATRIX[:5, :20]  # so few rows cannot be decorrelated, which comes to light late
    matrix = few if name in ("DCF", "DCMF", "kernel CCCF") else few * 0
    features = {"item_features": RATINGS.item_features[:20]} if name == "DCMF" else {}
    with pytest.raises(ValueError, match="`user_items` must"):
        model.fit(matrix, **features)
    np.testing.assert_array_equal(dense_predictions(model), before)
    again = model.encode_users(MATRIX[:5])
    assert np.array_equal(again, new) if isinstance(model, MF) else again == new


@every_model
def test_parameters_follow_scikit_learn(name):
    model = MODELS[name](seed=3)
    assert model.get_params()["seed"] == 3
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(seed=4) is model
    assert model.seed == 4
    assert "seed=4" in repr(model)
    with pytest.raises(ValueError, match="`colour` is not a parameter"):
        model.set_params(colour="red")


@every_model
def test_an_unfitted_model_says_so(name, tmp_path):
    model = MODELS[name]()
    for call in (
        lambda: model.predict([0], [0]),
        lambda: model.recommend([0]),
        lambda: model.to_index(),
        lambda: model.encode_users(MATRIX),
        lambda: model.encode_items(MATRIX.T),
        lambda: model.save(tmp_path / "model.cccf"),
    ):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            call()
    assert not list(tmp_path.iterdir())


@every_model
def test_results_depend_on_the_seed_and_not_on_the_threads(name):
    threads = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(1)
        one = fitted(name)
        faiss.omp_set_num_threads(3)
        assert_equal_models(one, fitted(name))
        new = one.encode_users(MATRIX[:50])
        faiss.omp_set_num_threads(1)
        again = one.encode_users(MATRIX[:50])
        assert np.array_equal(new, again) if isinstance(one, MF) else new == again
    finally:
        faiss.omp_set_num_threads(threads)
    assert (dense_predictions(one) != dense_predictions(fitted(name, seed=1))).any()


@pytest.mark.slow
@every_model
def test_formats_and_types_of_ratings_do_not_matter(name):
    expected = fitted(name)
    for matrix in (
        MATRIX.tocoo(),
        MATRIX.tocsc(),
        sparse.csr_array(MATRIX),
        MATRIX.astype(np.int8),
        MATRIX.astype(np.float64),
    ):
        assert_equal_models(expected, fitted(name, matrix))
    unsorted = MATRIX.copy()
    for row in range(300):
        part = slice(unsorted.indptr[row], unsorted.indptr[row + 1])
        unsorted.indices[part], unsorted.data[part] = (
            unsorted.indices[part][::-1].copy(),
            unsorted.data[part][::-1].copy(),
        )
    unsorted.has_sorted_indices = False
    before = unsorted.indices.copy()
    assert_equal_models(expected, fitted(name, unsorted))
    np.testing.assert_array_equal(unsorted.indices, before)


@every_model
def test_a_stored_zero_is_a_rating(name):
    zeros = MATRIX.copy()
    zeros.data = zeros.data - 1  # from 0 to 4
    assert (zeros.data == 0).any()
    model = fitted(name, zeros)
    coo = zeros.tocoo()
    assert coo.nnz == MATRIX.nnz
    assert model.predict(coo.row, coo.col)[coo.data == 0].mean() < 2


@every_model
def test_rows_and_columns_without_ratings_have_finite_scores(name):
    matrix = MATRIX.tolil()
    matrix[[0, 50]] = 0
    matrix[:, [3, 9]] = 0
    model = fitted(name, matrix.tocsr())
    assert np.isfinite(dense_predictions(model)).all()
    D, _ = model.recommend([0, 50, 1])
    assert np.isfinite(D).all()
    if isinstance(model, MF):
        assert not model.user_factors_[[0, 50]].any()
    elif hasattr(model, "quantizer_"):
        assert (np.abs(model.item_codes_.weights).max() > 0).all()
        order = model.recommend([0, 50], 120)[0]
        assert (np.ptp(order - model.to_ratings(model.user_bias_[[0, 50]])[:, None], axis=0) < 0.02).all()  # the same
    elif name != "DCMF":
        signs = model.user_codes_.to_signs()[[0, 50]]
        active = model.user_codes_.weights[[0, 50]] > 0
        assert active.any(axis=1).all()
        assert (np.abs(signs.sum(axis=2))[active] <= signs.shape[2] % 2).all()  # as many +1 as -1
        empty = model.encode_users(sparse.csr_matrix((1, 120))).to_signs()
        assert np.abs(empty.sum(axis=2)).min() <= empty.shape[2] % 2


@every_model
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16, Fraction])
def test_parameters_of_any_kind_of_number_are_saved(name, kind, tmp_path):
    model = fitted(name, regularization=kind(0.125), seed=np.int32(3))
    model.save(tmp_path / "model")
    again = type(model).load(tmp_path / "model")
    assert again.regularization == 0.125
    assert all(type(value) is float for entry in again.history_ for value in entry)


def test_predictions_keep_the_resolution_of_the_ratings():
    far = MATRIX.astype(np.float64)
    far.data += 1e8
    near, off = fitted("DCF"), fitted("DCF", far)
    assert near.user_codes_ == off.user_codes_
    np.testing.assert_allclose(dense_predictions(off) - 1e8, dense_predictions(near), atol=1e-6)


def test_mf_orders_ties_by_the_item():
    model = fitted("MF")
    model.user_factors_[0] = 0
    for k in (1, 5, 6, 120):
        assert model.recommend([0], k)[1].tolist() == [list(range(k))]
    assert model.recommend([0], 3, exclude=sparse.csr_matrix(np.arange(120) < 2))[1].tolist() == [[2, 3, 4]]


@every_model
def test_a_forked_process_trains_too(name):
    fitted(name)
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(60, exit=True)
        fitted(name)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.slow
def test_models_rank_as_published():
    """Real values above discrete codes, those above rounded ones, and all above chance."""
    matrix = synthetic_ratings(800, 300, n_groups=6, ratings_per_user=60, seed=2).user_items
    train, test = split_ratings(matrix)
    ndcg = {
        name: rated_ndcg(model.fit(train), test)
        for name, model in {
            "MF": MF(24, verbose=False),
            "DCF": DCF(48, verbose=False),
            "BCCF": BCCF(48, verbose=False),
            "CCCF": CCCF(6, 8, objective="rated", verbose=False),
        }.items()
    }
    chance = rated_ndcg(np.zeros(test.nnz), test)
    assert ndcg["MF"] > ndcg["DCF"] > ndcg["BCCF"] > chance + 0.05
    assert ndcg["CCCF"] > ndcg["BCCF"]
