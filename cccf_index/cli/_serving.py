"""What `search` and `recommend` share: a catalogue from a file, whom to ask for, and what they have seen."""

from __future__ import annotations

import argparse
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index import SearchParametersCCCF
from cccf_index.catalogue import Catalogue
from cccf_index.cli._console import Console
from cccf_index.cli._files import add_ratings_arguments, lines_of, positive, ratings_of


def add_serving_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `search` and `recommend` take alike."""
    parser.add_argument("index", metavar="INDEX", help="a file of `cccf build`")
    parser.add_argument("-k", type=positive, default=10, help="items for each user (default: 10)")
    parser.add_argument("--exclude-seen", metavar="RATINGS", help="leave out what users rated in this file")
    parser.add_argument("--max-items", type=positive, metavar="N", help="look at no more items (faster, not exact)")
    add_ratings_arguments(parser)


def users_of(text: str | None, catalogue: Catalogue, source: str) -> NDArray[np.int64]:
    """Return the rows of users by their names: ``12,15``, ``@FILE`` with one a line, or None for all."""
    if not len(catalogue.user_ids):
        raise ValueError(f"{source} holds no users. Build it from a model, or with --queries.")
    if text is None:
        return np.arange(len(catalogue.user_ids))
    names = lines_of(text[1:]) if text.startswith("@") else [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError(f"--users must name at least one user, got {text!r}.")
    if catalogue.user_ids.dtype.kind in "iu":
        wrong = [name for name in names if not re.fullmatch("-?[0-9]+", name)]
        if wrong:
            raise ValueError(f"--users must be numbers, as the users of {source} are, got {wrong[0]!r}.")
        return catalogue.user_rows([int(name) for name in names])
    return catalogue.user_rows(names)


def seen_of(arguments: argparse.Namespace, catalogue: Catalogue, console: Console) -> Any:
    """Return what each user has seen, a row for each of all users, and say how much of the file is known here."""
    if arguments.exclude_seen is None:
        return None
    known = (catalogue.user_ids, *(() if catalogue.item_ids is None else (catalogue.item_ids,)))
    ratings = ratings_of(arguments.exclude_seen, arguments, *known)
    seen = catalogue.seen(ratings, np.arange(len(catalogue.user_ids)))
    console.note(f"{arguments.exclude_seen}: {ratings}, {seen.nnz:,} of them of users and items of the index")
    if not seen.nnz:
        raise ValueError(f"{arguments.exclude_seen} holds no user and item of {arguments.index}: are its ids others?")
    return seen


def params_of(arguments: argparse.Namespace) -> Any:
    """Return the parameters of the searches."""
    return SearchParametersCCCF(max_items=arguments.max_items)
