"""Where numbers stand on an axis, in percent of its length, and the numbers that are written there.

A logarithmic axis has no place for 0, and the free model costs that: it stands at the very left, apart from the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..plotting._drawing import as_number, log_ticks, spreads, with_minus

__all__ = ["Axis", "bars_axis"]

GAP = 9.0  # percent of a logarithmic axis between 0 and the least number above it
MOST_TICKS = 7


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`; on a logarithmic one `low` is above 0, and `gap` percent are left for 0."""

    low: float
    high: float
    logarithmic: bool = False
    gap: float = 0.0

    @classmethod
    def of_costs(cls, costs: Iterable[float]) -> Axis:
        """From 0 to a little more than the largest cost; logarithmic where costs spread (`spreads`)."""
        values = np.array([value for value in costs if math.isfinite(value)], dtype=float)
        high = float(values.max(initial=0.0)) or 1.0
        if spreads(values):
            return cls(float(values[values > 0].min()) / 1.15, high * 1.15, True, GAP)
        return cls(0.0, high * 1.05)

    @classmethod
    def around(cls, values: Iterable[float], room: float = 0.08) -> Axis:
        """From a little less than the least number to a little more than the largest."""
        finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
        low, high = min(finite), max(finite)
        space = (high - low) * room or abs(high) * room or 1.0
        return cls(low - space, high + space)

    def at(self, value: float) -> float:
        """The place of a number, from 0 to 100."""
        if self.logarithmic:
            if value <= 0:
                return 0.0
            part = math.log(value / self.low) / math.log(self.high / self.low)
            return min(100.0, max(self.gap, self.gap + (100.0 - self.gap) * part))
        return min(100.0, max(0.0, 100.0 * (value - self.low) / (self.high - self.low)))

    def ticks(self) -> list[tuple[float, str]]:
        """Places and what is written there."""
        values = self._powers() if self.logarithmic else self._steps()
        return [(self.at(value), _written(value)) for value in values]

    def _steps(self) -> list[float]:
        """Multiples of 1, 2 or 5 times a power of ten."""
        rough = (self.high - self.low) / MOST_TICKS
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(times * size for times in (1, 2, 5, 10) if times * size >= rough)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(number * step, 12) for number in range(first, last + 1)]

    def _powers(self) -> list[float]:
        return [0.0, *log_ticks(self.low, self.high, MOST_TICKS)]


def bars_axis(values: np.ndarray, most: int = 28) -> tuple[Axis, np.ndarray]:
    """An axis for bars of how many rows cost what, and the edges of the bars."""
    axis = Axis.of_costs(values)
    if axis.logarithmic:
        return axis, np.concatenate([[0.0], np.geomspace(axis.low, axis.high, most + 1)])
    step = max(_steps_of(axis, most), 1e-300)
    return axis, np.arange(0.0, axis.high + step, step)


def _steps_of(axis: Axis, most: int) -> float:
    rough = axis.high / most
    size = 10.0 ** math.floor(math.log10(rough))
    return next(times * size for times in (1, 2, 5, 10) if times * size >= rough)


def _written(value: float) -> str:
    return with_minus("-" + as_number(-value) if value < 0 else as_number(value))
