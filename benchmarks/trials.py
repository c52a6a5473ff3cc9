"""What the experiments on accuracy share: trials over data sets and random splits, on all cores, kept as they end.

A trial is one call of ``work(task)`` in a process with one thread: results do not depend on the number of threads, so
many trials at a time are the best use of cores. Its figures go to ``results/<name>.json`` as soon as they are there.
"""

from __future__ import annotations

import argparse
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
from common import load, print_machine, save
from numpy.typing import NDArray

from cccf_index.datasets import Ratings, split_ratings
from cccf_index.evaluation import rated_ndcg

DATASETS = ("ml-1m", "yelp-dfm", "amazon-dfm")
SPLITS = 5


@dataclass(frozen=True)
class Task:
    """One split of one data set, and what of the experiment is to be done with it."""

    data: str
    dataset: str
    split: int
    part: str

    def ratings(self) -> Ratings:
        """Return the whole data set, which the process keeps for its next task."""
        return _loaded(self.data, self.dataset)

    def split_parts(self) -> tuple[Any, Any]:
        """Return the training part and the held-out part: 70 and 30 % of each user's ratings."""
        return split_ratings(self.ratings().user_items, seed=self.split)


@lru_cache(maxsize=1)
def _loaded(data: str, dataset: str) -> Ratings:
    return load(data, dataset)


def code_ndcg(users: NDArray[Any], items: NDArray[Any], test: Any, k: Any = 10) -> Any:
    """Return the NDCG of held-out items, ranked by inner products of the vectors of users and items."""
    owners = np.repeat(np.arange(test.shape[0]), np.diff(test.indptr))
    scores = [
        np.einsum("ij,ij->i", users[owners[part]], items[test.indices[part]])
        for part in (slice(start, start + 2**16) for start in range(0, test.nnz, 2**16))
    ]
    return rated_ndcg(np.concatenate(scores), test, k)


def run(
    name: str, doc: str | None, work: Callable[[Task], dict[str, Any]], parts: Sequence[str], config: dict[str, Any]
) -> None:
    """Run the trials that the command line asks for, and write mean and standard deviation over splits."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    parser.add_argument("--data", required=True, help="folder with <dataset>.npz")
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--parts", nargs="+", default=list(parts), choices=list(parts))
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="trials at a time")
    parser.add_argument("--save", action="store_true", help=f"write benchmarks/results/{name}.json, or a part of it")
    arguments = parser.parse_args()
    print_machine()
    tasks = [
        Task(arguments.data, dataset, split, part)
        for dataset in arguments.datasets
        for part in arguments.parts
        for split in range(arguments.splits)
    ]
    for dataset in arguments.datasets:
        load(arguments.data, dataset)  # what is missing is said before anything runs
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # in the processes of the pool
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
                figures = summary(done[topic])
                for key, value in figures.items():
                    print(f"           {key:40}{value}", flush=True)
                if arguments.save:
                    save(
                        name,
                        f"python benchmarks/bench_{name}.py --data DIR --save",
                        {topic: figures},
                        keep=True,
                        config=config,
                    )


def summary(trials: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean and the standard deviation over splits of each figure, and how many splits there were."""
    rows = list(trials)
    result: dict[str, Any] = {"splits": len(rows)}
    for key in rows[0]:
        values = np.array([row[key] for row in rows], dtype=np.float64)
        result[key] = {"mean": values.mean(axis=0).tolist(), "std": values.std(axis=0).tolist()}
    return result
