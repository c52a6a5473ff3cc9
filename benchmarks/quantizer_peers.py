"""Quantizers of other libraries, searched flat: bytes per item, and what they find.

Those of faiss are always there. rabitqlib and LVQ come from packages, which are named if they are missing:

    pip install rabitqlib scalable-vs toml archspec
"""

from __future__ import annotations

import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import faiss
import numpy as np
from common import describe_machine
from numpy.typing import NDArray

TRAINED = 16384  # items that product quantizers are trained on: 64 for each centroid


class Quantizer(NamedTuple):
    """A quantizer that holds all items."""

    family: str
    name: str
    n_bytes: float  # per item
    seconds: float  # to build
    search: Callable[[NDArray[np.float32], int], NDArray[np.int64]]  # queries and k to ids


def list_descriptions(d: int) -> Iterator[tuple[str, str]]:
    """Yield families of faiss's quantizers, and descriptions of them by its factory."""
    for bits in (4, 6, 8):
        yield "SQ", f"RR{d},SQ{bits}"
    for bits in (1, 2, 3, 4, 5, 6, 8):
        yield "RaBitQ", f"RR{d},RaBitQ{bits if bits > 1 else ''}"
        yield "EDEN", f"RR{d},EDEN{bits}"
    for bits in (2, 3, 4):
        yield "TurboQuant", f"RR{d},SQtqmse{bits}"
    yield "PQ", f"PQ{32 if d <= 128 else 48}"
    if d <= 128:  # more take minutes to train
        yield "OPQ", "OPQ32,PQ32"


def build_faiss(items: NDArray[np.float32], most: float) -> Iterator[Quantizer]:
    """Yield the quantizers of faiss of at most so many bytes."""
    d = items.shape[1]
    some = items[np.random.default_rng(0).permutation(len(items))[:TRAINED]]
    for family, description in list_descriptions(d):
        index = faiss.index_factory(d, description, faiss.METRIC_INNER_PRODUCT)
        if index.sa_code_size() > most:
            continue
        begin = time.perf_counter()
        index.train(items if "PQ" not in family else some)
        index.add(items)
        seconds = time.perf_counter() - begin
        if family == "RaBitQ":  # queries of 8 bits, as its authors recommend
            faiss.downcast_index(index.index).qb = 8

        def search(queries: NDArray[np.float32], k: int, index: Any = index) -> NDArray[np.int64]:
            return np.asarray(index.search(queries, k)[1])

        yield Quantizer(family, description, float(index.sa_code_size()), seconds, search)


def build_rabitqlib(items: NDArray[np.float32], most: float) -> Iterator[Quantizer]:
    """Yield RaBitQ of its authors' own library: one cluster around the mean, so that all items are compared."""
    import rabitqlib

    n, d = items.shape
    for bits in (1, 2, 3, 4, 6, 8):
        if bits * d / 8 > most:
            continue
        begin = time.perf_counter()
        index = rabitqlib.IvfIndex(d, n, 1, bits, metric="ip")
        index.build(items, items.mean(axis=0, keepdims=True), np.zeros(n, np.uint32))
        seconds = time.perf_counter() - begin
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "index"
            index.save(str(path))
            size = path.stat().st_size / n

        def search(queries: NDArray[np.float32], k: int, index: Any = index) -> NDArray[np.int64]:
            found = index.search(queries, k, 1)
            return next(np.asarray(part) for part in found if np.asarray(part).dtype.kind in "iu").astype(np.int64)

        yield Quantizer("rabitqlib", f"rabitqlib, {bits} bits", size, seconds, search)


def build_lvq(items: NDArray[np.float32], most: float) -> Iterator[Quantizer]:
    """Yield the locally-adaptive quantizer of Intel's scalable-vs, searched flat."""
    if "Intel" not in describe_machine()["processor"]:  # it would end the process
        raise ImportError("LVQ of scalable-vs needs a processor of Intel")
    import svs

    d = items.shape[1]
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "items.fvecs")
        svs.write_vecs(items, path)
        for name, bits in (("LVQ8", (8, 0)), ("LVQ4x4", (4, 4))):
            size = sum(bits) * d / 8 + 4  # two scales in float16
            if size > most:
                continue
            begin = time.perf_counter()
            loader = svs.LVQLoader(svs.VectorDataLoader(path, svs.DataType.float32, dims=d), *bits)
            index = svs.Flat(loader, svs.DistanceType.MIP, num_threads=1)
            seconds = time.perf_counter() - begin

            def search(queries: NDArray[np.float32], k: int, index: Any = index) -> NDArray[np.int64]:
                return np.asarray(index.search(queries, k)[0]).astype(np.int64)

            yield Quantizer("LVQ", name, size, seconds, search)


def build_all(items: NDArray[np.float32], most: float) -> Iterator[Quantizer]:
    """Yield all quantizers of at most so many bytes; missing packages are named."""
    for build in (build_faiss, build_rabitqlib, build_lvq):
        try:
            yield from build(items, most)
        except ImportError as error:
            print(f"left out: {error}")
