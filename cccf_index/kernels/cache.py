"""The cache of compiled kernels: one file for each function, types of arguments and processor.

numba's own cache does not notice a change in a function that a kernel calls, fails on import where no folder can be
written, and lets two processes that compile at once write different kernels to one file. Here the name of a file is a
hash of all that its machine code depends on: every source file in this folder, the versions of Python, numpy, numba and
llvmlite, the function, the types of its arguments, the processor and numba's settings. So no file is ever changed, and
there is no index of files.

A file that is missing, damaged or not trusted (`cache_places`) is compiled anew; one that cannot be written costs time
in the next process, and nothing else. Nothing is written on import.

This is the only place of the package that uses pickle: machine code is code in any format, so what protects the
reader is who may write the file (`cache_places`), and numba describes a compiled function by Python objects.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.resources
import pickle
import sys
import warnings
from typing import Any, NamedTuple

import llvmlite
import numba
import numpy as np
from llvmlite import binding

from cccf_index.kernels.cache_places import (
    SUFFIX,
    Place,
    find_places,
    open_folder,
    read_kernel,
    remove_kernels,
    write_kernel,
)

try:
    from numba.core import config
    from numba.core.caching import _Cache
    from numba.core.compiler import CompileResult
    from numba.core.runtime import rtsys
    from numba.core.serialize import dumps
except ImportError:  # private parts of numba: without them kernels are compiled in every process
    _Cache = None

MAGIC = b"cccf-index kernel 1\n"
# Settings of numba that change machine code. The processor's features are part of `magic_tuple`.
SETTINGS = (
    "OPT",
    "LOOP_VECTORIZE",
    "SLP_VECTORIZE",
    "BOUNDSCHECK",
    "DEBUGINFO_DEFAULT",
    "USING_SVML",
    "DISABLE_INTEL_SVML",
    "LLVM_REFPRUNE_PASS",
    "LLVM_REFPRUNE_FLAGS",
    "NRT_STATS",
)
# Helpers of numba that need nothing but their address; they are there as soon as numba is imported.
HELPERS = {
    "numba_adapt_ndarray",
    "numba_do_raise",
    "numba_gil_ensure",
    "numba_gil_release",
    "numba_runtime_build_excinfo_struct",
    "numba_unpickle",
}


def _hash_sources() -> str | None:
    """Return a hash of every source file of the kernels and of the versions that compile them, or None if unreadable.

    The files are read through the loader of the package, which may be a zip file.
    """
    python = sys.version, sys.implementation.cache_tag, getattr(sys, "abiflags", "")
    versions = *python, np.__version__, numba.__version__, llvmlite.__version__
    digest = hashlib.sha256(repr(versions).encode())
    try:
        folder = importlib.resources.files(__package__)
        files = [file for file in folder.iterdir() if file.name.endswith((".py", ".pyc")) and file.name[0] != "."]
        files.sort(key=lambda file: file.name)
        for file in files:
            content = file.read_bytes()
            digest.update(f"{file.name} {len(content)}\n".encode() + content)
    except (OSError, TypeError, ValueError):
        return None
    return digest.hexdigest()[:16] if files else None


# On import, not when a kernel is first compiled: by then somebody may have edited the files whose code runs here.
STAMP = _hash_sources()


class Counts:
    """What this process did: kernels `loaded` from files, `compiled`, and of these `kept` in a file."""

    loaded = compiled = kept = 0


class Report(NamedTuple):
    """Where kernels are kept."""

    reads: tuple[str, ...]  # folders, in the order in which they are looked through
    writes: str | None  # the folder that new kernels are written to, or None if no place can be written
    problem: str | None  # why not


def describe() -> Report:
    """Return where kernels are read from and written to; makes the folder if it is not there."""
    places = find_places()
    reads = tuple(place.path for place in places)
    if STAMP is None or _Cache is None:
        return Report((), None, "this version of numba allows no cache, or a source file of the kernels cannot be read")
    problems = []
    for place in places:
        try:
            _try_to_write(place)
        except OSError as error:
            problems.append(_describe_refusal(place, error))
        else:
            return Report(reads, place.path, None)
    return Report(reads, None, "; ".join(problems))


def _try_to_write(place: Place) -> None:
    open_folder(place, str(STAMP))
    write_kernel(place, str(STAMP), f"probe{SUFFIX}", b"")
    remove_kernels(place, str(STAMP), f"probe{SUFFIX}")


def _describe_refusal(place: Place, error: OSError) -> str:
    return f"{place.path}: {error.strerror or error}"


def cached(dispatcher: Any) -> Any:
    """Let a function that numba compiles use this cache; as a decorator above numba's own."""
    if _Cache is not None and STAMP is not None and hasattr(dispatcher, "_cache"):  # else numba compiles nothing
        dispatcher._cache = KernelCache(dispatcher.py_func)
    return dispatcher


class KernelCache(_Cache if _Cache is not None else object):  # type: ignore[misc]
    """The cache of one function, in the form that numba's dispatchers ask for."""

    def __init__(self, function: Any) -> None:
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._short_name = f"{function.__name__}-"
        self._enabled = True

    @property
    def cache_path(self) -> str | None:
        """The first place; numba shows it in `stats`."""
        places = find_places()
        return places[0].path if places else None

    def enable(self) -> None:
        """Use the cache."""
        self._enabled = True

    def disable(self) -> None:
        """Neither read nor write."""
        self._enabled = False

    def flush(self) -> None:
        """Remove the kernels of this function."""
        for place in find_places():
            remove_kernels(place, str(STAMP), self._short_name)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return a compiled function for the types of the signature, or None."""
        if not self._enabled:
            return None
        with contextlib.suppress(Exception):  # whatever is wrong with it, numba compiles it anew
            key = self._make_key(sig, target_context.codegen())
            for place in find_places():
                payload = _check_content(read_kernel(place, str(STAMP), self._make_file_name(key)), key)
                if payload is not None:
                    with contextlib.suppress(Exception):
                        symbols, reduced = pickle.loads(payload)
                        _prepare_symbols(symbols, target_context)
                        found = CompileResult._rebuild(target_context, *reduced)
                        Counts.loaded += 1
                        return found
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write a compiled function to the first place that takes it; warn once if none does."""
        Counts.compiled += 1
        if not self._enabled:
            return
        try:
            if any(not lifted.can_cache for lifted in data.lifted) or data.library.has_dynamic_globals:
                return
            key, places = self._make_key(sig, data.codegen), find_places()
            payload = dumps((_list_symbols(data.library), data._reduce()))
        except Exception:  # whatever cannot be written down is compiled again in the next process
            return
        content = MAGIC + key + hashlib.sha256(payload).digest() + payload
        problems = []
        for place in places:
            try:
                write_kernel(place, str(STAMP), self._make_file_name(key), content)
            except OSError as error:
                problems.append(_describe_refusal(place, error))
            else:
                Counts.kept += 1
                return
        _warn_once(problems)

    def _make_key(self, sig: Any, codegen: Any) -> bytes:
        settings = [getattr(config, name, None) for name in SETTINGS]
        return hashlib.sha256(repr((self._name, str(sig), codegen.magic_tuple(), settings)).encode()).digest()

    def _make_file_name(self, key: bytes) -> str:
        return f"{self._short_name}{key.hex()[:32]}{SUFFIX}"


def _check_content(content: bytes | None, key: bytes) -> bytes | None:
    """Return the payload of a file, or None if it is another kernel's or damaged."""
    head = MAGIC + key
    if content is None or not content.startswith(head):
        return None
    payload = content[len(head) + 32 :]
    return payload if hashlib.sha256(payload).digest() == content[len(head) : len(head) + 32] else None


def _list_symbols(library: Any) -> list[str] | None:
    """Return the names that machine code refers to and does not define, or None if they cannot be found out."""
    try:
        module = library._final_module
        values = [*module.functions, *module.global_variables]
        return sorted(value.name for value in values if value.is_declaration and not value.name.startswith("llvm."))
    except AttributeError:
        return None


def _prepare_symbols(symbols: list[str] | None, target_context: Any) -> None:
    """Make sure that every symbol has an address, as an unknown one ends the process.

    numba's own cache calls `refresh`, which imports all that numba can compile: 0.2 to 0.3 s, most of the first search
    of a process. Cached machine code needs none of that, only addresses. Those of Python, of the C library and of
    numba's helpers are known once numba is imported, and those of its memory manager (NRT) after `rtsys.initialize`.
    """
    if symbols is not None:
        if any(name.startswith("NRT_") for name in symbols):
            rtsys.initialize(target_context)
        own = (name for name in symbols if name.startswith("numba_"))
        if HELPERS.issuperset(own) and all(map(binding.address_of_symbol, symbols)):
            return
    target_context.refresh()


_warned = False


def _warn_once(problems: list[str]) -> None:
    global _warned
    if _warned:
        return
    _warned = True
    warnings.warn(
        "Compiled kernels cannot be kept, so every process compiles them anew, which takes seconds to a minute. "
        f"{'; '.join(problems)}. Set CCCF_CACHE_DIR to a folder of yours that can be written, or fill the cache with "
        "`cccf warm` before the folders become read-only.",
        RuntimeWarning,
        stacklevel=2,
    )
