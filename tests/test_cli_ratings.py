"""Files of ratings on the command line, through the installed script: what it understood, and which option helps."""

import gzip
import zipfile

import numpy as np
import pytest
from cli_helpers import SMALL, assert_one_line, cccf
from rating_files import FILES

from cccf_index.cli._files import ModelFolder
from cccf_index.datasets import synthetic_ratings

QUICK = ["--model", "mf", "--factors", "2", "--set", "max_iter=1", "-o", "model"]


def write_lines(path, header, form, n_users=40):
    """Write made-up ratings, each in the form of a line with fields u, i, r and t."""
    matrix = synthetic_ratings(n_users, 30, n_groups=2, ratings_per_user=10, seed=1).user_items.tocoo()
    rows = enumerate(zip(matrix.row, matrix.col, matrix.data, strict=True))
    lines = [header, *(form.format(u=u, i=i, r=r, t=978300760 + t) for t, (u, i, r) in rows)]
    path.write_text("\n".join(filter(None, lines)) + "\n")


def read_ids(folder):
    model = ModelFolder.read(str(folder / "model"))
    return set(map(str, model.user_ids)), set(map(str, model.item_ids))


@pytest.mark.slow
@pytest.mark.parametrize("kind", FILES)
def test_files_of_public_data_sets_are_trained_on_as_they_are(kind, tmp_path):
    name, text, described = FILES[kind]
    (tmp_path / name).write_text(text)
    run = cccf("train", name, *QUICK, cwd=tmp_path)
    assert run.stderr.splitlines()[0] == f"{name}: {described}"
    assert "warning" not in run.stderr
    assert read_ids(tmp_path) == ({"10", "2"}, {"7", "3"})


@pytest.mark.slow
def test_packed_files_and_parquet_are_trained_on_as_they_are(tmp_path):
    import pyarrow
    import pyarrow.parquet

    name, text, described = FILES["Amazon reviews"]
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as file:
        file.writestr("README.txt", "about")
        file.writestr("ratings.csv", FILES["MovieLens csv"][1])
    table = pyarrow.table({"asin": [7, 3, 7], "user_id": ["10", "10", "2"], "rating": [5, 3.5, 1]})
    pyarrow.parquet.write_table(table, tmp_path / "data.parquet")
    for path, shown in (
        (f"{name}.gz", f"{name}.gz: {described}"),
        ("data.zip", "data.zip (ratings.csv): users from"),
        ("data.parquet", 'data.parquet: users from "user_id", items from "asin", ratings from "rating"'),
    ):
        run = cccf("train", path, *QUICK, "--force", cwd=tmp_path)
        assert run.stderr.startswith(shown)
        assert read_ids(tmp_path) == ({"10", "2"}, {"7", "3"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("header", "form"),
    [
        ("item_id,user_id", "i{i},u{u}"),
        ("user_id,item_id", "u{u},i{i}"),
        ("timestamp,visitorid,event,itemid,transactionid", "{t},u{u},view,i{i},"),
    ],
)
def test_implicit_feedback_with_a_header_has_no_user_called_as_the_header(header, form, tmp_path):
    write_lines(tmp_path / "events.csv", header, form)
    words = ["train", "events.csv", *SMALL, "--feedback", "implicit", "-o", "model"]
    run = cccf(*words, cwd=tmp_path)
    assert "no ratings (each line counts as 1)" in run.stderr
    users, items = read_ids(tmp_path)
    assert users == {f"u{user}" for user in range(40)}
    assert {item[0] for item in items} == {"i"}
    assert "item_id" not in items


@pytest.mark.parametrize(
    ("header", "form", "words"),
    [
        ("foo,bar,baz", "{u},{i},{r}", ['"foo", "bar", "baz"', "--columns"]),
        ("", "{u},{i},{t}", ["column 2 look like timestamps", "--columns"]),
        ("", "{u},{i},play,{r}", ["got 'play'", "--columns"]),
        ("", "1,2,{r}", ["more than once", "--duplicates last or mean"]),
        ("", "{u}/{i}/{r}", ["line 1", "--sep or --columns"]),
    ],
)
def test_what_cannot_be_right_is_an_error_that_names_the_option(header, form, words, tmp_path):
    write_lines(tmp_path / "mine.csv", header, form)
    run = cccf("train", "mine.csv", *QUICK, cwd=tmp_path, code=1)
    assert_one_line(run, "mine.csv", *words)
    assert "`" not in run.stderr


@pytest.mark.slow
def test_swapped_columns_are_a_warning_that_names_the_option(tmp_path):
    write_lines(tmp_path / "mine.csv", "movieId,user id,rating", "{i},{u},{r}")
    run = cccf("train", "mine.csv", "--columns", "0,1,2", *QUICK, cwd=tmp_path)
    assert 'warning: mine.csv: users are read from "movieId"' in run.stderr
    assert "pass --columns 'user id,movieId,rating'." in run.stderr
    run = cccf("train", "mine.csv", "--columns", "user id,movieId,rating", *QUICK, "--force", cwd=tmp_path)
    assert "warning" not in run.stderr
    run = cccf("train", "mine.csv", *QUICK, "--force", "--quiet", cwd=tmp_path)
    assert run.stderr == ""


@pytest.mark.slow
def test_counts_are_added_up_when_asked(tmp_path):
    (tmp_path / "plays.tsv").write_text("user\tartist\tplays\n1\ta\t2\n1\ta\t3\n1\tb\t1\n2\tb\t4\n")
    cccf("train", "plays.tsv", "--duplicates", "sum", "--test-size", "0.5", *QUICK, cwd=tmp_path)
    parts = [np.load(tmp_path / "model" / name)["rating"] for name in ("train.npz", "test.npz")]
    assert sorted(np.concatenate(parts)) == [1, 4, 5]
