"""The catalogues of the retrieval benchmarks: factors and codes, made once and kept in a folder.

Factors have 128 dimensions: those of gowalla and ciao are implicit's alternating least squares, those of amazon-dfm are
MF on the ratings. Larger catalogues are sampled from the factors of gowalla by a smoothed bootstrap: for an item v
and another item w of the same k-means cell, ``centre + cos(a) * (v - centre) + sin(a) * (w - centre)``. That keeps the
mean and the covariance of every cell, and no two items are alike.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from common import load
from numpy.typing import NDArray
from scipy import sparse

from cccf_index import CompositionalCodes
from cccf_index.datasets import split_ratings
from cccf_index.models import DCF, MF
from cccf_index.quantizer import CompositionalQuantizer

DIMENSION = 128
ALS = {"gowalla": (0.1, 10), "ciao": (0.1, 10)}  # ridge and alpha
RIDGES = {"amazon-dfm": 0.2}
SAMPLED_FROM = "gowalla"
CELLS = 256  # that new items are sampled from
STEP = 250_000  # items sampled at a time
ACTIVE = (8, 4)


@dataclass
class Catalogue:
    """Factors of a model; sampled catalogues have no ratings."""

    name: str
    users: NDArray[np.float32]
    items: NDArray[np.float32]
    train: Any = None  # csr_matrix
    test: Any = None

    @property
    def source(self) -> str:
        """The data set that the factors come from."""
        return SAMPLED_FROM if self.name.isdigit() else self.name

    @property
    def has_ratings(self) -> bool:
        """Whether users rated items differently, so that models of ratings can learn from them."""
        return self.train is not None and len(np.unique(self.train.data[:1000])) > 1

    @property
    def has_test(self) -> bool:
        """Whether held-out items tell good recommendations from bad ones: ciao has too few ratings an item."""
        return self.test is not None and self.name != "ciao"


class Store:
    """What is made once: factors, quantizers and codes, in a folder."""

    def __init__(self, data: str, folder: str) -> None:
        self.data = data
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def catalogue(self, name: str) -> Catalogue:
        """Return a data set by its name, or a sampled catalogue by its number of items."""
        if name.isdigit():
            source = self.catalogue(SAMPLED_FROM)
            items = np.concatenate(list(sampled(source.items, int(name))))
            return Catalogue(name, source.users, items)
        train, test = split_ratings(load(self.data, name).user_items, seed=0)
        path = self.folder / f"{name}-factors.npz"
        if not path.exists():
            print(f"fitting {name} ...", file=sys.stderr)
            users, items = als(name, train) if name in ALS else mf(name, train)
            np.savez(path, users=users, items=items)
        with np.load(path) as file:
            return Catalogue(name, file["users"], file["items"], train, test)

    def quantizer(self, name: str, active: int) -> CompositionalQuantizer:
        """Return what was learned from the factors of a data set, 8 x 16 bits."""
        path = self.folder / f"{name}-{active}.quantizer"
        if not path.exists():
            print(f"learning codes of {name}, {active} of 8 active ...", file=sys.stderr)
            source = self.catalogue(name)
            limit = None if active == 8 else active
            quantizer = CompositionalQuantizer(8, 16, max_active=limit, max_active_users=limit)
            quantizer.fit(source.items, source.users).save(path)
        return CompositionalQuantizer.load(path)

    def items(self, name: str, active: int) -> CompositionalCodes:
        """Return the codes of a catalogue's items."""
        path = self.folder / f"{name}-{active}-items.codes"
        if not path.exists():
            print(f"encoding {name}, {active} of 8 active ...", file=sys.stderr)
            source = self.catalogue(SAMPLED_FROM if name.isdigit() else name)
            quantizer = self.quantizer(source.name, active)
            parts = sampled(source.items, int(name)) if name.isdigit() else iter([source.items])
            CompositionalCodes.concatenate([quantizer.encode_items(part) for part in parts]).save(path)
        return CompositionalCodes.load(path)

    def users(self, name: str, active: int) -> tuple[CompositionalCodes, NDArray[np.float32]]:
        """Return the codes of all users, and their real-valued queries."""
        source = self.catalogue(SAMPLED_FROM if name.isdigit() else name)
        quantizer = self.quantizer(source.name, active)
        path = self.folder / f"{source.name}-{active}-users.codes"
        if not path.exists():
            quantizer.encode_users(source.users).save(path)
        return CompositionalCodes.load(path), quantizer.transform_users(source.users)

    def binary(self, one: Catalogue) -> tuple[CompositionalCodes, CompositionalCodes]:
        """Return codes of 128 bits of users and items: DCF's where there are ratings, else those of a quantizer."""
        paths = [self.folder / f"{one.name}-binary-{side}.codes" for side in ("users", "items")]
        if not all(path.exists() for path in paths):
            print(f"learning 128 bits of {one.name} ...", file=sys.stderr)
            if one.has_ratings:
                model = DCF(DIMENSION, verbose=False).fit(one.train)
                users, items = model.user_codes_, model.item_codes_
            else:
                source = self.catalogue(one.source)
                quantizer = CompositionalQuantizer(1, DIMENSION).fit(source.items, source.users)
                users, items = quantizer.encode_users(one.users), quantizer.encode_items(one.items)
            users.save(paths[0])
            items.save(paths[1])
        users, items = (CompositionalCodes.load(path) for path in paths)
        return users, items


def als(name: str, train: sparse.csr_matrix) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Factors of implicit feedback."""
    from implicit.als import AlternatingLeastSquares
    from threadpoolctl import threadpool_limits

    ridge, alpha = ALS[name]
    ones = sparse.csr_matrix((np.ones_like(train.data), train.indices, train.indptr), shape=train.shape)
    with threadpool_limits(1, "blas"):
        model = AlternatingLeastSquares(DIMENSION, regularization=ridge, alpha=alpha, iterations=15, random_state=0)
        model.fit(ones, show_progress=False)
    return model.user_factors, model.item_factors


def mf(name: str, train: sparse.csr_matrix) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Factors of explicit ratings."""
    model = MF(DIMENSION, RIDGES[name], verbose=False).fit(train)
    return model.user_factors_, model.item_factors_


def sampled(items: NDArray[np.float32], n: int, seed: int = 0) -> Iterator[NDArray[np.float32]]:
    """Yield n vectors, some at a time, like the given ones: the first of a larger catalogue are the smaller one."""
    cells = faiss.Kmeans(items.shape[1], CELLS, niter=10, seed=seed)
    cells.train(items)
    member = cells.assign(items)[1]
    by_cell = np.argsort(member, kind="stable")
    sizes = np.bincount(member, minlength=CELLS)
    starts = np.cumsum(sizes) - sizes
    rng = np.random.default_rng(seed)
    for start in range(0, n, STEP):
        first = rng.integers(0, len(items), STEP)
        cell = member[first]
        second = by_cell[starts[cell] + (rng.random(STEP) * sizes[cell]).astype(np.int64)]
        angle = rng.uniform(0, np.pi / 2, (STEP, 1)).astype(np.float32)
        centre = cells.centroids[cell]
        mixed = centre + np.cos(angle) * (items[first] - centre) + np.sin(angle) * (items[second] - centre)
        yield mixed[: n - start].astype(np.float32)
