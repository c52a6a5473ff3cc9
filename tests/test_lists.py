"""Long lists: what is collected by estimates and scored in the end is the exact result, however many items are equal."""

import numpy as np
import pytest
from helpers import assert_same, random_codes
from hypothesis import given, settings
from hypothesis import strategies as st

from cccf_index import CompositionalCodes, IndexCCCF, SearchParametersCCCF
from cccf_index.kernels import calls

PLAIN = SearchParametersCCCF(prune=False)


@pytest.fixture(params=[False, True], ids=["room for many", "room for few"])
def room(request, monkeypatch):
    """With little room what is collected must be sorted out again and again."""
    if request.param:
        monkeypatch.setattr(calls, "COLLECTED", 1)
        monkeypatch.setattr(calls, "LEAST_COLLECTED", 1)


def make_index(rng, n, scale, n_bits, spread, n_parts=1, biased=False):
    """An index whose weights spread over orders of magnitude, as those of catalogues do, with ids in no order."""
    codes = random_codes(rng, n, 4, n_bits)
    weights = codes.weights * (spread ** rng.random((n, 1))).astype(np.float32)
    index = IndexCCCF(4, n_bits, scale)
    ids = rng.permutation(3 * n)[:n]
    bias = rng.standard_normal(n).astype(np.float32) if biased else None
    for rows in np.array_split(np.arange(n), n_parts):
        part = CompositionalCodes(codes.bits[rows], weights[rows], n_bits)
        index.add_with_ids(part, ids[rows], **({} if bias is None else {"bias": bias[rows]}))
        index.search(part[:1], 1)  # the batch becomes a part
    return index, ids


def check_lists(index, queries, k, **filters):
    for x in queries:
        assert_same(index.search(x, k, **filters), index.search(x, k, params=PLAIN, **filters))


def make_queries(rng, nq, n_bits):
    codes = random_codes(rng, nq, 4, n_bits)
    return codes, rng.standard_normal((nq, 4 * n_bits)).astype(np.float32)


@pytest.mark.filterwarnings("ignore:All weights of")
@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32), st.sampled_from([1, 70, 900, 5000]), st.sampled_from([100, "auto", None]),
    st.sampled_from([1.0, 300.0]), st.sampled_from([1, 3]),
)  # fmt: skip
def test_lists_of_any_length_are_those_of_a_search_without_bounds(seed, n, scale, spread, n_parts):
    rng = np.random.default_rng(seed)
    index, ids = make_index(rng, n, scale, 16, spread, min(n_parts, n))
    if n > 10:
        index.remove_ids(rng.choice(ids, n // 10, replace=False))
    queries = make_queries(rng, 3, 16)
    for k in {1, int(rng.integers(1, n + 1)), n, n + 5}:
        check_lists(index, queries, k)
        seen = [rng.choice(ids, min(n, 2 * k), replace=False) for _ in range(3)]  # longer than the list
        check_lists(index, queries, k, exclude=seen)
        check_lists(index, queries, k, allow=rng.choice(ids, -(-n // 3), replace=False))


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("scale", [100, None])
@pytest.mark.parametrize("k", [10, 700, 2500])
def test_thousands_of_equal_scores_are_cut_by_id(scale, k):
    """All items of a kind are equal, and the end of the list lies within one kind."""
    rng = np.random.default_rng(k)
    kinds = random_codes(rng, 3, 4, 16)
    which = rng.integers(0, 3, 6000)
    index, ids = IndexCCCF(4, 16, scale), rng.permutation(10**6)[:6000]
    index.add_with_ids(kinds[which], ids)
    check_lists(index, make_queries(rng, 4, 16), k)
    check_lists(index, make_queries(rng, 4, 16), k, exclude=[ids[:k]] * 4)


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize(
    "n_bits", [16, pytest.param(8, marks=pytest.mark.slow), pytest.param(40, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("k", [1, 40, 1000, 9000])
def test_what_does_not_fit_is_sorted_out_without_loss(n_bits, k):
    rng = np.random.default_rng(n_bits + k)
    for scale, spread, biased in (("auto", 50.0, False), (None, 50.0, False), (100, 3.0, True)):
        index, _ = make_index(rng, 9000, scale, n_bits, spread, 2, biased)
        check_lists(index, make_queries(rng, 20, n_bits), k)


def test_lists_are_the_same_on_any_number_of_threads_and_in_any_batch():
    rng = np.random.default_rng(0)
    index, _ = make_index(rng, 7000, "auto", 16, 100.0)
    for x in make_queries(rng, 60, 16):
        whole = index.search(x, 500)
        assert_same(index.search(x, 500, params=SearchParametersCCCF(num_threads=3)), whole)
        for i in (0, 17, 59):
            assert_same(index.search(x[i : i + 1], 500), (whole[0][i : i + 1], whole[1][i : i + 1]))
            assert_same(index.search(x[i : i + 1], 30), (whole[0][i : i + 1, :30], whole[1][i : i + 1, :30]))


def test_queries_whose_scores_are_all_negative_or_zero_have_exact_lists():
    rng = np.random.default_rng(1)
    codes = CompositionalCodes.from_signs(np.ones((5000, 4, 16)), rng.random((5000, 4)))
    index = IndexCCCF(4, 16, "auto")
    index.add(codes)
    against = CompositionalCodes.from_signs(-np.ones((1, 4, 16)), np.ones((1, 4)))
    nothing = CompositionalCodes.from_signs(np.ones((1, 4, 16)), np.zeros((1, 4)))
    for k in (1, 100, 1000, 5000):
        check_lists(index, (against, nothing, against.to_vectors() * 0.7 - 0.01), k)
