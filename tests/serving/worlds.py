"""Random models with rows and sources, and a plain reference for what serving them must cost."""

from dataclasses import dataclass, replace

import numpy as np

import reference
from builders import CATEGORICAL, N_CATEGORIES, N_FEATURES, random_model, random_shape, random_table
from cstc.model import FittedTree, Schema, TreePool, TreeShape
from cstc.serving import extractor

TASKS = {
    "regression": ("identity", 1, None),
    "ranking": ("identity", 1, None),
    "binary": ("logistic", 1, np.array(["no", "yes"])),
    "multiclass": ("softmax", 3, np.array([10, 20, 30])),
}
NAMES = [f"x{j}" for j in range(N_FEATURES)]
TEXTS = [f"kind {k}" for k in range(N_CATEGORIES)]
#: For each way of asking, the counting that is charged.
COUNTING = {"branch": "branch", "node": "learner"}


@dataclass
class World:
    """A model, its rows as a matrix and as a caller has them: numbers, None and text."""

    model: FittedTree
    X: np.ndarray
    rows: list[dict]


def random_world(rng, task, n=60, *, missing=True, evaluation=None, n_trees=8):
    """Any shape, gates and predictors of their own, categories as text, missing values, shared items."""
    link, n_outputs, classes = TASKS[task]
    shape = random_shape(rng)
    model = random_model(rng, shape, n_outputs, n_trees=n_trees, density=rng.choice([0.15, 0.4, 0.8]))
    if rng.random() < 0.3:  # the paper's tree: the prediction is the gate
        weights = np.repeat(model.route_weights[:, :, None], n_outputs, axis=2)
        model = replace(model, predict_weights=np.where(shape.is_leaf[None, :, None], model.predict_weights, weights))
    costs = model.costs if evaluation is None else replace(model.costs, evaluation=evaluation)
    if rng.random() < 0.3:  # one item for each feature
        prices = rng.uniform(0.5, 4, N_FEATURES)
        costs = replace(costs, item_names=NAMES, prices=prices, feature_items=np.eye(N_FEATURES, dtype=bool))
    X = random_table(rng, n, missing=0.1 if missing else 0.0)
    X[~((X[:, CATEGORICAL] >= 0) & (X[:, CATEGORICAL] < N_CATEGORIES)), CATEGORICAL] = np.nan
    may_miss = np.full(N_FEATURES, missing)
    may_miss[CATEGORICAL] = True
    schema = Schema(NAMES, {NAMES[CATEGORICAL]: TEXTS}, may_miss, classes)
    constant = rng.normal(size=n_outputs)
    model = replace(model, costs=costs, link=link, schema=schema, constant=constant)
    return World(model, X, [as_told(rng, row) for row in X])


def with_shares(rng, model):
    """The same model, whose splits have parted the training rows in some way."""
    return replace(model, pool=model.pool._replace(share_left=rng.integers(0, 255, model.pool.n_positions) / 254))


def without_features(model, row, gone):
    """One row of a model that nobody knows losses of, without some features (names), in plain loops.

    The nodes that it passes, its margins, and the items that it needs.
    """
    known = {j for j in range(len(row)) if NAMES[j] not in gone}
    _, path, looked = reference.averaged_route(model, row, known, [False] * model.shape.n_nodes)
    margins = reference.averaged_margins(model, row, known, path[-1])
    if reference.says_nothing(model, path[-1], known):
        margins = model.constant.tolist()
    for t in np.flatnonzero(model.predict_learners[path[-1]]):
        looked |= reference.averaged_features(model.pool, t, row, known)
    items = reference.items_of(looked, model.costs.feature_items)
    return path, margins, {model.costs.item_names[r] for r in items}


def items_of(model, names):
    """The items that some features require."""
    features = {NAMES.index(name) for name in names}
    return {model.costs.item_names[r] for r in reference.items_of(features, model.costs.feature_items)}


def as_told(rng, row):
    told = {}
    for j, value in enumerate(row):
        if j == CATEGORICAL:
            told[NAMES[j]] = None if np.isnan(value) else TEXTS[int(value)]
        else:
            told[NAMES[j]] = None if np.isnan(value) and rng.random() < 0.5 else float(value)
    return told


def used_features(model, X, terminal, counting):
    """Bool (n, n_features): what each row looks at on its way to its terminal."""
    used = np.zeros((len(X), X.shape[1]), dtype=bool)
    everything = np.eye(X.shape[1], dtype=bool)
    at_position, of_learner = model.pool.position_uses(everything), model.pool.learner_uses(everything)
    for i in range(len(X)):
        learners = np.flatnonzero(model.terminal_learners[terminal[i]])
        if counting == "learner":
            used[i] = of_learner[learners].any(axis=0)
        else:
            used[i] = at_position[model.pool.leaves(X[i : i + 1], learners)[0]].any(axis=0)
    return used


def expected_items(model, X, terminal, counting, known, paid):
    """Bool (n, n_items): what is bought for each row, if it has `known` features and `paid` items (bool as X)."""
    wanted = used_features(model, X, terminal, counting) & ~known
    return (wanted.astype(int) @ model.costs.feature_items.astype(int) > 0) & ~paid


def check_answer(model, answer, expected_margins, terminal, items):
    """An answer against what the whole matrix gives: value, path, and the bill item for item."""
    assert answer.status == "complete"
    assert answer.terminal == terminal
    assert answer.path == np.flatnonzero(model.shape.paths[terminal]).tolist()
    assert answer.node == model.shape.terminal_parents[terminal]
    if np.isnan(expected_margins).any():  # a missing value that a learner passed on
        assert np.isnan(answer.margins).any()
    else:
        np.testing.assert_allclose(answer.margins, expected_margins, rtol=1e-9, atol=1e-9)
    value = model.answers(expected_margins[None, :])[0]
    if model.schema.classes is None:
        np.testing.assert_allclose(answer.value, value, rtol=1e-9, atol=1e-9)
    else:
        assert answer.value == value
    assert list(answer.items) == [model.costs.item_names[r] for r in np.flatnonzero(items)]
    cost = model.costs.prices @ items + model.costs.evaluation * model.terminal_learners[terminal].sum()
    np.testing.assert_allclose(answer.cost, cost, rtol=1e-12)


def ask_and_tell(session, told):
    """Run a session to its end; every feature may be asked for once."""
    asked = []
    while wanted := session.wanted():
        asked += wanted
        session.tell({name: told[name] for name in wanted})
    assert len(set(asked)) == len(asked)
    return session.answer()


def can_be_computed(model, row, node, known):
    """Whether the prediction of a node needs only `known` features (bool) of a row."""
    at_position = model.pool.position_uses(np.eye(len(row), dtype=bool))
    leaves = model.pool.leaves(row[None, :], np.flatnonzero(model.predict_learners[node]))
    return not (at_position[leaves[0]].any(axis=0) & ~known).any()


def best_prediction(model, row, path, known):
    """Node and margins of the last node on a path whose prediction needs only `known` features.

    If there is none, the prediction of the last one is averaged over what is not known; if it knows nothing at all, -1
    and the constant.
    """
    for node in reversed(path):
        if can_be_computed(model, row, node, known):
            learners = np.flatnonzero(model.predict_learners[node])
            outputs = model.pool.outputs(row[None, :], model.pool.leaves(row[None, :], learners))
            return node, (outputs @ model.predict_weights[learners, node] + model.predict_intercepts[node])[0]
    at_hand = set(np.flatnonzero(known).tolist())
    learners = np.flatnonzero(model.predict_learners[path[-1]])
    if at_hand.isdisjoint(f for t in learners for f in reference.learner_features(model.pool, t)):
        return -1, model.constant
    return path[-1], np.array(reference.averaged_margins(model, row, at_hand, path[-1]))


def linear_model(costs, names):
    """The sum of all columns: every feature is needed, in one wave."""
    n = len(names)
    return FittedTree(
        pool=TreePool.identity(n),
        shape=TreeShape.full(1),
        predict_weights=np.ones((n, 1, 1)),
        predict_intercepts=np.zeros((1, 1)),
        route_weights=np.zeros((n, 1)),
        thresholds=np.zeros(1),
        constant=np.zeros(1),
        costs=costs.resolve(names),
        link="identity",
        schema=Schema(list(names), {}, np.zeros(n, dtype=bool)),
    )


def chain_model(costs, names, steps):
    """A chain of nodes that all rows go down; the gate of each passes on some columns, and the end sums up all."""
    n, shape = len(names), TreeShape.chain(len(steps))
    route = np.zeros((n, shape.n_nodes))
    node = 0
    for step in steps[:-1]:
        route[[names.index(name) for name in step], node] = 1.0
        node = max(shape.upper[node], shape.lower[node])
    going_up = shape.upper > shape.lower
    predict = np.ones((n, shape.n_nodes, 1))
    return replace(
        linear_model(costs, names),
        shape=shape,
        predict_weights=predict,
        predict_intercepts=np.zeros((shape.n_nodes, 1)),
        route_weights=route,
        thresholds=np.where(going_up, -1e9, 1e9),
        fallback_weights=None,
    )


class Sources:
    """Extractors over the rows of a world that count their calls."""

    def __init__(self, rng, rows, *, asynchronous=False, batch=False, told=False, **options):
        self.calls = []  # (source, row, features)
        self.told = told
        order = rng.permutation(NAMES).tolist()
        cuts = sorted(rng.choice(np.arange(1, N_FEATURES), size=rng.integers(0, N_FEATURES), replace=False).tolist())
        groups = [order[a:b] for a, b in zip([0, *cuts], [*cuts, N_FEATURES], strict=True)]
        self.extractors = [
            self._make(rows, f"source {k}", group, asynchronous, batch, told, options) for k, group in enumerate(groups)
        ]

    def _make(self, rows, name, group, asynchronous, batch, told, options):
        def one(i, names):
            self.calls.append((name, i, tuple(names)))
            return {feature: rows[i][feature] for feature in names}

        def fetch(i):
            return [one(k, group) for k in i] if batch else one(i, group)

        def fetch_told(i, features):
            return [one(k, features) for k in i] if batch else one(i, features)

        async def afetch(i):
            return fetch(i)

        function = afetch if asynchronous else fetch_told if told else fetch
        return extractor(provides=group, name=name, batch=batch, **options)(function)

    def check(self, needed):
        """For each row exactly the sources of what is needed (bool as X) were called, and none twice.

        A source that is told what is wanted may be called again, but no feature is asked for twice.
        """
        asked = [(i, feature) for _, i, features in self.calls for feature in features]
        assert len(set(asked)) == len(asked)
        homes = {feature: source.name for source in self.extractors for feature in source.provides}
        wanted = {(int(i), NAMES[j]) for i, j in np.argwhere(needed)}
        if self.told:
            assert set(asked) == wanted
        else:
            assert sorted((name, i) for name, i, _ in self.calls) == sorted({(homes[f], i) for i, f in wanted})
