"""Learned codes of embeddings: the oracle is dense algebra over all pairs, and codes that were planted."""

import warnings

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_helpers import embeddings

from cccf_index import CompositionalCodes
from cccf_index.learning.sides import sample_by_size
from cccf_index.quantizer import CompositionalQuantizer, NotFittedError


def quantizer(**params):
    return CompositionalQuantizer(**{"n_components": 4, "n_bits": 8, **params})


def shares(scores, approximate):
    """The error over all pairs as a share of the variance within users, which is what a ranking sees."""
    scores = scores - scores.mean(axis=1, keepdims=True)
    approximate = approximate - approximate.mean(axis=1, keepdims=True)
    return np.square(scores - approximate).sum() / np.square(scores).sum()


@pytest.mark.parametrize("params", [{}, {"max_active": 2, "max_active_users": 3}, {"n_components": 1, "n_bits": 64}])
@pytest.mark.parametrize("p", [1, 3, 24, 80])
def test_the_error_never_rises_in_any_dimension(p, params):
    users, items = embeddings(p=p)
    fitted = quantizer(sweeps=8, **params).fit(items, users)
    errors = np.array([entry.objective for entry in fitted.history_])
    assert (np.diff(errors) <= 1e-6).all()
    assert errors[-1] < errors[0] or errors[0] < 1e-6
    assert (np.count_nonzero(fitted.item_codes_.weights, axis=1) <= params.get("max_active", 99)).all()
    assert (np.count_nonzero(fitted.user_codes_.weights, axis=1) <= params.get("max_active_users", 99)).all()


def test_planted_codes_are_recovered():
    """Scores that codes can express exactly: the error goes to nothing, and signs agree up to symmetries."""
    rng = np.random.default_rng(0)
    signs, weights = rng.choice([-1.0, 1.0], (2000, 2, 4)), rng.uniform(0.5, 2, (2000, 2, 1))
    planted = (signs * weights).reshape(2000, 8)
    users, items = planted[:1000].astype(np.float32), planted[1000:].astype(np.float32)
    turn = np.linalg.qr(rng.standard_normal((8, 8)))[0].astype(np.float32)
    fitted = CompositionalQuantizer(2, 4, n_probes=0, sweeps=20).fit(items @ turn, users @ turn)
    scores = users @ items.T
    assert fitted.history_[-1].objective < 0.01
    queries = fitted.transform_users(users @ turn) @ fitted.item_codes_.to_vectors().T
    assert shares(scores, queries) < 0.01
    found = fitted.item_codes_.to_signs()
    for k in range(2):  # each planted component is one of ours, its bits permuted and turned
        agree = np.abs(np.einsum("ia,ibq->baq", signs[1000:, k], found) / 1000)
        assert (agree.max(axis=2).min(axis=1).max() > 0.97).all()


def test_energy_falls_with_the_component():
    users, items = embeddings()
    weights = quantizer().fit(items, users).item_codes_.weights
    energy = np.square(weights).sum(axis=0)
    assert energy[0] == energy.max()
    assert energy[-1] < energy[0]


def test_real_queries_rank_better_than_coded_ones_and_both_beat_plain_signs():
    users, items = embeddings(n_users=2000, n_items=1500, p=32)
    fitted = CompositionalQuantizer(4, 16).fit(items, users)
    y = fitted.item_codes_.to_vectors()
    scores = users @ items.T
    real = shares(scores, fitted.transform_users(users) @ y.T)
    coded = shares(scores, fitted.user_codes_.to_vectors() @ y.T)
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((64, 64)))[0][:32].astype(np.float32)
    signs = [np.sign((x - x.mean(axis=0)) @ turn) for x in (users, items)]
    plain = signs[0] @ signs[1].T
    plain *= (plain * scores).sum() / np.square(plain).sum()
    assert real < coded < shares(scores, plain)
    assert real < 0.1


def test_transformed_queries_and_decoded_items_give_the_same_scores():
    users, items = embeddings()
    fitted = quantizer().fit(items, users)
    by_codes = fitted.transform_users(users) @ fitted.item_codes_.to_vectors().T + (users @ fitted.item_mean_)[:, None]
    np.testing.assert_allclose(users @ fitted.decode(fitted.item_codes_).T, by_codes, rtol=1e-3, atol=1e-3)
    assert fitted.decode(fitted.item_codes_).shape == items.shape


def test_scores_do_not_depend_on_the_basis_of_the_vectors():
    users, items = embeddings()
    change = np.random.default_rng(1).standard_normal((24, 24)) + 4 * np.eye(24)
    one = quantizer().fit(items, users)
    other = quantizer().fit(items @ np.linalg.inv(change), users @ change.T)
    assert other.history_[-1].objective == pytest.approx(one.history_[-1].objective, rel=0.05)


def test_rows_are_encoded_each_for_itself_and_as_in_fit():
    users, items = embeddings()
    fitted = quantizer().fit(items, users)
    assert fitted.encode_items(items) == fitted.item_codes_
    assert fitted.encode_users(users) == fitted.user_codes_
    rows = [7, 3, 250]
    assert (fitted.encode_items(items[rows]).bits == fitted.item_codes_[rows].bits).all()
    assert len(fitted.encode_items(np.empty((0, 24)))) == 0


def test_a_sample_of_the_rows_is_enough_to_learn_from():
    users, items = embeddings(n_users=3000, n_items=3000)
    whole, part = (quantizer(max_rows=n).fit(items, users) for n in (10_000, 800))
    assert len(part.item_codes_) == 3000
    scores = users @ items.T
    errors = [shares(scores, q.transform_users(users) @ q.item_codes_.to_vectors().T) for q in (whole, part)]
    assert errors[1] < 1.15 * errors[0]


def test_a_sample_has_the_few_items_that_lead_most_lists():
    rng = np.random.default_rng(0)
    users, items = embeddings(n_users=2000, n_items=6000)
    sizes = np.where(rng.random(6000) < 0.01, 20, 1)
    items *= sizes[:, None]
    items[sizes > 1] += 8 * rng.standard_normal(24)
    scores = users @ items.T
    errors = []
    for n in (10_000, 600):
        fitted = quantizer(max_rows=n).fit(items, users)
        decoded = (
            fitted.transform_users(users) @ fitted.item_codes_.to_vectors().T + (users @ fitted.item_mean_)[:, None]
        )
        errors.append(np.mean((decoded - scores)[:, sizes > 1] ** 2))
    assert errors[1] < 1.1 * errors[0]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 400), st.integers(1, 500), st.integers(0, 1000), st.sampled_from(["equal", "heavy", "zero"]))
def test_a_sample_by_size_has_what_is_large_and_stands_for_all(n, most, seed, kind):
    rng = np.random.default_rng(seed)
    sizes = {"equal": np.ones(n), "heavy": np.exp(4 * rng.standard_normal(n)), "zero": np.zeros(n)}[kind]
    rows, numbers = sample_by_size(sizes, most, rng)
    assert len(rows) == len(numbers) == min(n, most)
    assert (np.diff(rows) > 0).all()
    assert (numbers >= 1).all()
    shares = sizes / max(sizes.sum(), 1e-300) + 1 / n
    taken = np.isin(np.arange(n), rows)
    if not taken.all() and taken.any():
        assert shares[~taken].max() <= (shares[rows] * numbers).max() * (1 + 1e-9)


def test_sums_over_a_sample_by_size_have_no_bias():
    rng = np.random.default_rng(0)
    sizes = np.exp(2 * rng.standard_normal(500))
    sums = []
    for _ in range(400):
        rows, numbers = sample_by_size(sizes, 60, rng)
        sums.append([numbers.sum(), sizes[rows] @ numbers])
    np.testing.assert_allclose(np.mean(sums, axis=0), [500, sizes.sum()], rtol=0.05)


def test_results_do_not_depend_on_threads():
    users, items = embeddings(n_users=900, n_items=700)
    before, results = faiss.omp_get_max_threads(), []
    try:
        for threads in (1, 3):
            faiss.omp_set_num_threads(threads)
            fitted = quantizer().fit(items, users)
            results.append((fitted.item_codes_, fitted.user_codes_, [entry.objective for entry in fitted.history_]))
    finally:
        faiss.omp_set_num_threads(before)
    assert results[0] == results[1]


def test_a_saved_quantizer_encodes_identically(tmp_path):
    users, items = embeddings()
    for params in ({}, {"n_probes": 0, "max_active": 2}):
        fitted = quantizer(**params).fit(items, users)
        fitted.save(tmp_path / "q")
        loaded = CompositionalQuantizer.load(tmp_path / "q")
        assert loaded.equals(fitted)
        assert loaded.encode_items(items) == fitted.item_codes_
        assert loaded.encode_users(users) == fitted.user_codes_
        np.testing.assert_array_equal(loaded.transform_users(users), fitted.transform_users(users))
        assert (loaded.n_bits, loaded.history_, loaded.nbytes) == (8, fitted.history_, fitted.nbytes)
    data = bytearray((tmp_path / "q").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "q").write_bytes(data)
    with pytest.raises(ValueError, match="damaged"):
        CompositionalQuantizer.load(tmp_path / "q")
    fitted.item_codes_.save(tmp_path / "codes")
    with pytest.raises(ValueError, match=r"CompositionalCodes\.load"):
        CompositionalQuantizer.load(tmp_path / "codes")


def test_rows_of_zeros_and_single_rows_are_encoded():
    users, items = embeddings()
    items[5] = users[9] = 0
    fitted = quantizer().fit(items, users)
    assert not fitted.user_codes_.weights[9].any()
    for few_items, few_users in ((items[:1], users), (items, users[:1]), (items[:1], users[:1]), (items[:2], users)):
        few = quantizer().fit(few_items, few_users)
        assert np.isfinite(few.item_codes_.weights).all()
        scores = few.transform_users(few_users) @ few.item_codes_.to_vectors().T + (few_users @ few.item_mean_)[:, None]
        np.testing.assert_allclose(scores, few_users @ few_items.T, atol=0.05 * np.abs(few_users @ few_items.T).max())
    nothing = quantizer().fit(np.zeros((10, 3)), np.zeros((10, 3)))
    assert not nothing.item_codes_.weights.any()


def test_without_users_the_items_stand_for_queries_and_that_is_said():
    _, items = embeddings()
    with pytest.warns(UserWarning, match="no `user_vectors`"):
        alone = quantizer().fit(items)
    assert alone.user_codes_ is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert quantizer().fit(items, items).item_codes_ == alone.item_codes_


def test_heavier_items_are_kept_more_exactly():
    users, items = embeddings(n_items=400)
    heavy = np.where(np.arange(400) < 200, 100.0, 1.0)
    scores = users @ items.T

    def error(weights):
        q = quantizer(n_probes=0).fit(items, users, item_weights=weights)
        approximate = q.transform_users(users) @ q.item_codes_.to_vectors().T + (users @ q.item_mean_)[:, None]
        return np.square(scores - approximate)[:, :200].sum()

    assert error(heavy) < error(heavy[::-1])


BAD = [
    (dict(n_components=0), ValueError, "n_components"),
    (dict(n_bits=513), ValueError, "n_bits"),
    (dict(n_components=64, n_bits=128), ValueError, "at most 4096"),
    (dict(max_active=5), ValueError, "max_active"),
    (dict(max_active_users=0), ValueError, "max_active_users"),
    (dict(seed=-1), ValueError, "seed"),
    (dict(sweeps=1.5), TypeError, "sweeps"),
    (dict(n_probes=-1), ValueError, "n_probes"),
]


@pytest.mark.parametrize(("params", "error", "match"), BAD)
def test_bad_parameters_are_refused_by_fit(params, error, match):
    users, items = embeddings()
    made = quantizer(**params)
    with pytest.raises(error, match=match):
        made.fit(items, users)
    with pytest.raises(NotFittedError, match="not fitted"):
        made.encode_items(items)


def test_bad_vectors_are_refused_and_change_nothing():
    users, items = embeddings()
    fitted = quantizer().fit(items, users)
    codes = fitted.item_codes_
    wrong = items.copy()
    wrong[3, 4] = np.nan
    for call in (fitted.fit, fitted.encode_items):
        with pytest.raises(ValueError, match=r"finite.*\(3, 4\)"):
            call(wrong)
    with pytest.raises(ValueError, match=r"shape \(n, 24\)"):
        fitted.fit(items, users[:, :20])
    for bad in (items[0], items[None], np.empty((0, 24)), np.empty((5, 0)), 3.0):
        with pytest.raises(ValueError, match="`item_vectors` must be of shape"):
            fitted.fit(bad, users)
    with pytest.raises(TypeError, match="real numbers"):
        fitted.fit(items.astype(complex), users)
    with pytest.raises(ValueError, match="item_weights"):
        fitted.fit(items, users, item_weights=np.zeros(300))
    with pytest.raises(ValueError, match="`item_weights` must be at least 0"):
        fitted.fit(items, users, item_weights=-np.ones(300))
    with pytest.raises(ValueError, match=r"`item_weights` must be of shape \(300,\)"):
        fitted.fit(items, users, item_weights=np.ones(3))
    for empty in (users[:0], []):
        with pytest.raises(ValueError, match="`user_vectors` must be of shape"):
            fitted.fit(items, empty)
    with pytest.raises(ValueError, match="rectangular"):
        fitted.fit([[1, 2], [3]])
    for size in (1e-12, 1e12):
        with pytest.raises(ValueError, match=r"root mean square.*Rescale"):
            fitted.fit(items * np.float32(size), users)
    with pytest.raises(ValueError, match="4x8 bits"):
        fitted.decode(CompositionalCodes.from_signs(np.ones((1, 2, 8))))
    with pytest.raises(TypeError, match="CompositionalCodes"):
        fitted.decode(items)
    assert fitted.item_codes_ is codes
    assert fitted.encode_items(items) == codes


def test_only_items_with_weight_are_learned_from():
    users, items = embeddings()
    weights = np.zeros(300)
    weights[7:30] = 1
    fitted = quantizer(max_rows=10).fit(items, users, item_weights=weights)
    assert np.isfinite(fitted.item_codes_.weights).all()


def test_lists_of_ties_and_items_beyond_all_lists_cost_little():
    users, items = embeddings(n_users=5000, n_items=1000)
    users[::2] = 0  # whose lists are one tie
    fitted = quantizer().fit(items, users)
    probes = fitted._encoder.probes
    assert 1000 < len(probes.vectors) <= 2500
    pairs = probes.make_table().find_pairs((items[:50] - fitted.item_mean_) * 1000)
    assert (pairs.stops - pairs.starts).max() <= 256
    assert np.isfinite(fitted.encode_items(items[:50] * 1000).weights).all()
    tied = quantizer().fit(np.ones((100, 4)), users[1::2, :4])
    assert tied._encoder.probes is None


def test_embeddings_of_nearly_one_direction_keep_their_scores():
    """BPR after few iterations: an item bias, and factors a hundred times smaller; weights must not explode."""
    rng = np.random.default_rng(0)
    users = np.hstack([0.01 * rng.standard_normal((400, 15)), np.ones((400, 1))]).astype(np.float32)
    items = np.hstack([0.01 * rng.standard_normal((300, 15)), 0.3 * rng.standard_normal((300, 1))]).astype(np.float32)
    quantizer = CompositionalQuantizer(verbose=False).fit(items, users)
    assert quantizer.item_codes_.weights.max() < 10 * np.abs(items).max()
    scores = quantizer.transform_users(users) @ quantizer.item_codes_.to_vectors().T
    wanted = users @ (items - quantizer.item_mean_).T
    assert np.corrcoef(scores.ravel(), wanted.ravel())[0, 1] > 0.9999
