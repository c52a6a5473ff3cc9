"""implicit's own tests of every recommender, from its source distribution: `python tests/frameworks.py implicit`."""

import unittest
from io import BytesIO

from implicit.als import AlternatingLeastSquares
from implicit.bpr import BayesianPersonalizedRanking
from implicit.lmf import LogisticMatrixFactorization
from recommender_base_test import RecommenderBaseTestMixin

from cccf_index.adapters.implicit import CCCFModel


class Coded(RecommenderBaseTestMixin):
    """Their 256 items are near copies of two, so more are ranked than are asked for."""

    def _get_model(self):
        return CCCFModel(self.inner(), k_factor=16)

    def test_serialization_without_fit(self):
        """Theirs compares attributes, and a model of implicit is equal only to itself: ours holds one."""
        model, buffer = self._get_model(), BytesIO()
        model.save(buffer)
        buffer.seek(0)
        mine, theirs = (dict(vars(part)) for part in (model, model.load(buffer)))
        assert vars(mine.pop("model")) == vars(theirs.pop("model"))
        assert mine == theirs


class TestALS(Coded, unittest.TestCase):
    def inner(self):
        return AlternatingLeastSquares(factors=32, regularization=0, use_gpu=False, random_state=23)


class TestBPR(Coded, unittest.TestCase):
    def inner(self):
        return BayesianPersonalizedRanking(factors=3, regularization=0, use_gpu=False, random_state=42)


class TestLMF(Coded, unittest.TestCase):
    def inner(self):
        return LogisticMatrixFactorization(factors=3, regularization=0, use_gpu=False, random_state=43)
