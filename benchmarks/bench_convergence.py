"""The paper's convergence figure: does training from the relaxed solution end sooner and better?

    python benchmarks/bench_convergence.py --data DIR --save

The paper's model with 8 components of 16 bits, started from the signs of the relaxed solution and from random signs:
the objective after each iteration, and NDCG@10 of held-out ratings after some iterations.
"""

from __future__ import annotations

from typing import Any

from trials import Task, measure_ndcg, run_trials

from cccf_index.models import CCCF, MF

ITERATIONS = (0, 1, 2, 4, 7, 10)
CONFIG = {"components": 8, "bits": 16, "bandwidth": 1.2, "iterations": ITERATIONS}


def run_task(task: Task) -> dict[str, Any]:
    """Return the objective per rating of all iterations, and NDCG@10 after some of them, on one split."""
    train, test = task.split_parts()
    latents = MF(32, verbose=False).fit(train)
    figures: dict[str, Any] = {}
    for max_iter in ITERATIONS:
        model = CCCF(
            8,
            16,
            "kernel",
            bandwidth=1.2,
            latents=latents,
            initialize=task.part == "initialised",
            max_iter=max_iter,
            tol=0,
            verbose=False,
        ).fit(train)
        users, items = model.user_codes_.to_vectors(), model.item_codes_.to_vectors()
        figures[f"NDCG@10 after {max_iter}"] = measure_ndcg(users, items, test)
    objectives = [entry.objective / train.nnz for entry in model.history_]
    figures["objective"] = objectives + objectives[-1:] * (
        ITERATIONS[-1] + 1 - len(objectives)
    )  # training ended early: the objective no longer falls
    return figures


if __name__ == "__main__":
    run_trials("convergence", __doc__, run_task, ("initialised", "random start"), CONFIG)
