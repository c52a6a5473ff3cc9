"""Compile kernels ahead of time: every step uses the public functions on a little made-up data.

numba compiles a kernel for the types of its arguments, so a kernel that was compiled by a search here is the one that
the same search of a user takes from the cache.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from cccf_index import _check
from cccf_index.codes import CompositionalCodes
from cccf_index.dense import DenseRows
from cccf_index.index import IndexCCCF
from cccf_index.io import read_index, write_index
from cccf_index.kernels.cache import Counts
from cccf_index.kernels.layout import freeze
from cccf_index.kernels.query_vectors import transform_queries
from cccf_index.quantizer import CompositionalQuantizer
from cccf_index.refine import IndexRefineCCCF
from cccf_index.search.parameters import SearchParametersCCCF

SHAPES = ("8x16",)
QUERIES = ("coded", "real")
EXTRAS = ("float", "other", "refine", "quantizer", "models")
DIMENSION = 12  # of made-up embeddings
N_DENSE = 16
# Options of an index, by what a step's name says of it: kernels of codes without a dense component leave its code out.
INTEGERS: dict[str, dict[str, Any]] = {"": {}, ", dense component": {"n_dense": N_DENSE}}
FLOATS = {f", float weights{name}": {**options, "scale": None} for name, options in INTEGERS.items()}


class WarmStep(NamedTuple):
    """What one step of `warm` did."""

    name: str
    seconds: float
    compiled: int  # kernels; none if all were in the cache
    loaded: int  # kernels from the cache
    kept: int  # of the compiled ones, those that were written to the cache


def warm(
    shapes: str | Iterable[str | tuple[int, int]] = SHAPES,
    *,
    queries: Iterable[str] = QUERIES,
    extras: Iterable[str] = (),
    verbose: bool = True,
) -> list[WarmStep]:
    """Compile the kernels of searches ahead of time, and keep them on disk for later processes.

    Call it where an image is built, or before a server takes traffic. What the cache holds already is only loaded.

    Parameters
    ----------
    shapes : str or iterable of str or (int, int)
        Components and bits of the codes: "8x16", ("8x16", "1x128") or (8, 16) pairs.
    queries : iterable of {"coded", "real"}
        The kinds of queries: codes, and vectors or an index of vectors.
    extras : iterable of str
        What else to compile: "float" for ``scale=None``, "other" for `range_search`,
        ``prune=False`` and `shortlist`, "refine" for `IndexRefineCCCF`, "quantizer" to train and encode embeddings,
        "models" to fit the models of `cccf_index.models`.
    verbose : bool
        Show progress, on a terminal only.

    Returns
    -------
    steps : list of WarmStep
        Seconds and numbers of kernels. If fewer were kept than compiled, no folder can be written: set CCCF_CACHE_DIR.

    Examples
    --------
    >>> import cccf_index as ci
    >>> steps = ci.warm("8x16", queries=["coded"], verbose=False)
    >>> [step.name for step in steps]
    ['ids', '8x16 coded queries', '8x16 coded queries, dense component']
    """
    steps = list_steps(shapes, queries, extras)
    with tqdm(total=len(steps), desc="kernels", unit=" steps", disable=None if verbose else True) as progress:
        done = []
        for step in run_steps(steps):
            done.append(step)
            progress.update()
    return done


def list_steps(
    shapes: str | Iterable[str | tuple[int, int]], queries: Iterable[str], extras: Iterable[str]
) -> list[tuple[str, Callable[[], None]]]:
    """Check the arguments of `warm`; return what it does, by name."""
    is_one = isinstance(shapes, str) or (isinstance(shapes, tuple) and all(isinstance(n, int) for n in shapes))
    pairs = [_read_shape(shape) for shape in ([shapes] if is_one else shapes)]
    if not pairs:
        raise ValueError('`shapes` must name at least one shape, such as "8x16", got none.')
    kinds = [_check.choice(kind, "queries", QUERIES) for kind in _make_list(queries)]
    chosen = {_check.choice(extra, "extras", EXTRAS) for extra in _make_list(extras)}
    types = {**INTEGERS, **(FLOATS if "float" in chosen else {})}
    steps: list[tuple[str, Callable[[], None]]] = [("ids", _warm_ids)]
    for shape in dict.fromkeys(pairs):
        name = f"{shape[0]}x{shape[1]}"
        for kind in dict.fromkeys(kinds):
            for weights, options in types.items():
                steps.append((f"{name} {kind} queries{weights}", partial(_warm_search, shape, kind, options)))
                if "other" in chosen:
                    other = partial(_warm_other, shape, kind, options)
                    steps.append((f"{name} {kind} queries{weights}, other searches", other))
        if "quantizer" in chosen:
            steps.append((f"{name} quantizer", partial(_warm_quantizer, shape)))
        if "models" in chosen:
            steps.append((f"{name} models", partial(_warm_models, shape)))
    if "refine" in chosen:
        steps.append(("refine", _warm_refine))
    return steps


def run_steps(steps: Iterable[tuple[str, Callable[[], None]]]) -> Iterator[WarmStep]:
    """Run steps one after the other, and yield what each did."""
    for name, work in steps:
        before, begin = (Counts.compiled, Counts.loaded, Counts.kept), time.perf_counter()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning)  # of made-up data
            work()
        seconds = time.perf_counter() - begin
        after = Counts.compiled, Counts.loaded, Counts.kept
        yield WarmStep(name, seconds, *(now - then for now, then in zip(after, before, strict=True)))


def _make_list(words: Iterable[str]) -> list[str]:
    return [words] if isinstance(words, str) else list(words)


def _read_shape(shape: Any) -> tuple[int, int]:
    """Return components and bits, checked by the index."""
    found = re.fullmatch(r"(\d+)x(\d+)", shape) if isinstance(shape, str) else None
    pair = (int(found[1]), int(found[2])) if found else shape
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError(f'`shapes` must be like "8x16" or (8, 16), components and bits, got {shape!r}.')
    index = IndexCCCF(*pair)
    return index.n_components, index.n_bits


def _make_codes(shape: tuple[int, int], n: int, n_dense: int = 0) -> CompositionalCodes:
    rng = np.random.default_rng(0)
    codes = CompositionalCodes.from_signs(rng.random((n, *shape)) < 0.5, rng.random((n, shape[0])))
    dense = DenseRows.from_vectors(_make_vectors(n, n_dense)) if n_dense else None
    return CompositionalCodes(codes.bits, codes.weights, codes.n_bits, dense=dense)


def _make_vectors(n: int, d: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((n, d)).astype(np.float32)


def _make_queries(shape: tuple[int, int], kind: str, n: int, n_dense: int) -> CompositionalCodes | NDArray[np.float32]:
    return _make_codes(shape, n, n_dense) if kind == "coded" else _make_vectors(n, shape[0] * shape[1] + n_dense)


def _warm_search(shape: tuple[int, int], kind: str, options: dict[str, Any]) -> None:
    """Add, search, filter, remove and reconstruct, in memory and in a mapped file."""
    plain, biased = IndexCCCF(*shape, **options), IndexCCCF(*shape, **options)
    items, queries = _make_codes(shape, 300, plain.n_dense), _make_queries(shape, kind, 70, plain.n_dense)
    plain.add(items)
    biased.add(items, bias=np.arange(len(items)))
    for index in (plain, biased):
        _use_index(index, queries)
    for _ in range(2):  # a segment that merges others is built from arrays of its own
        plain.add(items)
    _use_index(plain, queries)
    # a machine without a temporary folder has the kernels of mapped files all the same: they are those of `plain`
    with contextlib.suppress(OSError), tempfile.TemporaryDirectory() as folder:
        write_index(plain, os.path.join(folder, "items.cccf"))
        _use_index(read_index(os.path.join(folder, "items.cccf"), mmap=True), queries)
    vectors = queries.to_vectors() if isinstance(queries, CompositionalCodes) else queries
    if kind == "real" or not plain.n_dense:  # with a dense component, expanded vectors are real-valued queries
        for writeable in (True, False):
            vectors.flags.writeable = writeable
            plain.search(vectors, 5)
    if kind == "real":
        _warm_transform(shape)


def _use_index(index: IndexCCCF, queries: CompositionalCodes | NDArray[np.float32]) -> None:
    for x in (queries, queries[:1]):
        index.search(x, 5)
    index.search(queries[:2], 5, exclude=[[1, 2], []], allow=range(50))
    index.remove_ids([3])
    index.search(queries[:2], 5)
    index.search_and_reconstruct(queries[:2], 5)


def _warm_transform(shape: tuple[int, int]) -> None:
    """Map vectors to queries, as an index of vectors does."""
    d = shape[0] * shape[1]
    vectors, columns, mean = (freeze(_make_vectors(n, m)) for n, m in ((2, DIMENSION), (DIMENSION, d), (1, DIMENSION)))
    queries, shifts = np.empty((2, d), np.float32), np.empty(2, np.float32)
    transform_queries(vectors, columns, mean[0], 1.0, 0, d, queries, shifts, 0, 2)


def _warm_other(shape: tuple[int, int], kind: str, options: dict[str, Any]) -> None:
    """Search in the ways that have kernels of their own."""
    index = IndexCCCF(*shape, **options)
    index.add(_make_codes(shape, 300, index.n_dense))
    queries = _make_queries(shape, kind, 3, index.n_dense)
    index.range_search(queries, 0.5)
    index.search(queries, 5, params=SearchParametersCCCF(prune=False))
    if kind == "real":
        index.search(queries, 5, params=SearchParametersCCCF(shortlist=3))


def _warm_ids() -> None:
    """Look up items by their ids."""
    index = IndexCCCF(1, 8)
    index.add_with_ids(_make_codes((1, 8), 9), np.arange(9)[::-1])
    index.reconstruct_batch([0, 8])


def _warm_refine() -> None:
    """Re-rank: one kernel for all kinds of stored vectors, in memory and in mapped files, with ids and without."""
    shape, n = (1, 8), 100
    index = IndexCCCF(*shape)
    index.add(_make_codes(shape, n))
    refined = IndexRefineCCCF(index, _make_vectors(n, DIMENSION))
    refined.search(_make_vectors(2, DIMENSION), 5, codes=_make_codes(shape, 2))


def _warm_quantizer(shape: tuple[int, int]) -> None:
    """Train an index of vectors, encode items and users, and search."""
    items, users = _make_vectors(120, DIMENSION), _make_vectors(80, DIMENSION)
    for budget in (None, 1000):
        quantizer = CompositionalQuantizer(*shape, sweeps=1, bytes_per_item=budget, verbose=False).fit(items, users)
        index = IndexCCCF(*shape, "auto", quantizer=quantizer)
        for writeable in (True, False):
            items.flags.writeable = users.flags.writeable = writeable
            index.add(items)
            for coded in (False, True):
                for x in (users, users[:1]):
                    index.search(x, 5, params=SearchParametersCCCF(coded=coded))
            quantizer.encode_items(items)
            quantizer.encode_users(users)


def _warm_models(shape: tuple[int, int]) -> None:
    """Fit every model, encode new users and items, and recommend."""
    from cccf_index.datasets import synthetic_ratings  # what only searches need not load what trains
    from cccf_index.models import BCCF, CCCF, DCF, DCMF, MF, load

    ratings = synthetic_ratings(100, 90, n_groups=4, ratings_per_user=15).user_items  # more than the default 64 bits
    learned = [CCCF(*shape, queries=queries, verbose=False) for queries in ("coded", "real")]
    models = [
        MF(n_factors=8, verbose=False),
        MF(n_factors=8, unobserved=0.1, verbose=False),
        BCCF(verbose=False),
        DCF(verbose=False),
        *learned,
        CCCF(*shape, weights="kernel", verbose=False),
    ]
    fitted = [model.fit(ratings) for model in models]
    fitted.append(DCMF(verbose=False).fit(ratings, item_features=_make_vectors(ratings.shape[1], 4)))
    for model in fitted:
        _use_model(model, ratings)
    with contextlib.suppress(OSError), tempfile.TemporaryDirectory() as folder:
        for model in fitted:
            model.save(os.path.join(folder, "model.cccf"))
            _use_model(load(os.path.join(folder, "model.cccf")), ratings)


def _use_model(model: Any, ratings: Any) -> None:
    model.encode_users(ratings[:3])
    model.encode_items(ratings.T.tocsr()[:3])
    model.recommend([0, 1], 5, exclude=ratings[:2])
