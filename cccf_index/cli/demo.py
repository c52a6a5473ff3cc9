"""``cccf demo``: the whole way from ratings to recommendations, beside what one would take instead."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import faiss
import numpy as np

from cccf_index.catalogue import Catalogue
from cccf_index.cli._console import Console, table
from cccf_index.cli._files import ModelFolder, add_ratings_arguments, default_threshold, ratings_of
from cccf_index.cli._outputs import check_folder, new_folder
from cccf_index.cli.recommend import CSV, columns_of
from cccf_index.comparison import Method, binary, of_cccf, of_faiss, patient_seconds, unseen
from cccf_index.datasets import Ratings, k_core, split_ratings, synthetic_ratings
from cccf_index.evaluation import MAX_RATING, catalogue_ndcg, rated_ndcg
from cccf_index.models import CCCF, DCF, MF
from cccf_index.plots import plot_demo

NAME, HELP = "demo", "the whole way from ratings to recommendations, against dot products"
EXAMPLES = """  cccf demo
  cccf demo --ratings ratings.csv -o mine
"""
SYNTHETIC: dict[str, Any] = {
    "n_users": 4000,
    "n_items": 20_000,
    "n_groups": 40,
    "ratings_per_user": 80,
    "affinity": 0.8,
}
COMPONENTS, BITS, FACTORS, K = 8, 16, 128, 10
UNOBSERVED = 0.1  # weight of pairs without a rating, as the best of all items are asked for
RESULT, FOLDER = "demo.json", "cccf-demo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what only this command takes."""
    parser.add_argument("--ratings", metavar="FILE", help="your own ratings (default: made up)")
    parser.add_argument("--k-core", type=int, metavar="K", help="keep users and items with at least K ratings")
    parser.add_argument("-o", "--output", metavar="FOLDER", help=f"where all goes (default: {FOLDER}, or {FOLDER}-2)")
    parser.add_argument("--force", action="store_true", help="replace an older demo")
    add_ratings_arguments(parser)


@dataclass
class Entry:
    """A model in the race: how long it took to train, and how it is searched."""

    model: Any
    seconds: float | None  # None where it was not trained for itself
    method: Method


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Train, build, save, search, compare."""
    begin = time.perf_counter()
    output = arguments.output or _free_name()
    check_folder(output, arguments.force, RESULT)
    if arguments.ratings is None:
        ratings = synthetic_ratings(seed=arguments.seed, **SYNTHETIC)
    else:
        ratings = ratings_of(arguments.ratings, arguments)
    if arguments.k_core is not None:
        ratings = k_core(ratings, arguments.k_core)
    implicit = bool(ratings.user_items.data.min() == ratings.user_items.data.max())
    train, test = split_ratings(ratings.user_items, seed=arguments.seed)
    if not test.nnz:
        raise ValueError("The ratings are too few: no user has enough of them to hold some out.")
    console.note(f"{ratings}, {train.nnz:,} to learn from and {test.nnz:,} held out")
    with _timed(console, "kernels compiled, or read from the cache") as compiled:
        _compile(implicit)
    entries = _trained(train, implicit, arguments.seed, console)
    ours = entries[-1]
    with new_folder(output) as folder:
        with _timed(console, "index built and saved"):
            catalogue = Catalogue.of_model(ours.model, ratings.user_ids, ratings.item_ids)
            catalogue.save(os.path.join(folder, "items.cccf"))
            parts = (replace(ratings, user_items=part) for part in (train, test))
            os.mkdir(os.path.join(folder, "model"))
            ModelFolder(ours.model, ratings.user_ids, ratings.item_ids).write(os.path.join(folder, "model"), *parts)
        with _timed(console, f"first {K} items of all users, without those that they have rated, written"):
            _write_recommendations(catalogue, ratings, os.path.join(folder, "recs.csv"))
        with _timed(console, "accuracy and speed measured"):
            rows = [_figures(entry, train, test, implicit) for entry in entries]
        result = {
            "users": train.shape[0],
            "items": train.shape[1],
            "ratings": int(ratings.user_items.nnz),
            "rows": rows,
            "faster than IndexFlatIP": rows[0]["seconds"] / rows[-1]["seconds"],
            "NDCG against MF": _ratio(rows, "NDCG@10") - 1,
            "catalogue NDCG against MF": _ratio(rows, "catalogue NDCG@10") - 1,
            "seconds of compiling": compiled[0],
            "seconds in all": time.perf_counter() - begin,
            "output": output,
        }
        with open(os.path.join(folder, RESULT), "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2, allow_nan=False)
        drawn = _draw(rows, os.path.join(folder, "demo.png"), console)
    console.result(_text(result, output, drawn, ratings), result)


def _free_name() -> str:
    """Return the first name that is free: a demo never replaces anything by itself."""
    names = (FOLDER if number == 1 else f"{FOLDER}-{number}" for number in range(1, 10**6))
    return next(name for name in names if not os.path.lexists(name))


@contextmanager
def _timed(console: Console, what: str) -> Iterator[list[float]]:
    """Say what was done, and how long it took, which is yielded, too."""
    begin, seconds = time.perf_counter(), [0.0]
    yield seconds
    seconds[0] = time.perf_counter() - begin
    console.note(f"{seconds[0]:6.1f} s  {what}")


def _compile(implicit: bool) -> None:
    """Run once, on a little data, all that the demo will run."""
    few = synthetic_ratings(200, 300, n_groups=4, ratings_per_user=20).user_items
    rough = {"n_factors": 4, "verbose": False}
    models: list[Any] = [CCCF(COMPONENTS, BITS, regularization=0.1, unobserved=UNOBSERVED, **rough)]  # type: ignore[arg-type]
    if not implicit:
        models += [MF(4, unobserved=UNOBSERVED, verbose=False), DCF(FACTORS, alpha=0, beta=0, verbose=False)]
    for model in models:
        model.fit(few)
    codes = models[0].user_codes_
    models[0].to_index().search(codes, K, exclude=few)


def _trained(train: Any, implicit: bool, seed: int, console: Console) -> list[Entry]:
    """Return MF, DCF and CCCF; CCCF is trained first, as it chooses how strongly both it and MF are regularized."""
    options: dict[str, Any] = {"seed": seed, "verbose": not console.quiet}
    kind = {"feedback": "implicit"} if implicit else {"unobserved": UNOBSERVED}
    with _timed(console, f"CCCF of {COMPONENTS} x {BITS} bits trained") as seconds:
        model = CCCF(COMPONENTS, BITS, **kind, **options).fit(train)
    name = f"CCCF {COMPONENTS}x{BITS}, IndexCCCF"
    ours = Entry(model, seconds[0], of_cccf(name, model.to_index(), model.user_codes_))
    entries = []
    if implicit:
        mf, took = model.latents_, None  # what CCCF learned from
    else:
        with _timed(console, f"MF of {FACTORS} factors trained") as seconds:
            mf = MF(FACTORS, model.latents_.regularization, unobserved=UNOBSERVED, **options).fit(train)
        took = seconds[0]
    factors = np.ascontiguousarray(mf.user_factors_, dtype=np.float32)
    d = factors.shape[1]
    flat = of_faiss(f"MF, IndexFlatIP({d})", "MF", 4 * d, mf.to_index(), factors)
    entries.append(Entry(mf, took, flat))
    if not implicit:
        with _timed(console, f"DCF of {FACTORS} bits trained") as seconds:
            few = min(len(np.unique(part)) for part in train.nonzero()) <= FACTORS  # too few to balance so many bits
            dcf = DCF(FACTORS).set_params(**options, **({"alpha": 0, "beta": 0} if few else {})).fit(train)
        hashed = binary(dcf.item_codes_, dcf.user_codes_, f"DCF, IndexBinaryFlat({FACTORS})")
        entries.append(Entry(dcf, seconds[0], hashed))
    return [*entries, ours]


def _write_recommendations(catalogue: Catalogue, ratings: Ratings, path: str) -> None:
    users = np.arange(len(catalogue.user_ids))
    found = catalogue.recommend(users, K, exclude=catalogue.seen(ratings, users))
    writer = CSV()
    writer.write(f"{path}.rows", columns_of(catalogue, users, *found))
    writer.join([f"{path}.rows"], path)
    os.unlink(f"{path}.rows")


def _figures(entry: Entry, train: Any, test: Any, implicit: bool) -> dict[str, Any]:
    """Return accuracy and speed; the first items of all users are timed on one thread."""
    threads = faiss.omp_get_max_threads()
    depth = min(train.shape[1], K + int(np.diff(train.indptr).max()))
    ranking = unseen(entry.method.search(slice(None), depth, threads), train, K)
    catalogue = catalogue_ndcg(ranking, test, K, threshold=default_threshold(test.data))
    figures: dict[str, Any] = {"name": entry.method.name, "training seconds": entry.seconds}
    if not implicit and 0 <= test.data.min() <= test.data.max() <= MAX_RATING:
        figures["rated NDCG@10"] = rated_ndcg(entry.model, test, K)
    figures["catalogue NDCG@10"] = catalogue
    figures["NDCG@10"] = figures.get("rated NDCG@10", catalogue)
    figures["seconds"] = patient_seconds(lambda: entry.method.search(slice(None), K, 1))
    faiss.omp_set_num_threads(threads)
    figures["queries a second"] = train.shape[0] / figures["seconds"]
    figures["bytes an item"] = entry.method.bytes
    return figures


def _draw(rows: list[dict[str, Any]], path: str, console: Console) -> bool:
    try:
        plot_demo(rows, path)
    except ImportError as error:
        console.note(str(error))
        return False
    return True


def _ratio(rows: list[dict[str, Any]], key: str) -> float:
    """Return a figure of CCCF in units of that of MF."""
    return float(rows[-1][key] / max(rows[0][key], 1e-9))


def _text(result: dict[str, Any], output: str, drawn: bool, ratings: Ratings) -> str:
    """Return the table, and what to do next."""
    rows = result["rows"]
    head = ("", "NDCG@10: rated", "all items", "training, s", f"top-{K} of all users, s", "queries/s", "bytes/item")
    lines = [
        (
            row["name"],
            f"{row['rated NDCG@10']:.4f}" if "rated NDCG@10" in row else "",
            f"{row['catalogue NDCG@10']:.4f}",
            "" if row["training seconds"] is None else f"{row['training seconds']:.1f}",
            f"{row['seconds']:.3f}",
            f"{row['queries a second']:,.0f}",
            f"{row['bytes an item']:.0f}",
        )
        for row in rows
    ]
    smaller = rows[0]["bytes an item"] / rows[-1]["bytes an item"]
    kinds = [("rated NDCG@10", "rated")] if "rated NDCG@10" in rows[0] else []
    kinds.append(("catalogue NDCG@10", "all items"))
    changes = ", ".join(f"{100 * (_ratio(rows, key) - 1):+.1f} % ({name})" for key, name in kinds)
    users = ",".join(str(name) for name in ratings.user_ids[:2].tolist())
    return f"""
{table([head, *lines])}

CCCF is {result["faster than IndexFlatIP"]:.1f} times faster than MF's dot products, on one thread each, in 1/{smaller:.0f} of the memory. Its NDCG@10: {changes}.
{result["seconds in all"]:.0f} s in all, {result["seconds of compiling"]:.0f} of them for kernels that are compiled once and then cached.

{output}: items.cccf, model, recs.csv, demo.json{", demo.png" if drawn else ""}
Next: cccf search {os.path.join(output, "items.cccf")} --users {users} -k 5"""  # noqa: E501
