"""What the benchmarks share: data, timing, the machine, results as JSON."""

from __future__ import annotations

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


def machine() -> dict[str, Any]:
    """Return what a reader must know to compare figures."""
    model = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as lines:
            model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    packages = ("cccf-index", "numpy", "scipy", "numba", "faiss-cpu")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def rounded(value: Any) -> Any:
    """Return a result with floats of four digits: more would be noise."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return value


def load(folder: str, dataset: str) -> Ratings:
    """Return the ratings of ``<folder>/<dataset>.npz``, with genres as features where ``<dataset>_genres.json`` is."""
    path = pathlib.Path(folder) / f"{dataset}.npz"
    if not path.is_file():
        sys.exit(f"There is no {path}. Put arrays user, item and rating into it, or name another folder by --data.")
    ratings = read_ratings(path)
    genres = path.with_name(f"{dataset}_genres.json")
    if not genres.is_file():
        return ratings
    of_item = {int(item): names for item, names in json.loads(genres.read_text()).items()}
    names = sorted({name for names in of_item.values() for name in names})
    features = np.array([[name in of_item[item] for name in names] for item in ratings.item_ids], dtype=np.float32)
    return replace(ratings, item_features=features)


def print_machine() -> None:
    """Print what a reader must know to compare figures."""
    for key, value in machine().items():
        print(f"{key:12}{value}")


def save(
    name: str, command: str, results: dict[str, Any], keep: bool = False, config: dict[str, Any] | None = None
) -> None:
    """Write the results to ``results/<name>.json``, with the command, the machine and what was set.

    If `keep`, topics and figures of the file that were not measured anew stay.
    """
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    known = json.loads(path.read_text())["results"] if keep and path.exists() else {}
    merged = {topic: {**known.get(topic, {}), **results.get(topic, {})} for topic in {**known, **results}}
    settings = {} if config is None else {"config": config}
    content = rounded({"command": command, **settings, "machine": machine(), "results": merged})
    path.write_text(json.dumps(content, indent=2) + "\n")


def report(name: str, command: str, results: dict[str, Any], keep: bool) -> None:
    """Print the results as a table and, if asked, write them to ``results/<name>.json``."""
    print_machine()
    for topic, figures in rounded(results).items():
        print(f"\n{topic}")
        for key, value in figures.items():
            print(f"  {key:60}{value:>12}")
    if keep:
        save(name, command, results)
