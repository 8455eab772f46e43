"""Prices from the clock: how long each source takes, as a cost model in milliseconds."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

from ..costs import CostModel
from .extractors import Extractor, Source, describe

__all__ = ["measure_costs"]


def measure_costs(extractors: Iterable[Extractor], sample: Iterable[Any], *, evaluation: float = 0.0) -> CostModel:
    """Call every source for every row of a sample and price it by its median time.

    Each source becomes one item, because one call brings all of its features; what a source computes its features
    from is required too.

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
    sources, rows = _in_order(list(extractors)), list(sample)
    if not rows:
        raise ValueError("the sample is empty; give at least one row")
    prices: dict[str, float] = {}
    requires: dict[str, list[str]] = {}
    features = {feature for source in sources for feature in source.provides}
    with asyncio.Runner() as runner:
        clock = _Clock(rows, runner)
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

    def __init__(self, rows: list, runner: asyncio.Runner) -> None:
        self._rows = rows
        self._runner = runner
        self._values: list[dict[str, Any]] = [{} for _ in rows]

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
                    self._values[i].update({name: got[f] for f, name in source.pairs})
            except (Exception, asyncio.CancelledError) as error:
                raise RuntimeError(f"{source.name} failed for row {self._rows[at]!r}: {describe(error)}") from error
            times.append(seconds / len(group))
        return statistics.median(times)

    def _call(self, source: Source, group: range) -> tuple[float, Any]:
        options: dict[str, Any] = {}
        if source.takes_features:
            options["features"] = list(source.extractor.provides)
        if source.takes_inputs:
            inputs = [{name: self._values[i][name] for name in source.extractor.needs} for i in group]
            options["inputs"] = inputs if source.batch else inputs[0]
        rows = [self._rows[i] for i in group] if source.batch else self._rows[group[0]]
        if source.is_async:
            return self._runner.run(_timed(source.function, rows, options))
        began = perf_counter()
        result = source.function(rows, **options)
        return perf_counter() - began, result


async def _timed(function: Callable, rows: Any, options: dict[str, Any]) -> tuple[float, Any]:
    began = perf_counter()
    result = await function(rows, **options)
    return perf_counter() - began, result
