"""Our own index in the race, over a grid of its settings: bytes per item, kinds of queries, budgets, re-ranking."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from race_peers import Found, Peer, Search, Shelf, Stopwatch, UnsuitableError, Vectors

from cccf_index import IndexRefineCCCF, SearchParametersCCCF
from cccf_index.curves import learn_once
from cccf_index.quantizer import CompositionalQuantizer

BUDGETS = (16, 20, 24, 28, 36, 42, 48, 64, 96, 128, 192, 256)  # up to one byte for a dimension
LOOKED_AT = (512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768)  # items, at most
REFINED = (28, 48, 96)
K_FACTORS = (1.2, 1.5, 2, 3, 4)


def search_with(index: Any, params: SearchParametersCCCF) -> Search:
    """Return the search of an index with parameters, which are made once: one query takes little longer."""
    by_threads = {threads: replace(params, num_threads=threads) for threads in (1, 2)}

    def search(queries: Vectors, k: int, threads: int) -> Found:
        if params.max_items is not None and params.max_items < 2 * k:
            raise UnsuitableError
        return np.asarray(index.search(queries, k, params=by_threads[threads])[1])

    return search


def list_searches(index: Any, options: dict[str, Any], label: str) -> dict[str, Search]:
    """Return searches with coded and real-valued queries: of all items, of the most used and of the most promising."""
    settings = {}
    for coded in (False, True):
        kind = "coded" if coded else "real-valued"
        params = SearchParametersCCCF(coded=coded, **options)
        settings[f"{kind}{label}"] = search_with(index, params)
        for most, most_used in product(LOOKED_AT, (True, False)):
            if most < index.ntotal / 2:
                name = f"{kind}, {most} most {'used' if most_used else 'promising'}{label}"
                settings[name] = search_with(index, replace(params, max_items=most, most_used=most_used))
    return settings


def build_ours(users: Vectors, items: Vectors, _: Shelf) -> Iterator[Peer]:
    """Yield codes under budgets, which are learned once, and the same re-ranked."""
    watch = Stopwatch()
    build_index = learn_once(CompositionalQuantizer(bytes_per_item=BUDGETS[0], verbose=False), items, users)
    learning = watch.seconds
    for budget in (budget for budget in BUDGETS if budget <= items.shape[1]):
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
