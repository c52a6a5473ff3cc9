"""DCMF: discrete collaborative filtering with side features of users and items (Lian et al., KDD 2017)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index import _check, _threads
from cccf_index.codes import CompositionalCodes
from cccf_index.models._features import FeatureFit
from cccf_index.models.dcf import DCF


class DCMF(DCF):
    """DCF with side features: codes are pulled towards a ridge regression on the features of users and items.

    A user or item without ratings gets the code that its features predict.

    Parameters
    ----------
    n_bits : int
        As for `DCF`.
    user_strength : float
        The weight of the regression on the features of users, in units of the scaled ratings.
    item_strength : float
        The weight of the regression on the features of items, in the same units.
    feature_ridge : float
        The ridge of both regressions.
    alpha : float
        As for `DCF`.
    beta : float
        As for `DCF`.
    regularization : float
        As for `DCF`.
    initialize : bool
        As for `DCF`.
    init_iter : int
        As for `DCF`.
    max_iter : int
        As for `DCF`.
    max_sweeps : int
        As for `DCF`.
    tol : float
        As for `DCF`.
    seed : int
        As for `DCF`.
    verbose : bool
        As for `DCF`.

    Attributes
    ----------
    user_codes_, item_codes_ : CompositionalCodes
        One component, all weights 1.
    user_coefficients_, item_coefficients_ : ndarray of float32, shape (1, number of features, n_bits)
        The coefficients of the regressions; a side without features has 0 of them.

    Examples
    --------
    >>> from cccf_index.datasets import synthetic_ratings
    >>> from cccf_index.models import DCMF
    >>> ratings = synthetic_ratings(n_users=200, n_items=100, seed=0)
    >>> model = DCMF(n_bits=16).fit(ratings.user_items, item_features=ratings.item_features)
    >>> model.encode_items(ratings.user_items.T[:3], item_features=ratings.item_features[:3])
    CompositionalCodes(n=3, n_components=1, n_bits=16, sparsity=0.00)
    """

    user_coefficients_: NDArray[np.float32]
    item_coefficients_: NDArray[np.float32]

    def __init__(
        self,
        n_bits: int = 64,
        user_strength: float = 10.0,
        item_strength: float = 10.0,
        feature_ridge: float = 1.0,
        alpha: float = 0.01,
        beta: float = 0.01,
        regularization: float = 0.06,
        initialize: bool = True,
        init_iter: int = 5,
        max_iter: int = 10,
        max_sweeps: int = 10,
        tol: float = 0.01,
        seed: int = 0,
        verbose: bool = True,
    ) -> None:
        super().__init__(
            n_bits, alpha, beta, regularization, initialize, init_iter, max_iter, max_sweeps, tol, seed, verbose
        )
        self.user_strength = user_strength
        self.item_strength = item_strength
        self.feature_ridge = feature_ridge

    @_threads.limit_blas()
    def fit(self, user_items: Any, *, item_features: Any = None, user_features: Any = None) -> DCMF:
        """Learn codes from ratings and side features.

        Parameters
        ----------
        user_items : scipy.sparse matrix, shape (n_users, n_items)
            Ratings; a stored zero is a rating of zero.
        item_features, user_features : ndarray or scipy.sparse matrix, shapes (n_items, any) and (n_users, any)
            Side features, one row per item or user. At least one of the two is needed.
        """
        self._make_plan(1.0)
        ratings = self._check_observed(user_items)
        if item_features is None and user_features is None:
            raise ValueError("DCMF needs `item_features` or `user_features`. Without features use DCF.")
        m, n = ratings.shape
        users = self._make_feature_fit("user", user_features, m)
        items = self._make_feature_fit("item", item_features, n)
        weights = (np.ones((1, m), dtype=np.float32), np.ones((1, n), dtype=np.float32))
        self._learn(ratings, weights, (users, items))
        self.user_coefficients_, self.item_coefficients_ = (
            np.zeros((1, 0, self.n_bits), dtype=np.float32) if fit is None else fit.coefficients
            for fit in (users, items)
        )
        return self

    @_threads.limit_blas()
    def encode_users(self, user_items: Any, user_features: Any = None) -> CompositionalCodes:
        """Return codes of new users from their ratings (n, n_items) and features (n, any), with the items fixed.

        For users without ratings pass an empty matrix, ``scipy.sparse.csr_matrix((n, n_items))``.
        """
        self._check_fitted()
        return self._encode_with_features(
            _check.ratings(user_items, "user_items", self.n_items_), "user", user_features
        )

    @_threads.limit_blas()
    def encode_items(self, item_users: Any, item_features: Any = None) -> CompositionalCodes:
        """Return codes of new items from their ratings (n, n_users) and features (n, any), with the users fixed.

        For items without ratings pass an empty matrix, ``scipy.sparse.csr_matrix((n, n_users))``.
        """
        self._check_fitted()
        return self._encode_with_features(
            _check.ratings(item_users, "item_users", self.n_users_), "item", item_features
        )

    def _make_feature_fit(
        self, word: str, features: Any, n: int, coefficients: NDArray[np.float32] | None = None
    ) -> FeatureFit | None:
        """Return the term of one side's features; None for `coefficients` means that they are still to be learned."""
        strength = _check.number(getattr(self, f"{word}_strength"), f"{word}_strength", 0)
        ridge = _check.number(self.feature_ridge, "feature_ridge", 0)
        if features is None:
            return None
        matrix = _check.features(
            features, f"{word}_features", n, None if coefficients is None else coefficients.shape[1]
        )
        if coefficients is None:
            coefficients = np.zeros((1, matrix.shape[1], self.n_bits), dtype=np.float32)
        return FeatureFit(matrix, strength * coefficients.shape[2], ridge, coefficients)  # scaled ratings reach n_bits

    def _encode_with_features(self, matrix: Any, side: str, features: Any) -> CompositionalCodes:
        coefficients = getattr(self, f"{side}_coefficients_")
        if features is not None and coefficients.shape[1] == 0:
            raise ValueError(f"`{side}_features` must be None: the model was fitted without any. Fit it with them.")
        fit = self._make_feature_fit(side, features, matrix.shape[0], coefficients)
        return self._fold_in(matrix, np.ones((1, matrix.shape[0]), dtype=np.float32), side, fit)

    def _verify(self) -> None:
        super()._verify()
        for part in (self.user_coefficients_, self.item_coefficients_):
            if part.ndim != 3 or part.shape[::2] != (1, self.item_codes_.n_bits):
                raise ValueError("the coefficients of the features and the codes differ in shape")
