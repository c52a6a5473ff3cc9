"""Errors of the library in the words of the command line, which come from the parser of the command that ran.

The library speaks of its parameters, `n_bits` or feedback="implicit"; a user of ``cccf`` knows the flags, --bits or
--feedback implicit.
"""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from collections.abc import Callable

# Parameters whose flag is not called like them, with or without `n_`: the first of these flags that the command has.
ALIASES = {
    "bytes_per_item": ("bytes",),
    "k": ("k_core",),
    "num_threads": ("threads",),
    "user_items": ("ratings",),
    "item_vectors": ("embeddings",),
    "user_vectors": ("queries",),
    "x": ("embeddings",),
}
# "last" or "mean" to keep one, or "sum": all values that the sentence names; or a number
VALUE = r'"[^"]*"(?:[^"`=.]*\bor\ "[^"]*")*|-?\d+(?:\.\d+)?'
LIST = r"\[[^`]*\]"
KEYWORD = re.compile(rf"([a-z_]+)=({VALUE})")
NAMED = re.compile(
    rf"""\b(?P<model>[A-Z]+)\((?P<keywords>[^()]*)\)  # CCCF(feedback="implicit")
    | (?<=\buse\ )(?P<other>[A-Z]+)\b  # use DCMF
    | `(?P<marked>[a-z_]+)(?:=(?P<given>{VALUE}|{LIST})?)?`  # `n_bits`, `sep=`, `alpha=0`, `columns=[1, 0]`
    | (?<![\w./\\(`-])(?<!--set\ )(?P<name>[a-z_]+)=(?P<value>{VALUE})(?![\w/\\]|\.\w)  # alpha=0, outside file names
    | (?<![\w./\\(`-])(?P<bare>n_[a-z]+)(?![\w/\\(`-]|\.\w)  # n_bits""",
    re.VERBOSE,
)


def make_translator(parser: argparse.ArgumentParser) -> Callable[[str], str]:
    """Return a function that replaces the library's parameters in a text by the flags of a command."""
    actions = {action.dest: action for action in parser._actions}
    models = actions["model"].choices or () if "model" in actions else ()

    def find_flag(name: str) -> str | None:
        for dest in (name, name.removeprefix("n_"), *ALIASES.get(name, ())):
            if dest in actions:
                action = actions[dest]
                return max(action.option_strings, key=len) if action.option_strings else str(action.metavar or dest)
        return None

    def write_flag(text: str, name: str, value: str | None) -> str:
        flag, word = find_flag(name), (value or "").replace('"', "")
        if flag is not None:
            return f"{flag} {_join_list(value) if word.startswith('[') else word}".rstrip()
        return f"--set {name}={word}" if word and word[0] != "[" and "set" in actions else text

    def replace(match: re.Match[str]) -> str:
        model = match["model"] or match["other"]
        if model is None:
            name = match["marked"] or match["name"] or match["bare"]
            return write_flag(match[0], name, match["given"] or match["value"])
        if model.lower() not in models:
            return match[0]
        keywords = [write_flag(*found.group(0, 1, 2)) for found in KEYWORD.finditer(match["keywords"] or "")]
        return " ".join([f"--model {model.lower()}", *keywords])

    def translate(text: str) -> str:
        return re.sub(r"(?<= must )be None\b", "not be given", NAMED.sub(replace, text))

    return translate


def _join_list(text: str | None) -> str:
    """Return a list as it is typed, with commas; or the text if it is no list of plain values."""
    try:
        return shlex.quote(",".join(map(str, ast.literal_eval(str(text)))))
    except (ValueError, SyntaxError):
        return str(text)
