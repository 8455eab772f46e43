"""Errors in money: what users may write, what is minimised, what is decided, and where that shows."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification

import cstc
from cstc import CSTCClassifier
from cstc.estimators._error_costs import decisions_of
from cstc.metrics import make_cost_scorer
from cstc.model import probabilities
from cstc.serving import OnDemandPredictor, Session, extractor

X, Y = make_classification(700, 6, n_informative=4, n_redundant=0, flip_y=0.05, random_state=3)
PRICES = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
SMALL = {"costs": PRICES, "n_weak_learners": 30, "random_state": 0, "n_jobs": 1}
ERRORS = [[0.0, 100.0], [1000.0, 0.0]]
REFER = [[0.0, 300.0, 40.0], [300.0, 0.0, 40.0]]


@pytest.fixture(scope="module")
def model():
    return CSTCClassifier(**SMALL, error_costs=ERRORS).fit(X[:500], Y[:500])


@pytest.fixture(scope="module")
def referring():
    return CSTCClassifier(**SMALL, error_costs=REFER).fit(X[:500], Y[:500])


# ---------------------------------------------------------------------------------------------- what is written


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([[0, 1]], "has the shape (1, 2); give 2 rows"),
        ([[0, 1], [1, 0], [1, 1]], "has the shape (3, 2)"),
        ([[0, 1, 2, 3], [1, 0, 2, 3]], "has the shape (2, 4)"),
        ([0, 1], "has the shape (2,)"),
        (5, "has the shape ()"),
        ("prices", "give 2 rows, one for each class as the truth"),
        ([[0, 1], [1]], "give 2 rows"),
        ([["0", "300"], ["5000", "0"]], "give 2 rows"),
        ([[False, True], [True, False]], "give 2 rows"),
        ({0: {1: True}, 1: {0: 5}}, "error_costs[0][1] is True; it must be a number"),
        ([[0, -1], [1, 0]], "error_costs[0][1] is -1.0; prices of errors must be finite and 0 or more"),
        ([[0, 1], [np.nan, 0]], "error_costs[1][0] is nan"),
        ([[0, np.inf], [1, 0]], "error_costs[0][1] is inf"),
        ([[0, 0], [0, 0]], "0 everywhere"),
        ({0: {1: 5}}, "it must have an entry for each of the classes [0, 1]"),
        ({0: {1: 5}, 7: {0: 5}}, "it must have an entry for each of the classes [0, 1]"),
        ({0: 5, 1: {0: 5}}, "it must map decisions to prices"),
        ({0: {1: 5}, 1: {}}, "[0] need one each"),
        ({0: {1: 5, None: 2}, 1: {0: 5}}, "[0, None] need one each"),
        ({0: {1: "much"}, 1: {0: 5}}, "error_costs[0][1] is 'much'; it must be a number"),
    ],
)
def test_prices_that_cannot_be(given, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        CSTCClassifier(**SMALL, error_costs=given).fit(X, Y)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"class_weight": "balanced"}, "leave class_weight out"),
        ({"method": "paper"}, "Paper minimises the log loss"),
        ({"weak_learners": "identity", "n_weak_learners": None}, "Exact minimises the log loss"),
    ],
)
def test_what_does_not_go_with_prices_of_errors(options, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        CSTCClassifier(**SMALL | {"error_costs": ERRORS} | options).fit(X, Y)


def test_names_and_tables_say_the_same():
    classes = np.array(["sick", "well"])
    by_name = decisions_of({"well": {"sick": 300}, "sick": {"well": 5000}}, classes)
    assert by_name.costs.tolist() == [[0, 5000], [300, 0]]
    refers = decisions_of({"sick": {"well": 50, None: 9}, "well": {"sick": 3, None: 9, "well": 1}}, classes)
    assert refers.costs.tolist() == [[0, 50, 9], [3, 1, 9]]


def test_without_prices_of_errors_there_is_no_total(model):
    plain = CSTCClassifier(**SMALL).fit(X, Y)
    for ask in (lambda: plain.total_cost(X, Y), lambda: plain.expected_total_cost(X)):
        with pytest.raises(ValueError, match="no prices of errors"):
            ask()
    with pytest.raises(ValueError, match="which is no class of the model"):
        model.total_cost(X, Y + 5)
    with pytest.raises(ValueError, match="give one label for each"):
        model.total_cost(X, Y[:-1])


# ---------------------------------------------------------------------------------------------- what comes of it


def test_the_usual_weight_of_cost_is_one(model):
    assert model.cost_weight_ == 1.0
    same = clone(model).set_params(cost_weight=1.0).fit(X[:500], Y[:500])
    assert (same.predict_proba(X) == model.predict_proba(X)).all()
    assert CSTCClassifier(**SMALL).fit(X[:200], Y[:200]).cost_weight_ == 0.01


def test_totals_are_what_a_loop_adds_up(model):
    rows, truth = X[500:], Y[500:]
    shares, paid = model.predict_proba(rows), model.predict_cost(rows)
    for row in range(len(rows)):
        costs = [sum(shares[row, c] * ERRORS[c][d] for c in range(2)) for d in range(2)]
        decided = int(np.argmin(costs))
        assert model.predict(rows)[row] == decided
        assert model.total_cost(rows, truth)[row] == pytest.approx(paid[row] + ERRORS[truth[row]][decided])
        assert model.expected_total_cost(rows)[row] == pytest.approx(paid[row] + min(costs))
        if row == 40:
            break


def test_errors_that_cost_nothing_to_speak_of_buy_nothing():
    model = CSTCClassifier(**SMALL, error_costs=[[0, 0.5], [0.5, 0]]).fit(X, Y)
    assert model.predict_cost(X).max() == 0
    verdicts = {row.name: row.verdict for row in model.candidates_}
    assert verdicts["buys nothing"] == "taken"


def test_higher_stakes_buy_more_and_cost_less_than_ignoring_them():
    totals = {}
    for stake in (5.0, 5000.0):
        errors = [[0.0, stake], [stake, 0.0]]
        priced = CSTCClassifier(**SMALL, error_costs=errors).fit(X[:500], Y[:500])
        totals[stake] = priced.predict_cost(X[500:]).mean()
    assert totals[5.0] < totals[5000.0]
    nothing = np.array(ERRORS)[Y[500:], 1].mean()  # all are called class 1, the decision without any test
    best = CSTCClassifier(**SMALL, error_costs=ERRORS).fit(X[:500], Y[:500])
    assert best.total_cost(X[500:], Y[500:]).mean() < nothing


def test_rows_that_nobody_can_tell_are_referred(referring):
    answers = referring.predict(X[500:])
    assert answers.dtype == object
    assert {type(answer) for answer in answers} == {int, type(None)}
    shares = probabilities(referring.model_.decision_function(X[500:]), "logistic")
    unsure = shares.max(axis=1) < 1 - 40 / 300
    assert [answer is None for answer in answers] == unsure.tolist()
    hits = np.mean([answer == truth for answer, truth in zip(answers, Y[500:], strict=True)])
    assert referring.score(X[500:], Y[500:]) == pytest.approx(hits)


def test_probabilities_that_decide_keep_their_promise():
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(3000, 3)), rng.random(3000)
    y = (noise < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(int)
    options = {"costs": [1, 1, 1], "random_state": 0, "n_jobs": 1, "error_costs": [[0, 100], [100, 0]]}
    model = CSTCClassifier(**options).fit(X[:1500], y[:1500])
    forecast, measured = model.expected_total_cost(X[1500:]).mean(), model.total_cost(X[1500:], y[1500:]).mean()
    assert forecast == pytest.approx(measured, rel=0.1)


def test_three_classes():
    X, y = make_classification(900, 6, n_informative=5, n_redundant=0, n_classes=3, random_state=1)
    names = np.array(["a", "b", "c"])[y]
    errors = {"a": {"b": 10, "c": 500}, "b": {"a": 10, "c": 10}, "c": {"a": 10, "b": 10}}
    model = CSTCClassifier(**SMALL, error_costs=errors).fit(X[:600], names[:600])
    shares = model.predict_proba(X[600:])
    costs = shares @ np.array([[0, 10, 500], [10, 0, 10], [10, 10, 0]])
    assert (model.predict(X[600:]) == model.classes_[costs.argmin(axis=1)]).all()
    plain = CSTCClassifier(**SMALL).fit(X[:600], names[:600])
    assert (model.predict(X[600:]) == "c").sum() < (plain.predict(X[600:]) == "c").sum()


def test_a_mean_cost_may_be_asked_for_too():
    model = CSTCClassifier(**SMALL, error_costs=ERRORS, mean_cost=8.0).fit(X, Y)
    assert 5 < model.predict_cost(X).mean() < 10
    assert model.total_cost(X, Y, ids=np.arange(700)).shape == model.expected_total_cost(X).shape == (700,)


# ---------------------------------------------------------------------------------------------- where it shows


@pytest.mark.parametrize("kind", ["model", "referring"])
def test_saved_served_and_explained(kind, request, tmp_path):
    fitted = request.getfixturevalue(kind)
    fitted.save(tmp_path / "model.cstc")
    loaded = cstc.load(tmp_path / "model.cstc")
    assert loaded.predict(X).tolist() == fitted.predict(X).tolist()
    np.testing.assert_array_equal(loaded.total_cost(X, Y), fitted.total_cost(X, Y))
    names = loaded.schema.feature_names
    rows = [dict(zip(names, row, strict=True)) for row in X[:60].tolist()]
    for numbers, expected, row in zip(rows, fitted.predict(X[:60]).tolist(), X[:60], strict=True):
        session = Session(loaded)
        while wanted := session.wanted():
            session.tell({name: numbers[name] for name in wanted})
        answer = session.answer()
        assert answer.value == expected
        explanation = loaded.explain(row)
        decisions = explanation.decisions
        assert min(decisions, key=decisions.get) == expected == explanation.outcome.value
        text = str(explanation)
        assert text.startswith("Decision: " + ("refer to a person" if expected is None else f"class {expected}"))
        assert json.loads(explanation.to_json())["decisions"][0][0] == 0
        assert "Decision: " in explanation.to_html()


def test_what_a_budget_or_an_outage_leaves_is_decided_in_money(model):
    for options in ({"budget": 5.0}, {"unavailable": ["x1"]}):
        shares, answers = model.predict_proba(X, **options), model.predict(X, **options)
        assert (answers == (shares @ np.array(ERRORS)).argmin(axis=1)).all()
        assert model.total_cost(X, Y, **options).min() >= 0
    assert (model.predict_cost(X, budget=5.0) <= 5.0).all()


def test_item_importance_is_in_money(model):
    """What is saved is some of the money that errors cost; in log loss it would be below 1."""
    for table in (model.item_importance(X, Y), model.item_importance(X)):
        assert max(row["loss_saved"] for row in table.rows) > 1.0


def test_predictors_on_demand_refer_too(referring):
    names = referring.model_.schema.feature_names
    unsure = int(np.flatnonzero([answer is None for answer in referring.predict(X)])[0])
    values = dict(zip(names, X[unsure].tolist(), strict=True))

    @extractor(provides=names)
    def known(row):
        return row

    with OnDemandPredictor(referring, [known]) as predictor:
        answer = predictor.predict(values)
        assert answer.complete
        assert answer.value is None


@pytest.fixture(scope="module")
def frontier():
    estimator = CSTCClassifier(**SMALL, error_costs=ERRORS)
    return cstc.Frontier(estimator, n_weights=6).fit(X[:500], Y[:500], X_val=X[500:], y_val=Y[500:])


def test_a_frontier_sweeps_the_exchange_rate_and_counts_in_money(frontier):
    assert frontier.quality_name_ == "error cost, negative"
    for row, model in zip(frontier.tried_, frontier.tried_models_, strict=True):
        total = model.total_cost(X[500:], Y[500:])
        errors = total - model.predict_cost(X[500:])
        assert row["validation_quality"] == pytest.approx(-errors.mean())
        assert row["total_cost"] == pytest.approx(row["mean_cost"] - row["quality"])
        assert row["total_cost"] == pytest.approx(total.mean(), abs=3 * total.std() / np.sqrt(200))
        assert 0 < row["total_cost_error"] < total.std() / np.sqrt(200)  # of more rows than these
    weights = frontier.tried_.column("cost_weight")
    assert weights.min() == 0
    assert weights.max() > 1


def test_a_frontier_draws_total_cost(frontier):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    display = frontier.plot(mean_cost=float(frontier.table_[-1]["mean_cost"]))
    assert display.ax_.get_ylabel() == "total cost"
    np.testing.assert_allclose(display.qualities[0], frontier.table_.column("total_cost"))
    plain = cstc.Frontier(CSTCClassifier(**SMALL), n_weights=2).fit(X[:300], Y[:300])
    for one, other in ((frontier, plain), (plain, frontier)):
        with pytest.raises(ValueError, match="quality and money do not go into one picture"):
            one.plot(others={"other": other})


def test_within_a_budget_the_least_total_cost_is_chosen(frontier):
    totals, costs = frontier.table_.column("total_cost"), frontier.table_.column("mean_cost")
    assert frontier.best(mean_cost=float("inf")) is frontier.models_[int(np.argmin(totals))]
    within = np.flatnonzero(costs <= costs[-1] / 2)
    assert frontier.best(mean_cost=float(costs[-1] / 2)) is frontier.models_[within[np.argmin(totals[within])]]


def test_cheaper_tests_are_not_bought_less():
    """What is taken is compared with the model that buys nothing only after all candidates were compared."""
    X, y = make_classification(900, 6, n_informative=5, n_redundant=0, weights=[0.7], random_state=1)
    errors = [[0, 300, 60], [5000, 0, 60]]
    paid = [
        CSTCClassifier(**SMALL | {"n_weak_learners": 50}, error_costs=errors, cost_weight=weight)
        .fit(X[:450], y[:450])
        .predict_cost(X[450:])
        .mean()
        for weight in (1.0, 0.1, 0.01, 0.001)
    ]
    assert paid[-1] > 0
    assert paid == sorted(paid)


def test_a_limit_is_chosen_by_what_errors_cost(frontier):
    limited = frontier.best(max_cost=6)
    assert limited.predict_cost(X).max() <= 6
    assert limited.model_.limit == 6


def test_a_scorer_that_knows_costs_knows_errors(model):
    score = make_cost_scorer(cost_weight=1.0)(model, X[500:], Y[500:])
    assert score == pytest.approx(-model.total_cost(X[500:], Y[500:]).mean())
