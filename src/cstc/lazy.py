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

from dataclasses import dataclass, replace

import numpy as np

from .costs import ResolvedCosts
from .expectation import Expectation
from .experts import Expert
from .weak_learners import Boosting, Phi, WeakLearners, cross_fit, grow

__all__ = ["LazyExpert", "LazyExperts"]

LEAST_ROWS = 1000  # with fewer, one fold says next to nothing
NEGLIGIBLE = 0.01  # part of the loss that all purchases together must weigh


@dataclass(frozen=True, eq=False)
class LazyExpert:
    """One ensemble, and what it does to rows that it did not learn from.

    Attributes
    ----------
    expert : Expert
    losses : ndarray of shape (n,)
        What stopping with its prediction is expected to lose at each training row; shifted to what was observed.
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
    expected : Expectation
        Of losses at the rows.
    """

    def __init__(
        self,
        boosting: Boosting,
        X: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        folds: np.ndarray,
        unit: float,
        expected: Expectation,
    ):
        # sampling rows or features for each tree makes every tree buy something else
        self._boosting = replace(boosting, feature_fraction=1.0, row_fraction=1.0)
        self._rows = (X, y, weights)
        self._folds = folds
        self.unit = unit
        self._expected = expected
        costs = boosting.costs
        self._most_expensive = costs.full_cost + costs.evaluation * boosting.n_rounds * len(boosting.constant)
        self._first = np.flatnonzero(folds == folds.min())
        self._screened: dict[int, tuple[WeakLearners, np.ndarray, np.ndarray]] = {}
        self._grown: dict[int, LazyExpert] = {}

    def find(self, cost_weight: float, value: np.ndarray) -> LazyExpert | None:
        """The one for a cost weight, if it can compete with a policy whose expected loss at each row is `value`."""
        power = self.power(cost_weight)
        if power is None:
            return None
        # every second power first: where that has no chance, its neighbours are not even grown
        rough, k = 2 * round(power / 2), round(power)
        return (
            self._grow(k) if self.competes(rough, cost_weight, value) and self.competes(k, cost_weight, value) else None
        )

    def power(self, cost_weight: float) -> float | None:
        """A cost weight as a power of two, in units; None where lazy experts have nothing to say."""
        ratio = cost_weight / self.unit if self.unit else 0.0
        return float(np.log2(ratio)) if 0 < ratio < np.inf and len(self._folds) >= LEAST_ROWS else None

    def purchases(self, k: int) -> np.ndarray:
        """What an ensemble of that strength buys at each row; the first fold did not teach it."""
        X, costs = self._rows[0], self._boosting.costs
        return _items(self._screen(k)[0].transform(X, costs), costs)

    def competes(self, k: int, cost_weight: float, value: np.ndarray) -> bool:
        """Whether its loss on the first fold is smaller by more than a standard error, and prices play a part in it."""
        value, weights = value[self._first], self._rows[2][self._first]
        negligible = NEGLIGIBLE * np.average(value, weights=weights)
        if cost_weight * self._most_expensive < negligible:
            return False  # without growing anything
        _, losses, prices = self._screen(k)
        if cost_weight * np.average(prices, weights=weights) < negligible:
            return False
        worse = losses + cost_weight * prices - value
        mean = np.average(worse, weights=weights)
        error = np.sqrt(np.average((worse - mean) ** 2, weights=weights) / len(worse))
        return bool(mean < -error)

    def _strength(self, k: int) -> Boosting:
        return replace(self._boosting, strengths=(self.unit * 2.0**k,))

    def _screen(self, k: int) -> tuple[WeakLearners, np.ndarray, np.ndarray]:
        """An ensemble without the first fold, and its losses and prices at the rows of that fold."""
        if k not in self._screened:
            X, y, weights = self._rows
            out = self._first
            kept = np.setdiff1d(np.arange(len(y)), out)
            judges = (X[out], y[out], weights[out])
            learners = grow(self._strength(k), X[kept], y[kept], weights[kept], validation=judges)
            costs = self._boosting.costs
            losses, items = self._told(learners.transform(X[out], costs), out)
            self._screened[k] = learners, losses, items @ costs.prices + costs.evaluation * learners.pool.n_learners
        return self._screened[k]

    def _grow(self, k: int) -> LazyExpert:
        if k not in self._grown:
            boosting = self._strength(k)
            phi, rounds = cross_fit(boosting, *self._rows, self._folds)
            losses, items = self._told(phi, np.arange(len(phi.values)))
            learners = grow(boosting, *self._rows, n_rounds=rounds)
            weights = np.zeros((learners.pool.n_learners, learners.n_columns))
            weights[np.arange(len(weights)), learners.output[learners.column]] = 1.0
            expert = Expert(learners.pool, weights, boosting.constant + phi.values, boosting.constant)
            self._grown[k] = LazyExpert(expert, losses, items, boosting.costs)
        return self._grown[k]

    def _told(self, phi: Phi, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Expected losses, shifted to what was observed, and items as a table."""
        margins = self._boosting.constant + phi.values
        losses = self._expected(margins, rows) + self._expected.shift(margins, rows)
        return losses, _items(phi, self._boosting.costs)


def _items(phi: Phi, costs: ResolvedCosts) -> np.ndarray:
    """Bool (n, n_items): what the branches of all columns buy."""
    bits = np.bitwise_or.reduce(phi.bits, axis=1)
    return np.unpackbits(bits.view(np.uint8), axis=1, count=costs.n_items).astype(bool)
