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
from cli_helpers import SCRIPT, SMALL, TIMEOUT, assert_one_line, cccf, cccf_script, listed
from test_budget import make_vectors

import cccf_index as ci
from cccf_index.catalogue import Catalogue
from cccf_index.datasets import read_ratings, synthetic_ratings
from cccf_index.models import load

COMMANDS = ("demo", "train", "build", "search", "recommend", "evaluate", "inspect", "bench", "warm")


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


@pytest.mark.slow
def test_search_looks_at_the_most_used_items_alone(folder):
    for name, vectors in zip(("items.npy", "users.npy"), make_vectors(), strict=True):
        np.save(folder / name, vectors)
    files = ("--embeddings", "items.npy", "--queries", "users.npy", "--bytes", "20")
    cccf("build", *files, "-o", "own.cccf", cwd=folder)
    catalogue, users = Catalogue.load(folder / "own.cccf"), np.arange(5)
    found = {}
    for most_used in (False, True):
        flags = ("-k", "100", "--max-items", "256", *(["--most-used"] if most_used else []), "--json")
        run = cccf("search", "own.cccf", "--users", "0,1,2,3,4", *flags, cwd=folder)
        params = ci.SearchParametersCCCF(max_items=256, most_used=most_used)
        found[most_used] = [one["items"] for one in json.loads(run.stdout)]
        assert found[most_used] == catalogue.recommend(users, 100, params=params)[1].tolist()
    assert found[False] != found[True]


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


@pytest.mark.slow
def test_train_tells_what_it_chose_and_which_feedback_it_found(folder):
    run = cccf("train", "ratings.csv", *SMALL, "--json", "-o", "chosen", cwd=folder)
    assert "chosen by held-out NDCG@10 of all items: floor" in run.stderr
    assert json.loads(run.stdout)["chosen"]["regularization"] == 0.01
    assert "implicit" not in run.stderr
    run = cccf("train", "ratings.csv", *SMALL, "--columns", "0,1", "-o", "taken", cwd=folder)
    assert "trained as implicit feedback" in run.stderr
    run = cccf("train", "ratings.csv", *SMALL, "--objective", "rated", "-o", "rated", cwd=folder)
    assert "chosen" not in run.stderr
    run = cccf(
        "train", "ratings.csv", *SMALL, "--columns", "0,1", "--objective", "rated", "-o", "x", cwd=folder, code=1
    )
    assert_one_line(run, "--objective catalogue")


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


def test_inspect_tells_and_draws(folder):
    out = cccf("inspect", "items.cccf", "--plot", "items.png", cwd=folder).stdout
    assert "90" in out
    assert "not pruned by the bounds" in out
    assert "bytes per item: total" in out
    assert (folder / "items.png").read_bytes().startswith(b"\x89PNG")
    seen = json.loads(cccf("inspect", "vectors.cccf", "--json", cwd=folder).stdout)
    assert seen["items"] == 400
    assert sum(group["items"] for group in (*seen["groups"], *seen["dense"])) == 400


def test_a_refined_index_is_built_inspected_searched_and_compared(folder):
    inputs = ("--embeddings", "items.npy", "--queries", "users.npy")
    built = cccf("build", *inputs, "--refine", "int8", "--k-factor", "3", "-o", "refined.cccf", cwd=folder).stdout
    assert "400 items" in built
    out = cccf("inspect", "refined.cccf", cwd=folder).stdout
    assert "to re-rank 3 times k items" in out
    assert "bytes per item: vectors" in out
    assert json.loads(cccf("inspect", "refined.cccf", "--json", cwd=folder).stdout)["vectors"]["storage"] == "int8"
    found = json.loads(cccf("search", "refined.cccf", "--users", "0,3", "-k", "5", "--json", cwd=folder).stdout)
    refined, users = ci.read_index(folder / "refined.cccf"), np.load(folder / "users.npy")
    assert found[1]["items"] == refined.search(users[[3]], 5)[1][0].tolist()
    methods = json.loads(cccf("bench", "refined.cccf", "--no-graphs", "--json", cwd=folder).stdout)["methods"]
    assert methods["IndexFlatIP"]["recall"] == 1
    for wrong, error in (
        ((*inputs, "--k-factor", "3"), "--k-factor needs --refine."),
        ((*inputs, "--refine", "int8", "--k-factor", "0.5"), "--k-factor must be a finite number >= 1, got 0.5."),
        (("model", "--refine", "int8"), "--refine has no effect: model already has codes."),
    ):
        assert error in cccf("build", *wrong, "-o", "x.cccf", cwd=folder, code=1).stderr


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
    assert {line.split()[1] for line in commands.splitlines()} == set(COMMANDS) - {"demo", "warm"}
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
    run = cccf_script("search", "missing.cccf", "--users", "1", "--debug", cwd=folder, code=1)
    assert "Traceback" in run.stderr


def test_a_reader_that_closes_early_is_no_error(folder):
    command = f"{SCRIPT} search items.cccf --users @all.txt -k 90 | head -n 1"
    names = Catalogue.load(folder / "items.cccf").user_ids.tolist() * 20
    (folder / "all.txt").write_text("\n".join(names))
    run = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=True, timeout=TIMEOUT)
    assert run.stdout.startswith("user")
    assert run.stderr == ""


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
