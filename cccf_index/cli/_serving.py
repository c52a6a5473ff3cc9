"""Shared by `search` and `recommend`: which users, which items they have seen, and the search parameters."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index import SearchParametersCCCF
from cccf_index.catalogue import Catalogue
from cccf_index.cli._console import Console
from cccf_index.cli._files import add_ratings_arguments, parse_positive, read_lines, read_ratings_file
from cccf_index.datasets.ratings import find_rows


def add_serving_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that `search` and `recommend` share."""
    parser.add_argument("index", metavar="INDEX", help="file written by `cccf build`")
    parser.add_argument("-k", type=parse_positive, default=10, help="items per user (default: 10)")
    parser.add_argument("--exclude-seen", metavar="RATINGS", help="leave out items that users rated in this file")
    parser.add_argument(
        "--max-items", type=parse_positive, metavar="N", help="score at most about N items (faster, not exact)"
    )
    parser.add_argument(
        "--most-used", action="store_true", help="with --max-items: first the items that fill most lists"
    )
    add_ratings_arguments(parser)


def parse_users(text: str | None, catalogue: Catalogue, source: str) -> NDArray[np.int64]:
    """Return the rows of users by name: ``12,15``, ``@FILE`` with one name per line, or None for all users."""
    if not len(catalogue.user_ids):
        raise ValueError(f"{source} has no users. Build it from a model, or with --queries.")
    if text is None:
        return np.arange(len(catalogue.user_ids))
    names = read_lines(text[1:]) if text.startswith("@") else [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError(f"--users must name at least one user, got {text!r}.")
    return find_rows(catalogue.user_ids, names, f"users in {source}", "users")


def read_seen(arguments: argparse.Namespace, catalogue: Catalogue, console: Console) -> Any:
    """Return the items that each user of the catalogue has seen, and note how many ratings of the file match."""
    if arguments.exclude_seen is None:
        return None
    known = (catalogue.user_ids, *(() if catalogue.item_ids is None else (catalogue.item_ids,)))
    ratings = read_ratings_file(arguments.exclude_seen, arguments, *known)
    seen = catalogue.seen(ratings, np.arange(len(catalogue.user_ids)))
    console.note(f"{arguments.exclude_seen}: {ratings}; {seen.nnz:,} match users and items of the index")
    if not seen.nnz:
        raise ValueError(
            f"No rating of {arguments.exclude_seen} matches users and items of {arguments.index}: do the ids match?"
        )
    return seen


def make_params(arguments: argparse.Namespace) -> Any:
    """Return the search parameters."""
    return SearchParametersCCCF(max_items=arguments.max_items, most_used=arguments.most_used)
