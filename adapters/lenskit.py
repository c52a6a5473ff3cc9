"""LensKit components: CCCFScorer scores candidates by codes, CCCFRecommender searches an index for the best items."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy import sparse

from cccf_index import IndexCCCF
from cccf_index._check import NotFittedError
from cccf_index.adapters._vectors import raise_missing_framework
from cccf_index.models import CCCF

try:
    from lenskit.basic.history import UserTrainingHistoryLookup
    from lenskit.data import ID, Dataset, ItemList, QueryInput, RecQuery, Vocabulary
    from lenskit.pipeline import Component, Pipeline, PipelineBuilder
    from lenskit.training import Trainable, TrainingOptions
    from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt
except ImportError as error:
    raise_missing_framework("LensKit", "lenskit", error)


class CCCFConfig(BaseModel):
    """Configuration of `CCCFScorer`; see `cccf_index.models.CCCF` for each field."""

    model_config = ConfigDict(extra="forbid")

    n_components: PositiveInt = 8
    n_bits: PositiveInt = 16
    weights: Literal["learned", "kernel"] = "learned"
    queries: Literal["coded", "real"] = "coded"
    feedback: Literal["explicit", "implicit"] = "explicit"
    objective: Literal["catalogue", "rated"] = "catalogue"
    max_active: PositiveInt | None = None
    max_active_users: PositiveInt | None = None
    regularization: NonNegativeFloat | None = None
    unobserved: NonNegativeFloat | None = None
    n_factors: PositiveInt | None = None
    seed: NonNegativeInt = 0


class CCCFScorer(Component[ItemList], Trainable):
    """Score items by compositional codes that are learned from the ratings or interactions of a dataset.

    Users of the training data are scored by their learned codes. Other users, and queries with items of a session or a
    context, are encoded from those items; with explicit feedback the items need ratings. Scores are preferences, which
    rank all items; with ``objective="rated"`` they are predicted ratings.

    Attributes
    ----------
    model : CCCF
    index : IndexCCCF
        Its ids are item numbers of the vocabulary `items`.
    users, items : Vocabulary

    Examples
    --------
    >>> import pandas as pd
    >>> from lenskit import recommend
    >>> from lenskit.data import from_interactions_df
    >>> from lenskit.pipeline import topn_pipeline
    >>> from cccf_index.adapters.lenskit import CCCFScorer
    >>> from cccf_index.datasets import synthetic_ratings
    >>> pairs = synthetic_ratings(n_users=300, n_items=200).user_items.tocoo()
    >>> data = from_interactions_df(pd.DataFrame({"user_id": pairs.row, "item_id": pairs.col, "rating": pairs.data}))
    >>> pipeline = topn_pipeline(CCCFScorer(n_components=4, n_bits=8))
    >>> pipeline.train(data)
    >>> len(recommend(pipeline, 3, n=10))
    10
    """

    config: CCCFConfig
    model: CCCF
    index: IndexCCCF
    users: Vocabulary
    items: Vocabulary

    def train(self, data: Dataset, options: TrainingOptions = TrainingOptions()) -> None:  # noqa: B008
        """Learn codes of all users and items and build the index."""
        if hasattr(self, "model") and not options.retrain:
            return
        matrix = data.interaction_matrix(format="scipy", layout="csr", field=self._choose_field(data.interactions()))
        model = CCCF(**self.config.model_dump(), verbose=False)
        if options.rng is not None:
            model.set_params(seed=int(options.random_generator().integers(2**31)))
        self.model = model.fit(sparse.csr_matrix(matrix, dtype=np.float64))
        self.index = self.model.to_index()
        self.__dict__.pop("_expanded", None)
        self.users, self.items = data.users, data.items
        self._trained = np.diff(matrix.indptr) > 0  # the codes of users without interactions mean nothing

    def _choose_field(self, given: Any) -> str | None:
        """Return the attribute of interactions to learn from; None if only their presence counts."""
        if self.config.feedback == "implicit":
            return None
        if "rating" not in given.attribute_names:
            raise ValueError('Explicit feedback needs ratings, and the data has none. Set `feedback="implicit"`.')
        return "rating"

    def __call__(self, query: QueryInput, items: ItemList) -> ItemList:
        """Return the items with scores; unknown items and users get NaN."""
        found = self._get_query(RecQuery.create(query))
        scores = np.full(len(items), np.nan)
        if found is not None and len(items):
            numbers = items.numbers(vocabulary=self.items, missing="negative")
            known = numbers >= 0
            queries, bias = found
            left = queries if isinstance(queries, np.ndarray) else queries.to_vectors()
            if not hasattr(self, "_expanded"):
                self._expanded = self.model.item_codes_.to_vectors()  # made on demand: a recommender never needs it
            score_all = known.sum() > len(self._expanded) // 2
            right = self._expanded if score_all else self._expanded[numbers[known]]
            products = right @ left[0]
            products = products[numbers[known]] if score_all else products
            scores[known] = self.model.to_ratings(products + bias)
        return ItemList(items, scores=scores)

    def _get_query(self, query: RecQuery) -> tuple[Any, float] | None:
        """Return the query of a user and the user's bias; None for a user without training data or rated items."""
        if not hasattr(self, "model"):
            raise NotFittedError(f"This {type(self).__name__} is not trained yet. Call `train` of its pipeline first.")
        user = None if query.user_id is None else self.users.number(query.user_id, missing=None)
        known = user is not None and self._trained[user]
        items = query.query_items
        row = None if items is None or (known and items is query.history_items) else self._make_row(items)
        if row is not None and row.nnz:
            encode = self.model.transform_users if self.config.queries == "real" else self.model.encode_users
            return encode(row), float(self.model.encode_user_bias(row)[0])
        if not known:
            return None
        biases = getattr(self.model, "user_bias_", None)
        return self.model._get_queries(np.array([user])), 0.0 if biases is None else float(biases[user])

    def _make_row(self, items: ItemList) -> sparse.csr_matrix | None:
        """Return items as a row of the training matrix; None if they have no ratings and ratings are needed."""
        numbers = items.numbers(vocabulary=self.items, missing="negative")
        values = np.ones(len(items)) if self.config.feedback == "implicit" else items.field("rating")
        if values is None:
            return None
        numbers, first = np.unique(numbers, return_index=True)
        known = numbers >= 0
        data = np.asarray(values, dtype=np.float64)[first[known]]
        return sparse.csr_matrix((data, numbers[known], [0, known.sum()]), shape=(1, len(self.items)))


class CCCFRecommender(CCCFScorer):
    """Search the index for the best items of a user, without scoring every candidate.

    It replaces candidate selector, scorer and ranker of a pipeline: see `cccf_pipeline`. The items in a query's
    history, session and context are left out. Weights are rounded in an index, so scores differ slightly from those of
    `CCCFScorer`.

    Examples
    --------
    >>> import pandas as pd
    >>> from lenskit import recommend
    >>> from lenskit.data import from_interactions_df
    >>> from cccf_index.adapters.lenskit import cccf_pipeline
    >>> from cccf_index.datasets import synthetic_ratings
    >>> pairs = synthetic_ratings(n_users=300, n_items=200).user_items.tocoo()
    >>> data = from_interactions_df(pd.DataFrame({"user_id": pairs.row, "item_id": pairs.col, "rating": pairs.data}))
    >>> pipeline = cccf_pipeline(n_components=4, n_bits=8)
    >>> pipeline.train(data)
    >>> len(recommend(pipeline, 3, n=10))
    10
    """

    def __call__(self, query: QueryInput, items: ItemList | None = None, n: int | None = None) -> ItemList:
        """Return the best n items in order, from `items` if given; None or -1 returns all.

        The list of an unknown user is empty.
        """
        query = RecQuery.create(query)
        user = self._get_query(query)
        allow, exclude = None, None
        if items is not None:
            numbers = items.numbers(vocabulary=self.items, missing="negative")
            allow = np.unique(numbers[numbers >= 0])
        else:
            lists = (query.history_items, query.session_items, query.context_items)
            known = [part.numbers(vocabulary=self.items, missing="negative") for part in lists if part is not None]
            seen = np.unique(np.concatenate([np.empty(0, np.int64), *known]))
            seen = seen[seen >= 0]
            exclude = sparse.csr_array((np.ones(len(seen)), seen, [0, len(seen)]), shape=(1, len(self.items)))
        most = len(self.items) if allow is None else len(allow)
        count = most if n is None or n < 0 else min(n, most)
        found, scores = np.empty(0, dtype=np.int64), np.empty(0)
        if user is not None and count:
            queries, bias = user
            D, I = self.index.search(queries, count, exclude=exclude, allow=allow)
            found = I[0][I[0] >= 0]
            scores = self.model.to_ratings(D[0][: len(found)] + np.float32(bias))
        return ItemList(item_nums=found, vocabulary=self.items, scores=scores, ordered=True)


def cccf_pipeline(name: str | None = None, **config: Any) -> Pipeline:
    """Return a pipeline that recommends with `CCCFRecommender`; `config` holds fields of `CCCFConfig`."""
    builder = PipelineBuilder(name=name)
    query = builder.create_input("query", RecQuery, ID, ItemList)
    items = builder.create_input("items", ItemList, None)
    n = builder.create_input("n", int, None)
    lookup = builder.add_component("history-lookup", UserTrainingHistoryLookup(), query=query)
    builder.add_component("recommender", CCCFRecommender(**config), query=lookup, items=items, n=n)
    builder.default_component("recommender")
    return builder.build()
