"""Shared by the accuracy experiments: run trials over data sets and random splits on all cores.

A trial is one call of ``work(task)`` in a process with one thread. Results do not depend on the number of threads, so
running many trials at a time uses the cores best. When all splits of a topic are done, its figures are written to
``results/<name>.json``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from typing import Any

import faiss
import numpy as np
from common import DATASETS, load_ratings, make_parser, print_machine, save_results
from numpy.typing import NDArray

from cccf_index.datasets import Ratings, split_ratings
from cccf_index.evaluation import rated_ndcg

SPLITS = 5


@dataclass(frozen=True)
class Task:
    """One split of one data set, and the part of the experiment to run on it."""

    data: str
    dataset: str
    split: int
    part: str

    def ratings(self) -> Ratings:
        """Return the whole data set; the process caches it for its next task."""
        return _load_cached(self.data, self.dataset)

    def split_parts(self) -> tuple[Any, Any]:
        """Return the training part and the held-out part: 70 and 30 % of each user's ratings."""
        return split_ratings(self.ratings().user_items, seed=self.split)


@lru_cache(maxsize=1)
def _load_cached(data: str, dataset: str) -> Ratings:
    return load_ratings(data, dataset)


def measure_ndcg(users: NDArray[Any], items: NDArray[Any], test: Any, k: Any = 10) -> Any:
    """Return the NDCG of held-out items, ranked by inner products of user and item vectors."""
    owners = np.repeat(np.arange(test.shape[0]), np.diff(test.indptr))
    scores = [
        np.einsum("ij,ij->i", users[owners[part]], items[test.indices[part]])
        for part in (slice(start, start + 2**16) for start in range(0, test.nnz, 2**16))
    ]
    return rated_ndcg(np.concatenate(scores), test, k)


def run_trials(
    name: str, doc: str | None, work: Callable[[Task], dict[str, Any]], parts: Sequence[str], config: dict[str, Any]
) -> None:
    """Run the trials of the command line, and write mean and standard deviation over splits."""
    parser = make_parser(doc, f"benchmarks/results/{name}.json; topics that are not measured stay", "<dataset>.npz")
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), help=f"default: {' '.join(DATASETS)}")
    parser.add_argument("--parts", nargs="+", default=list(parts), choices=list(parts), help="default: all")
    parser.add_argument("--splits", type=int, default=SPLITS, help=f"random splits (default: {SPLITS})")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="trials at a time (default: all cores)")
    arguments = parser.parse_args()
    print_machine()
    tasks = [
        Task(arguments.data, dataset, split, part)
        for dataset in arguments.datasets
        for part in arguments.parts
        for split in range(arguments.splits)
    ]
    for dataset in arguments.datasets:
        load_ratings(arguments.data, dataset)  # a missing file is reported before anything runs
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # inherited by the processes of the pool
    done: dict[str, list[dict[str, Any]]] = {}
    begin = time.perf_counter()
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn"), faiss.omp_set_num_threads, (1,)) as pool:
        futures = {pool.submit(work, task): task for task in tasks}
        for future in as_completed(futures):
            task = futures[future]
            topic = f"{task.dataset}, {task.part}"
            done.setdefault(topic, []).append(future.result())
            print(f"{time.perf_counter() - begin:7.0f} s  {topic}, split {task.split}", flush=True)
            if len(done[topic]) == arguments.splits:
                figures = summarize_trials(done[topic])
                for key, value in figures.items():
                    print(f"           {key:40}{value}", flush=True)
                if arguments.save:
                    save_results(
                        name,
                        f"python benchmarks/bench_{name}.py --data DIR --save",
                        {topic: figures},
                        keep=True,
                        config=config,
                    )


def summarize_trials(trials: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return mean and standard deviation over splits of each figure, and the number of splits."""
    rows = list(trials)
    result: dict[str, Any] = {"splits": len(rows)}
    for key in rows[0]:
        values = np.array([row[key] for row in rows], dtype=np.float64)
        result[key] = {"mean": values.mean(axis=0).tolist(), "std": values.std(axis=0).tolist()}
    return result
