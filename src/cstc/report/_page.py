"""The page: all parts with their style and their script in one file, which asks nobody for anything.

A policy in its head lets no request leave the page, and no script run but its own, which is known by its digest.
"""

from __future__ import annotations

import os
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import Any

from ..whole_file import write_whole
from ._costs import costs_part
from ._html import figure_text, money, name, percent, plural, quality_text, with_error
from ._made import made_part
from ._meaning import meaning_part
from ._measured import MOST_FLOWING, ModelSeen, TestRows, as_test_rows, see
from ._models import first_shown, models_part
from ._money import money_part
from ._promises import promises_part
from ._saved import Contents, contents_of
from ._spenders import spenders_part
from ._tree import tree_part

__all__ = ["report_page", "write_report"]


def write_report(
    saved: Any,
    path: str | os.PathLike[str],
    *,
    X: Any = None,
    y: Any = None,
    qid: Any = None,
    test_name: str | None = None,
) -> None:
    """Write the page of a frontier into one HTML file, whole or not at all.

    Parameters
    ----------
    saved : Frontier, or what was loaded from the folder of one
        A fitted `cstc.Frontier`, or an object with `models` (as `cstc.load` gives them, from cheap to expensive),
        `table` (their rows of ``Frontier.table_``), `quality_name`, `made` (a dictionary: how they were made) and, if
        other systems were run, `references` (names with points on the validation rows).
    path : path
        The file; one that is there is replaced.
    X, y, qid : rows, labels and queries, optional
        Test rows: flow, costs, quality, calibration, items and the largest spenders are measured on them.  Without,
        the page shows what the models remember of their training, and says so.
    test_name : str, optional
        What the test rows are called on the page, such as the name of their file.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from sklearn.datasets import load_breast_cancer
    >>> from cstc import CSTCClassifier, Frontier
    >>> from cstc.report import write_report
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> frontier = Frontier(CSTCClassifier(n_weak_learners=10, random_state=0), n_weights=3).fit(X[:400], y[:400])
    >>> with TemporaryDirectory() as folder:
    ...     write_report(frontier, Path(folder) / "report.html", X=X[400:], y=y[400:])
    ...     (Path(folder) / "report.html").read_text(encoding="utf-8")[:15]
    '<!DOCTYPE html>'
    """
    page = report_page(saved, X=X, y=y, qid=qid, test_name=test_name)
    write_whole(os.path.abspath(os.fspath(path)), page.encode("utf-8"))


def report_page(saved: Any, *, X: Any = None, y: Any = None, qid: Any = None, test_name: str | None = None) -> str:
    """The same page as text; parameters as in `write_report`."""
    contents = contents_of(saved)
    rows = as_test_rows(contents, X, y, qid, test_name)
    seen = see(contents, rows)
    first = first_shown(contents)
    style, script = (files(__package__).joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    digest = b64encode(sha256(script.encode("utf-8")).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; base-uri 'none'; "
        "form-action 'none'"
    )
    body = "".join(
        [
            models_part(contents, seen, rows),
            '<div id="chosen">',
            *(_panel(contents, model, rows) for model in seen),
            "</div>",
            made_part(contents, rows),
            meaning_part(contents),
        ]
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_title(contents)}</title>\n<style>{style}</style></head>\n"
        f'<body data-first="{first + 1}"><a class="skip" href="#models">To the models</a>{_header(contents, rows)}'
        f"<main>{body}</main>\n<footer><p>Made with cstc. This page is one file and asks nobody for anything.</p>"
        f"</footer><script>{script}</script></body></html>\n"
    )


def _title(contents: Contents) -> str:
    return f"{plural(len(contents.models), 'model')} from free to full: what they cost, and what money buys"


def _header(contents: Contents, rows: TestRows | None) -> str:
    full = contents.models[-1].costs.full_cost
    text = (
        f"Buying all features of a row costs {money(full)}. These models buy, for each row, only what its path needs. "
        "This page shows what that costs, how good the answers are, and what the money goes to."
    )
    if rows is None:
        text += " No test rows were given: it shows what the models remember of their training."
    elif len(rows) > MOST_FLOWING:
        text += f" Flow through the trees is that of {MOST_FLOWING:,} of the {len(rows):,} test rows, drawn at random."
    links = (("models", "Models"), ("chosen", "The chosen model"), ("made", "How it was made"), ("meaning", "Meaning"))
    nav = "".join(f'<li><a href="#{where}">{what}</a></li>' for where, what in links)
    nav = f'<nav aria-label="Parts of the page"><ul>{nav}</ul></nav>'
    return f"<header><h1>{_title(contents)}</h1><p>{text}</p>{nav}</header>"


def _panel(contents: Contents, seen: ModelSeen, rows: TestRows | None) -> str:
    """All about one model; the script shows one at a time."""
    at, n = seen.number, len(contents.models)
    parts = [
        ("How rows flow through it", tree_part(seen, rows)),
        ("What money buys", money_part(seen, rows)),
        ("What a row costs", costs_part(seen, rows)),
        ("Do probabilities keep their promise?", promises_part(seen, rows)),
        ("The largest spenders", spenders_part(seen, rows)),
    ]
    inner = "".join(f'<div class="part"><h3>{head}</h3>{text}</div>' for head, text in parts if text)
    return (
        f'<section class="panel" data-panel="{at}" id="model-{at}" aria-labelledby="model-{at}-head">'
        f'<h2 id="model-{at}-head" tabindex="-1">Model {at} of {n}</h2>{_tiles(contents, seen, rows)}{inner}</section>'
    )


def _tiles(contents: Contents, seen: ModelSeen, rows: TestRows | None) -> str:
    """The few numbers that matter most."""
    figures = seen.test if seen.test.get("quality") is not None else seen.row | seen.test
    in_money = contents.in_money
    full = contents.models[-1].costs.full_cost

    def told(column: str, form: Any) -> str:
        value, error = figures.get(column), figures.get(f"{column}_error")
        return (
            "–" if value is None else with_error(f"<b>{form(value)}</b>", error, "" if error is None else form(error))
        )

    part = f"{percent(figures['mean_cost'] / full)} of the {money(full)} for all features" if full else ""
    tiles = [
        ("mean cost of a row", told("mean_cost", figure_text), part),
        (name(contents.quality_name), told("quality", lambda value: quality_text(value, in_money)), ""),
        ("95 of 100 rows cost at most", told("p95_cost", figure_text), ""),
        ("most expensive row", told("max_cost", figure_text), ""),
    ]
    if in_money:
        tiles.insert(1, ("features and errors together", told("total_cost", figure_text), ""))
    cells = "".join(
        f"<div><dt>{head}</dt><dd>{text}{f'<small>{more}</small>' if more else ''}</dd></div>"
        for head, text, more in tiles
    )
    where = "the rows that chose" if not seen.test else name(rows.name) if rows is not None else ""
    if seen.test and seen.test.get("quality") is None:
        where = f"costs on {where}, quality on the rows that chose"
    else:
        where = f"measured on {where}"
    return f'<dl class="tiles">{cells}</dl><p class="where">{where}</p>'
