"""Inner products of strips of 16 rows of small whole numbers with a query, in LLVM's own vectors.

`storage.precisions` says how values are stored. A register holds bytes of 16 rows, four of each, and another one four
values of a query, 16 times: one to three instructions multiply them and sum the products of each row. Single rows are
put together from their strip and multiplied exactly.
"""

from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cccf_index.kernels.block import I8, I16, I32, I64, cut, has_feature, join, load, splat
from cccf_index.kernels.levels import LEVELS, Level
from cccf_index.kernels.limits import BLOCK, DENSE_STEP, LONGEST_RUN, QUAD, STRIP, TOGETHER, VALUE_MAX

F32 = ir.FloatType()
PIECE = QUAD * STRIP  # bytes of a strip that are read at a time
AT_ONCE = 2  # registers of rows that are multiplied with each quad of a query
UNROLLED = DENSE_STEP // QUAD  # quads of dimensions: a run has whole steps
# Instructions by feature, the widest first: bytes; LLVM's names of that which multiplies unsigned with signed bytes and
# sums neighbours, and of that which does the same with 16-bit lanes.
PRODUCTS = (
    ("avx512bw", 64, "llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512"),
    ("avx2", 32, "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"),
    ("ssse3", 16, "llvm.x86.ssse3.pmadd.ub.sw.128", "llvm.x86.sse2.pmadd.wd"),
)
# Estimates round queries to whole numbers up to VALUE_MAX or, if the sum of two products must fit 16 bits, to this.
SMALL_VALUE_MAX = 63
assert 2 * 255 * SMALL_VALUE_MAX < 2**15
assert 2 * LONGEST_RUN * UNROLLED * 15 * SMALL_VALUE_MAX < 2**15  # of numbers of 4 bits or fewer, a run fits as well


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


@intrinsic
def coarse_value_max(context):
    """Return the largest value of a rounded query, as float32."""

    def generate(context, builder, signature, arguments):
        return F32(VALUE_MAX if has_feature(context, "avx512vnni") else SMALL_VALUE_MAX)

    return types.float32(), generate


def find_width(context):
    """Return how many bytes of a strip are multiplied at a time: a register, or four rows."""
    return next((size for feature, size, *_ in PRODUCTS if has_feature(context, feature)), QUAD * 4)


class Sums:
    """Sums of products for some rows, a vector that a loop adds to; LLVM keeps it in a register.

    They have 16-bit lanes, two for a row, where small numbers allow it, else 32-bit lanes.
    """

    def __init__(self, context, builder, width, bits):
        self.context, self.builder = context, builder
        self.has_vnni = has_feature(context, "avx512vnni")
        is_narrow = bits < 8 and not self.has_vnni
        zeros = fill(I16, 0, width // 2) if is_narrow else fill(I32, 0, width // QUAD)
        self.place = cgutils.alloca_once(builder, zeros.type)
        builder.store(zeros, self.place)

    def add(self, value):
        """Add a vector."""
        self.builder.store(self.builder.add(self.builder.load(self.place), value), self.place)

    def add_products(self, octets, values):
        """Add the products of unsigned with signed bytes, of a quad for each row."""
        if self.has_vnni:
            sums = self.builder.load(self.place)
            name, kind = "llvm.x86.avx512.vpdpbusd.512", ir.FunctionType(sums.type, [sums.type] * 3)
            function = cgutils.get_or_insert_function(self.builder.module, kind, name)
            factors = (self.builder.bitcast(vector, sums.type) for vector in (octets, values))
            self.builder.store(self.builder.call(function, [sums, *factors]), self.place)
        else:
            pairs = multiply_pairs(self.context, self.builder, octets, values)
            is_narrow = self.place.type.pointee == pairs.type
            self.add(pairs if is_narrow else self._widen(pairs))

    def get(self):
        """Return the sums in 32-bit lanes."""
        sums = self.builder.load(self.place)
        return sums if sums.type.element == I32 else self._widen(sums)

    def _widen(self, pairs):
        return sum_pairs(self.context, self.builder, pairs, fill(I16, 1, pairs.type.count))


def unpack_step(builder, address, fold, quad, width):
    """Return the quads of a step as vectors of unsigned bytes; quad: number of the first in its level.

    address: of those bytes of the level's first piece that hold the rows.
    """
    n, bits, kind = 1 << fold, 8 >> fold, ir.VectorType(I8, width)
    first, pieces = builder.mul(builder.lshr(quad, I64(fold)), I64(PIECE)), -(-UNROLLED // n)
    stored = [load(builder, builder.add(address, builder.add(first, I64(PIECE * i))), I8, width) for i in range(pieces)]
    if fold == 0:
        return stored
    stored = [builder.bitcast(part, ir.VectorType(I16, width // 2)) for part in stored]  # no shifts of bytes
    if n > UNROLLED:  # a piece holds two steps
        shift = builder.mul(builder.and_(quad, I64(n - 1)), I64(bits))
        stored = [builder.lshr(stored[0], repeat(builder, builder.trunc(shift, I16), width // 2))]
    shifts = [fill(I16, bits * (i % n), width // 2) for i in range(UNROLLED)]
    moved = [builder.lshr(stored[i // n], shift) for i, shift in enumerate(shifts)]
    return [builder.and_(builder.bitcast(part, kind), fill(I8, 2**bits - 1, width)) for part in moved]


def repeat_quad(builder, address, width):
    """Return the four bytes of a query at an address, for each row of a register."""
    return builder.bitcast(repeat(builder, load_one(builder, address, I32), width // QUAD), ir.VectorType(I8, width))


def read_field(builder, record, kind, name):
    """Return a field of a record as int64; kind: its type."""
    field = I64 if kind.typeof(name) == types.int64 else I32
    value = builder.load(cgutils.get_record_member(builder, record, kind.offset(name), field))
    return value if field == I64 else builder.sext(value, I64)


class QueryLane(NamedTuple):
    """Addresses of what the products of one query with a run need."""

    values: ir.Value  # its values in the run
    factor: ir.Value
    offset: ir.Value
    totals: ir.Value

    def add(self, builder, products, row, is_first):
        """Add the products with rows from `row` on to the totals or, if the run is the first, set them."""
        n, address = products.type.count, builder.add(self.totals, builder.mul(row, I64(4)))
        factor, offset = (repeat(builder, load_one(builder, place, F32), n) for place in (self.factor, self.offset))
        known = builder.select(is_first, fill(F32, 0.0, n), load(builder, address, F32, n))
        products = builder.sitofp(products, ir.VectorType(F32, n))
        store(builder, fuse(builder, products, factor, builder.fadd(known, offset)), address)


def _make_add_run(n_queries):
    """Return an intrinsic for some queries."""

    def add_run(context, call, run, number, n_runs, strips, size, n_strips, places, is_first):
        call_kind, run_kind = call, run

        def generate(context, builder, signature, arguments):
            call, run, number, n_runs, strips, size, n_strips, places, is_first = arguments
            fields = ("dense_values", "n_dense", "dense_factors", "dense_offsets", "dense_totals")
            values, n_dense, factors, offsets, totals = (read_field(builder, call, call_kind, name) for name in fields)
            fields = ("offset", "fold", "first", "n", "dimension")
            offset, fold, first, n, dimension = (read_field(builder, run, run_kind, name) for name in fields)
            width, is_first = find_width(context), builder.icmp_signed("!=", is_first, I64(0))
            n_rows, most, last = width // QUAD, builder.mul(n_strips, I64(STRIP)), builder.sub(n_strips, I64(1))
            strips = builder.add(strips, offset)

            def find_lane(place):
                own = builder.mul(builder.add(builder.mul(place, n_runs), number), I64(4))
                value = builder.add(values, builder.add(builder.mul(place, n_dense), dimension))
                total = builder.add(totals, builder.mul(place, I64(4 * BLOCK)))
                return QueryLane(value, builder.add(factors, own), builder.add(offsets, own), total)

            def find_rows(row):
                strip = smaller(builder, builder.udiv(row, I64(STRIP)), last)
                inside = builder.mul(builder.urem(row, I64(STRIP)), I64(QUAD))
                return builder.add(strips, builder.add(builder.mul(size, strip), inside))

            def add_quads(fold, rows):
                parts = [[Sums(context, builder, width, 8 >> fold) for _ in rows] for _ in queries]
                with cgutils.for_range_slice(builder, I64(0), n, I64(UNROLLED)) as (quad, _):
                    octets = [unpack_step(builder, row, fold, builder.add(first, quad), width) for row in rows]
                    for number in range(UNROLLED):
                        dimension = builder.mul(builder.add(quad, I64(number)), I64(QUAD))
                        for query, line in zip(queries, parts, strict=True):
                            own = repeat_quad(builder, builder.add(query.values, dimension), width)
                            for part, quads in zip(line, octets, strict=True):
                                part.add_products(quads[number], own)
                return [[part.get() for part in line] for line in parts]

            def add_level(fold):
                with cgutils.for_range_slice(builder, I64(0), most, I64(n_rows * AT_ONCE)) as (row, _):
                    rows = [builder.add(row, I64(n_rows * i)) for i in range(AT_ONCE)]
                    sums = add_quads(fold, [find_rows(row) for row in rows])
                    for query, line in zip(queries, sums, strict=True):
                        for row, own in zip(rows, line, strict=True):
                            query.add(builder, own, row, is_first)

            chosen = (load_one(builder, builder.add(places, I64(8 * i)), I64) for i in range(n_queries))
            queries = [find_lane(place) for place in chosen]
            end = builder.append_basic_block("end")
            switch = builder.switch(fold, end)
            for fold in range(len(LEVELS)):
                block = builder.append_basic_block(f"fold{fold}")
                switch.add_case(I64(fold), block)
                builder.position_at_end(block)
                add_level(fold)
                builder.branch(end)
            builder.position_at_end(end)
            return context.get_dummy_value()

        return types.void(call, run, *[types.int64] * 7), generate

    add_run.__doc__ = f"""Add to the totals of {n_queries} queries their products with BLOCK rows, in one run.

    call, run: records of `calls` and `levels`; number: of the run, of `n_runs` of the segment. Addresses: strips, the
    first of up to four, each of `size` bytes: where there are fewer, totals of the others mean nothing; places: int64
    ({n_queries},), of the queries in the tables of the call. If `is_first`, the totals are set.
    """
    return intrinsic(add_run)


# 4 * n dimensions of 64 rows for each query: a register of rows is unpacked once for all queries. Invariant: no product
# leaves its lanes; see the assertions above.
add_run_to_one, add_run_to_several = _make_add_run(1), _make_add_run(TOGETHER)


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
