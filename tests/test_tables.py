"""Ratings from data frames of pandas and polars, tables of pyarrow, and lists of tuples."""

import numpy as np
import pandas
import polars
import pyarrow
import pytest

from cccf_index.datasets import from_frame, from_tuples, read_ratings

COLUMNS = {
    "timestamp": [978300760, 978302109, 978301968],
    "movieId": ["x", "y", "x"],
    "userId": [10, 10, 2],
    "rating": [5.0, 3.5, 1.0],
}
EXPECTED = {(10, "x"): 5.0, (10, "y"): 3.5, (2, "x"): 1.0}
FRAMES = {"pandas": pandas.DataFrame, "polars": polars.DataFrame, "pyarrow": pyarrow.table}


def triples(ratings):
    coo = ratings.user_items.tocoo()
    pairs = zip(ratings.user_ids[coo.row].tolist(), ratings.item_ids[coo.col].tolist(), strict=True)
    return dict(zip(pairs, coo.data.tolist(), strict=True))


@pytest.mark.parametrize("kind", FRAMES)
def test_columns_of_frames_are_found_by_their_names(kind):
    frame = FRAMES[kind](COLUMNS)
    ratings = from_frame(frame)
    assert triples(ratings) == EXPECTED
    assert ratings.user_ids.dtype == np.int64
    assert ratings.source == (
        f"{type(frame).__name__}: "
        'users from "userId", items from "movieId", ratings from "rating"; left out: "timestamp"'
    )
    assert triples(from_frame(frame, columns=["userId", "movieId"])) == dict.fromkeys(EXPECTED, 1.0)
    assert triples(from_frame(frame, [2, 1, 3])) == EXPECTED


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_whose_columns_do_not_fit_are_refused(kind):
    make = FRAMES[kind]
    with pytest.raises(ValueError, match=r'got the columns "a", "b"\. .* `columns='):
        from_frame(make({"a": [1], "b": [2]}))
    with pytest.raises(ValueError, match="`columns` must be in the header"):
        from_frame(make(COLUMNS), columns=["userId", "film"])
    with pytest.raises(ValueError, match="look like timestamps"):
        from_frame(make({"user": [1], "item": [2], "rating": [978300760]}))
    with pytest.raises(ValueError, match=r'more than once\. Pass duplicates="last" or "mean"'):
        from_frame(make({"user": [1, 1], "item": [2, 2]}))
    assert triples(from_frame(make({"user": [1, 1], "item": [2, 2]}), duplicates="sum")) == {(1, 2): 2.0}
    with pytest.raises(ValueError, match="ratings must be finite"):
        from_frame(make({"user": [1, 2], "item": [2, 3], "rating": [1.0, None]}))
    with pytest.raises(ValueError, match="ratings must be numbers"):
        from_frame(make({"user": [1], "item": [2], "rating": ["good"]}))
    with pytest.raises(ValueError, match="row 1: item ids must be integers or strings, got"):
        from_frame(make({"user": [1, 2], "item": ["x", None]}))
    with pytest.raises(ValueError, match="user ids must be integers or strings, got float64"):
        from_frame(make({"user": [1.5], "item": [2]}))
    with pytest.raises(ValueError, match="holds no ratings"):
        from_frame(make({"user": [], "item": []}))


def test_pandas_columns_of_other_types_are_read():
    frame = pandas.DataFrame({"user": [1.0, 2.0], "item": pandas.Categorical(["x", "y"]), "stars": [1, 2]})
    assert triples(from_frame(frame)) == {(1, "x"): 1.0, (2, "y"): 2.0}
    frame = pandas.DataFrame(
        {"user": pandas.array([1, 2], dtype="Int64"), "item": pandas.array(["x", "y"], dtype="string")}, index=[7, 7]
    )
    assert triples(from_frame(frame)) == {(1, "x"): 1.0, (2, "y"): 1.0}
    frame = pandas.DataFrame({"user": [1, "b"], "item": [1, 2]})  # mixed ids are text
    assert triples(from_frame(frame)) == {("1", 1): 1.0, ("b", 2): 1.0}


def test_frames_without_names_are_read_by_position():
    frame = pandas.DataFrame([[10, 7, 5.0, 978300760], [2, 3, 1.0, 978300761]])
    assert triples(from_frame(frame)) == {(10, 7): 5.0, (2, 3): 1.0}
    assert from_frame(frame).source.startswith("DataFrame: no header; users from column 0")


def test_polars_categories_are_text():
    frame = polars.DataFrame({"user": [1, 2], "item": ["x", "y"]}).with_columns(
        polars.col("item").cast(polars.Categorical)
    )
    assert triples(from_frame(frame)) == {(1, "x"): 1.0, (2, "y"): 1.0}


def test_what_is_no_frame_is_refused():
    for wrong in ([(1, 2, 3)], np.eye(3), None, pandas.DataFrame({"user": [1]})):
        with pytest.raises(TypeError, match="`frame` must be a data frame"):
            from_frame(wrong)
    twice = pandas.DataFrame([[1, 2, 3]], columns=["user", "item", "item"])
    with pytest.raises(TypeError, match="different names"):
        from_frame(twice)
    with pytest.raises(TypeError, match="Pass data frames to `from_frame`"):
        read_ratings(pandas.DataFrame(COLUMNS))
    with pytest.raises(ValueError, match="`duplicates` must be one of"):
        from_frame(pandas.DataFrame(COLUMNS), duplicates="first")


def test_tuples_are_ratings():
    rows = [(10, "x", 5), (10, "y", 3.5), (2, "x", 1)]
    assert triples(from_tuples(rows)) == EXPECTED
    assert triples(from_tuples(iter(rows))) == EXPECTED
    assert triples(from_tuples([(*row, 978300760) for row in rows])) == EXPECTED
    assert triples(from_tuples([row[::-1] for row in rows], columns=[2, 1, 0])) == EXPECTED
    assert triples(from_tuples([row[:2] for row in rows])) == dict.fromkeys(EXPECTED, 1.0)
    assert from_tuples([row[:2] for row in rows]).feedback == "implicit"
    assert triples(from_tuples(np.array([[1, 2, 3], [4, 5, 6]]))) == {(1, 2): 3.0, (4, 5): 6.0}
    assert triples(from_tuples([(1, 2, 3), (1, 2, 5)], duplicates="mean")) == {(1, 2): 4.0}


def test_wrong_tuples_are_explained():
    for rows in ([(1, 2, 3), (1, 2)], [(1,)], ["ab"], [5], [{"user": 1, "item": 2}]):
        with pytest.raises(ValueError, match=r"`tuples` must be tuples \(user, item, rating\)"):
            from_tuples(rows)
    with pytest.raises(ValueError, match="at least one rating"):
        from_tuples([])
    with pytest.raises(ValueError, match="`columns` must be positions below 2, got 2"):
        from_tuples([(1, 2)], columns=[0, 1, 2])
    with pytest.raises(ValueError, match="look like timestamps"):
        from_tuples([(1, 2, 978300760)])
    with pytest.raises(ValueError, match="more than once"):
        from_tuples([(1, 2), (1, 2)])
    with pytest.raises(ValueError, match=r"ids must be below 2\^63"):
        from_tuples([(2**63, 2)])
    with pytest.raises(ValueError, match="user ids must be integers or strings"):
        from_tuples([(2**64, 2)])
