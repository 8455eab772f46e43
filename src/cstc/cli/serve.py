"""``cstc serve``: the model in a file, over HTTP."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from typing import Any

import click

from ..model.file import load_named
from ._options import model_argument
from ._queries import refuse_one_row

__all__ = ["serve"]


@click.command()
@model_argument
@click.option(
    "--extractors",
    "-e",
    multiple=True,
    metavar="MODULE:NAME",
    help="A list of extractors, or a function that returns one; repeatable.  Without it, clients bring all features.",
)
@click.option(
    "--given",
    "-g",
    multiple=True,
    metavar="FEATURE",
    help="A feature without an extractor, which every request brings along.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="The port; 0: any.")
@click.option(
    "--token-variable",
    default="CSTC_TOKEN",
    show_default=True,
    metavar="NAME",
    help="The environment variable with the bearer token.",
)
@click.option("--allow-no-token", is_flag=True, help="Listen to other machines without a token.")
@click.option(
    "--prefetch",
    type=click.Choice(["branch", "node"]),
    default="branch",
    show_default=True,
    help="Fetch what is needed next, or all that a node may need.",
)
@click.option(
    "--threads", default=32, show_default=True, type=click.IntRange(1), help="Threads for sources that are not async."
)
@click.option("--max-seconds", default=30.0, show_default=True, help="Every prediction is answered within this.")
@click.option("--max-body", default=2**20, show_default=True, help="Bytes of a request's body.")
@click.option("--max-rows", default=1000, show_default=True, help="Rows of a batch.")
@click.option(
    "--max-predictions", default=2000, show_default=True, help="Rows worked on at the same time, also those of batches."
)
@click.option("--max-sessions", default=1000, show_default=True, help="Sessions open at the same time.")
@click.option("--session-seconds", default=600.0, show_default=True, help="A session not used for so long is gone.")
@click.option(
    "--strict",
    is_flag=True,
    help="Answer 409 where a path is not complete or a value is of a kind that training did not see, unless a request "
    "says otherwise.",
)
@click.option("--access-log", is_flag=True, help="Log every request.")
def serve(
    model: str,
    extractors: tuple[str, ...],
    given: tuple[str, ...],
    host: str,
    port: int,
    token_variable: str,
    allow_no_token: bool,
    prefetch: str,
    threads: int,
    max_seconds: float,
    max_body: int,
    max_rows: int,
    max_predictions: int,
    max_sessions: int,
    session_seconds: float,
    strict: bool,
    access_log: bool,
) -> None:
    """Answer over HTTP with the model in a file."""
    from ..serving import OnDemandPredictor

    try:
        from ..serving.http.app import Limits
        from ..serving.http.server import is_loopback, read_token
        from ..serving.http.server import serve as run
    except ImportError as error:
        raise click.ClickException(str(error)) from None

    tree, identity = load_named(model)
    refuse_one_row(tree, "'cstc predict --qid COLUMN' answers the rows of a table")
    sources = [source for name in extractors for source in _find_extractors(name)]
    # without sources of its own the service asks its clients for everything
    by_client = given or (() if sources else tree.schema.feature_names)
    try:
        predictor = OnDemandPredictor(
            tree, sources, given=by_client, prefetch=prefetch, strict=strict, max_threads=threads
        )
        limits = Limits(
            body_bytes=max_body,
            rows=max_rows,
            predictions=max_predictions,
            seconds=max_seconds,
            sessions=max_sessions,
            session_seconds=session_seconds,
        )
        token = read_token(token_variable)
        if token is None and not allow_no_token and not is_loopback(host):
            raise ValueError(
                f"{host} can be reached from other machines, and there is no token: set {token_variable}, listen on "
                "127.0.0.1, or say --allow-no-token if something in front of the service checks who asks"
            )
        run(
            predictor,
            host=host,
            port=port,
            token=token,
            allow_no_token=allow_no_token,
            limits=limits,
            model=identity,
            access_log=access_log,
            on_ready=lambda address: click.echo(f"serving {model} on {address} (stop with Ctrl+C)"),
        )
    except (ValueError, TypeError, OSError) as error:
        raise click.ClickException(_in_options(str(error))) from None


#: What the library calls by names of its own, a user of the command line sets with these options.
_OPTIONS = {
    "given=": "--given",
    "body_bytes is": "--max-body is",
    "rows is": "--max-rows is",
    "predictions is": "--max-predictions is",
    "seconds is": "--max-seconds is",
    "sessions is": "--max-sessions is",
    "session_seconds is": "--session-seconds is",
}


def _in_options(message: str) -> str:
    """A message of the library in words of the command line."""
    for name, option in _OPTIONS.items():
        if message.startswith(name):
            return option + message.removeprefix(name)
    return message.replace("given= what every call brings along as known", "--given what every request brings along")


def _find_extractors(name: str) -> list[Any]:
    """What stands at ``module:name``: a list of extractors, one of them, or a function that returns a list."""
    from ..serving import Extractor

    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise click.BadParameter(f"{name!r} is not of the form module:name, such as my_module:sources")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise  # the module is there, and lacks another one
        raise click.BadParameter(f"there is no module {module_name!r} here or among the installed ones") from None
    try:
        found = getattr(module, attribute)
    except AttributeError:
        raise click.BadParameter(f"the module {module_name!r} has no {attribute!r}") from None
    if isinstance(found, Extractor):
        return [found]
    if callable(found):
        found = found()
    if not isinstance(found, Iterable) or isinstance(found, str | dict):
        raise click.BadParameter(f"{name} is a {type(found).__name__}; it must be a list of extractors")
    return list(found)
