"""cccf-index for ann-benchmarks: copy this folder to `ann_benchmarks/algorithms/cccf`."""

import numpy as np

import cccf_index as ci
from cccf_index._vectors import normalize_rows

from ..base.module import BaseANN


class CCCF(BaseANN):
    """Codes under a budget of bytes per item, alone or re-ranked with vectors in float16."""

    def __init__(self, metric, bytes_per_item):
        if metric not in ("angular", "dot"):
            raise NotImplementedError(f"CCCF doesn't support metric {metric}")
        self._metric, self._bytes = metric, bytes_per_item
        self._index = self._refined = self._results = None
        self._params = ci.SearchParametersCCCF(num_threads=1)
        self._k_factor, self._max_items = 0, None
        self.name = str(self)

    def fit(self, X):
        """Learn codes with the items as sample queries, and run each kind of search once to compile it."""
        items = np.ascontiguousarray(X, dtype=np.float32)
        if self._metric == "angular":
            items = normalize_rows(items)  # queries need not be: their length changes no order
        self._index = ci.IndexCCCF.from_embeddings(items, items, bytes_per_item=self._bytes, verbose=False)
        self._refined = ci.IndexRefineCCCF(self._index, items, storage="float16")
        for k_factor in (0, 2):
            self.set_query_arguments(k_factor, None)
            self.query(items[0], 10)

    def set_query_arguments(self, k_factor, max_items):
        """Set how many candidates a result has, 0 for codes alone, and how many items are looked at, None for all."""
        self._k_factor, self._max_items = k_factor, max_items
        self._params = self._make_params(1)
        self.name = str(self)

    def query(self, v, n):
        """Return the ids of the n nearest items of a vector."""
        return self._search(np.asarray(v, np.float32)[None], n, self._params)[0]

    def batch_query(self, X, n):
        """Search for all vectors at once, on all cores."""
        self._results = self._search(np.ascontiguousarray(X, dtype=np.float32), n, self._make_params(0))

    def get_batch_results(self):
        """Return the ids that `batch_query` found."""
        return self._results

    def get_memory_usage(self):
        """Return the size of codes and vectors in kilobytes."""
        return 0.0 if self._refined is None else self._refined.nbytes / 1024

    def __str__(self):
        return f"CCCF({self._bytes} bytes, k_factor={self._k_factor}, max_items={self._max_items})"

    def _make_params(self, num_threads):
        options = {"k_factor": self._k_factor or None, "max_items": self._max_items}
        return ci.SearchParametersCCCF(num_threads=num_threads, **options)

    def _search(self, x, n, params):
        index = self._refined if self._k_factor else self._index
        found = index.search(x, n, params=params)[1]
        return found if found[:, -1].min() >= 0 else [row[row >= 0] for row in found]
