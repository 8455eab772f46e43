"""The fitted model as flat arrays: the one thing that predicts, counts cost, is saved and is served.

A model is one pool of weak learners and, for each classifier node, two weight vectors over it: one that
predicts and one that routes (the same in the paper, until pruning and fine-tuning part them).  Nodes of
the paper, boosted experts and learned gates are all of this form.

Cost is counted here and nowhere else, in two ways that must never be mixed in one comparison:

``"learner"``
    The paper's: all items of every weak learner with a non-zero weight on the row's path.
``"branch"``
    What serving really pays: the items of the splits on the branches that the row takes.

Only numpy is imported here: a loaded model needs nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from numbers import Real
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from ..costs import ResolvedCosts, as_cost_model, counted, span
from ..matrix import blocks, columns_at, dense, is_sparse
from . import native
from .answering import COUNTINGS, Answering, check_counting
from .coins import check_ids
from .decisions import Decisions
from .fallbacks import Estimates
from .outages import columns_named, knows_name, model_without
from .pool import TreePool, add_in_order, unpack_items
from .qids import query_numbers
from .schema import Schema
from .shape import TreeShape
from .sketch import sketch
from .training import UNKNOWN, Training

if TYPE_CHECKING:
    from ..serving.explain import Explanation, ItemTable

__all__ = ["COUNTINGS", "FittedTree", "Held", "check_budget", "check_counting", "check_limit", "in_short", "least_of"]

ROW_BLOCK = 4096
MOST_KEPT = 64  # models without some columns
CELLS = 1 << 23  # rows x learners in one block, at most: what a block keeps in memory


@dataclass(frozen=True)
class Run:
    """What happened to a block of rows: where each ended, its margins, and the learners it evaluated."""

    rows: slice
    terminals: np.ndarray  # (n,)
    margins: np.ndarray  # (n, n_outputs)
    leaves: np.ndarray  # (n, n_learners), -1 where a learner was not evaluated


@dataclass(frozen=True)
class Walked:
    """Where rows ended, with which margins, and what their branches buy (no column if nobody asked)."""

    margins: np.ndarray  # (n, n_outputs)
    terminals: np.ndarray  # (n,)
    items: np.ndarray  # bool (n, n_items)


@dataclass(frozen=True)
class Held:
    """What rows that are held to a budget answer, pay and buy."""

    margins: np.ndarray  # (n, n_outputs)
    costs: np.ndarray  # (n,)
    items: np.ndarray  # bool (n, n_items)


@dataclass(frozen=True, eq=False)
class FittedTree(Answering):
    """A fitted tree of classifiers.

    What takes rows takes a matrix of numbers, dense or sparse, or a table with the columns of the schema.

    Attributes
    ----------
    pool : TreePool
        The weak learners.
    shape : TreeShape
        Who is whose child.
    predict_weights : ndarray of shape (n_learners, n_nodes, n_outputs)
    predict_intercepts : ndarray of shape (n_nodes, n_outputs)
    route_weights : ndarray of shape (n_learners, n_nodes)
        A row goes to the upper child if ``h(x) @ route_weights > thresholds``; zero at leaf classifiers.
    thresholds : ndarray of shape (n_nodes,)
    constant : ndarray of shape (n_outputs,)
        Margins of the constant prediction: the answer before anything was bought.
    costs : ResolvedCosts
    link : {"identity", "logistic", "softmax"}
    schema : Schema
    fallback_weights : ndarray of shape (n_learners, n_fallbacks, n_outputs)
        Experts that no row comes to as long as all that its path needs is to be had (`fallbacks`).
    fallback_intercepts : ndarray of shape (n_fallbacks, n_outputs)
    estimates : Estimates or None
        What is known of the experts; None where nothing is.
    training : Training
        What is known of its training; nothing, for a model that was built otherwise.
    limit : float or None
        A hard budget that belongs to the model: no row pays more, wherever it is answered (`with_limit`).
    decisions : Decisions or None
        What errors cost, where classes are decided on by that; else the most likely class is the answer.
    """

    pool: TreePool
    shape: TreeShape
    predict_weights: np.ndarray
    predict_intercepts: np.ndarray
    route_weights: np.ndarray
    thresholds: np.ndarray
    constant: np.ndarray
    costs: ResolvedCosts
    link: str
    schema: Schema
    training: Training = UNKNOWN
    fallback_weights: Any = None
    fallback_intercepts: Any = None
    estimates: Estimates | None = None
    limit: float | None = None
    decisions: Decisions | None = None

    def __post_init__(self) -> None:
        if self.fallback_weights is None:
            n_learners, _, n_outputs = self.predict_weights.shape
            object.__setattr__(self, "fallback_weights", np.zeros((n_learners, 0, n_outputs)))
            object.__setattr__(self, "fallback_intercepts", np.zeros((0, n_outputs)))

    @property
    def n_outputs(self) -> int:
        return self.predict_weights.shape[2]

    @property
    def n_nodes(self) -> int:
        return self.shape.n_nodes

    @property
    def n_terminals(self) -> int:
        return self.shape.n_terminals

    def __repr__(self) -> str:
        n_features = len(self.schema.feature_names)
        sizes = in_short(self.n_nodes, self.pool.n_learners, n_features, self.costs, self.terminal_costs())
        limit = "" if self.limit is None else f", limit {self.limit:g}"
        return f"<FittedTree: {sizes}{limit}>"

    def _repr_html_(self) -> str:
        return sketch(self)

    @cached_property
    def predict_learners(self) -> np.ndarray:
        """Bool (n_nodes, n_learners): the learners that a node's prediction needs."""
        return (self.predict_weights != 0).any(axis=2).T

    @cached_property
    def route_learners(self) -> np.ndarray:
        """Bool (n_nodes, n_learners): the learners that a node's gate needs."""
        return self.route_weights.T != 0

    @cached_property
    def terminal_learners(self) -> np.ndarray:
        """Bool (n_terminals, n_learners): all learners that a row evaluates on its way to each terminal."""
        routed = (self.shape.paths.astype(int) @ self.route_learners.astype(int)) > 0
        return routed | self.predict_learners[self.shape.terminal_parents]

    @cached_property
    def _learner_items(self) -> np.ndarray:
        return self.pool.learner_uses(self.costs.feature_items)

    @cached_property
    def _position_bits(self) -> np.ndarray:
        return self.pool.position_bits(self.costs.feature_items)

    def terminal_items(self) -> np.ndarray:
        """Bool (n_terminals, n_items): the items of all learners on each path (the paper's counting)."""
        return (self.terminal_learners.astype(int) @ self._learner_items.astype(int)) > 0

    def terminal_costs(self) -> np.ndarray:
        """``c^l``: the exact cost of each path in the paper's counting."""
        return self.costs.charge(self.terminal_items(), self.terminal_learners.sum(axis=1))

    def runs(self, X: Any) -> Iterator[Run]:
        """Send the rows down the tree in blocks, evaluating only the learners that each path needs."""
        tree, X = self._narrowed(X)
        for rows in blocks(X, max(1, min(ROW_BLOCK, CELLS // max(1, self.pool.n_learners)))):
            yield tree._run(dense(X, rows), rows)

    def _run(self, X: np.ndarray, rows: slice) -> Run:
        n = len(X)
        leaves = np.full((n, self.pool.n_learners), -1, dtype=np.int32)
        outputs = np.zeros((n, self.pool.n_learners))
        terminals = np.empty(n, dtype=int)
        margins = np.empty((n, self.n_outputs))

        def evaluate(learners: np.ndarray, at: np.ndarray) -> None:
            # all rows at one node came the same way, so the first row tells what is already known
            new = learners[leaves[at[0], learners] < 0]
            if len(new):
                found = self.pool.leaves(X[at], new)
                leaves[np.ix_(at, new)] = found
                outputs[np.ix_(at, new)] = self.pool.outputs(X[at], found)

        def leave(node: int, terminal: int, at: np.ndarray) -> None:
            learners = np.flatnonzero(self.predict_learners[node])
            evaluate(learners, at)
            terminals[at] = terminal
            weights = self.predict_weights[learners, node]
            margins[at] = add_in_order(outputs[np.ix_(at, learners)], weights) + self.predict_intercepts[node]

        waiting = [(0, np.arange(n))]
        while waiting:
            node, at = waiting.pop()
            if not len(at):
                continue
            if self.shape.is_leaf[node]:
                leave(node, -1 - self.shape.upper[node], at)
                continue
            learners = np.flatnonzero(self.route_learners[node])
            evaluate(learners, at)
            score = add_in_order(outputs[np.ix_(at, learners)], self.route_weights[learners, node, None])[:, 0]
            above = score > self.thresholds[node]
            for child, going in ((self.shape.upper[node], at[above]), (self.shape.lower[node], at[~above])):
                if child >= 0:
                    waiting.append((child, going))
                elif len(going):
                    leave(node, -1 - child, going)
        return Run(rows, terminals, margins, leaves)

    @cached_property
    def walker(self) -> native.Tree:
        """The tree as compiled code reads it."""
        return native.Tree(
            self.pool,
            len(self.costs.feature_items),
            routes=self.route_weights,
            predicts=self.predict_weights,
            shape=self.shape,
            thresholds=self.thresholds,
            intercepts=self.predict_intercepts,
        )

    @cached_property
    def _native_bits(self) -> np.ndarray:
        return self._position_bits[self.pool.packed(len(self.costs.feature_items)).order]

    def __getstate__(self) -> dict[str, Any]:
        """What was worked out and kept does not travel."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def _narrow(self) -> tuple[FittedTree, np.ndarray]:
        """The same tree for a matrix of the columns that it looks at and of no others, and these columns."""
        columns, pool = self.pool.narrowed()
        costs = replace(self.costs, feature_items=self.costs.feature_items[columns])
        return replace(self, pool=pool, costs=costs), columns

    def _narrowed(self, X: Any) -> tuple[FittedTree, Any]:
        """What computes, and with which matrix: columns of a sparse one that nobody looks at are never made dense."""
        if not is_sparse(X):
            return self, X
        tree, columns = self._narrow
        return tree, columns_at(X, columns)

    def walk(self, X: Any, *, items: bool = False) -> Walked:
        """Where the rows of a matrix end, with which margins, and, if asked for, what their branches buy."""
        n_items = self.costs.n_items if items else 0
        if native.available():
            tree, X = self._narrowed(X)
            margins, terminals, words = tree.walker.walk(X, tree._native_bits if items else None)
            bought = np.empty((X.shape[0], 0), dtype=bool) if words is None else unpack_items(words, n_items)
            return Walked(margins, terminals, bought)
        n = X.shape[0]
        margins, terminals = np.empty((n, self.n_outputs)), np.empty(n, dtype=np.int32)
        bought = np.zeros((n, n_items), dtype=bool)
        for run in self.runs(X):
            margins[run.rows], terminals[run.rows] = run.margins, run.terminals
            if items:
                bought[run.rows] = self._items_of(run)
        return Walked(margins, terminals, bought)

    @cached_property
    def plain_features(self) -> np.ndarray:
        """Bool (n_features,): those that a weak learner hands on as they are, so that it needs a number there."""
        plain = np.zeros(len(self.schema.feature_names), dtype=bool)
        plain[self.pool.linear_feature[self.pool.linear_feature >= 0]] = True
        return plain

    def _matrix(self, X: Any, ignored: np.ndarray | None = None, ids: Any = None, qid: Any = None) -> Any:
        found = self.schema.matrix(X, self.plain_features, ignored)
        check_beside(ids, qid, found.shape[0])
        return found

    def decision_function(self, X: Any, *, ids: Any = None, qid: Any = None) -> np.ndarray:
        """Margins of shape (n, n_outputs) at the terminal that each row reaches, or where its limit leaves it."""
        if self.limit is None:
            return self.walk(self._matrix(X, ids=ids, qid=qid)).margins
        return self.decision_and_cost(X, ids=ids, qid=qid)[0]

    def explain(self, row: Any, *, budget: float | None = None, unavailable: Iterable[str] = ()) -> Explanation:
        """Step by step, how the answer for one row comes about: what is bought, why, and what it changes.

        Parameters
        ----------
        row : table or matrix of one row, array of values, or mapping of names to values
            Of a mapping, only what the path of the row asks for is needed.
        budget, unavailable : optional
            As in `predict`.

        Returns
        -------
        Explanation
            An object; as text with `print`, with `to_json` and with `to_html`.

        Examples
        --------
        >>> from cstc import CSTCRegressor
        >>> from cstc.datasets import QUADRANT_COSTS, make_quadrants
        >>> X, y = make_quadrants(500, random_state=0)
        >>> model = CSTCRegressor(costs=QUADRANT_COSTS, cost_weight=0.03, weak_learners="identity", random_state=0)
        >>> explanation = model.fit(X, y).model_.explain(X[0])
        >>> explanation.cost, [list(step.features) for step in explanation.steps][0]
        (12.0, ['x0'])
        """
        from .. import _explain_row  # by the package's own door, as in `save`

        return _explain_row(self, row, budget, unavailable)

    def item_importance(self, X: Any, y: Any = None, *, ids: Any = None) -> ItemTable:
        """For each item, the share of rows that buy it, the money that is spent on it, and the loss that it saves.

        Parameters
        ----------
        X : matrix or table
        y : array-like of shape (n,), optional
            With labels, the loss that is observed when the item is not to be had, less that with it; without them,
            what the steps that bought the item were expected to save in training (None where that is not known).

        Returns
        -------
        ItemTable
            One row for each item that the model may buy, the one that most is spent on first; ``to_pandas()``.
        """
        from .. import _item_importance

        return _item_importance(self, X, y, ids)

    def apply(self, X: Any, *, ids: Any = None, qid: Any = None) -> np.ndarray:
        """The terminal that the path of each row leads to; a limit may stop the row on its way."""
        return self.walk(self._matrix(X, ids=ids, qid=qid)).terminals.astype(int)

    def bought_items(self, X: Any, counting: str = "branch", *, ids: Any = None, qid: Any = None) -> np.ndarray:
        """Bool (n, n_items): what is bought for each row."""
        check_counting(counting)
        return self.items_bought(self._matrix(X, ids=ids, qid=qid), counting)

    def items_bought(self, X: Any, counting: str = "branch") -> np.ndarray:
        """`bought_items` of a matrix that was looked at already."""
        if self.limit is not None:
            return self._within(X, counting, self.limit).items
        walked = self.walk(X, items=counting == "branch")
        return self.terminal_items()[walked.terminals] if counting == "learner" else walked.items

    def decide(
        self,
        X: Any,
        counting: str = "branch",
        budget: Any = None,
        gone: np.ndarray | None = None,
        ids: Any = None,
        qid: Any = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """`decision_and_cost` of a matrix that was looked at already; all rows take this model, whatever their ids."""
        check_beside(ids, qid, X.shape[0])
        model = self if gone is None else self.without(gone)
        most = least_of(budget, self.limit)
        if most is not None:
            held = model._within(X, counting, most)
            return held.margins, held.costs
        walked = model.walk(X, items=counting == "branch")
        return walked.margins, model.charge(walked, counting)

    def _within(self, X: Any, counting: str, most: float) -> Held:
        from .. import _within_budget  # by the package's own door, as in `save`

        if counting != "branch":
            whose = "a budget is" if self.limit is None else f"the model's limit of {self.limit:g} is"
            raise ValueError(f"counting is {counting!r}; {whose} counted by branches: counting='branch'")
        return _within_budget(self, X, most)

    def ends_and_costs(self, X: Any, qid: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """`apply` and `predict_cost` in one walk."""
        walked = self.walk(self._matrix(X, qid=qid), items=True)
        return walked.terminals.astype(int), self.charge(walked)

    def charge(self, walked: Walked, counting: str = "branch") -> np.ndarray:
        """What rows pay, by where they ended and what they bought."""
        if counting == "learner":
            return self._terminal_costs[walked.terminals]
        return self.costs.charge(walked.items, self._terminal_counts[walked.terminals])

    @cached_property
    def _terminal_counts(self) -> np.ndarray:
        """How many learners a row evaluates on its way to each terminal."""
        return self.terminal_learners.sum(axis=1)

    @cached_property
    def _terminal_costs(self) -> np.ndarray:
        return self.terminal_costs()

    def _items_of(self, run: Run) -> np.ndarray:
        bits = np.zeros((len(run.terminals), self._position_bits.shape[1]), dtype=np.uint64)
        for terminal in np.unique(run.terminals):
            at, learners = run.terminals == terminal, self.terminal_learners[terminal]
            bits[at] = np.bitwise_or.reduce(self._position_bits[run.leaves[np.ix_(at, learners)]], axis=1)
        return unpack_items(bits, self.costs.n_items)

    def with_costs(self, costs: Any) -> FittedTree:
        """The same model under other prices: whatever the parameter `costs` of an estimator takes."""
        if not isinstance(costs, ResolvedCosts):
            names = self.schema.feature_names
            costs = as_cost_model(costs, len(names)).resolve(names)
        return replace(self, costs=costs, training=replace(self.training, mean_cost=None))

    def with_limit(self, limit: float | None) -> FittedTree:
        """The same model with a hard budget of its own: no row pays more, in tables, sessions and from a file.

        `limit` is counted by branches, as a `budget` is; None takes it off.
        """
        return replace(self, limit=check_limit(limit), training=replace(self.training, mean_cost=None))

    # -- without some columns ------------------------------------------------------------------------------------

    @cached_property
    def expert_weights(self) -> np.ndarray:
        """Of all experts, (n_learners, n_experts, n_outputs): those of the nodes, then the fallbacks."""
        return np.concatenate([self.predict_weights, self.fallback_weights], axis=1)

    @cached_property
    def expert_intercepts(self) -> np.ndarray:
        return np.concatenate([self.predict_intercepts, self.fallback_intercepts])

    @cached_property
    def learner_features(self) -> np.ndarray:
        """Bool (n_learners, n_features): all that a learner may look at."""
        return self.pool.learner_uses(np.eye(len(self.schema.feature_names), dtype=bool))

    @cached_property
    def expert_features(self) -> np.ndarray:
        """Bool (n_experts, n_features): all that an expert may look at."""
        used = (self.expert_weights != 0).any(axis=2).T
        return (used.astype(int) @ self.learner_features.astype(int)) > 0

    @cached_property
    def route_features(self) -> np.ndarray:
        """Bool (n_nodes, n_features): all that the gates on the way to a node, and its own, may look at."""
        routed = (self.shape.node_paths.astype(int) @ self.route_learners.astype(int)) > 0
        return (routed.astype(int) @ self.learner_features.astype(int)) > 0

    def knows_name(self, name: str) -> bool:
        """Whether a source, an item or a feature has this name."""
        return knows_name(self, name)

    def columns_named(self, unavailable: Any) -> np.ndarray:
        """The columns that are lost with some sources, items or features, each given by its name."""
        return columns_named(self, unavailable)

    def without(self, columns: Any) -> FittedTree:
        """The model that answers when some columns (numbers) are not to be had; the same one whenever it is asked.

        None of its learners looks at them: gates and experts are averaged over both branches (`averaging`).  A node
        whose expert needs them answers with the expert that is expected to lose least, and may buy what that one needs.
        """
        gone = tuple(sorted({int(column) for column in columns}))
        if not gone:
            return self
        kept, lock = self._without
        with lock:
            found = kept.get(gone)
        if found is None:
            made = model_without(self, np.array(gone))
            with lock:
                found = kept.setdefault(gone, made)
                if len(kept) > MOST_KEPT:
                    del kept[next(iter(kept))]
        return found

    @cached_property
    def _without(self) -> tuple[dict[tuple[int, ...], FittedTree], Lock]:
        return {}, Lock()

    def with_training(self, training: Training) -> FittedTree:
        return replace(self, training=training)

    def with_training_date(self, trained: str) -> FittedTree:
        return replace(self, training=replace(self.training, trained=trained))

    def compressed(self) -> FittedTree:
        """The same model without the learners that no node uses."""
        used = np.flatnonzero((self.expert_weights != 0).any(axis=(1, 2)) | (self.route_weights != 0).any(axis=1))
        return replace(
            self,
            pool=self.pool.subset(used),
            predict_weights=self.predict_weights[used],
            route_weights=self.route_weights[used],
            fallback_weights=self.fallback_weights[used],
        )


def check_beside(ids: Any, qid: Any, n: int) -> None:
    """What stands beside the rows: one tree has no use for it, but what would be wrong elsewhere is wrong here too."""
    if ids is not None:
        check_ids(ids, n)
    if qid is not None:
        query_numbers(qid, n)


def in_short(n_nodes: int, n_learners: int, n_features: int, costs: ResolvedCosts, paths: np.ndarray) -> str:
    """How large a model is, and what its paths cost."""
    sizes = [(n_nodes, "node"), (n_learners, "learner"), (n_features, "feature"), (costs.n_items, "item")]
    return f"{', '.join(counted(*size) for size in sizes)}, paths cost {span(paths.min(), paths.max())}"


def least_of(budget: Any, limit: float | None) -> float | None:
    """The budget of a call, or the limit of the model, whatever is less; None where there is neither."""
    budget = None if budget is None else check_budget(budget)
    return budget if limit is None else limit if budget is None else min(budget, limit)


def check_limit(limit: Any) -> float | None:
    """A limit as a number."""
    if limit is None:
        return None
    if isinstance(limit, bool | np.bool_) or not isinstance(limit, Real) or not 0 <= float(limit) < math.inf:
        raise ValueError(f"limit is {limit!r}; it must be a finite number, 0 or more, or None for no limit")
    return float(limit)


def check_budget(budget: Any) -> float:
    try:
        value = float(budget)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"budget is {budget!r}; it must be a number, 0 or more, or None") from None
    if not value >= 0:
        raise ValueError(f"budget is {value}; it must be 0 or more, or None")
    return value
