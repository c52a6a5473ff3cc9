"""The components of LensKit under LensKit's own tests, on made-up ratings with times."""

import numpy as np
import pandas as pd
import pytest
from adapter_helpers import examples_run, readme_example_runs
from lenskit import recommend
from lenskit.batch import recommend as recommend_batch
from lenskit.data import ItemList, RecQuery, from_interactions_df
from lenskit.metrics import NDCG, RunAnalysis
from lenskit.pipeline import topn_pipeline
from lenskit.splitting import SampleFrac, sample_users
from lenskit.testing import BasicComponentTests, ScorerTests
from lenskit.training import TrainingOptions

from cccf_index._check import NotFittedError
from cccf_index.adapters.lenskit import CCCFConfig, CCCFRecommender, CCCFScorer, cccf_pipeline
from cccf_index.datasets import synthetic_ratings

SMALL = {
    **{"n_components": 4, "n_bits": 8, "regularization": 0.1, "unobserved": 0.1, "n_factors": 16},
    "objective": "rated",
}


def frame():
    pairs = synthetic_ratings(n_users=300, n_items=250).user_items.tocoo()
    times = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.random.default_rng(0).permutation(pairs.nnz), unit="min")
    columns = {"user_id": pairs.row + 1, "item_id": 7 * pairs.col + 3, "rating": pairs.data, "timestamp": times}
    return pd.DataFrame(columns).sort_values("timestamp", ignore_index=True)


@pytest.fixture(scope="module")
def ml_ratings():
    """In the place of LensKit's MovieLens data, which is not in its package."""
    return frame()


@pytest.fixture(scope="module")
def ml_ds(ml_ratings):
    return from_interactions_df(ml_ratings)


@pytest.fixture(scope="module")
def ml_100k(ml_ratings):
    return ml_ratings


@pytest.fixture
def rng():
    return np.random.default_rng(42)


class TestScorer(BasicComponentTests, ScorerTests):
    component = CCCFScorer
    config = CCCFConfig(**SMALL)
    configs = (SMALL, {"queries": "real"}, {"weights": "kernel", "n_bits": 4}, {"feedback": "implicit"})
    can_score = "known"
    expected_rmse = 1.0
    expected_ndcg = 0.05


class TestRealQueries(TestScorer):
    config = CCCFConfig(**SMALL, queries="real")


class TestCatalogue(TestScorer):
    config = CCCFConfig(n_components=4, n_bits=8, n_factors=16)
    test_batch_prediction_accuracy = None  # scores are preferences


class TestKernelWeights(TestScorer):
    config = CCCFConfig(weights="kernel", n_components=4, n_bits=8, n_factors=8)
    expected_rmse = 1.2
    expected_ndcg = 0.02


class TestImplicitFeedback(TestScorer):
    config = CCCFConfig(feedback="implicit", n_components=4, n_bits=8, n_factors=16)
    test_batch_prediction_accuracy = None  # it predicts no ratings


def test_docstring_examples_run():
    assert examples_run("lenskit")


def test_the_readmes_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert readme_example_runs("lenskit")


def queries(ds):
    """A known user, one of whom only the history is known, and one of both."""
    user = int(ds.users.ids()[5])
    history = ds.user_row(user)
    return [user, RecQuery(history_items=history), RecQuery(user_id=user, history_items=history)]


@pytest.mark.parametrize("options", [{}, {"queries": "real"}, {"weights": "kernel", "n_factors": 8}])
def test_the_recommender_lists_what_scorer_and_ranker_do(ml_ds, options):
    config = {"n_components": 4, "n_bits": 8, **options}
    slow, fast = topn_pipeline(CCCFScorer(**config)), cccf_pipeline(**config)
    for pipeline in (slow, fast):
        pipeline.train(ml_ds, TrainingOptions())
    for query in queries(ml_ds):
        wanted, found = (recommend(pipeline, query, n=12) for pipeline in (slow, fast))
        assert found.ordered
        np.testing.assert_allclose(found.scores(), wanted.scores(), rtol=0.02, atol=0.02)  # weights are rounded
        assert len(set(found.ids()) & set(wanted.ids())) >= 10
    items = ItemList(ml_ds.items.ids()[:30])
    wanted, found = (recommend(pipeline, 5, n=10, items=items) for pipeline in (slow, fast))
    assert set(found.ids()) <= set(items.ids())
    assert len(set(found.ids()) & set(wanted.ids())) >= 8
    assert len(recommend(fast, 5, items=items)) == 30


def test_the_recommender_leaves_out_what_is_in_the_history(ml_ds):
    pipeline = cccf_pipeline(**SMALL)
    pipeline.train(ml_ds)
    for user in ml_ds.users.ids()[:20]:
        seen = set(ml_ds.user_row(int(user)).ids())
        found = recommend(pipeline, int(user))
        assert len(found) == ml_ds.item_count - len(seen)
        assert not seen & set(found.ids())
        scores = found.scores()
        assert (np.diff(scores) <= 1e-6).all()
    assert len(recommend(pipeline, -99, n=5)) == 0  # nothing is known of them


def test_items_of_a_session_are_asked_with(ml_ds):
    scorer = CCCFScorer(**SMALL)
    scorer.train(ml_ds)
    user, other = (int(ml_ds.users.ids()[row]) for row in (5, 9))
    session = ml_ds.user_row(other)
    items = ItemList(ml_ds.items.ids()[:50])
    by_session = scorer(RecQuery(user_id=user, session_items=session), items).scores()
    assert np.array_equal(by_session, scorer(RecQuery(history_items=session), items).scores())
    unrated = RecQuery(user_id=user, session_items=ItemList(session.ids()))
    assert np.array_equal(scorer(unrated, items).scores(), scorer(user, items).scores())


@pytest.mark.parametrize("source", ["history_items", "session_items", "context_items"])
def test_the_items_of_a_query_are_not_recommended(ml_ds, source):
    pipeline = cccf_pipeline(**SMALL)
    pipeline.train(ml_ds)
    asked = ml_ds.user_row(int(ml_ds.users.ids()[9]))
    found = recommend(pipeline, RecQuery(**{source: asked}))
    assert len(found) == ml_ds.item_count - len(asked)
    assert not set(asked.ids()) & set(found.ids())


def test_ndcg_by_lenskits_own_analysis(ml_ds):
    split = sample_users(ml_ds, 100, SampleFrac(0.3, rng=0), rng=0)
    values = []
    for pipeline in (topn_pipeline(CCCFScorer(**SMALL), n=10), cccf_pipeline(**SMALL)):
        pipeline.train(split.train)
        analysis = RunAnalysis()
        analysis.add_metric(NDCG(n=10))
        recs = recommend_batch(pipeline, split.test.keys(), n=10, n_jobs=1)
        values.append(analysis.measure(recs, split.test).list_summary().loc["NDCG@10", "mean"])
    assert values[1] == pytest.approx(values[0], rel=0.03)
    assert values[0] > 0.05


def test_a_seed_of_the_training_is_taken(ml_ds):
    one, two, other = (CCCFScorer(**SMALL) for _ in range(3))
    for component, seed in ((one, 3), (two, 3), (other, 4)):
        component.train(ml_ds, TrainingOptions(rng=seed))
    assert one.model.item_codes_ == two.model.item_codes_
    assert one.model.item_codes_ != other.model.item_codes_


def test_bad_input_is_explained(ml_ratings):
    with pytest.raises(ValueError, match="n_bitz"):
        CCCFScorer(n_bitz=3)
    with pytest.raises(ValueError, match="queries"):
        CCCFRecommender(queries="fast")
    taken = from_interactions_df(ml_ratings[["user_id", "item_id"]])
    with pytest.raises(ValueError, match="implicit"):
        CCCFScorer().train(taken)
    with pytest.raises(NotFittedError, match="train"):
        CCCFScorer()(3, ItemList([3]))
