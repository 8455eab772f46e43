"""Two models, and a coin for each row that says which of them answers.

Between two neighbours on a frontier there may be no model: nothing that is worth its price costs 20, where one model
costs 4 and the next one 161.  A row takes the more expensive one with probability `share`,

    E[cost] = (1 - share) * cost of the cheaper one + share * cost of the other

so that any mean between both is met in expectation.  The coin of a row is a digest of its id (`coins`): the same row
takes the same model wherever it is answered.

Only numpy is imported here: a loaded mixture needs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from ..costs import ResolvedCosts
from ..matrix import rows_at
from .answering import Answering, check_counting
from .coins import coin, coins, is_no_id, turn
from .decisions import Decisions
from .fitted import FittedTree, Walked, check_beside
from .schema import Schema
from .training import Training

if TYPE_CHECKING:
    from ..serving.explain import Explanation, ItemTable

__all__ = ["Mixture", "share_for"]

LARGEST_SEED = 2**53  # what a JSON number holds to the last digit


def share_for(mean_cost: float, cheaper: float, costlier: float) -> float:
    """The share of rows that must take the more expensive one of two models so that their mean cost is met."""
    return min(1.0, max(0.0, (mean_cost - cheaper) / (costlier - cheaper)))


@dataclass(frozen=True, eq=False)
class Mixture(Answering):
    """Two fitted trees, and the share of rows that take the more expensive one.

    It predicts, counts cost, explains, is saved and served as a `FittedTree` is.  Terminals and nodes of the more
    expensive model are numbered after those of the other.

    Attributes
    ----------
    cheaper, costlier : FittedTree
        Of the same columns, classes and prices, and with the same limit.
    share : float
        Of rows that take `costlier`, from 0 to 1: those whose coin is below it.
    seed : int
        What the coins are drawn with, beside the ids.

    Examples
    --------
    >>> import numpy as np
    >>> from cstc import CSTCRegressor, Mixture
    >>> from cstc.datasets import QUADRANT_COSTS, make_quadrants
    >>> X, y = make_quadrants(1000, random_state=0)
    >>> options = {"costs": QUADRANT_COSTS, "weak_learners": "identity", "random_state": 0}
    >>> free, paid = (CSTCRegressor(cost_weight=weight, **options).fit(X, y).model_ for weight in (1e6, 0.03))
    >>> mixture = Mixture(free, paid, share=0.25)
    >>> cost = mixture.predict_cost(X, ids=np.arange(1000))
    >>> sorted(set(cost.tolist())), bool(abs(cost.mean() - 3.0) < 0.5)
    ([0.0, 12.0], True)
    """

    cheaper: FittedTree
    costlier: FittedTree
    share: float
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("cheaper", "costlier"):
            if not isinstance(getattr(self, name), FittedTree):
                raise TypeError(
                    f"{name} is a {type(getattr(self, name)).__name__}; a mixture is of two FittedTrees, such as "
                    "model_ of fitted estimators"
                )
        share: Any = self.share
        if isinstance(share, bool | np.bool_) or not isinstance(share, Real) or not 0 <= float(share) <= 1:
            raise ValueError(f"share is {share!r}; it must be a number from 0 to 1")
        seed: Any = self.seed
        if isinstance(seed, bool | np.bool_) or not isinstance(seed, Integral) or not 0 <= int(seed) <= LARGEST_SEED:
            raise ValueError(f"seed is {seed!r}; it must be a whole number from 0 to {LARGEST_SEED}")
        object.__setattr__(self, "share", float(share))
        object.__setattr__(self, "seed", int(seed))
        other = _difference(self.cheaper, self.costlier)
        if other:
            raise ValueError(f"the two models of a mixture must have the same {other}; these have not")

    def __getstate__(self) -> dict[str, Any]:
        """What was worked out and kept does not travel."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    # -- what both have --------------------------------------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        return self.costlier.schema

    @property
    def costs(self) -> ResolvedCosts:
        return self.costlier.costs

    @property
    def link(self) -> str:
        return self.costlier.link

    @property
    def limit(self) -> float | None:
        return self.costlier.limit

    @property
    def decisions(self) -> Decisions | None:
        return self.costlier.decisions

    @property
    def constant(self) -> np.ndarray:
        return self.costlier.constant

    @property
    def n_outputs(self) -> int:
        return self.costlier.n_outputs

    @property
    def n_nodes(self) -> int:
        return self.cheaper.n_nodes + self.costlier.n_nodes

    @property
    def n_terminals(self) -> int:
        return self.cheaper.n_terminals + self.costlier.n_terminals

    @property
    def trees(self) -> tuple[FittedTree, FittedTree]:
        return self.cheaper, self.costlier

    @property
    def training(self) -> Training:
        """Of rows that take the models as new rows will."""
        first, second = (tree.training for tree in self.trees)
        reached = None
        if first.reached is not None and second.reached is not None:
            reached = self.mixed(first.reached, second.reached)
        mean = None
        if first.mean_cost is not None and second.mean_cost is not None:
            mean = (1.0 - self.share) * first.mean_cost + self.share * second.mean_cost
        return Training(second.rows, mean, reached, second.trained)

    def mixed(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Shares of rows at the terminals of both, each by what part of the rows comes there."""
        return np.concatenate([(1.0 - self.share) * first, self.share * second])

    def __repr__(self) -> str:
        return f"<Mixture: {1.0 - self.share:.1%} of rows take {self.cheaper!r}, {self.share:.1%} {self.costlier!r}>"

    def _repr_html_(self) -> str:
        of = f"<p>Of all rows, {1.0 - self.share:.1%} take the first of two models and {self.share:.1%} the other.</p>"
        return of + "".join(tree._repr_html_() for tree in self.trees)

    def terminal_items(self) -> np.ndarray:
        """As those of a `FittedTree`, one model after the other."""
        return np.concatenate([tree.terminal_items() for tree in self.trees])

    def terminal_costs(self) -> np.ndarray:
        """As those of a `FittedTree`, one model after the other."""
        return np.concatenate([tree.terminal_costs() for tree in self.trees])

    def knows_name(self, name: str) -> bool:
        """Whether a source, an item or a feature has this name."""
        return any(tree.knows_name(name) for tree in self.trees)

    # -- which model a row takes -----------------------------------------------------------------------------------

    def takes_costlier(self, n: int, ids: Any = None) -> np.ndarray:
        """Bool (n,): the rows that take the more expensive model, by their ids or by their numbers."""
        return coins(self.seed, ids, n) < self.share

    def tree_for(self, identity: Any = None, number: int = 0) -> tuple[int, str]:
        """Which of `trees` the row of an id takes, or of a number where it has no id, and why, in a sentence."""
        if identity is None:
            drawn, of = turn(self.seed, number), f"its number, {number}"
        elif is_no_id(identity):
            raise ValueError(f"id is {identity!r}; a row needs a text or a number of its own")
        else:
            shown = identity.item() if isinstance(identity, np.generic) else identity
            drawn, of = coin(self.seed, identity), f"its id, {shown!r}"
        up = drawn < self.share
        which, part = ("more expensive", self.share) if up else ("cheaper", 1.0 - self.share)
        why = (
            f"Of two models this row takes the {which} one, as {part:.1%} of all rows do: the coin that was drawn from "
            f"{of}, is {drawn:.4f}, and that is {'below' if up else 'not below'} {self.share:.4f}."
        )
        return int(up), why

    def _parts(self, X: Any, ids: Any) -> list[tuple[int, FittedTree, np.ndarray]]:
        """For each of `trees`, its number and the rows that take it."""
        up = self.takes_costlier(X.shape[0], ids)
        parts = [(k, tree, np.flatnonzero(up == bool(k))) for k, tree in enumerate(self.trees)]
        return [(k, tree, at) for k, tree, at in parts if len(at)]

    def _matrix(self, X: Any, ignored: np.ndarray | None = None) -> Any:
        plain = self.cheaper.plain_features | self.costlier.plain_features
        return self.schema.matrix(X, plain, ignored)

    # -- answering -------------------------------------------------------------------------------------------------

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
        check_beside(None, qid, X.shape[0])
        margins, costs = np.empty((X.shape[0], self.n_outputs)), np.empty(X.shape[0])
        for _, tree, at in self._parts(X, ids):
            margins[at], costs[at] = tree.decide(rows_at(X, at), counting, budget, gone)
        return margins, costs

    def columns_named(self, unavailable: Any) -> np.ndarray:
        """The columns that are lost with some sources, items or features; both models know the same ones."""
        return self.costlier.columns_named(unavailable)

    def walk(self, X: Any, *, items: bool = False, ids: Any = None) -> Walked:
        """As `FittedTree.walk`, with terminals of the more expensive model after those of the other."""
        n, n_items = X.shape[0], self.costs.n_items if items else 0
        margins, terminals = np.empty((n, self.n_outputs)), np.empty(n, dtype=int)
        bought = np.zeros((n, n_items), dtype=bool)
        for k, tree, at in self._parts(X, ids):
            walked = tree.walk(rows_at(X, at), items=items)
            margins[at], bought[at] = walked.margins, walked.items
            terminals[at] = walked.terminals + k * self.cheaper.n_terminals
        return Walked(margins, terminals, bought)

    def apply(self, X: Any, *, ids: Any = None, qid: Any = None) -> np.ndarray:
        """The terminal that the path of each row leads to."""
        X = self._matrix(X)
        check_beside(None, qid, X.shape[0])
        return self.walk(X, ids=ids).terminals

    def bought_items(self, X: Any, counting: str = "branch", *, ids: Any = None, qid: Any = None) -> np.ndarray:
        """Bool (n, n_items): what is bought for each row."""
        check_counting(counting)
        X = self._matrix(X)
        check_beside(None, qid, X.shape[0])
        bought = np.zeros((X.shape[0], self.costs.n_items), dtype=bool)
        for _, tree, at in self._parts(X, ids):
            bought[at] = tree.items_bought(rows_at(X, at), counting)
        return bought

    def explain(
        self,
        row: Any,
        *,
        budget: float | None = None,
        unavailable: Iterable[str] = (),
        id: Any = None,
        number: int = 0,
    ) -> Explanation:
        """Which model the row takes and why, and step by step how its answer comes about.

        As `FittedTree.explain`; `id` is the row's own, as in `predict`, or `number` its number there.
        """
        from .. import _explain_row  # by the package's own door, as in `save`

        which, why = self.tree_for(id, number)
        return replace(_explain_row(self.trees[which], row, budget, unavailable), taken=why)

    def item_importance(self, X: Any, y: Any = None, *, ids: Any = None) -> ItemTable:
        """For each item, the share of rows that buy it, the money that is spent on it, and the loss that it saves.

        As `FittedTree.item_importance`, each row with the model that it takes.
        """
        from .. import _importance_in_mixture

        return _importance_in_mixture(self, X, y, ids)

    # -- other prices, other limits, a file ------------------------------------------------------------------------

    def with_costs(self, costs: Any) -> Mixture:
        """The same mixture under other prices; the share stays, and with it which rows take which model."""
        return replace(self, cheaper=self.cheaper.with_costs(costs), costlier=self.costlier.with_costs(costs))

    def with_limit(self, limit: float | None) -> Mixture:
        """The same mixture with a hard budget for each row; see `FittedTree.with_limit`."""
        return replace(self, cheaper=self.cheaper.with_limit(limit), costlier=self.costlier.with_limit(limit))

    def with_training_date(self, trained: str) -> Mixture:
        return replace(
            self,
            cheaper=self.cheaper.with_training_date(trained),
            costlier=self.costlier.with_training_date(trained),
        )


def _difference(first: FittedTree, second: FittedTree) -> str:
    """What two models do not have in common that a mixture must; empty if there is nothing."""
    a, b = first.schema, second.schema
    if a.classes is None or b.classes is None:
        same_classes = a.classes is b.classes
    else:
        same_classes = a.classes.dtype == b.classes.dtype and np.array_equal(a.classes, b.classes)
    same_columns = a.feature_names == b.feature_names and a.categories == b.categories and a.booleans == b.booleans
    same = {
        "columns": same_columns and np.array_equal(a.may_miss, b.may_miss) and np.array_equal(a.means, b.means),
        "classes": same_classes and first.link == second.link,
        "prices": _same_costs(first.costs, second.costs),
        "limit": first.limit == second.limit,
        "prices of errors": _same_errors(first.decisions, second.decisions),
    }
    return next((name for name, is_same in same.items() if not is_same), "")


def _same_errors(a: Decisions | None, b: Decisions | None) -> bool:
    return a is b if a is None or b is None else np.array_equal(a.costs, b.costs)


def _same_costs(a: ResolvedCosts, b: ResolvedCosts) -> bool:
    same = a.item_names == b.item_names and np.array_equal(a.prices, b.prices)
    return same and np.array_equal(a.feature_items, b.feature_items) and a.evaluation == b.evaluation
