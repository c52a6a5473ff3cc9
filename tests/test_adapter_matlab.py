import pathlib

import numpy as np
import pytest
from adapter_helpers import examples_run
from scipy.io import loadmat, savemat

from cccf_index.adapters.matlab import read_mat


def workspace(n_components=3, n_bits=5, n_users=6, n_items=9, seed=0):
    """What the published code has when it is done; `predict` is how it scores."""
    rng = np.random.default_rng(seed)
    cells = {name: np.empty((1, n_components), dtype=object) for name in ("total_modelB", "total_modelD")}
    for k in range(n_components):
        cells["total_modelB"][0, k] = rng.choice([-1.0, 1.0], (n_bits, n_users))
        cells["total_modelD"][0, k] = rng.choice([-1.0, 1.0], (n_bits, n_items))
    weights = {"totalu": rng.random((n_users, n_components)), "totalv": rng.random((n_items, n_components))}
    weights["totalu"][1, 2] = 0
    predict = sum(
        (cells["total_modelB"][0, k].T @ cells["total_modelD"][0, k])
        * np.outer(weights["totalu"][:, k], weights["totalv"][:, k])
        for k in range(n_components)
    )
    return {**cells, **weights}, predict


def test_docstring_example_runs():
    assert examples_run("matlab")


@pytest.mark.parametrize("compressed", [False, True])
def test_scores_are_those_of_the_authors_code(tmp_path, compressed):
    variables, predict = workspace()
    savemat(tmp_path / "model.mat", variables, do_compression=compressed)
    users, items = read_mat(tmp_path / "model.mat")
    assert (len(users), len(items), users.n_components, users.n_bits) == (6, 9, 3, 5)
    np.testing.assert_allclose(users.to_vectors() @ items.to_vectors().T, predict, atol=1e-6)


def test_a_file_that_octave_wrote_is_read():
    """It has the variables of the published code, of random signs, and scores as that code computes them."""
    path = pathlib.Path(__file__).parent / "octave.mat"
    users, items = read_mat(path)
    np.testing.assert_allclose(users.to_vectors() @ items.to_vectors().T, loadmat(path)["predict"], atol=1e-6)


def change(name, value):
    def changed(variables):
        variables[name] = value(variables[name])

    return changed


def other_shape(cell):
    cell[0, 1] = cell[0, 1][:, :-1]
    return cell


def zero_sign(cell):
    cell[0, 0][0, 0] = 0
    return cell


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda v: v.pop("totalv"), "totalv is missing"),
        (change("total_modelB", lambda cell: np.ones((5, 6))), "cell of sign matrices"),
        (change("total_modelB", other_shape), "same shape"),
        (change("total_modelD", zero_sign), r"-1 or \+1"),
        (change("totalu", lambda w: w.T), "totalu"),
        (change("totalu", lambda w: -w), "totalu"),
        (change("totalv", lambda w: w * np.nan), "totalv"),
        (change("total_modelD", lambda cell: cell[:, :2]), "totalv"),
    ],
)
def test_what_does_not_fit_is_explained(tmp_path, spoil, match):
    variables, _ = workspace()
    spoil(variables)
    savemat(tmp_path / "model.mat", variables)
    with pytest.raises(ValueError, match=match):
        read_mat(tmp_path / "model.mat")


def test_users_and_items_must_have_the_same_bits(tmp_path):
    variables, _ = workspace()
    other, _ = workspace(n_bits=7)
    savemat(tmp_path / "model.mat", {**variables, "total_modelD": other["total_modelD"]})
    with pytest.raises(ValueError, match="same components and bits"):
        read_mat(tmp_path / "model.mat")


def test_foreign_and_truncated_files_are_refused(tmp_path):
    path = tmp_path / "model.mat"
    savemat(path, workspace()[0])
    whole = path.read_bytes()
    version_7_3 = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM" + b"\x89HDF" + bytes(500)
    for content in (whole[: len(whole) // 2], whole[:60], b"", b"no such file at all" * 20, version_7_3):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"model\.mat"):
            read_mat(path)
    with pytest.raises(FileNotFoundError):
        read_mat(tmp_path / "nothing.mat")
