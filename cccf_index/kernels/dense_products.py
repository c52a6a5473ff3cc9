"""Inner products of strips of 16 rows of small whole numbers with a query, in LLVM's own vectors.

`storage.precisions` says how values are stored. A register holds bytes of 16 rows, four of each, and another one four
values of the query, 16 times: one or two instructions multiply them and sum the products of each row. Single rows are
put together from their strip and multiplied exactly.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cccf_index.kernels.block import I8, I16, I32, I64, cut, has_feature, join, load, splat
from cccf_index.kernels.limits import BLOCK, COARSE_VALUE_MAX, DENSE_STEP, HALF_MIN, HALF_STEP, QUAD, STRIP

F32 = ir.FloatType()
PIECE = QUAD * STRIP  # bytes of a strip that are read at a time
FULL_MIN = -128  # values are stored less this
# Instructions by feature, the widest first: bytes; LLVM's names of that which multiplies unsigned with signed bytes and
# sums neighbours, and of that which does the same with 16-bit lanes.
PRODUCTS = (
    ("avx512bw", 64, "llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512"),
    ("avx2", 32, "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"),
    ("ssse3", 16, "llvm.x86.ssse3.pmadd.ub.sw.128", "llvm.x86.sse2.pmadd.wd"),
)
# Sums of neighbours that stay within 16 bits: two products of bytes, or eight of half bytes, with a query's values.
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


def multiply_bytes(context, builder, start, strip, quads):
    """Return the products of 16 dimensions, a byte each, with quads of a query, plus `start`; strip: an address."""
    octets = [load(builder, builder.add(strip, I64(number * PIECE)), I8, PIECE) for number in range(len(quads))]
    return sum_quads(context, builder, start, zip(octets, quads, strict=True), are_small=False)


def multiply_halves(context, builder, start, strip, quads):
    """Return the products of 16 dimensions, half a byte each, with quads of a query, plus `start`."""
    halves = []
    for number in range(len(quads) // 2):
        octets = load(builder, builder.add(strip, I64(number * PIECE)), I8, PIECE)
        halves += [builder.and_(octets, fill(I8, 15, PIECE)), builder.lshr(octets, fill(I8, 4, PIECE))]
    return sum_quads(context, builder, start, zip(halves, quads, strict=True), are_small=True)


def repeat_quad(builder, query, number):
    """Return the four bytes of a query with some number, for each row of a strip."""
    quad = load_one(builder, builder.add(query, I64(number * QUAD)), I32)
    return builder.bitcast(repeat(builder, quad, STRIP), ir.VectorType(I8, PIECE))


# O(dimensions) for 16 rows at once. Invariant: no product leaves its lanes; see the assertions above.
@intrinsic
def add_steps(context, strip, n_strips, n_full, n_half, query, scales, sums, first, last, totals):
    """Set the totals of BLOCK rows to their products with a query in some dimensions: the steps `first` to `last`.

    If `first` is not 0, add them. The rows stand in up to four strips; where there are fewer, totals of the others
    mean nothing. Addresses: strip, the first; query: int8 (dimensions,); scales, sums: float32, int32 (steps,), what 1
    of the query's values is worth, and their sum; totals: float32 (BLOCK,). n_full, n_half: dimensions of 8 and 4 bits.
    """

    def generate(context, builder, signature, arguments):
        strip, n_strips, n_full, n_half, query, scales, sums, first, last, totals = arguments
        lanes, full_bytes, half_bytes = ir.VectorType(F32, STRIP), STRIP * DENSE_STEP, STRIP * DENSE_STEP // 2
        size = builder.mul(builder.add(n_full, builder.lshr(n_half, I64(1))), I64(STRIP))
        numbers = [smaller(builder, I64(i), builder.sub(n_strips, I64(1))) for i in range(BLOCK // STRIP)]
        strips = [builder.add(strip, builder.mul(number, size)) for number in numbers]
        places = [cgutils.alloca_once(builder, lanes) for _ in strips]
        addresses = [builder.add(totals, I64(4 * STRIP * i)) for i in range(len(strips))]
        is_first = builder.icmp_signed("==", first, I64(0))
        for place, address in zip(places, addresses, strict=True):
            builder.store(builder.select(is_first, fill(F32, 0.0, STRIP), load(builder, address, F32, STRIP)), place)

        def add(start, stop, multiply, offset, step_bytes, least, worth):
            """Add steps whose values stand `offset` bytes behind step 0 in each strip; worth: of 1 of them."""
            with cgutils.for_range_slice(builder, start, stop, I64(1)) as (step, _):
                own = builder.add(query, builder.mul(step, I64(DENSE_STEP)))
                quads = [repeat_quad(builder, own, number) for number in range(DENSE_STEP // QUAD)]
                shift = load_one(builder, builder.add(sums, builder.mul(step, I64(4))), I32)
                shift = repeat(builder, builder.mul(shift, I32(least)), STRIP)
                scale = load_one(builder, builder.add(scales, builder.mul(step, I64(4))), F32)
                scale = repeat(builder, builder.fmul(scale, ir.Constant(F32, float(worth))), STRIP)
                behind = builder.add(offset, builder.mul(step, I64(step_bytes)))
                for strip, place in zip(strips, places, strict=True):
                    products = multiply(context, builder, shift, builder.add(strip, behind), quads)
                    products = builder.sitofp(products, lanes)
                    builder.store(fuse(builder, products, scale, builder.load(place)), place)

        n_steps = builder.udiv(n_full, I64(DENSE_STEP))
        offset = builder.mul(n_steps, I64(full_bytes - half_bytes))
        add(first, smaller(builder, last, n_steps), multiply_bytes, I64(0), full_bytes, FULL_MIN, 1)
        start = builder.sub(builder.add(first, n_steps), smaller(builder, first, n_steps))  # the larger one
        add(start, last, multiply_halves, offset, half_bytes, HALF_MIN, HALF_STEP)
        for place, address in zip(places, addresses, strict=True):
            store(builder, builder.load(place), address)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 10), generate


def smaller(builder, a, b):
    """Return the smaller of two numbers."""
    return builder.select(builder.icmp_signed("<", a, b), a, b)


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


def load_bytes(builder, address):
    """Return 16 values of a row, stored in a byte each, in 16-bit lanes; address: of its first quad."""
    quads = load_quads(builder, address, DENSE_STEP // QUAD)
    return builder.add(builder.zext(quads, ir.VectorType(I16, DENSE_STEP)), fill(I16, FULL_MIN, DENSE_STEP))


def load_halves(builder, address):
    """Return 16 values of a row, stored in half a byte each, in 16-bit lanes; address: of its first quad."""
    half = DENSE_STEP // 2
    octets = builder.zext(load_quads(builder, address, half // QUAD), ir.VectorType(I16, half))
    lower, upper = builder.shl(octets, fill(I16, 4, half)), builder.and_(octets, fill(I16, 240, half))
    lower = builder.and_(lower, fill(I16, 240, half))
    places = [q * QUAD + i + side * half for q in range(half // QUAD) for side in (0, 1) for i in range(QUAD)]
    values = builder.shuffle_vector(lower, upper, ir.Constant(ir.VectorType(I32, DENSE_STEP), places))
    return builder.add(values, fill(I16, HALF_MIN * HALF_STEP, DENSE_STEP))


def load_quads(builder, address, n):
    """Return n quads of a row as bytes."""
    quads = ir.Constant(ir.VectorType(I32, n), ir.Undefined)
    for number in range(n):
        quad = load_one(builder, builder.add(address, I64(number * PIECE)), I32)
        quads = builder.insert_element(quads, quad, I32(number))
    return builder.bitcast(quads, ir.VectorType(I8, n * QUAD))


def multiply_row(builder, row, n_full, n_half, zero, multiply):
    """Return what `multiply`, given a total, 16 values and the first of their dimensions, makes of a whole row."""
    total = cgutils.alloca_once_value(builder, zero)
    builder.store(zero, total)

    def add(n, start, first, size, read_values):
        with cgutils.for_range(builder, builder.udiv(n, I64(DENSE_STEP))) as step:
            values = read_values(builder, builder.add(start, builder.mul(step.index, I64(size))))
            dimension = builder.add(first, builder.mul(step.index, I64(DENSE_STEP)))
            builder.store(multiply(builder.load(total), values, dimension), total)

    add(n_full, row, I64(0), STRIP * DENSE_STEP, load_bytes)
    add(n_half, builder.add(row, builder.mul(n_full, I64(STRIP))), n_full, STRIP * DENSE_STEP // 2, load_halves)
    return builder.load(total)


def sum_lanes(builder, vector, add):
    """Return the sum of all lanes, always in the same order."""
    while vector.type.count > 1:
        half = vector.type.count // 2
        vector = add(cut(builder, vector, 0, half), cut(builder, vector, half, half))
    return builder.extract_element(vector, I32(0))


# O(n_full + n_half). Invariant: no sum leaves 32 bits, as 128 * 128 * MAX_DENSE does not.
@intrinsic
def multiply_integers(context, row, query, n_full, n_half):
    """Return the inner product of a row with a query of int8, as int32.

    row: the address of its first quad; query: of the values.
    """

    def generate(context, builder, signature, arguments):
        row, query, n_full, n_half = arguments

        def multiply(total, values, dimension):
            factors = load(builder, builder.add(query, dimension), I8, DENSE_STEP)
            factors = builder.sext(factors, ir.VectorType(I16, DENSE_STEP))
            return builder.add(total, sum_pairs(context, builder, values, factors))

        total = multiply_row(builder, row, n_full, n_half, fill(I32, 0, DENSE_STEP // 2), multiply)
        return sum_lanes(builder, total, builder.add)

    return types.int32(*[types.int64] * 4), generate


# O(n_full + n_half).
@intrinsic
def multiply_floats(context, row, query, n_full, n_half):
    """Return the inner product of a row with a query of float32, as float32; see `multiply_integers`."""

    def generate(context, builder, signature, arguments):
        row, query, n_full, n_half = arguments
        lanes = ir.VectorType(F32, DENSE_STEP)

        def multiply(total, values, dimension):
            factors = load(builder, builder.add(query, builder.mul(dimension, I64(4))), F32, DENSE_STEP)
            return builder.fadd(total, builder.fmul(builder.sitofp(values, lanes), factors))

        total = multiply_row(builder, row, n_full, n_half, fill(F32, 0.0, DENSE_STEP), multiply)
        return sum_lanes(builder, total, builder.fadd)

    return types.float32(*[types.int64] * 4), generate
