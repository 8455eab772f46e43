"""The soft cascade: an ensemble with a threshold after every stage (Bourdev and Brandt 2005)."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from ..model import FittedTree, TreePool, TreeShape
from ..model.build import Score, build_tree
from ..parallel import stop_if_asked
from ._base import COMMON, Baseline
from ._boosting import boost, sums_of_trees
from ._setting import Setting

__all__ = ["SoftCascade"]

#: How what may be given up is divided among the stages: ``exp(exponent * position)``, from early to late.
#: At minus infinity, the first stage may use all of it.
EXPONENTS = (-np.inf, -3.0, 0.0, 3.0)

ROUNDING = 1e-12  # sums of the same numbers in another order


class SoftCascade(Baseline):
    __doc__ = f"""One boosted ensemble; after each stage, rows with a low partial score leave with that score.

    Trees are put into an order first, each time the one with the largest drop of the training risk for its cost, and
    cut into stages.  A row leaves at the first stage at which its partial score is not above the threshold of the
    stage.  The first threshold comes before any tree, so that all rows may leave with the constant.

    Thresholds are set by validation rows, one stage after the other: as high as possible while those who leave there
    lose no more, against the whole ensemble, than what the stage may give up.

    Parameters
    ----------
    given_up : float, default=0.05
        Between 0 and 1: how much of the drop of the validation risk, from the constant to the whole ensemble, may be
        given up by rows that leave.  At 0, rows leave where that does not raise the risk; at 1 all may leave at once.
    n_stages : int, default=12
        Thresholds at most, with the one before any tree.
    {COMMON}

    Notes
    -----
    What may be given up is divided among the stages in proportion to ``exp(exponent * t)``, where t goes from 0 to 1
    along them: Bourdev and Brandt's rejection distribution.  Of four exponents, the one that costs least on the
    validation rows is taken.  What a stage does not use, the next ones may.

    In the original an input that leaves is rejected: it has the other class.  Here it keeps its partial score, which
    serves ranking and regression as well: it is the rows with low scores that leave, if the validation rows say that
    later trees do little for them.  A score that is high never ends a row early, and several classes have no low one.

    The ensemble has learned from the rows that teach only: thresholds must see scores that were not fitted to them.

    References
    ----------
    Viola, Jones: Rapid object detection using a boosted cascade of simple features. CVPR 2001.
    Bourdev, Brandt: Robust object detection via soft cascade. CVPR 2005.
    Saberian, Vasconcelos: Boosting classifier cascades. NIPS 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from cstc.baselines import SoftCascade
    >>> X = np.random.default_rng(0).normal(size=(900, 4))
    >>> y = (X[:, 0] > 0) & (X[:, 3] > 0)  # who is low in the first needs no more
    >>> options = {{"task": "classification", "costs": [1, 2, 4, 8], "weak_learner_depth": 1, "random_state": 0}}
    >>> all_of_it, some = (SoftCascade(given_up=share, **options).fit(X, y) for share in (0.0, 0.1))
    >>> bool(some.predict_cost(X).mean() < all_of_it.predict_cost(X).mean())
    True
    """

    _varied = "given_up"

    def __init__(
        self,
        *,
        given_up=0.05,
        n_stages=12,
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
        self.given_up = given_up
        self.n_stages = n_stages

    def _check_own_parameters(self):
        if not isinstance(self.given_up, Real) or not 0 <= float(self.given_up) <= 1:
            raise ValueError(f"given_up is {self.given_up!r}; it must be a number from 0 to 1")
        if not isinstance(self.n_stages, Integral) or self.n_stages < 1:
            raise ValueError(f"n_stages is {self.n_stages!r}; it must be a whole number, 1 or more")

    def _share(self, setting: Setting) -> _Stages:
        pool = boost(setting, use_everything=False)
        pool = pool.subset(order_by_gain(setting, pool)) if pool.n_learners else pool
        n_trees = pool.n_learners
        # most features come with the first trees, so stages grow by a factor
        cuts = np.unique([0, n_trees, *np.round(np.geomspace(max(n_trees, 1), 1, int(self.n_stages)))]).astype(int)
        cuts = cuts[cuts <= n_trees]
        scores = sums_of_trees(pool, setting.validation.X)[:, cuts] + setting.constant[0]
        return _Stages(pool, cuts, scores)

    def _fit_model(self, setting: Setting, shared: _Stages) -> FittedTree:
        rows, loss = setting.validation, setting.loss
        risks = np.array([loss.value(score[:, None], rows.y) for score in shared.scores.T]).T
        rises = (risks - risks[:, -1:]) * (rows.weights / rows.weights.sum())[:, None]
        allowed = float(self.given_up) * max(0.0, float(rises[:, 0].sum()))
        models = []
        for exponent in EXPONENTS:
            parts = allowed * shares_of_stages(len(shared.cuts) - 1, exponent)
            models.append(_cascade(setting, shared, set_thresholds(shared.scores, rises, parts)))
            stop_if_asked()
        costs = [float(np.average(model.predict_cost(rows.X), weights=rows.weights)) for model in models]
        return models[int(np.argmin(costs))]

    def _values(self, setting: Setting, shared: _Stages, n_points: int):
        return [0.0, *(float(value) for value in np.geomspace(0.003, 1.0, max(n_points - 1, 1)))]


@dataclass(frozen=True, eq=False)
class _Stages:
    """Trees in order, numbers of trees after which rows may leave, and the scores of validation rows then."""

    pool: TreePool
    cuts: np.ndarray
    scores: np.ndarray


def order_by_gain(setting: Setting, pool: TreePool) -> np.ndarray:
    """Trees, each time the one with the largest drop of the training risk for its cost.

    Where no tree lowers the risk any more, the one that raises it least comes next.
    """
    rows, costs = setting.train, setting.costs
    outputs = pool.transform(rows.X)
    uses = pool.learner_uses(costs.feature_items)
    margins, bought = np.full(len(rows), float(setting.constant[0])), np.zeros(costs.n_items, dtype=bool)
    left, order = list(range(pool.n_learners)), []
    while left:
        stop_if_asked()
        now = setting.loss.risk(margins[:, None], rows.y, rows.weights)
        gains = [now - setting.loss.risk((margins + outputs[:, tree])[:, None], rows.y, rows.weights) for tree in left]
        drop, price = np.array(gains), costs.charge(uses[left] & ~bought, 1)
        # per cost where it falls, and first of all where it does so for nothing
        worth = np.where(drop > 0, drop / np.maximum(price, 1e-9), drop)
        best = left.pop(int(worth.argmax()))
        order.append(best)
        margins += outputs[:, best]
        bought |= uses[best]
    return np.array(order)


def shares_of_stages(n: int, exponent: float) -> np.ndarray:
    """Shape (n,), with a sum of 1: ``exp(exponent * t)`` in proportion, t from 0 to 1."""
    if exponent == -np.inf or n < 2:
        return (np.arange(n) == 0).astype(float)
    shares = np.exp(exponent * np.linspace(0.0, 1.0, n))
    return shares / shares.sum()


def set_thresholds(scores: np.ndarray, rises: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Thresholds of all stages but the last: rows leave whose score is not above.

    Parameters
    ----------
    scores : ndarray of shape (n, n_stages)
        Partial scores of validation rows.
    rises : ndarray of shape (n, n_stages)
        What the mean risk rises by if a row leaves at a stage instead of going to the end.
    parts : ndarray of shape (n_stages - 1,)
        How much each stage may give up.
    """
    here, credit = np.arange(len(scores)), 0.0
    thresholds = np.full(len(parts), -np.inf)
    for stage, part in enumerate(parts):
        credit += part
        if not len(here):  # nobody comes as far: whoever does at test time leaves too
            thresholds[stage] = np.inf
            continue
        values, group = np.unique(scores[here, stage], return_inverse=True)
        lost = np.cumsum(np.bincount(group, rises[here, stage]))  # if all up to a value leave
        within = np.flatnonzero(lost <= credit + ROUNDING * np.abs(rises[here, stage]).sum())
        if not len(within):
            continue
        last = int(within[-1])
        thresholds[stage] = np.inf if last + 1 == len(values) else (values[last] + values[last + 1]) / 2.0
        credit -= max(0.0, float(lost[last]))
        here = here[scores[here, stage] > thresholds[stage]]
    return thresholds


def _cascade(setting: Setting, stages: _Stages, thresholds: np.ndarray) -> FittedTree:
    """The chain of stages at which anybody leaves, up to the one at which all do."""
    ends = np.flatnonzero(thresholds == np.inf)
    last = int(ends[0]) if len(ends) else len(stages.cuts) - 1
    kept = [*(int(stage) for stage in np.flatnonzero(np.isfinite(thresholds[:last]))), last]
    pool, constant = stages.pool, float(setting.constant[0])

    def score(stage: int, shift: float) -> Score:
        weights = (np.arange(pool.n_learners) < stages.cuts[stage]).astype(float)
        return Score(pool, weights[:, None], np.array([constant - shift]))

    return build_tree(
        TreeShape.chain(len(kept)),
        [score(stage, 0.0) for stage in kept],
        [None if stage == last else score(stage, float(thresholds[stage])) for stage in kept],
        constant=setting.constant,
        costs=setting.costs,
        link=setting.loss.link,
        schema=setting.schema,
        offset=setting.units.offset,
        scale=setting.units.scale,
    )
