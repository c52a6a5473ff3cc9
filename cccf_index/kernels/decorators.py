"""How kernels are compiled.

Search kernels are compiled without reference counts, which would cost more than everything else in them. So they
cannot allocate; what they need is allocated once, by an entry point, and passed on.
"""

from numba import njit

OPTIONS = {"nogil": True, "_nrt": False}
kernel = njit(**OPTIONS)  # called by other kernels
entry = njit(cache=True, **OPTIONS)  # called from Python
allocating_kernel = njit(nogil=True)
allocating_entry = njit(cache=True, nogil=True)

# The compiler may reorder sums, so that they use all lanes of a register; the order is the same in every run.
reordering_kernel = njit(fastmath={"reassoc", "contract"}, **OPTIONS)
TRAINING_MATH = {"reassoc", "contract", "nsz", "arcp"}
training_kernel = njit(nogil=True, fastmath=TRAINING_MATH)
training_entry = njit(cache=True, nogil=True, fastmath=TRAINING_MATH)
