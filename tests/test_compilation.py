"""How kernels are compiled: once, in their entry points, and in the ordinary way where numba's private parts differ."""

import os
import subprocess
import sys

import numpy as np
import pytest
from numba import njit

from cccf_index.kernels.decorators import ENTRY, ONE, ZERO, kernel
from cccf_index.kernels.memory import address_of, read, view_row, write

TIMEOUT = 120
SEARCH = """
import sys
if {blocked}:
    sys.modules["cccf_index.kernels.inner"] = None
import numpy as np
import cccf_index as ci
rng = np.random.default_rng(0)
codes = ci.CompositionalCodes.from_signs(rng.random((500, 3, 7)) < 0.5, rng.random((500, 3)))
index = ci.IndexCCCF(3, 7)
index.add(codes)
print(index.search(codes[:5], 4)[1].tolist())
"""


def run_python(code, **variables):
    """Run code in another process; return what it prints."""
    environment = {**os.environ, **variables}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@kernel
def add_one(x):
    return x + 1


@kernel
def add_two(x):
    return add_one(add_one(x))


@kernel
def add_three(x):
    return add_two(add_one(x))


@njit(**ENTRY)
def call_deeply(x):
    return add_three(x) + add_one(x)


@njit(**ENTRY)
def call_again(x):
    return add_two(x)


def test_entry_points_share_inner_kernels():
    assert call_deeply(1) == 4 + 2
    assert call_again(1) == 3
    assert call_deeply(0.5) == 3.5 + 1.5


def test_an_inner_kernel_leaves_no_symbol_in_the_machine_code_of_its_entry_points():
    call_deeply(1)
    library = next(iter(call_deeply.overloads.values())).library
    names = [function.name for function in library.get_defined_functions()]
    assert any("call_deeply" in name for name in names)
    assert not any("add_" in name for name in names)


def test_an_inner_kernel_cannot_be_called_from_python():
    with pytest.raises((TypeError, IndexError)):
        add_two(1)


def test_a_constant_of_numpy_does_not_compile_a_kernel_anew():
    @kernel
    def add(x, y):
        return x + y

    @njit(**ENTRY)
    def call(x):
        return add(x, ONE) + add(x, ZERO) + add(x, x)

    assert call(5) == 6 + 5 + 10
    assert len(add.signatures) == 1


def test_memory_is_read_and_written_by_address():
    @njit(**ENTRY)
    def change(array):
        address = address_of(array)
        row = view_row(address, ONE, 3, np.float32)
        write(address, 5, np.float32(9))
        return row[0] + read(address, 4, np.float32), row.size, address_of(array[:0])

    array = np.arange(6, dtype=np.float32)
    assert change(array) == (7.0, 3, 0)
    assert array.tolist() == [0, 1, 2, 3, 4, 9]


@pytest.mark.slow
def test_a_search_is_the_same_without_the_private_parts_of_numba(tmp_path):
    results = []
    for blocked in (False, True):
        results.append(run_python(SEARCH.format(blocked=blocked), CCCF_CACHE_DIR=str(tmp_path / str(blocked))))
    assert results[0] == results[1]


def test_a_kernel_can_be_called_by_a_function_that_is_compiled_itself():
    """numba holds a lock then; a thread that compiles the kernel would wait for it forever."""
    code = """
import numpy as np
from numba import njit
from cccf_index.kernels.heaps import fill_results
@njit
def call(ranks, ids, divisors, shifts, D, I):
    fill_results(ranks, ids, False, divisors, shifts, D, I)
D, I = np.empty((1, 2), np.float32), np.empty((1, 2), np.int64)
call(np.array([[1, 2]]), np.array([[5, 6]]), np.ones(1), np.zeros(1, np.float32), D, I)
print(I.tolist())
"""
    assert run_python(code) == "[[6, 5]]\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_process_forked_while_a_kernel_is_compiled_can_compile(tmp_path):
    code = """
import os, threading, time
import numpy as np
from cccf_index.kernels.heaps import fill_results, make_heaps
def call():
    ranks, ids = make_heaps(1, 2)
    D, I = np.empty((1, 2), np.float32), np.empty((1, 2), np.int64)
    fill_results(ranks, ids, False, np.ones(1), np.zeros(1, np.float32), D, I)
from cccf_index.kernels import decorators
class Interrupted(Exception): pass
decorators.Future.result = lambda self: (_ for _ in ()).throw(Interrupted)  # the caller goes on at once
try:
    call()
except Interrupted:
    pass
child = os.fork()
if child == 0:
    call()
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""
    assert run_python(code, CCCF_CACHE_DIR=str(tmp_path)) == "0\n"
