"""Predictions by partitions: all together have the answers that one `predict` over all rows has."""

import gc
import pickle
import re
import tracemalloc
import weakref
from itertools import pairwise

import cloudpickle
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_matrix
from sklearn.exceptions import NotFittedError

import cstc
import cstc.partitions
from cstc import CSTCClassifier, CSTCRegressor, Frontier, Mixture, UnseenValueWarning, predict_partitions
from cstc.model.coins import Turns, coins
from cstc.model.file import load, save

SMALL = {"n_weak_learners": 15, "n_jobs": 1, "random_state": 0}
N = 240
CITIES = ["Basel", "Bern", "Genf", "Lugano"]
COSTS = {"number": 1, "city": 2, "noise": 3}
ERRORS = {0: {1: 90, None: 20}, 1: {0: 90, None: 20}}  # None: to refer a row to a person
CUTS = [0, 50, 50, 130, N]  # the second partition is empty


def error(message, kind=ValueError):
    return pytest.raises(kind, match=re.escape(message))


def make_table(n=N, seed=0, cities=CITIES):
    rng = np.random.default_rng(seed)
    number, city = rng.normal(size=n), rng.choice(cities, size=n)
    number[::7] = np.nan
    index = pd.Index(1000 + np.arange(n), name="row number")
    ids = [f"patient {k}" for k in range(n)]
    return pd.DataFrame({"number": number, "id": ids, "city": city, "noise": rng.integers(0, 5, n)}, index=index)


TRAIN = make_table(1500, seed=1)
NUMBER = np.nan_to_num(TRAIN["number"].to_numpy())
VALUE = NUMBER + np.where(NUMBER > 0, 3.0 * (TRAIN["city"] == "Bern"), 0.0)  # the city matters to some rows only
X = make_table()
PLAIN = X.drop(columns="id")


def classifier(labels, **options):
    model = CSTCClassifier(costs=COSTS, cost_weight=options.pop("cost_weight", 0.001), **SMALL | options)
    return model.fit(TRAIN.drop(columns="id"), labels)


@pytest.fixture(scope="module")
def models():
    """An estimator of each kind of answer, a tree and a mixture."""
    regressor = CSTCRegressor(costs=COSTS, cost_weight=0.001, **SMALL).fit(TRAIN.drop(columns="id"), VALUE)
    text = classifier(np.where(VALUE > 0.5, "yes", "no"))
    cheap = classifier(np.where(VALUE > 0.5, "yes", "no"), cost_weight=1e6)
    return {
        "regressor": regressor,
        "text": text,
        "numbers": classifier(np.digitize(VALUE, [0, 1]).astype("int16")),
        "booleans": classifier(VALUE > 0.5),
        "referring": classifier((VALUE > 0.5).astype(int), cost_weight=None, error_costs=ERRORS),
        "tree": text.model_,
        "mixture": Mixture(cheap.model_, text.model_, share=0.4, seed=3),
    }


KINDS = ["regressor", "text", "numbers", "booleans", "referring", "tree", "mixture"]
each_model = pytest.mark.parametrize("name", KINDS)
each_answer = pytest.mark.parametrize(
    ("name", "proba"), [*((name, False) for name in KINDS), *((name, True) for name in KINDS if name != "regressor")]
)


def parts_of(table):
    return [table[start:end] for start, end in pairwise(CUTS)]


def check(answers, model, proba=False, rows=PLAIN, **options):
    """Answers as columns of lists, against one call of the model."""
    classes = getattr(model, "model_", model).schema.classes
    ask = model.predict_proba if proba else model.predict
    values, costs = ask(rows, return_cost=True, **options)
    names = [str(name) for name in classes.tolist()] if proba else ["value"]
    assert list(answers) == [*names, "cost"]
    assert list(answers["cost"]) == costs.tolist()
    for k, name in enumerate(names):
        assert list(answers[name]) == (values[:, k] if proba else values).tolist()
    assert len(set(costs.tolist())) > 1


# -- every kind of partition -------------------------------------------------------------------------------------------


@each_answer
def test_frames(models, name, proba):
    model = models[name]
    found = list(predict_partitions(model, parts_of(X), proba=proba))
    for part, given in zip(found, parts_of(X), strict=True):
        pd.testing.assert_index_equal(part.index, given.index)
        assert part.dtypes.equals(found[0].dtypes)
    check({column: values.tolist() for column, values in pd.concat(found).items()}, model, proba)
    found = list(predict_partitions(model, parts_of(pl.from_pandas(X, nan_to_null=True)), proba=proba))
    assert [len(part) for part in found] == [50, 0, 80, 110]
    check(pl.concat(found).to_dict(as_series=False), model, proba)
    arrow = pa.Table.from_pandas(X)
    tables = [arrow.slice(start, end - start) for start, end in pairwise(CUTS)]
    found = list(predict_partitions(model, tables, proba=proba))
    check(pa.concat_tables(found).to_pydict(), model, proba)
    batches = [batch for table in tables for batch in table.to_batches()]
    check(pa.concat_tables(predict_partitions(model, batches, proba=proba)).to_pydict(), model, proba)


@each_answer
def test_a_dask_frame(models, name, proba):
    model = models[name]
    ids = {"ids": "id"} if name == "mixture" else {}
    frame = dd.from_pandas(X, npartitions=3)
    lazy = predict_partitions(model, frame, proba=proba, **ids)
    assert isinstance(lazy, dd.DataFrame)
    assert lazy.divisions == frame.divisions
    found = lazy.compute(scheduler="sync")
    pd.testing.assert_index_equal(found.index, X.index)
    assert found.dtypes.equals(lazy.dtypes)
    with_ids = {"ids": X["id"]} if name == "mixture" else {}
    check({column: values.tolist() for column, values in found.items()}, model, proba, **with_ids)
    again = pickle.loads(cloudpickle.dumps(lazy)).compute(scheduler="sync")  # as it travels to a cluster
    pd.testing.assert_frame_equal(again, found)
    assert float(lazy["cost"].mean().compute(scheduler="sync")) == pytest.approx(found["cost"].mean())


@each_model
def test_a_folder(models, name, tmp_path):
    model = models[name]
    for number, part in enumerate(parts_of(X.assign(target=0.0))):
        table = pa.Table.from_pandas(part.assign(city=pd.Categorical(part["city"])))
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=30)
    found = list(predict_partitions(model, tmp_path))
    assert [len(part) for part in found] == [30, 20, 30, 30, 20, 30, 30, 30, 20]
    check(pa.concat_tables(found).to_pydict(), model)
    assert found[0].schema == found[-1].schema
    path = str(tmp_path / "3.parquet")
    assert sum(len(part) for part in predict_partitions(model, path)) == 110


def test_arrays():
    numbers = np.random.default_rng(0).normal(size=(N, 4))
    model = CSTCClassifier(**SMALL).fit(numbers, np.where(numbers[:, 0] > 0, "yes", "no"))
    for make in (np.asarray, csr_matrix, np.ndarray.tolist):
        parts = [make(part) for part in parts_of(numbers) if len(part) or make is not np.ndarray.tolist]
        found = np.concatenate(list(predict_partitions(model, parts)))
        assert found["value"].tolist() == model.predict(numbers).tolist()
        assert found["cost"].tolist() == model.predict_cost(numbers).tolist()
    found = next(predict_partitions(model, [numbers], proba=True))
    assert found.dtype.names == ("no", "yes", "cost")
    np.testing.assert_array_equal(found["yes"], model.predict_proba(numbers)[:, 1])


def test_a_generator_of_frames_of_several_kinds(models):
    parts = [X[:50], pl.from_pandas(X[50:130], nan_to_null=True), pa.Table.from_pandas(X[130:])]
    found = list(predict_partitions(models["regressor"], (part for part in parts)))
    assert [type(part) for part in found] == [type(part) for part in parts]
    assert [value for part in found for value in list(part["cost"])][:50] == found[0]["cost"].tolist()
    assert sum(len(part) for part in found) == N


@pytest.mark.parametrize("name", ["regressor", "mixture"])
@pytest.mark.parametrize(
    "options", [{"budget": 2.0}, {"unavailable": ["city"]}, {"budget": 3.0, "unavailable": np.array(["number"])}]
)
def test_budgets_and_outages(models, name, options):
    free = models[name].predict_cost(PLAIN)
    values, costs = models[name].predict(PLAIN, return_cost=True, **options)
    assert free.tolist() != costs.tolist()
    found = pd.concat(predict_partitions(models[name], parts_of(X), **options))
    assert found["value"].tolist() == values.tolist()
    assert found["cost"].tolist() == costs.tolist()


def test_what_is_unavailable_may_be_a_generator(models):
    model = models["regressor"]
    found = pd.concat(predict_partitions(model, parts_of(X), unavailable=(name for name in ["city"])))
    assert found["cost"].tolist() == model.predict_cost(PLAIN, unavailable=["city"]).tolist()


def test_a_loaded_model(models, tmp_path):
    for name in ("tree", "mixture"):
        save(models[name], tmp_path / "model.cstc")
        found = pd.concat(predict_partitions(load(tmp_path / "model.cstc"), parts_of(X)))
        check({column: values.tolist() for column, values in found.items()}, models[name])


# -- mixtures ----------------------------------------------------------------------------------------------------------


def test_turns_go_on():
    everything = coins(3, None, 100)
    np.testing.assert_array_equal(coins(3, Turns(40), 60), everything[40:])
    np.testing.assert_array_equal(coins(3, Turns(2**40), 5), coins(3, Turns(2**40 - 5), 10)[5:])
    assert coins(3, Turns(1), 5).tolist() != everything[:5].tolist()


def test_ids_decide_in_a_mixture(models):
    mixture = models["mixture"]
    by_id = mixture.predict_cost(PLAIN, ids=X["id"])
    assert by_id.tolist() != mixture.predict_cost(PLAIN).tolist()
    for parts in (parts_of(X), parts_of(pl.from_pandas(X, nan_to_null=True)), [pa.Table.from_pandas(X)]):
        found = predict_partitions(mixture, parts, ids="id")
        assert [cost for part in found for cost in list(part["cost"].to_numpy())] == by_id.tolist()
    shuffled = X.sample(frac=1, random_state=0)
    found = next(predict_partitions(mixture, [shuffled], ids="id"))
    assert found["cost"][X.index].tolist() == by_id.tolist()


def test_a_dask_frame_does_not_know_the_numbers_of_rows(models):
    with error("the model is a Mixture, and a Dask DataFrame does not know the numbers of its rows; give ids"):
        predict_partitions(models["mixture"], dd.from_pandas(X, npartitions=2))


# -- hostile partitions ------------------------------------------------------------------------------------------------


def test_columns_in_other_orders_and_more_of_them(models):
    orders = [["noise", "city", "number"], ["city", "id", "number", "noise"], ["number", "noise", "city"]]
    cuts = [0, 50, 130, N]
    for name in ("text", "mixture"):
        parts = [X[order][start:end] for order, start, end in zip(orders, cuts[:-1], cuts[1:], strict=True)]
        found = pd.concat(predict_partitions(models[name], parts))
        check({column: values.tolist() for column, values in found.items()}, models[name])
    found = predict_partitions(models["text"], dd.from_pandas(X[orders[0]], npartitions=2)).compute(scheduler="sync")
    check({column: values.tolist() for column, values in found.items()}, models["text"])


def test_rows_that_are_referred_to_a_person_have_no_value(models):
    expected = models["referring"].predict(PLAIN).tolist()
    assert {*expected} == {0, 1, None}
    found = next(predict_partitions(models["referring"], [pl.from_pandas(X, nan_to_null=True)]))
    assert found["value"].dtype == pl.Int64
    assert found["value"].to_list() == expected
    assert next(predict_partitions(models["referring"], [X]))["value"].dtype == object


def test_columns_that_are_numbers():
    numbers = np.random.default_rng(0).normal(size=(N, 3))
    table = pd.DataFrame(numbers, columns=[7, 3, 5])
    model = CSTCRegressor(**SMALL).fit(table, numbers[:, 0])
    found = pd.concat(predict_partitions(model, [table[:100][[5, 3, 7]], table[100:]]))
    assert found["value"].tolist() == model.predict(table).tolist()
    with error("partition 1: X has no column 5; the model has 7, 3, 5"):
        list(predict_partitions(model, [table, table[[7, 3]]]))


def test_categories_that_training_did_not_see(models):
    strange = make_table(cities=[*CITIES, "Chur"])
    model = models["regressor"]
    with pytest.warns(UnseenValueWarning, match="city holds a category that training did not see"):
        expected = model.predict(strange.drop(columns="id")).tolist()
    for parts in (parts_of(strange), parts_of(strange.assign(city=strange["city"].astype("category")))):
        with pytest.warns(UnseenValueWarning, match="city holds a category that training did not see"):
            found = pd.concat(predict_partitions(model, parts))
        assert found["value"].tolist() == expected
    with pytest.warns(UnseenValueWarning, match="city holds a category that training did not see"):
        found = predict_partitions(model, dd.from_pandas(strange, npartitions=3)).compute(scheduler="sync")
    assert found["value"].tolist() == expected


def test_partitions_of_other_types(models):
    """Whole numbers in one partition, floats with gaps and single precision in others."""
    table = make_table()
    table["noise"] = table["noise"].astype(float)
    table.loc[table.index[60:], "number"] = table["number"].iloc[60:].astype("float32").astype(float)
    parts = [table[:60].astype({"noise": "int8"}), table[60:130].astype({"number": "float32"}), table[130:]]
    found = pd.concat(predict_partitions(models["regressor"], parts))
    rows = table.drop(columns="id")
    check({column: values.tolist() for column, values in found.items()}, models["regressor"], rows=rows)


def test_an_index_with_repetitions(models):
    table = X.set_axis(np.zeros(N, dtype=int), axis=0)
    found = next(predict_partitions(models["text"], [table]))
    check({column: values.tolist() for column, values in found.items()}, models["text"])
    assert found.index.tolist() == [0] * N


def test_no_partitions_and_no_rows(models, tmp_path):
    assert list(predict_partitions(models["text"], [])) == []
    found = list(predict_partitions(models["referring"], [X[:0], pl.from_pandas(X[:0]), pa.Table.from_pandas(X[:0])]))
    assert [len(part) for part in found] == [0, 0, 0]
    assert found[1].schema == {"value": pl.Int64, "cost": pl.Float64}


# -- one partition at a time -------------------------------------------------------------------------------------------


def test_memory_holds_one_partition(models):
    seen = []

    class Source:
        """Gives frames and keeps none; when it is asked for the next one, the last one must be gone."""

        def __iter__(self):
            return self

        def __next__(self):
            gc.collect()
            assert not [one for one in seen if one() is not None]
            if len(seen) == 4:
                raise StopIteration
            part = X.copy()
            seen.append(weakref.ref(part))
            return part

    costs = [part["cost"].sum() for part in predict_partitions(models["regressor"], Source())]
    assert len(costs) == len(seen) == 4


def test_nothing_is_read_before_it_is_asked_for(models):
    def parts():
        yield X
        raise AssertionError("the second one was read")

    found = predict_partitions(models["regressor"], parts())
    assert len(next(found)) == N


def test_large_row_groups_are_read_in_pieces(tmp_path, monkeypatch):
    """One row group of a million rows: what is held is a piece of it, by pyarrow and by numpy."""
    monkeypatch.setattr(cstc.partitions, "CELLS", 3 * 5000)
    rng = np.random.default_rng(0)
    table = pa.table({name: rng.normal(size=1_000_000) for name in ("x0", "x1", "x2")})
    pq.write_table(table, tmp_path / "1.parquet", row_group_size=len(table))
    size, some = table.nbytes, np.column_stack([table[name][:300] for name in table.column_names])
    model = CSTCRegressor(**SMALL | {"n_weak_learners": 3}).fit(some, some[:, 0])
    del table
    gc.collect()
    before, most, n_found = pa.total_allocated_bytes(), 0, 0
    tracemalloc.start()
    for part in predict_partitions(model, tmp_path):
        most, n_found = max(most, pa.total_allocated_bytes() - before), n_found + len(part)
        assert len(part) <= 5000
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n_found == 1_000_000
    assert most < size / 3
    assert held < size / 3


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_models_that_cannot_answer():
    with pytest.raises(NotFittedError):
        predict_partitions(CSTCRegressor(), [X])
    for model in (Frontier(CSTCRegressor()), "model.cstc", None):
        with error(f"model is a {type(model).__name__}; give a fitted estimator of cstc, or what cstc.load", TypeError):
            predict_partitions(model, [X])


def test_options_are_checked_before_rows_are_read(models):
    """Not only when the first partition is asked for."""
    with error("predict_proba needs a classifier"):
        predict_partitions(models["regressor"], [X], proba=True)
    with error("proba is 'yes'; it must be True or False"):
        predict_partitions(models["text"], [X], proba="yes")
    with error("budget"):
        predict_partitions(models["text"], [X], budget=-1)
    with error("'moon'"):
        predict_partitions(models["text"], [X], unavailable=["moon"])
    with error("give the name of the column that has them: ids='row'"):
        predict_partitions(models["mixture"], [X], ids=["a", "b"])


def test_a_class_that_is_called_cost():
    model = classifier(np.where(VALUE > 0.5, "cost", "gain"))
    with error("a class is called 'cost', like the column of costs"):
        predict_partitions(model, [X], proba=True)
    assert next(predict_partitions(model, [X]))["value"].tolist() == model.predict(PLAIN).tolist()


def test_partitions_that_are_one_frame_or_nothing_of_the_kind(models):
    for one in (X, pl.from_pandas(X), pa.Table.from_pandas(X), np.ones((3, 3)), {"a": X}, 7, csr_matrix((2, 3))):
        message = f"partitions is a {type(one).__name__}; give a Dask DataFrame, the path of a folder of Parquet files"
        with error(message, TypeError):
            predict_partitions(models["text"], one)
    with error("X is a LazyFrame, which holds no rows yet; give X.collect()", TypeError):
        predict_partitions(models["text"], pl.LazyFrame({"a": [1]}))
    for part in ("a.parquet", None, {"number": [1.0]}):
        with error("partition 1: it is ", TypeError):
            list(predict_partitions(models["text"], [X, part]))
    with error("partition 0: X is a Dask DataFrame, which holds no rows yet", TypeError):
        list(predict_partitions(models["text"], [dd.from_pandas(X, npartitions=1)]))


def test_columns_that_are_missing(models, tmp_path):
    found = predict_partitions(models["text"], [X, X.drop(columns="city"), X])
    assert len(next(found)) == N
    with error("partition 1: X has no column 'city'; the model has 'number', 'city', 'noise'"):
        next(found)
    with error("X has no column 'city'"):
        predict_partitions(models["text"], dd.from_pandas(X.drop(columns="city"), npartitions=2))
    X.drop(columns="city").to_parquet(tmp_path / "1.parquet")
    with error(f"the folder {str(tmp_path)!r} has no column 'city'; it has 'number', 'id', 'noise'"):
        predict_partitions(models["text"], tmp_path)
    with error("there is no folder and no file 'nowhere'", FileNotFoundError):
        predict_partitions(models["text"], "nowhere")
    with error("partition 2: ids is 'name', which is no column of it: 'number', 'id', 'city', 'noise'"):
        list(predict_partitions(models["mixture"], [X.assign(name="a"), X.assign(name="b"), X], ids="name"))
    with error("partition 0: ids is 'id', and an array has no names of columns; give frames, or leave it out"):
        list(predict_partitions(models["mixture"], [np.ones((3, 3))], ids="id"))
    with error("partition 0: ids has None for row 0; each row needs a text or a number of its own"):
        list(predict_partitions(models["mixture"], [pl.from_pandas(X).with_columns(id=None)], ids="id"))


def test_a_bad_value_in_a_partition_of_dask(models):
    table = X.copy()
    table.iloc[200, 0] = np.inf
    lazy = predict_partitions(models["text"], dd.from_pandas(table, npartitions=3))
    with error("partition 2: X holds an infinite value"):
        lazy.compute(scheduler="sync")
