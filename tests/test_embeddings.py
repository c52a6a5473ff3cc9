"""An index of vectors: it keeps the transform, and behaves as any faiss index does."""

import pickle

import faiss
import numpy as np
import pytest
from helpers import assert_same, assert_same_up_to_ties
from scipy import sparse

from cccf_index import (
    IndexCCCF,
    SearchParametersCCCF,
    clone_index,
    deserialize_index,
    index_factory,
    read_index,
    serialize_index,
    write_index,
)
from cccf_index.evaluation import recall
from cccf_index.models import NotFittedError
from cccf_index.quantizer import CompositionalQuantizer

RNG = np.random.default_rng(3)
STRENGTH = np.exp(-0.05 * np.arange(40))
USERS = ((RNG.standard_normal((600, 40)) + 0.2) * STRENGTH).astype(np.float32)
ITEMS = ((RNG.standard_normal((900, 40)) + 0.2) * STRENGTH).astype(np.float32)


@pytest.fixture(scope="module")
def built():
    return IndexCCCF.from_embeddings(ITEMS, USERS, 4, 16, verbose=False)


@pytest.fixture
def index(built):
    return clone_index(built)


def flat(vectors):
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(np.ascontiguousarray(vectors))
    return index


def test_three_lines_from_embeddings_to_the_right_items(index):
    D, I = index.search(USERS, 20)
    wanted = flat(ITEMS).search(USERS, 5)
    assert recall(I, wanted[1], 20) > 0.9
    assert index.d == 40
    assert index.is_trained
    assert index.ntotal == 900
    np.testing.assert_allclose(D[:, 0], wanted[0][:, 0], rtol=0.3)  # scores are those of the vectors, with their mean


@pytest.mark.parametrize("scale", ["auto", None, 1000])
def test_a_flat_index_over_the_reconstructions_is_the_oracle(scale):
    index = IndexCCCF.from_embeddings(ITEMS, USERS, 4, 16, scale=scale, verbose=False)
    assert index.reconstruct_n().shape == (900, 40)
    expected = flat(index.reconstruct_n()).search(USERS[:50], 10)
    assert_same_up_to_ties(index.search(USERS[:50], 10), expected, tolerance=1e-3)
    np.testing.assert_allclose(index.reconstruct(7), index.reconstruct_n(7, 1)[0])
    np.testing.assert_allclose(index.sa_decode(index.sa_encode(ITEMS[:5])), index.reconstruct_n(0, 5), rtol=1e-5)


def test_coded_queries_are_the_codes_of_the_vectors(index):
    D, I = index.search(USERS, 10, params=SearchParametersCCCF(coded=True))
    codes = index.quantizer.encode_users(USERS)
    scores, items = index.search(codes, 10)
    np.testing.assert_array_equal(I, items)
    np.testing.assert_allclose(D, scores + (USERS @ index.quantizer.item_mean_)[:, None], rtol=1e-5, atol=1e-5)


def test_a_query_is_answered_the_same_alone_and_in_a_batch(index):
    for params in (SearchParametersCCCF(), SearchParametersCCCF(coded=True), SearchParametersCCCF(num_threads=3)):
        D, I = index.search(USERS[:40], 10, params=params)
        for row in range(0, 40, 7):
            alone = index.search(USERS[[row]], 10, params=params)
            np.testing.assert_array_equal(alone[1][0], I[row])
            np.testing.assert_allclose(alone[0][0], D[row], rtol=1e-6)


def test_filters_and_padding_work_on_vectors(index):
    seen = sparse.csr_matrix((np.ones(600), (np.arange(600), index.search(USERS, 1)[1].ravel())), shape=(600, 900))
    D, I = index.search(USERS, 3, exclude=seen)
    assert not np.isin(np.arange(600) * 900 + I[:, 0], np.arange(600) * 900 + seen.indices).any()
    D, I = index.search(USERS[:2], 5, allow=[4, 9])
    assert (I[:, 2:] == -1).all()
    assert (D[:, 2:] == np.finfo(np.float32).min).all()


def test_range_search_sees_the_scores_that_search_returns(index):
    D, I = index.search(USERS[:9], 900)
    for coded in (False, True):
        params = SearchParametersCCCF(coded=coded)
        D, I = index.search(USERS[:9], 900, params=params)
        threshold = float(np.median(D))
        lims, scores, items = index.range_search(USERS[:9], threshold, params=params)
        for row in range(9):
            found = D[row] > threshold
            part = slice(int(lims[row]), int(lims[row + 1]))
            np.testing.assert_array_equal(items[part], I[row, found])
            np.testing.assert_array_equal(scores[part], D[row, found])


def test_the_factory_trains_adds_and_searches_as_faiss_does():
    index = index_factory("CCCF4x16", 40)
    assert not index.is_trained
    for call in (lambda: index.add(ITEMS), lambda: index.search(USERS, 3), lambda: index.sa_encode(ITEMS)):
        with pytest.raises(NotFittedError, match="Call `train`"):
            call()
    assert "d=40" in repr(index)
    index.train(ITEMS, queries=USERS)
    assert index.is_trained
    index.add(ITEMS[:500])
    index.add_with_ids(ITEMS[500:], np.arange(1000, 1400))
    assert index.remove_ids([1000]) == 1
    index.update_vectors([1001], ITEMS[[7]])
    np.testing.assert_array_equal(index.reconstruct(1001), index.reconstruct(7))
    whole = IndexCCCF.from_embeddings(ITEMS, USERS, 4, 16, verbose=False)
    np.testing.assert_array_equal(index.reconstruct_n(0, 500), whole.reconstruct_n(0, 500))
    with pytest.raises(ValueError, match="cannot be trained again"):
        index.train(ITEMS, queries=USERS)
    index.reset()
    index.train(ITEMS, queries=ITEMS)


def test_training_without_queries_says_so():
    index = index_factory("CCCF2x8", 40)
    with pytest.warns(UserWarning, match="queries like the items"):
        index.train(ITEMS)
    index.add(ITEMS)
    assert recall(index.search(ITEMS[:200], 10)[1], np.arange(200)[:, None]) > 0.5


def test_the_transform_is_saved_with_the_index(index, tmp_path):
    expected, new = index.search(USERS, 5), index.quantizer.encode_items(ITEMS[:3] * 2)
    write_index(index, tmp_path / "items")
    for again in (
        read_index(tmp_path / "items"),
        read_index(tmp_path / "items", mmap=True),
        deserialize_index(serialize_index(index)),
        pickle.loads(pickle.dumps(index)),
        clone_index(index),
    ):
        assert_same(again.search(USERS, 5), expected)
        assert again.quantizer.encode_items(ITEMS[:3] * 2) == new
        again.add(ITEMS[:3] * 2)
        assert again.ntotal == 903
    assert index.ntotal == 900
    write_index(index_factory("CCCF4x16", 40), tmp_path / "untrained")
    again = read_index(tmp_path / "untrained")
    assert (again.d, again.is_trained) == (40, False)


def test_a_damaged_transform_is_a_value_error(index):
    data = serialize_index(index).copy()
    data[2000] ^= 1
    with pytest.raises(ValueError, match="damaged"):
        deserialize_index(data)


def test_indexes_merge_only_if_they_encode_alike(index):
    same = IndexCCCF(4, 16, scale="auto", quantizer=index.quantizer)
    same.add(ITEMS[:5])
    other = IndexCCCF.from_embeddings(ITEMS, USERS, 4, 16, seed=1, verbose=False)
    for wrong in (other, IndexCCCF(4, 16, scale="auto"), index_factory("CCCF4x16", 40)):
        with pytest.raises(ValueError, match="same quantizer"):
            index.merge_from(wrong)
    fresh = IndexCCCF(4, 16, scale="auto", quantizer=index.quantizer)
    fresh.merge_from(same)
    assert fresh.ntotal == 5


def test_training_in_between_does_not_mix_codes(monkeypatch):
    """Another thread trains while vectors are encoded: they are encoded again."""
    index = index_factory("CCCF4x16", 40)
    index.train(ITEMS, queries=USERS)
    encode, calls = CompositionalQuantizer.encode_items, []

    def encode_and_train(self, vectors):
        calls.append(1)
        codes = encode(self, vectors)
        if len(calls) == 1:
            index.train(ITEMS * 2 + 1, queries=USERS)
        return codes

    monkeypatch.setattr(CompositionalQuantizer, "encode_items", encode_and_train)
    index.add(ITEMS)
    monkeypatch.undo()
    assert len(calls) == 2
    expected = index.quantizer.decode(index.quantizer.encode_items(ITEMS))
    np.testing.assert_allclose(index.reconstruct_n(), expected, atol=0.02 * np.abs(expected).max())


def test_an_untrained_index_keeps_the_parameters_of_its_quantizer(tmp_path):
    index = IndexCCCF(4, 16, scale="auto", quantizer=CompositionalQuantizer(4, 16, max_active=2, seed=5))
    for again in (pickle.loads(pickle.dumps(index)), clone_index(index)):
        assert (again.quantizer.max_active, again.quantizer.seed) == (2, 5)
        again.train(ITEMS, queries=USERS)  # which says what the dimension is
        again.add(ITEMS)
        assert again.d == 40
        assert again.nbytes < 20 * 900
    index.merge_from(IndexCCCF(4, 16, scale="auto", quantizer=CompositionalQuantizer(4, 16, max_active=2, seed=5)))


def test_the_quantizer_of_an_index_is_a_copy(index):
    before = index.search(USERS, 5)
    index.quantizer.fit(ITEMS[::-1] * 2, USERS)
    assert not hasattr(index.quantizer, "item_codes_")
    assert_same(index.search(USERS, 5), before)


def test_a_quantizer_fitted_anew_does_not_change_an_index():
    quantizer = CompositionalQuantizer(4, 16, verbose=False).fit(ITEMS, USERS)
    index = IndexCCCF(4, 16, scale="auto", quantizer=quantizer)
    index.add(ITEMS)
    before = index.search(USERS, 5)
    quantizer.fit(ITEMS[::-1] * 3, USERS[:, ::-1])
    assert_same(index.search(USERS, 5), before)


def test_ids_of_ones_own_are_kept():
    ids = np.arange(900) * 7 - 100
    index = IndexCCCF.from_embeddings(ITEMS, USERS, 4, 16, ids=ids, verbose=False)
    plain = IndexCCCF.from_embeddings(ITEMS, USERS, 4, 16, verbose=False)
    np.testing.assert_array_equal(index.search(USERS, 5)[1], ids[plain.search(USERS, 5)[1]])


def test_bad_input_is_explained(index):
    with pytest.raises(ValueError, match=r"shape \(n, 40\)"):
        index.search(USERS[:, :30], 5)
    with pytest.raises(ValueError, match=r"shape \(n, 40\)"):
        index.add(np.ones((3, 64)))
    with pytest.raises(ValueError, match="finite"):
        index.add(np.full((1, 40), np.nan))
    with pytest.raises(ValueError, match="codes of 4x16 bits, got 8x8"):
        IndexCCCF(4, 16, quantizer=CompositionalQuantizer(8, 8))
    with pytest.raises(TypeError, match="CompositionalQuantizer"):
        IndexCCCF(4, 16, quantizer="PQ")
    with pytest.raises(ValueError, match="`d` must be 40"):
        IndexCCCF(4, 16, d=41, quantizer=index.quantizer)
    with pytest.raises(ValueError, match="`n_components`"):
        IndexCCCF.from_embeddings(ITEMS, USERS, 0, 16)
    with pytest.raises(ValueError, match="`ids`"):
        IndexCCCF.from_embeddings(ITEMS, USERS, 4, 16, ids=[1, 2], verbose=False)
    assert index.ntotal == 900
