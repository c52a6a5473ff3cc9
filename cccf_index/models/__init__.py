"""Models of ratings. All have `fit`, `predict`, `recommend`, `to_index`, `encode_users`, `encode_items` and `save`."""

from cccf_index._check import NotFittedError
from cccf_index.models.base import Recommender
from cccf_index.models.bccf import BCCF
from cccf_index.models.cccf import CCCF
from cccf_index.models.dcf import DCF
from cccf_index.models.dcmf import DCMF
from cccf_index.models.mf import MF

load = Recommender.load

__all__ = ["BCCF", "CCCF", "DCF", "DCMF", "MF", "NotFittedError", "load"]
