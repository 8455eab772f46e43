"""A bounded pool of threads for calls that may hang.

Not `concurrent.futures`: its threads keep the interpreter from ending while a source hangs, stay for ever once
started, and cannot take back a call that waits in line.  Here threads are daemons, leave after some seconds without
work, and a call that has not begun can be withdrawn, so that it was never made and costs nothing.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue

__all__ = ["Closed", "Job", "WorkerPool"]


class Closed(RuntimeError):
    """The predictor was closed: no call is begun any more."""

    def __init__(self) -> None:
        super().__init__("the predictor is closed")


class Job:
    """A function without arguments on its way through the pool; it must not raise."""

    __slots__ = ("_context", "_pool", "_work")

    def __init__(self, pool: WorkerPool, work: Callable[[], None]) -> None:
        self._pool = pool
        self._work = work
        self._context = contextvars.copy_context()

    def run(self) -> None:
        self._context.run(self._work)

    def withdraw(self) -> bool:
        """Take the job back; false if it has begun."""
        return self._pool.withdraw(self)


class WorkerPool:
    """At most `most` threads, started when needed and gone after `idle` seconds without work."""

    def __init__(self, most: int, *, idle: float = 5.0, name: str = "cstc-source") -> None:
        self.most = most
        self._idle_seconds = idle
        self._name = name
        self._lock = threading.Lock()
        self._backlog: deque[Job] = deque()
        self._resting: list[SimpleQueue] = []  # one mailbox for each thread that waits; the last came last
        self._n_threads = 0
        self._closed = False

    @property
    def n_threads(self) -> int:
        """Threads that are alive."""
        return self._n_threads

    @property
    def n_waiting(self) -> int:
        """Jobs that wait for a thread."""
        return len(self._backlog)

    def submit(self, work: Callable[[], None]) -> Job:
        """Run `work` in a thread, at once if one is free or may be started."""
        job = Job(self, work)
        with self._lock:
            if self._closed:
                raise Closed
            if self._resting:
                self._resting.pop().put(job)
                return job
            if self._n_threads >= self.most:
                self._backlog.append(job)
                return job
            self._n_threads += 1
        try:
            threading.Thread(target=self._serve, args=(job,), name=self._name, daemon=True).start()
        except BaseException as error:
            with self._lock:
                self._n_threads -= 1
                if not isinstance(error, RuntimeError) or not self._n_threads:
                    raise
                self._backlog.append(job)  # the system has no thread left: wait for one of ours
        return job

    def withdraw(self, job: Job) -> bool:
        with self._lock:
            try:
                self._backlog.remove(job)
            except ValueError:
                return False
            return True

    def close(self) -> None:
        """Send idle threads away; busy ones leave when their call ends.  Jobs in line are still done."""
        with self._lock:
            self._closed = True
            resting, self._resting = self._resting, []
        for mailbox in resting:
            mailbox.put(None)

    def _serve(self, job: Job | None) -> None:
        mailbox: SimpleQueue = SimpleQueue()
        while job is not None:
            job.run()
            job = self._next(mailbox)

    def _next(self, mailbox: SimpleQueue) -> Job | None:
        with self._lock:
            if self._backlog:
                return self._backlog.popleft()
            if self._closed:
                self._n_threads -= 1
                return None
            self._resting.append(mailbox)
        try:
            job = mailbox.get(timeout=min(self._idle_seconds, threading.TIMEOUT_MAX))
        except BaseException as ended:
            with self._lock:
                # whatever ends the wait: no job may be put into a mailbox that nobody reads any more
                if mailbox in self._resting:
                    self._resting.remove(mailbox)
                    self._n_threads -= 1
                    if isinstance(ended, Empty):
                        return None
                    raise
            job = mailbox.get()  # someone took the mailbox between the two: the job is on its way
        if job is None:
            with self._lock:
                self._n_threads -= 1
        return job
