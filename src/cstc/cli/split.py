"""``cstc split``: one table in parts, so that rows that teach, rows that choose and rows that test are not the same."""

from __future__ import annotations

import os
from typing import Any

import click
import numpy as np

from ..costs import counted
from ._errors import WrongUse, say
from ._options import quiet, random_state, reads_tables, table_argument
from ._reading import Reading

__all__ = ["split"]

ENDINGS = {"csv": ".csv", "parquet": ".parquet", "feather": ".feather"}
Share = click.FloatRange(0, 1, min_open=True, max_open=True)


@click.command()
@table_argument("table", "TABLE")
@click.option("--test", type=Share, default=0.25, show_default=True, metavar="SHARE", help="Of the rows, to test with.")
@click.option("--validation", type=Share, metavar="SHARE", help="Of the rows, to choose between models with.")
@click.option("--together", metavar="COLUMN", help="Rows with the same value here stay together, such as a patient's.")
@random_state
@click.option("--output", "-o", metavar="FOLDER", type=click.Path(), required=True, help="Where the parts go.")
@quiet
@reads_tables
def split(
    table: str,
    test: float,
    validation: float | None,
    together: str | None,
    random_state: int,
    output: str,
    quiet: bool,
    reading: Reading,
) -> None:
    """Draw the rows of TABLE into parts at random: train, test and, if asked for, validation.

    FOLDER gets train.csv, test.csv and validation.csv (.parquet or .feather, as TABLE is). Values stay as they stand.
    """
    from ._output import check_output, table_writer
    from ._tables import check_columns, open_table, raw_table

    shares = {"test": test} | ({} if validation is None else {"validation": validation})
    if sum(shares.values()) >= 1:
        raise WrongUse("--test and --validation take all rows; together they must be below 1, so that some rows teach")
    opened = open_table(table, reading)
    check_columns(opened, {"--together": together})
    rows = raw_table(opened, opened.names)
    units = np.arange(rows.num_rows) if together is None else _numbers(rows[together])
    parts = _drawn(units, shares, random_state)
    few = [name for name, at in parts.items() if not len(at)]
    if few:
        what = "rows" if together is None else f"different values of {together!r}"
        raise ValueError(f"{opened.name} has too few {what} ({units.max() + 1}): {few[0]} would get none")
    _make(output)
    paths = {name: os.path.join(output, name + ENDINGS[opened.source.kind]) for name in parts}
    for path in paths.values():
        check_output(path, opened.source)
    for name, at in parts.items():
        with table_writer(paths[name]) as writer:
            writer.write(rows.take(at))
        say(f"{paths[name]}: {counted(len(at), 'row')}", quiet=quiet)


def _numbers(column: Any) -> np.ndarray:
    """The number of each row's value among all values; rows where it is missing are alone."""
    from ._arrow import compute

    coded = compute.dictionary_encode(column.combine_chunks())
    found = np.array(coded.indices.fill_null(-1), dtype=int)
    lost = found < 0
    found[lost] = len(coded.dictionary) + np.arange(lost.sum())
    return found


def _drawn(units: np.ndarray, shares: dict[str, float], seed: int) -> dict[str, np.ndarray]:
    """The rows of each part, in the order of the table: units are shuffled, and each part takes its share of rows."""
    order = np.random.default_rng(seed).permutation(units.max() + 1)
    sizes = np.bincount(units)[order]
    middles = (np.cumsum(sizes) - sizes / 2) / len(units)  # where a unit stands, from 0 to 1
    part_of, names = np.empty(len(order), dtype=int), ["train", *shares]
    ends = np.cumsum([1 - sum(shares.values()), *shares.values()])
    part_of[order] = np.minimum(np.searchsorted(ends, middles), len(names) - 1)
    return {name: np.flatnonzero(part_of[units] == number) for number, name in enumerate(names)}


def _make(folder: str) -> None:
    if folder == "-":
        raise WrongUse("the parts go into a folder; give its name with -o")
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise NotADirectoryError(f"{folder} is a file; the parts go into a folder: give another name with -o")
    os.makedirs(folder, exist_ok=True)
