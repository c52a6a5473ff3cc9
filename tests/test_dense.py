"""Codes of different lengths: items with a dense component beside items with binary ones, by the oracle."""

import copy
import pickle

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cccf_index as ci
from cccf_index import CompositionalCodes, IndexCCCF, SearchParametersCCCF, reference
from cccf_index.dense import DenseRows
from cccf_index.kernels.levels import LEVELS, count_runs, list_runs, row_sizes
from cccf_index.kernels.limits import LONGEST_RUN, MAX_PRECISIONS, STRIP
from cccf_index.storage import precisions
from cccf_index.storage.cells import MIN_CLUSTERED

EVERY = SearchParametersCCCF(prune=False)


def mixed_codes(rng, n, G, r, p, share=0.3, both=0.0, levels=0, n_themes=0):
    """Codes of n rows, a share of which has a dense component, of several precisions; `both`: the share with both.

    With `n_themes`, dense components are near so many others.
    """
    has = rng.random(n) < share
    weights = rng.random((n, G)) * (rng.random((n, G)) < 0.6)
    weights[has & (rng.random(n) >= both)] = 0
    sizes = np.where(has, rng.random(n) * 0.05 + 0.001, 0).astype(np.float32)
    if levels:  # few different scores: many ties
        weights, sizes = np.round(weights * levels) / levels, np.where(has, np.float32(1 / 64), np.float32(0))
    values = rng.integers(-128, 128, (has.sum(), p)).astype(np.int8)
    if n_themes:
        themes = rng.integers(-112, 113, (n_themes, p))
        values = (themes[rng.integers(0, n_themes, len(values))] + values // 8).astype(np.int8)
    if levels:
        values = values // 64 * 64
    kind, single = rng.integers(0, 7, len(values)), (p // 3 + 15) // 16 * 16
    values[kind == 1] &= np.int8(-16)
    values[kind == 2, p // 2 :] &= np.int8(-16)
    values[kind == 3, 16:] = 0
    values[kind == 4] = make_values(rng, (np.sum(kind == 4), p), 1)
    values[kind >= 5, 16:] = make_values(rng, (np.sum(kind >= 5), p - 16), 2)
    values[kind == 6, single:] = make_values(rng, (np.sum(kind == 6), p - single), 1)
    codes = CompositionalCodes.from_signs(rng.random((n, G, r)) < 0.5, weights)
    return CompositionalCodes(codes.bits, codes.weights, r, (values, sizes))


def make_values(rng, shape, bits):
    """Values that can be stored in so many bits."""
    level = next(level for level in LEVELS if level.bits == bits)
    stored = rng.integers(0, 2**bits, shape)
    return (level.worth * (level.factor * stored + level.least)).astype(np.int8)


def make_index(codes, scale, ids=None, parts=1):
    index = IndexCCCF(codes.n_components, codes.n_bits, scale, n_dense=codes.n_dense)
    ids = np.arange(len(codes)) if ids is None else ids
    for rows in np.array_split(np.arange(len(codes)), parts):
        index.add_with_ids(codes[rows], ids[rows])
        index.search(codes[:1], 1)  # a segment of its own
    return index


def assert_same(found, wanted):
    np.testing.assert_array_equal(found[1], wanted[1])
    np.testing.assert_array_equal(found[0], wanted[0])


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32), st.sampled_from([(2, 8), (4, 16), (1, 70)]), st.sampled_from([16, 32, 48, 80]),
    st.integers(1, 400), st.sampled_from([0.0, 0.1, 0.6, 1.0]), st.sampled_from([0.0, 0.5]), st.integers(0, 3),
    st.sampled_from([5000, "auto", None]), st.integers(1, 3),
)  # fmt: skip
def test_pruned_search_finds_what_plain_arithmetic_finds(seed, shape, p, n, share, both, levels, scale, parts):
    rng = np.random.default_rng(seed)
    items, users = (mixed_codes(rng, m, *shape, p, s, b, levels) for m, s, b in ((n, share, both), (9, 1.0, 1.0)))
    index = make_index(items, scale, rng.permutation(n) * 3, parts)
    real = rng.standard_normal((9, index.d)).astype(np.float32)
    for queries in (users, real, users[:1], real[:1]):
        for k in (1, 7, n + 3):
            assert_same(index.search(queries, k), index.search(queries, k, params=EVERY))


@pytest.mark.parametrize("levels", [0, 2])
def test_integer_scores_and_ties_are_those_of_the_reference(levels):
    rng = np.random.default_rng(1)
    items, users = (mixed_codes(rng, n, 3, 16, 32, s, b, levels) for n, s, b in ((900, 0.4, 0.2), (20, 1.0, 1.0)))
    ids = rng.permutation(900)
    index = make_index(items, 64, ids, parts=2)
    D, I = index.search(users, 30)
    scores, found = reference.search(reference.query_vectors(users, 64), reference.integer_vectors(items, 64), 30, ids)
    np.testing.assert_array_equal(I, found)
    np.testing.assert_allclose(D, scores / (64 * 64 * 2**8), rtol=1e-6)


@pytest.mark.parametrize("scale", ["auto", None, 500])
def test_index_flat_ip_over_the_reconstructed_vectors_is_the_oracle(scale):
    rng = np.random.default_rng(2)
    items = mixed_codes(rng, MIN_CLUSTERED + 900, 4, 16, 64, 0.5, 0.1)
    index = make_index(items, scale)
    flat = faiss.IndexFlatIP(index.d)
    flat.add(index.reconstruct_n())
    queries = rng.standard_normal((50, index.d)).astype(np.float32)
    for k in (10, 300):
        D, I = index.search(queries, k)
        np.testing.assert_allclose(D, flat.search(queries, k)[0], rtol=2e-5, atol=2e-5)
        scores = np.einsum("qd,qkd->qk", queries, index.reconstruct_batch(I.ravel()).reshape(*I.shape, -1))
        np.testing.assert_allclose(D, scores, rtol=2e-5, atol=2e-5)


def test_a_vector_of_one_dense_item_is_stored_and_scored():
    values = np.arange(16, dtype=np.int8)[None] - 8
    codes = CompositionalCodes(np.zeros((1, 2, 1), np.uint8), np.zeros((1, 2)), 8, (values, [0.5]))
    index = IndexCCCF(2, 8, None, n_dense=16)
    index.add(codes)
    assert index.d == codes.d == 32
    np.testing.assert_array_equal(index.reconstruct(0), codes.to_vectors()[0])
    D, I = index.search(np.ones((1, 32), np.float32), 2)
    assert I.tolist() == [[0, -1]]
    assert D[0, 0] == 0.5 * values.sum()


@pytest.mark.parametrize("scale", ["auto", None])
def test_deletions_exclusions_and_selectors_hold_for_items_of_all_lengths(scale):
    rng = np.random.default_rng(3)
    items, users = mixed_codes(rng, 1500, 4, 16, 32, 0.4), mixed_codes(rng, 12, 4, 16, 32, 1.0, 1.0)
    index = make_index(items, scale, parts=3)
    gone = rng.choice(1500, 200, replace=False)
    index.remove_ids(gone)
    hidden = [rng.choice(1500, 40, replace=False).tolist() for _ in range(12)]
    allowed = rng.choice(1500, 600, replace=False)
    real = rng.standard_normal((12, index.d)).astype(np.float32)
    for queries in (users, real):
        D, I = index.search(queries, 50, exclude=hidden, allow=allowed)
        assert_same((D, I), index.search(queries, 50, exclude=hidden, allow=allowed, params=EVERY))
        for row, seen in zip(I, hidden, strict=True):
            assert not set(row.tolist()) & (set(gone.tolist()) | set(seen))
            assert set(row.tolist()) <= set(allowed.tolist())
        prepared = index.prepare(allowed)
        assert_same(index.search(queries, 50, exclude=hidden, allow=prepared), (D, I))


def test_biases_are_added_to_the_scores_of_dense_items():
    rng = np.random.default_rng(4)
    items, bias = mixed_codes(rng, 700, 3, 8, 32, 0.5), rng.standard_normal(700).astype(np.float32)
    index = IndexCCCF(3, 8, "auto", n_dense=32)
    index.add(items, bias=bias)
    queries = rng.standard_normal((8, index.d)).astype(np.float32)
    users = mixed_codes(rng, 8, 3, 8, 32, 1.0, 1.0)
    for x in (queries, users):
        assert_same(index.search(x, 40), index.search(x, 40, params=EVERY))
    D, I = index.search(queries, 40)
    scores = np.einsum("qd,qkd->qk", queries, index.reconstruct_batch(I.ravel()).reshape(*I.shape, -1)) + bias[I]
    np.testing.assert_allclose(D, scores, atol=2e-2)  # biases are rounded, too


@pytest.mark.parametrize("scale", ["auto", None])
def test_files_bytes_and_copies_hold_codes_of_all_lengths(tmp_path, scale):
    rng = np.random.default_rng(5)
    items, users = mixed_codes(rng, 2000, 4, 16, 48, 0.3, 0.1), mixed_codes(rng, 6, 4, 16, 48, 1.0, 1.0)
    index = make_index(items, scale, parts=2)
    wanted = index.search(users, 25)
    ci.write_index(index, tmp_path / "items.cccf")
    others = [ci.read_index(tmp_path / "items.cccf", mmap=mmap) for mmap in (False, True)]
    others += [pickle.loads(pickle.dumps(index)), copy.copy(index)]
    for other in others:
        assert other.n_dense == 48
        assert_same(other.search(users, 25), wanted)
        np.testing.assert_array_equal(other.reconstruct_n(), index.reconstruct_n())
    other = others[1]
    other.remove_ids(wanted[1][:, 0])
    other.add(items[:5])
    assert_same(other.search(users, 25), other.search(users, 25, params=EVERY))
    codes = items[:10]
    codes.save(tmp_path / "some.codes")
    assert CompositionalCodes.load(tmp_path / "some.codes") == codes == pickle.loads(pickle.dumps(codes))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("precisions", lambda a: a + 16),
        ("precisions", lambda a: a + 1),
        ("precisions", lambda a: -a),
        ("dense_octets", lambda a: a[:-1]),
        ("dense_weights", lambda a: a[:-1]),
        ("dense_peaks", lambda a: a[:-1]),
        ("dense_rests", lambda a: a[:-1]),
        ("dense_stages", lambda a: a[:0]),
        ("dense_stages", lambda a: a + 1),
        ("dense_metric", lambda a: a * 0),
        ("centres", lambda a: a[:-16]),
    ],
)
def test_a_file_whose_dense_tables_do_not_fit_is_refused(tmp_path, name, change):
    from cccf_index.io import index_contents
    from cccf_index.storage import container

    index = make_index(mixed_codes(np.random.default_rng(6), 600, 2, 16, 32), "auto")
    kind, meta, arrays = index_contents(index)
    altered = [(n, np.ascontiguousarray(change(a)) if n == f"0.{name}" else a, align) for n, a, align in arrays]
    container.write_file(tmp_path / "items.cccf", kind, meta, altered)
    with pytest.raises(ValueError, match="damaged"):
        ci.read_index(tmp_path / "items.cccf")


def test_merge_and_shift_keep_dense_items():
    rng = np.random.default_rng(7)
    items, users = mixed_codes(rng, 900, 4, 16, 32, 0.4), mixed_codes(rng, 5, 4, 16, 32, 1.0, 1.0)
    whole, first, second = make_index(items, 64), make_index(items[:400], 64), make_index(items[400:], 64)
    first.merge_from(second, add_id=400)
    assert_same(first.search(users, 60), whole.search(users, 60))
    with pytest.raises(ValueError, match="dense dimensions"):
        first.merge_from(IndexCCCF(4, 16, 64))


def test_results_do_not_depend_on_threads_or_company():
    rng = np.random.default_rng(8)
    index = make_index(mixed_codes(rng, 5000, 4, 16, 32, 0.3), "auto")
    queries = rng.standard_normal((300, index.d)).astype(np.float32)
    users = mixed_codes(rng, 300, 4, 16, 32, 1.0, 1.0)
    for x in (queries, users):
        D, I = index.search(x, 20)
        assert_same(index.search(x, 20, params=SearchParametersCCCF(num_threads=1)), (D, I))
        for i in (0, 7, 299):
            one = index.search(x[i : i + 1], 20)
            assert_same(one, (D[i : i + 1], I[i : i + 1]))
        assert_same(index.search(x, 10), (D[:, :10], I[:, :10]))


def test_queries_without_a_dense_component_score_only_the_others():
    rng = np.random.default_rng(9)
    items = mixed_codes(rng, 500, 2, 16, 16, 0.5)
    index = make_index(items, 64)
    users = CompositionalCodes.from_signs(rng.random((4, 2, 16)) < 0.5, rng.random((4, 2)))
    D, _ = index.search(users, 500)
    assert (np.sort(D, axis=1) == 0).any(axis=1).all()
    for i in range(4):
        assert_same(index.search(users[i], 500), tuple(part[i : i + 1] for part in index.search(users, 500)))


def test_sa_encode_and_decode_hold_both_kinds():
    rng = np.random.default_rng(10)
    items = mixed_codes(rng, 50, 2, 16, 32, 0.5)
    index = make_index(items, 64)
    octets = index.sa_encode(items)
    assert octets.shape == (50, index.sa_code_size())
    np.testing.assert_allclose(index.sa_decode(octets), index.reconstruct_n(), rtol=1e-6)


def test_range_search_finds_dense_items():
    rng = np.random.default_rng(11)
    index = make_index(mixed_codes(rng, 800, 2, 16, 32, 0.5), "auto")
    queries = rng.standard_normal((3, index.d)).astype(np.float32)
    D, I = index.search(queries, 800)
    lims, scores, ids = index.range_search(queries, float(D[1, 30]))
    assert ids[lims[1] : lims[2]].tolist() == I[1, :30].tolist()
    np.testing.assert_array_equal(scores[lims[1] : lims[2]], D[1, :30])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([16, 48, 128]), st.integers(0, 600))
def test_values_are_packed_without_loss(seed, p, m):
    rng = np.random.default_rng(seed)
    values, firsts = make_values(rng, (m, p), 8), np.sort(rng.integers(0, p // 16 + 1, (m, 4)) * 16)
    for first, bits in zip(firsts.T, (4, 2, 1, 0), strict=True):
        lower = make_values(rng, (m, p), bits) if bits else np.zeros((m, p), np.int8)
        values = np.where(np.arange(p) >= first[:, None], lower, values)
    needs = precisions.find_needs(values)
    sizes = np.diff(np.concatenate([np.zeros((m, 1), np.int64), firsts], axis=1))
    assert (row_sizes(needs) <= row_sizes(sizes)).all()
    kinds, member = precisions.choose_precisions(values) if m else (np.empty((0, 4), np.int64), np.empty(0))
    assert len(kinds) <= MAX_PRECISIONS
    for number, kind in enumerate(kinds):
        own = values[member == number]
        octets = precisions.pack_values(own, kind)
        assert octets.shape == (precisions.count_octets(np.array([len(own)]), kind[None])[0],)
        places = rng.permutation(len(own))
        np.testing.assert_array_equal(precisions.unpack_values(octets, kind, p, places), own[places])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=4, max_size=4), st.sets(st.sampled_from([1, 4, 16])))
def test_runs_hold_every_dimension_of_a_precision_once_and_end_with_stages_and_levels(steps, starts):
    precision, stages = 16 * np.array(steps), [0, *sorted(starts)]
    runs = list_runs(precision, stages)
    dimensions = [range(run["dimension"], run["dimension"] + 4 * run["n"]) for run in runs]
    assert [one for own in dimensions for one in own] == list(range(precision.sum()))
    assert len(runs) <= count_runs(max(16, int(precision.sum()))) // MAX_PRECISIONS
    for run, own in zip(runs, dimensions, strict=True):
        assert 0 < len(own) <= 16 * LONGEST_RUN
        assert {sum(16 * start <= one for start in stages) - 1 for one in own} == {run["stage"]}
        assert {int(np.searchsorted(precision.cumsum(), one, side="right")) for one in own} == {run["fold"]}
        assert run["is_last"] == (own.stop in [16 * start for start in stages] and own.stop < precision.sum())


def test_stages_that_leave_most_of_a_row_are_left_out():
    rng = np.random.default_rng(16)
    flat = rng.integers(-128, 128, (500, 128))
    steep = flat * np.repeat(2.0 ** -np.arange(8), 16)
    for values, stages in ((flat, [0, 4]), (steep, [0, 1, 4])):
        codes = CompositionalCodes.from_signs(rng.random((500, 2, 8)) < 0.5, np.zeros((500, 2)))
        dense = values.astype(np.int8), np.full(500, 0.01, np.float32)
        index = make_index(CompositionalCodes(codes.bits, codes.weights, 8, dense), "auto")
        assert index._state.parts[0].segment.tables.dense_stages.tolist() == stages
        queries = rng.standard_normal((20, index.d)).astype(np.float32)
        assert_same(index.search(queries, 10), index.search(queries, 10, params=EVERY))


@pytest.mark.parametrize(
    ("values", "weights", "error", "words"),
    [
        (np.zeros((1, 16), np.int16), [1.0], TypeError, "int8"),
        (np.zeros((1, 15), np.int8), [1.0], ValueError, "multiple of 16"),
        (np.zeros((2, 16), np.int8), [1.0], ValueError, "one row for each"),
        (np.zeros((1, 16), np.int8), [-1.0], ValueError, "at least 0"),
        (np.zeros((1, 16), np.int8), [np.nan], ValueError, "dense weights"),
    ],
)
def test_bad_dense_components_are_explained(values, weights, error, words):
    with pytest.raises(error, match=words):
        CompositionalCodes(np.zeros((1, 2, 1), np.uint8), np.ones((1, 2)), 8, (values, weights))


def test_codes_that_do_not_fit_the_index_are_refused():
    rng = np.random.default_rng(12)
    items = mixed_codes(rng, 10, 2, 8, 32, 0.5)
    with pytest.raises(ValueError, match="dense dimensions"):
        IndexCCCF(2, 8).add(items)
    with pytest.raises(ValueError, match="multiple of 16"):
        IndexCCCF(2, 8, n_dense=8)
    with pytest.raises(TypeError, match="CompositionalCodes"):
        IndexCCCF(2, 8, n_dense=32).add(np.zeros((2, 48), np.float32))
    big = CompositionalCodes(items.bits, items.weights, 8, DenseRows(items.dense.weights * 1e6, items.dense.values))
    with pytest.raises(ValueError, match="dense weights"):
        IndexCCCF(2, 8, 1000, n_dense=32).add(big)
    with pytest.raises(ValueError, match="n_dense"):
        CompositionalCodes.concatenate([items, mixed_codes(rng, 4, 2, 8, 16, 0.5)])


def test_rows_of_codes_keep_their_dense_components():
    rng = np.random.default_rng(13)
    items = mixed_codes(rng, 40, 2, 8, 16, 0.5)
    vectors = items.to_vectors()
    for rows in (slice(3, 20), [5, 1, 5], np.arange(40) % 3 == 0, 7):
        np.testing.assert_array_equal(items[rows].to_vectors(), np.atleast_2d(vectors[rows]))
    joined = CompositionalCodes.concatenate([items[:10], items[10:]])
    assert joined == items
    assert "n_dense=16" in repr(items)


def test_cells_of_dense_rows_begin_at_a_strip_and_centres_hold_only_what_cells_have():
    rng = np.random.default_rng(14)
    items = mixed_codes(rng, 3 * MIN_CLUSTERED, 4, 16, 80, 0.8, n_themes=6)
    index = make_index(items, "auto")
    segment = index._state.parts[0].segment
    t = segment.tables
    is_dense = (t.precisions.any(axis=1) & (t.slots < 0).all(axis=1))[t.cell_groups]
    assert np.bincount(t.cell_groups[is_dense]).max() > 1  # several cells in a group
    assert not ((t.cell_starts[:-1] - t.starts[t.cell_groups])[is_dense] % STRIP).any()
    centres = segment.expand_centres()
    assert centres.shape == (4 * 16 + 80, len(t.cell_groups))
    assert len(t.centres) < centres.size / 3
    assert np.linalg.norm(centres[64:, is_dense], axis=0).max() > 0
    assert not centres[64:, ~t.precisions.any(axis=1)[t.cell_groups]].any()
    queries = rng.standard_normal((20, index.d)).astype(np.float32)
    assert_same(index.search(queries, 30), index.search(queries, 30, params=EVERY))


@pytest.mark.parametrize("p", [16, 128, 512])
def test_estimates_rule_out_no_good_row_whatever_the_spectrum_of_the_query(p):
    rng = np.random.default_rng(15)
    items = mixed_codes(rng, 3000, 2, 8, p, 0.9)
    index = make_index(items, "auto")
    slopes = rng.uniform(-0.2, 0.2, (40, 1))
    queries = rng.standard_normal((40, index.d)) * np.exp(slopes * np.arange(index.d) / 4)
    queries[::7, 16:] = 0
    queries[3], queries[5, 20:] = queries[3] * 1e-25, queries[5, 20:] * 1e-25
    queries = queries.astype(np.float32)
    for k in (1, 40):
        assert_same(index.search(queries, k), index.search(queries, k, params=EVERY))
