"""What all models with binary codes share: scaled ratings, codes of both sides, the index, fold-in of new rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cccf_index import _check
from cccf_index.codes import MAX_BITS, MAX_COMPONENTS, CompositionalCodes
from cccf_index.index import IndexCCCF
from cccf_index.models._features import FeatureFit
from cccf_index.models._rows import Observed, RatingRows
from cccf_index.models._training import Side, TrainingPlan, fold_in, train
from cccf_index.models.base import Recommender

REGULARIZATION = 0.06  # of the relaxed start, if the parameter is None


class CodeModel(Recommender):
    """A model that represents users and items by compositional codes.

    Users and items without ratings get balanced codes: their scores are finite, but carry no information.

    Attributes
    ----------
    user_codes_, item_codes_ : CompositionalCodes
        Their inner products approximate ratings that are scaled from ``rating_range_`` to the range from
        ``-rating_scale_`` to ``rating_scale_``.
    rating_range_ : list of two float
        The smallest and the largest rating of the training data.
    rating_scale_ : float
        The score that stands for the largest rating.
    history_ : list of Iteration
        The objective refers to ratings scaled to -1 to 1, so it can be compared between numbers of bits.
    """

    user_codes_: CompositionalCodes
    item_codes_: CompositionalCodes
    rating_range_: list[float]
    rating_scale_: float
    n_bits: int

    def to_index(self, scale: int | str | None = "auto") -> IndexCCCF:
        """Return an index of the items, whose ids are their rows. Search it with ``user_codes_`` or `encode_users`.

        Its scores are inner products of codes. `to_ratings` converts them to ratings, in the same order.

        Parameters
        ----------
        scale : int, "auto" or None
            How weights are rounded, see `IndexCCCF`.

        Returns
        -------
        IndexCCCF
        """
        self._check_fitted()
        index = IndexCCCF(self.item_codes_.n_components, self.item_codes_.n_bits, scale=scale)
        index.add(self.item_codes_)
        return index

    def _get_index(self) -> IndexCCCF:
        """Return the index of `to_index`; cached, so that a call for one user is cheap."""
        codes, index = vars(self).get("_indexed", (None, None))
        if codes is not self.item_codes_:
            index = self.to_index()
            self._indexed = (self.item_codes_, index)
        return index

    def _search(self, users: NDArray[np.int64], k: int, exclude: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        return self._get_index().search(self._get_queries(users), k, exclude=exclude)

    def _get_queries(self, users: NDArray[np.int64]) -> Any:
        """Return the queries of these users for the index."""
        return self.user_codes_[users]

    def _get_vectors(self, users: Any, items: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        return self.user_codes_[users].to_vectors(), self.item_codes_[items].to_vectors()

    def to_ratings(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Convert scores of `to_index()` to ratings, float64 of the same shape."""
        low, high = self.rating_range_
        return (high + low) / 2 + (high - low) / 2 / self.rating_scale_ * np.asarray(scores, dtype=np.float64)

    def _take(
        self, ratings: Observed, scale: float, users: CompositionalCodes, items: CompositionalCodes, history: Any
    ) -> None:
        """Set all fitted attributes, at the end of `fit`: an error before that changes nothing."""
        self.n_users_, self.n_items_ = ratings.shape
        self.rating_range_, self.rating_scale_ = find_rating_range(ratings), scale
        self.user_codes_, self.item_codes_ = users, items
        self.history_ = history

    def _verify(self) -> None:
        users, items = self.user_codes_, self.item_codes_
        if (len(users), len(items)) != (self.n_users_, self.n_items_):
            raise ValueError("the number of codes differs from the number of users and items")
        if (users.n_components, users.n_bits) != (items.n_components, items.n_bits):
            raise ValueError("the codes of users and items differ in shape")
        low, high = self.rating_range_
        if not (low < high and self.rating_scale_ > 0):
            raise ValueError("the range of the ratings is empty")


class DiscreteModel(CodeModel):
    """A model trained by discrete coordinate descent: the parameters that DCF, DCMF and CCCF share, see `DCF`."""

    def __init__(
        self,
        n_bits: int = 64,
        alpha: float = 0.01,
        beta: float = 0.01,
        regularization: float | None = 0.06,
        initialize: bool = True,
        init_iter: int = 5,
        max_iter: int = 10,
        max_sweeps: int = 10,
        tol: float = 0.01,
        seed: int = 0,
        verbose: bool = True,
    ) -> None:
        self.n_bits = n_bits
        self.alpha = alpha
        self.beta = beta
        self.regularization = regularization
        self.initialize = initialize
        self.init_iter = init_iter
        self.max_iter = max_iter
        self.max_sweeps = max_sweeps
        self.tol = tol
        self.seed = seed
        self.verbose = verbose

    def _make_plan(self, scale: float) -> TrainingPlan:
        """Check the parameters of training."""
        return TrainingPlan(
            n_bits=_check.integer(self.n_bits, "n_bits", 1, MAX_BITS),
            scale=scale,
            regularization=_check.number(
                REGULARIZATION if self.regularization is None else self.regularization, "regularization", 0
            ),
            initialize=bool(self.initialize),
            init_iter=_check.integer(self.init_iter, "init_iter", 1),
            max_iter=_check.integer(self.max_iter, "max_iter", 0),
            max_sweeps=_check.integer(self.max_sweeps, "max_sweeps", 1),
            tol=_check.number(self.tol, "tol", 0),
            seed=_check.integer(self.seed, "seed", 0),
            verbose=bool(self.verbose),
        )

    def _learn(
        self,
        ratings: Observed,
        weights: tuple[NDArray[np.float32], NDArray[np.float32]],
        features: tuple[FeatureFit | None, FeatureFit | None] = (None, None),
    ) -> None:
        """Learn the codes of users and items with these weights, (G, n_users) and (G, n_items)."""
        plan = self._make_plan(1.0)
        users, items = weights
        pattern = (np.ones_like(ratings.values), ratings.users.indices, ratings.users.indptr)
        rated = sparse.csr_array(pattern, shape=ratings.shape)
        # the mean over all ratings of the score that two codes would have if they agreed in every bit
        scale = plan.n_bits * float((users.T * (rated @ items.T)).sum(dtype=np.float64)) / len(ratings.values)
        if scale == 0:
            raise ValueError("No rated pair of user and item shares a component. Use a larger `bandwidth`.")
        plan = replace(plan, scale=scale)
        strengths = (_check.number(self.alpha, "alpha", 0), _check.number(self.beta, "beta", 0))
        sizes = zip(strengths, ratings[:2], ("alpha", "beta"), ("users", "items"), strict=True)
        for strength, rows, name, word in sizes:
            n = np.count_nonzero(rows.counts)
            if strength and n <= plan.n_bits:
                raise ValueError(
                    f"`user_items` must have more {word} with ratings than n_bits, which is {plan.n_bits}, got {n}: "
                    f"with fewer, bits cannot be decorrelated. Use fewer bits, or {name}=0."
                )
        scaled = ratings._replace(values=scale_ratings(ratings.values, find_rating_range(ratings), scale))
        sides = [
            Side(rows, side_weights, strength, fit)
            for rows, side_weights, strength, fit in zip(ratings[:2], weights, strengths, features, strict=True)
        ]
        history = train(scaled, sides[0], sides[1], plan)
        self._take(ratings, scale, _pack(sides[0]), _pack(sides[1]), history)

    def _fold_in(
        self, matrix: sparse.csr_array, weights: NDArray[np.float32], side_name: str, features: Any = None
    ) -> CompositionalCodes:
        """Return codes of new users or items with these weights (G, n), with the other side fixed."""
        other = self.item_codes_ if side_name == "user" else self.user_codes_
        side = Side(RatingRows.from_matrix(matrix), weights, 0.0, features)
        fixed = Side(side.rows, np.ascontiguousarray(other.weights.T), 0.0)
        fixed.codes = np.ascontiguousarray(other.to_signs().transpose(1, 0, 2))
        plan = replace(self._make_plan(self.rating_scale_), n_bits=other.n_bits)
        fold_in(side, fixed, scale_ratings(matrix.data, self.rating_range_, plan.scale), plan)
        return _pack(side)


def find_rating_range(ratings: Observed) -> list[float]:
    """Return the smallest and the largest rating."""
    return [float(ratings.values.min()), float(ratings.values.max())]


def scale_ratings(values: NDArray[Any], limits: list[float], scale: float) -> NDArray[np.float64]:
    """Scale ratings linearly, so that `limits` become -scale and +scale, as in the authors' code."""
    low, high = limits
    return (values - (high + low) / 2) * (scale / ((high - low) / 2))


def check_components(n_components: Any, ratings: Observed) -> int:
    """Return the number of components; there must be at least as many users and items."""
    number = _check.integer(n_components, "n_components", 1, MAX_COMPONENTS)
    for n, word in zip(ratings.shape, ("users", "items"), strict=True):
        if n < number:
            raise ValueError(f"`user_items` must have at least n_components={number} {word}, got {n}.")
    return number


def _pack(side: Side) -> CompositionalCodes:
    return CompositionalCodes.from_signs(side.codes.transpose(1, 0, 2), side.weights.T)
