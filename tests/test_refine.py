"""Re-ranking with full vectors: what is returned is the order of the candidates by their stored vectors."""

import re

import faiss
import numpy as np
import pytest
from helpers import assert_same, filled_index, random_codes
from hypothesis import given, settings
from hypothesis import strategies as st

from cccf_index import CompositionalCodes, IndexCCCF, IndexRefineCCCF, SearchParametersCCCF, clone_index
from cccf_index.refine import _find_candidates

RNG = np.random.default_rng(0)
STORAGES = ("float32", "float16", "int8")
ITEMS = RNG.standard_normal((3000, 24)).astype(np.float32)
QUERIES = RNG.standard_normal((60, 24)).astype(np.float32)


def share(found, exact):
    return np.mean(found >= exact[:, -1:])


@pytest.fixture(scope="module")
def embedded():
    return IndexCCCF.from_embeddings(ITEMS, QUERIES, 4, 8, verbose=False)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_refinement_ranks_by_the_vectors_themselves(embedded, dtype):
    vectors = ITEMS.astype(dtype)
    refined = IndexRefineCCCF(embedded, vectors, k_factor=20)
    D, I = refined.search(QUERIES, 10)
    exact = faiss.IndexFlatIP(24)
    exact.add(vectors.astype(np.float32))
    wanted = exact.search(QUERIES, 10)
    assert share(D, wanted[0] - 1e-4) > 0.95
    np.testing.assert_allclose(D, np.einsum("qd,qkd->qk", QUERIES, vectors[I].astype(np.float32)), rtol=1e-4, atol=1e-4)
    assert (np.diff(D, axis=1) <= 0).all()
    everything = IndexRefineCCCF(embedded, vectors, k_factor=300)
    np.testing.assert_array_equal(everything.search(QUERIES, 10)[1], wanted[1])


def test_refinement_finds_more_with_a_larger_factor_and_one_query_equals_a_batch(embedded):
    refined = IndexRefineCCCF(embedded, ITEMS, k_factor=1)
    exact = faiss.IndexFlatIP(24)
    exact.add(ITEMS)
    wanted = exact.search(QUERIES, 10)[0]
    shares = []
    for factor in (1, 3, 10):
        refined.k_factor = factor
        D, I = refined.search(QUERIES, 10)
        shares.append(share(D, wanted - 1e-4))
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]
    alone = [refined.search(QUERIES[[row]], 10) for row in range(5)]
    assert_same((np.concatenate([a[0] for a in alone]), np.concatenate([a[1] for a in alone])), (D[:5], I[:5]))
    threads = [refined.search(QUERIES, 10, params=SearchParametersCCCF(num_threads=n)) for n in (1, 3)]
    assert_same(*threads)


def test_refinement_takes_ids_filters_and_mapped_vectors(embedded, tmp_path):
    ids = RNG.permutation(10**12 + np.arange(3000))
    index = IndexCCCF(4, 8, "auto", quantizer=embedded.quantizer)
    index.add_with_ids(ITEMS, ids)
    np.save(tmp_path / "items.npy", ITEMS.astype(np.float16))
    refined = IndexRefineCCCF(index, np.load(tmp_path / "items.npy", mmap_mode="r"), ids, k_factor=10)
    plain = IndexRefineCCCF(embedded, ITEMS.astype(np.float16), k_factor=10)
    D, I = refined.search(QUERIES, 5)
    np.testing.assert_allclose(D, plain.search(QUERIES, 5)[0], rtol=1e-5)
    allowed = ids[:500]
    assert np.isin(refined.search(QUERIES, 5, allow=allowed)[1], allowed).all()
    out = np.empty((60, 5), np.float32), np.empty((60, 5), np.int64)
    refined.search(QUERIES, 5, D=out[0], I=out[1])
    assert_same(out, (D, I))
    few = refined.search(QUERIES, 5, allow=ids[:3])
    assert (few[1][:, 3:] == -1).all()
    assert (few[0][:, 3:] == np.finfo(np.float32).min).all()
    assert "float16" in repr(refined)
    assert refined.nbytes == index.nbytes + 3000 * 24 * 2 + refined._halves.vectors.id_map.nbytes
    assert refined._halves.vectors.id_map.nbytes <= 3000 * 20
    assert plain.nbytes == embedded.nbytes + 3000 * 24 * 2
    assert (refined.d, refined.ntotal) == (24, 3000)


def test_refinement_of_an_index_of_codes_takes_codes_and_vectors():
    signs = RNG.choice([-1, 1], (1000, 2, 12))
    codes = CompositionalCodes.from_signs(signs)
    refined = IndexRefineCCCF(filled_index(codes), ITEMS[:1000], k_factor=100)
    _, I = refined.search(QUERIES[:7], 10, codes=codes[:7])
    np.testing.assert_array_equal(I, np.argsort(-(QUERIES[:7] @ ITEMS[:1000].T), axis=1)[:, :10])
    with pytest.raises(ValueError, match="`codes` must be as many as `x`, 7, got 6"):
        refined.search(QUERIES[:7], 10, codes=codes[:6])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"index": None}, TypeError, "`index` must be an IndexCCCF"),
        (
            {"item_vectors": ITEMS.astype(np.float64)},
            TypeError,
            "`item_vectors` must be float32 or float16, got float64",
        ),
        ({"item_vectors": ITEMS[0]}, ValueError, "`item_vectors` must be of shape"),
        ({"item_vectors": ITEMS[:, :5]}, ValueError, "must have 24 columns"),
        ({"item_vectors": ITEMS[:100]}, ValueError, "there is none for id 100. Pass `ids`"),
        ({"ids": np.zeros(3000, int)}, ValueError, "`ids` must be unique"),
        ({"ids": np.arange(5)}, ValueError, "`ids` must"),
        ({"k_factor": 0.5}, ValueError, "`k_factor` must be a finite number >= 1"),
    ],
)
def test_bad_refinement_is_explained(embedded, arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        IndexRefineCCCF(**{"index": embedded, "item_vectors": ITEMS, **arguments})


def test_the_index_that_was_passed_may_change_and_the_refined_one_does_not(embedded):
    index = clone_index(embedded)
    refined = IndexRefineCCCF(index, ITEMS, k_factor=400)
    before = refined.search(QUERIES, 10)
    index.add(ITEMS[:1])
    index.remove_ids(np.arange(50))
    assert_same(refined.search(QUERIES, 10), before)
    assert refined.ntotal == 3000
    refined.base_index.add(ITEMS[:1])  # not by the refined index
    with pytest.raises(ValueError, match=r"holds id 3000, which has no vector\. Add items by `add` of the IndexRefine"):
        refined.search(QUERIES, 10)


def test_vectors_that_are_not_finite_are_refused_when_they_are_found(embedded):
    wrong = ITEMS.copy()
    wrong[7] = np.nan
    with pytest.raises(ValueError, match="but the vector of id 7 is not"):
        IndexRefineCCCF(embedded, wrong, k_factor=300).search(QUERIES, 10)


def test_a_huge_factor_ranks_all_items_and_odd_codes_are_explained(embedded):
    D, I = IndexRefineCCCF(embedded, ITEMS, k_factor=1e300).search(QUERIES, 10)
    assert_same((D, I), IndexRefineCCCF(embedded, ITEMS, k_factor=300).search(QUERIES, 10))
    refined = IndexRefineCCCF(filled_index(random_codes(RNG, 3000)), ITEMS)
    with pytest.raises(ValueError, match="`codes` must be given"):
        refined.search(QUERIES, 10)
    with pytest.raises(ValueError, match="`codes` must be of shape"):
        refined.search(QUERIES, 10, codes=5)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32), st.sampled_from(STORAGES), st.integers(1, 40), st.integers(1, 200), st.booleans(),
    st.sampled_from([1, 1.5, 3, 1e9]),
)  # fmt: skip
def test_refined_search_is_the_order_of_the_candidates_by_decoded_vectors(seed, storage, d, k, named, k_factor):
    """Vectors and queries of small integers: their inner products have no rounding, whatever the order of sums."""
    rng = np.random.default_rng(seed)
    n, nq = int(rng.integers(1, 400)), int(rng.integers(1, 5))
    vectors = rng.integers(-3, 4, (n, d)).astype(np.float32)
    vectors[rng.random(n) < 0.1] = 0
    vectors[rng.random(n) < 0.2] = vectors[0]
    ids = rng.choice(10**6, n, replace=False) - 500 if named else np.arange(n)
    codes, x = random_codes(rng, n), rng.integers(-3, 4, (nq, d)).astype(np.float32)
    index = IndexCCCF(4, 8)
    index.add_with_ids(codes, ids)
    refined = IndexRefineCCCF(index, vectors, ids, k_factor, storage)
    n_found = max(1, min(n, int(np.ceil(k * k_factor))))
    found = _find_candidates(index, codes[np.zeros(nq, int)], n_found, None, None, None)
    D, I = refined.search(x, k, codes=codes[np.zeros(nq, int)])
    store = refined._halves.vectors
    for q in range(nq):
        rows = store.take(store.find(found[q]))
        scores = rows.values.astype(np.float32) @ x[q]
        scores = scores * rows.scales if storage == "int8" else scores
        order = np.lexsort((found[q], -scores))[:k]
        np.testing.assert_array_equal(I[q, : len(order)], found[q][order])
        np.testing.assert_array_equal(D[q, : len(order)], scores[order])
        assert (I[q, len(order) :] == -1).all()
        np.testing.assert_allclose(store.decode(found[q]) @ x[q], scores, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("storage", STORAGES)
def test_results_do_not_depend_on_the_batch_the_threads_or_the_arrays_for_them(embedded, storage):
    refined = IndexRefineCCCF(embedded, ITEMS, k_factor=3, storage=storage)
    expected = refined.search(QUERIES, 100)
    for n_threads in (1, 2, 5):
        assert_same(refined.search(QUERIES, 100, params=SearchParametersCCCF(num_threads=n_threads)), expected)
    for row in range(0, 60, 7):
        assert_same(refined.search(QUERIES[[row]], 100), (expected[0][[row]], expected[1][[row]]))
    D, I = np.empty((100, 60), np.float32).T, np.empty((60, 200), np.int64)[:, ::2]
    refined.search(QUERIES, 100, D=D, I=I)
    assert_same((D, I), expected)
    np.testing.assert_array_equal(refined.assign(QUERIES, 100), expected[1])
    D, I, R = refined.search_and_reconstruct(QUERIES, 100)
    assert_same((D, I), expected)
    np.testing.assert_array_equal(R, refined.reconstruct_batch(I.ravel()).reshape(R.shape))


def test_eight_bits_find_what_float32_finds(embedded):
    """Recall of the vectors' top-10 at k_factor 2, as in the docs."""
    exact = faiss.IndexFlatIP(24)
    exact.add(ITEMS)
    wanted = exact.search(QUERIES, 10)[0][:, -1:]
    recalls = {}
    for storage in ("float32", "int8"):
        I = IndexRefineCCCF(embedded, ITEMS, k_factor=2, storage=storage).search(QUERIES, 10)[1]
        recalls[storage] = np.mean(np.einsum("qd,qkd->qk", QUERIES, ITEMS[I]) >= wanted - 1e-4)
    assert recalls["int8"] >= recalls["float32"] - 0.01
    refined = IndexRefineCCCF(embedded, ITEMS, storage="int8")
    assert refined.nbytes == embedded.nbytes + 3000 * (24 + 4)
    assert (refined.storage, "int8" in repr(refined)) == ("int8", True)


@pytest.mark.parametrize("storage", ["float16", "int8"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_values_that_cannot_be_stored_are_refused_where_they_stand(embedded, storage, value):
    wrong = ITEMS.astype(np.float64)
    wrong[2999, 5] = value
    with pytest.raises(ValueError, match=r"`item_vectors` must be finite and at most .* at position \(2999, 5\)"):
        IndexRefineCCCF(embedded, wrong, storage=storage)
    refined = IndexRefineCCCF(embedded, ITEMS, storage=storage)
    before = refined.search(QUERIES, 10)
    with pytest.raises(ValueError, match="`x` must be finite"):
        refined.add(wrong[-3:])
    assert refined.ntotal == 3000
    assert_same(refined.search(QUERIES, 10), before)


def test_halves_that_overflow_are_refused(embedded):
    refined = IndexRefineCCCF(embedded, ITEMS, storage="float16")
    with pytest.raises(
        ValueError, match=r"`x` must be finite and at most 65504 in size, got 70000 at position \(0, 0\)"
    ):
        refined.add(np.full((1, 24), 7e4))
    assert refined.ntotal == 3000


def test_other_types_are_taken_where_the_storage_is_given(embedded):
    expected = IndexRefineCCCF(embedded, ITEMS, storage="int8").search(QUERIES, 10)
    assert_same(IndexRefineCCCF(embedded, ITEMS.astype(np.float64), storage="int8").search(QUERIES, 10), expected)
    assert_same(IndexRefineCCCF(embedded, ITEMS.astype(">f4"), storage="int8").search(QUERIES, 10), expected)
    floats = IndexRefineCCCF(embedded, ITEMS.astype(np.float64), storage="float32").search(QUERIES, 10)
    assert_same(floats, IndexRefineCCCF(embedded, ITEMS).search(QUERIES, 10))
    assert np.shares_memory(IndexRefineCCCF(embedded, ITEMS)._halves.vectors.base.values, ITEMS)
    odd = np.frombuffer(b"x" + ITEMS.tobytes(), np.uint8)[1:].view(np.float32).reshape(ITEMS.shape)
    assert_same(IndexRefineCCCF(embedded, odd).search(QUERIES, 10), floats)
    with pytest.raises(ValueError, match="`storage` must be one of 'float32', 'float16', 'int8', got 'int4'"):
        IndexRefineCCCF(embedded, ITEMS, storage="int4")
    with pytest.raises(TypeError, match="`x` must be vectors, got CompositionalCodes"):
        IndexRefineCCCF(embedded, ITEMS).search(random_codes(RNG, 3), 5)
