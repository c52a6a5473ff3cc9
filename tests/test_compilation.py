"""How kernels are compiled: once, in their entry points, and in the ordinary way where numba's private parts differ."""

import os
import subprocess
import sys

import numpy as np
import pytest
from numba import njit

from cccf_index.kernels.decorators import ENTRY, ONE, ZERO, kernel
from cccf_index.kernels.memory import address_of, read, view_row, write

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
        command = [sys.executable, "-c", SEARCH.format(blocked=blocked)]
        environment = {**os.environ, "CCCF_CACHE_DIR": str(tmp_path / str(blocked))}
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        assert done.returncode == 0, done.stderr
        results.append(done.stdout)
    assert results[0] == results[1]
