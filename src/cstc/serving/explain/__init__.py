"""Why answers are what they are: of one row step by step, of many rows what each item was good for."""

from .explanation import Belief, Explanation, Forecast, NextPurchase, Step
from .importance import ItemTable, importance_in_mixture, item_importance
from .of_answer import explain_answer
from .of_row import as_one_row, explain_row, is_mapping

__all__ = [
    "Belief",
    "Explanation",
    "Forecast",
    "ItemTable",
    "NextPurchase",
    "Step",
    "as_one_row",
    "explain_answer",
    "explain_row",
    "importance_in_mixture",
    "is_mapping",
    "item_importance",
]
