"""The catalogues of the retrieval benchmarks: factors and codes, made once and kept in a folder.

Factors have 128 dimensions. Those of gowalla and ciao are implicit's alternating least squares, those of amazon-dfm are
MF on the ratings. Larger catalogues are sampled from the factors of gowalla by a smoothed bootstrap: for an item v and
another item w of the same k-means cell, ``centre + cos(a) * (v - centre) + sin(a) * (w - centre)``. This keeps the mean
and the covariance of every cell, and no two items are equal.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from common import RIDGES, load_ratings
from numpy.typing import NDArray
from scipy import sparse

from cccf_index import CompositionalCodes
from cccf_index.datasets import split_ratings
from cccf_index.models import DCF, MF
from cccf_index.quantizer import CompositionalQuantizer

DIMENSION = 128
ALS = {"gowalla": (0.1, 10), "ciao": (0.1, 10)}  # ridge and alpha
SAMPLED_FROM = "gowalla"
CELLS = 256  # k-means cells to sample from
STEP = 250_000  # items sampled at a time
ACTIVE = (8, 4)


@dataclass
class FactorSet:
    """User and item factors of a catalogue; a sampled catalogue has no ratings."""

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
        """Whether there are different ratings to learn from, so that DCF can be trained."""
        return self.train is not None and len(np.unique(self.train.data[:1000])) > 1

    @property
    def has_test(self) -> bool:
        """Whether NDCG of held-out items is meaningful: ciao has too few ratings per item."""
        return self.test is not None and self.name != "ciao"


class Store:
    """Factors, quantizers and codes, each made once and kept in a folder."""

    def __init__(self, data: str, folder: str) -> None:
        self.data = data
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def get_factors(self, name: str) -> FactorSet:
        """Return a data set by its name, or a sampled catalogue by its number of items."""
        if name.isdigit():
            source = self.get_factors(SAMPLED_FROM)
            items = np.concatenate(list(sample_items(source.items, int(name))))
            return FactorSet(name, source.users, items)
        train, test = split_ratings(load_ratings(self.data, name).user_items, seed=0)
        path = self.folder / f"{name}-factors.npz"
        if not path.exists():
            print(f"fitting {name} ...", file=sys.stderr)
            users, items = fit_als(train, *ALS[name]) if name in ALS else fit_mf(train, RIDGES[name])
            np.savez(path, users=users, items=items)
        with np.load(path) as file:
            return FactorSet(name, file["users"], file["items"], train, test)

    def get_quantizer(self, name: str, active: int) -> CompositionalQuantizer:
        """Return the quantizer fitted to the factors of a data set, 8 x 16 bits."""
        path = self.folder / f"{name}-{active}.quantizer"
        if not path.exists():
            print(f"learning codes of {name}, {active} of 8 active ...", file=sys.stderr)
            source = self.get_factors(name)
            limit = None if active == 8 else active
            quantizer = CompositionalQuantizer(8, 16, max_active=limit, max_active_users=limit)
            quantizer.fit(source.items, source.users).save(path)
        return CompositionalQuantizer.load(path)

    def get_item_codes(self, name: str, active: int) -> CompositionalCodes:
        """Return the codes of a catalogue's items."""
        path = self.folder / f"{name}-{active}-items.codes"
        if not path.exists():
            print(f"encoding {name}, {active} of 8 active ...", file=sys.stderr)
            source = self.get_factors(SAMPLED_FROM if name.isdigit() else name)
            quantizer = self.get_quantizer(source.name, active)
            parts = sample_items(source.items, int(name)) if name.isdigit() else iter([source.items])
            CompositionalCodes.concatenate([quantizer.encode_items(part) for part in parts]).save(path)
        return CompositionalCodes.load(path)

    def get_user_queries(self, name: str, active: int) -> tuple[CompositionalCodes, NDArray[np.float32]]:
        """Return the codes of all users, and their real-valued queries."""
        source = self.get_factors(SAMPLED_FROM if name.isdigit() else name)
        quantizer = self.get_quantizer(source.name, active)
        path = self.folder / f"{source.name}-{active}-users.codes"
        if not path.exists():
            quantizer.encode_users(source.users).save(path)
        return CompositionalCodes.load(path), quantizer.transform_users(source.users)

    def get_binary_codes(self, one: FactorSet) -> tuple[CompositionalCodes, CompositionalCodes]:
        """Return codes of 128 bits of users and items: DCF's where there are ratings, else those of a quantizer."""
        paths = [self.folder / f"{one.name}-binary-{side}.codes" for side in ("users", "items")]
        if not all(path.exists() for path in paths):
            print(f"learning 128 bits of {one.name} ...", file=sys.stderr)
            if one.has_ratings:
                model = DCF(DIMENSION, verbose=False).fit(one.train)
                users, items = model.user_codes_, model.item_codes_
            else:
                source = self.get_factors(one.source)
                quantizer = CompositionalQuantizer(1, DIMENSION).fit(source.items, source.users)
                users, items = quantizer.encode_users(one.users), quantizer.encode_items(one.items)
            users.save(paths[0])
            items.save(paths[1])
        users, items = (CompositionalCodes.load(path) for path in paths)
        return users, items


def fit_als(train: sparse.csr_matrix, ridge: float, alpha: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return user and item factors of implicit feedback, by the package implicit."""
    from implicit.als import AlternatingLeastSquares
    from threadpoolctl import threadpool_limits

    ones = sparse.csr_matrix((np.ones_like(train.data), train.indices, train.indptr), shape=train.shape)
    with threadpool_limits(1, "blas"):
        model = AlternatingLeastSquares(DIMENSION, regularization=ridge, alpha=alpha, iterations=15, random_state=0)
        model.fit(ones, show_progress=False)
    return model.user_factors, model.item_factors


def fit_mf(train: sparse.csr_matrix, ridge: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return user and item factors of explicit ratings."""
    model = MF(DIMENSION, ridge, verbose=False).fit(train)
    return model.user_factors_, model.item_factors_


def sample_items(items: NDArray[np.float32], n: int, seed: int = 0) -> Iterator[NDArray[np.float32]]:
    """Yield n vectors like the given ones, in parts; a smaller catalogue is the beginning of a larger one."""
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
