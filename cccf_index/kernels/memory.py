"""Access to bits and memory that numba lacks: one LLVM instruction or a few, each."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array
from numba.np.numpy_support import from_dtype

from cccf_index.kernels.layout import SEGMENT_RECORD


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
def half_to_float(context, bits):
    """Return as float32 the float16 whose bits a uint16 holds."""

    def generate(context, builder, signature, arguments):
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(bits), generate


@intrinsic
def view_segment(context, address):
    """Return the record of a segment at an address; see `layout.make_record`."""
    record = from_dtype(SEGMENT_RECORD)

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(record))

    return record(types.int64), generate


@intrinsic
def read(context, address, place, kind):
    """Return one value of a kind, such as `np.float32`, at a place of the array at an address."""
    result = kind.dtype

    def generate(context, builder, signature, arguments):
        data = builder.inttoptr(arguments[0], context.get_data_type(result).as_pointer())
        return builder.load(builder.gep(data, [arguments[1]]))

    return result(types.int64, types.int64, kind), generate


@intrinsic
def view_array(context, address, n, kind):
    """Return the n values at an address as an array; `kind` is a type, such as `np.float32`, or an array of it."""
    result = types.Array(kind.dtype, 1, "C")

    def generate(context, builder, signature, arguments):
        array = context.make_array(result)(context, builder)
        value = context.get_data_type(result.dtype)
        size = context.get_constant(types.intp, context.get_abi_sizeof(value))
        data = builder.inttoptr(arguments[0], value.as_pointer())
        populate_array(array, data=data, shape=[arguments[1]], strides=[size], itemsize=size, meminfo=None)
        return array._getvalue()

    return result(types.int64, types.int64, kind), generate
