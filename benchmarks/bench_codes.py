"""How well do codes preserve embeddings: recall, NDCG and seconds, against faiss's quantizers at equal bytes per item?

    python benchmarks/bench_codes.py --data DIR --save

Factors have 128 dimensions: gowalla by the package implicit (alternating least squares, alpha 10, ridge 0.1), the
others by MF. Queries are users that no method was trained on. Bytes are those of codes and weights, without ids. Recall
is the share of the factors' top 10 items among the top 10, or 100, that a method finds. NDCG@10 is measured on
held-out items, without training items. The last rows are the sizes and sweeps from which the defaults were chosen.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import faiss
import numpy as np
from catalogues import DIMENSION, fit_als, fit_mf
from common import RIDGES, load_ratings, make_parser, print_machine, save_results
from numpy.typing import NDArray
from scipy import sparse

from cccf_index import CompositionalCodes, IndexCCCF, SearchParametersCCCF
from cccf_index.comparison import drop_seen
from cccf_index.datasets import split_ratings
from cccf_index.evaluation import catalogue_ndcg, recall
from cccf_index.learning.moments import compute_moment
from cccf_index.learning.start import compute_balanced_maps
from cccf_index.quantizer import CompositionalQuantizer

QUERIES = 3000
OPQ_ITERATIONS = 10  # of the rotation; the default of faiss, 50, takes minutes
DEPTH = 1000  # items to search for, so that enough are left without training items
SIZES = ((8, 4), (8, 8), (4, 32), (12, 8), (8, 16), (16, 8))
SWEEPS = (0, 2, 6, 12)
FITTED: dict[Any, Any] = {}


class Case(NamedTuple):
    """Factors, the users that search, and the items they should find."""

    items: NDArray[np.float32]
    users: NDArray[np.float32]  # to train on
    queries: NDArray[np.float32]
    seen: sparse.csr_matrix
    test: sparse.csr_matrix
    wanted: NDArray[np.int64]
    threshold: float


class Measured(NamedTuple):
    """Seconds and bytes of a method, and its search function."""

    train: float
    encode: float
    size: float
    search: Callable[[int], NDArray[np.int64]]


def make_case(data: str, dataset: str) -> Case:
    """Train factors on 70 % of each user's items."""
    train, test = split_ratings(load_ratings(data, dataset).user_items, seed=0)
    if dataset == "gowalla":
        users, items = fit_als(train, 0.1, 10)
    else:
        users, items = fit_mf(train, RIDGES[dataset])
    chosen = np.zeros(len(users), dtype=bool)
    some = np.flatnonzero(np.diff(test.indptr))
    chosen[np.random.default_rng(0).choice(some, min(QUERIES, len(some)), replace=False)] = True
    flat = faiss.IndexFlatIP(DIMENSION)
    flat.add(items)
    wanted = flat.search(users[chosen], 10)[1]
    threshold = 0.5 if dataset == "gowalla" else 4.0
    return Case(items, users[~chosen], users[chosen], train[chosen], test[chosen], wanted, threshold)


def fit_quantizer(
    items: NDArray[np.float32], users: NDArray[np.float32], shape: tuple[int, int], **params: Any
) -> tuple[CompositionalQuantizer, CompositionalCodes, float, float]:
    """Return a quantizer, its codes, and the seconds of both; each is made once."""
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


def measure_cccf(shape: tuple[int, int], coded: bool, **params: Any) -> Callable[[Case], Measured]:
    """Return a function that measures our own index."""

    def measure(one: Case) -> Measured:
        quantizer, codes, train, encode = fit_quantizer(one.items, one.users, shape, **params)
        index = IndexCCCF(*shape, scale="auto", quantizer=quantizer)
        index.add(codes)
        active = np.count_nonzero(codes.weights) / len(codes)
        size = active * (1 + codes.bits.itemsize * codes.bits.shape[2])  # a weight takes one byte
        search = SearchParametersCCCF(coded=coded)
        return Measured(train, encode, size, lambda k: index.search(one.queries, k, params=search)[1])

    return measure


def measure_faiss(description: str) -> Callable[[Case], Measured]:
    """Return a function that measures an index of the faiss factory, by inner product."""

    def measure(one: Case) -> Measured:
        index = faiss.index_factory(DIMENSION, description, faiss.METRIC_INNER_PRODUCT)
        if description.startswith("OPQ"):
            faiss.downcast_VectorTransform(index.chain.at(0)).niter = OPQ_ITERATIONS
        return _fill_index(index, one.items, one.queries)

    return measure


def measure_truncated(d: int, kind: int) -> Callable[[Case], Measured]:
    """Return a function that measures scalar quantization of the first singular directions of the scores."""

    def measure(one: Case) -> Measured:
        even = [np.full(len(x), 1 / len(x)) for x in (one.users, one.items)]
        maps = compute_balanced_maps(compute_moment(one.users, even[0]), compute_moment(one.items, even[1]), d)
        queries, items = (
            np.ascontiguousarray(x @ to, dtype=np.float32) for x, to in zip((one.queries, one.items), maps, strict=True)
        )
        return _fill_index(faiss.IndexScalarQuantizer(d, kind, faiss.METRIC_INNER_PRODUCT), items, queries)

    return measure


def measure_signs(n_bits: int) -> Callable[[Case], Measured]:
    """Return a function that measures signs of a random rotation, with centred items, in an IndexBinaryFlat."""

    def measure(one: Case) -> Measured:
        turn = np.linalg.qr(np.random.default_rng(0).standard_normal((n_bits, n_bits)))[0][:DIMENSION]
        begin = time.perf_counter()
        items, queries = (np.packbits(x @ turn > 0, axis=1) for x in (one.items - one.items.mean(axis=0), one.queries))
        encode = time.perf_counter() - begin
        index = faiss.IndexBinaryFlat(n_bits)
        index.add(items)
        return Measured(0.0, encode, n_bits / 8, lambda k: index.search(queries, k)[1])

    return measure


def _fill_index(index: Any, items: NDArray[np.float32], queries: NDArray[np.float32]) -> Measured:
    begin = time.perf_counter()
    index.train(items)
    train = time.perf_counter() - begin
    begin = time.perf_counter()
    index.add(items)
    encode = time.perf_counter() - begin
    size = index.sa_code_size() if hasattr(index, "sa_code_size") else index.code_size
    return Measured(train, encode, size, lambda k: index.search(queries, k)[1])


METHODS: dict[str, Callable[[Case], Measured]] = {
    "factors themselves (IndexFlatIP)": measure_faiss("Flat"),
    "CCCF 8x16, real-valued queries": measure_cccf((8, 16), False),
    "CCCF 8x16, coded queries": measure_cccf((8, 16), True),
    "OPQ48_144,PQ48x4fs": measure_faiss("OPQ48_144,PQ48x4fs"),
    "OPQ32,PQ32x6": measure_faiss("OPQ32,PQ32x6"),
    "PQ32x6": measure_faiss("PQ32x6"),
    "RR128,RaBitQ": measure_faiss("RR128,RaBitQ"),
    "SQ4 of 48 singular directions": measure_truncated(48, faiss.ScalarQuantizer.QT_4bit),
    "SQ8 of 24 singular directions": measure_truncated(24, faiss.ScalarQuantizer.QT_8bit),
    "signs, 192 bits (IndexBinaryFlat)": measure_signs(192),
    "PQ32x4fs (fewer bytes)": measure_faiss("PQ32x4fs"),
    "CCCF 8x16, 4 of 8 active (fewer bytes), real-valued": measure_cccf((8, 16), False, max_active=4),
    "SQ4 (more bytes)": measure_faiss("SQ4"),
    "SQ8 (more bytes)": measure_faiss("SQ8"),
}
DEFAULTS: dict[str, Callable[[Case], Measured]] = {
    **{
        f"{G}x{r}, {('real-valued', 'coded')[coded]}": measure_cccf((G, r), coded)
        for G, r in SIZES
        for coded in (False, True)
    },
    **{f"8x16, {sweeps} sweeps": measure_cccf((8, 16), False, sweeps=sweeps) for sweeps in SWEEPS},
    "8x16, no probes": measure_cccf((8, 16), False, n_probes=0),
    "8x16, 16384 probes": measure_cccf((8, 16), False, n_probes=16384),
}


def measure_method(make: Callable[[Case], Measured], one: Case) -> dict[str, float]:
    """Return all figures of a method."""
    method = make(one)
    found = method.search(min(DEPTH, len(one.items)))
    shares = recall(found, one.wanted, [10, 100])
    unseen = drop_seen(found, one.seen, 10)
    return {
        "bytes": method.size,
        "recall, 10 in 10": float(shares[0]),
        "recall, 10 in 100": float(shares[1]),
        "NDCG@10": catalogue_ndcg(unseen, one.test, threshold=one.threshold),
        "training, s": method.train,
        "items encoded per second": len(one.items) / max(method.encode, 1e-9),
    }


def measure_growth() -> dict[str, float]:
    """Return training time and encoding speed for 10^5 items and users, 128 dimensions with a falling spectrum."""
    rng = np.random.default_rng(0)
    strength = np.exp(-0.02 * np.arange(DIMENSION))
    users, items = ((rng.standard_normal((100_000, DIMENSION)) * strength).astype(np.float32) for _ in range(2))
    _, _, train, encode = fit_quantizer(items, users, (8, 16))
    return {"training, s": train, "items encoded per second": len(items) / encode}


def main() -> None:
    data = "gowalla.npz, ml-1m.npz and amazon-dfm.npz"
    arguments = make_parser(__doc__, "benchmarks/results/codes.json", data).parse_args()
    print_machine()
    results: dict[str, Any] = {}
    noise = np.random.default_rng(0).standard_normal((3000, DIMENSION)).astype(np.float32)
    fit_quantizer(noise, noise, (8, 16))  # compiles
    for dataset in ("gowalla", "ml-1m", "amazon-dfm"):
        one = make_case(arguments.data, dataset)
        results[dataset] = {}
        print(f"\n{dataset}: {len(one.items)} items, {len(one.queries)} queries\n")
        print("| | bytes | 10 in 10 | 10 in 100 | NDCG@10 | training, s | items/s |\n|---|---|---|---|---|---|---|")
        for name, make in {**METHODS, **(DEFAULTS if dataset != "amazon-dfm" else {})}.items():
            figures = results[dataset][name] = measure_method(make, one)
            print(
                f"| {name} | {figures['bytes']:.1f} | {figures['recall, 10 in 10']:.3f} "
                f"| {figures['recall, 10 in 100']:.3f} | {figures['NDCG@10']:.4f} | {figures['training, s']:.1f} "
                f"| {figures['items encoded per second']:.0f} |",
                flush=True,
            )
    results["100,000 items and users"] = measure_growth()
    print(f"\n100,000 items and users: {results['100,000 items and users']}")
    if arguments.save:
        save_results("codes", "python benchmarks/bench_codes.py --data DIR --save", results)


if __name__ == "__main__":
    main()
