"""CCCFANN in Cornac's own experiments, and against its exact models."""

import copy

import numpy as np
import pytest
from adapter_helpers import examples_run, readme_example_runs, shared
from cornac.data import Dataset
from cornac.eval_methods import RatioSplit
from cornac.experiment import Experiment
from cornac.metrics import NDCG, Recall
from cornac.models import BPR, MF, MostPop
from cornac.models.ann.recom_ann_base import BaseANN
from cornac.models.recommender import MEASURE_COSINE, MEASURE_L2

from cccf_index import IndexCCCF, read_index
from cccf_index._check import NotFittedError
from cccf_index.adapters.cornac import CCCFANN
from cccf_index.datasets import synthetic_ratings

PAIRS = synthetic_ratings(n_users=300, n_items=250).user_items.tocoo()
DATA = [(f"u{u}", f"i{i}", float(r)) for u, i, r in zip(PAIRS.row, PAIRS.col, PAIRS.data, strict=True)]
TRAIN = Dataset.from_uir(DATA, seed=0)
N_ITEMS = TRAIN.num_items


class Cosine(MF):
    """A model whose items are those of the largest cosine."""

    def get_vector_measure(self):
        return MEASURE_COSINE


class Nearest(MF):
    """A model whose items are the nearest."""

    def get_vector_measure(self):
        return MEASURE_L2


def fitted(kind=MF):
    return kind(k=12, max_iter=30, seed=0).fit(TRAIN)


@pytest.fixture(scope="module")
def exact():
    """Every item is found by its code, and ranked by its vector."""
    ann = CCCFANN(fitted(), k_factor=N_ITEMS, num_threads=1)
    ann.build_index()
    return ann


def oracle(ann, queries):
    users, items = np.asarray(queries, np.float64), np.asarray(ann.item_vectors, np.float64)
    if ann.measure == MEASURE_L2:
        return np.square(users[:, None] - items[None]).sum(axis=2)
    if ann.measure == MEASURE_COSINE:
        users, items = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (users, items))
    return 1 - users @ items.T


def test_docstring_example_runs():
    assert examples_run("cornac")


def test_the_readmes_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert readme_example_runs("cornac")


def test_it_runs_in_an_experiment_and_ranks_nearly_as_the_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where an experiment leaves its log
    split = RatioSplit(DATA, test_size=0.2, rating_threshold=3.5, seed=0, exclude_unknowns=True)
    mf = MF(k=12, max_iter=30, seed=0)
    experiment = Experiment(split, models=[mf, CCCFANN(mf)], metrics=[NDCG(10), Recall(10)], verbose=False)
    experiment.run()
    model, ann = (result.metric_avg_results for result in experiment.result)
    assert ann["NDCG@10"] > 0.95 * model["NDCG@10"] > 0
    assert ann["Recall@10"] > 0.9 * model["Recall@10"]


@pytest.mark.parametrize("kind", [MF, Cosine, Nearest])
def test_knn_query_finds_the_nearest_by_the_models_measure(kind):
    ann = CCCFANN(fitted(kind), k_factor=N_ITEMS, num_threads=1)
    ann.build_index()
    queries = ann.user_vectors[[5, 9, 70]]
    found, distances = ann.knn_query(queries, 8)
    wanted = oracle(ann, queries)
    np.testing.assert_allclose(distances, np.sort(wanted)[:, :8], rtol=1e-3, atol=1e-3)
    assert shared(found, np.argsort(wanted)[:, :8]) > 0.95
    everything, _ = ann.knn_query(queries, -1)
    assert np.array_equal(np.sort(everything), np.tile(np.arange(N_ITEMS), (3, 1)))


@pytest.mark.parametrize("kind", [MF, Cosine, Nearest])
def test_a_short_list_to_rank_finds_most_of_the_nearest(kind):
    ann = CCCFANN(fitted(kind), k_factor=4)
    ann.build_index()
    found, _ = ann.knn_query(ann.user_vectors, 10)
    assert shared(found, np.argsort(oracle(ann, ann.user_vectors))[:, :10]) > 0.8


@pytest.mark.parametrize("n_candidates", [20, 240])
def test_rank_finds_the_best_among_the_candidates(exact, n_candidates):
    candidates = np.random.default_rng(0).permutation(N_ITEMS)[:n_candidates]
    ranked, scores = exact.rank(7, candidates, k=10)
    wanted, _ = exact.model.rank(7, candidates, k=10)
    assert np.array_equal(np.sort(ranked), np.sort(candidates))
    assert shared([ranked[:10]], [wanted[:10]]) == 1
    assert np.isfinite(scores).sum() == 10
    assert set(candidates[np.isfinite(scores)]) == set(ranked[:10])
    all_ranked, all_scores = exact.rank(7)
    assert len(all_ranked) == N_ITEMS
    assert np.isfinite(all_scores).all()


def test_items_and_users_that_were_not_trained_come_last():
    test = Dataset.build(
        [*DATA, ("new user", "new item", 4.0)], global_uid_map=TRAIN.uid_map.copy(), global_iid_map=TRAIN.iid_map.copy()
    )
    ann = CCCFANN(fitted(), num_threads=1)
    ann.build_index()
    ann.uid_map, ann.iid_map = test.uid_map, test.iid_map
    ranked, scores = ann.rank(3, np.array([N_ITEMS, 5, 6]), k=2)
    assert ranked[-1] == N_ITEMS
    assert scores[0] == -np.inf
    ranked, scores = ann.rank(len(TRAIN.uid_map), np.array([4, 5]))
    assert ranked.tolist() == [4, 5]
    assert len(set(scores)) == 1
    with pytest.raises(ValueError, match="new user"):
        ann.recommend_batch(["u3", "new user"], k=2)


def test_recommended_lists_stay_full_when_seen_items_are_removed(exact):
    users = ["u3", "u4", "u5"]
    for k, lists in (
        (7, exact.recommend_batch(users, 7, True, TRAIN)),
        (7, [exact.recommend(u, 7, True, TRAIN) for u in users]),
    ):
        for user, items in zip(users, lists, strict=True):
            seen = {TRAIN.item_ids[i] for i in TRAIN.csr_matrix[TRAIN.uid_map[user]].indices}
            assert len(items) == k
            assert not seen & set(items)
            assert items == exact.model.recommend(user, 7, True, TRAIN)
    assert [len(items) for items in exact.recommend_batch(users)] == [N_ITEMS] * 3


def test_a_saved_one_gives_the_same_answers(tmp_path):
    ann = CCCFANN(fitted(), k_factor=3, seed=4)
    ann.build_index()
    path = ann.save(str(tmp_path))
    assert isinstance(read_index(f"{path}.index"), IndexCCCF)
    again = CCCFANN.load(path)
    for a, b in zip(ann.knn_query(ann.user_vectors, 9), again.knn_query(ann.user_vectors, 9), strict=True):
        assert np.array_equal(a, b)
    assert again.recommend("u3", 5, True, TRAIN) == ann.recommend("u3", 5, True, TRAIN)
    assert CCCFANN.load(str(tmp_path / "CCCFANN")).k_factor == 3
    assert ann.save() is None


def test_a_failed_build_leaves_the_last_index(tmp_path):
    ann = CCCFANN(fitted(), num_threads=1)
    ann.build_index()
    before = ann.recommend("u3", 5)
    ann.model, ann.n_bits = BPR(k=8, max_iter=2, seed=0).fit(TRAIN), -1
    with pytest.raises(ValueError, match="n_bits"):
        ann.build_index()
    assert ann.recommend("u3", 5) == before
    assert CCCFANN.load(ann.save(str(tmp_path))).recommend("u3", 5) == before


def test_generators_copies_and_candidates_given_twice(exact):
    assert exact.recommend_batch((u for u in ["u3"]), 4) == [exact.recommend("u3", 4)]
    with pytest.raises(NotFittedError, match="build_index"):
        copy.deepcopy(exact).recommend("u3", 4)
    few = Dataset.from_uir(DATA[:50], seed=0)
    assert len(exact.recommend("u299", 4, True, few)) == 4
    ranked, scores = exact.rank(3, [8, 8, 5, 7], k=2)
    assert sorted(ranked) == [5, 7, 8, 8]
    assert len(scores) == 4


def test_it_is_cloned_with_its_parameters():
    ann = CCCFANN(BPR(k=8, max_iter=5, seed=0), n_components=4, n_bits=8, k_factor=None, queries="real", seed=3)
    other = ann.clone({"n_bits": 16})
    assert (other.n_components, other.n_bits, other.k_factor, other.queries, other.seed) == (4, 16, None, "real", 3)
    assert isinstance(other, BaseANN)
    other.fit(TRAIN)
    assert (other.index.n_components, other.index.n_bits) == (4, 16)


def test_bad_input_is_explained(exact):
    with pytest.raises(ValueError, match="MostPop"):
        CCCFANN(MostPop())
    with pytest.raises(ValueError, match="k_factor"):
        CCCFANN(fitted(), k_factor=0)
    with pytest.raises(NotFittedError, match="build_index"):
        CCCFANN(fitted()).knn_query(np.zeros((1, 12)), 3)
    with pytest.raises(ValueError, match="train_set"):
        exact.recommend_batch(["u1"], 3, remove_seen=True)
    with pytest.raises(ValueError, match="nobody"):
        exact.recommend_batch(["nobody"], 3)
    for query in (np.zeros((2, 5)), np.zeros(12)):
        with pytest.raises(ValueError, match="query"):
            exact.knn_query(query, 3)
    with pytest.raises(NotFittedError, match="fit"):
        CCCFANN(MF()).build_index()
    with pytest.raises(ValueError, match="number of items"):
        exact.recommend_batch(["u1"], 10**6)
    for items, error in (([1.5], TypeError), ([N_ITEMS], IndexError), ([-1], IndexError)):
        with pytest.raises(error, match="item_indices"):
            exact.rank(3, items)
    with pytest.raises(ValueError, match="`k`"):
        exact.knn_query(exact.user_vectors[:1], 0)
    with pytest.raises(TypeError, match="history"):
        exact.rank(3, history=[1])
