"""Adding, removing, replacing, merging and giving back items.

The behaviour cases mirror faiss's tests/test_index_composite.py (remove, update), tests/test_meta_index.py (IDMap2),
tests/test_merge_index.py, tests/test_standalone_codec.py, tests/test_clone.py and the reconstruct exceptions of
tests/test_index.py and tests/test_error_reporting.py.
"""

import copy

import faiss
import numpy as np
import pytest
from helpers import Model, assert_same, filled_index, random_codes
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cccf_index import CompositionalCodes, IndexCCCF, clone_index, deserialize_index, serialize_index

RNG = np.random.default_rng(0)
CODES = random_codes(RNG, 20)


class IndexMachine(RuleBasedStateMachine):
    """Any sequence of changes leaves the index equal to its model."""

    def __init__(self):
        super().__init__()
        self.index, self.model, self.next_id = IndexCCCF(3, 9), Model(), 0

    def codes(self, seed, n):
        return random_codes(np.random.default_rng(seed), n, 3, 9, distinct=20)

    @rule(seed=st.integers(0, 999), n=st.integers(0, 300), with_bias=st.booleans())
    def add(self, seed, n, with_bias):
        codes = self.codes(seed, n)
        bias = np.arange(n) / 50 if with_bias else None
        self.index.add(codes, bias=bias)
        self.model.add(codes, range(self.next_id, self.next_id + n), bias)
        self.next_id += n

    @rule(seed=st.integers(0, 999), n=st.integers(1, 50), gap=st.sampled_from([0, 9, 2**33, -(2**62)]))
    def add_with_ids(self, seed, n, gap):
        ids = self.next_id + gap + np.random.default_rng(seed).permutation(2 * n)[:n]
        ids = np.array([i for i in ids.tolist() if i not in self.model.items], dtype=np.int64)
        codes = self.codes(seed, len(ids))
        self.index.add_with_ids(codes, ids)
        self.model.add(codes, ids)
        self.next_id = max([self.next_id, *(ids + 1).tolist()])

    @rule(seed=st.integers(0, 999), n=st.integers(1, 20))
    def add_removed_ids_again(self, seed, n):
        free = np.setdiff1d(np.arange(min(self.next_id, 5000)), list(self.model.items))[:n]
        codes = self.codes(seed, len(free))
        self.index.add_with_ids(codes, free)
        self.model.add(codes, free)

    @rule(seed=st.integers(0, 999), share=st.sampled_from([0.02, 0.3, 1.0]))
    def remove(self, seed, share):
        rng = np.random.default_rng(seed)
        gone = [i for i in self.model.items if rng.random() < share]
        assert self.index.remove_ids(gone + [self.next_id + 5]) == len(gone)
        self.model.remove(gone)

    @rule(seed=st.integers(0, 999), n=st.integers(1, 30))
    def update(self, seed, n):
        ids = np.random.default_rng(seed).permutation(sorted(self.model.items))[:n].astype(np.int64)
        codes = self.codes(seed, len(ids))
        bias = [self.model.items[int(i)][1] / 100 for i in ids]
        self.index.update_vectors(ids, codes)
        self.model.add(codes, ids, bias)

    @rule(seed=st.integers(0, 999), n=st.integers(0, 100))
    def merge(self, seed, n):
        codes = self.codes(seed, n)
        other = filled_index(codes)
        self.index.merge_from(other, self.next_id)
        self.model.add(codes, range(self.next_id, self.next_id + n))
        self.next_id += n
        assert other.ntotal == 0

    @rule()
    def serialize(self):
        self.index = deserialize_index(serialize_index(self.index))

    @rule()
    def clone(self):
        original, self.index = self.index, clone_index(self.index)
        original.reset()

    @invariant()
    def agrees(self):
        assert self.index.ntotal == len(self.model.items)
        if self.next_id % 3 == 0:  # not after every step, so that batches may wait
            queries = self.codes(7, 5)
            assert_same(self.index.search(queries, 8), self.model.search(queries, 8))
            ids = self.index.ids
            assert ids.tolist() == sorted(self.model.items)
            vectors = np.array([self.model.items[int(i)][0] for i in ids]).reshape(-1, 27) / 100
            np.testing.assert_array_equal(self.index.reconstruct_n(), vectors.astype(np.float32))


IndexMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
test_any_sequence_of_changes_agrees_with_the_model = IndexMachine.TestCase


def test_ids_are_stable_under_removal_and_never_given_twice():
    index = filled_index(CODES)
    assert index.remove_ids([19, 3]) == 2
    index.add(CODES[:2])
    assert index.ids.tolist() == [i for i in range(22) if i not in (3, 19)]
    np.testing.assert_array_equal(index.reconstruct(20), CODES[:1].to_vectors()[0])
    index.reset()
    assert index.ntotal == 0
    index.add(CODES[:2])
    assert index.ids.tolist() == [0, 1]


def test_what_was_added_does_not_follow_the_arrays_of_the_caller():
    ids, bias = np.arange(20), np.zeros(20, dtype=np.float32)
    index = IndexCCCF(4, 8, scale=None)
    index.add_with_ids(CODES, ids, bias=bias)
    index.update_vectors(ids, CODES, bias=bias)
    ids[:] = 7
    bias[:] = 1e6
    assert index.ids.tolist() == list(range(20))
    assert index.search(CODES, 1)[0].max() < 1


@pytest.mark.parametrize("ids", [[2**63 - 3, -(2**63) + 5], [2**62, -(2**62) - 2, 2**62 + 1]])
def test_ids_farther_apart_than_an_int64_are_found(ids):
    index = IndexCCCF(4, 8)
    index.add_with_ids(CODES[: len(ids)], ids)
    np.testing.assert_array_equal(index.reconstruct_batch(ids), CODES[: len(ids)].to_vectors())
    with pytest.raises(ValueError, match="must not be in the index"):
        index.add_with_ids(CODES[:1], ids[:1])
    third = 2**64 // 3
    wrapping = [-(2**63), -(2**63) + third, -(2**63) + 2 * third, -(2**63)]
    with pytest.raises(ValueError, match="must be unique"):
        index.add_with_ids(CODES[:4], wrapping)
    assert index.remove_ids(ids) == len(ids)


def test_merging_never_makes_a_forbidden_id():
    index, other = IndexCCCF(4, 8), IndexCCCF(4, 8)
    other.add_with_ids(CODES[:1], [-5])
    with pytest.raises(ValueError, match="none -1"):
        index.merge_from(other, 4)
    assert (index.ntotal, other.ntotal) == (0, 1)
    other.reset()
    other.add_with_ids(CODES[:10], [*range(8), 2**63 - 3, 2**63 - 2])
    other.remove_ids([2**63 - 3, 2**63 - 2])
    index.merge_from(other, 100)  # the ids of deleted rows would not fit
    assert index.ids.tolist() == list(range(100, 108))
    index.add(CODES[:1])
    assert index.ids[-1] == 108
    with pytest.raises(ValueError, match="add_id"):
        index.merge_from(filled_index(CODES), 2**64)
    np.testing.assert_array_equal(index.reconstruct(105), CODES[5].to_vectors()[0])


def test_an_index_with_deleted_ids_beyond_the_next_can_be_written():
    index, other = IndexCCCF(4, 8), IndexCCCF(4, 8)
    other.add_with_ids(CODES[:10], [*range(8), 1000, 1001])
    other.remove_ids([1000, 1001])
    index.merge_from(other, 100)
    again = deserialize_index(serialize_index(index))
    assert again.ids.tolist() == list(range(100, 108))
    again.add(CODES[:2])
    assert again.ids[-1] == 109


def test_the_shape_of_an_index_cannot_be_changed():
    index = filled_index(CODES)
    for name in ("n_bits", "n_components", "scale", "d", "ntotal"):
        with pytest.raises(AttributeError):
            setattr(index, name, 64)


def test_add_follows_the_largest_given_id():
    index = IndexCCCF(4, 8)
    index.add_with_ids(CODES[:2], [70, 5])
    index.add(CODES[:2])
    assert index.ids.tolist() == [5, 70, 71, 72]
    index.add_with_ids(CODES[:1], [2**63 - 2])
    with pytest.raises(ValueError, match="No ids are left"):
        index.add(CODES[:1])


def test_a_duplicate_id_is_named_and_adds_nothing():
    index = filled_index(CODES)
    for ids, named in (([100, 101, 100], "100"), ([50, 7, 51], "7"), ([50, 19, 51], "19")):
        with pytest.raises(ValueError, match=f"got {named}"):
            index.add_with_ids(CODES[:3], ids)
        assert index.ids.tolist() == list(range(20))
    index.add_with_ids(CODES[:1], [7000])
    with pytest.raises(ValueError, match="got 7000"):  # against a batch that is not in a segment yet
        index.add_with_ids(CODES[:1], [7000])
    assert index._state.pending
    index.remove_ids([7000, 3])
    index.add_with_ids(CODES[:2], [7000, 3])
    assert index.ids.tolist() == [*range(20), 7000]


def test_ids_may_be_any_int64_but_minus_one_such_as_signed_hashes():
    ids = np.array([-(2**63), -2, 0, 2**63 - 2, 17, -(2**40)])
    codes = CompositionalCodes.from_signs(np.ones((6, 4, 8)), np.zeros((6, 4)))
    index, model = IndexCCCF(4, 8), Model()
    for i in range(6):
        index.add_with_ids(codes[[i]], ids[[i]])
    model.add(codes, ids)
    assert_same(index.search(codes[:2], 7), model.search(codes[:2], 7))
    assert index.search(codes[:1], 6)[1][0].tolist() == sorted(ids.tolist())
    assert index.remove_ids([-2, 17]) == 2
    np.testing.assert_array_equal(index.reconstruct(-(2**63)), np.zeros(32))
    assert not np.isnan(index.search_and_reconstruct(codes[:1], 4)[2]).any()
    again = deserialize_index(serialize_index(index))
    assert again.ids.tolist() == [-(2**63), -(2**40), 0, 2**63 - 2]


def test_vectors_may_be_added_instead_of_codes():
    index = IndexCCCF(4, 8)
    index.add(CODES.to_vectors())
    index.add(CODES.to_vectors().tolist())
    np.testing.assert_array_equal(index.reconstruct_n(), np.tile(CODES.to_vectors(), (2, 1)))


@pytest.mark.parametrize(
    ("error", "words", "change"),
    [
        (ValueError, "row 0 has different absolute values in component 0", lambda ix: ix.add(np.arange(32.0)[None])),
        (ValueError, "finite", lambda ix: ix.add(np.full((1, 32), np.nan))),
        (ValueError, r"`bias` must be of shape \(20,\)", lambda ix: ix.add(CODES, bias=[1, 2])),
        (ValueError, "finite", lambda ix: ix.add(CODES, bias=np.full(20, np.nan))),
        (ValueError, "at most 2147483647 in size after scaling", lambda ix: ix.add(CODES, bias=np.full(20, 3e7))),
        (ValueError, "at most 8388607 after scaling", lambda ix: ix.add(CompositionalCodes(CODES.bits, CODES.weights * 1e8, 8))),
        (TypeError, "`ids` must be integers, got dtype float64", lambda ix: ix.add_with_ids(CODES, np.arange(20.0))),
        (ValueError, r"`ids` must be of shape \(20,\)", lambda ix: ix.add_with_ids(CODES, np.arange(19))),
        (ValueError, "not -1, got -1", lambda ix: ix.add_with_ids(CODES, np.arange(20) - 1)),
        (ValueError, "`ids` must be int64 up to", lambda ix: ix.add_with_ids(CODES, np.arange(20, dtype=np.uint64) + 2**63)),
        (ValueError, "codes of 4x8 bits, got 2x8", lambda ix: ix.add(random_codes(RNG, 2, 2, 8))),
        (ValueError, "`keys` must be in the index, got 99", lambda ix: ix.update_vectors([1, 99], CODES[:2])),
        (ValueError, "`keys` must be unique", lambda ix: ix.update_vectors([1, 1], CODES[:2])),
        (TypeError, "`x` must be integers", lambda ix: ix.remove_ids([0.5])),
        (ValueError, r"For one id pass \[11\]", lambda ix: ix.remove_ids(11)),
        (ValueError, "`key` must be in the index, got 20", lambda ix: ix.reconstruct(20)),
        (ValueError, "`key` must be int64", lambda ix: ix.reconstruct(-1)),
        (TypeError, "`key` must be an integer", lambda ix: ix.reconstruct("a")),
        (ValueError, "got 77", lambda ix: ix.reconstruct_batch([1, 77])),
        (ValueError, "`n0` must be an integer from 0 to 20", lambda ix: ix.reconstruct_n(21)),
        (ValueError, "`ni` must be an integer from -1 to 5", lambda ix: ix.reconstruct_n(15, 6)),
        (TypeError, "`codes` must be uint8, got int64", lambda ix: ix.sa_decode(np.zeros((1, 20), np.int64))),
        (ValueError, r"shape \(n, 20\)", lambda ix: ix.sa_decode(np.zeros((1, 19), np.uint8))),
        (TypeError, "must be an IndexCCCF, got IndexFlatIP", lambda ix: ix.merge_from(faiss.IndexFlatIP(32))),
        (ValueError, "another index", lambda ix: ix.merge_from(ix)),
        (ValueError, "codes of 4x8 bits, got 8x4", lambda ix: ix.merge_from(IndexCCCF(8, 4))),
        (ValueError, "same scale", lambda ix: ix.merge_from(IndexCCCF(4, 8, scale=10))),
        (ValueError, "same scale", lambda ix: ix.merge_from(IndexCCCF(4, 8, scale=None))),
        (ValueError, "got 0, which is. Pass `add_id`, for example 20", lambda ix: ix.merge_from(filled_index(CODES))),
        (ValueError, "`add_id`", lambda ix: ix.merge_from(filled_index(CODES), 2**63 - 10)),
    ],
)  # fmt: skip
def test_bad_input_is_explained_and_changes_nothing(error, words, change):
    index = filled_index(CODES)
    before = index.search(CODES, 20)
    with pytest.raises(error, match=words):
        change(index)
    assert index.ids.tolist() == list(range(20))
    assert_same(index.search(CODES, 20), before)
    index.add(CODES[:1])
    assert index.ids[-1] == 20


def test_remove_ids_counts_and_ignores_unknown_ones():
    index = filled_index(CODES)
    assert index.remove_ids(np.array([3, 3, 500])) == 1
    assert index.remove_ids([3]) == 0
    assert index.remove_ids([]) == 0
    assert index.remove_ids(faiss.IDSelectorRange(0, 10)) == 9
    assert index.ids.tolist() == list(range(10, 20))
    assert index.remove_ids(faiss.IDSelectorAll()) == 10
    assert index.ntotal == 0


def test_update_keeps_a_bias_unless_a_new_one_is_given():
    index = IndexCCCF(4, 8)
    index.add(CODES, bias=np.arange(20))
    nothing = CompositionalCodes.from_signs(np.ones((2, 4, 8)), np.zeros((2, 4)))
    index.update_vectors([4, 9], nothing)
    D, I = index.search(nothing[:1], 20)
    assert D[0][I[0] == 4] == 4
    index.update_vectors([4, 9], nothing, bias=[0.5, 99])
    D, I = index.search(nothing[:1], 20)
    assert (I[0, 0], D[0, 0]) == (9, 99)
    assert D[0][I[0] == 4] == 0.5
    index.update_vectors([], CODES[:0])
    assert index.ntotal == 20


def test_reconstruct_gives_vectors_by_id_and_by_place():
    index = IndexCCCF(4, 8)
    ids = np.arange(20)[::-1] * 3
    index.add_with_ids(CODES, ids)
    vectors = CODES.to_vectors()
    np.testing.assert_array_equal(index.reconstruct(np.int32(57)), vectors[0])
    np.testing.assert_array_equal(index.reconstruct_batch(ids[5:9]), vectors[5:9])
    np.testing.assert_array_equal(index.reconstruct_batch([3, 3]), vectors[[18, 18]])
    np.testing.assert_array_equal(index.reconstruct_n(), vectors[::-1])
    np.testing.assert_array_equal(index.reconstruct_n(2, 3), vectors[::-1][2:5])
    assert index.reconstruct_n(20).shape == index.reconstruct_n(3, 0).shape == (0, 32)
    out = np.empty(32, np.float32)
    assert index.reconstruct(0, out) is out
    np.testing.assert_array_equal(out, vectors[19])


def test_merge_moves_items_and_empties_the_other():
    first, second = filled_index(CODES[:12]), filled_index(CODES[12:])
    second.remove_ids([0])
    first.check_compatible_for_merge(second)
    first.merge_from(second, add_id=12)
    assert second.ntotal == 0
    assert first.ids.tolist() == [i for i in range(20) if i != 12]
    whole = filled_index(CODES)
    whole.remove_ids([12])
    assert_same(first.search(CODES, 20), whole.search(CODES, 20))
    first.add(CODES[:1])
    assert first.ids[-1] == 20


@pytest.mark.parametrize("scale", [100, "auto", None])
@pytest.mark.parametrize("shape", [(4, 8), (3, 5), (2, 70)])
def test_standalone_codec_round_trip(shape, scale):
    codes = random_codes(RNG, 9, *shape)
    index = IndexCCCF(*shape, scale=scale)
    octets = index.sa_encode(codes.to_vectors())
    assert octets.dtype == np.uint8
    assert octets.shape == (9, index.sa_code_size())
    index.add(codes)
    np.testing.assert_allclose(index.sa_decode(octets), index.reconstruct_n(), rtol=1e-6)
    np.testing.assert_array_equal(index.sa_encode(index.sa_decode(octets)), octets)
    assert index.sa_encode(codes[:0]).shape == (0, index.sa_code_size())
    again, vectors = np.empty_like(octets), np.empty((9, index.d), np.float32)
    assert index.sa_encode(codes, again) is again
    np.testing.assert_array_equal(again, octets)
    assert index.sa_decode(octets, vectors) is vectors
    np.testing.assert_array_equal(vectors, index.sa_decode(octets))


@pytest.mark.parametrize("duplicate", [clone_index, copy.copy, copy.deepcopy])
def test_clones_change_independently(duplicate):
    index = filled_index(CODES)
    other = duplicate(index)
    other.add(CODES)
    index.remove_ids([0])
    assert (index.ntotal, other.ntotal) == (19, 40)
    with pytest.raises(TypeError, match=r"faiss\.clone_index"):
        clone_index(faiss.IndexFlatIP(3))
