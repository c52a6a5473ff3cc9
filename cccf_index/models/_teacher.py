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
from cccf_index.models._catalogue_tuning import (
    Preference,
    choose_catalogue_teacher,
    compute_popularity,
)
from cccf_index.models._teacher_tuning import Choice, choose_teacher, compute_item_bias, compute_user_means
from cccf_index.models.mf import MF

FACTORS, TEACHERS = 64, 3  # the average of three models ranks better than one model with three times the factors
CATALOGUE_FACTORS, CATALOGUE_ITERATIONS = 192, 8
MAX_FACTORS = (MAX_DIMENSION - 1) // TEACHERS
ALPHA, RIDGE = 10.0, 0.1  # of a model of implicit feedback that does not say


class Teacher(NamedTuple):
    """Factors of users and items, and a bias of each item, in units of the scores."""

    latents: MF
    item_bias: NDArray[np.float32]  # (n_items,)
    bias_share: float  # of how far an item is rated above the means of its users
    user_means: NDArray[np.float64]  # (n_users,): the bias of a new item is relative to them
    popularity_share: float = 0.0  # of the popularity of an item

    def extend_users(self, factors: NDArray[Any]) -> NDArray[np.float32]:
        """Return the vectors of users (n, p + 1) from their factors (n, p)."""
        return np.hstack([factors, np.ones((len(factors), 1))]).astype(np.float32)

    def extend_items(self, factors: NDArray[Any], bias: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the vectors of items (n, p + 1) from their factors (n, p) and biases (n,)."""
        return np.hstack([factors, bias[:, None]]).astype(np.float32)

    def encode(self, matrix: sparse.csr_array, targets: sparse.csr_array, side: str) -> NDArray[np.float32]:
        """Return the vectors of new users or items from their ratings; `side` is "user" or "item".

        `targets` has the pattern of the ratings, and what they should score by the factors.
        """
        factors = self.latents._encode(targets, side)
        if side == "user":
            return self.extend_users(factors)
        return self.extend_items(factors, compute_bias(matrix, self.user_means, self.bias_share, self.popularity_share))


def compute_bias(
    item_users: sparse.csr_array, user_means: NDArray[np.float64], share: float, popularity_share: float = 0.0
) -> NDArray[np.float32]:
    """Return the bias of items, float32 (n_items,), from their ratings (n_items, n_users)."""
    bias = np.float32(share) * compute_item_bias(item_users, user_means)
    if popularity_share:
        bias += np.float32(popularity_share) * compute_popularity(np.diff(item_users.indptr))
    return bias


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


class Task(NamedTuple):
    """What a teacher learns: from which entries, and for what."""

    matrix: sparse.csr_array  # ratings, or ones for implicit feedback
    feedback: str  # "explicit" or "implicit"
    objective: str  # "catalogue" or "rated"
    limits: list[float]  # the smallest and the largest rating

    @classmethod
    def from_ratings(cls, matrix: sparse.csr_array, feedback: str, objective: str) -> Task:
        """Decide what a checked matrix holds; `feedback` "auto" means implicit if all entries are equal."""
        low, high = float(matrix.data.min()), float(matrix.data.max())
        if objective == "rated" and (feedback == "implicit" or low == high):
            raise ValueError(
                f'`user_items` must hold different ratings for `objective` "rated", got {low:g} to {high:g} as '
                'implicit feedback. Use objective="catalogue", or add zeros for items that were shown and not chosen.'
            )
        if feedback == "explicit" or (feedback == "auto" and low < high):
            return cls(matrix, "explicit", objective, [low, high])
        if low <= 0:
            raise ValueError(
                f"`user_items` must hold numbers above 0 for implicit feedback, got {low:g}. "
                "Remove the other entries, zeros with `eliminate_zeros`."
            )
        return cls(fill_matrix(matrix, 1.0), "implicit", objective, [0.0, 1.0])


class Trained(NamedTuple):
    """A teacher, and what was chosen for it, if it was tuned for the whole catalogue."""

    teacher: Teacher
    preference: list[float] | None = None  # a `Preference`
    choice: dict[str, float] | None = None  # a `CatalogueChoice`


def train_teacher(
    task: Task, latents: Any, n_factors: int | None, fixed: dict[str, float], params: dict[str, Any]
) -> Trained:
    """Train the teacher of a task, or wrap `latents`. Parameters of `MF` that are not in `fixed` are tuned."""
    if latents is not None and task.feedback == "implicit":
        return Trained(wrap_implicit_teacher(task.matrix, latents))
    if latents is not None or task.objective == "rated":
        return Trained(train_rated_teacher(task.matrix, latents, n_factors, fixed, params))
    return train_catalogue_teacher(task.matrix, n_factors, fixed, params)


def train_catalogue_teacher(
    ratings: sparse.csr_array, n_factors: int | None, fixed: dict[str, float], params: dict[str, Any]
) -> Trained:
    """Train a teacher that ranks the whole catalogue."""
    n_factors = n_factors or CATALOGUE_FACTORS
    choice = choose_catalogue_teacher(ratings, n_factors, fixed, **params)
    preference = Preference.from_ratings(choice.floor, ratings.data)
    model = MF(
        n_factors,
        choice.regularization,
        CATALOGUE_ITERATIONS,
        unobserved=choice.unobserved,
        unobserved_rating=0.0,
        ridge_power=choice.ridge_power,
        **params,
    ).fit(fill_matrix(ratings, preference.grade(ratings.data)))
    means = compute_user_means(ratings)
    share = choice.quality and choice.quality / (preference.high - preference.low)
    bias = compute_bias(ratings.T.tocsr(), means, share, choice.popularity)
    return Trained(Teacher(model, bias, share, means, choice.popularity), list(preference), choice._asdict())


def train_rated_teacher(
    ratings: sparse.csr_array, latents: Any, n_factors: int | None, fixed: dict[str, float], params: dict[str, Any]
) -> Teacher:
    """Train a teacher that orders rated items, or wrap `latents`."""
    share = 0.0
    if latents is None:
        regularization, unobserved = fixed.get("regularization"), fixed.get("unobserved")
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
    return Teacher(model, compute_bias(ratings.T.tocsr(), means, share), share, means)


def wrap_implicit_teacher(taken: sparse.csr_array, latents: Any) -> Teacher:
    """Return the factors of a model of implicit feedback, a matrix of ones, as a teacher."""
    model = wrap_factors(latents, taken.shape)
    model = MF.from_factors(model.user_factors_, model.item_factors_, dtype=model.dtype)
    # implicit solves a row by (Y'Y + (c - 1) sum yy' + ridge) x = c sum y. Divided by c - 1, this is the row of an MF:
    confidence = max(float(getattr(latents, "alpha", ALPHA)), 1.1) - 1
    mean_count = taken.nnz / min(taken.shape)
    model.pair_weight_ = 1 / confidence  # and each entry is a rating of 1 + 1 / (c - 1)
    model.regularization = float(getattr(latents, "regularization", RIDGE)) / (
        confidence * mean_count + max(taken.shape)
    )
    return Teacher(model, np.zeros(taken.shape[1], np.float32), 0.0, np.zeros(taken.shape[0]))


def fill_matrix(matrix: sparse.csr_array, values: Any) -> sparse.csr_array:
    """Return a matrix with the same pattern and other values, or one value for all entries."""
    data = np.broadcast_to(values, matrix.nnz).astype(np.float64)
    return sparse.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
