"""``cccf evaluate``: measure how well a model or an index ranks held-out ratings."""

from __future__ import annotations

import argparse
import os
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index.catalogue import Catalogue
from cccf_index.cli._console import Console, format_table
from cccf_index.cli._files import (
    ModelFolder,
    add_ratings_arguments,
    align_ratings,
    choose_threshold,
    read_ratings_file,
    read_split,
)
from cccf_index.datasets.ratings import find_places
from cccf_index.evaluation import MAX_RATING, catalogue_ndcg, rated_ndcg, recall

NAME, HELP = "evaluate", "measure how well a model or an index ranks held-out ratings"
EXAMPLES = """  cccf train ratings.csv --test-size 0.3 -o model && cccf evaluate model
  cccf evaluate model test.csv --exclude-seen train.csv
  cccf evaluate items.cccf test.csv --exclude-seen train.csv -k 10,100
"""
CUTS = "2,4,6,8,10"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "model", metavar="MODEL", help="folder written by `cccf train`, or file written by `cccf build`"
    )
    parser.add_argument(
        "test", nargs="?", metavar="RATINGS", help="held-out ratings (default: those of `cccf train --test-size`)"
    )
    parser.add_argument("-k", default=CUTS, metavar="K,K,...", help=f"cut-offs (default: {CUTS})")
    parser.add_argument("--exclude-seen", metavar="RATINGS", help="training ratings: items not to recommend again")
    parser.add_argument(
        "--threshold", type=float, help="smallest rating that counts as relevant (default: 4 on a scale of 1 to 5)"
    )
    add_ratings_arguments(parser)


class _CatalogueModel:
    """A catalogue with the interface of a model, for the evaluation."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.user_ids, self.n_users_ = catalogue.user_ids, len(catalogue.user_ids)
        self.item_ids = catalogue.index.ids if catalogue.item_ids is None else catalogue.item_ids
        self.n_items_ = len(self.item_ids)
        if catalogue.item_ids is None and not np.array_equal(self.item_ids, np.arange(self.n_items_)):
            raise ValueError("The ids of the index must be 0, 1, ... for an evaluation. Build it with --item-ids.")

    def recommend(self, users: NDArray[np.int64], k: int, exclude: Any = None) -> Any:
        return self.catalogue.recommend(users, k, exclude=exclude)


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Evaluate and print a table."""
    words = arguments.k.split(",")
    if not all(re.fullmatch("[0-9]+", word.strip()) and int(word) for word in words):
        raise ValueError(f"-k must be numbers above 0, got {arguments.k!r}.")
    cuts = [int(word) for word in words]
    test = train = None
    if os.path.isdir(arguments.model) or not os.path.exists(arguments.model):
        kept = ModelFolder.read(arguments.model)
        model, user_ids, item_ids = kept.model, kept.user_ids, kept.item_ids
        if arguments.test is None:
            train, test = read_split(arguments.model)
    else:
        model = _CatalogueModel(Catalogue.load(arguments.model, mmap=True))
        user_ids, item_ids = model.user_ids, model.item_ids
    if arguments.test is not None:
        test = read_ratings_file(arguments.test, arguments, user_ids, item_ids)
    if test is None:
        raise ValueError(f"{arguments.model} has no held-out ratings. Give a file, or train with --test-size.")
    if arguments.exclude_seen is not None:
        train = read_ratings_file(arguments.exclude_seen, arguments, user_ids, item_ids)
    shape = (len(user_ids), len(item_ids))
    held, seen = (
        None
        if part is None
        else align_ratings(part, find_places(user_ids, part.user_ids), find_places(item_ids, part.item_ids), shape)
        for part in (test, train)
    )
    assert held is not None
    unknown = test.user_items.nnz - held.nnz
    if unknown:
        console.note(f"{unknown:,} held-out ratings are left out: the model does not know their users or items.")
    if not held.nnz:
        raise ValueError("No held-out rating matches users and items of the model: do the ids match?")
    figures: dict[str, list[float]] = {}
    threshold = choose_threshold(held.data) if arguments.threshold is None else arguments.threshold
    if held.data.min() == held.data.max():
        console.note("All held-out ratings are equal, so NDCG of rated items is left out.")
    elif not 0 <= held.data.min() <= held.data.max() <= MAX_RATING:
        console.note(f"Ratings are not from 0 to {MAX_RATING}, so NDCG of rated items (gain 2^rating - 1) is left out.")
    elif not isinstance(model, _CatalogueModel):
        figures["rated NDCG"] = rated_ndcg(model, held, cuts).tolist()
    figures["catalogue NDCG"] = catalogue_ndcg(model, held, cuts, train=seen, threshold=threshold).tolist()
    figures["recall"] = recall(model, held, cuts, train=seen, threshold=threshold).tolist()
    rows = [("", *(f"@{cut}" for cut in cuts)), *((name, *(f"{v:.4f}" for v in row)) for name, row in figures.items())]
    result = {"model": arguments.model, "held-out ratings": int(held.nnz), "cut-offs": cuts, **figures}
    console.print_result(format_table(rows), result)
