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
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, ItemsView, Iterable, Mapping, Sequence, Set
from operator import add
from typing import Any

from ..costs import shorten
from ..model.fitted import least_of
from ..model.unseen import OnceEach
from .answer import Answer, Event
from .compiled import Classifier, CompiledExpert, CompiledTree, Fault, Step
from .mixture import CompiledMixture, Taken, compile_model
from .sources.extractors import describe

__all__ = ["PREFETCHES", "BadKnownError", "Session"]

PREFETCHES = ("branch", "node")
MUCH = 0.25  # part of the price of a step
NO_MIXTURE = Taken()


class BadKnownError(ValueError):
    """A value that was given as known cannot be used."""


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
        "_bought",
        "_budget",
        "_charges",
        "_coded",
        "_compiled",
        "_error",
        "_evaluated",
        "_events",
        "_expert",
        "_failed",
        "_gone",
        "_held",
        "_is_starting",
        "_known",
        "_leaving",
        "_level",
        "_loss",
        "_losses",
        "_margins",
        "_must_start",
        "_node",
        "_on_its_way",
        "_once",
        "_paid",
        "_part",
        "_path",
        "_prefetch_node",
        "_reason",
        "_status",
        "_step",
        "_strict",
        "_swift",
        "_taken",
        "_terminal",
        "_unseen",
        "_verdict",
        "_walk",
        "_wanted",
        "_wave",
        "_whole",
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
        self._compiled: CompiledTree = compiled
        self._whole = compiled  # the model without outages
        self._gone: frozenset[int] = frozenset()  # features that are not to be had
        self._verdict: tuple[str, str] | None = None  # the status and the reason of an answer by other means
        self._losses: list[str] = []  # why they are not to be had, where that came as a surprise
        self._expert: CompiledExpert | None = None  # by which a row is answered that could not go on
        self._part: tuple[int, ...] | None = None  # what that one is to know, if it is averaged over all else
        self._loss = 0.0  # what it is expected to lose
        self._budget = least_of(budget, compiled.limit)
        self._prefetch_node = prefetch == "node"
        self._paid = 0 if paid == () else compiled.items_named(paid)
        self._bought = 0
        self._evaluated = 0
        self._walk = compiled.plan.start()
        self._known: dict[int, Any] = {}
        self._coded = False  # whether what is known is given as the numbers that the model computes with
        self._held: dict[int, Any] = {}
        self._failed: dict[int, str] = {}
        self._wanted: tuple[int, ...] = ()
        self._on_its_way: tuple[int, ...] = ()  # of a wave in which something failed, and perhaps fetched all the same
        self._must_start = False  # from the root once more
        self._is_starting = False
        self._wave = 0
        self._path: list[int] = []
        self._events: list[Event] = []
        self._status: str | None = None
        self._reason = ""
        self._error: BaseException | None = None
        self._margins: list[float] | None = None
        self._terminal: int | None = None
        self._strict = strict
        self._unseen: dict[str, None] | None = None  # what is to be said of values that training did not see
        self._once = _once  # says it; all rows of a predictor share one
        self.called: set[Any] = set()  # the sources that a predictor has called for this row
        self._level = _level  # the deepest level of nodes that may be entered
        if _after is not None:  # of the same row, on another tree with the same columns and items
            self._paid |= _after._paid | _after._bought
            self._held, self.called = dict(_after._held), set(_after.called)
            for f, raw in _after._known.items():
                self._take_in(f, raw)
        if known is not None:
            self._know(known)
        if _made is not None:
            for f, value in _made.items():
                self._take_in(f, value)
        self._charges = compiled.feature_items if _charges is None else _charges(self._known)
        if unavailable.__class__ is not tuple or unavailable:
            gone = compiled.model.columns_named(unavailable).tolist()
            self._take_out([f for f in gone if f not in self._known])
        if _after is not None:
            _down = _after._gone
        if _down:
            self._take_out([f for f in _down if f not in self._known])
        self._start()

    def _start(self) -> None:
        """From the root."""
        # compiled code goes down the tree by itself, if nothing must be asked at every node
        self._swift = (
            self._compiled.is_native
            and not self._prefetch_node
            and self._level == math.inf
            and (self._budget is None or not self._compiled.evaluation)
        )
        if self._swift:
            self._start_swiftly()
        else:
            self._enter(self._compiled.nodes[0])
            self._advance()

    # -- ask and tell ----------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Whether nothing more will be asked for."""
        return self._status is not None

    @property
    def cost(self) -> float:
        """What has been spent so far."""
        return self._compiled.price_of(self._bought) + self._compiled.evaluation * self._evaluated_so_far()

    def wanted(self) -> list[str]:
        """The features of the next wave; empty when the session is finished."""
        names = self._compiled.feature_names
        return [names[f] for f in self._wanted]

    def wanted_items(self) -> dict[str, float]:
        """The items, with their prices, that the next wave buys."""
        return self._compiled.item_prices(self._items_for(self._wanted))

    def check(self, values: Mapping[str, Any]) -> None:
        """Raise ValueError if a name is unknown or a value is none that `tell` can use."""
        for name, raw in _pairs("values", values):
            try:
                self._encode(self._compiled.feature(name), raw)
            except Fault as fault:
                raise ValueError(str(fault)) from None

    def tell(self, values: Mapping[str, Any], *, source: str | None = None, seconds: float | None = None) -> None:
        """Values of wanted features, all or some of them; further ones are put aside until the path needs them.

        A value that cannot be used (text for a number; in strict mode, what training did not see) is a fault of its
        source: it is charged, and the row goes on without it.  Of a wave in which something failed, the values that
        were fetched at the same time may still be told, and are charged; others are ignored once the session is
        finished.
        """
        got = {self._compiled.feature(name): raw for name, raw in _pairs("values", values)}
        asked = tuple(f for f in dict.fromkeys((*self._wanted, *self._on_its_way)) if f in got)
        if self._status is not None and not asked:
            return
        bad = self.receive(asked, got, source, seconds)
        if bad:
            self.receive_bad(asked, got, bad, source, seconds)
        self._go_on()
        if self._unseen is not None:
            self.warn_of_unseen()

    def fail(self, features: Iterable[str], reason: str, *, charged: bool = True, source: str | None = None) -> None:
        """The source of these wanted features failed; it is charged, unless it was never called.

        The row goes on without it: see `FittedTree.without`.
        """
        if isinstance(features, str):
            raise ValueError(f"features is the text {features!r}; give a list of names: [{features!r}]")
        asked = tuple(self._compiled.feature(name) for name in features)
        wanted = (*self._wanted, *self._on_its_way)
        stray = [self._compiled.feature_names[f] for f in asked if f not in wanted]
        if stray:
            now = f"wanted: {shorten(self.wanted())}" if self._wanted else "the session is finished"
            raise ValueError(f"{shorten(stray)} is not wanted now; {now}")
        self.receive_failure(asked, reason, source, None, charged=charged)
        self._go_on()

    def _go_on(self) -> None:
        """Walk on; what the caller was asked for and has not told may still come, and is paid then."""
        if self._failed:
            known, failed = self._known, self._failed
            asked = dict.fromkeys((*self._wanted, *self._on_its_way))
            self._on_its_way = tuple(f for f in asked if f not in known and f not in failed)
        self.resume()

    def answer(self) -> Answer:
        """The answer; before the session is finished, the best one so far, with the status "stopped"."""
        status, reason = self._status, self._reason
        path, events, known = self._path, self._events, self._known
        if status is None:
            path, events, known = list(path), list(events), dict(known)
            status, reason = "stopped", f"asked for an answer while {shorten(self.wanted())} was wanted"
        rests_on, averaged = self._expert, False
        if self._margins is not None:
            node, margins, evaluated = self._node_of(rests_on), self._margins, self._evaluated
        else:
            node, margins, evaluated, rests_on, averaged = self._fall_back()
        compiled = self._compiled
        value, probabilities = compiled.answer(margins)
        complete = status == "complete"
        answer = Answer(
            value,
            probabilities,
            compiled.price_of(self._bought) + compiled.evaluation * evaluated,
            status,
            reason,
            node,
            self._terminal if complete else None,
            path,
            margins,
            evaluated,
            None,
            self._error,
            compiled,
            self._bought,
            events,
        )
        answer._known, answer._paid = known, self._paid
        if self._taken is not NO_MIXTURE:
            answer.taken = self._taken.why
            answer._first = self._taken.first_node, self._taken.first_terminal
        if not complete:
            self._say_what_it_rests_on(answer, rests_on, averaged or self._part is not None)
        if self._unseen is not None:
            answer.warnings = tuple(self._unseen)
        return answer

    @property
    def warnings(self) -> list[str]:
        """What was taken as missing, though training did not see it so."""
        return list(self._unseen or ())

    def warn_of_unseen(self) -> None:
        """One warning for what nobody was warned of yet: in this session, or by the predictor that it belongs to."""
        if self._once is None:
            self._once = OnceEach()
        self._once(self._unseen or ())

    def stop(self, status: str, reason: str, error: BaseException | None = None) -> None:
        """End the session early."""
        if self._status is None:
            self._status, self._reason, self._error = status, reason, error
            self._wanted = ()

    # -- what the predictor uses; features are column numbers here ---------------------------------------------

    @property
    def feature_names(self) -> list[str]:
        return self._compiled.feature_names

    @property
    def wanted_features(self) -> tuple[int, ...]:
        return self._wanted

    def knows(self, feature: int) -> bool:
        return feature in self._known

    def holds(self, feature: int) -> bool:
        """Whether a value came along that is not bought yet."""
        return feature in self._held

    def is_gone(self, feature: int) -> bool:
        """Whether the row goes on without a feature."""
        return feature in self._gone

    def value_of(self, feature: int) -> Any:
        """The value of a known feature, as it was told."""
        return self._known[feature]

    def receive(
        self, asked: tuple[int, ...], got: dict[int, Any], source: str | None, seconds: float | None
    ) -> dict[int, str] | None:
        """Buy what was asked for, take in its values, and put aside what came along; `got` is the session's then.

        If a value cannot be used, nothing is changed and the reasons are returned.
        """
        compiled, known = self._compiled, self._known
        walk: Any = self._walk
        further = len(got) > len(asked)
        moved = compiled.is_native and walk.fill_floats(asked, got, known, compiled.float_kinds, True)
        if not moved:
            try:
                encoded = [self._encode(f, got[f]) for f in asked]
            except Exception:
                return self._reasons(asked, got)
            for f, value in zip(asked, encoded, strict=True):
                known[f] = got[f]
                walk.fill(f, value)
                if value != value:
                    self._notice(f, got[f])
        if further:
            alone = moved and len(known) == len(asked)  # nothing else was known, so all that is left is new
            came = got if alone else {f: raw for f, raw in got.items() if f not in known}
            if self._held:
                self._held.update(came)
            else:
                self._held = came
        if asked:
            self._buy(asked, source, seconds, "ok")
        return None

    def receive_numbers(self, asked: tuple[int, ...], values: Sequence[float]) -> None:
        """Buy what was asked for, with the numbers that the model computes with, of all features in order."""
        self._coded = True
        for f in asked:
            self._known[f] = values[f]
            self._walk.fill(f, values[f])
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
        self._failed.update(bad)
        for f in asked:
            if f not in bad:
                self._take_in(f, got[f])
        for f, raw in got.items():
            if f not in bad and f not in self._known:
                self._held[f] = raw
        self._buy(asked, source, seconds, "failed: " + "; ".join(bad.values()))

    def _take_in(self, feature: int, raw: Any) -> None:
        value = self._encode(feature, raw)
        self._known[feature] = raw
        self._walk.fill(feature, value)
        if value != value:
            self._notice(feature, raw)

    def _encode(self, feature: int, raw: Any) -> float:
        """The number of a value; `Fault` if it cannot be used."""
        value = self._compiled.encode(feature, raw)
        if value != value and self._strict:
            reason = self._compiled.unseen(feature, raw)
            if reason is not None:
                raise Fault(reason)
        return value

    def _notice(self, feature: int, raw: Any) -> None:
        """A value was taken as missing; the warning comes later, when the session is at rest."""
        reason = self._compiled.unseen(feature, raw)
        if reason is not None:
            self._unseen = {} if self._unseen is None else self._unseen
            self._unseen[reason] = None

    def _reasons(self, asked: Iterable[int], got: Mapping[int, Any]) -> dict[int, str]:
        bad = {}
        for f in asked:
            try:
                self._encode(f, got[f])
            except Exception as error:
                bad[f] = _why(error)
        return bad

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
        self._failed.update(dict.fromkeys(asked, reason))
        self._error = self._error or error
        if charged:
            self._buy(asked, source, seconds, f"failed: {reason}")

    def accept_held(self, features: tuple[int, ...]) -> None:
        """Buy values that came along earlier."""
        bad = []
        for f in features:
            try:
                self._take_in(f, self._held.pop(f))
            except Exception as error:
                self._failed[f] = _why(error)
                bad.append(_why(error))
        self._buy(features, None, None, "failed: " + "; ".join(bad) if bad else "came along")

    def note_failure(self, asked: tuple[int, ...], reason: str, source: str, seconds: float | None) -> None:
        """A call failed and will be repeated: it is charged, and nothing is lost yet."""
        self._buy(asked, source, seconds, f"failed, tried again: {reason}")

    def failure_of(self, feature: int) -> str | None:
        """Why a feature could not be had; None if it was not tried or is known."""
        return self._failed.get(feature)

    def resume(self) -> None:
        """Walk on after values were received."""
        if self._failed:
            self.give_up_if_lost()
        if self._status is None:
            known, failed = self._known, self._failed
            for f in self._wanted:
                if f not in known:
                    if f in failed:
                        continue
                    self._wanted = tuple(g for g in self._wanted if g not in known and g not in failed)
                    return
            self._wanted = ()
            self._advance()

    def give_up_if_lost(self) -> bool:
        """Go on without a feature that the node certainly needs and that cannot be had; whether there is one."""
        failed = self._failed
        if self._status is not None or failed.keys().isdisjoint(self._wanted):
            return False
        needed = self._walk.advance() if self._prefetch_node else self._wanted
        lost = [f for f in needed if f in failed]
        if lost:
            self.lose(lost, "failed", "; ".join(dict.fromkeys(failed[f] for f in lost)))
        return bool(lost)

    def lose(self, features: Iterable[int], status: str, reason: str) -> None:
        """Some features, and what else comes from their source, are not to be had: go on without them."""
        down = {other for f in features for other in self._whole.source_of(f)} | self._failed.keys()
        gone = [f for f in down if f not in self._known]
        if self._gone.issuperset(gone):
            self.stop(status, reason, self._error)
        else:
            if reason not in self._losses:
                self._losses.append(reason)
            self._take_out(gone)
            self._verdict = status, "; ".join(self._losses)
            self._must_start = True
            if not self._is_starting:  # else who is at it begins once more
                self._start_again()

    def _take_out(self, features: Iterable[int]) -> None:
        """From now on the model is the one that does without some features."""
        self._gone = self._gone.union(features)
        self._compiled = self._whole.without(self._gone)
        self._walk = self._compiled.plan.start()
        for f, value in self._numbers().items():
            self._walk.fill(f, value)

    def _numbers(self) -> dict[int, float]:
        """What is known, as the model computes with it."""
        return self._known if self._coded else {f: self._compiled.encode(f, raw) for f, raw in self._known.items()}

    def _start_again(self) -> None:
        """Go down from the root with all that is known, as often as something more is lost on the way."""
        self._is_starting = True
        try:
            while self._must_start:
                self._must_start = False
                before, self._events = self._events, []
                self._path, self._wanted, self._evaluated = [], (), 0
                self._expert = self._terminal = self._part = None
                self._start()
                self._events = before + _new_events(before, self._events)
        finally:
            self._is_starting = False

    def go_to(self, level: float) -> None:
        """Allow nodes down to this level to be entered."""
        self._level = level
        if self._status is None and not self._wanted:
            self._advance()

    # -- the state machine -------------------------------------------------------------------------------------

    def _know(self, known: Mapping[str, Any]) -> None:
        for name, raw in _pairs("known", known):
            try:
                self._take_in(self._compiled.feature(name), raw)
            except Fault as fault:
                raise BadKnownError(f"known: {fault}") from None
        if self._unseen is not None:
            self.warn_of_unseen()

    def _enter(self, node: Classifier) -> None:
        self._node = node
        self._path.append(node.number)
        if node.route is None:
            self._begin(node.leave, leaving=True)
        else:
            self._begin(node.route, leaving=False)

    def _begin(self, step: Step, *, leaving: bool) -> None:
        self._take_up(step, step.size, leaving=leaving)
        if self._budget is not None and self._cost_with(0) > self._budget:
            self._spend_the_rest(self._over_budget(0))

    def _take_up(self, step: Step, n_new: int, *, leaving: bool) -> None:
        self._step = step
        self._leaving = leaving
        self._walk.begin(step.learners)
        self._evaluated += n_new

    def _spend_the_rest(self, reason: str) -> None:
        """The budget does not reach to go on: turn to what loses least of all that it reaches for."""
        assert self._budget is not None
        reason = "; ".join([*self._losses, reason])
        evaluated, known = self._evaluated_so_far(), self._known
        for loss, expert, part in self._compiled.options_at(self._node.number) if self._expert is None else ():
            items = self._items_for(f for f in (expert.step.features if part is None else part) if f not in known)
            n_new = self._n_new(expert)
            if self._cost_with(items, evaluated + n_new) <= self._budget:
                self._expert, self._verdict, self._swift = expert, ("budget", reason), False
                self._loss, self._part, self._evaluated = loss, part, evaluated
                if part is None:
                    self._take_up(expert.step, n_new, leaving=True)
                    self._walk.advance()  # past all that is evaluated already
                else:
                    self._walk.begin(self._compiled.nothing)
                    self._evaluated += n_new
                self._advance()
                return
        self.stop("budget", reason)

    def _n_new(self, expert: CompiledExpert) -> int:
        """How many learners of an expert are still to be paid; nobody counts where they cost nothing."""
        compiled, step = self._compiled, expert.step
        if not compiled.evaluation:
            return step.size
        node = self._node
        leaving = node.route is None or self._terminal is not None
        begun = [node.leave if leaving or node.route is None else node.route]
        if self._expert is not None:
            begun.append(self._expert.step)
        elif self._walk.pending == begun[0].size:
            begun = []
        gates = self._path if leaving else self._path[:-1]
        return compiled.n_new(step, gates, begun, self._numbers())

    def _start_swiftly(self) -> None:
        root = self._compiled.nodes[0]
        self._node = root
        self._path.append(0)
        first = (root.route or root.leave).first
        if self._known or not first or self._prepare(first):
            self._advance_swiftly()  # otherwise no learner gets past its root, so there is nothing to walk yet

    def _advance_swiftly(self) -> None:
        """The same as `_advance`, in one step for each wave that must be waited for."""
        walk: Any = self._walk
        while self._status is None:
            free = self._budget is None and not self._failed  # to buy what comes along without asking
            found = self._go_buying(walk) if free and self._held else walk.go(self._events, self._path)
            if found.__class__ is list:
                self._look_where(walk)
                self._arrive(found)
                return
            elif not (free and self._held and self._buy_swiftly(walk, found)):
                self._look_where(walk)
                if not self._prepare(found):
                    return
        self._look_where(walk)

    def _arrive(self, margins: list[float]) -> None:
        """The answer is there: that of the path, or one by other means."""
        self._margins = margins
        verdict = self._verdict
        if verdict is None and self._gone and self._whole.asks(self._node.number, self._gone):
            verdict = "unavailable", f"{self._whole.describe(self._gone)} unavailable"
        self._status, self._reason = ("complete", "") if verdict is None else verdict

    def _go_buying(self, walk: Any) -> Any:
        """Go on, and where all that a node may look at is at hand, buy of it what it needs."""
        bill = [self._wave, self._paid, self._bought]
        kinds = self._compiled.float_kinds
        try:
            return walk.go_buying(self._events, self._path, self._known, self._held, kinds, self._charges, bill)
        finally:  # whatever interrupts this: what is bought is paid
            self._wave, self._paid, self._bought = bill

    def _buy_swiftly(self, walk: Any, found: tuple[int, ...]) -> bool:
        """Buy a wave that came along, if all of it did and nothing of it must be encoded; whether that was so."""
        if not walk.fill_floats(found, self._held, self._known, self._compiled.float_kinds, True):
            return False
        self._wave += 1
        items = self._items_for(found)
        self._paid |= items
        self._bought |= items
        self._events.append(("bought", walk.node, self._wave, found, items, None, None, "came along"))
        return True

    def _look_where(self, walk: Any) -> None:
        self._node = self._compiled.nodes[walk.node]
        self._evaluated = walk.evaluated
        if walk.terminal >= 0:
            self._terminal = walk.terminal

    def _advance(self) -> None:
        """Walk until features are wanted, the level is left, or the answer is there."""
        if self._swift:
            self._advance_swiftly()
            return
        if self._part is not None:
            self._answer_in_part(self._part)
            return
        while self._status is None:
            if self._node.depth > self._level:
                return
            features = self._missing_at_node() if self._prefetch_node else ()
            if not features and self._walk.pending:
                features = self._missing_on_branches()
            if features and not self._prepare(features):
                return
            if not features:
                self._decide()

    def _answer_in_part(self, part: tuple[int, ...]) -> None:
        """Spend the rest of the budget; then the expert says what it can, averaged over what is not known."""
        assert self._expert is not None
        while self._status is None:
            missing = tuple(f for f in part if f not in self._known)
            if not missing:
                self._arrive(self._compiled.averaged(self._expert.number, self._numbers()))
            elif not self._prepare(missing):
                return

    def _missing_on_branches(self) -> tuple[int, ...]:
        """Send the row through the learners of this step as far as it gets; the features that are missing."""
        step = self._step
        if step.first and self._walk.pending == step.size and self._known.keys().isdisjoint(step.first):
            return step.first  # nothing of it is known: no learner gets past its root
        return tuple(self._walk.advance())

    def _missing_at_node(self) -> tuple[int, ...]:
        known, failed = self._known, self._failed
        return tuple(f for f in self._step.features if f not in known and f not in failed)

    def _prepare(self, features: tuple[int, ...]) -> bool:
        """Make a wave of what is missing; true if the walk can go on without one."""
        if self._failed:
            lost = [f for f in features if f in self._failed]
            if lost:
                self.lose(lost, "failed", "; ".join(dict.fromkeys(self._failed[f] for f in lost)))
                return False
        if self._budget is not None:
            items = self._items_for(features)
            if self._cost_with(items) > self._budget or self._must_not_begin(items):
                self._spend_the_rest(self._over_budget(items))
                return False
        self._wave += 1
        if self._held:
            came = tuple(f for f in features if f in self._held)
            if came:
                self.accept_held(came)
                return True
        self._wanted = features
        return False

    def _must_not_begin(self, items: int) -> bool:
        """Whether a wave would eat much of what its step may need, and the rest of that is beyond the budget.

        Then the step could hardly be completed, and the money is missing for experts that are within reach.
        """
        if self._budget is None or self._expert is not None or self._compiled.model.estimates is None:
            return False
        node = self._node
        step = node.leave if node.route is None or self._terminal is not None else node.route
        whole = items | self._items_for(f for f in step.features if f not in self._known)
        price_of = self._compiled.price_of
        return self._cost_with(whole) > self._budget and price_of(items) >= MUCH * price_of(whole)

    def _decide(self) -> None:
        """All learners of the step are evaluated: predict, or choose the way."""
        node = self._node
        if self._leaving:
            by = node if self._expert is None else self._expert
            if self._terminal is None:
                self._terminal = -1 - node.upper
            self._arrive(list(map(add, self._walk.sums(by.weights), by.intercepts)))
            return
        margin = self._walk.sums(node.route_weights)[0]
        child = node.upper if margin > node.threshold else node.lower
        self._events.append(("gate", node.number, margin, node.threshold, child))
        if child >= 0:
            self._enter(self._compiled.nodes[child])
        else:
            self._terminal = -1 - child
            self._begin(node.leave, leaving=True)

    # -- the bill ----------------------------------------------------------------------------------------------

    def _items_for(self, features: Iterable[int]) -> int:
        """Items that these features require and that are not paid yet."""
        items = 0
        charges = self._charges
        for f in features:
            items |= charges[f]
        return items & ~self._paid

    def _buy(self, features: tuple[int, ...], source: str | None, seconds: float | None, outcome: str) -> None:
        items = self._items_for(features)
        self._paid |= items
        self._bought |= items
        self._events.append(("bought", self._node.number, self._wave, features, items, source, seconds, outcome))

    def _cost_with(self, items: int, n_evaluated: int | None = None) -> float:
        """The cost once these items, and what is on its way, are bought and the learners that wait are evaluated."""
        compiled = self._compiled
        if self._on_its_way:
            items |= self._items_for(self._on_its_way)
        n_evaluated = self._evaluated if n_evaluated is None else n_evaluated
        return compiled.price_of(self._bought | items) + compiled.evaluation * n_evaluated

    def _evaluated_so_far(self) -> int:
        return self._evaluated - (0 if self._margins is not None else self._walk.pending)

    def _over_budget(self, items: int) -> str:
        names = [self._compiled.item_names[r] for r in range(len(self._compiled.prices)) if items >> r & 1]
        wanted = shorten(names) if names else "the next weak learners"
        return f"with {wanted} the cost would be {self._cost_with(items):g}, above the budget of {self._budget:g}"

    # -- early answers -----------------------------------------------------------------------------------------

    def _fall_back(self) -> tuple[int, list[float], int, CompiledExpert | None, bool]:
        """An answer from what is bought: its node, its margins, the learners evaluated, its expert, whether averaged.

        The best expert that needs nothing else; where nothing is known of experts, the last node on the path that needs
        nothing else; else that of the node, averaged over what is missing; else the constant.
        """
        compiled, here = self._compiled, self._node.number
        if self._held and self._status != "budget":  # what a budget answers is the same whatever sources bring along
            free = tuple(f for f in self._held if f not in self._gone and not self._items_for((f,)))
            if free:
                self.accept_held(free)
        evaluated = self._evaluated_so_far()
        experts = compiled.experts_at(here)
        if not experts:
            experts = [compiled.experts[number] for number in reversed(self._path)]
        for expert in experts:
            found = self._walk.try_sums(expert.step.learners, expert.weights)
            if found is None:
                continue
            new, sums = found
            if new and not self._can_evaluate(evaluated + new):
                continue
            return self._node_of(expert), list(map(add, sums, expert.intercepts)), evaluated + new, expert, False
        own = compiled.experts[here]
        total = evaluated + self._n_new(own)
        if not own.features.isdisjoint(self._known) and self._can_evaluate(total):
            return here, compiled.averaged(here, self._numbers()), total, own, True
        return -1, list(compiled.constant), evaluated, None, True

    def _node_of(self, expert: CompiledExpert | None) -> int:
        """The node whose prediction an answer is called: that of its expert, if the row came through it."""
        return self._node.number if expert is None or expert.number not in self._path else expert.number

    def _can_evaluate(self, n_learners: int) -> bool:
        return self._budget is None or self._cost_with(0, n_learners) <= self._budget

    def _say_what_it_rests_on(self, answer: Answer, expert: CompiledExpert | None, averaged: bool) -> None:
        """On how many of the features that its node counts on the answer rests, and what is lost by that."""
        here = self._node.number
        if expert is None and self._margins is not None:
            expert = self._compiled.experts[here]
        seen: Set[int] = frozenset() if expert is None else expert.features
        if averaged:
            seen = seen & self._known.keys()
        planned = self._whole.experts[here].features
        why = {"deadline": "the deadline came", "stopped": "it was stopped"}.get(answer.status)
        if answer.status == "budget":
            why = f"the budget of {self._budget:g} does not reach further"
        gone = [f for f in self._gone if self._whole.asks(here, (f,))] or self._gone
        if self._gone:
            is_failure = not self._gone.isdisjoint(self._failed)
            outage = f"{self._whole.describe(gone)} {'failed' if is_failure else 'unavailable'}"
            why = outage if why is None else f"{outage}, {why}"
        answer.basis = f"{len(seen)} of {len(planned | seen)} features: {why or answer.reason}"
        if averaged and self._part is None:
            answer.expected_loss = None
        elif expert is not None:
            loss = self._compiled.loss_of(here, expert.number) if self._part is None else self._loss
            answer.expected_loss = self._compiled.shortfall(here, loss)
        else:
            answer.expected_loss = None


def _pairs(what: str, values: Any) -> ItemsView[str, Any]:
    """The entries of a mapping, or of what has them in the same way, such as a pandas Series."""
    items = getattr(values, "items", None)
    if not callable(items) or isinstance(values, type):
        raise TypeError(
            f"{what} is a {type(values).__name__}; it must be a mapping of feature names to values: {{'age': 61.0}}"
        )
    return items()


def _new_events(before: list[Event], events: list[Event]) -> list[Event]:
    """What happened on a second way down; gates that the row passed in the same way before are left out."""
    passed = [(event[1], event[-1]) for event in before if event[0] == "gate"]
    new, n_same = [], 0
    for event in events:
        if event[0] == "gate" and n_same < len(passed) and (event[1], event[-1]) == passed[n_same]:
            n_same += 1
        else:
            new.append(event)
    return new


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, Fault) else describe(error)
