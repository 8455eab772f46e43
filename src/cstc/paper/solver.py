"""Minimising the loss of a tree (paper, "Optimization Details").

`initialise` goes from the root downward and solves each node with its descendants cut off, which is convex.
Then all nodes are improved together, in one of two ways:

``"cyclic"``
    The paper's.  One node at a time: conjugate gradients on its weights and its threshold with the auxiliary
    variables of Lemma 1 held fixed, then the auxiliary variables in closed form.
``"joint"``
    All nodes at once with L-BFGS.  The auxiliary variables are eliminated: their closed form is put into every
    evaluation of the loss, so nothing alternates and each step sees the whole tree.

Neither ever raises the loss from one outer step to the next.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from ..model import TreeShape
from ..parallel import stop_if_asked
from ..progress import QUIET, Progress
from .objective import NodeParameters, Prior, TreeObjective

__all__ = ["SOLVERS", "Solution", "initialise", "solve"]

SOLVERS = ("joint", "cyclic")
INNER_STEPS = 20  # conjugate gradient steps for one node at fixed auxiliary variables
STEPS_OF_A_START = 20  # that the starts of all nodes together take, for those who watch
SMALLEST_SHARE = 1e-6  # a node that fewer rows reach has nothing to learn from


@dataclass(frozen=True)
class Solution:
    """Parameters, the loss after every outer step, and whether the last step was small enough."""

    parameters: NodeParameters
    loss_history: np.ndarray
    converged: bool


def initialise(
    objective: TreeObjective,
    *,
    solver: str = "joint",
    max_iter: int = 100,
    tol: float = 1e-6,
    threshold: str = "mean",
    progress: Progress = QUIET,
) -> NodeParameters:
    """Top-down start: each node is solved as if it were a leaf, on the rows that softly reach it.

    The threshold, which has no gradient while descendants are cut off, starts at the weighted mean margin, or at
    the weighted median; a gate of its own (more than two classes) starts at the first principal component of the
    class margins.
    """
    shape = objective.shape
    parameters = NodeParameters.zeros(objective.design.n_learners, shape.n_nodes, objective.n_columns)
    reached = np.zeros((objective.design.n_rows, shape.n_nodes))
    reached[:, 0] = 1.0
    work = _work(objective, solver, STEPS_OF_A_START)
    progress.plan("step", _work(objective, solver, max_iter))
    progress.begin("start of nodes", work, shape.n_nodes)
    for node in range(shape.n_nodes):
        if node:
            progress.did(work / shape.n_nodes, n_pieces=1)
        progress.say(f"start of node {node + 1} of {shape.n_nodes}")
        row_weights = objective.row_weights * reached[:, node]
        share = row_weights.sum()
        if share < SMALLEST_SHARE:
            parent = shape.parents[node]
            parameters.intercepts[node] = parameters.intercepts[parent]
            continue
        alone = node_problem(objective, parameters, node, row_weights)
        start = NodeParameters.zeros(objective.design.n_learners, 1, objective.n_columns)
        start.intercepts[0, : objective.n_outputs] = objective.loss.constant(objective.y, row_weights)
        found = solve(alone, start, solver=solver, max_iter=max_iter, tol=tol).parameters
        parameters.weights[:, node] = found.weights[:, 0]
        parameters.intercepts[node] = found.intercepts[0]
        if shape.is_leaf[node]:
            continue
        if objective.separate_gate:
            parameters.weights[:, node, -1] = _principal_gate(objective, parameters, node, row_weights)
        margin = objective.design.matmul(parameters.weights[:, node, -1:])[:, 0] + parameters.intercepts[node, -1]
        parameters.thresholds[node] = _centre(margin, row_weights, threshold)
        gate = objective.gates(margin[:, None, None], parameters.thresholds[node : node + 1])[:, 0]
        for child, probability in ((shape.upper[node], gate), (shape.lower[node], 1.0 - gate)):
            if child >= 0:
                reached[:, child] = reached[:, node] * probability
    return parameters


def _centre(margin: np.ndarray, row_weights: np.ndarray, threshold: str) -> float:
    """Where a threshold starts: the weighted mean or median."""
    if threshold == "mean":
        return float(row_weights @ margin / row_weights.sum())
    if threshold != "median":
        raise ValueError(f"threshold is {threshold!r}; it must be 'mean' or 'median'")
    order = np.argsort(margin)
    cumulated = np.cumsum(row_weights[order])
    middle = int(np.searchsorted(cumulated, 0.5 * cumulated[-1]))
    return float(margin[order[min(middle, len(order) - 1)]])


def node_problem(
    objective: TreeObjective, parameters: NodeParameters, node: int, row_weights: np.ndarray
) -> TreeObjective:
    """One node as a leaf: its rows, and what its ancestors have already paid for.

    The whole problem is divided by the share of rows that reach the node, so the l1 term and the prior, which do
    not depend on that share, grow.
    """
    ancestors = objective.shape.node_paths[node].copy()
    ancestors[node] = False
    by_learner, by_item = objective.penalty.squares(parameters.weights)
    penalty = replace(
        objective.penalty,
        l1_weight=objective.penalty.l1_weight / row_weights.sum(),
        paid_learners=by_learner[ancestors].sum(axis=0),
        paid_items=by_item[ancestors].sum(axis=0),
    )
    return TreeObjective(
        objective.design,
        objective.y,
        row_weights,
        objective.loss,
        TreeShape.full(1),
        penalty,
        objective.gate_slope,
        scaled_prior(objective.prior, 1.0 / row_weights.sum()),
    )


def scaled_prior(prior: Prior | None, factor: float) -> Prior | None:
    """The same pull, stronger or weaker."""
    return None if prior is None else replace(prior, strength=prior.strength * factor)


def _principal_gate(
    objective: TreeObjective, parameters: NodeParameters, node: int, row_weights: np.ndarray
) -> np.ndarray:
    weights = parameters.weights[:, node, : objective.n_outputs]
    margins = objective.design.matmul(weights).astype(float)
    centred = margins - np.average(margins, axis=0, weights=row_weights)
    directions = np.linalg.eigh(centred.T @ (row_weights[:, None] * centred))[1]
    direction = directions[:, -1]
    return weights @ (direction * np.sign(direction[np.argmax(np.abs(direction))]))


def solve(
    objective: TreeObjective,
    start: NodeParameters,
    *,
    solver: str = "joint",
    max_iter: int = 100,
    tol: float = 1e-6,
    progress: Progress = QUIET,
    watch: Callable[[NodeParameters], bool] | None = None,
) -> Solution:
    """Improve all nodes of the tree until the loss falls by less than `tol` of itself in a step.

    `watch` is shown the parameters after every step of the joint solver and ends it by returning true.
    """
    if solver in SOLVERS:
        progress.begin("step", _work(objective, solver, max_iter), max_iter, most=True)
    if solver == "joint":
        return _solve_joint(objective, start, max_iter, tol, progress, watch)
    if solver == "cyclic":
        return _solve_cyclic(objective, start, max_iter, tol, progress)
    raise ValueError(f"solver is {solver!r}; it must be one of {SOLVERS}")


def _work(objective: TreeObjective, solver: str, n_steps: int) -> float:
    """What steps take, roughly in the units of boosting: passes over all columns, for every node."""
    passes = 2 * INNER_STEPS if solver == "cyclic" else 1
    return float(n_steps) * passes * objective.design.n_rows * objective.design.n_learners * objective.shape.n_nodes


def _solve_joint(
    objective: TreeObjective,
    start: NodeParameters,
    max_iter: int,
    tol: float,
    progress: Progress,
    watch: Callable[[NodeParameters], bool] | None,
) -> Solution:
    history = [objective.value(start)]
    unit = max(abs(history[0]), np.finfo(float).tiny)  # L-BFGS takes tolerances as relative only above a loss of 1

    def evaluate(flat: np.ndarray) -> tuple[float, np.ndarray]:
        stop_if_asked()
        value, gradient = objective.value_and_gradient(start.unflatten(flat))
        return value / unit, gradient.flatten().astype(float) / unit

    def after_step(intermediate_result) -> None:
        history.append(float(intermediate_result.fun) * unit)
        progress.did(_work(objective, "joint", 1), n_pieces=1)
        progress.say(f"step {len(history) - 1}: loss {history[-1]:.6f}")
        if watch is not None and watch(start.unflatten(intermediate_result.x.copy())):
            raise StopIteration

    found = minimize(
        evaluate,
        start.flatten(),
        jac=True,
        method="L-BFGS-B",
        callback=after_step,
        options={"maxiter": max_iter, "maxfun": 3 * max_iter, "ftol": tol, "gtol": 1e-9, "maxcor": 20},
    )
    # status 2 is a line search that finds no lower point: at float precision that is the minimum
    return Solution(start.unflatten(found.x), np.array(history), found.status != 1)


def _solve_cyclic(
    objective: TreeObjective,
    start: NodeParameters,
    max_iter: int,
    tol: float,
    progress: Progress,
) -> Solution:
    parameters = NodeParameters(start.weights.copy(), start.intercepts.copy(), start.thresholds.copy())
    margins = objective.margins(parameters)
    history = [objective.value(parameters)]
    converged = False
    for sweep in range(max_iter):
        before = NodeParameters(parameters.weights.copy(), parameters.intercepts.copy(), parameters.thresholds.copy())
        for node in range(objective.shape.n_nodes):
            _improve_node(objective, parameters, margins, node)
        value = objective.value(parameters)
        if value > history[-1]:  # no sweep raises the loss but by rounding, at the fixed point
            parameters, converged = before, True
            break
        history.append(value)
        progress.did(_work(objective, "cyclic", 1), n_pieces=1)
        progress.say(f"sweep {sweep + 1}: loss {history[-1]:.6f}")
        if history[-2] - history[-1] <= tol * max(abs(history[-1]), 1e-12):
            converged = True
            break
    return Solution(parameters, np.array(history), converged)


def _improve_node(objective: TreeObjective, parameters: NodeParameters, margins: np.ndarray, node: int) -> None:
    """Conjugate gradients on one node with the auxiliary variables fixed; changes its arguments in place."""
    auxiliaries = objective.penalty.auxiliaries(parameters.weights, objective.shape.paths)
    held = objective.hold(node, margins, parameters.thresholds)
    n_weights = objective.design.n_learners * objective.n_columns

    def put(flat: np.ndarray) -> None:
        parameters.weights[:, node] = flat[:n_weights].reshape(-1, objective.n_columns)
        parameters.intercepts[node] = flat[n_weights:-1]
        parameters.thresholds[node] = flat[-1]
        margins[:, node] = objective.design.matmul(parameters.weights[:, node]) + parameters.intercepts[node]

    def evaluate(flat: np.ndarray) -> tuple[float, np.ndarray]:
        stop_if_asked()
        put(flat)
        value, weights, intercepts, threshold = objective.node_value_and_gradient(
            node, parameters, margins, auxiliaries, held
        )
        return value, np.concatenate([weights.ravel(), intercepts, [threshold]]).astype(float)

    before = np.concatenate(
        [parameters.weights[:, node].ravel(), parameters.intercepts[node], parameters.thresholds[node : node + 1]]
    )
    value_before, gradient_before = evaluate(before)

    def evaluate_further(flat: np.ndarray) -> tuple[float, np.ndarray]:
        """It begins where the value is known."""
        return (value_before, gradient_before.copy()) if np.array_equal(flat, before) else evaluate(flat)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a line search that stops early is not worth a word: the sweep goes on
        found = minimize(evaluate_further, before, jac=True, method="CG", options={"maxiter": INNER_STEPS})
    put(found.x if found.fun <= value_before else before)
