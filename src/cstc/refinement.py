"""From the relaxed solution to the model that is used: exact support, elimination, fine-tuning.

Conjugate gradients and L-BFGS never reach an exact zero, while exact cost and fine-tuning (paper, eq.
fine-tuning) are only defined on an exact support.  So the support is made explicit first, a dropped weight leaves the
model for good, and predictors are then freed of the shrinkage that the mixed norm put on them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .hard_tree import HardTree, Rows
from .objective import DenseDesign, NodeParameters, Penalty, Prior, TreeObjective
from .solver import SMALLEST_SHARE, scaled_prior, solve
from .tree import TreeShape

__all__ = ["column_sets", "drop_small_weights", "eliminate", "fine_tune"]

PATIENCE = 5  # fine-tuning stops after this many steps without a better validation error


def drop_small_weights(parameters: NodeParameters, floors: np.ndarray) -> NodeParameters:
    """Exact support: set to zero every learner of a node whose weights are below the learner's floor.

    Under the smoothed penalty, weights end up below the floor just where the data does not pull hard enough
    to pay the price, which is the condition for an exact zero of the square root itself.
    """
    norms = np.sqrt((parameters.weights**2).sum(axis=2, keepdims=True))
    return replace(parameters, weights=np.where(norms < floors[:, None, None], 0.0, parameters.weights))


def eliminate(tree: HardTree, rows: Rows, column_sets: list[np.ndarray], cost_weight: float) -> HardTree:
    """Backward elimination: drop columns while risk + cost_weight * exact cost does not rise.

    `column_sets` are the columns that leave together, such as all that need one item.  A move takes one set away
    from some nodes (see `_scopes`), and its mean output goes into their intercepts and thresholds.  Judged under
    hard routing.  Sets are visited in the order given, and the best move of each is taken, until a whole round
    finds none.
    """
    loss = tree.exact_loss(rows, cost_weight)
    improved = True
    while improved:
        improved = False
        for columns in column_sets:
            while True:
                moves = [_without_columns(tree, rows, columns, nodes) for nodes in _scopes(tree, columns)]
                losses = [move.exact_loss(rows, cost_weight) for move in moves]
                if not moves or min(losses) > loss:
                    break
                tree, loss, improved = moves[int(np.argmin(losses))], min(losses), True
    return tree


def column_sets(column_items: np.ndarray, prices: np.ndarray, ensemble: np.ndarray) -> list[np.ndarray]:
    """What elimination may take away: the columns that need an item, dear items first; then single ensembles.

    The columns of an ensemble, one for each class, stay together.
    """
    by_item = [column_items[:, item] for item in np.argsort(-prices, kind="stable")]
    by_ensemble = [ensemble == number for number in np.unique(ensemble[ensemble >= 0])]
    whole = [members | np.isin(ensemble, ensemble[members & (ensemble >= 0)]) for members in [*by_item, *by_ensemble]]
    distinct = dict.fromkeys(tuple(np.flatnonzero(members)) for members in whole)
    return [np.array(columns) for columns in distinct if columns]


def _scopes(tree: HardTree, columns: np.ndarray) -> list[np.ndarray]:
    """Sets of nodes to take columns from: a node alone, a node with all below it, or all but those.

    An item that several nodes of a path use is paid until the last one lets go, so single nodes are not enough;
    the third kind keeps an item for one branch of the tree only.
    """
    in_use = (tree.route_weights[columns] != 0).any(axis=0) | (tree.predict_weights[columns] != 0).any(axis=(0, 2))
    below = tree.shape.node_paths.T  # [k, j]: node j lies in the subtree of k
    scopes = [*(below & in_use), *(~below & in_use), *(np.eye(len(in_use), dtype=bool) & in_use)]
    return [np.flatnonzero(scope) for scope in np.unique(scopes, axis=0) if scope.any()]


def _without_columns(tree: HardTree, rows: Rows, columns: np.ndarray, nodes: np.ndarray) -> HardTree:
    terminals = tree.terminals(rows.phi)
    route, thresholds = tree.route_weights.copy(), tree.thresholds.copy()
    predict, intercepts = tree.predict_weights.copy(), tree.predict_intercepts.copy()
    for node in nodes:
        here = np.isin(terminals, np.flatnonzero(tree.shape.paths[:, node]))
        if rows.weights[here].sum() > 0:
            mean = np.average(rows.phi[np.ix_(here, columns)], axis=0, weights=rows.weights[here])
            thresholds[node] -= mean @ route[columns, node]
            intercepts[node] += mean @ predict[columns, node]
        route[columns, node] = 0.0
        predict[columns, node] = 0.0
    return HardTree(tree.shape, route, thresholds, predict, intercepts)


def fine_tune(
    tree: HardTree,
    train: Rows,
    validation: Rows,
    reached: np.ndarray,
    *,
    l1_weight: float = 0.0,
    prior: Prior | None = None,
    floor: float = 1e-3,
    max_iter: int = 100,
) -> HardTree:
    """Re-optimise every predictive classifier on its support, without the cost term (paper, eq. fine-tuning).

    `reached` (n, n_nodes) says how much each training row counts at each node: soft traversal probabilities
    in the paper, hard routing otherwise.  Stopped on validation data: of all steps, the one with the lowest
    error of the whole tree is kept, the starting point included.
    """
    for node in map(int, np.flatnonzero(tree.shape.is_predictive)):
        support = np.flatnonzero((tree.predict_weights[:, node] != 0).any(axis=1))
        row_weights = train.weights * reached[:, node]
        share = row_weights.sum() / train.weights.sum()
        if share < SMALLEST_SHARE:
            continue
        at = np.flatnonzero(row_weights)
        penalty = Penalty(
            learner_items=np.zeros((len(support), 0)),
            prices=np.zeros(0),
            evaluation=np.zeros(len(support)),
            cost_weight=0.0,
            l1_weight=l1_weight / share,
            floor=floor,
        )
        objective = TreeObjective(
            DenseDesign(np.ascontiguousarray(train.phi[np.ix_(at, support)])),
            train.y[at],
            row_weights[at],
            train.loss,
            TreeShape.full(1),
            penalty,
            prior=scaled_prior(prior and replace(prior, weights=prior.weights[support]), 1.0 / share),
        )
        tree = _stopped_on_validation(tree, node, support, objective, validation, max_iter)
    return tree


def _stopped_on_validation(
    tree: HardTree, node: int, support: np.ndarray, objective: TreeObjective, validation: Rows, max_iter: int
) -> HardTree:
    terminals = tree.terminals(validation.phi)
    best, best_error, since = tree, validation.error(tree.margins(validation.phi, terminals)), 0
    n_outputs = objective.n_outputs
    start = NodeParameters.zeros(len(support), 1, objective.n_columns)
    start.weights[:, 0, :n_outputs] = tree.predict_weights[support, node]
    start.intercepts[0, :n_outputs] = tree.predict_intercepts[node]

    def judge(parameters: NodeParameters) -> bool:
        """Keep the step if it is the best so far; true when it is time to stop."""
        nonlocal best, best_error, since
        weights = np.zeros_like(tree.predict_weights[:, node])
        weights[support] = parameters.weights[:, 0, :n_outputs]
        candidate = tree.with_predictor(node, weights, parameters.intercepts[0, :n_outputs])
        error = validation.error(candidate.margins(validation.phi, terminals))
        since += 1
        if error < best_error:
            best, best_error, since = candidate, error, 0
        return since >= PATIENCE

    solve(objective, start, max_iter=max_iter, tol=1e-9, watch=judge)
    return best
