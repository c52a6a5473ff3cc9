"""The checked parameters of a quantizer."""

from __future__ import annotations

from typing import Any, NamedTuple

from cccf_index import _check
from cccf_index.codes import MAX_BITS, MAX_COMPONENTS, code_size

ID_BYTES = 4
SHORT = 4  # under a budget of bytes, items of little worth have one of so many components
MAX_DIMENSION = 4096  # of vectors and of codes: a Gram matrix has its square many entries


class LearningPlan(NamedTuple):
    """The parameters of a quantizer, checked; saved by field name."""

    n_components: int
    n_bits: int
    max_active: int
    max_active_users: int
    seed: int
    sweeps: int
    n_probes: int
    max_rows: int
    bytes_per_item: float | None = None
    k: int = 100

    @classmethod
    def from_parameters(cls, given: Any) -> LearningPlan:
        """Check the parameters of a quantizer, which are attributes of `given`."""
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
        budget = given.bytes_per_item
        if budget is not None:
            budget = _check.number(budget, "bytes_per_item", 1.0)
            if given.max_active is None:
                active["max_active"] = max(1, n_components // SHORT)
            size = binary_size(active["max_active"], n_bits)
            if given.max_active is None and budget < size:
                active["max_active"] = max(1, int((budget - ID_BYTES) // (code_size(n_bits) + 1)))
                size = binary_size(active["max_active"], n_bits)
            if budget < size:
                raise ValueError(
                    f"`bytes_per_item` must be at least {size}, what {active['max_active']} of {n_components} "
                    f"components of {n_bits} bits take, got {budget:g}. Use fewer bits, or None for codes of the same "
                    "length."
                )
        return cls(
            n_components,
            n_bits,
            **active,
            seed=_check.integer(given.seed, "seed", 0),
            sweeps=_check.integer(given.sweeps, "sweeps", 0),
            n_probes=_check.integer(given.n_probes, "n_probes", 0),
            max_rows=_check.integer(given.max_rows, "max_rows", 1),
            bytes_per_item=budget,
            k=_check.integer(given.k, "k", 1),
        )


def binary_size(n_active: int, n_bits: int) -> int:
    """Return the bytes of an item that has so many binary components, with its id."""
    return n_active * (code_size(n_bits) + 1) + ID_BYTES  # a weight takes one byte
