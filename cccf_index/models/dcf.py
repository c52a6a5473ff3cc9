"""DCF: discrete collaborative filtering, one binary code for each user and item (Zhang et al., SIGIR 2016)."""

from __future__ import annotations

from typing import Any

import numpy as np

from cccf_index import _threads
from cccf_index.codes import CompositionalCodes
from cccf_index.models._coded import DiscreteModel


class DCF(DiscreteModel):
    """Discrete collaborative filtering: a rating is the inner product of two codes of -1 and +1.

    Trained by discrete coordinate descent, which also favours balanced and decorrelated bits. It is CCCF with one
    component whose weights are 1, and is trained by the same code.

    Parameters
    ----------
    n_bits : int
        The number of bits of a code, 1 to 512.
    alpha, beta : float
        The weights of balance and decorrelation, for the bits of users and of items.
    regularization : float
        The ridge of the relaxed start per rating, in units of the scaled ratings.
    initialize : bool
        Start from the signs of the relaxed, real-valued problem. If False, start from random signs.
    init_iter : int
        The number of iterations of the relaxed problem.
    max_iter : int
        The maximum number of iterations of the discrete problem.
    max_sweeps : int
        The maximum number of passes over the bits of a code in one update. It ends when no bit changes.
    tol : float
        Stop when the objective, with ratings scaled to -1 to 1, falls by less than ``tol * max(n_users, n_items)``.
    seed : int
        Seed of the first codes.
    verbose : bool
        Show progress bars if the output is a terminal.

    Attributes
    ----------
    user_codes_, item_codes_ : CompositionalCodes
        One component, all weights 1.

    Examples
    --------
    >>> from cccf_index.datasets import synthetic_ratings
    >>> from cccf_index.models import DCF
    >>> ratings = synthetic_ratings(n_users=200, n_items=100, seed=0)
    >>> model = DCF(n_bits=16).fit(ratings.user_items)
    >>> model.item_codes_
    CompositionalCodes(n=100, n_components=1, n_bits=16, sparsity=0.00)
    """

    @_threads.limit_blas()
    def fit(self, user_items: Any, *, item_features: Any = None, user_features: Any = None) -> DCF:
        """Learn codes from a scipy.sparse matrix of ratings (n_users, n_items); a stored zero is a rating of zero."""
        ratings = self._check_observed(user_items, item_features=item_features, user_features=user_features)
        m, n = ratings.shape
        self._learn(ratings, (np.ones((1, m), dtype=np.float32), np.ones((1, n), dtype=np.float32)))
        return self

    def _encode(self, matrix: Any, side: str) -> CompositionalCodes:
        return self._fold_in(matrix, np.ones((1, matrix.shape[0]), dtype=np.float32), side)
