"""Which model for which budget: the frontier to touch, its slider, and all models as a table.

Lines are SVG that stretches with the page; points are buttons and numbers are text, so that they keep their size on
any screen and are there for the keyboard and for screen readers.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ._axis import Axis
from ._html import figure_text, fold, money, name, quality_text, safe, short, table, with_error
from ._measured import ModelSeen, TestRows
from ._saved import Contents, Reference

__all__ = ["ShownPoint", "first_shown", "models_part", "points_of"]


IN_MONEY = "total cost"  # what quality is called where errors have prices


class ShownPoint:
    """A model as the picture shows it: what it costs, how good it is, and how sure both are."""

    def __init__(self, cost: float, quality: float, cost_error: float | None, quality_error: float | None):
        self.cost, self.quality = cost, quality
        self.cost_error, self.quality_error = cost_error or 0.0, quality_error or 0.0


def points_of(contents: Contents, seen: list[ModelSeen]) -> tuple[list[ShownPoint], str]:
    """The points of the picture, and the rows that they were measured on.

    Others were measured on the validation rows, and only the same rows compare: beside them, so are the models.
    """
    on_test = seen[0].test.get("quality") is not None and not contents.references
    rows = [model.test if on_test else model.row for model in seen]
    if contents.references:
        return [_on_validation(row, contents.in_money) for row in rows], "validation"
    shown = "total_cost" if contents.in_money else "quality"
    found = [
        ShownPoint(row["mean_cost"], row[shown], row.get("mean_cost_error"), row.get(f"{shown}_error")) for row in rows
    ]
    return found, "test" if on_test else "all"


def _on_validation(row: dict[str, Any], in_money: bool) -> ShownPoint:
    """By the validation rows alone; where errors have prices, what features and errors cost there together."""
    cost, quality = row["mean_cost"], row["validation_quality"]
    errors = row.get("mean_cost_error"), row.get("validation_quality_error")
    if in_money:
        both = math.hypot(*(error or 0.0 for error in errors))
        return ShownPoint(cost, _height(cost, quality, True), errors[0], both)
    return ShownPoint(cost, quality, *errors)


def _height(cost: float, quality: float, in_money: bool) -> float:
    """Where a point stands: at its quality; where that is what errors cost, with a minus, at the sum of both costs."""
    return cost - quality if in_money else quality


def first_shown(contents: Contents) -> int:
    """The model that the page opens with: the cheapest that is within a standard error of the best, as chosen by."""
    if contents.in_money:
        return int(np.argmin([row["total_cost"] for row in contents.table]))
    best = max(contents.table, key=lambda row: row["quality"])
    least = best["quality"] - (best.get("quality_error") or 0.0)
    return next(at for at, row in enumerate(contents.table) if row["quality"] >= least)


def models_part(contents: Contents, seen: list[ModelSeen], rows: TestRows | None) -> str:
    """The whole part of the page."""
    points, measured_on = points_of(contents, seen)
    quality = IN_MONEY if contents.in_money else contents.quality_name
    others = [
        replace(each, points=[(cost, _height(cost, value, contents.in_money)) for cost, value in each.points])
        for each in contents.references
    ]
    costs = [point.cost for point in points] + [cost for each in others for cost, _ in each.points]
    x = Axis.of_costs(costs)
    heights = [point.quality + sign * point.quality_error for point in points for sign in (-1, 1)]
    y = Axis.around([*heights, *(value for each in others for _, value in each.points)])
    how = "less is better" if contents.in_money else "higher is better"
    area = "".join(
        [
            _lines(others, points, x, y),
            _ticks(x, y),
            '<div class="budget-line" id="budget-line"></div>',
            _others(others, x, y, quality),
            _buttons(points, x, y, quality),
        ]
    )
    log = ' data-log="1"' if x.logarithmic else ""
    scale = f'data-low="{x.low!r}" data-high="{x.high!r}" data-gap="{x.gap!r}"{log}'
    return (
        '<section id="models" aria-labelledby="models-head"><h2 id="models-head">Which model for which budget</h2>'
        f"<p>{_where(measured_on, rows)} Touch a point, or move the budget: the page below shows the model that it "
        "pays for.</p>"
        f'<figure class="frontier"><p class="axis-name y-name">{name(quality)} <span>({how})</span></p>'
        f'<div class="area" id="frontier" {scale} data-money="{int(contents.in_money)}">{area}</div>'
        f'<p class="axis-name">mean cost of a row{" (logarithmic)" if x.logarithmic else ""}</p>'
        '<div class="budget"><label for="budget">Budget: <output id="budget-value" for="budget"></output> for a row, '
        'on average</label><input type="range" id="budget" min="0" max="100" step="any" value="100">'
        '<p id="choice" role="status"></p></div>'
        f"{_legend(contents)}</figure>"
        f"{fold('All models as a table', _table(contents, seen))}</section>"
    )


def _where(measured_on: str, rows: TestRows | None) -> str:
    if measured_on == "test":
        assert rows is not None
        return f"Each point is a model, measured on {name(rows.name)} ({len(rows):,} rows)."
    if measured_on == "validation":
        return "Each point is a model, measured on the validation rows, as are the other systems beside it."
    return "Each point is a model, measured on rows that did not teach it when the frontier was made."


def _lines(others: list[Reference], points: list[ShownPoint], x: Axis, y: Axis) -> str:
    parts = [f'<path class="grid" d="M0 {100 - at:.2f}H100"/>' for at, _ in y.ticks()]
    parts += [f'<path class="grid" d="M{at:.2f} 0V100"/>' for at, _ in x.ticks()]
    for number, reference in enumerate(others):
        parts.append(f'<path class="curve other{number % 4}" d="{_path(reference.points, x, y)}"/>')
    for point in points:
        left, bottom = x.at(point.cost), 100 - y.at(point.quality)
        if point.quality_error:
            low, high = (100 - y.at(point.quality + sign * point.quality_error) for sign in (-1, 1))
            parts.append(f'<path class="error" d="M{left:.2f} {low:.2f}V{high:.2f}"/>')
        if point.cost_error and point.cost:
            ends = (x.at(max(point.cost + sign * point.cost_error, point.cost / 100)) for sign in (-1, 1))
            parts.append(f'<path class="error" d="M{next(ends):.2f} {bottom:.2f}H{next(ends):.2f}"/>')
    parts.append(f'<path class="curve" d="{_path([(point.cost, point.quality) for point in points], x, y)}"/>')
    return f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">{"".join(parts)}</svg>'


def _path(points: list[tuple[float, float]], x: Axis, y: Axis) -> str:
    return "M" + "L".join(f"{x.at(cost):.2f} {100 - y.at(quality):.2f}" for cost, quality in points)


def _ticks(x: Axis, y: Axis) -> str:
    parts = [f'<span class="tick x" style="left:{at:.2f}%">{text}</span>' for at, text in x.ticks()]
    parts += [f'<span class="tick y" style="bottom:{at:.2f}%">{text}</span>' for at, text in y.ticks()]
    return f'<div aria-hidden="true">{"".join(parts)}</div>'


def _place(left: float, bottom: float) -> tuple[str, str]:
    """Where a point is, and on which sides there is room for its text."""
    side = "to-left" if left > 50 else "to-right"
    return f'style="left:{left:.2f}%;bottom:{bottom:.2f}%"', f"{side}{' under' if bottom > 62 else ''}"


def _buttons(points: list[ShownPoint], x: Axis, y: Axis, quality: str) -> str:
    found = []
    for number, point in enumerate(points, 1):
        where, side = _place(x.at(point.cost), y.at(point.quality))
        in_money = quality == IN_MONEY
        cost = with_error(money(point.cost), point.cost_error, money(point.cost_error))
        good = with_error(
            quality_text(point.quality, in_money), point.quality_error, quality_text(point.quality_error, in_money)
        )
        told = f"Model {number}: mean cost {cost}, {quality} {good}"
        found.append(
            f'<button type="button" class="point" {where} data-model="{number}" data-at="{x.at(point.cost):.3f}" '
            f'data-worth="{-point.quality if in_money else point.quality!r}" aria-label="{safe(told)}" '
            f'aria-pressed="false"><span class="dot"></span><span class="tip {side}"><b>Model {number}</b>'
            f"<br>mean cost {cost}<br>{name(quality)} {good}</span></button>"
        )
    return "".join(found)


def _others(others: list[Reference], x: Axis, y: Axis, quality: str) -> str:
    found = []
    for number, reference in enumerate(others):
        for cost, value in reference.points:
            where, side = _place(x.at(cost), y.at(value))
            text = f"mean cost {money(cost)}, {quality} {quality_text(value, quality == IN_MONEY)}"
            found.append(
                f'<span class="point other{number % 4}" {where} tabindex="0" role="img" '
                f'aria-label="{safe(reference.name)}: {safe(text)}"><span class="dot"></span><span class="tip {side}">'
                f"<b>{short(reference.name)}</b><br>{name(text)}</span></span>"
            )
    return "".join(found)


def _legend(contents: Contents) -> str:
    entries = ['<li><span class="key"></span>cstc; bars: one standard error</li>']
    entries += [
        f'<li><span class="key other{number % 4}"></span>{name(reference.name)}</li>'
        for number, reference in enumerate(contents.references)
    ]
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _table(contents: Contents, seen: list[ModelSeen]) -> str:
    """All figures of all models, those of the frontier and, where there are rows, those on the test rows."""
    quality, in_money = name(contents.quality_name), contents.in_money
    heads = ["model", "mean cost", "p95", "maximum", quality]
    heads += ["total cost"] if in_money else []
    tested = bool(seen[0].test)
    judged = seen[0].test.get("quality") is not None
    if tested:
        heads += ["test: mean cost", "test: p95", "test: maximum"]
        heads += [f"test: {quality}"] if judged else []
        heads += ["test: total cost"] if judged and in_money else []
    heads += ["nodes", "items", "cost weight"]
    rows = []
    for model in seen:
        cells = [f'<a href="#model-{model.number}">model {model.number}</a>']
        cells += _cells(model.row, in_money, True, in_money)
        if tested:
            cells += _cells(model.test, in_money, judged, judged and in_money)
        weight = model.row.get("cost_weight")
        cells += [str(model.row.get("nodes", "–")), str(model.row.get("items", "–"))]
        cells.append("mixture" if weight is None else f"{weight:.4g}")
        rows.append(cells)
    return table("All models of the frontier", heads, rows)


def _cells(row: dict[str, Any], in_money: bool, judged: bool, total: bool) -> list[str]:
    def cell(column: str, form: Any) -> str:
        value, error = row.get(column), row.get(f"{column}_error")
        if value is None or not math.isfinite(value):
            return "–"
        return with_error(form(value), error, form(error) if error is not None else "")

    found = [cell(column, figure_text) for column in ("mean_cost", "p95_cost", "max_cost")]
    if judged:
        found.append(cell("quality", lambda value: quality_text(value, in_money)))
    if total:
        found.append(cell("total_cost", figure_text))
    return found
