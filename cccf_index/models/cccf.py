"""CCCF: compositional coding for collaborative filtering (Liu et al., SIGIR 2019)."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cccf_index import _check, _threads
from cccf_index.codes import CompositionalCodes
from cccf_index.learning.heads import HEAD
from cccf_index.models._catalogue_tuning import Preference
from cccf_index.models._coded import DiscreteModel, check_components
from cccf_index.models._kernel_weights import ANCHORS, DISTANCES, KERNELS, choose_anchors, compute_weights
from cccf_index.models._teacher import MAX_FACTORS, Task, Teacher, fill_matrix, train_teacher, wrap_factors
from cccf_index.models.mf import MF
from cccf_index.quantizer import CompositionalQuantizer

# attributes that only one kind of weights has
LEARNED = (
    *("quantizer_", "item_bias_", "user_bias_", "user_means_", "bias_share_", "popularity_share_"),
    *("feedback_", "objective_", "preference_", "choice_", "user_queries_"),
)
KERNEL = ("user_anchors_", "item_anchors_")
USERS = 16_384  # users whose queries are made at a time
KERNEL_FACTORS = 32  # factors of the latent space in which distances are measured


class CCCF(DiscreteModel):
    """Compositional codes: each user and each item has G binary codes, each with a weight that may be zero.

    With ``weights="learned"`` codes and weights are fitted together to all scores of a teacher, a matrix factorisation
    that is tuned on held-out ratings: by default to find them among all items. ``weights="kernel"`` is the paper's
    model: weights are a kernel function of the distance to G anchors in the latent space of a matrix factorisation.
    They stay fixed while the codes are learned by discrete coordinate descent.

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
    feedback : {"auto", "explicit", "implicit"}
        Learned weights: what the matrix holds, ratings or implicit feedback, of which only the pattern counts. "auto"
        means implicit if all entries are equal.
    objective : {"catalogue", "rated"}
        Learned weights: what the teacher is tuned for. "catalogue" finds held-out items among all items: what an index
        is for. "rated" orders the held-out items that a user has rated, the paper's protocol, which says little about
        what a user would choose.
    max_active, max_active_users : int, optional
        Learned weights: the maximum number of components of an item or a user with a non-zero weight; None for all.
    unobserved : float, optional
        Learned weights: as for `MF`; None to choose it on held-out ratings.
    regularization : float, optional
        Learned weights: that of the teacher, as for `MF`; None to choose it on held-out ratings. Kernel weights: as for
        `DCF`; None means 0.06.
    latents : MF, model of the package implicit, or pair of arrays, optional
        Learned weights: the teacher. Kernel weights: the latent space. A fitted model of the same users and items, any
        pair ``(user_factors, item_factors)``, or an MF that is not fitted, which `fit` then does. None trains one.
    n_factors : int, optional
        The number of factors if `latents` is None. None means 192, 64 for each of three averaged MF with
        ``objective="rated"``, and 32 for kernel weights.
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
    feedback_, objective_ : str
        Learned weights: what the model was trained for. With "catalogue", `predict` returns preferences, 1 for the
        highest rating and about 0 for pairs that are unlikely, not ratings.
    choice_ : dict of float
        Learned weights, ``objective="catalogue"``: the parameters that were chosen for the teacher.
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
    popularity_share_: float = 0.0
    feedback_: str
    objective_: str = "rated"  # files of version 0.6 lack these
    preference_: list[float] | None = None
    choice_: dict[str, float] | None = None
    user_queries_: NDArray[np.float32]

    def __init__(
        self,
        n_components: int = 8,
        n_bits: int = 16,
        weights: str = "learned",
        queries: str = "coded",
        feedback: str = "auto",
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
        objective: str = "catalogue",
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
        self.objective = objective

    @_threads.limit_blas()
    def fit(self, user_items: Any, *, item_features: Any = None, user_features: Any = None) -> CCCF:
        """Learn codes from a scipy.sparse matrix of ratings (n_users, n_items); a stored zero is a rating of zero."""
        _check.choice(self.weights, "weights", ("learned", "kernel"))
        _check.choice(self.feedback, "feedback", ("auto", "explicit", "implicit"))
        _check.choice(self.queries, "queries", ("coded", "real"))
        _check.choice(self.objective, "objective", ("catalogue", "rated"))
        if self.weights == "learned":
            return self._fit_learned(user_items, item_features=item_features, user_features=user_features)
        if self.feedback == "implicit" or self.queries != "coded":
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
        matrix = self._check_matrix(user_items, **features)
        task = Task.from_ratings(matrix, self.feedback, self.objective)
        n_factors = None if self.n_factors is None else _check.integer(self.n_factors, "n_factors", 1, MAX_FACTORS)
        given = {"regularization": self.regularization, "unobserved": self.unobserved}
        fixed = {name: _check.number(value, name, 0) for name, value in given.items() if value is not None}
        trained = train_teacher(task, self.latents, n_factors, fixed, {"seed": self.seed, "verbose": self.verbose})
        teacher, latents = trained.teacher, trained.teacher.latents
        users = teacher.extend_users(latents.user_factors_)
        quantizer.fit(teacher.extend_items(latents.item_factors_, teacher.item_bias), users)
        model = copy.copy(self)  # an error before the end changes nothing
        model._forget((*KERNEL, *LEARNED))
        model.n_users_, model.n_items_ = latents.n_users_, latents.n_items_
        model.rating_range_, model.rating_scale_ = task.limits, 1.0
        model.feedback_, model.objective_ = task.feedback, task.objective
        model.preference_, model.choice_ = trained.preference, trained.choice
        model.item_codes_, model.history_ = quantizer.item_codes_, quantizer.history_
        model.quantizer_, model.latents_ = quantizer.without_codes(), latents
        model.item_bias_, model.bias_share_, model.user_means_ = (
            teacher.item_bias,
            teacher.bias_share,
            teacher.user_means,
        )
        model.popularity_share_, model.user_bias_ = teacher.popularity_share, users @ quantizer.item_mean_
        model.user_codes_, queries = model._make_queries(users, matrix)
        if self.queries == "real":
            model.user_queries_ = queries
        vars(self).clear()
        vars(self).update(vars(model))
        return self

    def _make_queries(
        self, vectors: NDArray[np.float32], matrix: sparse.csr_array
    ) -> tuple[CompositionalCodes, NDArray[np.float32]]:
        """Return codes and real-valued queries of users with these teacher's vectors, and their ratings.

        For the whole catalogue they are fitted to the unrated items at the head of their lists.
        """
        quantizer = self.quantizer_
        if self.objective_ == "rated":
            return quantizer.encode_users(vectors), quantizer.transform_users(vectors)
        codes, queries = [], []
        for start in range(0, max(len(vectors), 1), USERS):
            part, rated = vectors[start : start + USERS], matrix[start : start + USERS]
            depth = min(HEAD, self.n_items_)
            lists = self._get_index().search(quantizer.transform_users(part), depth, exclude=rated)[1]
            known = np.unique(lists[lists >= 0])  # only these items are expanded: one user must not cost a catalogue
            places = np.where(lists >= 0, np.searchsorted(known, lists), -1)
            items = self._get_teacher().extend_items(self.latents_.item_factors_[known], self.item_bias_[known])
            coded, real = quantizer._fit_to_heads(part, places, items, self.item_codes_[known])
            codes.append(coded)
            queries.append(real)
        return CompositionalCodes.concatenate(codes), np.concatenate(queries)

    def _forget(self, names: Iterable[str]) -> None:
        """Remove attributes of an earlier fit with other parameters."""
        for name in names:
            vars(self).pop(name, None)

    def _get_teacher(self) -> Teacher:
        return Teacher(self.latents_, self.item_bias_, self.bias_share_, self.user_means_, self.popularity_share_)

    def _encode(self, matrix: Any, side: str) -> CompositionalCodes:
        if not hasattr(self, "quantizer_"):
            anchors = self.user_anchors_ if side == "user" else self.item_anchors_
            return self._fold_in(matrix, self._compute_weights(self.latents_._encode(matrix, side), anchors), side)
        vectors = self._encode_vectors(matrix, side)
        return self._make_queries(vectors, matrix)[0] if side == "user" else self.quantizer_.encode_items(vectors)

    def _encode_vectors(self, matrix: sparse.csr_array, side: str) -> NDArray[np.float32]:
        """Return the teacher's vectors of new users or items by their ratings."""
        if self.preference_ is not None:
            targets = fill_matrix(matrix, Preference(*self.preference_).grade(matrix.data))
        elif self.feedback_ == "implicit":  # how often does not count
            targets = fill_matrix(matrix, 1 + self.latents_.pair_weight_)
        else:
            targets = matrix
        return self._get_teacher().encode(matrix, targets, side)

    @_threads.limit_blas()
    def transform_users(self, user_items: Any) -> NDArray[np.float32]:
        """Return real-valued queries, float32 (n, n_components * n_bits), of new users by their ratings (n, n_items).

        Only models with learned weights have them.
        """
        self._check_fitted()
        if not hasattr(self, "quantizer_"):
            raise ValueError('`weights` must be "learned" for real-valued queries, got a model fitted with "kernel".')
        matrix = _check.ratings(user_items, "user_items", self.n_items_)
        return self._make_queries(self._encode_vectors(matrix, "user"), matrix)[1]

    @_threads.limit_blas()
    def encode_user_bias(self, user_items: Any) -> NDArray[np.float32]:
        """Return the ``user_bias_``, float32 (n,), of new users by their ratings (n, n_items); 0 for kernel weights."""
        self._check_fitted()
        matrix = _check.ratings(user_items, "user_items", self.n_items_)
        if not hasattr(self, "quantizer_"):
            return np.zeros(matrix.shape[0], dtype=np.float32)
        return self._encode_vectors(matrix, "user") @ self.quantizer_.item_mean_

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
