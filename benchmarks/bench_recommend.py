"""Recommendations from the whole catalogue: popularity, ALS, BPR and EASE against CCCF.

python benchmarks/bench_recommend.py --data DIR --save

70 % of each user's ratings train, the others are held out; those three quarters up the scale (4 of 5) are relevant.
Items of the training part are left out, and 4,000 users are judged. ALS is tuned over `GRID` and EASE over `RIDGES`, on
15 % of the first training part. CCCF chooses by itself in each split, within its training time. Figures are means
over the splits that are done; results are written after each.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from common import load_ratings, make_parser, print_machine, save_results
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from cccf_index.baselines import Popularity
from cccf_index.datasets import split_ratings
from cccf_index.evaluation import catalogue_ndcg, choose_threshold, coverage, rated_ndcg, recall
from cccf_index.models import CCCF, MF

DATASETS = ("ml-1m", "yelp-dfm", "amazon-dfm", "gowalla")
SPLITS = 5
USERS, DEPTH = 4000, 100
GRID = {"factors": (64, 128), "alpha": (1.0, 10.0, 40.0), "regularization": (0.1, 10.0, 100.0)}
BPR = {"factors": 128, "iterations": 100}
RIDGES = (100.0, 300.0, 1000.0)
EASE_ITEMS = 8000  # a dense matrix of all pairs of items is inverted
CHUNK = 512

Rank = Callable[[NDArray[np.int64], Any], NDArray[np.int64]]  # users and what they have seen -> their items, best first


def rank_factors(users: NDArray[Any], items: NDArray[Any]) -> Rank:
    """Return a ranking by inner products."""

    def rank(rows: NDArray[np.int64], seen: Any) -> NDArray[np.int64]:
        return MF.from_factors(users[rows], items).recommend(None, DEPTH, exclude=seen)[1]

    return rank


def rank_model(model: Any) -> Rank:
    """Return the ranking of one of our models."""
    return lambda rows, seen: model.recommend(rows, DEPTH, exclude=seen)[1]


def train_als(train: Any, factors: int, alpha: float, regularization: float) -> Rank:
    """Return the ranking of the package implicit's ALS; it takes each rating as one interaction."""
    from implicit.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(factors, regularization=regularization, alpha=alpha, random_state=0)
    with threadpool_limits(1, "blas"):
        model.fit(_fill_ones(train), show_progress=False)
    return rank_factors(model.user_factors, model.item_factors)


def train_bpr(train: Any) -> Rank:
    """Return the ranking of the package implicit's BPR."""
    from implicit.bpr import BayesianPersonalizedRanking

    model = BayesianPersonalizedRanking(**BPR, random_state=0)
    model.fit(_fill_ones(train), show_progress=False)
    return rank_factors(model.user_factors, model.item_factors)


def train_ease(train: Any, ridge: float) -> Rank:
    """Return the ranking of EASE (Steck, 2019): the closed form of an item-item model."""
    ones = _fill_ones(train)
    inverse = np.linalg.inv((ones.T @ ones).toarray() + ridge * np.eye(train.shape[1], dtype=np.float32))
    weights = inverse / -np.diag(inverse)
    np.fill_diagonal(weights, 0)

    def rank(rows: NDArray[np.int64], seen: Any) -> NDArray[np.int64]:
        parts = []
        for start in range(0, len(rows), CHUNK):
            scores = np.asarray(ones[rows[start : start + CHUNK]] @ weights)
            scores[seen[start : start + CHUNK].nonzero()] = -np.inf
            parts.append(np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH])
        return np.concatenate(parts)

    return rank


def _fill_ones(matrix: Any) -> sparse.csr_matrix:
    return sparse.csr_matrix((np.ones(matrix.nnz, np.float32), matrix.indices, matrix.indptr), matrix.shape)


class Judge:
    """Held-out ratings of some users."""

    def __init__(self, train: Any, test: Any, seed: int) -> None:
        self.train, self.threshold = train, choose_threshold(test)
        relevant = sparse.csr_matrix(test >= self.threshold)
        users = np.flatnonzero(np.diff(relevant.indptr))
        self.users = np.sort(np.random.default_rng(seed).permutation(users)[:USERS])
        self.test = test[self.users]

    def measure(self, rank: Rank) -> dict[str, float]:
        """Return the figures of a ranking."""
        ranking = rank(self.users, self.train[self.users])
        ndcg = catalogue_ndcg(ranking, self.test, (10, 100), threshold=self.threshold)
        covered = coverage(ranking[:, :10])
        return {
            "NDCG@10": float(ndcg[0]),
            "NDCG@100": float(ndcg[1]),
            "recall@100": recall(ranking, self.test, 100, threshold=self.threshold),
            "distinct items": covered.distinct,
            "share of the most recommended": covered.top_share,
        }


def tune(train: Any, make: Callable[..., Rank], grid: dict[str, tuple[float, ...]]) -> dict[str, Any]:
    """Return the parameters that rank a held-out part of the training ratings best."""
    inner, held = split_ratings(train, 0.15, 0)
    judge = Judge(inner, held, 0)
    choices = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    found = [judge.measure(make(inner, **choice))["NDCG@10"] for choice in choices]
    return choices[int(np.argmax(found))]


def measure_split(train: Any, test: Any, split: int, tuned: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return the figures of all methods."""
    judge, figures = Judge(train, test, split), {}

    def add(name: str, make: Callable[[], Rank]) -> None:
        begin = time.perf_counter()
        rank = make()
        seconds = time.perf_counter() - begin
        figures[name] = {**judge.measure(rank), "seconds": seconds}
        print(f"    {name:24}" + "".join(f"{value:10.4f}" for value in figures[name].values()), flush=True)

    add("popularity", lambda: rank_model(Popularity().fit(train)))
    add("ALS", lambda: train_als(train, **tuned["ALS"]))
    add("BPR", lambda: train_bpr(train))
    if "EASE" in tuned:
        add("EASE", lambda: train_ease(train, **tuned["EASE"]))
    model = CCCF(8, 16, queries="real", verbose=False)
    add("CCCF 8x16, real-valued", lambda: rank_model(model.fit(train)))
    if model.feedback_ == "explicit":
        figures["CCCF 8x16, real-valued"]["rated NDCG@10"] = rated_ndcg(model, test)
    latents, bias = model.latents_, model.item_bias_
    vectors = np.hstack([latents.user_factors_, np.ones((train.shape[0], 1), np.float32)])
    add("teacher", lambda: rank_factors(vectors, np.hstack([latents.item_factors_, bias[:, None]])))
    codes, index = model.user_codes_, model.to_index()
    add("CCCF 8x16, coded", lambda: lambda rows, seen: index.search(codes[rows], DEPTH, exclude=seen)[1])
    add("CCCF 8x4, coded", lambda: rank_model(CCCF(8, 4, verbose=False).fit(train)))
    figures["CCCF 8x16, coded"]["seconds"] = figures["CCCF 8x16, real-valued"]["seconds"]  # one training gives both
    figures["teacher"].pop("seconds")
    return figures


def average(splits: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Return the mean of each figure, by method and figure, and the number of splits."""
    means: dict[str, Any] = {"splits": len(splits)}
    for name in splits[0]:
        for figure in splits[0][name]:
            means[f"{name}, {figure}"] = float(np.mean([part[name][figure] for part in splits]))
    return means


def compile_kernels() -> None:
    """Train once on few ratings, so that compilation is not timed."""
    few = sparse.random(200, 300, 0.1, "csr", random_state=0)
    few.data = np.round(1 + 4 * few.data).astype(np.float32)
    for bits in (16, 4):
        CCCF(8, bits, queries="real", verbose=False).fit(few).recommend([0], 10)
        CCCF(8, bits, verbose=False).fit(few).recommend([0], 10, exclude=few[:1])


def main() -> None:
    parser = make_parser(__doc__, "results/recommend.json", ", ".join(f"{name}.npz" for name in DATASETS))
    parser.add_argument("--datasets", nargs="+", default=DATASETS, choices=DATASETS)
    parser.add_argument("--splits", type=int, default=SPLITS)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="OpenBLAS is configured")
    print_machine()
    compile_kernels()
    tuned: dict[str, dict[str, Any]] = {}
    splits: dict[str, list[dict[str, dict[str, float]]]] = {}
    for split in range(arguments.splits):
        for dataset in arguments.datasets:
            train, test = split_ratings(load_ratings(arguments.data, dataset).user_items, seed=split)
            if dataset not in tuned:
                tuned[dataset] = {"ALS": tune(train, train_als, GRID)}
                if train.shape[1] <= EASE_ITEMS:
                    tuned[dataset]["EASE"] = tune(train, train_ease, {"ridge": RIDGES})
            print(f"{dataset}, split {split}, tuned {tuned[dataset]}", flush=True)
            splits.setdefault(dataset, []).append(measure_split(train, test, split, tuned[dataset]))
            if arguments.save:
                command = f"python benchmarks/bench_recommend.py --data DIR --splits {split + 1} --save"
                results = {name: average(parts) for name, parts in splits.items()}
                save_results("recommend", command, results, keep=True, config={"tuned": tuned})


if __name__ == "__main__":
    main()
