"""A hierarchical mixture of experts, routed hard at test time (Jordan and Jacobs 1994)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np

from ..losses import LogisticLoss, Loss
from ..model import FittedTree, TreeShape
from ..paper.codes import as_array
from ..paper.features import Columns
from ..paper.hard_tree import HardTree
from ..paper.pruning import prune
from ..parallel import stop_if_asked
from ._base import COMMON, Baseline
from ._columns import check_weak_learners, columns_of, judge
from ._setting import Setting
from .cegb import check_cost_weight

__all__ = ["HierarchicalMixture"]

STEPS = 20  # of a solver within one step of EM: it need not end, the next one goes on
LAST_STEPS = 150  # of experts that are fitted for good
RIDGE = 1e-3  # of the largest curvature: keeps weights of like columns small
PULL = 1.0  # the same, towards the boosted ensemble: trees fit the rows that grew them too well to be weighed freely
LEAST_VARIANCE = 1e-3  # of an expert's errors, in variances of the target: it may fit few rows exactly
SURE = 0.9  # what a row gives its own expert at the start
LEAST_WORTH = 1e-3  # standard deviations of the target: a smaller contribution does not count
LEAST_ROWS = 1.0  # an expert that is answerable for less than a row learns nothing


class HierarchicalMixture(Baseline):
    __doc__ = f"""A tree of gates with an expert in every leaf; both are linear, and both pay for their features.

    An expert j answers ``m_j = b_j + phi(x) @ w_j``, and a gate sends a row up with the probability
    ``g = sigmoid(c + phi(x) @ v)``.  EM alternates:

    1. how much each expert is answerable for a row: the probability of its path times the likelihood of y under it;
    2. experts and gates, each by its own risk weighted by that, plus ``cost_weight * price * |weight|`` for columns
       that vary by 1.

    At test time a gate sends a row to one side only, and the row pays for the gates and for the one expert on its path.

    Parameters
    ----------
    cost_weight : float, default=0.01
        How much risk one unit of cost is worth.
    depth : int, default=2
        Gates on a path: ``2 ** depth`` experts at most; those that validation rows do not need are pruned.
    max_iter : int, default=10
        Steps of EM with prices; before, as many are made without, which all models of a frontier share.
    weak_learners : {{"boosted", "identity"}}, default="boosted"
        Boosted trees, or the inputs themselves.
    {COMMON}
    n_iter_ : int
        Steps of EM, with and without prices.

    Notes
    -----
    Columns that need the same item divide its price among them, and what the gates above have bought is free.  Values
    have normal errors with a variance for each expert.  EM starts with rows grouped by what one expert for all of them
    predicts.  When it ends, experts are fitted again without prices, on the columns that it left them and on the
    rows that hard gates send them; validation rows choose between these and those of EM by risk + cost_weight * exact
    cost, and prune.

    Boosted trees fit the rows that grew them too well to be weighed freely on these: weights of experts are pulled
    towards those of the ensemble (where there is one margin), and those over inputs, a little, towards zero.

    The original has a softmax gate between any number of branches and no prices; here gates have two branches.  Several
    classes are taken, too: an expert then has a margin for each, which share their columns.

    References
    ----------
    Jordan, Jacobs: Hierarchical mixtures of experts and the EM algorithm. Neural Computation 1994.

    Examples
    --------
    >>> import numpy as np
    >>> from cstc.baselines import HierarchicalMixture
    >>> X = np.random.default_rng(0).normal(size=(600, 2))
    >>> y = 2 * np.abs(X[:, 0])  # two lines: one for each side of zero
    >>> options = {{"weak_learners": "identity", "cost_weight": 1e-4, "random_state": 0}}
    >>> one, two = (HierarchicalMixture(depth=depth, **options).fit(X, y).score(X, y) for depth in (0, 1))
    >>> bool(two > 0.9 > 0.1 > one)
    True
    """

    _several_classes = True

    def __init__(
        self,
        *,
        cost_weight=0.01,
        depth=2,
        max_iter=10,
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
        self.depth = depth
        self.max_iter = max_iter
        self.weak_learners = weak_learners

    def _check_own_parameters(self):
        check_weak_learners(self.weak_learners)
        check_cost_weight(self.cost_weight)
        if not isinstance(self.depth, Integral) or self.depth < 0:
            raise ValueError(f"depth is {self.depth!r}; it must be a whole number, 0 or more")
        if not isinstance(self.max_iter, Integral) or self.max_iter < 1:
            raise ValueError(f"max_iter is {self.max_iter!r}; it must be a whole number, 1 or more")

    def _share(self, setting: Setting) -> tuple[Mixing, Linear]:
        mixing = Mixing(columns_of(setting, self.weak_learners), int(self.depth))
        return mixing, mixing.expect_and_maximise(mixing.start(), 0.0, int(self.max_iter))

    def _fit_model(self, setting: Setting, shared: tuple[Mixing, Linear]) -> FittedTree:
        mixing, start = shared
        weight = setting.units.standard_weight(float(self.cost_weight))
        found = mixing.expect_and_maximise(start, weight, int(self.max_iter)) if weight else start
        self.n_iter_ = int(self.max_iter) * (2 if weight else 1)
        mixed = mixing.hard(mixing.with_inner_experts(found, weight))
        judged = judge(mixing.columns, float(self.cost_weight))
        candidates = [prune(tree, judged) for tree in (mixed, mixing.fitted_again(mixed))]
        return mixing.columns.to_model(min(candidates, key=judged))


@dataclass(frozen=True, eq=False)
class Linear:
    """Gates and experts of all nodes, over columns that vary by 1.

    Attributes
    ----------
    gates : ndarray of shape (n_nodes, n_columns + 1)
        The last entry is the intercept, as below; zero at leaves.
    experts : ndarray of shape (n_nodes, n_columns + 1, n_outputs)
    variances : ndarray of shape (n_nodes,)
        Of the errors of each expert, for values.
    """

    gates: np.ndarray
    experts: np.ndarray
    variances: np.ndarray


class Mixing:
    """EM for one shape of gates and experts over some columns."""

    def __init__(self, columns: Columns, depth: int):
        self.columns, self.shape = columns, TreeShape.full(depth + 1)
        rows = columns.train
        self.loss: Loss = rows.loss
        self.y, self.weights = rows.y, rows.weights / rows.weights.mean()
        self.spread = np.where(columns.spread > 0, columns.spread, 1.0)
        self.design = np.column_stack([as_array(rows.phi) / self.spread, np.ones(len(rows.y))])
        self.leaves = np.flatnonzero(self.shape.is_leaf)
        self.inner = np.flatnonzero(~self.shape.is_leaf)
        self.n_outputs = len(columns.constant)
        # one margin and boosted trees: experts are pulled to the ensemble, in which every tree has the weight 1
        self.pulled = self.n_outputs == 1 and not (columns.pool.linear_feature >= 0).any()
        self.ensemble = np.append(columns.spread if self.pulled else 0.0 * columns.spread, 0.0)[:, None]

    def start(self) -> Linear:
        """Rows in as many groups of equal size as there are experts, by what one expert for all predicts."""
        n_nodes, n_entries = self.shape.n_nodes, self.design.shape[1]
        experts = np.zeros((n_nodes, n_entries, self.n_outputs))
        experts[:, -1] = self.columns.constant
        empty = Linear(np.zeros((n_nodes, n_entries)), experts, np.ones(n_nodes))
        free = np.zeros(n_entries)
        whole = self._expert(self.weights, free, experts[0], LAST_STEPS)
        margins = self.design @ whole
        by = margins[:, int(np.argmax(margins.var(axis=0)))]  # of several classes, that which varies most
        rank = np.argsort(np.argsort(by, kind="stable"), kind="stable")
        group = rank * len(self.leaves) // len(rank)
        others = (1.0 - SURE) / max(1, len(self.leaves) - 1)
        answerable = np.where(group[:, None] == np.arange(len(self.leaves)), SURE, others)
        if len(self.leaves) == 1:
            answerable = np.ones((len(rank), 1))
        return self._maximise(replace(empty, experts=np.tile(whole, (n_nodes, 1, 1))), answerable, 0.0)

    def expect_and_maximise(self, found: Linear, cost_weight: float, max_iter: int) -> Linear:
        for _ in range(max_iter):
            stop_if_asked()
            found = self._maximise(found, self.answerable(found), cost_weight)
        return found

    # -- the two steps of EM -----------------------------------------------------------------------------------

    def answerable(self, found: Linear) -> np.ndarray:
        """Shape (n, n_experts): path probability times likelihood, in parts of their sum over the experts."""
        scores = self.design @ found.gates.T
        logs = np.stack(
            [self._log_path(scores, leaf) + self._log_likelihood(found, leaf) for leaf in self.leaves.tolist()], 1
        )
        parts = np.exp(logs - logs.max(axis=1, keepdims=True))
        return parts / parts.sum(axis=1, keepdims=True)

    def _log_path(self, scores: np.ndarray, leaf: int) -> np.ndarray:
        total, node = np.zeros(len(scores)), leaf
        while (parent := int(self.shape.parents[node])) >= 0:
            sign = -1.0 if self.shape.upper[parent] == node else 1.0
            total -= np.logaddexp(0.0, sign * scores[:, parent])  # log sigmoid(-sign * score)
            node = parent
        return total

    def _log_likelihood(self, found: Linear, node: int) -> np.ndarray:
        risk = self.loss.value(self.design @ found.experts[node], self.y)
        if self.loss.has_classes:
            return -risk
        variance = found.variances[node]
        return -0.5 * (risk / variance + np.log(variance))

    def _maximise(self, found: Linear, answerable: np.ndarray, cost_weight: float) -> Linear:
        gates, experts, variances = found.gates.copy(), found.experts.copy(), found.variances.copy()
        at = {int(leaf): answerable[:, place] for place, leaf in enumerate(self.leaves)}
        for node in self.inner[::-1]:  # a node answers for what both of its children do
            at[int(node)] = at[int(self.shape.upper[node])] + at[int(self.shape.lower[node])]
        for node in self.inner:  # from the root on: what gates buy is free below
            up, here = at[int(self.shape.upper[node])], at[int(node)]
            if (here * self.weights).sum() < LEAST_ROWS:
                continue
            share = up / np.maximum(here, 1e-300)
            prices = cost_weight * self._prices(gates, int(node))
            start = gates[node][:, None]
            gates[node] = fit_sparse(self.design, share, here * self.weights, LogisticLoss(), prices, start, STEPS)[
                :, 0
            ]
        for leaf in self.leaves:
            weights = at[int(leaf)] * self.weights
            if weights.sum() < LEAST_ROWS:
                continue
            prices = cost_weight * self._prices(gates, int(leaf))
            experts[leaf] = self._expert(weights, prices, experts[leaf], STEPS)
            if not self.loss.has_classes:
                risk = self.loss.value(self.design @ experts[leaf], self.y)
                variances[leaf] = max(LEAST_VARIANCE, float(np.average(risk, weights=weights)))
        return Linear(gates, experts, variances)

    def _expert(
        self,
        weights: np.ndarray,
        prices: np.ndarray,
        start: np.ndarray,
        n_steps: int,
        rows: np.ndarray | slice = slice(None),
        entries: np.ndarray | slice = slice(None),
    ) -> np.ndarray:
        """An expert of some rows over some entries of the design."""
        ridge, goal = (PULL if self.pulled else RIDGE), np.tile(self.ensemble, (1, self.n_outputs))[entries]
        design = self.design[rows][:, entries]
        return fit_sparse(design, self.y[rows], weights, self.loss, prices, start, n_steps, ridge, goal)

    def _prices(self, gates: np.ndarray, node: int) -> np.ndarray:
        """What each column costs at a node: evaluation, and its part of the items that no gate above has bought."""
        items = self.columns.column_items
        above = np.flatnonzero(self.shape.node_paths[node])
        above = above[above != node]
        used = (gates[above, :-1] != 0).any(axis=0) if len(above) else np.zeros(len(items), dtype=bool)
        bought = items[used].any(axis=0)
        divided = self.columns.costs.prices / np.maximum(items.sum(axis=0), 1)
        prices = items @ np.where(bought, 0.0, divided) + np.where(used, 0.0, self.columns.costs.evaluation)
        return np.append(prices, 0.0)

    # -- hard routing ------------------------------------------------------------------------------------------

    def with_inner_experts(self, found: Linear, cost_weight: float) -> Linear:
        """The same with experts at the gates, for the rows that pass them: they answer if a branch is pruned."""
        experts, answerable = found.experts.copy(), self.answerable(found)
        paths = self.shape.node_paths[self.leaves]
        for node in self.inner:
            weights = answerable[:, paths[:, node]].sum(axis=1) * self.weights
            if weights.sum() >= LEAST_ROWS:
                prices = cost_weight * self._prices(found.gates, int(node))
                experts[node] = self._expert(weights, prices, experts[node], LAST_STEPS)
        return replace(found, experts=experts)

    def hard(self, found: Linear) -> HardTree:
        """Gates that send a row to one side, over the columns as they are."""
        gates, experts = found.gates[:, :-1].T, np.moveaxis(found.experts[:, :-1], 0, 1)
        counts = np.sqrt((experts**2).sum(axis=2, keepdims=True)) >= LEAST_WORTH
        return HardTree(
            self.shape,
            np.where(self.shape.is_leaf, 0.0, gates) / self.spread[:, None],
            -found.gates[:, -1],
            np.where(counts, experts, 0.0) / self.spread[:, None, None],
            found.experts[:, -1],
        )

    def fitted_again(self, tree: HardTree) -> HardTree:
        """Experts without prices, on the columns that they have and on the rows that hard gates send them."""
        phi = self.columns.train.phi
        passed = self.shape.paths[tree.terminals(phi)]
        for node in range(self.shape.n_nodes):
            at = np.flatnonzero(passed[:, node])
            used = np.flatnonzero((tree.predict_weights[:, node] != 0).any(axis=1))
            if len(at) <= len(used) + 1:
                continue
            start = np.vstack(
                [tree.predict_weights[used, node] * self.spread[used, None], tree.predict_intercepts[node]]
            )
            entries = np.append(used, self.design.shape[1] - 1)
            fitted = self._expert(self.weights[at], np.zeros(len(start)), start, LAST_STEPS, at, entries)
            weights = np.zeros_like(tree.predict_weights[:, node])
            weights[used] = fitted[:-1] / self.spread[used, None]
            tree = tree.with_predictor(node, weights, fitted[-1])
        return tree


def fit_sparse(
    design: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    loss: Loss,
    prices: np.ndarray,
    start: np.ndarray,
    n_steps: int,
    strength: float = RIDGE,
    goal: np.ndarray | float = 0.0,
) -> np.ndarray:
    """Weights (n_entries, n_outputs) that lower a penalised risk, by accelerated proximal steps from a start.

    The risk is ``mean of l(design @ w, y) + sum_j prices[j] * |w_j| + strength * curvature / 2 * |w - goal|^2``, with
    the mean weighted by `weights` and ``|w_j|`` the length of a row of w.  The last entry, the intercept, is free of
    both penalties.
    """
    total = float(weights.sum())
    shares = weights / total
    ridge = np.full(len(prices), strength * loss.curvature)
    ridge[-1] = 0.0
    # the largest curvature of the mean risk: that of the loss times the largest eigenvalue, by the power method
    direction = np.ones(design.shape[1])
    largest = 1.0
    for _ in range(8):
        image = design.T @ (shares * (design @ direction))
        largest = float(np.linalg.norm(image))
        if largest == 0:
            break
        direction = image / largest
    length = 1.0 / (1.1 * loss.curvature * max(largest, 1e-12) + ridge.max())
    current, ahead, momentum = start, start, 1.0
    for _ in range(n_steps):
        derivative = loss.value_and_derivative(design @ ahead, y)[1]
        gradient = design.T @ (shares[:, None] * derivative) + ridge[:, None] * (ahead - goal)
        moved = ahead - length * gradient
        norms = np.linalg.norm(moved, axis=1, keepdims=True)
        following = moved * np.maximum(0.0, 1.0 - length * prices[:, None] / np.maximum(norms, 1e-300))
        if ((ahead - following) * (following - current)).sum() > 0:  # it swings: begin anew
            momentum = 1.0
        faster = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = following + (momentum - 1.0) / faster * (following - current)
        current, momentum = following, faster
    return current
