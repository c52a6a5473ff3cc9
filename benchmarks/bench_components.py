"""RQ2 of the paper: how many components of how many bits, with varied and with fixed total bits?

    python benchmarks/bench_components.py --data DIR --save

NDCG@10 of held-out ratings. *kernel* is the paper's model with a bandwidth at which weights are dense; *learned* has
learned weights. Latent factors and teachers are trained once per split: only codes and weights differ.
"""

from __future__ import annotations

from typing import Any

from trials import Task, measure_ndcg, run_trials

from cccf_index.models import CCCF, MF
from cccf_index.quantizer import CompositionalQuantizer

VARIED = [(G, r) for r in (4, 8, 16) for G in (1, 2, 4, 8, 16)]
FIXED = [(G, total // G) for total in (32, 64, 128) for G in (1, 2, 4, 8, 16, 32)]
SHAPES = sorted({*VARIED, *FIXED})
BANDWIDTH, FACTORS = 1.2, 32
CONFIG = {"bandwidth": BANDWIDTH, "kernel factors": FACTORS, "varied": VARIED, "fixed": FIXED}


def run_task(task: Task) -> dict[str, Any]:
    """Return NDCG@10 of each shape on one split."""
    train, test = task.split_parts()
    figures = {}
    if task.part == "kernel":
        latents = MF(FACTORS, verbose=False).fit(train)
        for G, r in SHAPES:
            model = CCCF(G, r, "kernel", bandwidth=BANDWIDTH, latents=latents, verbose=False).fit(train)
            figures[f"{G}x{r}"] = measure_ndcg(model.user_codes_.to_vectors(), model.item_codes_.to_vectors(), test)
        return figures
    model = CCCF(8, 16, objective="rated", verbose=False).fit(train)
    teacher = model._get_teacher()
    users = teacher.extend_users(teacher.latents.user_factors_)
    items = teacher.extend_items(teacher.latents.item_factors_, teacher.item_bias)
    for G, r in SHAPES:
        quantizer = CompositionalQuantizer(G, r, verbose=False).fit(items, users)
        assert quantizer.user_codes_ is not None
        figures[f"{G}x{r}"] = measure_ndcg(quantizer.user_codes_.to_vectors(), quantizer.item_codes_.to_vectors(), test)
    return figures


if __name__ == "__main__":
    run_trials("components", __doc__, run_task, ("kernel", "learned"), CONFIG)
