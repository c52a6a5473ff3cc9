"""Recall against bytes, measured on the user's own vectors: how many bytes per item are enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from cccf_index import _check
from cccf_index.evaluation import recall
from cccf_index.index import IndexCCCF
from cccf_index.quantizer import CompositionalQuantizer
from cccf_index.search.parameters import SearchParametersCCCF

BUDGETS = (16, 24, 32, 48, 64, 96)
MAX_QUERIES = 512
HELD_OUT = 0.2  # of the users at most


def learn_once(
    quantizer: CompositionalQuantizer, items: NDArray[np.float32], users: NDArray[np.float32]
) -> Callable[[float], IndexCCCF]:
    """Learn codes of vectors (n, p) for any budget; return what builds the index of the items for one.

    `IndexCCCF.from_embeddings` would learn the same for each budget.
    """
    offers = quantizer._learn(items, users, None, has_choice=True)
    assert offers is not None

    def build_index(bytes_per_item: float) -> IndexCCCF:
        own = quantizer._with_budget(offers, bytes_per_item)
        index = IndexCCCF(quantizer.n_components, quantizer.n_bits, "auto", quantizer=own)
        index.add(items)
        return index

    return build_index


def recall_curve(
    item_vectors: ArrayLike,
    user_vectors: ArrayLike,
    budgets: Sequence[float] = BUDGETS,
    lengths: Sequence[int] = (10, 100, 1000),
    *,
    n_components: int = 8,
    n_bits: int = 16,
    seed: int = 0,
    verbose: bool = True,
    **params: Any,
) -> list[dict[str, Any]]:
    """Measure which recall codes of some mean bytes per item have, on users that they were not learned from.

    Codes are learned once. Recall at k is the share of the vectors' own top k that is among the k items found.

    Parameters
    ----------
    item_vectors : array_like of float, shape (n_items, p)
    user_vectors : array_like of float, shape (n_users, p)
        The queries, or a sample of them. Up to a fifth of them, at most 512, are held out.
    budgets : sequence of float
        Values of `bytes_per_item`.
    lengths : sequence of int
        Values of k.
    n_components, n_bits, seed, **params
        See `CompositionalQuantizer`.
    verbose : bool
        Show progress, on a terminal only.

    Returns
    -------
    curve : list of dict
        For each budget ``"bytes_per_item"``, ``"bytes"`` (of the index, with its tables, per item), ``"recall"`` and
        ``"recall, coded queries"``, each a dict by k.

    Examples
    --------
    >>> import numpy as np
    >>> from cccf_index.curves import recall_curve
    >>> rng = np.random.default_rng(0)
    >>> users, items = rng.standard_normal((400, 16)), rng.standard_normal((600, 16))
    >>> curve = recall_curve(items, users, budgets=[12, 24], lengths=[10], sweeps=1)
    >>> [point["bytes_per_item"] for point in curve]
    [12, 24]
    >>> curve[0]["recall"][10] < curve[1]["recall"][10]
    True
    """
    items = _check.numbers(item_vectors, "item_vectors")
    items = _check.matrix(items, "item_vectors", (0, *items.shape)[-1])
    users = _check.matrix(user_vectors, "user_vectors", items.shape[1])
    if len(users) < 2:
        raise ValueError(
            f"`user_vectors` must hold at least 2 users, some to learn from and some to try, got {len(users)}."
        )
    if not len(budgets) or not len(lengths):
        raise ValueError("`budgets` and `lengths` must hold at least one number each.")
    lengths = [_check.integer(k, "lengths", 1, len(items)) for k in lengths]
    for budget in budgets:
        CompositionalQuantizer(n_components, n_bits, bytes_per_item=budget, **params).check()
    chosen = np.zeros(len(users), dtype=bool)
    n_queries = max(1, min(MAX_QUERIES, int(HELD_OUT * len(users))))
    chosen[np.random.default_rng(seed).choice(len(users), n_queries, replace=False)] = True
    queries, most = users[chosen], max(lengths)
    flat = faiss.IndexFlatIP(items.shape[1])
    flat.add(items)
    wanted = flat.search(queries, most)[1]
    first = CompositionalQuantizer(
        n_components, n_bits, bytes_per_item=max(budgets), seed=seed, verbose=verbose, **params
    )
    build_index = learn_once(first, items, users[~chosen])
    curve = []
    for budget in tqdm(budgets, desc="budgets", disable=None if verbose else True):
        index = build_index(budget)
        point = {"bytes_per_item": budget, "bytes": index.nbytes / index.ntotal}
        for name, coded in (("recall", False), ("recall, coded queries", True)):
            found = index.search(queries, most, params=SearchParametersCCCF(coded=coded))[1]
            point[name] = {k: float(recall(found[:, :k], wanted[:, :k], [k])[0]) for k in lengths}
        curve.append(point)
    return curve
