"""How a quantizer learns: a start from singular directions, sweeps over both sides, then items for real queries."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from cccf_index import _check, _threads
from cccf_index.codes import MAX_BITS, MAX_COMPONENTS
from cccf_index.learning.history import Iteration
from cccf_index.learning.rows import Coded, Frame, Pairs, balanced_maps, dealt, grouped, moment, solve

LARGEST = 1e8  # root mean square of vectors: products of their second moments are float32
MAX_DIMENSION = 4096  # of vectors and of codes: Gram matrices are its square
WAYS = ("together", "apart", "grouped")  # to deal singular directions to components
TRIAL = 8192  # rows of each side on which they are compared
TRIAL_SWEEPS = 6
LEAST_GAIN = 1e-3  # of the error, for another sweep
LIST = 50  # items at the head of a probe's list, of at least 20 times as many
MOST_LISTS = 256  # that an item is fitted to
LIST_SHARE = 0.1  # what the errors at the head of lists count beside those of all pairs
POLISHES = 2
CHUNK = 2048  # rows whose lists are sought at a time


class Plan(NamedTuple):
    """The parameters of a quantizer, checked."""

    n_components: int
    n_bits: int
    max_active: int
    max_active_users: int
    seed: int
    sweeps: int
    n_probes: int
    max_rows: int

    @classmethod
    def of(cls, given: Any) -> Plan:
        """Check the parameters of a quantizer."""
        n_components = _check.integer(given.n_components, "n_components", 1, MAX_COMPONENTS)
        n_bits = _check.integer(given.n_bits, "n_bits", 1, MAX_BITS)
        if n_components * n_bits > MAX_DIMENSION:
            raise ValueError(
                f"`n_components` * `n_bits` must be at most {MAX_DIMENSION}, got {n_components} * {n_bits}."
            )
        active = {
            name: n_components
            if getattr(given, name) is None
            else _check.integer(getattr(given, name), name, 1, n_components, or_else="or None")
            for name in ("max_active", "max_active_users")
        }
        return cls(
            n_components,
            n_bits,
            **active,
            seed=_check.integer(given.seed, "seed", 0),
            sweeps=_check.integer(given.sweeps, "sweeps", 0),
            n_probes=_check.integer(given.n_probes, "n_probes", 0),
            max_rows=_check.integer(given.max_rows, "max_rows", 1),
        )


class Sides(NamedTuple):
    """The vectors that are learned from: items less their mean, users, and what each item counts."""

    items: NDArray[np.float32]
    users: NDArray[np.float32]
    item_weights: NDArray[np.float64]  # they sum to 1
    user_moment: NDArray[np.float64]
    mean: NDArray[np.float32]

    @classmethod
    def of(cls, items: NDArray[np.float32], users: NDArray[np.float32], counts: NDArray[np.float32] | None) -> Sides:
        """Centre the items, and weight them by `counts` or by the root mean square of their scores."""
        for x, name in ((items, "item_vectors"), (users, "user_vectors")):
            size = float(np.sqrt(np.square(x, dtype=np.float64).mean()))
            if size and not 1 / LARGEST <= size <= LARGEST:
                raise ValueError(
                    f"`{name}` must have a root mean square from {1 / LARGEST:g} to {LARGEST:g}, got {size:g}. "
                    "Multiply them by a number: no ranking changes."
                )
        mean = np.average(items, axis=0, weights=counts).astype(np.float32)
        centred = items - mean
        second = moment(users, np.full(len(users), 1 / len(users)))
        sizes = np.sqrt(np.maximum(np.einsum("ij,ij->i", centred @ second, centred), 0)) if counts is None else counts
        total = sizes.sum(dtype=np.float64)
        weights = sizes / total if total else np.full(len(items), 1 / len(items))
        return cls(centred, users, weights, second, mean)

    def sampled(self, n: int, rng: np.random.Generator) -> Sides:
        """Return up to n rows of each side."""
        rows = sample(len(self.items), n, rng)
        weights = self.item_weights[rows]
        total = weights.sum()
        weights = weights / total if total else np.full(len(weights), 1 / len(weights))
        users = self.users[sample(len(self.users), n, rng)]
        return Sides(self.items[rows], users, weights, moment(users, np.full(len(users), 1 / len(users))), self.mean)

    def error(self, users: Coded, items: Coded) -> float:
        """Return the error over all pairs, as a share of the mean square of the scores."""
        x, y = users.vectors(), items.vectors()
        even = np.full(len(x), 1 / len(x))
        scores = float(np.sum(self.user_moment * moment(self.items, self.item_weights)))
        common = float(np.sum(moment(x, even, self.users) * moment(y, self.item_weights, self.items)))
        coded = float(np.sum(moment(x, even) * moment(y, self.item_weights)))
        return (scores - 2 * common + coded) / scores if scores else 0.0

    def frame_of_users(self, items: Coded) -> Frame:
        """Return what users are fitted to: the coded items."""
        y = items.vectors()
        return Frame.of(moment(y, self.item_weights), moment(y, self.item_weights, self.items))

    def frame_of_items(self, users: Coded) -> Frame:
        """Return what items are fitted to: the coded users."""
        x = users.vectors()
        even = np.full(len(x), 1 / len(x))
        return Frame.of(moment(x, even), moment(x, even, self.users))

    def frame_of_queries(self, query_map: NDArray[np.float32]) -> Frame:
        """Return what items are fitted to: real-valued queries, which a linear map makes of users."""
        cross = query_map @ self.user_moment
        return Frame.of(cross @ query_map.T, cross)

    def start_of_users(self, users: Coded) -> NDArray[np.float32]:
        """Return the linear map (d, p) that comes nearest to the codes of the users."""
        even = np.full(len(self.users), 1 / len(self.users))
        return solve(self.user_moment, moment(self.users, even, users.vectors())).T.astype(np.float32)

    def start_of_items(self, items: Coded) -> NDArray[np.float32]:
        """Return the linear map (d, p) that comes nearest to the codes of the items."""
        second = moment(self.items, self.item_weights)
        return solve(second, moment(self.items, self.item_weights, items.vectors())).T.astype(np.float32)


class Probes(NamedTuple):
    """Users that stand for queries: where an item is at the head of their lists, its score is to be kept."""

    vectors: NDArray[np.float32]  # (m, p)
    queries: NDArray[np.float32]  # (m, d)
    thresholds: NDArray[np.float32]  # (m,): from this score on an item is at the head of the list
    size: NDArray[np.float32]  # (1,): what an error there counts

    @classmethod
    def of(cls, sides: Sides, n: int, rng: np.random.Generator) -> Probes | None:
        """Choose probes, and find the heads of their lists; None where no list has one."""
        vectors = np.ascontiguousarray(sides.users[sample(len(sides.users), n, rng)])
        head = max(1, min(LIST, len(sides.items) // 20))
        thresholds, tied = np.empty(len(vectors), dtype=np.float32), np.empty(len(vectors), dtype=bool)

        def work(start: int, stop: int) -> None:
            scores = vectors[start:stop] @ sides.items.T
            thresholds[start:stop] = np.partition(scores, -head, axis=1)[:, -head]
            tied[start:stop] = np.count_nonzero(scores >= thresholds[start:stop, None], axis=1) > 2 * head

        _threads.run_chunks(work, len(vectors), _threads.thread_count(0), least=64, most=64)
        vectors, thresholds = vectors[~tied], thresholds[~tied]  # a list of ties has no head
        if not len(vectors):
            return None
        size = LIST_SHARE * len(sides.items) / (head * len(vectors))
        return cls(vectors, np.empty((len(vectors), 0), np.float32), thresholds, np.array([size], np.float32))

    def mapped(self, query_map: NDArray[np.float32]) -> Probes:
        """Return the probes with the queries that a map makes of them."""
        return self._replace(queries=self.vectors @ query_map.T)

    def pairs(self, items: NDArray[np.float32]) -> Pairs:
        """Return, for each item, the probes whose lists it heads."""
        margin = 1e-5 * np.linalg.norm(self.vectors, axis=1) * np.linalg.norm(items, axis=1).max(initial=0)
        near, least = items @ self.vectors.T, self.thresholds - margin
        heads = near >= least
        counts = np.count_nonzero(heads, axis=1)
        for row in np.flatnonzero(counts > MOST_LISTS):  # larger than all that was learned from
            heads[row, np.argpartition(near[row] - least, -MOST_LISTS)[:-MOST_LISTS]] = False
        rows, columns = np.divmod(np.flatnonzero(heads), len(least))
        scores = np.einsum("ij,ij->i", items[rows], self.vectors[columns])  # which BLAS rounds differently in company
        kept = scores >= self.thresholds[columns]
        rows, columns, scores = rows[kept], columns[kept], scores[kept]
        starts = np.zeros(len(items) + 1, dtype=np.int64)
        np.cumsum(np.bincount(rows, minlength=len(items)), out=starts[1:])
        sizes = (self.size[0] * np.maximum(counts / MOST_LISTS, 1)).astype(np.float32)
        return Pairs(starts, columns.astype(np.int32), scores, sizes, self.queries)


class Learned(NamedTuple):
    """What encodes rows of both sides, by name: all that is kept."""

    users: Frame
    items: Frame
    user_start: NDArray[np.float32]  # (d, p): maps to the first codes of rows, which are then improved
    item_start: NDArray[np.float32]
    query_map: NDArray[np.float32]  # (d, p): users to real-valued queries
    probes: Probes | None
    item_mean: NDArray[np.float32]


def learned(sides: Sides, plan: Plan, verbose: bool) -> tuple[Learned, list[Iteration]]:
    """Learn codes of both sides together, then the items' for real-valued queries; return the errors of sweeps, too."""
    rng = np.random.default_rng(plan.seed)
    trial = sides.sampled(TRIAL, rng)
    errors = [_sweep(trial, *_started(trial, plan, way), plan, TRIAL_SWEEPS)[-1].objective for way in WAYS]
    users, items = _started(sides, plan, WAYS[int(np.argmin(errors))])
    with tqdm(total=plan.sweeps, desc="codes", disable=None if verbose else True) as progress:
        history = _sweep(sides, users, items, plan, plan.sweeps, progress)
    energy = sides.item_weights @ np.square(items.weights, dtype=np.float64)
    order = np.argsort(-energy, kind="stable")  # strong components first: bounds fall early
    users, items = users.reordered(order), items.reordered(order)
    probes = Probes.of(sides, plan.n_probes, rng) if plan.n_probes else None
    for _ in range(POLISHES):
        query_map = sides.frame_of_users(items).best_map()
        queries, seen = sides.frame_of_queries(query_map), probes.mapped(query_map) if probes else None
        for start in range(0, len(items.signs), CHUNK):
            rows = slice(start, start + CHUNK)
            part, vectors = Coded(items.signs[rows], items.weights[rows]), sides.items[rows]
            part.improve(vectors, queries, plan.max_active, seen.pairs(vectors) if seen else None)
    frame = sides.frame_of_users(items)
    users.improve(sides.users, frame, plan.max_active_users)
    query_map = frame.best_map()
    starts = sides.start_of_users(users), sides.start_of_items(items)
    seen = probes.mapped(query_map) if probes else None
    return Learned(frame, sides.frame_of_queries(query_map), *starts, query_map, seen, sides.mean), history


def sample(n: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return up to `most` of n rows, at random and in order."""
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))


def _started(sides: Sides, plan: Plan, way: str) -> tuple[Coded, Coded]:
    """Return first codes of users and items: signs of singular directions, dealt to components and turned."""
    rng = np.random.default_rng(plan.seed)
    shape = plan.n_components, plan.n_bits
    maps = balanced_maps(sides.user_moment, moment(sides.items, sides.item_weights), shape[0] * shape[1])
    rows = (sides.users, sides.items)
    examples = np.concatenate([x[sample(len(x), TRIAL // 2, rng)] @ to for x, to in zip(rows, maps, strict=True)])
    turn = grouped(examples, *shape, rng) if way == "grouped" else dealt(examples, *shape, way == "together", rng)
    active = (plan.max_active_users, plan.max_active)
    users, items = (
        Coded.of(x @ (to @ turn), plan.n_components, most) for x, to, most in zip(rows, maps, active, strict=True)
    )
    return users, items


def _sweep(
    sides: Sides, users: Coded, items: Coded, plan: Plan, sweeps: int, progress: tqdm | None = None
) -> list[Iteration]:
    """Update both sides in turn; return the errors, which never rise."""
    begin = time.perf_counter()
    history = [Iteration(sides.error(users, items), time.perf_counter() - begin)]
    for _ in range(sweeps):
        begin = time.perf_counter()
        items.improve(sides.items, sides.frame_of_items(users), plan.max_active)
        users.improve(sides.users, sides.frame_of_users(items), plan.max_active_users)
        history.append(Iteration(sides.error(users, items), time.perf_counter() - begin))
        if progress is not None:
            progress.update()
        if history[-2].objective - history[-1].objective <= LEAST_GAIN * history[-1].objective:
            break
    return history
