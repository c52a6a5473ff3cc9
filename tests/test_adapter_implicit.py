"""CCCFModel against implicit itself; implicit's own tests are run by test_adapter_implicit_mixin.py."""

import pickle
from io import BytesIO

import numpy as np
import pytest
from adapter_helpers import examples_run, interactions, shared
from implicit.als import AlternatingLeastSquares
from implicit.bpr import BayesianPersonalizedRanking
from implicit.evaluation import ranking_metrics_at_k, train_test_split
from implicit.nearest_neighbours import CosineRecommender
from implicit.recommender_base import RecommenderBase
from scipy import sparse

from cccf_index import IndexCCCF
from cccf_index._check import NotFittedError
from cccf_index.adapters.implicit import CCCFModel

USER_ITEMS = interactions()
N_USERS, N_ITEMS = USER_ITEMS.shape
LOWEST = np.finfo(np.float32).min


def trained(**options):
    als = AlternatingLeastSquares(factors=24, random_state=0, num_threads=1, iterations=5)
    als.fit(USER_ITEMS, show_progress=False)
    return CCCFModel(als, **options).build(show_progress=False)


@pytest.fixture(scope="module")
def model():
    """As good as exact: every item is found by its code, and ranked by its factors."""
    return trained(k_factor=N_ITEMS)


@pytest.fixture(scope="module")
def fast():
    return trained()


def same(answer, expected):
    """Compare with implicit tie-aware: by scores, up to rounding."""
    ids, scores = answer
    assert ids.dtype == np.int32
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected[1], rtol=1e-4, atol=1e-5)
    assert shared(np.atleast_2d(ids), np.atleast_2d(expected[0])) > 0.999


def test_docstring_example_runs():
    assert examples_run("implicit")


def test_it_is_a_recommender_of_implicit(fast):
    assert isinstance(fast, RecommenderBase)
    assert isinstance(fast.recommend_index, IndexCCCF)
    train, held_out = train_test_split(USER_ITEMS, train_percentage=0.8, random_state=0)
    inner = AlternatingLeastSquares(factors=24, random_state=0, num_threads=1)
    coded = CCCFModel(inner, verbose=False).fit(train, show_progress=False)
    ndcg, exact = (ranking_metrics_at_k(m, train, held_out, K=10, show_progress=False)["ndcg"] for m in (coded, inner))
    assert ndcg > 0.97 * exact > 0


@pytest.mark.parametrize("liked", [True, False])
@pytest.mark.parametrize("without", [None, [3, 5, 8], np.arange(40)])
def test_recommend_is_that_of_the_model_when_all_items_are_ranked(model, liked, without):
    users = np.array([5, 0, 7, 7, 399])
    given = {"N": 12, "filter_already_liked_items": liked, "filter_items": without}
    answer = model.recommend(users, USER_ITEMS[users], **given)
    exact = {**given, "filter_items": None if without is None else list(without)}
    same(answer, model.model.recommend(users, USER_ITEMS[users], **exact))
    for row, user in enumerate(users):
        one = model.recommend(user, USER_ITEMS[user], **given)
        assert np.array_equal(one[0], answer[0][row])
        assert one[0].ndim == one[1].ndim == 1
        if liked:
            assert not set(one[0]) & set(USER_ITEMS[user].indices)
        if without is not None:
            assert not set(one[0]) & set(without)


def test_codes_with_a_short_list_to_rank_find_most_of_the_best(fast):
    users = np.arange(N_USERS)
    ids, scores = fast.recommend(users, USER_ITEMS)
    exact, best = fast.model.recommend(users, USER_ITEMS)
    assert shared(ids, exact) > 0.8
    products = np.einsum("uf,ukf->uk", fast.model.user_factors, fast.model.item_factors[ids])
    np.testing.assert_allclose(scores, products, rtol=1e-4, atol=1e-5)
    assert (np.diff(scores) <= 0).all()
    assert (scores <= best + 1e-5).all()


@pytest.mark.parametrize("queries", ["coded", "real"])
def test_codes_alone_give_scores_close_to_those_of_the_model(queries):
    model = trained(k_factor=None, queries=queries)
    users = np.arange(N_USERS)
    ids, scores = model.recommend(users, USER_ITEMS)
    products = np.einsum("uf,ukf->uk", model.model.user_factors, model.model.item_factors[ids])
    assert np.corrcoef(scores.ravel(), products.ravel())[0, 1] > 0.8
    assert abs(scores.mean() - products.mean()) < 0.2 * products.std()
    assert (model._known["recommend"].codes is None) == (queries == "real")


def test_items_are_ranked_and_those_that_are_liked_come_last(model):
    users, items = np.array([3, 11]), [250, 7, 100, 9, 8, 3]
    free = model.recommend(users, USER_ITEMS[users], items=items, filter_already_liked_items=False)
    same(free, model.model.recommend(users, USER_ITEMS[users], items=items, filter_already_liked_items=False))
    liked = int(USER_ITEMS[3].indices[0])
    items = [liked, *(i for i in range(20) if i not in USER_ITEMS[3].indices)]
    ids, scores = model.recommend(3, USER_ITEMS[3], N=50, items=items)
    assert sorted(ids) == sorted(items)
    assert ids[-1] == liked
    assert scores[-1] == LOWEST
    same((ids[:-1], scores[:-1]), [part[:-1] for part in model.model.recommend(3, USER_ITEMS[3], N=50, items=items)])


def test_places_without_an_item_are_padded(model):
    ids, scores = model.recommend(3, USER_ITEMS[3], N=10_000)
    n_left = N_ITEMS - USER_ITEMS[3].nnz
    assert len(ids) == N_ITEMS
    assert (ids[:n_left] >= 0).all()
    assert (ids[n_left:] == -1).all()
    assert (scores[n_left:] == LOWEST).all()


def test_users_are_folded_in_as_a_batch(model):
    users = np.array([5, 9])
    history = USER_ITEMS[[20, 21]]
    answer = model.recommend(users, history, recalculate_user=True)
    same(answer, model.model.recommend(users, history, recalculate_user=True))
    unknown = model.recommend(10**6, USER_ITEMS[20], recalculate_user=True)
    assert np.array_equal(unknown[0], answer[0][0])


@pytest.mark.parametrize("given", [{}, {"filter_items": [1, 2, 3]}, {"items": np.arange(50, 90)}])
def test_similar_items_are_those_of_the_model(model, given):
    for items in (np.array([5, 0, 5]), 17):
        same(model.similar_items(items, N=8, **given), model.model.similar_items(items, N=8, **given))
    item_users = USER_ITEMS.T.tocsr()[[5]]
    same(
        model.similar_items([5], recalculate_item=True, item_users=item_users, **given),
        model.model.similar_items([5], recalculate_item=True, item_users=item_users, **given),
    )


@pytest.mark.parametrize("given", [{}, {"filter_users": [1, 2, 3]}, {"users": np.arange(50, 90)}])
def test_similar_users_are_those_of_the_model(model, given):
    for users in (np.array([5, 0, 5]), 17):
        same(model.similar_users(users, N=8, **given), model.model.similar_users(users, N=8, **given))


def test_the_model_itself_answers_where_it_is_asked_to():
    model = trained(approximate_recommend=False, approximate_similar_items=False, approximate_similar_users=False)
    inner = model.model
    assert np.array_equal(model.recommend(3, USER_ITEMS[3])[0], inner.recommend(3, USER_ITEMS[3])[0])
    assert np.array_equal(model.similar_items(3)[0], inner.similar_items(3)[0])
    assert np.array_equal(model.similar_users(3)[0], inner.similar_users(3)[0])
    assert model.recommend_index is model.similar_items_index is model.similar_users_index is None


def test_indexes_of_similar_ones_are_made_when_they_are_asked_for(fast):
    fresh = trained()
    assert fresh.similar_items_index is None
    fresh.similar_items(3)
    assert fresh.similar_items_index.ntotal == N_ITEMS
    assert fresh.similar_users_index is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["path", "file", "pickle"])
def test_a_model_comes_back_with_the_same_answers(tmp_path, kind):
    model = trained(k_factor=3, queries="coded", max_active=4)
    model.similar_items(3)
    if kind == "path":
        model.save(tmp_path / "model.cccf")
        again = CCCFModel.load(str(tmp_path / "model.cccf"))
    elif kind == "file":
        buffer = BytesIO()
        model.save(buffer)
        again = CCCFModel.load(BytesIO(buffer.getvalue()))
    else:
        again = pickle.loads(pickle.dumps(model))
    assert again.params == {"max_active": 4}
    for a, b in (
        (model.recommend(np.arange(9), USER_ITEMS[:9]), again.recommend(np.arange(9), USER_ITEMS[:9])),
        (model.similar_items(np.arange(9)), again.similar_items(np.arange(9))),
    ):
        assert np.array_equal(a[0], b[0])
        assert np.array_equal(a[1], b[1])
    assert again.similar_users_index is None
    again.fit(USER_ITEMS, show_progress=False)


def test_files_that_are_not_such_models_are_refused(tmp_path, fast):
    path = tmp_path / "model.cccf"
    fast.save(path)
    whole = path.read_bytes()
    for bad in (whole[:-9], whole[:100], whole[:5000] + b"x" + whole[5001:], b"", b"PK\x03\x04 an npz"):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=r"model\.cccf"):
            CCCFModel.load(path)
    path.write_bytes(whole.replace(b'"implicit.cpu.als"', b'"os.path_something"'))
    with pytest.raises(ValueError, match="damaged"):  # nothing in a file is imported
        CCCFModel.load(path)


def test_a_failed_save_leaves_the_old_file(tmp_path, fast, monkeypatch):
    path = tmp_path / "model.cccf"
    path.write_bytes(b"old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("No space left on device")))
    with pytest.raises(OSError, match="No space"):
        fast.save(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_bayesian_personalized_ranking_works_too():
    bpr = BayesianPersonalizedRanking(factors=15, random_state=0, num_threads=1, iterations=5)
    model = CCCFModel(bpr, k_factor=N_ITEMS).fit(USER_ITEMS, show_progress=False)
    same(model.recommend([1, 2], USER_ITEMS[[1, 2]]), bpr.recommend([1, 2], USER_ITEMS[[1, 2]]))
    with pytest.raises(NotImplementedError):
        model.recommend(1, USER_ITEMS[1], recalculate_user=True)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda m: m.recommend(0, USER_ITEMS.tocsc()), ValueError, "csr_matrix"),
        (lambda m: m.recommend(0, None), ValueError, "csr_matrix"),
        (lambda m: m.recommend([0, 1], USER_ITEMS[0]), ValueError, "one row for each of the 2 users"),
        (lambda m: m.recommend(N_USERS, USER_ITEMS[0]), IndexError, "userid"),
        (lambda m: m.recommend(-1, USER_ITEMS[0]), IndexError, "userid"),
        (lambda m: m.recommend("3", USER_ITEMS[0]), TypeError, "userid"),
        (lambda m: m.recommend(0.5, USER_ITEMS[0]), TypeError, "userid"),
        (lambda m: m.recommend(0, USER_ITEMS[0], N=0), ValueError, "`N`"),
        (lambda m: m.recommend(0, USER_ITEMS[0], items=[1, N_ITEMS]), IndexError, "items"),
        (lambda m: m.recommend(0, USER_ITEMS[0], items=[]), ValueError, "items"),
        (lambda m: m.recommend(0, USER_ITEMS[0], items=[1], filter_items=[2]), ValueError, "together"),
        (lambda m: m.recommend(0, USER_ITEMS[0], filter_items=[-3]), IndexError, "filter_items"),
        (lambda m: m.similar_items(N_ITEMS), IndexError, "itemid"),
        (lambda m: m.similar_users([0, N_USERS]), IndexError, "userid"),
    ],
)
def test_bad_input_is_explained(fast, call, error, match):
    with pytest.raises(error, match=match):
        call(fast)


def test_bad_options_are_refused_before_anything_is_trained():
    als = AlternatingLeastSquares(factors=8)
    for options, error in (
        ({"k_factor": 0.5}, ValueError),
        ({"queries": "fast"}, ValueError),
        ({"num_threads": -1}, ValueError),
    ):
        with pytest.raises(error, match=f"`{next(iter(options))}`"):
            CCCFModel(als, **options)
    with pytest.raises(TypeError, match="CosineRecommender"):
        CCCFModel(CosineRecommender())
    with pytest.raises(NotFittedError, match="build"):
        CCCFModel(als).recommend(0, USER_ITEMS[0])
    with pytest.raises(NotFittedError, match="fit"):
        CCCFModel(als).build()
    with pytest.raises(TypeError, match="nprobe"):
        trained(nprobe=20)


def test_what_fails_leaves_the_last_index():
    model = trained()
    before = model.recommend(3, USER_ITEMS[3])
    with pytest.raises(AttributeError):
        model.fit(None, show_progress=False)
    assert np.array_equal(model.recommend(3, USER_ITEMS[3])[0], before[0])
    model.n_bits = -4
    with pytest.raises(ValueError, match="n_bits"):
        model.build()
    assert np.array_equal(model.recommend(3, USER_ITEMS[3])[0], before[0])


def test_a_model_that_has_grown_is_not_saved_with_its_old_index(tmp_path):
    model = trained(n_bits=np.int64(16), k_factor=np.float32(2), seed=np.int64(3))
    model.save(tmp_path / "model.cccf")
    model.model.partial_fit_users([N_USERS], USER_ITEMS[[3]])
    with pytest.raises(ValueError, match="build"):
        model.save(tmp_path / "model.cccf")
    assert CCCFModel.load(tmp_path / "model.cccf").model.user_factors.shape[0] == N_USERS
    model.build(show_progress=False).save(tmp_path / "model.cccf")
    assert CCCFModel.load(tmp_path / "model.cccf").recommend(N_USERS, USER_ITEMS[3])[0].shape == (10,)


def test_batches_and_threads_do_not_change_the_answer():
    one, two = trained(num_threads=1), trained(num_threads=2)
    users = np.arange(N_USERS)
    given = one.recommend(users, sparse.csr_matrix(USER_ITEMS), filter_items=[0, 1])
    for model in (one, two):
        for part in np.array_split(users, 7):
            ids, scores = model.recommend(part, USER_ITEMS[part], filter_items=[0, 1])
            assert np.array_equal(ids, given[0][part])
            assert np.array_equal(scores, given[1][part])
