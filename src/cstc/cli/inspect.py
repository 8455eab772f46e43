"""The command line: ``cstc serve`` and ``cstc inspect``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from . import __version__
from .model import Decisions, FittedTree
from .model.file import FileIdentity, ModelFileError, load_named
from .model.mixture import Mixture

try:
    import click
except ImportError:
    raise SystemExit("the command line needs click; install it with: pip install 'cstc[serve]'") from None

__all__ = ["main"]

model_argument = click.argument("model", metavar="MODEL", type=click.Path(exists=True, dir_okay=False))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cstc")
def main() -> None:
    """Predictions that buy only the features worth their price."""


# ----------------------------------------------------------------------------------------------- serve


@main.command()
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
    from .serving import OnDemandPredictor

    try:
        from .serving.http.app import Limits
        from .serving.http.server import is_loopback, read_token
        from .serving.http.server import serve as run
    except ImportError as error:
        raise click.ClickException(str(error)) from None

    tree, identity = _load(model)
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


def _load(path: str) -> tuple[FittedTree | Mixture, FileIdentity]:
    try:
        return load_named(path)
    except (ModelFileError, OSError) as error:
        raise click.ClickException(str(error)) from None


def _find_extractors(name: str) -> list[Any]:
    """What stands at ``module:name``: a list of extractors, one of them, or a function that returns a list."""
    from .serving import Extractor

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


# --------------------------------------------------------------------------------------------- inspect


@main.command()
@model_argument
def inspect(model: str) -> None:
    """Print which model it is, its tree, its items with their prices, and its features."""
    loaded, identity = _load(model)
    click.echo("\n".join(_identity(loaded, identity)))
    if isinstance(loaded, FittedTree):
        _show(loaded)
        return
    part = f"{1 - loaded.share:.1%}", f"{loaded.share:.1%}"
    click.echo(f"mixture      {part[0]} of rows take the cheaper of two models, {part[1]} the other")
    click.echo(f"seed         {loaded.seed}, of the coins that are drawn from the ids of rows")
    for name, tree in zip(("cheaper", "more expensive"), loaded.trees, strict=True):
        click.echo(f"\nthe {name} model")
        _show(tree)


def _show(tree: FittedTree) -> None:
    for block in (_summary(tree), _tree(tree), _items(tree), _features(tree)):
        click.echo("\n".join(block))


def _identity(tree: FittedTree | Mixture, identity: FileIdentity) -> list[str]:
    training = tree.training
    lines = [f"model        {identity.name}", f"sha256       {identity.sha256}"]
    known = [] if training.rows is None else [f"on {_count(training.rows, 'row')}"]
    known += [] if training.trained is None else [training.trained]
    lines += [f"trained      {', '.join(known)}"] if known else []
    return lines + ([] if training.mean_cost is None else [f"mean cost    {training.mean_cost:g} in training"])


def _summary(tree: FittedTree) -> list[str]:
    classes = tree.schema.classes
    kind = "numbers" if classes is None else f"{len(classes)} classes: {_few([str(name) for name in classes])}"
    full = tree.costs.full_cost
    lines = [
        f"predicts     {kind}",
        f"tree         {_count(tree.shape.n_nodes, 'node')}, {_count(tree.shape.n_terminals, 'terminal')}, "
        f"{_count(tree.pool.n_learners, 'weak learner')}",
        f"all features {full:g}",
    ]
    if tree.limit is not None:
        lines.append(f"limit        {tree.limit:g}; no row pays more")
    if tree.decisions is not None and classes is not None:
        lines += _errors(tree.decisions, [str(name) for name in classes])
    n_fallbacks = tree.fallback_weights.shape[1]
    if n_fallbacks:
        lines.append(f"fallbacks    {_count(n_fallbacks, 'expert')} for when a source is down or the budget is spent")
    if tree.estimates is not None:
        lines.append(f"sources      {_few(tree.estimates.source_names) or 'none'}")
    if tree.costs.evaluation:
        lines.append(f"evaluation   {tree.costs.evaluation:g} for each weak learner")
    return lines


def _errors(decisions: Decisions, names: list[str]) -> list[str]:
    """What each decision costs, by the truth."""
    lines = []
    decided = [*names, "refer to a person"]
    for name, prices in zip(names, decisions.costs.tolist(), strict=True):
        told = [f"{each} {price:g}" for each, price in zip(decided, prices, strict=False)]
        lines.append(f"errors       where {name} is true, to decide costs: {_few(told)}")
    return lines


def _tree(tree: FittedTree) -> list[str]:
    """The nodes, children below their parents, and what the paths to the terminals cost at most."""
    lines = ["", "tree (upper child first: margin above the threshold)"]
    costs, items = tree.terminal_costs(), tree.terminal_items()

    def show(element: int, depth: int, way: str) -> None:
        indent = "  " * (depth + 1)
        if element < 0:
            terminal = -1 - element
            names = [tree.costs.item_names[r] for r in np.flatnonzero(items[terminal])]
            lines.append(f"{indent}{way}terminal {terminal}: at most {costs[terminal]:g} ({_few(names) or 'nothing'})")
            return
        n_learners = int((tree.route_learners[element] | tree.predict_learners[element]).sum())
        described = f"{indent}{way}node {element}: {_count(n_learners, 'weak learner')}"
        if tree.shape.is_leaf[element]:
            lines.append(described)
            show(int(tree.shape.upper[element]), depth + 1, "")
            return
        lines.append(f"{described}, threshold {tree.thresholds[element]:.6g}")
        show(int(tree.shape.upper[element]), depth + 1, "> ")
        show(int(tree.shape.lower[element]), depth + 1, "≤ ")

    show(0, 0, "")
    return lines


def _items(tree: FittedTree) -> list[str]:
    used = np.asarray(tree.terminal_items().any(axis=0))
    by_fallbacks = tree.costs.items_of(np.flatnonzero(tree.expert_features.any(axis=0)))
    notes = np.where(used, "", np.where(by_fallbacks, "only by fallbacks", "never bought")).tolist()
    rows = [
        [name, f"{price:g}", note]
        for name, price, note in zip(tree.costs.item_names, tree.costs.prices, notes, strict=True)
    ]
    return ["", "items", *_table(["item", "price", ""], rows)]


def _features(tree: FittedTree) -> list[str]:
    everything = np.eye(len(tree.schema.feature_names), dtype=bool)
    needed = tree.terminal_learners.any(axis=0)
    used = np.asarray(tree.pool.learner_uses(everything)[needed].any(axis=0))
    by_fallbacks = np.asarray(tree.expert_features.any(axis=0))
    rows = []
    for j, name in enumerate(tree.schema.feature_names):
        categories = tree.schema.categories.get(name)
        kind = "number" if categories is None else f"category: {_few(categories)}"
        needs = [tree.costs.item_names[r] for r in np.flatnonzero(tree.costs.feature_items[j])]
        notes = ["may be missing"] * bool(tree.schema.may_miss[j])
        notes += [] if used[j] else ["only by fallbacks" if by_fallbacks[j] else "not used"]
        rows.append([name, f"{tree.costs.feature_prices[j]:g}", _few(needs), kind, ", ".join(notes)])
    return ["", "features", *_table(["feature", "price", "items", "values", ""], rows)]


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[k]) for row in [header, *rows]) for k in range(len(header))]
    return [
        ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
        for row in [header, *rows]
    ]


def _few(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
