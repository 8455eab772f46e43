"""The rows of a table under a hard budget: what each would be answered on demand, and what it would pay.

A row whose path cannot cost more than the budget takes it.  The others are walked one by one, as on demand: they stop
where the next purchase does not fit, and turn to the expert that is expected to lose least of those within reach.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..matrix import dense
from ..model import FittedTree
from ..model.fitted import Held
from .compiled import bits, compile_tree
from .session import Session

__all__ = ["within_budget"]


def within_budget(model: FittedTree, X: Any, budget: float) -> Held:
    """What the rows of a matrix answer, pay and buy; the matrix is one that the model was given already."""
    walked = model.walk(X, items=True)
    margins, costs, items = walked.margins, model.charge(walked), walked.items
    # where experts can be turned to, a step is not begun that may cost too much
    most = costs if model.estimates is None else model.charge(walked, "learner")
    compiled = compile_tree(model)
    for row in np.flatnonzero(most > budget).tolist():
        answer = _answer(compiled, dense(X, slice(row, row + 1))[0].tolist(), budget)
        margins[row], costs[row], items[row] = answer.margins, answer.cost, False
        items[row, bits(answer._bought)] = True
    return Held(margins, costs, items)


def _answer(compiled: Any, values: list[float], budget: float) -> Any:
    session = Session(compiled, budget=budget)
    while wanted := session.wanted_features:
        session.receive_numbers(wanted, values)
        session.resume()
    return session.answer()
