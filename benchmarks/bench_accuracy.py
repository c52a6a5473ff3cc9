"""RQ1 of the paper: how well do the models rank, by both protocols, at 32, 64 and 128 bits, over random splits?

    python benchmarks/bench_accuracy.py --data DIR --dataset ml-1m --save

Each user's ratings are split 70 to 30. The regularization of each model is the best of a grid, measured at 64 bits on a
tenth of the first split's training data; all other settings are defaults. MF has as many factors as the others have
bits. CCCF with learned weights tunes itself in each split, and is measured with coded and with real-valued queries.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import load_ratings, make_parser, print_machine, save_results
from trials import SPLITS, measure_ndcg

from cccf_index.datasets import Ratings, split_ratings
from cccf_index.evaluation import catalogue_ndcg, rated_ndcg
from cccf_index.models import BCCF, CCCF, DCF, DCMF, MF

CUTS = (2, 4, 6, 8, 10)
GRID = (0.03, 0.05, 0.07, 0.09, 0.12, 0.2, 0.3, 0.45, 0.7)
COMPONENTS, BANDWIDTH = 8, 1.2
LEARNED = "CCCF, learned"
MODELS: dict[str, Callable[[int], Any]] = {
    "MF": lambda bits: MF(bits),
    "BCCF": lambda bits: BCCF(bits),
    "DCF": lambda bits: DCF(bits),
    "DCMF": lambda bits: DCMF(bits),
    "MF, all pairs": lambda bits: MF(bits, unobserved=0.1),
    "CCCF, kernel": lambda bits: CCCF(COMPONENTS, bits // COMPONENTS, "kernel", bandwidth=BANDWIDTH),
    LEARNED: lambda bits: CCCF(COMPONENTS, bits // COMPONENTS, queries="real", objective="rated"),
}


def measure_baseline(ratings: Ratings, seeds: list[int]) -> dict[str, Any]:
    """Return the baselines: held-out items ranked by their mean rating, the catalogue ranked by popularity."""
    rated, catalogue = [], []
    for seed in seeds:
        train, test = split_ratings(ratings.user_items, seed=seed)
        counts, sums = (np.bincount(train.indices, weights, minlength=train.shape[1]) for weights in (None, train.data))
        means = (sums + 10 * train.data.mean()) / (counts + 10)  # ten ratings of the global mean are added to each item
        rated.append(rated_ndcg(means[test.indices], test, CUTS))
        order = np.argsort(-counts, kind="stable")
        ranking = np.empty((train.shape[0], max(CUTS)), dtype=np.int64)
        for user in range(len(ranking)):
            seen = train.indices[train.indptr[user] : train.indptr[user + 1]]
            first = order[: len(seen) + max(CUTS)]
            ranking[user] = first[~np.isin(first, seen)][: max(CUTS)]
        catalogue.append(catalogue_ndcg(ranking, test, CUTS))
    return summarize_splits(rated, catalogue)


def summarize_splits(rated: list[Any], catalogue: list[Any]) -> dict[str, Any]:
    """Return mean and standard deviation over splits, and the figures of the first split."""
    result: dict[str, Any] = {}
    for key, values in (("rated", rated), ("catalogue", catalogue)):
        result[key] = np.mean(values, axis=0).tolist()
        result[f"{key}, standard deviation"] = np.std(values, axis=0).tolist()
        result[f"{key}, first split"] = values[0].tolist()
    return result


def get_features(name: str, ratings: Ratings) -> dict[str, Any]:
    """Return the arguments of `fit` besides the ratings."""
    return {"item_features": ratings.item_features} if name == "DCMF" else {}


def tune_regularization(name: str, ratings: Ratings, train: Any) -> float:
    """Return the regularization that ranks best on a held-out part of the training data."""
    inner, validation = split_ratings(train, test_size=0.1, seed=1000)
    scores = {}
    for regularization in GRID:
        model = MODELS[name](64).set_params(regularization=regularization).fit(inner, **get_features(name, ratings))
        scores[regularization] = rated_ndcg(model, validation)
    return max(scores, key=lambda value: scores[value])


def measure_model(name: str, bits: int, regularization: float, ratings: Ratings, seeds: list[int]) -> dict[str, Any]:
    """Return mean and standard deviation over splits of both figures, and the mean training time."""
    rated, catalogue, seconds, active = [], [], [], 1.0
    for seed in seeds:
        train, test = split_ratings(ratings.user_items, seed=seed)
        model = MODELS[name](bits).set_params(regularization=regularization)
        begin = time.perf_counter()
        model.fit(train, **get_features(name, ratings))
        seconds.append(time.perf_counter() - begin)
        rated.append(rated_ndcg(model, test, CUTS))
        catalogue.append(catalogue_ndcg(model, test, CUTS, train=train))
        if isinstance(model, CCCF):
            active = 1 - (model.user_codes_.sparsity + model.item_codes_.sparsity) / 2
    figures = {"regularization": regularization, "seconds": float(np.mean(seconds)), "active components": active}
    return {**figures, **summarize_splits(rated, catalogue)}


def measure_learned(bits: int, ratings: Ratings, seeds: list[int]) -> dict[str, dict[str, Any]]:
    """Return the figures of learned weights, with coded and with real-valued queries of the same models."""
    figures: dict[str, tuple[list[Any], list[Any]]] = {"coded": ([], []), "real-valued": ([], [])}
    seconds, choices = [], []
    for seed in seeds:
        train, test = split_ratings(ratings.user_items, seed=seed)
        begin = time.perf_counter()
        model = MODELS[LEARNED](bits).fit(train)
        seconds.append(time.perf_counter() - begin)
        choices.append([model.latents_.regularization, model.latents_.unobserved, model.bias_share_])
        items = model.item_codes_.to_vectors()
        for name, queries in (("coded", model.user_codes_), ("real-valued", model.user_queries_)):
            vectors = model.user_codes_.to_vectors() if name == "coded" else model.user_queries_
            figures[name][0].append(measure_ndcg(vectors, items, test, CUTS))
            ranking = model.to_index().search(queries, max(CUTS), exclude=train)[1]
            figures[name][1].append(catalogue_ndcg(ranking, test, CUTS))
    chosen = {"seconds": float(np.mean(seconds)), "regularization, unobserved, bias": choices}
    return {name: {**chosen, **summarize_splits(*values)} for name, values in figures.items()}


def format_row(name: str, bits: Any, figures: dict[str, Any]) -> str:
    """Return a row of the table."""
    shown = [
        f"{figures[key][-1]:.4f} ± {figures[f'{key}, standard deviation'][-1]:.4f}" for key in ("rated", "catalogue")
    ]
    seconds = f"{figures['seconds']:.1f}" if "seconds" in figures else ""
    return f"| {name} | {bits} | {figures.get('regularization', '')} | {shown[0]} | {shown[1]} | {seconds} |"


def main() -> None:
    output = "benchmarks/results/accuracy-<dataset>.json; rows that are not measured stay"
    parser = make_parser(__doc__, output, "<dataset>.npz")
    parser.add_argument("--dataset", default="ml-1m", help="ml-1m, yelp-dfm, amazon-dfm or the name of another file")
    parser.add_argument("--bits", type=int, nargs="+", default=[32, 64, 128], help="default: 32 64 128")
    parser.add_argument("--splits", type=int, default=SPLITS, help=f"random splits (default: {SPLITS})")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS), help="default: all")
    arguments = parser.parse_args()
    ratings = load_ratings(arguments.data, arguments.dataset)
    names = [name for name in arguments.models if name != "DCMF" or ratings.item_features is not None]
    print_machine()
    print(f"\n{arguments.dataset}: {ratings}, {arguments.splits} splits")
    print("\n| model | bits | regularization | rated NDCG@10 | catalogue NDCG@10 | training, s |")
    print("|---|---|---|---|---|---|")
    seeds = list(range(arguments.splits))

    def keep(label: str, name: str, bits: Any, figures: dict[str, Any]) -> None:
        print(format_row(name, bits, figures), flush=True)
        if arguments.save:
            figures = {"splits": len(seeds), **figures}
            config = {"cut-offs": CUTS, "components": COMPONENTS, "bandwidth": BANDWIDTH, "grid": GRID}
            command = f"python benchmarks/bench_accuracy.py --data DIR --dataset {arguments.dataset} --save"
            save_results(f"accuracy-{arguments.dataset}", command, {label: figures}, keep=True, config=config)

    keep("mean and popularity", "item mean, popularity", "", measure_baseline(ratings, seeds))
    for name in names:
        if name == LEARNED:
            for bits in arguments.bits:
                for queries, figures in measure_learned(bits, ratings, seeds).items():
                    keep(f"{name}, {bits} bits, {queries} queries", f"{name}, {queries}", bits, figures)
            continue
        regularization = tune_regularization(name, ratings, split_ratings(ratings.user_items, seed=0)[0])
        for bits in arguments.bits:
            keep(f"{name}, {bits} bits", name, bits, measure_model(name, bits, regularization, ratings, seeds))


if __name__ == "__main__":
    main()
