"""Selectors, allowed ids and excluded pairs.

The selector cases mirror faiss's tests/test_search_params.py (every IDSelector in `params.sel`, in `search` and in
`range_search`) and the removal by selector of tests/test_index_composite.py.
"""

import faiss
import numpy as np
import pytest
from helpers import Model, assert_same, filled_index, random_codes
from scipy import sparse

from cccf_index import IndexCCCF, SearchParametersCCCF
from cccf_index.storage.selectors import restrict_parts, select_members

N = 500
CODES = random_codes(np.random.default_rng(0), N, density=0.5, distinct=100)
SUBSET = np.random.default_rng(1).permutation(N)[:80]
BITMAP = np.packbits(np.isin(np.arange(N), SUBSET), bitorder="little")


SELECTORS = {
    "Range": lambda: (faiss.IDSelectorRange(100, 250), np.arange(100, 250)),
    "Range beyond the ids": lambda: (faiss.IDSelectorRange(490, 10**9), np.arange(490, N)),
    "Array": lambda: (faiss.IDSelectorArray(SUBSET), SUBSET),
    "Array with unknown and repeated ids": lambda: (faiss.IDSelectorArray([5, 5, -3, 10**12]), [5]),
    "Array of nothing": lambda: (faiss.IDSelectorArray([]), []),
    "Batch": lambda: (faiss.IDSelectorBatch(SUBSET), SUBSET),
    "Bitmap": lambda: (faiss.IDSelectorBitmap(BITMAP), SUBSET),
    "All": lambda: (faiss.IDSelectorAll(), np.arange(N)),
    "Not": lambda: (faiss.IDSelectorNot(faiss.IDSelectorBatch(SUBSET)), np.setdiff1d(np.arange(N), SUBSET)),
    "And": lambda: (
        faiss.IDSelectorAnd(faiss.IDSelectorRange(100, 400), faiss.IDSelectorBatch(SUBSET)),
        SUBSET[(SUBSET >= 100) & (SUBSET < 400)],
    ),
    "Or": lambda: (
        faiss.IDSelectorOr(faiss.IDSelectorRange(0, 50), faiss.IDSelectorArray(SUBSET)),
        np.union1d(np.arange(50), SUBSET),
    ),
    "XOr": lambda: (
        faiss.IDSelectorXOr(faiss.IDSelectorRange(0, 200), faiss.IDSelectorBatch(SUBSET)),
        np.setxor1d(np.arange(200), SUBSET),
    ),
    "plain ids": lambda: (SUBSET, SUBSET),
}


@pytest.fixture(scope="module")
def index_and_model():
    """Several segments, some deletions."""
    index, model = IndexCCCF(4, 8), Model()
    for start in range(0, N, 130):
        index.add(CODES[start : start + 130])
        index.search(CODES[:1], 1)
    model.add(CODES, range(N))
    gone = np.arange(3, N, 11)
    index.remove_ids(gone)
    model.remove(gone)
    assert len(index._snapshot().parts) > 1
    return index, model


@pytest.mark.parametrize("name", SELECTORS)
@pytest.mark.parametrize("n_queries", [1, 40])
def test_search_returns_only_what_the_selector_accepts(index_and_model, name, n_queries):
    index, model = index_and_model
    selector, allowed = SELECTORS[name]()
    queries = CODES[:n_queries]
    expected = model.search(queries, 9, allow=np.asarray(allowed, dtype=np.int64))
    assert_same(index.search(queries, 9, params=SearchParametersCCCF(sel=selector)), expected)
    assert_same(index.search(queries, 9, allow=selector), expected)
    if isinstance(selector, faiss.IDSelector):
        assert_same(index.search(queries, 9, params=faiss.SearchParameters(sel=selector)), expected)
    lims, _, I = index.range_search(queries, -1e9, params=SearchParametersCCCF(sel=selector))
    found = set(I[: int(lims[1])].tolist())
    assert found == set(np.asarray(allowed, dtype=int).tolist()) & set(model.items)


@pytest.mark.parametrize("name", [name for name in SELECTORS if name != "plain ids"])
def test_remove_ids_takes_a_selector(name):
    selector, accepted = SELECTORS[name]()
    index = filled_index(CODES)
    assert index.remove_ids(selector) == len(accepted)
    assert index.ids.tolist() == np.setdiff1d(np.arange(N), accepted).tolist()


def test_members_agrees_with_faiss_on_wide_ids():
    ids = np.sort(np.random.default_rng(0).integers(0, 2**62, 300))
    batch = faiss.IDSelectorBatch(ids[::3])
    np.testing.assert_array_equal(np.sort(select_members(batch, ids)), ids[::3])
    assert [batch.is_member(int(i)) for i in ids] == np.isin(ids, ids[::3]).tolist()


def test_allow_and_selector_both_hold(index_and_model):
    index, model = index_and_model
    expected = model.search(CODES[:20], 30, allow=np.arange(100, 110))
    params = SearchParametersCCCF(sel=faiss.IDSelectorRange(0, 110))
    assert_same(index.search(CODES[:20], 30, params=params, allow=np.arange(100, N)), expected)


FORMATS = [
    sparse.csr_matrix,
    sparse.coo_matrix,
    sparse.csc_matrix,
    sparse.csr_array,
    sparse.bsr_matrix,
    sparse.lil_matrix,
]


@pytest.mark.parametrize("convert", FORMATS)
def test_excluded_items_leave_k_results(index_and_model, convert):
    index, model = index_and_model
    seen = np.random.default_rng(0).random((30, N)) < np.linspace(0, 1, 30)[:, None]
    exclude = convert(seen)
    expected = model.search(CODES[:30], 10, exclude=sparse.csr_matrix(seen))
    assert (expected[1][:20] >= 0).all()
    assert (expected[1][29] == -1).all()
    assert_same(index.search(CODES[:30], 10, exclude=exclude), expected)
    D, I, R = index.search_and_reconstruct(CODES[:30], 10, exclude=exclude)
    assert_same((D, I), expected)
    assert np.isnan(R[29]).all()


def test_excluded_ids_may_be_unsorted_repeated_unknown_or_stored_zeros():
    index = filled_index(CODES)
    best = index.search(CODES[:1], 4)[1][0]
    columns = np.array([best[2], 499_999, best[0], best[0], best[3]])
    exclude = sparse.csr_matrix((np.array([1, 1, 1, 1, 0]), columns, np.array([0, 5])), shape=(1, 500_000))
    expected = [i for i in index.search(CODES[:1], 8)[1][0] if i not in best[[0, 2, 3]]]
    assert index.search(CODES[:1], 5, exclude=exclude)[1][0].tolist() == expected
    ordered = sparse.csr_matrix((np.ones(5), np.sort(columns), np.array([0, 5])), shape=(1, 500_000))
    assert ordered.has_sorted_indices  # which scipy remembers
    ordered.indices[:] = columns
    assert index.search(CODES[:1], 5, exclude=ordered)[1][0].tolist() == expected


def test_a_sparse_subset_is_searched_without_the_rest():
    """The parts that a search sees shrink with the subset, so that the scan costs no more than it must."""
    index = filled_index(random_codes(np.random.default_rng(0), 20_000))
    parts = index._snapshot().parts
    few = restrict_parts(parts, np.arange(10), "allow", 100)
    assert sum(len(part.segment) for part in few) == 10
    for ids, n_queries in ((np.arange(10_000), 100), (np.arange(10), 1)):  # to build a segment would take longer
        assert restrict_parts(parts, ids, "allow", n_queries)[0].segment is parts[0].segment


SEEN = [[3, 17, 17, 480], [], [np.int64(499), 10**12, -5], np.arange(0, N, 2)]
WIDTH = max(map(len, SEEN))
PADDED = np.full((4, WIDTH), -1)
for _place, _ids in enumerate(SEEN):
    PADDED[_place, : len(set(_ids))] = list(dict.fromkeys(_ids))
MASK = np.array([np.isin(np.arange(N), ids) for ids in SEEN])
FORMS = {
    "lists": SEEN,
    "a tuple of arrays": tuple(np.array(ids, dtype=np.int64) for ids in SEEN),
    "sets": [set(np.asarray(ids).tolist()) for ids in SEEN],
    "an array of objects": np.array([*SEEN, None], dtype=object)[:4],
    "an array padded with -1": PADDED,
    "lists padded with -1": PADDED.tolist(),
    "unsigned ids": [
        np.array(ids, dtype=np.int64)[np.array(ids, dtype=np.int64) >= 0].astype(np.uint64) for ids in SEEN
    ],
    "a mask": MASK,
    "masks": list(MASK),
}


@pytest.mark.parametrize("form", FORMS)
def test_exclude_takes_the_ids_of_each_query_in_many_forms(index_and_model, form):
    index, model = index_and_model
    queries = CODES[[3, 17, 499, 2]]
    expected = model.search(queries, 10, exclude=sparse.csr_matrix(MASK))
    assert not np.isin(expected[1][0], SEEN[0]).any()
    assert_same(index.search(queries, 10, exclude=FORMS[form]), expected)
    lims, _, I = index.range_search(queries, -1e9, exclude=FORMS[form])
    assert not np.isin(I[: int(lims[1])], SEEN[0]).any()


def test_excluded_ids_belong_to_their_queries_in_a_batch_of_codes_and_real_vectors():
    index = filled_index(CODES)
    x = np.random.default_rng(0).standard_normal((6, CODES.d)).astype(np.float32)
    x[::2] = CODES[:3].to_vectors()
    best = index.search(x, 3)[1]
    exclude = [row[: 1 + place % 2] for place, row in enumerate(best)]
    found = index.search(x, 3, exclude=exclude)[1]
    for place, row in enumerate(best):
        assert found[place, 0] == row[1 + place % 2]
    assert index.search(x[:0], 3, exclude=[])[1].shape == (0, 3)


@pytest.mark.parametrize(
    ("exclude", "error", "words"),
    [
        ([3, 5], TypeError, r"got int. For one query pass a list of one: `\[\[3, 5\]\]`"),
        (np.array([3, 5]), TypeError, r"int64 of shape \(2,\). For one query pass a list of one"),
        (np.zeros((2, N)), TypeError, r"a boolean mask or a scipy.sparse matrix .* got float64 of shape \(2, 500\)"),
        ([[0.5], []], TypeError, r"got float64 of shape \(1,\)"),
        ("ab", TypeError, "got str"),
        (np.zeros((2, N), dtype=int), ValueError, r"got 0 twice. For a mask pass `exclude.astype\(bool\)`"),
        ([[1]], ValueError, "one row for each of the 2 queries, got 1 rows"),
        (np.zeros((3, N), dtype=bool), ValueError, r"one row for each of the 2 queries, got shape \(3, 500\)"),
    ],
)  # fmt: skip
def test_exclusions_that_could_mean_something_else_are_refused(exclude, error, words):
    with pytest.raises(error, match=words):
        filled_index(CODES).search(CODES[:2], 1, exclude=exclude)
