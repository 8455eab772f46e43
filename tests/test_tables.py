"""Tables: pandas and polars in, the same numbers out."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from cstc import CSTCClassifier, CSTCRanker, CSTCRegressor, UnseenValueWarning
from cstc.model.schema import encode
from cstc.tables import categories_of, is_frame, take_rows

SMALL = {"n_weak_learners": 5, "n_jobs": 1, "random_state": 0}
each_library = pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])

PANDAS = pd.DataFrame(
    {
        "text": ["b", None, "a", "b"],
        "category": pd.Categorical(["low", "high", None, "low"], categories=["low", "high", "never"]),
        "codes": pd.Categorical([30, 4, None, 30]),
        "object": np.array(["x", 1, None, 1], dtype=object),
        "number": [1.5, np.nan, -2.0, 0.0],
        "nullable": pd.array([1, None, 3, 4], dtype="Int64"),
        "truth": [True, False, True, True],
        "nullable truth": pd.array([True, None, False, True], dtype="boolean"),
        "loose": np.array([1, None, 2.5, True], dtype=object),
    }
)
POLARS = pl.DataFrame(
    {
        "text": pl.Series(["b", None, "a", "b"]),
        "category": pl.Series(["low", "high", None, "low"], dtype=pl.Categorical),
        "codes": pl.Series(["30", "4", None, "30"], dtype=pl.Enum(["4", "30"])),
        "object": pl.Series(["x", "1", None, "1"]),
        "number": pl.Series([1.5, None, -2.0, 0.0]),
        "nullable": pl.Series([1, None, 3, 4], dtype=pl.Int8),
        "truth": pl.Series([True, False, True, True]),
        "nullable truth": pl.Series([True, None, False, True]),
        "loose": pl.Series([1.0, None, 2.5, 1.0]),
    }
)
ENCODED = np.array(
    [
        [1, 1, 0, 1, 1.5, 1, 1, 1, 1],
        [np.nan, 0, 1, 0, np.nan, np.nan, 0, np.nan, np.nan],
        [0, np.nan, np.nan, np.nan, -2, 3, 1, 0, 2.5],
        [1, 1, 0, 0, 0, 4, 1, 1, 1],
    ]
)


@pytest.mark.parametrize("table", [PANDAS, POLARS], ids=["pandas", "polars"])
def test_every_kind_of_column(table):
    categories = categories_of(table)
    assert categories == {"text": ["a", "b"], "category": ["high", "low"], "codes": ["30", "4"], "object": ["1", "x"]}
    np.testing.assert_array_equal(encode(table, categories), ENCODED)


@each_library
def test_unseen_categories_become_missing(make):
    categories = categories_of(make({"a": ["x", "y"]}))
    np.testing.assert_array_equal(encode(make({"a": ["y", "z", None]}), categories), [[1], [np.nan], [np.nan]])


def test_what_is_no_table_stays_as_it_is():
    X = np.ones((2, 2))
    assert not is_frame(X)
    assert not is_frame([[1, 2]])
    assert categories_of(X) == {}


@each_library
def test_rows_of_a_table_and_of_a_list(make):
    table = make({"a": [1, 2, 3], "b": ["x", "y", "z"]})
    some = take_rows(table, np.array([2, 0]))
    assert type(some) is type(table)
    assert list(some["b"]) == ["z", "x"]
    assert take_rows([[1], [2], [3]], np.array([2, 0])) == [[3], [1]]
    np.testing.assert_array_equal(take_rows(np.arange(3), np.array([2, 0])), [2, 0])


def test_columns_without_names_are_numbered():
    table = pd.DataFrame([[1.0, "a"], [2.0, "b"]])
    categories = categories_of(table)
    assert categories == {"x1": ["a", "b"]}
    np.testing.assert_array_equal(encode(table, categories), [[1, 0], [2, 1]])


@pytest.mark.parametrize(
    "table",
    [
        pl.DataFrame({"when": [datetime.date(2020, 1, 1)]}),
        pl.DataFrame({"when": [datetime.datetime(2020, 1, 1)]}),
        pl.DataFrame({"when": [[1.0]]}),
        pl.DataFrame({"when": ["1.5"]}),
        pd.DataFrame({"when": pd.to_datetime(["2020-01-01"])}),
        pd.DataFrame({"when": pd.to_timedelta([1], unit="D")}),
        pd.DataFrame({"when": ["noon"]}),
        pd.DataFrame({"when": np.array([1.0, "noon"], dtype=object)}),
    ],
    ids=lambda table: f"{type(table).__module__.split('.')[0]} {table['when'].dtype}",
)
def test_columns_that_hold_no_numbers(table):
    with pytest.raises(ValueError, match=r"column 'when' of X holds .*, which is not a number; give numbers, or text"):
        encode(table, {})


@each_library
def test_a_column_of_nothing_is_missing(make):
    np.testing.assert_array_equal(encode(make({"a": [1.0, 2.0], "b": [None, None]}), {}), [[1, np.nan], [2, np.nan]])


def test_a_lazy_frame_is_collected_by_the_user():
    with pytest.raises(TypeError, match=r"X is a LazyFrame, which holds no rows yet; give X.collect\(\)"):
        categories_of(pl.LazyFrame({"a": [1]}))


def test_two_columns_of_one_name():
    with pytest.raises(ValueError, match="columns of X have the same name; give each its own"):
        categories_of(pd.DataFrame([[1, 2]], columns=["a", "a"]))


# -- in the estimators -------------------------------------------------------------------------------------------


def mixed_table(make, n=200):
    rng = np.random.default_rng(0)
    number, city = rng.normal(size=n), rng.choice(["Basel", "Bern", "Genf", "Lugano"], size=n)
    y = number + 2 * (city == "Bern") + 0.1 * rng.normal(size=n)
    number[::7] = np.nan
    return make({"number": number, "city": city, "noise": rng.integers(0, 5, n)}), city, y


def fit(model, X, y):
    if isinstance(model, CSTCRanker):
        return model.fit(X, np.clip(np.round(y), 0, 4), qid=np.arange(len(y)) // 5)
    return model.fit(X, (y > 0).astype(int) if isinstance(model, CSTCClassifier) else y)


@pytest.mark.parametrize("estimator", [CSTCRegressor, CSTCClassifier, CSTCRanker])
def test_one_model_from_pandas_polars_and_numpy(estimator):
    """Text as text, as categories, and as codes that the user declares to be categories."""
    frames = {make: mixed_table(make) for make in (pd.DataFrame, pl.DataFrame)}
    X, city, y = frames[pd.DataFrame]
    matrix = np.column_stack([X["number"], np.unique(city, return_inverse=True)[1], X["noise"]])
    prices = {"number": 1, "city": 2, "noise": 3}
    results = []
    for table in (X, X.astype({"city": "category"}), frames[pl.DataFrame][0]):
        model = fit(estimator(costs=prices, **SMALL), table, y)
        assert model.feature_names_in_.tolist() == ["number", "city", "noise"]
        assert model.model_.schema.categories == {"city": ["Basel", "Bern", "Genf", "Lugano"]}
        results.append([model.predict(table), model.predict_cost(table)])
    model = fit(estimator(costs=list(prices.values()), categorical_features=[1], **SMALL), matrix, y)
    results.append([model.predict(matrix), model.predict_cost(matrix)])
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
    assert len(np.unique(results[0][0])) > 1


@each_library
def test_names_of_categorical_features_and_unseen_cities(make):
    X, _, y = mixed_table(make)
    model = CSTCRegressor(categorical_features=["noise"], cost_weight=0.0, **SMALL).fit(X, y)
    new = make({"number": [0.5, None], "city": ["Chur", None], "noise": [99, 1]})
    with pytest.warns(UnseenValueWarning, match="city holds a category that training did not see"):
        answers = model.predict(new)
    missing = make({"number": [0.5, None], "city": [None, None], "noise": [99, 1]})
    with pytest.warns(UnseenValueWarning, match="city is missing"):
        np.testing.assert_array_equal(answers, model.predict(missing))
    assert np.isfinite(answers).all()


@each_library
def test_a_polars_or_pandas_target(make):
    X, _, y = mixed_table(make)
    labels = make({"y": np.where(y > 0, "yes", "no")})["y"]
    model = CSTCClassifier(**SMALL).fit(X, labels)
    assert model.classes_.tolist() == ["no", "yes"]
    expected = CSTCClassifier(**SMALL).fit(X, np.where(y > 0, "yes", "no"))
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X))


def test_tables_whose_columns_are_numbers():
    X, _, y = mixed_table(pd.DataFrame)
    numbered = X.set_axis([4, 2, 9], axis=1)
    expected = CSTCRegressor(costs=[1, 2, 3], cost_weight=0.001, **SMALL).fit(X, y)
    model = CSTCRegressor(costs=[1, 2, 3], cost_weight=0.001, **SMALL).fit(numbered, y)
    np.testing.assert_array_equal(model.predict(numbered), expected.predict(X))
    np.testing.assert_array_equal(model.predict_cost(numbered), expected.predict_cost(X))
    assert model.model_.schema.feature_names == ["x0", "x1", "x2"]


@each_library
def test_identity_learners_refuse_categories(make):
    X = make({"size": np.arange(40.0), "city": ["Basel", "Bern"] * 20})
    with pytest.raises(ValueError, match="column 'city' of X holds categories, and weak_learners='identity' needs num"):
        CSTCRegressor(weak_learners="identity").fit(X, np.arange(40.0))
