"""DCF: discrete collaborative filtering, one binary code for each user and item (Zhang et al., SIGIR 2016)."""

from __future__ import annotations

from typing import Any

import numpy as np

from cccf_index.codes import CompositionalCodes
from cccf_index.models._coded import DiscreteModel


class DCF(DiscreteModel):
    """Discrete collaborative filtering: the rating is the inner product of two codes of -1 and +1.

    Discrete coordinate descent, with bits that are pulled towards balanced and decorrelated ones. It is CCCF with one
    component and weights 1, and trained by the same code.

    Parameters
    ----------
    n_bits : int
        The length of a code.
    alpha, beta : float
        How strongly the bits of users and of items are pulled towards balance and decorrelation.
    regularization : float
        The ridge of the relaxed start for each rating, in units of the scaled ratings.
    initialize : bool
        Start from the signs of the relaxed, real-valued problem; otherwise from random signs.
    init_iter : int
        How often both sides of the relaxed problem are solved.
    max_iter : int
        How often both sides of the discrete problem are improved, at most.
    max_sweeps : int
        How often the bits of a code are tried in turn, at most, until none changes.
    tol : float
        Stop when the objective falls by less than ``tol * max(n_users, n_items)``, ratings scaled to -1 to +1.
    seed : int
        Of the start.
    verbose : bool
        Show progress bars, on a terminal.

    Attributes
    ----------
    user_codes_, item_codes_ : CompositionalCodes
        One component, weights 1.

    Examples
    --------
    >>> from cccf_index.datasets import synthetic_ratings
    >>> from cccf_index.models import DCF
    >>> ratings = synthetic_ratings(n_users=200, n_items=100, seed=0)
    >>> model = DCF(n_bits=16).fit(ratings.user_items)
    >>> model.item_codes_
    CompositionalCodes(n=100, n_components=1, n_bits=16, sparsity=0.00)
    """

    def fit(self, user_items: Any, *, item_features: Any = None, user_features: Any = None) -> DCF:
        """Learn codes from a scipy.sparse matrix of ratings; a stored zero is a rating of zero."""
        ratings = self._check_observed(user_items, item_features=item_features, user_features=user_features)
        m, n = ratings.shape
        self._learn(ratings, (np.ones((1, m), dtype=np.float32), np.ones((1, n), dtype=np.float32)))
        return self

    def _encode(self, matrix: Any, side: str) -> CompositionalCodes:
        return self._fold_in(matrix, np.ones((1, matrix.shape[0]), dtype=np.float32), side)
