"""Tuning: the fastest search of a target recall, of the codes or of the vectors."""

import time

import faiss
import numpy as np
import pytest
from helpers import filled_index
from test_cells import clustered_codes

from cccf_index import CompositionalCodes, IndexCCCF, IndexRefineCCCF, SearchParametersCCCF
from cccf_index.search.tuning import FACTORS, Trials, sample_queries, tune_search

RNG = np.random.default_rng(0)
CODES = clustered_codes(RNG, 6000, 4, 16)
USERS = clustered_codes(RNG, 200, 4, 16)
VECTORS = USERS.to_vectors() * RNG.uniform(0.5, 1.5, (200, 64)).astype(np.float32)
CENTRES = RNG.standard_normal((30, 24))
ITEMS = (CENTRES[RNG.integers(0, 30, 6000)] + 0.5 * RNG.standard_normal((6000, 24))).astype(np.float32)
QUERIES = RNG.standard_normal((150, 24)).astype(np.float32)


@pytest.fixture(scope="module")
def index():
    return filled_index(CODES, scale="auto")


@pytest.fixture(scope="module")
def embedded():
    return IndexCCCF.from_embeddings(ITEMS, QUERIES, 4, 16, verbose=False)


def share(found, exact):
    return np.mean(found >= exact[:, -1:])


def vector_recall(I, queries, k):
    """The share of the vectors' own top-k among found ids, computed by faiss."""
    exact = faiss.IndexFlatIP(24)
    exact.add(ITEMS)
    last = exact.search(queries, k)[0][:, -1]
    return np.mean([ITEMS[ids] @ x >= low - 1e-4 for ids, x, low in zip(I, queries, last, strict=True)])


@pytest.mark.parametrize("queries", [USERS, VECTORS], ids=["coded", "real"])
@pytest.mark.parametrize("recall", [0.5, 0.9, 0.99, 1.0])
def test_tuning_reaches_the_wanted_recall(index, queries, recall):
    params = index.tune(queries, 10, recall)
    D, _ = index.search(queries, 10, params=params)
    assert share(D, index.search(queries, 10)[0]) >= recall
    assert params.max_items is None or params.max_items < 6000 * 1.1


def test_tuning_keeps_the_other_parameters(index):
    params = index.tune(USERS, 10, 0.9, params=SearchParametersCCCF(num_threads=2, sel=np.arange(5000)))
    assert params.num_threads == 2
    assert len(params.sel) == 5000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"recall": 1.5}, "`recall` must be at most 1"),
        ({"recall": -0.1}, "`recall` must be a finite number >= 0"),
        ({"params": SearchParametersCCCF(prune=False)}, "that prune"),
        ({"params": faiss.SearchParameters()}, "SearchParametersCCCF that prune"),
        ({"k": 0}, "`k` must be an integer >= 1"),
    ],
)
def test_bad_tuning_is_explained(index, arguments, message):
    with pytest.raises(ValueError, match=message):
        index.tune(**{"x": USERS, "k": 10, **arguments})


def test_tuning_counts_only_items_that_there_are(index):
    few = SearchParametersCCCF(sel=np.arange(300))
    params = index.tune(USERS, 400, 0.99, params=few)
    assert (index.search(USERS, 400, params=params)[1] >= 0).sum() >= 0.99 * 200 * 300
    with pytest.raises(ValueError, match="at least one sample query"):
        index.tune(USERS[:0], 10)


def test_an_empty_index_cannot_be_tuned():
    with pytest.raises(ValueError, match="without items cannot be tuned"):
        IndexCCCF(4, 16).tune(USERS, 10)


def test_no_more_items_are_looked_at_than_needed(index):
    exact = index.search(USERS, 10)[0]
    trials = Trials(lambda p: index.search(USERS, 10, params=p)[0], lambda D: D, exact)
    few, many = (trials.find_budget(SearchParametersCCCF(), 6000, recall).max_items for recall in (0.5, 0.999))
    assert few < many


@pytest.mark.parametrize("storage", ["float32", "int8"])
@pytest.mark.parametrize("k", [1, 10, 100])
def test_a_refined_index_is_tuned_to_a_recall_of_the_vectors(embedded, storage, k):
    refined = IndexRefineCCCF(embedded, ITEMS, storage=storage)
    params = refined.tune(QUERIES, k, 0.95)
    assert params.k_factor in FACTORS
    assert vector_recall(refined.search(QUERIES, k, params=params)[1], QUERIES, k) >= 0.95 - 0.01


def test_parameters_of_a_search_replace_the_factor_of_the_index(embedded):
    refined = IndexRefineCCCF(embedded, ITEMS, k_factor=1)
    D, I = refined.search(QUERIES, 10, params=SearchParametersCCCF(k_factor=8))
    expected = IndexRefineCCCF(embedded, ITEMS, k_factor=8).search(QUERIES, 10)
    np.testing.assert_array_equal(I, expected[1])
    np.testing.assert_array_equal(D, expected[0])
    assert refined.tune(QUERIES, 10, 0.1, params=SearchParametersCCCF(k_factor=3)).k_factor == 3
    with pytest.raises(ValueError, match="`k_factor` must be a finite number >= 1"):
        SearchParametersCCCF(k_factor=0.5)


def test_an_index_of_vectors_is_tuned_to_a_recall_of_the_vectors(embedded):
    params = embedded.tune(QUERIES, 10, 0.5, item_vectors=ITEMS)
    assert vector_recall(embedded.search(QUERIES, 10, params=params)[1], QUERIES, 10) >= 0.5
    only = SearchParametersCCCF(sel=np.arange(100, 3000), num_threads=1)
    ids = np.arange(6000)[::-1].copy()
    params = embedded.tune(QUERIES, 10, 0.3, item_vectors=ITEMS[::-1].copy(), ids=ids, params=only)
    assert embedded.search(QUERIES, 10, params=params)[1].min() >= 100


def test_a_recall_that_cannot_be_reached_is_said(embedded):
    with pytest.warns(UserWarning, match=r"A recall of 1 is not reached: 0\.\d+ is the most"):
        params = embedded.tune(QUERIES, 100, 1.0, item_vectors=ITEMS)
    assert params.max_items is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"item_vectors": ITEMS[:50]}, "there is none for id"),
        ({"item_vectors": ITEMS[:, :5]}, r"`item_vectors` must be of shape \(n, 24\)"),
        ({"ids": [1, 2]}, "`ids` must be None without `item_vectors`"),
    ],
)
def test_bad_vectors_are_explained(embedded, arguments, message):
    with pytest.raises(ValueError, match=message):
        embedded.tune(QUERIES, 10, **arguments)


def test_codes_have_no_recall_of_vectors(index):
    with pytest.raises(ValueError, match="unless the index and `x` are of vectors"):
        index.tune(USERS, 10, item_vectors=ITEMS)


def test_a_refined_index_of_codes_is_tuned_with_codes(index):
    vectors = CODES.to_vectors()
    refined = IndexRefineCCCF(index, vectors)
    params = refined.tune(USERS.to_vectors(), 10, 0.99, codes=USERS)
    assert not params.coded
    with pytest.raises(ValueError, match="at least one sample query"):
        refined.tune(vectors[:0], 10)
    empty = IndexRefineCCCF(IndexCCCF(4, 16), vectors[:0])
    with pytest.raises(ValueError, match="without items cannot be tuned"):
        empty.tune(vectors[:1], 10, codes=CompositionalCodes.from_vectors(vectors[:1], 4, 16))


def test_no_answer_is_slower_than_to_look_at_all_items():
    """A made-up search that takes longer with a budget than without."""

    def search(params):
        time.sleep(0.001 if params.max_items is None else 0.003)
        return np.ones((1, 1), np.float32)

    trials = Trials(search, lambda D: D, np.ones((1, 1), np.float32))
    assert tune_search(trials, 1000, 0.9, [SearchParametersCCCF()], has_factors=False).max_items is None


def test_long_lists_need_fewer_sample_queries():
    assert len(range(500)[sample_queries(500, 10)]) == 500
    assert 50 <= len(range(500)[sample_queries(500, 1000)]) <= 100
    assert len(range(7)[sample_queries(7, 1000)]) == 7
