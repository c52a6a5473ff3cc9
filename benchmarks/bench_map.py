"""RQ4 of the paper: do codes keep movies of one genre together, and do DCF's?

    python benchmarks/bench_map.py --data DIR --save

Codes of 128 bits, learned from all ratings of ml-1m and drawn as in the paper: t-SNE of the expanded vectors in two
dimensions. The visual impression is also counted: the share of the ten nearest movies with the same genre, by codes and
in the drawing, over movies with exactly one of the drawn genres. Vectors of MF are included for comparison.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import faiss
import numpy as np
from common import load_ratings, make_parser, print_machine, save_results
from numpy.typing import NDArray

from cccf_index._vectors import normalize_rows
from cccf_index.models import CCCF, DCF, MF

GENRES = ("Horror", "Children's", "Action", "Romance", "Documentary")
NEAREST, MIN_RATINGS, SEED = 10, 20, 0
CONFIG = {"genres": GENRES, "nearest": NEAREST, "ratings of a movie, at least": MIN_RATINGS, "seed": SEED}


def label_movies(folder: str, counts: NDArray[Any], item_ids: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the rows of movies with enough ratings and exactly one of the genres, and those genres."""
    of_item = json.loads((pathlib.Path(folder) / "ml-1m_genres.json").read_text())
    rows, genres = [], []
    for row, item in enumerate(item_ids.tolist()):
        own = [name for name in of_item[str(item)] if name in GENRES]
        if len(own) == 1 and counts[row] >= MIN_RATINGS:
            rows.append(row)
            genres.append(GENRES.index(own[0]))
    return np.array(rows), np.array(genres)


def measure_by_codes(vectors: NDArray[Any], genres: NDArray[Any]) -> float:
    """Return the share of the nearest movies, by cosine, with the same genre, averaged over genres."""
    unit = np.ascontiguousarray(normalize_rows(vectors), dtype=np.float32)
    index = faiss.IndexFlatIP(unit.shape[1])
    index.add(unit)
    near = index.search(unit, NEAREST + 1)[1]
    same = np.array([[genres[j] == genres[i] for j in row if j != i][:NEAREST] for i, row in enumerate(near)])
    return float(np.mean([same[genres == genre].mean() for genre in range(len(GENRES))]))


def measure_in_drawing(points: NDArray[Any], genres: NDArray[Any]) -> float:
    """Return the same share by Euclidean distance in the drawing."""
    squares = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    np.fill_diagonal(squares, np.inf)
    near = np.argsort(squares, axis=1)[:, :NEAREST]
    same = (genres[near] == genres[:, None]).mean(axis=1)
    return float(np.mean([same[genres == genre].mean() for genre in range(len(GENRES))]))


def main() -> None:
    output = "benchmarks/results/map.json and docs/images/map.png"
    arguments = make_parser(__doc__, output, "ml-1m.npz and ml-1m_genres.json").parse_args()
    from sklearn.manifold import TSNE

    ratings = load_ratings(arguments.data, "ml-1m")
    matrix = ratings.user_items
    rows, genres = label_movies(
        arguments.data, np.bincount(matrix.indices, minlength=matrix.shape[1]), ratings.item_ids
    )
    print_machine()
    print(f"\n{len(rows)} movies: " + ", ".join(f"{g} {np.sum(genres == i)}" for i, g in enumerate(GENRES)))
    models: dict[str, Any] = {
        "DCF": DCF(128, verbose=False),
        "CCCF, kernel": CCCF(8, 16, "kernel", verbose=False),
        "CCCF, learned": CCCF(8, 16, objective="rated", verbose=False),
        "MF": MF(128, verbose=False),
    }
    results: dict[str, Any] = {"movies": {name: int(np.sum(genres == i)) for i, name in enumerate(GENRES)}}
    points: dict[str, NDArray[Any]] = {}
    for name, model in models.items():
        model.fit(matrix)
        vectors = model.item_factors_[rows] if name == "MF" else model.item_codes_[rows].to_vectors()
        points[name] = TSNE(perplexity=30, random_state=SEED, metric="cosine", init="random").fit_transform(vectors)
        chance = np.mean([(np.sum(genres == i) - 1) / (len(genres) - 1) for i in range(len(GENRES))])
        results[name] = {
            "same genre among nearest, by codes": measure_by_codes(vectors, genres),
            "same genre among nearest, in the drawing": measure_in_drawing(points[name], genres),
            "by chance": float(chance),
        }
        print(name, results[name], flush=True)
    if arguments.save:
        save_results("map", "python benchmarks/bench_map.py --data DIR --save", results, config=CONFIG)
        from plot_experiments import plot_map

        plot_map(points, genres, results)


if __name__ == "__main__":
    main()
