"""The single cost-sensitive classifier: one node of the tree (paper, eq. 4)."""

from __future__ import annotations

from numbers import Integral

from ..model import FittedTree, TreeShape
from ..paper.features import Columns
from ..paper.objective import NodeParameters
from ..paper.solver import solve
from ._base import COMMON, Baseline
from ._columns import check_weak_learners, columns_of, hard_tree
from ._setting import Setting
from .cegb import check_cost_weight

__all__ = ["SingleClassifier", "check_steps"]


class SingleClassifier(Baseline):
    __doc__ = f"""One cost-sensitive classifier over the boosted trees: all rows pay for the same trees.

    Minimises mean risk + cost_weight * (relaxed cost of the trees with a weight).  The problem is convex.

    Parameters
    ----------
    cost_weight : float, default=0.01
        The paper's lambda.
    max_iter : int, default=500
        Steps of the solver at most.
    weak_learners : {{"boosted", "identity"}}, default="boosted"
        Boosted trees, or the inputs themselves.
    {COMMON}

    Examples
    --------
    >>> import numpy as np
    >>> from cstc.baselines import SingleClassifier
    >>> X = np.random.default_rng(0).normal(size=(600, 4))
    >>> y = X[:, 0] + 0.1 * X[:, 3]
    >>> model = SingleClassifier(costs=[1, 2, 4, 8], cost_weight=0.1, weak_learner_depth=1, random_state=0).fit(X, y)
    >>> float(model.predict_cost(X).mean())
    1.0
    """

    def __init__(
        self,
        *,
        cost_weight=0.01,
        max_iter=500,
        weak_learners="boosted",
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
        self.max_iter = max_iter
        self.weak_learners = weak_learners

    def _check_own_parameters(self):
        check_weak_learners(self.weak_learners)
        check_cost_weight(self.cost_weight)
        check_steps(self.max_iter)

    def _share(self, setting: Setting) -> Columns:
        return columns_of(setting, self.weak_learners)

    def _fit_model(self, setting: Setting, shared: Columns) -> FittedTree:
        shape, units = TreeShape.full(1), setting.units
        objective = shared.objective(shape, units.standard_weight(self.cost_weight), gate_slope=units.scale)
        start = NodeParameters.zeros(shared.n_columns, 1, 1)
        start.intercepts[0] = setting.constant
        solution = solve(objective, start, max_iter=self.max_iter, tol=1e-6)
        return shared.to_model(hard_tree(shared, shape, solution.parameters, self.cost_weight))


def check_steps(max_iter) -> None:
    if not isinstance(max_iter, Integral) or max_iter < 1:
        raise ValueError(f"max_iter is {max_iter!r}; it must be a whole number, 1 or more")
