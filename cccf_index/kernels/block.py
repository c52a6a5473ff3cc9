"""The innermost loop of a search, in LLVM's own vectors: estimates of 64 scores at a time, all in registers.

numba has no vectors, and what its loops become depends on what the compiler recognises. LLVM turns these into the
widest instructions of any processor. Only the lookup of 16 bytes in a register has no word in LLVM's language: its
instruction is chosen by processor, when the kernel is compiled.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cccf_index.kernels.limits import BLOCK

# Instructions that look up each byte of a register in a table of 16, the widest first: feature, LLVM's name, bytes,
# and the name of the instruction that sums neighbouring bytes, if there is one.
LOOKUPS = (
    ("avx2", "llvm.x86.avx2.pshuf.b", 32, "llvm.x86.avx2.pmadd.ub.sw"),
    ("ssse3", "llvm.x86.ssse3.pshuf.b.128", 16, "llvm.x86.ssse3.pmadd.ub.sw.128"),
    ("neon", "llvm.aarch64.neon.tbl1.v16i8", 16, None),
)

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


def load(builder, address, kind, n=BLOCK):
    """Return the n values at an address."""
    size = 4 if isinstance(kind, ir.FloatType) else kind.width // 8
    return builder.load(builder.inttoptr(address, ir.VectorType(kind, n).as_pointer()), align=size)


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


def has_feature(context, feature):
    """Whether the processor that is compiled for has a feature, by LLVM's name."""
    return f"+{feature}" in context.codegen()._tm_features.split(",")


def find_lookup(context):
    """Return LLVM's name of the lookup that the processor has, its bytes and how to sum them; None if it has none."""
    return next((found for feature, *found in LOOKUPS if has_feature(context, feature)), None)


def apply_in_parts(builder, name, result, left, right):
    """Return what an instruction makes of two vectors of bytes, of which `right` is as long as it takes."""
    function_type = ir.FunctionType(result, [right.type, right.type])
    function = cgutils.get_or_insert_function(builder.module, function_type, name)
    size = right.type.count
    parts = [builder.call(function, [right, cut(builder, left, i, size)]) for i in range(0, left.type.count, size)]
    return join(builder, parts)


def counts_ones(context, width):
    """Whether codes of a word's width are compared by counting ones, rather than by `look_up_agreement`."""
    found = find_lookup(context)
    return width > 16 or found is None or found[2] is None or has_feature(context, "avx512bitalg")


# Where no instruction counts ones, LLVM looks them up for each half byte, and takes three more to sum those of a word.
def look_up_agreement(context, builder, differing):
    """Return in 16-bit lanes the zeros less the ones of words of 8 or 16 bits."""
    name, size, summing = find_lookup(context)
    word, kind = differing.type.element, ir.VectorType(I8, size)
    many = ir.VectorType(I8, BLOCK * word.width // 8)
    table = ir.Constant(kind, [4 - 2 * bin(v % 16).count("1") for v in range(size)])
    halves = [builder.bitcast(half, many) for half in (differing, builder.lshr(differing, equal(word, 4)))]
    halves = [builder.and_(half, ir.Constant(many, [15] * many.count)) for half in halves]
    sums = builder.add(*(apply_in_parts(builder, name, kind, half, table) for half in halves))
    if word.width == 8:
        return builder.sext(sums, lanes(I16))
    return apply_in_parts(builder, summing, ir.VectorType(I16, size // 2), sums, ir.Constant(kind, [1] * size))


def cut(builder, vector, first, n):
    """Return n lanes of a vector from lane `first` on."""
    places = ir.Constant(ir.VectorType(I32, n), list(range(first, first + n)))
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), places)


def join(builder, vectors):
    """Return the lanes of vectors, whose number is a power of two, one after the other."""
    while len(vectors) > 1:
        places = ir.Constant(ir.VectorType(I32, 2 * vectors[0].type.count), list(range(2 * vectors[0].type.count)))
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [builder.shuffle_vector(left, right, places) for left, right in pairs]
    return vectors[0]


def look_up(context, builder, table, places):
    """Return in 16-bit lanes the bytes of a table of 16, whose address is given, plus 2^8 times its first byte.

    places: numbers below 16 in 16-bit lanes. Their upper bytes are 0, so they look up the first byte: whoever uses the
    sum of many lookups knows what to take off.
    """
    found = find_lookup(context)
    if found is None:
        return look_up_one_by_one(builder, table, places)
    name, size, _ = found
    entries = load(builder, table, I8, 16)
    if size > 16:
        entries = builder.shuffle_vector(entries, entries, ir.Constant(ir.VectorType(I32, size), [*range(16)] * 2))
    octets = builder.bitcast(places, ir.VectorType(I8, 2 * BLOCK))
    return builder.bitcast(apply_in_parts(builder, name, entries.type, octets, entries), lanes(I16))


def look_up_one_by_one(builder, table, places):
    """Do as `look_up` on a processor that has no such instruction."""
    entries = builder.inttoptr(table, I8.as_pointer())

    def entry(place):
        return builder.zext(builder.load(builder.gep(entries, [place])), I16)

    upper = builder.shl(entry(ir.Constant(I64, 0)), ir.Constant(I16, 8))
    values = ir.Constant(lanes(I16), ir.Undefined)
    for lane in range(BLOCK):
        place = builder.zext(builder.extract_element(places, ir.Constant(I32, lane)), I64)
        values = builder.insert_element(values, builder.add(entry(place), upper), ir.Constant(I32, lane))
    return values


def sum_lookups(context, builder, tables, codes):
    """Return the sum of `look_up` over the half bytes of each code, the lowest first, each in a table of its own.

    tables: the address of the first; codes: a vector of words.
    """
    width, total = codes.type.element.width, None
    for first in range(0, width, 16):
        words = codes
        if first:
            words = builder.lshr(codes, equal(codes.type.element, first))
        if width != 16:
            words = builder.zext(words, lanes(I16)) if width < 16 else builder.trunc(words, lanes(I16))
        for shift in range(0, min(width, 16), 4):
            places = builder.lshr(words, equal(I16, shift)) if shift else words
            if shift + 4 < min(width, 16):
                places = builder.and_(places, equal(I16, 15))
            table = builder.add(tables, ir.Constant(I64, 16 * (first + shift) // 4))
            values = look_up(context, builder, table, places)
            total = values if total is None else builder.add(total, values)
    return total


# O(G * W) vector operations for codes, O(G * r) for vectors. Invariant: no sum leaves 16 bits; see `limits`.
@intrinsic
def sketch_block(context, segment, group, first, n_words, query, factors, offsets, shift, limit, sketches, word, real):
    """Sketch the rows `first` to `first + 63` of a group; return as a mask which reach at least `limit`.

    The *count* of a component is, for a code, how many more bits of its words agree with the query's than do not and,
    for a vector, the sum of what half bytes look up in its tables (see `sketches`). The sketch of a row is the sum of
    ``floor((factor * count + offset) * coarse * 2^shift / TERM_DIVISOR)`` over the components that query and group
    share.

    segment: record of `layout`; group, first, n_words: int64. Addresses: query, words (G, W), or of a vector uint8
    (G, half bytes of a code, 16); factors, offsets: int16 (G,); sketches: int16 (BLOCK,), which is filled. shift,
    limit: int16; word: the type of words; real: None for codes. Returns uint64, bit i for row ``first + i``.
    """
    kind = ir.IntType(word.dtype.bitwidth)
    is_code = isinstance(real, types.NoneType)

    def generate(context, builder, signature, arguments):
        segment, group, first, n_words, query, factors, offsets, shift, limit, sketches, _, _ = arguments
        record = signature.args[0]
        total, count = Accumulator(builder), Accumulator(builder)
        ones = is_code and counts_ones(context, kind.width)

        def field(name):
            place = cgutils.get_record_member(builder, segment, record.offset(name), I64)
            return builder.load(place)

        def item(address, place, kind=I64):
            return builder.load(builder.gep(builder.inttoptr(address, kind.as_pointer()), [place]))

        def count_word(k, number, codes):
            place = builder.add(builder.mul(k, n_words), number)
            if is_code:
                differing = builder.xor(codes, splat(builder, item(query, place, kind)))
                return count_ones(builder, differing) if ones else look_up_agreement(context, builder, differing)
            size = ir.Constant(I64, 16 * kind.width // 4)
            return sum_lookups(context, builder, builder.add(query, builder.mul(place, size)), codes)

        def count_component(k, slot):
            size = builder.mul(n_words, ir.Constant(I64, kind.width // 8))
            address = builder.add(item(shards, k), builder.mul(slot, size))
            if kind.width < 64:
                count.set(count_word(k, ir.Constant(I64, 0), load(builder, address, kind)))
                return
            with builder.if_else(builder.icmp_signed("==", n_words, ir.Constant(I64, 1))) as (alone, several):
                with alone:
                    count.set(count_word(k, ir.Constant(I64, 0), load(builder, address, kind)))
                with several:
                    count.set(equal(I16, 0))
                    with cgutils.for_range(builder, n_words) as number:
                        start = builder.add(address, builder.mul(number.index, ir.Constant(I64, 8)))
                        count.add(count_word(k, number.index, load_apart(builder, start, kind, n_words)))

        def add_component(k, factor, slot):
            count_component(k, slot)
            # These may overflow; the offset undoes it modulo 2^16.
            offset = item(offsets, k, I16)
            if ones:
                bits = builder.trunc(builder.mul(n_words, ir.Constant(I64, kind.width)), I16)
                offset = builder.add(offset, builder.mul(factor, bits))
                factor = builder.mul(factor, ir.Constant(I16, -2))
            agreement = builder.mul(count.value(), splat(builder, factor))
            agreement = builder.add(agreement, splat(builder, offset))
            weights = load(builder, builder.add(coarse, builder.add(item(bases, k), slot)), I8)
            weights = builder.mul(builder.zext(weights, lanes(I16)), scale)
            total.add(high_product(builder, agreement, weights))

        n_components, shards, bases, coarse = (field(n) for n in ("n_components", "shards", "bases", "coarse"))
        slots = builder.add(field("slots"), builder.mul(builder.mul(group, n_components), ir.Constant(I64, 8)))
        scale = splat(builder, builder.shl(ir.Constant(I16, 2**7), shift))  # * 2^7 / 2^16: / TERM_DIVISOR
        total.set(equal(I16, 0))
        with cgutils.for_range(builder, n_components) as component:
            k = component.index
            factor, slot = item(factors, k, I16), item(slots, k)
            is_weighted = builder.icmp_signed("!=", factor, ir.Constant(I16, 0))
            with builder.if_then(builder.and_(is_weighted, builder.icmp_signed(">=", slot, ir.Constant(I64, 0)))):
                add_component(k, factor, builder.add(slot, first))
        builder.store(total.value(), builder.inttoptr(sketches, lanes(I16).as_pointer()), align=2)
        return builder.bitcast(builder.icmp_signed(">=", total.value(), splat(builder, limit)), I64)

    i64, i16 = types.int64, types.int16
    return types.uint64(segment, i64, i64, i64, i64, i64, i64, i16, i16, i64, word, real), generate
