"""cccf-index: exact top-k over compositional binary codes, behind a faiss-style API."""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers read it as True; `typing` itself takes longer than all other imports here

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
    from typing import Any

    from cccf_index.catalogue import Catalogue
    from cccf_index.codes import CompositionalCodes
    from cccf_index.factory import clone_index, index_factory
    from cccf_index.index import IndexCCCF
    from cccf_index.io import deserialize_index, read_index, serialize_index, write_index
    from cccf_index.refine import IndexRefineCCCF
    from cccf_index.search.parameters import SearchParametersCCCF
    from cccf_index.warming import warm
else:
    # Names are imported when they are used: numba and faiss take most of a second, and nothing that is imported before
    # the command line starts can be interrupted without a traceback.
    _MODULES = {
        "Catalogue": "catalogue",
        "CompositionalCodes": "codes",
        "IndexCCCF": "index",
        "IndexRefineCCCF": "refine",
        "SearchParametersCCCF": "search.parameters",
        "clone_index": "factory",
        "deserialize_index": "io",
        "index_factory": "factory",
        "read_index": "io",
        "serialize_index": "io",
        "warm": "warming",
        "write_index": "io",
    }

    def __getattr__(name: str) -> Any:
        import importlib.util

        if name in _MODULES:
            value = getattr(importlib.import_module(f"cccf_index.{_MODULES[name]}"), name)
            globals()[name] = value
            return value
        if name.isidentifier() and not name.startswith("__") and importlib.util.find_spec(f"cccf_index.{name}"):
            return importlib.import_module(f"cccf_index.{name}")
        raise AttributeError(f"module 'cccf_index' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
