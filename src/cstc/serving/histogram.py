"""How answers are spread over latency and cost, in buckets that Prometheus can add up over services and time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .prometheus import Sample

__all__ = ["LATENCY_BOUNDS", "Histogram", "cost_bounds", "histogram_samples"]

#: Seconds: from an answer out of memory to the longest that a service waits.
LATENCY_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
STEPS = (1, 2, 5)
DECADES = 3  # below the most expensive path; what is cheaper is nearly free


def cost_bounds(highest: float) -> tuple[float, ...]:
    """Nothing, and then steps of 1, 2 and 5 up to what the most expensive path costs: prices have no unit of ours."""
    if not 0 < highest < math.inf:
        return (0.0,)
    power = math.floor(math.log10(highest)) + 1
    steps = [float(f"{step}e{power - k}") for k in range(DECADES + 2) for step in reversed(STEPS)]  # falling
    last = max(k for k, bound in enumerate(steps) if bound >= highest)  # the least that is enough
    return (0.0, *reversed(steps[last : last + len(STEPS) * DECADES + 1]))


class Histogram:
    """Counts of values up to each bound, their number and their sum.

    Examples
    --------
    >>> from cstc.serving.histogram import Histogram
    >>> costs = Histogram([0, 10, 20])
    >>> costs.add([0, 3, 10, 35])
    >>> costs.as_dict()
    {'count': 4, 'sum': 48.0, 'up_to': {0: 1, 10: 3, 20: 3}}
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._array = np.array(self.bounds, dtype=float)
        self._counts = np.zeros(len(self.bounds) + 1, dtype=np.int64)
        self._sum = 0.0

    def add(self, values: Sequence[float]) -> None:
        """Many at a time: one by one they would take longer than an answer should."""
        array = np.array(values, dtype=float)
        self._counts += np.bincount(self._array.searchsorted(array), minlength=len(self._counts))
        self._sum += float(array.sum())

    def as_dict(self) -> dict:
        """The number of values, their sum, and how many are not above each bound."""
        *up_to, count = np.cumsum(self._counts).tolist()
        return {"count": count, "sum": self._sum, "up_to": dict(zip(self.bounds, up_to, strict=True))}


def histogram_samples(counts: dict) -> list[Sample]:
    """What `Histogram.as_dict` returns, as samples of a histogram of Prometheus."""
    buckets = [("_bucket", {"le": f"{bound:g}"}, count) for bound, count in counts["up_to"].items()]
    count = counts["count"]
    return [*buckets, ("_bucket", {"le": "+Inf"}, count), ("_sum", {}, counts["sum"]), ("_count", {}, count)]
