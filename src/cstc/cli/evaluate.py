"""``cstc evaluate``: what a model is worth on rows whose target is known; beside it, a plain LightGBM ensemble."""

from __future__ import annotations

import json
from typing import Any

import click

from ..model.file import load_named
from ..model.queries import QueryTree
from ._errors import WrongUse, say
from ._options import answering, model_argument, output, quiet, reads_tables, table_argument
from ._options import random_state as seed
from ._reading import Reading

__all__ = ["evaluate"]


@click.command()
@model_argument
@table_argument("table", "TEST")
@click.option("--target", required=True, metavar="COLUMN", help="The true answers.")
@click.option("--qid", metavar="COLUMN", help="The query of each row, for a model that ranks.")
@click.option(
    "--at",
    type=click.IntRange(1),
    metavar="N",
    help="Places of a ranking that count; 5, or those that a model of whole queries was fitted for.",
)
@answering
@click.option(
    "--train",
    metavar="FILE",
    type=click.Path(allow_dash=True),
    help="Fit plain LightGBM, which knows no prices, to these rows, and show it beside the model.",
)
@seed
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@output("Where to write; standard output otherwise.")
@quiet
@reads_tables
def evaluate(
    model: str,
    table: str,
    target: str,
    qid: str | None,
    at: int | None,
    budget: float | None,
    unavailable: tuple[str, ...],
    id_column: str | None,
    train: str | None,
    random_state: int,
    as_json: bool,
    output: str,
    quiet: bool,
    reading: Reading,
) -> None:
    """Measure quality and cost on TEST, each with its standard error (the bootstrap over rows, or over queries).

    --train fits LightGBM with its own parameters and a learning rate of 0.1: up to 300 rounds (in proportion more from
    10,000 rows on), stopped after 20 rounds without a better loss on a fifth of these rows.
    """
    from ._judging import figures_of
    from ._labelled import read_labelled
    from ._needed import lacking
    from ._output import check_output, write_output
    from ._plain import fit_plain
    from ._queries import check_whole_queries
    from ._tables import open_table

    if table == train == "-":
        raise WrongUse("standard input can be read once: TEST and --train are both '-'")
    if at is not None and qid is None:
        raise WrongUse("--at belongs to a model that ranks, which needs --qid, the column with the query of each row")
    loaded, _ = load_named(model)
    check_whole_queries(loaded, qid, budget)
    places = at or (loaded.at if isinstance(loaded, QueryTree) else 5)
    opened = open_table(table, reading)
    # LightGBM beside the model may look at any column
    without = lacking(loaded, unavailable, opened.names if train is None else loaded.schema.feature_names)
    check_output(output, opened.source)
    test = read_labelled(opened, loaded.schema, reading, target, qid, absent=without.names, id_column=id_column)
    X = loaded._matrix(test.X, without.ignored)
    limits: dict[str, Any] = {"budget": budget, "gone": without.gone, "ids": test.ids}
    found = {"model": figures_of(loaded, X, test.y, test.qid, at=places, **limits)}
    if train is not None:
        if budget is not None or unavailable:
            say("LightGBM knows neither --budget nor --unavailable: it buys all that its trees ask for", quiet=quiet)
        rows = read_labelled(open_table(train, reading), loaded.schema, reading, target, qid)
        plain = fit_plain(loaded, loaded._matrix(rows.X), rows.y, rows.qid, random_state)
        found["LightGBM"] = figures_of(plain, loaded._matrix(test.X), test.y, test.qid, at=places)
    if as_json:
        document = {
            who: {each.name: {"value": each.value, "standard_error": each.error} for each in figures}
            for who, figures in found.items()
        }
        write_output(output, json.dumps({"rows": len(test.y), **document}, indent=1, ensure_ascii=False))
        return
    heads = ["", *found] if len(found) > 1 else None
    lines = [[figures[0].name, *map(str, figures)] for figures in zip(*found.values(), strict=True)]
    write_output(output, "\n".join([f"{len(test.y)} rows", *_table(heads, lines)]))


def _table(heads: list[str] | None, lines: list[list[str]]) -> list[str]:
    rows = ([heads] if heads else []) + lines
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
