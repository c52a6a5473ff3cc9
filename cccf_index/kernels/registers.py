"""LLVM's vectors: what intrinsics that multiply small whole numbers share."""

from llvmlite import ir
from numba.core import cgutils

from cccf_index.kernels.block import I16, I32, cut, has_feature, join

F32 = ir.FloatType()
# Instructions by feature, the widest first: bytes; LLVM's names of that which multiplies unsigned with signed bytes and
# sums neighbours, and of that which does the same with 16-bit lanes.
PRODUCTS = (
    ("avx512bw", 64, "llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512"),
    ("avx2", 32, "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"),
    ("ssse3", 16, "llvm.x86.ssse3.pmadd.ub.sw.128", "llvm.x86.sse2.pmadd.wd"),
)


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


def smaller(builder, a, b):
    """Return the smaller of two numbers."""
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def fuse(builder, left, right, total):
    """Return ``left * right + total``, rounded once where the processor can."""
    name = f"llvm.fmuladd.v{left.type.count}f32"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(left.type, [left.type] * 3), name)
    return builder.call(function, [left, right, total])
