"""Report what an index holds: groups of items, sparsity, bytes, and how much of it the bounds prune."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index.codes import CompositionalCodes
from cccf_index.index import IndexCCCF
from cccf_index.kernels.levels import LEVELS
from cccf_index.kernels.limits import BLOCK
from cccf_index.refine import IndexRefineCCCF
from cccf_index.storage.state import Part

SAMPLE_SIZE = 200  # queries to try the bounds with


def inspect_index(
    index: IndexCCCF | IndexRefineCCCF, queries: Any = None, k: int = 10, seed: int = 0
) -> dict[str, Any]:
    """Return a report on the contents of an index.

    Parameters
    ----------
    index : IndexCCCF or IndexRefineCCCF
        Of a refined index, the report on its `base_index` and its vectors.
    queries : CompositionalCodes or ndarray of float32, shape (nq, d), optional
        Typical queries. ``"share not pruned"`` tells for each query of a sample which share of the items lies in blocks
        that the bounds cannot rule out once the best k are known. A search scores slightly more.
    k : int
    seed : int
        Seed of the sample.

    Examples
    --------
    >>> import numpy as np
    >>> from cccf_index import CompositionalCodes, IndexCCCF
    >>> from cccf_index.inspection import inspect_index
    >>> rng = np.random.default_rng(0)
    >>> index = IndexCCCF(4, 16)
    >>> index.add(CompositionalCodes.from_signs(rng.random((1000, 4, 16)) < 0.5, np.ones((1000, 4))))
    >>> report = inspect_index(index)
    >>> report["active"], len(report["groups"])
    (4.0, 1)
    """
    if isinstance(index, IndexRefineCCCF):
        return _inspect_refined(index, queries, k, seed)
    state = index._snapshot()
    groups: dict[tuple[int, ...], int] = {}
    sums, counts = np.zeros(index.n_components), np.zeros(index.n_components, np.int64)
    histogram = np.zeros(index.n_components + 1, dtype=np.int64)
    sizes = {"codes": 0, "dense values": 0, "weights": 0, "ids and biases": 0, "tables": 0}
    precisions: dict[tuple[int, ...], int] = {}
    for part in state.parts:
        t = part.segment.tables
        alive = np.concatenate([[0], np.cumsum(~part.dead_mask)])
        for slots, precision, n in zip(t.slots, t.precisions.tolist(), np.diff(alive[t.starts]), strict=True):
            if any(precision):
                precisions[tuple(precision)] = precisions.get(tuple(precision), 0) + int(n)
            if not any(precision) or (slots >= 0).any():
                members = tuple(np.flatnonzero(slots >= 0).tolist())
                groups[members] = groups.get(members, 0) + int(n)
        weights = part.rows().weights
        histogram += np.bincount((weights > 0).sum(axis=1), minlength=index.n_components + 1)
        sums += weights.sum(axis=0) / state.divisor
        counts += (weights > 0).sum(axis=0)
        sizes["codes"] += sum(shard.ntotal * shard.code_size for shard in part.segment.shards)
        coarse = 0 if np.shares_memory(t.coarse, t.weights) else t.coarse.nbytes
        sizes["weights"] += t.weights.nbytes + coarse + t.dense_weights.nbytes
        sizes["dense values"] += t.dense_octets.nbytes
        sizes["ids and biases"] += t.id_offsets.nbytes + t.bias.nbytes + part.dead.nbytes
    if not index.n_dense:
        del sizes["dense values"]
    sizes["tables"] = index.nbytes - sum(sizes.values())
    n = max(1, index.ntotal)
    active = float(histogram @ np.arange(len(histogram))) / n
    return {
        "items": index.ntotal,
        "components": index.n_components,
        "bits": index.n_bits,
        "scale": index.scale if index.scale_ is None or index.scale != "auto" else f"auto ({index.scale_:.4g})",
        "active": active,
        "sparsity": 1 - active / index.n_components,
        "items by active components": histogram.tolist(),
        "mean weight where active": (sums / np.maximum(counts, 1)).tolist(),
        "share of items active": (counts / n).tolist(),
        "bytes per item": {**{name: size / n for name, size in sizes.items()}, "total": index.nbytes / n},
        "segments": len(state.parts),
        "deleted": sum(part.n_dead for part in state.parts),
        "cells": sum(len(part.segment.tables.cell_groups) for part in state.parts),
        "blocks": sum(int(part.segment.tables.block_starts[-1]) for part in state.parts),
        "groups": [
            {"components": list(members), "items": size}
            for members, size in sorted(groups.items(), key=lambda g: -g[1])
        ],
        "dense": [
            {"dimensions by bits": {level.bits: m for level, m in zip(LEVELS, kind, strict=True) if m}, "items": size}
            for kind, size in sorted(precisions.items(), reverse=True)
        ],
        "share not pruned": _measure_unpruned(index, queries, k, seed),
    }


def _inspect_refined(index: IndexRefineCCCF, queries: Any, k: int, seed: int) -> dict[str, Any]:
    """Return the report on the index that finds the items, with the bytes and the storage of the vectors."""
    index = copy(index)  # another thread may change it
    report = inspect_index(index.base_index, queries if index.base_index.d == index.d else None, k, seed)
    sizes, n = report["bytes per item"], max(1, index.ntotal)
    total = index.nbytes / n
    sizes["vectors"], sizes["total"] = total - sizes.pop("total"), total
    return {**report, "vectors": {"storage": index.storage, "dimensions": index.d, "k_factor": index.k_factor}}


def _measure_unpruned(index: IndexCCCF, queries: Any, k: int, seed: int) -> list[float]:
    """Return, for each query of a sample, the share of items in blocks whose bound reaches the k-th best score."""
    if queries is None or not len(queries) or not index.ntotal:
        return []
    rows = np.random.default_rng(seed).choice(len(queries), min(SAMPLE_SIZE, len(queries)), replace=False)
    some = queries[np.sort(rows)]
    kth = index.search(some, min(k, index.ntotal))[0][:, -1]
    if isinstance(some, CompositionalCodes):
        vectors = some.to_vectors()
    elif index.quantizer is None:
        vectors = np.asarray(some, dtype=np.float32)
    else:
        kth = kth - some @ index.quantizer.item_mean_
        vectors = index.quantizer.transform_users(some)
    state = index._snapshot()
    left = np.zeros(len(vectors))
    for part in state.parts:
        left += _count_unpruned(part, vectors, kth * state.divisor)
    return (left / index.ntotal).tolist()


def _count_unpruned(part: Part, vectors: NDArray[np.float32], kth: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return, for each query, the number of live rows in blocks that the bounds do not rule out."""
    t = part.segment.tables
    n_components = len(t.peaks)
    cell = np.repeat(np.arange(len(t.cell_groups)), np.diff(t.block_starts))
    place = np.arange(len(cell)) - t.block_starts[cell]
    first = t.cell_starts[cell] + BLOCK * place
    alive = np.concatenate([[0], np.cumsum(~part.dead_mask)])
    rows = alive[np.minimum(first + BLOCK, t.cell_starts[cell + 1])] - alive[first]
    centres = part.segment.expand_centres()
    d = len(centres) - t.n_dense
    binary, dense = (
        vectors[:, :d].reshape(len(vectors), n_components, -1),
        vectors[:, d : d + t.n_dense] / t.dense_metric,
    )
    squares = np.square(binary).sum(axis=2) @ (t.peaks > 0) + np.square(dense).sum(axis=1)[:, None] * (
        t.dense_peaks > 0
    )
    products = np.concatenate([vectors[:, :d], dense], axis=1) @ centres
    ball = products[:, cell] + np.sqrt(squares)[:, cell] * t.radii
    caps = np.abs(binary).sum(axis=2) @ t.peaks + np.linalg.norm(dense, axis=1)[:, None] * t.dense_peaks
    bound = np.minimum(ball, caps[:, cell]) + t.bias_peaks[cell]
    return np.asarray((bound >= kth[:, None] - 1e-4 * np.abs(kth[:, None])) @ rows, dtype=np.float64)


inspected = inspect_index  # the former name
