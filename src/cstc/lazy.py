"""Experts that buy on their branches: for data on which different rows need different features.

The experts of a chain use what their stage has bought, the same for all rows that stop there.  A lazy expert buys while
it is evaluated: one boosted ensemble, grown with LightGBM's prices per row, so that a split pays for its feature at the
rows that have not bought it yet.  Where one order of buying suits all rows this is the dearer way.  Where none does, a
lazy expert may take the place of the whole chain, or of its end (`induction`).

It is one ensemble on all rows, since members of several folds would each buy features of their own.  What it does to
new rows, its losses as well as its bills, is known from ensembles without each fold.  First one fold is held out, and
the others only if what that one says can compete with the chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from .costs import ResolvedCosts
from .experts import Expert
from .weak_learners import Boosting, Phi, cross_fit, grow

__all__ = ["LazyExpert", "LazyExperts"]


@dataclass(frozen=True, eq=False)
class LazyExpert:
    """One ensemble, and what it does to rows that it did not learn from.

    Attributes
    ----------
    expert : Expert
    losses : ndarray of shape (n,)
        What stopping with its prediction is expected to lose at each training row.
    items : bool ndarray of shape (n, n_items)
        What the branches of the row buy.
    """

    expert: Expert
    losses: np.ndarray
    items: np.ndarray
    costs: ResolvedCosts

    def prices(self, columns: np.ndarray) -> np.ndarray:
        """What a row has paid at the end if it came with all that these columns require."""
        bought = self.items | self.costs.feature_items[columns].any(axis=0)
        return bought @ self.costs.prices + self.costs.evaluation * self.expert.pool.n_learners


class LazyExperts:
    """Lazy experts by the strength of their prices, in powers of two, each grown when it is first asked for.

    Parameters
    ----------
    boosting : Boosting
    unit : float
        Risk for one unit of cost at which a typical feature would cost all risk that the constant leaves; 0 if
        nothing has a price.
    expected : function of margins at given rows
        What they are expected to lose there.
    """

    def __init__(
        self,
        boosting: Boosting,
        X: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        folds: np.ndarray,
        unit: float,
        expected: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ):
        # sampling rows or features for each tree makes every tree buy something else
        self._boosting = replace(boosting, feature_fraction=1.0, row_fraction=1.0)
        self._rows = (X, y, weights)
        self._folds = folds
        self._unit = unit
        self._expected = expected
        self._first = np.flatnonzero(folds == folds.min())
        self._screened: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._grown: dict[int, LazyExpert] = {}

    def find(self, cost_weight: float, value: np.ndarray) -> LazyExpert | None:
        """The one for a cost weight, if it can compete with a policy whose expected loss at each row is `value`."""
        ratio = cost_weight / self._unit if self._unit else 0.0
        if not 0 < ratio < np.inf:
            return None
        power = float(np.log2(ratio))
        # every second power first: where that has no chance, its neighbours are not even grown
        for k in (2 * round(power / 2), round(power)):
            if not self._competes(k, cost_weight, value):
                return None
        return self._grow(k)

    def _competes(self, k: int, cost_weight: float, value: np.ndarray) -> bool:
        """Whether its loss on the first fold is not larger by more than a standard error."""
        losses, prices = self._screen(k)
        worse = losses + cost_weight * prices - value[self._first]
        weights = self._rows[2][self._first]
        mean = np.average(worse, weights=weights)
        error = np.sqrt(np.average((worse - mean) ** 2, weights=weights) / len(worse))
        return bool(mean <= error)

    def _strength(self, k: int) -> Boosting:
        return replace(self._boosting, strengths=(self._unit * 2.0**k,))

    def _screen(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Losses and prices at the rows of the first fold."""
        if k not in self._screened:
            X, y, weights = self._rows
            out = self._first
            kept = np.setdiff1d(np.arange(len(y)), out)
            judges = (X[out], y[out], weights[out])
            learners = grow(self._strength(k), X[kept], y[kept], weights[kept], validation=judges)
            losses, items = self._told(learners.transform(X[out], self._boosting.costs), out)
            costs = self._boosting.costs
            self._screened[k] = losses, items @ costs.prices + costs.evaluation * learners.pool.n_learners
        return self._screened[k]

    def _grow(self, k: int) -> LazyExpert:
        if k not in self._grown:
            boosting = self._strength(k)
            phi, rounds = cross_fit(boosting, *self._rows, self._folds)
            losses, items = self._told(phi, np.arange(len(phi.values)))
            learners = grow(boosting, *self._rows, n_rounds=rounds)
            weights = np.zeros((learners.pool.n_learners, learners.n_columns))
            weights[np.arange(len(weights)), learners.output[learners.column]] = 1.0
            expert = Expert(learners.pool, weights, boosting.constant + phi.values)
            self._grown[k] = LazyExpert(expert, losses, items, boosting.costs)
        return self._grown[k]

    def _told(self, phi: Phi, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Expected losses, and items as a table."""
        losses = self._expected(self._boosting.constant + phi.values, rows)
        bits = np.bitwise_or.reduce(phi.bits, axis=1)
        items = np.unpackbits(bits.view(np.uint8), axis=1, count=self._boosting.costs.n_items).astype(bool)
        return losses, items
