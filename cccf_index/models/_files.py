"""Models as files: parameters and numbers in the manifest, arrays beside it. Nothing is pickled."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index._json import to_plain
from cccf_index.codes import CompositionalCodes
from cccf_index.learning.history import Iteration
from cccf_index.quantizer import CompositionalQuantizer
from cccf_index.storage import container

KIND = "model"
MODELS: dict[str, type[Any]] = {}  # all model classes by name


def write(path: str | os.PathLike[str], model: Any) -> None:
    """Write the parameters and all fitted attributes of a model."""
    arrays: dict[str, NDArray[Any]] = {}
    meta = _describe_model(model, "", arrays)
    container.write_file(path, KIND, meta, ((name, array, 0) for name, array in arrays.items()))


def read(path: str | os.PathLike[str], kind: type[Any]) -> Any:
    """Read a model of class `kind` or of a subclass."""
    meta, arrays = container.read_file(path, KIND)
    source = os.fspath(path)
    try:
        model = _restore_model(meta, "", arrays)
    except container.BROKEN as error:
        raise container.damage_error(source, error) from error
    if not isinstance(model, kind):
        name = type(model).__name__
        raise ValueError(f"{source} holds a model {name}, not {kind.__name__}. Load it with {name}.load.")
    return model


def _is_model(value: Any) -> bool:
    return hasattr(value, "get_params") and hasattr(value, "fit")


def _is_shared(given: Any, fitted: Any) -> bool:
    """Whether the fitted model shares the factors of the parameter: then they are saved once."""
    if not _is_model(fitted):
        return False
    return not _is_model(given) or getattr(given, "user_factors_", None) is fitted.user_factors_


def _describe_model(model: Any, prefix: str, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the manifest of a model, and add its arrays to `arrays`."""
    meta: dict[str, Any] = {"class": type(model).__name__, "params": {}, "numbers": {}, "codes": {}, "models": {}}
    meta |= {"quantizers": {}, "shared": []}
    values = {**model.get_params(), **{name: value for name, value in vars(model).items() if name.endswith("_")}}
    for name, value in values.items():
        place = prefix + name
        if value is not None and _is_shared(value, values.get(f"{name}_")):
            meta["shared"].append(name)  # saved once, as the fitted one
            continue
        if isinstance(value, CompositionalCodes):
            meta["codes"][name] = value.n_bits
            arrays[f"{place}.bits"], arrays[f"{place}.weights"] = value.bits, value.weights
        elif isinstance(value, np.ndarray):
            arrays[place] = value
        elif isinstance(value, CompositionalQuantizer):
            meta["quantizers"][name] = value._describe()
            arrays |= {f"{place}.{part}": array for part, array in value._collect_arrays().items()}
        elif _is_model(value):
            meta["models"][name] = _describe_model(value, f"{place}.", arrays)
        else:
            part = meta["numbers" if name.endswith("_") else "params"]
            part[name] = to_plain(value)
    return meta


def _restore_model(meta: dict[str, Any], prefix: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """Make a model from what `_describe_model` returned."""
    if meta["class"] not in MODELS:
        raise ValueError(f"there is no model {meta['class']!r}")
    fitted = {name: _restore_model(part, f"{prefix}{name}.", arrays) for name, part in meta["models"].items()}
    for name, part in meta.get("quantizers", {}).items():
        own = f"{prefix}{name}."
        kept = {place.removeprefix(own): array for place, array in arrays.items() if place.startswith(own)}
        fitted[name] = CompositionalQuantizer._restore(part, kept)
    for name, n_bits in meta["codes"].items():
        fitted[name] = CompositionalCodes(arrays[f"{prefix}{name}.bits"], arrays[f"{prefix}{name}.weights"], n_bits)
    for place, array in arrays.items():
        name = place.removeprefix(prefix)
        if place.startswith(prefix) and "." not in name:
            fitted[name] = array.copy()  # writable: numba compiles kernels again for read-only arrays
    shared = {name: fitted[f"{name}_"] for name in meta.get("shared", ())}
    given = {name: part for name, part in fitted.items() if not name.endswith("_")}
    model = MODELS[meta["class"]](**meta["params"], **shared, **given)
    fitted = {name: part for name, part in fitted.items() if name.endswith("_")} | meta["numbers"]
    if not fitted:
        return model  # a parameter: a model that is not fitted
    fitted["history_"] = [Iteration(float(objective), float(seconds)) for objective, seconds in fitted["history_"]]
    vars(model).update(fitted)
    model._verify()
    return model
