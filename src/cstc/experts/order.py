"""What a score does to the order of its query, where gates see whole queries.

A squared error says how far a score is from what the best expert says; whether that matters depends on who stands
between the two.  With the scores ``b`` of the best expert, out of fold and in the units of grades, the gain ``G`` of a
document and the discount ``D`` of its place by b as in `places`, let document i alone have the score m, and all others
theirs.  Each pair that comes into the wrong order costs what it is worth to the DCG,

    order_i(m) = max(0, sum_j |G_i - G_j| |D_i - D_j| (p(m, j) - p(b_i, j)) / sum_j G_j D_j)
    p(m, j)    = 1 / (1 + exp(sign(b_i - b_j) (m - b_j) / s))       how surely i and j are in the wrong order

with s a part of the spread of scores within queries.  A document that is on the right side of all others loses nothing,
however far it is from its own place: nothing has to be bought for it, and gap and place tell a gate who that is.

Stopping loses ``(1 - SHARE) * squared + SHARE * unit * order``.  The unit makes both the same in the mean where all
documents have the constant score, so that cost weights keep theirs.

The spread and the unit go by the weights of rows: a query of weight 2 counts as two queries of weight 1.  Within its
query a document has one place, whatever its weight is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..model.queries import made_columns
from ..rows import Rows, Units
from .places import spread_in_queries

__all__ = ["OrderLoss", "order_losses"]

SHARE = 0.9  # of what is lost, what the order decides
SMOOTH = 0.25  # of the spread of scores within queries: scores nearer than that are hardly in an order
STEEPEST = 50.0  # beyond it, an order is sure


def order_losses(
    scores: np.ndarray, at: np.ndarray, best: np.ndarray, query: np.ndarray, places: int, smooth: float
) -> np.ndarray:
    """What scores of the documents `at` (numbers), each alone, lose of NDCG@`places` by the order of their queries."""
    discount, gain = _discounts(best, query, places), 2.0 ** np.maximum(best, 0.0) - 1.0
    n_queries = int(query.max()) + 1
    ideal = np.bincount(query, gain * discount, minlength=n_queries)
    order = np.argsort(query, kind="stable")
    bounds = np.searchsorted(query[order], np.arange(n_queries + 1))
    lost, asked = np.zeros(len(at)), np.argsort(query[at], kind="stable")
    asked_bounds = np.searchsorted(query[at][asked], np.arange(n_queries + 1))
    for number in np.flatnonzero((ideal > 0) & (np.diff(asked_bounds) > 0)).tolist():
        them = order[bounds[number] : bounds[number + 1]]
        here = asked[asked_bounds[number] : asked_bounds[number + 1]]
        own, m, b = at[here], scores[here][:, None], best[them]
        worth = np.abs(gain[own][:, None] - gain[them]) * np.abs(discount[own][:, None] - discount[them])
        side = np.sign(best[own][:, None] - b) / smooth
        wrong = _unsure(side * (m - b)) - _unsure(side * (best[own][:, None] - b))
        lost[here] = np.maximum((worth * wrong).sum(axis=1) / ideal[number], 0.0)  # beyond its place nothing is gained
    return lost


def _unsure(distance: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(np.clip(distance, -STEEPEST, STEEPEST)))


def _discounts(scores: np.ndarray, query: np.ndarray, places: int) -> np.ndarray:
    """Of the place of each document; equal scores share theirs."""
    above = made_columns(scores, query, 1)[:, 1].astype(int)
    _, alike, counts = np.unique(np.column_stack([query, scores]), axis=0, return_inverse=True, return_counts=True)
    n_alike = counts[alike.ravel()]
    most = int((above + n_alike).max())
    each = np.where(np.arange(most) < places, 1.0 / np.log2(np.arange(most) + 2.0), 0.0)
    sums = np.concatenate([[0.0], np.cumsum(each)])
    return (sums[above + n_alike] - sums[above]) / n_alike


class OrderLoss:
    """What margins at training rows lose by the order of their queries.

    Parameters
    ----------
    best : ndarray of shape (n, 1)
        Margins of the best expert, out of fold and calibrated, in standard units.
    constant : ndarray of shape (1,)
        The margin of the constant.
    squared : ndarray of shape (n,)
        What that is expected to lose otherwise.
    rows : Rows
        With whole queries.
    places : int
    units : Units
        Of the grades.
    """

    def __init__(
        self, best: np.ndarray, constant: np.ndarray, squared: np.ndarray, rows: Rows, places: int, units: Units
    ):
        self._query = np.unique(rows.qid, return_inverse=True)[1]
        self._best, self._places, self._units = units.margins(best)[:, 0], places, units
        self._smooth = SMOOTH * spread_in_queries(self._best, rows)
        self._unit = 0.0
        if self._smooth > 0:
            lost = self._lost(np.tile(constant, (len(best), 1)), slice(None))
            mean = float(np.average(lost, weights=rows.weights))
            self._unit = float(np.average(squared, weights=rows.weights)) / mean if mean > 0 else 0.0

    @property
    def rest(self) -> float:
        """The part of other losses that counts beside the order."""
        return 1.0 - SHARE if self._unit else 1.0

    def mixed(self, losses: np.ndarray, margins: np.ndarray, at: Any) -> np.ndarray:
        """Losses of some rows, and what their order loses; as they are where nobody has a place."""
        if not self._unit:
            return losses
        return self.rest * losses + SHARE * self._unit * self._lost(margins, at)

    def _lost(self, margins: np.ndarray, at: Any) -> np.ndarray:
        scores, rows = self._units.margins(margins)[:, 0], np.arange(len(self._query))[at]
        return order_losses(scores, rows, self._best, self._query, self._places, self._smooth)
