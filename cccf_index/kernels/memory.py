"""Access to bits and memory that numba lacks: one LLVM instruction or a few, each."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array
from numba.np.numpy_support import from_dtype

from cccf_index.kernels.calls import CALL_RECORD, QUERY_RECORD
from cccf_index.kernels.decorators import kernel
from cccf_index.kernels.layout import DENSE_FIELDS, PLAIN_RECORD, SEGMENT_RECORD
from cccf_index.kernels.levels import RUN_RECORD

QUERY_SIZE = QUERY_RECORD.itemsize


@intrinsic
def popcount(context, word):
    """Return the number of one bits: LLVM's ctpop, which vectorises."""

    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return word(word), generate


@intrinsic
def lowest_bit(context, word):
    """Return the place of the lowest one bit of a word that is not 0."""

    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return word(word), generate


@intrinsic
def leading_zeros(context, word):
    """Return the number of zero bits above the highest one bit."""

    def generate(context, builder, signature, arguments):
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return word(word), generate


@intrinsic
def half_to_float(context, bits):
    """Return as float32 the float16 whose bits a uint16 holds."""

    def generate(context, builder, signature, arguments):
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(bits), generate


@intrinsic
def float_to_bits(context, value):
    """Return the bits of a float32 as int32."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@intrinsic
def bits_to_float(context, bits):
    """Return the float32 whose bits an int32 holds."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def prefetch(context, address):
    """Ask for the cache line at an address, which will be read soon; any address may be given."""

    def generate(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], kind)
        builder.call(function, [pointer, word(0), word(3), word(1)])  # to read, into all caches, data
        return context.get_dummy_value()

    return types.void(types.int64), generate


def make_viewer(dtype, doc):
    """Return an intrinsic that views the record at an address."""
    record = from_dtype(dtype)

    def view(context, address):
        def generate(context, builder, signature, arguments):
            return builder.inttoptr(arguments[0], context.get_value_type(record))

        return record(types.int64), generate

    view.__doc__ = doc
    return intrinsic(view)


view_segment = make_viewer(SEGMENT_RECORD, "Return the record of a segment at an address; see `layout.make_record`.")
view_call = make_viewer(CALL_RECORD, "Return the record of a call at an address; see `calls`.")
view_query = make_viewer(QUERY_RECORD, "Return the record of a query of the tile at an address; see `calls`.")
view_run = make_viewer(RUN_RECORD, "Return the record of a run of dimensions at an address; see `levels`.")


@intrinsic
def view_part(context, address, dense):
    """Return the record of a segment at an address, without its dense component if `dense` is None."""
    record = from_dtype(PLAIN_RECORD if isinstance(dense, types.NoneType) else SEGMENT_RECORD)

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(record))

    return record(types.int64, dense), generate


def is_plain(segment):
    """Whether a segment, by its type, has no dense component: see `view_part`."""
    return not set(DENSE_FIELDS) & set(segment.fields)


@kernel
def power_of_two(exponent):
    """Return 2^exponent, for small exponents."""
    return np.float64(bits_to_float(np.int32((127 + exponent) << 23)))


@kernel
def find_query(call, i):
    """Return the record of the query at place i of the tile."""
    return view_query(call.states + i * QUERY_SIZE)


@intrinsic
def address_of(context, array):
    """Return the address of an array's values; 0 if it is empty."""

    def generate(context, builder, signature, arguments):
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.ptrtoint(view.data, ir.IntType(64))
        is_empty = builder.icmp_signed("==", view.nitems, ir.Constant(ir.IntType(64), 0))
        return builder.select(is_empty, ir.Constant(ir.IntType(64), 0), address)

    return types.int64(array), generate


@intrinsic
def read(context, address, place, kind):
    """Return one value of a kind, such as `np.float32`, at a place of the array at an address."""
    result = kind.dtype

    def generate(context, builder, signature, arguments):
        data = builder.inttoptr(arguments[0], context.get_data_type(result).as_pointer())
        return builder.load(builder.gep(data, [arguments[1]]))

    return result(types.int64, types.int64, kind), generate


@intrinsic
def write(context, address, place, value):
    """Store a value at a place of the array of its type at an address."""

    def generate(context, builder, signature, arguments):
        data = builder.inttoptr(arguments[0], context.get_data_type(signature.args[2]).as_pointer())
        builder.store(arguments[2], builder.gep(data, [arguments[1]]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, value), generate


@intrinsic
def view_row(context, address, i, n, kind):
    """Return row i of the array (any, n) of a kind, such as `np.float32`, at an address."""
    result = types.Array(kind.dtype, 1, "C")

    def generate(context, builder, signature, arguments):
        address, i, n, _ = arguments
        array = context.make_array(result)(context, builder)
        value = context.get_data_type(result.dtype)
        size = context.get_constant(types.intp, result.dtype.bitwidth // 8)
        data = builder.gep(builder.inttoptr(address, value.as_pointer()), [builder.mul(i, n)])
        populate_array(array, data=data, shape=[n], strides=[size], itemsize=size, meminfo=None)
        return array._getvalue()

    return result(types.int64, types.int64, types.int64, kind), generate


@intrinsic
def read_bits(context, address):
    """Return the 64 bits at an address, which need not be a multiple of 8."""

    def generate(context, builder, signature, arguments):
        data = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load(data, align=1)

    return types.uint64(types.int64), generate
