"""Why an answer is what it is, step by step: an object, and the same as plain values and as JSON.

`words` says it in sentences and `page` as HTML; `of_answer` finds it from an answer, `of_row` from a row of a table.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Belief", "Explanation", "Forecast", "NextPurchase", "Step"]


@dataclass(frozen=True)
class Belief:
    """What is predicted at some point of the way, and how sure that is.

    Attributes
    ----------
    value : float, or a class
    probabilities : dict of class to float, or None
        In the order of the model's classes; None for regression and ranking.
    uncertainty : float or None
        For classes, the chance that `value` is wrong, by the probabilities.  For numbers, how far such predictions are
        off (the root of the mean squared error in training, out of fold); None where that is not known.
    """

    value: Any
    probabilities: dict[Any, float] | None = None
    uncertainty: float | None = None

    def to_dict(self) -> dict[str, Any]:
        shares = self.probabilities
        return {
            "value": _plain(self.value),
            "probabilities": None if shares is None else {str(name): _plain(share) for name, share in shares.items()},
            "uncertainty": self.uncertainty,
        }


@dataclass(frozen=True)
class Forecast:
    """What buying on was expected to bring, before it was bought.

    Attributes
    ----------
    saving : float
        Loss, as the model was trained with, that the row was expected to be spared by this and by what may follow.
    price : float
        What that was expected to cost, later purchases included; where it is not known, what the next step may cost.
    gain : float
        ``saving - cost_weight * price``: above 0, buying on pays.
    worth : float or None
        The saving in money, ``saving / cost_weight``.
    net : float or None
        ``worth - price``.
    of_this_row : bool
        Whether it was foretold for this very row; otherwise it is the mean of training rows that came here.
    """

    saving: float
    price: float
    gain: float
    worth: float | None
    net: float | None
    of_this_row: bool

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Step:
    """What was bought at one node of the tree.

    Attributes
    ----------
    node : int
    features : dict of str to value
        What became known, as it was told.
    failed : dict of str to str
        Features that were asked for and did not come, and why.
    items : dict of str to float
        What was newly paid, with prices.
    price : float
    spent : float
        On items, by the end of this step.
    before, after : Belief
        The prediction with what was known before, and with what is known now.
    expected : Forecast or None
        None where the model does not foretell anything.
    why : str
        In a sentence.
    """

    node: int
    features: dict[str, Any]
    failed: dict[str, str]
    items: dict[str, float]
    price: float
    spent: float
    before: Belief
    after: Belief
    expected: Forecast | None
    why: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "features": {name: _plain(value) for name, value in self.features.items()},
            "failed": dict(self.failed),
            "items": dict(self.items),
            "price": self.price,
            "spent": self.spent,
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "expected": None if self.expected is None else self.expected.to_dict(),
            "why": self.why,
        }


@dataclass(frozen=True)
class NextPurchase:
    """What would have been bought next.

    Attributes
    ----------
    node : int
    features : list of str
        All that the next step may look at and that is not known yet.
    items : dict of str to float
        What of that would have to be paid, with prices.
    price : float
        At most; a row may need less on its own branches.
    expected : Forecast or None
        What it would be expected to be worth.
    """

    node: int
    features: list[str]
    items: dict[str, float]
    price: float
    expected: Forecast | None

    def to_dict(self) -> dict[str, Any]:
        expected = None if self.expected is None else self.expected.to_dict()
        return dict(vars(self)) | {"features": list(self.features), "items": dict(self.items), "expected": expected}


@dataclass(frozen=True)
class Explanation:
    """Step by step, how an answer came about.

    ``print(explanation)`` says it in sentences; a notebook shows it as a table.

    Attributes
    ----------
    outcome : Belief
        The answer.
    start : Belief
        What would have been answered before anything was bought.
    given : dict of str to value
        What was known from the start, for nothing.
    steps : list of Step
    stopped_because : str
        In a sentence.
    next_purchase : NextPurchase or None
        None where nothing is left to buy.
    cost : float
        All that was paid: the prices of the steps, and `evaluation`.
    evaluation : float
        What of that was paid for evaluating weak learners.
    status : str
        As in `Answer`.
    basis : str
        What an answer that is not complete rests on; empty otherwise.
    shortfall : float or None
        Loss that this costs on average: 0 if the answer is complete, None if it is not known.
    cost_weight : float or None
        Loss that one unit of money is worth; None where the model does not know.
    warnings : tuple of str
        What was taken as missing, though training did not see it so.
    decisions : dict or None
        Where errors have prices, what each decision was expected to cost; None is to refer to a person.
    taken : str
        Which of the two models of a `cstc.Mixture` the row took, and why; empty for any other model.
    """

    outcome: Belief
    start: Belief
    given: dict[str, Any]
    steps: list[Step]
    stopped_because: str
    next_purchase: NextPurchase | None
    cost: float
    evaluation: float = 0.0
    status: str = "complete"
    basis: str = ""
    shortfall: float | None = 0.0
    cost_weight: float | None = None
    warnings: tuple[str, ...] = field(default=())
    taken: str = ""
    decisions: dict[Any, float] | None = None

    def __str__(self) -> str:
        from .words import as_text

        return as_text(self)

    def __repr__(self) -> str:
        n_steps = len(self.steps)
        return f"<Explanation: {self.outcome.value!r}, {n_steps} steps, cost {self.cost:g}, {self.status}>"

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "outcome": self.outcome.to_dict(),
            "start": self.start.to_dict(),
            "given": {name: _plain(value) for name, value in self.given.items()},
            "steps": [step.to_dict() for step in self.steps],
            "stopped_because": self.stopped_because,
            "next_purchase": None if self.next_purchase is None else self.next_purchase.to_dict(),
            "cost": self.cost,
            "evaluation": self.evaluation,
            "status": self.status,
            "basis": self.basis,
            "shortfall": self.shortfall,
            "cost_weight": self.cost_weight,
            "warnings": list(self.warnings),
        } | ({"taken": self.taken} if self.taken else {}) | self._decisions()

    def _decisions(self) -> dict[str, Any]:
        """As pairs, since what decides need not be text."""
        if self.decisions is None:
            return {}
        return {"decisions": [[_plain(decision), cost] for decision, cost in self.decisions.items()]}

    def to_json(self, **options: Any) -> str:
        """`to_dict` as JSON; `options` go to `json.dumps`."""
        chosen: dict[str, Any] = {"default": str, "allow_nan": False}
        return json.dumps(self.to_dict(), **(chosen | options))

    def to_html(self) -> str:
        """A page that a browser shows by itself, without anything from elsewhere."""
        from .page import as_page

        return as_page(self)

    def _repr_html_(self) -> str:
        from .page import as_html

        return as_html(self)


def _plain(value: Any) -> Any:
    """A value for JSON: numbers of Python instead of numpy's, and None for NaN."""
    value = value.item() if hasattr(value, "item") and not getattr(value, "ndim", 0) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
