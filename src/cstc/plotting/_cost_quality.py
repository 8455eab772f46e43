"""Quality against cost (paper, figure "versus")."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..metrics import Quality, quality_of
from ..rows import Rows
from ._drawing import COLOURS, INK, LINES, MARKERS, PALE, as_number, log_ticks, plain, pyplot, quiet, spreads
from ._flow import check_is_ours

__all__ = ["CostQualityDisplay"]

INSIDE = 6  # curves whose legend finds room between them
COST_NAMES = {
    "branch": "mean cost of an input",
    "learner": "mean cost of an input, all items of every used learner",
}


class CostQualityDisplay:
    """Quality against cost, one curve for each system.

    Parameters
    ----------
    costs, qualities : list of ndarray
        For each curve, the points in rising order of cost.
    names : list of str
    cost_name, quality_name : str
        Names of the axes.
    chosen : tuple of (cost, quality), optional
        A point to mark.
    cost_errors, quality_errors : list of (ndarray or None), optional
        For each curve the standard errors of its points, NaN where one is not known; drawn as light bars.
    budget : float, optional
        A cost to mark with a line, such as what was asked for.
    budget_name : str
        What the line is called.
    log_cost : bool, optional
        Whether the axis of the cost is logarithmic, with a place for what is free at its left end.  None: where costs
        above 0 differ by more than a factor of 30.

    Examples
    --------
    >>> from cstc.plotting import CostQualityDisplay
    >>> display = CostQualityDisplay.from_predictions(
    ...     [[2, 5, 12], [20]], [[0.71, 0.78, 0.80], [0.81]], ["tree", "all features"]
    ... )
    """

    def __init__(
        self,
        *,
        costs,
        qualities,
        names,
        cost_name="mean cost of an input",
        quality_name="quality",
        chosen=None,
        cost_errors=None,
        quality_errors=None,
        budget=None,
        budget_name="budget",
        log_cost=None,
    ):
        self.costs = costs
        self.qualities = qualities
        self.names = names
        self.cost_name = cost_name
        self.quality_name = quality_name
        self.chosen = chosen
        self.cost_errors = cost_errors
        self.quality_errors = quality_errors
        self.budget = budget
        self.budget_name = budget_name
        self.log_cost = log_cost

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        y,
        *,
        qid=None,
        sample_weight=None,
        quality=None,
        counting="branch",
        name=None,
        ax=None,
        log_cost=None,
    ) -> CostQualityDisplay:
        """Measure a fitted estimator, or all models of a frontier, on given rows.

        Parameters
        ----------
        estimator : fitted estimator of `cstc` or of `cstc.baselines`, or a frontier of either
            An estimator is one point, a frontier is a curve.
        X : array-like or table of shape (n, n_features)
            Rows to measure on, such as test rows.
        y : array-like of shape (n,)
        qid : array-like of shape (n,), optional
            The query of each row, for rankers.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows; they weigh cost and quality, except for NDCG.
        quality : callable, str or None, default=None
            As in `cstc.Frontier`.  None: a frontier's own; R², AUC or NDCG@5 for an estimator.
        counting : {"branch", "learner"}, default="branch"
            How cost is counted, as in `predict_cost`.
        name : str, optional
            In the legend; the name of the class otherwise.
        ax : matplotlib axes, optional
            Axes of another display add the curve to those that are there.
        log_cost : bool, optional
            As in the class.

        Examples
        --------
        >>> import numpy as np
        >>> from cstc.baselines import StageWiseRegression
        >>> from cstc.plotting import CostQualityDisplay
        >>> X = np.random.default_rng(0).normal(size=(600, 4))
        >>> y = X[:, 0] + X[:, 1] ** 2
        >>> frontier = StageWiseRegression(costs=[1, 2, 4, 8], random_state=0).frontier(X[:500], y[:500])
        >>> display = CostQualityDisplay.from_estimator(frontier, X[500:], y[500:])
        >>> one = CostQualityDisplay.from_estimator(frontier.models_[-1], X[500:], y[500:], name="one", ax=display.ax_)
        """
        models = _models_of(estimator)
        quality = getattr(estimator, "quality", None) if quality is None else quality
        quality_name, judged = quality_of(quality, models[0])
        rows = Rows(X, y, None if sample_weight is None else np.asarray(sample_weight, float), qid)
        points = [_measured(model, rows, judged, counting) for model in models]
        costs, qualities = zip(*points, strict=True)
        name = type(models[0]).__name__ if name is None else name
        axis = {"cost_name": COST_NAMES[counting], "quality_name": quality_name}
        return cls.from_predictions([costs], [qualities], [name], ax=ax, log_cost=log_cost, **axis)

    @classmethod
    def from_predictions(
        cls,
        costs,
        qualities,
        names,
        *,
        ax=None,
        chosen=None,
        cost_errors=None,
        quality_errors=None,
        budget=None,
        log_cost=None,
        **axis_names,
    ) -> CostQualityDisplay:
        """Draw measured points.

        Parameters
        ----------
        costs, qualities : sequence of array-like
            For each curve, the cost and the quality of its points, in any order.  A curve of one point is
            drawn as a single mark.
        names : sequence of str
            One for each curve.
        ax : matplotlib axes, optional
        chosen : tuple of (cost, quality), optional
            A point to mark.
        cost_errors, quality_errors : sequence of (array-like or None), optional
            For each curve the standard errors of its points, in the order of the points; None for a curve without.
        budget : float, optional
            A cost to mark with a line.
        log_cost : bool, optional
            Whether the axis of the cost is logarithmic.  None: where costs above 0 differ by more than a factor of 30.
        **axis_names : str
            `cost_name`, `quality_name` and `budget_name`.
        """
        if not len(names):
            raise ValueError("there is nothing to draw; give costs, qualities and a name for one curve at least")
        if not len(costs) == len(qualities) == len(names):
            raise ValueError(
                f"costs, qualities and names have {len(costs)}, {len(qualities)} and {len(names)} entries; "
                "each needs one for each curve"
            )
        if budget is not None and not 0 <= float(budget) < np.inf:
            raise ValueError(f"budget is {budget!r}; it must be a finite number, 0 or more")
        if log_cost is not None and not isinstance(log_cost, bool | np.bool_):
            raise ValueError(f"log_cost is {log_cost!r}; it must be True, False or None, which lets the costs decide")
        errors = {"cost_errors": cost_errors, "quality_errors": quality_errors}
        errors = {which: _checked_errors(which, given, names) for which, given in errors.items()}
        curves, bars = [], []
        for number, (cost, quality, name) in enumerate(zip(costs, qualities, names, strict=True)):
            cost, quality = np.atleast_1d(np.asarray(cost, float)), np.atleast_1d(np.asarray(quality, float))
            if cost.shape != quality.shape or cost.ndim != 1:
                raise ValueError(f"{name!r} has costs of shape {cost.shape} and qualities of shape {quality.shape}")
            if not cost.size or not (np.isfinite(cost).all() and np.isfinite(quality).all()):
                raise ValueError(f"{name!r} has no point, or one that is not finite; give numbers for cost and quality")
            order = np.lexsort((quality, cost))
            curves.append((cost[order], quality[order]))
            bars.append({which: _in_order(which, each[number], order, name) for which, each in errors.items()})
        costs, qualities = [cost for cost, _ in curves], [quality for _, quality in curves]
        given: dict[str, Any] = {which: [each[which] for each in bars] for which in errors}
        given |= {"chosen": chosen, "budget": budget, "log_cost": log_cost}
        display = cls(costs=costs, qualities=qualities, names=list(names), **given, **axis_names)
        return display.plot(ax)

    def plot(self, ax=None) -> CostQualityDisplay:
        """Draw the curves into `ax`, or into a new figure."""
        plt = pyplot()
        if ax is None:
            wide = 5.2 if len(self.costs) <= INSIDE else 7.4
            _, ax = plt.subplots(figsize=(wide, 3.6), layout="constrained")
        curves, before = zip(self.costs, self.qualities, self.names, strict=True), len(ax.lines)
        for which, (cost, quality, name) in enumerate(curves):
            number = before + which  # given axes may have some
            marker, line = MARKERS[number % len(MARKERS)], LINES[number // len(COLOURS) % len(LINES)]
            colour = COLOURS[number % len(COLOURS)]
            style = {"color": colour, "marker": marker, "ms": 6, "lw": 1.8, "mec": "white"}
            ax.plot(
                cost, quality, ls=line if len(cost) > 1 else "", label=plain(name), clip_on=False, zorder=3, **style
            )
            self._draw_errors(ax, which, cost, quality, colour)
        if self.budget is not None:
            name = f"{self.budget_name} {as_number(self.budget)}"
            ax.axvline(self.budget, color=PALE, lw=1.2, ls=(0, (4, 3)), zorder=2.2, label=plain(name))
        if self.chosen is not None:
            cost, quality = self.chosen
            ring = {"marker": "o", "ls": "", "ms": 13, "mfc": "none", "mec": INK, "mew": 1.6, "zorder": 4}
            name = f"chosen: cost {as_number(cost)}, {self.quality_name} {quality:.3f}"
            ax.plot([cost], [quality], label=plain(name), clip_on=False, **ring)
        ax.set_xlabel(plain(self.cost_name))
        ax.set_ylabel(plain(self.quality_name))
        self._scale_costs(ax)
        quiet(ax)
        ax.grid(color="#e6e9ed", lw=0.8, zorder=0)
        beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}  # many curves leave no room between them
        ax.legend(frameon=False, fontsize=9, **beside if len(ax.lines) > INSIDE else {})
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _scale_costs(self, ax) -> None:
        """The axis of the cost, for all curves that are there: from 0, logarithmic where costs spread."""
        costs = np.concatenate([np.asarray(line.get_xdata(), dtype=float) for line in ax.lines])
        paid = costs[costs > 0]
        logarithmic = spreads(costs) if self.log_cost is None else bool(self.log_cost)
        if costs.min() < 0 or not logarithmic or not len(paid):
            ax.set_xscale("linear")
            ax.set_xlim(left=min(0.0, ax.get_xlim()[0]) if costs.min() < 0 else 0.0)
            return
        low, high = float(paid.min()), float(paid.max()) * 1.15
        # linear from 0 to the least cost, which takes as much room as a third of a decade
        ax.set_xscale("symlog", linthresh=low, linscale=1 / 3)
        ax.set_xlim(0.0 if (costs == 0).any() else low / 1.15, high)
        ticks = ([0.0] if (costs == 0).any() else []) + log_ticks(low, high)
        ax.set_xticks(ticks, [as_number(tick) for tick in ticks])
        ax.set_xticks([], minor=True)

    def _draw_errors(self, ax, which: int, cost, quality, colour: str) -> None:
        """Light bars behind a curve; without caps, which would be one more mark at each point."""
        sides = [None if each is None else each[which] for each in (self.cost_errors, self.quality_errors)]
        if any(side is not None for side in sides):
            light = {"ecolor": colour, "elinewidth": 4.0, "alpha": 0.22, "capsize": 0, "zorder": 2}
            ax.errorbar(cost, quality, xerr=sides[0], yerr=sides[1], fmt="none", **light)


def _checked_errors(which: str, given: Any, names: Any) -> list[Any]:
    """One entry for each curve."""
    if given is None:
        return [None] * len(names)
    if len(given) != len(names):
        raise ValueError(f"{which} has {len(given)} entries for {len(names)} curves; give one for each, or None")
    return list(given)


def _in_order(which: str, errors: Any, order: np.ndarray, name: str) -> np.ndarray | None:
    if errors is None:
        return None
    errors = np.atleast_1d(np.asarray(errors, dtype=float))  # None is NaN
    if errors.shape != order.shape:
        raise ValueError(f"{name!r} has {which} of shape {errors.shape} and {len(order)} points; give one for each")
    if (errors < 0).any():
        raise ValueError(f"{name!r} has {which} below 0; a standard error is 0 or more, or NaN where it is not known")
    return errors[order]


def _models_of(estimator: Any) -> list[Any]:
    """The models of a frontier, or the estimator itself."""
    if hasattr(estimator, "_check_fitted"):  # a frontier
        estimator._check_fitted()
        return estimator.models_
    check_is_ours(estimator)
    check_is_fitted(estimator)
    return [estimator]


def _measured(model: Any, rows: Rows, judged: Quality, counting: str) -> tuple[float, float]:
    """Mean cost and quality; early exit needs the queries to know what it pays."""
    queries = {"qid": rows.qid} if "qid" in signature(model.predict_cost).parameters else {}
    costs = model.predict_cost(rows.X, counting, **queries)
    return float(np.average(costs, weights=rows.weights)), judged(model, rows, None)
