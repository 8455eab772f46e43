"""Fine-tuning (paper, eq. fine-tuning): predictors are freed of the shrinkage that the mixed norm put on them.

Every predictive classifier is optimised again on the learners that it uses, which are paid for, without the cost term.
That is only defined on an exact support (`Columns.exact_support`): conjugate gradients and L-BFGS never reach an exact
zero.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..model import TreeShape
from .features import Seen
from .hard_tree import HardTree
from .objective import Design, NodeParameters, Penalty, Prior, TreeObjective
from .solver import SMALLEST_SHARE, scaled_prior, solve

__all__ = ["fine_tune"]

PATIENCE = 5  # fine-tuning stops after this many steps without a better validation error


def fine_tune(
    tree: HardTree,
    train: Seen,
    validation: Seen,
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
            Design(train.phi[np.ix_(at, support)]),
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
    tree: HardTree, node: int, support: np.ndarray, objective: TreeObjective, validation: Seen, max_iter: int
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
