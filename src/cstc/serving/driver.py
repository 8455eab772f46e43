"""The loop that drives sessions to their ends: ask what is wanted, fetch it, tell it, and ask again.

It is a generator of the calls that must be waited for.  Whoever goes through it makes them, in threads or on an event
loop, so that callers of both kinds share the loop.  One row goes from wave to wave as quickly as it can.  Many rows
wait for each other at the end of every level of the tree, so that they can share calls.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from time import perf_counter
from typing import Any

from .session import Session
from .sources.calls import Call, Caller
from .sources.planning import Planner

__all__ = ["Driver", "end_of"]

RESERVE = 0.001  # seconds before the deadline in which no wave is begun any more


class Driver:
    """Asks sessions, and yields the calls that they need.

    Parameters
    ----------
    planner : Planner
        Says which sources are called for what.
    caller : Caller
        Makes the calls that need not be waited for; when it is closed, no further wave begins.
    """

    def __init__(self, planner: Planner, caller: Caller) -> None:
        self._planner = planner
        self._caller = caller

    def waves(self, session: Session, row: Any, ends: float | None, *, trust: bool) -> Iterator[list[Call]]:
        """The calls of one row, wave after wave, until `ends`; those that need no other thread are made at once.

        `trust` says whether a source that is only usually quick may be called at once too.
        """
        while session.wanted_features and not self._must_stop(session, ends):
            if calls := self._calls_for(session, row, trust):
                yield calls
            session.resume()

    def _calls_for(self, session: Session, row: Any, trust: bool) -> list[Call]:
        calls = []
        wave = self._planner.asked(session)
        alone = len(wave) == 1
        for source, asked in wave:
            if source.simple or (trust and source.untimed and (alone or source.quick)):
                self._caller.call_simple(source, session, asked, row)
            else:
                calls.append(Call(source, [(session, asked, row)]))
        return calls

    def rounds(self, sessions: list[Session], rows: list[Any], ends: float | None) -> Iterator[list[Call]]:
        """The calls of many rows, wave after wave; rows wait for each other at the end of every level of the tree."""
        level = 0
        pairs = list(zip(sessions, rows, strict=True))
        while pairs:
            waiting = [pair for pair in pairs if pair[0].wanted_features]
            if not waiting:
                pairs = [pair for pair in pairs if not pair[0].finished]
                level += 1
                for session, _ in pairs:
                    session.go_to(level)
                continue
            if self._must_stop(waiting[0][0], ends):
                for session, _ in pairs:
                    session.go_to(math.inf)  # who has all that its path needs waits for nobody
                    self._must_stop(session, ends)
                return
            calls = self._planner.calls_for(waiting)
            if calls:
                yield calls
            for session, _ in waiting:
                session.resume()

    def next_slow(self, rounds: Iterator[list[Call]], left: threading.Event) -> list[Call]:
        """The next calls that must be waited for; those that answer from memory are made on the way there."""
        for calls in rounds:
            slow = self._caller.run_instant(calls, left)
            if slow or left.is_set():
                return slow
        return []

    def _must_stop(self, session: Session, ends: float | None) -> bool:
        """Whether no further wave may begin; the session then says why."""
        if ends is not None and perf_counter() >= ends:
            session.stop("deadline", _too_late(session))
        elif self._caller.closed:
            session.stop("stopped", "the predictor was closed")
        return session.finished


def end_of(began: float, deadline: float | None) -> float | None:
    """The time after which no wave may begin, for a deadline in seconds; None if there is none."""
    if deadline is None:
        return None
    try:
        seconds = float(deadline)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not seconds >= 0:
        raise ValueError(f"deadline is {deadline!r}; it must be seconds from now, 0 or more, or None")
    if seconds == math.inf:
        return None
    return began + max(0.0, seconds - RESERVE)


def _too_late(session: Session) -> str:
    wanted = session.wanted()
    return f"the deadline came before {', '.join(wanted[:8])} could be fetched" if wanted else "the deadline came"
