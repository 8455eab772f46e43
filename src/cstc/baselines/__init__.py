"""The systems that the paper compares with, and LightGBM's CEGB, with one face.

Each has `fit`, `predict`, `predict_cost` (both countings) and `frontier`, which gives its models, cheapest first.
All boost with LightGBM at the same settings as CSTC, choose their hyper-parameters on validation rows, and count
cost in the same place, `cstc.model`.
"""

from ._frontier import SystemFrontier
from .cegb import CEGB
from .cronus import Cronus
from .early_exit import EarlyExit
from .greedy_miser import GreedyMiser
from .l1 import L1
from .single import SingleClassifier
from .stagewise import StageWiseRegression

__all__ = [
    "CEGB",
    "L1",
    "Cronus",
    "EarlyExit",
    "GreedyMiser",
    "SingleClassifier",
    "StageWiseRegression",
    "SystemFrontier",
]
