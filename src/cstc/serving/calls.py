"""Making the calls of a wave: in parallel, within their time limits, in threads or on an event loop.

A call has one of five ends.  It returns; it fails (an exception, the source's own cancellation, or nonsense);
it runs out of time and is abandoned; the deadline of the row comes first; or it never began, because no thread
was free, and then it was not made and is not charged.  Whatever else a source raises (KeyboardInterrupt,
SystemExit) belongs to the caller and passes through.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any

from .compiled import Fault
from .counters import Counters
from .extractors import Source, describe
from .session import Session
from .workers import WorkerPool

__all__ = ["Call", "Caller", "Member"]

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
        self.kind = ""  # of a failure: error, cancelled, nonsense, timeout, deadline, busy
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
        """Call the function here and now; only what belongs to the caller is raised."""
        self.begun = perf_counter()
        try:
            self.result = self.invoke()
        except Exception as error:
            self.fail("error", error)
        except asyncio.CancelledError as error:
            self.fail("cancelled", error)
        self.seconds = perf_counter() - self.begun

    def perform_in_thread(self) -> None:
        """The same in a worker thread: nothing is raised, `Caller.settle` will do it in the caller's thread."""
        try:
            self.perform()
        except BaseException as error:
            self.fail("raised", error)

    async def perform_async(self) -> None:
        """The same for an async function."""
        self.begun = perf_counter()
        if self.abandoned:  # read after `begun` is set, while `give_up` reads them the other way round
            return
        try:
            self.result = await self.invoke()
        except Exception as error:
            self.fail("error", error)
        except asyncio.CancelledError as error:
            if self.abandoned:
                raise
            self.fail("cancelled", error)
        except BaseException as error:
            self.fail("raised", error)
        self.seconds = perf_counter() - self.begun

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

    def give_up(self, deadline: bool) -> None:
        """Out of time."""
        self.made = not self.abandon()
        if self.made and self.begun is not None:
            self.seconds = perf_counter() - self.begun
        if deadline:
            self.fail("deadline", None)
        elif self.made:
            self.fail("timeout", TimeoutError(f"no answer within {self.source.timeout:g} s"))
        else:
            self.fail("busy", None)


class Wave:
    """The calls of one wave: which run, which have ended, which are still to be made.

    Whoever waits for a wave is woken once, when all calls have ended; earlier only if there is something to do: a call
    to be repeated, or one for which there was no room yet.
    """

    def __init__(self, calls: Iterable[Call], ends: float | None, start: Callable[[Call], None], most: int) -> None:
        self._todo = deque(calls)
        self._running: set[Call] = set()
        self._ended: list[Call] = []
        self._lock = threading.Lock()  # results come from other threads
        self._ends = ends
        self._start = start
        self._most = most

    def fill(self) -> bool:
        """Start what may be started; false when nothing is left to wait for."""
        while self._todo and len(self._running) < self._most:
            call = self._todo.popleft()
            call.submitted = perf_counter()
            with self._lock:
                self._running.add(call)
            self._start(call)
        return bool(self._running or self._ended)

    def patience(self) -> float | None:
        """Seconds until the first limit; None if there is none."""
        with self._lock:
            limits = [limit for call in self._running if (limit := call.limit()) is not None]
        if self._ends is not None:
            limits.append(self._ends)
        return max(0.0, min(limits) - perf_counter()) if limits else None

    def end(self, call: Call) -> bool:
        """A call has ended; whether to wake who waits.  One that was given up before is ignored."""
        with self._lock:
            if call not in self._running:
                return False
            self._running.discard(call)
            self._ended.append(call)
            repeat = call.kind and call.tries < call.source.retries
            return bool(not self._running or self._todo or repeat)

    def collect(self) -> list[Call]:
        """Calls that have ended or are out of time."""
        now = perf_counter()
        late = self._ends is not None and now >= self._ends
        with self._lock:
            ended, self._ended = self._ended, []
            over = [call for call in self._running if late or ((limit := call.limit()) is not None and now >= limit)]
            self._running.difference_update(over)
        if late:
            over += self._todo
            self._todo.clear()
        for call in over:
            call.give_up(deadline=late)
        return ended + over

    def repeat(self, call: Call) -> None:
        self._todo.append(call)

    def abandon(self) -> None:
        """The caller leaves: calls that wait in line are taken back, those on an event loop are cancelled."""
        with self._lock:
            left = list(self._running)
            self._running.clear()
        for call in left:
            call.abandon()


class Caller:
    """Makes calls, in threads and on event loops, and hands their results to the sessions."""

    def __init__(self, max_threads: int, idle: float, counters: Counters) -> None:
        self.pool = WorkerPool(max_threads, idle=idle)
        self.counters = counters
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._closed = False

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
            call.perform_in_thread()
            end(call)

        def start(call: Call) -> None:
            if call.source.is_async:
                call.job = asyncio.run_coroutine_threadsafe(call.perform_async(), self.loop())
                call.job.add_done_callback(lambda _: end(call))
            else:
                call.job = self.pool.submit(lambda: work(call))

        wave = Wave(elsewhere, ends, start, self.pool.most)
        try:
            wave.fill()
            for call in here:
                self._run_here(call)
            while wave.fill():
                try:
                    bell.get(timeout=wave.patience())
                except Empty:
                    pass
                self._settle_all(wave)
        finally:
            wave.abandon()

    def _settle_all(self, wave: Wave) -> None:
        for call in wave.collect():
            again = self.settle(call)
            if again is not None:
                wave.repeat(again)

    def _share(self, calls: list[Call], ends: float | None) -> tuple[list[Call], list[Call]]:
        """Calls for this thread, and calls for others: a call that is alone and has no time limit needs no other."""
        here = [call for call in calls if call.source.instant]
        elsewhere = [call for call in calls if not call.source.instant] if len(here) < len(calls) else []
        if len(elsewhere) == 1 and ends is None:
            source = elsewhere[0].source
            if source.timeout is None and not source.is_async:
                return here + elsewhere, []
        return here, elsewhere

    def call_simple(self, source: Source, session: Session, asked: tuple[int, ...], row: Any) -> None:
        """The short way for a source that answers at once and takes nothing but the row."""
        kind, result, got = "", None, None
        error: BaseException | None = None
        began = perf_counter()
        try:
            result = source.function(row)
        except Exception as raised:
            kind, error = "error", raised
        except asyncio.CancelledError as raised:
            kind, error = "cancelled", raised
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

    async def arun(self, calls: list[Call], ends: float | None) -> None:
        """The same from a coroutine: async sources run on the caller's loop, others in threads."""
        here = [call for call in calls if call.source.instant]
        for call in here:
            self._run_here(call)
        if len(here) == len(calls):
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
            call.perform_in_thread()
            try:
                loop.call_soon_threadsafe(end, call)
            except RuntimeError:
                pass  # the loop is closed: nobody waits any more

        def start(call: Call) -> None:
            if call.source.is_async:
                call.job = loop.create_task(call.perform_async())
                call.job.add_done_callback(lambda _: end(call))
            else:
                call.job = self.pool.submit(lambda: work(call))

        wave = Wave([call for call in calls if not call.source.instant], ends, start, self.pool.most)
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
                self._settle_all(wave)
        finally:
            wave.abandon()

    # -- results -----------------------------------------------------------------------------------------------

    def settle(self, call: Call) -> Call | None:
        """Hand the outcome to the sessions; a new call for those rows that are to be tried again."""
        source = call.source
        if call.kind == "raised" and call.error is not None:
            raise call.error
        failures = self._failures(call)
        if call.seconds is not None:
            source.clock(call.seconds)
        self.counters.count_call(source.name, len(call.members), call.seconds, call.kind, made=call.made)
        if not failures:
            return None
        if call.tries < source.retries and call.kind not in ("deadline", "busy"):
            for (session, asked, _), reason in failures:
                session.note_failure(asked, reason, source.name, call.seconds)
            return Call(source, [member for member, _ in failures], call.tries + 1)
        for (session, asked, _), reason in failures:
            session.receive_failure(asked, reason, source.name, call.seconds, charged=call.made, error=call.error)
            if call.kind == "deadline":
                session.stop("deadline", reason)
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
        if failures:
            call.kind = "nonsense"
        return failures

    # -- async sources for callers in threads ------------------------------------------------------------------

    def loop(self) -> asyncio.AbstractEventLoop:
        """An event loop in a thread of its own, started when first needed."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the predictor is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_serve_loop, args=(self._loop,), name="cstc-loop", daemon=True).start()
                weakref.finalize(self, _stop_loop, self._loop)
            return self._loop

    def close(self) -> None:
        self.pool.close()
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
        if loop is not None:
            _stop_loop(loop)


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


_REASONS = {
    "deadline": "the deadline came first",
    "busy": "no thread was free in time",
}
