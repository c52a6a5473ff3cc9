"""Prepared selectors: the same results as without, whatever happens to the index meanwhile."""

import copy
import gc
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np
import pytest
from helpers import Model, assert_same, filled_index, random_codes
from hypothesis import given, settings
from hypothesis import strategies as st

from cccf_index import IndexCCCF, SearchParametersCCCF
from cccf_index.storage import selectors
from cccf_index.storage.selectors import PreparedSelector

N = 400  # ids that the tests know of; items are added beyond them too
QUERIES = random_codes(np.random.default_rng(5), 6)


def make_bitmap(ids):
    return faiss.IDSelectorBitmap(np.packbits(np.isin(np.arange(N), ids), bitorder="little"))


RULES = {
    "ids": lambda ids: ids,
    "ids given twice, unknown and in any order": lambda ids: np.concatenate([ids[::-1], ids, [10**15]]),
    "a mask": lambda ids: np.isin(np.arange(N), ids),
    "a list of booleans": lambda ids: np.isin(np.arange(N), ids).tolist(),
    "Array": faiss.IDSelectorArray,
    "Batch": faiss.IDSelectorBatch,
    "Bitmap": make_bitmap,
    "Not": lambda ids: faiss.IDSelectorNot(faiss.IDSelectorBatch(np.setdiff1d(np.arange(3 * N), ids))),
    "a prepared selector": lambda ids: PreparedSelector(faiss.IDSelectorBatch(ids)),
}


def check_searches(index, model, prepared, ids):
    expected = model.search(QUERIES, 7, allow=ids)
    assert_same(index.search(QUERIES, 7, allow=prepared), expected)
    assert_same(index.search(QUERIES, 7, params=SearchParametersCCCF(sel=prepared)), expected)
    one = index.search(QUERIES[:1], 7, allow=prepared)
    assert_same(one, (expected[0][:1], expected[1][:1]))
    lims, _, found = index.range_search(QUERIES[:2], -1e9, allow=prepared)
    assert set(found[: int(lims[1])].tolist()) == set(ids.tolist()) & set(model.items)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    rule=st.sampled_from(sorted(RULES)),
    share=st.sampled_from([0.0, 0.01, 0.3, 0.8, 1.0]),
    steps=st.lists(st.sampled_from(["add", "remove", "remove allowed", "merge", "search"]), max_size=12),
)
def test_a_prepared_selector_stays_correct_when_the_index_changes(seed, rule, share, steps):
    rng = np.random.default_rng(seed)
    ids = np.flatnonzero(rng.random(N) < share)
    index, model = IndexCCCF(4, 8), Model()
    first = random_codes(rng, 150)
    index.add(first)
    model.add(first, range(150))
    prepared = index.prepare(allow=RULES[rule](ids))
    for step in steps:
        known = np.array(sorted(model.items), dtype=np.int64)
        if step in ("add", "merge"):
            codes, start = random_codes(rng, int(rng.integers(1, 60))), index._state.next_id
            if step == "add":
                index.add(codes)
            else:
                index.merge_from(filled_index(codes), add_id=start)
            model.add(codes, range(start, start + len(codes)))
        elif step == "search":
            check_searches(index, model, prepared, ids)
        elif len(known) > 50:
            gone = rng.permutation(known)[:20] if step == "remove" else np.intersect1d(known, ids)[:15]
            index.remove_ids(gone)
            model.remove(gone)
    check_searches(index, model, prepared, ids)
    assert [prepared.is_member(i) for i in range(N)] == np.isin(np.arange(N), ids).tolist()


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), shares=st.tuples(*[st.sampled_from([0.05, 0.5, 0.9])] * 2), both=st.booleans())
def test_a_prepared_selector_and_another_both_hold(seed, shares, both):
    rng = np.random.default_rng(seed)
    codes = random_codes(rng, 300)
    index, model = filled_index(codes), Model()
    model.add(codes, range(300))
    index.remove_ids(np.arange(0, 300, 17))
    model.remove(range(0, 300, 17))
    first, second = (np.flatnonzero(rng.random(300) < share) for share in shares)
    prepared, other = index.prepare(first), index.prepare(second) if both else second
    expected = model.search(QUERIES, 9, allow=np.intersect1d(first, second))
    for _ in range(2):
        assert_same(index.search(QUERIES, 9, params=SearchParametersCCCF(sel=other), allow=prepared), expected)
        assert_same(index.search(QUERIES, 9, params=SearchParametersCCCF(sel=prepared), allow=other), expected)


def test_later_searches_look_nothing_up(monkeypatch):
    index = filled_index(random_codes(np.random.default_rng(0), 1000))
    few, most = index.prepare(np.arange(100)), index.prepare(faiss.IDSelectorNot(faiss.IDSelectorRange(0, 100)))
    expected = [index.search(QUERIES, 5, allow=selector) for selector in (few, most)]
    for name in ("list_ids", "select_members", "_apply"):
        monkeypatch.setattr(selectors, name, None)
    monkeypatch.setattr(selectors.Segment, "find", None)
    monkeypatch.setattr(selectors.Segment, "build", None)
    for selector, result in zip((few, most), expected, strict=True):
        assert_same(index.search(QUERIES, 5, allow=selector), result)
        assert index.prepare(selector) is selector


def test_a_prepared_selector_keeps_no_segment_alive():
    index = filled_index(random_codes(np.random.default_rng(0), 300))
    prepared = [index.prepare(np.arange(n)) for n in (0, 20, 290, 300)]
    segment = weakref.ref(index._snapshot().parts[0].segment)
    gc.disable()
    try:
        index.reset()
        assert segment() is None
    finally:
        gc.enable()
    assert not any(len(selector._views) + len(selector._accepted) for selector in prepared)
    assert (index.search(QUERIES, 3, allow=prepared[1])[1] == -1).all()


def test_a_removal_does_not_look_up_all_ids_again(monkeypatch):
    index = filled_index(random_codes(np.random.default_rng(0), 1000))
    prepared = index.prepare(np.arange(300))
    index.remove_ids([5, 700])
    monkeypatch.setattr(selectors.Segment, "build", None)
    monkeypatch.setattr(PreparedSelector, "_accept", None)
    assert 5 not in index.search(QUERIES, 300, allow=prepared)[1]
    assert (index.search(QUERIES, 299, allow=prepared)[1] != -1).all()


def test_a_prepared_selector_serves_other_indexes_too():
    rng = np.random.default_rng(0)
    items, ids = random_codes(rng, 200), np.arange(50, 90)
    prepared = filled_index(items).prepare(ids)
    other = IndexCCCF(2, 16, scale=None)
    codes = random_codes(rng, 120, 2, 16)
    other.add(codes)
    assert_same(other.search(codes[:5], 9, allow=prepared), other.search(codes[:5], 9, allow=ids))


def test_ids_and_masks_are_copied():
    index = filled_index(random_codes(np.random.default_rng(0), 200))
    for allow in (np.arange(100, 120), np.isin(np.arange(200), np.arange(100, 120))):
        prepared = index.prepare(allow)
        allow[:] = 0
        index.add(QUERIES)
        assert set(index.search(QUERIES, 20, allow=prepared)[1].ravel().tolist()) == set(range(100, 120))
    bits = np.packbits(np.isin(np.arange(200), [7]), bitorder="little")
    prepared = index.prepare(faiss.IDSelectorBitmap(bits))
    bits[:] = 255
    index.add(QUERIES)
    assert set(index.search(QUERIES, 2, allow=prepared)[1].ravel().tolist()) == {7, -1}


def test_threads_share_a_prepared_selector_while_the_index_changes():
    rng = np.random.default_rng(0)
    codes = random_codes(rng, 2000)
    index, prepared = IndexCCCF(4, 8), PreparedSelector(np.arange(0, 2000, 3))
    index.add(codes[:500])

    def search(_):
        return np.concatenate([index.search(QUERIES, 10, allow=prepared)[1].ravel() for _ in range(20)])

    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(search, worker) for worker in range(4)]
        for start in range(500, 2000, 50):
            index.add(codes[start : start + 50])
            index.remove_ids([start - 500])
        for future in found:
            assert (future.result() % 3 == 0).all()
    assert_same(index.search(QUERIES, 10, allow=prepared), index.search(QUERIES, 10, allow=np.arange(0, 2000, 3)))


def test_a_plain_mask_is_allowed_ids():
    index = filled_index(random_codes(np.random.default_rng(0), 200))
    mask = np.random.default_rng(1).random(150) < 0.3
    expected = index.search(QUERIES, 9, allow=np.flatnonzero(mask))
    for allow in (mask, mask.tolist()):
        assert_same(index.search(QUERIES, 9, allow=allow), expected)
    assert (index.search(QUERIES, 9, allow=mask[:0])[1] == -1).all()
    with pytest.raises(ValueError, match=r"`allow` must be 1-dimensional, one mask for all queries, got shape"):
        index.search(QUERIES, 9, allow=mask[None])
    with pytest.raises(TypeError, match="`x` must be integers, got dtype bool"):
        index.remove_ids(mask)


@pytest.mark.parametrize(
    ("allow", "words"), [([0.5], "`allow` must be integers"), ("ab", "`allow` must be"), (3, "`allow` must be")]
)
def test_what_is_no_set_of_ids_is_refused(allow, words):
    with pytest.raises((TypeError, ValueError), match=words):
        filled_index(QUERIES).prepare(allow=allow)


def test_prepared_selectors_are_copied_by_their_rule():
    index = filled_index(random_codes(np.random.default_rng(0), 200))
    prepared = index.prepare(np.arange(0, 200, 7))
    assert repr(prepared) == "<PreparedSelector of 29 ids>"
    for other in (pickle.loads(pickle.dumps(prepared)), copy.deepcopy(SearchParametersCCCF(sel=prepared)).sel):
        assert_same(index.search(QUERIES, 9, allow=other), index.search(QUERIES, 9, allow=prepared))
    assert repr(PreparedSelector(faiss.IDSelectorRange(2, 9))) == "<PreparedSelector of IDSelectorRange>"
