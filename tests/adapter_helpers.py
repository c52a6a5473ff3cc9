"""What the tests of the adapters share."""

import doctest
import importlib

import numpy as np
from page_helpers import examples
from scipy import sparse

from cccf_index.datasets import synthetic_ratings


def interactions(n_users=400, n_items=300, seed=0):
    """A csr_matrix of float32: who took what."""
    ratings = sparse.csr_matrix(synthetic_ratings(n_users=n_users, n_items=n_items, seed=seed).user_items)
    return sparse.csr_matrix((np.ones(ratings.nnz, np.float32), ratings.indices, ratings.indptr), ratings.shape)


def vectors(n_users=300, n_items=500, p=16, seed=0):
    """Embeddings of users and items; items differ in length, as popularity makes them."""
    rng = np.random.default_rng(seed)
    users, items = rng.standard_normal((n_users, p)), rng.standard_normal((n_items, p))
    return users.astype(np.float32), (items * rng.gamma(2, 1, (n_items, 1))).astype(np.float32)


def shared(found, wanted):
    """The share of the wanted ids of each row that were found."""
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found, wanted, strict=True)])


def examples_run(module):
    """Whether the examples in an adapter's docstrings run, and there are some."""
    result = doctest.testmod(importlib.import_module(f"cccf_index.adapters.{module}"))
    return result.attempted > 0 and result.failed == 0


def readme_example_runs(adapter):
    """Whether a page has an example of an adapter; it runs, or raises."""
    found = [example for example in examples() if example.adapter == adapter]
    for example in found:
        example.run()
    return len(found) > 0
