"""Excluded items of each query, against the plain search of `reference`, which knows of no blocks or tables."""

import numpy as np
import pytest
from helpers import Model, assert_same, filled_index, random_codes
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from cccf_index import IndexCCCF, SearchParametersCCCF

N = 700


def as_matrix(seen, order, dtype):
    """CSR with the ids of each row ascending, or in any order."""
    starts = np.concatenate([[0], np.cumsum([len(ids) for ids in seen])]).astype(dtype)
    ids = np.concatenate([np.empty(0, int), *(order(np.array(sorted(row), int)) for row in seen)])
    shape = (len(seen), max(map(max, filter(None, seen)), default=0) + 1)
    return sparse.csr_matrix((np.ones(len(ids)), ids.astype(dtype), starts), shape=shape)


def as_padded(seen):
    table = np.full((len(seen), max(map(len, seen))), -1)
    for place, ids in enumerate(seen):
        table[place, : len(ids)] = list(ids)
    return table


FORMS = {
    "canonical CSR of int32": lambda seen, rng: as_matrix(seen, np.sort, np.int32),
    "canonical CSR of int64": lambda seen, rng: as_matrix(seen, np.sort, np.int64),
    "CSR in any order": lambda seen, rng: as_matrix(seen, rng.permutation, np.int32),
    "CSC": lambda seen, rng: as_matrix(seen, np.sort, np.int32).tocsc(),
    "COO array": lambda seen, rng: sparse.coo_array(as_matrix(seen, np.sort, np.int32)),
    "lists": lambda seen, rng: [list(ids) for ids in seen],
    "sets": lambda seen, rng: seen,
    "a padded array": lambda seen, rng: as_padded(seen),
    "a mask": lambda seen, rng: np.array([np.isin(np.arange(2 * N), list(ids)) for ids in seen]),
}


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    density=st.sampled_from([1.0, 0.4]),
    distinct=st.sampled_from([3, N]),
    share=st.sampled_from([0.0, 0.05, 0.5, 0.99]),
    k=st.sampled_from([1, 10, N]),
    form=st.sampled_from(sorted(FORMS)),
    n_parts=st.integers(1, 3),
)
def test_excluded_items_are_left_out_as_the_reference_leaves_them_out(seed, density, distinct, share, k, form, n_parts):
    rng = np.random.default_rng(seed)
    codes = random_codes(rng, N, density=density, distinct=distinct)
    index, model = IndexCCCF(4, 8), Model()
    for rows in np.array_split(np.arange(N), n_parts):
        index.add(codes[rows])
        index.search(codes[:1], 1)
    model.add(codes, range(N))
    gone = np.flatnonzero(rng.random(N) < rng.choice([0, 0.1]))
    index.remove_ids(gone)
    model.remove(gone)
    queries = random_codes(rng, 20, density=density)
    best = index.search(queries, 30)[1]  # what users have seen scores high
    seen = [set(row[row >= 0].tolist()) | set(np.flatnonzero(rng.random(2 * N) < share).tolist()) for row in best]
    seen[3] = set()
    mask = sparse.csr_matrix(np.array([np.isin(np.arange(N), list(ids)) for ids in seen]))
    expected = model.search(queries, k, exclude=mask)
    exclude = FORMS[form](seen, rng)
    assert_same(index.search(queries, k, exclude=exclude), expected)
    one = index.search(queries[:1], k, exclude=FORMS[form](seen[:1], rng))
    assert_same(one, (expected[0][:1], expected[1][:1]))
    for params in (SearchParametersCCCF(prune=False), SearchParametersCCCF(num_threads=3)):
        assert_same(index.search(queries, k, params=params, exclude=exclude), expected)


@pytest.mark.parametrize("n_seen", [2**16 - 3, 2**16 - 2, 2**16 - 1, 2**16, 100_000])
def test_lists_of_any_length_are_excluded(n_seen):
    index = IndexCCCF(4, 8)
    codes = random_codes(np.random.default_rng(0), 10)
    ids = np.array([0, 5, n_seen - 3, n_seen - 2, n_seen - 1, n_seen, n_seen + 1, 2**40, -7, -(2**63)])
    index.add_with_ids(codes, ids)
    found = index.search(codes[:2], 10, exclude=[np.arange(n_seen), [n_seen, -(2**63)]])[1]
    assert set(found[0].tolist()) == {n_seen, n_seen + 1, 2**40, -7, -(2**63), -1}
    assert set(found[1].tolist()) == set(ids.tolist()) - {n_seen, -(2**63)} | {-1}


def test_deleted_items_are_left_out_whatever_their_place_in_a_block():
    """Blocks begin at any bit of the deletion mask, and small groups are shorter than a block."""
    codes = random_codes(np.random.default_rng(0), 900, density=0.5)
    queries = codes[:5]
    for seed in range(5):
        rng = np.random.default_rng(seed)
        index, model = filled_index(codes), Model()
        model.add(codes, range(len(codes)))
        gone = rng.permutation(len(codes))[:200]
        index.remove_ids(gone)
        model.remove(gone)
        assert_same(index.search(queries, 400), model.search(queries, 400))
        kept = np.flatnonzero(rng.random(len(codes)) < 0.3)
        assert_same(index.search(queries, 50, allow=kept), model.search(queries, 50, allow=kept))
