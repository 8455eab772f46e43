"""Prices from the clock: how long each source takes, as a cost model in milliseconds."""

from __future__ import annotations

import asyncio
import math
import statistics
import threading
from collections.abc import Callable, Coroutine, Iterable
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, TypeVar

from ..costs import CostModel
from ..model.schema import is_missing
from .compiled import Fault
from .sources.extractors import Extractor, Source, check_extractors, describe
from .sources.workers import WorkerPool

__all__ = ["measure_costs"]

GRACE = 0.5  # seconds beyond a source's time limit until it counts as hanging
KEPT = 3600.0  # seconds that the thread for coroutines waits for the next one
T = TypeVar("T")


def measure_costs(extractors: Iterable[Extractor], sample: Iterable[Any], *, evaluation: float = 0.0) -> CostModel:
    """Call every source for every row of a sample and price it by its median time.

    Each source becomes one item, because one call brings all of its features; what a source computes its features
    from is required too.  A source that fails, returns nonsense or takes longer than its `timeout` is an error that
    names it.

    Parameters
    ----------
    extractors : list of extractors
    sample : iterable
        Rows as the extractors take them; some tens are enough for stable medians.
    evaluation : float, default=0.0
        Price of evaluating one weak learner, in milliseconds.

    Returns
    -------
    CostModel
        In milliseconds, for `fit` or `with_costs`.

    Examples
    --------
    >>> import time
    >>> from cstc.serving import extractor, measure_costs
    >>> @extractor(provides=["s1", "s2"])
    ... def lab(row):
    ...     time.sleep(0.002)
    ...     return {"s1": 1.0, "s2": 2.0}
    >>> costs = measure_costs([lab], range(5))
    >>> costs.price_of(["s1"]) == costs.price_of(["s1", "s2"]) >= 2.0
    True
    """
    sources = _in_order(check_extractors(extractors))
    if not sources:
        raise ValueError("there are no extractors; give at least one")
    if not isinstance(sample, Iterable):
        raise TypeError(f"the sample is a {type(sample).__name__}; give a list of rows as the extractors take them")
    rows = list(sample)
    if not rows:
        raise ValueError("the sample is empty; give at least one row")
    prices: dict[str, float] = {}
    requires: dict[str, list[str]] = {}
    features = {feature for source in sources for feature in source.provides}
    with _OwnThread() as thread:
        clock = _Clock(rows, thread)
        for source in sources:
            item = source.name
            if item in features and item not in source.provides:
                item = f"{item} (source)"  # another source's feature has this name
            prices[item] = 1000.0 * clock.seconds_per_row(source)
            for feature in source.provides:
                needed = [name for name in (item, *source.needs) if name != feature]
                if needed:
                    requires[feature] = needed
    return CostModel(prices, requires, evaluation)


def _in_order(extractors: list[Extractor]) -> list[Extractor]:
    """Sources behind those that they need."""
    provided = {feature for source in extractors for feature in source.provides}
    ordered: list[Extractor] = []
    ready: set[str] = set()
    waiting = extractors
    while waiting:
        now = [source for source in waiting if all(name in ready for name in source.needs)]
        if not now:
            lacking = sorted({name for source in waiting for name in source.needs} - provided)
            why = f"no extractor provides {lacking}" if lacking else "they need each other in a circle"
            raise ValueError(f"{', '.join(source.name for source in waiting)} cannot be called: {why}")
        ordered += now
        ready.update(feature for source in now for feature in source.provides)
        waiting = [source for source in waiting if source not in now]
    return ordered


class _Clock:
    """Calls sources and takes their times; the values are kept for sources that need them."""

    def __init__(self, rows: list, thread: _OwnThread) -> None:
        self._rows = rows
        self._thread = thread
        self._values: list[dict[str, Any]] = [{} for _ in rows]
        self._kinds: dict[str, str] = {}  # what the values of each feature are

    def seconds_per_row(self, extractor: Extractor) -> float:
        """The median over the rows, or over the batches."""
        index = {name: j for j, name in enumerate((*extractor.provides, *extractor.needs))}
        source = Source(extractor, index.__getitem__)
        most = 1 if not source.batch else len(self._rows) if source.batch is True else int(source.batch)
        times = []
        for at in range(0, len(self._rows), most):
            group = range(at, min(at + most, len(self._rows)))
            try:
                seconds, result = self._call(source, group)
                results = source.rows_of(result, len(group)) if source.batch else [result]
                for i, row_result in zip(group, results, strict=True):
                    got = source.unpack(row_result, source.provided)
                    for f, name in source.pairs:
                        self._check_kind(name, got[f])
                        self._values[i][name] = got[f]
            except (Exception, asyncio.CancelledError) as error:
                why = str(error) if isinstance(error, Fault) else describe(error)
                raise RuntimeError(f"{source.name} failed for row {self._rows[at]!r}: {why}") from error
            times.append(seconds / len(group))
        return statistics.median(times)

    def _check_kind(self, name: str, value: Any) -> None:
        """Without a model a text may be a category, but not in one row a category and in another a number."""
        kind = _kind(name, value)
        if kind and self._kinds.setdefault(name, kind) != kind:
            raise Fault(f"{name} is {value!r}, a {kind}; in an earlier row it was a {self._kinds[name]}")

    def _call(self, source: Source, group: range) -> tuple[float, Any]:
        options: dict[str, Any] = {}
        if source.takes_features:
            options["features"] = list(source.extractor.provides)
        if source.takes_inputs:
            inputs = [{name: self._values[i][name] for name in source.extractor.needs} for i in group]
            options["inputs"] = inputs if source.batch else inputs[0]
        rows = [self._rows[i] for i in group] if source.batch else self._rows[group[0]]
        if source.is_async:
            seconds, result = self._thread.run(lambda: _timed(source.function, rows, options), source.timeout)
        elif source.timeout is not None:
            seconds, result = self._thread.call(lambda: _time(source.function, rows, options), source.timeout)
        else:
            seconds, result = _time(source.function, rows, options)
        if source.timeout is not None and seconds > source.timeout:
            raise _too_slow(source.timeout)
        return seconds, result


def _kind(name: str, value: Any) -> str:
    """What a value is, empty if it is missing; `Fault` if it can be neither a number nor a category."""
    if is_missing(value):
        return ""
    if isinstance(value, str):
        return "text"
    if getattr(value, "ndim", 1 if hasattr(value, "__len__") else 0):
        raise Fault(f"{name} is a {type(value).__name__}; it must be one number or one category")
    try:
        number = float(value)
    except Exception:
        return type(value).__name__  # a date, say: a category
    if math.isinf(number):
        raise Fault(f"{name} is {number}; it must be finite")
    return "" if math.isnan(number) else "number"


def _time(function: Callable, rows: Any, options: dict[str, Any]) -> tuple[float, Any]:
    began = perf_counter()
    result = function(rows, **options)
    return perf_counter() - began, result


async def _timed(function: Callable, rows: Any, options: dict[str, Any]) -> tuple[float, Any]:
    began = perf_counter()
    result = await function(rows, **options)
    return perf_counter() - began, result


def _too_slow(timeout: float) -> TimeoutError:
    return TimeoutError(f"no answer within {timeout:g} s")


class _OwnThread:
    """A thread for what may hang, and for coroutines: in the caller's own thread an event loop may be running."""

    def __init__(self) -> None:
        self._pool: WorkerPool | None = None
        self._runner: asyncio.Runner | None = None
        self._hangs = False

    def call(self, function: Callable[[], T], timeout: float | None) -> T:
        """What a function returns or raises; TimeoutError if it does not come back in time."""
        if self._pool is None:
            self._pool = WorkerPool(1, idle=KEPT, name="cstc-measure")
        ends: SimpleQueue = SimpleQueue()

        def work() -> None:
            try:
                ends.put((function(), None))
            except BaseException as raised:
                ends.put((None, raised))

        self._pool.submit(work)
        try:
            result, error = ends.get(timeout=None if timeout is None else min(timeout + GRACE, threading.TIMEOUT_MAX))
        except BaseException as ended:
            self._hangs = True  # perhaps, if it was the user who lost patience
            if isinstance(ended, Empty) and timeout is not None:
                raise _too_slow(timeout) from None
            raise
        if error is not None:
            raise error
        return result

    def run(self, function: Callable[[], Coroutine[Any, Any, T]], timeout: float | None) -> T:
        """The same for a coroutine; all of them on one event loop, which their clients may be bound to."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        runner = self._runner

        async def limited() -> T:
            limit = asyncio.timeout(timeout)
            try:
                async with limit:
                    return await function()
            except TimeoutError:
                if timeout is not None and limit.expired():
                    raise _too_slow(timeout) from None
                raise

        return self.call(lambda: runner.run(limited()), timeout)

    def __enter__(self) -> _OwnThread:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool is None:
            return
        if self._runner is not None and self._hangs:
            self._pool.submit(self._runner.close)  # whenever it comes back; the thread is a daemon, and keeps nobody
        elif self._runner is not None:
            self.call(self._runner.close, None)
        self._pool.close()
