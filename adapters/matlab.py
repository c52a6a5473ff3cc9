"""Read the codes that the authors' MATLAB code saves."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat

from cccf_index import CompositionalCodes

SIDES = {"users": ("total_modelB", "totalu"), "items": ("total_modelD", "totalv")}


def read_mat(path: str | os.PathLike[str]) -> tuple[CompositionalCodes, CompositionalCodes]:
    """Read the codes of users and items from a MATLAB or Octave file saved with ``save('-v7', path, ...)``.

    The variables are those of the code published with the paper. `total_modelB` and `total_modelD` are cells of G sign
    matrices, r x m and r x n. `totalu` and `totalv` are weights, m x G and n x G. The inner product of two expanded
    vectors predicts the rating, scaled to between -r / G and r / G.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    users, items : CompositionalCodes
        Codes of m users and n items, in the order of the file.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from scipy.io import savemat
    >>> from cccf_index import IndexCCCF
    >>> from cccf_index.adapters.matlab import read_mat
    >>> rng = np.random.default_rng(0)
    >>> cells = {name: np.empty((1, 8), dtype=object) for name in ("total_modelB", "total_modelD")}
    >>> for name, n in (("total_modelB", 50), ("total_modelD", 80)):
    ...     for k in range(8):
    ...         cells[name][0, k] = rng.choice([-1.0, 1.0], (16, n))
    >>> path = os.path.join(tempfile.mkdtemp(), "model.mat")
    >>> savemat(path, {**cells, "totalu": rng.random((50, 8)), "totalv": rng.random((80, 8))})
    >>> users, items = read_mat(path)
    >>> index = IndexCCCF(n_components=8, n_bits=16)
    >>> index.add(items)
    >>> index.search(users, 10)[1].shape
    (50, 10)
    """
    name = os.fspath(path)
    wanted = [variable for pair in SIDES.values() for variable in pair]
    with open(name, "rb") as source:
        try:
            file = loadmat(source, variable_names=wanted)
        except NotImplementedError as error:
            raise ValueError(
                f"{name} is in MATLAB's format 7.3, which cannot be read. Save it with `save('-v7', ...)`."
            ) from error
        except Exception as error:  # loadmat lets any error of its parser through
            raise ValueError(f"{name} is not a MATLAB file, or is damaged: {error}") from error
    missing = [variable for variable in wanted if variable not in file]
    if missing:
        raise ValueError(f"{name} must hold {', '.join(wanted)}; {', '.join(missing)} is missing.")
    users, items = (_make_codes(file, *pair, name) for pair in SIDES.values())
    if (users.n_components, users.n_bits) != (items.n_components, items.n_bits):
        raise ValueError(f"{name}: the codes of users and items must have the same components and bits.")
    return users, items


def _make_codes(file: dict[str, Any], signs: str, weights: str, source: str) -> CompositionalCodes:
    """Return codes from a cell of sign matrices (r, n) and weights (n, G)."""
    cell, sizes = file[signs], _to_dense(file[weights])
    if cell.dtype != object or not cell.size:
        raise ValueError(f"{source}: `{signs}` must be a cell of sign matrices, got an array of {cell.dtype}.")
    parts = [_to_dense(part) for part in cell.ravel()]
    if len({part.shape for part in parts}) > 1 or parts[0].ndim != 2:
        raise ValueError(
            f"{source}: the matrices of `{signs}` must all have the same shape, got {[p.shape for p in parts]}."
        )
    wanted = (parts[0].shape[1], len(parts))
    if sizes.shape != wanted:
        raise ValueError(f"{source}: `{weights}` must be of shape {wanted} to match `{signs}`, got {sizes.shape}.")
    try:
        return CompositionalCodes.from_signs(np.stack(parts).transpose(2, 0, 1), sizes)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{source}: `{signs}` and `{weights}` are not valid codes: {error}") from error


def _to_dense(array: Any) -> NDArray[Any]:
    return np.asarray(array.toarray() if hasattr(array, "toarray") else array)
