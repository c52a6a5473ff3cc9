"""Recall against bytes, in Python and on the command line."""

import json

import numpy as np
import pytest
from cli_helpers import assert_one_line, cccf, write_vectors
from test_budget import FIT, ITEMS

from cccf_index.curves import recall_curve


def test_recall_rises_with_the_bytes():
    curve = recall_curve(ITEMS, FIT, [12, 20, 40], [10, 50], n_bits=8, sweeps=1, verbose=False)
    assert [point["bytes_per_item"] for point in curve] == [12, 20, 40]
    assert np.all(np.diff([point["bytes"] for point in curve]) > 0)
    for k in (10, 50):
        shares = [point["recall"][k] for point in curve]
        assert 0.3 < shares[0] < shares[1] < shares[2] <= 1
        assert all(point["recall, coded queries"][k] <= point["recall"][k] + 0.03 for point in curve)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"budgets": []}, ValueError, "budgets"),
        ({"budgets": [2]}, ValueError, "bytes_per_item"),
        ({"lengths": [0]}, ValueError, "lengths"),
        ({"lengths": [10**6]}, ValueError, "lengths"),
        ({"user_vectors": FIT[:1]}, ValueError, "at least 2 users"),
        ({"user_vectors": FIT[:, :3]}, ValueError, "user_vectors"),
        ({"item_vectors": [["a"]]}, TypeError, "item_vectors"),
    ],
)
def test_bad_input_is_explained(change, error, words):
    given = {"item_vectors": ITEMS, "user_vectors": FIT, "verbose": False, **change}
    with pytest.raises(error, match=words):
        recall_curve(**given)


@pytest.mark.slow
def test_inspect_draws_a_curve_and_build_takes_bytes(tmp_path):
    write_vectors(tmp_path)
    inputs = ("--embeddings", "items.npy", "--queries", "users.npy")
    out = cccf("inspect", *inputs, "--bytes", "12", "24", "--plot", "curve.png", cwd=tmp_path).stdout
    assert "recall at 100" in out
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    curve = json.loads(cccf("inspect", *inputs, "--bytes", "12", "24", "-k", "5", "--json", cwd=tmp_path).stdout)[
        "curve"
    ]
    assert [point["bytes_per_item"] for point in curve] == [12, 24]
    assert curve[0]["recall"]["5"] < curve[1]["recall"]["5"]
    cccf("build", *inputs, "--bytes", "20", "--k", "10", "-o", "items.cccf", cwd=tmp_path)
    seen = json.loads(cccf("inspect", "items.cccf", "--json", cwd=tmp_path).stdout)
    assert seen["dense"]
    assert sum(kind["items"] for kind in (*seen["dense"], *seen["groups"])) == 400
    assert "dense," in cccf("inspect", "items.cccf", cwd=tmp_path).stdout
    for code, arguments, words in (
        (2, ("inspect",), "INDEX"),
        (2, ("inspect", "--embeddings", "items.npy"), "--queries"),
        (1, ("inspect", *inputs, "--bytes", "3"), "--bytes must be at least 7"),
    ):
        assert_one_line(cccf(*arguments, cwd=tmp_path, code=code), words)
