"""What the tests of the command line share: the installed script, and small files that it is fed with."""

import contextlib
import io
import os
import pathlib
import signal
import subprocess
import sys
import threading
import warnings

import faiss
import numpy as np

from cccf_index.cli import main
from cccf_index.datasets import synthetic_ratings

SCRIPT = pathlib.Path(sys.executable).with_name("cccf")
SMALL = ("--components", "3", "--bits", "6", "--factors", "5", "--regularization", "0.01")
TIMEOUT = 600  # seconds after which a child is killed; none needs nearly as long, even while kernels are compiled
# Run first in every child. A program that a shell starts in the background ignores SIGINT, and so do its children: tests
# under `nohup ... &` could never interrupt theirs. A limit of the file size stands for a disk that gets full.
PREPARE = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
if int(sys.argv[1]):
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
os.execv(sys.argv[2], sys.argv[2:])
"""


def script_command(arguments, limit=0):
    """Return the command line of the installed script, started with default signals."""
    words = [str(SCRIPT), *map(str, arguments)]
    return words if os.name == "nt" else [sys.executable, "-c", PREPARE, str(limit), *words]


def cccf(*arguments, cwd, code=0, limit=0):
    """Run a command in this process, which has numba and faiss in memory; with a `limit` as `cccf_script` does."""
    if limit:
        return cccf_script(*arguments, cwd=cwd, code=code, limit=limit)
    before, threads, terminate = os.getcwd(), faiss.omp_get_max_threads(), signal.getsignal(signal.SIGTERM)
    out, err = io.StringIO(), io.StringIO()
    try:
        os.chdir(cwd)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("always")
            found = main([str(word) for word in arguments])
    except SystemExit as error:  # of argparse
        found = error.code
    finally:
        os.chdir(before)
        faiss.omp_set_num_threads(threads)
        signal.signal(signal.SIGTERM, terminate)
    assert found == code, err.getvalue()
    return subprocess.CompletedProcess(arguments, found, out.getvalue(), err.getvalue())


def cccf_script(*arguments, cwd, code=0, limit=0):
    """Run the installed script; `limit` is how many bytes it may write to a file: a disk that gets full."""
    run = subprocess.run(
        script_command(arguments, limit),
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
        env={**os.environ, "PYTHONWARNINGS": "default"},
    )
    assert run.returncode == code, run.stderr
    return run


@contextlib.contextmanager
def start_process(command, seconds=TIMEOUT, **options):
    """Start a process that is killed at the end of the block, however that ends, or after `seconds`."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    watchdog = threading.Timer(seconds, process.kill)  # whoever reads from the child then reads its end
    watchdog.start()
    try:
        with process:
            try:
                yield process
            finally:
                process.kill()  # nothing happens to one that has ended
    finally:
        watchdog.cancel()


def running(*arguments, cwd, seconds=TIMEOUT):
    """Start the installed script, see `start_process`."""
    return start_process(script_command(arguments), seconds, cwd=cwd)


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
