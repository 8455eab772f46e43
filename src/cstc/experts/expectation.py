"""What a prediction is expected to lose at each row, over labels that nobody has seen yet.

Observed losses are nearly all noise on ordinary data, and gates that learn from them learn that noise.  So the loss of
a row is taken in expectation over its label, given the best that is known of the row.

If that were one expert, all others would be charged for its errors, and rows would buy too much.  With the margins
``a_k`` of an expert, the mean ``m`` that is promised and labels ``y``, what was observed lacks of what was expected

    mean(observed - expected) = mean((m - y) a_k) + a term that is the same for all experts

for each loss here.  So the promise is that of all experts together, out of fold, with the constant ``c``:

    b = c + sum_k v_k (a_k - c),    v_k >= 0, of least loss

Where ``v_k > 0``, the derivative with respect to it, ``mean((m - y) (a_k - c))``, is 0 over the rows that the v are
found from, 20,000 of them at most, as nearly as the search comes to it: nobody who has a say in the promise is charged
for an error of it there, nor much over all rows.  Others still are.  Between the stages of one chain that does little
harm.  Where chains are compared with anything else, each prediction is charged at all rows what the mean of its
expected loss lacks of the mean that was observed.

Where errors have prices, the promise is the mean of the probabilities of the three experts that lose least (`agreed`).
No derivative need be 0 there; the charge at all rows makes the means agree all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.optimize import minimize

from ..losses import Loss
from ..model import probabilities
from ..rows import Rows, some_of
from .order import OrderLoss

__all__ = ["Expectation", "agreed", "stacked"]

MOST_ROWS = 20_000  # that weights of experts are found from
AGREEING = 3  # experts; of 1, 3 and 5, by the total cost on three sets of 120 to 600 rows
TINY = 1e-12


def stacked(loss: Loss, constant: np.ndarray, candidates: Iterable[np.ndarray], rows: Rows) -> np.ndarray:
    """The constant and what some margins, out of fold, add to it, each with a weight of its own, none below zero."""
    moves = np.array([margins - constant for margins in candidates])
    at = some_of(np.arange(len(rows)), MOST_ROWS)
    seen, y, shares = moves[:, at], rows.y[at], rows.weights[at] / rows.weights[at].sum()

    def objective(v: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = loss.value_and_derivative(constant + np.tensordot(v, seen, axes=1), y)
        slope = shares[:, None] * slope
        return float(shares @ value), np.array([np.vdot(move, slope) for move in seen])

    alone = [loss.risk(constant + move, y, shares) for move in seen]
    start = (np.arange(len(moves)) == np.argmin(alone)).astype(float)
    v = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(moves)).x
    return constant + np.tensordot(v, moves, axes=1)


def agreed(loss: Loss, candidates: Iterable[np.ndarray], rows: Rows) -> np.ndarray:
    """Margins of the mean of the probabilities that the three best (`AGREEING`) of some calibrated margins promise.

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
        The best margins that are known, out of fold.
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
        """What margins at some rows are expected to lose there, if the best margins are right."""
        expected = self._factor[at] * self._loss.expected(margins, self._mean[at])
        return expected if self._order is None else self._order.mixed(expected, margins, at)

    def _lacking(self, margins: np.ndarray, at: Any = slice(None)) -> np.ndarray:
        """What was observed, less what was expected; of an order nothing is observed."""
        observed, expected = self._loss.value(margins, self._y[at]), self._loss.expected(margins, self._mean[at])
        part = 1.0 if self._order is None else self._order.rest
        return part * self._factor[at] * (observed - expected)

    def shift(self, margins: np.ndarray, at: Any = slice(None)) -> float:
        """What the mean of that lacks of the mean that was observed.

        Of some rows only, the labels are luck that all margins share: what it is for the best ones is taken off.
        """
        lacks = self._lacking(margins, at)
        weights = self._weights
        return float(
            np.average(lacks - self._lacks[at], weights=weights[at]) + np.average(self._lacks, weights=weights)
        )
