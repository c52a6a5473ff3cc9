"""Shared by the benchmarks: command line, data sets, description of the machine, results as JSON."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import sys
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np

from cccf_index.datasets import Ratings, read_ratings

RESULTS = pathlib.Path(__file__).parent / "results"
IMAGES = RESULTS.parents[1] / "docs" / "images"
DATASETS = ("ml-1m", "yelp-dfm", "amazon-dfm")
RIDGES = {"ml-1m": 0.09, "yelp-dfm": 0.45, "amazon-dfm": 0.2}  # regularization of MF, as bench_accuracy.py tunes it


def make_parser(doc: str | None, output: str, data: str | None = None) -> argparse.ArgumentParser:
    """Return a parser whose description is the first line of `doc`.

    It has ``--save``, which writes `output`, and with `data` also ``--data``: the folder with these files.
    """
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    if data is not None:
        parser.add_argument("--data", required=True, help=f"folder with {data}")
    parser.add_argument("--save", action="store_true", help=f"write {output}")
    return parser


def describe_machine() -> dict[str, Any]:
    """Return processor, system and package versions.

    "vectors" are the widest instructions that the processor has: with the same name it may differ by a factor of two.
    """
    model, vectors = platform.processor(), "unknown"
    if os.path.exists("/proc/cpuinfo"):
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
        flags = next((line.split() for line in lines if line.startswith("flags")), [])
        known = {"avx512bw": "AVX-512", "avx2": "AVX2"}
        vectors = next((name for flag, name in known.items() if flag in flags), vectors)
    packages = ("cccf-index", "numpy", "scipy", "numba", "faiss-cpu")
    return {
        "processor": model,
        "vectors": vectors,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def round_floats(value: Any) -> Any:
    """Return a result with floats rounded to four digits; more would be noise."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: round_floats(part) for key, part in value.items()}
    if isinstance(value, list):
        return [round_floats(part) for part in value]
    return value


def load_ratings(folder: str, dataset: str) -> Ratings:
    """Return the ratings of ``<folder>/<dataset>.npz``, with genres as features if ``<dataset>_genres.json`` exists."""
    path = pathlib.Path(folder) / f"{dataset}.npz"
    if not path.is_file():
        sys.exit(f"There is no {path}. Store arrays user, item and rating in it, or choose another folder with --data.")
    ratings = read_ratings(path)
    genres = path.with_name(f"{dataset}_genres.json")
    if not genres.is_file():
        return ratings
    of_item = {int(item): names for item, names in json.loads(genres.read_text()).items()}
    names = sorted({name for names in of_item.values() for name in names})
    features = np.array([[name in of_item[item] for name in names] for item in ratings.item_ids], dtype=np.float32)
    return replace(ratings, item_features=features)


def print_machine() -> None:
    """Print processor, system and package versions."""
    for key, value in describe_machine().items():
        print(f"{key:12}{value}")


def read_results(name: str) -> dict[str, Any]:
    """Return the results of ``results/<name>.json``; empty if there is no such file."""
    path = RESULTS / f"{name}.json"
    return dict(json.loads(path.read_text())["results"]) if path.exists() else {}


def save_results(
    name: str, command: str, results: dict[str, Any], keep: bool = False, config: dict[str, Any] | None = None
) -> None:
    """Write the results to ``results/<name>.json``, with the command, the machine and the settings.

    If `keep`, topics and figures of the file that were not measured again stay.
    """
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    known = read_results(name) if keep else {}
    merged = {topic: {**known.get(topic, {}), **results.get(topic, {})} for topic in {**known, **results}}
    settings = {} if config is None else {"config": config}
    content = round_floats({"command": command, **settings, "machine": describe_machine(), "results": merged})
    path.write_text(json.dumps(content, indent=2) + "\n")


def report_results(name: str, command: str, results: dict[str, Any], keep: bool) -> None:
    """Print the results as a table; if `keep`, also write them to ``results/<name>.json``."""
    print_machine()
    for topic, figures in round_floats(results).items():
        print(f"\n{topic}")
        for key, value in figures.items():
            print(f"  {key:60}{value:>12}")
    if keep:
        save_results(name, command, results)
