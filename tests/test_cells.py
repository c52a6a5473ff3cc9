"""Cells and bounds: what is skipped could not have been found, and it is skipped."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from helpers import Model, assert_same, filled_index, random_codes
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from cccf_index import CompositionalCodes, IndexCCCF, SearchParametersCCCF, clone_index
from cccf_index.codes import expand
from cccf_index.kernels.limits import BLOCK
from cccf_index.storage.cells import MIN_CLUSTERED, MIN_RADIUS, arrange_cells
from cccf_index.storage.item_rows import ItemRows
from cccf_index.storage.segment import NO_METRIC

ALL = SearchParametersCCCF(prune=False)


def clustered_codes(rng, n, n_components=4, n_bits=8, n_themes=12, density=1.0):
    """Codes around a few themes, of very different size: what real catalogues are like."""
    themes = rng.random((n_themes, n_components, n_bits)) < 0.5
    theme = rng.integers(0, n_themes, n)
    signs = themes[theme] ^ (rng.random((n, n_components, n_bits)) < 0.15)
    weights = np.minimum(rng.lognormal(-0.5, 0.7, (n, 1)), 2.5) * rng.uniform(0.5, 1, (n, n_components))
    weights *= rng.random((n, n_components)) < density
    return CompositionalCodes.from_signs(signs, weights)


@pytest.mark.parametrize("density", [1.0, 0.6])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000, MIN_CLUSTERED, 9000])
def test_cells_hold_all_rows_the_farthest_first(n, density):
    rng = np.random.default_rng(n)
    codes = clustered_codes(rng, n, density=density)
    member = np.sort(rng.integers(0, 3, n))
    ids = rng.permutation(n)
    rows = ItemRows(codes.bits, codes.weights, None, ids)
    cells = arrange_cells(rows, codes.weights, 8, NO_METRIC, member, 3)
    assert sorted(cells.order) == list(range(n))
    assert len(cells.groups) == len(cells.starts) - 1 == cells.centres.shape[1]
    if n != MIN_CLUSTERED:  # where groups are so small that some are not worth more than one cell
        assert (len(cells.groups) > 3) == (n > MIN_CLUSTERED)
    vectors = expand(codes.bits, codes.weights.astype(np.float64), 8)
    for c, group in enumerate(cells.groups):
        rows = cells.order[cells.starts[c] : cells.starts[c + 1]]
        assert (member[rows] == group).all()
        distances = np.linalg.norm(vectors[rows] - cells.centres[:, c], axis=1)
        radii = cells.radii[cells.block_starts[c] : cells.block_starts[c + 1]]
        assert len(radii) == -(-len(rows) // BLOCK)
        for block, radius in enumerate(radii):
            assert (distances[block * BLOCK :] <= radius).all()
            assert radius <= distances[block * BLOCK] * 1.001 + 0.001 * np.linalg.norm(cells.centres[:, c]) + MIN_RADIUS


@st.composite
def catalogues(draw):
    """Large enough for k-means: themes, groups, ties, biases, deletions, every width of weights and words."""
    shape = draw(st.sampled_from([(8, 16), (3, 13), (2, 130)]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(MIN_CLUSTERED, 6000))
    if draw(st.booleans()):
        codes = clustered_codes(rng, n, *shape, density=draw(st.sampled_from([1.0, 0.5])))
    else:
        codes = random_codes(
            rng, n, *shape, density=draw(st.sampled_from([0.5, 1.0])), distinct=draw(st.sampled_from([None, 40]))
        )
    scale = draw(st.sampled_from([100, None]))
    index = IndexCCCF(*shape, scale=scale)
    bias = rng.integers(-50, 50, n) / 100 if draw(st.booleans()) else None
    index.add_with_ids(codes, rng.permutation(3 * n)[:n], bias=bias)
    index.remove_ids(rng.permutation(index.ids)[: n // 10 if draw(st.booleans()) else 0])
    return index, codes, rng


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    case=catalogues(), k=st.sampled_from([1, 10, 200]), threads=st.sampled_from([1, 2]), excluding=st.booleans(),
    real=st.booleans(),
)  # fmt: skip
def test_pruning_changes_no_result(case, k, threads, excluding, real):
    index, codes, rng = case
    queries = codes[rng.integers(0, len(codes), 20)]
    x = queries.to_vectors() * rng.uniform(0.5, 1.5, (20, index.d)) if real else queries
    exclude = None
    if excluding:
        exclude = sparse.random(20, 3 * len(codes), density=0.05, random_state=0, format="csr")
    pruned = index.search(x, k, params=SearchParametersCCCF(num_threads=threads), exclude=exclude)
    assert_same(pruned, index.search(x, k, params=ALL, exclude=exclude))


@pytest.mark.slow
@pytest.mark.parametrize("scale", [100, "auto", 10_000, None])
@pytest.mark.parametrize("shape", [(4, 8), (2, 32), (2, 64)])
def test_every_width_of_words_and_weights_is_pruned_alike(shape, scale):
    rng = np.random.default_rng(1)
    codes = clustered_codes(rng, 4500, *shape)
    index = filled_index(codes, scale=scale)
    assert_same(index.search(codes[:30], 10), index.search(codes[:30], 10, params=ALL))


def test_a_clustered_segment_equals_the_reference():
    rng = np.random.default_rng(5)
    codes = clustered_codes(rng, 5000)
    model = Model()
    model.add(codes, np.arange(5000))
    queries = clustered_codes(rng, 100)
    assert_same(filled_index(codes).search(queries, 25), model.search(queries, 25))


def with_tables(index, **changes):
    """The index with tables that lie."""
    part = index._snapshot().parts[0]
    other = clone_index(index)
    tables = part.segment.tables._replace(**changes)
    other._state = replace(index._state, parts=(replace(part, segment=replace(part.segment, tables=tables)),))
    return other


@pytest.mark.parametrize("kind", ["coded", "real"])
@pytest.mark.parametrize("bound", ["radii", "peaks", "coarse"])
def test_every_bound_is_used(bound, kind):
    """If one is too low, items go missing, but not from the full scan."""
    rng = np.random.default_rng(0)
    codes = clustered_codes(rng, 6000, 4, 16)
    index = filled_index(codes, scale="auto")
    lying = with_tables(index, **{bound: getattr(index._snapshot().parts[0].segment.tables, bound) // 4})
    x = codes[:50] if kind == "coded" else codes[:50].to_vectors() * rng.uniform(0.5, 1.5, (50, 64))
    expected = index.search(x, 10)
    assert (lying.search(x, 10)[1] != expected[1]).any()
    assert_same(lying.search(x, 10, params=ALL), expected)


def test_a_block_whose_bound_equals_the_threshold_may_hold_a_tie_that_wins_by_id():
    codes = CompositionalCodes.from_signs(np.ones((1000, 2, 8)), np.ones((1000, 2)))
    index = IndexCCCF(2, 8)
    ids = np.random.default_rng(0).permutation(1000)
    index.add_with_ids(codes, ids)
    assert index.search(codes[:1], 5)[1].tolist() == [[0, 1, 2, 3, 4]]
    assert index.search(np.full((1, 16), 0.3) + np.arange(16) / 100, 5)[1].tolist() == [[0, 1, 2, 3, 4]]


def test_queries_and_items_without_any_weight_find_the_smallest_ids():
    nothing = CompositionalCodes.from_signs(np.ones((5000, 2, 8)), np.zeros((5000, 2)))
    index = filled_index(nothing)
    assert index.search(nothing[:2], 3)[1].tolist() == [[0, 1, 2]] * 2
    something = filled_index(CompositionalCodes.from_signs(np.ones((5000, 2, 8)), np.ones((5000, 2))))
    assert something.search(nothing[:2], 3)[1].tolist() == [[0, 1, 2]] * 2
    assert something.search(np.zeros((1, 16)), 3)[1].tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("size", [1e-22, 1e-23, 1e-40])
def test_scores_too_small_for_float32_are_not_pruned_wrongly(size):
    rng = np.random.default_rng(2)
    codes = clustered_codes(rng, 4500, 4, 16)
    tiny = CompositionalCodes(codes.bits, codes.weights * np.float32(size), 16)
    index = filled_index(tiny, scale=None)
    for x in (tiny[:20], tiny[:20].to_vectors() * rng.uniform(0.5, 1.5, (20, 64)).astype(np.float32)):
        assert_same(index.search(x, 10), index.search(x, 10, params=ALL))
    large = CompositionalCodes(codes.bits[:20], codes.weights[:20] * np.float32(1e8), 16)
    assert_same(index.search(large, 10), index.search(large, 10, params=ALL))


def test_a_forked_child_can_cluster():
    """OpenMP's threads do not exist in a child; faiss must not wait for them."""
    code = """
import os
import numpy as np
from cccf_index import CompositionalCodes, IndexCCCF
rng = np.random.default_rng(0)
codes = CompositionalCodes.from_signs(rng.random((9000, 4, 8)) < 0.5, rng.random((9000, 4)))
def found():
    index = IndexCCCF(4, 8)
    index.add(codes)
    return index.search(codes[:50], 10)[1]
expected = found()
child = os.fork()
if child == 0:
    os._exit(0 if (found() == expected).all() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
