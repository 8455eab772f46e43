"""What is saved, served and drawn: flat arrays that predict and count cost, with numpy alone."""

from .decisions import Decisions
from .fitted import COUNTINGS, FittedTree, check_counting
from .links import LINKS, probabilities
from .pool import TreePool
from .schema import Schema
from .shape import TreeShape
from .training import Training

__all__ = [
    "COUNTINGS",
    "LINKS",
    "Decisions",
    "FittedTree",
    "Schema",
    "Training",
    "TreePool",
    "TreeShape",
    "check_counting",
    "probabilities",
]
