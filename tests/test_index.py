"""`search` and its relatives with faiss's manners; `test_scan.py` holds their results to the oracles.

The behaviour cases mirror faiss's tests/test_index.py (range search, search and reconstruct, out arguments, empty
batches), tests/test_factory.py and tests/test_omp_threads_py.py.
"""

import faiss
import numpy as np
import pytest
from helpers import LOWEST, Model, assert_same, filled_index, random_codes
from scipy import sparse

from cccf_index import IndexCCCF, SearchParametersCCCF, _threads, index_factory
from cccf_index.quantizer import CompositionalQuantizer
from cccf_index.search import scan


def test_bias_takes_part_in_the_score_at_the_scale_of_the_index():
    codes = random_codes(np.random.default_rng(1), 300, density=0.3)
    bias = np.linspace(-2, 2, 300)
    index = IndexCCCF(4, 8)
    index.add(codes, bias=bias)
    index.add(codes)  # no bias counts as zero
    model = Model()
    model.add(codes, range(300), bias)
    model.add(codes, range(300, 600))
    assert_same(index.search(codes[:30], 40), model.search(codes[:30], 40))
    D, I = index.search(np.zeros((1, 32)), 1)
    assert (D[0, 0], I[0, 0]) == (2, 299)


def test_a_query_may_mix_codes_and_other_vectors():
    rng = np.random.default_rng(5)
    codes = random_codes(rng, 400)
    index = filled_index(codes)
    x = codes[:6].to_vectors()
    x[1::2] = rng.standard_normal((3, 32))
    exclude = sparse.csr_matrix(np.eye(6, 400))
    together = index.search(x, 7, exclude=exclude)
    for row in range(6):
        alone = index.search(x[[row]], 7, exclude=exclude[[row]])
        assert_same(alone, (together[0][[row]], together[1][[row]]))


def test_search_accepts_what_faiss_users_pass():
    codes = random_codes(np.random.default_rng(0), 50)
    index = filled_index(codes)
    x = codes[:4].to_vectors()
    expected = index.search(x, 5)
    wide = np.zeros((4, 64))
    wide[:, ::2] = x
    for same in (x.tolist(), x.astype(np.float64), np.asfortranarray(x), wide[:, ::2], np.flipud(np.flipud(x))):
        assert_same(index.search(same, 5), expected)
    for k in (np.int64(5), np.uint8(5)):
        assert_same(index.search(x, k), expected)
    assert_same(index.search(x, 5, params=faiss.SearchParameters()), expected)


def test_search_pads_with_minus_one_when_k_exceeds_ntotal():
    codes = random_codes(np.random.default_rng(0), 3, density=1)
    for index in (filled_index(codes), filled_index(codes, scale=None)):
        for x in (codes, np.random.default_rng(0).standard_normal((3, 32))):
            D, I = index.search(x, 5)
            assert (I[:, 3:] == -1).all()
            assert (D[:, 3:] == LOWEST).all()
            assert (np.sort(I[:, :3]) == [0, 1, 2]).all()
    D, I = IndexCCCF(4, 8).search(codes, 2)
    assert (I == -1).all()
    assert (D == LOWEST).all()


def test_an_empty_batch_gives_empty_results():
    index = filled_index(random_codes(np.random.default_rng(0), 10))
    for nothing in (
        np.empty((0, 32), np.float32),
        [],
        index.reconstruct_n()[:0],
        random_codes(np.random.default_rng(0), 0),
    ):
        D, I = index.search(nothing, 3)
        assert D.shape == I.shape == (0, 3)
        assert (D.dtype, I.dtype) == (np.float32, np.int64)
        lims, D, I = index.range_search(nothing, 0)
        assert lims.tolist() == [0]
        assert (lims.dtype, D.dtype, I.dtype) == (np.uint64, np.float32, np.int64)


def test_results_go_into_given_arrays():
    codes = random_codes(np.random.default_rng(0), 20)
    index = filled_index(codes)
    D, I = np.empty((20, 3), np.float32), np.empty((20, 3), np.int64)
    found = index.search(codes, 3, D=D, I=I)
    assert found[0] is D
    assert found[1] is I
    assert_same((D, I), index.search(codes, 3))
    labels = np.empty((20, 3), np.int64)
    assert index.assign(codes, 3, labels) is labels
    np.testing.assert_array_equal(labels, I)
    strided = np.zeros((20, 6), np.float32)[:, ::2]
    index.search(codes, 3, D=strided)
    np.testing.assert_array_equal(strided, D)


@pytest.mark.parametrize("thresh", [-1e30, -0.01, 0, 0.01, 1e30])
@pytest.mark.parametrize("scale", [100, None])
def test_range_search_finds_all_above_the_threshold_best_first(thresh, scale):
    codes = random_codes(np.random.default_rng(0), 300, density=0.5)
    index = filled_index(codes, scale=scale)
    index.remove_ids(np.arange(100, 120))
    exclude = sparse.csr_matrix(([1.0], ([2], [7])), shape=(10, 300))
    for x in (codes[:10], np.random.default_rng(0).standard_normal((10, 32)) / 20):
        lims, D, I = index.range_search(x, thresh, exclude=exclude, allow=faiss.IDSelectorRange(0, 250))
        all_D, all_I = index.search(x, 300, exclude=exclude, allow=np.arange(250))
        assert (lims.dtype, D.dtype, I.dtype) == (np.uint64, np.float32, np.int64)
        for q in range(10):
            above = all_D[q] > np.float32(thresh)
            above &= all_I[q] >= 0
            part = slice(int(lims[q]), int(lims[q + 1]))
            np.testing.assert_array_equal(I[part], all_I[q, above])
            np.testing.assert_array_equal(D[part], all_D[q, above])


def test_search_and_reconstruct_sees_one_state(monkeypatch):
    index = filled_index(random_codes(np.random.default_rng(0), 5))

    def removing(*arguments):
        top_k(*arguments)
        index.reset()

    top_k = scan.find_top_k
    monkeypatch.setattr(scan, "find_top_k", removing)
    _, I, R = index.search_and_reconstruct(np.ones((1, 32)), 5)
    assert sorted(I[0]) == list(range(5))
    assert not np.isnan(R).any()


def test_search_and_reconstruct_returns_the_vectors_too():
    codes = random_codes(np.random.default_rng(0), 5)
    index = filled_index(codes)
    D, I, R = index.search_and_reconstruct(codes, 6)
    assert_same((D, I), index.search(codes, 6))
    assert R.shape == (5, 6, 32)
    np.testing.assert_array_equal(R[:, :5], codes.to_vectors()[I[:, :5]])
    assert np.isnan(R[:, 5]).all()


def test_attributes_are_those_of_a_faiss_index():
    index = filled_index(random_codes(np.random.default_rng(0), 7))
    assert (index.d, index.ntotal, len(index)) == (32, 7, 7)
    assert index.is_trained
    assert index.metric_type == faiss.METRIC_INNER_PRODUCT
    assert not index.verbose
    index.train(np.arange(96.0).reshape(3, 32) * 1e6)  # any vectors: there is nothing to learn or to round
    with pytest.raises(ValueError, match=r"shape \(n, 32\)"):
        index.train(np.ones((3, 31)))


def test_factory_makes_indexes_from_descriptions():
    for made in (
        index_factory("IDMap2,CCCF8x16", 64),
        index_factory(64, "IDMap,CCCF8x16"),
    ):
        assert (made.n_components, made.n_bits, made.d, made.scale, made.is_trained) == (8, 16, 64, "auto", False)
    made = index_factory("CCCF8x16", scale=50)
    assert (made.n_components, made.n_bits, made.d, made.scale, made.is_trained) == (8, 16, 128, 50, True)
    for wrong in ("PQ8", "CCCF8", "CCCF8x16,Flat", "cccf8x16", "", None, 8):
        with pytest.raises(ValueError, match="description"):
            index_factory(wrong)
    with pytest.raises(ValueError, match="`d` must be an integer from 1"):
        index_factory("CCCF8x16", 0)
    with pytest.raises(ValueError, match="n_components"):
        index_factory("CCCF65x16")
    with pytest.raises(ValueError, match="INNER_PRODUCT"):
        index_factory(128, "CCCF8x16", faiss.METRIC_L2)


def test_the_number_of_threads_is_the_one_of_faiss_unless_given(monkeypatch):
    codes = random_codes(np.random.default_rng(0), 2000, density=0.5)
    index = filled_index(codes)
    before = faiss.omp_get_max_threads()
    results, used = [], []

    def counting(work, n, n_threads, **options):
        used.append(n_threads)
        run_chunks(work, n, n_threads, **options)

    run_chunks = _threads.run_chunks
    monkeypatch.setattr(_threads, "run_chunks", counting)
    try:
        for threads in (1, 3):
            faiss.omp_set_num_threads(threads)
            results.append(index.search(codes[:200], 10))
        index.search(codes[:200], 10, params=SearchParametersCCCF(num_threads=2))
    finally:
        faiss.omp_set_num_threads(before)
    assert_same(*results)
    assert used == [1, 3, 2]


def test_k_far_above_ntotal_costs_no_more_than_its_padding():
    codes = random_codes(np.random.default_rng(0), 10)
    D, I = filled_index(codes).search(codes, 10**6)
    assert (np.sort(I[:, :10]) == np.arange(10)).all()
    assert (I[:, 10:] == -1).all()
    assert (D[:, 10:] == LOWEST).all()


X = np.ones((2, 32))


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (ValueError, "`k` must be an integer >= 1, got 0", lambda ix: ix.search(X, 0)),
        (ValueError, "`k` must be an integer >= 1, got -3", lambda ix: ix.search(X, np.int64(-3))),
        (TypeError, "`k` must be an integer", lambda ix: ix.search(X, 2.0)),
        (TypeError, "`k` must be an integer", lambda ix: ix.search(X, True)),
        (TypeError, "`k` must be an integer", lambda ix: ix.search(X, "3")),
        (ValueError, r"shape \(n, 32\), got \(32,\). For one vector pass `x\[None\]`", lambda ix: ix.search(X[0], 1)),
        (ValueError, r"got \(32,\). For one vector pass `\[x\]`", lambda ix: ix.search([1.0] * 32, 1)),
        (ValueError, r"shape \(n, 32\), got \(\)", lambda ix: ix.search(3, 1)),
        (ValueError, "rectangular", lambda ix: ix.search([[1, 2], [3]], 1)),
        (TypeError, r"real numbers, got csr_matrix. Pass its `toarray\(\)`", lambda ix: ix.search(sparse.csr_matrix(X), 1)),
        (ValueError, r"shape \(n, 0\), got \(\)", lambda ix: IndexCCCF(4, 8, quantizer=CompositionalQuantizer(4, 8)).train(3)),
        (ValueError, r"shape \(n, 32\), got \(2, 31\)", lambda ix: ix.search(X[:, 1:], 1)),
        (ValueError, "finite", lambda ix: ix.search(X * np.nan, 1)),
        (ValueError, "finite", lambda ix: ix.search(X * np.inf, 1)),
        (ValueError, r"at most 1e\+16 in size, got 1e\+20", lambda ix: ix.search(X * 1e20, 1)),
        (ValueError, "at row 1, component", lambda ix: ix.search([np.arange(32), np.full(32, 1e6)], 1)),
        (TypeError, "real numbers", lambda ix: ix.search(X.astype(complex), 1)),
        (TypeError, "real numbers", lambda ix: ix.search(X.astype(str), 1)),
        (ValueError, "codes of 4x8 bits, got 2x8", lambda ix: ix.search(random_codes(np.random.default_rng(0), 1, 2, 8), 1)),
        (ValueError, "at most 8388607 after scaling", lambda ix: ix.search(X * 1e6, 1)),
        (TypeError, "`D` must be a numpy array of float32, got float64", lambda ix: ix.search(X, 1, D=np.empty((2, 1)))),
        (ValueError, r"`I` must be writable and of shape \(2, 1\)", lambda ix: ix.search(X, 1, I=np.empty((2, 2), np.int64))),
        (TypeError, "`params` must be SearchParametersCCCF", lambda ix: ix.search(X, 1, params={"sel": None})),
        (TypeError, "got the class SearchParametersCCCF", lambda ix: ix.search(X, 1, params=SearchParametersCCCF)),
        (TypeError, "got SearchParametersIVF.*max_items", lambda ix: ix.search(X, 1, params=faiss.SearchParametersIVF(nprobe=4))),
        (TypeError, "got SearchParametersHNSW", lambda ix: ix.range_search(X, 1, params=faiss.SearchParametersHNSW())),
        (ValueError, "one row for each of the 2 queries", lambda ix: ix.search(X, 1, exclude=sparse.csr_matrix((3, 3)))),
        (TypeError, "`allow` must be integers", lambda ix: ix.search(X, 1, allow=[0.5])),
        (ValueError, "`allow` must be int64 up to .* and not -1", lambda ix: ix.search(X, 1, allow=[-1])),
        (TypeError, r"dtype bool. For a mask pass `index.ids\[mask\]`", lambda ix: ix.remove_ids(np.ones(5, bool))),
        (TypeError, "`allow` must be integers, got set", lambda ix: ix.search(X, 1, allow={1, 2})),
        (TypeError, "`thresh` must be a number, got '3'", lambda ix: ix.range_search(X, "3")),
        (ValueError, "from_signs", lambda ix: ix.search(np.ones((2, 4, 8)), 1)),
        (TypeError, "`scale` must be an integer from 1 to 1073741824, \"auto\" or None", lambda ix: IndexCCCF(4, 8, 100.0)),
        (TypeError, r"n_components \* n_bits. For codes with d = 128 write IndexCCCF\(8, 16\)", lambda ix: IndexCCCF(128)),
        (TypeError, r"`n_bits` must be given, got only 64.*IndexCCCF\(4, 16\)", lambda ix: IndexCCCF(64)),
        (ValueError, r"`n_components` must be .* from 1 to 64, got 128\. .*IndexCCCF\(8, 16\)", lambda ix: IndexCCCF(128, 0)),
        (ValueError, "got nan", lambda ix: ix.range_search(X, np.nan)),
        (ValueError, "num_threads", lambda ix: SearchParametersCCCF(num_threads=-1)),
        (ValueError, "`scale` must be", lambda ix: IndexCCCF(4, 8, scale="big")),
        (TypeError, "`scale` must be an integer", lambda ix: IndexCCCF(4, 8, scale=0.5)),
        (ValueError, "`scale` must be an integer", lambda ix: IndexCCCF(4, 8, scale=0)),
        (ValueError, "n_components", lambda ix: IndexCCCF(0, 8)),
        (ValueError, "n_bits", lambda ix: IndexCCCF(1, 513)),
    ],
)  # fmt: skip
def test_bad_input_is_explained(error, words, call):
    index = filled_index(random_codes(np.random.default_rng(0), 5))
    with pytest.raises(error, match=words):
        call(index)
