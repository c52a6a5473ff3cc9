"""Items at the head of probes' lists: 16-bit estimates of all scores, then exact scores of the few that may reach.

An item v is at the head of the list of probe u if ``<u, v>`` reaches the probe's threshold. Divided by both lengths,
that is ``cosine >= need / |v|`` with ``need = threshold / |u|``. Cosines are estimated from vectors that are scaled to
the length LENGTH and rounded: sums of integers, which are exact in any order. Probes stand by rising need, so an item
is compared only with those that its length may reach.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from cccf_index.kernels.decorators import training_entry, training_kernel
from cccf_index.kernels.linear_algebra import multiply_rows
from cccf_index.kernels.memory import address_of, lowest_bit, view_row
from cccf_index.kernels.row_vectors import COLUMNS, FLOAT, I16, I32, I64, LANES, load_lanes, point, splat

LENGTH = 32000  # of rounded vectors: no sum of products leaves 32 bits, nor a number 16
ITEMS = 4  # that are compared with a block of LANES probes at a time
BATCH = 32  # items that are compared with a block before the next one is loaded
SHORTEST = 1e-18  # of what vectors are divided by; the square of anything longer is a float32 above zero
WORDS, SUMS = ir.VectorType(I16, 2 * LANES), ir.VectorType(I32, LANES)


# n vector products for each item
@intrinsic
def match_block(context, items, step, probes, n, needs, factors, slack):
    """Return as bits, LANES for each of ITEMS, which of a block of probes have an item's estimate near their need.

    By address: items: int16 (ITEMS, n, 2), whose rows begin `step` pairs after one another; probes: int16
    (n, LANES, 2); needs: float32 (LANES,); factors: float32 (ITEMS,), LENGTH^2 over the length of an item.
    """

    def generate(context, builder, signature, arguments):
        items, step, probes, n, needs, factors, slack = arguments
        sums = [cgutils.alloca_once(builder, SUMS) for _ in range(ITEMS)]
        even, odd = (
            ir.Constant(SUMS, [2 * lane + side for lane in range(LANES)]) for side in (0, 1)
        )  # LLVM makes one instruction of the two products and their sum
        anything = ir.Constant(ir.VectorType(I32, 2 * LANES), ir.Undefined)
        for total in sums:
            builder.store(ir.Constant(SUMS, [0] * LANES), total)
        with cgutils.for_range(builder, n) as pair:
            place = builder.mul(pair.index, ir.Constant(I64, 2 * LANES))
            block = builder.load(builder.bitcast(point(builder, probes, place, I16), WORDS.as_pointer()), align=2)
            block = builder.sext(block, anything.type)
            for item, total in enumerate(sums):
                place = builder.add(builder.mul(step, ir.Constant(I64, item)), pair.index)
                both = splat(builder, builder.load(point(builder, items, place, I32)), SUMS)
                values = builder.sext(builder.bitcast(both, WORDS), anything.type)
                products = builder.mul(block, values)
                halves = (builder.shuffle_vector(products, anything, side) for side in (even, odd))
                builder.store(builder.add(builder.load(total), builder.add(*halves)), total)
        found = ir.Constant(I64, 0)
        limits = load_lanes(builder, needs, ir.Constant(I64, 0), COLUMNS)
        for item, total in enumerate(sums):
            factor = builder.load(point(builder, factors, ir.Constant(I64, item), FLOAT))
            least = builder.fsub(builder.fmul(limits, splat(builder, factor, COLUMNS)), splat(builder, slack, COLUMNS))
            above = builder.fcmp_ordered(">=", builder.sitofp(builder.load(total), COLUMNS), least)
            bits = builder.zext(builder.bitcast(above, ir.IntType(LANES)), I64)
            found = builder.or_(found, builder.shl(bits, ir.Constant(I64, item * LANES)))
        return found

    i64, f32 = types.int64, types.float32
    return types.uint64(i64, i64, i64, i64, i64, i64, f32), generate


class PairScratch(NamedTuple):
    """Room for BATCH items at a time."""

    words: NDArray[np.int16]  # (BATCH, padded p): rounded vectors
    factors: NDArray[np.float32]  # (BATCH,)
    counts: NDArray[np.int64]  # (BATCH,): probes found
    found: NDArray[np.int32]  # (BATCH, m)
    scores: NDArray[np.float32]  # (BATCH, m)


def make_pair_scratch(p: int, n_probes: int) -> PairScratch:
    """Return the room that `find_pairs` needs, which does not allocate."""
    return PairScratch(
        np.zeros((BATCH, p + p % 2), np.int16),
        np.empty(BATCH, np.float32),
        np.empty(BATCH, np.int64),
        np.empty((BATCH, n_probes), np.int32),
        np.empty((BATCH, n_probes), np.float32),
    )


# p * m / 2 vector products of LANES for ITEMS items at most; p products for each pair that is found
@training_entry
def find_pairs(
    x, order, blocks, needs, vectors, thresholds, names, slack, counts, places, targets,
    words, factors, n_found, found, scores, start, stop,
):  # fmt: skip
    """Find the probes of each item that have it at the head of their list, some of them if there are many.

    x: the address of float32 (n, p); order: int64 (n,), the items from the longest down, of which `start` to `stop`
    are looked at. Probes by rising need are blocks: int16 (blocks, pairs of dimensions, LANES, 2); needs: float32
    (LANES * blocks,), infinite where there is no probe; vectors: float32 (m, p); thresholds: float32 (m,); names: int32
    (m,); slack: float32, how far off a sum may be. Set are counts: int64 (n,), of all pairs, places: int32 (n, most),
    which are names, and targets: float32 (n, most), their scores. Then follows a `PairScratch`.
    """
    p, n_pairs = vectors.shape[1], blocks.shape[1]
    top = np.float32(LENGTH * LENGTH) + slack
    for first in range(start, stop, BATCH):
        n_items = min(BATCH, stop - first)
        for i in range(BATCH):
            n_found[i] = 0
            factors[i] = np.float32(np.inf)  # no estimate reaches this times a need
            if i < n_items:
                factors[i] = round_item(view_row(x, order[first + i], p, np.float32), words[i])
        for block in range(blocks.shape[0]):
            place = block * LANES
            for tile in range(0, n_items, ITEMS):
                if needs[place] * factors[tile] - slack > top:  # nor does a shorter item reach the block
                    break
                compared = address_of(words[tile]), n_pairs, address_of(blocks[block]), n_pairs
                bits = match_block(*compared, address_of(needs[place:]), address_of(factors[tile:]), slack)
                while bits:
                    bit = np.int64(lowest_bit(bits))
                    bits &= bits - np.uint64(1)
                    i, probe = tile + bit // LANES, place + bit % LANES
                    if i < n_items and probe < thresholds.size:
                        score = multiply_rows(view_row(x, order[first + i], p, np.float32), vectors[probe])
                        if score >= thresholds[probe]:
                            found[i, n_found[i]] = probe
                            scores[i, n_found[i]] = score
                            n_found[i] += 1
        for i in range(n_items):
            row = order[first + i]
            counts[row] = n_found[i]
            keep_some(n_found[i], found[i], scores[i], names, places[row], targets[row])


@training_kernel
def round_item(x, words):
    """Scale a vector to LENGTH, and round it; return LENGTH^2 over its length."""
    length = max(np.sqrt(multiply_rows(x, x)), np.float32(SHORTEST))
    size = np.float32(LENGTH) / length
    for q in range(x.size):
        words[q] = np.int16(np.rint(x[q] * size))
    return np.float32(LENGTH * LENGTH) / length


@training_kernel
def keep_some(n, found, scores, names, places, targets):
    """Write the n pairs of an item, or as many as there is room for, spread evenly over the needs of the probes."""
    n_kept = min(n, places.size)
    for j in range(n_kept):
        pair = j * n // n_kept
        places[j], targets[j] = names[found[pair]], scores[pair]
