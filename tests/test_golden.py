"""Files of released versions give the answers that they gave when they were written."""

import pathlib

import numpy as np
import pytest
from golden_helpers import FILES, MAPPED, answers

GOLDEN = pathlib.Path(__file__).with_name("golden")
VERSIONS = sorted(path.name for path in GOLDEN.iterdir() if (path / "answers.npz").exists())
# Versions whose files are refused, and the advice that the error must give. A file may be refused, never misread.
REFUSED: dict[str, str] = {}
CASES = [(version, name, mmap) for version in VERSIONS for name in FILES for mmap in (False, name in MAPPED)]


def test_there_are_golden_files():
    assert VERSIONS


@pytest.mark.parametrize(("version", "name", "mmap"), sorted(set(CASES)))
def test_a_golden_file_gives_the_answers_of_its_version(version, name, mmap):
    path = GOLDEN / version / f"{name}.cccf"
    if version in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[version]):
            answers(name, path, mmap)
        return
    with np.load(GOLDEN / version / "answers.npz") as stored:
        expected = {key.split(".", 1)[1]: stored[key] for key in stored.files if key.split(".", 1)[0] == name}
    found = answers(name, path, mmap)
    assert found.keys() == expected.keys()
    for key, array in found.items():
        assert array.dtype.kind == expected[key].dtype.kind, key
        if array.dtype.kind == "f":
            np.testing.assert_allclose(array, expected[key], rtol=1e-5, atol=1e-5, err_msg=key)
        else:
            np.testing.assert_array_equal(array, expected[key], err_msg=key)
