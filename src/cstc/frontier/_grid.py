"""Which cost weights are fitted.

Cost weights are powers of two.  The top is where the cheapest purchase costs more than all risk that the constant
prediction leaves; the bottom is where the whole bill of the full model (cost weight 0, always fitted) is a negligible
part of that risk.  Between them, the interval across which cost and quality change most is halved, again and again:
stretches on which nothing changes take no fits.  Where neighbours still lie far apart, quarters of a power come last.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Protocol

from ..costs import ResolvedCosts
from ._evidence import Point

__all__ = ["fit_given", "search"]

NEGLIGIBLE = 2.0**-10  # the bottom of the grid: the full bill is this part of the constant's risk
LIKE_FULL = 0.9  # or this part of the full model's cost is spent
SAME = 0.03  # an interval with a smaller change of cost and quality (as parts of their ranges) is not halved
FINE = 4  # the least interval, as a part of a power of two
MORE = 1.02  # times the cost of the model before it: what spends no more is the bottom
STRIDE = 4  # powers of two, where an end of the range turns out to be no end
STRIDES = 6


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
        if point.cost >= LIKE_FULL * full.cost or point.cost <= MORE * spent:
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
