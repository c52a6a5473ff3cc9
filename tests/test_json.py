"""Values that the standard json module can write."""

import json
from fractions import Fraction

import numpy as np
import pytest

from cccf_index._json import to_plain
from cccf_index.learning.history import Iteration


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.int32(3), 3),
        (np.float32(0.5), 0.5),
        (np.longdouble(0.5), 0.5),
        (np.bool_(True), True),
        (True, True),
        (Fraction(1, 4), 0.25),
        (np.arange(4, dtype=np.uint8).reshape(2, 2), [[0, 1], [2, 3]]),
        ({"a": (np.int64(1), [np.float64(2)])}, {"a": [1, [2.0]]}),
        ([Iteration(np.float64(1.5), 2)], [[1.5, 2]]),
        ("word", "word"),
        (None, None),
    ],
)
def test_numbers_and_arrays_become_python_numbers_and_lists(value, plain):
    result = to_plain(value)
    assert json.dumps(result) == json.dumps(plain)
    assert type(result) is type(plain)


def test_other_values_are_returned_as_they_are():
    value = object()
    assert to_plain({"a": [value]})["a"][0] is value
