"""Convert indexes and codes to faiss, and binary codes from faiss."""

from __future__ import annotations

import os
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cccf_index import CompositionalCodes, IndexCCCF, _check
from cccf_index.codes import MAX_COMPONENTS, unpack


def to_faiss(source: IndexCCCF | CompositionalCodes) -> Any:
    """Return a `faiss.IndexFlatIP` of the expanded vectors; real-valued queries find the same items in it.

    An index of embeddings gives decoded vectors of the embeddings' dimension. Items with a bias get one more dimension:
    append a 1 to the queries. Ids other than 0, 1, ... are kept in a `faiss.IndexIDMap2`.

    Parameters
    ----------
    source : IndexCCCF or CompositionalCodes

    Examples
    --------
    >>> import numpy as np
    >>> import cccf_index as ci
    >>> from cccf_index.adapters.faiss import to_faiss
    >>> rng = np.random.default_rng(0)
    >>> index = ci.IndexCCCF(n_components=4, n_bits=16)
    >>> index.add(ci.CompositionalCodes.from_signs(rng.random((100, 4, 16)) < 0.5, rng.random((100, 4))))
    >>> flat = to_faiss(index)
    >>> x = rng.standard_normal((5, 64)).astype("float32")
    >>> bool((flat.search(x, 3)[1] == index.search(x, 3)[1]).all())
    True
    """
    _check_source(source)
    if isinstance(source, CompositionalCodes):
        vectors, ids = source.to_vectors(), np.arange(len(source))
    else:
        state, ids, rows = _read_items(source)
        vectors = source._reconstruct(state, ids, None)
        if rows is not None and rows.bias is not None:
            vectors = np.hstack([vectors, (rows.bias / state.divisor).astype(np.float32)[:, None]])
    flat = faiss.IndexFlatIP(vectors.shape[1])
    return _fill_index(flat, vectors, ids, faiss.IndexIDMap2)


def to_faiss_binary(source: IndexCCCF | CompositionalCodes) -> list[Any]:
    """Return one `faiss.IndexBinaryFlat` per component, with the codes of all items active in that component.

    Bits are padded with zeros to whole bytes, which does not change Hamming distances. If some items are not active in
    the component, or ids are not 0, 1, ..., the index is wrapped in a `faiss.IndexBinaryIDMap2`.

    Examples
    --------
    >>> import numpy as np
    >>> import cccf_index as ci
    >>> from cccf_index.adapters.faiss import to_faiss_binary
    >>> codes = ci.CompositionalCodes.from_signs(np.random.default_rng(0).random((100, 4, 16)) < 0.5)
    >>> shards = to_faiss_binary(codes)
    >>> len(shards), shards[0].d, shards[0].ntotal
    (4, 16, 100)
    """
    _check_source(source)
    n_bytes = -(-source.n_bits // 8)
    if isinstance(source, CompositionalCodes):
        words, weights, ids = source.bits, source.weights, np.arange(len(source))
    else:
        _, ids, rows = _read_items(source)
        if rows is None:
            return [faiss.IndexBinaryFlat(8 * n_bytes) for _ in range(source.n_components)]
        words, weights = rows.words, rows.weights
    octets = np.ascontiguousarray(words).view(np.uint8)[:, :, :n_bytes]
    shards = []
    for component in range(source.n_components):
        active = weights[:, component] > 0
        flat = faiss.IndexBinaryFlat(8 * n_bytes)
        shards.append(_fill_index(flat, octets[active, component], ids[active], faiss.IndexBinaryIDMap2))
    return shards


def from_faiss_binary(
    source: Any, n_components: int = 1, n_bits: int | None = None
) -> tuple[CompositionalCodes, NDArray[np.int64]]:
    """Return the codes of a binary index of faiss, with weights of 1 like those of DCF, and their ids.

    Parameters
    ----------
    source : faiss.IndexBinaryFlat, faiss.IndexBinaryIDMap, or str or path-like
        The index, or the path of its file.
    n_components : int
        Cut each code into this many components of equal length. A component holds at most 512 bits.
    n_bits : int, optional
        Bits of a component, if the last bits of each are padding.

    Examples
    --------
    >>> import faiss
    >>> import numpy as np
    >>> from cccf_index import IndexCCCF
    >>> from cccf_index.adapters.faiss import from_faiss_binary
    >>> binary = faiss.IndexBinaryFlat(64)
    >>> binary.add(np.random.default_rng(0).integers(0, 256, (100, 8), dtype=np.uint8))
    >>> codes, ids = from_faiss_binary(binary)
    >>> index = IndexCCCF(n_components=1, n_bits=64, scale=1)
    >>> index.add_with_ids(codes, ids)
    """
    index = _read_file(source) if isinstance(source, (str, os.PathLike)) else source
    ids = None
    if isinstance(index, (faiss.IndexBinaryIDMap, faiss.IndexBinaryIDMap2)):
        ids = faiss.vector_to_array(index.id_map)
        index = faiss.downcast_IndexBinary(index.index)
    if not isinstance(index, faiss.IndexBinaryFlat):
        raise TypeError(
            f"`source` must be an IndexBinaryFlat or an IndexBinaryIDMap of it, got {type(index).__name__}."
        )
    n_components = _check.integer(n_components, "n_components", 1, MAX_COMPONENTS)
    if index.d % (8 * n_components):
        raise ValueError(f"`n_components` must divide {index.d} bits into whole bytes, got {n_components}.")
    length = index.d // n_components
    n_bits = length if n_bits is None else _check.integer(n_bits, "n_bits", 1, length)
    octets = faiss.vector_to_array(index.xb).reshape(index.ntotal, n_components, length // 8)
    signs = unpack(octets, length).view(bool)
    if signs[:, :, n_bits:].any():
        raise ValueError(f"`n_bits` must be larger, got {n_bits}: some bits above are set.")
    codes = CompositionalCodes.from_signs(signs[:, :, :n_bits])
    return codes, np.arange(index.ntotal) if ids is None else ids


def _read_file(path: str | os.PathLike[str]) -> Any:
    name = os.fspath(path)
    if not os.path.isfile(name):
        raise FileNotFoundError(f"There is no file {name}.")
    try:
        return faiss.read_index_binary(name)
    except RuntimeError as error:
        raise ValueError(
            f"{name} is not a binary index of faiss, or is damaged: {str(error).splitlines()[0]}"
        ) from error


def _check_source(source: Any) -> None:
    if not isinstance(source, (IndexCCCF, CompositionalCodes)):
        raise TypeError(f"`source` must be an IndexCCCF or CompositionalCodes, got {type(source).__name__}.")


def _read_items(index: Any) -> tuple[Any, NDArray[np.int64], Any]:
    """Return the state of an index, its ids, and its items in the order of the ids; None without items."""
    state = index._snapshot()
    ids = state.ids()
    return state, ids, state.find_items(ids) if len(ids) else None


def _fill_index(flat: Any, vectors: NDArray[Any], ids: NDArray[np.int64], with_ids: Any) -> Any:
    """Return an index with the vectors added, wrapped by `with_ids` unless ids are 0, 1, ..."""
    if np.array_equal(ids, np.arange(len(ids))):
        flat.add(np.ascontiguousarray(vectors))
        return flat
    named = with_ids(flat)
    named.add_with_ids(np.ascontiguousarray(vectors), ids)
    return named
