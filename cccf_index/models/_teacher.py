"""The teacher of learned codes: factors and an item bias, as vectors that a quantizer can encode.

Codes are learned from vectors (u, 1) of users and (v, bias) of items. The bias is one more direction of the scores, and
is encoded like any other.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cccf_index.learning.plan import MAX_DIMENSION
from cccf_index.models._teacher_tuning import Choice, choose_teacher, compute_item_bias, compute_user_means
from cccf_index.models.mf import MF

FACTORS, TEACHERS = 64, 3  # the average of three models ranks better than one model with three times the factors
IMPLICIT_FACTORS = 128
MAX_FACTORS = (MAX_DIMENSION - 1) // TEACHERS
IMPLICIT_ALPHA, IMPLICIT_RIDGE, IMPLICIT_ITERATIONS = 10.0, 0.1, 15


class Teacher(NamedTuple):
    """Factors of users and items, and a bias of each item, in units of the scores."""

    latents: MF
    item_bias: NDArray[np.float32]  # (n_items,)
    bias_share: float  # what the bias was multiplied by
    user_means: NDArray[np.float64]  # (n_users,): the bias of a new item is relative to them

    def extend_users(self, factors: NDArray[Any]) -> NDArray[np.float32]:
        """Return the vectors of users (n, p + 1) from their factors (n, p)."""
        return np.hstack([factors, np.ones((len(factors), 1))]).astype(np.float32)

    def extend_items(self, factors: NDArray[Any], bias: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the vectors of items (n, p + 1) from their factors (n, p) and biases (n,)."""
        return np.hstack([factors, bias[:, None]]).astype(np.float32)

    def encode(self, matrix: sparse.csr_array, side: str) -> NDArray[np.float32]:
        """Return the vectors of new users or items from their ratings; `side` is "user" or "item"."""
        factors = self.latents._encode(matrix, side)
        if side == "user":
            return self.extend_users(factors)
        return self.extend_items(factors, np.float32(self.bias_share) * compute_item_bias(matrix, self.user_means))


def wrap_factors(latents: Any, shape: tuple[int, int]) -> MF:
    """Return factors as a fitted MF: of an MF, a model with `user_factors` and `item_factors`, or a pair of arrays."""
    if isinstance(latents, MF):
        if not hasattr(latents, "history_"):
            raise ValueError("`latents` must be fitted, got an MF that is not. Call its `fit` first.")
        model = latents
    elif isinstance(latents, (tuple, list)) and len(latents) == 2:
        model = MF.from_factors(*latents)
    elif hasattr(latents, "user_factors") and hasattr(latents, "item_factors"):
        users, items = (
            part.to_numpy() if hasattr(part, "to_numpy") else part
            for part in (latents.user_factors, latents.item_factors)
        )
        if users is None or items is None:
            name = type(latents).__name__
            raise ValueError(f"`latents` must be fitted, got a {name} that is not. Call its `fit` first.")
        model = MF.from_factors(users, items)
    else:
        raise TypeError(
            f"`latents` must be an MF, a model of the package implicit, or a pair (user_factors, item_factors), "
            f"got {type(latents).__name__}."
        )
    found = (model.n_users_, model.n_items_)
    if found != shape:
        raise ValueError(f"`latents` must be of {shape[0]} users and {shape[1]} items, got {found[0]} and {found[1]}.")
    return copy.copy(model)  # a copy, which fitting the original again does not change


def train_explicit_teacher(
    ratings: sparse.csr_array,
    latents: Any,
    n_factors: int | None,
    regularization: float | None,
    unobserved: float | None,
    params: dict[str, Any],
) -> Teacher:
    """Train a teacher of explicit ratings, or wrap `latents`. Parameters that are None are tuned."""
    share = 0.0
    if latents is None:
        if regularization is None:
            choice = choose_teacher(ratings, unobserved, params["seed"])
        else:
            choice = Choice(regularization, unobserved or 0.0, 0.0)
        share = choice.bias_share
        model = MF(
            n_factors or FACTORS, choice.regularization, unobserved=choice.unobserved, n_models=TEACHERS, **params
        ).fit(ratings)
    elif isinstance(latents, MF) and not hasattr(latents, "history_"):
        model = MF(**latents.get_params()).fit(ratings)
    else:
        model = wrap_factors(latents, ratings.shape)
    means = compute_user_means(ratings)
    return Teacher(model, np.float32(share) * compute_item_bias(ratings.T.tocsr(), means), share, means)


def train_implicit_teacher(
    taken: sparse.csr_array, latents: Any, n_factors: int | None, params: dict[str, Any]
) -> Teacher:
    """Train a teacher of implicit feedback, a matrix of ones, with the package implicit; or wrap `latents`."""
    if latents is None:
        try:
            from implicit.als import AlternatingLeastSquares
        except ImportError:
            raise ImportError(
                'feedback="implicit" trains its teacher with the package implicit, which is not installed. '
                'Run `pip install "cccf-index[implicit]"`, or pass `latents=(user_factors, item_factors)` of any model.'
            ) from None
        latents = AlternatingLeastSquares(
            n_factors or IMPLICIT_FACTORS,
            regularization=IMPLICIT_RIDGE,
            alpha=IMPLICIT_ALPHA,
            iterations=IMPLICIT_ITERATIONS,
            random_state=params["seed"],
        )
        latents.fit(sparse.csr_matrix(taken, dtype=np.float32), show_progress=False)
    model = wrap_factors(latents, taken.shape)
    model = MF.from_factors(model.user_factors_, model.item_factors_, dtype=model.dtype)
    # implicit solves a row by (Y'Y + (c - 1) sum yy' + ridge) x = c sum y. Divided by c - 1, this is the row of an MF:
    confidence = max(float(getattr(latents, "alpha", IMPLICIT_ALPHA)), 1.1) - 1
    mean_count = taken.nnz / min(taken.shape)
    model.pair_weight_ = 1 / confidence  # and each entry is a rating of 1 + 1 / (c - 1)
    model.regularization = float(getattr(latents, "regularization", IMPLICIT_RIDGE)) / (
        confidence * mean_count + max(taken.shape)
    )
    return Teacher(model, np.zeros(taken.shape[1], np.float32), 0.0, np.zeros(taken.shape[0]))
