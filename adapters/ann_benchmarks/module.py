"""cccf-index for ann-benchmarks: copy this folder to `ann_benchmarks/algorithms/cccf`."""

import numpy as np

import cccf_index as ci
from cccf_index._vectors import normalize_rows

from ..base.module import BaseANN


class CCCF(BaseANN):
    """Compositional codes find candidates, the original vectors re-rank them."""

    def __init__(self, metric, n_components, n_bits):
        if metric not in ("angular", "dot"):
            raise NotImplementedError(f"CCCF doesn't support metric {metric}")
        self._metric = metric
        self._shape = (n_components, n_bits)
        self._index = self._refined = self._results = None
        self._params = ci.SearchParametersCCCF(num_threads=1)
        self._k_factor = 1
        self.name = str(self)

    def fit(self, X):
        """Learn codes with the items as sample queries, and run each kind of search once to compile it."""
        items = self._to_vectors(X)
        self._index = ci.IndexCCCF.from_embeddings(items, items, *self._shape, verbose=False)
        self._refined = ci.IndexRefineCCCF(self._index, items)
        for coded in (True, False):
            self.set_query_arguments(2, coded)
            self.query(items[0], 10)

    def set_query_arguments(self, k_factor, coded):
        """Set the number of candidates per result, and whether queries are coded or real-valued."""
        self._k_factor = self._refined.k_factor = k_factor
        self._params = ci.SearchParametersCCCF(num_threads=1, coded=coded)
        self.name = str(self)

    def query(self, v, n):
        """Return the ids of the n nearest items of a vector."""
        return self._search(np.asarray(v)[None], n, self._params)[0]

    def batch_query(self, X, n):
        """Search for all vectors at once, on all cores."""
        params = ci.SearchParametersCCCF(coded=self._params.coded)
        self._results = self._search(np.asarray(X), n, params)

    def get_batch_results(self):
        """Return the ids that `batch_query` found."""
        return self._results

    def get_memory_usage(self):
        """Return the size of codes and vectors in kilobytes."""
        return 0.0 if self._refined is None else self._refined.nbytes / 1024

    def __str__(self):
        queries = "coded" if self._params.coded else "real"
        return f"CCCF({self._shape[0]}x{self._shape[1]}, k_factor={self._k_factor}, queries={queries})"

    def _search(self, x, n, params):
        found = self._refined.search(self._to_vectors(x), n, params=params)[1]
        return [row[row >= 0] for row in found]

    def _to_vectors(self, x):
        """Return vectors whose inner products order items like the metric."""
        vectors = np.ascontiguousarray(x, dtype=np.float32)
        return vectors if self._metric == "dot" else normalize_rows(vectors)
