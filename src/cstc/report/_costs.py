"""What a row costs: how many rows pay how much, with the mean, the 95th percentile and the maximum."""

from __future__ import annotations

import numpy as np

from ..metrics import cost_summary
from ._axis import bars_axis
from ._html import figure_text, fold, percent, table
from ._measured import ModelSeen, TestRows

__all__ = ["costs_part"]

MARKS = {"mean": "mean", "p95": "95th percentile", "max": "maximum"}


def costs_part(seen: ModelSeen, rows: TestRows | None) -> str:
    costs, weights = seen.costs, seen.weights
    if rows is None and weights is None:
        return (
            f"<p>Paths cost from {figure_text(float(costs.min()))} to {figure_text(float(costs.max()))} at most. How "
            "many rows take each is not known of this model; give test rows to see what they pay.</p>"
        )
    known = cost_summary(costs, weights)
    text = ", ".join(f"{MARKS[key]} {figure_text(value)}" for key, value in known.items())
    note = "" if rows is not None else " Each path is counted with the most that it may cost, by its training rows."
    if known["max"] == 0:
        return f"<p>Every row is answered for nothing.{note}</p>"
    axis, edges = bars_axis(costs)
    shares = _shares(costs, weights, edges)
    most = shares.max()
    bars = []
    for low, high, share in zip(edges[:-1], edges[1:], shares, strict=True):
        if share:
            left, right = axis.at(low), axis.at(high)
            height = max(1.0, 100 * share / most)
            bars.append(
                f'<rect x="{left:.2f}" y="{100 - height:.2f}" width="{right - left:.2f}" height="{height:.2f}"/>'
            )
    marks = [f'<path class="mark {key}" d="M{axis.at(value):.2f} 0V100"/>' for key, value in known.items()]
    ticks = "".join(f'<span class="tick x" style="left:{at:.2f}%">{number}</span>' for at, number in axis.ticks())
    keys = "".join(
        f'<li><span class="key {key}"></span>{MARKS[key]} <b>{figure_text(value)}</b></li>'
        for key, value in known.items()
    )
    rows_of_table = [
        [f"{figure_text(float(low))} to {figure_text(float(high))}", percent(float(share))]
        for low, high, share in zip(edges[:-1], edges[1:], shares, strict=True)
        if share
    ]
    return (
        f'<figure class="histogram"><ul class="legend">{keys}</ul>'
        f'<div class="area low" role="img" aria-label="Histogram of what rows cost: {text}">'
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">{"".join(bars + marks)}</svg>'
        f'<div aria-hidden="true">{ticks}</div></div>'
        f'<p class="axis-name">cost of a row{" (logarithmic)" if axis.logarithmic else ""}; height: share of rows, the '
        f"highest bar is {percent(float(most))}</p></figure>{f'<p>{note}</p>' if note else ''}"
        + fold(
            "The bars as a table",
            table("Share of rows by what they cost", ["cost of a row", "of the rows"], rows_of_table),
        )
    )


def _shares(costs: np.ndarray, weights: np.ndarray | None, edges: np.ndarray) -> np.ndarray:
    """Share of rows in each bar; an edge belongs to the bar on its right, so that what is free has its own."""
    which = np.clip(np.searchsorted(edges, costs, side="right") - 1, 0, len(edges) - 2)
    found = np.bincount(which, weights, minlength=len(edges) - 1)
    return found / found.sum()
