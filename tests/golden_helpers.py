"""What golden files are asked: they were written by released versions, and later versions must give the same answers.

Only the public face of the package is used here, as the same lines must run with every version.
"""

import numpy as np

import cccf_index as ci
from cccf_index.catalogue import Catalogue
from cccf_index.models import BCCF, CCCF, DCF, DCMF, MF
from cccf_index.quantizer import CompositionalQuantizer

K = 7
MAPPED = ("integer", "float", "auto", "vectors", "catalogue")  # what can be read with mmap=True
MODELS = {"mf": MF, "bccf": BCCF, "dcf": DCF, "dcmf": DCMF, "cccf_kernel": CCCF, "cccf_learned": CCCF}
FILES = ("integer", "float", "auto", "vectors", "codes", "quantizer", "catalogue", *MODELS)


def questions(n_components=3, n_bits=10, d=8):
    """Return the queries: codes, expanded vectors as any other vectors, and embeddings; the same for every file."""
    rng = np.random.default_rng(5)
    signs = rng.random((6, n_components, n_bits)) < 0.5
    weights = rng.integers(0, 50, (6, n_components)) / 100
    codes = ci.CompositionalCodes.from_signs(signs, weights)
    real = rng.standard_normal((4, n_components * n_bits)).astype(np.float32)
    return codes, real, rng.standard_normal((5, d)).astype(np.float32)


def answers(name, path, mmap=False):
    """Return what a golden file answers: arrays by name. Floats need to agree to 1e-5, all else exactly."""
    found = {}
    if name in ("integer", "float", "auto"):
        index = ci.read_index(path, mmap=mmap)
        codes, real, _ = questions()
        D, found["I"] = index.search(codes, K)
        # integer scores are exact: compared bit by bit; those of float weights may be summed in another order
        found["D"] = D if name == "float" else D.view(np.int32)
        found["D real"], found["I real"] = index.search(real, K)
        found["ids"], found["items"] = index.ids, index.reconstruct_n()
    elif name == "vectors":
        index = ci.read_index(path, mmap=mmap)
        found["D"], found["I"] = index.search(questions()[2], K)
        found["ids"], found["items"] = index.ids, index.reconstruct_n()
    elif name == "codes":
        codes = ci.CompositionalCodes.load(path)
        found["signs"], found["weights"] = codes.to_signs(), codes.weights
    elif name == "quantizer":
        quantizer = CompositionalQuantizer.load(path)
        found["queries"] = quantizer.transform_users(questions()[2])
        found["decoded"] = quantizer.decode(questions(3, 6)[0])
        found["signs"] = quantizer.encode_items(questions()[2]).to_signs()
    elif name == "catalogue":
        catalogue = Catalogue.load(path, mmap=mmap)
        found["user_ids"], found["item_ids"] = catalogue.user_ids, catalogue.item_ids
        found["D"], found["I"] = catalogue.recommend(np.arange(6), K)
    else:
        model = MODELS[name].load(path)
        users, items = np.arange(6), np.arange(model.n_items_)
        found["ratings"] = model.predict(users[:, None], items)
        found["D"], found["I"] = model.recommend(users, K)
    return found
