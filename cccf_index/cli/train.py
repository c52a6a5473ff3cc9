"""``cccf train``: ratings in, a folder with a model out."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index.cli._console import Console
from cccf_index.cli._files import MODEL, ModelFolder, add_ratings_arguments, flag, ratings_of
from cccf_index.cli._outputs import check_folder, new_folder
from cccf_index.datasets import Ratings, k_core, read_ratings, split_ratings
from cccf_index.datasets.ratings import find_places
from cccf_index.models import BCCF, CCCF, DCF, DCMF, MF

NAME, HELP = "train", "learn codes, or factors, from ratings"
EXAMPLES = """  cccf train ratings.csv -o model
  cccf train ratings.dat --model dcf --bits 64 -o dcf
  cccf train clicks.tsv --columns 0,1 --feedback implicit -o model
  cccf train ratings.csv --test-size 0.3 -o model && cccf evaluate model
"""
MODELS = {"cccf": CCCF, "dcf": DCF, "bccf": BCCF, "dcmf": DCMF, "mf": MF}
OPTIONS = {  # option: the parameter that it sets
    "components": "n_components",
    "bits": "n_bits",
    "factors": "n_factors",
    "weights": "weights",
    "bandwidth": "bandwidth",
    "queries": "queries",
    "feedback": "feedback",
    "max_active": "max_active",
    "regularization": "regularization",
    "unobserved": "unobserved",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what only this command takes; what is not given has the model's own default."""
    parser.add_argument("ratings", metavar="RATINGS", help="a file, a line for each rating: user, item, rating")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="where the model goes")
    parser.add_argument("--force", action="store_true", help="replace a model that is there")
    parser.add_argument("--model", default="cccf", choices=list(MODELS))
    parser.add_argument("--components", type=int, metavar="G", help="of codes (cccf; default: 8)")
    parser.add_argument("--bits", type=int, metavar="R", help="of a component, or of the code (default: 16, or 64)")
    parser.add_argument("--factors", type=int, metavar="P", help="of mf, or of the teacher of cccf")
    parser.add_argument("--weights", choices=("learned", "kernel"), help="of components (cccf)")
    parser.add_argument("--bandwidth", type=float, help="of kernel weights (cccf)")
    parser.add_argument("--queries", choices=("coded", "real"), help="what users search with (cccf)")
    parser.add_argument("--feedback", choices=("explicit", "implicit"), help="what the ratings are (cccf)")
    parser.add_argument("--max-active", type=int, metavar="N", help="components of an item, at most (cccf)")
    parser.add_argument("--regularization", type=float)
    parser.add_argument("--unobserved", type=float, help="weight of pairs without a rating (mf, cccf)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="any other parameter of the model, as JSON"
    )
    parser.add_argument("--item-features", metavar="FILE", help="lines of item, feature and perhaps a number (dcmf)")
    parser.add_argument("--user-features", metavar="FILE", help="lines of user, feature and perhaps a number (dcmf)")
    parser.add_argument("--k-core", type=int, metavar="K", help="keep users and items with at least K ratings")
    parser.add_argument("--test-size", type=float, metavar="SHARE", help="of each user's ratings, to be held out")
    add_ratings_arguments(parser)


def model_of(arguments: argparse.Namespace, quiet: bool) -> Any:
    """Return the model that the options describe; an option that it has no use for is an error."""
    model = MODELS[arguments.model](seed=arguments.seed, verbose=not quiet)
    for option, name in OPTIONS.items():
        value = getattr(arguments, option)
        if value is not None:
            if name not in model.get_params():
                raise ValueError(f"{flag(option)} is of no use to --model {arguments.model}.")
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


def features_of(
    path: str | None, ids: NDArray[Any], arguments: argparse.Namespace, console: Console
) -> NDArray[np.float32] | None:
    """Read features, a line each: whom it belongs to, its name, perhaps a number; as a row for each of the ids."""
    if path is None:
        return None
    kind = "str" if ids.dtype.kind == "U" else arguments.ids
    given = read_ratings(path, sep=arguments.sep, header=arguments.header, duplicates="last", ids=kind)
    rows = find_places(given.user_ids, ids)
    console.note(f"{path}: {len(given.item_ids)} features of {np.sum(rows >= 0):,} of {len(ids):,}")
    if (rows < 0).all():
        raise ValueError(f"{path} holds features of none of the {len(ids)} of the ratings: are its ids others?")
    features = np.zeros((len(ids), len(given.item_ids)), dtype=np.float32)
    features[rows >= 0] = given.user_items[rows[rows >= 0]].toarray()
    return features


def prepared(arguments: argparse.Namespace, console: Console) -> tuple[Ratings, Ratings, Ratings | None]:
    """Return all ratings, those to learn from, and those held out."""
    ratings = ratings_of(arguments.ratings, arguments)
    if arguments.k_core is not None:
        ratings = k_core(ratings, arguments.k_core)
    console.note(f"{arguments.ratings}: {ratings}")
    if arguments.test_size is None:
        return ratings, ratings, None
    parts = split_ratings(ratings.user_items, arguments.test_size, arguments.seed)
    train, test = (replace(ratings, user_items=part) for part in parts)
    if not test.user_items.nnz:
        raise ValueError(f"--test-size {arguments.test_size} holds out no rating: users have too few.")
    return ratings, train, test


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Train, and write the folder."""
    check_folder(arguments.output, arguments.force, MODEL)
    model = model_of(arguments, console.quiet)
    ratings, train, test = prepared(arguments, console)
    features = {
        "item_features": features_of(arguments.item_features, ratings.item_ids, arguments, console),
        "user_features": features_of(arguments.user_features, ratings.user_ids, arguments, console),
    }
    begin = time.perf_counter()
    model.fit(train.user_items, **features)
    seconds = time.perf_counter() - begin
    with new_folder(arguments.output) as folder:
        parts = () if test is None else (train, test)
        ModelFolder(model, ratings.user_ids, ratings.item_ids).write(folder, *parts)
    result = {
        "model": repr(model),
        "users": model.n_users_,
        "items": model.n_items_,
        "ratings": int(train.user_items.nnz),
        "held out": 0 if test is None else int(test.user_items.nnz),
        "seconds": round(seconds, 3),
        "output": arguments.output,
    }
    text = f"{model} of {train} learned in {seconds:.1f} s, written to {arguments.output}"
    console.result(text, result)
