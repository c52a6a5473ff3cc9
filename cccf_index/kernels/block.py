"""The innermost loop of a search, in LLVM's own vectors: estimates of 64 scores at a time, all in registers.

numba has no vectors, and what its loops become depends on what the compiler recognises. LLVM turns these into the
widest instructions of any processor.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cccf_index.kernels.limits import BLOCK

I8, I16, I32, I64 = (ir.IntType(width) for width in (8, 16, 32, 64))


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
    """Return the number of one bits of each lane, in 16-bit lanes."""
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


class Accumulator:
    """A vector of 16-bit lanes that is summed up in a loop; LLVM keeps it in registers."""

    def __init__(self, builder):
        self.builder = builder
        self.place = cgutils.alloca_once(builder, lanes(I16))

    def set(self, value):
        """Store a vector."""
        self.builder.store(value, self.place)

    def value(self):
        """Return the vector."""
        return self.builder.load(self.place)

    def add(self, value):
        """Add a vector, lane by lane, modulo 2^16."""
        self.set(self.builder.add(self.value(), value))


# O(G * W * planes) vector operations. Invariant: no sum leaves 16 bits, by the factors and planes; see `limits`.
@intrinsic
def sketch_block(context, segment, group, first, n_words, planes, n_planes, factors, top, limit):
    """Return as a mask which of the rows `first` to `first + 63` of a group have a sketch of at least `limit`.

    Bit b of the values of a query stands in plane b, the highest first, for each word of a component. The agreement of
    a code with the values is ``top - 2 * sum_b 2^b * hamming(code, plane b)``, and the sketch of a row the sum of
    ``floor(factor * agreement * coarse / TERM_DIVISOR)`` over the components that query and group share.

    segment: record of `layout`; group, first, n_words, n_planes: int64; planes: words (G * W * planes,);
    factors: int16 (G,); top, limit: int16. Returns uint64, bit i for row ``first + i``.
    """

    def generate(context, builder, signature, arguments):
        segment, group, first, n_words, planes, n_planes, factors, top, limit = arguments
        planes, factors = (
            context.make_array(signature.args[i])(context, builder, value).data
            for i, value in ((4, planes), (6, factors))
        )
        word = ir.IntType(signature.args[4].dtype.bitwidth)
        record = signature.args[0]
        total, hamming, partial = (Accumulator(builder) for _ in range(3))

        def field(name):
            place = cgutils.get_record_member(builder, segment, record.offset(name), I64)
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
            # This may overflow; the subtraction undoes it modulo 2^16.
            twice = builder.mul(hamming.value(), splat(builder, builder.add(factor, factor)))
            agreement = builder.sub(splat(builder, builder.mul(top, factor)), twice)
            weights = load(builder, builder.add(coarse, builder.add(item(bases, k), slot)), I8)
            weights = builder.shl(builder.zext(weights, lanes(I16)), equal(I16, 7))  # * 2^7 / 2^16: / TERM_DIVISOR
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
    return types.uint64(segment, i64, i64, i64, planes, i64, factors, i16, i16), generate
