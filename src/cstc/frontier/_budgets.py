"""What a choice may be asked for, and choosing by costs other than the mean.

A mean is met on average, a percentile on most rows, and a hard limit on every single row, because the model itself
stops there.  (The largest cost among some validation rows promises nothing of new ones.)
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from ..metrics import cost_summary

__all__ = ["NEAR", "asked_for", "by_percentile", "hole_in", "is_in_money", "within_limit", "worth_of"]

NEAR = 0.85  # from this part of the mean cost on, a model is near enough to it


def asked_for(asked: Mapping[str, Any]) -> tuple[str, float]:
    """The one thing that was asked for, by name, and how much of it."""
    given = {name: value for name, value in asked.items() if value is not None}
    names = [f"{name}=" for name in asked]
    if len(given) != 1:
        which = f"one of {', '.join(names[:-1])} and {names[-1]}, to choose by it" if len(names) > 1 else names[0]
        raise ValueError(f"give {which}")
    ((name, value),) = given.items()
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise ValueError(f"{name} is {value!r}; give a number" + ("" if name == "quality" else ", 0 or more"))
    number = float(value)
    if name == "quality":
        if not number > -math.inf:
            raise ValueError(f"quality is {value!r}; give a number")
    elif not number >= 0 or (name == "max_cost" and number == math.inf):
        raise ValueError(f"{name} is {value!r}; give a number, 0 or more")
    return name, number


def by_percentile(choice: Any, most: float) -> int:
    """The best model of all that were fitted of which 95% of the validation rows cost no more: its place in `tried_`.

    One that others beat in the mean may still be the best of those.
    """
    costs, qualities = choice.tried_.column("p95_cost"), worth_of(choice.tried_)
    within = np.flatnonzero(costs <= most)
    if len(within):
        return int(within[np.argmax(qualities[within])])  # of equal ones the cheapest, which comes first
    cheapest = int(np.argmin(costs))
    warnings.warn(
        f"no model has a 95th percentile of the cost of {most:g} or less; this is the one with the least, "
        f"{costs[cheapest]:.4g}",
        stacklevel=3,
    )
    return cheapest


def within_limit(choice: Any, limit: float) -> tuple[Any, float, float]:
    """Of all models that were fitted, the one that is best when no row may cost more; its mean cost and quality.

    Each is judged as it will be used: with the limit, on the validation rows.
    """
    rows = choice._judges
    found: list[tuple[float, float, int, Any, float]] = []
    for model in choice.tried_models_:
        limited = model.with_limit(limit)
        costs, quality = choice._judge(limited)
        if np.isfinite(quality):
            mean = cost_summary(costs, rows.weights)["mean"]
            worth = quality - mean if is_in_money(choice.tried_) else quality
            found.append((worth, -mean, len(found), limited, quality))
    if not found:
        raise ValueError(f"no model has a quality that is a number with max_cost={limit:g}")
    _, saved, _, limited, quality = max(found)
    return limited, -saved, quality


def is_in_money(table: Any) -> bool:
    """Whether errors have prices: then what tests and errors cost together decides."""
    return "total_cost" in table[0]


def worth_of(table: Any) -> np.ndarray:
    """What models are chosen by, within a budget: their quality, or what tests and errors cost, with a minus."""
    return -table.column("total_cost") if is_in_money(table) else table.column("quality")


def hole_in(costs: np.ndarray, at: int, mean_cost: float) -> str:
    """What lies around a mean cost, if no model is near it though there is a more expensive one; else nothing."""
    if at + 1 >= len(costs) or costs[at] >= NEAR * mean_cost:
        return ""
    return f"no model lies between the mean costs {costs[at]:.4g} and {costs[at + 1]:.4g}"
