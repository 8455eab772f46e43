"""The models of one system from cheap to expensive, judged as `cstc.Frontier` judges ours."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from ..frontier import FrontierTable
from ..frontier._choice import Choice
from ..frontier._fits import Point, judged_point
from ..frontier._grid import not_dominated, search
from ..metrics import Quality, quality_of
from ..rows import Rows

__all__ = ["SystemFrontier", "frontier_of"]


class SystemFrontier(Choice):
    """Models of one system, cheap to expensive, no dominated ones (by validation data).

    Attributes
    ----------
    models_ : list of fitted systems
    table_ : FrontierTable
        For each of `models_`: the varied parameter; mean_cost, p95_cost and max_cost of the validation rows (counting
        "branch"); quality; nodes; items in use.
    tried_, tried_models_
        The same for all models, those that were beaten too.
    quality_name_ : str
    quality : callable, str or None
        As it was given.
    """

    def __init__(self, points: list[Point], quality_name: str, quality: Any = None):
        self.quality = quality
        points = sorted(points, key=lambda point: (point.cost, -point.quality))
        chosen = not_dominated(points)
        self.models_ = [point.model for point in chosen]
        self.table_ = FrontierTable([point.row for point in chosen], quality_name)
        self.tried_ = FrontierTable([point.row for point in points], quality_name)
        self.tried_models_ = [point.model for point in points]
        self.quality_name_ = quality_name

    def __repr__(self) -> str:
        return self._summary()

    def _repr_html_(self) -> str:
        return self.table_._repr_html_()


@dataclass(eq=False)
class _Models:
    """Fits a model for a value of the varied parameter, once; what all share is at hand."""

    system: Any
    setting: Any
    shared: Any
    validation: Rows
    quality: Quality
    report: Callable[[int, Point, float], None]
    points: dict[Any, Point] = field(default_factory=dict)

    def __call__(self, weight: Any) -> Point:
        if weight not in self.points:
            started = time.perf_counter()
            model = self.system._at(self.setting, self.shared, weight)
            self.points[weight] = self._judge(model, weight)
            self.report(len(self.points), self.points[weight], time.perf_counter() - started)
        return self.points[weight]

    def _judge(self, model: Any, value: Any) -> Point:
        rows = self.validation
        costs = model.predict_cost(rows.X, qid=rows.qid)
        return judged_point(model, self.system._varied, value, costs, self.quality(model, rows, None), rows)

    def risk(self) -> float:
        """Mean risk of the constant prediction on the training rows, in the units of the target."""
        return self.setting.units.risk(self.setting.constant_risk)


def frontier_of(
    system: Any, setting: Any, validation: Rows, values: Any, n_points: Any, quality: Any, verbose: int
) -> SystemFrontier:
    """Fit the models of a system and keep those that no other one beats."""
    if not isinstance(n_points, Integral) or n_points < 2:
        raise ValueError(f"n_points is {n_points!r}; it must be a whole number, 2 or more")
    name, judged = quality_of(quality, setting.face)

    def report(n_done: int, point: Point, seconds: float) -> None:
        if verbose:
            value = point.row[system._varied]
            shown = f"{value:.4g}" if isinstance(value, float) else repr(value)
            print(
                f"[{type(system).__name__}] model {n_done}: {system._varied} {shown}, mean cost {point.cost:.4g}, "
                f"{name} {point.quality:.4f}, {seconds:.1f} s",
                file=sys.stderr,
                flush=True,
            )

    shared = system._share(setting)
    models = _Models(system, setting, shared, validation, judged, report)
    if values is None:
        values = system._values(setting, shared, int(n_points))
    if values is None:
        search(models, int(n_points))
    else:
        for value in values:
            models(value)
    return SystemFrontier(list(models.points.values()), name, quality)
