"""The alternation: sweeps over users and items in turn, then items refitted to real-valued queries."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from cccf_index.learning.allocation import Allocation
from cccf_index.learning.history import Iteration
from cccf_index.learning.offers import Offers
from cccf_index.learning.plan import LearningPlan, binary_size
from cccf_index.learning.probes import CHUNK, Probes
from cccf_index.learning.rows import CodedRows, Frame
from cccf_index.learning.sides import Sides
from cccf_index.learning.start import WAYS, compute_balanced_maps, start_codes

TRIAL_ROWS = 8192  # rows of each side on which the ways to start are compared
TRIAL_SWEEPS = 6
LEAST_GAIN = 1e-3  # of the error, for another sweep
REFITS = 2  # times that items are refitted to real-valued queries


class Encoder(NamedTuple):
    """All that is needed to encode users and items, and to transform users; saved by field name."""

    users: Frame
    items: Frame
    user_start: NDArray[np.float32]  # (d, p): maps users to their first codes, which are then improved
    item_start: NDArray[np.float32]  # (d, p)
    query_map: NDArray[np.float32]  # (d, p): maps users to real-valued queries
    probes: Probes | None
    item_mean: NDArray[np.float32]  # (p,)
    allocation: Allocation | None = None  # of codes of different lengths

    def join_maps(self) -> NDArray[np.float32]:
        """Return the map (d, p) of users to real-valued queries, that of the dense component last."""
        if self.allocation is None:
            return self.query_map
        return np.concatenate([self.query_map, self.allocation.space.queries])


def learn_codes(
    sides: Sides, examples: NDArray[np.float32], plan: LearningPlan, verbose: bool
) -> tuple[Encoder, list[Iteration], Offers | None, float]:
    """Learn codes of both sides together, then refit the items to real-valued queries.

    With a budget, what it was allocated from is returned as well, and the share of the places in lists that is lost;
    examples: items (n, p), any of all. The history holds the error of the coded pairs after each sweep, before the
    items are refitted.
    """
    rng = np.random.default_rng(plan.seed)
    trial = sides.sample(TRIAL_ROWS, rng)
    d = plan.n_components * plan.n_bits
    maps = compute_balanced_maps(trial.user_moment, trial.item_moment, d)
    errors = [_sweep(trial, *start_codes(trial, maps, plan, way), plan, TRIAL_SWEEPS)[-1].objective for way in WAYS]
    maps = compute_balanced_maps(sides.user_moment, sides.item_moment, d)
    users, items = start_codes(sides, maps, plan, WAYS[int(np.argmin(errors))])
    with tqdm(total=plan.sweeps, desc="codes", disable=None if verbose else True) as progress:
        history = _sweep(sides, users, items, plan, plan.sweeps, progress)
    energy = sides.item_weights @ np.square(items.weights, dtype=np.float64)
    order = np.argsort(-energy, kind="stable")  # strong components first: the bounds of a search fall early
    users, items = users.reorder(order), items.reorder(order)
    probes = Probes.choose(sides, plan.n_probes, rng) if plan.n_probes else None
    for _ in range(REFITS):
        _refit_items(sides, items, probes, plan)
    moments = sides.measure_items(items)
    frame = moments.build_frame()
    users.improve(sides.users, frame, plan.max_active_users)
    query_map = frame.solve_map()
    starts = sides.fit_user_start(sides.measure_users(users)), sides.fit_item_start(moments)
    seen = probes.map_queries(query_map) if probes else None
    encoder = Encoder(frame, sides.build_query_frame(query_map), *starts, query_map, seen, sides.mean)
    if plan.bytes_per_item is None:
        return encoder, history, None, 0.0
    binary = binary_size(plan.max_active, plan.n_bits), items.expand() @ query_map
    offers = Offers.measure(sides, examples - sides.mean, plan.k, binary, rng)
    allocation, lost = offers.allocate(plan.bytes_per_item)
    return encoder._replace(allocation=allocation), history, offers, lost


def _refit_items(sides: Sides, items: CodedRows, probes: Probes | None, plan: LearningPlan) -> None:
    """Fit the items' codes, in place, to the best real-valued queries for them, and to the probes' lists."""
    query_map = sides.measure_items(items).build_frame().solve_map()
    queries, seen = sides.build_query_frame(query_map), probes.map_queries(query_map).make_table() if probes else None
    for start in range(0, len(items.signs), CHUNK):
        rows = slice(start, start + CHUNK)
        vectors = sides.items[rows]
        items.take(rows).improve(vectors, queries, plan.max_active, seen.find_pairs(vectors) if seen else None)


def _sweep(
    sides: Sides, users: CodedRows, items: CodedRows, plan: LearningPlan, sweeps: int, progress: tqdm | None = None
) -> list[Iteration]:
    """Update items and users in turn, in place; return the errors at the start and after each sweep.

    The error never rises. Sweeps end early when it hardly falls.
    """
    begin = time.perf_counter()
    x, y = sides.measure_users(users), sides.measure_items(items)
    history = [Iteration(sides.compute_error(x, y), time.perf_counter() - begin)]
    for _ in range(sweeps):
        begin = time.perf_counter()
        items.improve(sides.items, x.build_frame(), plan.max_active)
        y = sides.measure_items(items)
        users.improve(sides.users, y.build_frame(), plan.max_active_users)
        x = sides.measure_users(users)
        history.append(Iteration(sides.compute_error(x, y), time.perf_counter() - begin))
        if progress is not None:
            progress.update()
        if history[-2].objective - history[-1].objective <= LEAST_GAIN * history[-1].objective:
            break
    return history
