"""l1 regularisation: the lasso over the boosted trees, without a cost term (paper, related work)."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, LogisticRegression

from ..model import FittedTree
from ..paper.codes import as_array
from ..paper.features import Columns
from ._base import COMMON, Baseline
from ._columns import check_weak_learners, columns_of
from ._setting import Setting
from .cegb import check_cost_weight

__all__ = ["L1"]

SMALLEST = 1e-3  # of the weight at which nothing is left: the other end of the frontier
# scikit-learn 1.8 deprecates `penalty`; versions before it ignore `l1_ratio` alone and fit l2
L1_PENALTY = {"penalty": "l1"} if LogisticRegression().penalty == "l2" else {"l1_ratio": 1.0}


class L1(Baseline):
    __doc__ = f"""The lasso over the outputs of the boosted trees: few trees, and so few features, whatever they cost.

    Minimises mean risk + l1_weight * sum of the absolute weights (scikit-learn's `Lasso`, or `LogisticRegression` for
    classes).

    Parameters
    ----------
    l1_weight : float, default=0.001
        The paper's rho, in the units of the risk.
    weak_learners : {{"boosted", "identity"}}, default="boosted"
        Boosted trees, or the inputs themselves.
    {COMMON}

    References
    ----------
    Efron, Hastie, Johnstone, Tibshirani: Least angle regression. Annals of Statistics 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from cstc.baselines import L1
    >>> X = np.random.default_rng(0).normal(size=(600, 4))
    >>> y = X[:, 0] + 0.1 * X[:, 3]
    >>> many, few = (L1(l1_weight=w, random_state=0).fit(X, y).model_.pool.n_learners for w in (0.001, 0.1))
    >>> few < many
    True
    """

    _varied = "l1_weight"

    def __init__(
        self,
        *,
        l1_weight=0.001,
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
        self.l1_weight = l1_weight
        self.weak_learners = weak_learners

    def _check_own_parameters(self):
        check_weak_learners(self.weak_learners)
        check_cost_weight(self.l1_weight, "l1_weight")

    def _share(self, setting: Setting) -> Columns:
        return columns_of(setting, self.weak_learners)

    def _fit_model(self, setting: Setting, shared: Columns) -> FittedTree:
        rows, weight = shared.train, setting.units.standard_weight(self.l1_weight)
        if not shared.n_columns:
            return setting.weighted(shared.pool, np.zeros(0), float(setting.constant[0]))
        if not setting.loss.has_classes:
            # Lasso halves the mean of the squares, and takes no penalty of exactly zero
            solver = Lasso(alpha=max(weight, 1e-12) / 2.0, max_iter=5000, tol=1e-5)
        else:
            # LogisticRegression sums the risk; its C is the weight of the risk
            strength = 1.0 / (max(weight, 1e-9) * rows.weights.sum())
            solver = LogisticRegression(
                **L1_PENALTY, C=strength, solver="liblinear", intercept_scaling=100.0, max_iter=1000, random_state=0
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # its end is far below what a choice by quality sees
            solver.fit(as_array(rows.phi), rows.y, sample_weight=rows.weights)
        weights = np.ravel(solver.coef_) / shared.scale
        return setting.weighted(
            shared.pool, weights, float(np.ravel(solver.intercept_)[0]) - float(shared.offset @ weights)
        )

    def _values(self, setting: Setting, shared: Columns, n_points: int):
        rows = shared.train
        if not shared.n_columns:
            return [self.l1_weight]
        # the gradient of the risk at the constant prediction: above its largest entry all weights are zero
        margins = np.tile(setting.constant, (len(rows.rows), 1))
        by_margin = setting.loss.value_and_derivative(margins, rows.y)[1][:, 0] * rows.weights / rows.weights.sum()
        most = setting.units.risk(float(np.abs(rows.phi.T @ by_margin).max()))
        return [float(value) for value in most * np.geomspace(1.01, SMALLEST, n_points)]
