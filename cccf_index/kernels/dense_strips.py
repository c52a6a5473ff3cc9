"""Inner products of strips of 16 rows of small whole numbers with rounded queries, in LLVM's own vectors.

`storage.precisions` says how values are stored. A register holds bytes of up to 16 rows, four of each, and another one
four values of a query as often: one to three instructions multiply them and sum the products of each row.
"""

from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cccf_index.kernels.block import I8, I16, I32, I64, has_feature, load, splat
from cccf_index.kernels.levels import LEVELS
from cccf_index.kernels.limits import BLOCK, DENSE_STEP, LONGEST_RUN, PIECE, QUAD, STRIP, TOGETHER, VALUE_MAX
from cccf_index.kernels.registers import (
    F32,
    PRODUCTS,
    fill,
    fuse,
    load_one,
    multiply_pairs,
    repeat,
    smaller,
    store,
    sum_pairs,
)

# By number of queries: registers of rows that are multiplied with each quad, and sums for each of them, which are added
# up in the end. So many sums in turn hide how long one instruction takes.
AT_ONCE = {1: (4, 2), TOGETHER: (2, 1)}
UNROLLED = DENSE_STEP // QUAD  # quads of dimensions: a run has whole steps
# Estimates round queries to whole numbers up to VALUE_MAX or, if the sum of two products must fit 16 bits, to this.
SMALL_VALUE_MAX = 63
assert 2 * 255 * SMALL_VALUE_MAX < 2**15
assert 2 * LONGEST_RUN * UNROLLED * 15 * SMALL_VALUE_MAX < 2**15  # of numbers of 4 bits or fewer, a run fits as well


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

    def __init__(self, context, builder, width, bits, n_sums):
        self.context, self.builder = context, builder
        self.has_vnni = has_feature(context, "avx512vnni")
        self.is_narrow = bits < 8 and not self.has_vnni
        zeros = fill(I16, 0, width // 2) if self.is_narrow else fill(I32, 0, width // QUAD)
        self.places = [cgutils.alloca_once(builder, zeros.type) for _ in range(n_sums)]
        for place in self.places:
            builder.store(zeros, place)

    def add_products(self, octets, values, number):
        """Add the products of unsigned with signed bytes, of a quad for each row; number: of the quad."""
        place = self.places[number % len(self.places)]
        builder, sums = self.builder, self.builder.load(place)
        if self.has_vnni:
            name, kind = "llvm.x86.avx512.vpdpbusd.512", ir.FunctionType(sums.type, [sums.type] * 3)
            function = cgutils.get_or_insert_function(builder.module, kind, name)
            sums = builder.call(function, [sums, *(builder.bitcast(vector, sums.type) for vector in (octets, values))])
        else:
            pairs = multiply_pairs(self.context, builder, octets, values)
            sums = builder.add(sums, pairs if self.is_narrow else self._widen(pairs))
        builder.store(sums, place)

    def get(self):
        """Return the sums in 32-bit lanes."""
        sums, *others = (self.builder.load(place) for place in self.places)
        for other in others:
            sums = self.builder.add(sums, other)
        return self._widen(sums) if self.is_narrow else sums

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
    """Return an intrinsic that multiplies a run of BLOCK rows with so many queries."""
    n_at_once, n_sums = AT_ONCE[n_queries]

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
                parts = [[Sums(context, builder, width, 8 >> fold, n_sums) for _ in rows] for _ in queries]
                with cgutils.for_range_slice(builder, I64(0), n, I64(UNROLLED)) as (quad, _):
                    octets = [unpack_step(builder, row, fold, builder.add(first, quad), width) for row in rows]
                    for number in range(UNROLLED):
                        dimension = builder.mul(builder.add(quad, I64(number)), I64(QUAD))
                        for query, line in zip(queries, parts, strict=True):
                            own = repeat_quad(builder, builder.add(query.values, dimension), width)
                            for part, quads in zip(line, octets, strict=True):
                                part.add_products(quads[number], own, number)
                return [[part.get() for part in line] for line in parts]

            def add_level(fold):
                with cgutils.for_range_slice(builder, I64(0), most, I64(n_rows * n_at_once)) as (row, _):
                    rows = [builder.add(row, I64(n_rows * i)) for i in range(n_at_once)]
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


@intrinsic
def find_reaching(context, totals, weights, limit):
    """Return as a mask which of BLOCK rows reach a limit, float32: totals * weights, addresses of float32 (BLOCK,)."""

    def generate(context, builder, signature, arguments):
        totals, weights, limit = arguments
        scores = builder.fmul(*(load(builder, address, F32) for address in (totals, weights)))
        return builder.bitcast(builder.fcmp_ordered(">=", scores, splat(builder, limit)), I64)

    return types.uint64(types.int64, types.int64, types.float32), generate
