"""The log: failing sources with the row's key or number, and nothing of what is in a row."""

import asyncio
import logging
import uuid

import numpy as np
import pytest

import cstc
from cstc.serving import OnDemandPredictor, extractor
from serving.worlds import NAMES, random_world


@pytest.fixture(scope="module")
def model():
    return random_world(np.random.default_rng(4), "regression", 5, missing=False).model


def failing(result, **options):
    @extractor(provides=NAMES, name="lab", **options)
    def fetch(row):
        if isinstance(result, Exception):
            raise result
        return result

    return fetch


def logged(model, source, caplog, *rows, many=False):
    with OnDemandPredictor(model, [source]) as predictor:
        answers = predictor.predict_many(rows) if many else [predictor.predict(row) for row in rows]
    assert all(answer.status == "failed" for answer in answers)
    assert {record.name for record in caplog.records} == {"cstc.serving"}
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    return caplog.messages


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (17, "17"),
        (np.int64(17), "17"),
        ("patient 17", "'patient 17'"),
        ("two\nlines", r"'two\nlines'"),
        ("x" * 200, "'" + "x" * 76 + "..."),
        (("north", 3), "('north', 3)"),
        (uuid.UUID(int=5), "UUID('00000000-0000-0000-0000-000000000005')"),
        ({"income": 81_000}, "given as dict"),
        ([81_000.0], "given as list"),
        (("north", {"income": 81_000}), "given as tuple"),
        (81_000.5, "given as float"),
        (None, "given as NoneType"),
    ],
)
def test_a_row_is_named_by_its_key(model, caplog, row, name):
    text = f"source lab raised an exception (ConnectionError) for row {name}"
    assert logged(model, failing(ConnectionError("of John Doe")), caplog, row) == [text]


def test_a_row_without_a_key_is_named_by_its_number(model, caplog):
    rows = [{"income": 81_000 + k} for k in range(12)]
    messages = logged(model, failing(OSError("income 81000"), instant=True), caplog, *rows, many=True)
    assert messages == [f"source lab raised an exception (OSError) for row number {k}" for k in range(12)]


def test_a_batch_is_one_line(model, caplog):
    @extractor(provides=NAMES, name="lab", batch=True, instant=True)
    def fetch(rows):
        raise OSError("income 81000")

    messages = logged(model, fetch, caplog, *range(100, 130), many=True)
    assert messages == [
        "source lab raised an exception (OSError) for 30 rows: 100, 101, 102, 103, 104, 105, 106, 107, 108, 109 "
        "and 20 more"
    ]


def test_values_that_cannot_be_used_are_not_quoted(model, caplog):
    with pytest.warns(cstc.UnseenValueWarning, match="x5 holds a category that training did not see") as warned:
        messages = logged(model, failing(dict.fromkeys(NAMES, "John Doe"), retries=1), caplog, 3)
    assert not any("Doe" in str(warning.message) for warning in warned)
    assert messages == [
        "source lab returned what cannot be used for row 3; it is called again",
        "source lab returned what cannot be used for row 3",
    ]


@pytest.mark.parametrize("instant", [False, True])
def test_what_is_no_mapping_is_logged(model, caplog, instant):
    messages = logged(model, failing({}, instant=instant), caplog, 3)
    assert messages == ["source lab returned what cannot be used for row 3"]


def test_a_source_that_is_late(model, caplog):
    @extractor(provides=NAMES, name="lab", timeout=0.05)
    async def fetch(row):
        await asyncio.sleep(5)

    messages = logged(model, fetch, caplog, 3)
    assert messages == ["source lab did not answer in time (TimeoutError) for row 3"]


def test_deadlines_budgets_and_answers_are_not_logged(model, caplog):
    @extractor(provides=NAMES, name="lab")
    async def fetch(row):
        await asyncio.sleep(0.05)
        return [0.0] * 5 + ["kind 1"]

    with OnDemandPredictor(model, [fetch]) as predictor:
        assert predictor.predict(3, deadline=0.01).status == "deadline"
        assert predictor.predict(3).status == "complete"
        predictor.predict(3, budget=0.0)
    assert caplog.messages == []
