"""CCCF: compositional coding for collaborative filtering (Liu et al., SIGIR 2019)."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cccf_index import _check
from cccf_index.codes import CompositionalCodes
from cccf_index.models._coded import DiscreteModel, check_components
from cccf_index.models._kernel_weights import ANCHORS, DISTANCES, KERNELS, choose_anchors, component_weights
from cccf_index.models.mf import MF


class CCCF(DiscreteModel):
    """Compositional codes: G binary codes for each user and item, each with a weight that may be zero.

    As published: the weights are kernels of the distance to G anchors, in the latent space of a matrix factorisation,
    and stay fixed while the codes are learned by discrete coordinate descent.

    Parameters
    ----------
    n_components : int
        G.
    n_bits : int
        r, the bits of one component.
    weights : {"kernel"}
        How weights are found.
    kernel : {"epanechnikov", "triangular", "uniform"}
    bandwidth : float
        h. The smaller, the fewer components a row has: around 1 and above nearly all, at 0.4 about 3 of 8 on MovieLens.
        Sparse codes are searched faster, but rank worse: components that a pair does not share tell nothing of it.
    distance : {"angular", "arccos"}
        The angle in units of a right angle, with a kernel that reaches zero at the bandwidth (the authors' code); or
        in radians, with a kernel cut at the bandwidth (the paper).
    anchors : {"kmeans", "random"}
        Centroids of the latent vectors, or latent vectors chosen at random.
    normalize : bool
        Divide the weights of each row by their sum.
    latents : MF, optional
        Whose factors are taken: a fitted model with the same users and items, `MF.from_factors` of any others, or
        one that is not fitted yet and will be. None is ``MF(n_factors, seed=seed)``.
    n_factors : int
        Of the MF that is fitted where `latents` is None.
    alpha, beta, regularization, initialize, init_iter, max_iter, max_sweeps, tol, seed, verbose
        As for `DCF`.

    Attributes
    ----------
    user_codes_, item_codes_ : CompositionalCodes
    latents_ : MF
        What distances are taken from.
    user_anchors_, item_anchors_ : ndarray of float32, shape (n_components, n_factors)

    Examples
    --------
    >>> from cccf_index.datasets import synthetic_ratings
    >>> from cccf_index.models import CCCF
    >>> ratings = synthetic_ratings(n_users=200, n_items=100, seed=0)
    >>> model = CCCF(n_components=4, n_bits=8).fit(ratings.user_items)
    >>> index = model.to_index()
    >>> D, I = index.search(model.user_codes_, 10, exclude=ratings.user_items)
    >>> I.shape
    (200, 10)
    """

    latents_: MF
    user_anchors_: NDArray[np.float32]
    item_anchors_: NDArray[np.float32]

    def __init__(
        self,
        n_components: int = 8,
        n_bits: int = 16,
        weights: str = "kernel",
        kernel: str = "epanechnikov",
        bandwidth: float = 1.2,
        distance: str = "angular",
        anchors: str = "kmeans",
        normalize: bool = True,
        latents: MF | None = None,
        n_factors: int = 32,
        alpha: float = 0.001,
        beta: float = 0.001,
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
        self.n_components = n_components
        self.weights = weights
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.distance = distance
        self.anchors = anchors
        self.normalize = normalize
        self.latents = latents
        self.n_factors = n_factors

    def fit(self, user_items: Any, *, item_features: Any = None, user_features: Any = None) -> CCCF:
        """Learn codes from a scipy.sparse matrix of ratings; a stored zero is a rating of zero."""
        _check.choice(self.weights, "weights", ("kernel",))
        _check.choice(self.anchors, "anchors", ANCHORS)
        self._check_kernel()
        seed = _check.integer(self.seed, "seed", 0)
        self._plan(1.0)
        ratings = self._checked(user_items, item_features=item_features, user_features=user_features)
        n_components = check_components(self.n_components, ratings)
        latents = self._fitted_latents(user_items, ratings.shape)
        factors = latents.user_factors_, latents.item_factors_
        users, items = (choose_anchors(part, self.anchors, n_components, seed) for part in factors)
        self._learn(ratings, (self._weights_of(factors[0], users), self._weights_of(factors[1], items)))
        self.latents_, self.user_anchors_, self.item_anchors_ = latents, users, items
        return self

    def _encode(self, matrix: Any, side: str) -> CompositionalCodes:
        anchors = self.user_anchors_ if side == "user" else self.item_anchors_
        return self._fold_in(matrix, self._weights_of(self.latents_._encode(matrix, side), anchors), side)

    def _check_kernel(self) -> None:
        _check.choice(self.kernel, "kernel", KERNELS)
        _check.choice(self.distance, "distance", DISTANCES)
        if _check.number(self.bandwidth, "bandwidth", 0) == 0:
            raise ValueError("`bandwidth` must be above 0, got 0.")

    def _fitted_latents(self, user_items: Any, shape: tuple[int, int]) -> MF:
        if self.latents is None:
            return MF(self.n_factors, seed=self.seed, verbose=self.verbose).fit(user_items)
        if not isinstance(self.latents, MF):
            raise TypeError(
                f"`latents` must be an MF or None, got {type(self.latents).__name__}. "
                "For factors of your own pass `MF.from_factors(user_factors, item_factors)`."
            )
        if not hasattr(self.latents, "history_"):
            return MF(**self.latents.get_params()).fit(user_items)
        found = (self.latents.n_users_, self.latents.n_items_)
        if found != shape:
            raise ValueError(f"`latents` must be of {shape[0]} users and {shape[1]} items, got {found}.")
        return copy.copy(self.latents)  # which a later fit of theirs does not change

    def _weights_of(self, latents: NDArray[Any], anchors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return weights (G, n) by component, as training takes them."""
        self._check_kernel()
        weights = component_weights(latents, anchors, self.kernel, self.distance, self.bandwidth, bool(self.normalize))
        return np.ascontiguousarray(weights.T)

    def _verify(self) -> None:
        super()._verify()
        shape = (self.item_codes_.n_components, self.latents_.item_factors_.shape[1])
        if self.user_anchors_.shape != shape or self.item_anchors_.shape != shape:
            raise ValueError("the anchors do not fit the parameters")
