import faiss
import numpy as np
import pytest
from adapter_helpers import examples_run, vectors
from hypothesis import given, settings
from hypothesis import strategies as st

from cccf_index import CompositionalCodes, IndexCCCF
from cccf_index.adapters.faiss import from_faiss_binary, to_faiss, to_faiss_binary


def random_codes(n, n_components, n_bits, seed=0, density=1.0):
    rng = np.random.default_rng(seed)
    weights = rng.random((n, n_components)) * (rng.random((n, n_components)) < density)
    return CompositionalCodes.from_signs(rng.random((n, n_components, n_bits)) < 0.5, weights)


def test_docstring_examples_run():
    assert examples_run("faiss")


@settings(max_examples=15, deadline=None)
@given(
    n=st.integers(1, 60),
    shape=st.sampled_from([(1, 8), (3, 5), (8, 16), (2, 70)]),
    scale=st.sampled_from([100, "auto", None]),
    named=st.booleans(),
    biased=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_flat_index_finds_what_the_index_finds(n, shape, scale, named, biased, seed):
    rng = np.random.default_rng(seed)
    index = IndexCCCF(*shape, scale=scale)
    ids = rng.choice(10**6, n, replace=False) if named else np.arange(n)
    bias = rng.standard_normal(n) if biased else None
    index.add_with_ids(random_codes(n, *shape, seed, density=0.6), ids, bias=bias)
    x = rng.standard_normal((4, index.d)).astype(np.float32)
    flat = to_faiss(index)
    assert flat.d == index.d + biased
    assert isinstance(flat, faiss.IndexIDMap2 if named else faiss.IndexFlatIP) or n == 1
    queries = np.hstack([x, np.ones((4, 1), np.float32)]) if biased else x
    D, I = flat.search(queries, n)
    own, found = index.search(x, n)
    np.testing.assert_allclose(own, D, rtol=1e-4, atol=1e-4)
    assert np.array_equal(np.sort(found), np.sort(I))


def test_an_index_of_embeddings_gives_the_vectors_that_it_stands_for():
    users, items = vectors()
    index = IndexCCCF.from_embeddings(items, users, verbose=False)
    flat = to_faiss(index)
    assert flat.d == users.shape[1]
    np.testing.assert_allclose(flat.search(users, 10)[0], index.search(users, 10)[0], rtol=1e-3, atol=1e-3)


def test_codes_become_a_flat_index_of_their_expanded_vectors():
    codes = random_codes(20, 4, 6)
    assert np.array_equal(to_faiss(codes).reconstruct_n(), codes.to_vectors())


@pytest.mark.parametrize("density", [1.0, 0.5])
@pytest.mark.parametrize("n_bits", [16, 13, 100])
def test_components_become_binary_indexes_of_the_items_that_have_them(n_bits, density):
    codes = random_codes(50, 3, n_bits, density=density)
    index = IndexCCCF(3, n_bits, scale=None)
    index.add(codes[:30])
    index.add(codes[30:])
    index.remove_ids([7])
    kept = np.delete(np.arange(50), 7)
    for source, ids in ((codes, np.arange(50)), (index, kept)):
        for component, shard in enumerate(to_faiss_binary(source)):
            active = ids[codes.weights[ids, component] > 0]
            assert shard.d == 8 * -(-n_bits // 8)
            assert shard.ntotal == len(active)
            distance, found = shard.search(to_faiss_binary(codes[active[:1]])[component].reconstruct_n(0, 1), 1)
            assert distance[0, 0] == 0
            assert found[0, 0] == active[0]


def test_an_empty_index_gives_empty_ones():
    index = IndexCCCF(3, 12)
    assert to_faiss(index).ntotal == 0
    assert [shard.ntotal for shard in to_faiss_binary(index)] == [0, 0, 0]


@pytest.mark.parametrize(("n_bits", "n_components"), [(64, 1), (20, 1), (64, 4), (1024, 2)])
def test_binary_codes_come_back(tmp_path, n_bits, n_components):
    rng = np.random.default_rng(0)
    binary = faiss.IndexBinaryFlat(8 * -(-n_bits // 8))
    signs = rng.random((40, n_bits)) < 0.5
    binary.add(np.packbits(signs, axis=1, bitorder="little"))
    faiss.write_index_binary(binary, str(tmp_path / "codes.faiss"))
    given_bits = 20 if n_bits == 20 else None
    for source in (binary, tmp_path / "codes.faiss"):
        codes, ids = from_faiss_binary(source, n_components, given_bits)
        assert np.array_equal(ids, np.arange(40))
        assert np.array_equal(codes.to_signs().reshape(40, -1) > 0, signs)
        assert (codes.weights == 1).all()
    index = IndexCCCF(n_components, codes.n_bits, scale=1)
    index.add_with_ids(codes, ids)
    D, I = index.search(codes[:5], 1)  # Hamming distance h is an inner product of n_bits - 2 h
    assert I.ravel().tolist() == [0, 1, 2, 3, 4]
    assert (n_bits == D).all()


def test_ids_of_a_binary_index_are_kept():
    binary = faiss.IndexBinaryIDMap2(faiss.IndexBinaryFlat(16))
    ids = np.array([5, 99, 2**40])
    binary.add_with_ids(np.arange(6, dtype=np.uint8).reshape(3, 2), ids)
    codes, found = from_faiss_binary(binary)
    assert np.array_equal(found, ids)
    again = to_faiss_binary(codes)[0]
    assert np.array_equal(again.reconstruct_n(0, 3), np.arange(6).reshape(3, 2))


def test_what_is_not_there_or_not_binary_is_explained(tmp_path):
    with pytest.raises(TypeError, match="IndexFlatIP"):
        to_faiss(faiss.IndexFlatIP(8))
    with pytest.raises(TypeError, match="ndarray"):
        to_faiss_binary(np.zeros((3, 8)))
    with pytest.raises(TypeError, match="IndexBinaryHNSW"):
        from_faiss_binary(faiss.IndexBinaryHNSW(16, 4))
    with pytest.raises(FileNotFoundError, match="nothing"):
        from_faiss_binary(tmp_path / "nothing")
    path = tmp_path / "some.faiss"
    for content in (b"", b"no index at all", faiss.serialize_index_binary(faiss.IndexBinaryFlat(16)).tobytes()[:20]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"some\.faiss"):
            from_faiss_binary(path)
    binary = faiss.IndexBinaryFlat(24)
    binary.add(np.full((2, 3), 255, dtype=np.uint8))
    with pytest.raises(ValueError, match="n_components"):
        from_faiss_binary(binary, n_components=2)
    with pytest.raises(ValueError, match="n_bits"):
        from_faiss_binary(binary, n_bits=20)
    with pytest.raises(ValueError, match="n_bits"):
        from_faiss_binary(binary, n_bits=25)
