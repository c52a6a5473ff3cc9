"""How kernels are compiled.

Search kernels are compiled without reference counts, which would cost more than everything else in them. So they
cannot allocate; what they need is allocated once, by an entry point, and passed on.
"""

from typing import Any

from numba import njit

from cccf_index.kernels.cache import cached


def _make_entry(**options: Any) -> Any:
    """Return a decorator for functions that Python calls, whose machine code is kept on disk."""
    compile_lazily = njit(**options)
    return lambda function: cached(compile_lazily(function))


OPTIONS = {"nogil": True, "_nrt": False}
kernel = njit(**OPTIONS)  # called by other kernels
entry = _make_entry(**OPTIONS)  # called from Python
allocating_kernel = njit(nogil=True)
allocating_entry = _make_entry(nogil=True)

# The compiler may reorder sums, so that they use all lanes of a register; the order is the same in every run.
reordering_kernel = njit(fastmath={"reassoc", "contract"}, **OPTIONS)
TRAINING_MATH = {"reassoc", "contract", "nsz", "arcp"}
training_kernel = njit(nogil=True, fastmath=TRAINING_MATH)
training_entry = _make_entry(nogil=True, fastmath=TRAINING_MATH)
