"""RQ3 of the paper: what do rounded weights (e) and sparse weights (h) cost in accuracy?

    python benchmarks/bench_weights.py --data DIR --save

NDCG@10 of held-out ratings, of 8 components of 16 bits. Weights of users and items are multiplied by e and rounded, as
the index does; *float* keeps them. *kernel* is the paper's model at each bandwidth h, *learned* has no bandwidth.
What rounding and sparsity save is told by `bench_costs.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from trials import Task, code_ndcg, run

from cccf_index import CompositionalCodes
from cccf_index.models import CCCF, MF

SCALES = (1, 10, 50, 100, 500, 1000)
BANDWIDTHS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2)
ROUNDED = (0.8, 1.2)  # bandwidths at which weights are rounded, too
CONFIG = {"components": 8, "bits": 16, "e": SCALES, "h": BANDWIDTHS, "distance": "angular"}


def rounded_vectors(codes: CompositionalCodes, scale: int) -> NDArray[np.float32]:
    """Return expanded vectors with weights as an index of that scale has them."""
    weights = np.rint(codes.weights * np.float64(scale)).astype(np.float32)
    return CompositionalCodes(codes.bits, weights, codes.n_bits).to_vectors()


def rounded_figures(model: CCCF, test: Any, label: str) -> dict[str, Any]:
    """Return NDCG@10 at each scale."""
    figures = {}
    for scale in SCALES:
        users, items = (rounded_vectors(codes, scale) for codes in (model.user_codes_, model.item_codes_))
        figures[f"{label}e = {scale}"] = code_ndcg(users, items, test)
    return figures


def work(task: Task) -> dict[str, Any]:
    """Return NDCG@10 of one split, and what share of components is active."""
    train, test = task.split_parts()
    if task.part == "learned":
        model = CCCF(8, 16, verbose=False).fit(train)
        exact = code_ndcg(model.user_codes_.to_vectors(), model.item_codes_.to_vectors(), test)
        return {"float": exact, **rounded_figures(model, test, "")}
    latents = MF(32, verbose=False).fit(train)
    figures: dict[str, Any] = {}
    for bandwidth in BANDWIDTHS:
        model = CCCF(8, 16, "kernel", bandwidth=bandwidth, latents=latents, verbose=False).fit(train)
        users, items = model.user_codes_, model.item_codes_
        figures[f"h = {bandwidth}"] = code_ndcg(users.to_vectors(), items.to_vectors(), test)
        figures[f"h = {bandwidth}, active of an item"] = 8 * (1 - items.sparsity)
        shared = (users.weights > 0).mean(axis=0) @ (items.weights > 0).mean(axis=0)
        figures[f"h = {bandwidth}, shared of a pair"] = float(shared)
        if bandwidth in ROUNDED:
            figures |= rounded_figures(model, test, f"h = {bandwidth}, ")
    return figures


if __name__ == "__main__":
    run("weights", __doc__, work, ("kernel", "learned"), CONFIG)
