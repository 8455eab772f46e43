"""Predictions on demand: fetch what a row's path needs, when it needs it, and answer whatever happens.

The predictor opens sessions, has them driven to their ends (`driver`), and counts what came of them, whatever ends a
call: an answer, an error in strict mode, or an interrupt.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from time import perf_counter
from typing import Any

from ..model.qids import query_numbers
from ..model.queries import QueryTree
from ..model.unseen import OnceEach
from .answer import Answer
from .counters import Counters
from .driver import Driver, end_of
from .mixture import compile_model, id_of
from .queries import QueryServing, refuse_rows
from .session import PREFETCHES, Session
from .sources.calls import Caller
from .sources.extractors import Extractor, as_seconds, bind, check_extractors, describe
from .sources.planning import Planner
from .sources.workers import Closed

__all__ = ["OnDemandPredictor"]

FEW_ROWS = 16  # so many are computed on the event loop itself: they take no longer than a thread does to begin


class OnDemandPredictor:
    """Predict with features that are fetched, and paid for, only when the path of a row needs them.

    An answer always comes, and `Answer.status` says how.  When a source fails, the row goes on without it: splits on
    what is lost are averaged over both sides, and experts that need it give way to the one that is expected to lose
    least.  When the budget does not reach, that one is taken whose remaining features can still be paid; when the
    deadline has come, the one that can be computed from what is there.  A prediction that is interrupted (cancelled, or
    by Ctrl+C) has no answer, but is counted with the calls that it had begun, for these are paid.

    The predictor may be used from many threads and from coroutines at the same time.

    Parameters
    ----------
    model : fitted estimator, FittedTree, Mixture or QueryTree
        A `QueryTree` answers by `predict_many` with `qid` alone.
    extractors : list of extractors
        Together they provide every feature that the model may need; see `extractor`.
    given : list of str, optional
        Features without an extractor: every call brings them along as `known`.
    prefetch : {"branch", "node"}, default="branch"
        Fetch what is certainly needed next, which costs ``predict_cost(counting="branch")``; or all that the learners
        of a node may look at: fewer waits, and the cost of ``counting="learner"``.
    strict : bool, default=False
        Raise `BudgetReached`, `DeadlineReached` or `SourceFailed` instead of answering early.  A missing value in a
        column that had none in training, and an unknown category, are then failures of their source, and ValueError
        among the known features; otherwise they are taken as missing, with one warning for a column.
    max_threads : int, default=32
        Sources that are not async run in at most so many threads, for all callers together.
    idle : float, default=5.0
        Seconds after which a thread without work ends.

    Attributes
    ----------
    counters : Counters
        Spend, path mix, early stops, calls and failures so far.

    Examples
    --------
    >>> from cstc import CSTCRegressor
    >>> from cstc.serving import OnDemandPredictor, extractor
    >>> from cstc.datasets import QUADRANT_COSTS, make_quadrants
    >>> X, y = make_quadrants(1000, random_state=0)
    >>> model = CSTCRegressor(costs=QUADRANT_COSTS, cost_weight=0.03, weak_learners="identity", random_state=0)
    >>> model = model.fit(X, y)
    >>> @extractor(provides=[f"x{j}" for j in range(X.shape[1])], instant=True)
    ... def table(row):
    ...     return X[row]
    >>> with OnDemandPredictor(model, [table]) as predictor:
    ...     answer = predictor.predict(7)
    ...     poor = predictor.predict(7, budget=2)
    >>> answer.status, answer.cost, poor.status, poor.cost
    ('complete', 12.0, 'budget', 2.0)
    """

    def __init__(
        self,
        model: Any,
        extractors: Iterable[Extractor],
        *,
        given: Iterable[str] = (),
        prefetch: str = "branch",
        strict: bool = False,
        max_threads: int = 32,
        idle: float = 5.0,
    ) -> None:
        if prefetch not in PREFETCHES:
            raise ValueError(f"prefetch is {prefetch!r}; it must be one of {PREFETCHES}")
        if isinstance(max_threads, bool) or not isinstance(max_threads, int) or max_threads < 1:
            raise ValueError(f"max_threads is {max_threads!r}; it must be a whole number, 1 or more")
        idle_seconds = as_seconds(idle)
        if not 0 < idle_seconds < math.inf:
            raise ValueError(f"idle is {idle!r}; it must be a number of seconds above 0")
        inner = getattr(model, "model_", model)
        self._queries = QueryServing(inner) if isinstance(inner, QueryTree) else None
        if self._queries is None:
            self._compiled = compile_model(model)
        else:
            self._compiled = self._queries.compiled
        self.extractors = check_extractors(extractors)
        sources, self._charges = bind(self.extractors, self._compiled, given)
        self.prefetch = prefetch
        self.strict = strict
        self._unseen = OnceEach()  # warns of values that training did not see, once for all rows
        self.counters = Counters(self._compiled)
        self._caller = Caller(max_threads, idle_seconds, self.counters)
        self._driver = Driver(Planner(sources, self._compiled), self._caller)

    # -- one row -----------------------------------------------------------------------------------------------

    def predict(
        self,
        row: Any,
        *,
        id: Any = None,
        known: Mapping[str, Any] | None = None,
        paid: Iterable[str] = (),
        budget: float | None = None,
        deadline: float | None = None,
        prefetch: str | None = None,
        strict: bool | None = None,
        unavailable: Iterable[str] = (),
    ) -> Answer:
        """Answer for one row.

        Parameters
        ----------
        row : object
            What the extractors are called with.
        id : str or number, optional
            What tells the row from others.  Where the model is a `cstc.Mixture`, it decides which of its two models
            answers; without an id that goes by `row`, where it is a text or a whole number, else by a running number.
        known : mapping of str to value, optional
            Features at hand; they cost nothing and are not fetched.  An item that they share with other features is
            not paid by that: name it in `paid`.
        paid : iterable of str, optional
            Items that are already paid for this row.
        budget : float, optional
            The cost is never above this.
        deadline : float, optional
            Seconds from now until the answer must be there.  A call that is under way then is given up, and paid.
        prefetch, strict : optional
            As in the constructor, for this call.
        unavailable : iterable of str, optional
            Sources (of the model, or extractors), items or features that are known to be down: nothing of them is asked
            for, and nothing paid.

        Returns
        -------
        Answer
        """
        began = perf_counter()
        ends = end_of(began, deadline)
        self._check_open()
        strict = self.strict if strict is None else strict
        session = self.session(
            id=id_of(row, id),
            known=known,
            paid=paid,
            budget=budget,
            prefetch=prefetch,
            strict=strict,
            unavailable=unavailable,
        )
        try:
            for calls in self._driver.waves(session, row, ends, trust=ends is None):
                self._caller.run(calls, ends)
        except BaseException as error:
            self._count_interrupted([session], began, error)
            raise
        return self._finish(session, began, strict)

    async def apredict(
        self,
        row: Any,
        *,
        id: Any = None,
        known: Mapping[str, Any] | None = None,
        paid: Iterable[str] = (),
        budget: float | None = None,
        deadline: float | None = None,
        prefetch: str | None = None,
        strict: bool | None = None,
        unavailable: Iterable[str] = (),
    ) -> Answer:
        """`predict` for callers on an event loop: async sources run on it, the others in threads."""
        began = perf_counter()
        ends = end_of(began, deadline)
        self._check_open()
        strict = self.strict if strict is None else strict
        session = self.session(
            id=id_of(row, id),
            known=known,
            paid=paid,
            budget=budget,
            prefetch=prefetch,
            strict=strict,
            unavailable=unavailable,
        )
        try:
            # an event loop must not wait for a source that is only usually quick
            for calls in self._driver.waves(session, row, ends, trust=False):
                await self._caller.arun(calls, ends)
        except BaseException as error:
            self._count_interrupted([session], began, error)
            raise
        return self._finish(session, began, strict)

    def session(
        self,
        *,
        id: Any = None,
        known: Mapping[str, Any] | None = None,
        paid: Iterable[str] = (),
        budget: float | None = None,
        prefetch: str | None = None,
        strict: bool | None = None,
        unavailable: Iterable[str] = (),
    ) -> Session:
        """A row that the caller fetches for: see `Session`."""
        if self._queries is not None:
            refuse_rows("predict_many(rows, qid=...) answers whole queries")
        return Session(
            self._compiled,
            id=id,
            known=known,
            paid=paid,
            budget=budget,
            prefetch=self.prefetch if prefetch is None else prefetch,
            strict=self.strict if strict is None else strict,
            unavailable=unavailable if unavailable == () else self._down(unavailable),
            _charges=self._charges,
            _once=self._unseen,
        )

    def _down(self, unavailable: Any) -> Any:
        """What is down, with the features of an extractor for its name."""
        if not hasattr(unavailable, "__iter__") or isinstance(unavailable, str | bytes):
            return unavailable  # whoever reads it says what is wrong
        provides = {each.name: each.provides for each in self.extractors}
        of_model = (self._queries or self._compiled).model.knows_name
        found: list[Any] = []
        for name in unavailable:
            is_extractor = isinstance(name, str) and name in provides and not of_model(name)
            found += [f for f in provides[name] if f in self._compiled.index] if is_extractor else [name]
        return tuple(found)

    def _check_open(self) -> None:
        if self._caller.closed:
            raise Closed

    def _finish(self, session: Session, began: float, strict: bool = False, *, warn: bool = True) -> Answer:
        answer = session.answer()
        answer.seconds = perf_counter() - began
        self.counters.count_answer(answer)
        if strict and answer.status != "complete":
            answer.raise_if_incomplete()
        if warn and answer.warnings:
            session.warn_of_unseen()
        return answer

    def _count_interrupted(self, sessions: Sequence[Session], began: float, error: BaseException) -> None:
        """Nobody gets these answers, but what they bought is paid."""
        for session in sessions:
            session.stop("stopped", f"the prediction was interrupted: {describe(error)}")
            with suppress(Exception):  # an interrupt may come in the middle of a step; it must pass in any case
                self._finish(session, began, warn=False)

    # -- many rows ---------------------------------------------------------------------------------------------

    def predict_many(
        self,
        rows: Iterable[Any],
        *,
        qid: Any = None,
        ids: Sequence[Any] | None = None,
        known: Sequence[Mapping[str, Any] | None] | None = None,
        paid: Iterable[str] = (),
        budget: float | Sequence[float | None] | None = None,
        deadline: float | None = None,
        prefetch: str | None = None,
        strict: bool | None = None,
        unavailable: Iterable[str] = (),
    ) -> list[Answer]:
        """Answers for many rows, worked out together level by level of the tree.

        A source that takes batches is called with all rows that want it at the same time.

        Parameters
        ----------
        rows : iterable
        qid : sequence, optional
            The query of each row; the rows of a query stand together.  A `cstc.QueryTree` needs it, and takes no
            budget; other models look whether it can be right.
        ids : sequence of str or number, optional
            One for each row, or None: see `predict`.
        known : sequence of mappings, optional
            One for each row.
        paid : iterable of str, optional
            Items that are already paid, for every row.
        budget : float or sequence, optional
            For each row.
        deadline : float, optional
            Seconds from now until all answers must be there.
        prefetch, strict : optional
            As in the constructor.  Strict: all rows are worked out; then, if one is not complete, the exception has
            its answer in ``.answer`` and those of all rows in ``.answers``.
        unavailable : iterable of str, optional
            For every row: see `predict`.

        Returns
        -------
        list of Answer
        """
        began = perf_counter()
        ends = end_of(began, deadline)
        self._check_open()
        rows = list(rows)
        strict = self.strict if strict is None else strict
        if self._queries is not None:
            options = prefetch, strict, unavailable
            return self._predict_queries(rows, qid, ids, known, paid, budget, ends, began, *options)
        if qid is not None:
            query_numbers(qid, len(rows), rows_of="the call")
        sessions = self._sessions(rows, ids, known, paid, budget, prefetch, strict, unavailable)
        answers: list[Answer] = []
        try:
            for calls in self._driver.rounds(sessions, rows, ends):
                self._caller.run(calls, ends)
            self._finish_many(sessions, answers, began)
        except BaseException as error:
            self._count_interrupted(sessions[len(answers) :], began, error)
            raise
        return self._checked(answers, strict)

    async def apredict_many(
        self,
        rows: Iterable[Any],
        *,
        qid: Any = None,
        ids: Sequence[Any] | None = None,
        known: Sequence[Mapping[str, Any] | None] | None = None,
        paid: Iterable[str] = (),
        budget: float | Sequence[float | None] | None = None,
        deadline: float | None = None,
        prefetch: str | None = None,
        strict: bool | None = None,
        unavailable: Iterable[str] = (),
    ) -> list[Answer]:
        """`predict_many` for callers on an event loop; what takes long to compute is done in a thread."""
        if self._queries is not None:
            refuse_rows("call predict_many(rows, qid=...) in a thread")
        began = perf_counter()
        ends = end_of(began, deadline)
        self._check_open()
        rows = list(rows)
        if qid is not None:
            query_numbers(qid, len(rows), rows_of="the call")
        aside = self._caller.aside if len(rows) > FEW_ROWS else _at_once
        strict = self.strict if strict is None else strict
        sessions = await aside(self._sessions, rows, ids, known, paid, budget, prefetch, strict, unavailable)
        rounds = self._driver.rounds(sessions, rows, ends)
        answers: list[Answer] = []
        left = threading.Event()
        try:
            while calls := await aside(self._driver.next_slow, rounds, left, left=left):
                await self._caller.arun(calls, ends)
            await aside(self._finish_many, sessions, answers, began)
        except BaseException as error:
            self._count_interrupted(sessions[len(answers) :], began, error)
            raise
        return self._checked(answers, strict)

    def _predict_queries(
        self, rows, qid, ids, known, paid, budget, ends, began, prefetch, strict, unavailable
    ) -> list[Answer]:
        """`predict_many` of a model that looks at whole queries."""
        assert self._queries is not None
        if qid is None:
            raise ValueError("qid is missing; this model looks at whole queries: predict_many(rows, qid=...)")
        if budget is not None:
            raise ValueError("budget is given, and this model looks at whole queries: no row can be stopped by itself")
        if ids is not None:
            _one_each("ids", ids, len(rows))

        def drive(sessions: list[Session], here: list[Any]) -> None:
            try:
                for calls in self._driver.rounds(sessions, here, ends):
                    self._caller.run(calls, ends)
            except BaseException as error:
                self._count_interrupted(sessions, began, error)
                raise

        answers = self._queries.answers(
            rows,
            qid,
            [None] * len(rows) if known is None else _one_each("known", known, len(rows)),
            drive,
            unavailable=self._down(unavailable),
            paid=list(paid) if not isinstance(paid, str) else paid,
            prefetch=self.prefetch if prefetch is None else prefetch,
            strict=strict,
            _charges=self._charges,
            _once=self._unseen,
        )
        for answer in answers:
            answer.seconds = perf_counter() - began
            self.counters.count_answer(answer)
        return self._checked(answers, strict)

    def _finish_many(self, sessions: list[Session], answers: list[Answer], began: float) -> None:
        for session in sessions:
            answers.append(self._finish(session, began, warn=False))

    def _checked(self, answers: list[Answer], strict: bool) -> list[Answer]:
        """What is left to say of many rows: in strict mode an error, then one warning for all that was not seen."""
        if strict:
            _complete(answers)
        self._unseen(reason for answer in answers for reason in answer.warnings)
        return answers

    def _sessions(self, rows, ids, known, paid, budget, prefetch, strict, unavailable) -> list[Session]:
        paid = list(paid) if not isinstance(paid, str) else paid
        unavailable = unavailable if unavailable == () else self._down(unavailable)
        ids = [None] * len(rows) if ids is None else _one_each("ids", ids, len(rows))
        known = [None] * len(rows) if known is None else _one_each("known", known, len(rows))
        budgets = [budget] * len(rows) if _is_one(budget) else _one_each("budget", budget, len(rows))
        sessions = [
            Session(
                self._compiled,
                id=id_of(row, row_id),
                known=row_known,
                paid=paid,
                budget=row_budget,
                prefetch=self.prefetch if prefetch is None else prefetch,
                strict=strict,
                unavailable=unavailable,
                _charges=self._charges,
                _level=0,
                _once=self._unseen,
            )
            for row, row_id, row_known, row_budget in zip(rows, ids, known, budgets, strict=True)
        ]
        for number, session in enumerate(sessions):
            session.number = number
        return sessions

    # -- the end -----------------------------------------------------------------------------------------------

    @property
    def whole_queries(self) -> bool:
        """Whether rows are answered together with the others of their query, by `predict_many` alone."""
        return self._queries is not None

    @property
    def n_threads(self) -> int:
        """Threads of sources that are alive now."""
        return self._caller.pool.n_threads

    def close(self) -> None:
        """End idle threads and the event loop of async sources.

        Calls under way in threads end by themselves.  No further ones are begun: predictions under way answer early,
        with the status "stopped", and new ones raise RuntimeError.
        """
        self._caller.close()

    def __enter__(self) -> OnDemandPredictor:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


async def _at_once(function: Callable[..., Any], *arguments: Any, left: threading.Event | None = None) -> Any:
    return function(*arguments)


def _complete(answers: list[Answer]) -> None:
    """Strict mode for many rows: raise for the first that is not complete, with all answers."""
    for answer in answers:
        if answer.status != "complete":
            answer.raise_if_incomplete(answers)


def _is_one(budget: Any) -> bool:
    """Whether a budget is one for all rows: a number, also as text or as an array without dimensions."""
    return isinstance(budget, str | bytes) or not hasattr(budget, "__len__") or getattr(budget, "ndim", 1) == 0


def _one_each(what: str, values: Any, n_rows: int) -> list:
    """A list with one entry for each row, of any sequence, array or iterator."""
    if isinstance(values, Mapping | Set | str) or not hasattr(values, "__iter__"):
        raise ValueError(f"{what} is a {type(values).__name__}; it must have one entry for each of the {n_rows} rows")
    found = list(values)
    if len(found) != n_rows:
        raise ValueError(f"{what} must have one entry for each of the {n_rows} rows; it has {len(found)}")
    return found
