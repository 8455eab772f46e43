"""What a model is worth on some rows: its quality and its cost, each with a standard error."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..estimators import CSTCClassifier, CSTCRanker, CSTCRegressor
from ..metrics import cost_summary, quality_of
from ..model import probabilities
from ..model.file import Model
from ..model.queries import QueryTree
from ..resampling import Resamples, cost_draws, standard_error
from ..rows import Rows

__all__ = ["Figure", "figures_of", "in_words"]

LEAST = 1e-15  # a probability of 0 would make the log loss infinite


class Figure(NamedTuple):
    """A number with a name, and its standard error; None where that is not known, and the note says why."""

    name: str
    value: float | None
    error: float | None = None
    note: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return f"not known: {self.note}"
        if not self.error:
            return f"{self.value:.4g}" + ("" if self.error is None else " ± 0")
        digits = max(0, 1 - math.floor(math.log10(self.error)))  # two of the error, and as many of the figure
        return f"{self.value:.{digits}f} ± {self.error:.{digits}f}"


def figures_of(
    model: Model,
    X: Any,
    y: np.ndarray,
    qid: np.ndarray | None = None,
    *,
    budget: float | None = None,
    gone: np.ndarray | None = None,
    ids: Any = None,
    at: int = 5,
) -> list[Figure]:
    """Quality first, then cost; `X` is a matrix of the model.  A ranking is judged by its first `at` places."""
    own = qid if isinstance(model, QueryTree) else None  # for others, what is wrong with queries is a note
    margins, costs = model.decide(X, budget=budget, gone=gone, ids=ids, qid=own)
    resamples = Resamples.of(len(y), None, qid)
    rows, draws = Rows(None, y, None, qid), cost_draws(costs, resamples)
    found = [_quality(_face_of(model, qid is not None, at), rows, margins, resamples)]
    if model.schema.classes is not None:
        found += _of_classes(model, y, margins, costs, resamples)
    elif qid is None:
        squares = (np.asarray(y, dtype=float) - margins[:, 0]) ** 2
        found.append(_figure("RMSE", lambda: float(np.sqrt(squares.mean())), np.sqrt(resamples.means(squares))))
    for name, cost in cost_summary(costs).items():
        found.append(Figure(f"{name} cost", cost, standard_error(draws[name])))
    return [*found, Figure("cost of all columns", model.costs.full_cost)]


def in_words(figures: list[Figure]) -> str:
    """The first figure and the mean cost, in one line."""
    return ", ".join(f"{each.name} {each}" for each in figures if each is figures[0] or each.name == "mean cost")


def _quality(face: Any, rows: Rows, margins: np.ndarray, resamples: Resamples) -> Figure:
    name, quality = quality_of(None, face)
    try:
        value = quality(face, rows, margins)
        return _figure(name, lambda: value, quality.draws(face, rows, margins, resamples))
    except ValueError as error:  # such as rows of one class
        return Figure(name, None, None, str(error).replace("the validation rows", "these rows"))


def _of_classes(
    model: Model, y: np.ndarray, margins: np.ndarray, costs: np.ndarray, resamples: Resamples
) -> list[Figure]:
    shares, truth = probabilities(margins, model.link), model.schema.class_numbers(y, len(margins))
    answers = model.answers(margins).tolist()
    right = np.array([answer == label for answer, label in zip(answers, y.tolist(), strict=True)], dtype=float)
    losses = -np.log(np.maximum(shares[np.arange(len(y)), truth], LEAST))
    by_row = {"accuracy": right, "log loss": losses}
    if model.decisions is not None:
        errors = model.decisions.observed(truth, shares)
        by_row |= {"error cost": errors, "total cost": costs + errors}
    return [_figure(name, values.mean, resamples.means(values)) for name, values in by_row.items()]


def _figure(name: str, value: Callable[[], Any], draws: np.ndarray) -> Figure:
    return Figure(name, float(value()), standard_error(draws))


def _face_of(model: Model, ranks: bool, at: int) -> Any:
    """An estimator around a model that was loaded: what a quality asks of one."""
    classes = model.schema.classes
    face: Any = CSTCRanker(at=at) if ranks else CSTCRegressor() if classes is None else CSTCClassifier()
    face.model_ = model
    if classes is not None:
        face.classes_ = classes
    return face
