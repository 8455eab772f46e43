"""A tree that looks at whole queries: a gate also sees the place of a document among the others of its query.

A document that lies far behind the best of its query needs no further feature, however unsure its score is; one that
lies at the edge of the first places does.  No feature of the document says that, so it is made of scores.  At node k,
with ``s`` the current scores of the documents of a query (those of expert k for who is there, the last ones of who
stopped before), a gate has two columns more than the features,

    gap   = s - the `at`-th best of s        of fewer documents, the least one
    place = how many of s are above its own

They cost nothing themselves.  But whoever comes to node k needs the score of expert k, also if it goes on, and pays for
what that one looks at: a path here is longer than that of the same tree row by row.

Where documents need different features, splits come first, which look at features alone and score nobody, and each
group has a chain of its own.  All documents of a query go in step, from level to level of their chains: who is at the
first node of one chain is compared with who is at the first node of another.

Equal scores have equal places, and a query knows nothing of others: no order of rows or queries matters.

Only numpy is imported here: a loaded model needs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from ..costs import ResolvedCosts, as_cost_model
from ..matrix import columns_at, dense, rows_at
from .answering import Answering, check_counting
from .coins import check_ids
from .decisions import Decisions
from .fallbacks import Estimates
from .fitted import FittedTree, Walked, in_short
from .outages import columns_named, knows_name
from .pool import TreePool
from .qids import query_numbers
from .schema import Schema
from .shape import TreeShape
from .sketch import sketch
from .training import Training

if TYPE_CHECKING:
    from ..serving.explain import Explanation, ItemTable

__all__ = [
    "N_MADE",
    "QueryStep",
    "QueryTree",
    "gated_nodes",
    "made_columns",
    "made_names",
    "splits_of",
    "with_made_costs",
    "with_made_schema",
]

N_MADE = 2  # columns for each gate: the gap and the place

WHOLE = "this model looks at whole queries"


def made_columns(scores: np.ndarray, query: np.ndarray, at: int) -> np.ndarray:
    """Gap and place of each document, (n, 2), of current scores (n,) and the numbers of the queries.

    Examples
    --------
    >>> made_columns(np.array([0.5, 2.0, 1.0, 3.0]), np.array([0, 0, 0, 1]), at=2)
    array([[-0.5,  2. ],
           [ 1. ,  0. ],
           [ 0. ,  1. ],
           [ 0. ,  0. ]])
    """
    if not len(scores):
        return np.zeros((0, N_MADE))
    order = np.lexsort((-scores, query))
    sorted_scores, sorted_query = scores[order], query[order]
    is_first = np.concatenate([[True], sorted_query[1:] != sorted_query[:-1]])
    starts = np.flatnonzero(is_first)
    sizes = np.diff(np.append(starts, len(scores)))
    bars = np.repeat(sorted_scores[starts + np.minimum(at, sizes) - 1], sizes)
    # who has the same score as the one before has its place, too
    is_new = is_first | np.concatenate([[True], sorted_scores[1:] != sorted_scores[:-1]])
    first_alike = np.maximum.accumulate(np.where(is_new, np.arange(len(scores)), 0))
    made = np.empty((len(scores), N_MADE))
    made[order, 0] = sorted_scores - bars
    made[order, 1] = first_alike - np.repeat(starts, sizes)
    return made


def made_names(gated: Iterable[int], taken: Iterable[str]) -> list[str]:
    """Names of the made columns of some nodes, none of which a feature has."""
    taken, names = set(taken), []
    for node in gated:
        for what in ("gap", "place"):
            name = f"{what} at node {node}"
            while name in taken:
                name += "'"
            names.append(name)
    return names


def splits_of(shape: TreeShape) -> np.ndarray:
    """Bool (n_nodes,): nodes that only tell documents apart; a node of a chain has a side where documents stop."""
    return ~shape.is_predictive


def gated_nodes(shape: TreeShape) -> np.ndarray:
    """The nodes of chains that have a gate."""
    return np.flatnonzero(shape.is_predictive & ~shape.is_leaf)


def with_made_schema(schema: Schema, gated: Iterable[int]) -> Schema:
    """What columns mean, with the made ones of some nodes at their end."""
    names = made_names(gated, schema.feature_names)
    return replace(
        schema,
        feature_names=[*schema.feature_names, *names],
        may_miss=np.append(schema.may_miss, np.zeros(len(names), dtype=bool)),
        means=np.append(schema.means, np.zeros(len(names))),
    )


def with_made_costs(costs: ResolvedCosts, n_gates: int) -> ResolvedCosts:
    """Prices, with made columns that require nothing."""
    free = np.zeros((N_MADE * n_gates, costs.n_items), dtype=bool)
    return replace(costs, feature_items=np.concatenate([costs.feature_items, free]))


class QueryStep(NamedTuple):
    """A node of a chain: what scores the documents that come there, and what decides who goes on.

    Attributes
    ----------
    expert : FittedTree
        Of one node, on the features.
    columns : int ndarray
        The features that the gate looks at.
    gate : FittedTree or None
        On these and on the made columns, in this order; who goes on ends at terminal 1.  None at the last node.
    """

    expert: FittedTree
    columns: np.ndarray
    gate: FittedTree | None


@dataclass(frozen=True, eq=False)
class QueryTree(Answering):
    """A chain, or one for each group of documents, whose gates see a document's place among the scores of its query.

    It predicts, counts cost and is saved as a `FittedTree` is, but whole queries at a time: whatever takes rows needs
    `qid`, the query of each of them.  What is about one row alone is refused.

    Attributes
    ----------
    tree : FittedTree
        Over the features and, at the end, two made columns for each node of a chain with a gate, in the order of the
        nodes, which require no item.  Experts and splits look at features, a gate also at the made columns of its node.
    at : int
        Gaps are measured from the `at`-th best score of a query.

    Examples
    --------
    >>> import numpy as np
    >>> from cstc import CSTCRanker
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(2000, 4)), np.repeat(np.arange(100), 20)
    >>> grades = np.clip(np.round(X[:, 0] + X[:, 1]), 0, 4)
    >>> options = {"costs": [1, 5, 5, 5], "cost_weight": 0.03, "random_state": 0}
    >>> model = CSTCRanker(whole_queries=True, **options).fit(X, grades, qid=qid).model_
    >>> scores, cost = model.predict(X, qid=qid, return_cost=True)
    >>> type(model).__name__, scores.shape, bool(cost.mean() < 6)
    ('QueryTree', (2000,), True)
    """

    tree: FittedTree
    at: int = 5

    def __post_init__(self) -> None:
        if not isinstance(self.tree, FittedTree):
            raise TypeError(f"tree is a {type(self.tree).__name__}; a model of whole queries is made of a FittedTree")
        at: Any = self.at
        if isinstance(at, bool | np.bool_) or not isinstance(at, Integral) or int(at) < 1:
            raise ValueError(f"at is {at!r}; it must be a whole number, 1 or more")
        object.__setattr__(self, "at", int(at))
        wrong = _wrong_with(self.tree)
        if wrong:
            raise ValueError(f"a model of whole queries {wrong}; this one is otherwise")

    def __getstate__(self) -> dict[str, Any]:
        """What was worked out and kept does not travel."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    # -- what it has -----------------------------------------------------------------------------------------------

    @property
    def n_nodes(self) -> int:
        return self.tree.n_nodes

    @property
    def n_terminals(self) -> int:
        return self.tree.n_terminals

    @property
    def n_outputs(self) -> int:
        return 1

    @property
    def n_features(self) -> int:
        """Features, made columns left out."""
        return len(self.tree.schema.feature_names) - N_MADE * len(self._gated)

    @cached_property
    def _gated(self) -> np.ndarray:
        return gated_nodes(self.shape)

    @cached_property
    def chains(self) -> list[list[int]]:
        """The nodes of each group, from the first to the last; the groups are the terminals of `wide_splits`."""
        shape, is_split = self.shape, splits_of(self.shape)
        if not is_split.any():
            return [list(range(self.n_nodes))]
        found = []
        for split in np.flatnonzero(is_split).tolist():
            for node in (int(shape.upper[split]), int(shape.lower[split])):
                if not is_split[node]:
                    found.append([node])
                    while (after := int(shape.upper[found[-1][-1]])) >= 0:
                        found[-1].append(after)
        return found

    @cached_property
    def schema(self) -> Schema:
        """Of the features alone."""
        n, schema = self.n_features, self.tree.schema
        return replace(
            schema, feature_names=schema.feature_names[:n], may_miss=schema.may_miss[:n], means=schema.means[:n]
        )

    @cached_property
    def costs(self) -> ResolvedCosts:
        return replace(self.tree.costs, feature_items=self.tree.costs.feature_items[: self.n_features])

    @property
    def link(self) -> str:
        return self.tree.link

    @property
    def limit(self) -> None:
        return None

    @property
    def decisions(self) -> Decisions | None:
        return None

    @property
    def constant(self) -> np.ndarray:
        return self.tree.constant

    @cached_property
    def estimates(self) -> Estimates | None:
        """Of the features alone."""
        n, known = self.n_features, self.tree.estimates
        if known is None:
            return None
        return replace(known, sets=known.sets[:, :n], source_features=known.source_features[:, :n])

    @property
    def training(self) -> Training:
        return self.tree.training

    @property
    def shape(self) -> TreeShape:
        return self.tree.shape

    def __repr__(self) -> str:
        sizes = in_short(self.n_nodes, self.tree.pool.n_learners, self.n_features, self.costs, self.terminal_costs())
        return f"<QueryTree: places by the {self.at} best of a query, {sizes}>"

    def _repr_html_(self) -> str:
        of = f"<p>Gates also see the place of a document among the others of its query, by the {self.at} best.</p>"
        return of + sketch(self.charged_tree, repr(self))

    @cached_property
    def terminal_learners(self) -> np.ndarray:
        """Bool (n_terminals, n_learners): all that a document evaluates on its way; experts that it passes, too."""
        scored = self.tree.predict_learners & ~splits_of(self.shape)[:, None]
        return (self.shape.paths.astype(int) @ (scored | self.tree.route_learners).astype(int)) > 0

    def terminal_items(self) -> np.ndarray:
        """Bool (n_terminals, n_items): the items of all learners on each path."""
        uses = self.tree.pool.learner_uses(self.tree.costs.feature_items)
        return (self.terminal_learners.astype(int) @ uses.astype(int)) > 0

    def terminal_costs(self) -> np.ndarray:
        """The exact cost of each path in the paper's counting."""
        return self.costs.charge(self.terminal_items(), self.terminal_learners.sum(axis=1))

    def knows_name(self, name: str) -> bool:
        """Whether a source, an item or a feature has this name."""
        return knows_name(self, name)

    @cached_property
    def charged_tree(self) -> FittedTree:
        """A tree to be looked at, not to be walked: each gate needs the expert of its node, as it does here."""
        passed = self.tree.predict_learners.T & ~self.shape.is_leaf & ~splits_of(self.shape)
        return replace(self.tree, route_weights=np.where(passed, 1.0, self.tree.route_weights))

    @cached_property
    def wide_splits(self) -> FittedTree | None:
        """What tells the groups of `chains` apart, on all columns: they are its terminals.  None where there is one."""
        splits = np.flatnonzero(splits_of(self.shape))
        if not len(splits):
            return None
        number = {split: place for place, split in enumerate(splits.tolist())}
        number |= {nodes[0]: -1 - group for group, nodes in enumerate(self.chains)}
        sides = self.shape.upper[splits].tolist(), self.shape.lower[splits].tolist()
        upper, lower = (np.array([number[node] for node in side]) for side in sides)
        n_learners, n = self.tree.pool.n_learners, len(splits)
        return self._part(
            TreeShape(upper, lower),
            np.zeros((n_learners, n)),
            np.zeros(n),
            self.tree.route_weights[:, splits],
            self.tree.thresholds[splits],
        )

    @cached_property
    def wide_steps(self) -> dict[int, tuple[FittedTree, FittedTree | None]]:
        """Expert and gate of each node of a chain, on all columns, the made ones too.

        Who goes on ends at terminal 1 of a gate.
        """
        tree, found = self.tree, {}
        nothing = np.zeros(tree.pool.n_learners)
        for node in np.flatnonzero(~splits_of(self.shape)).tolist():
            weights, intercept = tree.predict_weights[:, node], tree.predict_intercepts[node]
            expert = self._part(TreeShape.chain(1), weights, intercept, nothing[:, None], [0.0])
            gate = self._part(
                TreeShape.chain(2),
                np.zeros((len(nothing), 2)),
                np.zeros(2),
                np.column_stack([tree.route_weights[:, node], nothing]),
                [tree.thresholds[node], 0.0],
            )
            found[node] = expert, None if tree.shape.is_leaf[node] else gate
        return found

    def _part(self, shape: TreeShape, weights: Any, intercepts: Any, route_weights: Any, thresholds: Any) -> FittedTree:
        """A tree of some of the learners: of scores (n_learners, n_nodes) and routes."""
        n = shape.n_nodes
        return replace(
            self.tree,
            shape=shape,
            predict_weights=np.reshape(weights, (-1, n, 1)),
            predict_intercepts=np.reshape(intercepts, (n, 1)),
            route_weights=route_weights,
            thresholds=np.asarray(thresholds, dtype=float),
            estimates=None,
            fallback_weights=None,
            fallback_intercepts=None,
            training=Training(),
        ).compressed()

    @cached_property
    def splits(self) -> FittedTree | None:
        """`wide_splits` on the features."""
        return None if self.wide_splits is None else _on(self.wide_splits, np.arange(self.n_features))

    @cached_property
    def steps(self) -> dict[int, QueryStep]:
        """The nodes of chains, each tree on the columns that it looks at."""
        n, found = self.n_features, {}
        for node, (expert, gate) in self.wide_steps.items():
            used = np.zeros(0, dtype=int) if gate is None else _columns_of(gate.pool)
            columns = used[used < n]
            seen = np.append(columns, self.made_at(node))
            found[node] = QueryStep(_on(expert, np.arange(n)), columns, None if gate is None else _on(gate, seen))
        return found

    def made_at(self, node: int) -> np.ndarray:
        """The made columns of a node; none where it has no gate."""
        number = np.flatnonzero(self._gated == node)
        return (self.n_features + N_MADE * number[:, None] + np.arange(N_MADE)).ravel()

    # -- answering -------------------------------------------------------------------------------------------------

    def columns_named(self, unavailable: Any) -> np.ndarray:
        """The columns that are lost with some sources, items or features, each given by its name."""
        return columns_named(self, unavailable)

    def without(self, columns: Any) -> QueryTree:
        """The model that answers when some columns (numbers) are not to be had; see `FittedTree.without`."""
        gone = tuple(sorted({int(column) for column in columns}))
        return replace(self, tree=self.tree.without(gone)) if gone else self

    @cached_property
    def plain_features(self) -> np.ndarray:
        """Bool (n_features,): those that a weak learner hands on as they are."""
        return self.tree.plain_features[: self.n_features]

    def _matrix(self, X: Any, ignored: np.ndarray | None = None) -> Any:
        return self.schema.matrix(X, self.plain_features, ignored)

    def walk(self, X: Any, *, items: bool = False, qid: Any = None) -> Walked:
        """Where the rows of a matrix end, with which scores and, if asked for, what their branches buy.

        Level by level of the chains, all documents of a query in step: who comes to a node is scored, and when all who
        are at that level are, they are decided on.
        """
        n = X.shape[0]
        if qid is None:
            raise ValueError(f"qid is missing; {WHOLE}: give the query of each row, qid=...")
        query = query_numbers(qid, n)
        scores, terminals = np.empty(n), np.empty(n, dtype=int)
        bought = np.zeros((n, self.costs.n_items if items else 0), dtype=bool)
        group = np.zeros(n, dtype=int)
        if self.splits is not None and n:
            told = self.splits.walk(X, items=items)
            group, bought = told.terminals, bought | told.items
        here = {number: np.flatnonzero(group == number) for number in range(len(self.chains))}
        for level in range(max(map(len, self.chains))):
            # 1. All who are there have their scores.
            nodes = {number: self.chains[number][level] for number, rows in here.items() if len(rows)}
            parts = {}
            for number, node in nodes.items():
                rows = here[number]
                parts[number] = X if len(rows) == n else rows_at(X, rows)
                scored = self.steps[node].expert.walk(parts[number], items=items)
                scores[rows], terminals[rows] = scored.margins[:, 0], node
                bought[rows] |= scored.items
            if not nodes:
                break
            # 2. Those decide who goes on.
            made = made_columns(scores, query, self.at)
            going = {}
            for number, node in nodes.items():
                step, rows = self.steps[node], here[number]
                if step.gate is None:
                    continue
                cells = [dense(columns_at(parts[number], step.columns)), made[rows]]
                asked = step.gate.walk(np.column_stack(cells), items=items)
                bought[rows] |= asked.items
                going[number] = rows[asked.terminals == 1]
            here = going
        # a node of a chain has one terminal
        return Walked(scores[:, None], self.terminal_of[terminals] if n else terminals, bought)

    @cached_property
    def terminal_of(self) -> np.ndarray:
        """The terminal of each node of a chain; -1 for splits."""
        found = np.full(self.n_nodes, -1)
        found[self.shape.terminal_parents] = np.arange(self.n_terminals)
        return found

    def charge(self, walked: Walked, counting: str = "branch") -> np.ndarray:
        """What rows pay, by where they ended and what they bought."""
        if counting == "learner":
            return self.terminal_costs()[walked.terminals]
        return self.costs.charge(walked.items, self.terminal_learners.sum(axis=1)[walked.terminals])

    def decide(
        self,
        X: Any,
        counting: str = "branch",
        budget: Any = None,
        gone: np.ndarray | None = None,
        ids: Any = None,
        qid: Any = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """`decision_and_cost` of a matrix that was looked at already, without the columns `gone`."""
        if budget is not None:
            _refuse(f"takes no budget: {WHOLE}, so no row can be stopped by itself", "choose by mean_cost or p95_cost")
        if ids is not None:
            check_ids(ids, X.shape[0])
        model = self if gone is None else self.without(gone)
        walked = model.walk(X, items=counting == "branch", qid=qid)
        return walked.margins, model.charge(walked, counting)

    def ends_and_costs(self, X: Any, qid: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """`apply` and `predict_cost` in one walk."""
        walked = self.walk(self._matrix(X), items=True, qid=qid)
        return walked.terminals, self.charge(walked)

    def apply(self, X: Any, *, ids: Any = None, qid: Any = None) -> np.ndarray:
        """The terminal that the path of each row leads to; every node of a chain has one, in the order of the nodes."""
        X = self._matrix(X)
        if ids is not None:
            check_ids(ids, X.shape[0])
        return self.walk(X, qid=qid).terminals

    def bought_items(self, X: Any, counting: str = "branch", *, ids: Any = None, qid: Any = None) -> np.ndarray:
        """Bool (n, n_items): what is bought for each row."""
        check_counting(counting)
        X = self._matrix(X)
        if ids is not None:
            check_ids(ids, X.shape[0])
        walked = self.walk(X, items=counting == "branch", qid=qid)
        return self.terminal_items()[walked.terminals] if counting == "learner" else walked.items

    def explain(self, row: Any, **options: Any) -> Explanation:
        """A row of a whole query cannot be explained by itself: what it buys depends on the others."""
        _refuse(f"explains no single row: {WHOLE}", "apply and bought_items tell what each row does, with qid=...")

    def item_importance(self, X: Any, y: Any = None, **options: Any) -> ItemTable:
        """Items are told apart row by row, which documents of a query are not."""
        _refuse(f"has no table of items: {WHOLE}", "bought_items(X, qid=...) tells what each row buys")

    # -- other prices, a file ----------------------------------------------------------------------------------------

    def with_costs(self, costs: Any) -> QueryTree:
        """The same model under other prices: whatever the parameter `costs` of an estimator takes."""
        if not isinstance(costs, ResolvedCosts):
            names = self.schema.feature_names
            costs = as_cost_model(costs, len(names)).resolve(names)
        return replace(self, tree=self.tree.with_costs(with_made_costs(costs, len(self._gated))))

    def with_limit(self, limit: float | None) -> QueryTree:
        """Whole queries have no limit for a row: who goes on is decided by all documents of a query."""
        if limit is None:
            return self
        _refuse(
            "takes no limit: who goes on is decided by all documents of a query, so none can be stopped by itself",
            "choose by mean_cost, p95_cost or quality",
        )

    def with_training(self, training: Training) -> QueryTree:
        return replace(self, tree=replace(self.tree, training=training))

    def with_training_date(self, trained: str) -> QueryTree:
        return replace(self, tree=self.tree.with_training_date(trained))


def _refuse(why: str, instead: str) -> NoReturn:
    raise ValueError(f"a QueryTree {why}; {instead}")


def _columns_of(pool: TreePool) -> np.ndarray:
    used = np.unique(np.concatenate([pool.feature, pool.linear_feature]))
    return used[used >= 0]


def _on(tree: FittedTree, columns: np.ndarray) -> FittedTree:
    """The same tree for a matrix of some of its columns, which hold all that it looks at."""
    schema = tree.schema
    names = [schema.feature_names[column] for column in columns]
    place = np.full(len(schema.feature_names) + 1, -1)  # its last entry keeps -1, "no feature", what it is
    place[columns] = np.arange(len(columns))
    pool = tree.pool._replace(feature=place[tree.pool.feature], linear_feature=place[tree.pool.linear_feature])
    return replace(
        tree,
        pool=pool,
        costs=replace(tree.costs, feature_items=tree.costs.feature_items[columns]),
        schema=replace(
            schema,
            feature_names=names,
            categories={name: values for name, values in schema.categories.items() if name in names},
            may_miss=schema.may_miss[columns],
            means=schema.means[columns],
            booleans=schema.booleans & set(names),
        ),
    )


def _wrong_with(tree: FittedTree) -> str:
    """What a tree would have to be, and is not; empty if it is all that."""
    shape, is_split, gated = tree.shape, splits_of(tree.shape), gated_nodes(tree.shape)
    n_gates = len(gated)
    after = [int(node) for node in shape.upper[gated] if node >= 0]
    if (shape.lower[gated] >= 0).any() or len(after) < n_gates or is_split[after].any():
        return "is a chain of nodes, or splits and a chain for each group"
    if tree.n_outputs != 1 or tree.schema.classes is not None or tree.link != "identity":
        return "predicts scores"
    if tree.limit is not None or tree.decisions is not None:
        return "has no limit and no prices of errors"
    n = len(tree.schema.feature_names) - N_MADE * n_gates
    if n < 0:
        return f"has {N_MADE} made columns for each node with a gate, after its features"
    made = tree.schema.feature_names[n:]
    if tree.costs.feature_items[n:].any() or any(name in tree.schema.categories for name in made):
        return "has made columns that are numbers and require no item"
    looks = tree.learner_features[:, n:]
    without = (tree.expert_weights != 0).any(axis=(1, 2)) | tree.route_learners[is_split].any(axis=0)
    if looks[without].any():
        return "has experts and splits that look at no made column"
    for number, node in enumerate(gated):
        others = np.delete(np.arange(N_MADE * n_gates), N_MADE * number + np.arange(N_MADE))
        if looks[tree.route_learners[node]][:, others].any():
            return "has gates that look at the made columns of their own node only"
    return ""
