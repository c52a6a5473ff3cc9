"""How fast does each framework recommend ten items to all users, with and without its adapter, and how good are they?

    python tests/frameworks.py                                                    # creates the environments
    .venvs/implicit/bin/python benchmarks/bench_adapters.py implicit --data DIR --save
    .venvs/rectools/bin/python benchmarks/bench_adapters.py rectools --data DIR --save
    .venvs/cornac/bin/python benchmarks/bench_adapters.py cornac --data DIR --save
    .venvs/lenskit/bin/python benchmarks/bench_adapters.py lenskit --data DIR --save

70 % of each user's items are training data and are not recommended; NDCG@10 is measured on the others. All but LensKit,
which trains its own models, use the same 128 factors of implicit's alternating least squares, which the first command
fits and keeps in `--cache`. Each framework uses its own way to serve many users: implicit and RecTools a batch, Cornac
a loop over 2,000 users, LensKit its batch runner in one process for 500 users. The best of several runs counts, on
one thread and on two.
"""

from __future__ import annotations

import os
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # implicit wants this before numpy is imported, as it has threads of its own

import faiss
import numpy as np
from common import load_ratings, make_parser, print_machine, save_results
from numpy.typing import NDArray
from scipy import sparse

from cccf_index.comparison import time_within_budget
from cccf_index.datasets import split_ratings
from cccf_index.evaluation import catalogue_ndcg

K, FACTORS = 10, 128
ALS = {"regularization": 0.1, "alpha": 10, "iterations": 15, "random_state": 0}
SAMPLES = {"cornac": 2000, "lenskit": 500}  # users, for frameworks that recommend user by user
CONFIG = {"k": K, "factors": FACTORS, "als": ALS, "users": SAMPLES}
Ranking = NDArray[Any]


@dataclass
class Data:
    """A split data set and the factors of its training part."""

    train: Any  # csr_matrix of ones
    test: Any
    users: NDArray[np.float32]
    items: NDArray[np.float32]

    @classmethod
    def read(cls, folder: str, dataset: str, cache: pathlib.Path) -> Data:
        """Read a data set by its name; fit its factors unless they are cached."""
        train, test = split_ratings(load_ratings(folder, dataset).user_items, seed=0)
        train = sparse.csr_matrix(train, dtype=np.float32)
        train.data[:] = 1
        path = cache / f"{dataset}-als.npz"
        if not path.exists():
            cache.mkdir(parents=True, exist_ok=True)
            try:
                from implicit.als import AlternatingLeastSquares
            except ImportError:
                sys.exit(f"There is no {path} yet: run this benchmark for implicit first.")
            print(f"fitting {dataset} ...", file=sys.stderr)
            model = AlternatingLeastSquares(FACTORS, **ALS)
            model.fit(train, show_progress=False)
            np.savez(path, users=model.user_factors, items=model.item_factors)
        with np.load(path) as file:
            return cls(train, sparse.csr_matrix(test), file["users"], file["items"])

    @property
    def rows(self) -> NDArray[np.int64]:
        """Rows of all users."""
        return np.arange(self.train.shape[0])

    def sample(self, framework: str) -> NDArray[np.int64]:
        """Return a sample of users with training items."""
        known = np.flatnonzero(np.diff(self.train.indptr))
        return np.sort(np.random.default_rng(0).choice(known, SAMPLES[framework], replace=False))


@dataclass
class Recommender:
    """One way to recommend: its name, its threads, the users, and a function that returns their items."""

    name: str
    threads: int
    rows: NDArray[np.int64]
    recommend: Callable[[], Ranking]


def build_implicit(data: Data, threads: int) -> Iterator[Recommender]:
    """Yield implicit's own top-k, its faiss wrapper, and our adapter."""
    from implicit.ann.faiss import FaissModel
    from implicit.cpu.als import AlternatingLeastSquares

    from cccf_index.adapters.implicit import CCCFModel

    als = AlternatingLeastSquares(FACTORS, num_threads=threads, **ALS)
    als.user_factors, als.item_factors = data.users, data.items

    class Fitted(AlternatingLeastSquares):
        """A model that is not fitted again: FaissModel always calls `fit`."""

        def fit(self, *args: Any, **kwargs: Any) -> None:
            """Do nothing."""

    def make(name: str, model: Any) -> Recommender:
        return Recommender(name, threads, data.rows, lambda: model.recommend(data.rows, data.train, N=K)[0])

    yield make("by itself", als)
    if threads == 1:  # it searches user by user
        fitted = Fitted(FACTORS)
        fitted.user_factors, fitted.item_factors = data.users, data.items
        own = FaissModel(fitted, approximate_similar_items=False)
        own.fit(data.train)
        yield make("FaissModel, its own wrapper", own)
    for label, k_factor in (("", 2.0), (", codes alone", None)):
        yield make(f"adapter{label}", CCCFModel(als, k_factor=k_factor, num_threads=threads).build(False))


def build_rectools(data: Data, threads: int) -> Iterator[Recommender]:
    """Yield RecTools' own ranking and our adapter."""
    import pandas as pd
    from implicit.cpu.als import AlternatingLeastSquares
    from rectools import Columns
    from rectools.dataset import Dataset
    from rectools.models import ImplicitALSWrapperModel

    from cccf_index.adapters.rectools import with_cccf

    pairs = data.train.tocoo()
    table = pd.DataFrame({Columns.User: pairs.row, Columns.Item: pairs.col, Columns.Weight: 1.0})
    dataset = Dataset.construct(table.assign(**{Columns.Datetime: "2026-01-01"}))
    als = AlternatingLeastSquares(FACTORS, num_threads=threads, **ALS)
    model = ImplicitALSWrapperModel(als)
    model.model = als
    als.user_factors = data.users[dataset.user_id_map.external_ids]
    als.item_factors = data.items[dataset.item_id_map.external_ids]
    model.is_fitted = True
    rows = np.sort(dataset.user_id_map.external_ids)

    def make(name: str, model: Any) -> Recommender:
        def recommend() -> Ranking:
            found = model.recommend(rows, dataset, K, filter_viewed=True)
            ranking = np.full((data.train.shape[0], K), -1)
            ranking[found[Columns.User], found[Columns.Rank] - 1] = found[Columns.Item]
            return ranking[rows]

        return Recommender(name, threads, rows, recommend)

    yield make("by itself", model)
    for label, k_factor in (("", 2.0), (", codes alone", None)):
        yield make(f"adapter{label}", with_cccf(model, dataset, k_factor=k_factor, num_threads=threads))


def build_cornac(data: Data, threads: int) -> Iterator[Recommender]:
    """Yield Cornac's own recommendations, user by user, and our adapter."""
    from cornac.data import Dataset
    from cornac.models import MF

    from cccf_index.adapters.cornac import CCCFANN

    pairs = data.train.tocoo()
    uir = (pairs.row.astype(np.int64), pairs.col.astype(np.int64), pairs.data.astype(np.float64))
    names = [{str(row): row for row in range(n)} for n in data.train.shape]
    train = Dataset(data.train.shape[0], data.train.shape[1], names[0], names[1], uir, seed=0)
    factors = {"U": data.users, "V": data.items}
    model = MF(FACTORS, trainable=False, use_bias=False, init_params=factors).fit(train)
    rows = data.sample("cornac")
    wanted = [str(row) for row in rows]

    def make(name: str, recommend: Callable[[], Any]) -> Recommender:
        return Recommender(name, threads, rows, lambda: np.array(recommend(), dtype=np.int64))

    if threads == 1:
        yield make("by itself", lambda: [model.recommend(user, K, True, train) for user in wanted])
    for label, k_factor in (("", 2.0), (", codes alone", None)):
        ann = CCCFANN(model, k_factor=k_factor, num_threads=threads)
        ann.build_index()
        yield make(f"adapter{label}", partial(ann.recommend_batch, wanted, K, True, train))


def build_lenskit(data: Data, threads: int) -> Iterator[Recommender]:
    """Yield LensKit's alternating least squares with its ranker, our scorer with its ranker, and our recommender."""
    import pandas as pd
    from lenskit.als import ImplicitMFScorer
    from lenskit.batch import recommend
    from lenskit.data import from_interactions_df
    from lenskit.pipeline import topn_pipeline

    from cccf_index.adapters.lenskit import CCCFScorer, cccf_pipeline

    pairs = data.train.tocoo()
    dataset = from_interactions_df(pd.DataFrame({"user_id": pairs.row, "item_id": pairs.col}))
    rows = data.sample("lenskit")
    config: dict[str, Any] = {"feedback": "implicit"}
    pipelines = {
        "by itself": topn_pipeline(ImplicitMFScorer(embedding_size=FACTORS, user_embeddings="prefer"), n=K),
        "CCCFScorer and its ranker": topn_pipeline(CCCFScorer(**config), n=K),
        "adapter": cccf_pipeline(**config),
    }
    for name, pipeline in pipelines.items():
        pipeline.train(dataset)

        def recommend_lists(pipeline: Any = pipeline) -> Ranking:
            found = recommend(pipeline, rows.tolist(), n=K, n_jobs=1)
            return np.array([found.lookup(user).ids() for user in rows.tolist()])

        if threads == 1:
            yield Recommender(name, threads, rows, recommend_lists)


FRAMEWORKS = {"implicit": build_implicit, "rectools": build_rectools, "cornac": build_cornac, "lenskit": build_lenskit}


def measure_framework(framework: str, data: Data) -> dict[str, Any]:
    """Return seconds and NDCG of each recommender, and its speed relative to the framework by itself."""
    results: dict[str, Any] = {"version": version(framework if framework != "rectools" else "RecTools")}
    for threads in (1, 2):
        faiss.omp_set_num_threads(threads)
        for each in FRAMEWORKS[framework](data, threads):
            ranking = each.recommend()
            figures = results.setdefault(each.name, {"users": len(each.rows)})
            figures["NDCG@10"] = float(catalogue_ndcg(ranking, data.test[each.rows], K, threshold=-np.inf))
            key = "seconds" if threads == 1 else "seconds on two threads"
            figures[key] = time_within_budget(each.recommend)
            base = results["by itself"]
            ratio = base.get(key, base["seconds"]) / figures[key]
            figures["times as fast" if threads == 1 else "times as fast on two threads"] = ratio
            figures["NDCG, % more"] = 100 * (figures["NDCG@10"] / base["NDCG@10"] - 1)
            print(f"  {each.name:32}", {name: f"{value:.4g}" for name, value in figures.items()}, flush=True)
    return results


def main() -> None:
    parser = make_parser(__doc__, "the results into benchmarks/results/adapters.json", "<dataset>.npz")
    parser.add_argument("framework", choices=list(FRAMEWORKS))
    parser.add_argument("--datasets", nargs="+", default=["ml-1m", "gowalla"], help="default: ml-1m gowalla")
    parser.add_argument("--cache", default="benchmarks/cache", help="folder for factors (default: benchmarks/cache)")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print_machine()
    for dataset in arguments.datasets:
        print(f"\n{arguments.framework}, {dataset}", flush=True)
        results = measure_framework(
            arguments.framework, Data.read(arguments.data, dataset, pathlib.Path(arguments.cache))
        )
        if arguments.save:
            command = "python benchmarks/bench_adapters.py FRAMEWORK --data DIR --save"
            save_results("adapters", command, {f"{arguments.framework}, {dataset}": results}, keep=True, config=CONFIG)


if __name__ == "__main__":
    main()
