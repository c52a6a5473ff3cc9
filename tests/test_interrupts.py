"""Ctrl-C at any moment: the command line ends with one line and code 130, Python code with a KeyboardInterrupt."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from cli_helpers import SCRIPT, TIMEOUT, running, start_process

from cccf_index.cli import main

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="a process on Windows cannot be sent a Ctrl-C of its own"),
]
SOON = 10  # seconds; an interrupt is answered within one, but machines are busy

# In the child: `default_int_handler` also where a shell in the background had SIGINT ignored.
PROGRAM = """
import os, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["cccf", "inspect", "missing.cccf"]
from cccf_index.cli import main
threading.Timer({delay}, os.kill, (os.getpid(), signal.SIGINT)).start()
sys.exit(main())
"""
SETUP = """
import os, signal, sys, threading, time
import numpy as np
import cccf_index as ci
signal.signal(signal.SIGINT, signal.default_int_handler)
rng = np.random.default_rng(0)
items = rng.standard_normal((20_000, 16)).astype(np.float32)

def interrupted(work, wait):
    timer = threading.Timer(wait, os.kill, (os.getpid(), signal.SIGINT))
    begin = time.perf_counter()
    timer.start()
    try:
        work()
    except KeyboardInterrupt:
        return time.perf_counter() - begin - wait
    finally:
        timer.cancel()
    return None
"""
SEARCH = """
codes = ci.CompositionalCodes.from_vectors(np.where(items < 0, -1, 1).astype(np.float32), 2, 8)
index = ci.IndexCCCF(2, 8)
index.add(codes)
index.search(items[:50], 10, params=ci.SearchParametersCCCF(prune=False))
many = np.tile(items, (20, 1))
for threads in (1, 2):
    params = ci.SearchParametersCCCF(prune=False, num_threads=threads)
    print(interrupted(lambda: index.search(many, 100, params=params), 0.5))
    D, I = index.search(items[:300], 10, params=params)
    expected = ci.clone_index(index).search(items[:300], 10)
    assert np.array_equal(D, expected[0]) and np.array_equal(I, expected[1])
"""
FIT = """
from cccf_index.datasets import synthetic_ratings
from cccf_index.models import MF
import threadpoolctl
ratings = synthetic_ratings(400, 300, seed=0).user_items
model = MF(n_factors=16, verbose=False).fit(ratings)
before = threadpoolctl.threadpool_info()
factors = model.item_factors_.copy()
print(interrupted(lambda: model.set_params(max_iter=1_000_000).fit(ratings), 1.0))
assert np.array_equal(model.item_factors_, factors)
assert threadpoolctl.threadpool_info() == before
assert np.array_equal(model.set_params(max_iter=8).fit(ratings).item_factors_, factors)
"""
COMPILE = """
signs = np.where(items < 0, -1, 1).astype(np.float32)
ci.IndexCCCF  # numba is imported before: no import survives an interrupt

def search():
    index = ci.IndexCCCF(2, 8)
    index.add(signs)
    return index.search(signs[:40], 5)[0]

print(*[interrupted(search, 0.5) for _ in range(3)])
assert (search()[:, 0] == 16).all()
"""


def run_python(code, **variables):
    """Run code in a child that is killed if the test ends before it does."""
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=TIMEOUT, env={**os.environ, **variables}
    )


def assert_interrupted(code, stderr):
    lines = stderr.strip().splitlines()
    assert code == 130, stderr
    assert len(lines) == 1, stderr
    assert lines[0].startswith("cccf")
    assert lines[0].endswith(": interrupted")


@pytest.mark.parametrize("delay", [0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4])
def test_an_interrupt_while_the_program_starts_gives_one_line(delay):
    run = run_python(PROGRAM.format(delay=delay))
    if run.returncode == 1:  # on a fast machine it may have ended first
        assert "missing.cccf" in run.stderr
        assert delay >= 0.2
    else:
        assert_interrupted(run.returncode, run.stderr)


@pytest.mark.parametrize("module", ["numpy", "llvmlite", "numba.core.types", "faiss.swigfaiss", "cccf_index.codes"])
@pytest.mark.parametrize("start", ["script", "module"])
def test_an_interrupt_during_an_import_gives_one_line(module, start, tmp_path):
    """Python itself says on standard error which modules are imported."""
    prepare = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    )
    program = {"script": [str(SCRIPT)], "module": [sys.executable, "-m", "cccf_index"]}[start]
    command = [sys.executable, "-c", prepare, *program, "inspect", "missing.cccf"]
    with start_process(command, cwd=tmp_path, env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}) as process:
        for line in process.stderr:
            if line.split("|")[-1].strip().startswith(module):
                break
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        rest = [line for line in process.communicate()[1].splitlines() if not line.startswith("import time:")]
        assert time.monotonic() - begin < SOON
    assert_interrupted(process.returncode, "\n".join(rest))


@pytest.mark.parametrize("code", [SEARCH, FIT], ids=["search", "fit"])
def test_a_long_call_answers_an_interrupt_and_leaves_everything_usable(code):
    run = run_python(SETUP + code)
    assert run.returncode == 0, run.stderr
    for seconds in run.stdout.split():
        assert float(seconds) < SOON


def test_an_interrupted_compilation_answers_and_can_be_repeated(tmp_path):
    run = run_python(SETUP + COMPILE, CCCF_CACHE_DIR=str(tmp_path))
    assert run.returncode == 0, run.stderr
    assert float(run.stdout.split()[0]) < SOON


def test_an_interrupted_demo_says_so_in_one_line(tmp_path):
    with running("demo", "--quiet", cwd=tmp_path) as process:
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        stderr = process.communicate()[1]
        assert time.monotonic() - begin < SOON
    assert_interrupted(process.returncode, stderr)


def test_an_interrupt_in_a_destructor_is_repeated():
    code = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import cccf_index.cli._main as commands\n"
        "class Trap:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(0.1)\n"
        "def run(words):\n"
        "    Trap()\n"
        "    time.sleep(60)\n"
        "commands.run = run\n"
        "from cccf_index.cli import main\n"
        "sys.argv = ['cccf', 'demo']\n"
        "sys.exit(main())"
    )
    begin = time.monotonic()
    run = run_python(code)
    assert time.monotonic() - begin < 60
    assert_interrupted(run.returncode, run.stderr)


@pytest.mark.parametrize("words", [["--help"], ["demo", "--help"], ["--version"]])
def test_a_reader_that_closes_early_is_no_error(words, tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        run = subprocess.run(
            [str(SCRIPT), *words], stdout=writing, stderr=subprocess.PIPE, text=True, check=False, timeout=TIMEOUT
        )
    finally:
        os.close(writing)
    assert run.stderr == ""


@pytest.mark.skipif(os.name == "nt", reason="a POSIX shell")
def test_a_closed_output_is_no_error():
    run = subprocess.run(["sh", "-c", f"{SCRIPT} --version >&-"], capture_output=True, text=True, timeout=TIMEOUT)
    assert "Traceback" not in run.stderr


def test_a_command_can_run_in_a_thread(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["cccf", "inspect", "missing.cccf"])
    codes = []
    thread = threading.Thread(target=lambda: codes.append(main()))
    thread.start()
    thread.join(TIMEOUT)
    assert codes == [1]
    assert "missing.cccf" in capsys.readouterr().err
