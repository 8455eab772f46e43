"""What `fit` takes: folders of Parquet files, and columns that are named, with the same model as from arrays."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cstc
from cstc import CSTCClassifier, CSTCRanker, CSTCRegressor, Frontier, Paper
from cstc.folders import Folder

SMALL = {"n_weak_learners": 5, "n_jobs": 1, "random_state": 0}
ESTIMATORS = [CSTCRegressor, CSTCClassifier, CSTCRanker]
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)
COSTS = {"number": 1, "city": 2, "noise": 3, "truth": 1}
N = 300


def error(message, kind=ValueError):
    return pytest.raises(kind, match=re.escape(message))


def make_table(n=N, seed=0):
    """Numbers with gaps, text, whole numbers, true and false; three targets, a query and a weight."""
    rng = np.random.default_rng(seed)
    number, city = rng.normal(size=n), rng.choice(["Basel", "Bern", "Genf", "Lugano"], size=n)
    value = number + 2 * (city == "Bern") + 0.1 * rng.normal(size=n)
    number[::7] = np.nan
    return pd.DataFrame(
        {
            "weight": rng.integers(1, 4, n) / 2,
            "number": number,
            "value": value,
            "city": city,
            "noise": rng.integers(0, 5, n).astype("int32"),
            "label": np.where(value > 0, "yes", "no"),
            "query": np.arange(n) // 6,
            "truth": rng.random(n) > 0.5,
            "grade": np.clip(np.round(value), 0, 4),
        }
    )


TABLE, OTHER = make_table(), make_table(120, seed=1)
TARGETS = {CSTCRegressor: "value", CSTCClassifier: "label", CSTCRanker: "grade"}


def names(estimator):
    """The names that `fit` is given for an estimator."""
    found = {"target": TARGETS[estimator], "sample_weight": "weight"}
    return found | ({"qid": "query"} if estimator is CSTCRanker else {})


def own_table(estimator, table=TABLE):
    """The inputs, and what is named for an estimator."""
    return table[[name for name in table if name in COSTS or name in names(estimator).values()]]


def values(estimator, table=TABLE):
    """The same as arrays beside X, as keywords of `fit`."""
    found = {"X": table[list(COSTS)], "y": table[TARGETS[estimator]].to_numpy(), "sample_weight": table["weight"]}
    return found | ({"qid": table["query"]} if estimator is CSTCRanker else {})


def write_folder(path, table, n_files=3, row_group_size=40):
    """Files of about the same length, whose city is a category with a dictionary of its own in each."""
    for number, rows in enumerate(np.array_split(np.arange(len(table)), n_files)):
        part = table.iloc[rows].assign(city=pd.Categorical(table["city"].iloc[rows]))
        path.mkdir(exist_ok=True)
        written = pa.Table.from_pandas(part, preserve_index=number == 1)
        pq.write_table(written, path / f"part {number}.parquet", row_group_size=row_group_size)
    return path


@pytest.fixture
def train(tmp_path):
    return lambda estimator, table=TABLE, **options: write_folder(
        tmp_path / "train", own_table(estimator, table), **options
    )


def file_of(model, path):
    model.save(path / "model.cstc")
    return (path / "model.cstc").read_bytes()


def fit(estimator, X, **given):
    return estimator(costs=COSTS, cost_weight=0.001, **SMALL).fit(X, **given)


def as_polars(table):
    return pl.from_pandas(table).with_columns(pl.col("number").fill_nan(None))


# -- the same model ------------------------------------------------------------------------------------------------


@each_estimator
def test_one_model_byte_for_byte(estimator, train, tmp_path):
    """From a folder, from tables with a target, and from a table with targets beside it."""
    table = own_table(estimator)
    expected = file_of(fit(estimator, **values(estimator)), tmp_path)
    folder = train(estimator)
    for X in (folder, str(folder), table, as_polars(table), pa.Table.from_pandas(table)):
        assert file_of(fit(estimator, X, **names(estimator)), tmp_path) == expected
    assert len(cstc.load(tmp_path / "model.cstc").schema.categories["city"]) == 4


def test_one_model_from_a_folder_of_numbers_and_from_arrays(tmp_path):
    table = TABLE[["number", "noise", "value"]].set_axis(["x0", "x1", "value"], axis=1)
    folder = tmp_path / "numbers"
    folder.mkdir()
    table[:100].to_parquet(folder / "1.parquet")
    table[100:].to_parquet(folder / "2.parquet")
    expected = CSTCRegressor(**SMALL).fit(table[["x0", "x1"]].to_numpy(), table["value"].to_numpy())
    found = CSTCRegressor(**SMALL).fit(folder, target="value")
    found.save(tmp_path / "found.cstc")
    expected.save(tmp_path / "expected.cstc")
    assert (tmp_path / "found.cstc").read_bytes() == (tmp_path / "expected.cstc").read_bytes()


def test_single_precision_stays(tmp_path):
    table = pa.table({"a": np.arange(60, dtype=np.float32), "y": np.arange(60.0)})
    pq.write_table(table, tmp_path / "1.parquet")
    model = CSTCRegressor(**SMALL).fit(tmp_path, target="y")
    assert model._check_X(table.select(["a"]), reset=False).dtype == np.float32


def test_one_file_is_enough(tmp_path):
    folder = write_folder(tmp_path / "train", own_table(CSTCRegressor), n_files=1)
    expected = file_of(fit(CSTCRegressor, folder, **names(CSTCRegressor)), tmp_path)
    found = fit(CSTCRegressor, folder / "part 0.parquet", **names(CSTCRegressor))
    assert file_of(found, tmp_path) == expected


@each_estimator
def test_answers_for_tables_of_pyarrow(estimator):
    model = fit(estimator, **values(estimator))
    table, arrow = OTHER[list(COSTS)], pa.Table.from_pandas(OTHER[list(COSTS)])
    questions = ["predict", "predict_cost", "apply"] + ["predict_proba"] * (estimator is CSTCClassifier)
    for question in questions:
        np.testing.assert_array_equal(getattr(model, question)(arrow), getattr(model, question)(table))
    np.testing.assert_array_equal(model.predict(arrow, budget=2.0), model.predict(table, budget=2.0))
    np.testing.assert_array_equal(model.model_.predict(arrow), model.predict(table))
    assert len(np.unique(model.predict(arrow))) > 1


@each_estimator
@pytest.mark.parametrize("as_kind", [str, Path, lambda path: Folder.open(path).read()], ids=["str", "path", "table"])
def test_validation_rows_by_the_same_names(estimator, as_kind, train, tmp_path):
    """`Paper` prunes by them: without, and with others, the model is another one."""
    method = Paper(depth=3, max_iter=20, tol=1e-2)

    def fitted(X, **given):
        model = estimator(costs=COSTS, cost_weight=0.003, method=method, **SMALL)
        return file_of(model.fit(X, **given), tmp_path)

    beside = values(estimator, OTHER)
    beside = {f"{name}_val": value for name, value in beside.items()}
    expected = fitted(**values(estimator), **beside)
    valid = write_folder(tmp_path / "valid", own_table(estimator, OTHER))
    assert fitted(train(estimator), X_val=as_kind(valid), **names(estimator)) == expected
    assert fitted(**values(estimator)) != expected


def test_other_names_in_the_validation_rows(train, tmp_path):
    other = OTHER.rename(columns={"query": "question", "weight": "w"})
    given = {"qid_val": "question", "sample_weight_val": "w"}
    valid = write_folder(tmp_path / "valid", other[[*COSTS, "grade", "question", "w"]])
    model = CSTCRanker(costs=COSTS, method="paper", **SMALL)
    found = file_of(model.fit(train(CSTCRanker), X_val=valid, **given, **names(CSTCRanker)), tmp_path)
    beside = {f"{name}_val": value for name, value in values(CSTCRanker, OTHER).items()}
    assert file_of(model.fit(**values(CSTCRanker), **beside), tmp_path) == found


@each_estimator
def test_a_frontier_of_a_folder(estimator, train, tmp_path):
    frontier = Frontier(estimator(costs=COSTS, **SMALL), cost_weights=[0.1, 0.001])
    folder, valid = train(estimator), write_folder(tmp_path / "valid", own_table(estimator, OTHER))
    beside = {f"{name}_val": value for name, value in values(estimator, OTHER).items()}
    for by_name, by_value in (
        ({"X_val": valid}, beside),
        ({}, {}),  # a part of the rows is held out
    ):
        found = frontier.fit(folder, **by_name, **names(estimator))
        files = [file_of(model, tmp_path) for model in found.tried_models_]
        table = found.table_
        cost = 0.5 * (table[0]["mean_cost"] + table[-1]["mean_cost"])
        refined = found.refine(folder, mean_cost=cost, **by_name, **names(estimator)).table_
        expected = frontier.fit(**values(estimator), **by_value)
        assert [file_of(model, tmp_path) for model in expected.tried_models_] == files
        assert expected.table_ == table
        assert expected.refine(**values(estimator), **by_value, mean_cost=cost).table_ == refined
        assert len(refined) > len(table)


def test_a_target_beside_columns_of_numbers():
    X = np.random.default_rng(0).normal(size=(80, 3))
    expected = CSTCRegressor(**SMALL).fit(pd.DataFrame(X), X[:, 0])
    model = CSTCRegressor(**SMALL).fit(pd.DataFrame(X).assign(value=X[:, 0]), target="value")
    np.testing.assert_array_equal(model.predict(pd.DataFrame(X)), expected.predict(pd.DataFrame(X)))
    assert model._column_numbers == [0, 1, 2]


def test_queries_by_name_and_grades_beside():
    table = TABLE[[*COSTS, "query"]]
    found = CSTCRanker(**SMALL).fit(table, TABLE["grade"], qid="query")
    expected = CSTCRanker(**SMALL).fit(TABLE[list(COSTS)], TABLE["grade"], qid=TABLE["query"])
    np.testing.assert_array_equal(found.predict(TABLE[list(COSTS)]), expected.predict(TABLE[list(COSTS)]))


@pytest.mark.parametrize("kind", ["category", "boolean", "Int64", "int8", "float32"])
def test_targets_of_every_type(kind, tmp_path):
    labels = pd.Series(np.where(TABLE["value"] > 0, 1, 0)).astype("int8")
    table = TABLE[["number", "noise"]].assign(y=labels.astype(kind))
    table.to_parquet(tmp_path / "1.parquet")
    expected = CSTCClassifier(**SMALL).fit(TABLE[["number", "noise"]], labels)
    for X in (table, tmp_path):
        found = CSTCClassifier(**SMALL).fit(X, target="y")
        np.testing.assert_array_equal(
            found.predict_proba(TABLE[["number", "noise"]]), expected.predict_proba(TABLE[["number", "noise"]])
        )


# -- bad input -----------------------------------------------------------------------------------------------------

ARRAY, Y = TABLE[["number", "noise"]].to_numpy(), TABLE["value"].to_numpy()


def fit_wrong(X, estimator=CSTCRegressor, in_frontier=False, **given):
    model = estimator(**SMALL)
    return (Frontier(model, n_weights=2) if in_frontier else model).fit(X, **given)


@pytest.fixture(params=[False, True], ids=["estimator", "frontier"])
def wrong(request):
    """A fit that must fail, of an estimator and of a frontier."""
    return lambda X, **given: fit_wrong(X, in_frontier=request.param, **given)


def test_folders_that_cannot_be_read(wrong, tmp_path):
    with error("there is no folder and no file 'nowhere'; give a folder of Parquet files", FileNotFoundError):
        wrong("nowhere", target="y")
    with error("has no Parquet file; names of files end with .parquet"):
        wrong(tmp_path, target="y")
    pd.DataFrame({"a": [1.0]}).to_parquet(tmp_path / "1.parquet")
    pd.DataFrame({"a": ["x"]}).to_parquet(tmp_path / "2.parquet")
    with error("column 'a' is large_string in '2.parquet' and double in '1.parquet'; all files need the same types"):
        wrong(tmp_path, target="a")


def test_a_target_that_is_no_column(wrong, train):
    message = "target is 'price', which is no column of X: 'weight', 'number', 'value', 'city', 'noise', 'truth'"
    with error(message):
        wrong(train(CSTCRegressor), target="price")
    with error(message):
        wrong(own_table(CSTCRegressor), target="price")
    with error("sample_weight is 'w', which is no column of X"):
        wrong(TABLE, target="value", sample_weight="w")
    with error("target is 3; it must be the name of a column of X: target='price'"):
        wrong(TABLE, target=3)


def test_one_of_y_and_target(wrong, train):
    folder = train(CSTCRegressor)
    with error("both y and target are given; give y, or leave it out and take the column 'value' of X"):
        wrong(TABLE, y=Y, target="value")
    with error("CSTCRegressor requires y to be passed, but the target y is None; give y, or target='price', a column"):
        wrong(TABLE)
    with error("say which of its columns holds the targets: target='price'"):
        wrong(folder)
    with error("y is given as values, and X is a folder; leave it out, and name the column with target"):
        wrong(folder, y=Y)
    with error("y is 'value'; give values, or leave it out: target='value' names a column"):
        wrong(TABLE, y="value")


def test_values_beside_a_folder(wrong, train):
    with error("sample_weight is given as values, and X is a folder; name a column: sample_weight='weight'"):
        wrong(train(CSTCRegressor), target="value", sample_weight=np.ones(N))
    with error("qid is given as values, and X is a folder; name a column: qid='query'"):
        wrong(train(CSTCRanker), estimator=CSTCRanker, target="grade", qid=np.ones(N))


def test_names_with_arrays(wrong):
    advice = "and X has no columns with names; give values, or a table or a folder of Parquet files"
    with error(f"target is 'value', {advice}"):
        wrong(ARRAY, target="value")
    with error(f"sample_weight is 'weight', {advice}"):
        wrong(ARRAY, y=Y, sample_weight="weight")
    with error(f"qid is 'query', {advice}"):
        wrong(ARRAY, y=Y, qid="query", estimator=CSTCRanker)


def test_one_column_with_two_uses(wrong):
    with error("target and qid name one column, 'grade'; each needs its own"):
        wrong(TABLE, target="grade", qid="grade", estimator=CSTCRanker)
    with error("target and sample_weight name one column, 'value'; each needs its own"):
        wrong(TABLE, target="value", sample_weight="value")


def test_queries_that_nobody_needs():
    for name in ("qid", "qid_val"):
        with error(f"{name} is given, and a CSTCRegressor has no use for it; leave it out"):
            fit_wrong(TABLE, in_frontier=True, target="value", **{name: "query"})
    with error("unexpected keyword argument 'qid'", TypeError):
        fit_wrong(TABLE, target="value", qid="query")


@pytest.mark.parametrize("role", ["target", "sample_weight", "qid"])
@pytest.mark.parametrize("kind", ["pandas", "polars", "folder"])
def test_gaps_in_columns_that_are_named(wrong, role, kind, tmp_path):
    given = names(CSTCRanker)
    table = TABLE[[*COSTS, "grade", "query", "weight"]].copy()
    table.loc[[3, 8], given[role]] = np.nan
    if kind == "folder":
        table.to_parquet(tmp_path / "1.parquet")
    X = {"pandas": table, "polars": pl.from_pandas(table, nan_to_null=True), "folder": tmp_path}[kind]
    message = f"{role} is {given[role]!r}, a column of X that is missing in 2 of {N} rows; every row needs one"
    with error(message):
        wrong(X, estimator=CSTCRanker, **given)


def test_targets_that_are_no_numbers_in_polars(wrong):
    table = pl.DataFrame({"a": np.arange(60.0), "y": [np.nan, *np.arange(59.0)]})
    with error("Input y contains NaN"):
        wrong(table, target="y")


def test_validation_rows_that_lack_something(wrong, train):
    paper = {"target": "value", "sample_weight": "weight"}
    table, other = own_table(CSTCRegressor), own_table(CSTCRegressor, OTHER)
    with error("sample_weight_val is 'weight', which is no column of X_val: 'number', 'value'"):
        wrong(table, X_val=other.drop(columns="weight"), **paper)
    with error("target is 'value', which is no column of X_val"):
        wrong(table, X_val=other.drop(columns="value"), **paper)
    with error("y_val is given, and X_val has the column 'value' of the targets, too; leave one out"):
        wrong(table, X_val=other, y_val=OTHER["value"], **paper)
    with error("there is no folder and no file 'nowhere'", FileNotFoundError):
        wrong(table, X_val="nowhere", **paper)
    folder = train(CSTCRegressor, OTHER)
    with error("y_val is given as values, and X_val is a folder; leave it out, and name the column with target"):
        wrong(table, X_val=folder, y_val=OTHER["value"], **paper)
    with error("X_val is a folder, and its targets have no name; give target, and no y"):
        wrong(table, y=TABLE["value"], X_val=folder)
    with error("y_val is 'value'; give values, or leave it out: target='value' names a column"):
        wrong(table, X_val=other, y_val="value", **paper)
    with error("validation data needs both X_val and y_val; y_val is missing"):
        wrong(table, X_val=other.to_numpy(), **paper)


def test_names_that_stand_there_twice(wrong):
    table = pd.DataFrame(np.ones((60, 3)), columns=["a", "a", "y"])
    with error("columns of X have the same name, 'a'; give each its own"):
        wrong(table, target="y")


def test_a_folder_without_rows(wrong, tmp_path):
    pd.DataFrame({"a": np.empty(0), "y": np.empty(0)}).to_parquet(tmp_path / "1.parquet")
    with error("0 sample(s)"):
        wrong(tmp_path, target="y")


def test_frames_that_hold_no_rows_yet(wrong):
    import dask.dataframe as dd

    frame = dd.from_pandas(TABLE, npartitions=2)
    with error("X is a Dask DataFrame, which holds no rows yet; give X.compute(), or the folder that", TypeError):
        wrong(frame, target="value")


def test_predict_takes_rows(train):
    folder = train(CSTCRegressor)
    model = fit(CSTCRegressor, folder, **names(CSTCRegressor))
    with error("and rows are needed here; cstc.predict_partitions reads folders", TypeError):
        model.predict(folder)


def test_a_fit_that_fails_leaves_the_model_as_it_was(train):
    model = fit(CSTCRegressor, train(CSTCRegressor), **names(CSTCRegressor))
    before = model.predict(OTHER[list(COSTS)])
    with error("there is no folder", FileNotFoundError):
        model.fit("nowhere", target="value")
    np.testing.assert_array_equal(model.predict(OTHER[list(COSTS)]), before)
