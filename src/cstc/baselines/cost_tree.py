"""A decision tree whose splits gain much for their price (Nunez 1991), pruned by risk and cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real

import numpy as np

from ..costs import ResolvedCosts
from ..losses import Loss
from ..model import FittedTree, TreePool, TreeShape
from ..model.build import Score, build_tree
from ..parallel import stop_if_asked
from ..rows import Rows
from ._base import Baseline, documented
from ._setting import Setting
from ._splits import Bins, Entropy, Grown, Split, Squares, best_splits, least_rows, pool_of
from .cegb import check_cost_weight

__all__ = ["CostAwareTree"]

LEAST_RISK = 1e-9  # of the target's variance: where less is left, nothing is to be known


class CostAwareTree(Baseline):
    __doc__ = f"""One decision tree: at each node the split with the most information for its price.

    A split on a feature is worth, as in EG2,

        ``(2 ** information - 1) / (price + 1) ** exponent``,

    where ``information`` is what it tells of the target, in bits, and ``price`` that of the items which the rows of the
    node have not bought on their way, in units of the cheapest feature.  An exponent of 0 is blind to cost.  The tree
    is then pruned where its validation rows say that a split is not worth its cost, and of the trees of all exponents
    the one with the least risk + cost_weight * cost is taken.

    A row pays for the splits on its path.  Several classes are taken, too.

    Parameters
    ----------
    cost_weight : float, default=0.01
        How much risk one unit of cost is worth, for pruning and for the choice of the exponent.
    exponents : sequence of float, default=(0.0, 0.5, 1.0, 2.0)
    max_depth : int, default=8
        Splits on a path at most.
    {documented("n_weak_learners", "weak_learner_depth", "learning_rate", "early_stopping", "n_jobs")}
    exponent_ : float
        The one that was taken.

    Notes
    -----
    Of values, the information of a split is that of two normal distributions, ``log2(variance before / variance
    after) / 2``.  Probabilities of a leaf are those of its rows and of as many rows more as there are classes, in the
    shares of the node above.  Every split that a row passes counts as one learner that it evaluates.  Thresholds lie
    between the 255 bins of a column.

    References
    ----------
    Nunez: The use of background knowledge in decision tree induction. Machine Learning 1991.
    Turney: Cost-sensitive classification: empirical evaluation of a hybrid genetic decision tree induction algorithm.
    JAIR 1995.

    Examples
    --------
    >>> import numpy as np
    >>> from cstc.baselines import CostAwareTree
    >>> X = np.random.default_rng(0).normal(size=(600, 2))
    >>> y = np.where(X[:, 0] > 0, 10.0 + np.sign(X[:, 1]), 0.0)  # the second feature matters for half of the rows
    >>> model = CostAwareTree(costs=[1, 8], cost_weight=0.01, random_state=0).fit(X, y)
    >>> np.unique(model.predict_cost(X)).tolist()
    [1.0, 9.0]
    """

    _several_classes = True

    def __init__(
        self,
        *,
        cost_weight=0.01,
        exponents=(0.0, 0.5, 1.0, 2.0),
        max_depth=8,
        task="regression",
        costs=None,
        validation_fraction=0.2,
        random_state=None,
    ):
        self.cost_weight = cost_weight
        self.exponents = exponents
        self.max_depth = max_depth
        self.task = task
        self.costs = costs
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def _check_own_parameters(self):
        check_cost_weight(self.cost_weight)
        if not isinstance(self.max_depth, Integral) or self.max_depth < 1:
            raise ValueError(f"max_depth is {self.max_depth!r}; it must be a whole number, 1 or more")
        given = self.exponents
        numbers = np.ndim(given) == 1 and len(given) and all(isinstance(exponent, Real) for exponent in given)
        if not numbers or not all(0 <= float(exponent) < np.inf for exponent in given):
            raise ValueError(f"exponents is {given!r}; give a list of finite numbers, 0 or more")

    def _share(self, setting: Setting) -> dict[float, _Node]:
        """One tree for each exponent; they are only pruned after that."""
        bins = Bins.of(setting.train.X, setting.boosting.categorical)
        judges = Bins.of(setting.validation.X, like=bins)
        found = {}
        for exponent in dict.fromkeys(float(each) for each in self.exponents):
            tree = _Grower(setting, bins, exponent, int(self.max_depth)).grow()
            _judge(tree, setting.loss, setting.validation, judges)
            found[exponent] = tree
        return found

    def _fit_model(self, setting: Setting, shared: dict[float, _Node]) -> FittedTree:
        weight = setting.units.standard_weight(float(self.cost_weight))
        worth = {exponent: _pruned(tree, weight) for exponent, tree in shared.items()}
        self.exponent_ = min(worth, key=lambda exponent: worth[exponent][0])
        return _to_model(setting, shared[self.exponent_], worth[self.exponent_][1])


@dataclass(eq=False)
class _Node:
    """A node as it was grown.

    Attributes
    ----------
    margins : ndarray of shape (n_outputs,)
        What it would answer.
    split : Split or None
    share_left : float
        Part of its training rows that goes left.
    price : float
        What a row pays here: the evaluation of the split and what its feature requires beyond what the path has bought.
    children : list of _Node
        Left and right; none at a leaf.
    risk, n : float
        At the validation rows that come here: the summed risk of `margins`, and their summed weights, both as parts of
        the weight of all of them.
    """

    margins: np.ndarray
    split: Split | None = None
    share_left: float = 0.5
    price: float = 0.0
    children: list[_Node] = field(default_factory=list)
    risk: float = 0.0
    n: float = 0.0


class _Grower:
    """Grows a tree for one exponent."""

    def __init__(self, setting: Setting, bins: Bins, exponent: float, max_depth: int):
        rows, loss = setting.train, setting.loss
        self.costs: ResolvedCosts = setting.costs
        self.bins, self.exponent, self.max_depth = bins, exponent, max_depth
        self.n_classes = max(2, loss.n_outputs) if loss.has_classes else 0
        self.criterion: Squares | Entropy = Entropy(self.n_classes) if self.n_classes else Squares()
        self.statistics = self.criterion.statistics(rows.y, rows.weights)
        self.squares = None if self.n_classes else rows.weights * rows.y**2
        self.least = least_rows(len(rows))
        prices = self.costs.feature_prices
        self.unit = float(prices[prices > 0].min()) if (prices > 0).any() else 1.0

    def grow(self) -> _Node:
        at = np.arange(self.bins.n_rows)
        shares = np.full(self.n_classes, 1.0 / self.n_classes) if self.n_classes else np.zeros(0)
        return self._node(at, np.zeros(self.costs.n_items, dtype=bool), shares, self.max_depth)

    def _node(self, at: np.ndarray, bought: np.ndarray, shares: np.ndarray, levels: int) -> _Node:
        """The node of some rows, and all below it; `shares` are those of the classes at the node above."""
        stop_if_asked()
        sums = self.statistics[:, at].sum(axis=1)
        if self.n_classes:
            shares = (sums[1:] + self.n_classes * shares) / (sums[1:].sum() + self.n_classes)
            logs = np.log(shares)
            node = _Node(logs - logs.mean() if self.n_classes > 2 else np.array([logs[1] - logs[0]]))
        else:
            node = _Node(np.array([sums[2] / sums[1]]))
        split = self._split(at, bought, sums) if levels and len(at) >= 2 * self.least else None
        if split is None:
            return node
        goes = split.goes_left(self.bins, at)
        items = self.costs.feature_items[split.column]
        node.split, node.share_left = split, float(goes.mean())
        node.price = float(self.costs.charge((items & ~bought)[None], 1)[0])
        node.children = [self._node(part, bought | items, shares, levels - 1) for part in (at[goes], at[~goes])]
        return node

    def _split(self, at: np.ndarray, bought: np.ndarray, sums: np.ndarray) -> Split | None:
        """The split that is worth most, if any tells something."""
        columns = np.arange(len(self.costs.feature_items))
        splits = best_splits(self.bins, at, columns, self.statistics, self.criterion, self.least)
        price = self.costs.bills(self.costs.feature_items & ~bought) / self.unit
        worth = np.expm1(np.log(2.0) * self._information(splits.gains, at, sums)) / (price + 1.0) ** self.exponent
        best = int(worth.argmax())
        return splits.split(best) if splits.gains[best] > 0 else None

    def _information(self, gains: np.ndarray, at: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Bits that a row learns of its target, from the drop of the summed risk of all rows here."""
        if self.squares is None:
            return gains / sums[1:].sum()
        before = float(self.squares[at].sum() - sums[2] ** 2 / sums[1])
        floor = LEAST_RISK * float(sums[1])
        if before <= floor:
            return np.zeros_like(gains)
        return 0.5 * np.log2(before / np.maximum(before - gains, floor))


def _judge(tree: _Node, loss: Loss, rows: Rows, bins: Bins) -> None:
    """Send validation rows down, and note what every node would risk as a leaf."""
    everyone, total = np.arange(len(rows)), float(rows.weights.sum())
    waiting = [(tree, everyone)]
    while waiting:
        node, at = waiting.pop()
        values = loss.value(np.tile(node.margins, (len(at), 1)), rows.y[at])
        node.risk, node.n = float(values @ rows.weights[at]) / total, float(rows.weights[at].sum()) / total
        if node.split is not None:
            goes = node.split.goes_left(bins, at)
            waiting += zip(node.children, (at[goes], at[~goes]), strict=True)


def _pruned(node: _Node, cost_weight: float) -> tuple[float, set[int]]:
    """The least risk + cost_weight * cost from a node on, and the splits (by identity) of the tree that has it.

    From the bottom: a node stays a split if what its rows pay and lose below is less than what they lose here.  What a
    split costs does not depend on the splits below it, so this is the best of all pruned trees.
    """
    if node.split is None:
        return node.risk, set()
    below = [_pruned(child, cost_weight) for child in node.children]
    loss = cost_weight * node.price * node.n + sum(each[0] for each in below)
    return (node.risk, set()) if node.risk <= loss else (loss, {id(node)}.union(*(each[1] for each in below)))


def _to_model(setting: Setting, tree: _Node, kept: set[int]) -> FittedTree:
    """Splits are nodes that route by a stump, leaves are nodes that answer with a constant."""
    nodes: list[_Node] = []
    parents: list[int] = []
    is_right: list[bool] = []
    waiting = [(tree, -1, False)]
    while waiting:
        node, parent, right = waiting.pop()
        number = len(nodes)
        nodes.append(node)
        parents.append(parent)
        is_right.append(right)
        if id(node) in kept:
            waiting += [(node.children[1], number, True), (node.children[0], number, False)]
    pool, place = _stumps([node for node in nodes if id(node) in kept])
    n_outputs = len(setting.constant)

    def route(node: _Node) -> Score | None:
        if id(node) not in kept:
            return None
        weights = np.zeros((pool.n_learners, 1))
        weights[place[id(node)]] = 1.0
        return Score(pool, weights, np.array([-0.5]))

    return build_tree(
        TreeShape.from_parents(parents, is_right),
        [Score(pool, np.zeros((pool.n_learners, n_outputs)), node.margins) for node in nodes],
        [route(node) for node in nodes],
        constant=setting.constant,
        costs=setting.costs,
        link=setting.loss.link,
        schema=setting.schema,
        offset=setting.units.offset,
        scale=setting.units.scale,
    )


def _stumps(nodes: Sequence[_Node]) -> tuple[TreePool, dict[int, int]]:
    """A learner for each split, 1 where rows go right, and its number."""
    grown = [Grown.stump(node.split, node.share_left) for node in nodes if node.split is not None]
    return pool_of(grown), {id(node): number for number, node in enumerate(nodes)}
