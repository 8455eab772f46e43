"""Making the calls of a wave: in parallel, within their time limits, in threads or on an event loop.

A call has one of six ends.  It returns; it fails (an exception, the source's own cancellation, or nonsense);
it runs out of time and is abandoned; the deadline of the row comes first; the caller leaves; or it never began, because
no thread was free or the predictor was closed, and then it was not made and is not charged.  Whatever else a source
raises (KeyboardInterrupt, SystemExit) belongs to the caller and passes through, once the call is charged.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, TypeVar

from ..compiled import Fault
from ..counters import Counters
from ..log import log_failure
from ..session import Session
from .extractors import Source, describe
from .workers import Closed, WorkerPool

__all__ = ["Call", "Caller", "Member"]

ROW_THREADS = 2  # for the sums of large batches: they hold the interpreter's lock, so more would not be quicker
T = TypeVar("T")

#: A row that takes part in a call: its session, the features asked for, and the row as the caller named it.
Member = tuple[Session, tuple[int, ...], Any]


class Call:
    """One call of one source, for one row or a batch of them."""

    __slots__ = (
        "abandoned",
        "begun",
        "error",
        "job",
        "kind",
        "made",
        "members",
        "result",
        "seconds",
        "source",
        "submitted",
        "tries",
    )

    def __init__(self, source: Source, members: list[Member], tries: int = 0) -> None:
        self.source = source
        self.members = members
        self.tries = tries
        self.submitted = 0.0
        self.begun: float | None = None
        self.seconds: float | None = None
        self.made = True
        self.abandoned = False
        self.kind = ""  # of a failure: error, cancelled, nonsense, timeout, deadline, busy, left, closed, raised
        self.error: BaseException | None = None
        self.result: Any = None
        self.job: Any = None

    def invoke(self) -> Any:
        """Call the function with what it takes; a coroutine if it is async."""
        source = self.source
        session, asked, row = self.members[0]
        if not (source.batch or source.takes_features or source.takes_inputs):
            return source.function(row)
        options: dict[str, Any] = {}
        names = session.feature_names
        if source.takes_features:
            options["features"] = [names[f] for f in asked]
        if source.takes_inputs:
            inputs = [{names[f]: member.value_of(f) for f in source.needs} for member, _, _ in self.members]
            options["inputs"] = inputs if source.batch else inputs[0]
        return source.function([row for _, _, row in self.members] if source.batch else row, **options)

    def perform(self) -> None:
        """Call the function here and now; what belongs to the caller is raised when the call is settled."""
        self.begun = perf_counter()
        try:
            self.result = self.invoke()
        except BaseException as error:
            self.fail(_kind_of(error), error)
        self.seconds = perf_counter() - self.begun

    async def perform_async(self, end: Callable[[Call], None]) -> None:
        """The same for an async function; `end` is called at once, not one turn of the event loop later."""
        self.begun = perf_counter()
        if self.abandoned:  # read after `begun` is set, while `give_up` reads them the other way round
            return
        try:
            self.result = await self.invoke()
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and self.abandoned:
                raise
            self.fail(_kind_of(error), error)
        self.seconds = perf_counter() - self.begun
        end(self)

    def fail(self, kind: str, error: BaseException | None) -> None:
        self.kind, self.error = kind, error

    def limit(self) -> float | None:
        """When this call has waited long enough: for a thread first, then for the source."""
        if self.source.timeout is None:
            return None
        return (self.submitted if self.begun is None else self.begun) + self.source.timeout

    def abandon(self) -> bool:
        """Let go of a call: it never begins (then true), or its result is not waited for."""
        self.abandoned = True
        if self.job is None:
            return True
        if not self.source.is_async:
            return self.job.withdraw()
        never_begun = self.begun is None
        self.job.cancel()
        return never_begun

    def leave(self) -> None:
        """The caller goes; a call that has begun is paid."""
        self._let_go()
        self.fail("left", None)

    def refuse(self, kind: str, error: BaseException | None = None) -> None:
        """The call will never be made."""
        self.made = False
        self.fail(kind, error)

    def notice_cancellation(self) -> Call:
        """A call whose task was cancelled before it began, by others than us, was not made."""
        if self.begun is None and not self.abandoned:
            self.refuse("cancelled", asyncio.CancelledError())
        return self

    def _let_go(self) -> None:
        self.made = not self.abandon()
        if self.made and self.begun is not None:
            self.seconds = perf_counter() - self.begun

    def give_up(self, deadline: bool) -> None:
        """Out of time."""
        self._let_go()
        if deadline:
            self.fail("deadline", None)
        elif self.made:
            self.fail("timeout", TimeoutError(f"no answer within {self.source.timeout:g} s"))
        else:
            self.fail("busy", None)


def _kind_of(error: BaseException) -> str:
    """What an exception makes of a call; "raised": it belongs to the caller."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return "error" if isinstance(error, Exception) else "raised"


class Wave:
    """The calls of one wave: which run, and which are still to be made.

    Whoever ends a call settles it at once, in its own thread, so that this work is done while others are still awaited.
    Who waits for the wave is woken once, when all calls have ended; earlier only if there is something to do: a call to
    be repeated, or one for which there was no room yet.
    """

    def __init__(
        self,
        calls: Iterable[Call],
        ends: float | None,
        start: Callable[[Call], None],
        settle: Callable[[Call], Call | None],
        most: int,
    ) -> None:
        self._todo = deque(calls)
        self._running: set[Call] = set()
        self._raised: BaseException | None = None
        self._lock = threading.Lock()  # results come from other threads, and calls share sessions
        self._ends = ends
        self._start = start
        self._settle = settle
        self._most = most

    def fill(self) -> bool:
        """Start what may be started; false when nothing is left to wait for."""
        if self._raised is not None:
            raise self._raised
        while self._todo and len(self._running) < self._most:
            call = self._todo.popleft()
            call.submitted = perf_counter()
            with self._lock:
                self._running.add(call)
            try:
                self._start(call)
            except Closed:
                call.refuse("closed")
                self.end(call)
        with self._lock:  # who ends a call settles it under this lock, and is not done before
            return bool(self._running or self._todo or self._raised)

    def patience(self) -> float | None:
        """Seconds until the first limit; None if there is none."""
        with self._lock:
            limits = [limit for call in self._running if (limit := call.limit()) is not None]
        if self._ends is not None:
            limits.append(self._ends)
        if not limits:
            return None
        return min(max(0.0, min(limits) - perf_counter()), threading.TIMEOUT_MAX)  # longer waits are errors

    def end(self, call: Call) -> bool:
        """A call has ended; whether to wake who waits.  One that was given up before is ignored."""
        with self._lock:
            if call not in self._running:
                return False
            self._running.discard(call)
            self._settle_one(call)
            return bool(not self._running or self._todo or self._raised)

    def run_here(self, call: Call | None) -> None:
        """Make a call in this thread, and again if it is to be repeated, while others run elsewhere."""
        while call is not None:
            call.perform()
            with self._lock:
                call = self._settle(call)

    def expire(self) -> None:
        """Give up calls that are out of time."""
        now = perf_counter()
        late = self._ends is not None and now >= self._ends
        with self._lock:
            over = [call for call in self._running if late or ((limit := call.limit()) is not None and now >= limit)]
            self._running.difference_update(over)
        if late:
            over += self._todo
            self._todo.clear()
        for call in over:
            call.give_up(deadline=late)  # not under the lock: cancelling a call may end it here and now
        with self._lock:
            for call in over:
                self._settle_one(call)

    def abandon(self) -> None:
        """The caller leaves: calls in line are taken back, others are charged and, on an event loop, cancelled."""
        with self._lock:
            left = list(self._running)
            self._running.clear()
        for call in left:
            call.leave()
        with self._lock:
            for call in left:
                self._settle_one(call)

    def _settle_one(self, call: Call) -> None:
        """What settling raises belongs to who waits, in whatever thread this is."""
        try:
            again = self._settle(call)
        except BaseException as error:
            self._raised = self._raised or error
            return
        if again is not None:
            self._todo.append(again)


class Caller:
    """Makes calls, in threads and on event loops, and hands their results to the sessions."""

    def __init__(self, max_threads: int, idle: float, counters: Counters) -> None:
        self.pool = WorkerPool(max_threads, idle=idle)
        self._rows = WorkerPool(ROW_THREADS, idle=idle, name="cstc-rows")
        self.counters = counters
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self.closed = False

    # -- from a thread -----------------------------------------------------------------------------------------

    def run(self, calls: list[Call], ends: float | None) -> None:
        """Make the calls, in parallel, and settle them."""
        here, elsewhere = self._share(calls, ends)
        if not elsewhere:
            for call in here:
                self._run_here(call)
            return
        bell: SimpleQueue = SimpleQueue()

        def end(call: Call) -> None:
            if wave.end(call):
                bell.put(None)

        def work(call: Call) -> None:
            call.perform()
            end(call)

        def start(call: Call) -> None:
            if call.source.is_async:
                call.job = self._submit_to_loop(call, end)
                call.job.add_done_callback(lambda _: end(call.notice_cancellation()))
            else:
                call.job = self.pool.submit(lambda: work(call))

        wave = Wave(elsewhere, ends, start, self.settle, self.pool.most)
        try:
            wave.fill()
            for call in here:
                wave.run_here(call)
            while wave.fill():
                try:
                    bell.get(timeout=wave.patience())
                except Empty:
                    wave.expire()
        finally:
            wave.abandon()

    def _share(self, calls: list[Call], ends: float | None) -> tuple[list[Call], list[Call]]:
        """Calls for this thread, and calls for others.

        If no call has a time limit, nobody needs to watch the clock: this thread makes the one that usually takes
        longest instead of waiting for it, which saves two hand-overs between threads.
        """
        here = [call for call in calls if call.source.instant]
        elsewhere = [call for call in calls if not call.source.instant] if len(here) < len(calls) else []
        if ends is None and elsewhere and all(call.source.timeout is None for call in elsewhere):
            # calls to be started later, or again, must not wait until this thread is back
            at_once = len(elsewhere) <= self.pool.most and not any(call.source.retries for call in elsewhere)
            able = [call for call in elsewhere if not call.source.is_async]
            if able and (at_once or len(elsewhere) == 1):
                longest = max(able, key=lambda call: call.source.usual)
                elsewhere.remove(longest)
                here.append(longest)
        return here, elsewhere

    def call_simple(self, source: Source, session: Session, asked: tuple[int, ...], row: Any) -> None:
        """The short way for a call in this thread, of a source that takes nothing but the row."""
        kind, result, got = "", None, None
        error: BaseException | None = None
        began = perf_counter()
        try:
            result = source.function(row)
        except BaseException as raised:
            kind, error = _kind_of(raised), raised
        seconds = perf_counter() - began
        if not kind:
            try:
                got = source.unpack(result, asked)
            except Fault:
                pass  # settled with the other failures below
            if got is not None and session.receive(asked, got, source.name, seconds) is None:
                self.counters.count_call(source.name, 1, seconds)
                source.clock(seconds)
                return
        call = Call(source, [(session, asked, row)])
        call.result, call.seconds = result, seconds
        call.fail(kind, error)
        self._run_here(self.settle(call))

    def _run_here(self, call: Call | None) -> None:
        """Make a call in this thread, and again if it is to be repeated."""
        while call is not None:
            call.perform()
            call = self.settle(call)

    # -- from an event loop ------------------------------------------------------------------------------------

    def run_instant(self, calls: list[Call], left: threading.Event | None = None) -> list[Call]:
        """Make the calls that answer from memory, until the caller has left; the others."""
        for call in calls:
            if left is not None and left.is_set():
                return []
            if call.source.instant:
                self._run_here(call)
        return [call for call in calls if not call.source.instant]

    async def arun(self, calls: list[Call], ends: float | None) -> None:
        """The same from a coroutine: async sources run on the caller's loop, others in threads."""
        calls = self.run_instant(calls)
        if not calls:
            return
        loop = asyncio.get_running_loop()
        bell = loop.create_future()

        def ring() -> None:
            if not bell.done():
                bell.set_result(None)

        def end(call: Call) -> None:
            if wave.end(call):
                ring()

        def work(call: Call) -> None:
            call.perform()
            if wave.end(call):
                try:
                    loop.call_soon_threadsafe(ring)
                except RuntimeError:
                    pass  # the loop is closed: nobody waits any more

        def start(call: Call) -> None:
            if call.source.is_async:
                call.job = loop.create_task(call.perform_async(end))
                call.job.add_done_callback(lambda _: end(call.notice_cancellation()))
            else:
                call.job = self.pool.submit(lambda: work(call))

        wave = Wave(calls, ends, start, self.settle, self.pool.most)
        try:
            while wave.fill():
                patience = wave.patience()
                timer = None if patience is None else loop.call_later(patience, ring)
                try:
                    await bell
                finally:
                    if timer is not None:
                        timer.cancel()
                bell = loop.create_future()
                wave.expire()
        finally:
            wave.abandon()

    async def aside(self, function: Callable[..., T], *arguments: Any, left: threading.Event | None = None) -> T:
        """Let a thread do what computes for long, so that the event loop can go on.

        A caller that is cancelled sets `left` and waits until the thread has come to its end, so that nothing is
        bought behind its back.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def end(result: Any, error: BaseException | None) -> None:
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

        def work() -> None:
            result, error = None, None
            try:
                result = function(*arguments)
            except BaseException as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(end, result, error)
            except RuntimeError:
                pass  # the loop is closed: nobody waits any more

        try:
            job = self._rows.submit(work)
        except Closed:
            return function(*arguments)  # what is left to do for a predictor that was closed meanwhile
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            if left is not None:
                left.set()
            if not job.withdraw():
                await _in_any_case(done)
            raise

    # -- results -----------------------------------------------------------------------------------------------

    def settle(self, call: Call) -> Call | None:
        """Hand the outcome to the sessions; a new call for those rows that are to be tried again."""
        source = call.source
        if call.kind == "cancelled" and self.closed:
            call.kind = "closed"  # with the predictor's own event loop
        failures = self._failures(call)
        if call.seconds is not None:
            source.clock(call.seconds)
        self.counters.count_call(source.name, len(call.members), call.seconds, call.kind, made=call.made)
        if not failures:
            return None
        again = call.tries < source.retries and call.kind not in _FINAL
        _log(call, [member for member, _ in failures], again)
        if again:
            for (session, asked, _), reason in failures:
                session.note_failure(asked, reason, source.name, call.seconds)
            return Call(source, [member for member, _ in failures], call.tries + 1)
        for (session, asked, _), reason in failures:
            session.receive_failure(asked, reason, source.name, call.seconds, charged=call.made, error=call.error)
            if call.kind in ("deadline", "closed"):
                session.stop("deadline" if call.kind == "deadline" else "stopped", reason)
        if call.kind == "raised" and call.error is not None:
            raise call.error
        return None

    def _failures(self, call: Call) -> list[tuple[Member, str]]:
        """Give good results to their sessions; the others with the reason."""
        source = call.source
        if call.kind:
            reason = f"{source.name}: {_REASONS.get(call.kind) or describe(call.error)}"
            return [(member, reason) for member in call.members]
        if not source.batch:
            results = [call.result]
        else:
            try:
                results = source.rows_of(call.result, len(call.members))
            except Fault as fault:
                call.kind = "nonsense"
                return [(member, f"{source.name}: {fault}") for member in call.members]
        failures = []
        for member, result in zip(call.members, results, strict=True):
            session, asked, _ = member
            try:
                got = source.unpack(result, asked)
            except Fault as fault:
                failures.append((member, f"{source.name}: {fault}"))
                continue
            bad = session.receive(asked, got, source.name, call.seconds)
            if not bad:
                continue
            bad = {f: f"{source.name}: {reason}" for f, reason in bad.items()}
            call.kind = "nonsense"
            if call.tries < source.retries:
                failures.append((member, "; ".join(bad.values())))
            else:
                session.receive_bad(asked, got, bad, source.name, call.seconds)
                _log(call, [member], again=False)
        if failures:
            call.kind = "nonsense"
        return failures

    # -- async sources for callers in threads ------------------------------------------------------------------

    def _submit_to_loop(self, call: Call, end: Callable[[Call], None]) -> Any:
        """Make a call on an event loop in a thread of its own, started when first needed."""
        with self._lock:  # a loop that is being closed takes nothing more, and would say so to nobody
            if self.closed:
                raise Closed
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_serve_loop, args=(self._loop,), name="cstc-loop", daemon=True).start()
                weakref.finalize(self, _stop_loop, self._loop)
            return asyncio.run_coroutine_threadsafe(call.perform_async(end), self._loop)

    def close(self) -> None:
        with self._lock:
            self.closed = True
        self.pool.close()
        self._rows.close()
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            _stop_loop(loop)


def _log(call: Call, members: list[Member], again: bool) -> None:
    rows = [(row, getattr(session, "number", None)) for session, _, row in members]
    log_failure(call.source.name, call.kind, call.error, rows, again=again)


def _serve_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=1.0))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def _stop_loop(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)


async def _in_any_case(done: asyncio.Future) -> None:
    """Wait for what is sure to come soon, however often the waiting is cancelled."""
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError:
            pass
    done.exception()  # looked at: nobody else will


_REASONS = {
    "deadline": "the deadline came first",
    "busy": "no thread was free in time",
    "left": "the caller left",
    "closed": "the predictor was closed",
}
_FINAL = (*_REASONS, "raised")  # not to be tried again
