"""Cronus: the cascade, a chain of classifiers trained with the same loss as the tree (Chen et al. 2012)."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real

import numpy as np

from ..model import FittedTree, TreeShape
from ..paper.features import Columns, Seen
from ..paper.hard_tree import HardTree
from ..paper.objective import NodeParameters, TreeObjective
from ..paper.pruning import prune
from ..paper.solver import SMALLEST_SHARE, node_problem, solve
from ._base import COMMON, Baseline
from ._columns import check_weak_learners, columns_of, hard_tree, judge
from ._setting import Setting
from .cegb import check_cost_weight
from .single import check_steps

__all__ = ["Cronus"]


class Cronus(Baseline):
    __doc__ = f"""A cascade: rows above the threshold of a stage go on to the next, the others leave with its answer.

    The loss is that of the tree on the shape of a chain, ``p_1 = 1``, ``p_{{k+1}} = p_k * sigmoid(h_k - theta_k)``; a
    row that leaves at stage k pays for the stages 1 to k.  Stages are initialised in order and then optimised together.
    Thresholds are not: they stand where a stage passes on its keep ratio of rows.  (Left free they rise until every
    row leaves at once, since each stage that a row still passes adds its risk to this loss.)

    Parameters
    ----------
    cost_weight : float, default=0.01
        The paper's lambda.
    length : int, default=10
        Stages at most; late ones are pruned on validation rows.
    keep_ratios : sequence of float, default=(0.3, 0.5, 0.7)
        Shares of its rows that a stage passes on.  The one whose cascade has the lowest risk + cost_weight * exact
        cost on the validation rows is taken.
    max_iter : int, default=200
        Steps of the solver at most, from each start.
    weak_learners : {{"boosted", "identity"}}, default="boosted"
        Boosted trees, or the inputs themselves.
    {COMMON}
    keep_ratio_ : float
        The one that was taken.

    References
    ----------
    Chen, Xu, Weinberger, Chapelle, Kedem: Classifier cascade for minimizing feature evaluation cost. AISTATS 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from cstc.baselines import Cronus
    >>> X = np.random.default_rng(0).normal(size=(600, 4))
    >>> y = np.maximum(X[:, 0], 0) * X[:, 3]
    >>> model = Cronus(costs=[1, 2, 4, 8], length=3, n_weak_learners=20, random_state=0).fit(X, y)
    >>> model.model_.shape.n_nodes <= 3
    True
    """

    def __init__(
        self,
        *,
        cost_weight=0.01,
        length=10,
        keep_ratios=(0.3, 0.5, 0.7),
        max_iter=200,
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
        self.length = length
        self.keep_ratios = keep_ratios
        self.max_iter = max_iter
        self.weak_learners = weak_learners

    def _check_own_parameters(self):
        check_weak_learners(self.weak_learners)
        check_cost_weight(self.cost_weight)
        check_steps(self.max_iter)
        if not isinstance(self.length, Integral) or self.length < 1:
            raise ValueError(f"length is {self.length!r}; it must be a whole number, 1 or more")
        ratios = self.keep_ratios
        numbers = np.ndim(ratios) == 1 and len(ratios) and all(isinstance(ratio, Real) for ratio in ratios)
        if not numbers or not all(0 < float(ratio) < 1 for ratio in ratios):
            raise ValueError(f"keep_ratios is {ratios!r}; give a list of numbers above 0 and below 1")

    def _share(self, setting: Setting) -> Columns:
        return columns_of(setting, self.weak_learners)

    def _fit_model(self, setting: Setting, shared: Columns) -> FittedTree:
        shape = TreeShape.chain(self.length)
        weight, slope = setting.units.standard_weight(self.cost_weight), setting.units.scale
        objective = shared.objective(shape, weight, gate_slope=slope, kind=FixedThresholds)
        judged = judge(shared, self.cost_weight)
        found: dict[float, HardTree] = {}
        for ratio in self.keep_ratios if self.length > 1 else self.keep_ratios[:1]:
            start = start_of_chain(objective, float(ratio), self.max_iter)
            solution = solve(objective, start, max_iter=self.max_iter, tol=1e-5)
            cascade = hard_tree(shared, shape, solution.parameters, self.cost_weight)
            found[float(ratio)] = prune(_keeping(cascade, shared.train, float(ratio)), judged)
        self.keep_ratio_ = min(found, key=lambda ratio: judged(found[ratio]))
        return shared.to_model(found[self.keep_ratio_])


class FixedThresholds(TreeObjective):
    """The loss of a tree whose thresholds stay where they are."""

    def value_and_gradient(self, parameters, auxiliaries=None):
        value, gradient = super().value_and_gradient(parameters, auxiliaries)
        return value, replace(gradient, thresholds=np.zeros_like(gradient.thresholds))


def _keeping(cascade: HardTree, rows: Seen, keep_ratio: float) -> HardTree:
    """The same cascade with every threshold where hard routing keeps the ratio of the rows that reach the stage."""
    thresholds = cascade.thresholds.copy()
    here = np.arange(len(rows.rows))
    for stage in np.flatnonzero(~cascade.shape.is_leaf):
        if not len(here):
            break
        margin = rows.phi[here] @ cascade.route_weights[:, stage]
        thresholds[stage] = _quantile(margin, rows.weights[here], keep_ratio)
        here = here[margin > thresholds[stage]]
    return replace(cascade, thresholds=thresholds)


def _quantile(margin: np.ndarray, weights: np.ndarray, keep_ratio: float) -> float:
    """A threshold, between two values, above which that share lies as nearly as ties allow."""
    values, group = np.unique(margin, return_inverse=True)
    if len(values) == 1:
        return float(values[0])
    above = 1.0 - np.cumsum(np.bincount(group, weights))[:-1] / weights.sum()
    at = int(np.argmin(np.abs(above - keep_ratio)))
    return float((values[at] + values[at + 1]) / 2.0)


def start_of_chain(objective: TreeObjective, keep_ratio: float, max_iter: int) -> NodeParameters:
    """Stages in order, each solved as if it were the last, on the rows that softly reach it."""
    n_learners, n_stages = objective.design.n_learners, objective.shape.n_nodes
    parameters = NodeParameters.zeros(n_learners, n_stages, objective.n_columns)
    reached = objective.row_weights
    for stage in range(n_stages):
        if reached.sum() < SMALLEST_SHARE:
            parameters.intercepts[stage:] = parameters.intercepts[stage - 1]
            parameters.thresholds[stage:] = parameters.thresholds[stage - 1]
            break
        start = NodeParameters.zeros(n_learners, 1, objective.n_columns)
        start.intercepts[0] = objective.loss.constant(objective.y, reached)
        alone = solve(node_problem(objective, parameters, stage, reached), start, max_iter=max_iter, tol=1e-4)
        parameters.weights[:, stage] = alone.parameters.weights[:, 0]
        parameters.intercepts[stage] = alone.parameters.intercepts[0]
        margin = objective.design.matmul(parameters.weights[:, stage])[:, 0] + parameters.intercepts[stage, 0]
        parameters.thresholds[stage] = _quantile(margin, reached, keep_ratio)
        reached = reached * objective.gates(margin[:, None, None], parameters.thresholds[stage : stage + 1])[:, 0]
    return parameters
