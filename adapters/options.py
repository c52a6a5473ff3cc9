"""The options that the adapters of vector models share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from cccf_index import _check
from cccf_index.quantizer import CompositionalQuantizer

QUERIES = ("coded", "real")
COSINE_FACTOR = 4  # vectors of equal length are harder to tell apart by their codes: fetch more candidates


@dataclass(frozen=True)
class CodeOptions:
    """How embeddings become codes, and how the codes are searched.

    The classes of the adapters take these options as keywords. Invalid values raise a TypeError or a ValueError at
    once, before anything is trained.

    Parameters
    ----------
    n_components : int
        G, the number of components of a code.
    n_bits : int
        r, the bits of one component.
    k_factor : float or None
        Codes find ``k_factor * k`` candidates, the original vectors re-rank them and give the scores. Searches by
        cosine fetch four times as many candidates. None ranks by codes alone: fastest, and scores are approximate.
    queries : {"coded", "real"}
        Search with codes of the queries, or with real-valued queries: slower, more accurate, and ``4 * G * r``
        bytes per query.
    num_threads : int
        Threads of a search; 0 uses as many as `faiss.omp_set_num_threads` allows, by default all cores.
    params : mapping
        Further parameters of `CompositionalQuantizer`: `max_active`, `seed`, `verbose`, ... The adapters take them as
        keywords of their own.

    Examples
    --------
    >>> from cccf_index.adapters.options import CodeOptions
    >>> CodeOptions(k_factor=3).for_cosines().k_factor
    12
    """

    n_components: int = 8
    n_bits: int = 16
    k_factor: float | None = 2.0
    queries: str = "coded"
    num_threads: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.k_factor is not None:
            _check.number(self.k_factor, "k_factor", 1.0)
        _check.choice(self.queries, "queries", QUERIES)
        _check.integer(self.num_threads, "num_threads", 0)
        CompositionalQuantizer(self.n_components, self.n_bits, **self.params).check()

    @classmethod
    def from_keywords(cls, **keywords: Any) -> CodeOptions:
        """Return the options among `keywords`; the other keywords become `params`."""
        own = {name: keywords.pop(name) for name in OPTION_NAMES if name in keywords}
        return cls(**own, params=keywords)

    @classmethod
    def from_attributes(cls, owner: Any, index: Any = None, **params: Any) -> CodeOptions:
        """Return the options that an adapter holds as attributes of the same names.

        The shape of an existing `index` takes precedence: the attributes may have changed since it was built.
        """
        values = {name: getattr(owner, name) for name in OPTION_NAMES}
        if index is not None:
            values |= {"n_components": index.n_components, "n_bits": index.n_bits}
        return cls(**values, params=params)

    def for_cosines(self) -> CodeOptions:
        """Return the options for vectors of length 1."""
        return self if self.k_factor is None else replace(self, k_factor=COSINE_FACTOR * self.k_factor)


OPTION_NAMES = tuple(each.name for each in fields(CodeOptions) if each.name != "params")
