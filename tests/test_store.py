"""Segments and how they accumulate, shrink and merge."""

import numpy as np
import pytest
from helpers import filled_index, random_codes
from hypothesis import given, settings
from hypothesis import strategies as st

from cccf_index import CompositionalCodes, IndexCCCF
from cccf_index.storage.groups import MIN_GROUP, assign_groups, find_component_sets
from cccf_index.storage.item_rows import ItemRows
from cccf_index.storage.segment import Segment
from cccf_index.storage.state import FANOUT, MAX_BATCHES

RNG = np.random.default_rng(0)


def rows_of(codes, ids=None):
    ids = np.arange(len(codes)) if ids is None else ids
    return ItemRows(codes.bits, np.rint(codes.weights * 100).astype(np.uint32), None, ids)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 1500),
    shape=st.sampled_from([(8, 16), (3, 5), (64, 4), (1, 128)]),
    density=st.sampled_from([0.0, 0.05, 0.5, 0.95, 1.0]),
    span=st.sampled_from([1, 2**20, 2**45]),
)
def test_a_segment_gives_back_the_rows_it_was_made_of(seed, n, shape, density, span):
    rng = np.random.default_rng(seed)
    rows = rows_of(random_codes(rng, n, *shape, density=density), rng.permutation(n) * span)
    segment = Segment.build(rows, shape[1])
    found = segment.find(rows.ids)
    assert sorted(found) == list(range(n))
    again = segment.decode(found)
    np.testing.assert_array_equal(again.ids, rows.ids)
    np.testing.assert_array_equal(again.words, rows.words)
    np.testing.assert_array_equal(again.weights, rows.weights)
    unknown = np.array([-1, n * span, 2**62])
    assert (segment.find(unknown) == -1).all()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 5000), spread=st.sampled_from([1, 20, 3000, 2**63]))
def test_groups_cover_their_rows_and_none_but_the_last_is_tiny(seed, n, spread):
    sets = np.random.default_rng(seed).integers(0, spread, n, dtype=np.uint64)
    group, covers = assign_groups(sets)
    assert ((sets & ~covers[group]) == 0).all()
    sizes = np.bincount(group, minlength=len(covers))
    assert (sizes > 0).all()
    _, counts = np.unique(sets, return_counts=True)
    assert len(covers) <= 1 + n // MIN_GROUP + (counts >= MIN_GROUP).sum()


def test_large_sets_of_components_are_groups_of_their_own():
    sets = np.repeat(np.array([1, 2, 12, 7], dtype=np.uint64), [300, 5, 10, 400])
    group, covers = assign_groups(sets)
    assert sorted(covers.tolist()) == [1, 7, 14]
    assert len(np.unique(group[300:315])) == 1


def test_nearly_dense_rows_are_one_group():
    weights = np.ones((5000, 8), dtype=np.uint8)
    weights[::10, 3] = 0
    group, covers = assign_groups(find_component_sets(weights))
    assert covers.tolist() == [255]
    assert not group.any()


def test_memory_of_dense_codes_is_24_bytes_and_4_or_8_for_an_id():
    n = 20_000
    codes = CompositionalCodes(RNG.integers(0, 2**16, (n, 8, 1), dtype=np.uint16), RNG.random((n, 8)) + 0.01, 16)
    assert filled_index(codes).nbytes / n < 28.9
    index = IndexCCCF(8, 16)
    index.add_with_ids(codes, np.unique(RNG.integers(0, 2**62, n)))
    assert index.nbytes / n < 32.9


def test_parts_stay_few_however_many_batches_are_added():
    index = IndexCCCF(2, 8)
    codes = random_codes(RNG, 3000, 2, 8)
    for start in range(0, 3000, 3):
        index.add(codes[start : start + 3])
        if start % 2:
            assert index.search(codes[:1], 1)[1][0, 0] >= 0
        assert len(index._state.parts) < FANOUT * 5
    assert index.ntotal == 3000
    np.testing.assert_array_equal(index.reconstruct_n(), codes.to_vectors())


def test_small_batches_wait_for_a_reader_or_for_company():
    index = IndexCCCF(2, 8)
    codes = random_codes(RNG, 1, 2, 8)
    for _ in range(MAX_BATCHES - 1):
        index.add(codes)
    assert index._state.parts == ()
    index.add(codes)
    assert len(index._state.parts) == 1
    index.add(codes)
    assert len(index._state.pending) == 1
    assert index.ntotal == MAX_BATCHES + 1
    index.search(codes, 1)
    assert index._state.pending == ()


def test_deleted_rows_are_given_up_when_they_are_many():
    codes = random_codes(RNG, 1000, 2, 8, density=1.0)
    index = filled_index(codes)
    whole = index.nbytes
    index.remove_ids(np.arange(100))
    assert index._state.parts[0].n_dead == 100
    index.remove_ids(np.arange(400))
    assert index._state.parts[0].n_dead == 0
    assert index.nbytes < 0.7 * whole
    np.testing.assert_array_equal(index.reconstruct_n(), codes[400:].to_vectors())


@pytest.mark.parametrize(("largest", "dtype"), [(2.55, "u1"), (2.56, "u2"), (655.35, "u2"), (655.36, "u4")])
def test_weights_are_stored_in_the_smallest_type(largest, dtype):
    codes = CompositionalCodes.from_signs(np.ones((2, 1, 4)), [[largest], [0.01]])
    index = filled_index(codes)
    assert index._snapshot().parts[0].segment.tables.weights.dtype == np.dtype(dtype)
    np.testing.assert_allclose(index.reconstruct_n(), codes.to_vectors(), rtol=1e-6)
