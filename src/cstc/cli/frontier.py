"""``cstc frontier``: models from free to full in a folder, with a table and a picture; a killed run goes on."""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from .. import __version__
from ._errors import WrongUse, arguments_of, say
from ._job import Job
from ._options import trains

__all__ = ["frontier"]

PACKAGES = ("numpy", "scipy", "scikit-learn", "lightgbm")


@click.command()
@trains
@click.option(
    "--n-weights", type=click.IntRange(2), default=24, show_default=True, help="Models that are tried, at most."
)
@click.option("--executor", metavar="HOST:PORT", help="The scheduler of Dask, whose workers grow the ensembles.")
@click.option("--scratch", metavar="FOLDER", type=click.Path(), help="A folder that all these workers see.")
@click.option("--compare", is_flag=True, help="Fit plain LightGBM and CEGB, too; the rows of --validation judge all.")
@click.option("--overwrite", is_flag=True, help="Replace what another run left in the folder.")
@click.option("--output", "-o", metavar="FOLDER", type=click.Path(), required=True, help="Where the models go.")
@click.pass_context
def frontier(
    context: click.Context,
    job: Job,
    n_weights: int,
    executor: str | None,
    scratch: str | None,
    compare: bool,
    overwrite: bool,
    output: str,
) -> None:
    """Fit models from the one that buys nothing to the one that buys all it likes.

    FOLDER gets models/, table.csv, tried.csv, frontier.png and frontier.json, which 'cstc report' reads. A run that
    was killed goes on where it was when it is called again. The rows of --validation choose; without it, a fifth of
    TRAIN does.
    """
    from ..frontier import Frontier, save_frontier
    from ..frontier._folder import CHECKPOINT
    from ._training import Training

    if scratch is not None and executor is None:
        raise WrongUse("--scratch belongs to --executor, which is not given")
    if compare and job.validation is None:
        raise WrongUse("--compare needs --validation: a table of rows that teach nothing, which judge all alike")
    _check_folder(output, overwrite)
    _check_picture()
    started = _now()
    training = Training(job)
    estimator, rows, judges = training.estimator(), training.rows, training.validation
    training.tell()
    checkpoint = Path(output) / CHECKPOINT
    if checkpoint.exists():
        say(f"{output}: going on where an earlier run was", quiet=job.quiet)
    fitted = Frontier(estimator, n_weights=n_weights, checkpoint=checkpoint, verbose=job.verbose)
    given: dict[str, Any] = {} if rows.qid is None else {"qid": rows.qid}
    if judges is not None:
        given |= {"X_val": judges.X, "y_val": judges.y} | ({} if judges.qid is None else {"qid_val": judges.qid})
    if executor is not None:
        given |= {"executor": _client(executor)} | ({} if scratch is None else {"scratch": scratch})
    try:
        _fit(fitted, rows, given, overwrite)
    finally:
        if executor is not None:
            given["executor"].close()
    beside = []
    if compare:
        from ._beside import systems_beside

        beside = systems_beside(training, fitted)
    save_frontier(fitted, output, _made(context, training, started, n_weights), references=beside)
    if not job.quiet:
        click.echo(_table(fitted))
        for name, points in beside:
            told = ", ".join(f"{each['quality']:.4f} for {each['mean_cost']:.4g}" for each in points)
            click.echo(f"{name}: {fitted.quality_name_} {told}")
        how = "table.csv and frontier.png show" if job.whole_queries else f"'cstc report {output} -o report.html' shows"
        say(f"{output}: {len(fitted.models_)} models; {how} them")


def _fit(fitted: Any, rows: Any, given: dict[str, Any], overwrite: bool) -> None:
    """Fit, from the models of an earlier run if they are of the same data and options."""
    try:
        fitted.fit(rows.X, rows.y, **given)
    except ValueError as error:
        if "belongs to a fit of other data or settings" not in str(error):
            raise
        if not overwrite:
            raise ValueError(f"{error}, or say --overwrite") from None
        shutil.rmtree(fitted.checkpoint)
        fitted.fit(rows.X, rows.y, **given)


def _check_folder(path: str, overwrite: bool) -> None:
    from ..frontier._folder import CHECKPOINT, check_folder
    from ._output import check_writable

    if path == "-":
        raise WrongUse("a frontier goes into a folder; give its name with -o")
    folder = Path(path)
    unfinished = (folder / CHECKPOINT).exists()
    if check_folder(path) and not overwrite and not unfinished:
        raise ValueError(f"{path} holds a finished frontier; give another folder, or say --overwrite")
    parent = folder if folder.exists() else folder.resolve().parent
    if not parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be made: there is no folder {parent}; make it first")
    check_writable(str(parent), path)


def _check_picture() -> None:
    """What draws is looked for before the work, not after it."""
    try:
        import matplotlib
    except ImportError:
        raise ImportError("the picture needs matplotlib; install it with: pip install 'cstc[cli]'") from None
    matplotlib.use("Agg")  # no window


def _client(address: str) -> Any:
    """A client of Dask."""
    try:
        from distributed import Client
    except ImportError:
        raise ImportError("--executor needs Dask; install it with: pip install 'cstc[dask]'") from None
    try:
        return Client(address, timeout=10)
    except (OSError, ValueError, TimeoutError) as error:
        raise ValueError(f"no scheduler of Dask answers at {address}: {error}") from None


def _made(context: click.Context, training: Any, started: str, n_weights: int) -> dict[str, Any]:
    """How the frontier was made, for whoever looks at it later."""
    job, costs = training.job, training.costs
    files = {"TRAIN": training.table, "--validation": training.validation_table}
    data = [{"role": role} | table.source.description() for role, table in files.items() if table is not None]
    for each, rows in zip(data, (training.rows, training.validation), strict=False):
        each["rows"] = len(rows)
    packages = {"cstc": __version__, "Python": platform.python_version()}
    for name in PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "command": shlex.join(["cstc", *arguments_of(context)]),
        "data": data,
        "target": job.target,
        "task": training.task,
        "qid": job.qid,
        "validation": "a fifth of the rows" if job.validation is None else os.path.basename(job.validation),
        "prices": None if costs is None else {"items": costs.prices, "requires": costs.requires},
        "parameters": {"method": job.method, "rounds": job.rounds, "n_weights": n_weights},
        "random_state": job.random_state,
        "versions": packages,
        "started": started,
        "finished": _now(),
    }


def _table(fitted: Any) -> str:
    """The table with the file of each model."""
    lines = str(fitted.table_).splitlines()
    width = len(str(len(fitted.models_))) if len(fitted.models_) > 99 else 2
    names = ["model", *(f"model-{rank:0{width}}" for rank in range(1, len(lines)))]
    return "\n".join(f"{name.ljust(max(map(len, names)))}  {line}" for name, line in zip(names, lines, strict=True))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
