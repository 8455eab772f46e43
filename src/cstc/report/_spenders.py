"""The rows that pay most, and why: the library's own explanation of each."""

from __future__ import annotations

import numpy as np

from ..matrix import dense, rows_at
from ..model.mixture import Mixture
from ..serving.explain.page import as_html
from ._html import class_text, figure_text, fold, money, name, percent
from ._measured import ModelSeen, TestRows

__all__ = ["spenders_part"]


def spenders_part(seen: ModelSeen, rows: TestRows | None) -> str:
    if rows is None:
        return "<p>This needs test rows: give them to see who pays most, and why.</p>"
    if not seen.costs.max():
        return "<p>No row pays anything.</p>"
    mean = float(seen.costs.mean())
    some = "".join(_one(seen, rows, at, mean) for at in seen.spenders if seen.costs[at] > 0)
    share = float((seen.costs > mean).mean())
    return (
        f"<p>{percent(share)} of rows pay more than the mean of {money(mean)}. These pay most (rows are counted from "
        f"1, in the order of {name(rows.name)}):</p>{some}"
    )


def _one(seen: ModelSeen, rows: TestRows, at: int, mean: float) -> str:
    row = dense(rows_at(rows.X, np.array([at])), slice(0, 1))
    model = seen.model
    told = model.explain(row, number=at) if isinstance(model, Mixture) else model.explain(row)
    truth = ""
    if rows.labels is not None:
        label = rows.labels[at]
        text = class_text(label) if model.schema.classes is not None else figure_text(float(label))
        truth = f"<p>Its true label: <b>{name(text)}</b>.</p>"
    times = f", {seen.costs[at] / mean:.1f} times the mean" if seen.costs[at] > 1.05 * mean else ""
    return fold(
        f"Row {at + 1:,} paid {figure_text(float(seen.costs[at]))}{times}",
        f'{truth}<div class="scroll" role="region" tabindex="0" aria-label="Why row {at + 1} paid so much">'
        f"{as_html(told)}</div>",
        "spender",
    )
