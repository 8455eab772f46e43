"""``cstc prices``: a file of prices to fill in, one line for each column of a table."""

from __future__ import annotations

import csv
import io
from typing import Any

import click

from ..costs import shorten
from ._options import output, reads_tables, table_argument
from ._reading import Reading

__all__ = ["prices"]

#: Without commas and quotes: a line stays in one cell of a spreadsheet.
EXPLAINED = """\
# What each column of {name} costs. Fill in the prices in one unit of your own such as euros or seconds.
# A price is what it takes to learn the value for one row. 0 is free.
# SHARED ITEMS: several columns may need one thing that is paid once such as a blood draw.
# Add a line with its name and its price at the end and write its name under requires of each of these columns.
# Several names go with semicolons between them. A column that only needs its items has no price of its own.
# Example (column / price / requires):
#   glucose / 15.51 / blood draw
#   insulin / 20.68 / blood draw
#   blood draw / 2.10 /
# What stands under holds is for you and is not read. The line of the target may stay: it is left out.
# So may the lines of columns that nobody should learn from such as numbers of patients: name these with --drop.
"""
MOST_SHOWN = 3  # categories


@click.command()
@table_argument("table", "TABLE")
@click.option("--target", metavar="COLUMN", help="Leave this column out: it is what is to be predicted.")
@click.option("--price", type=click.FloatRange(min=0), help="Write this price everywhere, instead of nothing.")
@output("Where to write; standard output otherwise.")
@reads_tables
def prices(table: str, target: str | None, price: float | None, output: str, reading: Reading) -> None:
    """Print a file of prices to fill in: one line for each column of TABLE."""
    from ._output import check_output, write_output
    from ._tables import as_held, check_columns, open_table, raw_table

    opened = open_table(table, reading)
    check_output(output, opened.source)
    check_columns(opened, {"--target": target})
    columns = [name for name in opened.names if name != target]
    odd = [name for name in columns if name != name.strip() or ";" in name]
    if odd:
        raise ValueError(f"{opened.name}: {shorten(odd)} cannot be named in a file of prices; rename these columns")
    held = as_held(opened, raw_table(opened, columns), columns, reading)
    write_output(output, _template(opened.name, {name: _holds(held[name]) for name in columns}, price))


def _template(name: str, columns: dict[str, str], price: float | None) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for line in EXPLAINED.format(name=" ".join(name.split())).splitlines():
        writer.writerow([line])  # a comma in it stays in its cell
    writer.writerow(["column", "price", "requires", "holds"])
    for column, holds in columns.items():
        writer.writerow([column, "" if price is None else f"{price:g}", "", holds])
    return text.getvalue()


def _holds(column: Any) -> str:
    """What a column holds, for whoever fills in its price."""
    from ._arrow import compute
    from ._columns import kind_of

    kind = kind_of(column)
    missing = f", {column.null_count / len(column):.0%} missing" if column.null_count else ""
    if column.null_count == len(column):
        return "nothing"
    if kind == "number":
        ends = compute.min_max(column).as_py()
        return f"{float(ends['min']):g} to {float(ends['max']):g}{missing}"
    if kind == "category":
        values = sorted(str(value) for value in compute.unique(column).to_pylist() if value is not None)
        more = f" and {len(values) - MOST_SHOWN} more" if len(values) > MOST_SHOWN else ""
        return f"{', '.join(value[:20] for value in values[:MOST_SHOWN])}{more}{missing}"
    return kind + missing
