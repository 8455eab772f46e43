"""What a model answers for rows of a table, and what each row buys on which path."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..model import FittedTree
from ..model.file import Model
from ..model.fitted import least_of
from ..model.queries import QueryTree
from ..serving.table import within_budget

__all__ = ["Answers", "answers_of", "paths_of"]

STOPPED = -1  # the path of a row that its budget stopped


class Answers(NamedTuple):
    margins: np.ndarray
    costs: np.ndarray
    items: np.ndarray
    paths: np.ndarray  # the terminal that a row reached, or `STOPPED`


def answers_of(
    model: Model,
    X: Any,
    *,
    budget: float | None = None,
    gone: np.ndarray | None = None,
    ids: Any = None,
    first: int = 0,
    qid: Any = None,
) -> Answers:
    """Of the rows of a matrix, of which the first one has the number `first` in its table."""
    if isinstance(model, QueryTree):
        return _of_queries(model, X, budget, gone, qid)
    if isinstance(model, FittedTree):
        return _of_tree(model, X, budget, gone)
    n = len(X)
    # without ids, the coin of a row is drawn from its number in the whole table
    up = model.takes_costlier(n, ids) if ids is not None else model.takes_costlier(first + n)[first:]
    found = Answers(
        np.empty((n, model.n_outputs)),
        np.empty(n),
        np.zeros((n, model.costs.n_items), dtype=bool),
        np.empty(n, dtype=int),
    )
    for number, tree in enumerate(model.trees):
        at = np.flatnonzero(up == bool(number))
        part = _of_tree(tree, X[at], budget, gone)
        ended = part.paths + number * model.cheaper.n_terminals
        for whole, own in zip(found, part._replace(paths=np.where(part.paths < 0, STOPPED, ended)), strict=True):
            whole[at] = own
    return found


def _of_tree(tree: FittedTree, X: Any, budget: float | None, gone: np.ndarray | None) -> Answers:
    tree = tree if gone is None else tree.without(gone)
    walked = tree.walk(X, items=True)
    most = least_of(budget, tree.limit)
    if most is None:
        return Answers(walked.margins, tree.charge(walked), walked.items, walked.terminals.astype(int))
    # `within_budget` writes over the walk that it makes itself
    held = within_budget(tree, X, most)
    stopped = (held.items != walked.items).any(axis=1) | (held.margins != walked.margins).any(axis=1)
    return Answers(held.margins, held.costs, held.items, np.where(stopped, STOPPED, walked.terminals))


def _of_queries(
    model: QueryTree, X: Any, budget: float | None, gone: np.ndarray | None, qid: Any
) -> Answers:
    margins, costs = model.decide(X, "branch", budget, gone, None, qid)  # refuses a budget
    walked = (model if gone is None else model.without(gone)).walk(X, items=True, qid=qid)
    return Answers(margins, costs, walked.items, walked.terminals)


def paths_of(model: Model) -> list[str]:
    """The nodes on the way to each terminal; those of the more expensive model of a mixture after the other's."""
    trees = [model] if isinstance(model, FittedTree | QueryTree) else model.trees
    named = ("",) if isinstance(model, FittedTree | QueryTree) else ("cheaper: ", "costlier: ")
    found = []
    for name, tree in zip(named, trees, strict=True):
        for nodes in tree.shape.paths:
            found.append(name + " > ".join(map(str, np.flatnonzero(nodes))))
    return found
