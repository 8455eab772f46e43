"""SpeedBoost, the soft cascade, the mixture of experts and the cost-aware tree, each against a plain account of it."""

from itertools import product

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import Lasso, LinearRegression
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

import cstc.baselines.speedboost
from cstc import CostModel
from cstc.baselines import CostAwareTree, HierarchicalMixture, SoftCascade, SpeedBoost, StageWiseRegression
from cstc.baselines.cost_tree import _pruned
from cstc.baselines.hierarchical_mixture import fit_sparse
from cstc.baselines.soft_cascade import order_by_gain, set_thresholds, shares_of_stages
from cstc.baselines.speedboost import _choose_learners, _grow_again
from cstc.datasets import QUADRANT_COSTS, make_quadrants
from cstc.losses import LogisticLoss, SquaredLoss

PRICES = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
COSTS = CostModel(PRICES, evaluation=1.0)
BOOSTED = {"costs": COSTS, "n_weak_learners": 15, "weak_learner_depth": 2, "random_state": 0}


SMALL = {"n_weak_learners": 10, "learning_rate": 0.5}


def expected_failures(system):
    """What scikit-learn expects and the systems do not do, for a reason."""
    drawn = "rows are held out: two rows of weight 1 are not one row of weight 2"
    found = {f"check_sample_weight_equivalence_on_{kind}_data": drawn for kind in ("dense", "sparse")}
    found["check_regressors_no_decision_function"] = "margins have one name for all tasks"
    found["check_classifier_not_supporting_multiclass"] = "the sentence says which systems take several classes"
    return found


@parametrize_with_checks(
    [
        kind(task=task, **options)
        for task in ("regression", "classification")
        for kind, options in (
            (SpeedBoost, SMALL),
            (SoftCascade, SMALL | {"n_jobs": 1}),
            (HierarchicalMixture, SMALL | {"n_jobs": 1, "max_iter": 2}),
            (CostAwareTree, {}),
        )
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_probabilities_are_those_of_classes():
    for system in (SpeedBoost(), CostAwareTree(task="ranking")):
        with pytest.raises(AttributeError, match="predict_proba") as caught:
            system.predict_proba(np.zeros((3, 2)))
        assert "needs task='classification'; use predict" in str(caught.value.__cause__)


def given(n=500, n_train=350):
    """Whole numbers, so that every threshold is looked at; training rows, and validation rows as arguments."""
    rng = np.random.default_rng(0)
    X = rng.integers(-60, 60, size=(n, 6)).astype(float)
    y = X @ [1.0, 0.9, 0.8, 0.7, 0.6, 0.5] / 30.0 + np.abs(X[:, 0]) / 30.0 + rng.normal(scale=0.3, size=n)
    return X[:n_train], y[:n_train], {"X_val": X[n_train:], "y_val": y[n_train:]}


def setting_of(system, X, y, val):
    return system._set_up(X, y, val.get("X_val"), val.get("y_val"), None, None, None, None)


# -- SpeedBoost ----------------------------------------------------------------------------------------------------


def plain_speedboost(X, y, X_val, y_val, n_rounds, rate):
    """Single splits by scikit-learn, all purchases in every round; targets in standard units."""
    margins, judged, owned, taken = np.zeros(len(y)), np.zeros(len(y_val)), set(), []
    for _ in range(n_rounds):
        best, most = None, 0.0
        sets = [sorted(owned)] if owned else []
        sets += [columns for j in range(6) if j not in owned for columns in ([j], sorted(owned | {j}))]
        for columns in sets:
            stump = DecisionTreeRegressor(max_depth=1, min_samples_leaf=20, random_state=0)
            stump.fit(X[:, columns], y - margins)
            column = columns[stump.tree_.feature[0]]
            after = judged + rate * stump.predict(X_val[:, columns])
            gain = np.mean((judged - y_val) ** 2) - np.mean((after - y_val) ** 2)
            value = gain / (1.0 + (0.0 if column in owned else PRICES[column]))
            if value > most + 1e-12:
                best, most = (stump, columns, column), value
        if best is None:
            break
        stump, columns, column = best
        margins += rate * stump.predict(X[:, columns])
        judged += rate * stump.predict(X_val[:, columns])
        owned.add(column)
        taken.append(column)
    return taken, margins


def test_speedboost_takes_the_largest_drop_per_cost(monkeypatch):
    monkeypatch.setattr(cstc.baselines.speedboost, "LOOKED_AT", 6)
    X, y, val = given()
    system = SpeedBoost(**BOOSTED | {"weak_learner_depth": 1, "n_weak_learners": 25, "learning_rate": 0.3})
    system.fit(X, y, **val)
    standard = (y - y.mean()) / y.std(), (val["y_val"] - y.mean()) / y.std()
    taken, margins = plain_speedboost(X, standard[0], val["X_val"], standard[1], 25, 0.3)
    pool = system.model_.pool
    np.testing.assert_array_equal(pool.feature[pool.roots], taken)
    assert len(set(taken)) > 2
    np.testing.assert_allclose(system.predict(X), margins * y.std() + y.mean(), atol=1e-2)


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_speedboost_lowers_the_risk_of_validation_rows_with_every_learner(task):
    X, y, val = given()
    if task == "classification":
        y, val["y_val"] = (y > 0).astype(int), (val["y_val"] > 0).astype(int)
    system = SpeedBoost(**BOOSTED, task=task)
    setting = setting_of(system, X, y, val)
    pool, rows = system._share(setting), setting.validation
    sums = np.cumsum(np.column_stack([np.full(len(rows), setting.constant[0]), pool.transform(rows.X)]), axis=1)
    risks = [setting.loss.risk(column[:, None], rows.y) for column in sums.T]
    assert len(risks) > 5
    assert (np.diff(risks) < 0).all()


def test_speedboost_weights_are_those_of_a_line_search():
    X, y, val = given()
    labels, val["y_val"] = (y > 0).astype(int), (val["y_val"] > 0).astype(int)
    system = SpeedBoost(**BOOSTED, task="classification")
    setting = setting_of(system, X, labels, val)
    margins = np.full(len(y), setting.constant[0])
    for learner in _choose_learners(setting):
        whole = learner.weight / setting.boosting.learning_rate
        slope = learner.outputs @ (expit(margins + whole * learner.outputs) - labels)
        assert abs(slope) < 1e-2 * abs(learner.outputs @ (expit(margins) - labels))
        margins += learner.weight * learner.outputs


def test_speedboost_grows_again_on_all_rows_with_the_same_features():
    X, y, val = given()
    system = SpeedBoost(**BOOSTED)
    setting = setting_of(system, X, y, val)
    learners = _choose_learners(setting)
    again = _grow_again(setting, setting.train, [learner.columns for learner in learners])
    np.testing.assert_array_equal([each.weight for each in learners], [each.weight for each in again])
    held_out = setting_of(system, X, y, {})
    assert held_out.everything is not None
    sets = [learner.columns for learner in _choose_learners(held_out)]
    whole = _grow_again(held_out, held_out.everything, sets)
    expected = sum(learner.weight * learner.outputs for learner in whole) * y.std() + y.mean()
    np.testing.assert_allclose(system.fit(X, y).predict(X), expected, rtol=1e-9)


def test_speedboost_shares_items_and_does_not_stay_with_what_is_free():
    X, y, val = given()
    shared = CostModel({"draw": 6.0, "x0": 3.0}, requires={f"x{j}": ["draw"] for j in range(1, 6)})
    model = SpeedBoost(**BOOSTED | {"costs": shared, "n_weak_learners": 40}).fit(X, y, **val)
    assert np.unique(model.predict_cost(X)).tolist() == [9.0]
    free = SpeedBoost(**BOOSTED | {"costs": np.zeros(6)}).fit(X, y, **val)
    assert free.score(X, y) > 0.6
    assert (free.predict_cost(X) == 0).all()


def test_speedboost_frontier_is_cut_before_purchases():
    X, y, val = given()
    frontier = SpeedBoost(**BOOSTED | {"n_weak_learners": 60}).frontier(X, y, **val, n_points=20)
    costs = frontier.tried_.column("mean_cost")
    assert costs[0] == 0
    learner = [
        model.predict_cost(X, "learner").max() - model.model_.pool.n_learners for model in frontier.tried_models_
    ]
    assert (np.diff(learner[:-1]) > 0).all()  # each cut has items that the one before has not


# -- the soft cascade ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["regression", "classification"])
@pytest.mark.parametrize("given_up", [0.0, 0.02, 0.2, 0.7, 1.0])
def test_a_cascade_gives_up_no_more_than_it_may(task, given_up):
    X, y, val = given()
    if task == "classification":
        y, val["y_val"] = (y > 1).astype(int), (val["y_val"] > 1).astype(int)
    system = SoftCascade(**BOOSTED, task=task, given_up=given_up, n_stages=8).fit(X, y, **val)
    setting = setting_of(system, X, y, val)
    rows, units = setting.validation, setting.units
    shared = system._share(setting)
    whole, constant = (setting.loss.risk(shared.scores[:, [at]], rows.y) for at in (-1, 0))
    margins = (system.decision_function(rows.X) - units.offset) / units.scale
    assert setting.loss.risk(margins[:, None], rows.y) <= whole + given_up * (constant - whole) + 1e-9
    if given_up == 1.0:
        assert (system.predict_cost(X) == 0).all()


def test_rows_leave_a_cascade_one_by_one():
    X, y, val = given()
    y, val["y_val"] = (y > 1).astype(int), (val["y_val"] > 1).astype(int)
    system = SoftCascade(**BOOSTED, task="classification", given_up=0.3, n_stages=6).fit(X, y, **val)
    model = system.model_
    assert model.shape.n_nodes >= 3
    assert (model.shape.lower < 0).all()  # the lower branch leaves
    outputs = model.pool.transform(X)
    uses = model.pool.learner_uses(np.eye(6, dtype=bool))
    scores, costs = system.decision_function(X), system.predict_cost(X, "learner")
    stages = np.zeros(len(X), dtype=int)
    for row in range(len(X)):
        for stage in range(model.shape.n_nodes):
            weights = model.route_weights[:, stage]
            last = stage == model.shape.n_nodes - 1
            if last or outputs[row] @ weights <= model.thresholds[stage]:
                seen = model.predict_weights[:, stage, 0] != 0
                assert last or (seen == (weights != 0)).all()
                score = outputs[row] @ model.predict_weights[:, stage, 0] + model.predict_intercepts[stage, 0]
                assert scores[row] == pytest.approx(score)
                assert costs[row] == pytest.approx(seen.sum() + uses[seen].any(axis=0) @ PRICES)
                stages[row] = stage
                break
    assert len(np.unique(stages)) >= 3
    assert scores[stages == 0].max() < scores[stages == model.shape.n_nodes - 1].max()


def test_thresholds_are_as_high_as_they_may_be():
    rng = np.random.default_rng(0)
    scores, rises = rng.normal(size=(40, 4)), rng.exponential(size=(40, 4)) * [1.0, 0.5, 0.2, 0.0] / 40
    parts = np.array([0.05, 0.05, 0.05])
    thresholds = set_thresholds(scores, rises, parts)
    here, credit = np.arange(40), 0.0
    for stage in range(3):
        credit += parts[stage]
        out = here[scores[here, stage] <= thresholds[stage]]
        stay = here[scores[here, stage] > thresholds[stage]]
        lost = rises[out, stage].sum()
        assert lost <= credit
        assert lost + rises[stay[np.argmin(scores[stay, stage])], stage] > credit  # one more would be too much
        credit, here = credit - lost, stay
    assert set_thresholds(scores, np.zeros((40, 4)), parts).tolist() == [np.inf] * 3
    assert (set_thresholds(scores, rises + 1.0, parts) == -np.inf).all()


def test_shares_of_stages():
    for exponent in (-np.inf, -3.0, 0.0, 3.0):
        shares = shares_of_stages(5, exponent)
        assert shares.sum() == pytest.approx(1.0)
        assert (np.diff(shares) * np.sign(exponent) >= 0).all()
    assert shares_of_stages(5, -np.inf).tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert shares_of_stages(1, 3.0).tolist() == [1.0]


def test_trees_of_a_cascade_are_ordered_by_gain_per_cost():
    X, y, val = given()
    system = SoftCascade(**BOOSTED)
    setting = setting_of(system, X, y, val)
    pool = StageWiseRegression(**BOOSTED)._share(setting)
    order, rows = order_by_gain(setting, pool), setting.train
    assert sorted(order) == list(range(pool.n_learners))
    outputs, uses = pool.transform(X), pool.learner_uses(np.eye(6, dtype=bool))
    margins, bought, left = np.zeros(len(y)), np.zeros(6, dtype=bool), set(order.tolist())
    for tree in order[:5]:
        worth = {
            t: (np.mean((margins - rows.y) ** 2) - np.mean((margins + outputs[:, t] - rows.y) ** 2))
            / (1.0 + (uses[t] & ~bought) @ PRICES)
            for t in left
        }
        assert worth[tree] == pytest.approx(max(worth.values()))
        margins, bought = margins + outputs[:, tree], bought | uses[tree]
        left.remove(int(tree))


def test_a_cascade_without_exits_is_the_ensemble():
    X, y, val = given()
    whole = StageWiseRegression(**BOOSTED).fit(X, y, **val)
    cascade = SoftCascade(**BOOSTED, n_stages=1, given_up=0.0).fit(X, y, **val)
    np.testing.assert_allclose(cascade.predict(X), whole.predict(X), rtol=1e-9)
    np.testing.assert_array_equal(cascade.predict_cost(X), whole.predict_cost(X))


# -- the hierarchical mixture of experts ---------------------------------------------------------------------------


def test_sparse_fits_are_those_of_the_lasso():
    X, y, _ = given()
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    design, prices = np.column_stack([X, np.ones(len(X))]), np.append(0.2 * PRICES / 6, 0.0)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    found = fit_sparse(design, y, weights, SquaredLoss(), prices, np.zeros((7, 1)), 2000, 0.0)[:, 0]
    # the lasso halves the mean of the squares, and has one penalty: prices go into the columns
    lasso = Lasso(alpha=0.5, tol=1e-10, max_iter=100000).fit(X / prices[:-1], y, sample_weight=weights)
    np.testing.assert_allclose(found[:-1], lasso.coef_ / prices[:-1], atol=1e-5)
    assert 0 < (found[:-1] != 0).sum() < 6


def test_sparse_fits_of_shares_fulfil_their_optimality_conditions():
    X, _, _ = given()
    design = np.column_stack([X / X.std(axis=0), np.ones(len(X))])
    share, weights = expit(design[:, 0] + 0.5 * design[:, 1]), np.ones(len(X))
    prices = np.append(np.full(6, 0.03), 0.0)
    found = fit_sparse(design, share, weights, LogisticLoss(), prices, np.zeros((7, 1)), 3000)[:, 0]
    gradient = design.T @ (expit(design @ found) - share) / len(X)
    gradient[:-1] += 1e-3 * 0.25 * found[:-1]
    kept = found != 0
    np.testing.assert_allclose(gradient[kept], -prices[kept] * np.sign(found[kept]), atol=1e-5)
    assert (np.abs(gradient[~kept]) <= prices[~kept] + 1e-8).all()
    assert 2 <= kept[:-1].sum() < 6


def test_weights_are_pulled_to_a_goal():
    X, y, _ = given()
    design, goal = np.column_stack([X / X.std(axis=0), np.ones(len(X))]), np.arange(7.0)[:, None]
    free = np.zeros(7)
    found = fit_sparse(design, y, np.ones(len(y)), SquaredLoss(), free, np.zeros((7, 1)), 3000, 0.5, goal)
    ridge = np.diag([0.5] * 6 + [0.0])
    expected = np.linalg.solve(design.T @ design / len(y) + ridge, design.T @ y[:, None] / len(y) + ridge @ goal)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def mixing_of(X, y, val, task="regression", **options):
    system = HierarchicalMixture(costs=COSTS, weak_learners="identity", task=task, random_state=0, **options)
    mixing, _ = system._share(setting_of(system, X, y, val))
    return mixing


def log_likelihood(mixing, found):
    """Of all rows, with the paths of a tree of two gates' depth written out."""
    gates = expit(mixing.design @ found.gates.T)
    total = np.zeros(len(mixing.y))
    for leaf in mixing.leaves:
        path, node = np.ones(len(mixing.y)), leaf
        while (parent := mixing.shape.parents[node]) >= 0:
            path = path * (gates[:, parent] if mixing.shape.upper[parent] == node else 1 - gates[:, parent])
            node = parent
        margin = (mixing.design @ found.experts[leaf])[:, 0]
        if mixing.loss.has_classes:
            total += path * np.where(mixing.y == 1, expit(margin), expit(-margin))
        else:
            variance = found.variances[leaf]
            total += path * np.exp(-0.5 * (margin - mixing.y) ** 2 / variance) / np.sqrt(variance)
    return float(np.log(total).mean())


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_em_raises_the_likelihood(task):
    X, y, val = given()
    if task == "classification":
        y, val["y_val"] = (y > 0).astype(int), (val["y_val"] > 0).astype(int)
    mixing = mixing_of(X, y, val, task, max_iter=1)
    found = mixing.start()
    likelihoods = [log_likelihood(mixing, found)]
    for _ in range(8):
        found = mixing.expect_and_maximise(found, 0.0, 1)
        likelihoods.append(log_likelihood(mixing, found))
    assert (np.diff(likelihoods) > -1e-4).all()
    assert likelihoods[-1] > likelihoods[0] + 0.01


def test_rows_are_answered_for_by_bayes_rule():
    X, y, val = given()
    mixing = mixing_of(X, y, val, max_iter=2)
    found = mixing.expect_and_maximise(mixing.start(), 0.0, 2)
    answerable = mixing.answerable(found)
    np.testing.assert_allclose(answerable.sum(axis=1), 1.0)
    gates = expit(mixing.design @ found.gates.T)
    upper_upper = gates[:, 0] * gates[:, mixing.shape.upper[0]]
    leaf = mixing.shape.upper[mixing.shape.upper[0]]
    error = (mixing.design @ found.experts[leaf])[:, 0] - mixing.y
    likelihood = np.exp(-0.5 * error**2 / found.variances[leaf]) / np.sqrt(found.variances[leaf])
    place = mixing.leaves.tolist().index(leaf)
    ratio = np.log(answerable[:, place]) - np.log(upper_upper * likelihood)
    others = np.exp(-ratio)  # the sum over all experts, the same for each of them
    np.testing.assert_allclose(np.log(others).mean(), log_likelihood(mixing, found), rtol=1e-9)


def test_one_expert_is_linear_regression():
    X, y, val = given()
    model = HierarchicalMixture(depth=0, cost_weight=0.0, weak_learners="identity", random_state=0).fit(X, y, **val)
    np.testing.assert_allclose(model.predict(X), LinearRegression().fit(X, y).predict(X), atol=0.02 * y.std())


def test_prices_fall_below_gates_that_have_paid():
    X, y, val = given()
    mixing = mixing_of(X, y, val, max_iter=1)
    gates = np.zeros((7, 7))
    np.testing.assert_allclose(mixing._prices(gates, 0), [*(PRICES + 1.0), 0.0])
    gates[0, 2] = 0.5
    below = PRICES + 1.0
    below[2] = 0.0
    np.testing.assert_allclose(mixing._prices(gates, 0), [*(PRICES + 1.0), 0.0])  # it has not paid above itself
    for node in range(1, 7):
        np.testing.assert_allclose(mixing._prices(gates, node), [*below, 0.0])


def test_a_mixture_solves_the_quadrants():
    X, y = make_quadrants(1000, random_state=0)
    model = HierarchicalMixture(costs=QUADRANT_COSTS, cost_weight=0.03, weak_learners="identity", random_state=0)
    model.fit(X[:800], y[:800])
    assert model.score(X[800:], y[800:]) > 0.99
    assert model.predict_cost(X).mean() == pytest.approx(12.0)
    terminals, cost = model.model_.apply(X), model.predict_cost(X, "learner")
    uses = model.model_.pool.learner_uses(model.costs_.feature_items)
    for terminal in np.unique(terminals):
        nodes = np.flatnonzero(model.model_.shape.paths[terminal])
        learners = (model.model_.route_weights[:, nodes] != 0).any(axis=1)
        learners |= model.model_.predict_weights[:, nodes[-1], 0] != 0
        assert (cost[terminals == terminal] == uses[learners].any(axis=0) @ model.costs_.prices).all()


# -- the cost-aware tree -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [2, 4])
def test_a_tree_blind_to_cost_is_that_of_scikit_learn(depth):
    X, y, val = given()
    system = CostAwareTree(costs=COSTS, exponents=(0.0,), max_depth=depth, random_state=0)
    setting = setting_of(system, X, y, val)
    tree = system._share(setting)[0.0]
    other = DecisionTreeRegressor(max_depth=depth, min_samples_leaf=20, random_state=0).fit(X, setting.train.y)
    kept, waiting = set(), [tree]
    while waiting:
        node = waiting.pop()
        kept |= {id(node)} if node.split is not None else set()
        waiting += node.children
    model = cstc.baselines.cost_tree._to_model(setting, tree, kept)
    expected = other.predict(X) * setting.units.scale + setting.units.offset
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-9)


@pytest.mark.parametrize("exponent", [0.0, 0.4, 1.0, 3.0])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_the_first_split_is_worth_most(exponent, task):
    X, y, val = given()
    if task == "classification":
        y, val["y_val"] = (y > 0).astype(int), (val["y_val"] > 0).astype(int)
    system = CostAwareTree(costs=COSTS, exponents=(exponent,), max_depth=1, task=task, random_state=0)
    tree = system._share(setting_of(system, X, y, val))[exponent]

    def information(left):
        if task == "regression":
            after = sum(((y[side] - y[side].mean()) ** 2).sum() for side in (left, ~left))
            return 0.5 * np.log2(((y - y.mean()) ** 2).sum() / after)
        return entropy(y) - sum(side.mean() * entropy(y[side]) for side in (left, ~left))

    def entropy(labels):
        return -sum(p * np.log2(p) for p in (np.mean(labels), 1 - np.mean(labels)) if p > 0)

    worth = {
        (column, value): (2 ** information(X[:, column] <= value) - 1) / (PRICES[column] + 1.0) ** exponent
        for column, value in product(range(6), range(-60, 59))
        if 20 <= (X[:, column] <= value).sum() <= len(y) - 20
    }
    column, value = max(worth, key=worth.get)
    assert tree.split.column == column
    np.testing.assert_array_equal(X[:, column] <= value, X[:, column] <= tree.split.threshold)
    assert tree.price == 1.0 + PRICES[column]


def plain_prunings(node):
    """Every tree that is left when some splits become leaves: its risk and its cost."""
    yield node.risk, 0.0
    if node.split is not None:
        for (risk, cost), (other, more) in product(*(list(plain_prunings(child)) for child in node.children)):
            yield risk + other, node.price * node.n + cost + more


@pytest.mark.parametrize("weight", [0.0, 0.002, 0.02, 1.0])
def test_pruning_finds_the_best_of_all_pruned_trees(weight):
    X, y, val = given()
    system = CostAwareTree(costs=COSTS, max_depth=3, random_state=0)
    setting = setting_of(system, X, y, val)
    trees = system._share(setting)
    best = {
        exponent: min(risk + weight * cost for risk, cost in plain_prunings(tree)) for exponent, tree in trees.items()
    }
    for exponent, tree in trees.items():
        assert _pruned(tree, weight)[0] == pytest.approx(best[exponent])
    model = clone(system).set_params(cost_weight=weight * setting.units.scale**2).fit(X, y, **val)
    rows = setting.validation
    risk = np.mean((val["y_val"] - model.predict(rows.X)) ** 2) / setting.units.scale**2
    assert risk + weight * model.predict_cost(rows.X).mean() == pytest.approx(min(best.values()))
    assert best[model.exponent_] == pytest.approx(min(best.values()))


def test_a_path_pays_for_its_own_splits_once():
    X, y, val = given()
    model = CostAwareTree(costs=COSTS, cost_weight=1e-4, random_state=0).fit(X, y, **val)
    tree, shape = model.model_, model.model_.shape
    terminals = tree.apply(X)
    assert len(np.unique(terminals)) > 3
    for terminal in np.unique(terminals):
        splits = [node for node in np.flatnonzero(shape.paths[terminal]) if not shape.is_leaf[node]]
        learners = [int(np.flatnonzero(tree.route_weights[:, node])[0]) for node in splits]
        features = set(tree.pool.feature[tree.pool.roots[learners]])
        expected = len(splits) + PRICES[list(features)].sum()
        for counting in ("branch", "learner"):
            np.testing.assert_allclose(model.predict_cost(X, counting)[terminals == terminal], expected)


def test_leaves_of_one_class_are_not_quite_sure():
    X, _, val = given()
    labels = np.where(X[:, 0] > 0, "yes", "no")
    val["y_val"] = np.where(val["X_val"][:, 0] > 0, "yes", "no")
    model = CostAwareTree(costs=COSTS, cost_weight=1e-4, task="classification", random_state=0).fit(X, labels, **val)
    sure = model.predict_proba(X).max(axis=1)
    assert model.score(X, labels) == 1.0
    assert ((sure > 0.98) & (sure < 1.0)).all()
    n = int((labels == "yes").sum())
    prior = (n + 1.0) / (len(labels) + 2.0)
    assert model.predict_proba(X)[labels == "yes", 1].max() == pytest.approx((n + 2 * prior) / (n + 2))


def test_a_tree_solves_the_quadrants():
    X, y = make_quadrants(2000, random_state=0)
    model = CostAwareTree(costs=QUADRANT_COSTS, cost_weight=0.01, random_state=0).fit(X[:1500], y[:1500])
    assert model.predict_cost(X).mean() == pytest.approx(12.0)
    assert model.score(X[1500:], y[1500:]) > 0.95
