"""Indexes from a description, or from another index."""

from __future__ import annotations

import copy
import re
from typing import Any

import faiss

from cccf_index.index import IndexCCCF
from cccf_index.refine import IndexRefineCCCF


def index_factory(
    description: str,
    d: int | None = None,
    metric: int = faiss.METRIC_INNER_PRODUCT,
    *,
    scale: int | str | None = "auto",
) -> IndexCCCF:
    """Make an index from a description such as ``"CCCF8x16"``: 8 components of 16 bits.

    With `d` the index takes vectors of that dimension, after training; without, codes and expanded vectors. The
    prefixes ``"IDMap,"`` and ``"IDMap2,"`` are accepted, as every IndexCCCF keeps ids. The first two arguments may also
    come in faiss's order.

    Examples
    --------
    >>> import numpy as np
    >>> from cccf_index import index_factory
    >>> items = np.random.default_rng(0).standard_normal((1000, 32))
    >>> index = index_factory("CCCF8x16", 32)
    >>> index.train(items, queries=items)
    >>> index.add(items)
    >>> index
    <IndexCCCF(n_components=8, n_bits=16, scale='auto'), d=32, ntotal=1000>
    """
    if isinstance(d, str):
        description, d = d, description
    found = re.fullmatch(r"(?:IDMap2?,)?CCCF(\d+)x(\d+)", description) if isinstance(description, str) else None
    if found is None:
        raise ValueError(
            f'`description` must be like "CCCF8x16" (components x bits), optionally after "IDMap2,", '
            f"got {description!r}."
        )
    if metric != faiss.METRIC_INNER_PRODUCT:
        raise ValueError(f"`metric` must be faiss.METRIC_INNER_PRODUCT, the only one supported, got {metric}.")
    return IndexCCCF(int(found[1]), int(found[2]), scale, d=d)


def clone_index(index: Any) -> Any:
    """Return an independent index, refined or not, with the same items; the two share memory until one changes."""
    if not isinstance(index, (IndexCCCF, IndexRefineCCCF)):
        raise TypeError(f"`index` must be an IndexCCCF, got {type(index).__name__}. Use faiss.clone_index.")
    return copy.copy(index)
