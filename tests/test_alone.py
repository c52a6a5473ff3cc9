"""One query alone has a path of its own through the kernels, and the same result as in a batch."""

import gc
import threading
import weakref

import numpy as np
import pytest
from helpers import assert_same, random_codes
from hypothesis import given, settings
from hypothesis import strategies as st

from cccf_index import CompositionalCodes, IndexCCCF, IndexRefineCCCF, SearchParametersCCCF
from cccf_index.search import alone

RNG = np.random.default_rng(0)
ITEMS = RNG.standard_normal((3000, 24)).astype(np.float32)
USERS = RNG.standard_normal((40, 24)).astype(np.float32)
CODED = SearchParametersCCCF(coded=True)


@pytest.fixture(scope="module")
def embedded():
    return IndexCCCF.from_embeddings(ITEMS, USERS, 4, 16, verbose=False)


def check_alone(index, x, k, params=None):
    """Each query alone has the row of the batch."""
    D, I = index.search(x, k, params=params)
    for i in range(len(x)):
        assert_same(index.search(x[i : i + 1], k, params=params), (D[i : i + 1], I[i : i + 1]))


@pytest.mark.parametrize("params", [None, CODED], ids=["real", "coded"])
@pytest.mark.parametrize("k", [1, 10, 500, 4000])
def test_a_vector_alone_is_found_as_in_a_batch(embedded, params, k):
    check_alone(embedded, USERS[:9], k, params)


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("max_items", [1, 64, 700, 10**6])
def test_a_budget_of_items_holds_for_a_query_alone(embedded, max_items, coded):
    check_alone(embedded, USERS[:9], 20, SearchParametersCCCF(coded=coded, max_items=max_items))


@pytest.mark.parametrize("storage", ["float32", "float16", "int8"])
@pytest.mark.parametrize("max_items", [None, 700])
def test_a_query_alone_is_re_ranked_as_in_a_batch(embedded, storage, max_items):
    refined = IndexRefineCCCF(embedded, ITEMS, storage=storage)
    for k, factor, coded in ((1, None, False), (10, 1.0, True), (10, 7.3, False), (4000, 2.0, False)):
        check_alone(refined, USERS[:9], k, SearchParametersCCCF(coded=coded, max_items=max_items, k_factor=factor))
    check_alone(refined, USERS[:9], 10)


def test_bad_queries_of_a_refined_index_are_refused_as_in_a_batch(embedded):
    refined, bad = IndexRefineCCCF(embedded, ITEMS), USERS[:1].copy()
    bad[0, 3] = np.nan
    for x, error, words in (
        (bad, ValueError, "`x` must be finite"),
        (USERS[:1, :5], ValueError, r"`x` must be of shape \(n, 24\)"),
        (random_codes(RNG, 1, 4, 16), TypeError, "`x` must be vectors"),
    ):
        with pytest.raises(error, match=words):
            refined.search(x, 5)
    with pytest.raises(ValueError, match="`k` must be an integer >= 1"):
        refined.search(USERS[:1], 0)
    refined.base_index.add(ITEMS[:1])
    with pytest.raises(ValueError, match="The index holds id 3000, which has no vector"):
        refined.search(USERS[:1], 3001)


@pytest.mark.filterwarnings("ignore:All weights of")
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 400), st.sampled_from([50, 100, "auto", None]), st.booleans())
def test_a_code_alone_is_found_as_in_a_batch(seed, n, scale, biased):
    rng = np.random.default_rng(seed)
    index = IndexCCCF(4, 16, scale)
    index.add(random_codes(rng, n, 4, 16), bias=rng.standard_normal(n) if biased else None)
    queries = random_codes(rng, 5, 4, 16)
    queries = CompositionalCodes(queries.bits, queries.weights + 1, 16)  # no weight becomes 0
    check_alone(index, queries, int(rng.integers(1, n + 3)))
    check_alone(index, queries.to_vectors(), 3)


def test_changes_of_the_index_are_seen_at_once(embedded):
    index = IndexCCCF.from_embeddings(ITEMS[:500], USERS, 4, 16, verbose=False)
    for change in (lambda: index.add(ITEMS[500:900]), lambda: index.remove_ids(np.arange(100)), lambda: None):
        change()
        for params in (None, CODED):
            check_alone(index, USERS[:3], 20, params)
    index.reset()
    assert (index.search(USERS[:1], 5)[1] == -1).all()
    assert (embedded.search(USERS[:1], 5)[1] >= 0).all()


def test_bad_values_are_refused_as_in_a_batch(embedded):
    for value in (np.nan, np.inf, 1e20):
        for params in (None, CODED):
            x = USERS[:1].copy()
            x[0, 3] = value
            with pytest.raises(ValueError, match="`x` must be finite"):
                embedded.search(x, 5, params=params)
    with pytest.raises(ValueError, match="`k` must be an integer >= 1"):
        embedded.search(USERS[:1], 0)
    with pytest.raises(ValueError, match=r"`x` must be of shape \(n, 24\)"):
        embedded.search(USERS[:1, :5], 5)
    heavy = CompositionalCodes.from_signs(np.ones((1, 4, 16)), np.full((1, 4), 1e9))
    index = IndexCCCF(4, 16, 100)
    index.add(random_codes(RNG, 10, 4, 16))
    with pytest.raises(ValueError, match="`x`"):
        index.search(heavy, 5)
    tiny = CompositionalCodes.from_signs(np.ones((1, 4, 16)), np.full((1, 4), 1e-9))
    with pytest.warns(UserWarning, match="round to 0"):
        index.search(tiny, 5)


def test_other_forms_of_a_vector_take_the_usual_way(embedded):
    expected = embedded.search(USERS[:1], 5)
    assert_same(embedded.search(USERS[:1].tolist(), 5), expected)
    assert_same(embedded.search(np.asfortranarray(np.repeat(USERS[:1], 2, axis=0))[:1], 5), expected)
    D, I = np.empty((1, 5), np.float32), np.empty((1, 5), np.int64)
    embedded.search(USERS[:1], 5, D=D, I=I)
    assert_same((D, I), expected)


def test_threads_do_not_share_the_room_of_a_query(embedded):
    D, I = embedded.search(USERS, 30)
    wrong = []

    def work(start):
        for i in list(range(start, 40, 4)) * 20:
            found = embedded.search(USERS[i : i + 1], 30)
            if not (np.array_equal(found[0], D[i : i + 1]) and np.array_equal(found[1], I[i : i + 1])):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_a_thread_keeps_does_not_keep_an_index_alive():
    index = IndexCCCF(4, 16)
    index.add(random_codes(RNG, 100, 4, 16))
    index.search(random_codes(RNG, 1, 4, 16), 5)
    assert alone._kept.CodedArguments.state() is index._state
    state = weakref.ref(index._state)
    del index
    gc.collect()
    assert state() is None
