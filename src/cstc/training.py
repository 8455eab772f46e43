"""From data to a fitted tree: the choice of a method, and the two that minimise the paper's loss.

``method="experts"`` (the default with boosted trees)
    See `cascade`.

``method="paper"``
    Boosted trees without regard to cost, each a column of ``Phi``; top-down start; the global loss with gates of
    slope 1; pruning by the task's metric on validation data; fine-tuning with soft traversal probabilities,
    stopped on validation data.

``method="refined"`` (the default with plain inputs)
    The same loss, carried on to what is paid and predicted in the end.  Columns of ``Phi`` are whole ensembles, grown
    with the prices in mind at several strengths from dear to cheap, and cross-fitted.  Training goes from the
    relaxation to the exact problem in stages: gates are nearly hard, and the cost penalty bends from the norm of
    the weights towards "paid or not".  Then columns are eliminated, predictors refitted and nodes pruned under hard
    routing with the exact cost.  Each ensemble alone, as a tree of one node, is always among the candidates, and
    the tree must beat the best of them on validation data by risk + cost_weight * exact cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import expit

from .cascade import folds_of, train_experts
from .costs import ResolvedCosts
from .hard_tree import HardTree, Rows
from .model import FittedTree, Schema
from .objective import DenseDesign, NodeParameters, Penalty, Prior, TreeObjective
from .pruning import drop_idle_gates, prune
from .refinement import column_sets, drop_small_weights, eliminate, fine_tune
from .settings import Sample, Settings, Trained
from .solver import initialise, solve
from .tree import TreeShape
from .weak_learners import Boosting, Phi, WeakLearners, cross_fit, grow, identity_weak_learners

__all__ = ["METHODS", "Ensembles", "Sample", "Settings", "Trained", "train"]

METHODS = ("auto", "experts", "refined", "paper")
#: Columns that were grown for other fits to the same rows: cross-fitted ones by the strength of the prices, those
#: without cross-fitting by all strengths together.
Ensembles = dict[Any, tuple[WeakLearners, Any]]
#: Stages of the refined method: slope of the gates (in standard deviations of the target) and sharpness of the cost.
#: Gates are hard from the start: with soft ones the threshold drifts between groups that the leaves must tell apart.
STAGES = ((20.0, 0.0), (20.0, 3.0))
#: Where the thresholds start; the problem is not convex, and the exact loss on the training rows chooses.
STARTS = ("mean", "median")
FLOOR = 1e-3  # of a standard deviation of the target: a smaller contribution does not count
PRIOR_ROWS = 10  # what is known before a node sees its rows counts as many
ELIMINATION_ROWS = 4000  # elimination judges many small changes; more rows than this do not change its mind


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
    column_items: np.ndarray  # (n_columns, n_items): which items a column needs, or for what share of the rows
    train: Rows
    validation: Rows
    offset: np.ndarray
    scale: np.ndarray
    y_offset: float
    y_scale: float
    constant: np.ndarray
    schema: Schema
    cross_fitted: bool
    report: Callable[[str], None]
    prior: Prior | None = None

    @property
    def cost_weight(self) -> float:
        return self.settings.cost_weight / self.y_scale**2

    @property
    def l1_weight(self) -> float:
        return self.settings.l1_weight / self.y_scale**2

    @property
    def floors(self) -> np.ndarray:
        """For each column, the weight below which its contribution does not count; zero where nothing costs."""
        if not self.cost_weight and not self.l1_weight:
            return np.zeros(self.learners.n_columns)
        return FLOOR / np.where(self.spread > 0, self.spread, 1.0)

    @cached_property
    def spread(self) -> np.ndarray:
        """Standard deviation of each column; they are centred."""
        return np.sqrt(np.average(self.train.phi**2, axis=0, weights=self.train.weights))

    @property
    def floor(self) -> float:
        """The floor of the auxiliary variables of Lemma 1, in the units of a typical weight."""
        spread = self.spread[self.spread > 0]
        return FLOOR / float(np.median(spread)) if len(spread) else FLOOR

    @property
    def shape(self) -> TreeShape:
        return TreeShape.full(self.settings.depth, self.settings.max_nodes)

    def objective(self, gate_slope: float) -> TreeObjective:
        penalty = Penalty(
            learner_items=self.column_items.astype(float),
            prices=self.costs.prices,
            evaluation=self.train.evaluation,
            cost_weight=self.cost_weight,
            l1_weight=self.l1_weight,
            floor=self.floor,
        )
        design = DenseDesign(self.train.phi.astype(self.settings.dtype, copy=False))
        return TreeObjective(
            design, self.train.y, self.train.weights, self.loss, self.shape, penalty, gate_slope, self.prior
        )

    def to_model(self, tree: HardTree) -> FittedTree:
        return tree.to_model(
            self.learners,
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
        """The constant, and each boosted ensemble itself, as trees of one node."""
        nothing = np.zeros((self.learners.n_columns, self.loss.n_outputs))
        trees = [HardTree.single(nothing, self.constant)]
        for ensemble in range(self.learners.n_ensembles):
            weights = self.learners.anchor(ensemble)
            trees.append(HardTree.single(weights * self.scale[:, None], self.constant + self.offset @ weights))
        return trees


def train(
    sample: Sample,
    validation: Sample | None,
    held_out: np.ndarray,
    loss: Any,
    costs: ResolvedCosts,
    schema: Schema,
    settings: Settings,
    report: Callable[[str], None] = lambda text: None,
    ensembles: Ensembles | None = None,
    start: NodeParameters | None = None,
) -> Trained:
    """Fit a tree of classifiers.

    `held_out` (bool per row of `sample`) stands in for `validation` where that is None.  `ensembles` keeps what was
    grown for other fits to the same rows, prices and settings but the cost weight; `start`, the solution of such a
    fit, takes the place of the paper's top-down start.
    """
    ensembles = {} if ensembles is None else ensembles
    if settings.method == "experts":
        return train_experts(sample, loss, costs, schema, settings, report, ensembles)
    problem = _set_up(sample, validation, held_out, loss, costs, schema, settings, report, ensembles)
    if settings.method == "paper":
        return _train_paper(problem, start)
    return _train_refined(problem)


def _set_up(sample, validation, held_out, loss, costs, schema, settings, report, ensembles) -> Problem:
    y_offset, y_scale = 0.0, 1.0
    if loss.name == "squared":
        y_offset, y_scale = sample.units()
        sample = sample.in_units(y_offset, y_scale)
        validation = None if validation is None else validation.in_units(y_offset, y_scale)
    constant = loss.constant(sample.y, sample.weights)
    report("weak learners")
    learners, (train_part, train_phi), (val_part, val_phi), cross_fitted = _learn_columns(
        sample, validation, held_out, loss, constant, costs, settings, y_scale, ensembles
    )
    # the paper's learners and plain inputs keep their own scale, only the units of the target are taken out; whole
    # ensembles are brought to one scale, so that the mixed norm charges equal contributions alike
    offset = np.average(train_phi.values, axis=0, weights=train_part.weights)
    scale = np.full(learners.n_columns, y_scale if settings.weak_learners == "identity" else 1.0)
    column_items = learners.column_items(costs).astype(float)
    if settings.method != "paper" and settings.weak_learners != "identity":
        spread = np.sqrt(np.average((train_phi.values - offset) ** 2, axis=0, weights=train_part.weights))
        scale = np.where(spread > 1e-12, spread, 1.0)
        bought = np.unpackbits(train_phi.bits.view(np.uint8), axis=2, count=costs.n_items)
        column_items = np.tensordot(train_part.weights / train_part.weights.sum(), bought, axes=1)
    evaluation = costs.evaluation * learners.trees_per_column

    def rows(part: Sample, phi: Phi) -> Rows:
        values = (phi.values - offset) / scale
        return Rows(values, phi.bits, part.y, part.weights, loss, costs.prices, evaluation, part.qid)

    return Problem(
        settings=settings,
        loss=loss,
        costs=costs,
        learners=learners,
        column_items=column_items,
        train=rows(train_part, train_phi),
        validation=rows(val_part, val_phi),
        offset=offset,
        scale=scale,
        y_offset=y_offset,
        y_scale=y_scale,
        constant=constant,
        schema=schema,
        cross_fitted=cross_fitted,
        report=report,
    )


def _learn_columns(
    sample: Sample,
    validation: Sample | None,
    held_out: np.ndarray,
    loss: Any,
    constant: np.ndarray,
    costs: ResolvedCosts,
    settings: Settings,
    y_scale: float,
    ensembles: Ensembles,
) -> tuple[WeakLearners, tuple[Sample, Phi], tuple[Sample, Phi], bool]:
    """Weak learners, their columns at the rows that teach the tree and at those that judge it; whether cross-fitted."""
    kept = np.flatnonzero(~held_out)
    boosting = Boosting(
        loss_name=loss.name,
        constant=constant,
        costs=costs,
        # without a cost weight all strengths are one
        strengths=list(dict.fromkeys(s * settings.cost_weight / y_scale**2 for s in settings.cost_strengths)),
        n_rounds=settings.n_weak_learners,
        depth=settings.weak_learner_depth,
        learning_rate=settings.learning_rate,
        early_stopping=settings.early_stopping,
        categorical=settings.categorical,
        random_state=settings.random_state,
        n_jobs=settings.n_jobs,
    )
    folds = folds_of(sample, settings.cross_fit, settings.random_state)
    if settings.weak_learners == "boosted" and len(np.unique(folds)) > 1:
        # cross-fitted columns are honest at every row, so rows held out for the tree still teach the ensembles
        learners, phi = _cross_fitted(boosting, sample, folds, ensembles)
        if validation is not None:
            return learners, (sample, phi), (validation, learners.transform(validation.X, costs)), True
        parts = [(sample.take(at), Phi(phi.values[at], phi.bits[at])) for at in (kept, np.flatnonzero(held_out))]
        return learners, parts[0], parts[1], True
    train_part = sample if validation is not None else sample.take(kept)
    val_part = validation if validation is not None else sample.take(np.flatnonzero(held_out))
    if settings.weak_learners == "identity":
        learners = identity_weak_learners(sample.X.shape[1], loss.n_outputs)
        train_phi, val_phi = (learners.transform(part.X, costs) for part in (train_part, val_part))
    else:
        learners, (train_phi, val_phi) = _in_sample(boosting, train_part, val_part, settings.method, ensembles)
    return learners, (train_part, train_phi), (val_part, val_phi), False


def _in_sample(
    boosting: Boosting, train_part: Sample, val_part: Sample, method: str, ensembles: Ensembles
) -> tuple[WeakLearners, tuple[Phi, Phi]]:
    """Columns for all strengths, grown on the rows that they are weighed on; the paper's are one for all weights."""
    key = tuple(boosting.strengths)
    if key not in ensembles:
        learners = grow(
            boosting,
            train_part.X,
            train_part.y,
            train_part.weights,
            validation=(val_part.X, val_part.y, val_part.weights),
            per_tree=method == "paper",
        )
        ensembles[key] = learners, tuple(learners.transform(part.X, boosting.costs) for part in (train_part, val_part))
    return ensembles[key]


def _cross_fitted(
    boosting: Boosting, sample: Sample, folds: np.ndarray, ensembles: Ensembles
) -> tuple[WeakLearners, Phi]:
    """Columns for all strengths; an ensemble that is already there is not grown again."""
    rows = (sample.X, sample.y, sample.weights)
    for strength in boosting.strengths:
        if strength not in ensembles:
            one = replace(boosting, strengths=[strength])
            phi, rounds = cross_fit(one, *rows, folds)
            ensembles[strength] = grow(one, *rows, n_rounds=rounds), phi
    found = [ensembles[strength] for strength in boosting.strengths]
    values = np.concatenate([phi.values for _, phi in found], axis=1)
    bits = np.concatenate([phi.bits for _, phi in found], axis=1)
    return WeakLearners.join([learners for learners, _ in found]), Phi(values, bits)


def _train_paper(problem: Problem, start: NodeParameters | None) -> Trained:
    settings = problem.settings
    slope = problem.y_scale  # the paper's sigmoid has slope 1 in units of the label
    objective = problem.objective(gate_slope=slope)
    options: dict[str, Any] = _solver_options(problem)
    solution = solve(objective, initialise(objective, **options) if start is None else start, **options)
    parameters = drop_small_weights(solution.parameters, problem.floors)
    tree = HardTree.from_parameters(problem.shape, parameters, problem.loss.n_outputs)
    if settings.pruning:
        problem.report("pruning")
        tree = prune(tree, lambda t: problem.validation.error(t.margins(problem.validation.phi)))
    if settings.fine_tuning:
        problem.report("fine-tuning")
        reached = _soft_traversal(tree, problem.train.phi, slope)[0]
        tree = fine_tune(
            tree, problem.train, problem.validation, reached, l1_weight=problem.l1_weight, floor=problem.floor
        )
    trained = _finish(problem, tree, [solution.loss_history], solution.converged, slope)
    return replace(trained, solution=solution.parameters)


def _train_refined(problem: Problem) -> Trained:
    single = _best_single(problem)
    problem = replace(problem, prior=_prior(problem, single))
    validation = problem.validation
    candidates, history, converged = [], [], True
    for start in STARTS:
        parameters, stages, finished = _relaxed(problem, start)
        history.extend(stages)
        converged = converged and finished
        candidates.append(_made_exact(problem, parameters))
    tree = min(candidates, key=lambda candidate: candidate.exact_loss(problem.train, problem.cost_weight))

    def judge(candidate: HardTree) -> float:
        return candidate.exact_loss(validation, problem.cost_weight)

    tree = drop_idle_gates(prune(tree, judge), np.concatenate([problem.train.phi, validation.phi]))
    if not _beats(problem, tree, single):
        tree = single
    return _finish(problem, tree, history, converged, STAGES[-1][0])


def _relaxed(problem: Problem, start: str) -> tuple[NodeParameters, list[np.ndarray], bool]:
    """The relaxed problem, from one kind of start through all stages."""
    options = _solver_options(problem)
    objective = problem.objective(gate_slope=STAGES[0][0])
    parameters = initialise(objective, threshold=start, **options)
    history, converged = [], True
    for slope, sharpness in STAGES:
        problem.report(f"start at the {start}, gates of slope {slope:g}, cost of sharpness {sharpness:g}")
        solution = solve(objective.with_settings(gate_slope=slope, sharpness=sharpness), parameters, **options)
        parameters, converged = solution.parameters, converged and solution.converged
        history.append(solution.loss_history)
    return parameters, history, converged


def _made_exact(problem: Problem, parameters: NodeParameters) -> HardTree:
    """Exact support, elimination and refitting under hard routing."""
    tree = HardTree.from_parameters(
        problem.shape, drop_small_weights(parameters, problem.floors), problem.loss.n_outputs
    )
    judges = problem.train.sampled(ELIMINATION_ROWS, problem.settings.random_state)
    sets = column_sets(problem.column_items > 0, problem.costs.prices, problem.learners.ensemble)
    for _ in range(2):
        problem.report("elimination, refitting")
        tree = eliminate(tree, judges, sets, problem.cost_weight)
        reached = tree.shape.paths[tree.terminals(problem.train.phi)].astype(float)
        tree = fine_tune(
            tree,
            problem.train,
            problem.validation,
            reached,
            l1_weight=problem.l1_weight,
            prior=problem.prior,
            floor=problem.floor,
        )
    return tree


def _best_single(problem: Problem) -> HardTree:
    """The best tree of one node: a constant, or an ensemble as it is.

    Judged on all rows where the columns are honest: cross-fitted, or of rows that taught nothing.
    """
    parts = [problem.validation] + ([problem.train] if problem.cross_fitted else [])
    total = sum(part.weights.sum() for part in parts)

    def loss(candidate: HardTree) -> float:
        return sum(part.weights @ candidate.row_losses(part, problem.cost_weight) for part in parts) / total

    return min(problem.anchors(), key=loss)


def _prior(problem: Problem, single: HardTree) -> Prior | None:
    """Nodes that few rows reach stay near the best single ensemble, as if it had been confirmed by some rows."""
    if problem.loss.name == "squared" and not problem.learners.n_ensembles:
        return None  # a plain least squares problem has a finite solution, and nothing is known beforehand
    n_outputs, n_columns = problem.loss.n_outputs, problem.objective(1.0).n_columns
    weights, intercepts = np.zeros((problem.learners.n_columns, n_columns)), np.zeros(n_columns)
    weights[:, :n_outputs] = single.predict_weights[:, 0]
    intercepts[:n_outputs] = single.predict_intercepts[0]
    n_effective = problem.train.weights.sum() ** 2 / (problem.train.weights**2).sum()
    return Prior(weights, intercepts, PRIOR_ROWS / n_effective * problem.loss.curvature / 2.0)


def _beats(problem: Problem, tree: HardTree, single: HardTree) -> bool:
    """Whether the tree beats the single ensemble on validation data by more than two standard errors.

    The error is that of the paired difference.  On small data the best of several candidates is often the luckiest,
    and these rows have already stopped the refitting and pruned the tree.
    """
    weights = problem.validation.weights / problem.validation.weights.sum()
    losses = [candidate.row_losses(problem.validation, problem.cost_weight) for candidate in (single, tree)]
    gain = losses[0] - losses[1]
    mean = float(weights @ gain)
    return mean > 2.0 * float(np.sqrt(weights**2 @ (gain - mean) ** 2))


def _solver_options(problem: Problem) -> dict[str, Any]:
    settings = problem.settings
    return {
        "solver": settings.solver,
        "max_iter": settings.max_iter,
        "tol": settings.tol,
        "report": problem.report,
    }


def _soft_traversal(tree: HardTree, phi: np.ndarray, slope: float) -> tuple[np.ndarray, np.ndarray]:
    return tree.shape.traverse_soft(expit(slope * (phi @ tree.route_weights - tree.thresholds)))


def _finish(problem: Problem, tree: HardTree, history: list[np.ndarray], converged: bool, slope: float) -> Trained:
    reached = problem.train.weights @ _soft_traversal(tree, problem.train.phi, slope)[1]
    return Trained(problem.to_model(tree), history, converged, reached / problem.train.weights.sum())
