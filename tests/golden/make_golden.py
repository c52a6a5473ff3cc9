"""Write golden files with the version that is installed, and what it answers: tests/test_golden.py reads them for ever.

    git checkout <the commit of the release>
    python tests/golden/make_golden.py

Run it once for each version whose files differ from those of the version before, in an environment with that version. A
folder that exists is not written again: files that are made anew prove nothing about older ones.
"""

from __future__ import annotations

import pathlib
import sys
from importlib.metadata import version

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from golden_helpers import FILES, answers

import cccf_index as ci
from cccf_index.catalogue import Catalogue
from cccf_index.datasets import synthetic_ratings
from cccf_index.models import BCCF, CCCF, DCF, DCMF, MF
from cccf_index.quantizer import CompositionalQuantizer

N = 90  # items of each index


def make_codes() -> ci.CompositionalCodes:
    """Return codes of which many weights are zero, so that there are several groups."""
    rng = np.random.default_rng(0)
    signs = rng.random((N, 3, 10)) < 0.5
    return ci.CompositionalCodes.from_signs(signs, rng.integers(1, 60, (N, 3)) / 100 * (rng.random((N, 3)) < 0.7))


def make_index(scale: int | str | None) -> ci.IndexCCCF:
    """Return an index of two segments, with biases, deleted items, and ids that are neither dense nor in order."""
    codes, rng = make_codes(), np.random.default_rng(1)
    ids = rng.permutation(N) * 3 + 5
    ids[4] = 2**40
    bias = rng.standard_normal(N).astype(np.float32) / 4
    index = ci.IndexCCCF(3, 10, scale)
    index.add_with_ids(codes[:60], ids[:60], bias=bias[:60])
    index.search(codes[:1], 1)  # a search closes the segment
    index.add_with_ids(codes[60:], ids[60:], bias=bias[60:])
    index.search(codes[:1], 1)
    index.remove_ids(ids[::9])
    return index


def write_files(folder: pathlib.Path) -> None:
    """Write one file of each kind."""

    def path(name: str) -> pathlib.Path:
        return folder / f"{name}.cccf"

    for name, scale in {"integer": 100, "float": None, "auto": "auto"}.items():
        ci.write_index(make_index(scale), path(name))
    make_codes()[:20].save(path("codes"))
    rng = np.random.default_rng(2)
    items, users = rng.standard_normal((60, 8)), rng.standard_normal((40, 8))
    index = ci.IndexCCCF.from_embeddings(items, users, 3, 6, ids=np.arange(60)[::-1] * 2, n_probes=30, verbose=False)
    ci.write_index(index, path("vectors"))
    CompositionalQuantizer(3, 6, max_active=2, n_probes=30, verbose=False).fit(items, users).save(path("quantizer"))

    ratings = synthetic_ratings(60, 40, n_groups=3, ratings_per_user=20, seed=4)
    small = {"n_components": 3, "n_bits": 6, "n_factors": 5, "verbose": False}
    models = {
        "mf": MF(n_factors=5, max_iter=4, verbose=False),
        "bccf": BCCF(n_bits=12, max_iter=4, verbose=False),
        "dcf": DCF(n_bits=12, verbose=False),
        "dcmf": DCMF(n_bits=12, verbose=False),
        "cccf_kernel": CCCF(weights="kernel", **small),
        "cccf_learned": CCCF(**small),
    }
    for name, model in models.items():
        features = {"item_features": ratings.item_features} if name == "dcmf" else {}
        model.fit(ratings.user_items, **features).save(path(name))
    user_ids = np.array([f"Ärger {i}" for i in range(60)])
    Catalogue.of_model(models["cccf_learned"], user_ids, np.arange(40) * 3 - 50).save(path("catalogue"))


def main() -> None:
    """Write the folder of this version."""
    folder = pathlib.Path(__file__).resolve().parent / version("cccf-index")
    if folder.exists():
        sys.exit(f"{folder} exists. Golden files are written once.")
    folder.mkdir()
    write_files(folder)
    found = {f"{name}.{key}": array for name in FILES for key, array in answers(name, folder / f"{name}.cccf").items()}
    np.savez_compressed(folder / "answers.npz", **found)
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:7,}  {path.name}")


if __name__ == "__main__":
    main()
