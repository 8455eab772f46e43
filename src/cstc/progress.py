"""How far a fit or a frontier has come, and the time that is left: one line on a terminal, in a notebook or in a log.

Methods say what they are about to do and how much work that is, in any unit (`begin`), then what of it is done
(`did`), from whatever thread.  Whoever waits for them draws (`draw`).  The time left is the work left at the pace so
far; for steps of which only the largest number is known, it is that number at their own pace.  What a part turns out
not to need is not left, and work that nobody knew of before is added when it is found.

The fits of a frontier share what the first of them grows, so its time says nothing of the others: they are expected to
take as long as those that shared, or until there are some, as the work that will be done again for each.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

__all__ = ["QUIET", "Display", "Progress", "display_here"]

EVERY = 0.1  # seconds between two pictures of the line
EVERY_LOGGED = 10.0  # and between two lines of a log
BAR = 20  # characters
ENOUGH = 3  # fits that shared, to go by their time alone: the free model takes none
KNOWN_AFTER = 1.0  # seconds; what is said of the time left before that is a guess


class Display(Protocol):
    """Where the line is shown."""

    every: float  # seconds between two of them, at least

    def show(self, line: str) -> None: ...

    def end(self, line: str) -> None:
        """The last line, which stays."""


class _Terminal:
    """One line that moves."""

    every = EVERY

    def __init__(self, stream: TextIO):
        self._stream, self._shown = stream, 0

    def show(self, line: str) -> None:
        width = shutil.get_terminal_size().columns - 1  # a full line would begin the next one
        line = line[: max(width, 0)]
        self._stream.write("\r" + line + " " * (self._shown - len(line)))
        self._stream.flush()
        self._shown = len(line)

    def end(self, line: str) -> None:
        self.show(line)
        self._stream.write("\n")
        self._stream.flush()


class _Log:
    """A line now and then."""

    every = EVERY_LOGGED

    def __init__(self, stream: TextIO):
        self._stream = stream

    def show(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()

    end = show


class _Notebook:
    """One output of a cell, updated in its place."""

    every = 2 * EVERY

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, line: str) -> None:
        content = {"text/plain": line}
        if self._handle is None:
            from IPython.display import display  # it runs already

            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    end = show


def display_here() -> Display | None:
    """The display of this process: its notebook, its terminal, or a log; None where nobody would see it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is not None:
        return _Notebook()
    stream = sys.stderr
    if stream is None:  # a program without a console
        return None
    return _Terminal(stream) if stream.isatty() else _Log(stream)


@dataclass
class _Part:
    """A part of a fit: work, and if it has pieces that can be counted, how many."""

    work: float
    n_pieces: int
    once: bool
    most: bool
    started: float | None = None
    done: float = 0.0
    ended: int = 0


class Progress:
    """What is done of how much.

    Parameters
    ----------
    title : str
        What the line begins with.
    verbose : int, default=0
        0 shows nothing, 1 the line, 2 what is said (`say`) as lines of their own instead.
    speaker : str, default="cstc"
        Who says it.
    n_models : int or None, default=None
        Fits of a frontier, at most.
    display, clock
        Where it is shown, and what tells the time; for tests.
    """

    def __init__(
        self,
        title: str = "cstc fit",
        verbose: int = 0,
        *,
        speaker: str = "cstc",
        n_models: int | None = None,
        display: Display | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.title, self.speaker, self.n_models = title, speaker, n_models
        self._display = (display or display_here()) if verbose == 1 else None
        self._speaks = verbose > 1
        self._clock = clock
        self._lock = threading.Lock()
        self._closed = False
        self._parts: dict[str, _Part] = {}
        self._current: str | None = None
        self._done_before = 0.0  # work of the fits that are finished
        self._model = 0
        self._sharing: list[float] = []  # seconds of finished fits that found all that is shared
        self._started = self._fit_started = self._drawn = clock()

    @property
    def shown(self) -> bool:
        """Whether there is a line to draw."""
        return self._display is not None and not self._closed

    # -- told by methods ---------------------------------------------------------------------------------------

    def plan(self, part: str, work: float, *, once: bool = False) -> None:
        """A part that will come, with a guess of its work that holds until it begins.

        What is done once serves all fits of a frontier.
        """
        with self._lock:
            known = self._parts.get(part)
            if known is None or known.started is None:
                self._parts[part] = _Part(work, 0, once, False)

    def begin(self, part: str, work: float, n_pieces: int = 0, *, once: bool = False, most: bool = False) -> None:
        """A part that comes now, or more of one that was there before; the one before it is finished.

        `most` means that there may be far less to do.
        """
        with self._lock:
            self._settle()
            known = self._parts.get(part)
            if known is None or known.started is None:
                self._parts[part] = _Part(work, n_pieces, once, most, self._clock())
            elif most:  # such steps are counted anew
                self._done_before += known.done
                self._parts[part] = _Part(work, n_pieces, once, most, self._clock())
            else:
                known.work += work
                known.n_pieces += n_pieces
            self._current = part

    def __reduce__(self) -> tuple[Any, ...]:
        """Where it is sent to, nobody looks."""
        return _quiet, ()

    def did(self, work: float, n_pieces: int = 0) -> None:
        """Some work of the part that began last; thread-safe."""
        if self._display is None:
            return
        with self._lock:
            part = self._parts.get(self._current or "")
            if part is not None:
                part.done += work
                part.ended += n_pieces
                part.work = max(part.work, part.done)
                part.n_pieces = max(part.n_pieces, part.ended) if part.n_pieces else 0

    def say(self, text: str) -> None:
        """What is going on, for those who want every step as a line."""
        if self._speaks:
            with self._lock:
                if not self._closed:
                    print(f"[{self.speaker}] {text}", file=sys.stderr, flush=True)

    # -- told by frontiers -------------------------------------------------------------------------------------

    def begin_model(self) -> None:
        """The next fit of a frontier."""
        with self._lock:
            self._model += 1
            self._done_before += sum(part.done for part in self._parts.values())
            self._parts, self._current = {}, None
            self._fit_started = self._clock()

    def end_model(self, *, fitted: bool = True) -> None:
        """A fit of a frontier is finished, or was found finished."""
        with self._lock:
            self._settle()
            grown = any(part.once and part.done for part in self._parts.values())
            if fitted and not grown:
                self._sharing.append(self._clock() - self._fit_started)
        self.draw()

    def _settle(self) -> None:
        """What is left of the current part was not needed."""
        part = self._parts.get(self._current or "")
        if part is not None:
            part.work, part.n_pieces = part.done, part.ended if part.n_pieces else 0

    # -- what is left ------------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self._clock() - self._started

    def seconds_left(self) -> float | None:
        """Expected; None while nothing is known."""
        with self._lock:
            return self._seconds_left()

    def _seconds_left(self) -> float | None:
        parts = self._parts.values()
        to_come = 0 if self.n_models is None else max(self.n_models - self._model, 0)
        worked = self._done_before + sum(part.done for part in parts)
        pace = self.seconds / worked if worked > 0 else None
        again = sum(part.work for part in parts if not part.once)
        if self._sharing and not any(part.once and part.started is not None for part in parts):
            usual = sum(self._sharing) / len(self._sharing)
            if len(self._sharing) < ENOUGH and pace is not None:
                usual = max(usual, pace * again)
            return max(usual - (self._clock() - self._fit_started), 0.0) + to_come * usual
        current = self._parts.get(self._current or "")
        if current is not None and current.most and current.started is not None:
            if not current.done:
                return None
            own_pace = (self._clock() - current.started) / current.done
            return own_pace * (current.work - current.done + to_come * current.work)
        if pace is None or (to_come and not again):
            return None
        return pace * (sum(part.work - part.done for part in parts) + to_come * again)

    # -- showing -----------------------------------------------------------------------------------------------

    def draw(self) -> None:
        """Show the line, if it is time to; by the thread that waits."""
        if self._display is None or self._closed or self._clock() - self._drawn < self._display.every:
            return
        self._drawn = self._clock()
        self._display.show(self.line())

    def close(self, *, finished: bool = True) -> None:
        """The last line; nothing is shown or said after it, even if a thread goes on."""
        with self._lock:
            closed, self._closed = self._closed, True
        if self._display is None or closed:
            return
        took = _duration(self.seconds)
        if finished:
            models = "" if self.n_models is None else f"{self._model} model{'' if self._model == 1 else 's'} "
            self._display.end(f"{self.title}: 100% [{'=' * BAR}] {models}done in {took}")
        else:
            self._display.end(f"{self.title}: stopped after {took}")

    def line(self) -> str:
        """Such as ``cstc fit:  41% [=======>      ] experts 37 of 90, 12 s, about 18 s left``."""
        with self._lock:
            seconds, left = self.seconds, self._seconds_left()
            part = self._parts.get(self._current or "")
            doing = [] if part is None or self._current is None else [_doing(self._current, part)]
        if self.n_models is not None:
            doing.insert(0, f"model {self._model} of at most {max(self.n_models, self._model)}")
        share = 0.0 if left is None or not seconds + left > 0 else seconds / (seconds + left)
        share = min(share, 0.99)  # all of it is for the last line
        known = left is not None and seconds >= KNOWN_AFTER
        about = "at most" if part is not None and part.most and self.n_models is None else "about"
        told = [*doing, _duration(seconds), *([f"{about} {_duration(left or 0.0)} left"] if known else [])]
        full = int(BAR * share)
        bar = ("=" * full + ">").ljust(BAR)
        return f"{self.title}: {int(100 * share):3d}% [{bar}] {', '.join(told)}"


def _doing(name: str, part: _Part) -> str:
    most = "at most " if part.most else ""
    return f"{name} {part.ended} of {most}{part.n_pieces}" if part.n_pieces else name


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{round(whole / 60)} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


#: Of fits that nobody watches.
QUIET = Progress()


def _quiet() -> Progress:
    return QUIET
