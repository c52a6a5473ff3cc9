"""Bad ratings, parameters, arguments and features: each is explained, and loses nothing."""

import numpy as np
import pytest
from model_helpers import MATRIX, MODELS, PREFERENCES, RATINGS, every_model, fitted
from scipy import sparse

from cccf_index.evaluation import catalogue_ndcg, rated_ndcg
from cccf_index.models import CCCF, DCMF

BAD_RATINGS = {
    "dense": (lambda m: m.toarray(), TypeError, r"scipy\.sparse matrix"),
    "complex": (lambda m: m.astype(complex), TypeError, "real numbers"),
    "nan": (lambda m: _with(m, 5, np.nan), ValueError, "finite.*nan at row"),
    "infinite": (lambda m: _with(m, 5, np.inf), ValueError, "finite.*inf at row"),
    "all equal": (
        lambda m: sparse.csr_matrix((np.ones_like(m.data), m.indices, m.indptr), m.shape),
        ValueError,
        "different ratings.*got .*1.*implicit",
    ),
    "empty": (lambda m: sparse.csr_matrix(m.shape), ValueError, "empty matrix"),
    "ids for rows": (
        lambda m: sparse.csr_matrix(([1.0, 2.0], ([0, 1], [5, 2**40]))),
        ValueError,
        r"fewer than 2\^31 rows and columns.*Number users",
    ),
    "a column that it does not have": (
        lambda m: _with_column(m, 10**6),
        ValueError,
        "columns that it has.*column 1000000",
    ),
    "a negative column": (lambda m: _with_column(m, -5), ValueError, "columns that it has.*column -5"),
    "infinite in few bits": (
        lambda m: sparse.csr_matrix((_with(m, 5, np.inf).data.astype(np.float16), m.indices, m.indptr), m.shape),
        ValueError,
        "finite.*inf at row",
    ),
    "no users": (lambda m: m[:0], ValueError, "empty matrix"),
    "pair twice": (
        lambda m: sparse.coo_matrix(([1.0, 5.0, 2.0], ([0, 0, 1], [2, 2, 1])), m.shape),
        ValueError,
        r"each pair once, got 5 at row 0, column 2\. Keep one",
    ),
}


def _with_column(matrix, column):
    matrix = matrix.copy()
    matrix.indices = matrix.indices.copy()
    matrix.indices[0 if column < 0 else matrix.indptr[1] - 1] = column
    return matrix


def _with(matrix, entry, value):
    matrix = matrix.astype(np.float64)
    matrix.data[entry] = value
    return matrix


# equal ratings are implicit feedback for models of preferences
CASES = [(name, case) for name in MODELS for case in BAD_RATINGS if case != "all equal" or name not in PREFERENCES]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_bad_ratings_are_explained_and_lose_nothing(name, case):
    make, error, message = BAD_RATINGS[case]
    model = MODELS[name]()
    features = {"item_features": RATINGS.item_features} if name == "DCMF" else {}
    with pytest.raises(error, match=message):
        model.fit(make(MATRIX), **features)
    assert not hasattr(model, "history_")


@every_model
def test_bad_arguments_are_explained(name):
    model = fitted(name)
    with pytest.raises(ValueError, match=r"`users` must be rows from 0 to 299, got 300.*encode_users"):
        model.predict([300], [0])
    with pytest.raises(ValueError, match="`items` must be rows from 0 to 119, got -1"):
        model.predict([0], [-1])
    with pytest.raises(TypeError, match="`users` must be integers"):
        model.recommend([0.5])
    with pytest.raises(ValueError, match="1-dimensional"):
        model.recommend(3)
    with pytest.raises(ValueError, match="`k` must be"):
        model.recommend([3], 0)
    with pytest.raises(ValueError, match="one row for each of the 2 queries"):
        model.recommend([3, 4], 5, exclude=MATRIX)
    with pytest.raises(ValueError, match="`exclude` must have a column for each of 120 items"):
        model.recommend([3], 5, exclude=MATRIX[[3], :50])
    with pytest.raises(ValueError, match=r"`user_items` must be of shape \(n, 120\).*transposed"):
        model.encode_users(MATRIX.T)
    with pytest.raises(TypeError, match="Pass its `user_items`"):
        model.fit(RATINGS)
    with pytest.raises(ValueError, match="the model's 300 users and 120 items, got shape"):
        rated_ndcg(model, MATRIX.T)
    with pytest.raises(ValueError, match="the model's 300 users and 120 items, got shape"):
        catalogue_ndcg(model, MATRIX[:5])
    with pytest.raises(ValueError, match=r"`item_users` must be of shape \(n, 300\)"):
        model.encode_items(MATRIX)
    with pytest.raises(ValueError, match="nan"):
        model.encode_users(_with(MATRIX, 0, np.nan))


@every_model
def test_recommend_excludes_items_given_as_lists_arrays_or_a_mask(name):
    model, users = fitted(name), [3, 8, 3]
    best = model.recommend(users, 4)[1]
    exclude = [best[0, :2], [], best[2, [1]].tolist()]
    found = model.recommend(users, 2, exclude=exclude)[1]
    assert found.tolist() == [best[0, 2:].tolist(), best[1, :2].tolist(), best[2, [0, 2]].tolist()]
    mask = np.array([np.isin(np.arange(120), ids) for ids in exclude])
    np.testing.assert_array_equal(model.recommend(users, 2, exclude=mask)[1], found)
    np.testing.assert_array_equal(model.recommend(users, 2, exclude=best[:, :2])[1], best[:, 2:])
    with pytest.raises(ValueError, match="`exclude` must have a column for each of 120 items"):
        model.recommend(users, 2, exclude=mask[:, :50])
    with pytest.raises(ValueError, match="`exclude` must be rows of items from 0 to 119, got 120"):
        model.recommend(users, 2, exclude=[[0, 120], [], []])


BAD_PARAMETERS = [
    ("MF", {"n_factors": 0}, ValueError, "`n_factors`"),
    ("MF", {"n_factors": 2.5}, TypeError, "`n_factors`"),
    ("MF", {"regularization": -1}, ValueError, "`regularization`"),
    ("MF", {"dtype": "float16"}, ValueError, "`dtype` must be one of 'float32', 'float64'"),
    ("MF", {"max_iter": 0}, ValueError, "`max_iter`"),
    ("MF", {"seed": -1}, ValueError, "`seed`"),
    ("BCCF", {"n_bits": 0}, ValueError, "`n_bits`"),
    ("BCCF", {"balance": np.nan}, ValueError, "`balance`"),
    ("BCCF", {"n_rotations": -1}, ValueError, "`n_rotations`"),
    ("DCF", {"n_bits": 513}, ValueError, "`n_bits`"),
    ("DCF", {"n_bits": 300}, ValueError, r"more users with ratings than n_bits.*alpha=0"),
    ("DCF", {"n_bits": 120}, ValueError, r"more items with ratings than n_bits.*beta=0"),
    ("DCF", {"alpha": -0.1}, ValueError, "`alpha`"),
    ("DCF", {"tol": "small"}, TypeError, "`tol`"),
    ("DCF", {"max_sweeps": 0}, ValueError, "`max_sweeps`"),
    ("DCMF", {"item_strength": -1}, ValueError, "`item_strength`"),
    ("CCCF", {"n_components": 121}, ValueError, "`n_components`"),
    ("CCCF", {"weights": "fixed"}, ValueError, "`weights` must be one of 'learned', 'kernel'"),
    ("kernel CCCF", {"kernel": "gaussian"}, ValueError, "`kernel` must be one of"),
    ("kernel CCCF", {"distance": "l2"}, ValueError, "`distance` must be one of"),
    ("kernel CCCF", {"anchors": "medoids"}, ValueError, "`anchors` must be one of"),
    ("kernel CCCF", {"bandwidth": 0}, ValueError, "`bandwidth` must be above 0"),
    ("kernel CCCF", {"latents": "MF"}, TypeError, r"`latents` must be an MF.*pair"),
    ("kernel CCCF", {"queries": "real"}, ValueError, '`weights` must be "learned"'),
    ("CCCF", {"latents": "MF"}, TypeError, r"`latents` must be an MF.*pair"),
    ("CCCF", {"latents": (np.ones((300, 2)), np.ones((5, 2)))}, ValueError, "300 users and 120 items"),
    ("CCCF", {"queries": "binary"}, ValueError, "`queries` must be one of"),
    ("CCCF", {"feedback": "none"}, ValueError, "`feedback` must be one of"),
    ("CCCF", {"max_active": 4}, ValueError, "`max_active`"),
    ("CCCF", {"unobserved": -1}, ValueError, "`unobserved`"),
    ("MF", {"unobserved": -1}, ValueError, "`unobserved`"),
    ("DCF", {"n_bits": 0}, ValueError, "`n_bits`"),
    ("DCMF", {"n_bits": "32"}, TypeError, "`n_bits`"),
]


@pytest.mark.parametrize(("name", "params", "error", "message"), BAD_PARAMETERS)
def test_bad_parameters_are_explained_when_the_model_is_fitted(name, params, error, message):
    with pytest.raises(error, match=message):
        fitted(name, **params)


def test_fewer_items_than_components_are_an_error():
    with pytest.raises(ValueError, match="at least n_components=8 items, got 5"):
        CCCF(n_components=8, n_bits=2, weights="kernel").fit(MATRIX[:, :5])


@every_model
def test_features_are_refused_or_checked(name):
    if name != "DCMF":
        with pytest.raises(ValueError, match=r"`item_features` must be None: \w+ ignores side features; use DCMF"):
            MODELS[name]().fit(MATRIX, item_features=RATINGS.item_features)
        return
    with pytest.raises(ValueError, match="needs `item_features` or `user_features`"):
        DCMF().fit(MATRIX)
    with pytest.raises(ValueError, match=r"`item_features` must be of shape \(120, any\)"):
        DCMF().fit(MATRIX, item_features=RATINGS.user_features)
    with pytest.raises(ValueError, match=r"`user_features` must be of shape \(300, any\)"):
        DCMF().fit(MATRIX, user_features=RATINGS.item_features)
    with pytest.raises(ValueError, match=r"finite.*got nan"):
        DCMF().fit(MATRIX, item_features=np.full((120, 2), np.nan))
    with pytest.raises(ValueError, match="at least one column"):
        DCMF().fit(MATRIX, item_features=np.empty((120, 0)))
    with pytest.raises(TypeError, match="real numbers"):
        DCMF().fit(MATRIX, item_features=np.full((120, 2), "drama"))
    model = fitted("DCMF")
    with pytest.raises(ValueError, match="fitted without any"):
        model.encode_users(MATRIX, user_features=RATINGS.user_features)
    with pytest.raises(ValueError, match=r"\(120, 4\)"):
        model.encode_items(MATRIX.T, item_features=np.ones((120, 5)))
