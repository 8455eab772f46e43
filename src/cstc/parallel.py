"""Independent fits side by side: in threads here, each fit with one thread of its own.

LightGBM's own threads wait for each other after every step, and spin while they wait: beside another busy process a
small fit takes hundreds of times as long.  Fits that know nothing of each other have nothing to wait for.  The order of
the results is that of the tasks, so the model is the same whatever the number of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from .model.native import usable_cores

__all__ = ["Stopped", "n_workers", "side_by_side", "stop_if_asked"]

Result = TypeVar("Result")
_here = threading.local()


class Stopped(Exception):
    """A fit was asked to stop, because another one failed or the user interrupted."""


def n_workers(n_jobs: int | None) -> int:
    """Threads for a parameter `n_jobs`: None and negative numbers mean the cores that this process may use."""
    return usable_cores() if n_jobs is None or n_jobs < 0 else n_jobs


def side_by_side(tasks: Sequence[Callable[[], Result]], n_jobs: int | None) -> list[Result]:
    """The results of some tasks, in their order.  Within a task, further tasks run one after the other."""
    workers = min(len(tasks), n_workers(n_jobs))
    if workers <= 1 or getattr(_here, "stop", None) is not None:
        return [task() for task in tasks]
    stop = threading.Event()

    def run(task: Callable[[], Result]) -> Result:
        _here.stop = stop
        try:
            return task()
        finally:
            _here.stop = None

    with ThreadPoolExecutor(workers, thread_name_prefix="cstc") as pool:
        futures = [pool.submit(run, task) for task in tasks]
        try:
            return [future.result() for future in futures]
        except BaseException:
            stop.set()  # those that run stop after their next round
            for future in futures:
                future.cancel()
            raise


def stop_if_asked() -> None:
    """Called by a long task now and then."""
    stop = getattr(_here, "stop", None)
    if stop is not None and stop.is_set():
        raise Stopped
