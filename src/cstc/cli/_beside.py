"""Other systems beside a frontier, on the same rows: plain LightGBM, which knows no prices, and CEGB, which does."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..baselines import CEGB
from ._errors import say
from ._judging import figures_of
from ._plain import fit_plain

__all__ = ["systems_beside"]

POINTS = 12  # of CEGB, at most


def systems_beside(training: Any, fitted: Any) -> list[tuple[str, list[dict[str, float]]]]:
    """Names, and the mean cost and quality of their models on the rows that choose."""
    job, rows, judges = training.job, training.rows, training.validation
    model = fitted.models_[-1].model_
    plain = fit_plain(model, model._matrix(rows.X), rows.y, rows.qid, job.random_state)
    figures = {each.name: each.value for each in figures_of(plain, model._matrix(judges.X), judges.y, judges.qid)}
    quality = figures[fitted.quality_name_]
    assert quality is not None  # the frontier was judged by the same rows
    found = [("LightGBM", [{"mean_cost": float(figures["mean cost"] or 0.0), "quality": float(quality)}])]
    if training.task == "classification" and len(np.unique(rows.y)) > 2:
        say("CEGB is left out: it is built here for two classes and for numbers", quiet=job.quiet)
        return found
    queries = {} if rows.qid is None else {"qid": rows.qid, "qid_val": judges.qid}
    system = CEGB(task=training.task, costs=training.costs, random_state=job.random_state, n_jobs=job.jobs)
    own = system.frontier(
        rows.X, rows.y, X_val=judges.X, y_val=judges.y, n_points=POINTS, verbose=job.verbose, **queries
    )
    points = [{"mean_cost": float(row["mean_cost"]), "quality": float(row["quality"])} for row in own.table_]
    return [*found, ("CEGB", points)]
