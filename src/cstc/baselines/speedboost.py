"""SpeedBoost: an ensemble that is good at any time, by gain per cost (Grubb and Bagnell 2012)."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import numpy as np
from scipy.optimize import minimize_scalar

from ..boosting import work_of
from ..costs import ResolvedCosts
from ..model import FittedTree, TreePool
from ..parallel import stop_if_asked
from ..rows import Rows
from ._base import Baseline, documented
from ._setting import Setting
from ._splits import Bins, Grown, Squares, best_splits, grow, least_rows, pool_of
from .stagewise import first_trees

__all__ = ["SpeedBoost"]

LOOKED_AT = 4  # purchases for which trees are grown in each round; more only where none of them gains
MOST_LOOKED_AT = 12  # and no more than these
FREE = 0.1  # of the cheapest price: what a learner without a cost counts
LONGEST = 64.0  # the longest step, in multiples of the gradient over the largest curvature


class SpeedBoost(Baseline):
    __doc__ = f"""Boosted trees, each the one with the largest drop of the risk for one unit of its cost.

    In each round the learner and its weight are those of

        ``max_(h, a)  [R(f) - R(f + a * h)] / cost(h)``,

    where ``cost(h)`` is the evaluation of h and the items that no learner before it has bought.  The first learners are
    those that pay at once, so the ensemble can be cut anywhere: its frontier goes along the learners.

    Parameters
    ----------
    n_trees : int or None, default=None
        Cut after so many learners; None: all.
    {documented("n_jobs", "early_stopping")}

    Notes
    -----
    A learner is a tree of least squares on the negative gradient, its weight comes from a line search and is shrunk by
    the learning rate.  The candidates of a round are a tree on the features that are bought already and, for the
    {LOOKED_AT} purchases whose best single split gains most for its cost, a tree on what the purchase brings and one on
    this and all that was bought before.  A pair of new features of which each says nothing alone is not found.

    The gain is that of the validation rows, and the ensemble ends when no candidate has any: by the training rows,
    cheap features that say nothing would come before expensive ones that say much.  A learner that costs nothing would
    be taken for ever: it counts as a tenth of the cheapest price.  Neither is in the original, which measures all costs
    in seconds.

    Where the validation rows were held out of those given, the ensemble is grown again on all rows at the end, learner
    by learner on the same features.

    References
    ----------
    Grubb, Bagnell: SpeedBoost: anytime prediction with uniform near-optimality. AISTATS 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from cstc.baselines import SpeedBoost
    >>> X = np.random.default_rng(0).normal(size=(600, 4))
    >>> y = X[:, 0] + X[:, 3]  # the first costs 1, the last 8
    >>> model = SpeedBoost(costs=[1, 2, 4, 8], n_trees=1, random_state=0).fit(X, y)
    >>> float(model.predict_cost(X).max())
    1.0
    """

    _varied = "n_trees"

    def __init__(
        self,
        *,
        n_trees=None,
        task="regression",
        costs=None,
        n_weak_learners=200,
        weak_learner_depth=4,
        learning_rate=0.1,
        validation_fraction=0.2,
        random_state=None,
    ):
        self.n_trees = n_trees
        self.task = task
        self.costs = costs
        self.n_weak_learners = n_weak_learners
        self.weak_learner_depth = weak_learner_depth
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def _check_own_parameters(self):
        if self.n_trees is not None and (not isinstance(self.n_trees, Integral) or self.n_trees < 0):
            raise ValueError(f"n_trees is {self.n_trees!r}; it must be None or a whole number, 0 or more")

    def _share(self, setting: Setting) -> TreePool:
        learners = _choose_learners(setting)
        if learners and setting.everything is not None:
            learners = _grow_again(setting, setting.everything, [learner.columns for learner in learners])
        weights = np.array([learner.weight for learner in learners])
        pool = pool_of([learner.tree for learner in learners])
        return pool.scaled(weights) if learners else pool

    def _fit_model(self, setting: Setting, shared: TreePool) -> FittedTree:
        n_trees = shared.n_learners if self.n_trees is None else min(self.n_trees, shared.n_learners)
        return first_trees(setting, shared, n_trees)

    def _values(self, setting: Setting, shared: TreePool, n_points: int):
        """Cuts before learners that buy something: up to there, more learners only cost their evaluation."""
        uses = shared.learner_uses(setting.costs.feature_items)
        before = np.vstack([np.zeros_like(uses[:1]), np.logical_or.accumulate(uses, axis=0)[:-1]])
        buys = np.flatnonzero((uses & ~before).any(axis=1))
        cuts = np.unique([0, *buys, shared.n_learners])
        at = np.unique(np.linspace(0, len(cuts) - 1, min(n_points, len(cuts))).round()).astype(int)
        return [int(cut) for cut in cuts[at]]


@dataclass(frozen=True, eq=False)
class _Learner:
    """A tree with its weight, the columns that it was grown on, and what it says of the rows that taught it."""

    tree: Grown
    weight: float
    columns: np.ndarray
    outputs: np.ndarray


class _Ensemble:
    """Rows, and the margins of all learners so far."""

    def __init__(self, setting: Setting, rows: Rows, bins: Bins):
        self.setting, self.rows, self.bins = setting, rows, bins
        self.margins = np.full(len(rows), float(setting.constant[0]))

    def risk(self, step: np.ndarray | float = 0.0) -> float:
        """After one step more."""
        return self.setting.loss.risk((self.margins + step)[:, None], self.rows.y, self.rows.weights)

    def statistics(self) -> np.ndarray:
        """Of least squares on the negative gradient, in units of the largest curvature."""
        loss = self.setting.loss
        derivative = loss.value_and_derivative(self.margins[:, None], self.rows.y)[1][:, 0]
        return Squares().statistics(-derivative / loss.curvature, self.rows.weights)

    def learner(self, statistics: np.ndarray, columns: np.ndarray) -> _Learner:
        """The tree on some columns, with the weight of a line search, shrunk."""
        boosting = self.setting.boosting
        tree, outputs = grow(self.bins, statistics, columns, boosting.depth, least_rows(len(self.rows)))
        found = minimize_scalar(
            lambda step: self.risk(step * outputs), bounds=(0.0, LONGEST), method="bounded", options={"xatol": 1e-4}
        )
        return _Learner(tree, float(boosting.learning_rate * found.x), columns, outputs)


def _choose_learners(setting: Setting) -> list[_Learner]:
    """Round by round the learner with the largest gain per cost, as long as there is one that gains."""
    bins = Bins.of(setting.train.X, setting.boosting.categorical)
    taught = _Ensemble(setting, setting.train, bins)
    judged = _Ensemble(setting, setting.validation, Bins.of(setting.validation.X, like=bins))
    owned, learners = setting.costs.prices == 0, []
    work = work_of(len(taught.rows), bins.codes.shape[0], 1)
    for _ in range(setting.boosting.n_rounds):
        stop_if_asked()
        found = _best_learner(taught, judged, owned)
        if found is None:
            break
        learners.append(found)
        taught.margins = taught.margins + found.weight * found.outputs
        judged.margins = judged.margins + found.weight * found.tree.outputs(judged.bins)
        owned = owned | setting.costs.items_of(found.tree.columns)
        setting.boosting.progress.did(work)
    return learners


def _best_learner(taught: _Ensemble, judged: _Ensemble, owned: np.ndarray) -> _Learner | None:
    """The candidate with the largest drop of the risk per cost; None where none lowers it."""
    costs, statistics = taught.setting.costs, taught.statistics()
    before, best, most = judged.risk(), None, 0.0
    at_hand = costs.at_hand(owned)
    candidates = [[at_hand]] if len(at_hand) else []
    candidates += [
        [np.setdiff1d(columns, at_hand), columns] if len(at_hand) else [columns]
        for columns in _purchases(taught, judged, owned)
    ]
    for looked_at, sets in enumerate(candidates):
        if looked_at > (LOOKED_AT if best is not None else MOST_LOOKED_AT):
            break
        for columns in sets:
            learner = taught.learner(statistics, columns)
            gain = before - judged.risk(learner.weight * learner.tree.outputs(judged.bins))
            value = gain / float(_cost(costs, (costs.items_of(learner.tree.columns) & ~owned)[None])[0])
            if len(learner.tree.columns) and value > most:
                best, most = learner, value
    return best


def _purchases(taught: _Ensemble, judged: _Ensemble, owned: np.ndarray) -> list[np.ndarray]:
    """The columns at hand after each purchase, first those whose best single split gains most for its cost."""
    costs = taught.setting.costs
    others = np.setdiff1d(np.arange(len(costs.feature_items)), costs.at_hand(owned))
    if not len(others):
        return []
    everyone, least = np.arange(len(taught.rows)), least_rows(len(taught.rows))
    splits = best_splits(taught.bins, everyone, others, taught.statistics(), Squares(), least)
    gains = splits.gains_elsewhere(judged.bins, judged.statistics())
    ratio = gains / _cost(costs, costs.feature_items[others] & ~owned)
    found: dict[bytes, np.ndarray] = {}
    for place in np.argsort(-ratio, kind="stable"):
        if ratio[place] > 0:
            items = owned | costs.feature_items[others[place]]
            found.setdefault(items.tobytes(), costs.at_hand(items))
    return list(found.values())


def _cost(costs: ResolvedCosts, items: np.ndarray) -> np.ndarray:
    """What learners cost that buy the items, bool (n, n_items), and a little where that is nothing."""
    prices = costs.prices[costs.prices > 0]
    least = FREE * float(prices.min()) if len(prices) else 1.0
    cost = costs.charge(items, 1)
    return np.where(cost > 0, cost, least)


def _grow_again(setting: Setting, rows: Rows, sets: list[np.ndarray]) -> list[_Learner]:
    """Learners on the same sets of columns, from other rows."""
    ensemble, learners = _Ensemble(setting, rows, Bins.of(rows.X, setting.boosting.categorical)), []
    for columns in sets:
        stop_if_asked()
        learners.append(ensemble.learner(ensemble.statistics(), columns))
        ensemble.margins = ensemble.margins + learners[-1].weight * learners[-1].outputs
    return learners
