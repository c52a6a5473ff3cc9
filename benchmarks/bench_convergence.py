"""The paper's figure of convergence: does training from the relaxed problem end sooner, and better?

    python benchmarks/bench_convergence.py --data DIR --save

The paper's model, 8 components of 16 bits, from the signs of the relaxed problem and from random signs: the objective
after each iteration, and NDCG@10 of held-out ratings after some.
"""

from __future__ import annotations

from typing import Any

from trials import Task, code_ndcg, run

from cccf_index.models import CCCF, MF

ITERATIONS = (0, 1, 2, 4, 7, 10)
CONFIG = {"components": 8, "bits": 16, "bandwidth": 1.2, "iterations": ITERATIONS}


def work(task: Task) -> dict[str, Any]:
    """Return the objectives of all iterations, for each rating, and NDCG@10 after some of them, of one split."""
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
        figures[f"NDCG@10 after {max_iter}"] = code_ndcg(users, items, test)
    objectives = [entry.objective / train.nnz for entry in model.history_]
    figures["objective"] = objectives + objectives[-1:] * (ITERATIONS[-1] + 1 - len(objectives))  # it stopped falling
    return figures


if __name__ == "__main__":
    run("convergence", __doc__, work, ("initialised", "random start"), CONFIG)
