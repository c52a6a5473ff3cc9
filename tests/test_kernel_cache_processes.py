"""The kernel cache between processes: edits, read-only machines, zip files, other users, two processes at once.

The processes use a copy of the package with two more kernels, which compile in no time: `outer`, that Python calls, and
`inner`, that it calls, in another file.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

import pytest

import cccf_index

PACKAGE = pathlib.Path(cccf_index.__file__).parent
TIMEOUT = 300
NOBODY = 65534
INNER = """
from cccf_index.kernels.decorators import kernel
@kernel
def inner(x):
    return x + 1
"""
OUTER = """
from cccf_index.kernels.decorators import entry
from cccf_index.kernels.trial_inner import inner
@entry
def outer(x):
    return inner(x)
"""
# Run in the processes: prints the results of `outer`, the functions that numba compiled, and the warnings.
START = """
import json, os, sys, tempfile, time, warnings
from numba.core import event
compiled, results = [], []
class Listener(event.Listener):
    def on_start(self, event):
        compiled.append(event.data["dispatcher"].py_func.__name__)
    def on_end(self, event):
        pass
event.register("numba:compile", Listener())
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always", RuntimeWarning)
    from cccf_index.kernels.trial_outer import outer
"""
END = """
print(json.dumps({"results": results, "compiled": compiled, "warnings": [str(w.message) for w in seen]}))
"""
CALL = "    results.append(outer(1))"


def make_script(body=CALL):
    return START + body + END


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """A folder with a copy of the package, not to be changed."""
    folder = tmp_path_factory.mktemp("copied")
    shutil.copytree(PACKAGE, folder / "cccf_index", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "cccf_index/kernels/trial_inner.py").write_text(INNER)
    (folder / "cccf_index/kernels/trial_outer.py").write_text(OUTER)
    return folder


@pytest.fixture
def site(copied, tmp_path):
    """A copy that a test may change."""
    shutil.copytree(copied, tmp_path / "site", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "site"


def make_environment(path, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_CACHE_DIR")}
    return {**environment, "PYTHONPATH": str(path), "PYTHONSAFEPATH": "1", **variables}


def run(path, body=CALL, prefix=(), **variables):
    """Run the script in a process that imports the package from `path`."""
    done = subprocess.run(
        [*prefix, sys.executable, "-c", make_script(body)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
        env=make_environment(path, **variables),
        cwd=pathlib.Path(path).parent,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_an_edit_in_a_file_that_a_kernel_calls_into_is_noticed(site):
    assert run(site) == {"results": [2], "compiled": ["outer", "inner"], "warnings": []}
    assert run(site) == {"results": [2], "compiled": [], "warnings": []}
    path = site / "cccf_index/kernels/trial_inner.py"
    path.write_text(path.read_text().replace("x + 1", "x + 3"))
    assert run(site) == {"results": [4], "compiled": ["outer", "inner"], "warnings": []}


@pytest.mark.slow
def test_an_edit_after_the_import_does_not_put_old_code_under_the_new_key(site):
    edit = f"    path = {str(site / 'cccf_index/kernels/trial_inner.py')!r}\n"
    edit += "    open(path, 'a').write('\\n# edited')\n" + CALL
    assert run(site, edit)["results"] == [2]
    assert run(site)["compiled"] == ["outer", "inner"]


@pytest.mark.slow
def test_importing_the_package_writes_nothing(copied, tmp_path):
    assert run(copied, "    import cccf_index", CCCF_CACHE_DIR=str(tmp_path / "cache"))["compiled"] == []
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow
def test_where_every_place_refuses_kernels_run_with_one_warning(site, tmp_path):
    (site / "cccf_index/kernels/__pycache__").write_text("in the way")
    body = "    tempfile.tempdir = '/proc/nowhere'\n    results += [outer(1), outer(1.5)]"
    found = run(site, body, XDG_CACHE_HOME="/proc/nowhere", HOME="/proc/nowhere")
    assert found["results"] == [2, 2.5]
    assert len(found["warnings"]) == 1
    assert "Set CCCF_CACHE_DIR" in found["warnings"][0]


def can_mount():
    """Whether this machine lets us make mounts of our own."""
    command = ["unshare", "-rm", "mount", "--bind", "/tmp", "/tmp"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.slow
@pytest.mark.skipif(not can_mount(), reason="needs `unshare` and the right to mount")
def test_a_read_only_machine_imports_and_runs_and_uses_a_cache_that_was_filled_before(site, tmp_path):
    """As `docker run --read-only`: the folders of the package, of the user and for temporary files."""
    folders = {tempfile.gettempdir(), "/tmp", "/var/tmp", "/usr/tmp", "/dev/shm", str(tmp_path)}
    commands = [
        f"mount --bind {path} {path} && mount -o remount,bind,ro {path}" for path in folders if os.path.isdir(path)
    ]
    prefix = ("unshare", "-rm", "sh", "-c", " && ".join([*commands, 'exec "$@"']), "sh")
    (tmp_path / "home").mkdir()
    variables = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": "", "PYTHONDONTWRITEBYTECODE": "1"}
    cold = run(site, "    results += [outer(1), outer(1.5)]", prefix, **variables)
    assert cold["results"] == [2, 2.5]
    assert len(cold["warnings"]) == 1
    assert "Read-only file system" in cold["warnings"][0]
    assert run(site)["compiled"] == ["outer", "inner"]
    assert run(site, CALL, prefix, **variables) == {"results": [2], "compiled": [], "warnings": []}


@pytest.mark.slow
def test_the_package_runs_from_a_zip_file_and_keeps_kernels_in_the_users_folder(copied, tmp_path):
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        for path in sorted((copied / "cccf_index").rglob("*.py")):
            archive.write(path, path.relative_to(copied))
    variables = {
        "XDG_CACHE_HOME": str(tmp_path / "user"),
        "LOCALAPPDATA": str(tmp_path / "user"),
        "HOME": str(tmp_path),
    }
    assert run(tmp_path / "package.zip", **variables) == {
        "results": [2],
        "compiled": ["outer", "inner"],
        "warnings": [],
    }
    assert run(tmp_path / "package.zip", **variables) == {"results": [2], "compiled": [], "warnings": []}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user")
def test_a_cache_that_root_filled_serves_a_user_who_cannot_write_it(copied):
    with tempfile.TemporaryDirectory() as name:  # not `tmp_path`, which is closed to other users
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        (folder / "temporary").mkdir()
        (folder / "temporary").chmod(0o1777)
        shutil.copytree(copied / "cccf_index", folder / "site/cccf_index", ignore=shutil.ignore_patterns("__pycache__"))
        assert run(folder / "site")["compiled"] == ["outer", "inner"]
        # what the interpreter needs is imported as root, whose home may hold it
        become = f"    import getpass, numba.core.runtime\n    tempfile.tempdir = {str(folder / 'temporary')!r}\n"
        become += f"    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        variables = {"HOME": "/nonexistent", "XDG_CACHE_HOME": ""}
        assert run(folder / "site", become + CALL, **variables) == {"results": [2], "compiled": [], "warnings": []}
        # what is not in there goes to a folder of that user's own
        compile_first = "    import numba; numba.njit(lambda x: x)(1)\n"
        body = compile_first + become + "    results.append(outer(1.5))"
        found = run(folder / "site", body, **variables)
        assert (found["results"], found["warnings"]) == ([2.5], [])
        (private,) = (folder / "temporary").iterdir()
        assert private.name == f"cccf_index-{NOBODY}"
        assert private.stat().st_mode & 0o777 == 0o700
        # and root does not read it
        assert "outer" in run(folder / "site", "    results.append(outer(1.5))")["compiled"]


@pytest.mark.slow
def test_two_processes_that_compile_at_once_leave_all_kernels_to_a_third(copied, tmp_path):
    cache, barrier = tmp_path / "cache", tmp_path / "go"
    wait = f"    while not os.path.exists({str(barrier)!r}): time.sleep(0.01)\n"
    calls = {"int": "[outer(1), outer(1.5)]", "float": "[outer(2.5), outer(True)]"}
    environment = make_environment(copied, CCCF_CACHE_DIR=str(cache))
    processes = {}
    try:
        for name, call in calls.items():
            body = f"    open({str(tmp_path / name)!r}, 'w').close()\n{wait}    results += {call}"
            command = [sys.executable, "-c", make_script(body)]
            processes[name] = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
            )
        deadline = time.monotonic() + TIMEOUT
        while not all((tmp_path / name).exists() for name in calls) and time.monotonic() < deadline:
            time.sleep(0.01)
        barrier.touch()
        outputs = {name: json.loads(process.communicate(timeout=TIMEOUT)[0]) for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    assert outputs["int"]["results"] == [2, 2.5]
    assert outputs["float"]["results"] == [3.5, 2]
    assert len(list(cache.glob("kernels-*/*"))) == 3
    third = run(copied, "    results += [outer(1), outer(1.5), outer(True)]", CCCF_CACHE_DIR=str(cache))
    assert third == {"results": [2, 2.5, 2], "compiled": [], "warnings": []}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_writes_kernels_that_its_parent_and_others_read(copied, tmp_path):
    body = """    results.append(outer(1))
    child = os.fork()
    if child == 0:
        os._exit(0 if outer(1.5) == 2.5 else 1)
    results += [os.waitpid(child, 0)[1], outer(1.5)]
"""
    found = run(copied, body, CCCF_CACHE_DIR=str(tmp_path / "cache"))
    assert found == {"results": [2, 0, 2.5], "compiled": ["outer", "inner"], "warnings": []}
    assert run(copied, "    results.append(outer(1.5))", CCCF_CACHE_DIR=str(tmp_path / "cache"))["compiled"] == []
