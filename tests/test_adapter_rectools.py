"""CCCFRanker against RecTools' own ImplicitRanker, and `with_cccf` under its models."""

import numpy as np
import pandas as pd
import pytest
from adapter_helpers import examples_run, interactions, readme_example_runs, shared, vectors
from implicit.als import AlternatingLeastSquares
from implicit.bpr import BayesianPersonalizedRanking
from rectools import Columns
from rectools.dataset import Dataset
from rectools.exceptions import NotFittedError
from rectools.metrics import NDCG, calc_metrics
from rectools.models import EASEModel, ImplicitALSWrapperModel, ImplicitBPRWrapperModel, PureSVDModel
from rectools.models.rank import Distance, ImplicitRanker
from rectools.models.vector import Factors, VectorModel
from scipy import sparse

from cccf_index.adapters.rectools import CCCFRanker, with_cccf

USERS, ITEMS = vectors()
SEEN = sparse.random(len(USERS), len(ITEMS), density=0.05, format="csr", random_state=0, dtype=np.float32)
SUBJECTS = np.array([7, 3, 3, 250])
WHITELIST = np.arange(20, 400, 3)


def table(seed=0):
    pairs = interactions(seed=seed).tocoo()
    columns = {Columns.User: pairs.row + 1000, Columns.Item: pairs.col * 2, Columns.Weight: pairs.data}
    return pd.DataFrame({**columns, Columns.Datetime: "2026-01-01"})


DATASET = Dataset.construct(table())


def same(answer, expected):
    """Compare with RecTools: subjects exactly, the rest tie-aware by scores up to rounding."""
    assert np.array_equal(answer[0], expected[0])
    np.testing.assert_allclose(answer[2], expected[2], rtol=1e-3, atol=1e-3)
    assert np.mean(np.asarray(answer[1]) == expected[1]) > 0.99


def test_docstring_examples_run():
    assert examples_run("rectools")


def test_the_readmes_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert readme_example_runs("rectools")


@pytest.mark.parametrize("distance", list(Distance))
@pytest.mark.parametrize("k", [7, None])
@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("whitelist", [None, WHITELIST])
def test_ranks_as_implicits_ranker_when_all_objects_are_ranked(distance, k, filtered, whitelist):
    ours = CCCFRanker(distance, USERS, ITEMS, k_factor=len(ITEMS), num_threads=1)
    theirs = ImplicitRanker(distance, USERS, ITEMS, num_threads=1)
    given = {
        "subject_ids": SUBJECTS,
        "k": k,
        "filter_pairs_csr": SEEN[SUBJECTS] if filtered else None,
        "sorted_object_whitelist": whitelist,
    }
    same(ours.rank(**given), theirs.rank(**given))


@pytest.mark.parametrize("filtered", [False, True])
def test_codes_alone_equal_implicits_ranker_on_the_decoded_vectors(filtered):
    subjects = np.arange(len(USERS))
    given = {"subject_ids": subjects, "k": 9, "filter_pairs_csr": SEEN if filtered else None}
    real = CCCFRanker(Distance.DOT, USERS, ITEMS, k_factor=None, queries="real")
    same(real.rank(**given), ImplicitRanker(Distance.DOT, USERS, real.index.reconstruct_n()).rank(**given))
    coded = CCCFRanker(Distance.DOT, USERS, ITEMS, k_factor=None)
    answer = coded.rank(**given)
    quantizer = coded.index.quantizer
    objects = quantizer.encode_items(ITEMS).to_vectors()
    expected = ImplicitRanker(Distance.DOT, quantizer.encode_users(USERS).to_vectors(), objects).rank(**given)
    shift = (USERS @ quantizer.item_mean_)[expected[0]]  # which codes need not express
    np.testing.assert_allclose(answer[2], expected[2] + shift, rtol=0.02, atol=0.05)  # weights are rounded
    assert np.mean(answer[1] == expected[1]) > 0.9


def test_a_short_list_to_rank_finds_most_of_the_best():
    subjects = np.arange(len(USERS))
    for distance in Distance:
        found = CCCFRanker(distance, USERS, ITEMS, k_factor=4).rank(subjects, 10)[1].reshape(-1, 10)
        best = ImplicitRanker(distance, USERS, ITEMS).rank(subjects, 10)[1].reshape(-1, 10)
        assert shared(found, best) > 0.8


def test_subjects_that_have_seen_all_get_nothing():
    ranker = CCCFRanker(Distance.DOT, USERS, ITEMS)
    seen = sparse.csr_matrix(np.vstack([np.ones(len(ITEMS)), np.zeros(len(ITEMS))]))
    subjects, objects, scores = ranker.rank(np.array([4, 5]), 3, seen)
    assert subjects.tolist() == [5, 5, 5]
    assert len(objects) == len(scores) == 3
    for empty in (ranker.rank(np.array([], dtype=int), 3), ranker.rank([1], 3, None, np.array([], dtype=int))):
        assert [len(part) for part in empty] == [0, 0, 0]


def test_bad_input_is_explained():
    ranker = CCCFRanker(Distance.DOT, USERS, ITEMS)
    with pytest.raises(ValueError, match="filter_pairs_csr"):
        ranker.rank(np.array([1, 2]), 3, SEEN[[1]])
    for whitelist, error in (([1.7], TypeError), (np.arange(9) < 3, TypeError), ([len(ITEMS)], IndexError)):
        with pytest.raises(error, match="sorted_object_whitelist"):
            ranker.rank(np.array([1]), 3, None, whitelist)
    with pytest.raises(TypeError, match="bogus"):
        with_cccf(PureSVDModel(factors=4).fit(DATASET), bogus=3)
    with pytest.raises(NotImplementedError, match="config"):
        with_cccf(PureSVDModel(factors=4).fit(DATASET)).get_config()
    with pytest.raises(IndexError, match="subject_ids"):
        ranker.rank(np.array([len(USERS)]), 3)
    with pytest.raises(ValueError, match="`k`"):
        ranker.rank(np.array([1]), 0)
    with pytest.raises(TypeError, match="sparse"):
        CCCFRanker(Distance.DOT, sparse.csr_matrix(USERS), ITEMS)
    with pytest.raises(ValueError, match="queries"):
        CCCFRanker(Distance.DOT, USERS, ITEMS, queries="fast")
    with pytest.raises(TypeError, match="EASEModel"):
        with_cccf(EASEModel().fit(DATASET))
    with pytest.raises(NotFittedError):
        with_cccf(PureSVDModel(factors=4))


def models():
    als = AlternatingLeastSquares(factors=24, random_state=0, num_threads=1, iterations=5)
    yield ImplicitALSWrapperModel(als)
    yield PureSVDModel(factors=24)


class Biased(VectorModel):
    """A vector model with biases, as LightFM's wrapper is; it recommends to users without interactions too."""

    recommends_for_warm = True
    u2i_dist = Distance.DOT
    i2i_dist = Distance.COSINE

    def __init__(self):
        super().__init__()
        self.recommend_n_threads, self.recommend_use_gpu_ranking = 1, False

    def _fit(self, dataset):
        self.sides = vectors(dataset.user_id_map.size, dataset.item_id_map.size)

    def _factors(self, side):
        return Factors(side, np.random.default_rng(0).standard_normal(len(side)).astype(np.float32))

    def _get_users_factors(self, dataset):
        return self._factors(self.sides[0])

    def _get_items_factors(self, dataset):
        return self._factors(self.sides[1])


@pytest.mark.parametrize("model", [*models(), Biased()], ids=lambda model: type(model).__name__)
def test_recommend_uses_it_and_equals_that_of_the_model(model):
    model.fit(DATASET)
    users = DATASET.user_id_map.external_ids[[5, 0, 9]]
    items = DATASET.item_id_map.external_ids
    coded = with_cccf(model, DATASET, k_factor=len(items), num_threads=1)
    assert isinstance(coded._rankers["u2i"], CCCFRanker)
    assert isinstance(coded, type(model))
    for given in (
        {"filter_viewed": True},
        {"filter_viewed": False},
        {"filter_viewed": True, "items_to_recommend": items[:90]},
    ):
        ours, theirs = (m.recommend(users, DATASET, k=6, **given) for m in (coded, model))
        assert list(ours.columns) == list(theirs.columns)
        same(tuple(ours[c].to_numpy() for c in ours.columns), tuple(theirs[c].to_numpy() for c in theirs.columns))
    ours, theirs = (m.recommend_to_items(items[:4], DATASET, k=6) for m in (coded, model))
    same(tuple(ours[c].to_numpy() for c in ours.columns), tuple(theirs[c].to_numpy() for c in theirs.columns))
    assert type(model).__name__ in type(coded).__name__
    assert not hasattr(model, "_rankers")


def test_ndcg_by_rectools_own_metrics_is_that_of_the_model():
    rng = np.random.default_rng(0)
    whole = table()
    held = rng.random(len(whole)) < 0.2
    dataset = Dataset.construct(whole[~held])
    als = AlternatingLeastSquares(factors=24, random_state=0, num_threads=1)
    model = ImplicitALSWrapperModel(als).fit(dataset)
    users = np.intersect1d(whole[held][Columns.User].unique(), dataset.user_id_map.external_ids)
    lists = [m.recommend(users, dataset, 10, True) for m in (with_cccf(model), model)]
    coded, exact = (calc_metrics({"ndcg": NDCG(10)}, recs, whole[held])["ndcg"] for recs in lists)
    assert coded > 0.97 * exact > 0


def test_models_with_codes_are_saved_and_learn_anew_when_their_vectors_change(tmp_path):
    bpr = ImplicitBPRWrapperModel(BayesianPersonalizedRanking(15, random_state=0, num_threads=1))
    model = with_cccf(bpr.fit(DATASET), DATASET)
    users = DATASET.user_id_map.external_ids[:20]
    before = model.recommend(users, DATASET, 5, True)
    model.save(tmp_path / "model.pkl")
    again = type(model).load(tmp_path / "model.pkl")
    pd.testing.assert_frame_equal(before, again.recommend(users, DATASET, 5, True))
    other = Dataset.construct(table(seed=1))
    ranker = model._rankers["u2i"]
    model.fit(other)
    assert len(model.recommend(other.user_id_map.external_ids[:20], other, 5, True)) == 100
    assert model._rankers["u2i"] is not ranker
    twice = with_cccf(model, other)
    assert type(twice).__mro__[2] is ImplicitBPRWrapperModel


def test_codes_are_learned_anew_after_training_in_place_and_the_model_is_left_alone():
    als = AlternatingLeastSquares(factors=16, random_state=0, num_threads=1, iterations=1)
    model = ImplicitALSWrapperModel(als).fit_partial(DATASET, epochs=1)
    users = DATASET.user_id_map.external_ids[:50]
    before = model.recommend(users, DATASET, 5, True)
    coded = with_cccf(model, DATASET, k_factor=100)
    coded.fit_partial(DATASET, epochs=5)
    pd.testing.assert_frame_equal(before, model.recommend(users, DATASET, 5, True))
    ours = coded.recommend(users, DATASET, 5, True)
    exact = ImplicitALSWrapperModel(als)
    exact.model, exact.is_fitted = coded.model, True
    theirs = exact.recommend(users, DATASET, 5, True)
    np.testing.assert_allclose(ours[Columns.Score], theirs[Columns.Score], rtol=1e-4, atol=1e-4)
