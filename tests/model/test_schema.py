"""Rows that a flat model takes: matrices, tables by name, categories, and what it refuses."""

import math

import numpy as np
import pytest

import cstc
from cstc.model.schema import Schema, category_code

SCHEMA = Schema(["a", "b", "kind"], {"kind": ["1", "2", "x"]}, np.zeros(3, dtype=bool))


def test_a_matrix_is_taken_as_it_is():
    X = np.array([[0.0, 1, 2], [3, 4, 0]])
    assert SCHEMA.matrix(X) is X
    np.testing.assert_array_equal(SCHEMA.matrix(X.astype(np.float32).tolist()), X)
    with pytest.warns(cstc.UnseenValueWarning, match="b is missing"):
        assert np.isnan(SCHEMA.matrix([[1, None, 2]])[0, 1])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_table_goes_by_names_and_categories(library):
    tables = pytest.importorskip(library)
    table = tables.DataFrame({"kind": ["x", "2", "new", None], "unused": [0] * 4, "b": [1, 2, 3, 4], "a": [0.5] * 4})
    with pytest.warns(cstc.UnseenValueWarning, match="kind holds a category that training did not see"):
        found = SCHEMA.matrix(table)
    np.testing.assert_array_equal(found[:, :2], [[0.5, 1], [0.5, 2], [0.5, 3], [0.5, 4]])
    np.testing.assert_array_equal(found[:, 2], [2, 1, np.nan, np.nan])


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(3), "1 dimension"),
        (np.zeros((2, 4)), "X has 4 columns; the model has 3: 'a', 'b', 'kind'"),
        (np.zeros((2, 2)), "X has 2 columns"),
        ([[1.0, 2.0, math.inf]], "infinite"),
        ([["text", 1.0, 2.0]], "cannot be read as numbers"),
        ([[1.0, 2.0], [3.0]], "cannot be read as numbers"),
        (None, "0 dimension"),
    ],
)
def test_what_is_no_matrix_is_refused(X, message):
    with pytest.raises(ValueError, match=message):
        SCHEMA.matrix(X)


def test_a_table_without_a_column_or_with_text_for_numbers_is_refused():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="no column 'b'; the model has"):
        SCHEMA.matrix(pandas.DataFrame({"a": [1.0], "kind": ["x"]}))
    with pytest.raises(ValueError, match=r"column 'a' of X holds .*, which is not a number; give numbers"):
        SCHEMA.matrix(pandas.DataFrame({"a": ["one"], "b": [1.0], "kind": ["x"]}))


@pytest.mark.parametrize(
    ("names", "value", "code"),
    [
        (["1", "2"], 2.0, 1.0),
        (["1", "2"], np.float32(2), 1.0),
        (["1.0", "2.0"], 2, 1.0),
        (["1", "2", "2.0"], 2.0, 2.0),
        (["1", "2"], 2.5, math.nan),
        (["1", "2"], math.inf, math.nan),
        (["False", "True"], True, 1.0),
        (["a"], "b", math.nan),
    ],
)
def test_whole_numbers_are_the_same_category_as_floats(names, value, code):
    found = category_code({name: float(k) for k, name in enumerate(names)}, value)
    assert found == code or (math.isnan(found) and math.isnan(code))


def test_a_loaded_model_takes_tables_and_says_what_is_wrong(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({"size": rng.normal(size=200), "grade": rng.integers(1, 4, 200).astype(str)})
    y = table["size"] + table["grade"].astype(float)
    model = cstc.CSTCRegressor(n_weak_learners=10, random_state=0, n_jobs=1).fit(table, y)
    model.save(tmp_path / "model.cstc")
    loaded = cstc.load(tmp_path / "model.cstc")
    assert loaded.predict(table[["grade", "size"]]) == pytest.approx(model.predict(table))
    as_floats = table.assign(grade=table["grade"].astype(float))  # what pandas makes of a row with both
    assert loaded.predict(as_floats) == pytest.approx(model.predict(table))
    assert model.predict(as_floats) == pytest.approx(model.predict(table))
    for use in (loaded.predict, loaded.predict_cost, loaded.apply, loaded.bought_items, loaded.decision_function):
        with pytest.raises(ValueError, match="X has 3 columns"):
            use(np.zeros((2, 3)))
        with pytest.raises(ValueError, match=r"X is a Series.* One row of a table df is df\.iloc\[\[0\]\] in pandas"):
            use(table.iloc[0])
        assert len(use(table.iloc[[0]])) == 1


def test_a_loaded_model_takes_tables_whose_columns_are_numbers(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({3: rng.normal(size=200), 7: rng.choice(["a", "b"], 200), 5: rng.normal(size=200)})
    model = cstc.CSTCRegressor(costs=[1, 2, 4], cost_weight=0.001, n_weak_learners=10, random_state=0, n_jobs=1)
    model.fit(table, table[3] + 2 * (table[7] == "a"))
    model.save(tmp_path / "model.cstc")
    loaded = cstc.load(tmp_path / "model.cstc")
    assert loaded.schema.feature_names == ["x0", "x1", "x2"]
    assert loaded.schema.categories == {"x1": ["a", "b"]}
    np.testing.assert_array_equal(loaded.predict(table), model.predict(table))
    np.testing.assert_array_equal(loaded.predict_cost(table), model.predict_cost(table))
    assert len(np.unique(loaded.predict(table))) > 2
    with pytest.raises(ValueError, match="X has no column 'x2'"):
        loaded.predict(table[[3, 7]])
