"""The trade-off between cost and quality: models from free to full, and the one for a budget.

Nobody thinks in ``cost_weight`` (the paper's lambda).  A frontier fits models along it, throws away those that
another one beats in both cost and quality, and answers "what do I get for 40?".

`_frontier` is the estimator, `_fits` fits models along the cost weights of `_grid`, `_evidence` says what is known of
them, `_choice` and `_budgets` choose from them, `_refine` fills holes, `_table` shows them, `_identity` says which
checkpoint belongs to which fit, and `_folder` keeps a finished frontier.
"""

from ._folder import SavedFrontier, load_frontier, save_frontier
from ._frontier import Frontier
from ._table import FrontierTable

__all__ = ["Frontier", "FrontierTable", "SavedFrontier", "load_frontier", "save_frontier"]
