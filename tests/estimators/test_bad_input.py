"""Bad input of every kind: the type of the error, and a message that says what would be right."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError

from cstc import CostModel, CSTCClassifier, CSTCRanker, CSTCRegressor, Exact, Experts, Paper

SMALL = {"n_weak_learners": 5, "n_jobs": 1, "random_state": 0}
PLAIN = {"weak_learners": "identity", "n_weak_learners": None}  # nothing is boosted, and nothing is said of it
ESTIMATORS = [CSTCRegressor, CSTCClassifier, CSTCRanker]
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)

N = 60
X = np.random.default_rng(0).normal(size=(N, 3))
Y = {
    CSTCRegressor: X[:, 0],
    CSTCClassifier: (X[:, 0] > 0).astype(int),
    CSTCRanker: np.clip(np.round(X[:, 0] + 1), 0, 4),
}
QID = np.arange(N) // 6


def fit(estimator, parameters=None, **changes):
    """Fit on good data, but for the changes."""
    data = {"X": X, "y": Y[estimator]} | ({"qid": QID} if estimator is CSTCRanker else {}) | changes
    return estimator(**SMALL | (parameters or {})).fit(**data)


def error(message, kind=ValueError):
    return pytest.raises(kind, match=re.escape(message))


def spoilt(values, value, at=3):
    values = np.array(values, dtype=float)
    values.flat[at] = value
    return values


# -- prices --------------------------------------------------------------------------------------------------------


@each_estimator
@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ([1, 2], "costs has 2 entries, X has 3 features"),
        ([1, 2, 3, 4], "costs has 4 entries, X has 3 features"),
        ([1, 2, -3], "the price of 'feature 2' is -3.0; a price must be finite and 0 or more"),
        ([1, 2, np.nan], "the price of 'feature 2' is nan; a price must be finite and 0 or more"),
        ([1, 2, np.inf], "the price of 'feature 2' is inf; a price must be finite and 0 or more"),
        ([1, 2, 1e308], "the price of 'feature 2' is 1e+308; a bill of such prices overflows: take a larger unit"),
        ([1, 2, "dear"], "the price of 'feature 2' is 'dear'; a price must be a number, 0 or more"),
        (5, "prices has shape (); give one price per feature, or a mapping {name: price}"),
        ({"x0": 1, "x1": 1}, "no price and no required items for 'x2'; costs knows 'x0', 'x1'"),
        (
            {"x0": 1, "x1": 1, "x2": 1, "age": 1},
            "costs names 'age', which is neither a column of X nor required by one",
        ),
    ],
)
def test_prices(estimator, costs, message):
    with error(message):
        fit(estimator, {"costs": costs})


def test_a_feature_that_requires_no_known_item():
    with error("'x2' requires 'blood', which has no price; known items: 'x0', 'x1', 'blood draw'"):
        fit(CSTCRegressor, {"costs": CostModel({"x0": 1, "x1": 1, "blood draw": 2}, {"x2": ["blood"]})})


def test_a_missing_file_of_prices():
    with pytest.raises(FileNotFoundError, match=r"no such\.csv"):
        fit(CSTCRegressor, {"costs": "no such.csv"})


def test_new_prices_are_checked_as_well():
    model = fit(CSTCRegressor)
    with error("costs has 2 entries, X has 3 features"):
        model.with_costs([1, 2])
    with error("costs names 'age'"):
        model.with_costs({"x0": 1, "x1": 1, "x2": 1, "age": 1})


# -- parameters ----------------------------------------------------------------------------------------------------

NUMBER = [-0.1, np.nan, np.inf, "much", None]
COUNT = [0, -1, 1.5, "two"]
WRONG = {
    "cost_weight": (NUMBER[:-1], "it must be a finite number, 0 or more, or None"),
    "mean_cost": (NUMBER[:-1], "it must be a finite number, 0 or more, or None"),
    "method": (["no such", None, 3], "it must be 'auto', 'paper', 'experts', 'exact', or an object such as Paper("),
    "n_weak_learners": (COUNT, "it must be None or a whole number, 1 or more"),
    "weak_learner_depth": (COUNT, "it must be None or a whole number, 1 or more"),
    "early_stopping": (COUNT, "it must be None or a whole number, 1 or more"),
    "weak_learners": (["trees", None], "it must be one of ('boosted', 'identity')"),
    "learning_rate": ([0, -1, np.nan, np.inf, "fast"], "it must be a finite number above 0"),
    "categorical_features": (["x0", [1.5], [None]], "give a list of column numbers or names"),
    "n_jobs": ([0, "all", 1.5], "it must be None, -1 (all cores) or a number of threads"),
    "verbose": (["loud", -1, None], "it must be 0, 1 or 2"),
    "device": (["gpu", None, 0], "it must be one of ('cpu', 'cuda')"),
}
CASES = [(name, value, message) for name, (values, message) in WRONG.items() for value in values]
OF_RANKERS = {
    "whole_queries": (["yes", None, 1], "it must be True or False"),
    "objective": (["ndcg", None, 3], "it must be one of ('auto', 'regression', 'lambdarank')"),
    "at": ([*COUNT, None, True], "it must be a whole number, 1 or more"),
}

TREE = {
    "depth": ([*COUNT, None], "it must be a whole number, 1 or more"),
    "max_nodes": (COUNT, "it must be None or a whole number, 1 or more"),
    "l1_weight": (NUMBER, "it must be a finite number, 0 or more"),
    "solver": (["newton", None], "it must be one of ('joint', 'cyclic')"),
    "max_iter": ([*COUNT, None], "it must be a whole number, 1 or more"),
    "tol": (NUMBER, "it must be a finite number, 0 or more"),
    "validation_fraction": ([0, 1, -0.5, np.nan, "half"], "it must be above 0 and below 1"),
    "dtype": (["float16", "int", None], "it must be one of ('float64', 'float32')"),
}
PAPER = TREE | {
    "gate_slope": ([0, -1, np.nan, np.inf, "steep", None], "it must be a finite number above 0"),
    "pruning": (["no", None], "it must be True or False"),
    "fine_tuning": (["no", 2], "it must be True or False"),
}
FOLDS = {
    "folds": ([*COUNT, 1], "it must be None or a whole number, 2 or more"),
    "fallbacks": (["yes", 1, None], "it must be True or False"),
    "rows_per_fit": ([0, 99, 1.5, "many"], "it must be None or a whole number, 100 or more"),
    "sources": (["x0", ["x0"], 3], "it must map names to lists of features"),
    "engine": (["catboost", 1], "it must be one of ('lightgbm', 'xgboost')"),
}
WRONG_IN_METHODS = {Paper: PAPER, Exact: TREE, Experts: FOLDS}
METHOD_CASES = [
    (method, name, value, message)
    for method, wrong in WRONG_IN_METHODS.items()
    for name, (values, message) in wrong.items()
    for value in values
]


@pytest.mark.parametrize(("name", "value", "message"), CASES, ids=[f"{name}={value!r}" for name, value, _ in CASES])
def test_wrong_parameters(name, value, message):
    for estimator in ESTIMATORS:
        with error(f"{name} is {value!r}; {message}"):
            fit(estimator, {name: value})


RANKER_CASES = [(name, value, message) for name, (values, message) in OF_RANKERS.items() for value in values]


@pytest.mark.parametrize(("name", "value", "message"), RANKER_CASES, ids=lambda value: repr(value)[:20])
def test_wrong_parameters_of_rankers(name, value, message):
    with error(f"{name} is {value!r}; {message}"):
        fit(CSTCRanker, {name: value})


@pytest.mark.parametrize(
    ("parameters", "y", "message"),
    [
        ({"method": "paper"}, Y[CSTCRanker], "Paper boosts squared risk only; take objective='auto', or method=Exp"),
        (PLAIN, Y[CSTCRanker], "Exact boosts squared risk only; take objective='auto', or method=Experts()"),
        ({"method": Experts(engine="xgboost")}, Y[CSTCRanker], "LightGBM alone grows it here; take engine='lightgbm'"),
        ({}, Y[CSTCRanker] + 0.5, "grades hold 1.5; it needs whole numbers from 0 to 30, or objective='regression'"),
    ],
    ids=["paper", "exact", "xgboost", "half grades"],
)
def test_what_cannot_be_boosted_for_the_order_of_documents(parameters, y, message):
    with error(f"objective is 'lambdarank', and {message}"):
        fit(CSTCRanker, parameters | {"objective": "lambdarank"}, y=np.abs(y))


def test_samples_of_rows_cannot_be_boosted_for_the_order_of_documents():
    many = {"X": np.tile(X, (3, 1)), "y": np.tile(Y[CSTCRanker], 3), "qid": np.arange(3 * N) // 6}
    with error("and samples of 100 rows are read without their queries; take rows_per_fit=None, or objective='reg"):
        fit(CSTCRanker, {"objective": "lambdarank", "method": Experts(rows_per_fit=100)}, **many)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"categorical_features": [3]}, "categorical_features has 3; X has columns 0 to 2"),
        ({"categorical_features": [-1]}, "categorical_features has -1; X has columns 0 to 2"),
        (
            {"categorical_features": ["age"]},
            "categorical_features names 'age', which is no column of X: ['x0', 'x1', 'x2']",
        ),
        ({"categorical_features": [1]} | PLAIN, "weak_learners='identity' needs numbers"),
        ({"class_weight": "heavy"}, "'class_weight' parameter"),
        ({"class_weight": {7: 1.0}}, "The classes, [0, 1], are not in class_weight"),
        ({"class_weight": {0: 1.0, 1: -1.0}}, "weights must be 0 or more"),
        ({"class_weight": {0: 0.0, 1: 0.0}}, "all sample weights are zero; at least one non-zero weight is needed"),
        ({"random_state": "seed"}, "'seed' cannot be used to seed"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_parameters_that_do_not_fit_the_data(parameters, message):
    with error(message):
        fit(CSTCClassifier, parameters)


@pytest.mark.parametrize(
    ("method", "name", "value", "message"),
    METHOD_CASES,
    ids=[f"{method.__name__}({name}={value!r})" for method, name, value, _ in METHOD_CASES],
)
def test_wrong_parameters_of_methods(method, name, value, message):
    for estimator in ESTIMATORS:
        with error(f"{name} is {value!r}; {message}"):
            fit(estimator, (PLAIN if method is Exact else {}) | {"method": method(**{name: value})})


def test_every_parameter_is_tried_here():
    tried = WRONG.keys() | {"costs", "class_weight", "error_costs", "random_state"}  # errors: test_error_costs
    assert tried == CSTCClassifier().get_params().keys()
    assert WRONG.keys() | OF_RANKERS.keys() | {"costs", "random_state"} == CSTCRanker().get_params().keys()
    for method, wrong in WRONG_IN_METHODS.items():
        assert wrong.keys() == method().get_params().keys()


# -- X, y and weights ----------------------------------------------------------------------------------------------


@each_estimator
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": X[:, 0]}, "Reshape your data"),
        ({"X": X[:0]}, "Found array with 0 sample(s) (shape=(0, 3)) while a minimum of 2 is required"),
        ({"X": X[:, :0]}, "Found array with 0 feature(s) (shape=(60, 0)) while a minimum of 1 is required"),
        ({"X": spoilt(X, np.inf)}, "Input X contains infinity"),
        ({"X": X[:50]}, "inconsistent numbers of samples: [50, 60]"),
        ({"y": np.ones((N, 2))}, "y should be a 1d array"),
        (
            {"y": spoilt(np.ones(N), np.nan)},
            "Input y contains NaN. Every row needs a label: leave out the rows without one",
        ),
        ({"y": spoilt(np.ones(N), np.inf)}, "Input y contains infinity"),
        ({"y": np.array([1, None] * 30, dtype=object)}, "Every row needs a label: leave out the rows without one"),
        ({"sample_weight": -np.ones(N)}, "Negative values in data passed to `sample_weight`"),
        ({"sample_weight": np.zeros(N)}, "at least one non-zero"),
        ({"sample_weight": np.ones(3)}, "sample_weight.shape == (3,), expected (60,)"),
        ({"X_val": X}, "validation data needs both X_val and y_val; y_val is missing"),
        ({"y_val": np.ones(N)}, "validation data needs both X_val and y_val; X_val is missing"),
        (
            {"sample_weight_val": np.ones(N)},
            "sample_weight_val and qid_val belong to X_val and y_val, which are missing",
        ),
    ],
)
def test_data(estimator, changes, message):
    with error(message):
        fit(estimator, **changes)


@each_estimator
def test_labels_of_validation_data(estimator):
    queries = {"qid_val": QID} if estimator is CSTCRanker else {}
    with error("Input y contains NaN. Every row needs a label"):
        fit(estimator, X_val=X, y_val=spoilt(Y[estimator], np.nan), **queries)
    with error("inconsistent numbers of samples: [60, 50]"):
        fit(estimator, X_val=X, y_val=Y[estimator][:50], **queries)
    with error("X has 2 features, but"):
        fit(estimator, X_val=X[:, :2], y_val=Y[estimator], **queries)


@each_estimator
def test_fewer_rows_than_folds(estimator):
    few = {"X": X[:4], "y": Y[estimator][:4]} | ({"qid": np.arange(4) // 2} if estimator is CSTCRanker else {})
    with error("4 training rows are fewer than the 5 folds of the experts; give more rows, or method=Experts(folds="):
        fit(estimator, **few)


def test_one_query_cannot_be_divided():
    one = np.zeros(len(X), dtype=int)
    with error("folds of whole queries, and the data has too few of them; give more"):
        fit(CSTCRanker, qid=one)
    with error("qid holds one query; at least 2 are needed to hold one out for validation"):
        fit(CSTCRanker, {"method": "paper"}, qid=one)


@pytest.mark.parametrize("missing", [None, np.nan])
def test_missing_query(missing):
    with error("qid holds missing values; give the query of every row"):
        fit(CSTCRanker, qid=[missing, *np.arange(len(X) - 1) // 10])


@each_estimator
@pytest.mark.parametrize(("first", "step", "shown"), [(0.0, 1e9, "1e+09"), (-2.0, 1.0, "-2"), (0.0, 0.5, "0.5")])
def test_codes_that_are_no_categories(estimator, first, step, shown):
    coded = X.copy()
    coded[:, 1] = first + np.arange(len(X)) % 3 * step
    message = f"column 'x1' is categorical and holds the code {shown}; codes must be whole numbers from 0 to 65535"
    with error(message):
        fit(estimator, {"categorical_features": [1]}, X=coded)


def test_targets_whose_squares_overflow():
    with error("y holds 1e+155; the squares of values above 1e+100 overflow: take a larger unit"):
        CSTCRegressor().fit(X, np.where(np.arange(len(X)) == 3, 1e155, 0.0))


@each_estimator
@pytest.mark.parametrize("parameters", [{"method": Paper(depth=3)}, PLAIN | {"method": Exact(depth=3)}])
def test_fewer_rows_than_nodes(estimator, parameters):
    few = {"X": X[:8], "y": Y[estimator][:8]} | ({"qid": np.arange(8) // 2} if estimator is CSTCRanker else {})
    with error(
        "6 training rows are fewer than the 7 nodes of the tree; give more rows, or a smaller depth or max_nodes"
    ):
        fit(estimator, parameters, **few)


def test_one_class():
    with error("y holds one class, [1]; a classifier needs at least 2 classes"):
        fit(CSTCClassifier, y=np.ones(N, dtype=int))
    with error("y holds one class, ['a']; a classifier needs at least 2 classes"):
        fit(CSTCClassifier, y=["a"] * N)


def test_labels_of_the_wrong_kind():
    with error("Unknown label type: continuous"):
        fit(CSTCClassifier, y=X[:, 0])
    with error("could not convert string to float"):
        fit(CSTCRegressor, y=["a"] * N)


@pytest.mark.parametrize(("unknown", "shown"), [(7, "7"), ("a", "'a'")])
def test_a_class_that_only_validation_data_has(unknown, shown):
    with error(f"y_val holds {shown}, a class that y does not have; y has [0, 1]"):
        fit(CSTCClassifier, X_val=X, y_val=np.full(N, unknown))


@each_estimator
@pytest.mark.parametrize("parameters", [{}, {"method": "paper"}, PLAIN], ids=["experts", "paper", "exact"])
def test_constant_columns_buy_nothing(estimator, parameters):
    """Nothing to learn is no error: the answer is the constant one, for nothing."""
    model = fit(estimator, parameters, X=np.ones_like(X))
    assert len(np.unique(model.predict(X))) == 1
    assert model.mean_cost_ == 0
    part = fit(estimator, parameters, X=np.column_stack([X[:, 0], np.ones(N)]))
    assert len(np.unique(part.predict(X[:, :2]))) > 1
    assert part.predict_cost(X[:, :2]).max() <= 1


def test_missing_values_need_trees():
    with error("Input X contains NaN"):
        fit(CSTCRegressor, PLAIN, X=spoilt(X, np.nan))


# -- queries -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"qid": None}, "qid is missing; a ranker needs the query of each row: qid=..."),
        ({"qid": QID[:50]}, "qid has shape (50,), y has 60 rows; give one query id per row"),
        ({"qid": QID[:, None]}, "qid has shape (60, 1), y has 60 rows; give one query id per row"),
        ({"qid": np.arange(N) % 6}, "query 0 comes back after other queries; sort the rows by qid"),
        ({"qid": np.array(["a", "b"] * 30)}, "query 'a' comes back after other queries; sort the rows by qid"),
        (
            {"qid": np.zeros(N)},
            "experts are fitted in folds of whole queries, and the data has too few of them; give more",
        ),
        ({"y": np.zeros(N)}, "no query has a relevant document: all grades are 0; at least one must be above 0"),
        ({"y": np.full(N, -1.0)}, "grades range from -1 to -1; they must be from 0 to 30"),
        ({"y": np.full(N, 99.0)}, "grades range from 99 to 99; they must be from 0 to 30"),
        ({"X_val": X, "y_val": Y[CSTCRanker]}, "qid_val is missing; a ranker needs the query of each row: qid_val=..."),
        ({"X_val": X, "y_val": Y[CSTCRanker], "qid_val": QID[1:]}, "qid_val has shape (59,), y has 60 rows"),
        ({"qid_val": QID}, "sample_weight_val and qid_val belong to X_val and y_val, which are missing"),
    ],
)
def test_queries(changes, message):
    with error(message):
        fit(CSTCRanker, **changes)


def test_a_query_without_relevant_documents_is_left_out_of_the_score():
    grades = np.where(QID == 2, 0, Y[CSTCRanker])
    model = fit(CSTCRanker, {"method": "paper"}, y=grades, X_val=X, y_val=grades, qid_val=QID)
    others = QID != 2
    assert model.score(X, grades, qid=QID) == model.score(X[others], grades[others], qid=QID[others])
    with error("no query has a relevant document"):
        model.score(X, np.zeros(N), qid=QID)
    with error("qid is missing; a ranker is judged by its queries: score(X, y, qid=...), which a search of"):
        model.score(X, grades)


# -- prediction ----------------------------------------------------------------------------------------------------


@each_estimator
@pytest.mark.parametrize("method", ["predict", "predict_cost", "apply", "predict_proba", "decision_function"])
def test_use_before_fit(estimator, method):
    if hasattr(estimator, method):
        with error("is not fitted yet", NotFittedError):
            getattr(estimator(), method)(X)
    with error("is not fitted yet", NotFittedError):
        estimator().with_costs([1, 2, 3])


@each_estimator
@pytest.mark.parametrize("method", ["predict", "predict_cost", "apply"])
def test_other_columns_at_predict_time(estimator, method):
    names = ["a", "b", "c"]
    by_number = getattr(fit(estimator), method)
    by_name = getattr(fit(estimator, X=pd.DataFrame(X, columns=names)), method)
    for wrong, message in [
        (X[:, :2], "X has 2 features, but"),
        (np.hstack([X, X]), "X has 6 features, but"),
        (X[0], "Reshape your data"),
        (X[:0], "Found array with 0 sample(s)"),
        (spoilt(X, np.inf), "Input X contains infinity"),
    ]:
        with error(message):
            by_number(wrong)
    for columns, message in [
        (["a", "c", "b"], "Feature names must be in the same order as they were in fit"),
        (["a", "b"], "Feature names seen at fit time, yet now missing:\n- c"),
        (["a", "b", "c", "d"], "Feature names unseen at fit time:\n- d"),
        (["a", "b", "x"], "Feature names unseen at fit time:\n- x"),
    ]:
        with error(message):
            by_name(pd.DataFrame(np.ones((2, len(columns))), columns=columns))
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        np.testing.assert_array_equal(by_name(X), by_name(pd.DataFrame(X, columns=names)))


def test_text_where_training_saw_numbers():
    model = fit(CSTCRegressor, X=pd.DataFrame(X, columns=["a", "b", "c"]))
    message = "column 'b' of X holds .*, which is not a number; give numbers, or text or categories already in fit"
    with pytest.raises(ValueError, match=message):
        model.predict(pd.DataFrame({"a": [1.0], "b": ["much"], "c": [1.0]}))


@each_estimator
@pytest.mark.parametrize("method", ["predict", "predict_cost", "apply"])
def test_one_row_of_a_table_is_no_table(estimator, method):
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    use = getattr(fit(estimator, X=table), method)
    for row in (table.iloc[0], table["a"], pl.from_pandas(table)["a"]):
        with error("X is a Series: one row, or one column; give a table. One row of a table df is df.iloc[[0]]"):
            use(row)
    assert use(table.iloc[[0]]) == use(table)[0]
    with error("df.iloc[[0]]"):
        fit(estimator, X=table["a"])


def test_an_unknown_way_of_counting():
    with error("counting is 'leaf'; it must be one of ('branch', 'learner')"):
        fit(CSTCRegressor).predict_cost(X, counting="leaf")
