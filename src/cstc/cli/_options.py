"""Options that several commands have, each written once."""

from __future__ import annotations

import codecs
import math
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any

import click

from ._job import Job
from ._reading import Reading, as_separator

__all__ = [
    "Number",
    "answering",
    "model_argument",
    "output",
    "quiet",
    "random_state",
    "reads_tables",
    "table_argument",
    "trains",
]

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class _Amount(click.FloatRange):
    """A finite number, 0 or more."""

    def convert(self, value: Any, parameter: Any, context: Any) -> Any:
        found = super().convert(value, parameter, context)
        if not math.isfinite(found):
            self.fail(f"{value} is not finite; give a number, 0 or more", parameter, context)
        return found


Number = _Amount(min=0)


def table_argument(name: str, metavar: str) -> Decorator:
    """A table: whether there is such a file is said by the reader, which knows standard input, too."""
    return click.argument(name, metavar=metavar, type=click.Path(allow_dash=True))


model_argument = click.argument("model", metavar="MODEL", type=click.Path(exists=True, dir_okay=False))
random_state = click.option(
    "--random-state",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    metavar="N",
    help="The seed: the same one gives the same model.",
)
quiet = click.option("--quiet", "-q", is_flag=True, help="No progress and no notes on standard error.")


def output(what: str, *, required: bool = False) -> Decorator:
    default: dict[str, Any] = {} if required else {"default": "-"}
    return click.option(
        "--output", "-o", metavar="FILE", type=click.Path(allow_dash=True), required=required, help=what, **default
    )


class _Separator(click.ParamType):
    name = "character"

    def convert(self, value: Any, parameter: Any, context: Any) -> str:
        try:
            return as_separator(value)
        except ValueError as error:
            self.fail(str(error), parameter, context)


class _Encoding(click.ParamType):
    name = "encoding"

    def convert(self, value: Any, parameter: Any, context: Any) -> str:
        try:
            return codecs.lookup(value).name
        except LookupError:
            self.fail(f"{value!r} is no encoding; such as utf-8, cp1252, latin-1, utf-16", parameter, context)


def reads_tables(command: Callable[..., Any]) -> Callable[..., Any]:
    """How text is read; the command gets all of it as ``reading``."""

    @wraps(command)
    def with_reading(
        *args: Any, separator: str | None, encoding: str | None, decimal: str, missing: tuple[str, ...], **rest: Any
    ) -> Any:
        return command(*args, reading=Reading(separator, encoding, decimal, missing), **rest)

    for option in (
        click.option("--missing", multiple=True, metavar="TEXT", help="Stands for a missing value, too; repeatable."),
        click.option(
            "--decimal", type=click.Choice([".", ","]), default=".", show_default=True, help="The decimal point of CSV."
        ),
        click.option("--encoding", type=_Encoding(), metavar="NAME", help="Of CSV; UTF-8 if nothing is said."),
        click.option("--separator", type=_Separator(), metavar="CHARACTER", help="Of CSV, 'tab' too; found otherwise."),
    ):
        with_reading = option(with_reading)
    return with_reading


def trains(command: Callable[..., Any]) -> Callable[..., Any]:
    """What a fit and a frontier are given; the command gets all of it as ``job``."""
    names = [each.name for each in fields(Job) if each.name not in ("table", "reading")]

    @wraps(command)
    def with_job(*args: Any, table: str, reading: Reading, **rest: Any) -> Any:
        given = {name: rest.pop(name) for name in names}
        return command(*args, job=Job(table=table, reading=reading, **given), **rest)

    found = reads_tables(with_job)
    for option in (
        quiet,
        click.option("--jobs", type=int, metavar="N", help="Fits side by side; all cores otherwise."),
        random_state,
        click.option(
            "--rounds", type=click.IntRange(1), metavar="N", help="Rounds of boosting at most; more for many rows."
        ),
        click.option(
            "--method",
            type=click.Choice(["auto", "experts", "paper", "exact"]),
            default="auto",
            show_default=True,
            help="How the tree is learned.",
        ),
        click.option("--category", multiple=True, metavar="COLUMN", help="Its numbers are codes; repeatable."),
        click.option("--drop", multiple=True, metavar="COLUMN", help="Leave it out, such as a name; repeatable."),
        click.option(
            "--objective",
            type=click.Choice(["auto", "regression", "lambdarank"]),
            help="What a ranking is boosted for; auto if nothing is said.",
        ),
        click.option("--at", type=click.IntRange(1), metavar="N", help="Places of a ranking that count; 5."),
        click.option("--whole-queries", is_flag=True, help="Gates see a document's place in its query; for ranking."),
        click.option("--qid", metavar="COLUMN", help="The query of each row, for ranking."),
        click.option("--validation", metavar="FILE", type=click.Path(allow_dash=True), help="Rows that teach nothing."),
        click.option("--error-costs", metavar="FILE", type=click.Path(), help="CSV: what each error costs."),
        click.option(
            "--task",
            type=click.Choice(["classification", "regression", "ranking"]),
            help="What is predicted; found from the target otherwise.",
        ),
        click.option("--prices", metavar="FILE", type=click.Path(), help="What columns cost ('cstc prices' makes it)."),
        click.option("--target", required=True, metavar="COLUMN", help="What is to be predicted."),
    ):
        found = option(found)
    return table_argument("table", "TRAIN")(found)


def answering(command: Callable[..., Any]) -> Callable[..., Any]:
    """What an answer may cost and what is not to be had."""
    for option in (
        click.option("--id", "id_column", metavar="COLUMN", help="What tells rows apart."),
        click.option(
            "--unavailable", multiple=True, metavar="NAME", help="A source, item or column that is down; repeatable."
        ),
        click.option("--budget", type=Number, metavar="AMOUNT", help="No row pays more."),
    ):
        command = option(command)
    return command
