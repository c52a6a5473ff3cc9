"""`warm` and ``cccf warm``: afterwards nothing is compiled any more."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from cli_helpers import TIMEOUT, cccf_script
from numba import njit

import cccf_index as ci
from cccf_index import warming
from cccf_index.cli import main
from cccf_index.cli import warm as command
from cccf_index.kernels import cache

# What users do, in the ways that `warm` promises, written without its help. Prints the kernels that were compiled.
USE = """
import os, sys, tempfile
import numpy as np
from numba.core import event
compiled = []
class Listener(event.Listener):
    def on_start(self, event):
        compiled.append(str((event.data["dispatcher"].py_func.__name__, event.data["args"])))
    def on_end(self, event):
        pass
event.register("numba:compile", Listener())
import cccf_index as ci

rng = np.random.default_rng(5)
G, r, n = 8, 16, 5000
signs = rng.random((n, G, r)) < 0.5
weights = rng.random((n, G)) * (rng.random((n, G)) < 0.7)
users = ci.CompositionalCodes.from_signs(rng.random((40, G, r)) < 0.5, rng.random((40, G)))
vectors = rng.standard_normal((600, G * r))
folder = tempfile.mkdtemp()

def use(index, queries):
    for x in (queries, queries[:1], queries[:33]):
        index.search(x, 10)
    D, I = np.empty((2, 7), np.float32), np.empty((2, 7), np.int64)
    index.search(queries[:2], 7, D=D, I=I, exclude=[[4], [5, 6]])
    index.search(queries[::19], 7, D=np.empty((7, len(queries[::19])), np.float32).T)
    index.search(queries[:2], 7, allow=[1, 2, 3], params=ci.SearchParametersCCCF(num_threads=1, max_items=64))
    index.remove_ids(index.ids[[5, 7]])
    index.update_vectors(index.ids[:1], queries[:1] if len(index) > 10**6 else ci.CompositionalCodes.from_signs(signs[:1], weights[:1]))
    index.search_and_reconstruct(queries[:3], 3)
    index.reconstruct_n(0, 3)
    index.range_search(queries[:2], 1e9)
    index.search(queries[:2], 3, params=ci.SearchParametersCCCF(prune=False))

for scale, factor in ((100, 1), (100, 9), ("auto", 1), (None, 1), (100, 2000)):
    index = ci.IndexCCCF(G, r, scale)
    index.add(ci.CompositionalCodes.from_signs(signs, weights * factor))
    index.add_with_ids(ci.CompositionalCodes.from_signs(signs, weights * factor), np.arange(n) * 7 + n)
    boosted = ci.IndexCCCF(G, r, scale)
    boosted.add(ci.CompositionalCodes.from_signs(signs, weights * factor), bias=rng.random(n))
    path = os.path.join(folder, "items.cccf")
    ci.write_index(index, path)
    for one in (index, boosted, ci.read_index(path), ci.read_index(path, mmap=True)):
        for queries in (users, vectors):
            use(one, queries)
        one.search(users.to_vectors(), 10)
        one.search(vectors[:2], 3, params=ci.SearchParametersCCCF(shortlist=2))

np.save(os.path.join(folder, "items.npy"), rng.standard_normal((900, 24)).astype(np.float32))
mapped = np.load(os.path.join(folder, "items.npy"), mmap_mode="r")
for embeddings in (np.array(mapped), mapped, mapped.astype(np.float64)):
    for shape in ((), (G, r)):
        index = ci.IndexCCCF.from_embeddings(embeddings, embeddings[:200], *shape)
        index.add(embeddings[:5])
        ci.write_index(index, path)
        for one in (index, ci.read_index(path, mmap=True)):
            for queries in (embeddings[:3], embeddings[:1]):
                one.search(queries, 10)
                one.search(queries, 10, params=ci.SearchParametersCCCF(coded=True))
for dtype in (np.float32, np.float16):
    np.save(os.path.join(folder, "full.npy"), np.vstack([mapped, mapped[:5]]).astype(dtype))
    for mode in (None, "r"):
        full = np.load(os.path.join(folder, "full.npy"), mmap_mode=mode)
        ci.IndexRefineCCCF(index, full).search(mapped[:3], 10)
        ci.IndexRefineCCCF(index, full, np.arange(905)).search(np.array(mapped[:3]), 10)
        refined = ci.IndexRefineCCCF(index, full, np.arange(905), storage="int8")
        refined.add(mapped[:3])
        refined.update_vectors([7], mapped[:1])
        refined.remove_ids([3])
        ci.write_index(refined, path)
        for one in (refined, ci.read_index(path), ci.read_index(path, mmap=True)):
            one.search(mapped[:40], 10, D=np.empty((10, 40), np.float32).T)
            one.search_and_reconstruct(mapped[:1], 3)

from cccf_index.datasets import synthetic_ratings
from cccf_index.models import BCCF, CCCF, DCF, DCMF, MF
ratings = synthetic_ratings(n_users=150, n_items=120, seed=4).user_items
models = [MF(n_factors=6), BCCF(n_bits=40), DCF(n_bits=50), DCMF(n_bits=64), CCCF(G, r), CCCF(G, r, objective="rated"),
          CCCF(G, r, feedback="implicit"), CCCF(G, r, queries="real"), CCCF(G, r, weights="kernel")]
for model in models:
    features = {"item_features": rng.random((120, 3))} if isinstance(model, DCMF) else {}
    model.set_params(verbose=False).fit(ratings, **features)
    model.save(path)
    for one in (model, type(model).load(path)):
        one.encode_users(ratings[:4])
        one.recommend([1, 2], 5, exclude=ratings[[1, 2]])
        one.predict([0], [1])
        one.to_index()
print("\\n".join(compiled))
"""


@pytest.mark.slow
def test_after_warm_a_second_process_compiles_nothing(tmp_path):
    """In the cache of this machine: what other tests have compiled need not be compiled again."""
    cccf_script("warm", "--all", "--quiet", cwd=tmp_path)
    again = json.loads(cccf_script("warm", "8x16", "--all", "--json", cwd=tmp_path).stdout)
    assert sum(step["compiled"] for step in again["steps"]) == 0
    assert sum(step["loaded"] for step in again["steps"]) > 30
    command = [sys.executable, "-W", "ignore", "-c", USE]
    used = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT, cwd=tmp_path)
    assert used.returncode == 0, used.stderr
    assert used.stdout.strip() == ""


SERVE = """
import sys
import numpy as np, cccf_index as ci
from cccf_index.kernels.cache import Counts

index = ci.read_index(sys.argv[1], mmap=True)
for n in (1, 40):
    index.search(np.ones((n, 24), np.float32), 10)
print(Counts.compiled)
"""


@pytest.mark.slow
def test_after_warm_a_server_of_embeddings_compiles_nothing(tmp_path):
    cccf_script("warm", "--real", "--quiet", cwd=tmp_path)
    rng = np.random.default_rng(0)
    index = ci.IndexCCCF.from_embeddings(rng.standard_normal((900, 24)), rng.standard_normal((200, 24)))
    assert index.n_dense
    ci.write_index(index, tmp_path / "items.cccf")
    command = [sys.executable, "-c", SERVE, str(tmp_path / "items.cccf")]
    served = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT, cwd=tmp_path)
    assert int(served.stdout) == 0


def test_the_names_of_steps_say_what_is_compiled():
    names = [name for name, _ in warming.list_steps("8x16", warming.QUERIES, ())]
    assert names == [
        "ids",
        "8x16 coded queries",
        "8x16 coded queries, dense component",
        "8x16 real queries",
        "8x16 real queries, dense component",
    ]
    names = [name for name, _ in warming.list_steps([(4, 8), "1x128", "4x8"], "coded", ["float", "refine", "models"])]
    assert names[-1] == "refine"
    assert "4x8 coded queries, float weights" in names
    assert "1x128 models" in names
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"shapes": "8"}, "`shapes` must be like \"8x16\" or (8, 16), components and bits, got '8'."),
        ({"shapes": "8x16,1x128"}, "`shapes` must be like \"8x16\" or (8, 16), components and bits, got '8x16,1x128'."),
        ({"shapes": [8, 16]}, '`shapes` must be like "8x16" or (8, 16), components and bits, got 8.'),
        ({"shapes": []}, '`shapes` must name at least one shape, such as "8x16", got none.'),
        ({"shapes": "8x1600"}, "`n_bits` must be an integer from 1 to 512, got 1600."),
        ({"queries": ["codes"]}, "`queries` must be"),
        ({"extras": "everything"}, "`extras` must be"),
    ],
)
def test_wrong_arguments_are_explained(arguments, error):
    with pytest.raises(ValueError, match="must") as raised:
        ci.warm(**arguments)
    assert str(raised.value).startswith(error)


def compile_a_little():
    cache.cached(njit(lambda x: x + 1))(1)


@pytest.fixture
def one_step(monkeypatch):
    """`cccf warm` that compiles one small kernel."""
    monkeypatch.setattr(command, "list_steps", lambda *_: [("a little", compile_a_little)])
    monkeypatch.setattr(cache, "_warned", False)


def test_the_command_says_where_kernels_are_kept(one_step, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CCCF_CACHE_DIR", str(tmp_path))
    assert main(["warm"]) == 0
    first = capsys.readouterr().out
    assert "1 compiled   0 from the cache" in first
    assert first.splitlines()[-1].endswith(f": {tmp_path}")
    assert main(["warm", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["writes"] == str(tmp_path)
    assert [(step["compiled"], step["loaded"]) for step in report["steps"]] == [(0, 1)]


@pytest.mark.filterwarnings("default::RuntimeWarning")
def test_the_command_fails_if_nothing_can_be_kept(one_step, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CCCF_CACHE_DIR", str(tmp_path / "file"))
    assert main(["warm"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert "compiled, but nowhere to keep 1 of 1 kernels" in error
    assert "Set CCCF_CACHE_DIR to a folder that can be written" in error


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="places refuse in the way of POSIX")
def test_the_command_passes_if_all_is_in_a_cache_that_cannot_be_written(one_step, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CCCF_CACHE_DIR", str(tmp_path))
    assert main(["warm"]) == 0

    def refuse(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(cache, "write_kernel", refuse)
    assert main(["warm"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(f": {tmp_path}")


def test_the_flags_choose_what_is_compiled(monkeypatch, tmp_path):
    monkeypatch.setenv("CCCF_CACHE_DIR", str(tmp_path))
    asked = []
    monkeypatch.setattr(command, "list_steps", lambda *given: asked.append(given) or [("nothing", lambda: None)])
    for words in (["warm"], ["warm", "4x8", "1x64", "--real", "--float", "--models"], ["warm", "--all"]):
        assert main(words) == 0
    assert asked[0] == (("8x16",), ("coded", "real"), [])
    assert asked[1] == (["4x8", "1x64"], ["real"], ["float", "models"])
    assert asked[2] == (("8x16",), ["coded", "real"], list(warming.EXTRAS))
