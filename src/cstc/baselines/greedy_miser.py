"""Greedy Miser: boosting whose splits pay for features that no earlier tree has used (Xu et al. 2012)."""

from __future__ import annotations

import numpy as np

from ..model import FittedTree, TreePool
from ._base import COMMON, Baseline
from ._boosting import boost, sums_of_trees
from ._setting import Setting
from .cegb import check_cost_weight
from .stagewise import first_trees

__all__ = ["GreedyMiser"]


class GreedyMiser(Baseline):
    __doc__ = f"""Boosted trees whose impurity adds ``cost_weight * price`` for every feature that is not in use yet.

    Trees are added as long as risk + cost_weight * cost falls on the validation rows, where the cost is that of the
    paper: every tree, and every feature once.

    Parameters
    ----------
    cost_weight : float, default=0.01
        How much risk one unit of cost is worth.
    {COMMON}

    Notes
    -----
    The trees are LightGBM's, with its penalty ``cegb_penalty_feature_coupled``: a split gains the drop of the summed
    risk, less ``n * cost_weight * price`` if its feature was not used before in the ensemble, which is Greedy Miser's
    impurity.  An implementation of its own would differ in the binning of features only, and be many times slower.
    What sets it apart from `CEGB` with the coupled penalty is where it stops: by risk and cost, not by risk alone.

    References
    ----------
    Xu, Weinberger, Chapelle: The greedy miser: learning under test-time budgets. ICML 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from cstc.baselines import GreedyMiser
    >>> X = np.random.default_rng(0).normal(size=(600, 4))
    >>> y = X[:, 0] + 0.1 * X[:, 3]
    >>> model = GreedyMiser(costs=[1, 2, 4, 8], cost_weight=0.01, random_state=0).fit(X, y)
    >>> float(model.predict_cost(X).max())
    1.0
    """

    def __init__(
        self,
        *,
        cost_weight=0.01,
        task="regression",
        costs=None,
        n_weak_learners=200,
        weak_learner_depth=4,
        learning_rate=0.1,
        early_stopping=20,
        validation_fraction=0.2,
        random_state=None,
        n_jobs=None,
    ):
        super().__init__(
            task=task,
            costs=costs,
            n_weak_learners=n_weak_learners,
            weak_learner_depth=weak_learner_depth,
            learning_rate=learning_rate,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            random_state=random_state,
            n_jobs=n_jobs,
        )
        self.cost_weight = cost_weight

    def _check_own_parameters(self):
        check_cost_weight(self.cost_weight)

    def _share(self, setting: Setting) -> None:
        """Nothing: the trees depend on the cost weight."""

    def _fit_model(self, setting: Setting, shared: None) -> FittedTree:
        weight = float(self.cost_weight)

        def choose(pool: TreePool) -> int:
            return rounds_by_loss(setting, pool, weight)

        pool = boost(setting, cost_weight=weight, penalty="coupled", choose_rounds=choose)
        return first_trees(setting, pool, pool.n_learners)


def rounds_by_loss(setting: Setting, pool: TreePool, cost_weight: float) -> int:
    """The number of trees with the least risk + cost_weight * cost on the validation rows."""
    rows = setting.validation
    sums = sums_of_trees(pool, rows.X) + setting.constant[0]
    risks = np.array([setting.loss.risk(column[:, None], rows.y, rows.weights) for column in sums.T])
    items = np.zeros((pool.n_learners + 1, setting.costs.n_items), dtype=bool)
    items[1:] = np.logical_or.accumulate(pool.learner_uses(setting.costs.feature_items), axis=0)
    costs = setting.costs.charge(items, np.arange(len(items)))
    return int(np.argmin(risks + setting.units.standard_weight(cost_weight) * costs))
