"""LightGBM's cost-efficient gradient boosting (CEGB), with either of its penalties on features."""

from __future__ import annotations

from numbers import Real

import numpy as np

from ..model import FittedTree
from ._base import COMMON, Baseline
from ._boosting import boost
from ._setting import Setting
from .stagewise import first_trees

__all__ = ["CEGB"]

PENALTIES = ("lazy", "coupled")


class CEGB(Baseline):
    __doc__ = f"""LightGBM with prices: a split must gain more than what it buys.

    Parameters
    ----------
    cost_weight : float, default=0.01
        How much risk one unit of cost is worth, as in the estimators of `cstc`.
    penalty : {{"lazy", "coupled"}}, default="lazy"
        "lazy": a split pays for its feature at every row that reaches it and has not bought the feature yet.
        "coupled": the first split of the whole ensemble on a feature pays for it, for all rows.
    {COMMON}

    Notes
    -----
    LightGBM sums the lazy penalty over rows but not the coupled one, which is therefore multiplied by the number of
    rows.  It knows features and not items: features that share an item divide its price.  The number of trees comes
    from early stopping on validation rows; the ensemble is then grown again on all rows where these were held out.

    References
    ----------
    Peter, Diego, Hamprecht, Nadler: Cost efficient gradient boosting. NIPS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from cstc.baselines import CEGB
    >>> X = np.random.default_rng(0).normal(size=(600, 4))
    >>> y = X[:, 0] + 0.1 * X[:, 3]
    >>> model = CEGB(costs=[1, 2, 4, 8], cost_weight=0.01, random_state=0).fit(X, y)
    >>> float(model.predict_cost(X).mean())
    1.0
    """

    def __init__(
        self,
        *,
        cost_weight=0.01,
        penalty="lazy",
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
        self.penalty = penalty

    def _check_own_parameters(self):
        check_cost_weight(self.cost_weight)
        if self.penalty not in PENALTIES:
            raise ValueError(f"penalty is {self.penalty!r}; it must be one of {PENALTIES}")

    def _share(self, setting: Setting) -> None:
        """Nothing: the trees depend on the cost weight."""

    def _fit_model(self, setting: Setting, shared: None) -> FittedTree:
        pool = boost(setting, cost_weight=float(self.cost_weight), penalty=self.penalty)
        return first_trees(setting, pool, pool.n_learners)


def check_cost_weight(value, name: str = "cost_weight") -> None:
    if not isinstance(value, Real) or not np.isfinite(float(value)) or value < 0:
        raise ValueError(f"{name} is {value!r}; it must be a finite number, 0 or more")
