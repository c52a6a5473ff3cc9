"""Errors of the library in the words of the command line."""

import argparse

import numpy as np
import pytest
from cli_helpers import SMALL, assert_one_line, cccf

from cccf_index.cli._flags import ALIASES, make_translator
from cccf_index.cli._main import COMMANDS

TEXTS = [  # command, what the library says, what the command says
    ("train", "`n_bits` must be an integer from 1 to 512, got 0.", "--bits must be an integer from 1 to 512, got 0."),
    ("search", "`k` must be an integer >= 1, got 0.", "-k must be an integer >= 1, got 0."),
    ("train", 'Use CCCF(feedback="implicit"), or', "Use --model cccf --feedback implicit, or"),
    ("train", "CCCF ignores side features; use DCMF.", "CCCF ignores side features; use --model dcmf."),
    ("train", 'Pass duplicates="last" or "mean" to keep', "Pass --duplicates last or mean to keep"),
    (
        "train",
        'Pass duplicates="last" or "mean" to keep one rating, or "sum" to add up counts. Or "so".',
        'Pass --duplicates last or mean to keep one rating, or sum to add up counts. Or "so".',
    ),
    ("train", "If swapped, pass `columns=[1, 0, 2]`.", "If swapped, pass --columns 1,0,2."),
    ("train", "pass `columns=['user id', \"it's\"]`.", """pass --columns 'user id,it'"'"'s'."""),
    ("train", "pass `columns=[user, item]`.", "pass --columns [user, item]."),
    ("train", "Pass `sep=` or `columns=` if", "Pass --sep or --columns if"),
    ("train", "Use fewer bits, or alpha=0.", "Use fewer bits, or --set alpha=0."),
    ("train", "pass `unobserved=0.5` here", "pass --unobserved 0.5 here"),
    ("train", "more users than n_bits, which is 16", "more users than --bits, which is 16"),
    ("train", "`user_items` must hold ratings", "RATINGS must hold ratings"),
    ("demo", "`user_items` must hold ratings", "--ratings must hold ratings"),
    ("train", "Use a smaller `k`.", "Use a smaller --k-core."),
    ("build", "There are no `user_vectors`: codes", "There are no --queries: codes"),
    ("train", "`item_features` must be None: no", "--item-features must not be given: no"),
]
UNCHANGED = [
    ("train", "runs/k=3.csv, k=3.csv and seed=1/n_bits.csv hold no ratings."),
    ("train", "Run `pip install x`, or pass `latents=(user_factors, item_factors)` of any model."),
    ("search", "Use fewer bits, or alpha=0."),
    ("inspect", "If users and items are swapped, pass `columns=[1, 0]`."),
    ("train", "One query is `exclude=[[3, 5]]`."),
    ("search", 'Use CCCF(feedback="implicit").'),
    ("train", "`feature_ridge` must be a number. Call `fit`."),
]


@pytest.fixture(scope="module")
def translators():
    """The translator of each command, made of its own parser."""
    result = {}
    for command in COMMANDS:
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        result[command.NAME] = make_translator(parser)
    return result


@pytest.mark.parametrize(("command", "text", "expected"), TEXTS)
def test_parameters_of_the_library_are_named_as_flags(command, text, expected, translators):
    assert translators[command](text) == expected
    assert translators[command](expected) == expected


@pytest.mark.parametrize(("command", "text"), UNCHANGED)
def test_what_is_no_flag_of_the_command_stays_as_it_is(command, text, translators):
    assert translators[command](text) == text


def test_every_alias_is_a_flag_of_some_command():
    known = {"threads"}
    for command in COMMANDS:
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        known |= {action.dest for action in parser._actions}
    assert {flag for flags in ALIASES.values() for flag in flags} <= known


@pytest.mark.slow
def test_the_script_names_its_flags(folder):
    def failing(*words):
        return cccf(*words, "-o", "out", cwd=folder, code=1)

    (folder / "clicks.csv").write_text("a,1\nb,2\na,2\nb,3\n")
    clicks = ("train", "clicks.csv", "--columns", "0,1", "--model", "dcf", "--bits", "2")
    assert_one_line(failing(*clicks), "RATINGS must hold different ratings", "--model cccf --feedback implicit")
    (folder / "twice.csv").write_text("a,1,5\na,1,3\n")
    assert_one_line(failing("train", "twice.csv"), "--duplicates last")
    assert_one_line(failing("train", "ratings.csv", *SMALL, "--bits", "0"), "--bits must be")
    assert_one_line(failing("train", "ratings.csv", "--k-core", "1000"), "Use a smaller --k-core")
    assert_one_line(failing("train", "ratings.csv", "--test-size", "2"), "--test-size must be")
    np.save(folder / "holes.npy", np.full((40, 8), np.nan, dtype=np.float32))
    assert_one_line(failing("build", "--embeddings", "holes.npy"), "--embeddings must be finite")


@pytest.mark.slow
def test_warnings_of_the_library_are_given_in_flags(folder):
    run = cccf("build", "--embeddings", "items.npy", "-o", "out", cwd=folder)
    assert "warning: There are no --queries" in run.stderr
