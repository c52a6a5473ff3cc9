"""The dense component: inner products of a query with rows of small whole numbers, in LLVM's own vectors.

The values of a row take a byte in the first dimensions, half a byte in the next, and are zero in the rest (see
`storage.precisions`). Both kinds are widened in registers, 16 at a time, and multiplied with 16 values of the query.
Half bytes are first multiplied with a query of bytes, which is four times as fast: most rows need no more.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from cccf_index.kernels.block import I8, I16, I32, I64, cut, has_feature, join, load, splat
from cccf_index.kernels.decorators import INNER, ZERO, kernel
from cccf_index.kernels.limits import BLOCK, DENSE_STEP, DENSE_SUM, HALF_MIN, HALF_STEP, VALUE_MAX
from cccf_index.kernels.memory import find_query, lowest_bit, read, view_row, write
from cccf_index.kernels.stored import bias_scale, read_bias, read_run, read_weight

F32 = ir.FloatType()
OCTETS = 32  # bytes of half values that are multiplied at a time: so many may be read behind the last row
FLOAT_ERROR = 1e-5  # of an estimate in float32
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


@kernel
def has_dense(segment, group):
    """Whether the rows of a group have a dense component."""
    return read(segment.precisions, 2 * group, np.int64) + read(segment.precisions, 2 * group + 1, np.int64) > 0


@kernel
def locate_dense(segment, group, place):
    """Return the address of the values of a group's row, its bytes, and how many dimensions take 8 and 4 bits."""
    n_full = read(segment.precisions, 2 * group, np.int64)
    n_half = read(segment.precisions, 2 * group + 1, np.int64)
    size = n_full + n_half // 2
    start = segment.dense_octets + read(segment.dense_starts, group, np.int64)
    return start + place * size, size, n_full, n_half


@kernel
def read_dense_weight(segment, group, place, number):
    """Return the weight of the dense component of a group's row."""
    place += read(segment.dense_bases, group, np.int64)
    return read_weight(segment.dense_weights, place, segment.dense_weight_size, segment.float_weights, number)


@kernel
def prepare_dense_code(segment, call, q, i, number):
    """Prepare the dense component of coded query q at place i of the tile; return its length.

    Filled are its values as int16, its part of `vector`, and in the query's record what a product is worth.
    """
    query, n, d = find_query(call, i), call.n_dense, segment.n_components * call.n_bits
    # in integers, the others' weights are finer by the factor by which items' dense weights are
    weight = np.float64(read(call.weights, q * call.n_weights + segment.n_components, number)) / segment.dense_unit
    square = 0.0
    for j in range(n):
        value = read(call.dense, q * n + j, np.int8)
        write(call.dense_values, i * n + j, np.int16(value))
        size = weight * value / read(segment.dense_metric, j, np.float32)
        write(call.vector, d + j, np.float32(size))
        square += size * size
    query.dense_step, query.dense_slip = weight * segment.dense_unit, 0.0
    query.coarse_ratio, query.coarse_slip = 1.0, 0.0
    round_coarsely(segment, call, i, 1.0)
    return np.sqrt(square)


@kernel
def prepare_dense_vector(segment, call, q, i):
    """Prepare the dense component of real-valued query q at place i of the tile; see `prepare_dense_code`."""
    query, n, d = find_query(call, i), call.n_dense, segment.n_components * call.n_bits
    values = view_row(call.vectors + 4 * (q * (d + n) + d), ZERO, n, np.float32)
    peak, square, off = 0.0, 0.0, 0.0
    for j in range(n):
        peak = max(peak, np.float64(abs(values[j])))
    most = np.float64(min(DENSE_SUM // ((VALUE_MAX + 1) * n), 2**15 - 1))
    step = peak / most
    for j in range(n):
        rounded, metric = np.rint(values[j] / step) if step > 0 else 0.0, read(segment.dense_metric, j, np.float32)
        write(call.dense_values, i * n + j, np.int16(rounded))
        size = np.float64(values[j]) / metric
        write(call.vector, d + j, np.float32(size))
        square += size * size
        off += (size - step * rounded / metric) ** 2
    query.dense_step, query.dense_slip = step * segment.dense_unit, np.sqrt(off)
    query.coarse_ratio = most / VALUE_MAX
    query.coarse_slip = step * np.sqrt(round_coarsely(segment, call, i, most / VALUE_MAX)) + query.dense_slip
    return np.sqrt(square)


@kernel
def round_coarsely(segment, call, i, ratio):
    """Round the int16 values of the query at place i of the tile to bytes, 1 of which is worth `ratio` of them.

    Return the square of what they are off by. Filled are also the sums up to each block of dimensions.
    """
    n, half, off, total = call.n_dense, DENSE_STEP // 2, 0.0, 0
    for block in range(n // DENSE_STEP):
        write(call.coarse_sums, i * (n // DENSE_STEP + 1) + block, np.int32(total))
        for j in range(DENSE_STEP):
            value = np.float64(read(call.dense_values, i * n + block * DENSE_STEP + j, np.int16))
            rounded = np.rint(value / ratio)
            metric = read(segment.dense_metric, block * DENSE_STEP + j, np.float32)
            off += ((value - ratio * rounded) / metric) ** 2
            place = i * n + block * half + j
            write(call.coarse_values, place if j < half else place - half + n // 2, np.int8(rounded))
            total += np.int64(rounded)
    write(call.coarse_sums, i * (n // DENSE_STEP + 1) + n // DENSE_STEP, np.int32(total))
    return off


@kernel
def multiply_all(n, row, stride, query, n_full, n_half, out):
    """Write to `out`, int32, the products of n rows with a query of int16."""
    for j in range(0, n - 3, 4):
        multiply_four(row + j * stride, stride, query, n_full, n_half, out + 4 * j)
    for j in range(n - n % 4, n):
        write(out, j, multiply_rounded(row + j * stride, query, n_full, n_half))


@kernel
def multiply_all_coarsely(n, row, stride, query, n_half, far, out):
    """Write to `out`, int32, the sums of n rows of half bytes with bytes of a query."""
    for j in range(0, n - 3, 4):
        multiply_four_coarsely(row + j * stride, stride, query, n_half, far, out + 4 * j)
    for j in range(n - n % 4, n):
        write(out, j, multiply_coarse(row + j * stride, query, n_half, far))


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


@kernel
def fill_integers(address, n, value):
    """Set n int32 at an address."""
    for j in range(n):
        write(address, j, np.int32(value))


# O(n_full + n_half / 2) bytes read for each row. Invariant: no estimate of a row in the mask is off by more than
# `dense_slip` times the length of the longest; all rows are in it that may reach the limit.
@kernel
def estimate_block(group, first, n, limit, length, segment, call, q, i):
    """Fill `block_scores`, as float64, with estimates of the best of n rows of a group; return a mask of these.

    They are those that may reach a limit without their biases; the estimates include them. first: place of the first
    row in the group; length: of the longest row.
    """
    query, n_dense = find_query(call, i), call.n_dense
    row, size, n_full, n_half = locate_dense(segment, group, first)
    values, step, slip = call.dense_values + 2 * i * n_dense, query.dense_step, query.dense_slip
    products, coarse, ratio = call.sketches, call.sketches + 4 * BLOCK, np.float64(0)
    if n_full > 0:
        multiply_all(n, row, size, values, n_full, ZERO, products)
    else:
        fill_integers(products, BLOCK, ZERO)
    if n_half > 0:
        slip, ratio = query.coarse_slip, query.coarse_ratio * HALF_STEP
        sums = call.coarse_sums + 4 * (i * (n_dense // DENSE_STEP + 1) + n_full // DENSE_STEP)
        offset = HALF_MIN * (read(sums, n_half // DENSE_STEP, np.int32) - read(sums, ZERO, np.int32))
        own = call.coarse_values + i * n_dense + n_full // 2
        multiply_all_coarsely(n, row + n_full, size, own, n_half, n_dense // 2, coarse)
        for j in range(n):
            write(coarse, j, np.int32(read(coarse, j, np.int32) + offset))
    else:
        fill_integers(coarse, BLOCK, ZERO)
    weights = view_row(call.block_weights, ZERO, BLOCK, np.float32)
    place = read(segment.dense_bases, group, np.int64) + first
    read_run(segment.dense_weights, place, n, segment.dense_weight_size, segment.float_weights, weights)
    reach = limit - (slip + FLOAT_ERROR * query.dense_norm) * length - FLOAT_ERROR * abs(limit)
    reach = min(max(reach / step, -3e38), 3e38) if step > 0 else -np.inf
    found = find_reaching(products, coarse, np.float32(ratio), call.block_weights, np.float32(reach))
    found &= ~np.uint64(0) >> np.uint64(BLOCK - n)
    left, limit = np.uint64(0), limit - query.dense_slip * length
    while found:
        j = np.int64(lowest_bit(found))
        found &= found - np.uint64(1)
        product = np.float64(read(products, j, np.int32)) + ratio * np.float64(read(coarse, j, np.int32))
        if slip > query.dense_slip:
            product = np.float64(multiply_rounded(row + j * size, values, n_full, n_half))
        score = product * step * np.float64(weights[j])
        if score >= limit:
            left |= np.uint64(1) << np.uint64(j)
            if segment.bias != 0:
                at = read(segment.starts, group, np.int64) + first + j
                score += read_bias(segment, at) * np.float64(bias_scale(call, q))
            write(call.block_scores, j, score)
    return left


def score_dense(place: int, group: int, segment: Any, call: Any, q: int, i: int, number: Any, real: Any) -> Any:
    """Return what the dense component adds to the score of a group's row, for query q at place i of the tile."""


@overload(score_dense, jit_options=INNER)
def pick_score_dense(place, group, segment, call, q, i, number, real):
    """Pick the coded or the real-valued variant at compile time."""

    def score_coded(place, group, segment, call, q, i, number, real):
        row, _, n_full, n_half = locate_dense(segment, group, place)
        weight = read(call.weights, q * call.n_weights + segment.n_components, number)
        product = multiply_rounded(row, call.dense_values + 2 * i * call.n_dense, n_full, n_half)
        return weight * read_dense_weight(segment, group, place, number) * number(product)

    def score_real(place, group, segment, call, q, i, number, real):
        row, _, n_full, n_half = locate_dense(segment, group, place)
        d, n = segment.n_components * call.n_bits, call.n_dense
        product = multiply_exact(row, call.vectors + 4 * (q * (d + n) + d), n_full, n_half)
        weight = read_dense_weight(segment, group, place, np.float32) * np.float32(segment.dense_unit)
        return weight * product

    return score_coded if isinstance(real, types.NoneType) else score_real
