"""``cstc explain``: why one row of a table is answered as it is, step by step."""

from __future__ import annotations

from typing import Any

import click

from ..model.file import load_named
from ..model.mixture import Mixture
from ._errors import WrongUse
from ._options import answering, model_argument, output, reads_tables, table_argument
from ._reading import Reading

__all__ = ["explain"]


@click.command()
@model_argument
@table_argument("table", "TABLE")
@click.option("--row", type=click.IntRange(min=1), default=1, show_default=True, help="Which one, from 1 on.")
@answering
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option("--html", "as_html", is_flag=True, help="As a page for a browser.")
@output("Where to write; standard output otherwise.")
@reads_tables
def explain(
    model: str,
    table: str,
    row: int,
    budget: float | None,
    unavailable: tuple[str, ...],
    id_column: str | None,
    as_json: bool,
    as_html: bool,
    output: str,
    reading: Reading,
) -> None:
    """Say what was bought for one row of TABLE and why, how the prediction moved, and why it stopped."""
    from ._needed import lacking
    from ._output import check_output, write_output
    from ._queries import refuse_one_row
    from ._tables import check_columns, open_table

    if as_json and as_html:
        raise WrongUse("--json and --html are both given; give one")
    loaded, _ = load_named(model)
    refuse_one_row(loaded, "'cstc predict --qid COLUMN' tells the path and the purchases of each row")
    opened = open_table(table, reading)
    check_output(output, opened.source)
    check_columns(opened, {"--id": id_column})
    absent = lacking(loaded, unavailable, opened.names).names
    values, own = _row(opened, loaded, row, reading, absent, id_column)
    options: dict[str, Any] = {"budget": budget, "unavailable": unavailable}
    if isinstance(loaded, Mixture):
        options |= {"id": own, "number": row - 1}
    found = loaded.explain(values, **options)
    write_output(output, found.to_json(indent=1) if as_json else found.to_html() if as_html else str(found))


def _row(
    table: Any, model: Any, row: int, reading: Reading, absent: list[str], id_column: str | None
) -> tuple[dict[str, Any], Any]:
    """The row of a number as names with values, and its id."""
    from ._tables import model_blocks

    n_rows = 0
    for start, X, block in model_blocks(table, model.schema, reading, absent=absent, also=[id_column]):
        n_rows = start + len(X)
        if row <= n_rows:
            at = row - 1 - start
            (values,) = X.slice(at, 1).to_pylist()
            values |= {each: bool(values[each]) for each in model.schema.booleans if values[each] is not None}
            return values, None if id_column is None else block[id_column][at].as_py()
    raise WrongUse(f"--row is {row}, and {table.name} has {n_rows} rows")
