"""Random shapes, problems, pools and models that the tests share."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from cstc.boosting import Boosting
from cstc.costs import ResolvedCosts
from cstc.losses import LogisticLoss, SoftmaxLoss, SquaredLoss
from cstc.method import Problem
from cstc.model import FittedTree, Schema, TreePool, TreeShape
from cstc.paper.codes import leaf_table, phi_and_codes
from cstc.paper.features import Columns, Seen
from cstc.paper.hard_tree import HardTree
from cstc.paper.objective import Design, NodeParameters, Penalty, Prior, TreeObjective
from cstc.rows import Rows, Units

PROPERTY = settings(max_examples=30, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32 - 1)

LOSSES = {"squared": SquaredLoss(), "logistic": LogisticLoss(), "softmax": SoftmaxLoss(3)}

SHAPES = {
    "leaf": TreeShape.full(1),
    "full of depth 2": TreeShape.full(2),
    "full of depth 4": TreeShape.full(4),
    "cut by breadth": TreeShape.full(4, max_nodes=10),
    "pruned": TreeShape.full(4).prune(4).prune(2),
    "one-sided": TreeShape.full(3).prune(1),
    "chain": TreeShape.chain(4),
}

each_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())

N_FEATURES = 6
CATEGORICAL = N_FEATURES - 1  # the last column holds codes of categories
N_CATEGORIES = 5


def random_shape(rng, depth=4):
    """A full tree or a chain of at most `depth` levels, from which some subtrees may have been pruned."""
    if rng.random() < 0.2:
        return TreeShape.chain(int(rng.integers(1, depth + 1)))
    shape = TreeShape.full(int(rng.integers(2, depth + 1)))
    for _ in range(rng.integers(0, 4)):
        if shape.n_nodes > 1:
            shape = shape.prune(int(rng.integers(1, shape.n_nodes)))
    return shape


def renumbered(rng, shape):
    """The same tree under another order of its nodes, parents still first, and the old number of each new node."""
    order, waiting = [], [0]
    while waiting:
        node = waiting.pop(int(rng.integers(len(waiting))))
        order.append(node)
        waiting += [child for child in {int(shape.upper[node]), int(shape.lower[node])} if child >= 0]
    parents = [order.index(shape.parents[node]) if node else -1 for node in order]
    is_upper = [bool(node and shape.upper[shape.parents[node]] == node) for node in order]
    return TreeShape.from_parents(parents, is_upper), np.array(order)


def descendants(shape, node):
    """The nodes strictly below `node`."""
    return np.flatnonzero(shape.node_paths[:, node] & (np.arange(shape.n_nodes) != node))


# --------------------------------------------------------------------------------- soft problems


def traversal(objective, parameters):
    """Soft traversal probabilities of nodes and terminals."""
    return objective.shape.traverse_soft(objective.gates(objective.margins(parameters), parameters.thresholds))


def random_targets(rng, loss, n):
    if loss.name == "squared":
        return rng.normal(size=n)
    return rng.integers(0, 2 if loss.name == "logistic" else loss.n_outputs, size=n)


def random_penalty(rng, n_learners, n_items=4, **changes):
    """Prices, evaluation costs that differ, and items that several learners share."""
    learner_items = (rng.random((n_learners, n_items)) < 0.5).astype(float)
    learner_items[:, 0] = 1.0
    settings = dict(prices=rng.uniform(0.5, 3, n_items), cost_weight=0.3, l1_weight=0.05) | changes
    evaluation = settings.pop("evaluation", 1.0) * rng.uniform(0.1, 1, n_learners)
    return Penalty(learner_items=learner_items, evaluation=evaluation, **settings)


def random_objective(rng, shape, loss, *, n=25, n_learners=5, dtype=float, gate_slope=1.7, **penalty):
    return TreeObjective(
        Design(rng.normal(size=(n, n_learners)).astype(dtype)),
        random_targets(rng, loss, n),
        rng.uniform(0.2, 2, n),
        loss,
        shape,
        random_penalty(rng, n_learners, **penalty),
        gate_slope,
    )


def changed(objective, **changes):
    """The same problem but for what is named."""
    names = ("design", "y", "loss", "shape", "penalty", "gate_slope", "prior")
    same = {name: getattr(objective, name) for name in names} | {"sample_weight": objective.row_weights}
    return TreeObjective(**(same | changes))


def random_parameters(rng, objective):
    """Parameters away from zero: every weight is between 0.2 and 1, of either sign."""
    n_learners, n_nodes = objective.design.n_learners, objective.shape.n_nodes
    weights = rng.uniform(0.2, 1, (n_learners, n_nodes, objective.n_columns))
    weights *= rng.choice([-1.0, 1.0], weights.shape)
    intercepts = rng.normal(size=(n_nodes, objective.n_columns))
    if objective.separate_gate:
        intercepts[:, -1] = 0.0  # the threshold takes its place
    return NodeParameters(weights, intercepts, rng.normal(size=n_nodes))


def random_prior(rng, objective, strength=0.2):
    """A pull to weights of the outputs; nothing is known of a gate of its own."""
    centre = random_parameters(rng, objective)
    centre.weights[:, :, objective.n_outputs :] = 0.0
    return Prior(centre.weights[:, 0], centre.intercepts[0], strength)


# ------------------------------------------------------------------------------ pools and models


def random_costs(rng, n_items=5, evaluation=0.7):
    """A bill: every feature needs an item or two, which others may need too."""
    feature_items = np.zeros((N_FEATURES, n_items), dtype=bool)
    for feature in range(N_FEATURES):
        feature_items[feature, rng.integers(0, n_items, size=2)] = True
    names = [f"item {r}" for r in range(n_items)]
    return ResolvedCosts(names, rng.uniform(0.5, 4, n_items), feature_items, evaluation)


def random_table(rng, n, missing=0.1):
    """Few distinct values, so that some equal a threshold; zeros, missing values and unknown categories."""
    X = rng.integers(-4, 5, size=(n, N_FEATURES)) / 2.0
    X[:, CATEGORICAL] = rng.integers(-1, N_CATEGORIES + 2, size=n)
    X[rng.random(X.shape) < missing] = np.nan
    return X


def random_pool(rng, n_trees=6, depth=3, identity=True):
    """Random small trees, positions in random order; behind them, columns passed on as they are."""
    positions, categories, roots = [], [], []

    def grow(levels):
        here = len(positions)
        split = levels > 0 and rng.random() < 0.8
        feature = int(rng.integers(N_FEATURES)) if split else -1
        linear = -1 if split or rng.random() < 0.9 else int(rng.integers(N_FEATURES))
        node = dict(feature=feature, linear_feature=linear, left=here, right=here, category_start=-1)
        node |= dict(threshold=rng.integers(-4, 5) / 2.0, value=rng.normal(), category_count=0)
        node |= dict(missing_left=rng.random() < 0.5, zero_is_missing=rng.random() < 0.3)
        positions.append(node)
        if feature == CATEGORICAL:
            node |= dict(category_start=len(categories), category_count=int(rng.integers(1, N_CATEGORIES + 1)))
            categories.extend(rng.random(node["category_count"]) < 0.5)
        if split:
            node["left"], node["right"] = grow(levels - 1), grow(levels - 1)
        return here

    for _ in range(n_trees):
        roots.append(grow(depth))
    place = rng.permutation(len(positions))
    columns = {}
    for name in positions[0]:
        values = np.array([node[name] for node in positions])
        columns[name] = np.empty_like(values)
        columns[name][place] = place[values] if name in ("left", "right") else values
    trees = TreePool(roots=place[np.array(roots)], category_left=np.array(categories, dtype=bool), **columns)
    return TreePool.concatenate([trees, TreePool.identity(CATEGORICAL)]) if identity else trees


def with_constant_leaves(pool):
    """The same learners, but no leaf passes on a column: what boosting makes, and codes can say."""
    return replace(pool, linear_feature=np.full(pool.n_positions, -1))


def random_tree(rng, shape, n_learners, n_outputs=1, density=0.3):
    """Sparse gates and predictors that have nothing to do with each other."""
    predict = rng.normal(size=(n_learners, shape.n_nodes, n_outputs))
    route = rng.normal(size=(n_learners, shape.n_nodes))
    predict[rng.random(predict.shape) > density] = 0.0
    route[rng.random(route.shape) > density] = 0.0
    return HardTree(
        shape,
        np.where(shape.is_leaf, 0.0, route),
        rng.normal(size=shape.n_nodes) / 3,
        predict,
        rng.normal(size=(shape.n_nodes, n_outputs)),
    )


def schema():
    return Schema([f"x{j}" for j in range(N_FEATURES)], {}, np.ones(N_FEATURES, dtype=bool))


def random_model(rng, shape, n_outputs=1, *, n_trees=6, n_items=5, identity=True, density=0.3):
    pool = random_pool(rng, n_trees, identity=identity)
    tree = random_tree(rng, shape, pool.n_learners, n_outputs, density)
    return FittedTree(
        pool=pool,
        shape=shape,
        predict_weights=tree.predict_weights,
        predict_intercepts=tree.predict_intercepts,
        route_weights=tree.route_weights,
        thresholds=tree.thresholds,
        constant=np.zeros(n_outputs),
        costs=random_costs(rng, n_items),
        link="identity" if n_outputs == 1 else "softmax",
        schema=schema(),
    )


def random_rows(rng, X, loss, y=None, weights=None, qid=None):
    """Rows with random targets and weights, where none are given."""
    y = random_targets(rng, loss, len(X)) if y is None else y
    return Rows(X, y, rng.uniform(0.2, 2, len(X)) if weights is None else weights, qid)


def seen_of(rng, pool, costs, X, loss, y=None, weights=None, qid=None):
    """Rows as a tree over the outputs of a pool sees them; nothing is centred, so the reference sees the same."""
    phi, codes = phi_and_codes(pool, X)
    bits = pool.position_bits(costs.feature_items)[leaf_table(pool)]
    return Seen(random_rows(rng, X, loss, y, weights, qid), phi, codes, bits, loss, costs)


def columns_of(pool, train, validation, loss, costs, *, units=None, scale=1.0):
    """Columns as training makes them, centred and in standard units; the rows are in the units of the user."""
    units = Units.of(train, loss) if units is None else units
    train, validation = units.standard(train), units.standard(validation)
    constant = loss.constant(train.y, train.weights)
    return Columns.of(
        pool,
        train,
        validation,
        loss=loss,
        costs=costs,
        constant=constant,
        units=units,
        schema=schema(),
        scale=scale,
    )


def with_rows(seen, **changes):
    """The same columns with other targets, weights or queries."""
    return replace(seen, rows=replace(seen.rows, **changes))


def random_case(seed, n=40, *, coded=False):
    """A tree over random columns, and rows whose targets it partly explains; Phi is dense, or codes of leaves."""
    rng = np.random.default_rng(seed)
    loss = LOSSES[rng.choice(["squared", "logistic", "softmax"])]
    pool, costs = random_pool(rng), random_costs(rng)
    if coded:
        pool = with_constant_leaves(pool)
    X = random_table(rng, n, missing=0.0)
    tree = random_tree(rng, random_shape(rng, depth=3), pool.n_learners, loss.n_outputs, density=0.5)
    rows = seen_of(rng, pool, costs, X, loss)
    if loss.name == "squared":
        rows = with_rows(rows, y=tree.margins(rows.phi)[:, 0] + 0.3 * rows.y)
    return rng, tree, pool, costs, X, rows


def hard_reach(tree, rows):
    """Bool (n, n_nodes): the nodes that each row passes."""
    return tree.shape.paths[tree.terminals(rows.phi)]


def case_by_hand(X, y, prices, weights=None):
    """Columns passed on as they are, one item each, and a squared risk."""
    X, n = np.array(X, dtype=float), len(prices)
    costs = ResolvedCosts([f"item {r}" for r in range(n)], np.array(prices, dtype=float), np.eye(n, dtype=bool))
    weights = np.ones(len(X)) if weights is None else np.array(weights, dtype=float)
    return seen_of(None, TreePool.identity(n), costs, X, LOSSES["squared"], np.array(y), weights)


def two_leaves(route, upper, lower, intercepts=(0.0, 0.0)):
    """A root that only routes, at threshold 0, and the predictors of its two leaves."""
    n = len(route)
    shape = TreeShape.full(2)
    predict = np.stack([np.zeros(n), upper, lower], axis=1)[:, :, None]
    gates = np.stack([route, np.zeros(n), np.zeros(n)], axis=1)
    return HardTree(shape, gates, np.zeros(3), predict, np.array([0.0, *intercepts])[:, None])


def problem_of(loss_name="squared", *, weak_learners="boosted", n=300, seed=3, **changes):
    """What a method is given: targets that need three of the columns; names of `Boosting` may be changed too."""
    rng, loss = np.random.default_rng(0), LOSSES[loss_name]
    X, costs = random_table(rng, n, missing=0.0), random_costs(rng)
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)
    y = {"squared": 5 * score + 100, "logistic": (score > 0).astype(int), "softmax": np.digitize(score, [-1, 1])}
    boosting = {"n_rounds": 12, "depth": 3, "learning_rate": 0.2, "early_stopping": None, "categorical": [CATEGORICAL]}
    boosting |= {name: changes.pop(name) for name in boosting if name in changes}
    problem = Problem(
        rows=Rows(X, y[loss_name], rng.uniform(0.5, 2, n), changes.pop("qid", None)),
        validation=None,
        loss=loss,
        costs=costs,
        schema=schema(),
        cost_weight=0.1,
        weak_learners=weak_learners,
        boosting=Boosting(loss=loss, costs=costs, n_jobs=1, random_state=seed, **boosting),
        random_state=seed,
    )
    return replace(problem, **changes)


def column_sources(X, fetched):
    """One source for each column of a matrix, asked by row number; what they fetch is noted as (row, column)."""
    from cstc.serving import extractor

    def source(j):
        @extractor(provides=[f"x{j}"], name=f"source {j}")
        def fetch(i):
            fetched.append((i, j))
            return {f"x{j}": float(X[i, j])}

        return fetch

    return [source(j) for j in range(X.shape[1])]
