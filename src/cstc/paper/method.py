"""The paper's procedure, from data to model.

1. Boosted trees without regard to cost, each a column of ``Phi`` (`features`), or the inputs themselves.
2. A top-down start, then the global loss (`objective`) with the cyclic solver (`solver`): soft routing, relaxed cost.
3. Pruning by the task's metric on validation data (`pruning`), under hard routing (`hard_tree`).
4. Fine-tuning with soft traversal probabilities, stopped on validation data (`fine_tuning`).
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from ..method import Method, Preview, Problem, Trained
from ..model import TreeShape
from .features import FLOOR, Columns, learn_columns
from .fine_tuning import fine_tune
from .hard_tree import HardTree
from .objective import NodeParameters
from .pruning import prune
from .solver import SOLVERS, initialise, solve

__all__ = ["Paper", "TreeMethod"]

DTYPES = ("float64", "float32")
#: A plain input counts at a node if its contribution, squared, is worth this part of its price.  Else, where a leaf
#: is worth a feature the node above it nearly is, too.  Chosen on validation data of the synthetic experiment.
LEAST_WORTH = 0.04


class TreeMethod(Method):
    """What the paper's procedure and its exact form share: a full tree over columns, and rows that judge it."""

    depth: Any
    max_nodes: Any
    l1_weight: Any
    solver: Any
    max_iter: Any
    tol: Any
    validation_fraction: Any
    dtype: Any

    def check(self) -> None:
        self._check_numbers("l1_weight", "tol")
        self._check_counts("depth", "max_iter")
        self._check_counts("max_nodes", or_none=True)
        self._check_choice("solver", SOLVERS)
        self._check_choice("dtype", DTYPES)
        fraction = self.validation_fraction
        if not isinstance(fraction, Real) or not 0 < float(fraction) < 1:
            raise ValueError(f"validation_fraction is {fraction!r}; it must be above 0 and below 1")

    def n_ensembles(self, shared: dict[str, Any]) -> int:
        return int("columns" in shared and shared["columns"].pool.depth > 0)  # plain inputs are not grown

    def preview(self, problem: Problem) -> Preview:
        """Training all the way: what a tree costs is known when it is pruned.  Rows that are held out judge it."""
        trained = self.train(problem)
        judges = learn_columns(problem, self.validation_fraction).validation.rows
        costs = trained.model.charge(trained.model.walk(judges.X, items=True))
        return Preview(judges, costs, lambda: trained)

    def _start(self, problem: Problem) -> tuple[Columns, TreeShape]:
        """The columns, and the shape of the full tree."""
        columns = learn_columns(problem, self.validation_fraction)
        n_rows, n_nodes = len(columns.train.rows), min(2**self.depth - 1, self.max_nodes or 2**self.depth)
        if n_rows < n_nodes:
            raise ValueError(
                f"{n_rows} training rows are fewer than the {n_nodes} nodes of the tree; "
                "give more rows, or a smaller depth or max_nodes"
            )
        return columns, TreeShape.full(self.depth, self.max_nodes)

    def _weights(self, problem: Problem, columns: Columns) -> tuple[float, float]:
        """Cost weight and l1 weight for standard targets."""
        units = columns.units
        return units.standard_weight(problem.cost_weight), units.standard_weight(float(self.l1_weight))

    def _solver_options(self, problem: Problem) -> dict[str, Any]:
        return {"solver": self.solver, "max_iter": self.max_iter, "tol": self.tol, "progress": problem.progress}

    def _trained(
        self, columns: Columns, tree: HardTree, slope: float, history: list[np.ndarray], converged: bool, **more: Any
    ) -> Trained:
        reached = columns.train.weights @ tree.traverse_soft(columns.train.phi, slope)[1]
        return Trained(columns.to_model(tree), history, converged, reached / columns.train.weights.sum(), **more)


class Paper(TreeMethod):
    """The paper's procedure, letter by letter.

    The paper does not say when a weight counts as zero, which exact cost and fine-tuning need.  Here a learner leaves a
    node if it contributes less than 0.001 standard deviations of the target, and a plain input also if its
    contribution, squared, is less than 0.04 of its price; that number was chosen on the synthetic experiment.

    Parameters
    ----------
    depth : int, default=3
        Levels of classifiers in the tree.
    max_nodes : int or None, default=10
        At most so many classifiers, counted by breadth.
    l1_weight : float, default=0.0
        The paper's rho: strength of the l1 penalty on the weights of every node.
    gate_slope : float, default=1.0
        Slope of the sigmoids that route softly in training, in the units of the target; the paper has 1.  Groups of
        rows whose targets differ by less than a few times its inverse leak into each other.
    solver : {"cyclic", "joint"}, default="cyclic"
        The paper's one node at a time, or all nodes at once.
    max_iter : int, default=1000
        Sweeps (cyclic) or steps (joint) at most.
    tol : float, default=1e-5
        Stop when a step lowers the loss by less than this part of it.
    pruning : bool, default=True
        Prune the tree on validation data.
    fine_tuning : bool, default=True
        Fine-tune the predictive classifiers.
    validation_fraction : float, default=0.2
        Part of the training data (whole queries for a ranker) that is held out when `fit` is given no validation data.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the learner outputs that the solver works on.  Boosted trees take no less memory with the second:
        they are kept as codes of leaves, and sums of what these give are in double precision.

    References
    ----------
    Xu, Kusner, Weinberger, Chen: Cost-Sensitive Tree of Classifiers. ICML 2013.

    Examples
    --------
    >>> from cstc import CSTCRegressor, Paper
    >>> from cstc.datasets import QUADRANT_COSTS, make_quadrants
    >>> X, y = make_quadrants(1200, means=(60, 20, -20, -60), random_state=0)
    >>> model = CSTCRegressor(
    ...     costs=QUADRANT_COSTS, cost_weight=0.12, weak_learners="identity", method=Paper(), random_state=0
    ... )
    >>> model = model.fit(X[:1000], y[:1000])
    >>> round(model.score(X[1000:], y[1000:]), 3), round(float(model.predict_cost(X[1000:]).mean()), 2)
    (1.0, 12.0)
    """

    def __init__(
        self,
        *,
        depth=3,
        max_nodes=10,
        l1_weight=0.0,
        gate_slope=1.0,
        solver="cyclic",
        max_iter=1000,
        tol=1e-5,
        pruning=True,
        fine_tuning=True,
        validation_fraction=0.2,
        dtype="float64",
    ):
        self.depth = depth
        self.max_nodes = max_nodes
        self.l1_weight = l1_weight
        self.gate_slope = gate_slope
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.pruning = pruning
        self.fine_tuning = fine_tuning
        self.validation_fraction = validation_fraction
        self.dtype = dtype

    def check(self) -> None:
        super().check()
        if not isinstance(self.gate_slope, Real) or not 0 < float(self.gate_slope) < np.inf:
            raise ValueError(f"gate_slope is {self.gate_slope!r}; it must be a finite number above 0")
        for name in ("pruning", "fine_tuning"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be True or False")

    def train(self, problem: Problem) -> Trained:
        # 1. columns of Phi
        columns, shape = self._start(problem)
        cost_weight, l1_weight = self._weights(problem, columns)
        # 2. the global loss; standard margins are this much smaller than those of the user
        slope = float(self.gate_slope) * columns.units.scale
        objective = columns.objective(
            shape, cost_weight, l1_weight=l1_weight, gate_slope=slope, dtype=np.dtype(self.dtype).type
        )
        options = self._solver_options(problem)
        start: NodeParameters = initialise(objective, **options) if problem.start is None else problem.start
        solution = solve(objective, start, **options)
        weighed = bool(cost_weight or l1_weight)  # where nothing costs, every contribution counts
        least = _least_contribution(problem, cost_weight)
        parameters = columns.exact_support(solution.parameters, least) if weighed else solution.parameters
        tree = HardTree.from_parameters(shape, parameters, problem.loss.n_outputs)
        # 3. pruning
        judges = columns.validation
        if self.pruning:
            problem.report("pruning")
            problem.progress.begin("pruning", 0.0)
            tree = prune(tree, lambda candidate: judges.error(candidate.margins(judges.phi)))
        # 4. fine-tuning
        if self.fine_tuning:
            problem.report("fine-tuning")
            problem.progress.begin("fine-tuning", 0.0)
            reached = tree.traverse_soft(columns.train.phi, slope)[0]
            tree = fine_tune(tree, columns.train, judges, reached, l1_weight=l1_weight, floor=columns.floor)
        history = [columns.units.risk(solution.loss_history)]
        return self._trained(columns, tree, slope, history, solution.converged, solution=solution.parameters)


def _least_contribution(problem: Problem, cost_weight: float) -> np.ndarray | float:
    """How large a contribution must be to count, in standard deviations of the target.

    A contribution of standard deviation s lowers the risk by s^2 at most, for a price of cost_weight * c.
    """
    if problem.weak_learners != "identity":
        return FLOOR
    return np.maximum(FLOOR, np.sqrt(LEAST_WORTH * cost_weight * problem.costs.feature_prices))
