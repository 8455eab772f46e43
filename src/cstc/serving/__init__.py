"""Predictions on demand: pay only for what an answer needs, and answer whatever happens."""

from .answer import Answer, BudgetReached, DeadlineReached, IncompleteAnswer, SourceFailed
from .counters import Counters
from .explain import Explanation, ItemTable
from .measure import measure_costs
from .predictor import OnDemandPredictor
from .session import Session
from .sources.extractors import Extractor, extractor

__all__ = [
    "Answer",
    "BudgetReached",
    "Counters",
    "DeadlineReached",
    "Explanation",
    "Extractor",
    "IncompleteAnswer",
    "ItemTable",
    "OnDemandPredictor",
    "Session",
    "SourceFailed",
    "extractor",
    "measure_costs",
]
