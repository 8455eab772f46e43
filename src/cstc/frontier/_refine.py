"""More models where a frontier has a hole, and a mixture where no model lies in it.

Around a budget there may be nothing: one model costs 4 and the next 161.  Weights between those of the two neighbours
are fitted by bisection, in powers of two, until a model costs 85 to 100% of the budget or nothing is left between
them.  Where the hole stays, since nothing lies there or nothing that is better than a cheaper model, rows take the one
or the other neighbour by a coin, so that the mean cost of the validation rows is the budget (`cstc.Mixture`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ..estimators._mean_cost import FINEST, crossing, mixed
from ..method import OutOfFold
from ..metrics import cost_summary
from ..model.mixture import Mixture, share_for
from ._budgets import NEAR
from ._evidence import Known, Point, judged_point, kept_of
from ._fits import Fits

__all__ = ["MOST_FITS", "bisect", "hole_around", "mixture_of"]

MOST_FITS = 10
DEEPEST = 8  # powers of two below a weight, where its neighbour is the full model
MORE = 1.02  # times the cost of the model before it: what spends no more is near the most that is worth anything
SEEDS = 8  # draws of the coins over which the quality of a mixture is averaged


def neighbours(points: Iterable[Point], mean_cost: float) -> tuple[Point | None, Point | None]:
    """The most expensive model within a mean cost, and the cheapest beyond it."""
    points = list(points)
    within = [point for point in points if point.cost <= mean_cost]
    beyond = [point for point in points if point.cost > mean_cost]
    below = max(within, key=lambda point: (point.cost, -(point.cost_weight or 0.0)), default=None)
    return below, min(beyond, key=lambda point: (point.cost, -(point.cost_weight or 0.0)), default=None)


def hole_around(points: Iterable[Point], mean_cost: float) -> tuple[Point, Point] | None:
    """The two models around a mean cost, if the cheaper one is not near it; of models that no other one beats."""
    below, above = neighbours(kept_of(list(points))[1], mean_cost)
    return None if below is None or above is None or below.cost >= NEAR * mean_cost else (below, above)


def bisect(fits: Fits, mean_cost: float) -> None:
    """Fit weights in the hole around a mean cost, until one is near it or nothing is left between its neighbours."""
    n_before = len(fits.points)
    while len(fits.points) - n_before < MOST_FITS:
        below, above = neighbours(fits.points.values(), mean_cost)
        if below is None or above is None or below.cost >= NEAR * mean_cost:
            return
        if above.cost_weight >= below.cost_weight:  # costs are in no order here
            return
        between = [above.cost_weight, below.cost_weight]
        costs = {w: point.cost for w, point in fits.points.items() if between[0] <= w <= between[1]}
        smaller, larger = crossing(costs, mean_cost)
        high = math.log2(larger)
        low = math.log2(smaller) if smaller > 0 else high - DEEPEST
        if high - low <= FINEST:
            return
        found = fits(2.0 ** ((low + high) / 2))
        if smaller == 0 and found.cost <= MORE * below.cost:
            return  # the most that is worth anything


def mixture_of(fits: Fits, cheaper: Point, costlier: Point, mean_cost: float) -> Point:
    """The mixture whose mean cost on the validation rows is the one asked for; quality is a mean over several coins."""
    share = share_for(mean_cost, cheaper.cost, costlier.cost)
    trees = cheaper.model.model_, costlier.model.model_
    model = copy.copy(costlier.model)
    model.set_params(cost_weight=None, mean_cost=mean_cost)  # what a clone would be fitted to
    model.cost_weight_ = cheaper.cost_weight, costlier.cost_weight
    both = cheaper.model._as_trained(), costlier.model._as_trained()
    model._take(mixed(*both, share, int(fits.estimator.random_state)))
    model.mean_cost_ = (1.0 - share) * cheaper.model.mean_cost_ + share * costlier.model.mean_cost_
    rows = fits.validation
    X = model._check_X(rows.X, reset=False)
    answers = [tree.decide(X) for tree in trees]
    # what the coins of the validation rows happen to be says nothing of new rows: several are drawn
    n_drawn = SEEDS if fits.quality.from_margins else 1
    drawn = [replace(model.model_, seed=model.model_.seed + number) for number in range(n_drawn)]
    known = Known.mean([fits.judges(model, _taken(each, *(margins for margins, _ in answers))) for each in drawn])
    told = [each.model._out_of_fold for each in (cheaper, costlier)]
    unseen = None
    if all(each is not None for each in told) and np.array_equal(told[0].rows, told[1].rows):
        margins = [_taken(each, told[0].margins, told[1].margins) for each in drawn]
        said = [fits.told_out_of_fold(model, OutOfFold(told[0].rows, each)) for each in margins]
        unseen = None if said[0] is None else Known.mean([each for each in said if each is not None])
    point = judged_point(model, "cost_weight", None, answers[0][0], answers[0][1], fits.judges, unseen, known)
    costs = _costs(answers[0][1], answers[1][1], share, rows.weights, mean_cost)
    costs |= _cost_errors(cheaper, costlier, share)
    if fits.quality.in_money:
        costs |= {"total_cost": costs["mean_cost"] - known.quality, "total_cost_error": known.error}
    return replace(point, row=point.row | costs)


def _taken(mixture: Mixture, cheaper: np.ndarray, costlier: np.ndarray) -> np.ndarray:
    """The margins that rows get by their coins."""
    return np.where(mixture.takes_costlier(len(cheaper))[:, None], costlier, cheaper)


def _cost_errors(cheaper: Point, costlier: Point, share: float) -> dict[str, Any]:
    """Standard errors of the costs: those of both models, by their shares (as if they erred together)."""
    found = {}
    for name in ("mean_cost_error", "p95_cost_error", "max_cost_error"):
        errors = [point.row[name] for point in (cheaper, costlier)]
        known = all(each is not None for each in errors)
        found[name] = (1.0 - share) * errors[0] + share * errors[1] if known else None
    return found


def _costs(
    cheaper: np.ndarray, costlier: np.ndarray, share: float, weights: np.ndarray | None, mean_cost: float
) -> dict[str, float]:
    """What rows pay in expectation over their coins: each takes both models, by their shares."""
    own = np.ones(len(cheaper)) if weights is None else weights
    both = np.concatenate([(1.0 - share) * own, share * own])
    found = cost_summary(np.concatenate([cheaper, costlier]), both)
    found["mean"] = min(found["mean"], mean_cost)  # a rounded share must not exceed what it was made for
    return {f"{name}_cost": value for name, value in found.items()}
