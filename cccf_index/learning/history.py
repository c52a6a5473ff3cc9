"""Training history."""

from typing import NamedTuple


class Iteration(NamedTuple):
    """One entry of `history_`: the objective after an iteration, and how many seconds the iteration took."""

    objective: float
    seconds: float
