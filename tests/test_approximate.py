"""Budgets and shortlists: what is returned is true, and more effort finds more."""

import re
from dataclasses import replace

import numpy as np
import pytest
from helpers import assert_same, filled_index
from scipy import sparse
from test_budget import make_vectors
from test_cells import clustered_codes

from cccf_index import IndexCCCF, SearchParametersCCCF

RNG = np.random.default_rng(0)
CODES = clustered_codes(RNG, 6000, 4, 16)
USERS = clustered_codes(RNG, 200, 4, 16)
VECTORS_OF_USE = make_vectors(1, n_items=6000)  # of items and users
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


@pytest.fixture(scope="module")
def budgeted():
    return IndexCCCF.from_embeddings(*VECTORS_OF_USE, 8, 8, bytes_per_item=20, sweeps=3, verbose=False)


def list_most_used(index, budget):
    """The ids of the rows that a budget of blocks covers, the last group of dense rows first."""
    (part,) = index._snapshot().parts
    tables, allowed, last = part.segment.tables, [], part.segment.n_cells
    while last > tables.binary_stop and budget > 0:
        cells = np.flatnonzero(tables.cell_groups == tables.cell_groups[last - 1])
        n_blocks = np.diff(tables.block_starts)[cells]
        for c, n in zip(cells, n_blocks, strict=True):
            stop = tables.cell_starts[c] + 64 * -(-n * min(budget, n_blocks.sum()) // n_blocks.sum())
            allowed.append(part.segment.ids[tables.cell_starts[c] : min(stop, tables.cell_starts[c + 1])])
        budget, last = budget - min(budget, n_blocks.sum()), cells[0]
    assert budget == 0
    return np.concatenate(allowed)


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("blocks", [1, 3, 8])
def test_the_most_used_items_are_searched_exactly(budgeted, blocks, coded):
    users, every = VECTORS_OF_USE[1][:300], len(VECTORS_OF_USE[0])
    params = SearchParametersCCCF(coded=coded, max_items=64 * blocks, most_used=True)
    allowed = list_most_used(budgeted, blocks)
    assert len(allowed) <= 64 * (blocks + 3)
    for k in (1, 10, 100):
        found = budgeted.search(users, k, params=params)
        assert_same(found, budgeted.search(users, k, params=SearchParametersCCCF(coded=coded), allow=allowed))
        alone = [budgeted.search(users[row : row + 1], k, params=params) for row in range(20)]
        assert_same(tuple(np.concatenate(part) for part in zip(*alone, strict=True)), (found[0][:20], found[1][:20]))
    whole = SearchParametersCCCF(coded=coded, max_items=2 * every, most_used=True)
    assert_same(
        budgeted.search(users, 10, params=whole), budgeted.search(users, 10, params=replace(whole, max_items=None))
    )


def test_the_most_used_items_are_most_of_the_lists(budgeted):
    users = VECTORS_OF_USE[1][:300]
    exact = budgeted.search(users, 10)[0]
    shares = []
    for most_used in (True, False):
        params = SearchParametersCCCF(max_items=512, most_used=most_used)
        shares.append(share(budgeted.search(users, 10, params=params)[0], exact))
    assert shares[0] > 0.5
    assert shares[0] > shares[1]


def test_a_budget_beyond_the_longest_codes_goes_to_the_most_promising_blocks(budgeted):
    users, (part,) = VECTORS_OF_USE[1][:300], budgeted._snapshot().parts
    tables = part.segment.tables
    n_dense = int(tables.block_starts[-1] - tables.block_starts[tables.binary_stop])
    exact, shares = budgeted.search(users, 2000)[0], []
    for extra in (0, 3, 20, 1000):
        params = SearchParametersCCCF(max_items=64 * (n_dense + extra), most_used=True)
        shares.append(share(budgeted.search(users, 2000, params=params)[0], exact))
    assert shares == sorted(shares)
    assert shares[0] < shares[-1] == 1.0


def test_other_indexes_know_no_most_used_items(index):
    few = SearchParametersCCCF(max_items=640)
    for queries in (USERS, VECTORS):
        assert_same(
            index.search(queries, 10, params=replace(few, most_used=True)), index.search(queries, 10, params=few)
        )
    everything = SearchParametersCCCF(most_used=True)
    assert_same(index.search(USERS, 10, params=everything), index.search(USERS, 10))
