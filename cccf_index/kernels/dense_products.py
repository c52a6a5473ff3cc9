"""Inner products of strips of 16 rows of small whole numbers with a query, in LLVM's own vectors.

`storage.precisions` says how values are stored. A register holds bytes of 16 rows, four of each, and another one four
values of the query, 16 times: one or two instructions multiply them and sum the products of each row. Single rows are
put together from their strip and multiplied exactly.
"""

from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cccf_index.kernels.block import I8, I16, I32, I64, cut, has_feature, join, load, splat
from cccf_index.kernels.levels import LEVELS, Level
from cccf_index.kernels.limits import BLOCK, COARSE_VALUE_MAX, DENSE_STEP, QUAD, STRIP

F32 = ir.FloatType()
PIECE = QUAD * STRIP  # bytes of a strip that are read at a time
# Instructions by feature, the widest first: bytes; LLVM's names of that which multiplies unsigned with signed bytes and
# sums neighbours, and of that which does the same with 16-bit lanes.
PRODUCTS = (
    ("avx512bw", 64, "llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512"),
    ("avx2", 32, "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"),
    ("ssse3", 16, "llvm.x86.ssse3.pmadd.ub.sw.128", "llvm.x86.sse2.pmadd.wd"),
)
# Sums of neighbours that stay within 16 bits: two products of bytes, or eight of fewer bits, with a query's values.
assert 2 * 255 * COARSE_VALUE_MAX < 2**15
assert 8 * 15 * COARSE_VALUE_MAX < 2**15


def fill(kind, value, n):
    """Return a constant vector of n equal lanes."""
    return ir.Constant(ir.VectorType(kind, n), [value] * n)


def repeat(builder, value, n):
    """Return a vector of n equal lanes."""
    anything = ir.Constant(ir.VectorType(value.type, n), ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(anything, value, I32(0)), anything, fill(I32, 0, n))


def load_one(builder, address, kind):
    """Return the value at an address, which may be any."""
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def store(builder, vector, address):
    """Store a vector at an address, which is a multiple of the size of its lanes."""
    builder.store(vector, builder.inttoptr(address, vector.type.as_pointer()), align=4)


def call_in_parts(builder, name, kind, size, left, right):
    """Return what an instruction makes of two vectors, `size` lanes at a time; kind: of its lanes, half as many."""
    part, result = ir.VectorType(left.type.element, size), ir.VectorType(kind, size // 2)
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, [part, part]), name)
    firsts = range(0, left.type.count, size)
    return join(builder, [builder.call(function, [cut(builder, v, i, size) for v in (left, right)]) for i in firsts])


def add_neighbours(builder, vector):
    """Return the sums of neighbouring lanes."""
    n, anything = vector.type.count, ir.Constant(vector.type, ir.Undefined)
    parts = [ir.Constant(ir.VectorType(I32, n // 2), list(range(first, n, 2))) for first in (0, 1)]
    return builder.add(*(builder.shuffle_vector(vector, anything, part) for part in parts))


def multiply_pairs(context, builder, left, right):
    """Return in 16-bit lanes the sums of neighbouring products of unsigned with signed bytes."""
    for feature, size, name, _ in PRODUCTS:
        if has_feature(context, feature):
            return call_in_parts(builder, name, I16, size, left, right)
    wide = ir.VectorType(I16, left.type.count)
    return add_neighbours(builder, builder.mul(builder.zext(left, wide), builder.sext(right, wide)))


def sum_pairs(context, builder, left, right):
    """Return in 32-bit lanes the sums of neighbouring products of 16-bit lanes."""
    for feature, size, _, name in PRODUCTS:
        if has_feature(context, feature) and left.type.count >= size // 2:
            return call_in_parts(builder, name, I32, size // 2, left, right)
    wide = ir.VectorType(I32, left.type.count)
    return add_neighbours(builder, builder.mul(builder.sext(left, wide), builder.sext(right, wide)))


def sum_quads(context, builder, start, pairs, are_small):
    """Return in 32-bit lanes the products of unsigned with signed bytes, summed over quads and pairs, plus `start`.

    are_small: whether the sums of all pairs stay within 16 bits.
    """
    if has_feature(context, "avx512vnni"):
        name, kind = "llvm.x86.avx512.vpdpbusd.512", ir.FunctionType(start.type, [start.type] * 3)
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        for pair in pairs:
            start = builder.call(function, [start, *(builder.bitcast(octets, start.type) for octets in pair)])
        return start
    products = [multiply_pairs(context, builder, *pair) for pair in pairs]
    if are_small:
        products = [add_all(builder, products)]
    ones = fill(I16, 1, PIECE // 2)
    return builder.add(start, add_all(builder, [sum_pairs(context, builder, product, ones) for product in products]))


def add_all(builder, vectors):
    """Return the sum of vectors, whose number is a power of two."""
    while len(vectors) > 1:
        vectors = [builder.add(*pair) for pair in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


def unpack(builder, octets, level, number):
    """Return the first 16 stored numbers that a piece holds of each row, quads in vectors of bytes, or all of fewer.

    number: of the step, counted from the first of its level: at 1 bit a piece holds two steps.
    """
    if level.bits == 8:
        return [octets]
    words = builder.bitcast(octets, ir.VectorType(I16, PIECE // 2))  # there are no shifts of bytes
    if level.bits == 1:
        words = builder.lshr(words, repeat(builder, find_shift(builder, number), PIECE // 2))
    parts = []
    for place in range(min(level.per_byte, DENSE_STEP // QUAD)):
        moved = builder.lshr(words, fill(I16, level.bits * place, PIECE // 2))
        moved = builder.bitcast(moved, octets.type)
        parts.append(builder.and_(moved, fill(I8, 2**level.bits - 1, PIECE)))
    return parts


def find_shift(builder, number):
    """Return which bits of the bytes a step of 1 bit takes, the lower or the upper ones: 0 or 4, 16 bits."""
    return builder.shl(builder.trunc(builder.and_(number, I64(1)), I16), I16(2))


def multiply_step(context, builder, shift, address, number, quads, level):
    """Return in 32-bit lanes ``factor * s + least`` of 16 rows times quads of a query, summed over 16 dimensions.

    s: what is stored at an address; number: see `unpack`; shift: `least` times the sum of the query's values.
    """
    stored = []
    for piece in range(max(1, DENSE_STEP // QUAD // level.per_byte)):
        octets = load(builder, builder.add(address, I64(piece * PIECE)), I8, PIECE)
        stored += unpack(builder, octets, level, number)
    start = shift if level.factor == 1 else fill(I32, 0, STRIP)
    total = sum_quads(context, builder, start, zip(stored, quads, strict=True), are_small=level.bits < 8)
    return total if level.factor == 1 else builder.add(builder.shl(total, fill(I32, 1, STRIP)), shift)


def repeat_quad(builder, query, number):
    """Return the four bytes of a query with some number, for each row of a strip."""
    quad = load_one(builder, builder.add(query, I64(number * QUAD)), I32)
    return builder.bitcast(repeat(builder, quad, STRIP), ir.VectorType(I8, PIECE))


class Region(NamedTuple):
    """The dimensions of one level of a precision, by steps."""

    level: Level
    start: ir.Value  # the first step
    stop: ir.Value
    offset: ir.Value  # of its first byte in a strip

    def locate(self, builder, step):
        """Return where a step begins, in bytes from the start of the strip, and its number in the region."""
        number = builder.sub(step, self.start)
        piece = builder.lshr(number, I64(1)) if self.level.bits == 1 else number
        size = max(1, DENSE_STEP // QUAD // self.level.per_byte) * PIECE
        return builder.add(self.offset, builder.mul(piece, I64(size))), number


def find_regions(builder, precision):
    """Return the regions of a precision, the address of int64 (levels,), and the bytes of a strip."""
    step, offset, regions = I64(0), I64(0), []
    for place, level in enumerate(LEVELS):
        n = load_one(builder, builder.add(precision, I64(8 * place)), I64)
        stop = builder.add(step, builder.udiv(n, I64(DENSE_STEP)))
        regions.append(Region(level, step, stop, offset))
        n_pieces = builder.udiv(builder.add(n, I64(QUAD * level.per_byte - 1)), I64(QUAD * level.per_byte))
        step, offset = stop, builder.add(offset, builder.mul(n_pieces, I64(PIECE)))
    return regions, offset


# O(dimensions) for 16 rows at once. Invariant: no product leaves its lanes; see the assertions above.
@intrinsic
def add_steps(context, strip, n_strips, precision, query, scales, sums, first, last, totals):
    """Set the totals of BLOCK rows to their products with a query in some dimensions: the steps `first` to `last`.

    If `first` is not 0, add them. The rows stand in up to four strips; where there are fewer, totals of the others
    mean nothing. Addresses: strip, the first; precision: int64 (levels,); query: int8 (dimensions,); scales, sums:
    float32, int32 (steps,), what 1 of the query's values is worth, and their sum; totals: float32 (BLOCK,).
    """

    def generate(context, builder, signature, arguments):
        strip, n_strips, precision, query, scales, sums, first, last, totals = arguments
        lanes = ir.VectorType(F32, STRIP)
        regions, size = find_regions(builder, precision)
        numbers = [smaller(builder, I64(i), builder.sub(n_strips, I64(1))) for i in range(BLOCK // STRIP)]
        strips = [builder.add(strip, builder.mul(number, size)) for number in numbers]
        places = [cgutils.alloca_once(builder, lanes) for _ in strips]
        addresses = [builder.add(totals, I64(4 * STRIP * i)) for i in range(len(strips))]
        is_first = builder.icmp_signed("==", first, I64(0))
        for place, address in zip(places, addresses, strict=True):
            builder.store(builder.select(is_first, fill(F32, 0.0, STRIP), load(builder, address, F32, STRIP)), place)
        for region in regions:
            start, stop = larger(builder, first, region.start), smaller(builder, last, region.stop)
            with cgutils.for_range_slice(builder, start, stop, I64(1)) as (step, _):
                own = builder.add(query, builder.mul(step, I64(DENSE_STEP)))
                quads = [repeat_quad(builder, own, number) for number in range(DENSE_STEP // QUAD)]
                shift = load_one(builder, builder.add(sums, builder.mul(step, I64(4))), I32)
                shift = repeat(builder, builder.mul(shift, I32(region.level.least)), STRIP)
                scale = load_one(builder, builder.add(scales, builder.mul(step, I64(4))), F32)
                scale = repeat(builder, builder.fmul(scale, ir.Constant(F32, float(region.level.worth))), STRIP)
                behind, number = region.locate(builder, step)
                for strip, place in zip(strips, places, strict=True):
                    at = builder.add(strip, behind)
                    products = multiply_step(context, builder, shift, at, number, quads, region.level)
                    products = builder.sitofp(products, lanes)
                    builder.store(fuse(builder, products, scale, builder.load(place)), place)
        for place, address in zip(places, addresses, strict=True):
            store(builder, builder.load(place), address)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 9), generate


def smaller(builder, a, b):
    """Return the smaller of two numbers."""
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def larger(builder, a, b):
    """Return the larger of two numbers."""
    return builder.select(builder.icmp_signed(">", a, b), a, b)


def fuse(builder, left, right, total):
    """Return ``left * right + total``, rounded once where the processor can."""
    name = f"llvm.fmuladd.v{left.type.count}f32"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(left.type, [left.type] * 3), name)
    return builder.call(function, [left, right, total])


@intrinsic
def find_reaching(context, totals, weights, limit):
    """Return as a mask which of BLOCK rows reach a limit, float32: totals * weights, addresses of float32 (BLOCK,)."""

    def generate(context, builder, signature, arguments):
        totals, weights, limit = arguments
        scores = builder.fmul(*(load(builder, address, F32) for address in (totals, weights)))
        return builder.bitcast(builder.fcmp_ordered(">=", scores, splat(builder, limit)), I64)

    return types.uint64(types.int64, types.int64, types.float32), generate


def load_values(builder, address, number, level):
    """Return 16 values of a row, in 16-bit lanes; address: of its first quad of them; number: see `unpack`."""
    lanes, n = ir.VectorType(I16, DENSE_STEP), level.per_byte
    quads = load_quads(builder, address, max(1, DENSE_STEP // QUAD // n))
    sources = [dimension // (QUAD * n) * QUAD + dimension % QUAD for dimension in range(DENSE_STEP)]
    shifts = [dimension // QUAD % n * level.bits for dimension in range(DENSE_STEP)]
    anything = ir.Constant(quads.type, ir.Undefined)
    stored = builder.shuffle_vector(quads, anything, ir.Constant(ir.VectorType(I32, DENSE_STEP), sources))
    stored = builder.zext(stored, lanes)
    if level.bits == 1:
        stored = builder.lshr(stored, repeat(builder, find_shift(builder, number), DENSE_STEP))
    if level.bits < 8:
        stored = builder.lshr(stored, ir.Constant(lanes, shifts))
        stored = builder.and_(stored, fill(I16, 2**level.bits - 1, DENSE_STEP))
    values = builder.mul(stored, fill(I16, level.factor * level.worth, DENSE_STEP))
    return builder.add(values, fill(I16, level.least * level.worth, DENSE_STEP))


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
    for region in find_regions(builder, precision)[0]:
        with cgutils.for_range_slice(builder, region.start, region.stop, I64(1)) as (step, _):
            behind, number = region.locate(builder, step)
            values = load_values(builder, builder.add(row, behind), number, region.level)
            dimension = builder.mul(step, I64(DENSE_STEP))
            builder.store(multiply(builder.load(total), values, dimension), total)
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
