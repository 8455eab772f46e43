"""Data that needs no download: generators, and what scikit-learn ships, with prices."""

from ._diabetes import load_diabetes_with_costs
from ._quadrants import QUADRANT_COSTS, make_quadrants

__all__ = ["QUADRANT_COSTS", "load_diabetes_with_costs", "make_quadrants"]
