"""CCCF: compositional coding for collaborative filtering (Liu et al., SIGIR 2019)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cccf_index import _check
from cccf_index.codes import CompositionalCodes
from cccf_index.models._coded import DiscreteModel, check_components
from cccf_index.models._kernel_weights import ANCHORS, DISTANCES, KERNELS, choose_anchors, compute_weights
from cccf_index.models._teacher import (
    MAX_FACTORS,
    Teacher,
    train_explicit_teacher,
    train_implicit_teacher,
    wrap_factors,
)
from cccf_index.models.mf import MF
from cccf_index.quantizer import CompositionalQuantizer

# attributes that only one kind of weights has
LEARNED = ("quantizer_", "item_bias_", "user_bias_", "user_means_", "bias_share_", "feedback_", "user_queries_")
KERNEL = ("user_anchors_", "item_anchors_")
KERNEL_FACTORS = 32  # factors of the latent space in which distances are measured


class CCCF(DiscreteModel):
    """Compositional codes: each user and each item has G binary codes, each with a weight that may be zero.

    With ``weights="learned"`` codes and weights are fitted together to all scores of a teacher, a matrix factorisation
    that is tuned on held-out ratings. ``weights="kernel"`` is the paper's model: weights are a kernel function of the
    distance to G anchors in the latent space of a matrix factorisation. They stay fixed while the codes are learned by
    discrete coordinate descent.

    Parameters
    ----------
    n_components : int
        G, the number of components, 1 to 64.
    n_bits : int
        r, the number of bits of a component, 1 to 512.
    weights : {"learned", "kernel"}
        How weights are determined.
    queries : {"coded", "real"}
        Learned weights: whether `predict` and `recommend` use the codes of users, or real-valued queries, which rank a
        little better but are searched more slowly.
    feedback : {"explicit", "implicit"}
        Learned weights: what the matrix holds, ratings or implicit feedback. Of implicit feedback only the pattern
        counts; the teacher is trained by the package implicit unless `latents` are given.
    max_active, max_active_users : int, optional
        Learned weights: the maximum number of components of an item or a user with a non-zero weight; None for all.
    unobserved : float, optional
        Learned weights: as for `MF`; None to choose 0 or 0.1 on a held-out tenth of the ratings.
    regularization : float, optional
        Learned weights: that of the teacher. None to choose it, and the share of an item bias, on a held-out tenth of
        the ratings. Kernel weights: as for `DCF`; None means 0.06.
    latents : MF, model of the package implicit, or pair of arrays, optional
        Learned weights: the teacher. Kernel weights: the latent space. A fitted model of the same users and items, any
        pair ``(user_factors, item_factors)``, or an MF that is not fitted, which `fit` then does. None trains one.
    n_factors : int, optional
        The number of factors if `latents` is None. None means 64 for each of three averaged MF, 128 for implicit
        feedback, and 32 for kernel weights.
    kernel : {"epanechnikov", "triangular", "uniform"}
        Kernel weights: the kernel function.
    bandwidth : float
        Kernel weights: h. A smaller bandwidth gives fewer active components per row. Such codes are searched faster but
        rank worse, as only components that user and item share add to a score.
    distance : {"angular", "arccos"}
        Kernel weights: "angular" is the angle in units of a right angle, with a kernel that reaches zero at the
        bandwidth (the authors' code). "arccos" is the angle in radians, with a kernel cut off at the bandwidth
        (the paper).
    anchors : {"kmeans", "random"}
        Kernel weights: k-means centroids of the latent vectors, or latent vectors chosen at random.
    normalize : bool
        Kernel weights: divide the weights of each row by their sum.
    alpha : float
        Kernel weights: as for `DCF`.
    beta : float
        Kernel weights: as for `DCF`.
    initialize : bool
        Kernel weights: as for `DCF`.
    init_iter : int
        Kernel weights: as for `DCF`.
    max_iter : int
        Kernel weights: as for `DCF`.
    max_sweeps : int
        Kernel weights: as for `DCF`.
    tol : float
        Kernel weights: as for `DCF`.
    seed : int
        As for `DCF`.
    verbose : bool
        As for `DCF`.

    Attributes
    ----------
    user_codes_, item_codes_ : CompositionalCodes
    latents_ : MF
        Learned weights: the teacher. Kernel weights: the latent space.
    quantizer_ : CompositionalQuantizer
        Learned weights: encodes the vectors of the teacher, whose last entry is the item bias.
    item_bias_ : ndarray of float32, shape (n_items,)
        Learned weights: what the teacher adds to the scores of each item. The codes already include it.
    user_bias_ : ndarray of float32, shape (n_users,)
        Learned weights: what `predict` and `recommend` add to the scores of each user.
    user_queries_ : ndarray of float32, shape (n_users, n_components * n_bits)
        With ``queries="real"``: the queries for the index, instead of ``user_codes_``.
    user_anchors_, item_anchors_ : ndarray of float32, shape (n_components, n_factors)
        Kernel weights: the anchors.

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
    quantizer_: CompositionalQuantizer
    item_bias_: NDArray[np.float32]
    user_bias_: NDArray[np.float32]
    user_means_: NDArray[np.float64]
    bias_share_: float
    feedback_: str
    user_queries_: NDArray[np.float32]

    def __init__(
        self,
        n_components: int = 8,
        n_bits: int = 16,
        weights: str = "learned",
        queries: str = "coded",
        feedback: str = "explicit",
        max_active: int | None = None,
        max_active_users: int | None = None,
        unobserved: float | None = None,
        regularization: float | None = None,
        latents: Any = None,
        n_factors: int | None = None,
        kernel: str = "epanechnikov",
        bandwidth: float = 1.2,
        distance: str = "angular",
        anchors: str = "kmeans",
        normalize: bool = True,
        alpha: float = 0.001,
        beta: float = 0.001,
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
        self.queries = queries
        self.feedback = feedback
        self.max_active = max_active
        self.max_active_users = max_active_users
        self.unobserved = unobserved
        self.latents = latents
        self.n_factors = n_factors
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.distance = distance
        self.anchors = anchors
        self.normalize = normalize

    def fit(self, user_items: Any, *, item_features: Any = None, user_features: Any = None) -> CCCF:
        """Learn codes from a scipy.sparse matrix of ratings (n_users, n_items); a stored zero is a rating of zero."""
        _check.choice(self.weights, "weights", ("learned", "kernel"))
        _check.choice(self.feedback, "feedback", ("explicit", "implicit"))
        _check.choice(self.queries, "queries", ("coded", "real"))
        if self.weights == "learned":
            return self._fit_learned(user_items, item_features=item_features, user_features=user_features)
        if self.feedback != "explicit" or self.queries != "coded":
            raise ValueError('`weights` must be "learned" for implicit feedback and real-valued queries, got "kernel".')
        _check.choice(self.anchors, "anchors", ANCHORS)
        self._check_kernel()
        seed = _check.integer(self.seed, "seed", 0)
        self._make_plan(1.0)
        ratings = self._check_observed(user_items, item_features=item_features, user_features=user_features)
        n_components = check_components(self.n_components, ratings)
        latents = self._fit_latents(user_items, ratings.shape)
        factors = latents.user_factors_, latents.item_factors_
        users, items = (choose_anchors(part, self.anchors, n_components, seed) for part in factors)
        self._learn(ratings, (self._compute_weights(factors[0], users), self._compute_weights(factors[1], items)))
        self.latents_, self.user_anchors_, self.item_anchors_ = latents, users, items
        self._forget(LEARNED)
        return self

    def _fit_learned(self, user_items: Any, **features: Any) -> CCCF:
        quantizer = CompositionalQuantizer(
            self.n_components, self.n_bits, self.max_active, self.max_active_users, self.seed, verbose=self.verbose
        )
        quantizer.check()
        teacher, limits = self._train_teacher(user_items, **features)
        latents = teacher.latents
        users = teacher.extend_users(latents.user_factors_)
        quantizer.fit(teacher.extend_items(latents.item_factors_, teacher.item_bias), users)
        assert quantizer.user_codes_ is not None
        self.n_users_, self.n_items_ = latents.n_users_, latents.n_items_
        self.rating_range_, self.rating_scale_ = limits, 1.0
        self.user_codes_, self.item_codes_ = quantizer.user_codes_, quantizer.item_codes_
        self.history_, self.quantizer_, self.latents_ = quantizer.history_, quantizer.without_codes(), latents
        self.item_bias_, self.bias_share_, self.user_means_ = teacher.item_bias, teacher.bias_share, teacher.user_means
        self.user_bias_, self.feedback_ = users @ quantizer.item_mean_, self.feedback
        self._forget((*KERNEL, "user_queries_"))
        if self.queries == "real":
            self.user_queries_ = quantizer.transform_users(users)
        return self

    def _train_teacher(self, user_items: Any, **features: Any) -> tuple[Teacher, list[float]]:
        """Return the teacher of learned weights, and the smallest and the largest rating."""
        n_factors = None if self.n_factors is None else _check.integer(self.n_factors, "n_factors", 1, MAX_FACTORS)
        options = {"seed": self.seed, "verbose": self.verbose}
        if self.feedback == "explicit":
            matrix = self._check_ratings(user_items, **features)
            regularization, unobserved = (
                None if value is None else _check.number(value, name, 0)
                for value, name in ((self.regularization, "regularization"), (self.unobserved, "unobserved"))
            )
            teacher = train_explicit_teacher(matrix, self.latents, n_factors, regularization, unobserved, options)
            return teacher, [float(matrix.data.min()), float(matrix.data.max())]
        matrix = self._check_matrix(user_items, **features)
        if matrix.data.min() <= 0:
            raise ValueError(
                f"`user_items` must hold numbers above 0 for implicit feedback, got {matrix.data.min():g}. "
                "Remove the other entries, zeros with `eliminate_zeros`."
            )
        return train_implicit_teacher(_fill_matrix(matrix, 1.0), self.latents, n_factors, options), [0.0, 1.0]

    def _forget(self, names: Iterable[str]) -> None:
        """Remove attributes of an earlier fit with other parameters."""
        for name in names:
            vars(self).pop(name, None)

    def _get_teacher(self) -> Teacher:
        return Teacher(self.latents_, self.item_bias_, self.bias_share_, self.user_means_)

    def _encode(self, matrix: Any, side: str) -> CompositionalCodes:
        if hasattr(self, "quantizer_"):
            vectors = self._get_teacher().encode(self._prepare_feedback(matrix), side)
            return self.quantizer_.encode_users(vectors) if side == "user" else self.quantizer_.encode_items(vectors)
        anchors = self.user_anchors_ if side == "user" else self.item_anchors_
        return self._fold_in(matrix, self._compute_weights(self.latents_._encode(matrix, side), anchors), side)

    def _prepare_feedback(self, matrix: Any) -> Any:
        """Return explicit ratings as they are, and implicit feedback with equal values: how often does not count."""
        return matrix if self.feedback_ == "explicit" else _fill_matrix(matrix, 1 + self.latents_.pair_weight_)

    def transform_users(self, user_items: Any) -> NDArray[np.float32]:
        """Return real-valued queries, float32 (n, n_components * n_bits), of new users by their ratings (n, n_items).

        Only models with learned weights have them.
        """
        self._check_fitted()
        if not hasattr(self, "quantizer_"):
            raise ValueError('`weights` must be "learned" for real-valued queries, got a model fitted with "kernel".')
        matrix = _check.ratings(user_items, "user_items", self.n_items_)
        return self.quantizer_.transform_users(self._get_teacher().encode(self._prepare_feedback(matrix), "user"))

    def encode_user_bias(self, user_items: Any) -> NDArray[np.float32]:
        """Return the ``user_bias_``, float32 (n,), of new users by their ratings (n, n_items); 0 for kernel weights."""
        self._check_fitted()
        matrix = _check.ratings(user_items, "user_items", self.n_items_)
        if not hasattr(self, "quantizer_"):
            return np.zeros(matrix.shape[0], dtype=np.float32)
        return self._get_teacher().encode(self._prepare_feedback(matrix), "user") @ self.quantizer_.item_mean_

    def to_ratings(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Convert scores of `to_index()` to ratings, float64; with learned weights, scores plus ``user_bias_``."""
        if hasattr(self, "quantizer_"):
            return np.asarray(scores, dtype=np.float64) + self.latents_.offset_
        return super().to_ratings(scores)

    def _get_queries(self, users: NDArray[np.int64]) -> Any:
        return self.user_queries_[users] if hasattr(self, "user_queries_") else self.user_codes_[users]

    def _search(self, users: NDArray[np.int64], k: int, exclude: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        scores, items = super()._search(users, k, exclude)
        if hasattr(self, "quantizer_"):
            np.add(scores, self.user_bias_[users][:, None], out=scores, where=items >= 0)
        return scores, items

    def _get_vectors(self, users: Any, items: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        if not hasattr(self, "quantizer_"):
            return super()._get_vectors(users, items)
        queries = self._get_queries(users)
        left = queries.to_vectors() if isinstance(queries, CompositionalCodes) else queries
        right = self.item_codes_[items].to_vectors()
        return np.hstack([left, self.user_bias_[users][:, None]]), np.pad(right, ((0, 0), (0, 1)), constant_values=1)

    def _check_kernel(self) -> None:
        _check.choice(self.kernel, "kernel", KERNELS)
        _check.choice(self.distance, "distance", DISTANCES)
        if _check.number(self.bandwidth, "bandwidth", 0) == 0:
            raise ValueError("`bandwidth` must be above 0, got 0.")

    def _fit_latents(self, user_items: Any, shape: tuple[int, int]) -> MF:
        if self.latents is None:
            n_factors = KERNEL_FACTORS if self.n_factors is None else self.n_factors
            return MF(n_factors, seed=self.seed, verbose=self.verbose).fit(user_items)
        if isinstance(self.latents, MF) and not hasattr(self.latents, "history_"):
            return MF(**self.latents.get_params()).fit(user_items)
        return wrap_factors(self.latents, shape)

    def _compute_weights(self, latents: NDArray[Any], anchors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return kernel weights (G, n), component-major as in training."""
        self._check_kernel()
        weights = compute_weights(latents, anchors, self.kernel, self.distance, self.bandwidth, bool(self.normalize))
        return np.ascontiguousarray(weights.T)

    def _verify(self) -> None:
        super()._verify()
        if hasattr(self, "quantizer_"):
            shapes = (self.item_bias_.shape, self.user_bias_.shape, self.user_means_.shape)
            if shapes != ((self.n_items_,), (self.n_users_,), (self.n_users_,)):
                raise ValueError("the biases and the users and items differ in number")
            if hasattr(self, "user_queries_") and self.user_queries_.shape != (self.n_users_, self.item_codes_.d):
                raise ValueError("the queries and the codes differ in shape")
            if self.quantizer_.d != self.latents_.item_factors_.shape[1] + 1:
                raise ValueError("the quantizer and the factors differ in dimension")
            return
        shape = (self.item_codes_.n_components, self.latents_.item_factors_.shape[1])
        if self.user_anchors_.shape != shape or self.item_anchors_.shape != shape:
            raise ValueError("the anchors differ in shape from the components and factors")


def _fill_matrix(matrix: sparse.csr_array, value: float) -> sparse.csr_array:
    """Return a matrix with the same pattern, and `value` for every entry."""
    return sparse.csr_array((np.full(matrix.nnz, value), matrix.indices, matrix.indptr), shape=matrix.shape)
