"""How it was made: whatever is known of it, as it was handed in.

Entries that this module knows come first, with plain words for their names; no entry is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._html import fold, money, name, plural, table
from ._measured import TestRows
from ._saved import Contents

__all__ = ["made_part"]

#: Entries and what they are called on the page; others are called as they are.
KNOWN = {
    "command": "Command to repeat it",
    "command_line": "Command to repeat it",
    "estimator": "Estimator",
    "data": "Data",
    "files": "Data files",
    "target": "Target",
    "task": "Task",
    "qid": "Queries",
    "validation": "Rows that chose",
    "parameters": "Parameters",
    "random_state": "Random state",
    "versions": "Versions",
    "started": "Started",
    "finished": "Finished",
    "date": "Date",
    "dates": "Dates",
}
AS_TYPED = ("command", "command_line")
BILL = ("items", "requires")  # of prices: what the table of prices shows
MOST_IN_LINE = 4  # values of a list that are written in one line


def made_part(contents: Contents, rows: TestRows | None) -> str:
    made = {key: value for key, value in contents.made.items() if value is not None and value not in ("", [], {})}
    order = [key for key in KNOWN if key in made] + [key for key in made if key not in KNOWN]
    entries = []
    for key in order:
        if key == "prices":
            continue  # the table below has those that the models pay
        head = KNOWN.get(key, str(key).replace("_", " ").capitalize())
        shown = f"<code>{name(_typed(made[key]))}</code>" if key in AS_TYPED else _value(made[key])
        entries.append(f"<div><dt>{name(head)}</dt><dd>{shown}</dd></div>")
    entries += [f"<div><dt>{head}</dt><dd>{text}</dd></div>" for head, text in _models(contents, rows).items()]
    return (
        '<section id="made" aria-labelledby="made-head"><h2 id="made-head">How it was made</h2>'
        f'<dl class="made">{"".join(entries)}</dl>{_prices(contents)}{_given_prices(made)}</section>'
    )


def _models(contents: Contents, rows: TestRows | None) -> dict[str, str]:
    """What the models themselves know."""
    training = contents.models[-1].training
    found = {}
    if training.rows is not None:
        found["Rows that taught"] = f"{training.rows:,}"
    if training.trained is not None:
        found["Trained"] = name(training.trained)
    if rows is None:
        found["Rows of this page"] = (
            "none: without test rows the page shows what the models remember of their training. Give test rows to see "
            "what new rows buy, pay and get."
        )
    else:
        labels = "" if rows.y is not None else ", without labels"
        found["Rows of this page"] = f"{name(rows.name)}, {plural(len(rows), 'row')}{labels}"
    return found


def _typed(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)


def _value(value: Any) -> str:
    """Whatever was handed in: text, numbers, lists and tables of them."""
    if isinstance(value, Mapping):
        rows = [[name(str(key).replace("_", " ")), _value(each)] for key, each in value.items()]
        return (
            '<dl class="inner">' + "".join(f"<div><dt>{key}</dt><dd>{each}</dd></div>" for key, each in rows) + "</dl>"
        )
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes):
        values = list(value)
        if any(isinstance(each, Mapping | Sequence) and not isinstance(each, str) for each in values):
            return "<ul>" + "".join(f"<li>{_value(each)}</li>" for each in values) + "</ul>"
        if len(values) <= MOST_IN_LINE:
            return ", ".join(map(name, values))
        return "<ul>" + "".join(f"<li>{name(each)}</li>" for each in values) + "</ul>"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return name(f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else value)


def _prices(contents: Contents) -> str:
    """The bill as the models know it: items, and the features that need each."""
    model = contents.models[-1]
    costs, features = model.costs, model.schema.feature_names
    rows = []
    for item, (of, price) in enumerate(zip(costs.item_names, costs.prices.tolist(), strict=True)):
        needed = [features[at] for at in np.flatnonzero(costs.feature_items[:, item])]
        own = needed == [of]
        rows.append([name(of), money(price), "" if own else ", ".join(map(name, needed))])
    heads = ["item", "price", "features that need it"]
    if not any(cells[2] for cells in rows):
        rows, heads = [cells[:2] for cells in rows], heads[:2]
    evaluation = f"<p>Evaluating a weak learner costs {money(costs.evaluation)}.</p>" if costs.evaluation else ""
    told = f"Prices of {plural(costs.n_items, 'item')}, {money(costs.full_cost)} for all features of a row"
    return fold(told, evaluation + table("Prices", heads, rows), "prices")


def _given_prices(made: Mapping[str, Any]) -> str:
    """Where prices came from, such as a file; prices themselves are in the table above."""
    given = made.get("prices")
    if isinstance(given, Mapping):
        given = {key: each for key, each in given.items() if key not in BILL and not isinstance(each, int | float)}
    if not given:
        return ""
    return f'<dl class="made"><div><dt>Prices came from</dt><dd>{_value(given)}</dd></div></dl>'
