"""Single precision stays single precision, no order of cells is changed, and nothing keeps copies of the rows."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import cstc.model.native as native
from cstc import CSTCClassifier, CSTCRegressor, Frontier, Paper
from cstc.boosting import Boosting
from cstc.costs import CostModel
from cstc.lightgbm_engine import Binned, GainRegression, bin_blocks
from cstc.losses import SquaredLoss
from cstc.method import Method
from cstc.rows import Rows

SMALL = {"n_weak_learners": 8, "learning_rate": 0.4, "n_jobs": 1, "random_state": 0}
NAMES = ["a", "b", "c", "d"]


def make_data(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)).astype(np.float32)
    X[rng.random(X.shape) < 0.03] = np.nan
    return X, np.nan_to_num(X[:, 0] + (X[:, 1] > 0)).astype(float)


def same_answers(model, X, other):
    for name in ("decision_function", "predict", "predict_cost", "apply"):
        np.testing.assert_array_equal(getattr(model, name)(other), getattr(model, name)(X), err_msg=name)


@pytest.fixture
def trained_on(monkeypatch):
    """The matrices that methods were given."""
    found = []
    for kind in Method.__subclasses__():
        if "train" in vars(kind):
            plain = kind.train
            monkeypatch.setattr(
                kind, "train", lambda self, problem, plain=plain: found.append(problem.rows.X) or plain(self, problem)
            )
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_not_copied_in_fit(trained_on, dtype, order):
    X, y = make_data()
    X = np.array(X, dtype=dtype, order=order)
    CSTCRegressor(**SMALL).fit(X, y)
    assert np.shares_memory(trained_on[0], X)
    assert trained_on[0].dtype == dtype


@pytest.mark.parametrize("make", [pd.DataFrame, lambda X, columns: pl.DataFrame(X, schema=columns)], ids=["pd", "pl"])
def test_tables_of_single_precision(trained_on, make):
    X, y = make_data()
    model = CSTCRegressor(**SMALL).fit(make(X, columns=NAMES), y)
    assert trained_on[0].dtype == np.float32
    np.testing.assert_array_equal(trained_on[0], X)
    np.testing.assert_array_equal(model.predict(make(X, columns=NAMES)), model.model_.predict(X))
    assert model.model_.schema.matrix(make(X, columns=NAMES)).dtype == np.float32
    assert model.model_.schema.matrix(make(X.astype(float), columns=NAMES)).dtype == np.float64


def test_columns_of_both_precisions_are_double(trained_on):
    X, y = make_data()
    CSTCRegressor(**SMALL).fit(pd.DataFrame(X, columns=NAMES).astype({"b": np.float64}), y)
    CSTCRegressor(**SMALL).fit(pd.DataFrame(X, columns=NAMES).assign(kind="x"), y)
    assert [each.dtype for each in trained_on] == [np.float64, np.float64]


def test_missing_values_of_a_nullable_column_in_single_precision():
    X, y = make_data()
    model = CSTCRegressor(**SMALL).fit(X, y).model_
    table = pd.DataFrame({f"x{j}": pd.array(X[:, j], dtype="Float32") for j in range(4)})
    table = table.mask(np.isnan(X))
    assert model.schema.matrix(table).dtype == np.float32
    np.testing.assert_array_equal(model.predict(table), model.predict(X))


@pytest.mark.parametrize("method", ["experts", Paper(depth=2, max_iter=5)], ids=["experts", "paper"])
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_same_model_and_answers_as_in_double_precision(method, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(native, "_native", None)
    X, y = make_data()
    single, double = (
        CSTCClassifier(**SMALL, method=method).fit(rows, y > 0.5) for rows in (X, X.astype(np.float64))
    )
    np.testing.assert_array_equal(single.decision_function(X), double.decision_function(X.astype(np.float64)))
    for model in (single, double):
        same_answers(model, X.astype(np.float64), X)
        same_answers(model, X.astype(np.float64), np.asfortranarray(X))


def test_thresholds_are_compared_in_double_precision():
    """A value of single precision just above a threshold that single precision would round up to it."""
    X, y = np.repeat([0.1, np.nextafter(0.1, 1)], 100)[:, None], np.repeat([0.0, 1.0], 100)
    model = CSTCRegressor(**SMALL).fit(X, y).model_
    for value in (np.float32(0.1), np.nextafter(np.float32(0.1), np.float32(0))):
        row = np.array([[value]], dtype=np.float32)
        np.testing.assert_array_equal(model.predict(row), model.predict(row.astype(np.float64)))


def test_frontiers_of_single_precision():
    X, y = make_data()
    tables = [Frontier(CSTCRegressor(**SMALL), n_weights=3).fit(rows, y).table_ for rows in (X, X.astype(float))]
    assert tables[0] == tables[1]


def boosting():
    return Boosting(SquaredLoss(), CostModel([1.0] * 4).resolve(NAMES), 5, 3, 0.3, None)


def test_gates_keep_no_rows_and_learn_other_targets_all_the_same():
    X, y = make_data()
    columns, at = np.array([0, 2]), np.arange(len(X))
    rows = Rows(X, np.zeros(len(X)), np.ones(len(X)))
    regression = GainRegression(boosting(), rows, at, columns, None)
    assert regression._binned.data is None
    for target in (y, -y, y):
        fresh = GainRegression(boosting(), rows, at, columns, None).fit(target)
        np.testing.assert_array_equal(regression.fit(target).predict(X[:, columns]), fresh.predict(X[:, columns]))


def test_bins_of_many_rows_keep_no_rows(monkeypatch):
    monkeypatch.setattr("cstc.lightgbm_engine.MANY_ROWS", 100)
    X, y = make_data()
    rows, columns = Rows(X, y, np.ones(len(X))), np.arange(4)
    blocks = bin_blocks(boosting(), rows, [columns])
    binned = Binned(boosting(), rows, columns, blocks)
    assert binned.rows.X is None
    assert blocks.together(columns).data is None
    assert binned.boost_without(np.arange(len(X)) < 100).current_iteration() == 5
    assert binned.boost_all(3).current_iteration() == 3


def test_models_that_part_missing_values_from_all_others_can_be_saved(tmp_path):
    """LightGBM writes such a threshold as infinity."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    X[rng.random(400) < 0.3, 0] = np.nan
    model = CSTCRegressor(**SMALL).fit(X, np.isnan(X[:, 0]).astype(float))
    assert np.isfinite(model.model_.pool.threshold).all()
    model.save(tmp_path / "model.cstc")
    assert model.score(X, np.isnan(X[:, 0]).astype(float)) > 0.9
