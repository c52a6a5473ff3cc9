"""Which tests can run here, how hypothesis runs, and files that the tests of the command line are fed with."""

import os
import shutil
from importlib.util import find_spec

# Before numpy and faiss are loaded: their idle threads spin, and so take the cores from the other worker of `-n 2`.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from cli_helpers import SMALL, cccf, write_ratings, write_vectors
from hypothesis import HealthCheck, settings

# Tests that need a framework run where it is: `python tests/frameworks.py` makes an environment for each.
NEEDED = {
    "implicit_mixin": "recommender_base_test",
    "rectools": "rectools",
    "cornac": "cornac",
    "lenskit": "lenskit",
    "ann_benchmarks": "yaml",
}
ABSENT = [name for name, module in NEEDED.items() if find_spec(module) is None]
collect_ignore = [f"test_adapter_{name}.py" for name in ABSENT]

# Time is no property of what is tested: on a busy machine, or while kernels are compiled, any example may be slow.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_report_header():
    return f"adapters whose framework is not here (python tests/frameworks.py): {', '.join(ABSENT) or 'none'}"


@pytest.hookimpl(tryfirst=True)  # before pytest looks at `-m`
def pytest_collection_modifyitems(items):
    """Mark what runs the command line on files as slow: each of these tests starts several processes."""
    for item in items:
        if "cli_files" in item.fixturenames:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def cli_files(tmp_path_factory):
    """A folder with ratings, vectors, a model and indexes, made by the script itself; not to be changed."""
    folder = tmp_path_factory.mktemp("cli")
    write_ratings(folder / "ratings.csv")
    write_vectors(folder)
    cccf("train", "ratings.csv", *SMALL, "--test-size", "0.3", "-o", "model", cwd=folder)
    cccf("build", "model", "-o", "items.cccf", cwd=folder)
    cccf("build", "--embeddings", "items.npy", "--queries", "users.npy", "-o", "vectors.cccf", cwd=folder)
    return folder


@pytest.fixture
def folder(cli_files, tmp_path):
    """A copy of them."""
    shutil.copytree(cli_files, tmp_path / "work")
    return tmp_path / "work"
