"""Probabilities that decide on money must keep their promise: margins are scaled and moved, out of fold.

An ensemble of few rows is too sure of itself, or not sure enough, and a threshold like 300 / (300 + 5000) lies where
few rows are.  With the margins ``a`` of an expert at rows that it never saw, those of

    scale * a + shift

that lose least are its margins from then on (Platt's scaling; for more than two classes one scale, and a shift for
each class), where leaving them as they are counts for something, so that few rows change little.

Scores that were boosted for the order within queries (lambdarank) have no unit at all, and documents that stop at
different stages meet within a query.  There the scale and the shift are those of least squares on the grades, so that
the scores of all stages say what grade is to be expected.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize

from ..losses import Loss
from ..rows import Rows
from .expert import Expert

__all__ = ["calibrated_expert", "calibration", "graded_expert"]

AS_IT_IS = 5.0  # log loss, summed over rows, for a scale or a shift that is 1 off; on three sets 1 and 5 differ little


def calibration(loss: Loss, margins: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """The scale, and the shift of each margin, that lose least at some rows."""
    weights = weights / weights.mean()

    def objective(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        scale, shift = parameters[0], parameters[1:]
        value, derivative = loss.value_and_derivative(scale * margins + shift, y)
        derivative = weights[:, None] * derivative
        total = weights @ value + AS_IT_IS * ((scale - 1.0) ** 2 + shift @ shift)
        by_scale = (derivative * margins).sum() + 2 * AS_IT_IS * (scale - 1.0)
        by_shift = derivative.sum(axis=0) + 2 * AS_IT_IS * shift
        return total / len(y), np.append(by_scale, by_shift) / len(y)

    start = np.append(1.0, np.zeros(margins.shape[1]))
    bounds = [(0.0, None), *[(None, None)] * margins.shape[1]]
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return float(found[0]), found[1:]


def calibrated_expert(expert: Expert, loss: Loss, rows: Rows, heard: Any = slice(None)) -> Expert:
    """The same expert, keeping its promise at the rows at which its margins were heard."""
    scale, shift = calibration(loss, expert.margins[heard], rows.y[heard], rows.weights[heard])
    return expert.moved(scale, shift)


def graded_expert(expert: Expert, rows: Rows, heard: Any = slice(None)) -> Expert:
    """The same expert, its scores in the units of the targets, by the rows at which they were heard."""
    scores, y, weights = expert.margins[heard, 0], rows.y[heard], rows.weights[heard]
    mean, mean_y = np.average(scores, weights=weights), np.average(y, weights=weights)
    spread = np.average((scores - mean) ** 2, weights=weights)
    together = np.average((scores - mean) * (y - mean_y), weights=weights)
    # an order that is worse than none says nothing; one score for all has no scale
    scale = max(0.0, float(together / spread)) if spread > 0 else 0.0
    return expert.moved(scale, np.array([mean_y - scale * mean]))
