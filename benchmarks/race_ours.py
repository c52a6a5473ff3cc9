"""Our own index in the race, over a grid of its settings: bytes per item, kinds of queries, budgets, re-ranking."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from race_peers import Found, Peer, Search, Shelf, Stopwatch, Vectors

from cccf_index import IndexRefineCCCF, SearchParametersCCCF
from cccf_index.curves import learn_once
from cccf_index.quantizer import CompositionalQuantizer

BUDGETS = (16, 28, 48, 64, 96)
SHARES = (None, 8, 16, 32, 64, 128)  # of the items are looked at: one in so many at most
REFINED = (28, 48)
K_FACTORS = (1.2, 1.5, 2, 4)


def search_with(index: Any, params: SearchParametersCCCF) -> Search:
    """Return the search of an index with parameters, which are made once: one query takes little longer."""
    by_threads = {threads: replace(params, num_threads=threads) for threads in (1, 2)}

    def search(queries: Vectors, k: int, threads: int) -> Found:
        return np.asarray(index.search(queries, k, params=by_threads[threads])[1])

    return search


def list_searches(index: Any, options: dict[str, Any], label: str) -> dict[str, Search]:
    """Return searches with coded and real-valued queries, of all items and of the most promising ones."""
    settings = {}
    for coded in (False, True):
        for share in SHARES:
            most = None if share is None else index.ntotal // share
            params = SearchParametersCCCF(coded=coded, max_items=most, **options)
            kind = "coded" if coded else "real-valued"
            settings[f"{kind}, max_items={most}{label}"] = search_with(index, params)
    return settings


def build_ours(users: Vectors, items: Vectors, _: Shelf) -> Iterator[Peer]:
    """Yield codes under budgets, which are learned once, and the same re-ranked."""
    watch = Stopwatch()
    build_index = learn_once(CompositionalQuantizer(bytes_per_item=BUDGETS[0], verbose=False), items, users)
    learning = watch.seconds
    for budget in BUDGETS:
        watch = Stopwatch()
        index = build_index(budget)
        size, seconds = index.nbytes / index.ntotal, learning + watch.seconds
        yield Peer("CCCF", f"CCCF, {budget} bytes", size, seconds, list_searches(index, {}, ""))
        for storage in ("int8", "float16") if budget in REFINED else ():
            refined = IndexRefineCCCF(index, items, storage=storage)
            settings: dict[str, Search] = {}
            for factor in K_FACTORS:
                settings |= list_searches(refined, {"k_factor": factor}, f", k_factor={factor}")
            name = f"CCCF, {budget} bytes, refine {storage}"
            yield Peer("CCCF + refine", name, refined.nbytes / refined.ntotal, seconds, settings)
