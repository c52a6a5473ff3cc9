"""cccf-index: exact top-k over compositional binary codes, behind a faiss-style API."""

from cccf_index.codes import CompositionalCodes
from cccf_index.index import IndexCCCF, clone_index, index_factory
from cccf_index.io import deserialize_index, read_index, serialize_index, write_index
from cccf_index.refine import IndexRefineCCCF
from cccf_index.search.parameters import SearchParametersCCCF

__version__ = "0.6.0"

__all__ = [
    "CompositionalCodes",
    "IndexCCCF",
    "IndexRefineCCCF",
    "SearchParametersCCCF",
    "clone_index",
    "deserialize_index",
    "index_factory",
    "read_index",
    "serialize_index",
    "write_index",
]
