"""Stage-wise regression: the boosted ensemble, cut after some of its trees (paper, "Comparison with prior work")."""

from __future__ import annotations

from numbers import Integral

import numpy as np

from ..model import FittedTree, TreePool
from ._base import COMMON, Baseline
from ._boosting import boost
from ._setting import Setting

__all__ = ["StageWiseRegression", "first_trees"]


class StageWiseRegression(Baseline):
    __doc__ = f"""The boosted ensemble, blind to cost; its frontier goes along the rounds of boosting.

    Every row pays for all trees up to the cut and for the features in them.

    Parameters
    ----------
    n_trees : int or None, default=None
        Cut after so many trees; None: all that early stopping left.
    {COMMON}

    References
    ----------
    Friedman: Greedy function approximation. Annals of Statistics 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from cstc.baselines import StageWiseRegression
    >>> X = np.random.default_rng(0).normal(size=(600, 4))
    >>> y = X[:, 0] + X[:, 1] ** 2
    >>> frontier = StageWiseRegression(costs=[1, 2, 4, 8], random_state=0).frontier(X[:500], y[:500])
    >>> bool(frontier.models_[-1].score(X[500:], y[500:]) > 0.8)
    True
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
        self.n_trees = n_trees

    def _check_own_parameters(self):
        if self.n_trees is not None and (not isinstance(self.n_trees, Integral) or self.n_trees < 0):
            raise ValueError(f"n_trees is {self.n_trees!r}; it must be None or a whole number, 0 or more")

    def _share(self, setting: Setting) -> TreePool:
        return boost(setting)

    def _fit_model(self, setting: Setting, shared: TreePool) -> FittedTree:
        n_trees = shared.n_learners if self.n_trees is None else min(self.n_trees, shared.n_learners)
        return first_trees(setting, shared, n_trees)

    def _values(self, setting: Setting, shared: TreePool, n_points: int):
        # most features come with the first trees, so cuts grow by a factor
        last = shared.n_learners
        cuts = np.unique(np.round(np.geomspace(1, max(last, 1), max(n_points - 1, 1)))).astype(int)
        return [0, *(int(cut) for cut in cuts if cut <= last)]


def first_trees(setting: Setting, pool: TreePool, n_trees: int) -> FittedTree:
    """The first trees of an ensemble, as they are."""
    weights = (np.arange(pool.n_learners) < n_trees).astype(float)
    return setting.weighted(pool, weights, float(setting.constant[0]))
