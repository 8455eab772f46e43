"""The trade-off between cost and quality: models from free to full, and the one for a budget.

Nobody thinks in ``cost_weight`` (the paper's lambda).  A frontier fits models along it, throws away those that
another one beats in both cost and quality on validation data, and answers "what do I get for 40?".

`_frontier` is the estimator, `_grid` and `_fits` fit models along the cost weight, `_choice` and `_budgets` choose from
them, `_refine` fills holes, `_table` shows them, and `_identity` says which checkpoint belongs to which fit.
"""

from ._frontier import Frontier
from ._table import FrontierTable

__all__ = ["Frontier", "FrontierTable"]
