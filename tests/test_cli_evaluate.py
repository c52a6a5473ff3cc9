"""``cccf evaluate`` and ``cccf demo`` through the installed script: what they say about a model, and about popularity."""

import json
import re

import numpy as np
import pytest
from cli_helpers import SMALL, assert_one_line, cccf, listed
from scipy import sparse

from cccf_index.baselines import Popularity
from cccf_index.cli._files import ModelFolder, align_ratings, read_split
from cccf_index.cli.evaluate import warn_of_popularity
from cccf_index.datasets import read_ratings
from cccf_index.datasets.ratings import find_places
from cccf_index.evaluation import catalogue_ndcg, choose_threshold, coverage, rated_ndcg, recall
from cccf_index.models import MF

SHARE = "share of users with the top item"


def read_parts(folder):
    """The model of a folder, and its training and held-out ratings in the model's rows."""
    kept = ModelFolder.read(folder)
    shape = (len(kept.user_ids), len(kept.item_ids))
    parts = (
        align_ratings(part, find_places(kept.user_ids, part.user_ids), find_places(kept.item_ids, part.item_ids), shape)
        for part in read_split(folder)
    )
    return kept.model, *parts


def assert_figures(figures, model, train, test, cuts, length):
    threshold = choose_threshold(test)
    np.testing.assert_allclose(figures["rated NDCG"], rated_ndcg(model, test, cuts))
    np.testing.assert_allclose(
        figures["catalogue NDCG"], catalogue_ndcg(model, test, cuts, train=train, threshold=threshold)
    )
    np.testing.assert_allclose(figures["recall"], recall(model, test, cuts, train=train, threshold=threshold))
    distinct, share = coverage(model, length, train=train)
    assert figures["coverage"] == {"list length": length, "distinct items": distinct, SHARE: share}


def test_evaluate_agrees_with_the_library_for_the_model_and_for_popularity(folder):
    figures = json.loads(cccf("evaluate", "model", "-k", "3,7,20", "--json", cwd=folder).stdout)
    model, train, test = read_parts(folder / "model")
    assert_figures(figures, model, train, test, [3, 7, 20], 7)
    assert_figures(figures["popularity"], Popularity().fit(train), train, test, [3, 7, 20], 7)
    files = ["model/test.npz", "--exclude-seen", "model/train.npz", "-k", "3,7,20", "--json"]
    assert json.loads(cccf("evaluate", "model", *files, cwd=folder).stdout) == figures
    served = json.loads(cccf("evaluate", "items.cccf", *files, cwd=folder).stdout)
    for ours, other in ((served, figures), (served["popularity"], figures["popularity"])):
        assert all(ours[key] == other[key] for key in ("catalogue NDCG", "recall", "coverage"))
        assert "rated NDCG" not in ours  # an index has no predictions of ratings


def test_evaluate_shows_popularity_below_the_model_in_both_protocols_and_in_coverage(folder):
    out = cccf("evaluate", "model", "-k", "10", "--quiet", cwd=folder).stdout
    table, below = out.split("\n\n")
    names = [re.split("  +[0-9]", line)[0] for line in table.splitlines()[1:]]
    assert names == ["rated NDCG", "  popularity", "catalogue NDCG", "  popularity", "recall", "  popularity"]
    assert re.search(r"Top 10 of all users: \d+ of 90 items, the most recommended one for \d+ % of the users\.", below)
    assert re.search(r"Popularity: \d+ of 90 items, the most recommended one for \d+ % of the users\.", below)


def test_popularity_is_counted_in_the_ratings_that_the_model_was_trained_on(folder):
    (folder / "few.csv").write_text("user-1,1000,5\n")
    words = ["evaluate", "model", "model/test.npz", "--json"]
    counted = json.loads(cccf(*words, "--exclude-seen", "few.csv", cwd=folder).stdout)["popularity"]
    _, train, test = read_parts(folder / "model")
    np.testing.assert_allclose(counted["rated NDCG"], rated_ndcg(Popularity().fit(train), test, [2, 4, 6, 8, 10]))
    assert json.loads(cccf(*words, cwd=folder).stdout)["popularity"]["rated NDCG"] == counted["rated NDCG"]


def test_popularity_is_left_out_without_training_ratings_and_the_option_that_helps_is_named(folder):
    run = cccf("evaluate", "items.cccf", "ratings.csv", cwd=folder)
    assert "Popularity is left out: items.cccf has no training ratings" in run.stderr
    assert "--exclude-seen RATINGS" in run.stderr
    assert "popularity" not in run.stdout.lower()
    figures = json.loads(cccf("evaluate", "items.cccf", "ratings.csv", "--json", cwd=folder).stdout)
    assert (figures["popularity"], figures["warning"]) == (None, None)
    (folder / "others.csv").write_text("nobody,nothing,5\n")
    run = cccf("evaluate", "items.cccf", "ratings.csv", "--exclude-seen", "others.csv", cwd=folder)
    assert "Popularity is left out: no training rating matches" in run.stderr


def write_model(folder, better):
    """Write a model that ranks three popular items last, or first, and ratings that hold them out."""
    rng = np.random.default_rng(0)
    train = (rng.random((40, 30)) < 0.1).astype(float)
    train[:20, :3] = 1
    train[20:, :3] = 0
    test = np.zeros_like(train)
    test[20:, :3] = 5
    ratings = read_ratings(folder / "ratings.csv")
    names = ratings.user_ids[:40], ratings.item_ids[:30]
    factors = np.where(np.arange(30) < 3, 1.0, 0.0) * (1 if better else -1) + rng.random(30) / 10
    for name, matrix in (("train", train), ("test", test)):
        pairs = sparse.coo_matrix(matrix)
        user, item = names[0][pairs.row], names[1][pairs.col]
        np.savez(folder / f"{name}.npz", user=user, item=item, rating=pairs.data)
    (folder / "made").mkdir()
    ModelFolder(MF.from_factors(np.ones((40, 1)), factors[:, None]), *names).write(str(folder / "made"))


@pytest.mark.parametrize("better", [True, False])
def test_evaluate_warns_if_popularity_ranks_better(better, folder):
    write_model(folder, better)
    words = ["evaluate", "made", "test.npz", "--exclude-seen", "train.npz"]
    out = cccf(*words, "--quiet", cwd=folder).stdout
    figures = json.loads(cccf(*words, "--json", cwd=folder).stdout)
    assert (figures["catalogue NDCG"][-1] >= figures["popularity"]["catalogue NDCG"][-1]) == better
    assert (figures["warning"] is None) == better
    assert (
        "Popularity ranks better (1.000 against 0.000): train with the default objective" in out.splitlines()[-1]
    ) != better


def test_the_warning_says_by_how_much_and_what_to_do():
    assert warn_of_popularity(0.3, 0.2, "do this") is None
    assert warn_of_popularity(0.2, 0.2, "do this") is None
    assert warn_of_popularity(0.0661, 0.2123, "do this") == "Popularity ranks better (0.212 against 0.066): do this."


def test_evaluate_without_held_out_ratings_says_what_to_do(folder):
    cccf("train", "ratings.csv", *SMALL, "-o", "m", cwd=folder)
    assert_one_line(cccf("evaluate", "m", cwd=folder, code=1), "--test-size")


def write_rescaled(folder, low, high):
    """Write the ratings on another scale."""
    ratings = read_ratings(folder / "ratings.csv")
    matrix = ratings.user_items.tocoo()
    values = low + (matrix.data - 1) / 4 * (high - low)
    np.savez(folder / "scaled.npz", user=ratings.user_ids[matrix.row], item=ratings.item_ids[matrix.col], rating=values)


@pytest.mark.parametrize(("low", "high", "rated"), [(1, 3, True), (-2, 2, False), (0, 100_000, False)])
def test_ratings_of_any_scale_can_be_evaluated(low, high, rated, folder):
    write_rescaled(folder, low, high)
    cccf("train", "scaled.npz", "--model", "mf", "--factors", "4", "--test-size", "0.3", "-o", "m", cwd=folder)
    figures = json.loads(cccf("evaluate", "m", "--json", cwd=folder).stdout)
    assert ("rated NDCG" in figures) == ("rated NDCG" in figures["popularity"]) == rated
    assert 0 < figures["catalogue NDCG"][-1] < 1


@pytest.mark.slow
def test_the_demo_is_faster_than_dot_products_and_ranks_as_well_and_better_than_popularity(tmp_path):
    run = cccf("demo", "--json", "--quiet", cwd=tmp_path)
    result = json.loads(run.stdout)
    assert result["items"] >= 10_000
    assert result["faster than IndexFlatIP"] > 2  # how much is for benchmarks
    assert result["NDCG against MF"] > -0.03
    popular, mf, dcf, ours = result["rows"]
    assert ours["catalogue NDCG@10"] > 0.95 * mf["catalogue NDCG@10"]
    assert ours["catalogue NDCG@10"] > 1.5 * popular["catalogue NDCG@10"] > 0.02
    assert ours["catalogue NDCG@10"] > dcf["catalogue NDCG@10"]
    assert result["warning"] is None
    assert ours["distinct items"] > 10 * popular["distinct items"]
    assert ours[SHARE] < popular[SHARE]
    assert ours["bytes per item"] < 32
    assert mf["bytes per item"] > 250
    assert ours["queries per second"] > mf["queries per second"]
    made = tmp_path / "cccf-demo"
    assert listed(made) == ["demo.json", "demo.png", "items.cccf", "model", "recs.csv"]
    assert len((made / "recs.csv").read_text().splitlines()) == 10 * result["users"] + 1
    assert (made / "demo.png").stat().st_size > 10_000


def test_the_demo_runs_on_ratings_of_ones_own_and_never_replaces_anything(folder):
    for name in ("cccf-demo", "cccf-demo-2"):
        out = cccf("demo", "--ratings", "ratings.csv", "--threads", "1", cwd=folder).stdout
        rows = {line.split()[0].rstrip(","): line.split() for line in out.splitlines()[1:6] if line}
        assert list(rows)[1:] == ["popularity", "MF", "DCF", "CCCF"]
        assert len(rows["popularity"]) == 3  # a name and two accuracies
        width = int(re.search(r"MF, IndexFlatIP\((\d+)\)", out)[1])
        assert int(rows["MF"][-1]) == 4 * width
        for who in ("CCCF", "popularity"):
            assert re.search(rf"Top 10 of all users by {who}: \d+ of 90 items, the most recommended one for \d+ %", out)
        assert f"cccf search {name}/items.cccf --users user-0,user-1" in out
        result = json.loads((folder / name / "demo.json").read_text())
        assert result["items"] == 90
        assert (result["warning"] is not None) == ("Popularity ranks better" in out)
        ratios = [row["catalogue NDCG@10"] for row in result["rows"]]
        assert result["catalogue NDCG against MF"] == pytest.approx(ratios[-1] / ratios[1] - 1)
        assert result["catalogue NDCG against popularity"] == pytest.approx(ratios[-1] / ratios[0] - 1)


def test_the_demo_takes_ratings_of_any_scale(folder):
    write_rescaled(folder, -2, 2)
    result = json.loads(cccf("demo", "--ratings", "scaled.npz", "--json", "--quiet", cwd=folder).stdout)
    assert all(0 <= row["NDCG@10"] <= 1 for row in result["rows"])


def test_the_demo_takes_interactions_without_ratings(folder):
    lines = (folder / "ratings.csv").read_text().splitlines()
    (folder / "clicks.csv").write_text("\n".join(line.rsplit(",", 1)[0] for line in lines))
    result = json.loads(cccf("demo", "--ratings", "clicks.csv", "--json", "--quiet", cwd=folder).stdout)
    assert [row["name"].split(",")[0] for row in result["rows"]] == [
        "popularity",
        "MF",
        "CCCF 8x16",
    ]  # DCF needs ratings
    assert all("rated NDCG@10" not in row and 0 <= row["catalogue NDCG@10"] <= 1 for row in result["rows"])
    assert result["NDCG against MF"] == result["catalogue NDCG against MF"]
