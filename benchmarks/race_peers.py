"""The strongest searches on a CPU besides ours, each over a grid of settings as its documentation recommends.

Each function takes items and builds one index or several; a `Peer` is one of them, with every setting that it is
searched with. Packages that are not installed are named and left out:

    pip install scann scalable-vs toml archspec rabitqlib voyager ngt hnswlib
"""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import faiss
import numpy as np
from common import describe_machine
from numpy.typing import NDArray

Vectors: TypeAlias = NDArray[np.float32]
Found: TypeAlias = NDArray[np.int64]
Search: TypeAlias = Callable[[Vectors, int, int], Found]  # queries, k and threads to ids (nq, k)
FACTORS = (1, 1.5, 2, 3, 4, 8, 16, 32)  # candidates of a graph for each item wanted
MOST_CANDIDATES = 4000
PROBES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # lists of an inverted file that are searched
REORDERED = (2, 4, 10, 30)  # items that are re-ranked for each item wanted
MOST_REORDERED = 8000
LINKS, CONSTRUCTION = 32, 200  # of a graph: links per node, and candidates when a node is added


class Peer(NamedTuple):
    """An index, and the settings that it is searched with."""

    family: str
    name: str
    n_bytes: float  # per item, vectors that are kept for re-ranking included
    seconds: float  # to build, on two threads where the package can
    settings: dict[str, Search]  # by name; a search raises UnsuitableError if lists are too long for it


class UnsuitableError(Exception):
    """A setting is of no use for lists of this length."""


class Shelf:
    """A folder of indexes that take long to build: each is built once, and the seconds that it took are kept."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(
        self, name: str, build: Callable[[], Any], save: Callable[[Any, str], Any], load: Callable[[str], Any]
    ) -> tuple[Any, float]:
        """Return an index and the seconds that building it took."""
        path, record = str(self.folder / name), self.folder / f"{name}.seconds"
        if record.exists():
            return load(path), float(record.read_text())
        watch = Stopwatch()
        index = build()
        seconds = watch.seconds
        save(index, path)
        record.write_text(f"{seconds}\n")
        return index, seconds


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Return how long ago that is."""
        return time.perf_counter() - self._begin


def count_candidates(k: int, factor: float, most: int) -> int:
    """Return how many candidates a setting has for lists of k items."""
    n = round(k * factor)
    if factor > 1 and n > most:
        raise UnsuitableError
    return n


def choose_lists(n: int) -> int:
    """Return how many lists faiss recommends for n items: some four times their root."""
    return int(2 ** np.round(np.log2(4 * np.sqrt(n))))


def search_faiss(index: Any, params: Any = None) -> Search:
    """Return the search of an index of faiss."""

    def search(queries: Vectors, k: int, threads: int) -> Found:
        faiss.omp_set_num_threads(threads)
        return np.asarray(index.search(queries, k, **({} if params is None else {"params": params}))[1])

    return search


def build_flat(items: Vectors, _: Shelf) -> Iterator[Peer]:
    index = faiss.IndexFlatIP(items.shape[1])
    index.add(items)
    yield Peer("IndexFlatIP", "IndexFlatIP", 4.0 * items.shape[1], 0.0, {"": search_faiss(index)})


def build_panorama(items: Vectors, _: Shelf) -> Iterator[Peer]:
    """Yield dot products of a few dimensions first, with bounds on the rest."""
    for batch in (128, 1024):
        watch = Stopwatch()
        index = faiss.IndexFlatIPPanorama(items.shape[1], 8, batch)
        index.add(items)

        def search(queries: Vectors, k: int, threads: int, index: Any = index, batch: int = batch) -> Found:
            if k > batch:  # it refuses
                raise UnsuitableError
            return search_faiss(index)(queries, k, threads)

        size = 4.0 * items.shape[1] + 4 * 9  # and the norm of what is left at each level
        yield Peer("Panorama", f"IndexFlatIPPanorama(8, {batch})", size, watch.seconds, {"": search})


def build_ivf_pq(items: Vectors, _: Shelf) -> Iterator[Peer]:
    """Yield inverted lists of 4-bit product codes, two dimensions each, with the vectors to re-rank."""
    d, watch, n_lists = items.shape[1], Stopwatch(), choose_lists(len(items))
    name = f"IVF{n_lists},PQ{d // 2}x4fs,RFlat"
    index = faiss.index_factory(d, name, faiss.METRIC_INNER_PRODUCT)
    with contextlib.suppress(AttributeError):
        faiss.extract_index_ivf(index).cp.min_points_per_centroid = 1
    index.train(items)
    index.add(items)

    def make(probes: int, factor: float) -> Search:
        lists = faiss.SearchParametersIVF(nprobe=probes)
        search = search_faiss(index, faiss.IndexRefineSearchParameters(k_factor=factor, base_index_params=lists))

        def run(queries: Vectors, k: int, threads: int) -> Found:
            count_candidates(k, factor, MOST_REORDERED)
            return search(queries, k, threads)

        return run

    settings = {
        f"nprobe={probes}, k_factor={factor}": make(probes, factor)
        for probes in PROBES
        if probes <= n_lists
        for factor in REORDERED
    }
    yield Peer("IVF-PQfs + refine", name, 4.0 * d + d / 4 + 8, watch.seconds, settings)


def build_rabitq(items: Vectors, _: Shelf) -> Iterator[Peer]:
    """Yield RaBitQ by fast scan, of one bit and of more, flat and in inverted lists."""
    d, n_lists = items.shape[1], choose_lists(len(items)) // 4
    for bits in (1, 4, 8):
        own = "" if bits == 1 else str(bits)
        for name in (f"RR{d},RaBitQfs{own}", f"RR{d},IVF{n_lists},RaBitQfs{own}"):
            watch = Stopwatch()
            index = faiss.index_factory(d, name, faiss.METRIC_INNER_PRODUCT)
            index.train(items)
            index.add(items)
            probes = [p for p in PROBES if p <= n_lists] if "IVF" in name else []
            settings = {f"nprobe={p}": search_faiss(index, make_probes(p)) for p in probes}
            size = d * bits / 8 + (8 if bits == 1 else 16) + (8 if probes else 0)
            family = "IVF-RaBitQfs" if probes else "RaBitQfs"
            yield Peer(family, name, size, watch.seconds, settings or {"": search_faiss(index)})


def make_probes(probes: int) -> Any:
    """Return parameters of an inverted file behind a rotation."""
    lists = faiss.SearchParametersIVF(nprobe=probes)
    return faiss.SearchParametersPreTransform(index_params=lists)


def build_hnsw(items: Vectors, shelf: Shelf) -> Iterator[Peer]:
    """Yield the graph of faiss, with vectors of 8 bits and of float32."""
    d = items.shape[1]
    for name, size in (("HNSW32,SQ8", d), ("HNSW32,Flat", 4 * d)):

        def build(name: str = name) -> Any:
            index = faiss.index_factory(d, name, faiss.METRIC_INNER_PRODUCT)
            index.hnsw.efConstruction = CONSTRUCTION
            faiss.omp_set_num_threads(2)
            index.train(items)
            index.add(items)
            return index

        index, seconds = shelf.get(f"faiss-{name}", build, faiss.write_index, faiss.read_index)

        def make(factor: float, index: Any = index) -> Search:
            @cache  # parameters are made once: one query takes little longer
            def find(effort: int) -> Search:
                return search_faiss(index, faiss.SearchParametersHNSW(efSearch=effort))

            def search(queries: Vectors, k: int, threads: int) -> Found:
                return find(count_candidates(k, factor, MOST_CANDIDATES))(queries, k, threads)

            return search

        settings = {f"efSearch={factor} k": make(factor) for factor in FACTORS}
        yield Peer(f"faiss {name}", name, size + 8 * LINKS + LINKS / 2, seconds, settings)


def build_hnswlib(items: Vectors, shelf: Shelf) -> Iterator[Peer]:
    import hnswlib

    def build() -> Any:
        index = hnswlib.Index(space="ip", dim=items.shape[1])
        index.init_index(max_elements=len(items), M=LINKS, ef_construction=CONSTRUCTION)
        index.add_items(items, num_threads=2)
        return index

    def load(path: str) -> Any:
        index = hnswlib.Index(space="ip", dim=items.shape[1])
        index.load_index(path)
        return index

    index, seconds = shelf.get("hnswlib", build, lambda index, path: index.save_index(path), load)

    def make(factor: float) -> Search:
        def search(queries: Vectors, k: int, threads: int) -> Found:
            index.set_ef(count_candidates(k, factor, MOST_CANDIDATES))
            return index.knn_query(queries, k=k, num_threads=threads)[0].astype(np.int64)

        return search

    size = 4.0 * items.shape[1] + 8 * LINKS + 16
    yield Peer("hnswlib", "hnswlib(M=32)", size, seconds, {f"ef={f} k": make(f) for f in FACTORS})


def build_voyager(items: Vectors, shelf: Shelf) -> Iterator[Peer]:
    """Yield its graph of 8-bit and of float32 vectors.

    Inner products become distances by a coordinate that depends on the longest vector so far: the longest is added
    first, or links are wrong.
    """
    import voyager

    by_length = np.argsort(-np.linalg.norm(items, axis=1), kind="stable")
    for kind, size in ((voyager.StorageDataType.E4M3, 1), (voyager.StorageDataType.Float32, 4)):

        def build(kind: Any = kind) -> Any:
            index = voyager.Index(
                voyager.Space.InnerProduct,
                num_dimensions=items.shape[1],
                M=LINKS,
                ef_construction=CONSTRUCTION,
                storage_data_type=kind,
            )
            index.add_items(items[by_length], ids=by_length.tolist(), num_threads=2)
            return index

        index, seconds = shelf.get(
            f"voyager-{kind.name}", build, lambda index, path: index.save(path), voyager.Index.load
        )

        def make(factor: float, index: Any = index) -> Search:
            def search(queries: Vectors, k: int, threads: int) -> Found:
                effort = count_candidates(k, factor, MOST_CANDIDATES)
                return index.query(queries, k, num_threads=threads, query_ef=effort)[0].astype(np.int64)

            return search

        n_bytes = size * (items.shape[1] + 1) + 8 * LINKS + 16
        name = f"voyager, {kind.name}"
        yield Peer("voyager", name, n_bytes, seconds, {f"query_ef={f} k": make(f) for f in FACTORS})


def build_ngt(items: Vectors, shelf: Shelf) -> Iterator[Peer]:
    """Yield NGT's graph: it is searched by one query at a time, on one thread."""
    import ngtpy

    path = str(shelf.folder / "ngt")

    def build() -> Any:
        shutil.rmtree(path, ignore_errors=True)
        ngtpy.create(path, items.shape[1], edge_size_for_creation=LINKS, distance_type="Inner Product")
        index = ngtpy.Index(path)
        index.batch_insert(items, 2)
        return index

    index, seconds = shelf.get("ngt", build, lambda index, path: index.save(), ngtpy.Index)

    def make(epsilon: float) -> Search:
        def search(queries: Vectors, k: int, threads: int) -> Found:
            found = np.full((len(queries), k), -1, np.int64)
            for row, query in enumerate(queries):
                own = index.search(query, k, epsilon=epsilon, with_distance=False)
                found[row, : len(own)] = own
            return found

        return search

    size = 4.0 * items.shape[1] + 8 * 2 * LINKS
    settings = {f"epsilon={e}": make(e) for e in (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)}
    yield Peer("NGT", "NGT, ANNG", size, seconds, settings)


def build_svs(items: Vectors, shelf: Shelf) -> Iterator[Peer]:
    """Yield Intel's graph, with vectors of float16 and, on its own processors, of 8 bits and of 4 + 8."""
    import svs

    d, links = items.shape[1], 64
    parameters = svs.VamanaBuildParameters(graph_max_degree=links, window_size=2 * links, alpha=0.95)
    kinds: dict[str, tuple[int, int] | None] = {"float16": None}
    if "Intel" in describe_machine()["processor"]:  # on others it ends the process
        kinds |= {"LVQ8": (8, 0), "LVQ4x8": (4, 8)}
    for name, bits in kinds.items():

        def build(bits: tuple[int, int] | None = bits) -> Any:
            if bits is None:
                return svs.Vamana.build(parameters, items.astype(np.float16), svs.DistanceType.MIP, num_threads=2)
            with tempfile.TemporaryDirectory() as folder:
                path = str(pathlib.Path(folder) / "items.fvecs")
                svs.write_vecs(items, path)
                loader = svs.LVQLoader(svs.VectorDataLoader(path, svs.DataType.float32, dims=d), *bits)
                return svs.Vamana.build(parameters, loader, svs.DistanceType.MIP, num_threads=2)

        def save(index: Any, path: str) -> None:
            pathlib.Path(path).mkdir(exist_ok=True)
            index.save(*(f"{path}/{part}" for part in ("config", "graph", "data")))

        def load(path: str, bits: tuple[int, int] | None = bits) -> Any:
            data = f"{path}/data"
            loader = svs.VectorDataLoader(data, svs.DataType.float16, dims=d) if bits is None else svs.LVQLoader(data)
            return svs.Vamana(f"{path}/config", svs.GraphLoader(f"{path}/graph"), loader, svs.DistanceType.MIP)

        index, seconds = shelf.get(f"svs-{name}", build, save, load)

        def make(factor: float, index: Any = index) -> Search:
            def search(queries: Vectors, k: int, threads: int) -> Found:
                window = count_candidates(k, factor, MOST_CANDIDATES)
                if index.search_window_size != window:
                    index.search_window_size = window
                if index.num_threads != threads:
                    index.num_threads = threads
                return index.search(queries, k)[0].astype(np.int64)

            return search

        size = (2.0 * d if bits is None else sum(bits) * d / 8 + 4) + 4 * links
        settings = {f"window={f} k": make(f) for f in FACTORS}
        yield Peer("SVS", f"SVS Vamana64, {name}", size, seconds, settings)


def build_scann(items: Vectors, _: Shelf) -> Iterator[Peer]:
    """Yield its tree with anisotropic product codes of 4 bits, and the vectors to re-rank."""
    import scann

    n_leaves, d = 2 ** round(np.log2(np.sqrt(len(items)))), items.shape[1]
    for spilling in (False, True):
        watch = Stopwatch()
        spill = {"soar_lambda": 1.5, "overretrieve_factor": 2.0} if spilling else {}
        builder = scann.scann_ops_pybind.builder(items, 10, "dot_product").set_n_training_threads(2)
        builder = builder.tree(
            num_leaves=n_leaves, num_leaves_to_search=8, training_sample_size=min(len(items), 250_000), **spill
        )
        index = builder.score_ah(2, anisotropic_quantization_threshold=0.2).reorder(100).build()
        index.set_num_threads(2)

        def make(leaves: int, factor: float, index: Any = index) -> Search:
            def search(queries: Vectors, k: int, threads: int) -> Found:
                n = count_candidates(k, factor, MOST_REORDERED)
                if len(queries) == 1:
                    own = index.search(queries[0], k, n, leaves)[0]
                    return np.pad(own.astype(np.int64), (0, k - len(own)), constant_values=-1)[None]
                run = index.search_batched if threads == 1 else index.search_batched_parallel
                found, scores = run(queries, k, n, leaves)
                return np.where(np.isfinite(scores), found.astype(np.int64), -1)  # it pads with item 0

            return search

        settings = {
            f"leaves={leaves}, reorder={factor} k": make(leaves, factor)
            for leaves in PROBES[1:]
            if leaves <= n_leaves
            for factor in REORDERED
        }
        size = 4.0 * d + (d / 4 + 4) * (2 if spilling else 1)
        name = f"ScaNN, {n_leaves} leaves" + (", SOAR" if spilling else "")
        yield Peer("ScaNN", name, size, watch.seconds, settings)


def build_rabitqlib(items: Vectors, _: Shelf) -> Iterator[Peer]:
    """Yield inverted lists of RaBitQ's authors."""
    import rabitqlib

    (n, d), n_lists = items.shape, choose_lists(len(items)) // 4
    means = faiss.Kmeans(d, n_lists, niter=10, min_points_per_centroid=1)
    means.train(items)
    member = means.index.search(items, 1)[1][:, 0].astype(np.uint32)
    for bits in (4, 7):
        watch = Stopwatch()
        index = rabitqlib.IvfIndex(d, n, n_lists, bits, metric="ip")
        index.build(items, means.centroids, member)

        def make(probes: int, index: Any = index) -> Search:
            def search(queries: Vectors, k: int, threads: int) -> Found:
                found = index.search(queries, k, probes, num_threads=threads)[0]
                return found.view(np.int32).astype(np.int64)  # it pads with 2^32 - 1

            return search

        settings = {f"nprobe={p}": make(p) for p in PROBES if p <= n_lists}
        yield Peer("rabitqlib", f"rabitqlib IVF{n_lists}, {bits} bits", bits * d / 8 + 20, watch.seconds, settings)


PEERS = (
    build_flat, build_panorama, build_scann, build_ivf_pq, build_rabitq, build_rabitqlib, build_svs, build_hnswlib,
    build_hnsw, build_voyager, build_ngt,
)  # fmt: skip
