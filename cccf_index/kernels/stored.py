"""What a segment stores of its rows: biases, and weights in the smallest type that holds them."""

import numpy as np

from cccf_index.kernels.decorators import kernel
from cccf_index.kernels.memory import read


@kernel
def copy_converted(address, first, n, kind, out):
    """Set the first n of `out` to the values of a kind from place `first` on."""
    number = out.dtype.type
    for i in range(n):
        out[i] = number(read(address, first + i, kind))


@kernel
def bias_scale(call, q):
    """Return what items' biases are multiplied by for query q."""
    return np.int64(1) if call.bias_scales == 0 else read(call.bias_scales, q, np.int64)


@kernel
def read_bias(segment, row):
    """Return the bias of a row as float64."""
    if segment.float_weights:
        return np.float64(read(segment.bias, row, np.float32))
    return np.float64(read(segment.bias, row, np.int32))


@kernel
def count_components(segment, call):
    """Return how many binary components count: none if only cells are looked at whose items have none."""
    return segment.n_components if call.first_cell < segment.binary_stop else 0


@kernel
def has_component(segment, group, k):
    """Whether a group has component k."""
    return read(segment.slots, group * segment.n_components + k, np.int64) >= 0


@kernel
def has_dense(segment, group):
    """Whether the rows of a group have a dense component."""
    return read(segment.dense_row_sizes, group, np.int64) > 0


@kernel
def find_slot(segment, group, k, row):
    """Return where a row of a group that has component k stands in its shard."""
    slot = read(segment.slots, group * segment.n_components + k, np.int64)
    return slot + row - read(segment.starts, group, np.int64)


@kernel
def read_weight(address, place, size, is_float, number):
    """Return a weight as `number`; size: its bytes."""
    if size == 1:
        return number(read(address, place, np.uint8))
    if size == 2:
        return number(read(address, place, np.uint16))
    return number(read(address, place, np.float32)) if is_float else number(read(address, place, np.uint32))


@kernel
def read_run(address, first, n, size, is_float, out):
    """Set the first n of `out` to the weights at an address from place `first` on; size: bytes of one."""
    if size == 1:
        copy_converted(address, first, n, np.uint8, out)
    elif size == 2:
        copy_converted(address, first, n, np.uint16, out)
    elif is_float:
        copy_converted(address, first, n, np.float32, out)
    else:
        copy_converted(address, first, n, np.uint32, out)


@kernel
def read_weights(segment, k, slot, n, out):
    """Set the first n of `out` to the weights from a slot of component k on."""
    first = read(segment.bases, k, np.int64) + slot
    read_run(segment.weights, first, n, segment.weight_size, segment.float_weights, out)
