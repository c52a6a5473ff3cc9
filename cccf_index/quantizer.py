"""CompositionalQuantizer: codes and weights for any pair of embeddings whose inner products are scores."""

from __future__ import annotations

import copy
import os
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cccf_index import _check
from cccf_index._check import NotFittedError
from cccf_index.codes import CompositionalCodes
from cccf_index.learning.alternation import CHUNK, MAX_DIMENSION, Learned, Plan, Probes, Sides, learned, sample
from cccf_index.learning.history import Iteration
from cccf_index.learning.rows import Coded, Frame, mapped, times_columns
from cccf_index.storage import container

KIND = "quantizer"


class CompositionalQuantizer:
    """Learn compositional codes of items and users whose inner products stay close to those of given vectors.

    Codes and weights of both sides are learned together by alternating minimisation of the error over all pairs. Then
    items are fitted to real-valued queries, with more weight on the items that head a query's list.

    Parameters
    ----------
    n_components : int
        G, 1 to 64.
    n_bits : int
        r, the bits of one component, 1 to 512; G * r at most 4096.
    max_active : int, optional
        How many components of an item may have a weight that is not zero; None for all. Fewer are smaller and faster.
    max_active_users : int, optional
        The same for coded users; None for all.
    seed : int
        Of samples and first rotations.
    sweeps : int
        How often both sides are updated.
    n_probes : int
        How many users are kept as examples of queries: an item that is among the first 50 of one of them is to
        keep its score there. 0 to count all pairs alike. They take ``4 * n_probes * (p + G * r)`` bytes.
    max_rows : int
        Rows of each side that are learned from, a random sample of larger ones; all rows are encoded.
    verbose : bool
        Show a progress bar, on a terminal.

    Attributes
    ----------
    item_codes_, user_codes_ : CompositionalCodes
        Of the vectors that were fitted; `user_codes_` is None without user vectors.
    history_ : list of Iteration
        ``(objective, seconds)`` at the start and after each sweep; the objective is the error of the coded pairs, as a
        share of the mean square of the scores.
    item_mean_ : ndarray of float32, shape (p,)
        What is subtracted from items: the scores of each user fall by the same amount, and codes need not express it.

    Examples
    --------
    >>> import numpy as np
    >>> from cccf_index.quantizer import CompositionalQuantizer
    >>> rng = np.random.default_rng(0)
    >>> users, items = rng.standard_normal((500, 12)), rng.standard_normal((300, 12))
    >>> quantizer = CompositionalQuantizer(n_components=4, n_bits=8).fit(items, users)
    >>> quantizer.item_codes_
    CompositionalCodes(n=300, n_components=4, n_bits=8, sparsity=0.00)
    >>> quantizer.transform_users(users).shape
    (500, 32)
    """

    item_codes_: CompositionalCodes
    user_codes_: CompositionalCodes | None
    history_: list[Iteration]
    item_mean_: NDArray[np.float32]
    _plan: Plan
    _learned: Learned
    _columns: tuple[Any, NDArray[np.float32]] | None = None  # the map of queries as the kernel takes it

    def __init__(
        self,
        n_components: int = 8,
        n_bits: int = 16,
        max_active: int | None = None,
        max_active_users: int | None = None,
        seed: int = 0,
        sweeps: int = 6,
        n_probes: int = 4096,
        max_rows: int = 100_000,
        verbose: bool = True,
    ) -> None:
        self.n_components = n_components
        self.n_bits = n_bits
        self.max_active = max_active
        self.max_active_users = max_active_users
        self.seed = seed
        self.sweeps = sweeps
        self.n_probes = n_probes
        self.max_rows = max_rows
        self.verbose = verbose

    def __repr__(self) -> str:
        return f"CompositionalQuantizer(n_components={self.n_components}, n_bits={self.n_bits})"

    def fit(
        self, item_vectors: ArrayLike, user_vectors: ArrayLike | None = None, *, item_weights: ArrayLike | None = None
    ) -> CompositionalQuantizer:
        """Learn codes of both sides.

        Parameters
        ----------
        item_vectors : array_like of float, shape (n_items, p)
        user_vectors : array_like of float, shape (n_users, p), optional
            What will search, or a sample of it. Without them queries are taken to be like the items, with a warning;
            pass the items again if they are.
        item_weights : array_like of float, shape (n_items,), optional
            How much the errors of each item count; the root mean square of its scores where they are not given.
        """
        self._learn(item_vectors, user_vectors, item_weights)
        self.item_codes_ = self.encode_items(item_vectors)
        self.user_codes_ = None if user_vectors is None else self.encode_users(user_vectors)
        return self

    def check(self) -> None:
        """Refuse bad parameters, as `fit` does."""
        Plan.of(self)

    def _learn(self, item_vectors: Any, user_vectors: Any, item_weights: Any) -> None:
        """Learn what encodes, without the codes of all rows."""
        plan = Plan.of(self)
        items = _vectors(item_vectors, "item_vectors", least=1)
        counts: NDArray[np.float32] | None = None
        candidates: NDArray[Any] = np.arange(len(items))
        if item_weights is not None:
            counts = _check.vector(item_weights, "item_weights", len(items))
            candidates = np.flatnonzero(counts)
            if counts.min() < 0 or not len(candidates):
                raise ValueError("`item_weights` must not be negative, and some must be above 0.")
        if user_vectors is None:
            warnings.warn(
                "There are no `user_vectors`: codes are fitted to queries like the items. Pass a sample of what will "
                "search, or the items again.",
                stacklevel=3,
            )
        users = items if user_vectors is None else _vectors(user_vectors, "user_vectors", items.shape[1], least=1)
        rng = np.random.default_rng(plan.seed)
        rows = candidates[sample(len(candidates), plan.max_rows, rng)]
        queries = sample(len(users), plan.max_rows, rng)
        sides = Sides.of(items[rows], users[queries], None if counts is None else counts[rows])
        self._learned, self.history_ = learned(sides, plan, bool(self.verbose))
        self._plan, self.item_mean_ = plan, self._learned.item_mean

    @property
    def d(self) -> int:
        """The dimension p of the vectors that were fitted."""
        self._check_fitted()
        return int(self.item_mean_.size)

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` was called."""
        return hasattr(self, "_learned")

    def equals(self, other: CompositionalQuantizer | None) -> bool:
        """Whether both make, or once they are fitted would make, the same codes of the same vectors."""
        if other is None or self.is_fitted != other.is_fitted or Plan.of(self) != Plan.of(other):
            return False
        mine, theirs = self._arrays(), other._arrays()
        return mine.keys() == theirs.keys() and all(np.array_equal(mine[name], theirs[name]) for name in mine)

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept to encode and to transform."""
        self._check_fitted()
        return sum(array.nbytes for array in self._arrays().values())

    def encode_items(self, item_vectors: ArrayLike) -> CompositionalCodes:
        """Return codes of any items, each for itself, with the queries fixed: `item_codes_` for those of `fit`."""
        self._check_fitted()
        centred = _vectors(item_vectors, "item_vectors", self.d) - self.item_mean_
        return self._encode(
            centred, self._learned.items, self._learned.item_start, self._plan.max_active, self._learned.probes
        )

    def encode_users(self, user_vectors: ArrayLike) -> CompositionalCodes:
        """Return codes of any users, each for itself, with the items fixed."""
        self._check_fitted()
        users = _vectors(user_vectors, "user_vectors", self.d)
        return self._encode(users, self._learned.users, self._learned.user_start, self._plan.max_active_users, None)

    def _encode(
        self, x: NDArray[np.float32], frame: Frame, first: NDArray[np.float32], max_active: int, probes: Probes | None
    ) -> CompositionalCodes:
        parts = []
        for start in range(0, max(len(x), 1), CHUNK):
            rows = x[start : start + CHUNK]
            coded = Coded.of(mapped(rows, first), self._plan.n_components, max_active)
            coded.improve(rows, frame, max_active, probes.pairs(rows) if probes else None)
            parts.append(coded.codes())
        return CompositionalCodes.concatenate(parts)

    def transform_users(self, user_vectors: ArrayLike) -> NDArray[np.float32]:
        """Return the real-valued queries, float32 (n, G * r), that rank the coded items best.

        Their inner products with the expanded codes of items are the scores less ``user @ item_mean_``.
        """
        self._check_fitted()
        return self._transform(_vectors(user_vectors, "user_vectors", self.d), 0)

    def _transform(self, vectors: NDArray[np.float32], num_threads: int) -> NDArray[np.float32]:
        """Return the real-valued queries of checked vectors."""
        if self._columns is None or self._columns[0] is not self._learned.query_map:
            self._columns = (self._learned.query_map, np.ascontiguousarray(self._learned.query_map.T))
        return times_columns(vectors, self._columns[1], num_threads)

    def decode(self, item_codes: CompositionalCodes) -> NDArray[np.float32]:
        """Return the item vectors, float32 (n, p), that codes stand for.

        A user's inner product with them is that of `transform_users` with the codes, and ``user @ item_mean_``.
        """
        self._check_fitted()
        if not isinstance(item_codes, CompositionalCodes):
            raise TypeError(f"`item_codes` must be CompositionalCodes, got {type(item_codes).__name__}.")
        shape, found = (self._plan.n_components, self._plan.n_bits), (item_codes.n_components, item_codes.n_bits)
        if found != shape:
            raise ValueError(f"`item_codes` must be of {shape[0]}x{shape[1]} bits, got {found[0]}x{found[1]}.")
        return self._decode(item_codes.to_vectors())

    def _decode(self, expanded: NDArray[np.float32]) -> NDArray[np.float32]:
        return expanded @ self._learned.query_map + self.item_mean_

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a file, checksummed and atomically, all but the codes of `fit`."""
        self._check_fitted()
        arrays = ((name, array, 0) for name, array in self._arrays().items())
        container.write_file(path, KIND, self._meta(), arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CompositionalQuantizer:
        """Read what `save` wrote: it encodes as the saved one did. A damaged or foreign file is a ValueError."""
        meta, arrays = container.read_file(path, KIND)
        try:
            return cls._restored(meta, arrays)
        except container.BROKEN as error:
            raise container.damage_error(os.fspath(path), error) from error

    def without_codes(self) -> CompositionalQuantizer:
        """Return a copy without ``item_codes_`` and ``user_codes_``: what encodes is a small part of them."""
        other = copy.copy(self)
        for name in ("item_codes_", "user_codes_"):
            vars(other).pop(name, None)
        return other

    def _meta(self) -> dict[str, Any]:
        plan = self._plan if self.is_fitted else Plan.of(self)
        return {**plan._asdict(), "history": self.history_ if self.is_fitted else []}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return by name all that is kept to encode and to transform, nothing before `fit`."""
        arrays: dict[str, NDArray[Any]] = {}
        if not self.is_fitted:
            return arrays
        for name, value in self._learned._asdict().items():
            if isinstance(value, (Frame, Probes)):
                arrays |= {f"{name}.{part}": array for part, array in value._asdict().items()}
            elif value is not None:
                arrays[name] = value
        return arrays

    @classmethod
    def _restored(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> CompositionalQuantizer:
        """Make the quantizer of `_meta` and `_arrays`; what does not fit together is a ValueError."""
        quantizer = cls(**{name: meta[name] for name in Plan._fields}, verbose=False)
        plan = Plan.of(quantizer)
        if not arrays:
            return quantizer
        d, p = plan.n_components * plan.n_bits, arrays["item_mean"].size
        shapes = {"item_mean": (p,), "query_map": (d, p)}
        for side in ("user", "item"):
            shapes |= {f"{side}s.gram": (d, d), f"{side}s.cross": (d, p), f"{side}_start": (d, p)}
        if "probes.vectors" in arrays:
            n = len(arrays["probes.vectors"])
            shapes |= {"probes.vectors": (n, p), "probes.queries": (n, d), "probes.thresholds": (n,)}
            shapes["probes.size"] = (1,)
        for name, shape in shapes.items():
            if arrays[name].shape != shape or arrays[name].dtype != np.float32:
                raise ValueError(f"its {name} does not fit the rest")
        own = {name: arrays[name].copy() for name in shapes}  # kernels are compiled for arrays that can be written
        quantizer._learned = Learned(
            users=Frame(own["users.gram"], own["users.cross"]),
            items=Frame(own["items.gram"], own["items.cross"]),
            probes=Probes(*(own[f"probes.{name}"] for name in Probes._fields)) if "probes.size" in own else None,
            **{name: own[name] for name in ("user_start", "item_start", "query_map", "item_mean")},
        )
        quantizer._plan, quantizer.item_mean_ = plan, own["item_mean"]
        quantizer.history_ = [Iteration(float(error), float(seconds)) for error, seconds in meta["history"]]
        return quantizer

    def _check_fitted(self) -> None:
        if not self.is_fitted:
            raise NotFittedError("This CompositionalQuantizer is not fitted yet. Call `fit` with vectors first.")


def _vectors(x: ArrayLike, name: str, d: int | None = None, least: int = 0) -> NDArray[np.float32]:
    """Return vectors as float32 (n, d), where d may be any dimension there is, and n must be `least`."""
    array = _check.numbers(x, name)
    width = array.shape[1] if d is None and array.ndim == 2 else d
    if width is None or not 1 <= width <= MAX_DIMENSION or (array.ndim and len(array) < least):
        shape = f"(n, {f'1 to {MAX_DIMENSION}' if d is None else d})"
        raise ValueError(f"`{name}` must be of shape {shape} with n >= {least}, got {array.shape}.")
    return _check.matrix(array, name, width)
