"""What do codes keep of embeddings: recall, NDCG and seconds, against faiss's quantizers at equal bytes an item?

    python benchmarks/bench_quantizer.py --data DIR --save

Factors of 128 dimensions: gowalla by the package implicit (alternating least squares, alpha 10, ridge 0.1), the others
by MF. Queries are users that no method was trained on. Bytes are those of codes and weights, without ids. Recall is the
share of the factors' own first ten items that are among the first ten, or hundred, that a method finds; NDCG@10 is that
of held-out items, without items of the training part. Then the sizes and sweeps from which the defaults were chosen.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import faiss
import numpy as np
from common import load, print_machine, save
from numpy.typing import NDArray
from scipy import sparse

from cccf_index import CompositionalCodes, IndexCCCF, SearchParametersCCCF
from cccf_index.datasets import split_ratings
from cccf_index.evaluation import catalogue_ndcg, recall
from cccf_index.learning.rows import compute_moment
from cccf_index.learning.start import compute_balanced_maps
from cccf_index.models import MF
from cccf_index.quantizer import CompositionalQuantizer

DIMENSION = 128
QUERIES = 3000
OPQ_ITERATIONS = 10  # of the rotation; faiss's default of 50 takes minutes
DEPTH = 1000  # items that are asked for, so that enough are left without those of the training part
RIDGES = {"ml-1m": 0.09, "amazon-dfm": 0.2}
SIZES = ((8, 4), (8, 8), (4, 32), (12, 8), (8, 16), (16, 8))
SWEEPS = (0, 2, 6, 12)
FITTED: dict[Any, Any] = {}


class Case(NamedTuple):
    """Factors, the users that search, and what they are to find."""

    items: NDArray[np.float32]
    users: NDArray[np.float32]  # to train on
    queries: NDArray[np.float32]
    seen: sparse.csr_matrix
    test: sparse.csr_matrix
    wanted: NDArray[np.int64]
    threshold: float


class Method(NamedTuple):
    """Seconds, bytes, and what is found."""

    train: float
    encode: float
    size: float
    found: Callable[[int], NDArray[np.int64]]


def case(data: str, dataset: str) -> Case:
    """Train factors on 70 % of each user's items."""
    train, test = split_ratings(load(data, dataset).user_items, seed=0)
    if dataset == "gowalla":
        from implicit.als import AlternatingLeastSquares
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1, "blas"):
            model = AlternatingLeastSquares(DIMENSION, regularization=0.1, alpha=10, iterations=15, random_state=0)
            model.fit(sparse.csr_matrix(train), show_progress=False)
        users, items = model.user_factors, model.item_factors
    else:
        mf = MF(DIMENSION, RIDGES[dataset], verbose=False).fit(train)
        users, items = mf.user_factors_, mf.item_factors_
    chosen = np.zeros(len(users), dtype=bool)
    some = np.flatnonzero(np.diff(test.indptr))
    chosen[np.random.default_rng(0).choice(some, min(QUERIES, len(some)), replace=False)] = True
    flat = faiss.IndexFlatIP(DIMENSION)
    flat.add(items)
    wanted = flat.search(users[chosen], 10)[1]
    threshold = 0.5 if dataset == "gowalla" else 4.0
    return Case(items, users[~chosen], users[chosen], train[chosen], test[chosen], wanted, threshold)


def fitted(
    items: NDArray[np.float32], users: NDArray[np.float32], shape: tuple[int, int], **params: Any
) -> tuple[CompositionalQuantizer, CompositionalCodes, float, float]:
    """Return a quantizer and its codes, with the seconds of both, each made once."""
    key = (id(items), *shape, *sorted(params.items()))
    if key not in FITTED:
        begin = time.perf_counter()
        quantizer = CompositionalQuantizer(*shape, verbose=False, **params)
        quantizer.fit(items, users)
        train = time.perf_counter() - begin
        begin = time.perf_counter()
        codes = quantizer.encode_items(items)
        FITTED[key] = (quantizer, codes, train, time.perf_counter() - begin)
    return FITTED[key]


def ours(shape: tuple[int, int], coded: bool, **params: Any) -> Callable[[Case], Method]:
    """Return how to measure our own index."""

    def measure(one: Case) -> Method:
        quantizer, codes, train, encode = fitted(one.items, one.users, shape, **params)
        index = IndexCCCF(*shape, scale="auto", quantizer=quantizer)
        index.add(codes)
        active = np.count_nonzero(codes.weights) / len(codes)
        size = active * (1 + codes.bits.itemsize * codes.bits.shape[2])  # a byte for a weight
        search = SearchParametersCCCF(coded=coded)
        return Method(train, encode, size, lambda k: index.search(one.queries, k, params=search)[1])

    return measure


def theirs(description: str) -> Callable[[Case], Method]:
    """Return how to measure an index of faiss's factory, by inner product."""

    def measure(one: Case) -> Method:
        index = faiss.index_factory(DIMENSION, description, faiss.METRIC_INNER_PRODUCT)
        if description.startswith("OPQ"):
            faiss.downcast_VectorTransform(index.chain.at(0)).niter = OPQ_ITERATIONS
        return _filled(index, one.items, one.queries)

    return measure


def truncated(d: int, kind: int) -> Callable[[Case], Method]:
    """Return how to measure scalar quantization of the first singular directions of the scores."""

    def measure(one: Case) -> Method:
        even = [np.full(len(x), 1 / len(x)) for x in (one.users, one.items)]
        maps = compute_balanced_maps(compute_moment(one.users, even[0]), compute_moment(one.items, even[1]), d)
        queries, items = (
            np.ascontiguousarray(x @ to, dtype=np.float32) for x, to in zip((one.queries, one.items), maps, strict=True)
        )
        return _filled(faiss.IndexScalarQuantizer(d, kind, faiss.METRIC_INNER_PRODUCT), items, queries)

    return measure


def signs(n_bits: int) -> Callable[[Case], Method]:
    """Return how to measure signs of a random rotation, items centred, in an IndexBinaryFlat."""

    def measure(one: Case) -> Method:
        turn = np.linalg.qr(np.random.default_rng(0).standard_normal((n_bits, n_bits)))[0][:DIMENSION]
        begin = time.perf_counter()
        items, queries = (np.packbits(x @ turn > 0, axis=1) for x in (one.items - one.items.mean(axis=0), one.queries))
        encode = time.perf_counter() - begin
        index = faiss.IndexBinaryFlat(n_bits)
        index.add(items)
        return Method(0.0, encode, n_bits / 8, lambda k: index.search(queries, k)[1])

    return measure


def _filled(index: Any, items: NDArray[np.float32], queries: NDArray[np.float32]) -> Method:
    begin = time.perf_counter()
    index.train(items)
    train = time.perf_counter() - begin
    begin = time.perf_counter()
    index.add(items)
    encode = time.perf_counter() - begin
    size = index.sa_code_size() if hasattr(index, "sa_code_size") else index.code_size
    return Method(train, encode, size, lambda k: index.search(queries, k)[1])


METHODS: dict[str, Callable[[Case], Method]] = {
    "factors themselves (IndexFlatIP)": theirs("Flat"),
    "CCCF 8x16, real-valued queries": ours((8, 16), False),
    "CCCF 8x16, coded queries": ours((8, 16), True),
    "OPQ48_144,PQ48x4fs": theirs("OPQ48_144,PQ48x4fs"),
    "OPQ32,PQ32x6": theirs("OPQ32,PQ32x6"),
    "PQ32x6": theirs("PQ32x6"),
    "RR128,RaBitQ": theirs("RR128,RaBitQ"),
    "SQ4 of 48 singular directions": truncated(48, faiss.ScalarQuantizer.QT_4bit),
    "SQ8 of 24 singular directions": truncated(24, faiss.ScalarQuantizer.QT_8bit),
    "signs, 192 bits (IndexBinaryFlat)": signs(192),
    "PQ32x4fs (fewer bytes)": theirs("PQ32x4fs"),
    "CCCF 8x16, 4 of 8 active (fewer bytes), real-valued": ours((8, 16), False, max_active=4),
    "SQ4 (more bytes)": theirs("SQ4"),
    "SQ8 (more bytes)": theirs("SQ8"),
}
DEFAULTS: dict[str, Callable[[Case], Method]] = {
    **{f"{G}x{r}, {('real-valued', 'coded')[coded]}": ours((G, r), coded) for G, r in SIZES for coded in (False, True)},
    **{f"8x16, {sweeps} sweeps": ours((8, 16), False, sweeps=sweeps) for sweeps in SWEEPS},
    "8x16, no probes": ours((8, 16), False, n_probes=0),
    "8x16, 16384 probes": ours((8, 16), False, n_probes=16384),
}


def measured(make: Callable[[Case], Method], one: Case) -> dict[str, float]:
    """Return all figures of a method."""
    method = make(one)
    found = method.found(min(DEPTH, len(one.items)))
    shares = recall(found, one.wanted, [10, 100])
    unseen = np.full((len(found), 10), -1, dtype=np.int64)
    for row, items in enumerate(found):
        kept = items[~np.isin(items, one.seen[[row]].indices)][:10]
        unseen[row, : len(kept)] = kept
    return {
        "bytes": method.size,
        "recall, 10 in 10": float(shares[0]),
        "recall, 10 in 100": float(shares[1]),
        "NDCG@10": catalogue_ndcg(unseen, one.test, threshold=one.threshold),
        "training, s": method.train,
        "items encoded a second": len(one.items) / max(method.encode, 1e-9),
    }


def growth() -> dict[str, float]:
    """Return the seconds of 10^5 items and users, in 128 dimensions with a falling spectrum."""
    rng = np.random.default_rng(0)
    strength = np.exp(-0.02 * np.arange(DIMENSION))
    users, items = ((rng.standard_normal((100_000, DIMENSION)) * strength).astype(np.float32) for _ in range(2))
    _, _, train, encode = fitted(items, users, (8, 16))
    return {"training, s": train, "items encoded a second": len(items) / encode}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", required=True, help="folder with gowalla.npz, ml-1m.npz, amazon-dfm.npz")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/quantizer.json")
    arguments = parser.parse_args()
    print_machine()
    results: dict[str, Any] = {}
    noise = np.random.default_rng(0).standard_normal((3000, DIMENSION)).astype(np.float32)
    fitted(noise, noise, (8, 16))  # compiles
    for dataset in ("gowalla", "ml-1m", "amazon-dfm"):
        one = case(arguments.data, dataset)
        results[dataset] = {}
        print(f"\n{dataset}: {len(one.items)} items, {len(one.queries)} queries\n")
        print("| | bytes | 10 in 10 | 10 in 100 | NDCG@10 | training, s | items/s |\n|---|---|---|---|---|---|---|")
        for name, make in {**METHODS, **(DEFAULTS if dataset != "amazon-dfm" else {})}.items():
            figures = results[dataset][name] = measured(make, one)
            print(
                f"| {name} | {figures['bytes']:.1f} | {figures['recall, 10 in 10']:.3f} "
                f"| {figures['recall, 10 in 100']:.3f} | {figures['NDCG@10']:.4f} | {figures['training, s']:.1f} "
                f"| {figures['items encoded a second']:.0f} |",
                flush=True,
            )
    results["100,000 items and users"] = growth()
    print(f"\n100,000 items and users: {results['100,000 items and users']}")
    if arguments.save:
        save("quantizer", "python benchmarks/bench_quantizer.py --data DIR --save", results)


if __name__ == "__main__":
    main()
