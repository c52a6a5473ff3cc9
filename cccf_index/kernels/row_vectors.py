"""Inner loops of encoding in LLVM's own vectors: products of a few rows with a matrix, and small systems of many rows.

Each element is summed in one order, whatever rows are computed with it, so a row's result does not depend on the batch.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cccf_index.kernels.block import has_feature

LANES = 16  # columns of a vector; rows of matrices are padded to multiples of it
TILE = 8  # rows that are encoded at a time

I16, I32, I64 = (ir.IntType(width) for width in (16, 32, 64))
FLOAT, DOUBLE = ir.FloatType(), ir.DoubleType()
COLUMNS, SYSTEMS = ir.VectorType(FLOAT, LANES), ir.VectorType(DOUBLE, TILE)


def splat(builder, value, vector):
    """Return a vector of equal lanes."""
    anything = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(anything, value, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, anything, ir.Constant(ir.VectorType(I32, vector.count), [0] * vector.count))


def point(builder, address, place, kind):
    """Return a pointer to a place of the array of a kind at an address."""
    return builder.gep(builder.inttoptr(address, kind.as_pointer()), [place])


def load_lanes(builder, address, place, vector):
    """Return the vector that begins at a place, counted in elements, of an array; it need not be aligned."""
    pointer = builder.bitcast(point(builder, address, place, vector.element), vector.as_pointer())
    return builder.load(pointer, align=4 if vector.element == FLOAT else 8)


def store_lanes(builder, value, address, place):
    """Store a vector at a place, counted in elements, of an array."""
    pointer = builder.bitcast(point(builder, address, place, value.type.element), value.type.as_pointer())
    builder.store(value, pointer, align=4 if value.type.element == FLOAT else 8)


def multiply_add(builder, x, y, z):
    """Return ``x * y + z``, rounded once where the processor can."""
    name = f"llvm.fmuladd.v{x.type.count}{'f32' if x.type.element == FLOAT else 'f64'}"
    kind = ir.FunctionType(x.type, [x.type] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [x, y, z])


def _make_multiply(n_rows):
    """Return an intrinsic that multiplies `n_rows` rows by a matrix.

    Sums of so many columns at a time are kept in registers that they fill half of them: enough to hide how long an
    addition takes, and there is room for the columns.
    """

    def multiply(context, x, x_step, matrix, step, n, out, out_step, width):
        def generate(context, builder, signature, arguments):
            x, x_step, matrix, step, n, out, out_step, width = arguments
            # AVX-512 has 32 registers of a whole vector, AVX2 16 of half a one
            n_vectors = (8 if has_feature(context, "avx512f") else 4) // n_rows
            sums = [[cgutils.alloca_once(builder, COLUMNS) for _ in range(n_vectors)] for _ in range(n_rows)]

            def multiply_columns(column, n_vectors):
                places = [builder.add(column, ir.Constant(I64, LANES * vector)) for vector in range(n_vectors)]
                for row in range(n_rows):
                    for vector in range(n_vectors):
                        builder.store(ir.Constant(COLUMNS, [0.0] * LANES), sums[row][vector])
                with cgutils.for_range(builder, n) as inner:
                    line = builder.mul(inner.index, step)
                    columns = [load_lanes(builder, matrix, builder.add(line, place), COLUMNS) for place in places]
                    for row in range(n_rows):
                        place = builder.add(builder.mul(x_step, ir.Constant(I64, row)), inner.index)
                        value = splat(builder, builder.load(point(builder, x, place, FLOAT)), COLUMNS)
                        for total, part in zip(sums[row], columns, strict=False):
                            builder.store(multiply_add(builder, value, part, builder.load(total)), total)
                for row in range(n_rows):
                    for total, place in zip(sums[row], places, strict=False):
                        line = builder.mul(out_step, ir.Constant(I64, row))
                        store_lanes(builder, builder.load(total), out, builder.add(line, place))

            step_wide = ir.Constant(I64, n_vectors * LANES)
            whole = builder.sub(width, builder.srem(width, step_wide))
            with cgutils.for_range_slice(builder, ir.Constant(I64, 0), whole, step_wide) as (column, _):
                multiply_columns(column, n_vectors)
            if n_vectors > 1:
                with cgutils.for_range_slice(builder, whole, width, ir.Constant(I64, LANES)) as (column, _):
                    multiply_columns(column, 1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), generate

    multiply.__doc__ = f"""Set {n_rows} rows of `out` to ``x @ matrix``; both matrices are float32, by address.

    x: ({n_rows}, n); matrix: (n, width); out: ({n_rows}, width); rows begin `x_step`, `step` and `out_step` elements
    after one another. `width` is a multiple of LANES.
    """
    return intrinsic(multiply)


multiply_four, multiply_one = _make_multiply(4), _make_multiply(1)


@intrinsic
def add_chosen(context, out, base, sizes, places, n, matrix, step):
    """Set LANES values of `out` to those of `base` plus ``sum_j sizes[j] * matrix[places[j]]`` over n rows of a matrix.

    By address: out, base: float32 (LANES,); sizes: float32 (n,); places: int32 (n,); matrix: float32, from the first of
    its columns that are added; its rows begin `step` elements after one another.
    """

    def generate(context, builder, signature, arguments):
        out, base, sizes, places, n, matrix, step = arguments
        zero, total = ir.Constant(I64, 0), cgutils.alloca_once(builder, COLUMNS)
        builder.store(load_lanes(builder, base, zero, COLUMNS), total)
        with cgutils.for_range(builder, n) as inner:
            row = builder.sext(builder.load(point(builder, places, inner.index, I32)), I64)
            columns = load_lanes(builder, matrix, builder.mul(row, step), COLUMNS)
            size = splat(builder, builder.load(point(builder, sizes, inner.index, FLOAT)), COLUMNS)
            builder.store(multiply_add(builder, size, columns, builder.load(total)), total)
        store_lanes(builder, builder.load(total), out, zero)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), generate


@intrinsic
def add_to_both(context, line, x, x_size, y, y_size, width):
    """Add ``x_size * line`` to x and ``y_size * line`` to y; float32 (width,), by address; `width` is as above."""

    def generate(context, builder, signature, arguments):
        line, x, x_size, y, y_size, width = arguments
        sizes = [splat(builder, size, COLUMNS) for size in (x_size, y_size)]
        with cgutils.for_range_slice(builder, ir.Constant(I64, 0), width, ir.Constant(I64, LANES)) as (column, _):
            columns = load_lanes(builder, line, column, COLUMNS)
            for target, size in zip((x, y), sizes, strict=True):
                value = multiply_add(builder, size, columns, load_lanes(builder, target, column, COLUMNS))
                store_lanes(builder, value, target, column)
        return context.get_dummy_value()

    i64, f32 = types.int64, types.float32
    return types.void(i64, i64, f32, i64, f32, i64), generate


@intrinsic
def find_above(context, x, y, limits, place):
    """Return as bits in which of LANES places from `place` on ``x * y > limit``; all float32, by address."""

    def generate(context, builder, signature, arguments):
        x, y, limits, place = arguments
        product = builder.fmul(load_lanes(builder, x, place, COLUMNS), load_lanes(builder, y, place, COLUMNS))
        above = builder.fcmp_ordered(">", product, load_lanes(builder, limits, place, COLUMNS))
        return builder.zext(builder.bitcast(above, ir.IntType(LANES)), I64)

    return types.uint64(*[types.int64] * 4), generate


# n^3 / 6 vector operations; rows of a tile do not touch each other
@intrinsic
def solve_tile(context, matrix, n, pivots, out):
    """Solve TILE symmetric systems of n unknowns, by elimination without exchanges.

    By address, all float64 with TILE systems side by side: matrix: (n, n + 1, TILE), of which the upper triangle and
    the right sides, the last column, are read, and overwritten; pivots: (n, TILE), to be checked by the caller:
    one that is not above zero counts as 1; out: (n, TILE), the solutions.
    """

    def generate(context, builder, signature, arguments):
        matrix, n, pivots, out = arguments
        one, tile = ir.Constant(I64, 1), ir.Constant(I64, TILE)
        ones, zeros = (ir.Constant(SYSTEMS, [value] * TILE) for value in (1.0, 0.0))
        columns = builder.add(n, one)

        def place(row, column):
            return builder.mul(builder.add(builder.mul(row, columns), column), tile)

        def read(row, column):
            return load_lanes(builder, matrix, place(row, column), SYSTEMS)

        inverse, total = (cgutils.alloca_once(builder, SYSTEMS) for _ in range(2))

        def invert(row):
            pivot = read(row, row)
            good = builder.select(builder.fcmp_ordered(">", pivot, zeros), pivot, ones)
            builder.store(builder.fdiv(ones, good), inverse)
            return pivot

        with cgutils.for_range(builder, n) as outer:
            top = outer.index
            store_lanes(builder, invert(top), pivots, builder.mul(top, tile))
            with cgutils.for_range(builder, n, builder.add(top, one)) as lower:
                row = lower.index
                factor = builder.fneg(builder.fmul(read(top, row), builder.load(inverse)))
                with cgutils.for_range(builder, columns, row) as across:
                    column = across.index
                    value = multiply_add(builder, factor, read(top, column), read(row, column))
                    store_lanes(builder, value, matrix, place(row, column))
        with cgutils.for_range(builder, n) as outer:
            row = builder.sub(builder.sub(n, one), outer.index)
            invert(row)
            builder.store(read(row, n), total)
            with cgutils.for_range(builder, n, builder.add(row, one)) as across:
                found = load_lanes(builder, out, builder.mul(across.index, tile), SYSTEMS)
                builder.store(
                    multiply_add(builder, builder.fneg(read(row, across.index)), found, builder.load(total)), total
                )
            store_lanes(builder, builder.fmul(builder.load(total), builder.load(inverse)), out, builder.mul(row, tile))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate
