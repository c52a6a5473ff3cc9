"""Stored vectors: ids and rows against a dict, 8-bit values against their vectors, rows that copies share."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numba import njit

from cccf_index.kernels import refinement
from cccf_index.kernels.decorators import ENTRY
from cccf_index.storage.id_map import IdMap
from cccf_index.storage.vectors import VectorStore, encode

IDS = st.one_of(
    st.integers(0, 30), st.integers(-(2**63), 2**63 - 2).filter(lambda i: i != -1), st.integers(10**12, 10**12 + 40)
)
CHANGES = st.lists(st.tuples(st.booleans(), st.lists(IDS, max_size=12, unique=True)), max_size=12)


@njit(**ENTRY)
def find_rows(address, wanted, rows):
    vectors = refinement.view_vectors(address)
    for i in range(wanted.size):
        rows[i] = refinement.find_row(vectors, wanted[i])


def find_by_kernel(store, wanted):
    rows = np.empty(len(wanted), np.int64)
    find_rows(store.address, wanted, rows)
    return rows


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.none(), st.lists(IDS, max_size=30, unique=True)), st.integers(0, 20), CHANGES)
def test_ids_and_rows_are_those_of_a_dict(ids, n, changes):
    """By numpy and by the kernel. Of a removed id the kernel may still know the row: no index will ask for it."""
    n = n if ids is None else len(ids)
    id_map = IdMap(n) if ids is None else IdMap.build(np.array(ids, np.int64))
    expected = dict(zip(range(n) if ids is None else ids, range(n), strict=True))
    for is_added, some in changes:
        keys = np.array(some, np.int64)
        if is_added:
            expected |= {key: id_map.n_rows + i for i, key in enumerate(some)}
            id_map = id_map.append(keys)
        else:
            expected = {key: row for key, row in expected.items() if key not in some}
            id_map = id_map.remove(keys)
    known = np.array(sorted(expected), np.int64)
    asked = np.array([*expected, *range(-3, 40), 10**12 + 7, -(2**63), 2**63 - 2], np.int64)
    rows = [expected.get(key, -1) for key in asked.tolist()]
    np.testing.assert_array_equal(id_map.find(asked), rows)
    np.testing.assert_array_equal(id_map.list_ids(), known)
    np.testing.assert_array_equal(id_map.list_rows(), [expected[key] for key in known.tolist()])
    assert len(id_map) == len(expected)
    store = VectorStore._of_rows("int8", encode(np.zeros((id_map.n_rows, 2)), "int8", "x"), id_map)
    found, wanted = find_by_kernel(store, asked), np.array(rows)
    is_removed = np.isin(asked, id_map.holes)
    np.testing.assert_array_equal(found[~is_removed], wanted[~is_removed])


VALUES = st.one_of(st.floats(-(2.0**53), 2.0**53, width=32), st.sampled_from([0.0, -0.0, 1e-45, 1e16, 1.0, -1.0]))


@settings(max_examples=200, deadline=None)
@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=VALUES))
def test_eight_bits_are_as_near_as_rounding_allows(x):
    """The error of each vector is at most half a step in every dimension, and zero vectors stay zero."""
    rows = encode(x, "int8", "x")
    assert rows.values.dtype == np.int8
    assert rows.scales.dtype == np.float32
    step = np.abs(x).max(axis=1).astype(np.float64) / 127
    error = np.square(rows.values * rows.scales[:, None].astype(np.float64) - x).sum(axis=1)
    assert (error <= x.shape[1] * (step / 2) ** 2 * (1 + 1e-5) + 1e-76).all()
    assert not rows.decode()[~x.any(axis=1)].any()
    for i in range(len(x)):  # each vector alone is stored as in a batch
        alone = encode(x[[i]], "int8", "x")
        np.testing.assert_array_equal(alone.values[0], rows.values[i])
        np.testing.assert_array_equal(alone.scales[0], rows.scales[i])


@pytest.mark.parametrize("storage", ["float32", "float16", "int8"])
def test_a_store_may_hold_some_items_only(storage):
    rng = np.random.default_rng(0)
    vectors, ids = rng.standard_normal((50, 7)).astype(np.float32), rng.choice(10**6, 50, replace=False)
    store = VectorStore.build(vectors, ids, storage)
    np.testing.assert_array_equal(store.find(np.array([ids[3], 10**7, ids[0]])), [3, -1, 0])
    store = store.put(ids[:5][::-1], store.encode(vectors[:5][::-1] * 2)).remove(ids[10:12])
    np.testing.assert_allclose(store.decode(ids[:5]), vectors[:5] * 2, atol=0.1)
    np.testing.assert_array_equal(store.find(ids[9:13]) >= 0, [True, False, False, True])
    assert len(store) == 48
    assert store.row_nbytes == {"float32": 28, "float16": 14, "int8": 11}[storage]


def test_copies_that_grow_do_not_write_into_each_other():
    store = VectorStore.build(np.zeros((1, 2)), None, "float32")
    store = store.put(np.arange(1, 3), store.encode(np.full((2, 2), 1.0)))
    grown = [store.put(np.arange(3, 6), store.encode(np.full((3, 2), value))) for value in (7.0, 8.0, 9.0)]
    for value, one in zip((7.0, 8.0, 9.0), grown, strict=True):
        np.testing.assert_array_equal(one.decode(np.arange(6))[:, 0], [0, 1, 1, value, value, value])
    assert grown[0].tail is store.tail  # the first found room behind the last row


def test_threads_that_grow_copies_of_one_store_do_not_write_into_each_other():
    store = VectorStore.build(np.zeros((1, 4)), None, "int8")
    store = store.put(np.arange(1, 9), store.encode(np.ones((8, 4))))
    results = {}

    def grow(value):
        one = store
        for i in range(50):
            one = one.put(np.array([9 + i]), one.encode(np.full((1, 4), value)))
        results[value] = one

    threads = [threading.Thread(target=grow, args=(float(value),)) for value in range(2, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for value, one in results.items():
        np.testing.assert_allclose(one.decode(np.arange(9, 59)), value, rtol=1e-6)


def test_adding_one_by_one_copies_few_rows():
    store = VectorStore.build(np.zeros((0, 4)), None, "int8")
    places = set()
    for i in range(3000):
        store = store.put(np.array([i]), store.encode(np.full((1, 4), i)))
        places.add(id(store.tail))
    assert len(places) < 20
    assert store.id_map.is_plain
    np.testing.assert_allclose(store.decode(np.arange(3000))[:, 0], np.arange(3000), rtol=1e-6)


def test_threads_that_make_the_record_at_once_use_one(monkeypatch):
    """Or the record of one thread would be freed while a kernel reads it."""
    store = VectorStore.build(np.zeros((9, 4)), np.arange(9) * 7, "int8")
    make, both, found = VectorStore._make_record, threading.Barrier(2), []

    def make_together(self):
        both.wait(10)
        return make(self)

    monkeypatch.setattr(VectorStore, "_make_record", make_together)
    threads = [threading.Thread(target=lambda: found.append(store.address)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [store.address] * 2
