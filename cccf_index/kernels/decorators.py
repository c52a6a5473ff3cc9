"""How kernels are compiled.

Kernels are compiled without reference counts, which would cost more than everything else in them. So they cannot
allocate; what they need is allocated in Python and passed on. `inner` says what else is left out.
"""

import os
import threading
from concurrent.futures import Future
from typing import Any

import numpy as np
from numba import njit
from numba.core.compiler_lock import global_compiler_lock

from cccf_index.kernels.cache import cached

try:
    from cccf_index.kernels.inner import EntryCompiler, InnerCompiler
except (ImportError, AttributeError):  # private parts of numba: without them kernels take longer to compile
    COMPILERS: list[dict[str, Any]] = [{}, {}]
else:
    COMPILERS = [{"pipeline_class": InnerCompiler}, {"pipeline_class": EntryCompiler}]


_compiling: set[threading.Thread] = set()


def _wait_for_compilers() -> None:
    """Before a fork: a child would wait forever for numba's lock, which a thread of its parent holds."""
    for thread in list(_compiling):
        if thread is not threading.current_thread():
            thread.join()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_compilers)


def _compile_apart(dispatcher: Any) -> Any:
    """Let a function be compiled on a thread of its own: numba does not survive Ctrl-C in the middle of it.

    The caller is interrupted at once, and the thread finishes, so the next call finds the function compiled.
    """
    compile_here = getattr(dispatcher, "compile", None)
    if compile_here is None:  # NUMBA_DISABLE_JIT
        return dispatcher

    def compile_there(signature: Any) -> Any:
        outcome: Future[Any] = Future()

        def work() -> None:
            try:
                outcome.set_result(compile_here(signature))
            except BaseException as error:
                outcome.set_exception(error)
            finally:
                _compiling.discard(thread)

        # Only the main thread is interrupted; if it compiles a caller, it holds the lock that the other would wait for.
        if threading.current_thread() is not threading.main_thread() or _holds_compiler_lock():
            return compile_here(signature)
        thread = threading.Thread(target=work, name="cccf-compile")
        _compiling.add(thread)
        try:
            thread.start()
        except RuntimeError:  # at the exit of the interpreter no thread can be had any more
            _compiling.discard(thread)
            return compile_here(signature)
        return outcome.result()

    dispatcher.compile = compile_there
    return dispatcher


def _holds_compiler_lock() -> bool:
    lock = getattr(global_compiler_lock, "_lock", None)
    return lock is None or lock._is_owned()


def _make_entry(**options: Any) -> Any:
    """Return a decorator for functions that Python calls, whose machine code is kept on disk."""
    compile_lazily = njit(**options)
    return lambda function: _compile_apart(cached(compile_lazily(function)))


OPTIONS = {"nogil": True, "_nrt": False}
INNER, ENTRY = ({**OPTIONS, **compiler} for compiler in COMPILERS)
kernel = njit(**INNER)  # called by other kernels
entry = _make_entry(**ENTRY)  # called from Python

# The compiler may reorder sums, so that they use all lanes of a register; the order is the same in every run.
reordering_kernel = njit(fastmath={"reassoc", "contract"}, **INNER)
finite_kernel = njit(fastmath={"reassoc", "contract", "nnan", "nsz"}, **INNER)  # the same for numbers that are not NaN
TRAINING_MATH = {"reassoc", "contract", "nsz", "arcp"}
training_kernel = njit(fastmath=TRAINING_MATH, **INNER)
training_entry = _make_entry(fastmath=TRAINING_MATH, **ENTRY)

ZERO, ONE = np.int64(0), np.int64(1)  # as arguments: for a literal number numba would compile the kernel anew
