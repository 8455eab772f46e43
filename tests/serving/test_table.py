"""Tables under a budget and with outages: what each row would be answered on demand, and plain loops say the same."""

import math

import numpy as np
import pytest

import cstc.model.native as native
import reference
from cstc import load, save
from cstc.serving import OnDemandPredictor, Session
from cstc.serving.walk import bits
from serving.outages import compare, random_budget, random_worlds, table_for, told_rows, trained_models
from serving.worlds import random_world


@pytest.fixture(scope="module")
def trained():
    return trained_models()


def test_a_table_is_answered_as_its_rows_are_on_demand(trained):
    X, models = trained
    rng = np.random.default_rng(1)
    n = n_bits = 0
    for estimator in models.values():
        model = getattr(estimator, "model_", estimator)
        table = table_for(model, X)
        rows = told_rows(model, table)
        for _ in range(8):
            at = rng.choice(len(X), size=12, replace=False)
            found = compare(rng, model, table[at], [rows[i] for i in at])
            n, n_bits = n + found[0], n_bits + found[1]
    for world in random_worlds(rng, 48):
        found = compare(rng, world.model, world.X, world.rows)
        n, n_bits = n + found[0], n_bits + found[1]
    assert n_bits > 0.99 * n


@pytest.mark.parametrize("fewest", [1, 1000])
def test_a_table_is_answered_in_the_same_way_without_compiled_code(fewest, monkeypatch):
    monkeypatch.setattr(native, "_native", None)
    monkeypatch.setattr(bits, "FEWEST_LEARNERS", fewest)  # by bits and by pointers
    rng = np.random.default_rng(6)
    for world in random_worlds(rng, 32):
        compare(rng, world.model, world.X, world.rows)
        everything = world.model.schema.feature_names
        answer = Session(world.model, unavailable=everything).answer()  # no learner looks at anything
        margins, cost = world.model.decision_and_cost(world.X[:1], unavailable=everything)
        np.testing.assert_allclose(answer.margins, margins[0], rtol=1e-12, atol=1e-12)
        assert answer.cost == pytest.approx(cost[0], rel=1e-12)
        assert not answer.items


def test_a_budget_in_plain_loops():
    rng = np.random.default_rng(2)
    early = 0
    for world in random_worlds(rng, 64):
        model = world.model
        for x in world.X:
            budget = float(rng.uniform(0, model.terminal_costs().max()))
            expected = reference.BudgetedRow(model, x, budget)
            margins, cost = model.decision_and_cost(x[None, :], budget=budget)
            if not np.isnan(margins).any():
                np.testing.assert_allclose(margins[0], expected.margins, rtol=1e-9, atol=1e-9)
            assert cost[0] == pytest.approx(expected.cost, rel=1e-9, abs=1e-12)
            assert cost[0] <= budget
            early += expected.is_early
    assert early > 100


def test_an_outage_in_plain_loops():
    rng = np.random.default_rng(3)
    turned = 0
    for world in random_worlds(rng, 48):
        model = world.model
        gone = set(np.flatnonzero(rng.random(world.X.shape[1]) < 0.3).tolist())
        known = set(range(world.X.shape[1])) - gone
        margins, cost = model.decision_and_cost(
            world.X, unavailable=[model.schema.feature_names[j] for j in sorted(gone)]
        )
        if any(name in model.costs.item_names for name in model.schema.feature_names):
            known = {j for j in known if not any(set(np.flatnonzero(model.costs.feature_items[j])) & {k} for k in gone)}
        experts, idle = reference.experts_without(model, set(range(world.X.shape[1])) - known)
        for i, x in enumerate(world.X):
            _, path, looked = reference.averaged_route(model, x, known, idle)
            expert = experts[path[-1]]
            expected = reference.averaged_margins(model, x, known, expert)
            if reference.says_nothing(model, expert, known):
                expected = model.constant
            if not np.isnan(margins[i]).any():
                np.testing.assert_allclose(margins[i], expected, rtol=1e-9, atol=1e-9)
            for t in reference.expert_learners(model, expert):
                looked |= reference.averaged_features(model.pool, t, x, known)
            items = reference.items_of(looked, model.costs.feature_items)
            if not model.costs.evaluation:
                assert cost[i] == pytest.approx(sum(model.costs.prices[r] for r in items), rel=1e-9, abs=1e-12)
            turned += expert != path[-1]
    assert turned > 10


def name_of(model):
    """Of something that may be down."""
    return "draw" if "draw" in model.costs.item_names else model.schema.feature_names[1]


def test_estimators_and_loaded_models_say_the_same(trained, tmp_path):
    whole, models = trained
    rng = np.random.default_rng(4)
    for name, estimator in models.items():
        save(estimator, tmp_path / "model.cstc")
        loaded = load(tmp_path / "model.cstc")
        model = getattr(estimator, "model_", estimator)
        X = table_for(model, whole)
        budget = float(np.median(estimator.predict_cost(X)))
        for how in ({"budget": budget}, {"unavailable": [name_of(model)]}):
            both = {**how, "budget": random_budget(rng, model)}
            for options in (how, both):
                value, cost = estimator.predict(X, return_cost=True, **options)
                np.testing.assert_array_equal(cost, estimator.predict_cost(X, **options))
                np.testing.assert_array_equal(value, estimator.predict(X, **options))
                np.testing.assert_array_equal(value, loaded.predict(X, **options), err_msg=name)
                np.testing.assert_array_equal(cost, loaded.predict_cost(X, **options))
                if model.schema.classes is not None:
                    shares, again = estimator.predict_proba(X, return_cost=True, **options)
                    np.testing.assert_array_equal(again, cost)
                    np.testing.assert_array_equal(model.schema.classes[shares.argmax(axis=1)], value)
                    np.testing.assert_array_equal(shares, loaded.predict_proba(X, **options))
        assert (estimator.predict_cost(X, budget=budget) <= budget).all()
        np.testing.assert_array_equal(estimator.predict(X, budget=math.inf), estimator.predict(X))


def test_with_the_whole_node_fetched_an_outage_is_counted_by_learners(trained):
    X, models = trained
    for estimator in models.values():
        model = getattr(estimator, "model_", estimator)
        some = table_for(model, X[:20])
        margins, cost = model.decision_and_cost(some, "learner", unavailable=[name_of(model)])
        for i, told in enumerate(told_rows(model, some)):
            session = Session(model, prefetch="node", unavailable=[name_of(model)])
            while wanted := session.wanted():
                session.tell({name: told[name] for name in wanted})
            answer = session.answer()
            np.testing.assert_allclose(answer.margins, margins[i], rtol=1e-12, atol=1e-12)
            assert answer.cost == pytest.approx(cost[i], rel=1e-12)


def test_nothing_is_missed_in_a_column_that_is_unavailable(recwarn):
    """Neither of a category nor of a number that a learner passes on as it is."""
    rng = np.random.default_rng(5)
    world = random_world(rng, "regression", 8, missing=False)
    model = world.model
    blind = world.X.copy()
    blind[:, :2] = np.nan
    expected = model.predict(world.X, unavailable=["x0", "x1"])
    np.testing.assert_array_equal(model.predict(blind, unavailable=["x0", "x1"]), expected)
    np.testing.assert_array_equal(model.predict(blind, unavailable=np.array(["x0", "x1"])), expected)
    np.testing.assert_array_equal(model.predict(blind, unavailable=iter(["x0", "x1"])), expected)
    assert not recwarn.list
    with pytest.raises(ValueError, match="is missing, where training saw no missing values"):
        model.predict(blind, unavailable=["x0"])


# ------------------------------------------------------------------------------------------ bad input

BAD = [
    ({"unavailable": "x0"}, r"unavailable is the text 'x0'; give a list of names: \['x0'\]"),
    ({"unavailable": ["x0", "moon"]}, "unavailable names 'moon', which is no source, item or feature of the model"),
    ({"unavailable": [0]}, "unavailable names 0, which is no source"),
    ({"unavailable": 5}, "unavailable is 5; give a list of names"),
    ({"budget": math.nan}, "budget is nan; it must be 0 or more"),
    ({"budget": -1}, "budget is -1.0; it must be 0 or more"),
    ({"budget": "much"}, "budget is 'much'; it must be a number"),
    ({"budget": 10**400}, "budget is 1.*; it must be a number"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_budgets_and_outages(trained, tmp_path, options, message):
    X, models = trained
    estimator = models["experts, two classes"]
    save(estimator, tmp_path / "model.cstc")
    for model in (estimator, load(tmp_path / "model.cstc")):
        for method in (model.predict, model.predict_proba, model.predict_cost):
            with pytest.raises(ValueError, match=message):
                method(X, **options)
    with OnDemandPredictor(estimator, [], given=[f"x{j}" for j in range(6)]) as predictor:
        with pytest.raises(ValueError, match=message):
            predictor.predict(0, **options)
        with pytest.raises(ValueError, match=message):
            predictor.predict_many([0, 1], **options)
        with pytest.raises(ValueError, match=message):
            predictor.session(**options)
    with pytest.raises(ValueError, match=message):
        Session(estimator, **options)


def test_a_budget_is_counted_by_branches(trained, tmp_path):
    X, models = trained
    estimator = models["experts, regression"]
    save(estimator, tmp_path / "model.cstc")
    for model in (estimator, load(tmp_path / "model.cstc")):
        with pytest.raises(ValueError, match="counting is 'learner'; a budget is counted by branches"):
            model.predict_cost(X, "learner", budget=3.0)
        assert model.predict_cost(X, "learner", unavailable=["x1"]).shape == (len(X),)
