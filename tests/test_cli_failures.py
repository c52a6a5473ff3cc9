"""What goes wrong on the command line: one line that says so, and no half-written output."""

import json
import os
import shutil
import signal
import time

import numpy as np
import pytest
from cli_helpers import SMALL, assert_one_line, cccf, listed, running

COMMANDS = {  # of each command, how it reads a file FILE
    "demo": ["demo", "--ratings", "FILE", "-o", "out"],
    "train": ["train", "FILE", "-o", "out"],
    "build": ["build", "FILE", "-o", "out"],
    "build embeddings": ["build", "--embeddings", "FILE", "--queries", "FILE", "-o", "out"],
    "search": ["search", "FILE", "--users", "1"],
    "search excluding": ["search", "items.cccf", "--users", "user-1", "--exclude-seen", "FILE"],
    "recommend": ["recommend", "FILE", "-o", "out.csv"],
    "evaluate": ["evaluate", "FILE", "ratings.csv"],
    "evaluate ratings": ["evaluate", "model", "FILE"],
    "inspect": ["inspect", "FILE"],
    "bench": ["bench", "FILE"],
}
WRITERS = {  # of each command, how it writes to `out`
    "demo": ["demo", "--ratings", "ratings.csv", "-o", "out"],
    "train": ["train", "ratings.csv", *SMALL, "-o", "out"],
    "build": ["build", "model", "-o", "out"],
    "recommend": ["recommend", "items.cccf", "-o", "out.csv"],
    "recommend parquet": ["recommend", "items.cccf", "-o", "out.parquet"],
    "inspect": ["inspect", "items.cccf", "--plot", "out.png"],
    "bench": ["bench", "items.cccf", "--no-graphs", "-o", "out.json", "--plot", "out.png"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_file_is_named_in_one_line(command, folder):
    before = listed(folder)
    words = [word.replace("FILE", "missing.csv") for word in COMMANDS[command]]
    assert_one_line(cccf(*words, cwd=folder, code=1), "missing.csv")
    assert listed(folder) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_foreign_file_is_named_in_one_line(command, folder):
    (folder / "foreign.csv").write_text("this is,not what\nyou want\n")
    before = listed(folder)
    words = [word.replace("FILE", "foreign.csv") for word in COMMANDS[command]]
    assert_one_line(cccf(*words, cwd=folder, code=1), "foreign.csv")
    assert listed(folder) == before


@pytest.mark.parametrize("command", ["search", "recommend", "inspect", "bench", "evaluate"])
def test_a_truncated_index_is_named_in_one_line(command, folder):
    data = (folder / "items.cccf").read_bytes()
    (folder / "cut.cccf").write_bytes(data[: len(data) // 2])
    words = [word.replace("FILE", "cut.cccf") for word in COMMANDS[command]]
    assert_one_line(cccf(*words, cwd=folder, code=1), "cut.cccf", "truncated")


def test_a_damaged_model_folder_is_named_in_one_line(folder):
    (folder / "model" / "ids.npz").write_bytes(b"nothing")
    assert_one_line(cccf("build", "model", "-o", "out", cwd=folder, code=1), "ids.npz", "Train the model again")
    (folder / "model" / "model.cccf").unlink()
    assert_one_line(cccf("evaluate", "model", cwd=folder, code=1), "model.cccf")


@pytest.mark.parametrize("command", WRITERS)
def test_an_output_that_exists_is_not_replaced_without_force(command, folder):
    words = WRITERS[command]
    output = words[words.index("-o" if "-o" in words else "--plot") + 1]
    (folder / output).write_text("precious")
    assert_one_line(cccf(*words, cwd=folder, code=1), output, "--force")
    assert (folder / output).read_text() == "precious"


@pytest.mark.parametrize("command", [name for name in WRITERS if name not in ("train", "demo")])
def test_force_replaces_a_file(command, folder):
    words = WRITERS[command]
    output = words[words.index("-o" if "-o" in words else "--plot") + 1]
    (folder / output).write_text("old")
    cccf(*words, "--force", cwd=folder)
    assert (folder / output).stat().st_size > 3


@pytest.mark.parametrize("command", ["train", "demo"])
def test_force_replaces_a_folder_of_its_own_kind_only(command, folder):
    words = WRITERS[command]
    (folder / "out").mkdir()
    (folder / "out" / "thesis.tex").write_text("precious")
    assert_one_line(cccf(*words, "--force", cwd=folder, code=1), "out is not replaced")
    assert listed(folder / "out") == ["thesis.tex"]
    shutil.rmtree(folder / "out")
    before = listed(folder)
    cccf(*words, cwd=folder)
    (folder / "out" / "more").write_text("gone with the old one")
    cccf(*words, "--force", cwd=folder)
    assert "more" not in listed(folder / "out")
    assert listed(folder) == sorted([*before, "out"])


@pytest.mark.parametrize("command", WRITERS)
def test_a_full_disk_leaves_nothing_and_the_older_output(command, folder):
    words = WRITERS[command]
    before = listed(folder)
    run = cccf(*words, cwd=folder, code=1, limit=400)
    assert_one_line(run)
    assert [name for name in listed(folder) if not name.endswith(".parts")] == before
    cccf(*words, cwd=folder)
    outputs = {path.name: path.read_bytes() for path in folder.glob("out*") if path.is_file()}
    cccf(*words, "--force", cwd=folder, code=1, limit=400)
    assert {path.name: path.read_bytes() for path in folder.glob("out*") if path.is_file()} == outputs
    assert not list(folder.glob(".*"))


def wait_for(condition, process, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_recommend_goes_on_where_it_was_interrupted(how, code, folder):
    names = [f"user-{i}" for i in range(120)] * 100
    (folder / "who.txt").write_text("\n".join(names))
    words = ["recommend", "items.cccf", "--users", "@who.txt", "--chunk", "20", "-o", "out.csv", "--json"]
    with running(*words, cwd=folder) as process:
        wait_for(lambda: (folder / "out.csv.parts" / "00000001").exists(), process)
        process.send_signal(how)
        assert "Traceback" not in process.communicate(timeout=240)[1]
    assert process.returncode == code
    assert not (folder / "out.csv").exists()
    kept = listed(folder / "out.csv.parts")
    assert 2 < len(kept) < 600
    assert all(name == "plan.json" or name.isdigit() for name in kept)
    run = cccf(*words, cwd=folder)
    assert json.loads(run.stdout)["resumed from"] == 20 * (len(kept) - 1)
    straight = [*words[:-3], "-o", "straight.csv"]
    cccf(*straight, cwd=folder)
    assert (folder / "out.csv").read_bytes() == (folder / "straight.csv").read_bytes()
    assert "out.csv.parts" not in listed(folder)


def test_recommend_does_not_go_on_with_the_beginning_of_another_run(folder):
    words = ["recommend", "items.cccf", "-o", "out.csv"]
    cccf(*words, cwd=folder, code=1, limit=400)
    assert "out.csv.parts" in listed(folder)
    assert_one_line(cccf(*words, "-k", "3", cwd=folder, code=1), "another run", "--force")
    cccf(*words, "-k", "3", "--force", cwd=folder)
    assert len((folder / "out.csv").read_text().splitlines()) == 3 * 120 + 1


def test_an_interrupted_training_leaves_nothing(folder):
    before = listed(folder)
    words = ["train", "ratings.csv", "--model", "mf", "--set", "max_iter=10000000", "-o", "out"]
    with running(*words, cwd=folder) as process:
        assert 'users from "user"' in process.stderr.readline()
        assert "120 users" in process.stderr.readline()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert "interrupted" in process.communicate(timeout=240)[1]
    assert process.returncode == 130
    assert listed(folder) == before


def test_advice_of_the_library_is_given_in_options(folder):
    (folder / "slashes.csv").write_text("a/1/5\nb/2/3\n")
    assert_one_line(cccf("train", "slashes.csv", "-o", "out", cwd=folder, code=1), "--sep", "--columns")
    (folder / "twice.csv").write_text("a,1,5\na,1,3\n")
    assert_one_line(cccf("train", "twice.csv", "-o", "out", cwd=folder, code=1), "--duplicates last")


def test_a_folder_that_cannot_be_written_to_is_said_before_any_work(folder):
    run = cccf("train", "ratings.csv", "-o", "no/such/folder", cwd=folder, code=1)
    assert_one_line(run, os.path.join("no", "such"))


def test_bad_numbers_are_said(folder):
    assert "-k" in cccf("search", "items.cccf", "--users", "user-1", "-k", "0", cwd=folder, code=2).stderr
    assert "--sample" in cccf("bench", "items.cccf", "--sample", "-3", cwd=folder, code=2).stderr
    assert_one_line(cccf("evaluate", "model", "-k", "ten", cwd=folder, code=1), "-k")
    assert_one_line(cccf("recommend", "items.cccf", "-o", "x.txt", cwd=folder, code=1), ".csv or .parquet")
    assert_one_line(cccf("train", "ratings.csv", "--bits", "0", "-o", "x", cwd=folder, code=1), "--bits")
    assert_one_line(cccf("train", "ratings.csv", "--seed", "-1", "-o", "x", cwd=folder, code=1), "--seed")
    assert "--threads" in cccf("inspect", "items.cccf", "--threads", "0", cwd=folder, code=2).stderr
    assert_one_line(
        cccf(
            "search",
            "items.cccf",
            "--users",
            "user-1",
            "--exclude-seen",
            "model/test.npz",
            "--columns",
            "0,1",
            cwd=folder,
            code=1,
        ),
        "columns",
    )


def test_recommend_tells_runs_for_other_users_apart(folder):
    words = ["recommend", "items.cccf", "-o", "out.csv", "--users"]
    cccf(*words, "user-5,user-2", cwd=folder, code=1, limit=400)
    assert_one_line(cccf(*words, "user-1,user-4", cwd=folder, code=1), "another run")
    cccf(*words, "user-5,user-2", cwd=folder)
    assert {line.split(",")[0] for line in (folder / "out.csv").read_text().splitlines()} == {
        "user",
        "user-5",
        "user-2",
    }


def test_force_does_not_remove_a_folder_of_chunks_that_is_none(folder):
    (folder / "out.csv.parts").mkdir()
    (folder / "out.csv.parts" / "thesis.tex").write_text("precious")
    run = cccf("recommend", "items.cccf", "-o", "out.csv", "--force", cwd=folder, code=1)
    assert_one_line(run, "out.csv.parts is not removed")
    assert listed(folder / "out.csv.parts") == ["thesis.tex"]


def test_an_interrupted_replacement_goes_on(folder):
    words = ["recommend", "items.cccf", "--chunk", "50", "-o", "out.csv"]
    cccf(*words, "-k", "2", cwd=folder)
    (folder / "out.csv.parts").mkdir()
    cccf(*words, "--force", cwd=folder, code=1, limit=100)
    old = (folder / "out.csv").read_bytes()
    run = cccf(*words, "--force", "--json", cwd=folder)
    assert json.loads(run.stdout)["users"] == 120
    assert (folder / "out.csv").read_bytes() != old


@pytest.mark.parametrize("command", ["train", "build"])
def test_of_a_link_what_it_points_to_is_replaced(command, folder):
    words = WRITERS[command]
    cccf(*words, cwd=folder)
    (folder / "out").rename(folder / "real")
    (folder / "out").symlink_to("real")
    before = listed(folder)
    cccf(*words, "--force", cwd=folder)
    assert listed(folder) == before
    assert (folder / "out").is_symlink()
    assert not list(folder.glob(".*"))


def test_names_that_no_output_can_have_are_refused_before_any_work(folder):
    before = listed(folder)
    assert_one_line(cccf("build", "model", "-o", "new.cccf/", cwd=folder, code=1), "new.cccf/")
    assert_one_line(cccf("build", "model", "-o", "", cwd=folder, code=1), "name of a file")
    assert_one_line(cccf("build", "model", "-o", "model", "--force", cwd=folder, code=1), "name of a file")
    assert_one_line(cccf("train", "ratings.csv", "-o", "", cwd=folder, code=1), "name of a folder")
    for command in (["inspect", "items.cccf"], ["bench", "items.cccf"]):
        assert_one_line(cccf(*command, "--plot", "x.foo", cwd=folder, code=1), "x.foo", ".png")
    assert listed(folder) == before


def test_a_split_that_holds_out_nothing_is_an_error(folder):
    run = cccf("train", "ratings.csv", *SMALL, "--test-size", "0.001", "-o", "out", cwd=folder, code=1)
    assert_one_line(run, "--test-size")


def test_features_of_other_items_are_an_error(folder):
    (folder / "features.csv").write_text("item,feature\nfoo,a\nbar,b\n")
    words = ["train", "ratings.csv", "--model", "dcmf", "--bits", "8", "--item-features", "features.csv", "-o", "out"]
    assert_one_line(cccf(*words, cwd=folder, code=1), "features.csv", "ids")


@pytest.mark.parametrize(
    "names", [np.arange(400, dtype=np.uint64) + np.uint64(2**63), np.arange(400) / 2, np.arange(0)]
)
def test_names_that_are_neither_text_nor_integers_are_refused(names, folder):
    np.save(folder / "names.npy", names)
    words = ["build", "--embeddings", "items.npy", "--queries", "users.npy", "--item-ids", "names.npy", "-o", "out"]
    assert_one_line(cccf(*words, cwd=folder, code=1), "names.npy")
    (folder / "names.npy").write_bytes(b"")
    assert_one_line(cccf(*words, cwd=folder, code=1), "names.npy")
