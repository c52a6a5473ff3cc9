"""The command line, end to end through the installed script."""

import csv
import json
import os
import pathlib
import re
import subprocess
from importlib.metadata import version

import numpy as np
import pytest
from cli_helpers import SCRIPT, SMALL, TIMEOUT, assert_one_line, cccf, listed

import cccf_index as ci
from cccf_index.catalogue import Catalogue
from cccf_index.cli._files import ModelFolder, align_ratings, choose_threshold, read_split
from cccf_index.datasets import read_ratings, synthetic_ratings
from cccf_index.datasets.ratings import find_places
from cccf_index.evaluation import catalogue_ndcg, rated_ndcg
from cccf_index.models import load

COMMANDS = ("demo", "train", "build", "search", "recommend", "evaluate", "inspect", "bench")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(command, tmp_path):
    out = cccf(command, "--help", cwd=tmp_path).stdout
    assert f"cccf {command}" in out.split("examples:")[1]
    assert "--threads" in out


def test_the_command_without_arguments_is_wrong_usage(tmp_path):
    assert "COMMAND" in cccf(cwd=tmp_path, code=2).stderr
    assert cccf("--version", cwd=tmp_path).stdout == f"cccf-index {version('cccf-index')}\n"


def test_search_returns_what_the_model_recommends_by_the_names_of_the_data(folder):
    run = cccf("search", "items.cccf", "--users", "user-7,user-3", "-k", "5", "--json", cwd=folder)
    model, ratings = load(folder / "model" / "model.cccf"), read_ratings(folder / "ratings.csv")
    rows = ratings.user_rows(["user-7", "user-3"])
    scores, items = model.recommend(rows, 5)
    for row, found in enumerate(json.loads(run.stdout)):
        assert found["user"] == ("user-7", "user-3")[row]
        assert found["items"] == ratings.item_ids[items[row]].tolist()
        np.testing.assert_allclose(found["scores"], scores[row], rtol=1e-5)


def test_search_prints_a_line_for_each_item_and_leaves_out_what_was_seen(folder):
    run = cccf("search", "items.cccf", "--users", "user-7", "-k", "90", "--exclude-seen", "ratings.csv", cwd=folder)
    lines = [line.split() for line in run.stdout.splitlines()]
    assert lines[0] == ["user", "rank", "item", "score"]
    ratings = read_ratings(folder / "ratings.csv")
    seen = ratings.item_ids[ratings.user_items[ratings.user_rows(["user-7"])[0]].indices]
    assert {int(line[2]) for line in lines[1:]} == set(ratings.item_ids.tolist()) - set(seen.tolist())


def test_search_takes_users_from_a_file(folder):
    (folder / "who.txt").write_text("user-7\nuser-3\n")
    cited = cccf("search", "items.cccf", "--users", "user-7,user-3", cwd=folder).stdout
    assert cccf("search", "items.cccf", "--users", "@who.txt", cwd=folder).stdout == cited


def test_search_of_an_unknown_user_says_who_and_shows_known_ones(folder):
    run = cccf("search", "items.cccf", "--users", "user-1,nobody", cwd=folder, code=1)
    assert_one_line(run, "--users must be ids of users in items.cccf, got 'nobody'", "such as user-", "there are 120.")
    assert_one_line(cccf("search", "model", "--users", "1", cwd=folder, code=1), "cccf build model")
    run = cccf("search", "vectors.cccf", "--users", "ann", cwd=folder, code=1)
    assert_one_line(run, "got 'ann'. Known ids are such as 0, 1, 2; there are 50.")


def test_an_index_of_embeddings_is_searched_by_rows_and_agrees_with_the_library(folder):
    found = json.loads(cccf("search", "vectors.cccf", "--users", "4,2", "-k", "3", "--json", cwd=folder).stdout)
    index = ci.IndexCCCF.from_embeddings(np.load(folder / "items.npy"), np.load(folder / "users.npy"), verbose=False)
    assert [row["items"] for row in found] == index.search(np.load(folder / "users.npy")[[4, 2]], 3)[1].tolist()
    np.testing.assert_array_equal(ci.read_index(folder / "vectors.cccf").reconstruct_n(), index.reconstruct_n())


def test_an_index_of_embeddings_takes_names(folder):
    (folder / "names.txt").write_text("\n".join(f"söng {i}" for i in range(400)) + "\n", encoding="utf-8")
    command = ["build", "--embeddings", "items.npy", "--queries", "users.npy", "--item-ids", "names.txt"]
    cccf(*command, "-o", "named.cccf", cwd=folder)
    plain = json.loads(cccf("search", "vectors.cccf", "--users", "4", "--json", cwd=folder).stdout)
    named = json.loads(cccf("search", "named.cccf", "--users", "4", "--json", cwd=folder).stdout)
    assert named[0]["items"] == [f"söng {i}" for i in plain[0]["items"]]
    (folder / "names.txt").write_text("one\ntwo\n")
    assert_one_line(cccf(*command, "-o", "x.cccf", cwd=folder, code=1), "names.txt", "400")


def test_factors_of_mf_become_codes(folder):
    cccf("train", "ratings.csv", "--model", "mf", "--factors", "8", "-o", "mf", cwd=folder)
    cccf("build", "mf", "--components", "4", "--bits", "8", "-o", "mf.cccf", cwd=folder)
    index = ci.read_index(folder / "mf.cccf")
    assert (index.n_components, index.n_bits, index.d) == (4, 8, 8)
    model = load(folder / "mf" / "model.cccf")
    found = json.loads(cccf("search", "mf.cccf", "--users", "user-5", "-k", "3", "--json", cwd=folder).stdout)[0]
    user = read_ratings(folder / "ratings.csv").user_rows(["user-5"])
    assert abs(found["scores"][0] - model.recommend(user, 1)[0][0, 0]) < 0.5


@pytest.mark.parametrize("model", ["dcf", "bccf", "dcmf", "cccf"])
def test_every_model_can_be_trained_and_served(model, folder):
    options = ["--set", "max_iter=2"] if model != "cccf" else ["--weights", "kernel", "--bandwidth", "0.7"]
    if model == "dcmf":
        ratings = read_ratings(folder / "ratings.csv")
        lines = [f"{item},{'even' if item % 2 else 'odd'}" for item in ratings.item_ids[:-3]]
        (folder / "features.csv").write_text("item,feature\n" + "\n".join(lines) + "\n")
        options += ["--item-features", "features.csv"]
    run = cccf("train", "ratings.csv", "--model", model, "--bits", "8", *options, "-o", "m", "--json", cwd=folder)
    assert json.loads(run.stdout)["users"] == 120
    cccf("build", "m", "-o", "m.cccf", cwd=folder)
    assert len(cccf("search", "m.cccf", "--users", "user-1", "-k", "4", cwd=folder).stdout.splitlines()) == 5


def test_an_option_that_a_model_has_no_use_for_is_an_error(folder):
    command = ["train", "ratings.csv", "--model", "dcf", "-o", "m"]
    assert_one_line(cccf(*command, "--components", "4", cwd=folder, code=1), "--components", "dcf")
    assert_one_line(cccf(*command, "--set", "nonsense=1", cwd=folder, code=1), "nonsense")
    assert_one_line(cccf("build", "model", "--bits", "8", "-o", "x", cwd=folder, code=1), "--bits")
    assert "--queries" in cccf("build", "model", "--queries", "users.npy", "-o", "x", cwd=folder, code=2).stderr
    assert "m" not in listed(folder)


def test_an_unknown_model_is_wrong_usage_that_names_the_known_ones(folder):
    run = cccf("train", "ratings.csv", "--model", "svd", "-o", "m", cwd=folder, code=2)
    assert "svd" in run.stderr
    assert "bccf" in run.stderr


def test_recommendations_of_all_users_are_those_of_search(folder):
    run = cccf(
        "recommend",
        "items.cccf",
        "-k",
        "4",
        "--exclude-seen",
        "ratings.csv",
        "--chunk",
        "50",
        "-o",
        "recs.csv",
        cwd=folder,
    )
    assert "120 users" in run.stdout
    with open(folder / "recs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 480
    assert "recs.csv.parts" not in listed(folder)
    found = json.loads(
        cccf(
            "search",
            "items.cccf",
            "--users",
            "user-7",
            "-k",
            "4",
            "--exclude-seen",
            "ratings.csv",
            "--json",
            cwd=folder,
        ).stdout
    )[0]
    own = [row for row in rows if row["user"] == "user-7"]
    assert [int(row["item"]) for row in own] == found["items"]
    assert [row["rank"] for row in own] == ["1", "2", "3", "4"]
    np.testing.assert_allclose([float(row["score"]) for row in own], found["scores"], rtol=1e-5)


def test_recommendations_as_parquet_are_those_of_csv(folder):
    import pyarrow.parquet

    for name in ("recs.csv", "recs.parquet"):
        cccf("recommend", "items.cccf", "-k", "4", "--chunk", "50", "-o", name, cwd=folder)
    table = pyarrow.parquet.read_table(folder / "recs.parquet")
    with open(folder / "recs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert table.column_names == ["user", "rank", "item", "score"]
    assert table["item"].to_pylist() == [int(row["item"]) for row in rows]
    assert table["user"].to_pylist() == [row["user"] for row in rows]


def test_evaluate_agrees_with_the_library(folder):
    figures = json.loads(cccf("evaluate", "model", "-k", "3,10", "--json", cwd=folder).stdout)
    kept = ModelFolder.read(folder / "model")
    shape = (120, len(kept.item_ids))
    threshold = choose_threshold(read_split(folder / "model")[1].user_items.data)
    train, test = (
        align_ratings(part, find_places(kept.user_ids, part.user_ids), find_places(kept.item_ids, part.item_ids), shape)
        for part in read_split(folder / "model")
    )
    np.testing.assert_allclose(figures["rated NDCG"], rated_ndcg(kept.model, test, [3, 10]))
    np.testing.assert_allclose(
        figures["catalogue NDCG"], catalogue_ndcg(kept.model, test, [3, 10], train=train, threshold=threshold)
    )
    files = ["model/test.npz", "--exclude-seen", "model/train.npz", "-k", "3,10", "--json"]
    assert json.loads(cccf("evaluate", "model", *files, cwd=folder).stdout) == figures
    served = json.loads(cccf("evaluate", "items.cccf", *files, cwd=folder).stdout)
    assert served["catalogue NDCG"] == figures["catalogue NDCG"]
    assert served["recall"] == figures["recall"]


def test_evaluate_without_held_out_ratings_says_what_to_do(folder):
    cccf("train", "ratings.csv", *SMALL, "-o", "m", cwd=folder)
    assert_one_line(cccf("evaluate", "m", cwd=folder, code=1), "--test-size")


def test_inspect_tells_and_draws(folder):
    out = cccf("inspect", "items.cccf", "--plot", "items.png", cwd=folder).stdout
    assert "90" in out
    assert "not pruned by the bounds" in out
    assert "bytes per item: total" in out
    assert (folder / "items.png").read_bytes().startswith(b"\x89PNG")
    seen = json.loads(cccf("inspect", "vectors.cccf", "--json", cwd=folder).stdout)
    assert seen["items"] == 400
    assert sum(group["items"] for group in seen["groups"]) == 400


def test_bench_compares_an_index_and_embeddings(folder):
    cccf("bench", "items.cccf", "--plot", "bench.png", "-o", "bench.json", "--quiet", cwd=folder)
    methods = json.loads((folder / "bench.json").read_text())["methods"]
    assert methods["IndexFlatIP"]["recall"] == 1
    assert methods["CCCF 3x6"]["recall"] > 0.8  # queries are rounded, items are not
    assert (folder / "bench.png").stat().st_size > 10_000
    run = cccf("bench", "--embeddings", "items.npy", "--queries", "users.npy", "--no-graphs", "--json", cwd=folder)
    assert "CCCF 8x16, real-valued queries" in json.loads(run.stdout)["methods"]
    assert "IndexHNSW" not in run.stdout


@pytest.mark.slow
def test_the_commands_of_the_readme_run(tmp_path):
    section = (pathlib.Path(__file__).parents[1] / "README.md").read_text().split("## On the command line")[1]
    commands = re.search(r"```bash\n(.*?)```", section, flags=re.DOTALL)[1]
    assert {line.split()[1] for line in commands.splitlines()} == set(COMMANDS) - {"demo"}
    matrix = synthetic_ratings(200, 150, n_groups=4, ratings_per_user=30).user_items.tocoo()
    lines = (f"{u},{i},{r:g}\n" for u, i, r in zip(matrix.row, matrix.col, matrix.data, strict=True))
    (tmp_path / "ratings.csv").write_text("".join(lines))
    path = f"{SCRIPT.parent}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert run.returncode == 0, run.stderr
    assert listed(tmp_path) == ["items.cccf", "items.png", "model", "ratings.csv", "recs.csv"]


def test_quiet_says_nothing_but_the_result(folder):
    run = cccf("search", "items.cccf", "--users", "user-1", "--exclude-seen", "ratings.csv", "--quiet", cwd=folder)
    assert run.stderr == ""
    assert run.stdout.startswith("user")


def test_debug_shows_the_traceback(folder):
    run = cccf("search", "missing.cccf", "--users", "1", "--debug", cwd=folder, code=1)
    assert "Traceback" in run.stderr


def test_a_reader_that_closes_early_is_no_error(folder):
    command = f"{SCRIPT} search items.cccf --users @all.txt -k 90 | head -n 1"
    names = Catalogue.load(folder / "items.cccf").user_ids.tolist() * 20
    (folder / "all.txt").write_text("\n".join(names))
    run = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=True, timeout=TIMEOUT)
    assert run.stdout.startswith("user")
    assert run.stderr == ""


@pytest.mark.slow
def test_the_demo_is_faster_than_dot_products_and_ranks_as_well(tmp_path):
    run = cccf("demo", "--json", "--quiet", cwd=tmp_path)
    result = json.loads(run.stdout)
    assert result["items"] >= 10_000
    assert result["faster than IndexFlatIP"] > 2  # 4.5 with AVX2, 6.7 with AVX-512; how much is for benchmarks
    assert result["NDCG against MF"] > -0.03
    mf, dcf, ours = result["rows"]
    assert ours["catalogue NDCG@10"] > 0.95 * mf["catalogue NDCG@10"]
    assert ours["NDCG@10"] > dcf["NDCG@10"]
    assert ours["bytes per item"] < mf["bytes per item"] / 15
    assert ours["queries per second"] > mf["queries per second"]
    made = tmp_path / "cccf-demo"
    assert listed(made) == ["demo.json", "demo.png", "items.cccf", "model", "recs.csv"]
    assert len((made / "recs.csv").read_text().splitlines()) == 10 * result["users"] + 1
    assert (made / "demo.png").stat().st_size > 10_000


def test_the_demo_runs_on_ratings_of_ones_own_and_never_replaces_anything(folder):
    for name in ("cccf-demo", "cccf-demo-2"):
        out = cccf("demo", "--ratings", "ratings.csv", "--threads", "1", cwd=folder).stdout
        assert "MF, IndexFlatIP(128)" in out
        assert f"cccf search {name}/items.cccf --users user-0,user-1" in out
        assert json.loads((folder / name / "demo.json").read_text())["items"] == 90


def rescaled(folder, low, high):
    """Write the ratings on another scale."""
    ratings = read_ratings(folder / "ratings.csv")
    matrix = ratings.user_items.tocoo()
    values = low + (matrix.data - 1) / 4 * (high - low)
    np.savez(folder / "scaled.npz", user=ratings.user_ids[matrix.row], item=ratings.item_ids[matrix.col], rating=values)


@pytest.mark.parametrize(("low", "high", "rated"), [(1, 3, True), (-2, 2, False), (0, 100_000, False)])
def test_ratings_of_any_scale_can_be_evaluated(low, high, rated, folder):
    rescaled(folder, low, high)
    cccf("train", "scaled.npz", "--model", "mf", "--factors", "4", "--test-size", "0.3", "-o", "m", cwd=folder)
    figures = json.loads(cccf("evaluate", "m", "--json", cwd=folder).stdout)
    assert ("rated NDCG" in figures) == rated
    assert 0 < figures["catalogue NDCG"][-1] < 1


def test_the_demo_takes_ratings_of_any_scale(folder):
    rescaled(folder, -2, 2)
    result = json.loads(cccf("demo", "--ratings", "scaled.npz", "--json", "--quiet", cwd=folder).stdout)
    assert all(0 <= row["NDCG@10"] <= 1 for row in result["rows"])


@pytest.mark.parametrize("output", ["recs.csv", "recs.parquet"])
def test_ids_with_leading_zeros_stay_as_they_are_and_are_excluded(output, folder):
    lines = (folder / "ratings.csv").read_text().replace("user-", "00").splitlines()
    (folder / "zeros.csv").write_text("\n".join(line.replace(",1", ",01", 1) for line in lines))
    cccf("train", "zeros.csv", "--ids", "str", *SMALL, "-o", "z", cwd=folder)
    cccf("build", "z", "-o", "z.cccf", cwd=folder)
    command = ["recommend", "z.cccf", "-k", "90", "--exclude-seen", "zeros.csv", "--chunk", "7", "-o", output]
    cccf(*command, cwd=folder)
    ratings = read_ratings(folder / "zeros.csv", ids="str")
    rows = rows_of(folder / output)
    assert {user for user, _ in rows} <= set(ratings.user_ids.tolist())
    assert len(rows) == 120 * 90 - ratings.user_items.nnz
    matrix = ratings.user_items.tocoo()
    seen = zip(ratings.user_ids[matrix.row].tolist(), ratings.item_ids[matrix.col].tolist(), strict=True)
    assert not set(rows) & set(seen)


def rows_of(path):
    """Users and items of recommendations."""
    if path.suffix == ".parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(path)
        return list(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))
    with open(path, newline="") as file:
        return [(row["user"], row["item"]) for row in csv.DictReader(file)]


def test_users_without_anything_left_take_no_rows_of_parquet(folder):
    items = read_ratings(folder / "ratings.csv").item_ids
    (folder / "all.csv").write_text("".join(f"user-3,{item},1\n" for item in items))
    command = ["recommend", "items.cccf", "--exclude-seen", "all.csv", "--chunk", "1", "-o", "recs.parquet", "-k", "2"]
    cccf(*command, "--users", "user-1,user-3,user-2", cwd=folder)
    assert [user for user, _ in rows_of(folder / "recs.parquet")] == ["user-1", "user-1", "user-2", "user-2"]


def test_names_come_from_text_and_arrays_as_they_are_written(folder):
    command = ["build", "--embeddings", "items.npy", "--queries", "users.npy", "--force", "-o", "named.cccf"]
    (folder / "names.txt").write_bytes(b"\xef\xbb\xbf" + b"\n".join(b"%04d" % i for i in range(400)))
    np.save(folder / "names.npy", np.array([f"x{i}".encode() for i in range(400)]))
    (folder / "numbers.txt").write_text("\n".join(str(i - 5) for i in range(400)))
    plain = json.loads(cccf("search", "vectors.cccf", "--users", "4", "--json", cwd=folder).stdout)[0]["items"]
    for name, expected in (
        ("names.txt", [f"{i:04}" for i in plain]),
        ("names.npy", [f"x{i}" for i in plain]),
        ("numbers.txt", [i - 5 for i in plain]),
    ):
        cccf(*command, "--item-ids", name, cwd=folder)
        found = json.loads(cccf("search", "named.cccf", "--users", "4", "--json", cwd=folder).stdout)
        assert found[0]["items"] == expected
