"""From data to a fitted tree: the paper's procedure, and the default one.

``method="paper"``
    Boosted trees without regard to cost; top-down start; the global loss with gates of slope 1; pruning by the
    task's metric on validation data; fine-tuning with soft traversal probabilities, stopped on validation data.

``method="refined"`` (the default)
    The same loss, carried on to what is paid and predicted in the end.  Weak learners are grown with the prices
    in mind.  Training goes from the relaxation to the exact problem in stages: gates harden, and the cost
    penalty bends from the norm of the weights towards "paid or not".  Then items are eliminated, nodes pruned and
    predictors refitted under hard routing with the exact cost.  A single node that is the boosted ensemble itself
    is always among the candidates, and validation data chooses by risk + cost_weight * exact cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit

from .costs import ResolvedCosts
from .hard_tree import HardTree, Rows
from .model import FittedTree, Schema
from .objective import DenseDesign, NodeParameters, Penalty, TreeObjective
from .pruning import prune
from .refinement import drop_small_weights, eliminate_items, fine_tune
from .solver import initialise, solve
from .tree import TreeShape
from .weak_learners import WeakLearners, grow_weak_learners, identity_weak_learners

__all__ = ["METHODS", "Sample", "Settings", "Trained", "train"]

METHODS = ("refined", "paper")
#: Stages of the default method: slope of the gates (in standard deviations of the target) and sharpness of the cost.
STAGES = ((2.0, 0.0), (6.0, 1.0), (20.0, 3.0))
FLOOR = 1e-3
ELIMINATION_ROWS = 4000  # elimination judges many small changes; more rows than this do not change its mind


@dataclass(frozen=True, eq=False)
class Sample:
    """Encoded rows: numbers only, classes as numbers, one weight per row."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    qid: np.ndarray | None = None


@dataclass(frozen=True)
class Settings:
    """What the estimators pass on; see their documentation."""

    cost_weight: float
    l1_weight: float
    method: str
    depth: int
    max_nodes: int | None
    weak_learners: str
    n_weak_learners: int
    weak_learner_depth: int
    learning_rate: float
    early_stopping: int | None
    cost_strengths: tuple[float, ...]
    cross_fit: int
    solver: str
    max_iter: int
    tol: float
    pruning: bool
    fine_tuning: bool
    dtype: type
    categorical: tuple[int, ...]
    random_state: int
    n_jobs: int | None


@dataclass(frozen=True)
class Trained:
    """A fitted tree, and how it came about."""

    model: FittedTree
    loss_history: list[np.ndarray]
    converged: bool
    reached: np.ndarray  # soft share of the training rows at each terminal
    anchors: list[FittedTree] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything that both procedures need, in standardised units.

    Targets of squared risk are centred and divided by their standard deviation, so that floors and tolerances
    mean the same for every data set; ``cost_weight`` and ``l1_weight`` are divided by its square, which leaves the
    minimiser unchanged.
    """

    settings: Settings
    loss: Any
    costs: ResolvedCosts
    learners: WeakLearners
    learner_items: np.ndarray
    train: Rows
    validation: Rows
    offset: np.ndarray
    scale: np.ndarray
    y_offset: float
    y_scale: float
    constant: np.ndarray
    schema: Schema
    report: Callable[[str], None]

    @property
    def cost_weight(self) -> float:
        return self.settings.cost_weight / self.y_scale**2

    @property
    def l1_weight(self) -> float:
        return self.settings.l1_weight / self.y_scale**2

    @property
    def shape(self) -> TreeShape:
        return TreeShape.full(self.settings.depth, self.settings.max_nodes)

    def objective(self, gate_slope: float) -> TreeObjective:
        penalty = Penalty(
            learner_items=self.learner_items.astype(float),
            prices=self.costs.prices,
            evaluation=np.full(self.learners.pool.n_learners, self.costs.evaluation),
            cost_weight=self.cost_weight,
            l1_weight=self.l1_weight,
            floor=FLOOR,
        )
        design = DenseDesign(self.train.phi.astype(self.settings.dtype, copy=False))
        return TreeObjective(
            design, self.train.y, self.train.weights, self.loss, self.shape, penalty, gate_slope=gate_slope
        )

    def to_model(self, tree: HardTree) -> FittedTree:
        return tree.to_model(
            self.learners.pool,
            offset=self.offset,
            scale=self.scale,
            y_offset=self.y_offset,
            y_scale=self.y_scale,
            constant=self.constant * self.y_scale + self.y_offset,
            costs=self.costs,
            link={"squared": "identity"}.get(self.loss.name, self.loss.name),
            schema=self.schema,
        )

    def anchors(self) -> list[HardTree]:
        """Each boosted ensemble itself, as a tree of one node."""
        trees = []
        for ensemble in range(self.learners.n_ensembles):
            weights = self.learners.anchor(ensemble)
            trees.append(HardTree.single(weights * self.scale[:, None], self.constant + self.offset @ weights))
        return trees


def train(
    sample: Sample,
    validation: Sample,
    loss,
    costs: ResolvedCosts,
    schema: Schema,
    settings: Settings,
    report: Callable[[str], None] = lambda text: None,
) -> Trained:
    """Fit a tree of classifiers."""
    problem = _set_up(sample, validation, loss, costs, schema, settings, report)
    if settings.method == "paper":
        return _train_paper(problem)
    return _train_refined(problem)


def _set_up(sample, validation, loss, costs, schema, settings, report) -> Problem:
    y_offset, y_scale = 0.0, 1.0
    if loss.name == "squared":
        y_offset = float(np.average(sample.y, weights=sample.weights))
        y_scale = float(np.sqrt(np.average((sample.y - y_offset) ** 2, weights=sample.weights))) or 1.0
    y = (sample.y - y_offset) / y_scale if loss.name == "squared" else sample.y
    y_val = (validation.y - y_offset) / y_scale if loss.name == "squared" else validation.y
    constant = loss.constant(y, sample.weights)
    report("weak learners")
    learners = _weak_learners(sample.X, y, sample.weights, validation, y_val, loss, constant, costs, settings, y_scale)
    leaves = learners.pool.leaves(sample.X)
    if settings.cross_fit > 1 and learners.n_ensembles:
        folds = _folds(sample, settings.cross_fit, settings.random_state)
        phi = learners.cross_fitted(leaves, y, sample.weights, folds, loss.name)
    else:
        phi = learners.pool.outputs(sample.X, leaves)
    leaves_val = learners.pool.leaves(validation.X)
    phi_val = learners.pool.outputs(validation.X, leaves_val)
    # the paper's learners and plain inputs keep their own scale; only the units of the target are taken out.
    # Boosted learners are brought to one scale otherwise: the output of later ones is small, and the mixed norm
    # would charge them more for the same contribution
    offset = np.average(phi, axis=0, weights=sample.weights)
    scale = np.full(phi.shape[1], y_scale if settings.weak_learners == "identity" else 1.0)
    if settings.method != "paper" and settings.weak_learners != "identity":
        spread = np.sqrt(np.average((phi - offset) ** 2, axis=0, weights=sample.weights))
        scale = np.where(spread > 1e-12, spread, 1.0)
    bits = learners.pool.position_bits(costs.feature_items)

    def rows(phi, leaves, part, y):
        phi = (phi - offset) / scale
        return Rows(phi, y, part.weights, loss, leaves, bits, costs.prices, costs.evaluation, part.qid)

    return Problem(
        settings=settings,
        loss=loss,
        costs=costs,
        learners=learners,
        learner_items=learners.pool.learner_uses(costs.feature_items),
        train=rows(phi, leaves, sample, y),
        validation=rows(phi_val, leaves_val, validation, y_val),
        offset=offset,
        scale=scale,
        y_offset=y_offset,
        y_scale=y_scale,
        constant=constant,
        schema=schema,
        report=report,
    )


def _weak_learners(X, y, weights, validation, y_val, loss, constant, costs, settings, y_scale) -> WeakLearners:
    if settings.weak_learners == "identity":
        return identity_weak_learners(X.shape[1], loss.n_outputs)
    strengths = [strength * settings.cost_weight / y_scale**2 for strength in settings.cost_strengths]
    return grow_weak_learners(
        X,
        y,
        weights,
        loss_name=loss.name,
        constant=constant,
        costs=costs,
        cost_strengths=list(dict.fromkeys(strengths)),  # without a cost weight all strengths are one
        n_learners=settings.n_weak_learners,
        depth=settings.weak_learner_depth,
        learning_rate=settings.learning_rate,
        categorical=settings.categorical,
        validation=(validation.X, y_val, validation.weights),
        early_stopping=settings.early_stopping,
        random_state=settings.random_state,
        n_jobs=settings.n_jobs,
    )


def _folds(sample: Sample, n_folds: int, random_state: int) -> np.ndarray:
    """A fold for each row, whole queries in one."""
    groups = np.arange(len(sample.y)) if sample.qid is None else np.unique(sample.qid, return_inverse=True)[1]
    n_groups = int(groups.max()) + 1
    return np.random.default_rng(random_state).permutation(np.arange(n_groups) % n_folds)[groups]


def _train_paper(problem: Problem) -> Trained:
    settings = problem.settings
    slope = problem.y_scale  # the paper's sigmoid has slope 1 in units of the label
    objective = problem.objective(gate_slope=slope)
    options: dict[str, Any] = {
        "solver": settings.solver,
        "max_iter": settings.max_iter,
        "tol": settings.tol,
        "report": problem.report,
    }
    solution = solve(objective, initialise(objective, **options), **options)
    parameters = drop_small_weights(solution.parameters, FLOOR)
    tree = HardTree.from_parameters(problem.shape, parameters, problem.loss.n_outputs)
    if settings.pruning:
        problem.report("pruning")
        tree = prune(tree, lambda t: problem.validation.error(t.margins(problem.validation.phi)))
    if settings.fine_tuning:
        problem.report("fine-tuning")
        reached = _soft_traversal(tree, problem.train.phi, slope)[0]
        tree = fine_tune(tree, problem.train, problem.validation, reached, l1_weight=problem.l1_weight, floor=FLOOR)
    return _finish(problem, tree, [solution.loss_history], solution.converged, slope)


def _train_refined(problem: Problem) -> Trained:
    settings, validation = problem.settings, problem.validation
    objective = problem.objective(gate_slope=STAGES[0][0])
    options: dict[str, Any] = {
        "solver": settings.solver,
        "max_iter": settings.max_iter,
        "tol": settings.tol,
        "report": problem.report,
    }
    parameters: NodeParameters = initialise(objective, **options)
    history = []
    for slope, sharpness in STAGES:
        problem.report(f"gates of slope {slope:g}, cost of sharpness {sharpness:g}")
        stage = objective.with_settings(gate_slope=slope, sharpness=sharpness)
        solution = solve(stage, parameters, **options)
        parameters = solution.parameters
        history.append(solution.loss_history)
    tree = HardTree.from_parameters(problem.shape, drop_small_weights(parameters, FLOOR), problem.loss.n_outputs)
    judges = validation.sampled(ELIMINATION_ROWS, settings.random_state)
    for _ in range(2):
        problem.report("elimination of items, refitting")
        tree = eliminate_items(tree, judges, problem.learner_items, problem.cost_weight)
        reached = tree.shape.paths[tree.terminals(problem.train.phi)].astype(float)
        tree = fine_tune(tree, problem.train, validation, reached, l1_weight=problem.l1_weight, floor=FLOOR)

    def judge(candidate: HardTree) -> float:
        return candidate.exact_loss(validation, problem.cost_weight)

    tree = prune(tree, judge)
    tree = min([tree, *problem.anchors()], key=judge)
    return _finish(problem, tree, history, solution.converged, STAGES[-1][0])


def _soft_traversal(tree: HardTree, phi: np.ndarray, slope: float) -> tuple[np.ndarray, np.ndarray]:
    return tree.shape.traverse_soft(expit(slope * (phi @ tree.route_weights - tree.thresholds)))


def _finish(problem: Problem, tree: HardTree, history: list[np.ndarray], converged: bool, slope: float) -> Trained:
    model = problem.to_model(tree)
    reached = problem.train.weights @ _soft_traversal(tree, problem.train.phi, slope)[1] / problem.train.weights.sum()
    return Trained(
        model=model,
        loss_history=history,
        converged=converged,
        reached=reached,
        anchors=[problem.to_model(anchor) for anchor in problem.anchors()],
    )
