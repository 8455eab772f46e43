"""The paper's loss, carried on to what is paid and predicted in the end; for plain inputs.

Training goes from the relaxation to the exact problem: gates are nearly hard, and the cost penalty bends from the norm
of the weights towards "paid or not".  Then columns are eliminated, predictors refitted and nodes pruned under hard
routing with the exact cost.  The tree must beat the constant prediction on validation data by risk + cost_weight *
exact cost.

With boosted trees `Experts` is the better way, so this is for ``weak_learners="identity"`` only.
"""

from __future__ import annotations

import numpy as np

from ..method import Problem, Trained
from ..model import TreeShape
from ..needs import needs_of
from ..parting import FEWEST_ROWS, Partition, part
from ..rows import folds_of
from .elimination import drop_idle_gates, eliminate, sets_by_item
from .features import Columns
from .fine_tuning import fine_tune
from .hard_tree import HardTree
from .method import TreeMethod
from .objective import NodeParameters, Prior
from .pruning import prune
from .solver import initialise, solve

__all__ = ["Exact"]

#: Slope of the gates (in standard deviations of the target) and sharpness of the cost, one stage after the other.
#: Gates are hard from the start: with soft ones the threshold drifts between groups that the leaves must tell apart.
STAGES = ((20.0, 0.0), (20.0, 3.0))
#: Where the thresholds start; the problem is not convex, and the exact loss on the training rows chooses.
STARTS = ("mean", "median")
NO_WEIGHT = 1e-9  # yet: zero would mean that a predictor may not use a column
PRIOR_ROWS = 10  # what is known before a node sees its rows counts as many
ELIMINATION_ROWS = 4000  # elimination judges many small changes; more rows than this do not change its mind


class Exact(TreeMethod):
    """The paper's loss, carried on to what is paid and predicted in the end.

    What `method="auto"` takes for plain inputs (`weak_learners="identity"`), and only for those.

    Parameters
    ----------
    depth : int, default=3
        Levels of classifiers in the tree.
    max_nodes : int or None, default=10
        At most so many classifiers, counted by breadth.
    l1_weight : float, default=0.0
        The paper's rho: strength of the l1 penalty on the weights of every node.
    solver : {"joint", "cyclic"}, default="joint"
        All nodes at once, or the paper's one node at a time.
    max_iter : int, default=1000
        Steps (joint) or sweeps (cyclic) at most, in every stage.
    tol : float, default=1e-5
        Stop when a step lowers the loss by less than this part of it.
    validation_fraction : float, default=0.2
        Part of the training data (whole queries for a ranker) that is held out when `fit` is given no validation data.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the inputs that the solver works on.

    Examples
    --------
    >>> from cstc import CSTCRegressor, Exact
    >>> from cstc.datasets import QUADRANT_COSTS, make_quadrants
    >>> X, y = make_quadrants(1200, random_state=0)
    >>> model = CSTCRegressor(
    ...     costs=QUADRANT_COSTS, cost_weight=0.03, weak_learners="identity", method=Exact(), random_state=0
    ... )
    >>> float(model.fit(X[:1000], y[:1000]).predict_cost(X[1000:]).mean())
    12.0
    """

    takes = ("identity",)

    def __init__(
        self,
        *,
        depth=3,
        max_nodes=10,
        l1_weight=0.0,
        solver="joint",
        max_iter=1000,
        tol=1e-5,
        validation_fraction=0.2,
        dtype="float64",
    ):
        self.depth = depth
        self.max_nodes = max_nodes
        self.l1_weight = l1_weight
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.validation_fraction = validation_fraction
        self.dtype = dtype

    def train(self, problem: Problem) -> Trained:
        columns, shape = self._start(problem)
        cost_weight, _ = self._weights(problem, columns)
        # 1. the relaxed problem from each start, made exact; the exact loss at the training rows chooses
        candidates, history, converged = [], [], True
        for start in STARTS:
            parameters, stages, finished = self._relaxed(problem, columns, shape, start)
            history += [columns.units.risk(stage) for stage in stages]
            converged = converged and finished
            candidates.append(self._made_exact(problem, columns, shape, parameters))
        candidates += self._by_groups(problem, columns)
        tree = min(candidates, key=lambda candidate: candidate.exact_loss(columns.train, cost_weight))
        # 2. pruning by the exact loss; gates that all rows pass one way
        judges = columns.validation
        tree = prune(tree, lambda candidate: candidate.exact_loss(judges, cost_weight))
        tree = drop_idle_gates(tree, np.concatenate([columns.train.phi, judges.phi]))
        # 3. the constant, unless the tree is clearly better
        constant = HardTree.single(np.zeros((columns.n_columns, problem.loss.n_outputs)), columns.constant)
        if not _beats(columns, tree, constant, cost_weight):
            tree = constant
        return self._trained(columns, tree, STAGES[-1][0], history, converged)

    def _relaxed(
        self, problem: Problem, columns: Columns, shape: TreeShape, start: str
    ) -> tuple[NodeParameters, list[np.ndarray], bool]:
        """The relaxed problem, from one kind of start through all stages."""
        cost_weight, l1_weight = self._weights(problem, columns)
        options = self._solver_options(problem)
        objective = columns.objective(
            shape,
            cost_weight,
            l1_weight=l1_weight,
            gate_slope=STAGES[0][0],
            prior=_prior(columns),
            dtype=np.dtype(self.dtype).type,
        )
        parameters = initialise(objective, threshold=start, **options)
        history, converged = [], True
        for slope, sharpness in STAGES:
            problem.report(f"start at the {start}, gates of slope {slope:g}, cost of sharpness {sharpness:g}")
            solution = solve(objective.with_settings(gate_slope=slope, sharpness=sharpness), parameters, **options)
            parameters, converged = solution.parameters, converged and solution.converged
            history.append(solution.loss_history)
        return parameters, history, converged

    def _by_groups(self, problem: Problem, columns: Columns) -> list[HardTree]:
        """A tree whose gates part rows by what they need, made exact; none if they seem to need the same.

        A relaxed gate only parts rows whose targets differ, and where cheap features say nothing but which of the
        expensive ones matters, they do not.
        """
        loss, rows = problem.loss, columns.train.rows
        if "parted" not in problem.shared:
            risk = loss.risk(np.tile(columns.constant, (len(rows), 1)), rows.y, rows.weights)
            unit, found = problem.costs.unit_of_weight(risk), []
            if unit and len(rows) >= FEWEST_ROWS:
                problem.report("what rows need")
                half = folds_of(rows, 2, problem.random_state) == 0
                needs = needs_of(problem.boosting.starting_at(rows), rows, half, loss)
                found = part(needs, unit, np.arange(rows.X.shape[1]), ())
            problem.shared["parted"] = [each.partition for each in found]
        for partition in problem.shared["parted"]:
            tree = _parted(columns, partition)
            if tree.shape.depths.max() < self.depth and tree.shape.n_nodes <= (self.max_nodes or tree.shape.n_nodes):
                return [self._eliminated(problem, columns, self._refit(problem, columns, tree))]
        return []

    def _refit(self, problem: Problem, columns: Columns, tree: HardTree) -> HardTree:
        """Every predictor on the rows that hard routing brings to it."""
        _, l1_weight = self._weights(problem, columns)
        return fine_tune(
            tree,
            columns.train,
            columns.validation,
            tree.shape.paths[tree.terminals(columns.train.phi)].astype(float),
            l1_weight=l1_weight,
            prior=_prior(columns),
            floor=columns.floor,
        )

    def _made_exact(
        self, problem: Problem, columns: Columns, shape: TreeShape, parameters: NodeParameters
    ) -> HardTree:
        """Exact support, elimination and refitting under hard routing."""
        if any(self._weights(problem, columns)):  # else every contribution counts
            parameters = columns.exact_support(parameters)
        return self._eliminated(problem, columns, HardTree.from_parameters(shape, parameters, problem.loss.n_outputs))

    def _eliminated(self, problem: Problem, columns: Columns, tree: HardTree) -> HardTree:
        """Elimination and refitting under hard routing."""
        cost_weight, _ = self._weights(problem, columns)
        judges = columns.train.sampled(ELIMINATION_ROWS, problem.random_state)
        sets = sets_by_item(columns.column_items, problem.costs.prices)
        for _ in range(2):
            problem.report("elimination, refitting")
            problem.progress.begin("elimination, refitting", 0.0)
            tree = self._refit(problem, columns, eliminate(tree, judges, sets, cost_weight))
        return tree


def _parted(columns: Columns, partition: Partition) -> HardTree:
    """Gates that part rows, and a predictor for each group, of no weight yet, that may use all columns."""
    n_splits, n_columns = partition.splits.n_learners, columns.n_columns
    shape = TreeShape.from_parents(*partition.parents())
    roots = partition.splits.roots
    column = partition.splits.feature[roots]
    threshold = (partition.splits.threshold[roots] - columns.offset[column]) / columns.scale
    route, thresholds = np.zeros((n_columns, shape.n_nodes)), np.zeros(shape.n_nodes)
    route[column, np.arange(n_splits)] = -1.0  # what is at most the threshold goes up
    thresholds[:n_splits] = -threshold
    n_outputs = columns.loss.n_outputs
    predict = np.full((n_columns, shape.n_nodes, n_outputs), NO_WEIGHT)
    return HardTree(shape, route, thresholds, predict, np.tile(columns.constant, (shape.n_nodes, 1)))


def _prior(columns: Columns) -> Prior | None:
    """Nodes that few rows reach stay near the constant, as if it had been confirmed by some rows."""
    loss = columns.loss
    if not loss.has_classes:
        return None  # a plain least squares problem has a finite solution, and nothing is known beforehand
    n_columns = loss.n_outputs + (loss.n_outputs > 1)  # a gate of its own beside several outputs
    intercepts = np.zeros(n_columns)
    intercepts[: loss.n_outputs] = columns.constant
    weights = columns.train.weights
    n_effective = weights.sum() ** 2 / (weights**2).sum()
    return Prior(np.zeros((columns.n_columns, n_columns)), intercepts, PRIOR_ROWS / n_effective * loss.curvature / 2.0)


def _beats(columns: Columns, tree: HardTree, constant: HardTree, cost_weight: float) -> bool:
    """Whether the tree beats the constant on validation data by more than two standard errors.

    The error is that of the paired difference.  On small data the best of several candidates is often the luckiest,
    and these rows have already stopped the refitting and pruned the tree.
    """
    judges = columns.validation
    weights = judges.weights / judges.weights.sum()
    losses = [candidate.row_losses(judges, cost_weight) for candidate in (constant, tree)]
    gain = losses[0] - losses[1]
    mean = float(weights @ gain)
    return mean > 2.0 * float(np.sqrt(weights**2 @ (gain - mean) ** 2))
