import numpy as np
import pytest
from helpers import filled_index, random_codes
from scipy import sparse

from cccf_index import CompositionalCodes, IndexCCCF, IndexRefineCCCF, comparison, inspection, plots, race
from cccf_index.comparison import (
    EFFORTS,
    build_binary,
    build_cccf,
    build_flat,
    build_hnsw,
    build_ivf,
    build_pq,
    drop_seen,
    measure_recall,
    time_method,
)
from cccf_index.inspection import inspect_index
from cccf_index.plots import plot_comparison, plot_demo, plot_inspection


def test_groups_sparsity_and_bytes_are_those_of_the_items():
    codes = random_codes(np.random.default_rng(0), 3000, density=0.5)
    index = filled_index(codes)
    index.remove_ids(np.arange(10))
    report = inspect_index(index, codes[:20])
    assert (report["items"], report["deleted"]) == (2990, 10)
    assert report["sparsity"] == pytest.approx(codes[10:].sparsity)
    assert (
        report["items by active components"] == np.bincount((codes[10:].weights > 0).sum(axis=1), minlength=5).tolist()
    )
    assert sum(group["items"] for group in report["groups"]) == 2990
    parts = report["bytes per item"]
    assert sum(parts.values()) == pytest.approx(2 * parts["total"])
    assert min(parts.values()) >= 0
    active = codes.weights[10:] > 0
    expected = codes.weights[10:].sum(axis=0) / active.sum(axis=0)
    np.testing.assert_allclose(report["mean weight where active"], expected, rtol=1e-5)


def test_a_refined_index_shows_its_codes_and_the_storage_of_its_vectors():
    rng = np.random.default_rng(0)
    items, users = rng.standard_normal((500, 12)).astype(np.float32), rng.standard_normal((60, 12)).astype(np.float32)
    index = IndexCCCF.from_embeddings(items, users, 2, 8, verbose=False)
    refined = IndexRefineCCCF(index, items, k_factor=3, storage="int8")
    plain, report = inspect_index(index, users), inspect_index(refined, users)
    assert report["vectors"] == {"storage": "int8", "dimensions": 12, "k_factor": 3.0}
    sizes = report["bytes per item"]
    assert sizes["vectors"] == pytest.approx(16)
    assert sizes["total"] == pytest.approx(plain["bytes per item"]["total"] + 16) == refined.nbytes / 500
    assert {**report, "bytes per item": 0, "vectors": 0} == {**plain, "bytes per item": 0, "vectors": 0}
    of_codes = IndexRefineCCCF(filled_index(random_codes(rng, 500)), items)
    assert inspect_index(of_codes, users)["share not pruned"] == []


@pytest.mark.parametrize("scale", [100, None])
def test_no_item_of_the_answer_lies_where_the_bounds_rule_it_out(scale):
    rng = np.random.default_rng(1)
    codes = random_codes(rng, 2000, n_components=8, n_bits=16, density=1, levels=60)
    index = filled_index(codes, scale=scale)
    left = inspect_index(index, codes[:50], k=5)["share not pruned"]
    assert len(left) == 50
    assert all(5 / 2000 <= share <= 1 for share in left)
    real = inspect_index(index, rng.standard_normal((30, 128)).astype(np.float32), k=5)["share not pruned"]
    assert all(5 / 2000 <= share <= 1 for share in real)


def test_bounds_leave_few_items_where_one_is_far_better_than_the_rest():
    rng = np.random.default_rng(2)
    codes = random_codes(rng, 20_000, n_components=4, n_bits=16, density=1, levels=1)
    weights = codes.weights.copy()
    weights[:5] = 5
    index = filled_index(CompositionalCodes(codes.bits, weights, 16))
    assert np.mean(inspect_index(index, codes[:1], k=1)["share not pruned"]) < 0.02


def test_an_index_of_vectors_and_an_empty_one_are_inspected():
    rng = np.random.default_rng(3)
    users, items = rng.standard_normal((60, 16)).astype(np.float32), rng.standard_normal((500, 16))
    index = IndexCCCF.from_embeddings(items, users, 4, 8, verbose=False)
    assert all(10 / 500 <= share <= 1 for share in inspect_index(index, users)["share not pruned"])
    empty = inspect_index(IndexCCCF(4, 8))
    assert (empty["items"], empty["groups"], empty["share not pruned"]) == (0, [], [])


@pytest.mark.slow
def test_figures_are_drawn(tmp_path):
    codes = random_codes(np.random.default_rng(0), 500, density=0.5)
    plot_inspection(inspect_index(filled_index(codes), codes[:20]), tmp_path / "index.png")
    plot_inspection(inspect_index(filled_index(codes)), tmp_path / "bytes.png")
    rows = [
        {"name": name, "catalogue NDCG@10": ndcg, "queries per second": speed, "bytes per item": speed}
        for name, ndcg, speed in (("popularity", 0.125, None), ("dots", 0.5, 10.0), ("ours", 0.25, 123.0))
    ]
    plot_demo(rows, tmp_path / "demo.svg")
    results = {
        "a": {"family": "a", "recall": 0.5, "batch, us": 3.0},
        "b": {"family": "CCCF", "recall": 1.0, "batch, us": 1.0},
    }
    plot_comparison(results, tmp_path / "comparison.png")
    for name in ("index.png", "bytes.png", "comparison.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    drawn = (tmp_path / "demo.svg").read_text()  # matplotlib keeps texts as comments beside their outlines
    for text in (
        "NDCG@10 of the whole catalogue",
        "popularity: NDCG 0.125",
        "NDCG 0.250, 123 queries/s, 123 bytes/item",
    ):
        assert f"<!-- {text} -->" in drawn


def test_methods_find_what_dot_products_find():
    rng = np.random.default_rng(4)
    items, users = (rng.standard_normal((n, 32)).astype(np.float32) for n in (2000, 40))
    exact = next(build_flat(items, users)).search(slice(None), 10, 1)
    least = np.einsum("qd,qd->q", users, items[exact[:, -1]])
    index = IndexCCCF.from_embeddings(items, users, verbose=False)
    found = {}
    for build in (build_flat, build_pq, build_ivf, build_hnsw):
        for method in build(items, users):
            found[method.name] = measure_recall(method.search(slice(None), 10, 2), users, items, least)
    for method in build_cccf(index, users, 10, vectors=True):
        found[method.name] = measure_recall(method.search(slice(None), 10, 1), users, items, least)
    assert found["IndexFlatIP"] == 1
    assert found[f"IndexHNSWFlat(M=32), efSearch={EFFORTS[-1]}"] > 0.9
    assert found["CCCF 8x16, real-valued queries"] > 0.7
    assert all(0 < value <= 1 for value in found.values())
    figures = time_method(next(build_flat(items, users)), len(users), 10)
    assert set(figures) == {"batch, us", "one query, us", "batch on two threads, us"}
    assert all(value > 0 for value in figures.values())


def test_recall_refuses_an_item_that_is_returned_twice():
    items = np.eye(3, dtype=np.float32)
    with pytest.raises(AssertionError, match="twice"):
        measure_recall(np.array([[0, 0]]), items[:1], items, np.zeros(1, np.float32))
    assert measure_recall(np.array([[0, -1]]), items[:1], items, np.zeros(1, np.float32)) == 0.5


def test_unseen_items_keep_their_order():
    seen = sparse.csr_matrix(np.array([[0, 1, 0, 1], [0, 0, 0, 0]]))
    assert drop_seen(np.array([[3, 2, 1, 0], [3, -1, 1, 0]]), seen, 3).tolist() == [[2, 0, -1], [3, 1, 0]]


def test_binary_codes_are_found_by_distance():
    codes = CompositionalCodes.from_signs(np.where(np.arange(8) < np.array([[[0]], [[8]], [[4]]]), 1, -1))
    assert build_binary(codes, codes, "x").search(slice(None), 1, 1).ravel().tolist() == [0, 1, 2]


def test_former_names_are_the_same_objects():
    assert len(race.__all__) == 23
    assert all(hasattr(race, name) for name in race.__all__)
    assert race.timed is comparison.time_method
    assert race.unseen is comparison.drop_seen
    assert race.recall_by_scores is comparison.measure_recall
    assert race.PATIENCE == comparison.TIME_BUDGET
    assert inspection.inspected is inspection.inspect_index
    assert plots.plot_race is plots.plot_comparison
