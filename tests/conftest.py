"""Files that the tests of the command line are fed with."""

import shutil

import pytest
from cli_helpers import SMALL, cccf, write_ratings, write_vectors


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
