"""Inner products of rows of small whole numbers with a query, in LLVM's own vectors.

The values of a row take a byte in the first dimensions, half a byte in the next, and are zero in the rest (see
`storage.precisions`). Both kinds are widened in registers, 16 at a time, and multiplied with 16 values of the query.
Half bytes are also multiplied with a query of bytes, which is faster.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cccf_index.kernels.block import I8, I16, I32, I64, cut, has_feature, join, load, splat
from cccf_index.kernels.limits import BLOCK, DENSE_STEP, HALF_MIN, HALF_STEP

F32 = ir.FloatType()
OCTETS = 32  # bytes of half values that are multiplied at a time: so many may be read behind the last row
# Instructions that multiply 16-bit lanes and sum neighbours: feature, LLVM's name, lanes.
SUMS_OF_PRODUCTS = (("avx2", "llvm.x86.avx2.pmadd.wd", 16), ("sse2", "llvm.x86.sse2.pmadd.wd", 8))


def fill(kind, value, n):
    """Return a constant vector of n equal lanes."""
    return ir.Constant(ir.VectorType(kind, n), [value] * n)


def load_bytes(builder, address):
    """Return 16 values of a byte each, in 16-bit lanes."""
    return builder.sext(load(builder, address, I8, DENSE_STEP), ir.VectorType(I16, DENSE_STEP))


def load_halves(builder, address):
    """Return 16 values of half a byte each, in 16-bit lanes: the lower halves of 8 bytes, then the upper ones."""
    half = DENSE_STEP // 2
    octets = builder.zext(load(builder, address, I8, half), ir.VectorType(I16, half))
    parts = [builder.shl(builder.and_(octets, fill(I16, 15, half)), fill(I16, 4, half))]
    parts.append(builder.and_(octets, fill(I16, 240, half)))
    return builder.add(join(builder, parts), fill(I16, HALF_MIN * HALF_STEP, DENSE_STEP))


def multiply_integers(context, builder, total, values, factors):
    """Add the products of 16-bit lanes to 32-bit ones, half as many."""
    found = next((one for one in SUMS_OF_PRODUCTS if has_feature(context, one[0])), None)
    if found is not None:
        _, name, n = found
        lanes, sums = ir.VectorType(I16, n), ir.VectorType(I32, n // 2)
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(sums, [lanes, lanes]), name)
        parts = range(0, DENSE_STEP, n)
        products = [builder.call(function, [cut(builder, v, i, n) for v in (values, factors)]) for i in parts]
        return builder.add(total, join(builder, products))
    wide = ir.VectorType(I32, DENSE_STEP)
    products = builder.mul(builder.sext(values, wide), builder.sext(factors, wide))
    return builder.add(total, builder.add(*(cut(builder, products, i, DENSE_STEP // 2) for i in (0, DENSE_STEP // 2))))


def multiply_floats(context, builder, total, values, factors):
    """Add the products of 16-bit lanes with float32 ones."""
    wide = builder.sext(values, ir.VectorType(I32, DENSE_STEP))
    return builder.fadd(total, builder.fmul(builder.sitofp(wide, ir.VectorType(F32, DENSE_STEP)), factors))


def sum_lanes(builder, vector, add):
    """Return the sum of all lanes, always in the same order."""
    while vector.type.count > 1:
        half = vector.type.count // 2
        vector = add(cut(builder, vector, 0, half), cut(builder, vector, half, half))
    return builder.extract_element(vector, I32(0))


def sum_four(builder, vectors):
    """Return the sums of all lanes of 4 vectors of integers, as one vector."""
    while vectors[0].type.count > 4:
        half = vectors[0].type.count // 2
        vectors = [builder.add(cut(builder, v, 0, half), cut(builder, v, half, half)) for v in vectors]
    for step, places in ((1, (0, 4, 2, 6)), (2, (0, 1, 4, 5))):  # of neighbours, of which two vectors become one
        masks = [ir.Constant(ir.VectorType(I32, 4), [place + more for place in places]) for more in (0, step)]
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [builder.add(*(builder.shuffle_vector(x, y, mask) for mask in masks)) for x, y in pairs]
    return vectors[0]


class Sums:
    """Vectors that are summed up in loops, one for each row; LLVM keeps them in registers."""

    def __init__(self, builder, kind, lanes, n_rows):
        zero = ir.Constant(ir.VectorType(kind, lanes), [0.0 if kind == F32 else 0] * lanes)
        self.builder, self.lanes = builder, lanes
        self.places = [cgutils.alloca_once_value(builder, zero) for _ in range(n_rows)]
        for place in self.places:
            builder.store(zero, place)

    def update(self, row, change):
        """Change the vector of a row."""
        self.builder.store(change(self.builder.load(self.places[row])), self.places[row])

    def load(self):
        """Return the vectors."""
        return [self.builder.load(place) for place in self.places]


def make_products(kind, lanes, size, multiply, n_rows):
    """Return a function that multiplies rows with a query, in LLVM's language; its result are the `Sums`.

    kind, lanes: of the sums; size: bytes of a value of the query; multiply: adds 16 products.
    """

    def generate(context, builder, row, stride, query, n_full, n_half):
        sums = Sums(builder, kind, lanes, n_rows)

        def add_part(first, n, start, row_bytes, read_values):
            """Add n dimensions from `first` on, whose values begin at `start`; row_bytes: of 16 of them."""
            with cgutils.for_range(builder, builder.lshr(n, I64(4))) as block:
                offset = builder.add(first, builder.shl(block.index, I64(4)))
                factors = load(builder, builder.add(query, builder.mul(offset, I64(size))), kind_of(size), DENSE_STEP)
                place = builder.add(start, builder.mul(block.index, I64(row_bytes)))
                for number in range(n_rows):
                    at = builder.add(place, builder.mul(stride, I64(number)))
                    values = read_values(builder, at)
                    sums.update(number, lambda total, v=values: multiply(context, builder, total, v, factors))

        add_part(I64(0), n_full, row, DENSE_STEP, load_bytes)
        add_part(n_full, n_half, builder.add(row, n_full), DENSE_STEP // 2, load_halves)
        return sums

    return generate


def kind_of(size):
    """Return the type of a query's values of 2 or 4 bytes."""
    return I16 if size == 2 else F32


# O(n_full + n_half / 2) bytes read. Invariant: no sum leaves 32 bits; see `limits.DENSE_SUM`.
@intrinsic
def multiply_rounded(context, row, query, n_full, n_half):
    """Return the inner product of a row with a query of int16, as int32; row, query: addresses."""

    def generate(context, builder, signature, arguments):
        row, query, n_full, n_half = arguments
        products = make_products(I32, DENSE_STEP // 2, 2, multiply_integers, 1)
        sums = products(context, builder, row, I64(0), query, n_full, n_half)
        return sum_lanes(builder, sums.load()[0], builder.add)

    return types.int32(*[types.int64] * 4), generate


@intrinsic
def multiply_four(context, row, stride, query, n_full, n_half, out):
    """Write to `out` the inner products of 4 rows, as `multiply_rounded`, int32; stride: from row to row."""

    def generate(context, builder, signature, arguments):
        row, stride, query, n_full, n_half, out = arguments
        products = make_products(I32, DENSE_STEP // 2, 2, multiply_integers, 4)
        sums = products(context, builder, row, stride, query, n_full, n_half)
        store(builder, sum_four(builder, sums.load()), out)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), generate


@intrinsic
def multiply_exact(context, row, query, n_full, n_half):
    """Return the inner product of a row with a query of float32, as float32; row, query: addresses."""

    def generate(context, builder, signature, arguments):
        row, query, n_full, n_half = arguments
        products = make_products(F32, DENSE_STEP, 4, multiply_floats, 1)
        sums = products(context, builder, row, I64(0), query, n_full, n_half)
        return sum_lanes(builder, sums.load()[0], builder.fadd)

    return types.float32(*[types.int64] * 4), generate


def store(builder, vector, address):
    """Store a vector at an address, which is a multiple of the size of its lanes."""
    builder.store(vector, builder.inttoptr(address, vector.type.as_pointer()), align=4)


def add_coarse(context, builder, row, stride, query, n, far, n_rows):
    """Return the sums of half bytes, as they are stored, times bytes of a query; see `multiply_coarse`."""
    n_octets, sums = builder.lshr(n, I64(1)), Sums(builder, I32, 8, n_rows)

    def multiply(place, number, mask):
        """Return the sums of products with OCTETS bytes of a row from a place on, in 16-bit lanes."""
        at = builder.add(query, place)
        octets = load(builder, builder.add(builder.add(row, place), builder.mul(stride, I64(number))), I8, OCTETS)
        octets = octets if mask is None else builder.and_(octets, mask)
        halves = [builder.and_(octets, fill(I8, 15, OCTETS)), builder.lshr(octets, fill(I8, 4, OCTETS))]
        addresses = (at, builder.add(at, far))
        pairs = ((half, load(builder, address, I8, OCTETS)) for half, address in zip(halves, addresses, strict=True))
        return builder.add(*(multiply_pairs(context, builder, *pair) for pair in pairs))

    def add(place, times, mask=None):
        """Add the products with several times OCTETS bytes from a place on."""
        for number in range(n_rows):
            parts = [multiply(builder.add(place, I64(OCTETS * time)), number, mask) for time in range(times)]
            products = sum_pairs(context, builder, parts[0] if times == 1 else builder.add(*parts))
            sums.update(number, lambda total, more=products: builder.add(total, more))

    with cgutils.for_range_slice(builder, I64(0), builder.and_(n_octets, I64(-2 * OCTETS)), I64(2 * OCTETS)) as (
        place,
        _,
    ):
        add(place, 2)
    with builder.if_then(builder.icmp_signed("!=", builder.and_(n_octets, I64(OCTETS)), I64(0))):
        add(builder.and_(n_octets, I64(-2 * OCTETS)), 1)
    rest = builder.and_(n_octets, I64(OCTETS - 1))
    with builder.if_then(builder.icmp_signed("!=", rest, I64(0))):
        ends = ir.Constant(ir.VectorType(I8, OCTETS), list(range(OCTETS)))
        last = row_of(builder, builder.trunc(rest, I8), OCTETS)
        mask = builder.sext(builder.icmp_signed("<", ends, last), ir.VectorType(I8, OCTETS))
        add(builder.sub(n_octets, rest), 1, mask)
    return sums


def row_of(builder, value, n):
    """Return a vector of n equal lanes."""
    anything = ir.Constant(ir.VectorType(value.type, n), ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(anything, value, I32(0)), anything, fill(I32, 0, n))


# Some 20 instructions for 128 dimensions. Invariant: no sum of products leaves 16 bits: 2 * 2 * 2 * 15 * 128.
@intrinsic
def multiply_coarse(context, row, query, n, far):
    """Return the sum of half bytes, as they are stored, times bytes of a query, as int32.

    row: address of n half bytes, a multiple of DENSE_STEP; query: address of the bytes for the lower halves; those for
    the upper ones stand `far` bytes behind.
    """

    def generate(context, builder, signature, arguments):
        row, query, n, far = arguments
        sums = add_coarse(context, builder, row, I64(0), query, n, far, 1)
        return sum_lanes(builder, sums.load()[0], builder.add)

    return types.int32(*[types.int64] * 4), generate


@intrinsic
def multiply_four_coarsely(context, row, stride, query, n, far, out):
    """Write to `out` the sums of 4 rows, as `multiply_coarse`, int32; stride: from row to row."""

    def generate(context, builder, signature, arguments):
        row, stride, query, n, far, out = arguments
        sums = add_coarse(context, builder, row, stride, query, n, far, 4)
        store(builder, sum_four(builder, sums.load()), out)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), generate


def multiply_pairs(context, builder, left, right):
    """Return in 16-bit lanes the sums of neighbouring products of unsigned with signed bytes."""
    n = left.type.count
    lanes = ir.VectorType(I16, n // 2)
    if has_feature(context, "avx2"):
        function = ir.FunctionType(lanes, [left.type, right.type])
        name = "llvm.x86.avx2.pmadd.ub.sw"
        return builder.call(cgutils.get_or_insert_function(builder.module, function, name), [left, right])
    wide = ir.VectorType(I16, n)
    products = builder.mul(builder.zext(left, wide), builder.sext(right, wide))
    return add_neighbours(builder, products)


def sum_pairs(context, builder, vector):
    """Return in 32-bit lanes the sums of neighbouring 16-bit lanes."""
    n = vector.type.count
    if has_feature(context, "avx2"):
        name = "llvm.x86.avx2.pmadd.wd"
        function = ir.FunctionType(ir.VectorType(I32, n // 2), [vector.type, vector.type])
        return builder.call(cgutils.get_or_insert_function(builder.module, function, name), [vector, fill(I16, 1, n)])
    return add_neighbours(builder, builder.sext(vector, ir.VectorType(I32, n)))


def add_neighbours(builder, vector):
    """Return the sums of neighbouring lanes."""
    n, anything = vector.type.count, ir.Constant(vector.type, ir.Undefined)
    parts = [ir.Constant(ir.VectorType(I32, n // 2), list(range(first, n, 2))) for first in (0, 1)]
    return builder.add(*(builder.shuffle_vector(vector, anything, part) for part in parts))


@intrinsic
def find_reaching(context, products, coarse, ratio, weights, limit):
    """Return as a mask which of BLOCK rows reach a limit: (products + ratio * coarse) * weights, in float32.

    products, coarse, weights: addresses of int32, int32 and float32 (BLOCK,); ratio, limit: float32.
    """

    def generate(context, builder, signature, arguments):
        products, coarse, ratio, weights, limit = arguments
        lanes = ir.VectorType(F32, BLOCK)

        def convert(address):
            return builder.sitofp(load(builder, address, I32), lanes)

        scores = builder.fadd(convert(products), builder.fmul(convert(coarse), splat(builder, ratio)))
        scores = builder.fmul(scores, load(builder, weights, F32))
        return builder.bitcast(builder.fcmp_ordered(">=", scores, splat(builder, limit)), I64)

    i64, f32 = types.int64, types.float32
    return types.uint64(i64, i64, f32, i64, f32), generate
