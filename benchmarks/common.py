"""What the benchmarks share: timing, the machine, results as JSON."""

from __future__ import annotations

import json
import os
import pathlib
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

RESULTS = pathlib.Path(__file__).parent / "results"


def best_seconds(work: Callable[[], Any], runs: int = 5) -> float:
    """Return the seconds of the fastest of several runs, after one that does not count."""
    work()
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


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
    return value


def report(name: str, command: str, results: dict[str, Any], save: bool) -> None:
    """Print the results as a table and, if asked, write them to ``results/<name>.json``."""
    content = rounded({"command": command, "machine": machine(), "results": results})
    for key, value in content["machine"].items():
        print(f"{key:12}{value}")
    for topic, figures in content["results"].items():
        print(f"\n{topic}")
        for key, value in figures.items():
            print(f"  {key:60}{value:>12}")
    if save:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
