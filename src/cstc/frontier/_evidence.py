"""What is known of the models of a frontier: their quality by all rows that taught them nothing, and how sure that is.

Two kinds of rows say something of a model: the validation rows, and the training rows out of fold, as experts are
cross-fitted.  The mean of both is taken, by the number of rows (or queries), and its standard error comes from samples
of both (`resampling`).  What one model is worth beside another is a difference on the same rows in the same samples:
models agree on most rows, so that it is known better than either quality.

The full model is what nobody would give away for noise.  It is beaten only by what is better by more than one standard
error of the difference, while all other models are beaten by a cheaper one that is as good.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..metrics import Quality, cost_summary
from ..resampling import Resamples, cost_draws, standard_error
from ..rows import Rows

__all__ = ["Evidence", "Judges", "Known", "Point", "in_order", "judged_point", "kept_of", "not_dominated", "weighed"]

NOISE = 3.0  # standard errors that both levels may lie apart; with 2, small sets lose rows that they need too often


@dataclass(frozen=True, eq=False)
class Known:
    """A quality, what it is in each of the samples, and how many rows (or queries) it rests on."""

    quality: float
    draws: np.ndarray
    n: float

    @property
    def error(self) -> float:
        return standard_error(self.draws) or 0.0

    def mixed(self, other: Known, share: float) -> Known:
        """The mean of both, of which the other one makes up a share."""
        k = min(len(self.draws), len(other.draws))
        draws = (1 - share) * self.draws[:k] + share * other.draws[:k]
        return Known((1 - share) * self.quality + share * other.quality, draws, self.n + other.n)

    def moved(self, by: Known) -> Known:
        """With another level, in each sample too."""
        return Known(self.quality + by.quality, self.draws + by.draws[: len(self.draws)], self.n)

    @classmethod
    def mean(cls, several: Sequence[Known]) -> Known:
        """Of one model that was judged several times, in each sample too."""
        draws = np.mean([each.draws for each in several], axis=0)
        return cls(float(np.mean([each.quality for each in several])), draws, several[0].n)

    def less(self, other: Known) -> Known:
        """The difference, sample by sample."""
        return Known(self.quality - other.quality, self.draws - other.draws, self.n)


@dataclass(frozen=True, eq=False)
class Judges:
    """Rows that say something of models, and samples of them: the same for all models."""

    rows: Rows
    quality: Quality
    resamples: Resamples

    @classmethod
    def of(cls, rows: Rows, quality: Quality, seed: int) -> Judges:
        return cls(rows, quality, Resamples.of(len(rows), rows.weights, rows.qid, seed))

    def __call__(self, model: Any, margins: np.ndarray) -> Known:
        found = self.quality(model, self.rows, margins)
        return Known(found, self.quality.draws(model, self.rows, margins, self.resamples), self.resamples.n_effective)


@dataclass(frozen=True, eq=False)
class Point:
    """A fitted model and what is known of it.

    Attributes
    ----------
    model : fitted estimator
    row : dict
        Of the table.
    known : Known
        Its quality: by validation rows, until `weighed` takes the others too.
    unseen : Known or None
        By training rows, out of fold.
    """

    model: Any
    row: dict[str, Any]
    known: Known
    unseen: Known | None = None

    @property
    def cost_weight(self) -> Any:
        """None for a mixture."""
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


def judged_point(
    model: Any,
    varied: str,
    value: Any,
    margins: np.ndarray,
    costs: np.ndarray,
    validation: Judges,
    unseen: Known | None = None,
    seen: Known | None = None,
) -> Point:
    """A model with all that is known of it, by the value of the parameter that is varied.

    `margins` and `costs` are those of the validation rows; `unseen` is what training rows say out of fold, and `seen`
    what validation rows say, if that is known already.
    """
    seen = validation(model, margins) if seen is None else seen
    if not np.isfinite(seen.quality):
        shown = f"{value:g}" if isinstance(value, float) else repr(value)
        raise ValueError(f"the quality of the model with {varied}={shown} is {seen.quality}")
    row = {varied: value}
    draws = cost_draws(costs, validation.resamples)
    for name, cost in cost_summary(costs, validation.rows.weights).items():
        row |= {f"{name}_cost": cost, f"{name}_cost_error": standard_error(draws[name])}
    for name in ("quality", "validation_quality"):
        row |= {name: seen.quality, f"{name}_error": standard_error(seen.draws)}
    if validation.quality.in_money:
        total = row["mean_cost"] - seen.quality
        row |= {"total_cost": total, "total_cost_error": standard_error(draws["mean"] - seen.draws)}
    items = int(model.model_.terminal_items().any(axis=0).sum())
    return Point(model, row | {"nodes": model.model_.n_nodes, "items": items}, seen, unseen)


def in_order(points: Iterable[Point]) -> list[Point]:
    """From cheap to expensive; of equal ones the better one first, then the one of the larger weight."""
    return sorted(points, key=lambda point: (point.cost, -point.quality, -(point.cost_weight or 0.0)))


def kept_of(points: Sequence[Point]) -> tuple[list[Point], list[Point], Point]:
    """All points in order, by all that is known; those that no other one beats; and the full model."""
    full = min((point for point in points if point.cost_weight is not None), key=lambda point: point.cost_weight)
    ordered = in_order(weighed(list(points), full))
    full = next(point for point in ordered if point.model is full.model)
    return ordered, not_dominated(ordered, full), full


def weighed(points: list[Point], full: Point) -> list[Point]:
    """The same points, judged by validation rows and out of fold; as they are where there is nothing out of fold.

    Differences from the full model are those of both kinds of rows.  So is its level, but out of fold an expert is one
    member that was grown on a part of the rows, and may be worse than what answers new rows.  Where the two levels
    differ by more than noise, that of the validation rows counts alone.
    """
    if any(point.unseen is None or not np.isfinite(point.unseen.quality) for point in points):
        return points
    seen, unseen = full.known, full.unseen
    assert unseen is not None
    share = unseen.n / (seen.n + unseen.n)
    noise = np.hypot(seen.error, unseen.error)
    level = seen.mixed(unseen, share if abs(seen.quality - unseen.quality) <= NOISE * noise else 0.0)
    found = []
    for point in points:
        assert point.unseen is not None
        known = point.known.less(seen).mixed(point.unseen.less(unseen), share).moved(level)
        row = point.row | {"quality": known.quality, "quality_error": standard_error(known.draws)}
        if "total_cost" in row:  # of the same rows as the quality; the errors of both parts as if they were apart
            errors = row["mean_cost_error"] or 0.0, row["quality_error"] or 0.0
            row |= {"total_cost": row["mean_cost"] - known.quality, "total_cost_error": float(np.hypot(*errors))}
        found.append(replace(point, row=row, known=known))
    return found


def not_dominated(points: list[Point], full: Point | None = None) -> list[Point]:
    """Of points in rising order of cost, those that no cheaper one matches; `full` stays unless it is really beaten."""
    kept: list[Point] = []
    best = -np.inf
    for point in points:
        if point is full:
            beaten = any(
                (other.cost, other.quality) == (point.cost, point.quality) or _is_better(other.known, point.known)
                for other in points[: points.index(point)]
            )
        else:
            beaten = point.quality <= best
        if not beaten:
            kept.append(point)
            best = max(best, point.quality)
    return kept


def _is_better(one: Known, other: Known) -> bool:
    """By more than a standard error of the difference."""
    difference = one.less(other)
    return difference.quality > difference.error


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is known of some models, in rising order of cost.

    Attributes
    ----------
    qualities : ndarray of shape (n_models,)
    draws : ndarray of shape (n_models, n_samples)
    best : int
        The one that others are measured by: the full model, or the best of those that are really better.
    """

    qualities: np.ndarray
    draws: np.ndarray
    best: int

    @classmethod
    def of(cls, points: Sequence[Point], full: Point | None = None) -> Evidence:
        qualities, draws = np.array([point.quality for point in points]), np.array([p.known.draws for p in points])
        better = list(range(len(points)))
        if full is not None and full in points:
            better = [at for at in better if _is_better(points[at].known, full.known)] or [points.index(full)]
        return cls(qualities, draws, max(better, key=lambda at: qualities[at]))

    def shortfalls(self) -> tuple[np.ndarray, np.ndarray]:
        """By how much each model is worse than the best one, and the standard errors of these differences."""
        errors = [standard_error(self.draws[self.best] - each) or 0.0 for each in self.draws]
        return self.qualities[self.best] - self.qualities, np.array(errors)

    def cheapest(self, wanted: float, *, paired: bool) -> int | None:
        """The cheapest model with a quality; None where there is none.

        If `paired`, a model has it if what it lacks of the best one, plus one standard error of that difference, is no
        more than what the best one has to spare.  Where that has none to spare, qualities alone decide.
        """
        spare = self.qualities[self.best] - wanted
        if paired and spare >= 0:
            lacks, errors = self.shortfalls()
            enough = lacks + errors <= spare
        else:
            enough = self.qualities >= wanted
        return int(np.argmax(enough)) if enough.any() else None
