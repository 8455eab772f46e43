"""Early answers: what a row is answered with that cannot go on, and what is told of that.

There are two occasions.  Where the budget does not reach for the next wave, the row turns to the expert that is
expected to lose least of those that the rest of the budget reaches for, and buys what that one needs.  Where the row
must stop at once, it is answered from what is bought.  Either answer says on how many features it rests and what is
lost by that.
"""

from __future__ import annotations

from collections.abc import Set
from operator import add
from typing import NamedTuple

from .bill import Bill
from .compiled import CompiledExpert, Option
from .outages import Outages
from .values import Values
from .way import Way

__all__ = [
    "Early",
    "at_its_end",
    "basis_of",
    "eats_what_experts_need",
    "from_what_is_bought",
    "loss_of",
    "within_reach",
]

MUCH = 0.25  # part of the price of a step
WHY = {"deadline": "the deadline came", "stopped": "it was stopped"}


class Early(NamedTuple):
    """An answer of a row that did not come to the end of its path.

    Attributes
    ----------
    node : int
        The node whose prediction it is called; -1 for the constant.
    margins : list of float
    evaluated : int
        The learners that were evaluated.
    expert : CompiledExpert or None
        Whose prediction it is; None for the constant, and for the node where the row came to an end.
    is_averaged : bool
        Whether that is averaged over what is not known.
    """

    node: int
    margins: list[float]
    evaluated: int
    expert: CompiledExpert | None
    is_averaged: bool


# -- the budget does not reach -----------------------------------------------------------------------------------


def within_reach(way: Way, values: Values, bill: Bill) -> tuple[Option, int] | None:
    """What loses least of all that the rest of the budget reaches for, and how many of its learners are new.

    None if the row has turned to something already, or if nothing is within reach.
    """
    if way.instead is not None:
        return None
    evaluated, known = way.evaluated_so_far(), values.known
    for option in way.compiled.options_at(way.node.number):
        needed = option.expert.step.features if option.part is None else option.part
        items = bill.items_for(f for f in needed if f not in known)
        n_new = way.n_new(option.expert, values)
        if bill.reaches(items, evaluated + n_new):
            return option, n_new
    return None


def eats_what_experts_need(items: int, way: Way, values: Values, bill: Bill) -> bool:
    """Whether a wave would eat much of what its step may need, and the rest of that is beyond the budget.

    Then the step could hardly be completed, and the money is missing for experts that are within reach.
    """
    if bill.budget is None or way.instead is not None or way.compiled.model.estimates is None:
        return False
    whole = items | bill.items_for(f for f in way.node_step.features if f not in values.known)
    price_of = way.compiled.price_of
    return not bill.reaches(whole, way.evaluated) and price_of(items) >= MUCH * price_of(whole)


# -- the row stops at once ---------------------------------------------------------------------------------------


def from_what_is_bought(way: Way, values: Values, bill: Bill) -> Early:
    """The best expert that needs nothing else; where nothing is known of experts, the last node on the path that does.

    Else that of the node, averaged over what is missing; else the constant.
    """
    compiled, here, evaluated = way.compiled, way.node.number, way.evaluated_so_far()
    experts = compiled.experts_at(here)
    if not experts:
        experts = [compiled.experts[number] for number in reversed(way.path)]
    for expert in experts:
        found = way.walk.try_sums(expert.step.learners, expert.weights)
        if found is None:
            continue
        new, sums = found
        if new and not bill.reaches(0, evaluated + new):
            continue
        return Early(way.node_of(expert), list(map(add, sums, expert.intercepts)), evaluated + new, expert, False)
    own = compiled.experts[here]
    total = evaluated + way.n_new(own, values)
    if not own.features.isdisjoint(values.known) and bill.reaches(0, total):
        return Early(here, compiled.averaged(here, values.numbers()), total, own, True)
    return Early(-1, list(compiled.constant), evaluated, None, True)


# -- what is told ------------------------------------------------------------------------------------------------


def at_its_end(way: Way) -> Early:
    """The answer of a row that came to an end, though not to the one that was planned for it."""
    assert way.margins is not None
    expert = None if way.instead is None else way.instead.expert
    return Early(way.node_of(expert), way.margins, way.evaluated, expert, False)


def basis_of(early: Early, status: str, reason: str, way: Way, values: Values, bill: Bill, outages: Outages) -> str:
    """On how many of the features that its node counts on an answer rests, and why on no more."""
    here, expert = way.node.number, _expert_of(early, way)
    seen: Set[int] = frozenset() if expert is None else expert.features
    if early.is_averaged or way.is_in_part:
        seen = seen & values.known.keys()
    planned = outages.whole.experts[here].features
    why = f"the budget of {bill.budget:g} does not reach further" if status == "budget" else WHY.get(status)
    found = [each for each in (outages.describe_at(here), why) if each is not None]
    return f"{len(seen)} of {len(planned | seen)} features: {', '.join(found) or reason}"


def loss_of(early: Early, way: Way) -> float | None:
    """What an answer is expected to lose more than one at the end of the path; None if that is not known."""
    here, expert = way.node.number, _expert_of(early, way)
    if expert is None:
        return None
    if way.instead is not None and way.is_in_part:
        return way.compiled.shortfall(here, way.instead.loss)
    return None if early.is_averaged else way.compiled.shortfall(here, way.compiled.loss_of(here, expert.number))


def _expert_of(early: Early, way: Way) -> CompiledExpert | None:
    """Whose prediction an answer is; None for the constant."""
    is_of_node = early.expert is None and way.margins is not None
    return way.compiled.experts[way.node.number] if is_of_node else early.expert
