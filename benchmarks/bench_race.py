"""How fast is each library where it finds a given share of the vectors' own top 10, 100 and 1,000?

    python benchmarks/bench_race.py --data DIR --save

Every library is built over the same vectors and searched with every setting of its grid, see race_peers.py and
race_ours.py; queries are users that no method was trained on. Of the settings that reach a recall the fastest counts:
in a batch on one thread, one query at a time, and in a batch on two threads. Recall is computed from the vectors, not
from the scores that a library returns. Times are the best of several runs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import faiss
import numpy as np
from catalogues import FactorSet, Store
from common import make_parser, print_machine, read_results, save_results
from numpy.typing import NDArray
from race_ours import build_ours
from race_peers import PEERS, Peer, Search, Shelf, UnsuitableError
from texts import embed_texts

from cccf_index.comparison import measure_recall, time_within_budget

LENGTHS = (10, 100, 1000)
RECALLS = (0.9, 0.95, 0.99)
CATALOGUES = ("gowalla", "ciao", "amazon-dfm", "texts", "146469", "1000000")
QUERIES = 1024
ALONE = 100  # queries that are timed one by one,
SCREENED = 20  # and those that choose the settings for it,
NEAR = 2  # of those whose batches take up to so many times as long as the fastest
TIMED = 4  # settings that are timed again, of those that reach a recall
FOUND = 262_144  # items of all lists together by which recall is measured: fewer queries for long lists
SLOW = 0.5  # times as long as dot products of WARM queries, about twice as long as those of all: left out
WARM = 64  # queries by which that is found out
MARGIN = 0.05  # a setting whose recall of these is so much below what is asked is not tried on all
ENOUGH = 2  # times as long as the fastest that reaches the highest recall: neither
BUILDERS = {build.__name__.removeprefix("build_"): build for build in PEERS}


class Case(NamedTuple):
    """Vectors of items, those of users to learn from, and queries."""

    items: NDArray[np.float32]
    users: NDArray[np.float32]
    queries: NDArray[np.float32]
    scores: NDArray[np.float32]  # (nq, 1000): the best of each query
    slowest: dict[int, float]  # by length of lists: seconds per query above which a setting is not tried


def make_case(store: Store, name: str) -> Case:
    """Return a catalogue; the queries are not among the users."""
    if name == "texts":
        items, users, queries = embed_texts()
    else:
        one: FactorSet = store.get_factors(name)
        allowed = np.flatnonzero(np.abs(one.users).sum(axis=1) > 0)
        chosen = np.zeros(len(one.users), dtype=bool)
        chosen[np.random.default_rng(0).choice(allowed, QUERIES, replace=False)] = True
        items, users, queries = one.items, one.users[~chosen], np.ascontiguousarray(one.users[chosen])
    flat = faiss.IndexFlatIP(items.shape[1])
    flat.add(items)
    faiss.omp_set_num_threads(1)
    slowest = {}
    flat.search(queries[:WARM], max(LENGTHS))
    for k in LENGTHS:
        begin = time.perf_counter()
        flat.search(queries[:WARM], k)
        slowest[k] = SLOW * (time.perf_counter() - begin) / WARM
    scores = flat.search(queries, max(LENGTHS))[0]
    return Case(items, users, queries, scores, slowest)


@dataclass(frozen=True, eq=False)  # each is a key of its own
class Tried:
    """A setting, what it finds, and how long that took once."""

    peer: Peer
    setting: str
    search: Search
    recall: float
    seconds: float  # per query; infinite for what a few queries have ruled out


def try_once(case: Case, search: Search, k: int, n: int) -> tuple[float, float]:
    """Return the recall of the first n queries and the seconds per query."""
    queries, begin = case.queries[:n], time.perf_counter()
    found = search(queries, k, 1)
    seconds = (time.perf_counter() - begin) / n
    return measure_recall(found, queries, case.items, case.scores[:n, k - 1]), seconds


def try_settings(case: Case, peers: list[Peer], k: int) -> list[Tried]:
    """Search with every setting that suits lists of k items."""
    tried: list[Tried] = []
    most = case.slowest[k] if peers[0].family != "IndexFlatIP" else np.inf  # what they are compared with
    for peer, setting, search in ((one, *pair) for one in peers for pair in one.settings.items()):
        try:
            try_once(case, search, k, 8)
            recall, seconds = try_once(case, search, k, WARM)
        except UnsuitableError:
            continue
        if seconds > most:
            continue
        if recall < RECALLS[0] - MARGIN:
            seconds = np.inf
        else:
            recall, seconds = try_once(case, search, k, min(len(case.queries), FOUND // k))
        if recall >= RECALLS[-1]:
            most = min(most, ENOUGH * seconds)
        tried.append(Tried(peer, setting, search, recall, seconds))
    return tried


def search_one_by_one(case: Case, search: Search, k: int, n: int) -> float:
    """Return the seconds that n queries take, one at a time."""
    begin = time.perf_counter()
    for row in range(n):
        search(case.queries[row : row + 1], k, 1)
    return time.perf_counter() - begin


def time_alone(case: Case, search: Search, k: int) -> float:
    """Return microseconds per query, one query at a time."""
    return time_within_budget(lambda: search_one_by_one(case, search, k, ALONE)) / ALONE * 1e6


def time_batch(case: Case, search: Search, k: int, threads: int) -> float:
    """Return microseconds per query in a batch."""
    return time_within_budget(lambda: search(case.queries, k, threads)) / len(case.queries) * 1e6


class Clock:
    """Times of settings for lists of one length, each measured once."""

    def __init__(self, case: Case, k: int) -> None:
        self.batch = cache(lambda one, threads: time_batch(case, one.search, k, threads))
        self.alone = cache(lambda one: time_alone(case, one.search, k))
        self.screen = cache(lambda one: min(search_one_by_one(case, one.search, k, SCREENED) for _ in range(3)))

    def choose_fastest(self, tried: list[Tried], least: float) -> dict[str, Any] | None:
        """Return the figures of the fastest settings that reach a recall; None if there is none."""
        good = [one for one in tried if one.recall >= least and one.seconds < np.inf]
        good = sorted(good, key=lambda one: one.seconds)
        if not good:
            return None
        best = min(good[:TIMED], key=lambda one: self.batch(one, 1))
        near = sorted((one for one in good if one.seconds <= NEAR * good[0].seconds), key=self.screen)
        alone = min(near[:TIMED], key=self.alone)
        return {
            "batch, us": self.batch(best, 1),
            "batch on two threads, us": self.batch(best, 2),
            "one query, us": self.alone(alone),
            "recall": best.recall,
            "name": best.peer.name,
            "setting": best.setting,
            "bytes per item": best.peer.n_bytes,
            "build, s": best.peer.seconds,
            "name, one query": alone.peer.name,
            "setting, one query": alone.setting,
            "bytes per item, one query": alone.peer.n_bytes,
        }


def race(store: Store, catalogue: str, only: list[str] | None) -> dict[str, Any]:
    """Return the figures of every family on one catalogue, by length of the lists and recall."""
    case = make_case(store, catalogue)
    print(f"\n{catalogue}: {len(case.items):,} items of {case.items.shape[1]} dimensions", flush=True)
    results: dict[str, Any] = {}
    shelf = Shelf(store.folder / "peers" / catalogue)

    def measure(family: str, peers: list[Peer]) -> None:
        for k in LENGTHS:
            tried, clock = try_settings(case, peers, k), Clock(case, k)
            below = {"highest recall": max(one.recall for one in tried)} if tried else {}
            for least in RECALLS:
                figures = clock.choose_fastest(tried, least)
                key = f"k={k}, recall {least}"
                results.setdefault(key, {})[family] = figures or below
                print_line(key, family, results[key][family])

    builders: dict[str, Callable[[Any, Shelf], Iterator[Peer]]] = {**BUILDERS, "ours": partial(build_ours, case.users)}
    for name in only or builders:
        by_family: dict[str, list[Peer]] = {}
        try:
            for peer in builders[name](case.items, shelf):
                by_family.setdefault(peer.family, []).append(peer)
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
            continue
        for family, peers in by_family.items():
            measure(family, peers)
    return results


def print_line(key: str, family: str, figures: dict[str, Any]) -> None:
    """Print the figures of one family."""
    if "batch, us" in figures:
        print(
            f"{key:20} {family:24} {figures['batch, us']:9.1f} {figures['batch on two threads, us']:9.1f} "
            f"{figures['one query, us']:9.1f}  {figures['recall']:.3f} {figures['bytes per item']:6.0f} B "
            f"{figures['build, s']:6.1f} s  {figures['name']}, {figures['setting']}",
            flush=True,
        )
    else:
        known = f"at most {figures['highest recall']:.3f}" if figures else "too slow"
        print(f"{key:20} {family:24} {known}", flush=True)


def main() -> None:
    parser = make_parser(__doc__, "benchmarks/results/race.json", "gowalla.npz, ciao.npz and amazon-dfm.npz")
    parser.add_argument("--cache", default="benchmarks/cache", help="folder for factors and codes")
    parser.add_argument("--catalogues", nargs="*", default=CATALOGUES, help="data sets, texts, or numbers of items")
    parser.add_argument("--only", nargs="*", choices=(*BUILDERS, "ours"), help="only these libraries")
    arguments = parser.parse_args()
    print_machine()
    store = Store(arguments.data, arguments.cache)
    results = read_results("race")
    for name in arguments.catalogues:
        known = results.setdefault(name, {})
        for key, figures in race(store, name, arguments.only).items():
            known[key] = {**known.get(key, {}), **figures}
        if arguments.save:
            save_results("race", "python benchmarks/bench_race.py --data DIR --save", results, keep=True)


if __name__ == "__main__":
    main()
