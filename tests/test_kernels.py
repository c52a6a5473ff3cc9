"""The kernels by themselves: the 64-row block, the sketches and their overflow proof, the heaps, binary search."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numba import njit

from cccf_index.codes import CompositionalCodes
from cccf_index.kernels import heaps, limits, lookup
from cccf_index.kernels.block import sketch_block
from cccf_index.kernels.bounds import measure_cells
from cccf_index.kernels.calls import CALL_RECORD, QUERY_RECORD, CodedBatch, RealBatch, make_room
from cccf_index.kernels.decorators import ENTRY, ONE, ZERO
from cccf_index.kernels.entries import start_coded, start_real
from cccf_index.kernels.heaps import EMPTY_ID, LOWEST, fill_results, make_heaps
from cccf_index.kernels.limits import BLOCK, ENTRY_MAX, LANE_MAX, MAX_BITS, MAX_COMPONENTS, TERM_DIVISOR
from cccf_index.kernels.lookup import get_element
from cccf_index.kernels.memory import half_to_float, lowest_bit, popcount, view_call, view_part, view_segment
from cccf_index.kernels.sketches import prepare_query
from cccf_index.kernels.sorting import rank_score
from cccf_index.storage.item_rows import ItemRows
from cccf_index.storage.segment import Segment

NO_SCALES = np.empty(0, np.int64)

# Every type of words compiles kernels of its own, in each run.
SHAPES = [
    (8, 16),
    *(pytest.param(s, marks=pytest.mark.slow) for s in [(3, 5), (2, 30), (2, 64), (2, 130), (1, 512), (64, 4)]),
]
WEIGHTS = [
    (np.uint8, 255),
    *(pytest.param(*w, marks=pytest.mark.slow) for w in [(np.uint16, 65535), (np.float32, 3)]),
]


as_entry = njit(**ENTRY)
find_sorted = as_entry(lookup.find_sorted.py_func)


def make_block_kernel(word, real):
    """A kernel that calls `sketch_block` for words of a type, and for codes or vectors."""

    @as_entry
    def sketch(address, first, n_words, query, factors, offsets, shift, limit, sketches):
        return sketch_block(
            view_segment(address), ZERO, first, n_words, query, factors, offsets, np.int16(shift), np.int16(limit),
            sketches, word, real,
        )  # fmt: skip

    return sketch


@as_entry
def _prepare_coded(address, room, starts, words, weights, dense, bias_scales, n_bits, slack):
    place = start_coded(room, starts, words, weights, dense, bias_scales, n_bits, slack, ONE)
    segment, call = view_part(address, dense), view_call(place)
    unit = prepare_query(segment, call, ZERO, ZERO, words.dtype.type, weights.dtype.type, None)
    measure_cells(segment, call, ZERO)
    return place, unit


@as_entry
def _prepare_real(address, room, starts, words, vectors, dense, n_bits, slack):
    place = start_real(room, starts, words, vectors, n_bits, slack, ONE)
    segment, call = view_part(address, dense), view_call(place)
    unit = prepare_query(segment, call, ZERO, ZERO, words.dtype.type, np.float32, np.float32)
    measure_cells(segment, call, ZERO)
    return place, unit


def prepare(segment, batch):
    """Prepare the one query of a batch; return its values, factors, what a unit is worth, and errors of the cells.

    The values are the whole numbers that agreements are sums of, for each half byte of a code (G, halves, 16).
    """
    n_cells = len(segment.tables.cell_groups)
    room, starts = make_room(batch, 1, n_cells)
    kernel = _prepare_real if isinstance(batch, RealBatch) else _prepare_coded
    place, unit = kernel(segment.address, room, starts, *batch)
    offset = place - room.ctypes.data
    call = room[offset : offset + CALL_RECORD.itemsize].view(CALL_RECORD)[0]

    def table(name, n, dtype):
        return room[int(call[name]) - room.ctypes.data :][: n * np.dtype(dtype).itemsize].view(dtype)

    state = room[int(call["states"]) - room.ctypes.data :][: QUERY_RECORD.itemsize].view(QUERY_RECORD)[0]
    errors = state["floors"] + state["weight_slip"] + table("slips", n_cells, np.float32).astype(np.float64)
    n_halves = 2 * batch.words.shape[2] * batch.words.itemsize
    factors = table("factors", segment.n_components, np.int16)
    if isinstance(batch, RealBatch):
        lookups = table("lookups", segment.n_components * n_halves * 16, np.uint8).astype(np.int64)
        values = lookups.reshape(segment.n_components, n_halves, 16) - ENTRY_MAX
    else:
        values = code_values(batch.words[0], segment.n_bits)
    return values, factors, unit, errors


def code_values(words, n_bits):
    """What each half byte of a code adds to its agreement with `words` (G, W); padding bits add nothing."""
    signs = CompositionalCodes(words[None], np.ones((1, len(words))), n_bits).to_signs()[0].astype(np.int64)
    signs = np.pad(signs, ((0, 0), (0, 8 * words.shape[1] * words.itemsize - n_bits)))
    patterns = 2 * ((np.arange(16)[:, None] >> np.arange(4)) & 1) - 1
    return signs.reshape(len(words), -1, 4) @ patterns.T


def make_segment(rng, shape, n=BLOCK, dtype=np.uint8, largest=255):
    """A segment of one group, all components active, with weights up to `largest`."""
    codes = CompositionalCodes.from_signs(rng.random((n, *shape)) < 0.5)
    weights = rng.integers(1, largest + 1, (n, shape[0])).astype(dtype)
    return Segment.build(ItemRows(codes.bits, weights, None, np.arange(n)), shape[1])


def stored_codes(segment):
    """Signs (n, G, r) and coarse weights (n, G) in the order of the segment's rows."""
    rows = segment.decode(np.arange(len(segment)))
    codes = CompositionalCodes(rows.words, np.ones(rows.weights.shape), segment.n_bits)
    coarse = np.asarray(segment.tables.coarse).reshape(segment.n_components, len(segment)).T
    return codes.to_signs().astype(np.int64), coarse.astype(np.int64)


def plain_sketches(segment, values, factors, shift=0):
    """The sketches of all rows by the definition, in integers that cannot overflow, and their largest parts."""
    _, coarse = stored_codes(segment)
    octets = segment.decode(np.arange(len(segment))).words.view(np.uint8)
    halves = np.stack([octets & 15, octets >> 4], axis=-1).reshape(*octets.shape[:2], -1).astype(np.int64)
    looked_up = np.take_along_axis(values[None], halves[..., None], axis=3)[..., 0]
    agreement = looked_up.sum(axis=2) * factors.astype(np.int64)
    terms = agreement * coarse * 2**shift // TERM_DIVISOR
    return terms.sum(axis=1), np.abs(agreement).max(), np.abs(np.cumsum(terms, axis=1)).max()


def make_batch(kind, segment, rng, size=1.0):
    """A batch of one query: codes with integer weights, codes with float weights, or a vector."""
    shape = (segment.n_components, segment.n_bits)
    words = segment.decode(np.arange(1)).words
    if kind == "real":
        vector = (size * rng.standard_normal((1, shape[0] * shape[1]))).astype(np.float32)
        return RealBatch(words[:0], vector, None, shape[1], 0.0)
    weights = np.rint(1e6 * rng.random((1, shape[0]))).astype(np.int64)
    if kind == "float":
        weights = (size * rng.random((1, shape[0]))).astype(np.float32)
    query = CompositionalCodes.from_signs(rng.random((1, *shape)) < 0.5).bits
    return CodedBatch(query, weights, None, NO_SCALES, shape[1], 0.0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("is_real", [False, True])
def test_a_block_tells_the_rows_whose_sketch_reaches_the_limit(shape, is_real):
    rng = np.random.default_rng(shape)
    segment = make_segment(rng, shape, n=BLOCK + 5, largest=max(1, limits.max_coarse(shape[1]) >> 2))
    words = segment.decode(np.arange(1)).words
    n_halves, n_words = 2 * words.shape[2] * words.itemsize, words.shape[2]
    if is_real:
        values = rng.integers(-ENTRY_MAX, ENTRY_MAX + 1, (shape[0], n_halves, 16))
        query = (values + ENTRY_MAX).astype(np.uint8)
        taken_off = ENTRY_MAX * n_halves + 256 * query[:, :, 0].astype(np.int64).sum(axis=1)
    else:
        query = CompositionalCodes.from_signs(rng.random((1, *shape)) < 0.5).bits[0]
        values, taken_off = code_values(query, shape[1]), 4 * n_halves - shape[1]
    most = LANE_MAX // int(np.abs(values).max(axis=2).sum(axis=1).max())
    factors = rng.integers(0, min(most, 40) + 1, shape[0]).astype(np.int16)
    factors //= max(1, shape[0] // 8)  # so that no sum of terms leaves 16 bits
    offsets = (-factors.astype(np.int64) * taken_off).astype(np.int16)
    sketch = make_block_kernel(words.dtype.type, np.float32 if is_real else None)
    addresses = query.ctypes.data, factors.ctypes.data, offsets.ctypes.data
    for shift in (0, 2):
        expected, _, largest = plain_sketches(segment, values, factors, shift)
        assert largest <= LANE_MAX
        for first in (0, 5):
            for limit in np.quantile(expected, [0.0, 0.3, 0.9, 1.0]).astype(int):
                sketches = np.zeros(BLOCK, np.int16)
                mask = int(sketch(segment.address, first, n_words, *addresses, shift, limit, sketches.ctypes.data))
                assert sketches.tolist() == expected[first : first + BLOCK].tolist()
                found = [(mask >> i) & 1 == 1 for i in range(BLOCK)]
                assert found == (expected[first : first + BLOCK] >= limit).tolist()


@pytest.mark.parametrize("kind", ["integer", "float", "real"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("dtype", "largest"), WEIGHTS)
def test_no_sketch_is_farther_off_than_its_slip(shape, kind, dtype, largest):
    """The invariant of the search: an exact score lies within the slip of its sketch, so no good item is skipped."""
    rng = np.random.default_rng([*shape, largest])
    segment = make_segment(rng, shape, n=300, dtype=dtype, largest=largest)
    batch = make_batch(kind, segment, rng)
    values, factors, unit, errors = prepare(segment, batch)
    sketches, _, _ = plain_sketches(segment, values, factors)
    signs, _ = stored_codes(segment)
    weights = segment.decode(np.arange(len(segment))).weights.astype(np.float64)
    if kind == "real":
        query = batch.vectors[0].astype(np.float64).reshape(shape)
    else:
        codes = CompositionalCodes(batch.words, np.ones((1, shape[0])), shape[1])
        query = codes.to_signs()[0] * batch.weights[0].astype(np.float64)[:, None]
    exact = np.einsum("nkj,kj,nk->n", signs, query, weights)
    assert (np.abs(exact / (unit * TERM_DIVISOR * segment.tables.step) - sketches) <= errors[0]).all()


def extreme_segment(shape, dtype, weight):
    """Rows that all agree, with the largest weights there are."""
    codes = CompositionalCodes.from_signs(np.ones((BLOCK, *shape)))
    weights = np.full((BLOCK, shape[0]), weight, dtype=dtype)
    return Segment.build(ItemRows(codes.bits, weights, None, np.arange(BLOCK)), shape[1])


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    n_components=st.sampled_from([1, 2, 7, MAX_COMPONENTS]),
    n_bits=st.sampled_from([1, 4, 128, MAX_BITS]),
    weight=st.sampled_from(
        [(np.uint8, 1), (np.uint8, 63), (np.uint8, 255), (np.uint32, 2**23 - 1), (np.float32, 1e16)]
    ),
    spread=st.sampled_from([0.0, 1e-6, 0.5]),
    size=st.sampled_from([1e-12, 1.0, 1e15]),
    real=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@example(MAX_COMPONENTS, MAX_BITS, (np.uint8, 255), 0.0, 1.0, True, 0)
@example(MAX_COMPONENTS, MAX_BITS, (np.uint8, 63), 0.0, 1.0, False, 0)
def test_no_sketch_overflows_whatever_the_query(n_components, n_bits, weight, spread, size, real, seed):
    """The largest agreement of the largest weights: the proof of `limits` holds at its edges."""
    rng, shape = np.random.default_rng(seed), (n_components, n_bits)
    segment = extreme_segment(shape, *weight)
    words = segment.decode(np.arange(1)).words
    values = size * (1 - spread * rng.random(n_components))
    if real:
        vector = np.repeat(values, n_bits).astype(np.float32)[None]
        batch = RealBatch(words[:0], vector, None, n_bits, 0.0)
    else:
        weights = values.astype(np.float32)[None]
        batch = CodedBatch(words, weights, None, NO_SCALES, n_bits, 0.0)
    values, factors, _, _ = prepare(segment, batch)
    assert (factors >= 0).all()
    assert factors.any()
    _, agreement, total = plain_sketches(segment, values, factors)
    assert agreement <= LANE_MAX
    assert total <= LANE_MAX
    # and the sketches use the lane: a coarser unit would skip less
    assert max(agreement, total) > LANE_MAX / 4


def test_a_query_of_zeros_is_sketched_as_zeros():
    segment = make_segment(np.random.default_rng(0), (4, 8))
    words = segment.decode(np.arange(1)).words
    nothing = CodedBatch(words, np.zeros((1, 4), np.int64), None, NO_SCALES, 8, 0.0)
    assert not prepare(segment, nothing)[1].any()


@as_entry
def push_score(ranks, ids, score, identity):
    heaps.push(ranks, ids, rank_score(score), identity)


def offered(scores, ids, k, kind):
    """What a heap of size k makes of items that are offered one by one."""
    ranks, heap_ids = make_heaps(1, k)
    for score, identity in zip(scores, ids, strict=True):
        push_score(ranks[0], heap_ids[0], kind(score), identity)
    D, I = np.empty((1, k + 2), np.float32), np.empty((1, k + 2), np.int64)
    fill_results(ranks, heap_ids, kind is np.float32, np.full(1, 2.0), np.empty(0, np.float32), D, I)
    return D[0], I[0]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(-5, 5), max_size=60), st.integers(1, 12), st.sampled_from([np.int64, np.float32]),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_a_heap_keeps_the_best_and_of_equal_scores_the_smallest_ids(scores, k, kind, seed):
    ids = np.random.default_rng(seed).permutation(3 * len(scores) + 1)[: len(scores)] - len(scores)
    D, I = offered(scores, ids, k, kind)
    best = sorted(zip(scores, ids.tolist(), strict=True), key=lambda item: (-item[0], item[1]))[:k]
    n = len(best)
    assert I[:n].tolist() == [identity for _, identity in best]
    assert D[:n].tolist() == [score / 2 for score, _ in best]
    assert (I[n:] == -1).all()
    assert (D[n:] == LOWEST).all()


def test_a_heap_ignores_what_is_no_number():
    _, I = offered([1.0, np.nan, 2.0], [0, 1, 2], 3, np.float32)
    assert I.tolist() == [2, 0, -1, -1, -1]
    assert EMPTY_ID not in I


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-20, 20), unique=True, max_size=30), st.integers(-25, 25))
def test_binary_search_finds_a_value_or_nothing(values, wanted):
    array = np.array(sorted(values), dtype=np.int64)
    place = find_sorted(get_element, array, 0, len(array), wanted)
    assert (place == -1) if wanted not in values else (array[place] == wanted)
    assert find_sorted(get_element, array, len(array), len(array), wanted) == -1


def test_bit_operations_are_those_of_python():
    @njit
    def both(word):
        return popcount(word), lowest_bit(word)

    for word in (1, 2, 3, 96, 2**63, 2**64 - 1):
        ones, place = both(np.uint64(word))
        assert (int(ones), int(place)) == (bin(word).count("1"), (word & -word).bit_length() - 1)


def test_half_precision_numbers_are_read_from_their_bits():
    @njit
    def read_half(bits):
        return half_to_float(bits)

    values = np.array([0.0, -1.5, 65504.0, 6e-8, np.inf], dtype=np.float16)
    assert [read_half(bits) for bits in values.view(np.uint16)] == values.astype(np.float32).tolist()


def test_the_constants_of_the_proof_leave_room():
    """The inequalities that `limits` states, by themselves."""
    assert limits.CODED_PEAK + MAX_BITS / 2 <= LANE_MAX
    term = limits.COARSE_REACH / TERM_DIVISOR
    assert limits.CODED_SUM + MAX_COMPONENTS * (term / 2 + 1) <= LANE_MAX
    assert limits.REAL_PEAK + limits.MAX_LOOKUPS / 2 <= LANE_MAX
    assert limits.REAL_SUM + MAX_COMPONENTS * (term / 8 + 1) <= LANE_MAX
    for n_bits in range(1, MAX_BITS + 1):
        assert n_bits * (limits.max_coarse(n_bits) + limits.COARSE_ERROR) <= limits.COARSE_REACH
