"""Independent fits side by side: in threads here, each fit with one thread of its own.

LightGBM's own threads wait for each other after every step, and spin while they wait: beside another busy process a
small fit takes hundreds of times as long.  Fits that know nothing of each other have nothing to wait for.  The order of
the results is that of the tasks, so the model is the same whatever the number of threads.  Only a fit of very many rows
that has no other one beside it takes all cores for itself (`idle_workers`): its steps are long, and its trees the same.

Who calls only waits, and can leave at any time: when the user interrupts, or when a task fails, the others are asked to
stop, and those that do not hear it soon, since a single step in compiled code takes longer, are left behind.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import sklearn

from .model.native import usable_cores

__all__ = ["WAKE", "Stopped", "alone", "apart", "idle_workers", "n_workers", "side_by_side", "stop_if_asked"]

Result = TypeVar("Result")
PATIENCE = 0.25  # seconds that tasks have to stop before they are left behind
WAKE = 0.1  # seconds; on some systems a thread that waits for longer does not notice an interrupt
_here = threading.local()  # `stops`: what asks the task of this thread to stop; `alone`: it has one core


class Stopped(Exception):
    """A task was asked to stop, because another one failed or the user interrupted."""


def n_workers(n_jobs: int | None) -> int:
    """Threads for a parameter `n_jobs`: None and negative numbers mean the cores that this process may use."""
    return usable_cores() if n_jobs is None or n_jobs < 0 else n_jobs


def idle_workers(n_jobs: int | None) -> int:
    """Threads that whoever asks may take for one step: all that `n_jobs` allows, or one beside other tasks."""
    return 1 if getattr(_here, "alone", False) else n_workers(n_jobs)


def side_by_side(tasks: Sequence[Callable[[], Result]], n_jobs: int | None) -> list[Result]:
    """The results of some tasks, in their order.  Within a task, further tasks run one after the other.

    The first error that a task raises is raised here.
    """
    workers = min(len(tasks), n_workers(n_jobs))
    if workers <= 1 or getattr(_here, "alone", False):
        return [task() for task in tasks]
    return _Crew(tasks, workers, alone=True).results()


def apart(task: Callable[[], Result], while_waiting: Callable[[], None] = lambda: None) -> Result:
    """The result of a task that runs in a thread of its own, so that who calls can be interrupted at any time.

    `while_waiting` is called now and then, by the thread that calls.
    """
    config = sklearn.get_config()  # each thread has its own

    def configured() -> Result:
        sklearn.set_config(**config)
        return task()

    return _Crew([configured], 1, alone=getattr(_here, "alone", False)).results(while_waiting)[0]


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """What runs within has one core: tasks in it run one after the other."""
    before = getattr(_here, "alone", False)
    _here.alone = True
    try:
        yield
    finally:
        _here.alone = before


def stop_if_asked() -> None:
    """Called by a long task now and then."""
    if any(stop.is_set() for stop in getattr(_here, "stops", ())):
        raise Stopped


class _Crew:
    """Threads that take one task after the other.  They do not keep the process from ending."""

    def __init__(self, tasks: Sequence[Callable[[], Any]], workers: int, *, alone: bool):
        self._tasks, self._alone = tasks, alone
        self._results: list[Any] = [None] * len(tasks)
        self._numbers = iter(range(len(tasks)))
        self._left = len(tasks)
        self._error: BaseException | None = None
        self._lock, self._over, self._stop = threading.Lock(), threading.Event(), threading.Event()
        self._stops = (*getattr(_here, "stops", ()), self._stop)
        self._threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(self._work,), name="cstc", daemon=True)
            for _ in range(workers)
        ]

    def results(self, while_waiting: Callable[[], None] = lambda: None) -> list[Any]:
        try:
            for thread in self._threads:
                thread.start()
            while not self._over.wait(WAKE):
                stop_if_asked()
                while_waiting()
            if self._error is not None:
                raise self._error
            return self._results
        except BaseException:
            self._stop.set()
            ends = time.monotonic() + PATIENCE
            for thread in self._threads:
                if thread.ident is not None:
                    thread.join(max(0.0, ends - time.monotonic()))
            raise
        finally:
            self._error = None  # its traceback leads back here

    def _work(self) -> None:
        _here.stops, _here.alone = self._stops, self._alone
        while (number := self._next()) is not None:
            try:
                stop_if_asked()
                self._results[number] = self._tasks[number]()
            except Stopped:
                return
            except BaseException as error:
                with self._lock:
                    if self._error is None and not self._stop.is_set():
                        self._error = error
                self._stop.set()  # those that run stop after their next step
                self._over.set()
                return
            with self._lock:
                self._left -= 1
                if not self._left:
                    self._over.set()

    def _next(self) -> int | None:
        with self._lock:
            return next(self._numbers, None)
