"""RQ1 and RQ3 of the paper: how long do the first ten items of all users take, rounded and not, sparse and dense?

    python benchmarks/bench_costs.py --data DIR --save

All users of the first split of each data set, on one thread, the best of several runs. MF has 128 factors, DCF 128
bits, CCCF 8 components of 16 bits. *IWS* are integer weights, of the largest scale that cannot overflow, *EXACT* float
ones (the paper's names). Models are trained once and kept in `--cache`.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import faiss
import numpy as np
from bench_weights import BANDWIDTHS
from common import load, print_machine, save
from trials import DATASETS

from cccf_index import CompositionalCodes, IndexCCCF
from cccf_index.comparison import binary, patient_seconds
from cccf_index.datasets import split_ratings
from cccf_index.models import CCCF, DCF, MF

K = 10
RIDGES = {"ml-1m": 0.09, "yelp-dfm": 0.45, "amazon-dfm": 0.2}  # of MF, as bench_accuracy.py tunes them
CONFIG = {"k": K, "scale": "auto", "bandwidths": BANDWIDTHS, "MF": RIDGES}

Codes = tuple[CompositionalCodes, CompositionalCodes]


class Models:
    """Models of the first split, trained when they are first asked for."""

    def __init__(self, data: str, dataset: str, folder: pathlib.Path) -> None:
        self.data, self.dataset, self.folder = data, dataset, folder
        folder.mkdir(parents=True, exist_ok=True)
        self._train: Any = None

    def train(self) -> Any:
        """Return the training part."""
        if self._train is None:
            self._train = split_ratings(load(self.data, self.dataset).user_items, seed=0)[0]
        return self._train

    def codes(self, name: str, make: Callable[[], Any]) -> Codes:
        """Return the codes of users and items of a model."""
        paths = [self.folder / f"{self.dataset}-{name}-{side}.codes" for side in ("users", "items")]
        if not all(path.exists() for path in paths):
            print(f"training {name} on {self.dataset} ...", file=sys.stderr, flush=True)
            model = make().fit(self.train())
            for codes, path in zip((model.user_codes_, model.item_codes_), paths, strict=True):
                codes.save(path)
        return CompositionalCodes.load(paths[0]), CompositionalCodes.load(paths[1])

    def factors(self) -> MF:
        """Return MF."""
        path = self.folder / f"{self.dataset}-mf.cccf"
        if not path.exists():
            MF(128, RIDGES[self.dataset], verbose=False).fit(self.train()).save(path)
        return MF.load(path)

    def kernel(self, bandwidth: float) -> Codes:
        """Return the paper's codes of a bandwidth."""
        return self.codes(
            f"kernel-{bandwidth}", lambda: CCCF(8, 16, "kernel", bandwidth=bandwidth, n_factors=32, verbose=False)
        )


def times(codes: Codes) -> dict[str, float]:
    """Return seconds for all users, rounded and not."""
    users, items = codes
    seconds = {}
    for label, scale in (("IWS", "auto"), ("EXACT", None)):
        index = IndexCCCF(8, 16, scale)
        index.add(items)
        seconds[label] = patient_seconds(partial(index.search, users, K))
    return seconds


def costs(models: Models) -> dict[str, Any]:
    """Measure one data set."""
    mf = models.factors()
    flat, factors = mf.to_index(), np.ascontiguousarray(mf.user_factors_)
    users, items = models.codes("dcf", lambda: DCF(128, verbose=False))
    hashed = binary(items, users, "DCF")
    learned = models.codes("learned", lambda: CCCF(8, 16, verbose=False))
    kernels = {bandwidth: models.kernel(bandwidth) for bandwidth in BANDWIDTHS}
    faiss.omp_set_num_threads(1)
    results: dict[str, Any] = {"users": len(users), "items": len(items)}
    results["MF, IndexFlatIP"] = patient_seconds(lambda: flat.search(factors, K))
    results["DCF, IndexBinaryFlat"] = patient_seconds(lambda: hashed.search(slice(None), K, 1))
    results |= {f"CCCF learned, {name}": value for name, value in times(learned).items()}
    for bandwidth, codes in kernels.items():
        results[f"h = {bandwidth}, active of an item"] = 8 * (1 - codes[1].sparsity)
        results |= {f"h = {bandwidth}, {name}": value for name, value in times(codes).items()}
    results["MF / CCCF learned"] = results["MF, IndexFlatIP"] / results["CCCF learned, IWS"]
    results["DCF / CCCF learned"] = results["DCF, IndexBinaryFlat"] / results["CCCF learned, IWS"]
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", required=True, help="folder with <dataset>.npz")
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), choices=list(DATASETS))
    parser.add_argument("--cache", default="benchmarks/cache", help="folder for models")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/costs.json, or a part of it")
    arguments = parser.parse_args()
    print_machine()
    for dataset in arguments.datasets:
        results = costs(Models(arguments.data, dataset, pathlib.Path(arguments.cache)))
        print(f"\n{dataset}")
        for key, value in results.items():
            print(f"  {key:44}{value:.4g}", flush=True)
        if arguments.save:
            command = "python benchmarks/bench_costs.py --data DIR --save"
            save("costs", command, {dataset: results}, keep=True, config=CONFIG)


if __name__ == "__main__":
    main()
