"""Early exit with a proximity threshold: documents far behind the best of their query leave (Cambazoglu 2010)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from numbers import Integral, Real

import numpy as np

from ..matrix import rows_at
from ..model import FittedTree, TreePool
from ._base import COMMON, Baseline
from ._boosting import boost
from ._setting import Setting
from .stagewise import first_trees

__all__ = ["EarlyExit"]

ROWS = 20_000  # whose scores at all checkpoints are held at a time; a query stays whole


class EarlyExit(Baseline):
    __doc__ = f"""Stage-wise regression in which unpromising documents of a query are not scored to the end.

    Documents are scored tree by tree.  At each checkpoint, a document leaves when its partial score is more than
    the threshold below the k-th best of the documents of its query that are still there.  It keeps its partial score
    and ranks below those that went on.  It pays for the trees that it has seen, and for their features.

    Only for ranking, and for whole queries: `predict` and `predict_cost` need `qid`.

    Parameters
    ----------
    exits : tuple of (float, int, int) or None, default=None
        The threshold in the units of the grades, k, and the number of trees between two checkpoints.  None: no
        document leaves.
    {COMMON}

    References
    ----------
    Cambazoglu et al.: Early exit optimizations for additive machine learned ranking systems. WSDM 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from cstc.baselines import EarlyExit
    >>> X, qid = np.random.default_rng(0).normal(size=(600, 4)), np.repeat(np.arange(30), 20)
    >>> grades = np.clip(np.round(X[:, 0] + X[:, 1]), 0, 4)
    >>> model = EarlyExit(task="ranking", exits=(0.2, 5, 5), random_state=0).fit(X, grades, qid=qid)
    >>> bool(model.predict_cost(X, qid=qid).mean() < model.model_.predict_cost(X).mean())
    True
    """

    _varied = "exits"

    def __init__(
        self,
        *,
        exits=None,
        task="ranking",
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
        self.exits = exits

    def _check_own_parameters(self):
        if self.task != "ranking":
            raise ValueError(
                f"task is {self.task!r}; early exit compares the documents of a query: it needs task='ranking'"
            )
        if self.exits is None:
            return
        numbers = np.ndim(self.exits) == 1 and len(self.exits) == 3
        if not numbers or not isinstance(self.exits[0], Real) or not float(self.exits[0]) >= 0:
            raise ValueError(
                f"exits is {self.exits!r}; give (threshold, k, trees between checkpoints), threshold 0 or more"
            )
        if not all(isinstance(number, Integral) and int(number) >= 1 for number in self.exits[1:]):
            raise ValueError(
                f"exits is {self.exits!r}; k and the trees between checkpoints are whole numbers, 1 or more"
            )

    def _share(self, setting: Setting) -> TreePool:
        return boost(setting)

    def _fit_model(self, setting: Setting, shared: TreePool) -> FittedTree:
        self._cuts = self._checkpoints(shared.n_learners)
        return first_trees(setting, shared, shared.n_learners)

    def _checkpoints(self, n_trees: int) -> list[int]:
        """Numbers of trees after which documents may leave; the last one ends it."""
        every = n_trees if self.exits is None else self.exits[2]
        return [*range(every, n_trees, every), n_trees] if every else [n_trees]

    def _values(self, setting: Setting, shared: TreePool, n_points: int):
        """Thresholds from a hair to the spread of scores, with few and many checkpoints and two values of k."""
        whole = first_trees(setting, shared, shared.n_learners)
        spread = float(np.std(whole.decision_function(setting.validation.X))) or 1.0
        choices = list(product((5, 10), (2, 10)))
        thresholds = spread * np.geomspace(0.02, 4.0, max(2, (n_points - 1) // len(choices)))
        values = [(float(threshold), k, every) for threshold in thresholds for k, every in choices]
        at = np.unique(np.linspace(0, len(values) - 1, min(n_points - 1, len(values))).round()).astype(int)
        return [None, *(values[place] for place in at)]

    def _queries(self, qid, X):
        if qid is None:
            raise ValueError("qid is missing; early exit needs whole queries: predict(X, qid=...), also for the cost")
        return super()._queries(qid, X)

    def _leave(self, X: np.ndarray, qid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The stage after which each document leaves, and its score then; a few whole queries at a time."""
        stage, score = np.empty(X.shape[0], dtype=int), np.empty(X.shape[0])
        order = np.argsort(qid, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(qid[order])) + 1, len(order))
        first = 0
        while first < len(order):
            fit, next_one = np.searchsorted(ends, (first + ROWS, first), side="right")
            last = int(ends[max(fit - 1, next_one)])
            at = order[first:last]
            stage[at], score[at] = self._leave_together(rows_at(X, at), np.unique(qid[at], return_inverse=True)[1])
            first = last
        return stage, score

    def _leave_together(self, X: np.ndarray, qid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        last = len(self._cuts) - 1
        n = X.shape[0]
        stage, score, here = np.full(n, last), np.zeros(n), np.arange(n)
        partial = self._partial_scores(X)
        for number in range(last + 1):
            score[here] = partial[here, number]
            if number < last:
                threshold, k, _ = self.exits
                bar = _best(score[here], qid[here], int(qid.max()) + 1, k) - threshold
                leaves = score[here] < bar[qid[here]]
                stage[here[leaves]] = number
                here = here[~leaves]
        return stage, score

    def _partial_scores(self, X: np.ndarray) -> np.ndarray:
        """Shape (n, n_checkpoints): the score of every document at every checkpoint, had it stayed until then."""
        model = self.model_
        sums = np.zeros((X.shape[0], model.pool.n_learners + 1))
        np.cumsum(model.pool.transform(X) * model.predict_weights[:, 0, 0], axis=1, out=sums[:, 1:])
        return sums[:, self._cuts] + model.predict_intercepts[0, 0]

    def _until(self, number: int) -> FittedTree:
        """The trees that a document has seen which leaves at a checkpoint."""
        seen = np.arange(self.model_.pool.n_learners) < self._cuts[number]
        weights = np.where(seen[:, None, None], self.model_.predict_weights, 0.0)
        return replace(self.model_, predict_weights=weights).compressed()

    def with_limit(self, limit):
        """Early exit has no limit for a row: who leaves is decided by all documents of a query."""
        raise ValueError(
            "EarlyExit takes no limit: who leaves is decided by all documents of a query, so none can be stopped by "
            "itself; choose by mean_cost, p95_cost or quality"
        )

    def _margins(self, X, qid):
        stage, score = self._leave(X, qid)
        return _below_survivors(stage, score, qid)

    def _cost(self, X, counting, qid):
        stage, _ = self._leave(X, qid)
        cost = np.zeros(X.shape[0])
        for number in np.unique(stage).tolist():
            at = np.flatnonzero(stage == number)
            cost[at] = self._until(number).predict_cost(rows_at(X, at), counting)
        return cost


def _best(score: np.ndarray, query: np.ndarray, n_queries: int, k: int) -> np.ndarray:
    """The k-th best score of each query; -inf where a query has fewer documents."""
    order = np.lexsort((-score, query))
    sizes = np.bincount(query, minlength=n_queries)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    best = np.full(n_queries, -np.inf)
    enough = sizes >= k
    best[enough] = score[order][starts[enough] + k - 1]
    return best


def _below_survivors(stage: np.ndarray, score: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Scores moved down, query by query, so that who left earlier ranks below who went on."""
    moved = score.copy()
    n_queries = int(query.max()) + 1
    floor = np.full(n_queries, np.inf)  # the least score of those who went on
    for number in np.unique(stage)[::-1]:
        at = stage == number
        top = np.full(n_queries, -np.inf)
        np.maximum.at(top, query[at], moved[at])
        with np.errstate(invalid="ignore"):
            shift = np.where(top >= floor, top - floor + 1e-6 * (1.0 + np.abs(floor)), 0.0)
        moved[at] -= shift[query[at]]
        np.minimum.at(floor, query[at], moved[at])
    return moved
