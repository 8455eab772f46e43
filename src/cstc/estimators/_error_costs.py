"""What errors cost, as users write it: a table by the order of the classes, or names."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np

from ..method import Method
from ..model import Decisions

__all__ = ["check_error_costs", "decisions_of"]


def check_error_costs(estimator: Any, method: Method) -> None:
    """What prices of errors do not go with, and why."""
    if estimator.error_costs is None:
        return
    if estimator.class_weight is not None:
        raise ValueError(
            "error_costs and class_weight are both given; the prices of errors say what each error matters, and "
            "weights of classes would say it again and spoil the probabilities that decide: leave class_weight out"
        )
    if not method.weighs_errors:
        raise ValueError(
            f"error_costs is given, and {type(method).__name__} minimises the log loss plus cost by descending its "
            "gradient, which the price of a decision has not; take method='experts', the default with boosted trees"
        )


def decisions_of(error_costs: Any, classes: np.ndarray) -> Decisions:
    """The prices of errors in the order of the classes."""
    costs = _of_names(error_costs, classes) if isinstance(error_costs, Mapping) else _of_table(error_costs, classes)
    n = len(classes)
    if costs.shape not in ((n, n), (n, n + 1)):
        raise ValueError(f"error_costs has the shape {costs.shape}; {_wanted(classes)}")
    wrong = ~np.isfinite(costs) | (costs < 0)
    if wrong.any():
        truth, decision = np.argwhere(wrong)[0].tolist()
        raise ValueError(
            f"error_costs[{truth}][{decision}] is {costs[truth, decision]}; prices of errors must be finite and 0 or "
            "more, in the currency of the features' prices"
        )
    if not costs.any():
        raise ValueError("error_costs is 0 everywhere: no error costs anything, and there is nothing to decide")
    return Decisions(costs)


def _of_table(error_costs: Any, classes: np.ndarray) -> np.ndarray:
    try:
        given = np.array(error_costs)
        if given.dtype.kind in "iufO":  # not text, nor true and false, which numpy would make numbers of
            return given.astype(float)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"error_costs is {error_costs!r}; {_wanted(classes)}")


def _wanted(classes: np.ndarray) -> str:
    n = len(classes)
    return (
        f"give {n} rows, one for each class as the truth, of {n} prices, one for each class as the decision, in the "
        f"order {classes.tolist()}; with one more column for rows that are referred to a person"
    )


def _of_names(error_costs: Mapping, classes: np.ndarray) -> np.ndarray:
    """``{truth: {decision: price}}``; right decisions cost nothing unless they are named, and None refers."""
    names = classes.tolist()
    unknown = [name for name in error_costs if name not in names]
    if unknown or len(error_costs) != len(names):
        raise ValueError(
            f"error_costs names {list(error_costs)}; it must have an entry for each of the classes {names}, with the "
            "prices of decisions where that class is the truth"
        )
    refers = any(isinstance(prices, Mapping) and None in prices for prices in error_costs.values())
    decisions = [*names, None] if refers else names
    costs = np.zeros((len(names), len(decisions)))
    for row, truth in enumerate(names):
        prices = error_costs[truth]
        if not isinstance(prices, Mapping):
            raise ValueError(f"error_costs[{truth!r}] is {prices!r}; it must map decisions to prices")
        unknown = [name for name in prices if name not in decisions]
        missing = [name for name in decisions if name != truth and name not in prices]
        if unknown or missing:
            raise ValueError(
                f"error_costs[{truth!r}] has prices for {list(prices)}; where {truth!r} is the truth, "
                f"{[name for name in decisions if name != truth]} need one each (None: refer to a person)"
            )
        for decision, price in prices.items():
            if isinstance(price, bool | np.bool_) or not isinstance(price, Real):
                raise ValueError(f"error_costs[{truth!r}][{decision!r}] is {price!r}; it must be a number")
            costs[row, decisions.index(decision)] = float(price)
    return costs
