"""RQ4 of the paper: do codes keep movies of one genre together, DCF's beside ours?

    python benchmarks/bench_map.py --data DIR --save

Codes of ml-1m, learned from all ratings, 128 bits each, as the paper draws them: t-SNE of the expanded vectors in two
dimensions. What the eye sees is counted, too: of the ten nearest movies, by codes and in the drawing, the share with
the same genre, of movies with one of the genres that are drawn and no other of them. Vectors that MF learns are there
for comparison.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from typing import Any

import faiss
import numpy as np
from common import load, print_machine, save
from numpy.typing import NDArray

from cccf_index.models import CCCF, DCF, MF

GENRES = ("Horror", "Children's", "Action", "Romance", "Documentary")
NEAREST, LEAST_RATINGS, SEED = 10, 20, 0
CONFIG = {"genres": GENRES, "nearest": NEAREST, "ratings of a movie, at least": LEAST_RATINGS, "seed": SEED}


def labelled(folder: str, counts: NDArray[Any], item_ids: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the rows of movies with enough ratings and just one of the genres, and which."""
    of_item = json.loads((pathlib.Path(folder) / "ml-1m_genres.json").read_text())
    rows, genres = [], []
    for row, item in enumerate(item_ids.tolist()):
        own = [name for name in of_item[str(item)] if name in GENRES]
        if len(own) == 1 and counts[row] >= LEAST_RATINGS:
            rows.append(row)
            genres.append(GENRES.index(own[0]))
    return np.array(rows), np.array(genres)


def agreement(vectors: NDArray[Any], genres: NDArray[Any]) -> float:
    """Return the share of the nearest movies, by cosine, that have the same genre: the mean over genres."""
    unit = np.ascontiguousarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)
    index = faiss.IndexFlatIP(unit.shape[1])
    index.add(unit)
    near = index.search(unit, NEAREST + 1)[1]
    same = np.array([[genres[j] == genres[i] for j in row if j != i][:NEAREST] for i, row in enumerate(near)])
    return float(np.mean([same[genres == genre].mean() for genre in range(len(GENRES))]))


def close(points: NDArray[Any], genres: NDArray[Any]) -> float:
    """Return the same in the drawing, where distance is Euclidean."""
    squares = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    np.fill_diagonal(squares, np.inf)
    near = np.argsort(squares, axis=1)[:, :NEAREST]
    same = (genres[near] == genres[:, None]).mean(axis=1)
    return float(np.mean([same[genres == genre].mean() for genre in range(len(GENRES))]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", required=True, help="folder with ml-1m.npz and ml-1m_genres.json")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/map.json and docs/images/map.png")
    arguments = parser.parse_args()
    from sklearn.manifold import TSNE

    ratings = load(arguments.data, "ml-1m")
    matrix = ratings.user_items
    rows, genres = labelled(arguments.data, np.bincount(matrix.indices, minlength=matrix.shape[1]), ratings.item_ids)
    print_machine()
    print(f"\n{len(rows)} movies: " + ", ".join(f"{g} {np.sum(genres == i)}" for i, g in enumerate(GENRES)))
    models: dict[str, Any] = {
        "DCF": DCF(128, verbose=False),
        "CCCF, kernel": CCCF(8, 16, "kernel", verbose=False),
        "CCCF, learned": CCCF(8, 16, verbose=False),
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
            "same genre among nearest, by codes": agreement(vectors, genres),
            "same genre among nearest, in the drawing": close(points[name], genres),
            "by chance": float(chance),
        }
        print(name, results[name], flush=True)
    if arguments.save:
        save("map", "python benchmarks/bench_map.py --data DIR --save", results, config=CONFIG)
        from plot_experiments import plot_map

        plot_map(points, genres, results)


if __name__ == "__main__":
    main()
