"""Exact inner products of single rows of small whole numbers with a query, in LLVM's own vectors.

`storage.precisions` says how values are stored: a row is put together from its strip.
"""

from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cccf_index.kernels.block import I8, I16, I32, I64, cut, load
from cccf_index.kernels.levels import LEVELS, Level
from cccf_index.kernels.limits import DENSE_STEP, PIECE, QUAD
from cccf_index.kernels.registers import F32, fill, load_one, repeat, sum_pairs


class Region(NamedTuple):
    """The dimensions of one level of a precision, by steps."""

    level: Level
    start: ir.Value  # the first step
    stop: ir.Value
    offset: ir.Value  # of its first byte in a strip

    def load(self, builder, row, step):
        """Return 16 values of a row, by the address of its first quad, in 16-bit lanes."""
        lanes, n, bits = ir.VectorType(I16, DENSE_STEP), self.level.per_byte, self.level.bits
        number = builder.sub(step, self.start)
        piece = builder.lshr(number, I64(1)) if bits == 1 else number  # at 1 bit a piece holds two steps
        n_quads = max(1, DENSE_STEP // QUAD // n)
        behind = builder.add(self.offset, builder.mul(piece, I64(n_quads * PIECE)))
        quads = load_quads(builder, builder.add(row, behind), n_quads)
        sources = [dimension // (QUAD * n) * QUAD + dimension % QUAD for dimension in range(DENSE_STEP)]
        shifts = [dimension // QUAD % n * bits for dimension in range(DENSE_STEP)]
        anything = ir.Constant(quads.type, ir.Undefined)
        stored = builder.shuffle_vector(quads, anything, ir.Constant(ir.VectorType(I32, DENSE_STEP), sources))
        stored = builder.zext(stored, lanes)
        if bits == 1:
            upper = builder.shl(builder.trunc(builder.and_(number, I64(1)), I16), I16(2))
            stored = builder.lshr(stored, repeat(builder, upper, DENSE_STEP))
        if bits < 8:
            stored = builder.lshr(stored, ir.Constant(lanes, shifts))
            stored = builder.and_(stored, fill(I16, 2**bits - 1, DENSE_STEP))
        values = builder.mul(stored, fill(I16, self.level.factor * self.level.worth, DENSE_STEP))
        return builder.add(values, fill(I16, self.level.least * self.level.worth, DENSE_STEP))


def find_regions(builder, precision):
    """Return the regions of a precision, the address of int64 (levels,)."""
    step, offset, regions = I64(0), I64(0), []
    for place, level in enumerate(LEVELS):
        n = load_one(builder, builder.add(precision, I64(8 * place)), I64)
        stop = builder.add(step, builder.udiv(n, I64(DENSE_STEP)))
        regions.append(Region(level, step, stop, offset))
        n_pieces = builder.udiv(builder.add(n, I64(QUAD * level.per_byte - 1)), I64(QUAD * level.per_byte))
        step, offset = stop, builder.add(offset, builder.mul(n_pieces, I64(PIECE)))
    return regions


def load_quads(builder, address, n):
    """Return n quads of a row as bytes."""
    quads = ir.Constant(ir.VectorType(I32, n), ir.Undefined)
    for number in range(n):
        quad = load_one(builder, builder.add(address, I64(number * PIECE)), I32)
        quads = builder.insert_element(quads, quad, I32(number))
    return builder.bitcast(quads, ir.VectorType(I8, n * QUAD))


def multiply_row(builder, row, precision, zero, multiply):
    """Return what `multiply`, given a total, 16 values and the first of their dimensions, makes of a whole row."""
    total = cgutils.alloca_once_value(builder, zero)
    builder.store(zero, total)
    for region in find_regions(builder, precision):
        with cgutils.for_range_slice(builder, region.start, region.stop, I64(1)) as (step, _):
            dimension = builder.mul(step, I64(DENSE_STEP))
            builder.store(multiply(builder.load(total), region.load(builder, row, step), dimension), total)
    return builder.load(total)


def sum_lanes(builder, vector, add):
    """Return the sum of all lanes, always in the same order."""
    while vector.type.count > 1:
        half = vector.type.count // 2
        vector = add(cut(builder, vector, 0, half), cut(builder, vector, half, half))
    return builder.extract_element(vector, I32(0))


# O(dimensions). Invariant: no sum leaves 32 bits, as 128 * 128 * MAX_DENSE does not.
@intrinsic
def multiply_integers(context, row, precision, query):
    """Return the inner product of a row with a query of int8, as int32.

    Addresses: row, its first quad; precision: int64 (levels,); query: the values.
    """

    def generate(context, builder, signature, arguments):
        row, precision, query = arguments

        def multiply(total, values, dimension):
            factors = load(builder, builder.add(query, dimension), I8, DENSE_STEP)
            factors = builder.sext(factors, ir.VectorType(I16, DENSE_STEP))
            return builder.add(total, sum_pairs(context, builder, values, factors))

        total = multiply_row(builder, row, precision, fill(I32, 0, DENSE_STEP // 2), multiply)
        return sum_lanes(builder, total, builder.add)

    return types.int32(*[types.int64] * 3), generate


# O(dimensions).
@intrinsic
def multiply_floats(context, row, precision, query):
    """Return the inner product of a row with a query of float32, as float32; see `multiply_integers`."""

    def generate(context, builder, signature, arguments):
        row, precision, query = arguments
        lanes = ir.VectorType(F32, DENSE_STEP)

        def multiply(total, values, dimension):
            factors = load(builder, builder.add(query, builder.mul(dimension, I64(4))), F32, DENSE_STEP)
            return builder.fadd(total, builder.fmul(builder.sitofp(values, lanes), factors))

        total = multiply_row(builder, row, precision, fill(F32, 0.0, DENSE_STEP), multiply)
        return sum_lanes(builder, total, builder.fadd)

    return types.float32(*[types.int64] * 3), generate
