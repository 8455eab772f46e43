"""One row on its way through the tree: what is wanted next, what it costs, and the answer at any time.

A session is a state machine without input or output.  It walks as far as the known features allow and then says
what is certainly needed next: the features of all splits at which the learners of the current node have stopped.
That is a **wave**.  Told their values, it walks on.  A row that is served in this way pays exactly
``predict_cost(counting="branch")``, and with ``prefetch="node"``, where a wave is all that the learners of a node
may look at, ``counting="learner"``.

The bill.  Asking for a feature buys all items that it requires and that are not paid yet.  A value that came along
unasked is put aside; when the path needs it, its items are bought then and no source is called.  A wave is bought
as a whole or not at all: if it does not fit into the budget, together with the evaluation of the learners that wait
for it, nothing of it could complete the node.

The state has four parts: where the row is in the tree (`way`), what is known of it (`values`), what it has paid
(`bill`), and what is not to be had (`outages`).  Here they are put together: what happens when values come, when a
source fails, and when the budget does not reach, for which `early` has the answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ..costs import shorten
from ..model.unseen import OnceEach
from . import early
from .answer import Answer
from .bill import Bill
from .compiled import CompiledTree, Fault
from .mixture import CompiledMixture, Taken, compile_model
from .outages import Outages
from .values import Values, pairs
from .way import Way, new_events

__all__ = ["PREFETCHES", "Session"]

PREFETCHES = ("branch", "node")
NO_MIXTURE = Taken()


class Session:
    """Ask and tell: the caller fetches, the session says what and answers.

    Parameters
    ----------
    model : fitted estimator, FittedTree or Mixture
    known : mapping of str to value, optional
        Features at hand; they cost nothing.  An item that they share with other features is not paid by that.
    paid : iterable of str, optional
        Items that are already paid for; they are free.
    budget : float or None, default=None
        The cost is never above this, nor above the limit of the model.
    prefetch : {"branch", "node"}, default="branch"
        Ask for what is certainly needed next, or for all that the node may need: fewer waits, a higher price.
    unavailable : iterable of str, optional
        Sources, items or features that are known to be down: nothing of them is asked for, and nothing paid.
    id : str or number, optional
        What tells this row from others.  Where the model is a `cstc.Mixture`, it decides which of its two models
        answers; without an id that goes by a running number.
    strict : bool, default=False
        A missing value in a column that had none in training, and an unknown category, are faults; otherwise they are
        taken as missing, with a warning.

    Examples
    --------
    >>> from cstc import CSTCRegressor
    >>> from cstc.datasets import QUADRANT_COSTS, make_quadrants
    >>> from cstc.serving import Session
    >>> X, y = make_quadrants(500, random_state=0)
    >>> model = CSTCRegressor(costs=QUADRANT_COSTS, cost_weight=0.03, weak_learners="identity", random_state=0)
    >>> session = Session(model.fit(X, y), known={"x0": X[0, 0]})
    >>> while wanted := session.wanted():
    ...     session.tell({name: X[0, int(name[1:])] for name in wanted})
    >>> answer = session.answer()
    >>> answer.status, bool(abs(answer.value - model.predict(X[:1])[0]) < 1e-9)
    ('complete', True)
    """

    __slots__ = (
        *("_bill", "_error", "_is_starting", "_level", "_must_start", "_outages", "_prefetch_node", "_reason"),
        *("_status", "_swift", "_taken", "_values", "_verdict", "_wanted", "_wave", "_way"),
        "called",
        "number",  # of the row among many that were handed in together, and set only there
    )
    number: int

    def __init__(
        self,
        model: Any,
        *,
        known: Mapping[str, Any] | None = None,
        paid: Iterable[str] = (),
        budget: float | None = None,
        prefetch: str = "branch",
        unavailable: Iterable[str] = (),
        id: Any = None,
        strict: bool = False,
        _charges: Callable[[Collection[int]], Sequence[int]] | None = None,
        _level: float = math.inf,
        _once: OnceEach | None = None,
        _after: Session | None = None,
        _down: Iterable[int] = (),
        _made: Mapping[int, float] | None = None,
    ) -> None:
        compiled: Any = model if model.__class__ is CompiledTree else compile_model(model)
        self._taken = NO_MIXTURE
        if compiled.__class__ is CompiledMixture:
            compiled, self._taken = compiled.take(id)
        if prefetch not in PREFETCHES:
            raise ValueError(f"prefetch is {prefetch!r}; it must be one of {PREFETCHES}")
        self._prefetch_node = prefetch == "node"
        self._bill = Bill(compiled, paid, budget)
        walk = compiled.plan.start()
        self._values = Values(compiled, walk, strict, _once)
        self._way = Way(compiled, walk)
        self._outages = Outages(compiled)
        self._level = _level  # the deepest level of nodes that may be entered
        self._wanted: tuple[int, ...] = ()
        self._wave = 0
        self._must_start = False  # from the root once more
        self._is_starting = False
        self._verdict: tuple[str, str] | None = None  # the status and the reason of an answer by other means
        self._status: str | None = None
        self._reason = ""
        self._error: BaseException | None = None
        self.called: set[Any] = set()  # the sources that a predictor has called for this row
        if _after is not None:  # of the same row, on another tree with the same columns and items
            self._bill.paid |= _after._bill.paid
            self.called = set(_after.called)
            self._values.take_over(_after._values)
        if known is not None:
            self._values.know(known)
        if _made is not None:
            for f, value in _made.items():
                self._values.take_in(f, value)
        if _charges is not None:
            self._bill.charges = _charges(self._values.known)
        if unavailable.__class__ is not tuple or unavailable:
            self._take_out(compiled.model.columns_named(unavailable).tolist())
        if _after is not None:
            _down = _after._outages.gone
        if _down:
            self._take_out(_down)
        self._start()

    # -- ask and tell ------------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Whether nothing more will be asked for."""
        return self._status is not None

    @property
    def cost(self) -> float:
        """What has been spent so far."""
        return self._bill.cost(self._way.evaluated_so_far())

    def wanted(self) -> list[str]:
        """The features of the next wave; empty when the session is finished."""
        names = self.feature_names
        return [names[f] for f in self._wanted]

    def wanted_items(self) -> dict[str, float]:
        """The items, with their prices, that the next wave buys."""
        return self._way.compiled.item_prices(self._bill.items_for(self._wanted))

    def check(self, values: Mapping[str, Any]) -> None:
        """Raise ValueError if a name is unknown or a value is none that `tell` can use."""
        for name, raw in pairs("values", values):
            try:
                self._values.encode(self._way.compiled.feature(name), raw)
            except Fault as fault:
                raise ValueError(str(fault)) from None

    def tell(self, values: Mapping[str, Any], *, source: str | None = None, seconds: float | None = None) -> None:
        """Values of wanted features, all or some of them; further ones are put aside until the path needs them.

        A value that cannot be used (text for a number; in strict mode, what training did not see) is a fault of its
        source: it is charged, and the row goes on without it.  Of a wave in which something failed, the values that
        were fetched at the same time may still be told, and are charged; others are ignored once the session is
        finished.
        """
        got = {self._way.compiled.feature(name): raw for name, raw in pairs("values", values)}
        asked = tuple(f for f in dict.fromkeys((*self._wanted, *self._bill.on_its_way)) if f in got)
        if self._status is not None and not asked:
            return
        bad = self.receive(asked, got, source, seconds)
        if bad:
            self.receive_bad(asked, got, bad, source, seconds)
        self._go_on()
        if self._values.unseen is not None:
            self.warn_of_unseen()

    def fail(self, features: Iterable[str], reason: str, *, charged: bool = True, source: str | None = None) -> None:
        """The source of these wanted features failed; it is charged, unless it was never called.

        The row goes on without it: see `FittedTree.without`.
        """
        if isinstance(features, str):
            raise ValueError(f"features is the text {features!r}; give a list of names: [{features!r}]")
        asked = tuple(self._way.compiled.feature(name) for name in features)
        wanted = (*self._wanted, *self._bill.on_its_way)
        stray = [self.feature_names[f] for f in asked if f not in wanted]
        if stray:
            now = f"wanted: {shorten(self.wanted())}" if self._wanted else "the session is finished"
            raise ValueError(f"{shorten(stray)} is not wanted now; {now}")
        self.receive_failure(asked, reason, source, None, charged=charged)
        self._go_on()

    def _go_on(self) -> None:
        """Walk on; what the caller was asked for and has not told may still come, and is paid then."""
        if self._outages.failed:
            known, failed = self._values.known, self._outages.failed
            asked = dict.fromkeys((*self._wanted, *self._bill.on_its_way))
            self._bill.on_its_way = tuple(f for f in asked if f not in known and f not in failed)
        self.resume()

    @property
    def reached(self) -> int | None:
        """The terminal at the end of its way, also where values were averaged on it; None if it did not come there."""
        return self._way.terminal

    def answer(self) -> Answer:
        """The answer; before the session is finished, the best one so far, with the status "stopped"."""
        way, bill, values = self._way, self._bill, self._values
        status, reason = self._status, self._reason
        path, events, known = way.path, way.events, values.known
        if status is None:
            path, events, known = list(path), list(events), dict(known)
            status, reason = "stopped", f"asked for an answer while {shorten(self.wanted())} was wanted"
        node, margins, evaluated, terminal = way.node.number, way.margins, way.evaluated, way.terminal
        other = None
        if margins is None or status != "complete":  # there is no end yet, or another one than was planned
            other, terminal = self._other_answer(), None
            node, margins, evaluated = other.node, other.margins, other.evaluated
        value, probabilities = way.compiled.answer(margins)
        answer = Answer(
            value,
            probabilities,
            bill.cost(evaluated),
            status,
            reason,
            node,
            terminal,
            path,
            margins,
            evaluated,
            None,
            self._error,
            way.compiled,
            bill.bought,
            events,
        )
        answer._known, answer._paid = known, bill.paid
        if self._taken is not NO_MIXTURE:
            answer.taken = self._taken.why
            answer._first = self._taken.first_node, self._taken.first_terminal
        if other is not None:
            answer.basis = early.basis_of(other, status, reason, way, values, bill, self._outages)
            answer.expected_loss = early.loss_of(other, way)
        if values.unseen is not None:
            answer.warnings = tuple(values.unseen)
        return answer

    def _other_answer(self) -> early.Early:
        """For a row that did not come to the end that was planned for it."""
        if self._way.margins is not None:
            return early.at_its_end(self._way)
        held = self._values.held
        if held and self._status != "budget":  # what a budget answers is the same whatever sources bring along
            gone = self._outages.gone
            free = tuple(f for f in held if f not in gone and not self._bill.items_for((f,)))
            if free:
                self.accept_held(free)
        return early.from_what_is_bought(self._way, self._values, self._bill)

    @property
    def warnings(self) -> list[str]:
        """What was taken as missing, though training did not see it so."""
        return list(self._values.unseen or ())

    def warn_of_unseen(self) -> None:
        """One warning for what nobody was warned of yet: in this session, or by the predictor that it belongs to."""
        self._values.warn_of_unseen()

    def stop(self, status: str, reason: str, error: BaseException | None = None) -> None:
        """End the session early."""
        if self._status is None:
            self._status, self._reason, self._error = status, reason, error
            self._wanted = ()

    # -- what the predictor uses; features are column numbers here ---------------------------------------------

    @property
    def feature_names(self) -> list[str]:
        return self._way.compiled.feature_names

    @property
    def wanted_features(self) -> tuple[int, ...]:
        return self._wanted

    def knows(self, feature: int) -> bool:
        return feature in self._values.known

    def holds(self, feature: int) -> bool:
        """Whether a value came along that is not bought yet."""
        return feature in self._values.held

    def is_gone(self, feature: int) -> bool:
        """Whether the row goes on without a feature."""
        return feature in self._outages.gone

    def failure_of(self, feature: int) -> str | None:
        """Why a feature could not be had; None if it was not tried or is known."""
        return self._outages.failed.get(feature)

    def value_of(self, feature: int) -> Any:
        """The value of a known feature, as it was told."""
        return self._values.known[feature]

    def receive(
        self, asked: tuple[int, ...], got: dict[int, Any], source: str | None, seconds: float | None
    ) -> dict[int, str] | None:
        """Buy what was asked for, take in its values, and put aside what came along; `got` is the session's then.

        If a value cannot be used, nothing is changed and the reasons are returned.
        """
        bad = self._values.receive(asked, got)
        if bad is None and asked:
            self._buy(asked, source, seconds, "ok")
        return bad

    def receive_numbers(self, asked: tuple[int, ...], values: Sequence[float]) -> None:
        """Buy what was asked for, with the numbers that the model computes with, of all features in order."""
        self._values.receive_numbers(asked, values)
        self._buy(asked, None, None, "ok")

    def receive_bad(
        self,
        asked: tuple[int, ...],
        got: Mapping[int, Any],
        bad: Mapping[int, str],
        source: str | None,
        seconds: float | None,
    ) -> None:
        """Values of which some cannot be used, for the reasons in `bad`; all are charged."""
        self._outages.failed.update(bad)
        self._values.receive_without(bad, asked, got)
        self._buy(asked, source, seconds, "failed: " + "; ".join(bad.values()))

    def receive_failure(
        self,
        asked: tuple[int, ...],
        reason: str,
        source: str | None,
        seconds: float | None,
        *,
        charged: bool = True,
        error: BaseException | None = None,
    ) -> None:
        """A source failed; a call that was made is charged."""
        self._outages.failed.update(dict.fromkeys(asked, reason))
        self._error = self._error or error
        if charged:
            self._buy(asked, source, seconds, f"failed: {reason}")

    def note_failure(self, asked: tuple[int, ...], reason: str, source: str, seconds: float | None) -> None:
        """A call failed and will be repeated: it is charged, and nothing is lost yet."""
        self._buy(asked, source, seconds, f"failed, tried again: {reason}")

    def accept_held(self, features: tuple[int, ...]) -> None:
        """Buy values that came along earlier."""
        bad = self._values.accept_held(features)
        self._outages.failed.update(bad)
        self._buy(features, None, None, "failed: " + "; ".join(bad.values()) if bad else "came along")

    def _buy(self, features: tuple[int, ...], source: str | None, seconds: float | None, outcome: str) -> None:
        items, way = self._bill.buy(features), self._way
        way.events.append(("bought", way.node.number, self._wave, features, items, source, seconds, outcome))

    def resume(self) -> None:
        """Walk on after values were received."""
        if self._outages.failed:
            self.give_up_if_lost()
        if self._status is None:
            known, failed = self._values.known, self._outages.failed
            for f in self._wanted:
                if f not in known:
                    if f in failed:
                        continue
                    self._wanted = tuple(g for g in self._wanted if g not in known and g not in failed)
                    return
            self._wanted = ()
            self._advance()

    def go_to(self, level: float) -> None:
        """Allow nodes down to this level to be entered."""
        self._level = level
        if self._status is None and not self._wanted:
            self._advance()

    # -- going on without what is lost -------------------------------------------------------------------------

    def give_up_if_lost(self) -> bool:
        """Go on without a feature that the node certainly needs and that cannot be had; whether there is one."""
        failed = self._outages.failed
        if self._status is not None or failed.keys().isdisjoint(self._wanted):
            return False
        needed = self._way.walk.advance() if self._prefetch_node else self._wanted
        return self._lose_failed(needed)

    def _lose_failed(self, needed: Iterable[int]) -> bool:
        """Go on without what failed of some features; whether there is any."""
        lost = [f for f in needed if f in self._outages.failed]
        if lost:
            self.lose(lost, "failed", self._outages.why_failed(lost))
        return bool(lost)

    def lose(self, features: Iterable[int], status: str, reason: str) -> None:
        """Some features, and what else comes from their source, are not to be had: go on without them."""
        outages = self._outages
        gone = outages.lost_with(features, self._values.known)
        if outages.gone.issuperset(gone):
            self.stop(status, reason, self._error)
        else:
            if reason not in outages.losses:
                outages.losses.append(reason)
            self._take_out(gone)
            self._verdict = status, "; ".join(outages.losses)
            self._must_start = True
            if not self._is_starting:  # else who is at it begins once more
                self._start_again()

    def _take_out(self, features: Iterable[int]) -> None:
        """From now on the model is the one that does without some features, unless they are known."""
        known = self._values.known
        compiled = self._outages.take_out(f for f in features if f not in known)
        walk = compiled.plan.start()
        self._values.move_to(compiled, walk)
        self._way.change(compiled, walk)

    def _start_again(self) -> None:
        """Go down from the root with all that is known, as often as something more is lost on the way."""
        way = self._way
        self._is_starting = True
        try:
            while self._must_start:
                self._must_start = False
                before = way.back_to_the_root()
                self._wanted = ()
                self._start()
                way.events = before + new_events(before, way.events)
        finally:
            self._is_starting = False

    # -- down the tree -----------------------------------------------------------------------------------------

    def _start(self) -> None:
        """From the root."""
        way = self._way
        # compiled code goes down the tree by itself, if nothing must be asked at every node
        self._swift = (
            way.compiled.is_native
            and not self._prefetch_node
            and self._level == math.inf
            and (self._bill.budget is None or not way.compiled.evaluation)
        )
        if not self._swift:
            way.begin()
            if self._can_evaluate():
                self._advance()
            return
        first = way.begin_swiftly()
        if self._values.known or not first or self._prepare(first):
            self._advance_swiftly()  # otherwise no learner gets past its root, so there is nothing to walk yet

    def _advance(self) -> None:
        """Walk until features are wanted, the level is left, or the answer is there."""
        if self._swift:
            self._advance_swiftly()
            return
        way, known = self._way, self._values.known
        if way.is_in_part:
            self._answer_in_part()
            return
        while self._status is None:
            if way.node.depth > self._level:
                return
            features = self._missing_at_node() if self._prefetch_node else ()
            if not features and way.walk.pending:
                features = way.missing_on_branches(known)
            if features and not self._prepare(features):
                return
            if not features:
                way.decide()
                if way.margins is not None:
                    self._arrive()
                elif not self._can_evaluate():
                    return

    def _missing_at_node(self) -> tuple[int, ...]:
        known, failed = self._values.known, self._outages.failed
        return tuple(f for f in self._way.step.features if f not in known and f not in failed)

    def _advance_swiftly(self) -> None:
        """The same as `_advance`, in one step for each wave that must be waited for."""
        way, values = self._way, self._values
        while self._status is None:
            # to buy what comes along without asking
            free = bool(values.held) and self._bill.budget is None and not self._outages.failed
            found = self._go_buying() if free else way.walk.go(way.events, way.path)
            if found.__class__ is list:
                way.look_where()
                way.margins = found
                self._arrive()
                return
            if not (free and values.held and self._buy_swiftly(found)):
                way.look_where()
                if not self._prepare(found):
                    return
        way.look_where()

    def _go_buying(self) -> Any:
        """Go on, and where all that a node may look at is at hand, buy of it what it needs."""
        way, values, bill = self._way, self._values, self._bill
        sums = [self._wave, bill.paid, bill.bought]
        kinds = way.compiled.float_kinds
        try:
            return way.walk.go_buying(way.events, way.path, values.known, values.held, kinds, bill.charges, sums)
        finally:  # whatever interrupts this: what is bought is paid
            self._wave, bill.paid, bill.bought = sums

    def _buy_swiftly(self, found: tuple[int, ...]) -> bool:
        """Buy a wave that came along, if all of it did and nothing of it must be encoded; whether that was so."""
        way, values = self._way, self._values
        walk = way.walk
        if not walk.fill_floats(found, values.held, values.known, way.compiled.float_kinds, True):
            return False
        self._wave += 1
        items = self._bill.buy(found)
        way.events.append(("bought", walk.node, self._wave, found, items, None, None, "came along"))
        return True

    def _prepare(self, features: tuple[int, ...]) -> bool:
        """Make a wave of what is missing; true if the walk can go on without one."""
        if self._outages.failed and self._lose_failed(features):
            return False
        bill, values = self._bill, self._values
        if bill.budget is not None:
            items, way = bill.items_for(features), self._way
            if not bill.reaches(items, way.evaluated) or early.eats_what_experts_need(items, way, values, bill):
                self._spend_the_rest(bill.over_budget(items, way.evaluated))
                return False
        self._wave += 1
        if values.held:
            came = tuple(f for f in features if f in values.held)
            if came:
                self.accept_held(came)
                return True
        self._wanted = features
        return False

    def _can_evaluate(self) -> bool:
        """Whether the budget reaches for the learners of a step that was taken up; if not, the rest of it is spent."""
        bill, evaluated = self._bill, self._way.evaluated
        if bill.budget is None or bill.reaches(0, evaluated):
            return True
        self._spend_the_rest(bill.over_budget(0, evaluated))
        return False

    def _spend_the_rest(self, reason: str) -> None:
        """The budget does not reach to go on: turn to what loses least of all that it reaches for."""
        reason = "; ".join([*self._outages.losses, reason])
        found = early.within_reach(self._way, self._values, self._bill)
        if found is None:
            self.stop("budget", reason)
        else:
            self._verdict, self._swift = ("budget", reason), False
            self._way.turn_to(*found)
            self._advance()

    def _answer_in_part(self) -> None:
        """Spend the rest of the budget; then the expert says what it can, averaged over what is not known."""
        way, values = self._way, self._values
        assert way.instead is not None
        assert way.instead.part is not None
        while self._status is None:
            missing = tuple(f for f in way.instead.part if f not in values.known)
            if not missing:
                way.margins = way.compiled.averaged(way.instead.expert.number, values.numbers())
                self._arrive()
            elif not self._prepare(missing):
                return

    def _arrive(self) -> None:
        """The answer is there: that of the path, or one by other means."""
        verdict, outages = self._verdict, self._outages
        if verdict is None and outages.are_felt_at(self._way.node.number):
            verdict = "unavailable", outages.describe()
        self._status, self._reason = ("complete", "") if verdict is None else verdict
