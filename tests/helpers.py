"""What several test files need: random codes, a plain model of an index, comparisons that know of ties."""

from __future__ import annotations

import numpy as np

from cccf_index import CompositionalCodes, IndexCCCF, reference

LOWEST = np.finfo(np.float32).min


def random_codes(rng, n, n_components=4, n_bits=8, density=0.6, levels=5, distinct=None):
    """Codes with weights that are multiples of 0.01; few `levels` and `distinct` rows make many equal scores."""
    size = n if distinct is None else min(n, distinct)
    signs = rng.random((size, n_components, n_bits)) < 0.5
    weights = rng.integers(1, levels + 1, (size, n_components)) / 100
    weights *= rng.random((size, n_components)) < density
    codes = CompositionalCodes.from_signs(signs, weights)
    return codes if distinct is None else codes[rng.integers(0, size, n) if size else []]


class Model:
    """The items of an index as a dict, and the search of `reference`: what the index must agree with."""

    def __init__(self, scale=100):
        self.scale = scale
        self.items = {}  # id -> (integer vector, integer bias)

    def add(self, codes, ids, bias=None):
        vectors = reference.integer_vectors(codes, self.scale)
        for i, identity in enumerate(ids):
            self.items[int(identity)] = (vectors[i], 0 if bias is None else int(np.rint(bias[i] * self.scale)))

    def remove(self, ids):
        for identity in ids:
            self.items.pop(int(identity), None)

    def copy(self):
        other = Model(self.scale)
        other.items = dict(self.items)
        return other

    def search(self, queries, k, exclude=None, allow=None):
        """D and I as the index should return them; queries are codes."""
        ids = np.array(sorted(self.items), dtype=np.int64)
        items = np.array([self.items[i][0] for i in ids.tolist()]).reshape(len(ids), queries.d)
        bias = np.array([self.items[i][1] * self.scale for i in ids.tolist()], dtype=np.int64)
        vectors = reference.integer_vectors(queries, self.scale)
        scores, found = reference.search(vectors, items, k, ids, bias, exclude, allow)
        D = (scores / self.scale**2).astype(np.float32)
        D[found == -1] = LOWEST
        return D, found


def assert_same(actual, expected):
    """D and I equal to the last bit, ties included."""
    np.testing.assert_array_equal(actual[1], expected[1])
    np.testing.assert_array_equal(actual[0], expected[0])


def assert_same_up_to_ties(actual, expected, tolerance=1e-4):
    """Scores agree, and so do the ids of all items clearly above the last score: faiss orders ties as it likes."""
    (D, I), (wanted_D, wanted_I) = actual, expected
    np.testing.assert_allclose(D, wanted_D, rtol=tolerance, atol=tolerance)
    for row in range(len(D)):
        clear = wanted_D[row] > wanted_D[row, -1] + tolerance
        assert set(wanted_I[row, clear]) <= set(I[row])
        np.testing.assert_array_equal(I[row] == -1, wanted_I[row] == -1)


def filled_index(codes, **arguments):
    index = IndexCCCF(codes.n_components, codes.n_bits, **arguments)
    index.add(codes)
    return index
