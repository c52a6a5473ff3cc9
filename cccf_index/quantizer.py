"""CompositionalQuantizer: learn codes from item and user embeddings whose inner products are scores."""

from __future__ import annotations

import copy
import os
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cccf_index import _check, _threads
from cccf_index._check import NotFittedError
from cccf_index.codes import CompositionalCodes
from cccf_index.kernels.layout import freeze
from cccf_index.kernels.levels import no_precisions
from cccf_index.kernels.query_vectors import transform_queries
from cccf_index.learning.allocation import FACTORS, Allocation
from cccf_index.learning.alternation import Encoder, learn_codes
from cccf_index.learning.dense import LEADING, DenseSpace
from cccf_index.learning.encoding import RowEncoder
from cccf_index.learning.heads import Heads
from cccf_index.learning.history import Iteration
from cccf_index.learning.losses import LISTS, ListEnds
from cccf_index.learning.offers import Offers
from cccf_index.learning.plan import MAX_DIMENSION, LearningPlan
from cccf_index.learning.probes import Probes
from cccf_index.learning.rows import Frame
from cccf_index.learning.sides import Sides, sample_rows
from cccf_index.storage import container

EXAMPLES = 16384  # items whose bytes are counted, to keep a budget
MOST_LOST = 0.5  # of the places in lists, by a budget that is not worth a warning
KIND = "quantizer"
LATER = ("bytes_per_item", "k")  # parameters that files of earlier versions do not have


class CompositionalQuantizer:
    """Learn compositional codes of item and user vectors, so that inner products of codes approximate those of vectors.

    Codes and weights of both sides are learned together, by alternating minimisation of the squared error over all
    pairs. Then the items are refitted to real-valued queries, with extra weight on each query's best items.

    Parameters
    ----------
    n_components : int
        G, the number of components, 1 to 64.
    n_bits : int
        r, the number of bits of a component, 1 to 512; G * r is at most 4096.
    max_active : int, optional
        The maximum number of components of an item with a non-zero weight; None for all. Fewer components need less
        memory and are searched faster.
    max_active_users : int, optional
        The same for the codes of users.
    seed : int
        Seed of the samples and the first rotations.
    sweeps : int
        The maximum number of updates of both sides.
    n_probes : int
        The number of users that are kept as example queries. The scores of the 50 best items of each of them count more
        than other scores. 0 weights all pairs alike. Probes take ``4 * n_probes * (p + G * r)`` bytes.
    max_rows : int
        The number of rows of each side to learn from. If there are more users, a random sample; if there are more
        items, those that count most in the error, and a random sample of the others. All rows are encoded.
    verbose : bool
        Show a progress bar if the output is a terminal.
    bytes_per_item : float, optional
        Make codes of different lengths, which take so many bytes per item in the mean, ids included: the items that are
        often near the head of lists get a dense component of up to 8 bits for each dimension, the others a few binary
        components (`max_active`, by default a quarter of `n_components`). None gives all items codes of the same
        length.
    k : int
        With `bytes_per_item`: the length of the lists that codes are chosen for. Lists of a tenth of it count as much,
        and ten times as long ones a little.

    Attributes
    ----------
    item_codes_, user_codes_ : CompositionalCodes
        The codes of the vectors passed to `fit`; `user_codes_` is None without user vectors.
    history_ : list of Iteration
        ``(objective, seconds)`` at the start and after each sweep. The objective is the mean squared error of the coded
        pairs, divided by the mean square of the scores.
    item_mean_ : ndarray of float32, shape (p,)
        The mean that is subtracted from items. It shifts all scores of a user by the same amount, so rankings do not
        change and the codes need not represent it.

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
    _plan: LearningPlan
    _encoder: Encoder
    _encoders: tuple[Any, RowEncoder, RowEncoder] | None = None  # made of `_encoder`
    _columns: tuple[Any, Any, Any] | None = None  # the encoder, its `query_map` transposed, its `item_mean`

    def __init__(
        self,
        n_components: int = 8,
        n_bits: int = 16,
        max_active: int | None = None,
        max_active_users: int | None = None,
        seed: int = 0,
        sweeps: int = 6,
        n_probes: int = 4096,
        max_rows: int = 30_000,
        verbose: bool = True,
        bytes_per_item: float | None = None,
        k: int = 100,
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
        self.bytes_per_item = bytes_per_item
        self.k = k

    def __repr__(self) -> str:
        budget = "" if self.bytes_per_item is None else f", bytes_per_item={self.bytes_per_item:g}"
        return f"CompositionalQuantizer(n_components={self.n_components}, n_bits={self.n_bits}{budget})"

    def fit(
        self, item_vectors: ArrayLike, user_vectors: ArrayLike | None = None, *, item_weights: ArrayLike | None = None
    ) -> CompositionalQuantizer:
        """Learn from both sides, and encode them.

        Parameters
        ----------
        item_vectors : array_like of float, shape (n_items, p)
        user_vectors : array_like of float, shape (n_users, p), optional
            The vectors that will be searched with, or a sample of them. If None, the items take their place, with a
            warning; pass the items themselves to search for similar items.
        item_weights : array_like of float, shape (n_items,), optional
            How much the errors of each item count. If None, the root mean square of its scores.
        """
        self._learn(item_vectors, user_vectors, item_weights)
        self.item_codes_ = self.encode_items(item_vectors)
        self.user_codes_ = None if user_vectors is None else self.encode_users(user_vectors)
        return self

    def check(self) -> None:
        """Raise a TypeError or ValueError for bad parameters, as `fit` does."""
        LearningPlan.from_parameters(self)

    def _learn(
        self, item_vectors: Any, user_vectors: Any, item_weights: Any, has_choice: bool = False
    ) -> Offers | None:
        """Learn the encoder, without encoding all rows; return what other budgets can be allocated from.

        has_choice: whether they will be, so that a small budget needs no warning.
        """
        plan = LearningPlan.from_parameters(self)
        items = _check_vectors(item_vectors, "item_vectors", least=1)
        counts: NDArray[np.float32] | None = None
        if item_weights is not None:
            counts = _check.vector(item_weights, "item_weights", len(items))
            candidates = np.flatnonzero(counts)
            if counts.min() < 0 or not len(candidates):
                raise ValueError("`item_weights` must be at least 0, with some above 0.")
        if user_vectors is None:
            warnings.warn(
                "There are no `user_vectors`: codes are fitted to queries like the items. Pass a sample of the "
                "queries, or the items themselves.",
                stacklevel=3,
            )
        users = items if user_vectors is None else _check_vectors(user_vectors, "user_vectors", items.shape[1], least=1)
        rng = np.random.default_rng(plan.seed)
        if counts is not None and len(candidates) < len(items):
            items, counts = items[candidates], counts[candidates]
        queries = users[sample_rows(len(users), plan.max_rows, rng)]
        with _threads.limit_blas():
            sides = Sides.from_vectors(items, queries, counts, plan.max_rows, rng)
            examples = items[sample_rows(len(items), EXAMPLES, np.random.default_rng(plan.seed))]
            self._encoder, self.history_, offers, lost = learn_codes(sides, examples, plan, bool(self.verbose))
        self._plan, self.item_mean_ = plan, self._encoder.item_mean
        if offers is not None and plan.bytes_per_item is not None and not has_choice:
            _warn_of_losses(offers, plan.bytes_per_item, lost)
        return offers

    def _with_budget(self, offers: Offers, budget: float) -> CompositionalQuantizer:
        """Return a quantizer with another number of bytes per item, which need not learn codes again."""
        other = self.without_codes()
        other.bytes_per_item = budget
        other._plan = self._plan._replace(bytes_per_item=budget)
        other._encoder = self._encoder._replace(allocation=offers.allocate(budget)[0])
        return other

    @property
    def d(self) -> int:
        """The dimension p of the fitted vectors."""
        self._check_fitted()
        return int(self.item_mean_.size)

    @property
    def n_dense(self) -> int:
        """The dimensions of the dense component of codes; 0 if all items have codes of the same length."""
        allocation = self._encoder.allocation if self.is_fitted else None
        return 0 if allocation is None else len(allocation.space.queries)

    @property
    def dense_metric(self) -> NDArray[np.float32]:
        """How much more energy queries have than items in each dimension of the dense component, float32 (n_dense,)."""
        allocation = self._encoder.allocation if self.is_fitted else None
        if allocation is None:
            return np.empty(0, np.float32)
        sizes = allocation.space.sizes
        return np.sqrt(np.where(sizes > 0, sizes, sizes.max(initial=1.0)))

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` was called."""
        return hasattr(self, "_encoder")

    def equals(self, other: CompositionalQuantizer | None) -> bool:
        """Whether both encode the same vectors to the same codes or, if neither is fitted, have the same parameters."""
        if other is None or self.is_fitted != other.is_fitted:
            return False
        if LearningPlan.from_parameters(self) != LearningPlan.from_parameters(other):
            return False
        mine, theirs = self._collect_arrays(), other._collect_arrays()
        return mine.keys() == theirs.keys() and all(np.array_equal(mine[name], theirs[name]) for name in mine)

    @property
    def nbytes(self) -> int:
        """The bytes of everything that is kept to encode and to transform."""
        self._check_fitted()
        return sum(array.nbytes for array in self._collect_arrays().values())

    @_threads.limit_blas()
    def encode_items(self, item_vectors: ArrayLike) -> CompositionalCodes:
        """Return codes of items (n, p). The code of an item depends on no other item passed."""
        self._check_fitted()
        centred = _check_vectors(item_vectors, "item_vectors", self.d) - self.item_mean_
        encoder, allocation = self._make_encoders()[1], self._encoder.allocation
        if allocation is None:
            return encoder.encode(centred, "item_vectors")
        kinds = allocation.assign(centred)
        short = np.flatnonzero(allocation.precisions.sum(axis=1)[kinds] == 0)
        bits, weights = encoder.make_codes(len(centred))
        bits[:], weights[:] = 0, 0
        codes = encoder.encode(centred[short], "item_vectors")
        bits[short], weights[short] = codes.bits, codes.weights
        return CompositionalCodes._trusted(bits, weights, codes.n_bits, allocation.round_items(centred, kinds))

    def encode_users(self, user_vectors: ArrayLike) -> CompositionalCodes:
        """Return codes of users (n, p). The code of a user depends on no other user passed."""
        self._check_fitted()
        x: Any = user_vectors
        is_plain = isinstance(x, np.ndarray) and x.dtype == np.float32 and x.flags.c_contiguous
        if not (is_plain and x.shape[1:] == self.item_mean_.shape):
            x = _check_vectors(x, "user_vectors", self.d)
        codes, allocation = self._make_encoders()[2].encode(x, "user_vectors"), self._encoder.allocation
        if allocation is None:
            return codes
        return CompositionalCodes._trusted(codes.bits, codes.weights, codes.n_bits, allocation.space.code_users(x))

    def _make_encoders(self) -> tuple[Any, RowEncoder, RowEncoder]:
        """Return what was learned, and the encoders of items and users that are made of it, once."""
        if self._encoders is None or self._encoders[0] is not self._encoder:
            learned, plan = self._encoder, self._plan
            self._encoders = (
                learned,
                RowEncoder.from_frame(learned.items, learned.item_start, learned.probes, plan, plan.max_active),
                RowEncoder.from_frame(learned.users, learned.user_start, None, plan, plan.max_active_users),
            )
        return self._encoders

    @_threads.limit_blas()
    def _fit_to_heads(
        self,
        users: NDArray[np.float32],
        lists: NDArray[np.int64],
        items: NDArray[np.float32],
        item_codes: CompositionalCodes,
    ) -> tuple[CompositionalCodes, NDArray[np.float32]]:
        """Return codes and real-valued queries of users that keep the scores at the head of their lists.

        `lists` (n, any) are rows of `items`, whose codes are given, as a search with `transform_users` finds them.
        """
        heads = Heads.from_lists(users, lists, items - self.item_mean_, item_codes.to_vectors(), self._encoder.users)
        queries = heads.fit_queries()
        return heads.fit_codes(queries, self._plan.n_components, self._plan.max_active_users).pack(), queries

    def transform_users(self, user_vectors: ArrayLike) -> NDArray[np.float32]:
        """Return real-valued queries, float32 (n, G * r + n_dense), for users (n, p): more accurate than their codes.

        Their inner products with expanded item codes approximate the scores minus ``user @ item_mean_``.
        """
        self._check_fitted()
        return self._transform(_check_vectors(user_vectors, "user_vectors", self.d), "user_vectors", 0)[0]

    def _transform(
        self,
        vectors: NDArray[np.float32],
        name: str,
        num_threads: int,
        is_coded: bool = False,
        used: tuple[int, int] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return real-valued queries (n, G * r + n_dense) for vectors (n, p), and their products with `item_mean_`.

        No queries if they `is_coded`. Values are checked here: the kernel tells whether they are surely finite. used:
        the first column that is needed, and the one after the last; the others may be zeros.
        """
        n, (columns, mean) = len(vectors), self._make_columns()
        first, last = (0, columns.shape[1]) if used is None else used
        queries, shifts = np.empty((n, 0 if is_coded else columns.shape[1]), np.float32), np.empty(n, np.float32)
        queries[:, :first], queries[:, last:] = 0, 0
        form = (freeze(vectors), columns, mean, _check.SAFE_SQUARES, first, last, queries, shifts)
        if n == 1:
            is_safe = transform_queries(*form, 0, 1)
        else:
            are_safe: list[bool] = []
            _threads.run_chunks(
                lambda start, stop: are_safe.append(transform_queries(*form, start, stop)),
                n, _threads.thread_count(num_threads), least=64, most=4096,
            )  # fmt: skip
            is_safe = all(are_safe)
        if not is_safe:
            _check.matrix(vectors, name, self.d)
        return queries, shifts

    def _make_columns(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the map of vectors to queries (p, G * r + n_dense) and the mean of the items, for the kernel."""
        if self._columns is None or self._columns[0] is not self._encoder:
            self._columns = (self._encoder, freeze(self._encoder.join_maps().T), freeze(self._encoder.item_mean))
        return self._columns[1:]

    def decode(self, item_codes: CompositionalCodes) -> NDArray[np.float32]:
        """Return approximate item vectors, float32 (n, p), from codes.

        A user's inner product with one is that of `transform_users` with the code, plus ``user @ item_mean_``.
        """
        self._check_fitted()
        if not isinstance(item_codes, CompositionalCodes):
            raise TypeError(f"`item_codes` must be CompositionalCodes, got {type(item_codes).__name__}.")
        shape, found = (self._plan.n_components, self._plan.n_bits), (item_codes.n_components, item_codes.n_bits)
        if found != shape:
            raise ValueError(f"`item_codes` must have {shape[0]}x{shape[1]} bits, got {found[0]}x{found[1]}.")
        if item_codes.n_dense not in (0, self.n_dense):
            raise ValueError(f"`item_codes` must have n_dense={self.n_dense}, got {item_codes.n_dense}.")
        return self._decode_vectors(item_codes.to_vectors())

    def _decode_vectors(self, expanded: NDArray[np.float32]) -> NDArray[np.float32]:
        return expanded @ self._encoder.join_maps()[: expanded.shape[1]] + self.item_mean_

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the quantizer to a file, without the codes of `fit`; checksummed, and replaced atomically."""
        self._check_fitted()
        arrays = ((name, array, 0) for name, array in self._collect_arrays().items())
        container.write_file(path, KIND, self._describe(), arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CompositionalQuantizer:
        """Read a quantizer that `save` wrote; a damaged file or one of another kind raises a ValueError."""
        meta, arrays = container.read_file(path, KIND)
        try:
            return cls._restore(meta, arrays)
        except container.BROKEN as error:
            raise container.damage_error(os.fspath(path), error) from error

    def without_codes(self) -> CompositionalQuantizer:
        """Return a copy without ``item_codes_`` and ``user_codes_``, which takes much less memory."""
        other = copy.copy(self)
        for name in ("item_codes_", "user_codes_"):
            vars(other).pop(name, None)
        return other

    def _describe(self) -> dict[str, Any]:
        plan = self._plan if self.is_fitted else LearningPlan.from_parameters(self)
        return {**plan._asdict(), "history": self.history_ if self.is_fitted else []}

    def _collect_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the encoder by name; none before `fit`."""
        arrays: dict[str, NDArray[Any]] = {}
        if not self.is_fitted:
            return arrays
        allocation = self._encoder.allocation
        for name, value in (self._encoder._asdict() | (allocation._asdict() if allocation else {})).items():
            if isinstance(value, (Frame, Probes, DenseSpace, ListEnds)):
                arrays |= {f"{name}.{part}": array for part, array in value._asdict().items()}
            elif isinstance(value, np.ndarray):
                arrays[name] = value
        return arrays

    @classmethod
    def _restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> CompositionalQuantizer:
        """Make a quantizer from what `_describe` and `_collect_arrays` returned; a mismatch raises a ValueError."""
        known = {name: meta[name] for name in LearningPlan._fields if name in meta or name not in LATER}
        quantizer = cls(**known, verbose=False)
        plan = LearningPlan.from_parameters(quantizer)
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
        if plan.bytes_per_item is not None:
            n_dense, m, kinds = len(arrays["space.items"]), len(arrays["ends.probes"]), len(arrays["precisions"])
            shapes |= {"space.queries": (n_dense, p), "space.items": (n_dense, p), "space.sizes": (n_dense,)}
            leading = min(LEADING, int(np.count_nonzero(arrays["space.sizes"])))
            shapes |= {
                "ends.probes": (m, leading),
                "ends.lasts": (len(LISTS), m),
                "ends.shares": (len(LISTS),),
            }
            shapes |= {"precisions": no_precisions(kinds).shape}
            shapes |= dict.fromkeys(FACTORS, (kinds,))
        for name, shape in shapes.items():
            kind = np.int64 if name == "precisions" else np.float32
            if arrays[name].shape != shape or arrays[name].dtype != kind:
                raise ValueError(f"the array {name} has the wrong shape or type")
        # writable copies: numba compiles kernels again for read-only arrays
        own = {name: arrays[name].copy() for name in shapes}
        quantizer._encoder = Encoder(
            users=Frame(own["users.gram"], own["users.cross"]),
            items=Frame(own["items.gram"], own["items.cross"]),
            probes=Probes(*(own[f"probes.{name}"] for name in Probes._fields)) if "probes.size" in own else None,
            **{name: own[name] for name in ("user_start", "item_start", "query_map", "item_mean")},
            allocation=None if plan.bytes_per_item is None else Allocation.restore(own),
        )
        quantizer._plan, quantizer.item_mean_ = plan, own["item_mean"]
        quantizer.history_ = [Iteration(float(error), float(seconds)) for error, seconds in meta["history"]]
        return quantizer

    def _check_fitted(self) -> None:
        if not self.is_fitted:
            raise NotFittedError("This CompositionalQuantizer is not fitted yet. Call `fit` with vectors first.")


def _warn_of_losses(offers: Offers, budget: float, lost: float) -> None:
    """Warn of a budget that is far too small for the vectors, with the number of bytes that would do."""
    if lost > MOST_LOST:
        enough = offers.find_budget(budget, lost / 2)
        advice = "" if enough is None else f"{enough:.0f} bytes would halve that. "
        warnings.warn(
            f"`bytes_per_item`={budget:g} is far too small for these vectors: about {lost:.0%} of the places in lists "
            f"are expected to go to other items. {advice}`curves.recall_curve` shows what more bytes give.",
            stacklevel=4,
        )


def _check_vectors(x: ArrayLike, name: str, d: int | None = None, least: int = 0) -> NDArray[np.float32]:
    """Return vectors as float32 (n, d), with n >= `least`; None accepts any dimension."""
    array = _check.numbers(x, name)
    width = array.shape[1] if d is None and array.ndim == 2 else d
    if width is None or not 1 <= width <= MAX_DIMENSION or (array.ndim and len(array) < least):
        shape = f"(n, {f'1 to {MAX_DIMENSION}' if d is None else d})"
        raise ValueError(f"`{name}` must be of shape {shape} with n >= {least}, got {array.shape}.")
    return _check.matrix(array, name, width)
