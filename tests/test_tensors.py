"""Tensors as vectors: with gradients, on another device, or of a type that numpy does not have."""

from importlib.util import find_spec

import numpy as np
import pytest

from cccf_index import Catalogue, CompositionalCodes, IndexCCCF, IndexRefineCCCF
from cccf_index.models import MF
from cccf_index.quantizer import CompositionalQuantizer

RNG = np.random.default_rng(0)
ITEMS, USERS = RNG.standard_normal((200, 8)).astype(np.float32), RNG.standard_normal((40, 8)).astype(np.float32)
HALVES = (ITEMS.view(np.uint32) & 0xFFFF0000).view(np.float32)  # what bfloat16 keeps of them


class Tensor:
    """What numpy and this package see of a tensor of torch, which refuses `numpy.asarray` in three cases."""

    def __init__(self, values, obstacles):
        self.values, self.obstacles = values, obstacles
        self.shape, self.ndim = values.shape, values.ndim

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        if "gradients" in self.obstacles:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        if self.obstacles:
            raise TypeError("can't convert cuda tensor, or ScalarType BFloat16")
        return self.values

    def detach(self):
        return Tensor(self.values, self.obstacles - {"gradients"})

    def cpu(self):
        assert "gradients" not in self.obstacles
        return Tensor(self.values, self.obstacles - {"cuda"})

    def float(self):
        return Tensor(self.values, self.obstacles - {"bfloat16"})


def stand_in(values, *obstacles):
    return Tensor(values, frozenset(obstacles))


def torch_tensor(values, *obstacles):
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(np.array(values))
    tensor = tensor.bfloat16() if "bfloat16" in obstacles else tensor
    return tensor.requires_grad_("gradients" in obstacles)


MAKERS = {"stand-in": stand_in} | ({"torch": torch_tensor} if find_spec("torch") else {})
OBSTACLES = [(), ("gradients",), ("bfloat16",), ("gradients", "bfloat16"), ("gradients", "cuda")]


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


@pytest.mark.parametrize("obstacles", OBSTACLES, ids=lambda words: " and ".join(words) or "plain")
def test_an_index_takes_tensors_as_it_takes_arrays(make, obstacles):
    expected = IndexCCCF.from_embeddings(HALVES, USERS, 2, 8, verbose=False)
    index = IndexCCCF.from_embeddings(make(HALVES, *obstacles), make(USERS), 2, 8, ids=np.arange(200), verbose=False)
    queries = HALVES[:5]
    for found, wanted in zip(index.search(make(queries, *obstacles), 3), expected.search(queries, 3), strict=True):
        np.testing.assert_array_equal(found, wanted)
    refined = IndexRefineCCCF(index, make(HALVES, *obstacles))
    np.testing.assert_array_equal(
        refined.search(make(queries, *obstacles), 3)[1], IndexRefineCCCF(expected, HALVES).search(queries, 3)[1]
    )


def test_whatever_takes_vectors_takes_tensors_with_gradients(make):
    items, users = make(ITEMS, "gradients"), make(USERS, "gradients")
    quantizer = CompositionalQuantizer(2, 8, verbose=False).fit(items, users)
    assert len(quantizer.encode_users(users)) == 40
    np.testing.assert_array_equal(MF.from_factors(users, items).item_factors_, ITEMS)
    index = IndexCCCF(2, 8, quantizer=quantizer)
    index.add(items, bias=make(ITEMS[:, 0], "gradients"))
    catalogue = Catalogue.of_vectors(index, users, np.arange(40), np.arange(200))
    assert catalogue.queries.dtype == np.float32
    signs = np.sign(ITEMS).reshape(200, 2, 4)
    codes = CompositionalCodes.from_signs(make(signs, "gradients"), make(np.abs(ITEMS[:, :2]), "gradients"))
    np.testing.assert_array_equal(codes.to_signs(), signs)
    vectors = make(codes.to_vectors(), "gradients")
    assert CompositionalCodes.from_vectors(vectors, 2, 4) == codes


def test_an_error_that_is_not_of_a_tensor_is_not_hidden():
    class Broken:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        IndexCCCF(2, 8).search(Broken(), 1)
