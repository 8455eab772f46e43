"""What a prediction is expected to lose at each row, over labels that nobody has seen yet.

Observed losses are nearly all noise on ordinary data, and gates that learn from them learn that noise.  So the loss of
a row is taken in expectation over its label, given what the best expert knows of the row, its calibrated margins out of
fold.

The best expert errs, too: against its prediction its own loss is near zero, and all others are charged for its errors.
Between the stages of one chain that does little harm.  Where chains are compared with anything else, each
prediction is charged at all rows what the mean of its expected loss lacks of the mean that was observed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from ..losses import Loss
from ..model import probabilities
from ..rows import Rows
from .order import OrderLoss

__all__ = ["Expectation", "agreed", "calibrated"]

AGREEING = 3  # experts; of 1, 3 and 5, by the total cost on three sets of 120 to 600 rows
TINY = 1e-12


def calibrated(loss: Loss, constant: np.ndarray, candidates: Iterable[np.ndarray], rows: Rows) -> np.ndarray:
    """The best of some margins out of fold, shrunk towards the constant until they keep their promise."""

    def risk(margins: np.ndarray) -> float:
        return loss.risk(margins, rows.y, rows.weights)

    best = min(candidates, key=risk)
    scale = minimize_scalar(lambda s: risk(constant + s * (best - constant)), bounds=(0.0, 2.0), method="bounded").x
    return constant + scale * (best - constant)


def agreed(loss: Loss, candidates: Iterable[np.ndarray], rows: Rows) -> np.ndarray:
    """Margins of the mean of the probabilities that the few best of some calibrated margins promise.

    A decision has steps: what one expert errs, near a threshold, is a whole error.  Several err less together.
    """
    best = sorted(candidates, key=lambda margins: loss.risk(margins, rows.y, rows.weights))[:AGREEING]
    shares = np.mean([probabilities(margins, loss.link) for margins in best], axis=0)
    logs = np.log(np.maximum(shares, TINY))
    return logs[:, 1:] - logs[:, :1] if loss.link == "logistic" else logs - logs.mean(axis=1, keepdims=True)


class Expectation:
    """Expected losses of any margins at the training rows.

    Parameters
    ----------
    loss : Loss
    best : ndarray of shape (n, n_outputs)
        Margins of the best expert, out of fold and calibrated.
    rows : Rows
    factor : ndarray of shape (n,) or None
        What errors at each row are multiplied by (`places`); None: 1.
    order : OrderLoss or None
        What else margins lose, of which there are no labels: the order of whole queries (`order`).
    """

    def __init__(
        self,
        loss: Loss,
        best: np.ndarray,
        rows: Rows,
        factor: np.ndarray | None = None,
        order: OrderLoss | None = None,
    ):
        self._loss, self._y, self._weights, self._order = loss, rows.y, rows.weights, order
        self._factor = np.ones(len(rows)) if factor is None else factor
        self._mean = loss.mean(best)
        self._lacks = self._lacking(best)

    def __call__(self, margins: np.ndarray, at: Any = slice(None)) -> np.ndarray:
        """What margins at some rows are expected to lose there, if the best expert is right."""
        expected = self._factor[at] * self._loss.expected(margins, self._mean[at])
        return expected if self._order is None else self._order.mixed(expected, margins, at)

    def _lacking(self, margins: np.ndarray, at: Any = slice(None)) -> np.ndarray:
        """What was observed, less what was expected; of an order nothing is observed."""
        observed, expected = self._loss.value(margins, self._y[at]), self._loss.expected(margins, self._mean[at])
        part = 1.0 if self._order is None else self._order.rest
        return part * self._factor[at] * (observed - expected)

    def shift(self, margins: np.ndarray, at: Any = slice(None)) -> float:
        """What the mean of that lacks of the mean that was observed.

        Of some rows only, the labels are luck that all margins share: what it is for the best expert is taken off.
        """
        lacks = self._lacking(margins, at)
        weights = self._weights
        return float(
            np.average(lacks - self._lacks[at], weights=weights[at]) + np.average(self._lacks, weights=weights)
        )
