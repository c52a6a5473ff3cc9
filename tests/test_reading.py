"""Files as people have them: headers of public data sets, packed files, JSON lines, Parquet, and wrong columns."""

import gzip
import sys
import warnings
import zipfile

import numpy as np
import pytest
from rating_files import EXPECTED, FILES

from cccf_index.datasets import read_ratings
from cccf_index.datasets.headers import find_role, is_header
from cccf_index.datasets.reading import read_feature_lines
from cccf_index.datasets.text import guess_separator


def read_triples(path, **options):
    ratings = read_ratings(path, **options)
    coo = ratings.user_items.tocoo()
    pairs = zip(ratings.user_ids[coo.row].tolist(), ratings.item_ids[coo.col].tolist(), strict=True)
    return dict(zip(pairs, coo.data.tolist(), strict=True))


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("kind", FILES)
def test_the_files_of_public_data_sets_are_read_as_they_are(kind, tmp_path):
    name, text, described = FILES[kind]
    path = write(tmp_path / name, text)
    assert read_triples(path, ids="str") == EXPECTED
    assert read_ratings(path).source == f"{path}: {described}"
    assert read_ratings(path).user_ids.tolist() in ([2, 10], ["10", "2"])
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_triples(packed, ids="str") == EXPECTED
    misnamed = tmp_path / f"packed-{name}"
    misnamed.write_bytes(packed.read_bytes())  # as browsers unpack, or do not
    assert read_triples(misnamed, ids="str") == EXPECTED
    archive = tmp_path / "data.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("__MACOSX/._junk", b"\0")
        file.writestr(f"folder/{name}", text)
    assert read_triples(archive, ids="str") == EXPECTED
    assert read_ratings(archive).source == f"{archive} (folder/{name}): {described}"


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        (
            "timestamp,visitorid,event,itemid,transactionid\n1433221332117,10,view,7,\n1433224214164,2,addtocart,3,4\n",
            {(10, 7), (2, 3)},
        ),
        ("item_id,user_id\n7,10\n3,2\n", {(10, 7), (2, 3)}),
        ("user_id,item_id\nann,x\nbob,y\n", {("ann", "x"), ("bob", "y")}),
        ("user_id,item_id,timestamp\nann,x,978300760\nbob,y,978300761\n", {("ann", "x"), ("bob", "y")}),
        ("user,item,order_id\n10,7,1\n2,3,2\n", {(10, 7), (2, 3)}),
        ("t_dat,customer_id,article_id\n2018-09-20,a,7\n2018-09-21,b,3\n", {("a", 7), ("b", 3)}),
    ],
)
def test_files_without_a_rating_column_are_implicit_feedback(text, pairs, tmp_path):
    path = write(tmp_path / "events.csv", text)
    assert read_triples(path) == dict.fromkeys(pairs, 1.0)
    ratings = read_ratings(path)
    assert ratings.feedback == "implicit"
    assert "no ratings (each line counts as 1)" in ratings.source


def test_ratings_that_differ_are_explicit_feedback(tmp_path):
    path = write(tmp_path / "ratings.csv", "1,2,3\n1,3,4\n")
    assert read_ratings(path).feedback == "explicit"
    assert read_ratings(write(path, "1,2,3\n1,3,3\n")).feedback == "implicit"


@pytest.mark.parametrize(
    ("first", "places"),
    [
        ("A2CX7LUOHB2NDG,B00004WTY6,5.0,1365811200", "no header; users from column 0, items from column 1"),
        ("B00004WTY6,A2CX7LUOHB2NDG,5.0,1365811200", "no header; users from column 1, items from column 0"),
        ("076124631X,A2CX7LUOHB2NDG,5.0,1365811200", "no header; users from column 1, items from column 0"),
    ],
)
def test_amazon_files_without_a_header_are_told_apart_by_the_form_of_the_ids(first, places, tmp_path):
    ratings = read_ratings(write(tmp_path / "ratings_Beauty.csv", f"{first}\n"))
    assert ratings.user_ids.tolist() == ["A2CX7LUOHB2NDG"]
    assert places in ratings.source


def test_steam_without_a_header_names_the_option(tmp_path):
    lines = "151603712,Skyrim,purchase,1.0,0\n151603712,Skyrim,play,273.0,0\n59945701,Portal 2,purchase,1.0,0\n"
    path = write(tmp_path / "steam-200k.csv", lines)
    with pytest.raises(ValueError, match=r"got 'purchase'\. Pass `columns=`"):
        read_ratings(path)
    with pytest.raises(ValueError, match='Pass duplicates="last" or "mean" to keep one rating, or "sum"'):
        read_ratings(path, columns=[0, 1, 3])
    found = read_triples(path, columns=[0, 1, 3], duplicates="last")
    assert found == {(151603712, "Skyrim"): 273.0, (59945701, "Portal 2"): 1.0}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("foo,bar,baz", 'holds the users and items, got the columns "foo", "bar", "baz". .* with `columns='),
        ("user_id,uri,rating", 'holds the items, got the columns "user_id", "uri", "rating"'),
        ("order_id,product_id,rating", "holds the users"),
        ("user_id,movie_id,book_id", '"movie_id", "book_id" may all hold the items, got the columns "user_id"'),
        ("customer_id,uid,item", '"customer_id", "uid" may all hold the users'),
        ("user,item,clicks,purchases", '"clicks", "purchases" may all hold the ratings'),
    ],
)
def test_a_header_that_fits_nothing_or_too_much_is_an_error_that_names_its_columns(header, message, tmp_path):
    path = write(tmp_path / "mine.csv", f"{header}\n1,2,3,4\n")
    with pytest.raises(ValueError, match=message):
        read_ratings(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_triples(path, columns=[0, 1, 2]) == {(1, 2): 3.0}


def test_a_header_of_known_names_needs_no_numbers_below_it():
    assert is_header(["user_id", "item_id"], ["ann", "x"])
    assert is_header(["user", "movie"], [])
    assert is_header(["user_id", "uri"], ["ann", "x"])
    assert is_header(["who", "what", "how"], ["ann", "x", "5"])
    assert not is_header(["ann", "x"], ["bob", "y"])
    assert not is_header(["ann", "book"], ["bob", "film"])  # a word alone may be an id
    assert not is_header(["user", "item", "5"], ["user", "item", "4"])


@pytest.mark.parametrize(
    ("role", "names"),
    [
        (
            "user",
            "user user_id userId UserID uid customer reviewerID visitorid User-ID customer_id user_name id_user users",
        ),
        (
            "item",
            "item item_id movieId product product_id asin isbn ISBN business_id book_id itemid artist_id game sku",
        ),
        (
            "rating",
            "rating Rating score stars overall Book-Rating weight plays playcount hours star_rating listen_count",
        ),
        (None, "timestamp date event transactionid price review_id is_read category unixReviewTime text"),
    ],
)
def test_case_hyphens_and_underscores_do_not_matter_for_names(role, names):
    for name in names.split():
        for form in (name, name.upper(), name.replace("_", "-"), name.replace("_", " ")):
            assert find_role(form) == role, form


def test_given_columns_are_found_whatever_their_case(tmp_path):
    path = write(tmp_path / "mine.csv", "A-user,B,b,c\n1,2,3,4\n")
    assert read_triples(path, columns=["a_user", "b", "C"]) == {(1, 3): 4.0}


@pytest.mark.parametrize("times", [range(978300760, 978300763), [1433221332117, 1433221332117, 1433221332118]])
def test_timestamps_are_not_taken_for_ratings(times, tmp_path):
    path = write(tmp_path / "mine.csv", "".join(f"{row},{row + 1},{time}\n" for row, time in enumerate(times)))
    with pytest.raises(ValueError, match=r"the ratings in column 2 look like timestamps, .* `columns="):
        read_ratings(path)
    with pytest.warns(UserWarning, match="look like timestamps"):  # who insists may have them
        read_ratings(path, columns=[0, 1, 2])
    assert read_ratings(path, columns=[0, 1]).feedback == "implicit"
    path.write_text("user,item,rating\n" + path.read_text())
    with pytest.raises(ValueError, match='the ratings in "rating" look like timestamps'):
        read_ratings(path)


def test_ids_in_place_of_ratings_are_warned_of(tmp_path):
    path = write(tmp_path / "mine.csv", "".join(f"{row % 10},{row // 10},{5000 + 3 * row}\n" for row in range(120)))
    with pytest.warns(UserWarning, match="the ratings in column 2 look like ids.* `columns="):
        read_ratings(path)
    path.write_text("user,item,plays\n" + path.read_text())  # counts may well differ
    assert read_ratings(path).user_items.nnz == 120


def test_swapped_users_and_items_are_warned_of(tmp_path):
    path = write(tmp_path / "mine.csv", "".join(f"{row},{row % 4},{row % 5}\n" for row in range(200)))
    with pytest.warns(
        UserWarning, match=r"200 users, most of them with one rating, and only 4 items.* `columns=\[1, 0, 2\]`"
    ):
        read_ratings(path)
    with pytest.warns(UserWarning, match=r"pass `columns=\[1, 0\]`"):
        read_ratings(path, columns=[0, 1])
    assert read_ratings(path, columns=[1, 0, 2]).user_items.shape == (4, 200)
    path.write_text("user,item,rating\n" + path.read_text())  # a header is believed
    assert read_ratings(path).user_items.shape == (200, 4)
    assert read_ratings(path, columns=["user", "item"]).user_items.shape == (200, 4)
    with pytest.warns(UserWarning, match=r"users are read from \"item\" .* pass `columns=\['user', 'item'\]`"):
        read_ratings(path, columns=["item", "user"])


def test_text_that_is_not_utf_8_is_read(tmp_path):
    text = '"User-ID";"ISBN";"Book-Rating"\n"Jos\xe9";"x";"5"\n"ann";"y";"3"\n'
    for encoding in ("latin-1", "utf-16", "utf-8-sig"):
        path = write(tmp_path / "BX-Book-Ratings.csv", text, encoding)
        assert read_triples(path) == {("Jos\xe9", "x"): 5.0, ("ann", "y"): 3.0}
    assert "latin-1" in read_ratings(write(path, text, "latin-1")).source


def test_the_file_of_ratings_is_found_in_a_zip_file(tmp_path):
    archive = tmp_path / "ml-latest-small.zip"
    chosen = ("ml/ratings.csv", "u.data", "events.csv")

    def pack(*names):
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("ml/", "")
            for name in names:
                file.writestr(name, "1\t2\t3\n" if name in chosen else "no\tratings\there\n")

    for names in (
        ["ml/movies.csv", "ml/ratings.csv", "ml/README.txt"],
        ["u.data", "u.item", "u.user"],
        ["x.csv", "events.csv"],
    ):
        pack(*names)
        assert read_triples(archive) == {(1, 2): 3.0}
    for names in (["user_artists.dat", "tags.dat"], ["train_ratings.csv", "test_ratings.csv"], []):
        pack(*names)
        with pytest.raises(ValueError, match=", ".join(sorted(names)) or "no files"):
            read_ratings(archive)
    archive.write_bytes(b"no zip file")
    with pytest.raises(ValueError, match=r"small\.zip is not text"):
        read_ratings(archive)


@pytest.mark.parametrize(
    ("lines", "suffix", "sep"),
    [
        (["1,2,3", "4,5,6"], ".csv", ","),
        (["a;b;c", "1;2;3,5"], ".csv", ";"),
        (["1;2;3,5", "1;3;4,0"], ".csv", ";"),
        (["a\tb", "1\t2"], ".csv", "\t"),
        (['ann,"a; b",5', "bob,c,1"], ".csv", ","),
        (["1,2,3", "1"], ".csv", ","),
        (["1;2;3", "1"], ".csv", ";"),
        (["1"], ".csv", ","),
        (["1::2::3", "1::3::4"], ".dat", "::"),
        (["1\t2\t3", "1\t3\t4"], ".dat", "\t"),
        (["1 2 3", "1  3 4"], "", None),
        (["u1\tthe beatles\t5", "u1\tabba\t3"], ".txt", "\t"),
        (["user id,item id,rating", "1,2,3"], ".txt", ","),
        (["1|2|3", "1|3|4"], ".txt", "|"),
        ([], ".txt", None),
    ],
)
def test_the_separator_is_guessed_from_the_first_lines(lines, suffix, sep):
    assert guess_separator(lines, suffix) == sep


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"user": 1, "item": 2, "rating": 3}\n{"user": 1, "rating": 3}\n',
            'record 2: expected the id of an item in "item", got None',
        ),
        (
            '{"user": 1, "item": 2, "rating": 3}\n{"user": 1, "item": 3, "rating": "x"}\n',
            "record 2: expected a number for a rating",
        ),
        ('{"user": {"id": 1}, "item": 2}\n', "record 1: expected the id of a user"),
        ('{"user": 1, "item": 2}\n{"user": \n', "record 2 is not JSON"),
        ("{'user': 1, 'item': 2}\n", "record 1 is not JSON"),
        ("[1, 2, 3]\n", "record 1 is not JSON with one object per line: expected an object"),
        ('{"a": 1, "b": 2}\n', 'got the columns "a", "b"'),
        ("\n", "holds no ratings"),
    ],
)
def test_wrong_json_is_explained(text, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read_ratings(write(tmp_path / "mine.jsonl", text))


def test_ids_in_json_keep_their_type_unless_text_is_wanted(tmp_path):
    path = write(tmp_path / "mine.jsonl", '{"user": 7, "item": "007", "rating": "4.5"}\n')
    assert read_triples(path) == {(7, "007"): 4.5}
    assert read_triples(path, ids="str") == {("7", "007"): 4.5}
    with pytest.raises(ValueError, match="`sep` and `header` must be None"):
        read_ratings(path, sep=",")
    assert read_triples(path, columns=[0, 1]) == {(7, "007"): 1.0}
    with pytest.raises(ValueError, match="`columns` must be positions below 3, got 5"):
        read_ratings(path, columns=[0, 1, 5])


def test_parquet_is_read(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "ratings.parquet"
    items = pyarrow.array(["x", "y", "x"]).dictionary_encode()
    columns = {"text": ["a", "b", "c"], "user_id": [10, 10, 2], "asin": items, "rating": [5, 3.5, 1]}
    parquet.write_table(pyarrow.table(columns), path)
    assert read_triples(path) == {(10, "x"): 5.0, (10, "y"): 3.5, (2, "x"): 1.0}
    assert read_triples(path, ids="str") == {("10", "x"): 5.0, ("10", "y"): 3.5, ("2", "x"): 1.0}
    assert read_ratings(path).source.endswith('ratings from "rating"; left out: "text"')
    assert read_triples(path, columns=["user_id", "text"])[(2, "c")] == 1.0
    parquet.write_table(pyarrow.table({"user": [1, None], "item": [1, 2]}), path)
    with pytest.raises(ValueError, match="user ids must be integers or strings"):
        read_ratings(path)
    path.write_bytes(b"no such file")
    with pytest.raises(ValueError, match=r"ratings\.parquet is not a Parquet file"):
        read_ratings(path)
    with pytest.raises(FileNotFoundError):
        read_ratings(tmp_path / "missing.parquet")


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'pip install "cccf-index\[parquet\]"'):
        read_ratings(write(tmp_path / "ratings.parquet", ""))


def test_sums_of_many_counts_are_exact(tmp_path):
    path = write(tmp_path / "plays.csv", "user,item,plays\n" + "1,2,16777216\n1,2,1\n1,2,1\n")
    assert read_triples(path, duplicates="sum") == {(1, 2): np.float32(16777218)}


def test_lines_of_features_are_read_by_position_whatever_their_header(tmp_path):
    path = write(
        tmp_path / "features.csv", "item,user_group,value\n7,old,978300760\n7,new,978300761\n3,old,978300762\n"
    )
    features = read_feature_lines(path)
    assert features.user_ids.tolist() == [3, 7]
    assert features.item_ids.tolist() == ["new", "old"]
    assert (features.user_items.toarray() > 0).tolist() == [[False, True], [True, True]]


def test_many_columns_that_are_left_out_are_counted(tmp_path):
    names = ",".join(f"c{place}" for place in range(9))
    path = write(tmp_path / "mine.csv", f"user,item,rating,{names}\n1,2,3{',0' * 9}\n")
    assert read_ratings(path).source.endswith('left out: "c0", "c1", "c2", "c3", "c4", "c5", 3 more')
