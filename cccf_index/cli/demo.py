"""``cccf demo``: from ratings to recommendations, compared with the usual alternatives."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import faiss
import numpy as np

from cccf_index.baselines import Popularity
from cccf_index.catalogue import Catalogue
from cccf_index.cli._console import Console, format_table
from cccf_index.cli._files import ModelFolder, add_ratings_arguments, read_ratings_file
from cccf_index.cli._outputs import check_folder, replace_folder
from cccf_index.cli.evaluate import describe_coverage, warn_of_popularity
from cccf_index.cli.recommend import CSV, make_columns
from cccf_index.comparison import Method, build_binary, drop_seen, time_within_budget, wrap_cccf, wrap_faiss
from cccf_index.datasets import Ratings, k_core, split_ratings, synthetic_ratings
from cccf_index.evaluation import MAX_RATING, catalogue_ndcg, choose_threshold, coverage, rated_ndcg
from cccf_index.models import CCCF, DCF
from cccf_index.plots import plot_demo

NAME, HELP = "demo", "go from ratings to recommendations, and compare with dot products"
EXAMPLES = """  cccf demo
  cccf demo --ratings ratings.csv -o mine
"""
SYNTHETIC: dict[str, Any] = {
    "n_users": 4000,
    "n_items": 20_000,
    "n_groups": 40,
    "ratings_per_user": 80,
    "affinity": 0.5,
    "popularity": 0.8,  # 1 % of the items has 17 % of the ratings, 10 % has 47 %; in gowalla it is 15 % and 50 %
}
COMPONENTS, BITS, K = 8, 16, 10
DCF_BITS = COMPONENTS * BITS
ADVICE = "there are few ratings to learn tastes from; keep users and items with more of them (--k-core 5)"
RESULT, FOLDER = "demo.json", "cccf-demo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("--ratings", metavar="FILE", help="your own ratings (default: synthetic ratings)")
    parser.add_argument("--k-core", type=int, metavar="K", help="keep only users and items with at least K ratings")
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", help=f"folder to write to (default: {FOLDER}, {FOLDER}-2, ...)"
    )
    parser.add_argument("--force", action="store_true", help="replace the folder of an older demo")
    add_ratings_arguments(parser)


@dataclass
class Entry:
    """A model of the comparison: its training time, and how it is searched."""

    name: str
    model: Any
    seconds: float | None = None  # None if it was trained as a part of another model
    method: Method | None = None  # None if it needs no index


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Train, build, save, search and compare."""
    begin = time.perf_counter()
    output = arguments.output or _find_free_name()
    check_folder(output, arguments.force, RESULT)
    if arguments.ratings is None:
        ratings = synthetic_ratings(seed=arguments.seed, **SYNTHETIC)
    else:
        ratings = read_ratings_file(arguments.ratings, arguments)
    if arguments.k_core is not None:
        ratings = k_core(ratings, arguments.k_core)
    implicit = bool(ratings.user_items.data.min() == ratings.user_items.data.max())
    train, test = split_ratings(ratings.user_items, seed=arguments.seed)
    if not test.nnz:
        raise ValueError("There are too few ratings: no user has enough of them to hold some out.")
    console.note(f"{ratings}: {train.nnz:,} for training, {test.nnz:,} held out")
    with _time_step(console, "compiled kernels, or read them from the cache") as compiled, _compile_searches_beside():
        _compile_kernels(implicit)
    entries = _train_models(train, implicit, arguments.seed, console)
    ours = entries[-1]
    with replace_folder(output) as folder:
        with _time_step(console, "built and saved the index"):
            catalogue = Catalogue.of_model(ours.model, ratings.user_ids, ratings.item_ids)
            catalogue.save(os.path.join(folder, "items.cccf"))
            parts = (replace(ratings, user_items=part) for part in (train, test))
            os.mkdir(os.path.join(folder, "model"))
            ModelFolder(ours.model, ratings.user_ids, ratings.item_ids).write(os.path.join(folder, "model"), *parts)
        with _time_step(console, f"wrote the top {K} unrated items of all users"):
            _write_recommendations(catalogue, ratings, os.path.join(folder, "recs.csv"))
        with _time_step(console, "measured accuracy and speed"):
            rows = [_measure_entry(entry, train, test, implicit) for entry in entries]
        popular, mf, best = rows[0], rows[1], rows[-1]
        result = {
            "users": train.shape[0],
            "items": train.shape[1],
            "ratings": int(ratings.user_items.nnz),
            "rows": rows,
            "faster than IndexFlatIP": mf["seconds"] / best["seconds"],
            "NDCG against MF": _compute_change(best, mf, "NDCG@10"),
            "catalogue NDCG against MF": _compute_change(best, mf, "catalogue NDCG@10"),
            "catalogue NDCG against popularity": _compute_change(best, popular, "catalogue NDCG@10"),
            "warning": warn_of_popularity(best["catalogue NDCG@10"], popular["catalogue NDCG@10"], ADVICE),
            "compile seconds": compiled[0],
            "total seconds": time.perf_counter() - begin,
            "output": output,
        }
        with open(os.path.join(folder, RESULT), "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2, allow_nan=False)
        drawn = _draw_plot(rows, os.path.join(folder, "demo.png"), console)
    console.print_result(_format_result(result, output, drawn, ratings), result)


def _find_free_name() -> str:
    """Return the first free name: without --force a demo replaces nothing."""
    names = (FOLDER if number == 1 else f"{FOLDER}-{number}" for number in range(1, 10**6))
    return next(name for name in names if not os.path.lexists(name))


@contextmanager
def _time_step(console: Console, label: str) -> Iterator[list[float]]:
    """Note what was done and how long it took; the seconds are also yielded, in a list."""
    begin, seconds = time.perf_counter(), [0.0]
    yield seconds
    seconds[0] = time.perf_counter() - begin
    console.note(f"{seconds[0]:6.1f} s  {label}")


@contextmanager
def _compile_searches_beside() -> Iterator[None]:
    """Let another process compile the kernels of searches, on another core, while this one compiles those of training.

    They get here through the cache. Without a cache, or if that process fails, they are compiled here.
    """
    code = (
        "import sys; sys.path[:] = filter(None, sys.path)\n"  # not what lies in the user's folder
        f"import cccf_index; cccf_index.warm('{COMPONENTS}x{BITS}', queries=('real', 'coded'), verbose=False)"
    )
    child = None
    if (os.cpu_count() or 1) > 1:
        with suppress(OSError):
            silent = subprocess.DEVNULL
            child = subprocess.Popen([sys.executable, "-c", code], stdin=silent, stdout=silent, stderr=silent)
    try:
        yield
    finally:
        if child is not None:
            child.kill()
            child.wait()


def _compile_kernels(implicit: bool) -> None:
    """Run everything once on a small data set, so that compilation is timed separately."""
    few = synthetic_ratings(200, 300, n_groups=4, ratings_per_user=20).user_items
    if implicit:
        few.data[:] = 1
    else:
        DCF(DCF_BITS, alpha=0, beta=0, verbose=False).fit(few)
    model = CCCF(COMPONENTS, BITS, verbose=False).fit(few)
    model.to_index().search(model.user_codes_, K, exclude=few)


def _train_models(train: Any, implicit: bool, seed: int, console: Console) -> list[Entry]:
    """Return popularity, MF, DCF if ratings differ, and CCCF. MF are the factors that CCCF learned from."""
    options: dict[str, Any] = {"seed": seed, "verbose": not console.quiet}
    with _time_step(console, f"trained CCCF with {COMPONENTS} x {BITS} bits") as seconds:
        model = CCCF(COMPONENTS, BITS, **options).fit(train)
    name = f"CCCF {COMPONENTS}x{BITS}, IndexCCCF"
    ours = Entry(name, model, seconds[0], wrap_cccf(name, model.to_index(), model.user_codes_))
    mf = model.latents_
    factors = np.ascontiguousarray(mf.user_factors_, dtype=np.float32)
    name = f"MF, IndexFlatIP({factors.shape[1]})"
    flat = wrap_faiss(name, "MF", 4 * factors.shape[1], mf.to_index(), factors)
    entries = [Entry("popularity", Popularity().fit(train)), Entry(name, mf, method=flat)]
    if not implicit:
        with _time_step(console, f"trained DCF with {DCF_BITS} bits") as seconds:
            few = min(len(np.unique(part)) for part in train.nonzero()) <= DCF_BITS  # too few to balance that many bits
            dcf = DCF(DCF_BITS).set_params(**options, **({"alpha": 0, "beta": 0} if few else {})).fit(train)
        name = f"DCF, IndexBinaryFlat({DCF_BITS})"
        entries.append(Entry(name, dcf, seconds[0], build_binary(dcf.item_codes_, dcf.user_codes_, name)))
    return [*entries, ours]


def _write_recommendations(catalogue: Catalogue, ratings: Ratings, path: str) -> None:
    users = np.arange(len(catalogue.user_ids))
    found = catalogue.recommend(users, K, exclude=catalogue.seen(ratings, users))
    writer = CSV()
    writer.write(f"{path}.rows", make_columns(catalogue, users, *found))
    writer.join([f"{path}.rows"], path)
    os.unlink(f"{path}.rows")


def _measure_entry(entry: Entry, train: Any, test: Any, implicit: bool) -> dict[str, Any]:
    """Return accuracy and speed; the top items of all users are timed on one thread."""
    threads = faiss.omp_get_max_threads()
    method = entry.method
    if method is None:
        ranking = entry.model.recommend(None, K, exclude=train)[1]
    else:
        depth = min(train.shape[1], K + int(np.diff(train.indptr).max()))
        ranking = drop_seen(method.search(slice(None), depth, threads), train, K)
    catalogue = catalogue_ndcg(ranking, test, K, threshold=choose_threshold(test))
    figures: dict[str, Any] = {"name": entry.name, "training seconds": entry.seconds}
    if not implicit and 0 <= test.data.min() <= test.data.max() <= MAX_RATING:
        figures["rated NDCG@10"] = rated_ndcg(entry.model, test, K)
    figures["catalogue NDCG@10"] = catalogue
    figures["NDCG@10"] = figures.get("rated NDCG@10", catalogue)
    figures["distinct items"], figures["share of users with the top item"] = coverage(ranking, K)
    figures["seconds"] = None if method is None else time_within_budget(lambda: method.search(slice(None), K, 1))
    faiss.omp_set_num_threads(threads)
    figures["queries per second"] = None if method is None else train.shape[0] / figures["seconds"]
    figures["bytes per item"] = None if method is None else method.bytes
    return figures


def _draw_plot(rows: list[dict[str, Any]], path: str, console: Console) -> bool:
    try:
        plot_demo(rows, path)
    except ImportError as error:
        console.note(str(error))
        return False
    return True


def _compute_change(ours: dict[str, Any], other: dict[str, Any], key: str) -> float:
    """Return by how much a figure of CCCF is above that of another row, relative to it."""
    return float(ours[key] / max(other[key], 1e-9)) - 1


def _format_row(row: dict[str, Any]) -> tuple[str, ...]:
    columns = (
        ("rated NDCG@10", "{:.4f}"),
        ("catalogue NDCG@10", "{:.4f}"),
        ("training seconds", "{:.1f}"),
        ("seconds", "{:.3f}"),
        ("queries per second", "{:,.0f}"),
        ("bytes per item", "{:.0f}"),
    )
    return row["name"], *("" if row.get(key) is None else form.format(row[key]) for key, form in columns)


def _format_result(result: dict[str, Any], output: str, drawn: bool, ratings: Ratings) -> str:
    """Return the table, what it shows, and the next command to try."""
    rows = result["rows"]
    popular, mf, ours = rows[0], rows[1], rows[-1]
    head = ("", "NDCG@10: rated", "all items", "training, s", f"top-{K} of all users, s", "queries/s", "bytes/item")
    kinds = [("rated NDCG@10", "rated")] if "rated NDCG@10" in mf else []
    kinds.append(("catalogue NDCG@10", "all items"))
    changes = ", ".join(f"{100 * _compute_change(ours, mf, key):+.1f} % ({name})" for key, name in kinds)
    spread = [
        describe_coverage(row["distinct items"], row["share of users with the top item"], result["items"])
        for row in (ours, popular)
    ]
    users = ",".join(str(name) for name in ratings.user_ids[:2].tolist())
    warning = "" if result["warning"] is None else f"\n{result['warning']}"
    return f"""
{format_table([head, *map(_format_row, rows)])}

CCCF is {result["faster than IndexFlatIP"]:.1f} times faster than MF's dot products, on one thread each, in 1/{mf["bytes per item"] / ours["bytes per item"]:.0f} of the memory.
NDCG@10 of CCCF against MF: {changes}.
Top {K} of all users by CCCF: {spread[0]}.
Top {K} of all users by popularity: {spread[1]}.{warning}
Total time {result["total seconds"]:.0f} s, of which {result["compile seconds"]:.0f} s compiled kernels (once; they are cached).

{output}: items.cccf, model, recs.csv, demo.json{", demo.png" if drawn else ""}
Next: cccf search {os.path.join(output, "items.cccf")} --users {users} -k 5"""  # noqa: E501
