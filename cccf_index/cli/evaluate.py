"""``cccf evaluate``: measure how well a model or an index ranks held-out ratings, beside the most popular items."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index.baselines import Popularity
from cccf_index.catalogue import Catalogue
from cccf_index.cli._console import Console, format_table
from cccf_index.cli._files import (
    ModelFolder,
    add_ratings_arguments,
    align_ratings,
    read_ratings_file,
    read_split,
)
from cccf_index.datasets.ratings import find_places
from cccf_index.evaluation import MAX_RATING, catalogue_ndcg, choose_threshold, coverage, rated_ndcg, recall

NAME, HELP = "evaluate", "measure how well a model or an index ranks held-out ratings"
EXAMPLES = """  cccf train ratings.csv --test-size 0.3 -o model && cccf evaluate model
  cccf evaluate model test.csv --exclude-seen train.csv
  cccf evaluate items.cccf test.csv --exclude-seen train.csv -k 10,100
"""
CUTS = "2,4,6,8,10"
LIST = 10  # coverage is that of lists of at most this length, if there is such a cut-off
ADVICE = (
    "train with the default objective of `cccf train`, which ranks the whole catalogue, or on more ratings per user"
)


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
    test = train = counted = None
    if os.path.isdir(arguments.model) or not os.path.exists(arguments.model):
        kept = ModelFolder.read(arguments.model)
        model, user_ids, item_ids = kept.model, kept.user_ids, kept.item_ids
        counted, held_out = read_split(arguments.model)
        if arguments.test is None:
            train, test = counted, held_out
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
    held, seen, known = (
        None
        if part is None
        else align_ratings(part, find_places(user_ids, part.user_ids), find_places(item_ids, part.item_ids), shape)
        for part in (test, train, train if counted is None else counted)
    )
    assert held is not None
    unknown = test.user_items.nnz - held.nnz
    if unknown:
        console.note(f"{unknown:,} held-out ratings are left out: the model does not know their users or items.")
    if not held.nnz:
        raise ValueError("No held-out rating matches users and items of the model: do the ids match?")
    threshold = choose_threshold(held.data) if arguments.threshold is None else arguments.threshold
    rated = False
    if held.data.min() == held.data.max():
        console.note("All held-out ratings are equal, so NDCG of rated items is left out.")
    elif not 0 <= held.data.min() <= held.data.max() <= MAX_RATING:
        console.note(f"Ratings are not from 0 to {MAX_RATING}, so NDCG of rated items (gain 2^rating - 1) is left out.")
    else:
        rated = not isinstance(model, _CatalogueModel)
    popular = None
    if known is None or not known.nnz:
        console.note(f"Popularity is left out: {_explain_missing(arguments, known)}")
    else:
        popular = Popularity().fit(known)
    task = _Task(held, seen, cuts, threshold, rated)
    result = {"model": arguments.model, "held-out ratings": int(held.nnz), "cut-offs": cuts, **task.measure(model)}
    result["popularity"] = None if popular is None else task.measure(popular)
    result["warning"] = None if popular is None else task.compare(result, result["popularity"])
    console.print_result(_format_result(result, len(item_ids)), result)


def _explain_missing(arguments: argparse.Namespace, known: Any) -> str:
    if known is None:
        return f"{arguments.model} has no training ratings to count. Give them with --exclude-seen RATINGS."
    return "no training rating matches users and items of the model. Give those it was trained on with --exclude-seen."


@dataclass(frozen=True)
class _Task:
    """What models are measured by."""

    held: Any
    seen: Any  # what models must not recommend
    cuts: list[int]
    threshold: float
    rated: bool  # whether predicted ratings are compared with held-out ones

    @property
    def length(self) -> int:
        """The length of the lists whose coverage is measured."""
        return max((cut for cut in self.cuts if cut <= LIST), default=min(self.cuts))

    def measure(self, model: Any) -> dict[str, Any]:
        """Return the figures of a model by name."""
        options = {"train": self.seen, "threshold": self.threshold}
        lists = coverage(model, self.length, train=self.seen)
        return {
            **({"rated NDCG": rated_ndcg(model, self.held, self.cuts).tolist()} if self.rated else {}),
            "catalogue NDCG": catalogue_ndcg(model, self.held, self.cuts, **options).tolist(),
            "recall": recall(model, self.held, self.cuts, **options).tolist(),
            "coverage": {
                "list length": self.length,
                "distinct items": lists.distinct,
                "share of users with the top item": lists.top_share,
            },
        }

    def compare(self, figures: dict[str, Any], popular: dict[str, Any]) -> str | None:
        """Return a warning if popularity is better than the model."""
        place = self.cuts.index(self.length)
        return warn_of_popularity(figures["catalogue NDCG"][place], popular["catalogue NDCG"][place], ADVICE)


def warn_of_popularity(model: float, popular: float, advice: str) -> str | None:
    """Return a line that says so if popularity has the higher NDCG of the whole catalogue, else None."""
    return f"Popularity ranks better ({popular:.3f} against {model:.3f}): {advice}." if popular > model else None


def describe_coverage(distinct: int, top_share: float, n_items: int) -> str:
    """Return the coverage of a model in words."""
    return f"{distinct:,} of {n_items:,} items, the most recommended one for {100 * top_share:.0f} % of the users"


def _format_result(result: dict[str, Any], n_items: int) -> str:
    """Return the figures as a table, with those of popularity below each, then coverage and a warning."""
    popular = result["popularity"]
    rows: list[tuple[str, ...]] = [("", *(f"@{cut}" for cut in result["cut-offs"]))]
    for name in ("rated NDCG", "catalogue NDCG", "recall"):
        for label, figures in ((name, result), ("  popularity", popular or {})):
            if name in figures:
                rows.append((label, *(f"{value:.4f}" for value in figures[name])))
    lines = [format_table(rows), ""]
    for label, figures in ((f"Top {result['coverage']['list length']} of all users", result), ("Popularity", popular)):
        if figures is not None:
            _, distinct, top_share = figures["coverage"].values()
            lines.append(f"{label}: {describe_coverage(distinct, top_share, n_items)}.")
    if result["warning"] is not None:
        lines.append(result["warning"])
    return "\n".join(lines)
