"""The systems that the paper compares with or names as related work, and LightGBM's CEGB, with one face.

Each has `fit`, `predict`, `predict_cost` (both countings) and `frontier`, which gives its models, cheapest first.
All that boost do so with LightGBM at the same settings as CSTC, but for `SpeedBoost`, which must know the gain of every
feature.  All choose their hyper-parameters on validation rows, and count cost in the same place, `cstc.model`.
"""

from ._frontier import SystemFrontier
from .cegb import CEGB
from .cost_tree import CostAwareTree
from .cronus import Cronus
from .early_exit import EarlyExit
from .greedy_miser import GreedyMiser
from .hierarchical_mixture import HierarchicalMixture
from .l1 import L1
from .single import SingleClassifier
from .soft_cascade import SoftCascade
from .speedboost import SpeedBoost
from .stagewise import StageWiseRegression

__all__ = [
    "CEGB",
    "L1",
    "CostAwareTree",
    "Cronus",
    "EarlyExit",
    "GreedyMiser",
    "HierarchicalMixture",
    "SingleClassifier",
    "SoftCascade",
    "SpeedBoost",
    "StageWiseRegression",
    "SystemFrontier",
]
