"""Who grows ensembles: the workers of a Dask cluster, or of any executor of `concurrent.futures`.

A worker that is lost costs time: Dask gives its tasks to others, which find all that they need by its name.  A task
that fails for a reason of its own ends the fit, with one sentence that says what it did, where, and what would help.
"""

from __future__ import annotations

import math
import os
import platform
import queue
import shutil
import socket
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any

from ..parallel import WAKE, alone, stop_if_asked
from ..rows import Rows, Units
from . import tasks
from .stored import InScratch, Part

__all__ = ["TaskFailed", "Workers", "check_executor", "workers_of"]

MOST_REPEATED = 3  # more than one for each task: that often tasks that the cluster forgot are given out again
PART_OF_MEMORY = 4  # of a worker's limit, one part in so many is for what it keeps
PACKAGES = ("cstc", "lightgbm", "numpy", "scipy", "scikit-learn", "pyarrow")
PATIENCE = 10.0  # seconds between two looks at whether there are workers


class TaskFailed(RuntimeError):
    """A task failed on a worker for a reason of its own."""


def check_executor(executor: Any, scratch: Any) -> None:
    """An error that says what would be right."""
    if executor is not None and not isinstance(executor, Executor) and not _is_dask(executor):
        raise TypeError(
            f"executor is {executor!r}; give a Dask Client, an executor of concurrent.futures, or None for threads here"
        )
    if _is_dask(executor) and executor.asynchronous:
        raise ValueError("executor is an asynchronous Client, and fit waits for its tasks; give Client(...) without it")
    if _is_dask(executor) and executor.status != "running":
        raise ValueError(f"executor is a Client that is {executor.status}; give one that is connected")
    if scratch is None:
        return
    if not isinstance(scratch, str | os.PathLike):
        raise TypeError(f"scratch is {scratch!r}; give the path of a folder that all workers see, or None")
    if executor is None:
        raise ValueError("scratch is given without an executor, and nothing would be written there; leave it out")
    if not os.fspath(scratch) or not Path(scratch).is_dir():
        raise ValueError(f"scratch {str(scratch)!r} is no folder; give one that all workers see")


def _is_dask(executor: Any) -> bool:
    return hasattr(executor, "submit") and hasattr(executor, "scheduler_info") and hasattr(executor, "run")


@contextmanager
def workers_of(method: Any, executor: Any, scratch: Any) -> Iterator[Workers | None]:
    """The workers of an executor, for a method that has use for them; None: threads of this process."""
    check_executor(executor, scratch)
    if executor is None:
        yield None
        return
    if not method.uses_workers:
        raise ValueError(
            f"executor is given, and {type(method).__name__} has no use for it: it grows one ensemble; leave it out, "
            "or take method=Experts()"
        )
    with Workers(executor, scratch) as workers:
        yield workers


class Workers:
    """Gives tasks to workers and waits for them.  Use it in a ``with`` block: what it wrote is removed at its end.

    Parameters
    ----------
    executor : distributed.Client or concurrent.futures.Executor
    scratch : path or None
        A folder that all workers see; None: a temporary one of this machine, if they see it.
    """

    def __init__(self, executor: Any, scratch: Any = None):
        check_executor(executor, scratch)
        self._executor, self._dask = executor, _is_dask(executor)
        self._scratch = None if scratch is None else Path(scratch).absolute()
        self._folder: Path | None = None
        self._open: set[Any] = set()
        self._looks_again = time.monotonic() + PATIENCE
        self._lock = threading.Lock()

    def __enter__(self) -> Workers:
        if self._dask and not self._executor.scheduler_info()["workers"]:
            warnings.warn("the cluster has no workers yet; the fit waits for the first one", stacklevel=6)
        self._compare_versions()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with self._lock:
                left, self._open = list(self._open), set()
            for future in left:
                _cancel(future)
            tasks.KEPT.forget()  # where workers are threads of this process
            if self._dask and self._executor.status == "running":
                with suppress(Exception):  # the fit is done, or failed for a reason that is worth more
                    self._executor.run(_forget, on_error="ignore")
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)

    # -- rows ------------------------------------------------------------------------------------------------------

    def publish(self, rows: Rows, units: Units) -> Part:
        """Write rows where all workers see them, unless they lie there already: then `units` are those of targets."""
        if rows.part is not None:
            part = rows.part.in_units(units)
            self._check_seen(part.stored.folder.path, "X; give one that all workers see")
            return part
        try:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="cstc-", dir=self._scratch))
                self._folder.chmod(0o755)  # workers may be other users
            folder = self._folder / uuid.uuid4().hex
            folder.mkdir()
            stored = InScratch.write(rows, folder)
        except OSError as error:
            where = tempfile.gettempdir() if self._scratch is None else self._scratch
            raise OSError(
                f"rows cannot be written into {str(where)!r} ({error}); give scratch=, a folder that all workers see, "
                "with room for them"
            ) from error
        self._check_seen(stored.folder, "scratch; give scratch=, a folder that all workers see")
        return Part(stored)

    def _check_seen(self, path: str, what: str) -> None:
        for worker, sees in self._everywhere(os.path.exists, path).items():
            if not sees:
                raise ValueError(f"worker {worker} does not see {path}, the folder of {what}")

    def _everywhere(self, function: Callable[..., Any], *args: Any) -> dict[str, Any]:
        """What each worker says; where workers cannot be addressed, what one of them says."""
        if self._dask:
            found = self._executor.run(function, *args, on_error="return")
            for worker, said in found.items():
                if isinstance(said, Exception) and not isinstance(said, OSError):
                    raise ValueError(f"worker {worker} cannot run cstc: {said}; install the same version there")
            # those that did not answer are gone
            return {worker: said for worker, said in found.items() if not isinstance(said, Exception)}
        return {"of the executor": self._executor.submit(function, *args).result()}

    def _compare_versions(self) -> None:
        own = _versions()
        for worker, theirs in self._everywhere(_versions).items():
            other = [
                f"{name} {theirs.get(name, 'absent')} (here {own.get(name, 'absent')})"
                for name in {**own, **theirs}
                if own.get(name) != theirs.get(name)
            ]
            if other:
                warnings.warn(
                    f"worker {worker} has other versions: {', '.join(other)}; models may differ from those of this "
                    "machine, or tasks may fail",
                    stacklevel=4,
                )

    # -- tasks -----------------------------------------------------------------------------------------------------

    def results(self, wanted: Sequence[Any], done: Callable[[Any], None] = lambda task: None) -> list[Any]:
        """What some tasks bring back, in their order; `done` is told of each as it ends.

        Whoever waits here can be asked to stop (`parallel`): then, as after a failure, what is queued is cancelled.
        """
        over: queue.SimpleQueue[int] = queue.SimpleQueue()
        futures = [self._give_out(task, number, over) for number, task in enumerate(wanted)]
        found: list[Any] = [None] * len(wanted)
        left, repeated = len(wanted), 0
        try:
            while left:
                stop_if_asked()
                try:
                    number = over.get(timeout=WAKE)
                except queue.Empty:
                    self._look_for_workers()
                    continue
                task, future = wanted[number], futures[number]
                self._settle(future)
                try:
                    found[number] = future.result()
                except CancelledError:  # the cluster forgot it, as it does when it is restarted
                    stop_if_asked()
                    repeated += 1
                    if repeated > MOST_REPEATED + len(wanted):
                        raise TaskFailed(f"{task.what}: was cancelled again and again") from None
                    futures[number] = self._give_out(task, number, over)
                except Exception as error:
                    raise _explained(task, error) from error
                else:
                    left -= 1
                    done(task)
            return found
        except BaseException:
            for future in futures:
                _cancel(future)
                self._settle(future)
            raise

    def _look_for_workers(self) -> None:
        """Say once that all workers are gone."""
        if self._dask and time.monotonic() > self._looks_again:
            self._looks_again = time.monotonic() + PATIENCE
            if not self._executor.scheduler_info()["workers"]:
                self._looks_again = math.inf
                warnings.warn("the cluster has no workers any more; the fit waits for the next one", stacklevel=2)

    def _give_out(self, task: Any, number: int, over: queue.SimpleQueue[int]) -> Any:
        future = self.submit(task)
        future.add_done_callback(lambda _: over.put(number))
        return future

    def submit(self, task: Any) -> Any:
        if self._dask:
            key = f"cstc {task.what}-{uuid.uuid4().hex}"
            # the largest first: nobody then waits for one that was begun last
            future = self._executor.submit(_run, task, key=key, pure=False, priority=task.size)
        else:
            future = self._executor.submit(_run, task)
        with self._lock:
            self._open.add(future)
        return future

    def _settle(self, future: Any) -> None:
        with self._lock:
            self._open.discard(future)


def _cancel(future: Any) -> None:
    with suppress(Exception):  # of a client that is closed
        future.cancel()


def _explained(task: Any, error: Exception) -> TaskFailed:
    """A failure as one sentence that says what would help."""
    if isinstance(error, TaskFailed):
        return error
    if isinstance(error, BrokenProcessPool):
        return TaskFailed(
            f"{task.what}: a process of the executor was lost, and with it the executor. With checkpoint= a frontier "
            "goes on where it was; a Dask cluster repeats the tasks of a lost worker"
        )
    if isinstance(error, OSError):  # those of tasks are explained where they happen
        return TaskFailed(
            f"{task.what}: the scheduler of the cluster does not answer any more ({type(error).__name__}: {error}); "
            "with checkpoint= a frontier goes on where it was"
        )
    if type(error).__name__ == "KilledWorker":
        return TaskFailed(
            f"{task.what}: workers died again and again while they did it. If they ran out of memory, give them more "
            "of it, or let each fit read fewer rows, with method=Experts(rows_per_fit=...)"
        )
    return TaskFailed(f"{task.what}: {type(error).__name__}: {error}")


# -- on a worker ---------------------------------------------------------------------------------------------------


def _run(task: Any) -> Any:
    """Do a task with one thread; a failure says where it happened, and what would help."""
    tasks.KEPT.most = _most_kept()
    try:
        with alone():
            return task()
    except Exception as error:
        help_ = ""
        if isinstance(error, MemoryError) or "bad allocation" in str(error) or "bad_alloc" in str(error):
            help_ = "; give workers more memory, or let each fit read fewer rows: method=Experts(rows_per_fit=...)"
        elif isinstance(error, OSError) or "Parquet" in str(error):
            help_ = "; all workers must see the files, and nobody may change them during the fit"
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise TaskFailed(f"{task.what}, on worker {_name()}: {said}{help_}") from error


def _forget() -> None:
    tasks.KEPT.forget()


def _name() -> str:
    worker = _dask_worker()
    return f"{socket.gethostname()}, process {os.getpid()}" if worker is None else str(worker.address)


def _dask_worker() -> Any:
    try:
        from distributed import get_worker

        return get_worker()
    except (ImportError, ValueError):
        return None


def _most_kept() -> int:
    limit = getattr(getattr(_dask_worker(), "memory_manager", None), "memory_limit", None)
    return tasks.MOST_KEPT if not limit else int(limit) // PART_OF_MEMORY


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found
