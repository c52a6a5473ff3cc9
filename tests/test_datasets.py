"""Ratings from files and made up: readers, k-core, splits."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from cccf_index import datasets
from cccf_index.datasets import Ratings, k_core, read_ratings, split_ratings, synthetic_ratings
from cccf_index.datasets.ratings import find_places, find_rows

EXPECTED = {(10, 7): 5.0, (10, 3): 3.5, (2, 7): 1.0}


def triples(ratings):
    coo = ratings.user_items.tocoo()
    pairs = zip(ratings.user_ids[coo.row].tolist(), ratings.item_ids[coo.col].tolist(), strict=True)
    return dict(zip(pairs, coo.data.tolist(), strict=True))


@pytest.mark.parametrize(
    ("name", "text", "arguments"),
    [
        ("ratings.dat", "10::7::5::978300760\n10::3::3.5::978302109\n2::7::1::978301968\n", {}),
        ("ratings.csv", "userId,movieId,rating,timestamp\n10,7,5.0,1\n10,3,3.5,2\n2,7,1.0,3\n", {}),
        ("ratings.csv", "10,7,5.0,1\n10,3,3.5,2\n\n2,7,1.0,3", {}),
        ("ratings.csv", '\ufeffuser,item,rating\r\n"10","7","5"\r\n"10","3","3.5"\r\n2,7,1\r\n', {}),
        ("ratings.csv", "rating,item,user\n5,7,10\n3.5,3,10\n1,7,2\n", {"columns": ["user", "item", "rating"]}),
        ("ratings.csv", "5,7,10\n3.5,3,10\n1,7,2\n", {"columns": [2, 1, 0]}),
        ("ratings.tsv", "10\t7\t5\n10\t3\t3.5\n2\t7\t1\n", {}),
        ("ratings.txt", "10 7 5\n10  3 3.5\n 2 7\t1\n", {}),
        ("ratings.txt", "10|7|5\n10|3|3.5\n2|7|1\n", {"sep": "|"}),
        ("u.data", "10\t7\t5\t0\n10\t3\t3.5\t0\n2\t7\t1\t0\n", {}),
    ],
)
def test_text_files_are_read(tmp_path, name, text, arguments):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    ratings = read_ratings(path, **arguments)
    assert triples(ratings) == EXPECTED
    assert ratings.user_ids.tolist() == [2, 10]
    assert ratings.item_ids.tolist() == [3, 7]
    assert ratings.user_items.dtype == np.float32
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert triples(read_ratings(packed, **arguments)) == EXPECTED


def test_ids_may_be_strings(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text('user,item,rating\nann,"a, b",5\nbob,c,1\nann,c,2\n')
    assert triples(read_ratings(path)) == {("ann", "a, b"): 5.0, ("bob", "c"): 1.0, ("ann", "c"): 2.0}
    path.write_text("1,x,5\n02,y,4\n")
    assert triples(read_ratings(path)) == {(1, "x"): 5.0, (2, "y"): 4.0}


def test_two_columns_are_implicit_feedback(tmp_path):
    path = tmp_path / "seen.csv"
    path.write_text("10,7\n2,3\n")
    assert triples(read_ratings(path)) == {(10, 7): 1.0, (2, 3): 1.0}
    path.write_text("10,7,x\n2,3,y\n")
    assert triples(read_ratings(path, columns=[0, 1])) == {(10, 7): 1.0, (2, 3): 1.0}


def test_a_header_is_told_from_a_first_line_that_is_wrong(tmp_path):
    path = tmp_path / "seen.csv"
    path.write_text("userId,movieId\n10,7\n2,3\n")
    for columns in (None, [0, 1], ["userId", "movieId"]):
        assert triples(read_ratings(path, columns=columns)) == {(10, 7): 1.0, (2, 3): 1.0}
    path.write_text("user,item\n\n10,7\n2,3\n")
    assert triples(read_ratings(path)) == {(10, 7): 1.0, (2, 3): 1.0}
    path.write_text("ann,x\nbob,y\n")  # no way to tell
    assert triples(read_ratings(path)) == {("ann", "x"): 1.0, ("bob", "y"): 1.0}
    assert triples(read_ratings(path, header=True, columns=[0, 1])) == {("bob", "y"): 1.0}
    path.write_text("a,b,c\n1,2,3\n")
    with pytest.raises(ValueError, match="line 1: expected a number for a rating, got 'c'"):
        read_ratings(path, header=False)
    for first in ("1,2,nan", "1,2,good", "1,2,"):
        path.write_text(f"{first}\n3,4,5\n")
        with pytest.raises(ValueError, match="line 1: expected a number for a rating"):
            read_ratings(path)
    path.write_text("u1,i1,4.O\nu1,i2,3\n")
    with pytest.raises(ValueError, match=r"line 1: expected a number for a rating, got '4\.O'"):
        read_ratings(path)


def test_ids_are_kept_as_they_are_written_when_asked(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("007,1,5\n7,01,3\n")
    assert triples(read_ratings(path, ids="str")) == {("007", "1"): 5.0, ("7", "01"): 3.0}
    with pytest.raises(ValueError, match="user 7 and item 1 more than once"):
        read_ratings(path)
    with pytest.raises(ValueError, match="`ids` must be one of"):
        read_ratings(path, ids="int")


def test_underscores_and_tabs_join_no_ids(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("1_23,7,5\n12_3,8,4\n")
    assert triples(read_ratings(path)) == {("1_23", 7): 5.0, ("12_3", 8): 4.0}
    path.write_text("a,7,1_0\n")
    with pytest.raises(ValueError, match="got '1_0'"):
        read_ratings(path)
    path = tmp_path / "ratings.dat"
    path.write_text("1\t9::2::3\n")
    assert triples(read_ratings(path)) == {("1\t9", 2): 3.0}


@pytest.mark.parametrize("rating", ["1e300", "-1e17"])
def test_ratings_beyond_all_use_are_refused(tmp_path, rating):
    path = tmp_path / "ratings.csv"
    path.write_text(f"1,2,3\n1,3,{rating}\n")
    with pytest.raises(ValueError, match="line 2"):
        read_ratings(path)
    np.savez(tmp_path / "ratings.npz", user=[1], item=[1], rating=[float(rating)])
    with pytest.raises(ValueError, match="at most"):
        read_ratings(tmp_path / "ratings.npz")


def test_rows_are_found_by_ids():
    ratings = Ratings(sparse.csr_matrix(np.eye(3)), np.array([30, 10, 20]), np.array(["b", "c", "a"]))
    assert ratings.user_rows([10, 30, 10]).tolist() == [1, 0, 1]
    assert ratings.item_rows("a") == 2
    for ids in (15, [10, 99]):
        with pytest.raises(ValueError, match="ids of users in these ratings, got"):
            ratings.user_rows(ids)
    assert Ratings(sparse.csr_matrix((0, 1)), [], [5]).user_rows([]).tolist() == []
    with pytest.raises(ValueError, match=r"got .*'zebra'"):
        ratings.item_rows(["a", "zebra"])


def test_ratings_that_do_not_fit_their_ids_are_refused():
    matrix = sparse.csr_matrix(np.eye(2, 3))
    for arguments in (
        (matrix, [0, 1, 2], [0, 1]),
        (matrix, [0, 0], [0, 1, 2]),
        (matrix, [0, 1], [0, 1, 2], np.ones((3, 1))),
        (matrix, [0, 1], [0, 1, 2], None, np.ones(3)),
    ):
        with pytest.raises(ValueError, match="must be"):
            Ratings(*arguments)
    with pytest.raises(TypeError, match=r"scipy\.sparse"):
        Ratings(np.eye(2), [0, 1], [0, 1])
    with pytest.raises(TypeError, match="`ratings` must be Ratings, got csr_matrix"):
        k_core(matrix)


def test_a_zero_rating_is_a_rating(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("1,1,0\n1,2,5\n")
    assert triples(read_ratings(path)) == {(1, 1): 0.0, (1, 2): 5.0}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("1::2::3::4\n1::5\n", 2, "expected at least 3 fields separated by '::', got 2"),
        ("1::2::3::4\n\n1::5::good::4\n", 3, "expected a number for a rating, got 'good'"),
        ("1::2::3\n1::5::nan\n", 2, "got 'nan'"),
        ("1::2::3\n1::5::inf\n", 2, "got 'inf'"),
        ("1::2::3\n::5::3\n", 2, "ids of a user and an item, got '' and '5'"),
        ("1/2/3\n1/5/3\n", 1, "Pass `sep=`"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, text, line, message):
    path = tmp_path / "ratings.dat"
    path.write_text(text)
    with pytest.raises(ValueError, match="line") as error:
        read_ratings(path)
    assert f"ratings.dat, line {line}:" in str(error.value)
    assert message in str(error.value)


def test_line_numbers_count_lines_inside_quotes(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text('user,item,rating\n"a\nb",x,3\nc,x,bad\n')
    with pytest.raises(ValueError, match=r"line 4: expected a number for a rating, got 'bad'"):
        read_ratings(path)


@pytest.mark.parametrize("text", ["", "user,item,rating\n", "\n\n"])
def test_a_file_without_ratings_is_an_error(tmp_path, text):
    path = tmp_path / "ratings.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match="holds no ratings"):
        read_ratings(path)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_bytes(b"1,2,3\n\0\0\0,2,3\n")
    with pytest.raises(ValueError, match=r"ratings\.csv is not text, .*zero bytes"):
        read_ratings(path)
    packed = tmp_path / "ratings.csv.gz"
    for data in (b"1,2,3\n", gzip.compress(b"1,2,3\n" * 1000)[:-12]):
        packed.write_bytes(data)
        with pytest.raises(ValueError, match=r"ratings\.csv\.gz is not text, plain, gzipped or zipped"):
            read_ratings(packed)


def test_wrong_arguments_are_explained(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("a,b,c\n1,2,3\n")
    with pytest.raises(ValueError, match="must be in the header"):
        read_ratings(path, columns=["a", "b", "stars"])
    with pytest.raises(ValueError, match="`columns` must be those of"):
        read_ratings(path, columns=[0])
    with pytest.raises(ValueError, match="`duplicates` must be one of"):
        read_ratings(path, duplicates="first")
    with pytest.raises(ValueError, match="`sep` must be"):
        read_ratings(path, sep="")
    with pytest.raises(ValueError, match="`sep` must be"):
        read_ratings(path, sep=5)
    with pytest.raises(ValueError, match="expected at least 10 fields"):
        read_ratings(path, columns=[0, 1, 9])
    with pytest.raises(FileNotFoundError):
        read_ratings(tmp_path / "missing.csv")
    with pytest.raises(FileNotFoundError):
        read_ratings(tmp_path / "missing.npz")


def test_a_pair_given_twice_is_an_error_unless_one_says_which(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("1,1,2\n5,9,4\n1,1,5\n")
    with pytest.raises(ValueError, match="user 1 and item 1 more than once"):
        read_ratings(path)
    assert triples(read_ratings(path, duplicates="last")) == {(1, 1): 5.0, (5, 9): 4.0}
    assert triples(read_ratings(path, duplicates="mean")) == {(1, 1): 3.5, (5, 9): 4.0}
    assert triples(read_ratings(path, duplicates="sum")) == {(1, 1): 7.0, (5, 9): 4.0}


def test_npz_files_are_read(tmp_path):
    path = tmp_path / "ratings.npz"
    users, items, values = np.array([10, 10, 2]), np.array([7, 3, 7]), np.array([5, 3.5, 1])
    np.savez(path, user=users, item=items, rating=values)
    assert triples(read_ratings(path)) == EXPECTED
    sparse.save_npz(path, sparse.csr_matrix((values, (users, items)), shape=(20, 20)))
    assert triples(read_ratings(path)) == EXPECTED


def test_npz_files_of_another_kind_are_refused(tmp_path):
    path = tmp_path / "ratings.npz"
    for arrays in (
        {"user": [1], "item": [1]},
        {"user": [1, 2], "item": [1], "rating": [1.0]},
        {"user": [1.5], "item": [1], "rating": [1.0]},
        {"user": [1], "item": [1], "rating": [np.nan]},
        {"user": [1], "item": [1], "rating": ["x"]},
    ):
        np.savez(path, **{name: np.array(values) for name, values in arrays.items()})
        with pytest.raises(ValueError, match=r"ratings\.npz"):
            read_ratings(path)
    np.savez(path, user=np.array([{}], dtype=object), item=[1], rating=[1.0])
    with pytest.raises(ValueError, match=r"ratings\.npz"):  # never unpickled
        read_ratings(path)
    np.savez(path, format=np.array("csr"))
    with pytest.raises(ValueError, match=r"ratings\.npz"):
        read_ratings(path)
    with path.open("wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(ValueError, match=r"ratings\.npz"):
        read_ratings(path)
    path.write_text("not a zip file")
    with pytest.raises(ValueError, match="Expected arrays user, item and rating"):
        read_ratings(path)
    with pytest.raises(ValueError, match=r"None for \.npz"):
        read_ratings(path, sep=",")


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 15), st.integers(1, 15), st.integers(0, 4), st.integers(0, 2**31))
def test_a_core_is_the_largest_part_with_k_ratings_everywhere(m, n, k, seed):
    rng = np.random.default_rng(seed)
    matrix = sparse.csr_matrix((rng.random((m, n)) < 0.3) * rng.integers(1, 6, (m, n)).astype(np.float32))
    ratings = Ratings(matrix, np.arange(m) * 10, np.arange(n) * 10, user_features=np.arange(m)[:, None])
    users, items = set(range(m)), set(range(n))
    dense = matrix.toarray()
    while True:  # one at a time, in any order, ends at the same core
        drop = next((("u", u) for u in users if sum(dense[u, j] > 0 for j in items) < k), None)
        drop = drop or next((("i", j) for j in items if sum(dense[u, j] > 0 for u in users) < k), None)
        if drop is None:
            break
        (users if drop[0] == "u" else items).remove(drop[1])
    if not any(dense[u, j] for u in users for j in items):
        with pytest.raises(ValueError, match="core is empty"):
            k_core(ratings, k)
        return
    core = k_core(ratings, k)
    np.testing.assert_array_equal(core.user_items.toarray(), dense[np.ix_(sorted(users), sorted(items))])
    assert core.user_ids.tolist() == [10 * u for u in sorted(users)]
    assert core.item_ids.tolist() == [10 * j for j in sorted(items)]
    assert core.user_features.ravel().tolist() == sorted(users)


def test_splits_hold_out_a_share_of_each_user_and_lose_nothing():
    matrix = synthetic_ratings(100, 80, seed=1).user_items
    train, test = split_ratings(matrix, 0.3, seed=0)
    np.testing.assert_array_equal((train + test).toarray(), matrix.toarray())
    assert train.multiply(test).nnz == 0
    counts = np.diff(matrix.indptr)
    np.testing.assert_array_equal(np.diff(test.indptr), (3 * counts) // 10)
    again, other = split_ratings(matrix, 0.3, seed=0)[0], split_ratings(matrix, 0.3, seed=1)[0]
    np.testing.assert_array_equal(train.toarray(), again.toarray())
    assert (train != other).nnz > 0


def test_every_rating_is_held_out_as_often_as_any_other():
    matrix = sparse.csr_matrix(np.ones((400, 10)))
    share = np.asarray(split_ratings(matrix, 0.3, seed=5)[1].mean(axis=0)).ravel()
    np.testing.assert_allclose(share, 0.3, atol=0.1)


def test_a_user_with_one_rating_keeps_it():
    assert np.diff(split_ratings(sparse.csr_matrix(np.ones((3, 5))), 1 - 1e-10)[0].indptr).tolist() == [1, 1, 1]
    train, test = split_ratings(sparse.csr_matrix(np.eye(3)), 0.9)
    assert train.nnz == 3
    assert test.nnz == 0
    with pytest.raises(ValueError, match="`test_size` must be above 0"):
        split_ratings(sparse.csr_matrix(np.eye(3)), 1.0)


def test_synthetic_ratings_have_planted_groups():
    ratings = synthetic_ratings(600, 300, n_groups=4, ratings_per_user=40, seed=3)
    assert ratings.user_items.shape == (600, 300)
    assert set(np.unique(ratings.user_items.data)) == {1, 2, 3, 4, 5}
    assert 30 < ratings.user_items.nnz / 600 < 45
    users, items = ratings.user_features.argmax(axis=1), ratings.item_features.argmax(axis=1)
    coo = ratings.user_items.tocoo()
    same = users[coo.row] == items[coo.col]
    assert coo.data[same].mean() > coo.data[~same].mean() + 0.5
    counts = np.bincount(coo.col, minlength=300)
    assert np.sort(counts)[-30:].sum() > 3 * np.sort(counts)[:30].sum()  # some items are popular
    again = synthetic_ratings(600, 300, n_groups=4, ratings_per_user=40, seed=3)
    np.testing.assert_array_equal(ratings.user_items.toarray(), again.user_items.toarray())
    assert repr(ratings) == f"Ratings(600 users, 300 items, {coo.nnz} ratings)"


@pytest.mark.parametrize(("affinity", "least", "most"), [(0.0, 0.15, 0.35), (0.8, 0.75, 0.9), (1.0, 1.0, 1.0)])
def test_users_of_synthetic_ratings_rate_items_of_their_own_group_as_often_as_wanted(affinity, least, most):
    ratings = synthetic_ratings(300, 800, n_groups=4, ratings_per_user=20, affinity=affinity)
    matrix = ratings.user_items.tocoo()
    same = ratings.user_features[matrix.row].argmax(axis=1) == ratings.item_features[matrix.col].argmax(axis=1)
    assert least <= same.mean() <= most
    with pytest.raises(ValueError, match="affinity"):
        synthetic_ratings(affinity=1.5)


def share_of_the_most_rated(ratings, share):
    """The share of the ratings that this share of the items has."""
    counts = np.sort(np.bincount(ratings.user_items.indices, minlength=ratings.user_items.shape[1]))[::-1]
    return counts[: int(share * len(counts))].sum() / counts.sum()


def test_popular_items_of_synthetic_ratings_are_as_popular_as_wanted():
    options = {"n_users": 400, "n_items": 1000, "seed": 5}
    flat, usual, steep = (synthetic_ratings(**options, popularity=exponent) for exponent in (0, 1, 1.5))
    assert share_of_the_most_rated(flat, 0.1) < 0.17
    assert (
        share_of_the_most_rated(flat, 0.1) < share_of_the_most_rated(usual, 0.1) < share_of_the_most_rated(steep, 0.1)
    )
    np.testing.assert_array_equal(usual.user_items.toarray(), synthetic_ratings(**options).user_items.toarray())
    with pytest.raises(ValueError, match="`popularity` must be"):
        synthetic_ratings(popularity=-1)


def test_synthetic_ratings_stay_the_same_from_version_to_version():
    matrix = synthetic_ratings(50, 40, n_groups=3, ratings_per_user=9, affinity=0.5, seed=2).user_items
    assert (matrix.nnz, matrix.data.sum(), (matrix.indices * matrix.data).sum()) == (388, 1560.0, 32326.0)


def test_synthetic_ratings_of_the_smallest_size():
    assert synthetic_ratings(1, 2, n_groups=1, ratings_per_user=1, noise=0).user_items.nnz == 1
    with pytest.raises(ValueError, match="`n_users` must be"):
        synthetic_ratings(0, 2)


def test_ids_of_npz_files_are_text_or_fit_64_bits(tmp_path):
    path = tmp_path / "ratings.npz"
    np.savez(path, user=np.array([b"ann", b"bob"]), item=np.array([1, 2]), rating=np.array([1.0, 2.0]))
    assert read_ratings(path).user_ids.tolist() == ["ann", "bob"]
    np.savez(path, user=np.array([1, 2**63], dtype=np.uint64), item=np.array([1, 2]), rating=np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"below 2\^63"):
        read_ratings(path)


def test_former_names_are_the_same_functions():
    assert datasets.places is find_places
    assert datasets.rows_of is find_rows
