"""Shared by the tests of models and learning: small ratings and vectors, and each model at a small size."""

import numpy as np
import pytest

from cccf_index.datasets import synthetic_ratings
from cccf_index.models import BCCF, CCCF, DCF, DCMF, MF

RATINGS = synthetic_ratings(300, 120, n_groups=4, ratings_per_user=40, seed=7)
MATRIX = RATINGS.user_items
MODELS = {
    "MF": lambda **p: MF(**{"n_factors": 6, "max_iter": 4, "verbose": False, **p}),
    "MF64": lambda **p: MF(**{"n_factors": 6, "max_iter": 4, "dtype": "float64", "verbose": False, **p}),
    "BCCF": lambda **p: BCCF(**{"n_bits": 12, "max_iter": 4, "verbose": False, **p}),
    "DCF": lambda **p: DCF(**{"n_bits": 12, "verbose": False, **p}),
    "DCMF": lambda **p: DCMF(**{"n_bits": 12, "verbose": False, **p}),
    "MF, all pairs": lambda **p: MF(**{"n_factors": 6, "max_iter": 4, "unobserved": 0.1, "verbose": False, **p}),
    "MF, averaged": lambda **p: MF(**{"n_factors": 4, "max_iter": 4, "n_models": 3, "verbose": False, **p}),
    "kernel CCCF": lambda **p: CCCF(
        **{"n_components": 3, "n_bits": 6, "weights": "kernel", "n_factors": 5, "verbose": False, **p}
    ),
    "CCCF": lambda **p: CCCF(**{"n_components": 3, "n_bits": 6, "n_factors": 5, "verbose": False, **p}),
    "real CCCF": lambda **p: CCCF(
        **{"n_components": 3, "n_bits": 6, "n_factors": 5, "queries": "real", "verbose": False, **p}
    ),
    "rated CCCF": lambda **p: CCCF(
        **{"n_components": 3, "n_bits": 6, "n_factors": 5, "objective": "rated", "verbose": False, **p}
    ),
}
PREFERENCES = ("CCCF", "real CCCF")  # models whose scores are preferences, not ratings
every_model = pytest.mark.parametrize("name", MODELS)


def fitted(name, matrix=MATRIX, **params):
    features = {"item_features": RATINGS.item_features[: matrix.shape[1]]} if name == "DCMF" else {}
    return MODELS[name](**params).fit(matrix, **features)


def dense_predictions(model):
    return model.predict(np.arange(model.n_users_)[:, None], np.arange(model.n_items_))


def assert_equal_models(one, other):
    np.testing.assert_array_equal(dense_predictions(one), dense_predictions(other))
    assert [entry.objective for entry in one.history_] == [entry.objective for entry in other.history_]


def embeddings(seed=0, n_users=400, n_items=300, p=24, decay=0.1):
    """Users and items whose directions lose strength, with a mean that is not 0."""
    rng = np.random.default_rng(seed)
    strength = np.exp(-decay * np.arange(p))
    users = (rng.standard_normal((n_users, p)) + 0.3) * strength
    items = (rng.standard_normal((n_items, p)) + 0.3) * strength
    return users.astype(np.float32), items.astype(np.float32)
