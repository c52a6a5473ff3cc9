"""The innermost loop of a search, written in LLVM's own vectors: a block of 64 rows at a time, all in registers.

numba has no vectors, and what its loops become depends on what the compiler recognises. LLVM turns these into the
widest instructions of any processor. After a change here, touch `kernels.py`: numba does not notice it.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array
from numba.np.numpy_support import from_dtype

from cccf_index.kernels.layout import HANDLE

BLOCK = 64  # rows of a block: what reaches a limit is one 64-bit mask
I8, I16, I32, I64 = (ir.IntType(width) for width in (8, 16, 32, 64))


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
def half(context, bits):
    """Return the float16 that the bits of a uint16 are, as float32."""

    def generate(context, builder, signature, arguments):
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(bits), generate


@intrinsic
def table(context, address):
    """Return the record of a segment at an address."""
    record = from_dtype(HANDLE)

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(record))

    return record(types.int64), generate


@intrinsic
def at(context, address, place, kind):
    """Return one value of a kind, such as `np.float32`, at a place of the array at an address."""
    result = kind.dtype

    def generate(context, builder, signature, arguments):
        data = builder.inttoptr(arguments[0], context.get_data_type(result).as_pointer())
        return builder.load(builder.gep(data, [arguments[1]]))

    return result(types.int64, types.int64, kind), generate


@intrinsic
def array_at(context, address, n, kind):
    """Return the n values of a kind, a type or an array of it, at an address as an array."""
    result = types.Array(kind.dtype, 1, "C")

    def generate(context, builder, signature, arguments):
        array = context.make_array(result)(context, builder)
        value = context.get_data_type(result.dtype)
        size = context.get_constant(types.intp, context.get_abi_sizeof(value))
        data = builder.inttoptr(arguments[0], value.as_pointer())
        populate_array(array, data=data, shape=[arguments[1]], strides=[size], itemsize=size, meminfo=None)
        return array._getvalue()

    return result(types.int64, types.int64, kind), generate


def lanes(kind):
    """Return the vector type of a value for each row of a block."""
    return ir.VectorType(kind, BLOCK)


def equal(kind, value):
    """Return a constant vector of equal lanes."""
    return ir.Constant(lanes(kind), [value] * BLOCK)


def splat(builder, value):
    """Return a vector of equal lanes."""
    anything = ir.Constant(lanes(value.type), ir.Undefined)
    first = builder.insert_element(anything, value, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, anything, equal(I32, 0))


def load(builder, address, kind):
    """Return the BLOCK values at an address."""
    return builder.load(builder.inttoptr(address, lanes(kind).as_pointer()), align=kind.width // 8)


def load_apart(builder, address, kind, n):
    """Return the first of each n values at an address, for BLOCK times n of them."""
    values = ir.Constant(lanes(kind), ir.Undefined)
    stride = builder.mul(n, ir.Constant(I64, kind.width // 8))
    for lane in range(BLOCK):
        value = builder.load(builder.inttoptr(address, kind.as_pointer()), align=kind.width // 8)
        values = builder.insert_element(values, value, ir.Constant(I32, lane))
        address = builder.add(address, stride)
    return values


def count_ones(builder, vector):
    """Return the number of one bits in each lane, as 16 bits."""
    width = vector.type.element.width
    function = ir.FunctionType(vector.type, [vector.type])
    ones = builder.call(
        cgutils.get_or_insert_function(builder.module, function, f"llvm.ctpop.v{BLOCK}i{width}"), [vector]
    )
    if width == 16:
        return ones
    return builder.zext(ones, lanes(I16)) if width < 16 else builder.trunc(ones, lanes(I16))


def high_product(builder, left, right):
    """Return the upper half of the 32-bit products of 16-bit lanes."""
    product = builder.mul(builder.sext(left, lanes(I32)), builder.sext(right, lanes(I32)))
    return builder.trunc(builder.ashr(product, equal(I32, 16)), lanes(I16))


class Sum:
    """A vector that is added up in a loop; LLVM keeps it in registers."""

    def __init__(self, builder):
        self.builder = builder
        self.place = cgutils.alloca_once(builder, lanes(I16))

    def set(self, value):
        self.builder.store(value, self.place)

    def value(self):
        return self.builder.load(self.place)

    def add(self, value):
        self.set(self.builder.add(self.value(), value))


# O(G * W * planes) vector operations. Invariant: no sum leaves 16 bits; the caller's factors and planes see to it.
@intrinsic
def reaching(context, tables, group, first, n_words, planes, n_planes, factors, top, limit):
    """Return as a mask which of the rows `first` to `first + 63` of a group have a sketch of at least `limit`.

    Bit b of the values of a query stands in plane b, the highest first, for each word of a component. The agreement of
    a code with the values is ``top - 2 * sum_b 2^b * hamming(code, plane b)``, and the sketch of a row the sum of
    ``floor(factor * agreement * coarse weight / 512)`` over the components that query and group share.
    """

    def generate(context, builder, signature, arguments):
        tables, group, first, n_words, planes, n_planes, factors, top, limit = arguments
        planes, factors = (
            context.make_array(signature.args[i])(context, builder, value).data
            for i, value in ((4, planes), (6, factors))
        )
        word = ir.IntType(signature.args[4].dtype.bitwidth)
        record = signature.args[0]
        total, hamming, partial = Sum(builder), Sum(builder), Sum(builder)

        def field(name):
            place = cgutils.get_record_member(builder, tables, record.offset(name), I64)
            return builder.load(place)

        def item(address, place):
            return builder.load(builder.gep(builder.inttoptr(address, I64.as_pointer()), [place]))

        def count_word(k, number, codes):
            begin = builder.mul(builder.add(builder.mul(k, n_words), number), n_planes)

            def differing(plane):
                bits = builder.load(builder.gep(planes, [builder.add(begin, plane)]))
                return count_ones(builder, builder.xor(codes, splat(builder, bits)))

            partial.set(differing(ir.Constant(I64, 0)))
            with cgutils.for_range(builder, n_planes, ir.Constant(I64, 1)) as plane:
                partial.add(builder.add(partial.value(), differing(plane.index)))
            return partial.value()

        def count(k, slot):
            size = builder.mul(n_words, ir.Constant(I64, word.width // 8))
            address = builder.add(item(shards, k), builder.mul(slot, size))
            if word.width < 64:
                hamming.set(count_word(k, ir.Constant(I64, 0), load(builder, address, word)))
                return
            with builder.if_else(builder.icmp_signed("==", n_words, ir.Constant(I64, 1))) as (alone, several):
                with alone:
                    hamming.set(count_word(k, ir.Constant(I64, 0), load(builder, address, word)))
                with several:
                    hamming.set(equal(I16, 0))
                    with cgutils.for_range(builder, n_words) as number:
                        start = builder.add(address, builder.mul(number.index, ir.Constant(I64, 8)))
                        hamming.add(count_word(k, number.index, load_apart(builder, start, word, n_words)))

        def add_component(k, factor, slot):
            count(k, slot)
            twice = builder.mul(hamming.value(), splat(builder, builder.add(factor, factor)))  # may wrap, and does back
            agreement = builder.sub(splat(builder, builder.mul(top, factor)), twice)
            weights = load(builder, builder.add(coarse, builder.add(item(bases, k), slot)), I8)
            weights = builder.shl(builder.zext(weights, lanes(I16)), equal(I16, 7))  # * 2^7 / 2^16: / 512
            total.add(high_product(builder, agreement, weights))

        n_components, shards, bases, coarse = (field(n) for n in ("n_components", "shards", "bases", "coarse"))
        slots = builder.add(field("slots"), builder.mul(builder.mul(group, n_components), ir.Constant(I64, 8)))
        total.set(equal(I16, 0))
        with cgutils.for_range(builder, n_components) as component:
            k = component.index
            factor, slot = builder.load(builder.gep(factors, [k])), item(slots, k)
            is_weighted = builder.icmp_signed("!=", factor, ir.Constant(I16, 0))
            with builder.if_then(builder.and_(is_weighted, builder.icmp_signed(">=", slot, ir.Constant(I64, 0)))):
                add_component(k, factor, builder.add(slot, first))
        return builder.bitcast(builder.icmp_signed(">=", total.value(), splat(builder, limit)), I64)

    i64, i16 = types.int64, types.int16
    return types.uint64(tables, i64, i64, i64, planes, i64, factors, i16, i16), generate
