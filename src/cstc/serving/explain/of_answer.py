"""From an answer to its explanation: the trail of a session, and what the model foretold on the way.

What buying on is expected to bring.  Under the default method a gate *is* an estimate of that: its margin is the gain
of going on in the loss of training, ``saving - cost_weight * price``, over all that may follow, and the row goes on if
that is above zero (`experts.gates`).  What may follow costs what training rows paid that went on from there.  So the
saving is known, too; and whatever that price is, saving and price compare as the gate decided.  Where a node is no such
gate (a split between groups, the paper's nodes), the mean over training rows stands for it, if there is one.

Predictions on the way are those of the node's expert, averaged over what was not known yet (`model.averaging`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compiled import CompiledTree, Fault
from .explanation import Belief, Explanation, Forecast, NextPurchase, Step
from .words import about, listed

if TYPE_CHECKING:
    from ..answer import Answer

__all__ = ["explain_answer"]

EARLY = ("budget", "deadline", "stopped")  # the row was on its way to somewhere
FAILED = ("failed: ", "failed, tried again: ")


@dataclass
class _Visit:
    """What was asked for at a node, one time that the row was there."""

    node: int
    gate: tuple[Any, ...] | None  # the event that led there
    features: list[int] = field(default_factory=list)
    items: int = 0
    reasons: dict[int, str] = field(default_factory=dict)  # why a feature did not come


def explain_answer(answer: Answer) -> Explanation:
    """Why an answer is what it is."""
    if answer._compiled is None or answer._known is None:
        raise ValueError("this answer was pickled or copied and has left its model behind; explain it before that")
    return _Explained(answer, answer._compiled, answer._known).explanation()


class _Explained:
    def __init__(self, answer: Answer, compiled: CompiledTree, known: dict[int, Any]) -> None:
        self._answer, self._compiled, self._model = answer, compiled, compiled.model
        self._raw = known
        self._numbers = {f: number for f, raw in known.items() if (number := _number(compiled, f, raw)) is not None}
        self._estimates = compiled.model.estimates

    def explanation(self) -> Explanation:
        answer, compiled = self._answer, self._compiled
        visits = self._visits()
        asked = {f for visit in visits for f in visit.features}
        given = [f for f in self._raw if f not in asked]
        start = self._start(given)
        outcome = self._outcome()
        steps = self._steps(visits, set(given), start, outcome)
        following = self._next_purchase()
        weight = None if self._estimates is None else self._estimates.cost_weight
        return Explanation(
            outcome=outcome,
            start=start,
            given={compiled.feature_names[f]: self._raw[f] for f in given},
            steps=steps,
            stopped_because=self._why_stopped(following),
            next_purchase=following,
            cost=answer.cost,
            evaluation=compiled.evaluation * answer.n_evaluated,
            status=answer.status,
            basis=answer.basis,
            shortfall=answer.expected_loss,
            cost_weight=weight,
            warnings=answer.warnings,
            taken=answer.taken,
            decisions=compiled.expected_costs(answer.margins),
        )

    # -- steps -------------------------------------------------------------------------------------------------

    def _visits(self) -> list[_Visit]:
        found: list[_Visit] = []
        led_to: dict[int, tuple[Any, ...]] = {}
        for event in self._answer._events:
            if event[0] == "gate":
                led_to[event[4]] = event
                continue
            _, node, _, features, items, _, _, outcome = event
            if not found or found[-1].node != node:
                found.append(_Visit(node, led_to.get(node)))
            visit = found[-1]
            visit.features += [f for f in features if f not in visit.features]
            visit.items |= items
            if outcome.startswith("failed"):
                reason = outcome.removeprefix(FAILED[0]).removeprefix(FAILED[1])
                visit.reasons.update(dict.fromkeys(features, reason))
        return found

    def _steps(self, visits: list[_Visit], known: set[int], belief: Belief, outcome: Belief) -> list[Step]:
        compiled, names = self._compiled, self._compiled.feature_names
        steps: list[Step] = []
        paid = 0
        for number, visit in enumerate(visits):
            came = [f for f in visit.features if f in self._raw]
            known.update(came)
            paid |= visit.items
            before = belief
            belief = outcome if number == len(visits) - 1 else self._belief_at(visit.node, known, before)
            expected = self._forecast(visit)
            step = Step(
                node=visit.node,
                features={names[f]: self._raw[f] for f in came},
                failed={names[f]: visit.reasons.get(f, "") for f in visit.features if f not in self._raw},
                items=compiled.item_prices(visit.items),
                price=compiled.price_of(visit.items),
                spent=compiled.price_of(paid),
                before=before,
                after=belief,
                expected=expected,
                why=self._why_bought(visit, expected, not steps),
            )
            steps.append(step)
        return steps

    def _why_bought(self, visit: _Visit, expected: Forecast | None, is_first: bool) -> str:
        if visit.gate is None:
            if not is_first:
                return "It takes the place of what could not be had."
            if self._is_instead:
                return "It is what promises most of all that can be had now; usually, something else comes first."
            return f"Every case begins with this.{_on_average(expected)}"
        parent = visit.gate[1]
        if expected is None and not self._answer.complete and self._estimates is not None:
            return "It takes the place of what could not be had."
        if expected is not None and expected.of_this_row:
            return f"It promised to pay: {_weighed(expected, self._is_last(visit.node))}"
        asked = np.flatnonzero((self._model.route_learners[parent][:, None] & self._model.learner_features).any(axis=0))
        by = listed([self._compiled.feature_names[f] for f in asked.tolist() if f in self._raw], most=4)
        return f"By what is known so far ({by}), this is what cases like this one need.{_on_average(expected)}"

    # -- beliefs -----------------------------------------------------------------------------------------------

    def _belief(self, margins: list[float], loss: float | None) -> Belief:
        value, shares = self._compiled.answer(margins)
        if shares is None:
            return Belief(value, None, None if loss is None else math.sqrt(loss))
        classes = self._compiled.classes or []
        return Belief(value, dict(zip(classes, shares, strict=True)), 1.0 - max(shares))

    def _start(self, given: list[int]) -> Belief:
        constant = self._belief(self._compiled.constant, None)
        return self._belief_at(0, set(given), constant)

    def _belief_at(self, node: int, known: set[int], before: Belief) -> Belief:
        """Of the expert of a node with what is known; `before` where it predicts nothing, or knows nothing."""
        model = self._model
        features = np.flatnonzero(model.expert_features[node]).tolist()
        if known.isdisjoint(features) or (self._estimates is None and not model.shape.is_predictive[node]):
            return before
        numbers = {f: number for f, number in self._numbers.items() if f in known}
        return self._belief(self._compiled.averaged(node, numbers), self._loss_of(node))

    def _loss_of(self, node: int) -> float | None:
        """What the expert of a node loses at rows that come there."""
        if self._estimates is None:
            return None
        loss = float(self._estimates.losses[node, node])
        return loss if loss >= 0 else None

    def _outcome(self) -> Belief:
        answer, estimates = self._answer, self._estimates
        if answer.node < 0 or estimates is None:
            return self._belief(answer.margins, None)
        here = answer.path[-1]
        if answer.complete:
            return self._belief(answer.margins, self._loss_of(here))
        known = answer.expected_loss
        return self._belief(answer.margins, None if known is None else float(estimates.path_losses[here]) + known)

    # -- what was expected -------------------------------------------------------------------------------------

    @property
    def _is_instead(self) -> bool:
        """Whether the root was left for something else: then what was forecast of it was not bought."""
        return not self._answer.complete and self._answer.path[-1] == 0

    def _forecast(self, visit: _Visit) -> Forecast | None:
        if visit.gate is None and self._is_instead:
            return None
        found = self._forecast_of_path(visit)
        # what was foretold was something else, where more was paid than that
        is_other = found is not None and self._compiled.price_of(visit.items) > (1 + 1e-9) * found.price
        return None if is_other and not self._answer.complete else found

    def _forecast_of_path(self, visit: _Visit) -> Forecast | None:
        if visit.gate is None:
            return self._at_the_root(visit) if visit.node == 0 else None
        price = self._compiled.price_of(visit.items)
        return self._by_gate(visit.gate, price) or self._on_average(visit.gate[1], visit.node, price)

    def _by_gate(self, gate: tuple[Any, ...], at_least: float) -> Forecast | None:
        """What a gate foretold for this row; None where it does not foretell a gain.

        `at_least` stands for its price where nobody knows what training rows paid.
        """
        _, node, margin, threshold, _ = gate
        shape = self._model.shape
        # a gate of the default method has a node above and an end below; its splits between groups have no end
        if self._estimates is None or shape.upper[node] < 0 or shape.lower[node] >= 0:
            return None
        price = self._price_of_going_on(node, at_least)
        return self._priced(margin - threshold + self._estimates.cost_weight * price, price, True)

    def _on_average(self, parent: int, node: int, price: float) -> Forecast | None:
        if self._estimates is None:
            return None
        losses = self._estimates.losses[node]
        if losses[parent] < 0 or losses[node] < 0:
            return None
        return self._priced(float(losses[parent] - losses[node]), price, False)

    def _at_the_root(self, visit: _Visit) -> Forecast | None:
        """By what the constant loses; for numbers nobody knows that."""
        loss = self._loss_of(0)
        shares = self._compiled.answer(self._compiled.constant)[1]
        if loss is None or shares is None or not self._model.predict_learners[0].any():
            return None
        costs = self._compiled.expected_costs(self._compiled.constant)
        before = min(costs.values()) if costs else -sum(share * math.log(share) for share in shares if share > 0)
        return self._priced(max(0.0, before - loss), self._compiled.price_of(visit.items), False)

    def _priced(self, saving: float, price: float, of_this_row: bool) -> Forecast:
        weight = self._estimates.cost_weight if self._estimates is not None else 0.0
        worth = saving / weight if weight > 0 else None
        net = None if worth is None else worth - price
        return Forecast(saving, price, saving - weight * price, worth, net, of_this_row)

    def _price_of_going_on(self, node: int, at_least: float) -> float:
        """What rows that go on from a gate pay after it, by the ends that training rows came to."""
        model, training = self._model, self._model.training
        shape, child = model.shape, int(model.shape.upper[node])
        if training.reached is None:
            return at_least
        costs = model.terminal_costs()
        below = shape.paths[:, child]
        share = training.reached[below]
        if not share.sum() > 0:
            return at_least
        further = float(np.average(costs[below] - costs[-1 - int(shape.lower[node])], weights=share))
        if training.mean_cost is not None:  # on their own branches rows pay less than their path may cost
            promised = float(training.reached @ costs)
            further *= training.mean_cost / promised if promised > 0 else 1.0
        return max(0.0, further)

    # -- the end -----------------------------------------------------------------------------------------------

    def _needs(self, node: int, paid: int) -> tuple[list[int], int, float]:
        """Features that a step at a node may look at and that are not known, their items, and the price."""
        model = self._model
        learners = model.route_learners[node].copy()
        if model.shape.is_predictive[node]:
            learners |= model.predict_learners[node]
        features = np.flatnonzero(model.learner_features[learners].any(axis=0)).tolist()
        new = [f for f in features if f not in self._raw]
        items = 0
        for f in new:
            items |= self._compiled.feature_items[f]
        items &= ~paid
        return new, items, self._compiled.price_of(items)

    def _next_purchase(self) -> NextPurchase | None:
        answer, shape = self._answer, self._model.shape
        here, gate = answer.path[-1], self._last_gate()
        if answer.status in EARLY:
            node, by = here, next((e for e in self._answer._events if e[0] == "gate" and e[4] == here), None)
        elif gate is None or gate[1] != here or shape.is_leaf[here]:
            return None
        else:
            node = int(shape.upper[here] if gate[4] == shape.lower[here] else shape.lower[here])
            by = gate
        if node < 0:
            return None
        features, items, price = self._needs(node, answer._paid)
        if not features and answer.status in EARLY:
            return None
        names = [self._compiled.feature_names[f] for f in features]
        expected = None if by is None else self._by_gate(by, price)
        if answer.status in EARLY and answer.expected_loss:  # what the answer lacks is what going on would bring
            expected = self._priced(answer.expected_loss, price, False)
        return NextPurchase(node, names, self._compiled.item_prices(items), price, expected)

    def _is_last(self, node: int) -> bool:
        return bool(self._model.shape.is_leaf[node])

    def _last_gate(self) -> tuple[Any, ...] | None:
        return next((event for event in reversed(self._answer._events) if event[0] == "gate"), None)

    def _why_stopped(self, following: NextPurchase | None) -> str:
        answer = self._answer
        if answer.status == "budget":
            return f"The budget is reached: {answer.reason}."
        if answer.status == "deadline":
            return f"The time is up: {answer.reason}."
        if answer.status == "stopped":
            return f"It was stopped on the way: {answer.reason}."
        lost = "" if answer.complete else f"It went on without what could not be had: {answer.reason}. "
        if following is None:
            return lost + "Nothing is left to buy: the model has nothing further for cases like this one."
        if following.expected is None:
            return lost + "For cases like this one the model ends here."
        return f"{lost}More would not pay: {_weighed(following.expected, self._is_last(following.node))}"


def _weighed(expected: Forecast, is_last: bool) -> str:
    """Worth against price, in a sentence."""
    if expected.worth is None:
        return "the model weighs no prices."
    worth, price = about(expected.worth, expected.price)
    price = f"to cost {price}" if is_last else f"to cost about {price} with all that may follow"
    if expected.worth <= 0:
        return f"it was not expected to make the answer better, but {price}."
    return f"the better answer was expected to be worth about {worth}, and {price}."


def _on_average(expected: Forecast | None) -> str:
    if expected is None or expected.worth is None or expected.worth <= 0:
        return ""
    return f" On average the better answer is worth about {about(expected.worth, expected.price)[0]}."


def _number(compiled: CompiledTree, feature: int, raw: Any) -> float | None:
    try:
        return compiled.encode(feature, raw)
    except Fault:
        return None
