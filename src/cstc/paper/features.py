"""The boosting trick (paper, "Non-linear feature space"): ``Phi``, one column for each weak learner.

Gradient boosted trees ``h_1 .. h_T`` are trained first, blind to cost, then every input is mapped to ``phi(x)``.  Plain
inputs, ``phi(x) = x``, are the synthetic experiment of the paper.  Columns are centred and targets standardised; the
tree that is learned on them becomes a model in the units of the user again.

What is learned on columns (the paper's tree, its exact form, and the single classifier, Cronus and the lasso of
`cstc.baselines`) shares all that is here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..boosting import work_of
from ..costs import ResolvedCosts
from ..engines import grow
from ..lightgbm_trees import trees_of
from ..losses import Loss
from ..matrix import blocks
from ..method import Problem
from ..metrics import ndcg
from ..model import FittedTree, Schema, TreePool, TreeShape
from ..model.build import Score, build_tree
from ..rows import Rows, Units, part
from .codes import LeafCodes, Phi, leaf_table, mean_squares, means, phi_and_codes, standardised
from .objective import Design, NodeParameters, Penalty, Prior, TreeObjective
from .products import DesignOnDevice, arrays_for_products

if TYPE_CHECKING:
    from .hard_tree import HardTree

__all__ = ["Columns", "Seen", "learn_columns"]

BITS = 1 << 18  # words of items that are looked up at a time
FLOOR = 1e-3  # of a standard deviation of the target: a smaller contribution does not count


@dataclass(frozen=True, eq=False)
class Seen:
    """Rows as a tree over columns sees them.

    Attributes
    ----------
    rows : Rows
        Targets in standard units.
    phi : ndarray or LeafCodes of shape (n, n_columns)
    codes : unsigned ndarray of shape (n, n_columns)
        The leaf that a row reaches in each column (`codes.leaf_table`).
    leaf_bits : uint64 ndarray of shape (n_columns, n_leaves, n_words)
        The items on the branch to each leaf, packed (`TreePool.position_bits`).
    loss : Loss
    costs : ResolvedCosts
    at : int
        Places of a ranking that count.
    """

    rows: Rows
    phi: Phi
    codes: np.ndarray
    leaf_bits: np.ndarray
    loss: Loss
    costs: ResolvedCosts
    at: int = 5

    @property
    def y(self) -> np.ndarray:
        return self.rows.y

    @property
    def weights(self) -> np.ndarray:
        return self.rows.weights

    def sampled(self, n: int, random_state: int) -> Seen:
        """At most `n` of the rows, drawn without replacement."""
        if len(self.rows) <= n:
            return self
        at = np.sort(np.random.default_rng(random_state).choice(len(self.rows), n, replace=False))
        return replace(self, rows=self.rows.take(at), phi=self.phi[at], codes=self.codes[at])

    def bought(self, at: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Words (len(at), n_words): the items on the branches that some rows take in some columns, packed."""
        leaf_bits, codes = self.leaf_bits[columns], self.codes[np.ix_(at, columns)]
        words = np.zeros((len(at), leaf_bits.shape[2]), dtype=np.uint64)
        for rows in blocks(codes, max(1, BITS // max(1, leaf_bits.shape[2] * len(columns)))):
            branches = leaf_bits[np.arange(len(columns)), codes[rows]]
            np.bitwise_or.reduce(branches, axis=1, out=words[rows])
        return words

    def error(self, margins: np.ndarray) -> float:
        """The task's own metric, lower is better: MSE, log loss, or 1 - NDCG@`at`."""
        if self.rows.qid is not None:
            quality = ndcg(self.y, margins[:, 0], self.rows.qid, self.at)
            if not np.isnan(quality):
                return 1.0 - quality
        return self.loss.risk(margins, self.y, self.weights)


@dataclass(frozen=True, eq=False)
class Columns:
    """Weak learners, and ``Phi`` at the rows that teach and at those that judge.

    Attributes
    ----------
    pool : TreePool
        One learner for each column.
    offset : ndarray of shape (n_columns,)
        Means that were taken out of the columns.
    scale : float
        What they were divided by then: plain inputs have units of their own, and those of the target are taken out.
    train, validation : Seen
    constant : ndarray of shape (n_outputs,)
        Margins of the constant prediction.
    units : Units
        Of the target.
    schema : Schema
    device : {"cpu", "cuda"}
        Where the products with ``Phi`` are computed that the loss needs.
    """

    pool: TreePool
    offset: np.ndarray
    scale: float
    train: Seen
    validation: Seen
    constant: np.ndarray
    units: Units
    schema: Schema
    device: str = "cpu"

    @classmethod
    def of(
        cls,
        pool: TreePool,
        train: Rows,
        validation: Rows,
        *,
        loss: Loss,
        costs: ResolvedCosts,
        constant: np.ndarray,
        units: Units,
        schema: Schema,
        scale: float = 1.0,
        device: str = "cpu",
        at: int = 5,
    ) -> Columns:
        """The columns of some learners; rows have targets in standard units."""
        leaf_bits = pool.position_bits(costs.feature_items)[leaf_table(pool)]
        seen = [Seen(rows, *phi_and_codes(pool, rows.X), leaf_bits, loss, costs, at) for rows in (train, validation)]
        offset = means(seen[0].phi, train.weights)
        seen = [replace(each, phi=standardised(each.phi, offset, scale)) for each in seen]
        return cls(pool, offset, scale, seen[0], seen[1], constant, units, schema, device)

    @property
    def loss(self) -> Loss:
        return self.train.loss

    @property
    def costs(self) -> ResolvedCosts:
        return self.train.costs

    @property
    def n_columns(self) -> int:
        return self.pool.n_learners

    @cached_property
    def spread(self) -> np.ndarray:
        """Standard deviation of each column; they are centred."""
        return np.sqrt(mean_squares(self.train.phi, self.train.weights))

    @property
    def floor(self) -> float:
        """The floor of the auxiliary variables of Lemma 1, in the units of a typical weight."""
        spread = self.spread[self.spread > 0]
        return FLOOR / float(np.median(spread)) if len(spread) else FLOOR

    @cached_property
    def column_items(self) -> np.ndarray:
        """Bool (n_columns, n_items): all items of a column, whatever branch is taken (``F`` transposed)."""
        return self.pool.learner_uses(self.costs.feature_items)

    def objective(
        self,
        shape: TreeShape,
        cost_weight: float,
        *,
        gate_slope: float,
        l1_weight: float = 0.0,
        prior: Prior | None = None,
        dtype: type = np.float64,
        kind: type[TreeObjective] = TreeObjective,
    ) -> TreeObjective:
        """The loss of a tree of this shape; the weights are for standard targets."""
        penalty = Penalty(
            learner_items=self.column_items.astype(float),
            prices=self.costs.prices,
            evaluation=np.full(self.n_columns, self.costs.evaluation),
            cost_weight=cost_weight,
            l1_weight=l1_weight,
            floor=self.floor,
        )
        return kind(self.design(dtype), self.train.y, self.train.weights, self.loss, shape, penalty, gate_slope, prior)

    def design(self, dtype: type) -> Design:
        """``Phi`` at the rows that teach; on a GPU the same one for all cost weights."""
        phi: Phi = self.train.phi.astype(dtype, copy=False)
        if self.device == "cpu" or not isinstance(phi, LeafCodes):
            return Design(phi)
        if dtype not in self._on_device:
            self._on_device[dtype] = DesignOnDevice(phi, arrays_for_products(self.device))
        return self._on_device[dtype]

    @cached_property
    def _on_device(self) -> dict[type, Design]:
        return {}

    def exact_support(self, parameters: NodeParameters, least: np.ndarray | float = FLOOR) -> NodeParameters:
        """Set to zero every learner of a node whose contribution does not count.

        `least` is in standard deviations of the target, for all columns or for each.

        Under the smoothed penalty, weights end up below the floor just where the data does not pull hard enough
        to pay the price, which is the condition for an exact zero of the square root itself.
        """
        floors = least / np.where(self.spread > 0, self.spread, 1.0)
        norms = np.sqrt((parameters.weights**2).sum(axis=2, keepdims=True))
        return replace(parameters, weights=np.where(norms < floors[:, None, None], 0.0, parameters.weights))

    def to_model(self, tree: HardTree) -> FittedTree:
        """Undo the centring and scaling of the columns and of the targets."""
        predict, route = tree.predict_weights / self.scale, tree.route_weights / self.scale
        intercepts = tree.predict_intercepts - np.tensordot(self.offset, predict, axes=1)
        thresholds = tree.thresholds + self.offset @ route
        nodes = range(tree.shape.n_nodes)
        return build_tree(
            tree.shape,
            [Score(self.pool, predict[:, node], intercepts[node]) for node in nodes],
            [
                None if tree.shape.is_leaf[node] else Score(self.pool, route[:, [node]], -thresholds[[node]])
                for node in nodes
            ],
            constant=self.constant,
            costs=self.costs,
            link=self.loss.link,
            schema=self.schema,
            offset=self.units.offset,
            scale=self.units.scale,
        )


def learn_columns(problem: Problem, validation_fraction: float) -> Columns:
    """The columns for all cost weights: rows that judge, units, and weak learners."""
    if "columns" in problem.shared:
        return problem.shared["columns"]
    if problem.boosting.device != "cpu":
        arrays_for_products(problem.boosting.device)  # what is missing is said before anything is grown
    # 1. rows that judge, where none are given; the units and the constant are those of all training rows
    loss = problem.loss
    parts = part(problem.rows, problem.validation, loss, validation_fraction, problem.random_state)
    train, validation = parts.train, parts.validation
    constant = loss.constant(parts.everything.y, parts.everything.weights)
    # 2. weak learners: plain inputs, or trees that are blind to cost, stopped early on the rows that judge
    problem.report("weak learners")
    if problem.weak_learners == "identity":
        pool, scale = TreePool.identity(train.X.shape[1]), parts.units.scale
    else:
        work = work_of(len(train), train.X.shape[1], problem.boosting.n_rounds)
        problem.progress.begin("weak learners", work, once=True)
        booster = grow(replace(problem.boosting, constant=constant), train, validation)
        pool, scale = trees_of(booster, len(constant))[0], 1.0
    # 3. their outputs at both kinds of rows
    problem.shared["columns"] = Columns.of(
        pool,
        train,
        validation,
        loss=loss,
        costs=problem.costs,
        constant=constant,
        units=parts.units,
        schema=problem.schema,
        scale=scale,
        device=problem.boosting.device,
        at=5 if problem.ranking is None else problem.ranking.at,
    )
    return problem.shared["columns"]
