"""Experts that buy on their branches: for data on which different rows need different features.

The experts of a chain use what their stage has bought, the same for all rows that stop there.  A lazy expert buys while
it is evaluated: one boosted ensemble, grown with LightGBM's prices per row, so that a split pays for its feature at the
rows that have not bought it yet.  Where one order of buying suits all rows this is the more expensive way.  Where none
does, a lazy expert may take the place of the whole chain, or of its end (`gates`).

It is one ensemble on all rows, since members of several folds would each buy features of their own.  What it does to
new rows, its losses as well as its bills, is known from ensembles without each fold.  First one fold is held out, and
the others only if what that one says can compete with the chain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..boosting import Boosting, work_of
from ..capacity import MANY_ROWS, rounds_on_all
from ..costs import ResolvedCosts
from ..lightgbm_engine import bin_blocks, boost
from ..lightgbm_trees import trees_of
from ..matrix import rows_at
from ..model import TreePool
from ..model.build import Score
from ..rows import Rows, some_of
from .calibration import calibrated_expert, calibration
from .expectation import Expectation
from .expert import Expert
from .members import Wanted, grow_members, hear_at

__all__ = ["LazyExpert", "LazyExperts"]

LEAST_ROWS = 1000  # with fewer, one fold says next to nothing
MOST_SCREENED = 5000  # of many rows, so many teach, and as many judge, whether there is a chance
MOST_TAUGHT = 20_000  # rows that teach, where another engine than LightGBM was taken because there are many
NEGLIGIBLE = 0.01  # part of the loss that all purchases together must weigh


@dataclass(frozen=True, eq=False)
class LazyExpert:
    """One ensemble, and what it does to rows that it did not learn from.

    Attributes
    ----------
    expert : Expert
    losses : ndarray of shape (n,)
        What stopping with its prediction is expected to lose at each row that teaches gates; shifted to what was
        observed.
    items : bool ndarray of shape (n, n_items)
        What the branches of the row buy.
    costs : ResolvedCosts
    """

    expert: Expert
    losses: np.ndarray
    items: np.ndarray
    costs: ResolvedCosts

    def prices(self, columns: np.ndarray) -> np.ndarray:
        """What a row has paid at the end if it came with all that these columns require."""
        return self.costs.bills(self.items | self.costs.items_of(columns)) + self.expert.price(self.costs)


@dataclass(frozen=True, eq=False)
class _Screen:
    """An ensemble without the first fold: its trees, and its losses and prices at the rows of that fold."""

    pool: TreePool
    losses: np.ndarray
    prices: np.ndarray


class LazyExperts:
    """Lazy experts by the strength of their prices, in powers of two, each grown when it is first asked for.

    Parameters
    ----------
    boosting : Boosting
    rows : Rows
    folds : ndarray of shape (n,)
    unit : float
        What is weighed for one unit of cost at which a typical feature would cost all risk that the constant leaves;
        0 if nothing has a price.
    expected : Expectation
        Of losses at the rows.
    teachers : int ndarray or None
        The rows at which the values of chains are known; None: all of them.
    boosted_unit : float or None
        The unit in the loss that is boosted, where errors in money are weighed; None: the same.
    calibrates : bool
        Whether its probabilities decide, and must keep their promise.
    """

    def __init__(
        self,
        boosting: Boosting,
        rows: Rows,
        folds: np.ndarray,
        unit: float,
        expected: Expectation,
        teachers: np.ndarray | None = None,
        *,
        boosted_unit: float | None = None,
        calibrates: bool = False,
    ):
        # sampling rows or features for each tree makes every tree buy something else; LightGBM alone knows prices
        self._boosting = replace(
            boosting, feature_fraction=1.0, row_fraction=1.0, engine="lightgbm", device="cpu"
        )
        self._most_taught = len(folds) if boosting.engine == "lightgbm" else MOST_TAUGHT
        self._rows, self._folds = rows, folds
        self.unit, self._boosted_unit = unit, unit if boosted_unit is None else boosted_unit
        self._expected, self._calibrates = expected, calibrates
        costs = boosting.costs
        self._most_expensive = costs.full_cost + costs.evaluation * boosting.n_rounds * len(boosting.constant)
        first = folds == folds.min()
        self._teachers = np.arange(len(folds)) if teachers is None else teachers
        most = MOST_SCREENED if len(folds) >= MANY_ROWS else len(folds)
        self._places = some_of(np.flatnonzero(first[self._teachers]), most)  # of those who judge, among them
        self._judges = self._teachers[self._places]
        self._pupils = some_of(np.flatnonzero(~first), most)
        self._screened: dict[int, _Screen] = {}
        self._grown: dict[int, LazyExpert] = {}

    @property
    def n_grown(self) -> int:
        """Ensembles that were grown, the screens included."""
        return len(self._screened) + len(self._grown)

    def find(self, cost_weight: float, value: np.ndarray) -> LazyExpert | str:
        """The one for a cost weight; or why none competes with what is expected to lose `value` at each row."""
        power = self.power(cost_weight)
        if power is None:
            return self.why_none()
        # every second power first: where that has no chance, its neighbours are not even grown
        rough, k = 2 * round(power / 2), round(power)
        if self.competes(rough, cost_weight, value) and self.competes(k, cost_weight, value):
            return self._grow(k)
        return "no chance on one fold"

    def power(self, cost_weight: float) -> float | None:
        """A cost weight as a power of two, in units; None where lazy experts have nothing to say."""
        ratio = cost_weight / self.unit if self.unit else 0.0
        return float(np.log2(ratio)) if 0 < ratio < np.inf and len(self._folds) >= LEAST_ROWS else None

    def why_none(self) -> str:
        """Where `power` is None, the reason."""
        return f"fewer than {LEAST_ROWS} rows" if len(self._folds) < LEAST_ROWS else "no prices to weigh"

    def competes(self, k: int, cost_weight: float, value: np.ndarray) -> bool:
        """Whether its loss on the first fold is smaller by more than a standard error, and prices play a part in it."""
        if not self.matters(cost_weight, value):
            return False  # without growing anything
        value, weights = value[self._places], self._rows.weights[self._judges]
        negligible = NEGLIGIBLE * np.average(value, weights=weights)
        screen = self._screen(k)
        if cost_weight * np.average(screen.prices, weights=weights) < negligible:
            return False
        worse = screen.losses + cost_weight * screen.prices - value
        mean = np.average(worse, weights=weights)
        error = np.sqrt(np.average((worse - mean) ** 2, weights=weights) / len(worse))
        return bool(mean < -error)

    def matters(self, cost_weight: float, value: np.ndarray) -> bool:
        """Whether prices can play a part beside what is expected to be lost at each row."""
        lost = np.average(value[self._places], weights=self._rows.weights[self._judges])
        return bool(cost_weight * self._most_expensive >= NEGLIGIBLE * lost)

    def _screen(self, k: int) -> _Screen:
        if k not in self._screened:
            kept, out = self._rows.take(self._pupils), self._rows.take(self._judges)
            self._expect(1)
            booster = boost(self._boosting, kept, cost_weight=self._boosted_unit * 2.0**k, validation=out)
            pool, weights = trees_of(booster, len(self._boosting.constant))
            losses, items = self._told(pool, weights, self._judges)
            self._screened[k] = _Screen(pool, losses, self._boosting.costs.charge(items, pool.n_learners))
        return self._screened[k]

    def _grow(self, k: int) -> LazyExpert:
        """One ensemble on all rows; what it loses and buys is known from those without each fold."""
        if k in self._grown:
            return self._grown[k]
        boosting, rows, strength = self._boosting, self._rows, self._boosted_unit * 2.0**k
        costs, columns = boosting.costs, np.arange(rows.X.shape[1])
        parts = [self._folds == fold for fold in np.unique(self._folds)]
        self._expect(len(parts) + 1)
        some = some_of(np.arange(len(rows)), self._most_taught)
        taught = rows if len(some) == len(rows) else rows.take(some)
        blocks = bin_blocks(boosting, taught, [columns], ahead=boosting.workers is None)
        own = [out[some] for out in parts]
        wanted = Wanted(columns, boosting, own, strength, buys=True, name="the lazy expert")
        (members,) = grow_members([wanted], taught, blocks)
        if taught is not rows:  # of rows that taught nobody, a member is asked that did not see their fold
            items_of = costs.feature_items
            heard_of = [
                hear_at(*trees, rows, out, members.columns, items_of)
                for trees, out in zip(members.trees, parts, strict=True)
            ]
            members = replace(members, heard=heard_of)
        margins = np.tile(boosting.constant, (len(rows), 1))
        items = np.zeros((len(rows), costs.n_items), dtype=bool)
        for out, heard in zip(parts, members.heard, strict=True):
            margins[out] += heard.scores
            items[out] = heard.items
        rounds = members.rounds if len(taught) < MANY_ROWS else rounds_on_all(members.rounds, len(parts))
        pool, weights = members.on_all(rounds)
        expert = Expert(Score(pool.on_columns(members.columns), weights, boosting.constant), margins)
        if self._calibrates:
            expert = calibrated_expert(expert, boosting.loss, rows)
        at = self._teachers
        losses = self._expected(expert.margins[at], at) + self._expected.shift(expert.margins)
        self._grown[k] = LazyExpert(expert, losses, items[at], costs)
        return self._grown[k]

    def _expect(self, n_boosters: int) -> None:
        """Tell those who watch."""
        n, n_columns = self._rows.X.shape
        work = n_boosters * work_of(n, n_columns, self._boosting.n_rounds)
        self._boosting.progress.begin("lazy experts", work, n_boosters)

    def _told(self, pool: TreePool, weights: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Expected losses of an ensemble at some rows, shifted to what was observed, and what it buys there."""
        X = rows_at(self._rows.X, at)
        scores, items = pool.scores_and_items(X, weights, self._boosting.costs.feature_items)
        margins = self._boosting.constant + scores
        if self._calibrates:
            scale, shift = calibration(self._boosting.loss, margins, self._rows.y[at], self._rows.weights[at])
            margins = scale * margins + shift
        return self._expected(margins, at) + self._expected.shift(margins, at), items
