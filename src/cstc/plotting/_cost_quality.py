"""Quality against cost (paper, figure "versus")."""

from __future__ import annotations

import numpy as np

from ._drawing import COLOURS, INK, MARKERS, as_number, pyplot, quiet

__all__ = ["CostQualityDisplay"]


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

    Examples
    --------
    >>> from cstc.plotting import CostQualityDisplay
    >>> display = CostQualityDisplay.from_predictions(
    ...     [[2, 5, 12], [20]], [[0.71, 0.78, 0.80], [0.81]], ["tree", "all features"]
    ... )
    """

    def __init__(
        self, *, costs, qualities, names, cost_name="mean cost of an input", quality_name="quality", chosen=None
    ):
        self.costs = costs
        self.qualities = qualities
        self.names = names
        self.cost_name = cost_name
        self.quality_name = quality_name
        self.chosen = chosen

    @classmethod
    def from_predictions(cls, costs, qualities, names, *, ax=None, chosen=None, **axis_names) -> CostQualityDisplay:
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
        **axis_names : str
            `cost_name` and `quality_name`.
        """
        if not len(costs) == len(qualities) == len(names):
            raise ValueError(
                f"costs, qualities and names have {len(costs)}, {len(qualities)} and {len(names)} entries; "
                "each needs one for each curve"
            )
        curves = []
        for cost, quality, name in zip(costs, qualities, names, strict=True):
            cost, quality = np.atleast_1d(np.asarray(cost, float)), np.atleast_1d(np.asarray(quality, float))
            if cost.shape != quality.shape or cost.ndim != 1:
                raise ValueError(f"{name!r} has costs of shape {cost.shape} and qualities of shape {quality.shape}")
            order = np.lexsort((quality, cost))
            curves.append((cost[order], quality[order]))
        costs, qualities = [cost for cost, _ in curves], [quality for _, quality in curves]
        display = cls(costs=costs, qualities=qualities, names=list(names), chosen=chosen, **axis_names)
        return display.plot(ax)

    def plot(self, ax=None) -> CostQualityDisplay:
        """Draw the curves into `ax`, or into a new figure."""
        plt = pyplot()
        if ax is None:
            _, ax = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
        for number, (cost, quality, name) in enumerate(zip(self.costs, self.qualities, self.names, strict=True)):
            marker = MARKERS[number % len(MARKERS)]
            style = {"color": COLOURS[number % len(COLOURS)], "marker": marker, "ms": 6, "lw": 1.8, "mec": "white"}
            ax.plot(cost, quality, ls="-" if len(cost) > 1 else "", label=name, clip_on=False, zorder=3, **style)
        if self.chosen is not None:
            cost, quality = self.chosen
            ring = {"marker": "o", "ls": "", "ms": 13, "mfc": "none", "mec": INK, "mew": 1.6, "zorder": 4}
            name = f"chosen: cost {as_number(cost)}, {self.quality_name} {quality:.3f}"
            ax.plot([cost], [quality], label=name, clip_on=False, **ring)
        ax.set_xlabel(self.cost_name)
        ax.set_ylabel(self.quality_name)
        ax.set_xlim(left=min(0.0, ax.get_xlim()[0]) if min(map(np.min, self.costs)) < 0 else 0.0)
        quiet(ax)
        ax.grid(color="#e6e9ed", lw=0.8, zorder=0)
        ax.legend(frameon=False, fontsize=9)
        self.ax_, self.figure_ = ax, ax.figure
        return self
