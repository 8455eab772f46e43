"""``cstc fit``: one model from a table."""

from __future__ import annotations

import datetime
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from ._errors import WrongUse, say
from ._job import Job
from ._options import Number, output, trains

__all__ = ["fit"]


@click.command()
@trains
@click.option("--cost-weight", type=Number, metavar="LAMBDA", help="Risk that one unit of cost is worth; 0.01.")
@click.option("--mean-cost", type=Number, metavar="AMOUNT", help="What a row may cost on average, instead.")
@output("The model file.", required=True)
def fit(job: Job, cost_weight: float | None, mean_cost: float | None, output: str) -> None:
    """Fit one model to the table TRAIN.

    With --validation, the model is measured on the rows of that file; the paper's method prunes by them, too.
    """
    from ._judging import figures_of, in_words
    from ._output import check_output
    from ._training import Training

    if cost_weight is not None and mean_cost is not None:
        raise WrongUse("--cost-weight and --mean-cost are both given; give one: the fit finds the other")
    training = Training(job)
    check_output(output, training.table.source)
    model = training.estimator(cost_weight=cost_weight, mean_cost=mean_cost, verbose=job.verbose)
    rows, judges = training.rows, training.validation
    training.tell()
    queries = {} if rows.qid is None else {"qid": rows.qid}
    if judges is not None and model._resolved_method().uses_validation:
        queries |= {"X_val": judges.X, "y_val": judges.y} | ({} if judges.qid is None else {"qid_val": judges.qid})
    model.fit(rows.X, rows.y, **queries)
    _save(model, output)
    tree = model.model_
    full = f"{tree.costs.full_cost:g} for all columns"
    say(f"{output}: a training row costs {model.mean_cost_:.4g} on average, of {full}", quiet=job.quiet)
    if judges is not None:
        found = figures_of(tree, tree._matrix(judges.X), judges.y, judges.qid, at=job.places)
        say(f"{job.validation}: {in_words(found)}", quiet=job.quiet)


def _save(model: Any, path: str) -> None:
    today = datetime.date.today().isoformat()
    if path != "-":
        model.save(path, trained=today)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.cstc"
        model.save(file, trained=today)
        with file.open("rb") as stream:
            shutil.copyfileobj(stream, sys.stdout.buffer)
    sys.stdout.buffer.flush()
