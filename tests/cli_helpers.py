"""What the tests of the command line share: the installed script, and small files that it is fed with."""

import os
import pathlib
import subprocess
import sys

import numpy as np

from cccf_index.datasets import synthetic_ratings

SCRIPT = pathlib.Path(sys.executable).with_name("cccf")
SMALL = ("--components", "3", "--bits", "6", "--factors", "5", "--regularization", "0.1")


def cccf(*arguments, cwd, code=0, limit=None):
    """Run the installed script; `limit` is how many bytes it may write to a file: a disk that gets full."""

    def limited():
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    run = subprocess.run(
        [SCRIPT, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limited if limit else None,
        env={**os.environ, "PYTHONWARNINGS": "default"},
    )
    assert run.returncode == code, run.stderr
    return run


def assert_one_line(run, *words):
    """Of what went wrong there is one line, without a traceback."""
    lines = run.stderr.strip().splitlines()
    assert "Traceback" not in run.stderr
    assert lines[-1].startswith("cccf ")
    assert sum("error:" in line for line in lines) == 1
    for word in words:
        assert word in lines[-1]


def listed(folder):
    return sorted(path.name for path in folder.iterdir())


def write_ratings(path, n_users=120, n_items=90, seed=3):
    """Write ratings of users with names and items with numbers, and return them."""
    ratings = synthetic_ratings(n_users, n_items, n_groups=4, ratings_per_user=25, seed=seed)
    matrix = ratings.user_items.tocoo()
    lines = ["user,item,rating"]
    lines += [f"user-{u},{1000 + 7 * i},{r:g}" for u, i, r in zip(matrix.row, matrix.col, matrix.data, strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ratings


def write_vectors(folder, n_items=400, n_users=50, d=16, seed=0):
    rng = np.random.default_rng(seed)
    np.save(folder / "items.npy", rng.standard_normal((n_items, d)).astype(np.float32))
    np.save(folder / "users.npy", rng.standard_normal((n_users, d)))
