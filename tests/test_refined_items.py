"""Adding, replacing and removing items of a refined index: codes and vectors stay in step, whatever happens."""

import copy
import pickle
import threading

import faiss
import numpy as np
import pytest
from helpers import assert_same, random_codes
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cccf_index import (
    CompositionalCodes,
    IndexCCCF,
    IndexRefineCCCF,
    SearchParametersCCCF,
    clone_index,
    deserialize_index,
    read_index,
    serialize_index,
    write_index,
)
from cccf_index._check import NotFittedError
from cccf_index.io import KINDS, SHARD_HEADER
from cccf_index.storage import container
from cccf_index.storage import vectors as storage_vectors

RNG = np.random.default_rng(0)
D = 6
ITEMS = RNG.standard_normal((400, 16)).astype(np.float32)
QUERIES = RNG.standard_normal((20, 16)).astype(np.float32)
SEEDS = st.integers(0, 2**32)


class RefinedIndexes(RuleBasedStateMachine):
    """A refined index that changes in all ways, a dict of its items, and copies that must stay as they were."""

    @initialize(storage=st.sampled_from(["float32", "float16", "int8"]), plain=st.booleans(), n=st.integers(0, 40))
    def build(self, storage, plain, n):
        rng = np.random.default_rng(n)
        codes, vectors = self.make_items(rng, n)
        ids = np.arange(n) if plain else rng.choice(10**15, n, replace=False) - 10**14
        index = IndexCCCF(4, 8)
        index.add_with_ids(codes, ids)
        self.refined = IndexRefineCCCF(index, vectors, None if plain else ids, 2, storage)
        self.items, self.next_id, self.others = {}, max([0, *(ids + 1)]), []
        self.remember(ids, codes, vectors)

    @staticmethod
    def make_items(rng, n):
        return random_codes(rng, n), rng.integers(-4, 5, (n, D)).astype(np.float32)

    def remember(self, ids, codes, vectors):
        for i, identity in enumerate(np.asarray(ids).tolist()):
            self.items[identity] = (codes[[i]], vectors[i])

    @rule(seed=SEEDS, n=st.integers(0, 30))
    def add(self, seed, n):
        codes, vectors = self.make_items(np.random.default_rng(seed), n)
        self.refined.add(vectors, codes=codes)
        self.remember(np.arange(self.next_id, self.next_id + n), codes, vectors)
        self.next_id += n

    @rule(seed=SEEDS, n=st.integers(0, 10), expanded=st.booleans())
    def add_with_ids(self, seed, n, expanded):
        rng = np.random.default_rng(seed)
        codes, vectors = self.make_items(rng, n)
        ids = np.setdiff1d(rng.integers(-50, 200, n), [-1, *self.items])
        codes, vectors = codes[: len(ids)], vectors[: len(ids)]
        self.refined.add_with_ids(vectors, ids, codes=codes.to_vectors() if expanded else codes)
        self.remember(ids, codes, vectors)
        self.next_id = max(self.next_id, *(ids + 1), 0)

    @rule(seed=SEEDS, share=st.floats(0, 1))
    def update(self, seed, share):
        rng = np.random.default_rng(seed)
        ids = rng.permutation([i for i in self.items if rng.random() < share]).astype(np.int64)
        codes, vectors = self.make_items(rng, len(ids))
        self.refined.update_vectors(ids, vectors, codes=codes)
        self.remember(ids, codes, vectors)

    @rule(seed=SEEDS, share=st.floats(0, 1), selector=st.booleans())
    def remove(self, seed, share, selector):
        rng = np.random.default_rng(seed)
        ids = [i for i in self.items if rng.random() < share]
        n = self.refined.remove_ids(faiss.IDSelectorBatch(ids) if selector else [*ids, 10**17])
        assert n == len(ids)
        for identity in ids:
            del self.items[identity]

    @rule()
    def reset(self):
        self.refined.reset()
        self.items, self.next_id = {}, 0

    @rule(how=st.sampled_from([clone_index, copy.copy, copy.deepcopy, lambda i: pickle.loads(pickle.dumps(i))]))
    def duplicate(self, how):
        self.others.append((self.refined, dict(self.items)))
        self.refined = how(self.refined)

    @rule()
    def swap(self):
        """Go on with a copy, which shares rows with the present one."""
        if self.others:
            before, items = self.others.pop(0)
            self.others.append((self.refined, self.items))
            self.refined, self.items = before, items
            self.next_id = before.base_index._state.next_id

    @invariant()
    def equals_a_rebuilt_one(self):
        if hasattr(self, "refined"):
            for refined, items in [(self.refined, self.items), *self.others[-1:]]:
                check(refined, items)


def check(refined, items):
    """Compare with an index that is built of the items at once."""
    ids = np.array(sorted(items), dtype=np.int64)
    np.testing.assert_array_equal(refined.ids, ids)
    assert (len(refined), refined.d) == (len(items), D)
    vectors = np.array([items[i][1] for i in ids.tolist()], np.float32).reshape(-1, D)
    index = IndexCCCF(4, 8)
    if len(ids):
        rows = [items[i][0] for i in ids.tolist()]
        bits, weights = (np.concatenate([getattr(row, name) for row in rows]) for name in ("bits", "weights"))
        index.add_with_ids(CompositionalCodes(bits, weights, 8), ids)
    rebuilt = IndexRefineCCCF(index, vectors, ids, refined.k_factor, refined.storage)
    rng = np.random.default_rng(len(items))
    codes, queries = random_codes(rng, 3), rng.integers(-4, 5, (3, D))
    every = SearchParametersCCCF(k_factor=1e6)  # the last candidates are estimates, which depend on how items came
    assert_same(*(one.search(queries, 7, codes=codes, params=every) for one in (refined, rebuilt)))
    np.testing.assert_array_equal(refined.reconstruct_n(), rebuilt.reconstruct_n())
    store = refined._halves.vectors
    assert len(store) == len(ids)
    assert store.id_map.n_rows <= len(ids) / 0.75 + 1


TestRefinedIndexes = RefinedIndexes.TestCase
TestRefinedIndexes.settings = settings(max_examples=40, stateful_step_count=12, deadline=None)


@pytest.fixture(scope="module")
def built():
    return IndexCCCF.from_embeddings(ITEMS[:300], QUERIES, 2, 8, verbose=False)


@pytest.fixture
def refined(built):
    return IndexRefineCCCF(built, ITEMS[:300], storage="int8", k_factor=3)


def test_an_index_of_vectors_encodes_what_is_added(built, refined):
    refined.add(ITEMS[300:])
    refined.update_vectors([5, 3], ITEMS[[3, 5]])
    index = clone_index(built)
    index.add(ITEMS[300:])
    index.update_vectors([5, 3], ITEMS[[3, 5]])
    current = ITEMS.copy()
    current[[5, 3]] = ITEMS[[3, 5]]
    expected = IndexRefineCCCF(index, current, storage="int8", k_factor=3)
    every = SearchParametersCCCF(k_factor=1e6)
    assert_same(refined.search(QUERIES, 10, params=every), expected.search(QUERIES, 10, params=every))
    np.testing.assert_array_equal(refined.reconstruct_n(298, 5), expected.reconstruct_n(298, 5))
    np.testing.assert_allclose(refined.reconstruct(5), ITEMS[3], atol=0.02)
    out = np.empty(16, np.float32)
    assert refined.reconstruct(5, out) is out
    assert refined.base_index.reconstruct_n().shape == (400, 16)


def test_an_empty_index_is_trained_and_filled_through_the_refined_one():
    refined = IndexRefineCCCF(IndexCCCF(2, 8, "auto", d=16), np.empty((0, 16), np.float32), storage="int8")
    assert not refined.is_trained
    with pytest.raises(NotFittedError, match="not trained yet"):
        refined.add(ITEMS)
    refined.train(ITEMS, QUERIES)
    refined.add(ITEMS)
    assert refined.is_trained
    assert refined.search(QUERIES, 10)[1].min() >= 0
    with pytest.raises(ValueError, match="cannot be trained again"):
        refined.train(ITEMS, QUERIES)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda r: r.add(ITEMS[:, :5]), ValueError, "`x` must be of shape (n, 16)"),
        (lambda r: r.add(random_codes(RNG, 3)), TypeError, "`x` must be vectors, got CompositionalCodes"),
        (lambda r: r.add(ITEMS[:2], codes=random_codes(RNG, 2)), ValueError, "`x` must be codes of 2x8 bits, got 4x8"),
        (
            lambda r: r.add(ITEMS[:2], codes=random_codes(RNG, 3, 2)),
            ValueError,
            "`codes` must be as many as `x`, 2, got 3",
        ),
        (lambda r: r.add_with_ids(ITEMS[:2], [1000, 7]), ValueError, "got 7, which is. Use `update_vectors`"),
        (lambda r: r.add_with_ids(ITEMS[:2], [1000, 1000]), ValueError, "`ids` must be unique"),
        (lambda r: r.add_with_ids(ITEMS[:2], [1000]), ValueError, "`ids` must be of shape (2,)"),
        (lambda r: r.update_vectors([7, 1000], ITEMS[:2]), ValueError, "`keys` must be in the index, got 1000"),
        (lambda r: r.update_vectors([7, 7], ITEMS[:2]), ValueError, "`keys` must be unique"),
        (lambda r: r.add(np.full((1, 16), np.nan)), ValueError, "`x` must be finite"),
        (lambda r: r.remove_ids([0.5]), TypeError, "`x` must be integers"),
        (lambda r: r.reconstruct(1000), ValueError, "`key` must be in the index, got 1000"),
        (lambda r: r.reconstruct_n(299, 2), ValueError, "`ni` must be an integer from -1 to 1"),
    ],
)
def test_a_change_that_is_refused_changes_nothing(refined, change, error, message):
    before, size = refined.search(QUERIES, 10), refined.nbytes
    with pytest.raises(error) as caught:
        change(refined)
    assert message in str(caught.value)
    assert_same(refined.search(QUERIES, 10), before)
    assert (refined.ntotal, refined.nbytes) == (300, size)
    refined.add(ITEMS[300:301])
    assert refined.ids[-1] == 300


def test_an_index_of_codes_asks_for_codes():
    codes = random_codes(RNG, 400)
    index = IndexCCCF(4, 8)
    index.add(codes)
    refined = IndexRefineCCCF(index, ITEMS)
    with pytest.raises(ValueError, match=r"`codes` must be given: the index holds codes, and cannot encode `x`"):
        refined.add(ITEMS[:3])
    refined.train(ITEMS)
    refined.add(ITEMS[:3], codes=codes[:3])
    assert refined.ntotal == 403


@pytest.mark.parametrize("place", ["put or remove", "_tidy"])
@pytest.mark.parametrize(
    ("method", "arguments", "n_items"),
    [
        ("add", (ITEMS[300:],), 400),
        ("add_with_ids", (ITEMS[300:], np.arange(5000, 5100)), 400),
        ("update_vectors", (np.arange(100), ITEMS[300:]), 300),
        ("remove_ids", (np.arange(100),), 200),
    ],
)
def test_an_interrupt_leaves_both_halves_as_they_were(refined, monkeypatch, method, arguments, n_items, place):
    before = refined.search(QUERIES, 10)
    if place == "put or remove":
        place = "remove" if method == "remove_ids" else "put"

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage_vectors.VectorStore, place, interrupt)
        with pytest.raises(KeyboardInterrupt):
            getattr(refined, method)(*arguments)
    assert_same(refined.search(QUERIES, 10), before)
    assert refined.ntotal == 300
    getattr(refined, method)(*arguments)  # and then it works
    assert refined.search(QUERIES, 10)[1].min() >= 0
    assert refined.ntotal == n_items


def test_searches_in_other_threads_see_codes_and_vectors_of_one_moment(built):
    """Items move between two vectors, and the index may never rank one by a vector of another moment."""
    refined = IndexRefineCCCF(built, ITEMS[:300], k_factor=100)
    twice = 2 * ITEMS[:300]
    expected = [refined.search(QUERIES, 300)]
    refined.update_vectors(np.arange(300), twice)
    expected.append(refined.search(QUERIES, 300))
    wrong, stop = [], threading.Event()

    def read():
        while not stop.is_set():
            D, I = refined.search(QUERIES, 300)
            if not any(np.array_equal(D, d) and np.array_equal(I, i) for d, i in expected):
                wrong.append((D, I))

    def write():
        for turn in range(40):
            refined.update_vectors(np.arange(300), ITEMS[:300] if turn % 2 else twice)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in readers:
        thread.start()
    write()
    stop.set()
    for thread in readers:
        thread.join()
    assert not wrong


def test_threads_that_add_and_remove_lose_nothing(built):
    refined = IndexRefineCCCF(built, ITEMS[:300], storage="int8")
    errors = []

    def work(number):
        try:
            for i in range(20):
                ids = 1000 * (number + 1) + 5 * i + np.arange(5)
                refined.add_with_ids(ITEMS[300:305], ids)
                refined.search(QUERIES, 50)
                refined.remove_ids(ids[:2])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert refined.ntotal == 300 + 3 * 20 * 3
    np.testing.assert_array_equal(refined.reconstruct(1002), refined.reconstruct(3097))


@pytest.mark.parametrize("storage", ["float32", "float16", "int8"])
def test_indexes_are_merged_with_their_vectors(built, storage):
    refined = IndexRefineCCCF(built, ITEMS[:300], storage=storage)
    parts = [IndexRefineCCCF(clone_index(built), ITEMS[:300], storage=storage) for _ in range(2)]
    parts[0].remove_ids(np.arange(100, 300))
    parts[1].remove_ids(np.arange(100))
    parts[0].merge_from(parts[1])
    assert (parts[0].ntotal, parts[1].ntotal) == (300, 0)
    every = SearchParametersCCCF(k_factor=1e6)
    assert_same(parts[0].search(QUERIES, 10, params=every), refined.search(QUERIES, 10, params=every))
    with pytest.raises(ValueError, match=r"must not be in the index yet, got 0, which is\. Pass `add_id`"):
        parts[0].merge_from(refined)
    assert (parts[0].ntotal, refined.ntotal) == (300, 300)
    parts[0].merge_from(refined, add_id=1000)
    np.testing.assert_array_equal(parts[0].reconstruct_n(300), parts[0].reconstruct_n(0, 300))
    parts[1].add(ITEMS[:5])
    assert parts[1].ntotal == 5
    for other, error in ((built, TypeError), (parts[0], ValueError)):
        with pytest.raises(error, match="`otherIndex` must be"):
            parts[0].merge_from(other)
    with pytest.raises(ValueError, match="`otherIndex` must have vectors of"):
        parts[0].merge_from(IndexRefineCCCF(built, ITEMS[:300], storage="int8" if storage == "float32" else "float32"))


@pytest.mark.parametrize("storage", [None, "float16", "int8"])
@pytest.mark.parametrize("mmap", [False, True])
def test_a_file_holds_codes_and_vectors(tmp_path, built, storage, mmap):
    refined = IndexRefineCCCF(built, ITEMS[:300], storage=storage, k_factor=2.5)
    path = tmp_path / "items.cccf"
    for _ in range(2):  # as it was built, then changed
        expected = refined.search(QUERIES, 10)
        write_index(refined, path)
        for verify in (True, False):
            again = read_index(path, mmap=mmap, verify=verify)
            assert type(again) is IndexRefineCCCF
            assert (again.storage, again.k_factor) == (refined.storage, 2.5)
            assert again._halves.vectors.is_mapped == mmap
            assert_same(again.search(QUERIES, 10), expected)
            np.testing.assert_array_equal(again.reconstruct_n(), refined.reconstruct_n())
        refined = again
        refined.add(ITEMS[300:])
        refined.remove_ids([3, 4])
        refined.update_vectors([0], ITEMS[300:301])
        assert refined._halves.vectors.is_mapped == mmap


def test_rows_of_a_mapped_file_stay_on_disk_and_what_came_later_is_tidied(tmp_path, refined):
    write_index(refined, tmp_path / "items.cccf")
    mapped = read_index(tmp_path / "items.cccf", mmap=True)
    for _ in range(20):
        mapped.update_vectors(np.arange(250), ITEMS[:250])
    store = mapped._halves.vectors
    assert store.is_mapped
    assert store.id_map.n_rows <= 300 + 2 * 250
    assert_same(mapped.search(QUERIES, 10), refined.search(QUERIES, 10))


def test_damaged_files_are_value_errors(tmp_path, refined):
    refined.remove_ids([0])
    whole = serialize_index(refined)
    for length in (0, 20, 1000, len(whole) // 2, len(whole) - 1):
        with pytest.raises(ValueError, match=r"truncated|not a cccf-index file|damaged"):
            deserialize_index(whole[:length])
    for place in np.random.default_rng(0).integers(0, len(whole), 40):
        altered = whole.copy()
        altered[place] ^= 4
        with pytest.raises(ValueError, match=r"damaged|not a cccf-index file|format version"):
            deserialize_index(altered)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("vectors.values", lambda a: a[:-1]),
        ("vectors.values", lambda a: a[:, :-1].copy()),
        ("vectors.values", lambda a: a.astype(np.float32)),
        ("vectors.scales", lambda a: a[:-1]),
        ("vectors.scales", lambda a: a * np.float32(np.nan)),
        ("vectors.scales", lambda a: a.astype(np.float64)),
        ("vectors.ids", lambda a: a[::-1].copy()),
        ("vectors.ids", lambda a: a + 1),
        ("vectors.ids", lambda a: a[:-1]),
    ],
)
def test_vectors_that_do_not_fit_the_index_are_a_value_error(refined, name, change):
    refined.remove_ids([0])
    meta, arrays = container.read(serialize_index(refined), KINDS, "data")
    arrays[name] = change(arrays[name])
    leads = {name: SHARD_HEADER if name.endswith(".faiss") else 0 for name in arrays}
    data = container.write_bytes(KINDS[1], meta, [(name, array, leads[name]) for name, array in arrays.items()])
    with pytest.raises(ValueError, match="damaged"):
        deserialize_index(data)


@pytest.mark.parametrize(
    "change", [{"storage": "int4"}, {"storage": "float16"}, {"k_factor": "0x0p0"}, {"k_factor": 2}]
)
def test_a_manifest_that_does_not_fit_the_vectors_is_a_value_error(refined, change):
    meta, arrays = container.read(serialize_index(refined), KINDS, "data")
    meta["vectors"].update(change)
    leads = {name: SHARD_HEADER if name.endswith(".faiss") else 0 for name in arrays}
    data = container.write_bytes(KINDS[1], meta, [(name, array, leads[name]) for name, array in arrays.items()])
    with pytest.raises(ValueError, match="damaged"):
        deserialize_index(data)


def test_a_refined_file_is_named_to_other_readers(tmp_path, refined):
    write_index(refined, tmp_path / "items.cccf")
    with pytest.raises(ValueError, match=r"holds refined index, not codes\. Read it by read_index"):
        CompositionalCodes.load(tmp_path / "items.cccf")
