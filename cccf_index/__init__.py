"""cccf-index: exact top-k over compositional binary codes, behind a faiss-style API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cccf_index.codes import CompositionalCodes
from cccf_index.index import IndexCCCF, clone_index, index_factory
from cccf_index.io import deserialize_index, read_index, serialize_index, write_index
from cccf_index.refine import IndexRefineCCCF
from cccf_index.search.parameters import SearchParametersCCCF
from cccf_index.warming import warm

__version__ = "0.6.0"

__all__ = [
    "Catalogue",
    "CompositionalCodes",
    "IndexCCCF",
    "IndexRefineCCCF",
    "SearchParametersCCCF",
    "clone_index",
    "deserialize_index",
    "index_factory",
    "read_index",
    "serialize_index",
    "warm",
    "write_index",
]


if TYPE_CHECKING:
    from cccf_index.catalogue import Catalogue
else:

    def __getattr__(name: str) -> Any:
        if name == "Catalogue":  # imported when it is used, as it comes with the readers of ratings
            from cccf_index.catalogue import Catalogue

            return Catalogue
        raise AttributeError(f"module 'cccf_index' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
