"""What a fit leaves of its course."""

from typing import NamedTuple


class Iteration(NamedTuple):
    """One entry of `history_`: the objective after an iteration, and the seconds that it took."""

    objective: float
    seconds: float
