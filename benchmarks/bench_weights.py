"""RQ3 of the paper: how much accuracy do rounded weights (e) and sparse weights (h) cost?

    python benchmarks/bench_weights.py --data DIR --save

NDCG@10 of held-out ratings with 8 components of 16 bits. Weights of users and items are multiplied by e and rounded, as
in the index; *float* keeps them. *kernel* is the paper's model at each bandwidth h; *learned* has no bandwidth.
`bench_costs.py` measures how much time rounding and sparsity save.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from trials import Task, measure_ndcg, run_trials

from cccf_index import CompositionalCodes
from cccf_index.models import CCCF, MF

SCALES = (1, 10, 50, 100, 500, 1000)
BANDWIDTHS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2)
ROUNDED = (0.8, 1.2)  # bandwidths at which rounding is measured too
CONFIG = {"components": 8, "bits": 16, "e": SCALES, "h": BANDWIDTHS, "distance": "angular"}


def round_vectors(codes: CompositionalCodes, scale: int) -> NDArray[np.float32]:
    """Return expanded vectors with weights rounded as in an index of this scale."""
    weights = np.rint(codes.weights * np.float64(scale)).astype(np.float32)
    return CompositionalCodes(codes.bits, weights, codes.n_bits).to_vectors()


def measure_rounded(model: CCCF, test: Any, label: str) -> dict[str, Any]:
    """Return NDCG@10 at each scale."""
    figures = {}
    for scale in SCALES:
        users, items = (round_vectors(codes, scale) for codes in (model.user_codes_, model.item_codes_))
        figures[f"{label}e = {scale}"] = measure_ndcg(users, items, test)
    return figures


def run_task(task: Task) -> dict[str, Any]:
    """Return NDCG@10 on one split, and the share of active components."""
    train, test = task.split_parts()
    if task.part == "learned":
        model = CCCF(8, 16, objective="rated", verbose=False).fit(train)
        exact = measure_ndcg(model.user_codes_.to_vectors(), model.item_codes_.to_vectors(), test)
        return {"float": exact, **measure_rounded(model, test, "")}
    latents = MF(32, verbose=False).fit(train)
    figures: dict[str, Any] = {}
    for bandwidth in BANDWIDTHS:
        model = CCCF(8, 16, "kernel", bandwidth=bandwidth, latents=latents, verbose=False).fit(train)
        users, items = model.user_codes_, model.item_codes_
        figures[f"h = {bandwidth}"] = measure_ndcg(users.to_vectors(), items.to_vectors(), test)
        figures[f"h = {bandwidth}, active of an item"] = 8 * (1 - items.sparsity)
        shared = (users.weights > 0).mean(axis=0) @ (items.weights > 0).mean(axis=0)
        figures[f"h = {bandwidth}, shared of a pair"] = float(shared)
        if bandwidth in ROUNDED:
            figures |= measure_rounded(model, test, f"h = {bandwidth}, ")
    return figures


if __name__ == "__main__":
    run_trials("weights", __doc__, run_task, ("kernel", "learned"), CONFIG)
