"""RQ1 and RQ3 of the paper: how long does the top 10 of all users take, rounded or float, sparse or dense?

    python benchmarks/bench_costs.py --data DIR --save

All users of the first split of each data set, on one thread, the best of several runs. MF has 128 factors, DCF 128
bits, CCCF 8 components of 16 bits. In the paper's names, *IWS* means integer weights, here at the largest scale that
cannot overflow, and *EXACT* float weights. Models are trained once and kept in `--cache`.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import faiss
import numpy as np
from bench_weights import BANDWIDTHS
from common import DATASETS, RIDGES, load_ratings, make_parser, print_machine, save_results

from cccf_index import CompositionalCodes, IndexCCCF
from cccf_index.comparison import build_binary, time_within_budget
from cccf_index.datasets import split_ratings
from cccf_index.models import CCCF, DCF, MF

K = 10
CONFIG = {"k": K, "scale": "auto", "bandwidths": BANDWIDTHS, "MF": RIDGES}

Codes = tuple[CompositionalCodes, CompositionalCodes]


class Models:
    """Models of the first split, trained when they are first needed."""

    def __init__(self, data: str, dataset: str, folder: pathlib.Path) -> None:
        self.data, self.dataset, self.folder = data, dataset, folder
        folder.mkdir(parents=True, exist_ok=True)
        self._train: Any = None

    def get_train(self) -> Any:
        """Return the training part."""
        if self._train is None:
            self._train = split_ratings(load_ratings(self.data, self.dataset).user_items, seed=0)[0]
        return self._train

    def get_codes(self, name: str, make: Callable[[], Any]) -> Codes:
        """Return the codes of users and items of a model."""
        paths = [self.folder / f"{self.dataset}-{name}-{side}.codes" for side in ("users", "items")]
        if not all(path.exists() for path in paths):
            print(f"training {name} on {self.dataset} ...", file=sys.stderr, flush=True)
            model = make().fit(self.get_train())
            for codes, path in zip((model.user_codes_, model.item_codes_), paths, strict=True):
                codes.save(path)
        return CompositionalCodes.load(paths[0]), CompositionalCodes.load(paths[1])

    def get_factors(self) -> MF:
        """Return the MF model."""
        path = self.folder / f"{self.dataset}-mf.cccf"
        if not path.exists():
            MF(128, RIDGES[self.dataset], verbose=False).fit(self.get_train()).save(path)
        return MF.load(path)

    def get_kernel_codes(self, bandwidth: float) -> Codes:
        """Return the codes of the paper's model at a bandwidth."""
        return self.get_codes(
            f"kernel-{bandwidth}", lambda: CCCF(8, 16, "kernel", bandwidth=bandwidth, n_factors=32, verbose=False)
        )


def time_codes(codes: Codes) -> dict[str, float]:
    """Return seconds for all users, with integer and with float weights."""
    users, items = codes
    seconds = {}
    for label, scale in (("IWS", "auto"), ("EXACT", None)):
        index = IndexCCCF(8, 16, scale)
        index.add(items)
        seconds[label] = time_within_budget(partial(index.search, users, K))
    return seconds


def measure_dataset(models: Models) -> dict[str, Any]:
    """Return the figures of one data set."""
    mf = models.get_factors()
    flat, factors = mf.to_index(), np.ascontiguousarray(mf.user_factors_)
    users, items = models.get_codes("dcf", lambda: DCF(128, verbose=False))
    hashed = build_binary(items, users, "DCF")
    learned = models.get_codes("learned", lambda: CCCF(8, 16, objective="rated", verbose=False))
    kernels = {bandwidth: models.get_kernel_codes(bandwidth) for bandwidth in BANDWIDTHS}
    faiss.omp_set_num_threads(1)
    results: dict[str, Any] = {"users": len(users), "items": len(items)}
    results["MF, IndexFlatIP"] = time_within_budget(lambda: flat.search(factors, K))
    results["DCF, IndexBinaryFlat"] = time_within_budget(lambda: hashed.search(slice(None), K, 1))
    results |= {f"CCCF learned, {name}": value for name, value in time_codes(learned).items()}
    for bandwidth, codes in kernels.items():
        results[f"h = {bandwidth}, active of an item"] = 8 * (1 - codes[1].sparsity)
        results |= {f"h = {bandwidth}, {name}": value for name, value in time_codes(codes).items()}
    results["MF / CCCF learned"] = results["MF, IndexFlatIP"] / results["CCCF learned, IWS"]
    results["DCF / CCCF learned"] = results["DCF, IndexBinaryFlat"] / results["CCCF learned, IWS"]
    return results


def main() -> None:
    parser = make_parser(__doc__, "benchmarks/results/costs.json; data sets not measured stay", "<dataset>.npz")
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), choices=list(DATASETS), help="default: all")
    parser.add_argument("--cache", default="benchmarks/cache", help="folder for models (default: benchmarks/cache)")
    arguments = parser.parse_args()
    print_machine()
    for dataset in arguments.datasets:
        results = measure_dataset(Models(arguments.data, dataset, pathlib.Path(arguments.cache)))
        print(f"\n{dataset}")
        for key, value in results.items():
            print(f"  {key:44}{value:.4g}", flush=True)
        if arguments.save:
            command = "python benchmarks/bench_costs.py --data DIR --save"
            save_results("costs", command, {dataset: results}, keep=True, config=CONFIG)


if __name__ == "__main__":
    main()
