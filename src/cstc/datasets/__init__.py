"""Data sets with prices: generators, what scikit-learn ships, and readers for learning-to-rank files."""

from ._diabetes import load_diabetes_with_costs
from ._letor import load_letor, load_yahoo
from ._quadrants import QUADRANT_COSTS, QUADRANT_FEATURES, make_quadrants
from ._ranking_data import RankingData
from ._selectors import Selectors, make_selectors
from ._yahoo_like import YahooLikeTruth, make_yahoo_like

__all__ = [
    "QUADRANT_COSTS",
    "QUADRANT_FEATURES",
    "RankingData",
    "Selectors",
    "YahooLikeTruth",
    "load_diabetes_with_costs",
    "load_letor",
    "load_yahoo",
    "make_quadrants",
    "make_selectors",
    "make_yahoo_like",
]
