"""Files and bytes.

The behaviour cases mirror faiss's tests/test_io.py and tests/test_binary_io.py (round trips, pickle, errors on
truncated and foreign data, memory mapping).
"""

import json
import os
import pickle
import pickletools
import struct
import subprocess
import sys
import zlib

import faiss
import numpy as np
import pytest
from helpers import assert_same, filled_index, random_codes

from cccf_index import (
    CompositionalCodes,
    IndexCCCF,
    SearchParametersCCCF,
    deserialize_index,
    read_index,
    serialize_index,
    write_index,
)
from cccf_index.io import SHARD_HEADER
from cccf_index.storage import container

CODES = random_codes(np.random.default_rng(0), 600, density=0.5)


def sample_index(shape=(4, 8), scale=100):
    """Two parts, deletions, a bias, ids out of order."""
    rng = np.random.default_rng(1)
    codes = random_codes(rng, 600, *shape, density=0.5)
    index = IndexCCCF(*shape, scale=scale)
    index.add_with_ids(codes[:400], rng.permutation(400) + 7, bias=rng.random(400))
    index.search(codes[:1], 1)
    index.add(codes[400:])
    index.remove_ids([8, 9, 450])
    return index


@pytest.mark.parametrize("shape", [(4, 8), (8, 16), (3, 5), (2, 20), (2, 40), (2, 128), (1, 512), (64, 3)])
@pytest.mark.parametrize("scale", [100, "auto", None])
def test_an_index_comes_back_as_it_was(tmp_path, shape, scale):
    index = sample_index(shape, scale)
    path = tmp_path / "items.cccf"
    write_index(index, path)
    queries = random_codes(np.random.default_rng(2), 20, *shape)
    real = np.random.default_rng(2).standard_normal((5, index.d))
    for again in (
        read_index(path),
        read_index(str(path), mmap=True),
        read_index(path, mmap=True, verify=False),
        deserialize_index(serialize_index(index)),
        deserialize_index(serialize_index(index).tobytes()),
        pickle.loads(pickle.dumps(index)),
    ):
        assert (again.n_components, again.n_bits, again.scale, again.scale_) == (*shape, scale, index.scale_)
        assert_same(again.search(queries, 10), index.search(queries, 10))
        assert_same(again.search(real, 10), index.search(real, 10))
        np.testing.assert_array_equal(again.ids, index.ids)
        np.testing.assert_array_equal(again.reconstruct_n(), index.reconstruct_n())
        again.add(queries)  # and it can go on changing, with the same next id
        assert again.ids[-1] == 626
        again.remove_ids(np.arange(300))
        assert again.ntotal == index.ntotal + 20 - np.sum(index.ids < 300)


def test_an_empty_index_can_be_written(tmp_path):
    for scale in (100, "auto", None):
        write_index(IndexCCCF(3, 9, scale=scale), tmp_path / "empty")
        for mmap in (False, True):
            again = read_index(tmp_path / "empty", mmap=mmap)
            assert (again.d, again.ntotal, again.scale) == (27, 0, scale)


def test_shards_in_a_file_are_faiss_binary_indexes_on_aligned_memory(tmp_path):
    index = filled_index(CODES)
    path = tmp_path / "items.cccf"
    write_index(index, path)
    _, arrays = container.read_file(path, "index")
    shard = faiss.deserialize_index_binary(arrays["0.2.faiss"])
    original = index._snapshot().parts[0].segment.shards[2]
    np.testing.assert_array_equal(faiss.serialize_index_binary(shard), faiss.serialize_index_binary(original))
    for again in (read_index(path, mmap=True), deserialize_index(serialize_index(index))):
        assert (again._state.parts[0].segment.tables.shards % 64 == 0).all()


def test_a_mapped_index_outlives_its_file(tmp_path):
    path = tmp_path / "items.cccf"
    write_index(filled_index(CODES), path)
    mapped = read_index(path, mmap=True)
    expected = mapped.search(CODES, 5)
    write_index(filled_index(CODES[:10]), path)
    assert_same(mapped.search(CODES, 5), expected)
    os.unlink(path)
    assert_same(mapped.search(CODES, 5), expected)


def read_all_ways(path):
    yield lambda: read_index(path)
    yield lambda: read_index(path, mmap=True)
    yield lambda: deserialize_index(path.read_bytes())


def test_a_truncated_file_is_a_value_error(tmp_path):
    whole = serialize_index(sample_index()).tobytes()
    path = tmp_path / "cut"
    for length in [0, 1, 7, 8, 15, 16, 17, 100, len(whole) // 2, len(whole) - 29, len(whole) - 28, len(whole) - 1]:
        path.write_bytes(whole[:length])
        for read in read_all_ways(path):
            with pytest.raises(ValueError, match=r"truncated|not a cccf-index file|damaged"):
                read()


@pytest.mark.slow
def test_any_altered_byte_is_a_value_error(tmp_path):
    whole = serialize_index(sample_index())
    path = tmp_path / "altered"
    places = np.random.default_rng(0).integers(0, len(whole), 300).tolist()
    for place in [*range(80), *range(len(whole) - 400, len(whole)), *places]:
        altered = whole.copy()
        altered[place] ^= 1 << (place % 8)
        altered.tofile(path)
        with pytest.raises(ValueError, match=r"damaged|not a cccf-index file|format version"):
            read_index(path, mmap=bool(place % 2))


def test_bytes_after_the_end_are_a_value_error():
    with pytest.raises(ValueError, match="truncated"):
        deserialize_index(serialize_index(sample_index()).tobytes() + b"more")


def test_a_foreign_file_is_named_as_such(tmp_path):
    faiss.write_index(faiss.IndexFlatIP(8), str(tmp_path / "faiss"))
    np.savez(tmp_path / "arrays.npz", x=np.arange(3))
    (tmp_path / "text").write_text("CCCF" * 100)
    for name in ("faiss", "arrays.npz", "text"):
        for read in read_all_ways(tmp_path / name):
            with pytest.raises(ValueError, match="not a cccf-index file"):
                read()
    CODES.save(tmp_path / "codes")
    with pytest.raises(ValueError, match="holds codes, not index"):
        read_index(tmp_path / "codes")
    write_index(filled_index(CODES), tmp_path / "index")
    with pytest.raises(ValueError, match="holds index, not codes"):
        CompositionalCodes.load(tmp_path / "index")
    with pytest.raises(FileNotFoundError):
        read_index(tmp_path / "missing", mmap=True)
    with pytest.raises(OSError, match="directory"):
        read_index(tmp_path)


def test_a_newer_format_asks_for_an_upgrade():
    data = serialize_index(sample_index()).copy()
    data[8:12] = np.frombuffer(struct.pack("<I", 2), np.uint8)
    with pytest.raises(ValueError, match=r"format version 2, this cccf-index reads up to 1\. Upgrade"):
        deserialize_index(data)


def tampered(change):
    """Bytes of an index whose manifest was changed and given a right checksum again."""
    data = serialize_index(sample_index()).tobytes()
    offset, length, _, end = struct.unpack("<QQI8s", data[-28:])
    manifest = json.loads(data[offset : offset + length])
    change(manifest)
    text = json.dumps(manifest).encode()
    return data[:offset] + text + struct.pack("<QQI8s", offset, len(text), zlib.crc32(text), end)


def rename(manifest, old, new):
    next(entry for entry in manifest["arrays"] if entry["name"] == old)["name"] = new


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["meta"].update(n_bits=16),
        lambda m: m["meta"].update(n_components=3),
        lambda m: m["meta"].update(n_components=-1),
        lambda m: m["meta"].update(scale=None),
        lambda m: m["meta"].pop("parts"),
        lambda m: m["meta"]["parts"].append({"first_id": 0, "n_dead": 0}),
        lambda m: m["meta"]["parts"][0].update(n_dead=9),
        lambda m: m["meta"]["parts"][0].update(n_dead=0),
        lambda m: m["meta"]["parts"][0].update(first_id=2**70),
        lambda m: m["meta"].update(item_scale="0x1p99999"),
        lambda m: m["meta"].update(item_scale=(7.0).hex()),
        lambda m: m["meta"].update(item_scale="nan"),
        lambda m: m["meta"].update(next_id="x"),
        lambda m: m["meta"].update(next_id=3),
        lambda m: m["meta"]["parts"][0].update(first_id=-3),
        lambda m: m["meta"]["parts"][0].update(first_id=2**63 - 3),
        lambda m: m["arrays"][0].update(dtype="(,)f4"),
        lambda m: m.pop("kind"),
        lambda m: m.pop("meta"),
        lambda m: m.pop("arrays"),
        lambda m: m["arrays"].pop(),
        lambda m: m["arrays"][0].update(shape=[-1]),
        lambda m: m["arrays"][0].update(shape=[10**15]),
        lambda m: m["arrays"][0].update(dtype="|O"),
        lambda m: m["arrays"][0].update(offset=10**9),
        lambda m: (rename(m, "0.starts", "x"), rename(m, "0.bias", "0.starts")),
        lambda m: (rename(m, "0.0.faiss", "x"), rename(m, "0.dead", "0.0.faiss")),
        lambda m: (rename(m, "0.0.faiss", "x"), rename(m, "1.0.faiss", "0.0.faiss")),
        lambda m: (rename(m, "0.radii", "x"), rename(m, "1.radii", "0.radii")),
    ],
)
def test_a_manifest_that_does_not_fit_its_arrays_is_a_value_error(change):
    with pytest.raises(ValueError, match="damaged"):
        deserialize_index(tampered(change))


def test_a_file_of_another_layout_is_refused():
    meta, arrays = container.read(serialize_index(sample_index()), "index", "data")
    del meta["layout"]
    leads = {name: SHARD_HEADER if name.endswith(".faiss") else 0 for name in arrays}
    data = container.write_bytes("index", meta, [(name, array, leads[name]) for name, array in arrays.items()])
    with pytest.raises(ValueError, match="another version of cccf-index"):
        deserialize_index(data)


def test_items_without_any_weight_come_back():
    nothing = CompositionalCodes.from_signs(np.ones((100, 2, 8)), np.zeros((100, 2)))
    for scale in (None, 100):
        index = IndexCCCF(2, 8, scale)
        index.add(nothing, bias=np.arange(100.0))
        assert deserialize_index(serialize_index(index)).search(nothing[:1], 3)[1].tolist() == [[99, 98, 97]]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("0.slots", lambda a: np.full_like(a, 2**63 - 1)),
        ("0.slots", lambda a: np.full_like(a, -2)),
        ("0.cell_groups", lambda a: a + 1000),
        ("0.cell_groups", lambda a: a[::-1].copy()),
        ("0.cell_starts", lambda a: a * 2),
        ("0.cell_starts", lambda a: a[:-1]),
        ("0.block_starts", lambda a: a + 1),
        ("0.radii", lambda a: a[:-1]),
        ("0.centres", lambda a: a[:-1]),
        ("0.centres", lambda a: a.astype(np.float64)),
        ("0.bias_peaks", lambda a: a[:-1]),
        ("0.coarse", lambda a: np.zeros(3, np.uint8)),
        ("0.weights", lambda a: a.astype(np.uint16)),
        ("0.starts", lambda a: a[:0]),
        ("0.starts", lambda a: np.array([0, a[-1], 2**62, -(2**63), -(2**62), -a[-1], -1, a[-1]])),
        ("0.cell_starts", lambda a: np.array([0, 2**62, -(2**63), a[-1]])),
        ("0.starts", lambda a: a.astype(np.float64)),
        ("0.starts", lambda a: a.astype(">i8")),
        ("0.starts", lambda a: a[::-1].copy()),
        ("0.weights", lambda a: a[:-1]),
        ("0.weights", lambda a: a.astype(np.float32)),
        ("0.peaks", lambda a: a[:, :-1].copy()),
        ("0.id_offsets", lambda a: a * 0),
        ("0.dead", lambda a: ~a),
        ("0.dead", lambda a: a[None]),
        ("0.dead", lambda a: a[:, None]),
        ("0.0.faiss", lambda a: a[:-1]),
        ("0.0.faiss", lambda a: np.append(a, a[:2])),
    ],
)
def test_tables_that_would_lead_a_kernel_astray_are_a_value_error(name, change):
    """Files whose checksums are right, as a faulty or malicious writer would make them."""
    meta, arrays = container.read(serialize_index(sample_index()), "index", "data")
    arrays[name] = change(arrays[name])
    leads = {name: SHARD_HEADER if name.endswith(".faiss") else 0 for name in arrays}
    data = container.write_bytes("index", meta, [(name, array, leads[name]) for name, array in arrays.items()])
    with pytest.raises(ValueError, match="damaged"):
        deserialize_index(data)


def test_codes_without_their_arrays_are_a_value_error(tmp_path):
    container.write_file(tmp_path / "codes", "codes", {"n_bits": 8}, [("bits", CODES.bits, 0)])
    with pytest.raises(ValueError, match="damaged"):
        CompositionalCodes.load(tmp_path / "codes")


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        write_index(sample_index(), tmp_path / "nowhere" / "items.cccf")
    assert caught.value.filename == str(tmp_path / "nowhere")


def test_wrong_arguments_are_explained(tmp_path):
    with pytest.raises(TypeError, match=r"faiss\.write_index"):
        write_index(faiss.IndexFlatIP(3), tmp_path / "x")
    for data in ("text", np.zeros(3), np.zeros((2, 2), np.uint8)):
        with pytest.raises(TypeError, match="uint8"):
            deserialize_index(data)


def test_a_full_disk_leaves_the_old_index_intact(tmp_path):
    resource = pytest.importorskip("resource", reason="Windows has no limit on file sizes")
    path = tmp_path / "items.cccf"
    write_index(filled_index(CODES[:10]), path)
    before = path.read_bytes()
    large = filled_index(random_codes(np.random.default_rng(0), 20_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for write in (lambda: write_index(large, path), lambda: random_codes(np.random.default_rng(0), 20_000).save(path)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))  # the kernel refuses to write on, as a full disk does
        try:
            with pytest.raises(OSError, match="File too large"):
                write()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["items.cccf"]
    assert read_index(path).ntotal == 10


def test_an_interrupt_leaves_the_old_index_intact(tmp_path, monkeypatch):
    path = tmp_path / "items.cccf"
    write_index(filled_index(CODES[:10]), path)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_index(filled_index(CODES), path)
    assert os.listdir(tmp_path) == ["items.cccf"]
    assert read_index(path).ntotal == 10


def test_writing_through_a_link_replaces_what_it_points_to(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.cccf"
    link.symlink_to(tmp_path / "real" / "items.cccf")
    write_index(filled_index(CODES), link)
    assert link.is_symlink()
    assert read_index(tmp_path / "real" / "items.cccf").ntotal == 600


def test_a_pickle_holds_bytes_and_the_reading_function_only():
    """No object of ours is rebuilt by attribute: other classes in the stream would be arbitrary code."""
    operations = pickletools.genops(pickle.dumps(filled_index(CODES), protocol=2))
    names = [name for operation, name, _ in operations if operation.name == "GLOBAL"]
    assert [name for name in names if not name.startswith("_codecs")] == ["cccf_index.io deserialize_index"]


def test_a_pickled_index_works_in_another_process(tmp_path):
    index = filled_index(CODES)
    (tmp_path / "index.pickle").write_bytes(pickle.dumps(index))
    script = (
        "import pickle, sys; index = pickle.load(open(sys.argv[1], 'rb')); "
        "print(index.search(index.reconstruct_n(0, 1), 3)[1][0].tolist())"
    )
    out = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "index.pickle")],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    expected = index.search(CODES[:1], 3, params=SearchParametersCCCF(num_threads=1))[1][0].tolist()
    assert json.loads(out.stdout) == expected
