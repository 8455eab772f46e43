"""What one meets first: prices by number, what is printed, what a notebook shows, one row of a table."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone

import cstc
from builders import SHAPES, random_model
from cstc import CostModel, CSTCClassifier, CSTCRegressor, Frontier, from_lightgbm
from cstc.baselines import GreedyMiser
from cstc.costs import as_cost_model
from cstc.frontier import FrontierTable

QUICK = {"n_weak_learners": 5, "weak_learner_depth": 2, "n_jobs": 1, "random_state": 0}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 3))
Y = X @ [1.0, 2.0, 3.0] + 0.1 * RNG.normal(size=240)
PRICES = [1.0, 5.0, 20.0]
NUMBERED = {2: 20.0, 0: 1.0, 1: 5.0}


@pytest.fixture(scope="module")
def fitted():
    return CSTCRegressor(costs=PRICES, cost_weight=1e-4, **QUICK).fit(X, Y)


@pytest.fixture(scope="module")
def frontier():
    return Frontier(CSTCRegressor(costs=PRICES, **QUICK), n_weights=4).fit(X, Y)


@pytest.fixture(scope="module")
def system():
    return GreedyMiser(task="regression", costs=PRICES, **QUICK).frontier(X, Y, n_points=4)


# -- prices by number --------------------------------------------------------------------------------------------

WAYS = {
    "mapping": NUMBERED,
    "numpy keys": {np.int64(number): price for number, price in NUMBERED.items()},
    "series": pd.Series(NUMBERED),
    "cost model": CostModel(NUMBERED),
    "cost model of a series": CostModel(pd.Series(NUMBERED)),
}
each_way = pytest.mark.parametrize("costs", WAYS.values(), ids=WAYS)


@each_way
def test_numbers_are_columns_of_an_array(costs):
    model = CSTCRegressor(costs=costs, **QUICK).fit(X, Y)
    np.testing.assert_array_equal(model.costs_.feature_prices, PRICES)
    assert model.costs_.item_names == ["x0", "x1", "x2"]
    assert as_cost_model(costs, 3).by_number
    assert not as_cost_model(costs, 3).by_position


@each_way
@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_numbers_are_positions_where_columns_have_names(make, costs):
    table = make({"b": X[:, 0], "a": X[:, 1], "c": X[:, 2]})
    model = CSTCRegressor(costs=costs, **QUICK).fit(table, Y)
    np.testing.assert_array_equal(model.costs_.feature_prices, PRICES)
    assert model.costs_.item_names == ["b", "a", "c"]


OWN = {
    "pandas": pd.DataFrame(X, columns=[30, 10, 20]),
    "pandas, text": pd.DataFrame(X, columns=["30", "10", "20"]),
    "polars": pl.DataFrame({"30": X[:, 0], "10": X[:, 1], "20": X[:, 2]}),
}


@pytest.mark.parametrize("table", OWN.values(), ids=OWN)
def test_a_column_whose_name_is_a_number_keeps_its_price(table):
    costs = {10: 5.0, 20: 20.0, 30: 1.0}
    model = CSTCRegressor(costs=costs, **QUICK).fit(table, Y)
    np.testing.assert_array_equal(model.costs_.feature_prices, PRICES)
    other = model.with_costs({10: 50.0, 20: 200.0, 30: 10.0})
    np.testing.assert_array_equal(other.predict_cost(table), 10 * model.predict_cost(table))
    assert other.predict_cost(table).max() > 0


@pytest.mark.parametrize("make", [pd.DataFrame, lambda X: pl.DataFrame(X, schema=["2", "0", "1"])])
def test_own_names_win_over_positions(make):
    table = make(X)
    if isinstance(table, pd.DataFrame):
        table.columns = [2, 0, 1]
    model = CSTCRegressor(costs=NUMBERED, **QUICK).fit(table, Y)
    np.testing.assert_array_equal(model.costs_.feature_prices, [20.0, 1.0, 5.0])
    listed = clone(model).set_params(costs=PRICES).fit(table, Y)
    np.testing.assert_array_equal(listed.costs_.feature_prices, PRICES)


def test_a_frontier_and_its_checkpoint_keep_own_names(tmp_path):
    table, costs = OWN["pandas"], {10: 5.0, 20: 20.0, 30: 1.0}
    for _ in ("fitted", "restored"):
        frontier = Frontier(CSTCRegressor(costs=costs, **QUICK), n_weights=3, checkpoint=tmp_path).fit(table, Y)
        for model in frontier.models_:
            np.testing.assert_array_equal(model.costs_.feature_prices, PRICES)
            np.testing.assert_array_equal(model.with_costs(costs).costs_.feature_prices, PRICES)


def test_the_systems_of_the_baselines_keep_own_names():
    costs = {10: 5.0, 20: 20.0, 30: 1.0}
    model = GreedyMiser(task="regression", costs=costs, **QUICK).fit(OWN["pandas"], Y)
    np.testing.assert_array_equal(model.costs_.feature_prices, PRICES)
    np.testing.assert_array_equal(model.with_costs(costs).costs_.feature_prices, PRICES)


def test_columns_of_a_lightgbm_model_by_number():
    import lightgbm

    booster = lightgbm.train({"verbosity": -1, "num_threads": 1}, lightgbm.Dataset(X, Y), 2)
    np.testing.assert_array_equal(from_lightgbm(booster, costs=NUMBERED).costs.feature_prices, PRICES)


@pytest.mark.parametrize("names", [["02", "00", "01"], ["2.0", "0.0", "1.0"], ["-", "", "٠"]])
def test_names_that_only_look_like_numbers_are_names(names):
    resolved = CostModel(NUMBERED).resolve(names)
    np.testing.assert_array_equal(resolved.feature_prices, PRICES)


@pytest.mark.parametrize("number", [0, np.int32(0)])
def test_price_of_takes_numbers(number):
    costs = CostModel(NUMBERED)
    assert costs.price_of([number, 2, 2]) == 21.0
    assert CostModel({30: 1.0, 10: 5.0}).price_of([30]) == 1.0
    for unknown in (3, "0"):
        with pytest.raises(ValueError, match=f"^no price for '{unknown}'; prices go by column number: 2, 0, 1$"):
            costs.price_of([number, unknown])


@pytest.mark.parametrize(
    ("costs", "table", "message"),
    [
        ({0: 1.0, 2: 5.0}, X, "costs has no price for column 1; X has columns 0 to 2, and each needs a price"),
        (
            {**NUMBERED, 7: 1.0},
            X,
            "costs has a price for 7, which is no column of X; X has columns 0 to 2, and each needs a price",
        ),
        ({-1: 1.0, 0: 1.0, 1: 1.0}, X, "costs has no price for column 2;"),
        (
            NUMBERED,
            OWN["pandas"],
            "costs has no price for column 30, 10, 20; the columns of X are named 30, 10, 20, and a number in costs "
            "means the column of that name; for prices by position give a list",
        ),
        (pd.Series(PRICES), OWN["polars"], "the columns of X are named 30, 10, 20"),
        (
            {0: 1.0, "x1": 5.0, "x2": 20.0},
            X,
            "costs has the number 0 and the name 'x1'; give all by number, such as {0: 1.0, 1: 5.0}, or all by name; "
            "the columns of an array are named 'x0', 'x1', ...",
        ),
        (pd.Series(PRICES, index=[0, 1, "x2"]), X, "costs has the number 0 and the name 'x2'"),
        (pd.Series(PRICES, index=[0, 1, 1]), X, "prices has 1 twice in its index; give each column one price"),
        (pd.Series(PRICES, index=["a", "b", "a"]), X, "prices has 'a' twice in its index"),
        ({0: 1.0, 1: "cheap", 2: 3.0}, X, "the price of 'column 1' is 'cheap'"),
    ],
)
def test_what_is_wrong_with_numbers_is_told(costs, table, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        CSTCRegressor(costs=costs, **QUICK).fit(table, Y)


@pytest.mark.parametrize(
    ("requires", "message"),
    [
        ({0: [1]}, "requires= needs prices by name, and these go by number; the columns of an array are named 'x0'"),
        ({"a": ["b"]}, "costs has the number 2 and the name 'a'"),
    ],
)
def test_requirements_need_names(requires, message):
    with pytest.raises(ValueError, match=message):
        CostModel(NUMBERED, requires)


# -- one short line ----------------------------------------------------------------------------------------------

BILL = CostModel({"a": 1.5, "draw": 2, "b": 30}, {"b": ["draw"]}, evaluation=0.5)


@pytest.mark.parametrize(
    ("costs", "text"),
    [
        (BILL, "<CostModel: 3 items, prices 1.5 to 30, 1 name with requirements, evaluation 0.5>"),
        (BILL.resolve(["a", "b"]), "<ResolvedCosts: 2 features, 3 items, prices 1.5 to 30, evaluation 0.5>"),
        (CostModel([1, 2.25]), "<CostModel: 2 features, prices 1 to 2.25>"),
        (CostModel({0: 7.0}), "<CostModel: 1 feature by number, prices 7>"),
        (CostModel(np.ones(1200)), "<CostModel: 1,200 features, prices 1>"),
        (CostModel({}), "<CostModel: 0 items>"),
        (CostModel([]).resolve([]), "<ResolvedCosts: 0 features, 0 items>"),
    ],
)
def test_repr_of_costs(costs, text):
    assert repr(costs) == text


def test_repr_of_a_model(fitted, tmp_path):
    model = fitted.model_
    low, high = model.terminal_costs().min(), model.terminal_costs().max()
    paid = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    nodes = "1 node" if model.shape.n_nodes == 1 else f"{model.shape.n_nodes} nodes"
    assert (
        repr(model)
        == f"<FittedTree: {nodes}, {model.pool.n_learners} learners, 3 features, 3 items, paths cost {paid}>"
    )
    fitted.save(tmp_path / "model.cstc")
    assert repr(cstc.load(tmp_path / "model.cstc")) == repr(model)
    large = random_model(np.random.default_rng(0), SHAPES["full of depth 4"], n_trees=200)
    large = replace(large, costs=replace(large.costs, prices=1e90 / np.arange(3.0, 8.0)))
    assert "15 nodes" in repr(large)
    assert len(repr(large)) < 120


def test_repr_of_frontiers(frontier, system):
    costs, qualities = frontier.table_.column("mean_cost"), frontier.table_.column("quality")
    assert repr(frontier) == (
        f"<Frontier of CSTCRegressor: {len(frontier.models_)} models, mean cost 0 to {costs[-1]:.4g}, "
        f"R² {qualities[0]:.4f} to {qualities[-1]:.4f}>"
    )
    assert repr(system).startswith(f"<SystemFrontier of GreedyMiser: {len(system.models_)} models, mean cost 0 to ")

    def a_quality_whose_name_is_longer_than_anyone_would_wish_it_to_be_in_a_line(estimator, X, y):
        return estimator.score(X, y)

    named = clone(frontier).set_params(quality=a_quality_whose_name_is_longer_than_anyone_would_wish_it_to_be_in_a_line)
    named.set_params(cost_weights=[1.0]).fit(X, Y)
    assert len(named.quality_name_) > 40
    for shown in (frontier, system, named):
        assert len(repr(shown)) < 120
        assert "\n" not in repr(shown)


def test_repr_of_a_frontier_that_is_not_fitted():
    short = Frontier(CSTCRegressor())
    assert repr(short) == "Frontier(estimator=CSTCRegressor())"
    given = CSTCClassifier(costs=BILL, method="paper", cost_weight=0.5, n_weak_learners=77, learning_rate=0.123)
    long = Frontier(given, n_weights=7, validation_fraction=0.3, checkpoint="a folder")
    assert repr(long).startswith("Frontier(checkpoint='a folder', estimator=CSTCClassifier(cost_weight=0.5, costs=<")
    assert repr(long).endswith("...)")
    assert len(repr(long)) < 120
    assert "\n" not in repr(long)


def test_estimators_keep_the_repr_of_scikit_learn():
    assert repr(CSTCRegressor(cost_weight=3, costs=PRICES)) == "CSTCRegressor(cost_weight=3, costs=[1.0, 5.0, 20.0])"


# -- notebooks ---------------------------------------------------------------------------------------------------


def html_of(shown):
    """What a notebook shows, and the same for those who only know `_repr_html_`."""
    html = shown._repr_mimebundle_(include=None, exclude=None)["text/html"]
    assert shown._repr_html_().count("<svg") == html.count("<svg")
    assert shown._repr_html_().count("<tr>") == html.count("<tr>")
    return html


def test_a_fitted_estimator_shows_the_diagram_and_then_its_tree(fitted):
    html = html_of(fitted)
    assert 0 < html.index("sk-top-container") < html.index(fitted.model_._repr_html_())
    assert html.count(fitted.model_._repr_html_()) == 1
    unfitted = html_of(clone(fitted))
    assert "sk-top-container" in unfitted
    assert "newly buys" not in unfitted


def test_a_fitted_frontier_shows_the_diagram_and_then_its_table(frontier):
    html, table = html_of(frontier), frontier.table_._repr_html_()
    assert 0 < html.index("sk-top-container") < html.index(table)
    assert html.endswith(table)
    assert "mean cost" not in html_of(clone(frontier))


def test_text_where_scikit_learn_is_told_so(fitted, frontier):
    with sklearn.config_context(display="text"):
        for shown in (fitted, frontier):
            assert shown._repr_mimebundle_() == {"text/plain": repr(shown)}
            assert not hasattr(shown, "_repr_html_")


def test_tables_as_html(frontier, system):
    for table in (frontier.table_, frontier.tried_, system.table_):
        html = table._repr_html_()
        cells = re.findall(r"<t[dh] [^>]*>(.*?)</t[dh]>", html)
        assert html.count("<tr>") == len(table) + 1
        assert cells == [cell for line in table._lines() for cell in line]
        assert cells[1] == "mean cost"
        assert cells[4] == "R²"
    assert system._repr_html_() == system.table_._repr_html_()


def test_text_in_tables_is_escaped():
    html = FrontierTable([{"value": "<b>&", "quality": 0.5}], "<script>")._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "&lt;b&gt;&amp;" in html


# -- one row -----------------------------------------------------------------------------------------------------

PANDAS = pd.DataFrame(X, columns=["a", "b", "c"])
POLARS = pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]})


@pytest.fixture(scope="module")
def by_name(tmp_path_factory):
    """An estimator, its model read from a file, a model of a frontier, and a system of the baselines."""
    estimator = CSTCRegressor(costs=PRICES, cost_weight=1e-4, **QUICK).fit(PANDAS, Y)
    path = tmp_path_factory.mktemp("models") / "model.cstc"
    estimator.save(path)
    best = Frontier(CSTCRegressor(costs=PRICES, **QUICK), n_weights=3).fit(PANDAS, Y).best(mean_cost=26)
    system = GreedyMiser(task="regression", costs=PRICES, **QUICK).fit(PANDAS, Y)
    return {"estimator": estimator, "loaded": cstc.load(path), "frontier": best, "system": system}


@pytest.mark.parametrize("which", ["estimator", "loaded", "frontier", "system"])
@pytest.mark.parametrize("row", [PANDAS.iloc[0], PANDAS["a"], POLARS["a"]], ids=["row", "column", "polars"])
def test_a_series_is_told_what_one_row_of_a_table_is(by_name, which, row):
    model = by_name[which]
    for ask in (model.predict, model.predict_cost):
        with pytest.raises(ValueError, match=r"One row of a table df is df\.iloc\[\[0\]\] in pandas and df\[:1\] in"):
            ask(row)
    for table in (PANDAS.iloc[[0]], POLARS[:1]):  # as the message says
        assert len(model.predict(table)) == 1
        assert len(model.predict_cost(table)) == 1


def test_fit_is_told_too():
    with pytest.raises(ValueError, match=r"df\.iloc\[\[0\]\]"):
        CSTCRegressor(**QUICK).fit(PANDAS["a"], Y)
    with pytest.raises(ValueError, match=r"df\.iloc\[\[0\]\]"):
        Frontier(CSTCRegressor(**QUICK)).fit(PANDAS["a"], Y)


def test_arrays_of_one_dimension_get_the_message_of_scikit_learn(by_name, fitted, frontier):
    for model in (fitted, frontier.best(mean_cost=26)):
        with pytest.raises(ValueError, match="Expected 2D array, got 1D array instead"):
            model.predict(X[0])
    with pytest.raises(ValueError, match=r"X has 1 dimension\(s\); give a matrix with a row for each input and 3 col"):
        by_name["loaded"].predict(X[0])


def test_columns_with_numbers_for_names_keep_their_order():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(60, 3)), columns=[2, 0, 1])
    model = CSTCRegressor(n_weak_learners=3, random_state=0).fit(table, table[2])
    model.predict(table)
    model.predict(table.to_numpy())
    with pytest.raises(ValueError, match="the model was fitted to '2', '0', '1', in this order"):
        model.predict(table[[0, 1, 2]])


def test_a_loaded_model_takes_prices_as_estimators_do():
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = CSTCRegressor(n_weak_learners=3, cost_weight=0.0, random_state=0).fit(X, X[:, 0]).model_
    assert model.with_costs([5, 7]).predict_cost(X).max() == model.with_costs({"x0": 5, "x1": 7}).predict_cost(X).max()
    with pytest.raises(ValueError, match="costs has 3 entries, X has 2 features"):
        model.with_costs([1, 2, 3])
