"""Models along the cost weight: which weights are fitted, and what is shared.

The grid
    Cost weights are powers of two.  The top is where the cheapest purchase costs more than all risk that the
    constant prediction leaves; the bottom is where the whole bill of the full model (cost weight 0, always fitted)
    is a negligible part of that risk.  Between them, the interval across which cost and quality change most is
    halved, again and again: stretches on which nothing changes take no fits.  Where neighbours still lie far apart,
    quarters of a power come last.

What is shared
    Ensembles are grown at ``cost_weight * cost_strengths``.  The default strengths are powers of four, so those of
    weights at such a ratio coincide to the last bit, and each ensemble is grown once for the whole frontier.  The
    paper's learners are blind to cost, so all its models share one ensemble; each then starts from the solution of the
    next larger cost weight.  (From a smaller one it takes longer than from the top-down start: weights that have
    to leave again leave slowly.)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import narwhals.stable.v2 as nw
import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_sample_weight

from ..checkpoint import Checkpoint
from ..costs import ResolvedCosts
from ..frames import is_frame
from ..metrics import cost_summary
from ..objective import NodeParameters
from ..training import Ensembles, Sample

__all__ = ["Fits", "Point", "Rows", "fit_given", "hold_out", "not_dominated", "search"]

NEGLIGIBLE = 2.0**-10  # the bottom of the grid: the full bill is this part of the constant's risk
LIKE_FULL = 0.9  # or this part of the full model's cost is spent
SAME = 0.03  # an interval with a smaller change of cost and quality (as parts of their ranges) is not halved
FINE = 4  # the least interval, as a part of a power of two
STRIDE = 4  # powers of two, where an end of the range turns out to be no end
STRIDES = 6
NEAR = 8.0  # a solution for a cost weight up to so many times as large is a good start


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows as the user gave them."""

    X: Any
    y: Any
    weights: Any = None
    qid: Any = None

    def with_checked_weights(self, X: np.ndarray) -> Rows:
        if self.weights is None:
            return self
        weights = _check_sample_weight(self.weights, X, dtype=np.float64, ensure_non_negative=True)
        return Rows(self.X, self.y, weights, self.qid)

    def take(self, at: np.ndarray) -> Rows:
        X = nw.from_native(self.X, eager_only=True)[at].to_native() if is_frame(self.X) else _safe_indexing(self.X, at)
        y, weights, qid = (None if part is None else np.asarray(part)[at] for part in (self.y, self.weights, self.qid))
        return Rows(X, y, weights, qid)


def hold_out(checker: Any, sample: Sample, given: Rows, seed: int, *, needs_classes: bool) -> tuple[Rows, Rows]:
    """Rows that teach and rows that choose, where the caller gave none of the second kind."""
    held_out = np.zeros(len(sample.y), dtype=bool)
    held_out[checker._hold_out(sample, seed)] = True
    if hasattr(checker, "classes_"):
        counted = np.ones(len(sample.y), dtype=bool) if given.weights is None else given.weights > 0
        _check_held_out_classes(sample.y, held_out, counted, checker.classes_, needs_classes)
    return given.take(np.flatnonzero(~held_out)), given.take(np.flatnonzero(held_out))


def _check_held_out_classes(
    y: np.ndarray, held_out: np.ndarray, counted: np.ndarray, classes: np.ndarray, needs_classes: bool
) -> None:
    """Rare classes may all land on one side; the caller, who held nothing out, could not know why a fit fails."""
    advice = f"give X_val and y_val with {'both' if len(classes) == 2 else 'all'} classes, or more rows of the rare one"
    missing = np.setdiff1d(y, y[~held_out])
    if len(missing):
        raise ValueError(
            f"no row of class {classes[missing].tolist()[0]!r} is left to learn from: the frontier held out "
            f"{held_out.sum()} of the {len(y)} rows itself, to choose by, and all rows of this class are among them; "
            f"{advice}"
        )
    present = np.unique(y[held_out & counted])
    if needs_classes and len(present) < 2:
        raise ValueError(
            f"the validation rows hold one class, {classes[present].tolist()}, and AUC needs two: the frontier held "
            f"out {held_out.sum()} of the {len(y)} rows itself, to choose by; {advice}"
        )


@dataclass(frozen=True, eq=False)
class Point:
    """A fitted model and what validation data says of it."""

    model: Any
    row: dict[str, Any]

    @property
    def cost_weight(self) -> float:
        return self.row["cost_weight"]

    @property
    def cost(self) -> float:
        return self.row["mean_cost"]

    @property
    def quality(self) -> float:
        return self.row["quality"]

    @property
    def is_free(self) -> bool:
        return self.model.mean_cost_ == 0.0 and self.row["max_cost"] == 0.0


@dataclass(eq=False)
class Fits:
    """Fits a model for a cost weight, or finds it in the checkpoint; ensembles are shared."""

    estimator: Any
    train: Rows
    validation: Rows
    quality: Callable[[Any, Rows, np.ndarray | None], float]
    store: Checkpoint | None
    report: Callable[[int, Point, float, bool], None]
    points: dict[float, Point] = field(default_factory=dict)
    ensembles: Ensembles = field(default_factory=dict)

    def __call__(self, weight: float) -> Point:
        if weight in self.points:
            return self.points[weight]
        started = time.perf_counter()
        model = clone(self.estimator).set_params(cost_weight=weight)
        found = None if self.store is None else self.store.restore(weight)
        if found is not None:
            model._restore(*found)
        else:
            rows = self.train
            shared = {"ensembles": self.ensembles, "start": self._start(weight)}
            model._fit(rows.X, rows.y, None, None, rows.weights, None, rows.qid, None, **shared)
            if self.store is not None:
                self.store.store(weight, model.model_, model._state())
        point = self.points[weight] = self._judge(model)
        self.report(len(self.points), point, time.perf_counter() - started, found is not None)
        return point

    def _start(self, weight: float) -> NodeParameters | None:
        """The solution of the next larger cost weight, if it is near and its model buys anything.

        Points come in the same order, with the same solutions, whether they are fitted or read from a checkpoint.
        """
        larger = [other for other in self.points if weight < other <= NEAR * weight]
        if not larger or self.points[min(larger)].is_free:
            return None
        return self.points[min(larger)].model._solution

    def _judge(self, model) -> Point:
        margins, costs = model.model_.decision_and_cost(model._check_X(self.validation.X, reset=False))
        cost = cost_summary(costs, self.validation.weights)
        quality = self.quality(model, self.validation, margins)
        if not np.isfinite(quality):
            raise ValueError(f"the quality of the model with cost_weight={model.cost_weight:g} is {quality}")
        row = {"cost_weight": float(model.cost_weight)} | {f"{name}_cost": value for name, value in cost.items()}
        items = int(model.model_.terminal_items().any(axis=0).sum())
        return Point(model, row | {"quality": quality, "nodes": model.model_.shape.n_nodes, "items": items})

    def risk(self) -> float:
        """Mean risk of the constant prediction on the training rows."""
        model = next(iter(self.points.values())).model
        y = model._check_y(self.train.y, reset=False)
        margins = np.tile(model.model_.constant, (len(y), 1))
        return float(np.average(model._loss().value_and_derivative(margins, y)[0], weights=self.train.weights))


class Weights(Protocol):
    """What a search needs: a model for each cost weight, fitted when first asked for."""

    points: dict[float, Point]

    def __call__(self, weight: float) -> Point: ...

    def risk(self) -> float: ...


def search(fits: Weights, n_most: int) -> None:
    """Powers of two from the free model to the full one, most of them where cost and quality change."""
    full, free = fits(0.0), _fit_free(fits)
    if free is None or full.is_free:
        return
    top = round(math.log2(free.cost_weight))
    bottom = min(math.floor(math.log2(NEGLIGIBLE * fits.risk() / full.cost)), top - 1) if full.cost > 0 else top - 1
    grid = {FINE * top: free}  # by the power of the weight, in steps of which FINE make a power of two
    spent = -1.0
    for _ in range(STRIDES):
        if len(fits.points) >= n_most:
            return
        point = grid[FINE * bottom] = fits(_weight(FINE * bottom))
        if point.cost >= LIKE_FULL * full.cost or point.cost <= spent:
            break  # like the full model, or the most that is worth anything at whatever price
        spent = point.cost
        bottom -= STRIDE
    while len(fits.points) < n_most:
        step = _next_step(grid)
        if step is None:
            return
        grid[step] = fits(_weight(step))


def _weight(step: int) -> float:
    """``2 ** (step / FINE)``, so that weights at a whole power's distance have the same digits."""
    return math.ldexp(2.0 ** (step % FINE / FINE), step // FINE)


def _next_step(grid: dict[int, Point]) -> int | None:
    """The middle of the interval across which most changes: by whole powers of two first, then by parts of them."""
    qualities = [point.quality for point in grid.values()]
    spread = max(qualities) - min(qualities) or 1.0
    # cost counts in proportions: from 1 to 2 is as far as from 100 to 200
    least = min((point.cost for point in grid.values() if point.cost > 0), default=1.0) / 2
    paid = {step: math.log(max(point.cost, least)) for step, point in grid.items()}
    most = max(paid.values()) - min(paid.values()) or 1.0
    changes = {
        (low, high): _change(abs(paid[low] - paid[high]) / most, (grid[low].quality - grid[high].quality) / spread)
        for low, high in pairwise(sorted(grid))
    }
    for unit in (FINE, 1):
        wide = [ends for ends in changes if ends[1] - ends[0] > unit and changes[ends] > SAME]
        if wide:
            low, high = max(wide, key=lambda ends: (changes[ends], ends))
            return (low + high) // 2 // unit * unit
    return None


def _change(spent: float, gained: float) -> float:
    """Change of cost and quality, as parts of their ranges; a price for nothing is of less interest."""
    return spent + gained if gained > 0 else spent / 4


def fit_given(fits: Weights, weights: list[float]) -> None:
    if not any([fits(weight).is_free for weight in weights]):
        _fit_free(fits)


def _fit_free(fits: Weights) -> Point | None:
    """A model that buys nothing; None where there is nothing to pay for.

    Whatever a purchase for all rows gains is less than the risk of the constant.  Free features may single out rows
    with more risk than the mean, so that a purchase for them alone pays: hence the strides.
    """
    costs: ResolvedCosts = fits.points[next(iter(fits.points))].model.costs_
    prices = costs.feature_prices + costs.evaluation
    risk = fits.risk()
    if not (prices > 0).any() or not risk > 0:
        return None
    power = math.ceil(math.log2(risk / prices[prices > 0].min()))
    power = max(power, *(math.floor(math.log2(weight)) + 1 for weight in fits.points if weight > 0), power)
    for stride in range(STRIDES):
        point = fits(2.0 ** (power + stride * STRIDE))
        if point.is_free:
            break
    return point


def not_dominated(points: list[Point]) -> list[Point]:
    """Of points in rising order of cost, those that are better than every cheaper one."""
    kept: list[Point] = []
    for point in points:
        if not kept or point.quality > kept[-1].quality:
            kept.append(point)
    return kept
