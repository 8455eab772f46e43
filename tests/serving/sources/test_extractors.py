"""Declaring sources, binding them to a model, and what a call charges."""

import asyncio
import functools
import sqlite3
from collections import namedtuple
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest

from cstc.costs import CostModel
from cstc.model import FittedTree
from cstc.serving import OnDemandPredictor, Session, extractor
from cstc.serving.compiled import Fault
from cstc.serving.sources.extractors import Source
from serving.worlds import NAMES, items_of, linear_model, random_world

THYROID = CostModel({"TT4": 14.0, "T4U": 11.0, "FTI": 1.0}, {"FTI": ["TT4", "T4U"]})


# ------------------------------------------------------------------------------------- declarations


def test_an_extractor_is_still_a_function():
    @extractor(provides=["a", "b"], timeout=2)
    def lab(row):
        """Fetch."""
        return row + 1

    assert lab(2) == 3
    assert (lab.name, lab.provides, lab.needs, lab.items, lab.__doc__) == ("lab", ("a", "b"), (), None, "Fetch.")
    assert repr(lab) == "<extractor lab: a, b>"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(provides="age"), r"lab: provides is the text 'age'; give a list of names: \['age'\]"),
        (dict(provides=[]), "lab: provides is empty"),
        (dict(provides=["a", "a"]), "lab: provides names a feature twice"),
        (dict(provides=["a"], timeout=0), "lab: timeout is 0; it must be seconds above 0, or None"),
        (dict(provides=["a"], timeout=float("inf")), "lab: timeout is inf"),
        (dict(provides=["a"], timeout="2"), "lab: timeout is '2'; it must be seconds above 0, or None"),
        (dict(provides=["a"], timeout=True), "lab: timeout is True"),
        (dict(provides=["a"], retries=-1), "lab: retries is -1; it must be a whole number, 0 or more"),
        (dict(provides=["a"], retries=True), "lab: retries is True"),
        (dict(provides=["a"], batch=-2), "lab: batch is -2"),
        (dict(provides=["a"], batch="all"), "lab: batch is 'all'"),
        (
            dict(provides=["a"], instant=True, timeout=1),
            "lab: instant=True calls a function in the caller's own thread",
        ),
        (dict(provides=["a"], needs=["b"]), "lab: needs names 'b', but the function has no second parameter `inputs`"),
        (dict(provides=["a"], needs=["a"]), "lab: 'a' is both provided and needed"),
    ],
)
def test_wrong_declarations(options, message):
    def lab(row): ...

    with pytest.raises(ValueError, match=message):
        extractor(**options)(lab)


def test_inputs_need_names():
    with pytest.raises(ValueError, match="takes `inputs`, but needs is empty"):
        extractor(provides=["a"])(lambda row, inputs: 1)
    with pytest.raises(TypeError, match="made from a function; this is a int"):
        extractor(provides=["a"])(3)


def test_async_functions_are_recognised():
    async def fetch(row, client): ...

    class Client:
        async def __call__(self, row): ...

    assert extractor(provides=["a"])(functools.partial(fetch, client=3)).is_async
    assert extractor(provides=["a"])(Client()).is_async
    assert not extractor(provides=["a"])(lambda row: 1).is_async


# ---------------------------------------------------------------------------------------- binding


def test_extractors_together_must_provide_what_the_model_needs():
    world = random_world(np.random.default_rng(0), "regression", 1)
    fetch = extractor(provides=NAMES[:3], name="some")(lambda row: row)
    with pytest.raises(ValueError, match=r"no extractor provides 'x3', 'x4'.*name in given= what every call brings"):
        OnDemandPredictor(world.model, [fetch])
    with OnDemandPredictor(world.model, [fetch], given=NAMES[3:]) as predictor:
        told = world.rows[0]
        answer = predictor.predict(told, known={name: told[name] for name in NAMES[3:]})
        assert answer.complete
        # whoever does not bring it along gets an answer all the same
        assert predictor.predict(told).status == "unavailable"


@pytest.mark.parametrize(
    ("sources", "error", "message"),
    [
        ([lambda row: row], TypeError, "is no extractor; declare it with @extractor"),
        ([extractor(provides=["x9"], name="lab")(print)], ValueError, "extractor lab: unknown feature 'x9'"),
        (
            [extractor(provides=["x0"], name=name)(print) for name in ("one", "two")],
            ValueError,
            "'x0' is provided by two extractors, one and two",
        ),
        (
            [extractor(provides=[name], name="one")(print) for name in NAMES[:2]],
            ValueError,
            "two extractors are called 'one'",
        ),
        (
            [extractor(provides=NAMES, items=["blood"], name="one")(print)],
            ValueError,
            "extractor one: unknown item 'blood'",
        ),
        (extractor(provides=NAMES, name="one")(print), TypeError, r"give a list: \[one\]"),
    ],
)
def test_sources_that_do_not_fit_the_model(sources, error, message):
    world = random_world(np.random.default_rng(0), "regression", 1)
    with pytest.raises(error, match=message):
        OnDemandPredictor(world.model, sources)


def test_wrong_options_of_a_predictor():
    world = random_world(np.random.default_rng(0), "regression", 1)
    fetch = extractor(provides=NAMES)(lambda row: row)
    with pytest.raises(ValueError, match="prefetch is 'all'"):
        OnDemandPredictor(world.model, [fetch], prefetch="all")
    with pytest.raises(ValueError, match="max_threads is 0"):
        OnDemandPredictor(world.model, [fetch], max_threads=0)
    with pytest.raises(ValueError, match="given is the text 'x0'"):
        OnDemandPredictor(world.model, [fetch], given="x0")
    with pytest.raises(ValueError, match="given= names an unknown feature 'y'"):
        OnDemandPredictor(world.model, [fetch], given=["y"])
    for idle in (0, -1, float("nan"), float("inf"), "5", True, None):
        with pytest.raises(ValueError, match=r"idle is .*; it must be a number of seconds above 0"):
            OnDemandPredictor(world.model, [fetch], idle=idle)


# ------------------------------------------------------------------------------------------ results


def source(*provides, **options):
    function = options.pop("function", print)
    names = {name: j for j, name in enumerate(provides)}
    return Source(extractor(provides=provides, **options)(function), names.__getitem__)


@pytest.mark.parametrize(
    ("result", "got"),
    [
        ({"a": 1, "b": 2, "c": 3}, {0: 1, 1: 2}),
        ({"a": 1}, {0: 1}),
        ([1, 2], {0: 1, 1: 2}),
        ((1, 2), {0: 1, 1: 2}),
        (np.array([1.0, 2.0]), {0: 1.0, 1: 2.0}),
    ],
)
def test_forms_of_a_result(result, got):
    assert source("a", "b").unpack(result, (0,)) == got


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"b": 2}, "returned no 'a'"),
        ([1], "returned 1 values; 2 are expected"),
        ([1, 2, 3], "returned 3 values; 2 are expected"),
        (1.0, "returned a float; 2 values are expected"),
        ("text", "returned a str; 2 values are expected"),
        (None, "returned a NoneType; 2 values are expected"),
        (KeyError("a"), "KeyError: 'a'"),
        (np.ones((2, 2)), "returned a ndarray; 2 values are expected"),
    ],
)
def test_wrong_results(result, message):
    with pytest.raises(Fault, match=message):
        source("a", "b").unpack(result, (0,))


Named = namedtuple("Named", "b a")
Unnamed = namedtuple("Unnamed", "first second")


class Lazy(Mapping):
    """A row that says what it has and cannot fetch it."""

    def __getitem__(self, name):
        raise ConnectionError("the line is dead")

    def __iter__(self):
        return iter("ab")

    def __len__(self):
        return 2


def database_row(query):
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    try:
        return connection.execute(query).fetchone()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("result", "got"),
    [
        (Named(2.0, 1.0), {0: 1.0, 1: 2.0}),
        (Unnamed(1.0, 2.0), {0: 1.0, 1: 2.0}),
        (pd.Series({"b": 2.0, "z": 3.0, "a": 1.0}), {0: 1.0, 1: 2.0}),
        (pd.Series({"a": 1.0}), {0: 1.0}),
        (database_row("select 2.0 as b, 1.0 as a"), {0: 1.0, 1: 2.0}),
    ],
)
def test_results_that_name_their_values_are_read_by_name(result, got):
    assert source("a", "b").unpack(result, (0,)) == got


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (Named(2.0, 1.0)._replace(a=0)[:1], "returned 1 values; 2 are expected"),
        (namedtuple("Half", "b")(2.0), "returned no 'a'"),
        (pd.Series([1.0, 2.0]), "returned a Series; 2 values are expected"),
        (pd.DataFrame({"a": [1.0], "b": [2.0]}), "returned a DataFrame for one row; return a mapping"),
        (Lazy(), "ConnectionError: the line is dead"),
        (list, "returned a type; 2 values are expected"),
    ],
)
def test_results_that_cannot_be_read_are_faults(result, message):
    with pytest.raises(Fault, match=message):
        source("a", "b").unpack(result, (0,))


def test_a_coroutine_that_was_not_declared():
    async def fetch(row): ...

    with pytest.raises(Fault, match="returned a coroutine; declare the function with async def"):
        source("a").unpack(fetch(1), (0,))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([1], "returned 1 results; 2 rows were asked for"),
        ({"a": [1, 2, 3]}, "returned 'a' without one value for each of 2 rows"),
        ({"a": "xy"}, "returned 'a' without one value for each of 2 rows"),
        ("xy", "returned a str; one result for each of 2 rows is expected"),
        (7, "returned a int; one result for each of 2 rows is expected"),
        ({"a": {0: 1.0, 1: 2.0}}, "returned 'a' as a dict; a list with one value for each row is expected"),
        ({"a": {1.0, 2.0}}, "returned 'a' as a set"),
        ({"a": np.array(3.0)}, "returned 'a' without one value for each of 2 rows"),
        (np.array(3.0), "returned a ndarray; one result for each of 2 rows is expected"),
        (list, "returned a type; one result for each of 2 rows is expected"),
        ({1.0, 2.0}, "returned a set; one result for each of 2 rows is expected"),
        (pd.DataFrame({"a": [1.0]}), "returned 'a' without one value for each of 2 rows"),
        (pd.DataFrame([[1.0, 2.0]] * 2, columns=["a", "a"]), "returned 'a' as a DataFrame"),
        (Lazy(), "ConnectionError: the line is dead"),
    ],
)
def test_wrong_results_of_a_batch(result, message):
    with pytest.raises(Fault, match=message):
        source("a", batch=True).rows_of(result, 2)


def test_a_table_as_the_result_of_a_batch():
    rows = source("a", "b", batch=True).rows_of(np.array([[1.0, 2.0], [3.0, 4.0]]), 2)
    assert [row.tolist() for row in rows] == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"z": [0.0, 0.0], "b": [2.0, 4.0], "a": [1.0, 3.0]}, index=[7, 3]),
        pl.DataFrame({"b": [2.0, 4.0], "a": [1.0, 3.0]}),
        Named([2.0, 4.0], [1.0, 3.0]),
        {"a": pd.Series([1.0, 3.0], index=[1, 0]), "b": (2.0, 4.0)},
    ],
    ids=lambda table: type(table).__module__,
)
def test_a_batch_may_return_columns(table):
    lab = source("a", "b", batch=True)
    assert [lab.unpack(row, (0, 1)) for row in lab.rows_of(table, 2)] == [{0: 1.0, 1: 2.0}, {0: 3.0, 1: 4.0}]


def test_a_table_without_the_columns_that_were_asked_for():
    lab = source("a", "b", batch=True)
    rows = lab.rows_of(pd.DataFrame([[1.0, 2.0], [3.0, 4.0]]), 2)
    with pytest.raises(Fault, match="returned no 'a', 'b'"):
        lab.unpack(rows[0], (0, 1))


def test_the_results_of_a_batch_go_by_position_and_not_by_label():
    rows = source("a", batch=True).rows_of(pd.Series([1.0, 2.0], index=[1, 0]), 2)
    assert rows == [1.0, 2.0]


@pytest.mark.parametrize("on_loop", [False, True])
@pytest.mark.parametrize("options", [{}, {"timeout": 5.0}, {"instant": True}])
def test_whatever_a_source_returns_an_answer_comes(options, on_loop):
    """Also where reading the result raises, in one row and in a batch."""

    class Unreadable:
        """A number whose every look at it fails."""

        @property
        def ndim(self):
            raise RuntimeError("no look")

    costs = CostModel({"a": 1.0, "b": 2.0})
    for batch, result in [(False, Lazy()), (False, [Unreadable(), 1.0]), (True, Lazy()), (True, np.array(3.0))]:
        bad = extractor(provides=["a", "b"], name="bad", batch=batch, **options)(lambda row, result=result: result)
        with OnDemandPredictor(linear_model(costs, ["a", "b"]), [bad]) as predictor:
            answer = asyncio.run(predictor.apredict(0)) if on_loop else predictor.predict(0)
            assert (answer.status, answer.cost) == ("failed", 3.0)
            assert answer.reason.startswith("bad: ")
            assert [each.status for each in predictor.predict_many([0, 1])] == ["failed"] * 2


# ------------------------------------------------------------------------------- what a call charges


def test_a_feature_computed_from_others():
    calls = []

    @extractor(provides=["TT4", "T4U"])
    def lab(row):
        calls.append("lab")
        return {"TT4": 10.0, "T4U": 4.0}

    @extractor(provides=["FTI"], needs=["TT4", "T4U"])
    def index(row, inputs):
        calls.append("index")
        return inputs["TT4"] / inputs["T4U"]

    model = linear_model(THYROID, ["FTI", "TT4", "T4U"])
    with OnDemandPredictor(model, [lab, index]) as predictor:
        answer = predictor.predict(1)
        assert (answer.value, answer.cost, calls) == (16.5, 26.0, ["lab", "index"])
        # inputs at hand are not fetched, so they bring in no items; others do
        assert predictor.predict(1, known={"TT4": 10.0, "T4U": 5.0}).cost == 1.0
        assert predictor.predict(1, known={"TT4": 10.0}).cost == 12.0
        assert predictor.predict_many([1], known=[{"TT4": 10.0, "T4U": 5.0}])[0].cost == 1.0
        assert predictor.predict(1, known={"TT4": 10.0, "T4U": 5.0}, budget=1).complete
        assert asyncio.run(predictor.apredict(1)).value == 16.5
        assert [a.value for a in predictor.predict_many([1, 2])] == [16.5, 16.5]
        assert predictor.predict(1, budget=25.9).cost == 0.0


def test_inputs_that_no_learner_looks_at_are_fetched_and_paid_as_the_cost_model_says():
    lab = extractor(provides=["TT4", "T4U"], name="lab")(lambda row: (10.0, 4.0))
    index = extractor(provides=["FTI"], needs=["TT4", "T4U"], name="index")(lambda row, inputs: inputs["TT4"])
    model = linear_model(THYROID, ["FTI", "TT4", "T4U"])
    only = FittedTree(**{**model.__dict__, "predict_weights": np.array([1.0, 0.0, 0.0])[:, None, None]})
    with OnDemandPredictor(only, [lab, index]) as predictor:
        answer = predictor.predict(1)
        assert (answer.value, answer.cost) == (10.0, only.predict_cost(np.ones((1, 3)))[0])
        with pytest.raises(ValueError, match="no extractor provides 'TT4', 'T4U'"):
            OnDemandPredictor(only, [index])


def test_inputs_at_hand_bring_in_no_items_but_those_of_the_call_stay():
    costs = CostModel(
        {"draw": 5.0, "a": 1.0, "b": 2.0, "call": 10.0},
        {"a": ["draw"], "b": ["draw"], "ratio": ["a", "b", "call"], "double": ["ratio"]},
    )
    names = ["a", "b", "ratio", "double"]
    model = linear_model(costs, names)
    weights = np.array([0.0, 0.0, 0.0, 1.0])[:, None, None]
    model = FittedTree(**{**model.__dict__, "predict_weights": weights})
    lab = extractor(provides=["a", "b"], name="lab")(lambda row, features: [3.0] * len(features))
    double = extractor(provides=["double"], needs=["ratio"], name="double")(lambda row, inputs: 2 * inputs["ratio"])
    for items, extra in ((None, 0.0), (["draw"], 5.0)):
        ratio = extractor(provides=["ratio"], needs=["a", "b"], items=items, name="ratio")(
            lambda row, inputs: inputs["a"] / inputs["b"]
        )
        with OnDemandPredictor(model, [lab, ratio, double]) as predictor:
            assert predictor.predict(0).cost == 18.0
            assert predictor.predict(0, known={"a": 1.0}).cost == 17.0  # b still needs the draw
            assert predictor.predict(0, known={"a": 1.0, "b": 2.0}).cost == 10.0 + extra
            assert predictor.predict(0, known={"ratio": 1.0}).cost == 0.0
            assert predictor.predict(0, known={"a": 1.0, "b": 2.0}, paid=["call", "draw"]).cost == 0.0
            assert predictor.session(known={"a": 1.0, "b": 2.0}).wanted_items().get("a") is None


def test_what_is_computed_from_a_lost_input_is_not_fetched():
    @extractor(provides=["a"])
    def broken(row):
        raise OSError("gone")

    called = []
    costs = CostModel({"a": 1.0, "b": 2.0, "c": 4.0, "d": 8.0}, {"c": ["a"], "d": ["b"]})
    model = linear_model(costs, ["a", "b", "c", "d"])
    weights = np.array([0.0, 0.0, 1.0, 1.0])[:, None, None]
    model = FittedTree(**{**model.__dict__, "predict_weights": weights})
    sources = [
        broken,
        extractor(provides=["b"], name="good")(lambda row: 1.0),
        extractor(provides=["c"], needs=["a"], name="of a")(lambda row, inputs: called.append("c") or 1.0),
        extractor(provides=["d"], needs=["b"], name="of b")(lambda row, inputs: called.append("d") or 1.0),
    ]
    with OnDemandPredictor(model, sources) as predictor:
        answer = predictor.predict(0)
        assert (answer.status, answer.cost, answer.value, called) == ("failed", 11.0, 1.0, ["d"])
        assert answer.basis == "1 of 2 features: c failed"
        called.clear()
        down = predictor.predict(0, unavailable=["a"])  # nothing of what needs it is called or paid
        assert (down.status, down.cost, down.value, called) == ("unavailable", 10.0, 1.0, ["d"])
        assert down.reason == "a, c unavailable"
    costs = CostModel({"draw": 1.0, "b": 2.0, "c": 4.0, "d": 8.0}, {"a": ["draw"], "c": ["draw"], "d": ["b"]})
    model = replace(model, costs=costs.resolve(["a", "b", "c", "d"]))
    with OnDemandPredictor(model, sources) as predictor:
        for serve in (predictor.predict, lambda row, **how: predictor.predict_many([row], **how)[0]):
            called.clear()
            down = serve(0, unavailable=["a"])  # the draw is not down, and would be paid for nothing
            assert (down.status, down.cost, down.value, called) == ("unavailable", 10.0, 1.0, ["d"])
            assert down.reason == "c is computed from a, unavailable"
        called.clear()
        assert predictor.predict(0, unavailable=["a"], known={"a": 1.0}).complete  # what is known cannot be down
        assert called == ["c", "d"]


def test_an_input_that_fails_loses_what_is_computed_from_it():
    @extractor(provides=["TT4"])
    def broken(row):
        raise OSError("gone")

    ratio = extractor(provides=["T4U"], name="ratio")(lambda row: 2.0)
    index = extractor(provides=["FTI"], needs=["TT4"], name="index")(lambda row, inputs: 1.0)
    with OnDemandPredictor(linear_model(THYROID, ["FTI", "TT4", "T4U"]), [broken, ratio, index]) as predictor:
        answer = predictor.predict(1)
        assert (answer.status, answer.cost) == ("failed", 25.0)  # FTI itself was never asked for
        assert "OSError: gone" in answer.reason
        assert "index" not in predictor.counters.as_dict()["sources"]


def test_the_cost_model_must_know_what_a_feature_is_computed_from():
    costs = CostModel({"TT4": 14.0, "T4U": 11.0, "FTI": 1.0})
    lab = extractor(provides=["TT4", "T4U"], name="lab")(lambda row: (10.0, 4.0))
    index = extractor(provides=["FTI"], needs=["TT4"], name="index")(lambda row, inputs: 1.0)
    with pytest.raises(
        ValueError, match="'FTI' is computed from 'TT4', which requires 'TT4', but the cost model does not"
    ):
        OnDemandPredictor(linear_model(costs, ["FTI", "TT4", "T4U"]), [lab, index])


def test_needs_in_a_circle():
    costs = CostModel({"all": 1.0}, {"a": ["all"], "b": ["all"]})
    one = extractor(provides=["a"], needs=["b"], name="one")(lambda row, inputs: 1.0)
    two = extractor(provides=["b"], needs=["a"], name="two")(lambda row, inputs: 1.0)
    with pytest.raises(ValueError, match="needs goes in a circle: a -> b -> a"):
        OnDemandPredictor(linear_model(costs, ["a", "b"]), [one, two])


def test_items_of_a_call_are_bought_whatever_was_asked_for():
    costs = CostModel({"a": 1.0, "b": 2.0, "call": 10.0}, {"b": ["call"]})
    bundle = extractor(provides=["a", "b"], items=["call", "b"], name="bundle")(lambda row: (1.0, 2.0))
    single = extractor(provides=["a", "b"], name="single")(lambda row: (1.0, 2.0))
    model = linear_model(costs, ["a", "b"])
    only_a = FittedTree(**{**model.__dict__, "predict_weights": np.array([1.0, 0.0])[:, None, None]})
    with OnDemandPredictor(only_a, [single]) as predictor:
        assert predictor.predict(1).cost == 1.0
    with OnDemandPredictor(only_a, [bundle]) as predictor:
        assert predictor.predict(1).cost == 13.0
        assert predictor.predict(1, budget=12.9).cost == 0.0
        assert predictor.predict(1, paid=["call"]).cost == 3.0


def test_a_source_that_kept_something_back_is_not_called_again():
    rng = np.random.default_rng(1)
    held_back = 0
    for _ in range(60):
        world = random_world(rng, "regression", 3)
        calls, first = [], Session(world.model).wanted()

        @extractor(provides=NAMES)
        def stingy(i, world=world, calls=calls, first=first):
            calls.append(i)
            return {name: world.rows[i][name] for name in first}

        with OnDemandPredictor(world.model, [stingy]) as predictor:
            for i in range(3):
                answer = predictor.predict(i)
                if answer.status == "failed":
                    held_back += 1
                    assert "stingy: was called before and gave no x" in answer.reason
                    assert set(answer.items) <= items_of(world.model, first)  # nothing of what did not come
            assert len(set(calls)) == len(calls)
    assert held_back > 10


def test_a_source_that_is_told_what_is_wanted():
    asked = []

    @extractor(provides=["a", "b", "c"])
    def lab(row, features):
        asked.append(features)
        return [1.0] * len(features)

    costs = CostModel({"a": 1.0, "b": 2.0, "c": 4.0})
    with OnDemandPredictor(linear_model(costs, ["a", "b", "c"]), [lab]) as predictor:
        assert predictor.predict(1, known={"b": 5.0}).cost == 5.0
    assert asked == [["a", "c"]]
