"""Other systems beside a frontier, on the same rows: plain LightGBM, which knows no prices, and CEGB, which does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..baselines import CEGB
from ..metrics import ndcg
from ..model.file import Model
from ._errors import say
from ._judging import figures_of
from ._plain import fit_plain

__all__ = ["systems_beside"]

POINTS = 12  # of CEGB, at most


def systems_beside(training: Any, fitted: Any) -> list[tuple[str, list[dict[str, float]]]]:
    """Names, and the mean cost and quality of their models on the rows that choose.

    All are judged by the quality of the frontier.  Where errors have prices, the others decide by the same prices, and
    what their errors cost is their quality, with a minus.
    """
    job, rows, judges = training.job, training.rows, training.validation
    model = fitted.models_[-1].model_
    plain = fit_plain(model, model._matrix(rows.X), rows.y, rows.qid, job.random_state)
    told = figures_of(plain, model._matrix(judges.X), judges.y, judges.qid, at=job.places)
    figures = {each.name: each.value for each in told}
    # errors in money are a quality with a minus: less is better
    quality = figures[fitted.quality_name_] if model.decisions is None else -(figures["error cost"] or 0.0)
    assert quality is not None  # the frontier was judged by the same rows
    found = [("LightGBM", [{"mean_cost": float(figures["mean cost"] or 0.0), "quality": float(quality)}])]
    if training.task == "classification" and len(np.unique(rows.y)) > 2:
        say("CEGB is left out: it is built here for two classes and for numbers", quiet=job.quiet)
        return found
    queries = {} if rows.qid is None else {"qid": rows.qid, "qid_val": judges.qid}
    system = CEGB(task=training.task, costs=training.costs, random_state=job.random_state, n_jobs=job.jobs)
    own = system.frontier(
        rows.X,
        rows.y,
        X_val=judges.X,
        y_val=judges.y,
        n_points=POINTS,
        quality=_ndcg_at(job.places) if rows.qid is not None else _error_cost(model) if model.decisions else None,
        verbose=job.verbose,
        **queries,
    )
    points = [{"mean_cost": float(row["mean_cost"]), "quality": float(row["quality"])} for row in own.table_]
    return [*found, ("CEGB", points)]


def _ndcg_at(k: int) -> Callable[..., float]:
    """The quality of a ranking by its first places."""

    def ndcg_at(system: Any, X: Any, y: Any, qid: Any) -> float:
        return ndcg(y, system.predict(X, qid=qid), qid, k)

    return ndcg_at


def _error_cost(model: Model) -> Callable[[Any, Any, Any], float]:
    """What the errors of a system cost, with a minus, when it decides by the prices that the model knows."""
    decisions = model.priced_decisions

    def minus_error_cost(system: Any, X: Any, y: Any) -> float:
        truth = model.schema.class_numbers(y, len(y))
        return -float(decisions.observed(truth, system.predict_proba(X)).mean())

    return minus_error_cost
