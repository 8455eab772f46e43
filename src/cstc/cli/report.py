"""``cstc report``: the page that shows a frontier to whoever pays for the features."""

from __future__ import annotations

import os
from typing import Any

import click

from ..model.queries import QueryTree
from ._errors import WrongUse, say
from ._options import output, quiet, reads_tables
from ._reading import Reading

__all__ = ["report"]


@click.command()
@click.argument("folder", metavar="FRONTIER", type=click.Path(exists=True, file_okay=False))
@click.option("--test", metavar="FILE", type=click.Path(allow_dash=True), help="Rows with a target, to measure on.")
@output("The page.", required=True)
@quiet
@reads_tables
def report(folder: str, test: str | None, output: str, quiet: bool, reading: Reading) -> None:
    """Write one HTML page of the folder that 'cstc frontier' made."""
    from ..frontier import load_frontier
    from ..report import write_report
    from ._labelled import read_labelled
    from ._output import check_output
    from ._tables import open_table

    if output == "-":
        raise WrongUse("the page goes into a file; give its name with -o")
    saved = load_frontier(folder)
    if any(isinstance(model, QueryTree) for model in saved.models):
        raise WrongUse(
            f"the models of {folder} look at whole queries, and a page is about rows that go their way alone; "
            "table.csv and frontier.png in the folder show what they cost and how good they are"
        )
    options: dict[str, Any] = {}
    source = None
    if test is not None:
        made = saved.made
        if "target" not in made:
            raise ValueError(f"{folder} does not say what its target was; it was not made by 'cstc frontier'")
        opened, schema = open_table(test, reading), saved.models[0].schema
        named_by = (f"the target of {folder}", f"the query of {folder}")
        rows = read_labelled(opened, schema, reading, made["target"], made.get("qid"), named_by=named_by)
        source = rows.source
        options = {"X": rows.X, "y": rows.y, "qid": rows.qid, "test_name": os.path.basename(source.name)}
    check_output(output, source)
    write_report(saved, output, **options)
    say(f"{output}: open it in a browser", quiet=quiet)
