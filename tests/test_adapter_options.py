"""The options that the adapters of vector models share."""

import inspect
from dataclasses import FrozenInstanceError
from types import SimpleNamespace

import pytest
from adapter_helpers import examples_run

from cccf_index.adapters.implicit import CCCFModel
from cccf_index.adapters.options import OPTION_NAMES, CodeOptions


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"n_components": 0}, ValueError),
        ({"n_bits": "16"}, TypeError),
        ({"k_factor": 0.5}, ValueError),
        ({"k_factor": "2"}, TypeError),
        ({"queries": "fast"}, ValueError),
        ({"num_threads": -1}, ValueError),
        ({"params": {"max_active": 0}}, ValueError),
    ],
)
def test_invalid_options_are_refused_by_name(options, error):
    name = next(iter(options["params"])) if "params" in options else next(iter(options))
    with pytest.raises(error, match=name):
        CodeOptions(**options)


def test_options_do_not_change():
    with pytest.raises(FrozenInstanceError):
        CodeOptions().n_bits = 8


def test_keywords_that_are_no_options_are_parameters_of_the_quantizer():
    options = CodeOptions.from_keywords(n_bits=8, seed=3, k_factor=None, max_active=2)
    assert (options.n_bits, options.k_factor, options.n_components) == (8, None, 8)
    assert options.params == {"seed": 3, "max_active": 2}
    with pytest.raises(TypeError, match="bogus"):
        CodeOptions.from_keywords(bogus=1)


def test_options_are_read_from_attributes_as_they_are_now():
    owner = SimpleNamespace(n_components=4, n_bits=8, k_factor=3.0, queries="real", num_threads=1)
    assert CodeOptions.from_attributes(owner, seed=1) == CodeOptions(4, 8, 3.0, "real", 1, {"seed": 1})
    owner.n_bits = -4
    with pytest.raises(ValueError, match="n_bits"):
        CodeOptions.from_attributes(owner)
    index = SimpleNamespace(n_components=2, n_bits=16)  # built before the change
    assert CodeOptions.from_attributes(owner, index) == CodeOptions(2, 16, 3.0, "real", 1)


def test_cosines_need_more_candidates_and_nothing_else_changes():
    options = CodeOptions(4, 8, 3.0, "real", 1, {"seed": 1})
    assert options.for_cosines() == CodeOptions(4, 8, 12.0, "real", 1, {"seed": 1})
    assert CodeOptions(k_factor=None).for_cosines().k_factor is None


def test_an_adapter_has_the_same_defaults():
    parameters = inspect.signature(CCCFModel).parameters
    for name in OPTION_NAMES:
        assert parameters[name].default == getattr(CodeOptions(), name)


def test_docstring_examples_run():
    assert examples_run("options")
