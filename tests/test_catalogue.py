import numpy as np
import pytest
from model_helpers import MATRIX, fitted
from scipy import sparse

import cccf_index as ci
from cccf_index.catalogue import Catalogue
from cccf_index.datasets.ratings import Ratings, find_places, find_rows

NAMES = np.array([f"Ärger {i} 🎵" for i in range(MATRIX.shape[0])]), np.arange(MATRIX.shape[1]) * 3 - 50


def catalogue_of(name="CCCF"):
    return Catalogue.of_model(fitted(name), *NAMES)


@pytest.mark.parametrize("name", ["DCF", "kernel CCCF", "CCCF", "real CCCF"])
def test_a_catalogue_recommends_what_its_model_does(name):
    model, users = fitted(name), np.array([5, 0, 5])
    catalogue = Catalogue.of_model(model, *NAMES)
    scores, items = catalogue.recommend(users, 7, exclude=MATRIX[users])
    lists = [MATRIX[user].indices for user in users]
    np.testing.assert_array_equal(items, catalogue.recommend(users, 7, exclude=lists)[1])
    expected = model.recommend(users, 7, exclude=MATRIX[users])
    np.testing.assert_array_equal(items, expected[1])
    np.testing.assert_allclose(scores, expected[0], rtol=1e-5)


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("name", ["CCCF", "real CCCF"])
def test_a_file_gives_back_names_queries_and_index(name, mmap, tmp_path):
    catalogue = catalogue_of(name)
    catalogue.save(tmp_path / "items.cccf")
    read = Catalogue.load(tmp_path / "items.cccf", mmap=mmap)
    np.testing.assert_array_equal(read.user_ids, NAMES[0])
    np.testing.assert_array_equal(read.names(np.array([4, 2])), NAMES[1][[4, 2]])
    users = np.arange(MATRIX.shape[0])
    for one, other in zip(read.recommend(users, 5), catalogue.recommend(users, 5), strict=True):
        np.testing.assert_array_equal(one, other)
    index = ci.read_index(tmp_path / "items.cccf")
    np.testing.assert_array_equal(index.reconstruct_n(), catalogue.index.reconstruct_n())


@pytest.mark.parametrize("mmap", [False, True])
def test_a_catalogue_of_a_refined_index_recommends_by_its_vectors(mmap, tmp_path):
    rng = np.random.default_rng(0)
    items, users = rng.standard_normal((300, 12)).astype(np.float32), rng.standard_normal((40, 12)).astype(np.float32)
    index = ci.IndexCCCF.from_embeddings(items, users, 2, 8, verbose=False)
    refined = ci.IndexRefineCCCF(index, items, storage="int8", k_factor=5)
    catalogue = Catalogue.of_vectors(refined, users, np.arange(40) + 7, np.arange(300) * 2)
    catalogue.save(tmp_path / "items.cccf")
    read = Catalogue.load(tmp_path / "items.cccf", mmap=mmap)
    expected = refined.search(users, 5)
    for found, wanted in zip(read.recommend(np.arange(40), 5), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    again = ci.read_index(tmp_path / "items.cccf")
    assert isinstance(again, ci.IndexRefineCCCF)
    np.testing.assert_array_equal(again.search(users, 5)[1], expected[1])
    coded = Catalogue(refined, None, np.arange(40), index.quantizer.encode_users(users), 1.0, np.zeros(40, np.float32))
    with pytest.raises(TypeError, match="`x` must be vectors, got CompositionalCodes"):
        coded.recommend(np.arange(3), 5)


def test_items_that_are_not_there_have_no_rating():
    scores, items = catalogue_of().recommend(np.array([0]), MATRIX.shape[1] + 2)
    assert items[0, -2:].tolist() == [-1, -1]
    assert (scores[0, -2:] == np.finfo(np.float32).min).all()


def test_a_plain_index_is_a_catalogue_without_users(tmp_path):
    index = ci.IndexCCCF(2, 8)
    index.add_with_ids(ci.CompositionalCodes.from_signs(np.ones((3, 2, 8))), [7, 10**12, 9])
    ci.write_index(index, tmp_path / "items.cccf")
    catalogue = Catalogue.load(tmp_path / "items.cccf")
    assert len(catalogue.user_ids) == len(catalogue.queries) == 0
    assert catalogue.names(np.array([10**12])).tolist() == [10**12]


def test_what_was_seen_is_found_by_names_and_unknown_ones_are_left_out():
    catalogue = catalogue_of()
    items = np.array([-50, 999, -44])  # places 0, none, 2
    users = np.array(["nobody", NAMES[0][3]])
    ratings = Ratings(sparse.csr_matrix(np.array([[1.0, 1, 1], [0, 1, 1]])), users, items)
    seen = catalogue.seen(ratings, np.array([8, 3])).toarray()
    assert seen[0].sum() == 0
    assert np.flatnonzero(seen[1]).tolist() == [2]


def test_what_was_seen_of_an_index_without_names_goes_by_its_ids():
    index = ci.IndexCCCF(2, 8)
    codes = ci.CompositionalCodes.from_signs(np.ones((2, 2, 8)))
    index.add_with_ids(codes, [7, 40])
    catalogue = Catalogue.of_vectors(index, codes.to_vectors(), np.array([1, 2]), None)
    ratings = Ratings(sparse.csr_matrix(np.array([[1.0, 1.0]])), np.array([2]), np.array([40, -3]))
    users = np.array([0, 1])
    found = catalogue.recommend(users, 2, exclude=catalogue.seen(ratings, users))[1]
    assert found.tolist() == [[7, 40], [7, -1]]


def test_ids_are_found_whether_numbers_or_text():
    assert find_places(np.array([30, 7]), ["7", "8", "030", "x", "9" * 30]).tolist() == [1, -1, 0, -1, -1]
    assert find_places(np.array(["07", "7"]), [7]).tolist() == [1]
    assert find_places(np.array(["b", "a"]), np.array(["a", "c"])).tolist() == [1, -1]
    assert find_places(np.array([], dtype=np.int64), [1]).tolist() == [-1]


def test_an_unknown_id_is_shown_known_ones():
    with pytest.raises(ValueError, match=r"`ids` must be ids of users in this catalogue, got 'nobody'\. Known .* 🎵, "):
        catalogue_of().user_rows(["nobody"])
    with pytest.raises(ValueError, match=r"got 7\. Known ids are such as 10, 20, 30; there are 6,040\.$"):
        find_rows(np.arange(1, 6041) * 10, [10, 7], "users")
    with pytest.raises(ValueError, match=r"got 7\. There are none\.$"):
        find_rows(np.arange(0), [7], "users")


@pytest.mark.parametrize("damage", ["truncated", "bytes"])
def test_a_damaged_file_is_refused(damage, tmp_path):
    path = tmp_path / "items.cccf"
    catalogue_of().save(path)
    data = bytearray(path.read_bytes())
    if damage == "truncated":
        data = data[:-40]
    else:
        data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="damaged"):
        Catalogue.load(path)


def test_names_that_do_not_fit_are_refused(tmp_path):
    whole = catalogue_of()
    for wrong in (
        Catalogue(whole.index, NAMES[1][:5], whole.user_ids, whole.queries, 1.0, whole.intercepts),
        Catalogue(whole.index, NAMES[1], whole.user_ids[:5], whole.queries, 1.0, whole.intercepts),
    ):
        wrong.save(tmp_path / "items.cccf")
        with pytest.raises(ValueError, match="fit"):
            Catalogue.load(tmp_path / "items.cccf")
