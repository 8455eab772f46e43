"""The cost weight whose mean cost is what was asked for, or two of them and a mixture.

The mean cost falls as the cost weight grows, in steps of any size and not quite steadily.  So weights are looked at by
bisection, in powers of two, and a look takes no more than tells what rows would pay (`Method.preview`); all that does
not depend on the weight is shared.

1. From cost weight 0, the full model, down to where the cheapest purchase costs more than all risk that the constant
   prediction leaves.  Of all weights that were looked at, the two count whose costs are next to the one asked for.
2. A model from 95 to 100% of it is built, and taken if it stays there once it is measured.
3. Where the two neighbours lie so close that no weight is left between them, there is a hole, and rows take the one
   or the other by a coin (`Mixture`).  Whole queries have no coins: they take the cheaper one, with a warning.

What is measured.  Out of fold, each row passes gates that half of the rows taught, and of several ways the one was
taken that looked best there; new rows pass the mean of both gates.  At the training rows, the model that was built has
gates that have seen these rows.  On splits of heart, pima, breast cancer and thyroid, new rows cost -3 to 10% more
than the first says and -1 to 4% more than the second, so the larger one counts.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ..method import Problem, Trained
from ..model.mixture import Mixture, share_for
from ..model.queries import QueryTree

__all__ = ["FINEST", "MOST_LOOKS", "Build", "crossing", "meet", "mixed"]

NEAR = 0.95  # from this part of the mean cost on, a model is near enough to it
MOST_LOOKS = 12
FINEST = 1 / 16  # of a power of two: weights nearer to each other than that have the same model, or there is a hole
ROUNDING = 1e-9  # part of a cost: a mean over rows is rounded
NEGLIGIBLE = 2.0**-10  # the least weight: the full bill is this part of the constant's risk
STRIDE = 4  # powers of two, where the largest weight is not large enough: free features may single out rows at risk
STRIDES = 6

#: Builds what was looked at, and says what its rows pay on average.
Build = Callable[[], tuple[Trained, float]]


@dataclass(eq=False)
class _Look:
    """A cost weight, what its model costs on average as far as it is known, and the model once it is built."""

    weight: float
    cost: float
    build: Build
    trained: Trained | None = None

    def settle(self) -> None:
        """Build the model and measure it."""
        if self.trained is None:
            self.trained, self.cost = self.build()


def meet(
    mean_cost: float, preview: Callable[[float], tuple[float, Build]], problem: Problem
) -> tuple[Trained, float | tuple[float, float]]:
    """The model that meets a mean cost, and its cost weight; of a mixture, the weights of both."""
    found = _Search(mean_cost, preview, problem).run()
    trained = [look.trained for look in found if look.trained is not None]
    if len(found) == 1:
        return trained[0], found[0].weight
    if isinstance(trained[0].model, QueryTree):
        warnings.warn(
            f"no cost weight has a mean cost near {mean_cost:g}, and documents of one query cannot take two models by "
            f"coins; this is the cheaper one of the neighbours, which costs {found[0].cost:.4g}",
            stacklevel=2,
        )
        return trained[0], found[0].weight
    share = share_for(mean_cost, found[0].cost, found[1].cost)
    return mixed(trained[0], trained[1], share, problem.random_state), (found[0].weight, found[1].weight)


def mixed(cheaper: Trained, costlier: Trained, share: float, seed: int) -> Trained:
    """Both together: steps and candidates of one after those of the other."""
    model = Mixture(cheaper.model, costlier.model, share, seed)
    return replace(
        costlier,
        model=model,
        loss_history=[*cheaper.loss_history, *costlier.loss_history],
        converged=cheaper.converged and costlier.converged,
        reached=model.mixed(cheaper.reached, costlier.reached),
        solution=None,
        out_of_fold=None,
        candidates=[*cheaper.candidates, *costlier.candidates],
    )


def crossing(costs: Mapping[float, float], most: float) -> tuple[float, float]:
    """Of costs by weight, which go from too expensive to cheap enough, two next to each other between which they do.

    Costs need not fall steadily: between the two whose costs are nearest there may be others that were looked at.
    """
    pairs = list(pairwise(sorted(costs)))
    return next((low, high) for low, high in reversed(pairs) if costs[low] > most >= costs[high])


class _Search:
    """Looks at cost weights until one, or two neighbours, are known to meet the mean cost."""

    def __init__(self, mean_cost: float, preview: Callable[[float], tuple[float, Build]], problem: Problem):
        self._target, self._preview, self._progress = mean_cost, preview, problem.progress
        self._looks: list[_Look] = []
        costs, rows = problem.costs, problem.rows
        constant = np.tile(problem.loss.constant(rows.y, rows.weights), (len(rows), 1))
        risk = max(problem.stakes.risk(constant, rows.y, rows.weights), np.finfo(float).tiny)
        prices = costs.feature_prices + costs.evaluation
        cheapest = prices[prices > 0].min(initial=math.inf)
        self._top = math.ceil(math.log2(risk / cheapest)) if cheapest < math.inf else 0
        everything = max(costs.full_cost, cheapest if cheapest < math.inf else 1.0)
        self._bottom = min(math.floor(math.log2(NEGLIGIBLE * risk / everything)), self._top - 1)

    def run(self) -> list[_Look]:
        """One look with its model, or two: the cheaper one and the other."""
        self._look(0.0)
        while True:
            below, above = self._neighbours()
            weight = None
            if below is None:
                weight = self._further_up()
                if weight is None:
                    return [self._cheapest()]
            elif above is None or below.cost >= NEAR * self._target:
                if below.trained is not None:
                    return [below]
                below.settle()
                continue
            else:
                weight = self._between(below, above)
            if weight is not None:
                self._look(weight)
            elif below is not None and above is not None:
                if below.trained is not None and above.trained is not None:
                    return [below, above]
                below.settle()
                above.settle()

    def _look(self, weight: float) -> None:
        self._progress.begin_model()
        cost, build = self._preview(weight)
        self._looks.append(_Look(weight, cost, build))
        self._progress.end_model()
        self._progress.say(f"cost weight {weight:.4g}: mean cost {cost:.4g}, {self._target:.4g} asked for")

    def _neighbours(self) -> tuple[_Look | None, _Look | None]:
        """The most expensive look that costs no more than asked for, and the cheapest that costs more.

        Of equal ones those whose weights are next to each other: nothing is looked at twice.
        """
        most = self._target * (1 + ROUNDING)
        within = [look for look in self._looks if look.cost <= most]
        beyond = [look for look in self._looks if look.cost > most]
        below = max(within, key=lambda look: (look.cost, -look.weight), default=None)
        return below, min(beyond, key=lambda look: (look.cost, -look.weight), default=None)

    def _between(self, below: _Look, above: _Look) -> float | None:
        """The middle of two weights in powers of two; None where nothing is left to look at."""
        if len(self._looks) >= MOST_LOOKS or above.weight >= below.weight:  # or costs are in no order here
            return None
        costs = {look.weight: look.cost for look in self._looks if above.weight <= look.weight <= below.weight}
        weights = crossing(costs, self._target * (1 + ROUNDING))
        low, high = (math.log2(weight) if weight > 0 else self._bottom for weight in weights)
        return 2.0 ** ((low + high) / 2) if high - low > FINEST else None

    def _further_up(self) -> float | None:
        """A larger weight than all so far, which were too expensive."""
        largest = max(look.weight for look in self._looks)
        power = math.log2(largest) if largest > 0 else self._bottom
        if power < self._top:
            return 2.0 ** ((power + self._top) / 2 if self._top - power > 1 else self._top)
        return None if power >= self._top + STRIDE * STRIDES else 2.0 ** (power + STRIDE)

    def _cheapest(self) -> _Look:
        look = min(self._looks, key=lambda look: (look.cost, look.weight))
        look.settle()
        warnings.warn(
            f"no cost weight has a mean cost of {self._target:g} or less; this is the cheapest model, which costs "
            f"{look.cost:.4g}",
            stacklevel=2,
        )
        return look
