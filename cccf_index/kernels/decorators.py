"""How kernels are compiled.

Kernels are compiled without reference counts, which would cost more than everything else in them. So they cannot
allocate; what they need is allocated in Python and passed on. `inner` says what else is left out.
"""

import numpy as np
from numba import njit
from numba.extending import register_jitable

from cccf_index.kernels.inner import EntryCompiler, InnerCompiler

OPTIONS = {"nogil": True, "_nrt": False}
INNER = {**OPTIONS, "pipeline_class": InnerCompiler}
kernel = njit(**INNER)  # called by other kernels
shared = register_jitable(**INNER)  # called by other kernels and from Python, where it is not compiled
ENTRY = {**OPTIONS, "pipeline_class": EntryCompiler}
entry = njit(cache=True, **ENTRY)  # called from Python

# The compiler may reorder sums, so that they use all lanes of a register; the order is the same in every run.
reordering_kernel = njit(fastmath={"reassoc", "contract"}, **INNER)
TRAINING_MATH = {"reassoc", "contract", "nsz", "arcp"}
training_kernel = njit(fastmath=TRAINING_MATH, **INNER)
training_entry = njit(cache=True, fastmath=TRAINING_MATH, **ENTRY)

ZERO, ONE = np.int64(0), np.int64(1)  # as arguments: for a literal number numba would compile the kernel anew
