"""The contract of the scan: exact against `reference.py` and `faiss.IndexFlatIP`, to the last tie and in every lane."""

import faiss
import numpy as np
import pytest
from helpers import Model, assert_same, assert_same_up_to_ties, filled_index, random_codes
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import sparse

from cccf_index import CompositionalCodes, IndexCCCF, SearchParametersCCCF, reference
from cccf_index.codes import MAX_WEIGHT

SHAPES = [(8, 16), (3, 5), (1, 4), (5, 7), (2, 13), (4, 24), (3, 31), (2, 64), (2, 65), (1, 128), (12, 6), (64, 4)]


@st.composite
def cases(draw):
    """An index in any condition (groups, ties, segments, deletions, ids, biases) and its model."""
    n_components, n_bits = draw(st.sampled_from(SHAPES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    index, model = IndexCCCF(n_components, n_bits), Model()
    kind = {
        "density": draw(st.sampled_from([0.0, 0.1, 0.4, 1.0])),
        "levels": draw(st.sampled_from([1, 3, 300])),
        "distinct": draw(st.sampled_from([1, 4, None])),
    }
    for size in draw(st.lists(st.integers(0, 700), max_size=4)):
        codes = random_codes(rng, size, n_components, n_bits, **kind)
        ids = rng.permutation(10 * size)[:size] + index.ntotal * 100 + draw(st.integers(0, 2**40))
        ids = ids[~np.isin(ids, list(model.items))] if model.items else ids
        codes = codes[: len(ids)]
        bias = rng.integers(-300, 300, len(ids)) / 100 if draw(st.booleans()) else None
        index.add_with_ids(codes, ids, bias=bias)
        model.add(codes, ids, bias)
        if draw(st.booleans()):
            index.ids  # noqa: B018  a reader closes the segment
    gone = rng.permutation(index.ids)[: int(index.ntotal * draw(st.sampled_from([0, 0.1, 0.5])))]
    index.remove_ids(gone)
    model.remove(gone)
    return index, model, random_codes(rng, draw(st.integers(0, 40)), n_components, n_bits, **kind), rng


@settings(max_examples=120, deadline=None)
@given(
    case=cases(),
    k=st.one_of(st.integers(1, 12), st.just(1000)),
    num_threads=st.sampled_from([1, 2]),
    prune=st.booleans(),
    excluding=st.booleans(),
    allowing=st.sampled_from([None, 0.01, 0.9]),
)
def test_search_equals_the_reference_to_the_last_tie(case, k, num_threads, prune, excluding, allowing):
    index, model, queries, rng = case
    ids = np.array(sorted(model.items), dtype=np.int64)
    exclude = allow = None
    if excluding and len(ids) and ids.max() < 2**31:
        rows = rng.integers(0, max(1, len(queries)), 3 * len(queries))
        columns = rng.choice(ids, 3 * len(queries))
        shape = (len(queries), int(ids.max()) + 1)
        exclude = sparse.coo_matrix((np.ones(len(rows)), (rows, columns)), shape=shape)
    if allowing is not None:
        allow = ids[rng.random(len(ids)) < allowing]
    params = SearchParametersCCCF(num_threads=num_threads, prune=prune)
    expected = model.search(queries, k, exclude, allow)
    for x in (queries, queries.to_vectors()):
        assert_same(index.search(x, k, params=params, exclude=exclude, allow=allow), expected)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(case=cases(), k=st.integers(1, 20))
def test_top_k_is_a_prefix_of_the_next(case, k):
    index, _, queries, rng = case
    for x in (queries, rng.standard_normal((5, index.d))):
        (D, I), (more_D, more_I) = index.search(x, k), index.search(x, k + 1)
        np.testing.assert_array_equal(I, more_I[:, :k])
        np.testing.assert_array_equal(D, more_D[:, :k])


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(case=cases(), k=st.integers(1, 30))
def test_search_equals_a_flat_index_over_the_reconstruction(case, k):
    index, model, queries, rng = case
    assume(index.ntotal)  # before 1.14 faiss dies on a batch over an empty flat index
    flat = faiss.IndexIDMap(faiss.IndexFlatIP(index.d + 1))
    bias = np.array([model.items[i][1] / 100 for i in index.ids.tolist()], dtype=np.float32)
    flat.add_with_ids(np.c_[index.reconstruct_n(), bias].astype(np.float32), index.ids)
    for x in (queries.to_vectors(), rng.standard_normal((8, index.d)).astype(np.float32)):
        ones = np.ones((len(x), 1), dtype=np.float32)
        expected = flat.search(np.hstack([x, ones]), k) if len(x) else (np.empty((0, k)), np.empty((0, k)))
        assert_same_up_to_ties(index.search(x, k), expected)


@settings(max_examples=30, deadline=None)
@given(case=cases(), k=st.integers(1, 10))
def test_real_valued_queries_keep_the_tie_rule(case, k):
    """Small whole numbers are exact in float32, so the ties are exact too."""
    index, model, _, rng = case
    queries = rng.integers(-3, 4, (6, index.d)).astype(np.float32)
    ids = index.ids
    items = np.array([model.items[i][0] for i in ids.tolist()]).reshape(len(ids), index.d)
    bias = np.array([model.items[i][1] for i in ids.tolist()], dtype=np.int64)
    scores, found = reference.search(queries.astype(np.int64), items, k, ids, bias)
    D, I = index.search(queries, k)
    np.testing.assert_array_equal(I, found)
    np.testing.assert_allclose(D[I >= 0], (scores / 100)[I >= 0], rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_float_weights_are_exact_where_float32_is(shape):
    """Weights that are small multiples of 1/64 lose nothing in float32, so EXACT can be held to every tie."""
    rng = np.random.default_rng(0)
    codes = random_codes(rng, 900, *shape, density=0.4, distinct=300)
    codes = CompositionalCodes(codes.bits, np.rint(codes.weights * 100) / 64, codes.n_bits)
    bias = rng.integers(-9, 9, 900) / 64
    index = IndexCCCF(*shape, scale=None)
    index.add(codes, bias=bias)
    assert index.scale_ is None
    queries = codes[:20]
    vectors = reference.integer_vectors(codes, 64)
    scores, ids = reference.search(vectors[:20], vectors, 15, bias=np.rint(bias * 64).astype(np.int64) * 64)
    D, I = index.search(queries, 15)
    np.testing.assert_array_equal(I, ids)
    np.testing.assert_array_equal(D, (scores / 64**2).astype(np.float32))
    for params in (SearchParametersCCCF(prune=False), SearchParametersCCCF(num_threads=2)):
        assert_same(index.search(queries, 15, params=params), (D, I))


@pytest.mark.parametrize("scale", [100, "auto", None])
def test_items_without_weights_score_zero_and_are_found(scale):
    weights = np.zeros((4, 2))
    weights[1] = 1
    codes = CompositionalCodes.from_signs(np.ones((4, 2, 3)), weights)
    index = filled_index(codes, scale=scale)
    D, I = index.search(codes[:2], 4)
    np.testing.assert_array_equal(I, [[0, 1, 2, 3], [1, 0, 2, 3]])
    np.testing.assert_array_equal(D[0], 0)
    against = index.search(CompositionalCodes.from_signs(-np.ones((1, 2, 3))), 4)
    np.testing.assert_array_equal(against[1], [[0, 2, 3, 1]])


def test_shards_are_faiss_indexes_whose_memory_the_kernel_reads():
    codes = random_codes(np.random.default_rng(0), 8000, 3, 16, density=0.5)
    segment = filled_index(codes)._snapshot().parts[0].segment
    assert [type(shard) for shard in segment.shards] == [faiss.IndexBinaryFlat] * 3
    assert segment.tables.shards.tolist() == [int(shard.xb.data()) for shard in segment.shards]
    for k, shard in enumerate(segment.shards):
        active = codes[codes.weights[:, k] > 0]
        assert shard.ntotal == len(active)
        distances, _ = shard.search(active.bits[:1, k].view(np.uint8), 5)
        differing = np.unpackbits((active.bits[:1, k] ^ active.bits[:, k]).view(np.uint8), axis=1).sum(axis=1)
        np.testing.assert_array_equal(distances[0], np.sort(differing)[:5])


def test_float_bounds_leave_room_for_rounding():
    """Two groups with the same float32 score, which lies above the exact product: the bound must not cut off the tie."""
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(200):
        query_weight, weight = rng.random(2, dtype=np.float32) + np.float32(0.1)
        score = np.float32(query_weight * weight) * np.float32(7)
        if float(score) <= 7 * float(query_weight) * float(weight):
            continue
        found += 1
        weights = np.zeros((600, 2), dtype=np.float32)
        weights[:300, 1] = weights[300:, 0] = weight  # component 0 is the group that is scanned first
        index = filled_index(CompositionalCodes.from_signs(np.ones((600, 2, 7)), weights), scale=None)
        query = CompositionalCodes.from_signs(np.ones((1, 2, 7)), [[query_weight, query_weight]])
        D, I = index.search(query, 300)
        assert D[0, 0] == score
        assert I[0].tolist() == list(range(300))
    assert found > 10


EDGES = [1, 255, 256, 65535, 65536, MAX_WEIGHT]


@pytest.mark.parametrize("shape", [(1, 1), (8, 16), (64, 512), (3, 65)])
@pytest.mark.parametrize("largest", EDGES)
def test_scores_never_wrap_at_the_edge_of_an_integer_type(shape, largest):
    """Weights at the edge on both sides, all bits equal or all different, a bias on top: exact in every lane."""
    signs = np.ones((4, *shape), dtype=int)
    signs[2:] = -1
    weights = np.full((4, shape[0]), float(largest))
    weights[[1, 3]] -= 1
    codes = CompositionalCodes.from_signs(signs, weights)
    items = reference.integer_vectors(codes, 1)
    for bias in (None, np.array([-3, 7, 2**30, -(2**30)])):
        index = IndexCCCF(*shape, scale=1)
        index.add(codes, bias=bias)
        scores, ids = reference.search(items, items, 4, bias=bias)
        D, I = index.search(codes, 4)
        np.testing.assert_array_equal(I, ids)
        np.testing.assert_array_equal(D, scores.astype(np.float32))
