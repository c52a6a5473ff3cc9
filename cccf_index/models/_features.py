"""Side features of DCMF: a ridge regression from features to codes."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse


class FeatureFit:
    """The term ``strength * (|B - F P|^2 + ridge * |P|^2)`` of the objective, and its minimum over P.

    Parameters
    ----------
    features : ndarray or scipy.sparse array of float, shape (n, f)
        F, one row per user or item.
    strength : float
        The weight of the term.
    ridge : float
        The ridge: keeps P small if features are rare or linearly dependent.
    coefficients : ndarray of float32, shape (G, f, r)
        P of each component, set by `fit`.
    """

    def __init__(self, features: Any, strength: float, ridge: float, coefficients: NDArray[np.float32]) -> None:
        self.features = features
        self.strength = strength
        self.ridge = ridge
        self.coefficients = coefficients

    @cached_property
    def _factor(self) -> Any:
        gram = self.features.T @ self.features
        gram = gram.toarray() if sparse.issparse(gram) else gram
        try:
            return linalg.cho_factor(gram + self.ridge * np.eye(len(gram)))
        except linalg.LinAlgError:
            raise ValueError("The features are linearly dependent. Use a `feature_ridge` above 0.") from None

    def fit(self, k: int, codes: NDArray[Any]) -> None:
        """Solve for P of component k."""
        self.coefficients[k] = linalg.cho_solve(self._factor, self.features.T @ codes.astype(np.float64))

    def predict(self, k: int) -> NDArray[np.float64]:
        """Return ``F P`` of component k, (n, r)."""
        return self.features @ self.coefficients[k]

    def compute_penalty(self, codes: NDArray[Any]) -> float:
        """Return the value of the term."""
        total = self.ridge * float(np.square(self.coefficients, dtype=np.float64).sum())
        for k in range(len(codes)):
            total += float(np.square(codes[k] - self.predict(k)).sum())
        return self.strength * total
