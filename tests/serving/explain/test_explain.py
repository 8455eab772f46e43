"""Explanations say what happened: prices add up, predictions are the model's own, and words, JSON and HTML agree."""

import copy
import json
import pickle
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from scipy.sparse import csr_matrix

import builders
from builders import SHAPES
from cstc import CostModel, CSTCClassifier, CSTCRanker, CSTCRegressor, Experts, Paper, from_lightgbm, load
from cstc.datasets import QUADRANT_COSTS, make_quadrants
from cstc.resampling import Resamples, standard_error
from cstc.serving import Explanation, OnDemandPredictor, Session, extractor
from cstc.serving.explain.words import bought_in_words
from experts.cases import OWN_PRICES, own_features

NAMES = ["age", "waist", "glucose", "insulin"]
COSTS = CostModel(
    {"age": 1.0, "waist": 2.0, "blood draw": 3.0, "glucose": 4.0, "insulin": 5.0},
    requires={"glucose": ["blood draw"], "insulin": ["blood draw"]},
)


def patients(n=900, seed=0):
    """What is cheap says enough of most, and what is expensive of the others."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    hard = np.abs(X[:, 0]) < 0.7
    score = np.where(hard, 2.5 * X[:, 2] + 1.5 * X[:, 3], 4.0 * X[:, 0]) + 0.3 * X[:, 1]
    return pd.DataFrame(X, columns=NAMES), score, rng


def labels(score, rng, task):
    noisy = score + rng.logistic(size=len(score))
    if task == "classes":
        return np.where(noisy > 0, "ill", "well")
    return np.digitize(noisy, [-1.5, 1.5]) if task == "three" else noisy


def fitted(task, **options):
    X, score, rng = patients()
    y = labels(score, rng, task)
    options = {"costs": COSTS, "cost_weight": 0.01, "n_weak_learners": 60, "random_state": 0} | options
    if task == "ranking":
        qid = np.repeat(np.arange(len(X) // 10), 10)
        return CSTCRanker(**options).fit(X, np.digitize(score, [-1, 1, 3]), qid=qid), X
    kind = CSTCRegressor if task == "regression" else CSTCClassifier
    return kind(**options).fit(X, y), X


TASKS = {"classes": 0.01, "three": 0.01, "regression": 0.1, "ranking": 0.01}


@pytest.fixture(scope="module")
def models():
    return {task: fitted(task, cost_weight=weight) for task, weight in TASKS.items()}


@pytest.fixture(scope="module")
def ill(models):
    model, X = models["classes"]
    assert model.model_.shape.n_nodes > 1  # else there is nothing to be weighed
    return model, X


def stopping(model, X):
    """A row that stops on the way, and one that goes to the end."""
    ends = model.apply(X)
    return int(np.argmin(ends)), int(np.argmax(ends))


# ---------------------------------------------------------------------------------------------- what it says


@pytest.mark.parametrize("task", TASKS)
def test_prices_add_up_and_the_last_prediction_is_the_answer(models, task):
    model, X = models[task]
    for row in range(0, 60, 4):
        explanation = model.explain(X.iloc[[row]])
        assert isinstance(explanation, Explanation)
        assert sum(step.price for step in explanation.steps) == pytest.approx(explanation.cost)
        assert explanation.steps[-1].spent == explanation.cost == model.predict_cost(X.iloc[[row]])[0]
        assert explanation.steps[-1].after == explanation.outcome
        assert explanation.steps[0].before == explanation.start
        for earlier, later in zip(explanation.steps, explanation.steps[1:], strict=False):
            assert earlier.after == later.before
            assert later.spent == pytest.approx(earlier.spent + later.price)
        for step in explanation.steps:
            assert step.price == pytest.approx(sum(step.items.values()))
            assert all(value == X.iloc[row][name] for name, value in step.features.items())
        assert explanation.outcome.value == model.predict(X.iloc[[row]])[0]
        if task in ("classes", "three"):
            shares = model.predict_proba(X.iloc[[row]])[0]
            assert list(explanation.outcome.probabilities) == model.classes_.tolist()
            assert list(explanation.outcome.probabilities.values()) == pytest.approx(shares)
            assert explanation.outcome.uncertainty == pytest.approx(1 - shares.max())


@pytest.mark.parametrize("task", TASKS)
def test_what_is_bought_promises_more_than_it_costs_and_what_is_not_promises_less(models, task):
    model, X = models[task]
    assert model.model_.shape.n_nodes > 1  # or nothing would be weighed
    weighed = 0
    for row in range(80):
        explanation = model.explain(X.iloc[[row]])
        for step in explanation.steps[1:]:
            assert step.expected.worth > step.expected.price
            assert step.expected.net == pytest.approx(step.expected.worth - step.expected.price)
            assert step.expected.gain == pytest.approx(step.expected.net * explanation.cost_weight)
            weighed += step.expected.of_this_row  # not where all that come there go on, by one order or the other
        following = explanation.next_purchase
        if following is not None:
            assert following.expected.worth <= following.expected.price
            assert following.price > 0
            assert not set(following.items) & {name for step in explanation.steps for name in step.items}
            weighed += 1
        else:
            assert "Nothing is left to buy" in explanation.stopped_because
    assert weighed


def test_worth_in_money_does_not_depend_on_the_units_of_the_target():
    X, score, rng = patients()
    y = labels(score, rng, "regression")
    options = {"costs": COSTS, "n_weak_learners": 40, "random_state": 0}
    one = CSTCRegressor(cost_weight=0.1, **options).fit(X, y)
    other = CSTCRegressor(cost_weight=0.1 * 64**2, **options).fit(X, 64 * y)  # a power of two: the same bits
    assert one.model_.shape.n_nodes > 1
    for row in range(10):
        first, second = one.explain(X.iloc[[row]]), other.explain(X.iloc[[row]])
        assert second.outcome.value == pytest.approx(64 * first.outcome.value)
        assert second.outcome.uncertainty == pytest.approx(64 * first.outcome.uncertainty)
        expected = [each.next_purchase and each.next_purchase.expected.worth for each in (first, second)]
        assert expected[0] == (expected[1] if expected[1] is None else pytest.approx(expected[1]))


def test_forecasts_of_gates_are_right_on_average():
    """What gates promise to the rows that go on is about what those rows lose less, as it was seen in training."""
    model, X = fitted("regression", cost_weight=0.1)
    tree = model.model_
    first = [model.explain(X.iloc[[row]]).steps for row in range(400)]
    promised = np.mean([steps[1].expected.saving for steps in first if len(steps) > 1])
    seen = tree.estimates.losses[1, 0] - tree.estimates.path_losses[1]
    assert promised == pytest.approx(seen, rel=0.5)


def test_a_loaded_model_and_its_estimator_explain_alike(ill, tmp_path):
    model, X = ill
    model.save(tmp_path / "model.cstc")
    loaded = load(tmp_path / "model.cstc")
    for row in range(5):
        assert loaded.explain(X.iloc[[row]]).to_dict() == model.explain(X.iloc[[row]]).to_dict()
        assert str(loaded.explain(X.iloc[[row]])) == str(model.explain(X.iloc[[row]]))


def test_text_for_readers_without_machine_learning(ill):
    model, X = ill
    stops, ends = stopping(model, X)
    explanation = model.explain(X.iloc[[stops]])
    text = str(explanation)
    for word in ("margin", "node", "gate", "log loss", "learner", "threshold", "lambda"):
        assert word not in text.lower()
    flat = re.sub(r"\s+", " ", text)
    best = max(explanation.outcome.probabilities.values())
    assert text.startswith("Answer: ")
    assert f"{best:.0%}" in flat or "over 99%" in flat
    assert f"Paid: {explanation.cost:g}, in {len(explanation.steps)} step" in flat
    assert "Every case begins with this." in flat
    assert "Why it stopped: More would not pay:" in flat
    assert "The next purchase would be" in flat
    for step in explanation.steps:
        for name, value in step.features.items():
            assert f"{name} = {value:.6g}" in flat
    assert max(map(len, text.splitlines())) <= 100
    assert "Nothing is left to buy" in str(model.explain(X.iloc[[ends]]))


def test_shared_items_are_on_the_bill_once(models):
    model, X = models["regression"]
    explanation = model.explain(X.iloc[[int(np.argmax(model.predict_cost(X)))]])
    bought = [name for step in explanation.steps for name in step.items]
    assert bought.count("blood draw") == 1
    assert "The bill: " in str(explanation)


def test_json_and_html(ill):
    model, X = ill
    explanation = model.explain(X.iloc[[stopping(model, X)[0]]])
    told = json.loads(explanation.to_json())
    assert told == json.loads(json.dumps(explanation.to_dict()))
    assert told["cost"] == explanation.cost
    assert told["steps"][0]["features"] == explanation.steps[0].features
    assert told["next_purchase"]["items"] == explanation.next_purchase.items
    assert told["outcome"]["value"] == explanation.outcome.value
    page = explanation.to_html()
    assert page.startswith("<!DOCTYPE html>")
    assert "http" not in page
    assert "src=" not in page
    assert explanation._repr_html_() in page
    for step in explanation.steps:
        assert all(f"{name} = {value:.6g}" in page for name, value in step.features.items())
    assert repr(explanation).startswith("<Explanation: ")


def test_hostile_names_and_values():
    X, score, rng = patients(300)
    bad = "<script>alert('x')</script>\n$\\frac{1}{2}$ & \x1b[31m"
    X = X.rename(columns={"age": bad})
    X["kind"] = np.where(X["waist"] > 0, "<img src=x onerror=y>", "b\x00c")
    y = np.where(labels(score, rng, "regression") > 0, "<b>ill</b>", "well")
    model = CSTCClassifier(n_weak_learners=10, cost_weight=0.001, random_state=0).fit(X, y)
    explanation = model.explain(X.iloc[[0]])
    for html in (explanation.to_html(), explanation._repr_html_()):
        for mark in ("<script", "<img", "<b>", "\x1b", "\x00", "\n$"):
            assert mark not in html
    assert "\x1b" not in str(explanation)
    assert bad in json.loads(explanation.to_json())["steps"][0]["features"]


# --------------------------------------------------------------------------------------- models of other kinds


def test_models_without_estimates_say_what_they_know(models):
    X, score, rng = patients()
    y = labels(score, rng, "classes")
    booster = LGBMClassifier(n_estimators=10, verbosity=-1).fit(X.to_numpy(), y)
    tree = from_lightgbm(booster, costs=[1, 2, 3, 4])
    explanation = tree.explain(X.to_numpy()[0])
    assert explanation.cost_weight is None
    assert explanation.steps[0].expected is None
    assert explanation.next_purchase is None
    assert explanation.outcome.value == tree.predict(X.to_numpy()[:1])[0]
    assert "worth" not in str(explanation) + explanation.to_html()


def test_the_papers_trees():
    X, score, rng = patients(400)
    y = labels(score, rng, "regression")
    model = CSTCRegressor(costs=COSTS, method=Paper(depth=2, max_iter=20, tol=1e-2), n_weak_learners=10, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    for row in range(10):
        explanation = model.explain(X.iloc[[row]])
        assert explanation.cost == model.predict_cost(X.iloc[[row]])[0]
        assert explanation.outcome.value == pytest.approx(model.predict(X.iloc[[row]])[0])
        assert explanation.outcome.uncertainty is None
        assert str(explanation)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_any_tree(shape):
    rng = np.random.default_rng(0)
    model, X = builders.random_model(rng, shape), builders.random_table(rng, 20)
    for row in X:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            explanation = model.explain(row)
            assert sum(step.price for step in explanation.steps) + explanation.evaluation == pytest.approx(
                model.predict_cost(row[None, :])[0]
            )
            assert explanation.outcome.value == pytest.approx(model.predict(row[None, :])[0], nan_ok=True)
            json.loads(explanation.to_json())
            assert str(explanation)
            assert explanation.to_html()


def test_branches_for_groups_are_no_gates():
    _, X, y, _ = own_features()
    model = CSTCRegressor(costs=OWN_PRICES, cost_weight=0.003, n_weak_learners=40, random_state=0).fit(X, y)
    assert not model.model_.shape.is_predictive.all()
    explanation = model.explain(X[0])
    assert len(explanation.steps) > 1
    assert not any(step.expected is not None and step.expected.of_this_row for step in explanation.steps[:2])
    assert all(step.expected is None or step.expected.price == step.price for step in explanation.steps[:2])
    assert "cases like this one need" in re.sub(r"\s+", " ", str(explanation))
    assert model.item_importance(X).column("spent").sum() == pytest.approx(model.predict_cost(X).mean())


def test_plain_inputs_and_evaluation_prices():
    X, y = make_quadrants(500, random_state=0)
    model = CSTCRegressor(costs=QUADRANT_COSTS, cost_weight=0.03, weak_learners="identity", random_state=0).fit(X, y)
    explanation = model.explain(X[0])
    assert explanation.cost == 12.0 == sum(step.price for step in explanation.steps)
    frame, score, rng = patients(300)
    costs = CostModel(COSTS.prices, COSTS.requires, evaluation=0.01)
    model = CSTCRegressor(costs=costs, cost_weight=0.1, n_weak_learners=10, random_state=0)
    explanation = model.fit(frame, labels(score, rng, "regression")).explain(frame.iloc[[0]])
    assert explanation.evaluation > 0
    assert sum(step.price for step in explanation.steps) + explanation.evaluation == pytest.approx(explanation.cost)
    assert "for computing" in str(explanation)


# --------------------------------------------------------------------------------------------- early answers


@pytest.mark.parametrize("budget", [0, 1, 4, 9])
def test_budgets(models, budget):
    model, X = models["regression"]
    row = int(np.argmax(model.predict_cost(X)))
    explanation = model.explain(X.iloc[[row]], budget=budget)
    assert explanation.cost <= budget
    assert explanation.status == "budget"
    assert explanation.outcome.value == pytest.approx(model.predict(X.iloc[[row]], budget=budget)[0])
    assert f"the budget of {budget:g}" in explanation.stopped_because
    assert explanation.basis in re.sub(r"\s+", " ", str(explanation))
    following = explanation.next_purchase
    assert explanation.cost + following.price > budget
    assert not set(following.features) & {name for step in explanation.steps for name in step.features}


@pytest.mark.parametrize("task", TASKS)
def test_what_is_unavailable_is_neither_bought_nor_paid(models, task):
    model, X = models[task]
    row = int(np.argmax(model.predict_cost(X)))
    explanation = model.explain(X.iloc[[row]], unavailable=["blood draw"])
    assert explanation.status == "unavailable"
    assert not any({"glucose", "insulin", "blood draw"} & {*step.features, *step.items} for step in explanation.steps)
    value, cost = model.predict(X.iloc[[row]], unavailable=["blood draw"], return_cost=True)
    assert explanation.cost == cost[0]
    assert explanation.outcome.value == (value[0] if task in ("classes", "three") else pytest.approx(value[0]))
    assert "could not be had" in explanation.stopped_because
    assert "The answer rests on" in str(explanation)


def test_answers_of_a_predictor(models):
    model, X = models["regression"]
    row = int(np.argmax(model.predict_cost(X)))

    @extractor(provides=["age", "waist"], instant=True)
    def clinic(at):
        return X.iloc[at][["age", "waist"]].to_dict()

    @extractor(provides=["glucose", "insulin"], instant=True)
    def laboratory(at):
        if broken:
            raise OSError("the line is dead")
        return X.iloc[at][["glucose", "insulin"]].to_dict()

    broken = False
    with OnDemandPredictor(model, [clinic, laboratory]) as predictor:
        answer = predictor.predict(row)
        explanation = answer.explain()
        assert explanation.cost == answer.cost
        assert explanation.outcome.value == answer.value
        assert explanation.to_dict() == model.explain(X.iloc[[row]]).to_dict()
        for other in (copy.copy(answer), pickle.loads(pickle.dumps(answer))):
            with pytest.raises(ValueError, match="has left its model behind"):
                other.explain()
        broken = True
        poor = predictor.predict(row).explain()
    assert poor.status == "failed"
    assert any("the line is dead" in why for step in poor.steps for why in step.failed.values())
    text = re.sub(r"\s+", " ", str(poor))
    assert "Did not come: " in text
    assert "It went on without what could not be had" in text
    assert sum(step.price for step in poor.steps) == pytest.approx(poor.cost)
    assert json.loads(poor.to_json())["status"] == "failed"
    assert "the line is dead" in poor.to_html()


def test_answers_of_a_session(ill):
    model, X = ill
    values = X.iloc[stopping(model, X)[1]].to_dict()
    session = Session(model, known={"age": values["age"]}, paid=["blood draw"])
    early = session.answer().explain()
    assert early.status == "stopped"
    assert early.given == {"age": values["age"]}
    assert early.cost == 0
    while wanted := session.wanted():
        session.tell({name: values[name] for name in wanted})
    done = session.answer().explain()
    assert done.outcome.value == model.predict(X.iloc[[stopping(model, X)[1]]])[0]
    assert not any({"age", "blood draw"} & {*step.features, *step.items} for step in done.steps)
    assert "Known from the start, for nothing: age = " in str(done)
    assert "Known from the start" in done.to_html()
    assert not early.steps  # what came later does not change it
    assert "Nothing was bought" in str(early)


# -------------------------------------------------------------------------------------------------- the input


def test_ways_to_give_a_row(ill):
    model, X = ill
    expected = model.explain(X.iloc[[3]]).to_dict()
    values = X.iloc[3]
    for row in (values, values.to_dict(), {**values.to_dict(), "name": "Ann"}):
        assert model.explain(row).to_dict() == expected
        assert model.model_.explain(row).to_dict() == expected
    for row in (values.to_numpy(), values.tolist(), values.to_numpy()[None, :], csr_matrix(values.to_numpy())):
        assert model.model_.explain(row).to_dict() == expected
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the estimator was fitted with names
            assert model.explain(row).to_dict() == expected
    needed = {name for step in expected["steps"] for name in step["features"]}
    assert model.explain({name: values[name] for name in needed}).to_dict() == expected


def test_categories_are_shown_as_they_were_given():
    X, _, _ = patients(400)
    X["kind"] = pd.Categorical(np.where(X["glucose"] > 0, "high", "low"))
    X["smokes"] = X["insulin"] > 0
    y = np.where((X["glucose"] > 0) & (X["insulin"] > 0), "ill", "well")
    X = X[["kind", "smokes"]]
    model = CSTCClassifier(n_weak_learners=20, cost_weight=0.0001, random_state=0).fit(X, y)
    for row in (X.iloc[[0]], X.iloc[0].to_dict()):
        features = {name: value for step in model.explain(row).steps for name, value in step.features.items()}
        assert features == {"kind": X["kind"][0], "smokes": X["smokes"][0]}
        assert f"kind = {X['kind'][0]}" in str(model.explain(row))
        assert f"smokes = {'yes' if X['smokes'][0] else 'no'}" in str(model.explain(row))


def test_missing_values():
    X, score, rng = patients(400)
    X.loc[::3, "age"] = np.nan
    model = CSTCClassifier(n_weak_learners=20, cost_weight=0.0001, random_state=0)
    model.fit(X, labels(score, rng, "classes"))
    explanation = model.explain(X.iloc[[0]])
    assert "age = missing" in str(explanation)
    assert json.loads(explanation.to_json())["steps"][0]["features"]["age"] is None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (lambda X: X.iloc[:3], "row holds 3 rows"),
        (lambda X: X.to_numpy()[:2], "row holds 2 rows"),
        (lambda X: X.to_numpy()[:0], "row holds 0 rows"),
        (lambda X: [1.0, 2.0], "2 (columns|features)"),
        (lambda X: 3.0, "row is a float"),
        (lambda X: "age", "row is a str"),
        (lambda X: {"waist": 1.0}, "row has no value for"),
        (lambda X: dict.fromkeys(NAMES, "high"), "is the text 'high'"),
    ],
)
def test_bad_rows_get_clear_errors(ill, row, message):
    model, X = ill
    for each in (model, model.model_):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(ValueError, match=message):
                each.explain(row(X))


def test_bad_options_get_clear_errors(ill):
    model, X = ill
    with pytest.raises(ValueError, match="budget is -1"):
        model.explain(X.iloc[[0]], budget=-1)
    with pytest.raises(ValueError, match="which is no source, item or feature"):
        model.explain(X.iloc[[0]], unavailable=["bmi"])


def test_what_is_free_is_said_to_be_free():
    step = SimpleNamespace(items={"age": 0.0, "weight": 2.0}, features={"age": 61, "weight": 80}, price=2.0)
    assert bought_in_words(step) == "Bought for 2: weight = 80 (for 2), age = 61 (free)."
    step = SimpleNamespace(items={"age": 0.0, "crp": 8.0, "draw": 5.0}, features={"age": 61, "crp": 7}, price=13.0)
    assert bought_in_words(step) == "Bought for 13: crp = 7, age = 61. The bill: crp 8, draw 5."


# ------------------------------------------------------------------------------------------- importance of items


@pytest.mark.parametrize("task", TASKS)
def test_importance_adds_up_to_what_is_spent(models, task):
    model, X = models[task]
    table = model.item_importance(X)
    assert table.column("spent").sum() == pytest.approx(model.predict_cost(X).mean())
    assert list(table.column("spent")) == sorted(table.column("spent"), reverse=True)
    assert all(0 <= share <= 1 for share in table.column("bought"))
    assert all(saved >= 0 for saved in table.column("loss_saved"))
    assert table == model.model_.item_importance(X)
    columns = ["item", "price", "bought", "spent", "loss_saved", "loss_saved_error", "worth"]
    assert list(table.to_pandas().columns) == columns
    assert set(table.column("loss_saved_error")) == {None}
    assert "loss saved" in repr(table)
    assert "error" not in repr(table)
    assert "±" not in repr(table)
    sparse = csr_matrix(X.to_numpy())
    assert model.model_.item_importance(sparse).column("loss_saved") == pytest.approx(table.column("loss_saved"))


def test_importance_by_labels_is_the_loss_without_the_item(ill):
    model, X = ill
    _, score, _ = patients()
    y = labels(score, np.random.default_rng(5), "classes")
    table = {row["item"]: row for row in model.item_importance(X, y)}

    def losses(tree):
        shares = tree.predict_proba(X)
        return -np.log(shares[np.arange(len(y)), np.searchsorted(model.classes_, y)])

    for item, columns in (("age", [0]), ("blood draw", [2, 3])):
        more = losses(model.model_.without(columns)) - losses(model.model_)
        saved = more.mean()
        assert table[item]["loss_saved"] == pytest.approx(saved)
        assert table[item]["worth"] == pytest.approx(saved / model.cost_weight)
        draws = Resamples.of(len(y), seed=1).means(more)  # of the same rows: the bootstrap knows the same error
        assert table[item]["loss_saved_error"] == pytest.approx(standard_error(draws), rel=0.2)
    assert table["age"]["loss_saved"] > 0.05
    assert f"{table['age']['loss_saved']:.4g} ± {table['age']['loss_saved_error']:.2g}" in repr(
        model.item_importance(X, y)
    )
    assert model.item_importance(X[:1], y[:1])[0]["loss_saved_error"] is None


def test_importance_of_models_that_know_little():
    X, score, rng = patients()
    y = labels(score, rng, "regression")
    booster = from_lightgbm(LGBMClassifier(n_estimators=5, verbosity=-1).fit(X.to_numpy(), y > 0), costs=[1, 2, 3, 4])
    table = booster.item_importance(X.to_numpy())
    assert table[0]["loss_saved"] is None
    assert "unknown" in repr(table)
    assert max(booster.item_importance(X.to_numpy(), y > 0).column("loss_saved")) > 0
    free = CSTCRegressor(method=Experts(folds=2), cost_weight=1e6, n_weak_learners=5, random_state=0).fit(X, y)
    assert len(free.item_importance(X)) == 0
    assert repr(free.item_importance(X)) == ""


def test_importance_refuses_what_does_not_fit(ill):
    model, X = ill
    with pytest.raises(ValueError, match="y has shape"):
        model.item_importance(X, ["ill"])
    with pytest.raises(ValueError, match="no class of the model"):
        model.item_importance(X, ["dead"] * len(X))
    with pytest.raises(ValueError, match="X has no rows"):
        model.model_.item_importance(X.iloc[:0])
