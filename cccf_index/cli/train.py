"""``cccf train``: learn a model from a file of ratings and write it to a folder."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index.cli._console import Console
from cccf_index.cli._files import MODEL, ModelFolder, add_ratings_arguments, format_flag, read_ratings_file
from cccf_index.cli._outputs import check_folder, replace_folder
from cccf_index.datasets import Ratings, k_core, split_ratings
from cccf_index.datasets.ratings import find_places
from cccf_index.datasets.reading import read_feature_lines
from cccf_index.models import BCCF, CCCF, DCF, DCMF, MF

NAME, HELP = "train", "learn codes or factors from ratings"
EXAMPLES = """  cccf train ratings.csv -o model
  cccf train ratings.dat --model dcf --bits 64 -o dcf
  cccf train clicks.tsv --columns 0,1 -o model
  cccf train ratings.csv --test-size 0.3 -o model && cccf evaluate model
"""
MODELS = {"cccf": CCCF, "dcf": DCF, "bccf": BCCF, "dcmf": DCMF, "mf": MF}
OPTIONS = {  # option: parameter of the model
    "components": "n_components",
    "bits": "n_bits",
    "factors": "n_factors",
    "weights": "weights",
    "bandwidth": "bandwidth",
    "queries": "queries",
    "feedback": "feedback",
    "objective": "objective",
    "max_active": "max_active",
    "regularization": "regularization",
    "unobserved": "unobserved",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command; options that are not given keep the model's defaults."""
    parser.add_argument("ratings", metavar="RATINGS", help="file with one rating per line: user, item, rating")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="folder to write the model to")
    parser.add_argument("--force", action="store_true", help="replace an existing model")
    parser.add_argument("--model", default="cccf", choices=list(MODELS), help="which model to train (default: cccf)")
    parser.add_argument("--components", type=int, metavar="G", help="components of a code (cccf; default: 8)")
    parser.add_argument(
        "--bits", type=int, metavar="R", help="bits of a component (cccf; default: 16), or of the code (default: 64)"
    )
    parser.add_argument("--factors", type=int, metavar="P", help="factors of mf, or of the model that cccf learns from")
    parser.add_argument("--weights", choices=("learned", "kernel"), help="kind of component weights (cccf)")
    parser.add_argument("--bandwidth", type=float, help="bandwidth of kernel weights (cccf)")
    parser.add_argument("--queries", choices=("coded", "real"), help="kind of user queries (cccf)")
    parser.add_argument(
        "--feedback",
        choices=("auto", "explicit", "implicit"),
        help="kind of ratings (cccf; default: auto, which is implicit if there are no ratings or all are equal)",
    )
    parser.add_argument(
        "--objective",
        choices=("catalogue", "rated"),
        help="what to learn (cccf): the best of all items (default), or the order of the items that a user rated",
    )
    parser.add_argument("--max-active", type=int, metavar="N", help="active components of an item, at most (cccf)")
    parser.add_argument("--regularization", type=float, help="regularization strength")
    parser.add_argument("--unobserved", type=float, help="weight of pairs without a rating (mf, cccf)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="any other model parameter; VALUE is JSON"
    )
    features = "lines of {0}, feature and optionally a value (dcmf)"
    parser.add_argument("--item-features", metavar="FILE", help=features.format("item"))
    parser.add_argument("--user-features", metavar="FILE", help=features.format("user"))
    parser.add_argument("--k-core", type=int, metavar="K", help="keep only users and items with at least K ratings")
    parser.add_argument("--test-size", type=float, metavar="SHARE", help="share of each user's ratings to hold out")
    add_ratings_arguments(parser)


def make_model(arguments: argparse.Namespace, quiet: bool) -> Any:
    """Return the model that the options describe; an option that the model does not have is an error."""
    model = MODELS[arguments.model](seed=arguments.seed, verbose=not quiet)
    for option, name in OPTIONS.items():
        value = getattr(arguments, option)
        if value is not None:
            if name not in model.get_params():
                raise ValueError(f"{format_flag(option)} is not an option of --model {arguments.model}.")
            model.set_params(**{name: value})
    for setting in arguments.set:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"--set must be NAME=VALUE, got {setting!r}.")
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        model.set_params(**{name: value})
    return model


def read_features(
    path: str | None, ids: NDArray[Any], arguments: argparse.Namespace, console: Console
) -> NDArray[np.float32] | None:
    """Read lines of id, feature and optionally a value; return an array with a row for each of the ids."""
    if path is None:
        return None
    kind = "str" if ids.dtype.kind == "U" else arguments.ids
    given = read_feature_lines(path, arguments.sep, arguments.header, kind)
    rows = find_places(given.user_ids, ids)
    console.note(f"{path}: {len(given.item_ids)} features, given for {np.sum(rows >= 0):,} of {len(ids):,} ids")
    if (rows < 0).all():
        raise ValueError(f"{path} has features for none of the {len(ids)} ids of the ratings: do the ids match?")
    features = np.zeros((len(ids), len(given.item_ids)), dtype=np.float32)
    features[rows >= 0] = given.user_items[rows[rows >= 0]].toarray()
    return features


def prepare_ratings(arguments: argparse.Namespace, console: Console) -> tuple[Ratings, Ratings, Ratings | None]:
    """Return all ratings, the training part, and the held-out part."""
    ratings = read_ratings_file(arguments.ratings, arguments)
    if arguments.k_core is not None:
        ratings = k_core(ratings, arguments.k_core)
    console.note(f"{arguments.ratings}: {ratings}")
    if arguments.test_size is None:
        return ratings, ratings, None
    parts = split_ratings(ratings.user_items, arguments.test_size, arguments.seed)
    train, test = (replace(ratings, user_items=part) for part in parts)
    if not test.user_items.nnz:
        raise ValueError(
            f"--test-size {arguments.test_size} holds out no ratings: users have too few. Choose a larger share."
        )
    return ratings, train, test


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Train the model and write the folder."""
    check_folder(arguments.output, arguments.force, MODEL)
    model = make_model(arguments, console.quiet)
    ratings, train, test = prepare_ratings(arguments, console)
    features = {
        "item_features": read_features(arguments.item_features, ratings.item_ids, arguments, console),
        "user_features": read_features(arguments.user_features, ratings.user_ids, arguments, console),
    }
    if arguments.model == "cccf" and arguments.feedback in (None, "auto") and train.feedback == "implicit":
        console.note("All ratings are equal: trained as implicit feedback. Use --columns if there are ratings.")
    begin = time.perf_counter()
    model.fit(train.user_items, **features)
    seconds = time.perf_counter() - begin
    choice = getattr(model, "choice_", None)
    if choice is not None:
        words = ", ".join(f"{name} {value:.3g}" for name, value in choice.items())
        console.note(f"chosen by held-out NDCG@10 of all items: {words}")
    with replace_folder(arguments.output) as folder:
        parts = () if test is None else (train, test)
        ModelFolder(model, ratings.user_ids, ratings.item_ids).write(folder, *parts)
    result = {
        "model": repr(model),
        "users": model.n_users_,
        "items": model.n_items_,
        "ratings": int(train.user_items.nnz),
        "held out": 0 if test is None else int(test.user_items.nnz),
        "seconds": round(seconds, 3),
        "chosen": choice,
        "output": arguments.output,
    }
    text = f"{model} trained on {train} in {seconds:.1f} s, written to {arguments.output}"
    console.print_result(text, result)
