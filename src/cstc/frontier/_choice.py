"""Choosing from fitted models by a budget or by a quality, and drawing them; whatever system they come from."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from ..costs import counted, span
from ..rows import Rows
from ._budgets import asked_for, by_percentile, hole_in, is_in_money, within_limit, worth_of
from ._evidence import Evidence
from ._table import FrontierTable

__all__ = ["Choice"]

#: What a line at a cost that was asked for is called in a picture.
ASKED = {"mean_cost": "budget", "p95_cost": "limit of 95% of inputs", "max_cost": "limit of every input"}


class Choice:
    """What has `models_` from cheap to expensive and from bad to good, and their `table_`."""

    models_: list[Any]
    tried_: FrontierTable
    tried_models_: list[Any]
    table_: FrontierTable
    quality_name_: str
    _judges: Rows  # the rows that choose, as the user gave them
    _refines = False  # whether more models can be fitted where there is a hole
    _evidence: Evidence

    def _summary(self) -> str:
        """What the models are and where they lie, in one short line."""
        cost, quality = self.table_.column("mean_cost"), self.table_.column("quality")
        of, name = type(self.models_[0]).__name__, self.quality_name_
        return (
            f"<{type(self).__name__} of {of}: {counted(len(self.models_), 'model')}, mean cost "
            f"{span(cost[0], cost[-1], '.4g')}, {name[:24] + '…' if len(name) > 25 else name} "
            f"{span(quality[0], quality[-1], '.4f')}>"
        )

    def best(self, *, mean_cost=None, p95_cost=None, max_cost=None, quality=None, paired=True):
        """The best model for a budget, or the cheapest one for a quality, by all rows that did not teach.

        Parameters
        ----------
        mean_cost : float, optional
            The most that an input may cost on average.  If this is less than the cheapest model that buys anything
            costs, the answer is the free model, or the cheapest where none is free, with a warning; and so it is where
            no model costs nearly as much though there is a more expensive one.  Where errors have prices, the model of
            least total cost within it; of all models, with ``float("inf")``.
        p95_cost : float, optional
            The most that 95% of the inputs may cost.
        max_cost : float, optional
            The most that any input may cost.  Each model is judged as it answers within that, and the best one is
            returned with this limit (`with_limit`), which it keeps wherever it is used.
        quality : float, optional
            The least quality.  If no model reaches it, the answer is the best one, with a warning.
        paired : bool, default=True
            With `quality`: whether a cheaper model must be surely good enough.  What it lacks of the best model on the
            same rows, plus one standard error of that difference, must be no more than what the best one has to spare.
            With False, its quality in `table_` decides alone.

        Returns
        -------
        fitted estimator
        """
        self._check_fitted()
        asked = {"mean_cost": mean_cost, "p95_cost": p95_cost, "max_cost": max_cost, "quality": quality}
        name, wanted = asked_for(asked)
        if not isinstance(paired, bool | np.bool_):
            raise ValueError(f"paired is {paired!r}; it must be True or False")
        if name != "quality" and not paired:
            raise ValueError("paired=False belongs to quality=; a budget is chosen by cost alone: leave it out")
        if name == "max_cost":
            return within_limit(self, wanted)[0]
        if name == "p95_cost":
            return self.tried_models_[by_percentile(self, wanted)]
        return self.models_[self._choose(name, wanted, bool(paired))]

    def _judge(self, model) -> tuple[np.ndarray, float]:
        """What the rows that choose pay with a model, and its quality there."""
        raise NotImplementedError

    def _choose(self, name: str, wanted: float, paired: bool = True) -> int:
        if name == "quality":
            at = self._evidence.cheapest(wanted, paired=paired)
            if at is None:
                at = self._evidence.best
                warnings.warn(
                    f"no model has {self.quality_name_} {wanted:g} or more; "
                    f"this is the best one, with {self.table_[at]['quality']:.4g}",
                    stacklevel=3,
                )
            return at
        costs = self.table_.column("mean_cost")
        paid = costs[costs > 0]
        at = max(0, int(np.searchsorted(costs, wanted, side="right")) - 1)
        hole = hole_in(costs, at, wanted) if self._refines else ""
        advice = f"; refine(X, y, ..., mean_cost={wanted:g}) fits more weights there" if hole else ""
        if wanted < costs[0]:  # a system's own values need not lead to a free model
            warnings.warn(
                f"no model has a mean cost of {wanted:g} or less; this is the cheapest, which costs {costs[0]:.4g}",
                stacklevel=3,
            )
        elif len(paid) and 0 < wanted < paid[0]:
            warnings.warn(
                f"a mean cost of {wanted:g} is below the {paid[0]:.4g} of the cheapest model that buys anything; "
                f"this is the free one{advice}",
                stacklevel=3,
            )
        elif hole and not is_in_money(self.table_):
            warnings.warn(f"{hole}; this is the cheaper one{advice}", stacklevel=3)
        # where errors have prices, a cheaper model may cost less in all
        return int(np.argmax(worth_of(self.table_)[: at + 1])) if is_in_money(self.table_) else at

    def plot(
        self,
        *,
        mean_cost=None,
        p95_cost=None,
        max_cost=None,
        quality=None,
        others=None,
        name=None,
        ax=None,
        log_cost=None,
    ):
        """Draw quality against cost, with light bars for their standard errors.

        Alone, models are drawn with their `quality` in `table_`; beside others, all with what the validation rows say.
        Where errors have prices, what tests and errors cost together is drawn instead: less is better.

        Parameters
        ----------
        mean_cost, p95_cost, max_cost, quality : float, optional
            Mark the model that `best` gives for it, and draw a line at a cost that was asked for; with `max_cost`,
            where the limit leaves the model.
        others : mapping of str to Frontier, SystemFrontier or (costs, qualities), optional
            What to draw beside it, by name: other frontiers, or measured points on the same rows.
        name : str, optional
            The name of this frontier in the legend.
        ax : matplotlib axes, optional
        log_cost : bool, optional
            Whether the axis of the cost is logarithmic.  None: where costs differ by more than a factor of 30.

        Returns
        -------
        CostQualityDisplay
        """
        from ..plotting import CostQualityDisplay

        self._check_fitted()
        if others is not None and not isinstance(others, Mapping):
            raise ValueError("others must be a mapping: names, and for each a frontier or (costs, qualities)")
        # others have not been out of fold: only the same rows compare
        shown = "validation_quality" if others else "quality"
        in_money = is_in_money(self.table_)
        shown = "total_cost" if in_money else shown
        curves = {name or type(self.models_[0]).__name__: _curve(self, shown)}
        curves |= {other: _curve(points, shown) for other, points in (others or {}).items()}
        chosen = budget = None
        budget_name = ""
        asked = {"mean_cost": mean_cost, "p95_cost": p95_cost, "max_cost": max_cost, "quality": quality}
        if any(value is not None for value in asked.values()):
            wanted_name, wanted = asked_for(asked)
            if wanted_name in ASKED and np.isfinite(wanted):
                budget, budget_name = wanted, ASKED[wanted_name]
            if wanted_name == "max_cost":
                _, cost, quality = within_limit(self, wanted)
                chosen = cost, cost - quality if in_money else quality
            else:
                if wanted_name == "p95_cost":
                    row = self.tried_[by_percentile(self, wanted)]
                else:
                    row = self.table_[self._choose(wanted_name, wanted)]
                chosen = row["mean_cost"], row[shown]
        costs, qualities, cost_errors, quality_errors = zip(*curves.values(), strict=True)
        return CostQualityDisplay.from_predictions(
            costs,
            qualities,
            list(curves),
            ax=ax,
            chosen=chosen,
            quality_name="total cost" if in_money else self.quality_name_,
            cost_errors=cost_errors,
            quality_errors=quality_errors,
            budget=budget,
            budget_name=budget_name,
            log_cost=log_cost,
        )

    def _check_fitted(self) -> None:
        if not hasattr(self, "models_"):
            raise NotFittedError(f"This {type(self).__name__} instance is not fitted yet. Call 'fit' first.")


def _curve(points: Any, shown: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Costs, qualities, and the standard errors of both, where they are known."""
    if isinstance(points, Choice):
        points._check_fitted()
        if is_in_money(points.table_) != (shown == "total_cost"):
            raise ValueError(
                "of two frontiers one has prices of errors and the other has none: quality and money do not go into "
                "one picture"
            )
        names = "mean_cost", shown, "mean_cost_error", f"{shown}_error"
        cost, quality, cost_error, quality_error = (points.table_.column(name).astype(float) for name in names)
        return cost, quality, cost_error, quality_error
    if not isinstance(points, tuple | list) or len(points) != 2:
        raise ValueError(f"others holds {points!r}; it must be a frontier, or costs and qualities: (costs, qualities)")
    costs, qualities = points
    return np.asarray(costs, dtype=float), np.asarray(qualities, dtype=float), None, None
