"""Budgets and shortlists: what is returned is true, and more effort finds more."""

import re

import numpy as np
import pytest
from helpers import assert_same, filled_index
from scipy import sparse
from test_cells import clustered_codes

from cccf_index import IndexCCCF, SearchParametersCCCF

RNG = np.random.default_rng(0)
CODES = clustered_codes(RNG, 6000, 4, 16)
USERS = clustered_codes(RNG, 200, 4, 16)
VECTORS = USERS.to_vectors() * RNG.uniform(0.5, 1.5, (200, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def index():
    return filled_index(CODES, scale="auto")


def share(found, exact):
    return np.mean(found >= exact[:, -1:])


@pytest.mark.parametrize("queries", [USERS, VECTORS], ids=["coded", "real"])
def test_a_larger_budget_finds_more_and_all_scores_are_true(index, queries):
    exact = index.search(queries, 10)
    true = index.reconstruct_n()
    shares = []
    for budget in (64, 640, 2000, 6000):
        D, I = index.search(queries, 10, params=SearchParametersCCCF(max_items=budget))
        shares.append(share(D, exact[0]))
        vectors = queries if isinstance(queries, np.ndarray) else queries.to_vectors()
        np.testing.assert_allclose(D, np.einsum("qd,qkd->qk", vectors, true[I]), rtol=2e-3, atol=1e-3)
    assert shares == sorted(shares)
    assert shares[0] < 0.9 < shares[1] + 0.5
    assert shares[-1] == 1.0
    assert_same((D, I), exact)


def test_a_budget_is_shared_by_the_segments_and_respects_filters(index):
    parts = IndexCCCF(4, 16, "auto")
    for start in range(0, 6000, 1500):
        parts.add(CODES[start : start + 1500])
        parts.ids  # noqa: B018  closes the segment
    params = SearchParametersCCCF(max_items=1000)
    exclude = sparse.csr_matrix((np.ones(200), index.search(USERS, 1)[1].ravel(), np.arange(201)), shape=(200, 6000))
    for one in (index, parts):
        D, I = one.search(USERS, 10, params=params, exclude=exclude)
        assert not (exclude.indices[:, None] == I).any()
        assert share(D, one.search(USERS, 10, exclude=exclude)[0]) > 0.5
        allowed = one.search(USERS, 10, params=SearchParametersCCCF(max_items=1000, sel=np.arange(3000)))[1]
        assert allowed.max() < 3000


def test_one_block_is_the_least_that_is_looked_at(index):
    D, I = index.search(USERS, 100, params=SearchParametersCCCF(max_items=1))
    found = (I >= 0).sum(axis=1)
    assert (found <= 64).all()
    assert found.min() > 0
    assert (D[I == -1] == np.finfo(np.float32).min).all()


def test_parameters_that_were_changed_are_checked_again(index):
    params = SearchParametersCCCF()
    params.max_items = -5
    with pytest.raises(ValueError, match="`max_items` must be an integer >= 1"):
        index.search(USERS, 10, params=params)
    assert_same(index.search(USERS, 10, params=SearchParametersCCCF(max_items=2**70)), index.search(USERS, 10))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"max_items": 0}, ValueError, "`max_items` must be an integer >= 1, or None, got 0"),
        ({"max_items": 0.5}, TypeError, "`max_items` must be an integer >= 1, or None"),
        ({"shortlist": 0}, ValueError, "`shortlist` must be an integer >= 1, or None, got 0"),
        ({"prune": False, "max_items": 100}, ValueError, "`prune` must be True with `max_items`"),
        ({"coded": True, "shortlist": 3}, ValueError, "`shortlist` must be None with `coded`"),
    ],
)
def test_bad_parameters_are_explained(arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        SearchParametersCCCF(**arguments)


@pytest.mark.parametrize("name", ["max_items", "shortlist"])
def test_a_range_search_refuses_to_be_approximate(index, name):
    with pytest.raises(ValueError, match=f"`params.{name}` must be None"):
        index.range_search(USERS, 1.0, params=SearchParametersCCCF(**{name: 5}))


@pytest.mark.slow
def test_a_longer_shortlist_finds_more_and_its_scores_are_those_of_the_exact_search(index):
    exact_D, exact_I = index.search(VECTORS, 10)
    shares = []
    for length in (1, 3, 600):
        D, I = index.search(VECTORS, 10, params=SearchParametersCCCF(shortlist=length))
        shares.append(share(D, exact_D))
        for row in range(len(I)):
            score = dict(zip(exact_I[row].tolist(), exact_D[row].tolist(), strict=True))
            assert all(score.get(i, d) == d for i, d in zip(I[row].tolist(), D[row].tolist(), strict=True))
    assert shares == sorted(shares)
    assert 0.3 < shares[0] < 1
    assert_same((D, I), (exact_D, exact_I))


def test_a_shortlist_leaves_coded_queries_alone_and_respects_exclusions(index):
    params = SearchParametersCCCF(shortlist=2)
    assert_same(index.search(USERS, 10, params=params), index.search(USERS, 10))
    best = index.search(VECTORS, 1)[1].ravel()
    exclude = sparse.csr_matrix((np.ones(200), best, np.arange(201)), shape=(200, 6000))
    assert not (index.search(VECTORS, 10, params=params, exclude=exclude)[1] == best[:, None]).any()
