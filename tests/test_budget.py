"""Codes under a budget of bytes: how they are allocated, made, kept and searched."""

import warnings

import numpy as np
import pytest

import cccf_index as ci
from cccf_index import IndexCCCF, SearchParametersCCCF
from cccf_index.evaluation import recall
from cccf_index.kernels.budgets import MOST_USED
from cccf_index.kernels.levels import BITS, row_sizes
from cccf_index.learning.allocation import Choice
from cccf_index.learning.dense import DenseSpace, round_rows
from cccf_index.learning.losses import ERRORS, describe_estimates, interpolate, judge_losses
from cccf_index.learning.offers import list_precisions
from cccf_index.learning.sides import Sides
from cccf_index.quantizer import CompositionalQuantizer
from cccf_index.search.parameters import find_used_columns
from cccf_index.storage.precisions import find_needs

EVERY = SearchParametersCCCF(prune=False)


def make_vectors(seed=0, n_items=4000, n_users=1500, p=40):
    """A catalogue of which few items lead most lists: lengths differ much, and directions are near some themes."""
    rng = np.random.default_rng(seed)
    strength = np.exp(-0.03 * np.arange(p))
    themes = rng.standard_normal((12, p)) * strength
    items = themes[rng.integers(0, 12, n_items)] + 0.7 * rng.standard_normal((n_items, p)) * strength
    items *= rng.lognormal(-0.5, 0.6, (n_items, 1))
    users = themes[rng.integers(0, 12, n_users)] + rng.standard_normal((n_users, p)) * strength
    return items.astype(np.float32), users.astype(np.float32)


ITEMS, USERS = make_vectors()
FIT, HELD_OUT = USERS[:1200], USERS[1200:]
WANTED = np.argsort(-(HELD_OUT @ ITEMS.T), axis=1)[:, :10]


@pytest.fixture(scope="module")
def quantizer():
    return CompositionalQuantizer(8, 8, bytes_per_item=20, sweeps=3, verbose=False).fit(ITEMS, FIT)


@pytest.fixture(scope="module")
def index(quantizer):
    index = IndexCCCF(8, 8, "auto", quantizer=quantizer)
    index.add(quantizer.item_codes_)
    return index


def test_items_that_lead_lists_get_longer_codes(quantizer):
    codes = quantizer.item_codes_
    has_dense = codes.dense.is_present
    assert 0.02 < has_dense.mean() < 0.9
    assert not codes.weights[has_dense].any()
    assert codes.weights[~has_dense].any(axis=1).all()
    assert (codes.weights > 0).sum(axis=1).max() == 2  # a quarter of the components
    leading = np.bincount(WANTED.ravel(), minlength=len(ITEMS)) > 2
    assert has_dense[leading].all()
    sizes = np.where(has_dense, 0, 2 * (1 + 1))  # two components of a byte of bits and a weight
    sizes[has_dense] = row_sizes(find_needs(codes.dense.values))
    assert sizes[leading].mean() > 2 * sizes.mean()
    assert sizes[leading].min() >= 2 * np.median(sizes)


def test_codes_take_the_bytes_that_were_asked_for(quantizer):
    codes = quantizer.item_codes_
    allocation = quantizer._encoder.allocation
    kinds = allocation.assign(ITEMS - quantizer.item_mean_)
    values = row_sizes(allocation.precisions)[kinds]
    binary = 2 * (codes.weights > 0).sum(axis=1)
    sizes = np.where(values > 0, values + 2, binary) + 4
    assert 18 < sizes.mean() <= 20.2


def test_a_budget_finds_more_than_codes_of_the_same_length(index):
    equal = IndexCCCF.from_embeddings(ITEMS, FIT, 8, 8, sweeps=3, verbose=False)
    shares = {}
    for name, one in (("budget", index), ("equal", equal)):
        for coded in (False, True):
            found = one.search(HELD_OUT, 10, params=SearchParametersCCCF(coded=coded))[1]
            shares[name, coded] = float(recall(found, WANTED, [10])[0])
    assert shares["budget", False] > shares["equal", False] + 0.05
    assert shares["budget", True] > shares["budget", False] - 0.04
    assert shares["budget", False] > 0.9


@pytest.mark.parametrize("coded", [False, True])
def test_pruned_search_is_exact_by_the_codes(index, coded):
    params, plain = (SearchParametersCCCF(coded=coded, prune=prune) for prune in (True, False))
    for k in (1, 10, 300):
        for found, wanted in zip(
            index.search(HELD_OUT, k, params=params), index.search(HELD_OUT, k, params=plain), strict=True
        ):
            np.testing.assert_array_equal(found, wanted)
    D, I = index.search(HELD_OUT, 20, params=params)
    for i in (0, 5):
        one = index.search(HELD_OUT[i : i + 1], 20, params=params)
        np.testing.assert_array_equal(one[1], I[i : i + 1])
        np.testing.assert_array_equal(one[0], D[i : i + 1])


def test_scores_are_inner_products_with_the_reconstructed_vectors(index, quantizer):
    D, I = index.search(HELD_OUT, 15)
    decoded = index.reconstruct_n()
    np.testing.assert_allclose(D, np.take_along_axis(HELD_OUT @ decoded.T, I, axis=1), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(decoded, quantizer.decode(quantizer.item_codes_), rtol=0.05, atol=0.02)
    lengths = np.linalg.norm(ITEMS, axis=1)
    has_dense = quantizer.item_codes_.dense.is_present
    off = np.linalg.norm(decoded - ITEMS, axis=1) / lengths
    assert np.median(off[has_dense]) < 0.1 < np.median(off[~has_dense])


def test_the_code_of_an_item_or_user_depends_on_no_other(quantizer):
    codes = quantizer.item_codes_
    for rows in (slice(0, 1), slice(17, 60)):
        assert quantizer.encode_items(ITEMS[rows]) == codes[rows]
        assert quantizer.encode_users(FIT[rows]) == quantizer.user_codes_[rows]


def test_learning_does_not_depend_on_threads(quantizer):
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        other = CompositionalQuantizer(8, 8, bytes_per_item=20, sweeps=3, verbose=False).fit(ITEMS, FIT)
    finally:
        faiss.omp_set_num_threads(before)
    assert quantizer.equals(other)
    assert other.item_codes_ == quantizer.item_codes_


def test_an_update_moves_an_item_to_a_code_of_another_length(index):
    other = ci.deserialize_index(ci.serialize_index(index))
    dense = index.quantizer.item_codes_ if hasattr(index.quantizer, "item_codes_") else None
    assert dense is None  # an index keeps no codes of the fit
    kinds = index.quantizer.encode_items(ITEMS).dense.is_present
    long, short = int(np.flatnonzero(kinds)[0]), int(np.flatnonzero(~kinds)[0])
    other.update_vectors([long, short], ITEMS[[short, long]])
    np.testing.assert_allclose(other.reconstruct(long), index.reconstruct(short), atol=1e-6)
    np.testing.assert_allclose(other.reconstruct(short), index.reconstruct(long), atol=1e-6)
    for found, wanted in zip(other.search(HELD_OUT, 20), other.search(HELD_OUT, 20, params=EVERY), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_an_index_under_a_budget_is_written_mapped_and_changed(index, tmp_path):
    ci.write_index(index, tmp_path / "items.cccf")
    mapped = ci.read_index(tmp_path / "items.cccf", mmap=True)
    assert mapped.quantizer.equals(index.quantizer)
    assert mapped.n_dense == index.n_dense == 48
    np.testing.assert_array_equal(mapped.search(HELD_OUT, 20)[1], index.search(HELD_OUT, 20)[1])
    mapped.remove_ids(np.arange(0, 4000, 3))
    mapped.add(ITEMS[:300])
    for found, wanted in zip(mapped.search(HELD_OUT, 20), mapped.search(HELD_OUT, 20, params=EVERY), strict=True):
        np.testing.assert_array_equal(found, wanted)
    index.quantizer.save(tmp_path / "a.quantizer")
    loaded = CompositionalQuantizer.load(tmp_path / "a.quantizer")
    assert loaded.encode_items(ITEMS[:50]) == index.quantizer.encode_items(ITEMS[:50])


def test_the_default_of_from_embeddings_is_a_budget():
    small = ITEMS[:600]
    index = IndexCCCF.from_embeddings(small, FIT, sweeps=1, verbose=False)
    assert index.n_dense
    assert index.quantizer.bytes_per_item == 28
    for params in ({"n_components": 4}, {"n_bits": 8}, {"max_active": 4}):
        assert IndexCCCF.from_embeddings(small, FIT, **params, sweeps=1, verbose=False).n_dense == 0
    assert IndexCCCF.from_embeddings(small, FIT, n_components=4, bytes_per_item=20, sweeps=1, verbose=False).n_dense


def test_a_large_budget_keeps_nearly_all_and_a_small_one_is_explained():
    index = IndexCCCF.from_embeddings(ITEMS[:1000], FIT, bytes_per_item=60, sweeps=1, verbose=False)
    wanted = np.argsort(-(HELD_OUT @ ITEMS[:1000].T), axis=1)[:, :10]
    assert recall(index.search(HELD_OUT, 10)[1], wanted, [10])[0] > 0.97
    with pytest.raises(ValueError, match="`bytes_per_item` must be at least 7"):
        IndexCCCF.from_embeddings(ITEMS, FIT, bytes_per_item=5)
    for wrong, error in ((np.nan, ValueError), ("28", TypeError), (-1, ValueError)):
        with pytest.raises(error, match="bytes_per_item"):
            CompositionalQuantizer(bytes_per_item=wrong).check()


@pytest.mark.parametrize("case", ["one item", "equal items", "zeros", "few users", "items as queries", "no queries"])
def test_odd_catalogues_are_coded_and_searched(case):
    rng = np.random.default_rng(3)
    items, users = ITEMS[:300], FIT[:100]
    if case == "one item":
        items = items[:1]
    elif case == "equal items":
        items = np.repeat(items[:1], 50, axis=0)
    elif case == "zeros":
        items, users = np.zeros((20, 40), np.float32), users
    elif case == "few users":
        users = users[:2]
    elif case == "items as queries":
        users = items
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        index = IndexCCCF.from_embeddings(items, None if case == "no queries" else users, sweeps=1, verbose=False)
    queries = np.concatenate([users[:5], rng.standard_normal((3, 40)).astype(np.float32)])
    for coded in (False, True):
        D, I = index.search(queries, 7, params=SearchParametersCCCF(coded=coded))
        every = index.search(queries, 7, params=SearchParametersCCCF(coded=coded, prune=False))
        np.testing.assert_array_equal(I, every[1])
        np.testing.assert_array_equal(D, every[0])


def test_prices_spend_the_budget_where_most_is_lost():
    losses = np.array([[0.9, 0.1, 0.0], [0.5, 0.06, 0.01], [0.01, 0.001, 0.0]], np.float32)
    choice = Choice(np.array([10.0, 50.0, 100.0]), losses, np.ones(3))
    for budget, kinds in ((10, [0, 0, 0]), (24, [1, 0, 0]), (37, [1, 1, 0]), (100, [2, 2, 2])):
        price, lost = choice.spend(budget)
        assert choice.assign(price).tolist() == kinds
        assert lost == pytest.approx(losses[np.arange(3), kinds].sum(), rel=1e-5)


def test_losses_between_known_errors_are_interpolated():
    losses = np.stack([ERRORS, 2 * ERRORS**2]).astype(np.float32)
    losses = np.concatenate([[[7], [8]], losses], axis=1).astype(np.float32)  # binary codes first
    errors = np.array([0.9, 5.0, 4.0, 0.75, 0.5, 0.3, ERRORS[-1], ERRORS[-1] / 2], np.float32)
    found = interpolate(losses, errors)
    np.testing.assert_allclose(found[:, 0], [7, 8])
    np.testing.assert_allclose(found[0, 1:], np.minimum(errors[1:], 4), rtol=1e-5)
    np.testing.assert_allclose(found[1, 2:5], [32.0, 1.25, 0.5], rtol=1e-5)
    assert found[1, -1] == pytest.approx(found[1, -2] / 2, rel=1e-5)


def test_estimates_are_described_by_the_errors_of_codes():
    rng = np.random.default_rng(4)
    x, queries = rng.standard_normal((400, 64)), rng.standard_normal((4000, 64))
    scores = queries @ x.T
    signs = np.sign(x)
    least = signs * np.abs(x).mean(axis=1, keepdims=True)  # the least squared error
    right = signs * (np.square(x).sum(axis=1) / np.abs(x).sum(axis=1))[:, None]  # right in the mean
    lengths = np.linalg.norm(x, axis=1)
    for coded, is_binary in ((least, True), (right, False)):
        error = (np.linalg.norm(x - coded, axis=1) / lengths).mean()
        means, deviations = describe_estimates(np.array([error], np.float32), np.array([is_binary]))
        estimates = queries @ coded.T
        mean = (estimates * scores).sum() / np.square(scores).sum()
        assert means[0] == pytest.approx(mean, abs=0.02)
        assert deviations[0] == pytest.approx(((estimates - mean * scores) / lengths).std(), abs=0.02)


@pytest.mark.parametrize("precision", [[64, 0, 0, 0], [0, 64, 0, 0], [0, 0, 64, 0], [0, 0, 0, 64], [16, 16, 16, 0]])
def test_scores_of_dense_components_are_right_in_the_mean(precision):
    rng = np.random.default_rng(5)
    x, squares = rng.standard_normal((50, 64)).astype(np.float32), rng.random(64).astype(np.float32) + 0.1
    found, n = round_rows(x, squares, np.array(precision)), sum(precision)
    expanded = found.expand()[:, :n]
    own = (squares[:n] * x[:, :n] ** 2).sum(axis=1)
    np.testing.assert_allclose((squares[:n] * expanded * x[:, :n]).sum(axis=1), own, rtol=1e-4)
    assert not found.expand()[:, n:].any()


@pytest.mark.parametrize("decay", [0.0, 0.05, 0.12])
def test_dense_coordinates_keep_scores_and_are_balanced_between_queries_and_items(decay):
    rng = np.random.default_rng(3)
    strength = np.exp(-decay * np.arange(40))
    items, users = (rng.standard_normal((n, 40)) * strength for n in (3000, 2000))
    sides = Sides.from_vectors(items.astype(np.float32), users.astype(np.float32), None, 10_000, rng)
    space = DenseSpace.learn(sides, rng)
    x, y = sides.users @ space.queries.T, space.map_items(sides.items)
    scores = sides.users @ sides.items.T
    np.testing.assert_allclose(x @ y.T, scores, atol=2e-4 * np.abs(scores).max())
    assert x.shape[1] == 48
    assert not space.queries[40:].any()
    assert not space.items[40:].any()
    energies = np.square(y[:, :32]).reshape(len(y), 2, 16).mean(axis=(0, 2))
    np.testing.assert_allclose(energies, energies[0], rtol=0.6)
    # of all ways to divide directions between queries and items, errors of rounding cost least
    kinds = np.linalg.svd(x[:, :16] / np.sqrt(len(x)))[1], np.linalg.svd(y[:, :16] / np.sqrt(len(y)))[1]
    np.testing.assert_allclose(kinds[0] / kinds[0].mean(), kinds[1] / kinds[1].mean(), rtol=0.3)


def test_one_direction_that_all_scores_share_does_not_cost_the_others_their_bits():
    rng = np.random.default_rng(5)
    items, users = (rng.standard_normal((n, 32)).astype(np.float32) for n in (2000, 1000))
    items[:, 0], users[:, 0] = 10 * items[:, 0], 30 + users[:, 0]
    index = IndexCCCF.from_embeddings(items, users[200:], bytes_per_item=40, sweeps=1, verbose=False)
    wanted = np.argsort(-(users[:200].astype(np.float64) @ items.T), axis=1)[:, :10]
    assert recall(index.search(users[:200], 10)[1], wanted, [10])[0] > 0.99


def test_precisions_to_choose_from_cover_all_dimensions_and_stay_few():
    for n_dense in (16, 48, 128, 768, 4096):
        for slope in (0.0, 0.02, 0.2):
            found = list_precisions(np.exp(-slope * np.arange(n_dense, dtype=np.float32)))
            assert found[-1].tolist() == [n_dense, 0, 0, 0]
            assert len(np.unique(found, axis=0)) == len(found) < 250
            assert not (found % 16).any()
            assert (np.diff(found @ BITS) > 0).all()
            assert slope or {(0, 0, 0, n_dense), (0, n_dense, 0, 0)} < {*map(tuple, found.tolist())} or n_dense > 300


def test_losses_are_trusted_as_far_as_two_halves_of_the_examples_agree():
    rng = np.random.default_rng(0)
    lengths, numbers = rng.random(4000).astype(np.float32) + 1, rng.integers(1, 4, 4000).astype(np.float64)
    worth = rng.lognormal(0, 2, (4000, 1)) * np.ones((1, 3))
    chance = [rng.poisson(1.0, (4000, 3)).astype(np.float32) for _ in range(2)]
    for signal, noise, least, most in ((1, 0, 0.998, 1), (0, 1, 0, 0.05), (1, 1, 0.9, 0.999)):
        halves = [(signal * worth + noise * part).astype(np.float32) for part in chance]
        trust, spare = judge_losses(*halves, lengths, numbers)
        assert (trust >= least).all()
        assert (trust <= most).all()
        # what is not trusted is shared out by length: the mean stays
        kept = trust * (halves[0] + halves[1]) / 2 + spare * lengths[:, None]
        np.testing.assert_allclose(numbers @ kept, numbers @ (halves[0] + halves[1]) / 2, rtol=1e-4)
    trust, spare = judge_losses(np.zeros((3, 1), np.float32), np.zeros((3, 1), np.float32), lengths[:3], np.ones(3))
    assert trust == 0
    assert spare == 0


def test_items_that_are_used_alike_get_codes_of_like_lengths():
    rng = np.random.default_rng(1)
    items = rng.standard_normal((3000, 32)).astype(np.float32)
    items /= np.linalg.norm(items, axis=1, keepdims=True)
    quantizer = CompositionalQuantizer(8, 4, bytes_per_item=22, sweeps=1, verbose=False).fit(items, items)
    assert len(quantizer._encoder.allocation.precisions) == 1
    assert quantizer.item_codes_.dense.is_present.all()
    index = IndexCCCF(8, 4, "auto", quantizer=quantizer)
    index.add(quantizer.item_codes_)
    assert 21 < index.nbytes / len(items) < 23


def test_a_budget_is_kept_where_codes_are_learned_from_a_sample():
    items, users = make_vectors(3, n_items=12000)
    quantizer = CompositionalQuantizer(8, 8, bytes_per_item=24, sweeps=1, max_rows=2000, verbose=False)
    quantizer.fit(items, users)
    index = IndexCCCF(8, 8, "auto", quantizer=quantizer)
    index.add(quantizer.item_codes_)
    assert 23 < index.nbytes / len(items) < 25.5


def test_a_budget_that_is_far_too_small_is_warned_of_with_one_that_would_do():
    rng = np.random.default_rng(2)
    items, users = (rng.standard_normal((n, 96)).astype(np.float32) for n in (3000, 800))
    with pytest.warns(UserWarning, match=r"bytes_per_item`=12 is far too small .* \d+ bytes would halve that"):
        CompositionalQuantizer(8, 8, bytes_per_item=12, sweeps=1, verbose=False).fit(items, users)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CompositionalQuantizer(8, 8, bytes_per_item=100, sweeps=1, verbose=False).fit(items, users)


def test_columns_of_queries_that_no_item_has_a_value_for_are_not_needed():
    rng, strength = np.random.default_rng(5), np.exp(-0.1 * np.arange(64))
    items, users = ((rng.standard_normal((n, 64)) * strength).astype(np.float32) for n in (3000, 1600))
    index = IndexCCCF.from_embeddings(items, users[:1500], 8, 8, bytes_per_item=48, sweeps=3, verbose=False)
    (part,), n_binary = index._snapshot().parts, 8 * 8
    assert part.segment.tables.slots.max() < 0  # no item has binary components
    first, last = find_used_columns((part,), n_binary)
    assert first == n_binary < last < n_binary + 64
    queries = users[1500:]
    D, I = index.search(queries, 10)
    every = queries @ index.reconstruct_n().T
    np.testing.assert_allclose(D, -np.sort(-every, axis=1)[:, :10], rtol=1e-3, atol=1e-4)
    for params in (EVERY, SearchParametersCCCF(shortlist=300), SearchParametersCCCF(num_threads=2)):
        found = index.search(queries, 10, params=params)
        np.testing.assert_array_equal(found[1], I)
        np.testing.assert_array_equal(found[0], D)
    for row in range(20):
        alone = index.search(queries[row : row + 1], 10)
        np.testing.assert_array_equal(alone[1][0], I[row])
        np.testing.assert_array_equal(alone[0][0], D[row])


def test_columns_are_needed_where_any_item_has_them(index):
    parts = index._snapshot().parts
    assert find_used_columns(parts, 64)[0] == 0
    tables = parts[0].segment.tables
    n_dense_blocks = int(tables.block_starts[-1] - tables.block_starts[tables.binary_stop])
    for n_blocks, first in ((1, 64), (n_dense_blocks, 64), (n_dense_blocks + 1, 0)):
        assert find_used_columns(parts, 64, np.array([n_blocks]), MOST_USED)[0] == first
    assert find_used_columns((), 64) == (0, 0)
