"""Second moments of rows: all that the error over all pairs depends on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index import _threads
from cccf_index.learning.rows import CodedRows

BLOCK = 4096  # rows that are expanded, weighted and multiplied at a time: they stay in the cache
PARTS = 4  # of the rows, each summed for itself: sums do not depend on the number of threads


def compute_moments(
    x: NDArray[Any] | CodedRows, weights: NDArray[Any], *others: NDArray[Any] | None
) -> list[NDArray[np.float64]]:
    """Return the second moments ``sum_i weights_i * x_i y_i^T`` of rows x (n, d) with each y of `others`.

    None stands for x itself. Products are float32, and sums of blocks float64.
    """
    n, scales = len(weights), weights[:, None].astype(np.float32)
    n_parts = max(1, min(PARTS, n // BLOCK))
    sums: list[list[Any]] = [[0.0] * len(others) for _ in range(n_parts)]

    def work(start: int, stop: int) -> None:
        for part in range(start, stop):
            last = n * (part + 1) // n_parts
            for first in range(n * part // n_parts, last, BLOCK):
                rows = slice(first, min(first + BLOCK, last))
                block = x.take(rows).expand() if isinstance(x, CodedRows) else np.asarray(x[rows], np.float32)
                weighted = (block * scales[rows]).T
                for place, y in enumerate(others):
                    product = weighted @ (block if y is None else np.asarray(y[rows], np.float32))
                    sums[part][place] = sums[part][place] + product.astype(np.float64)

    _threads.run_chunks(work, n_parts, _threads.thread_count(0), least=1, most=1)
    return [sum((part[place] for part in sums[1:]), start=sums[0][place]) for place in range(len(others))]


def compute_moment(x: NDArray[Any], weights: NDArray[Any]) -> NDArray[np.float64]:
    """Return the second moment ``sum_i weights_i * x_i x_i^T``."""
    return compute_moments(x, weights, None)[0]
