"""Values of a kind that training did not see: one rule for tables, matrices, sessions, predictors and HTTP."""

import asyncio
import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_matrix
from starlette.testclient import TestClient

import cstc
from cstc import CSTCClassifier, CSTCRegressor, Exact, UnseenValueWarning
from cstc.serving import OnDemandPredictor, Session, SourceFailed, extractor
from cstc.serving.http import create_app

NAMES = ["size", "age", "town", "member"]
MISSING = "age is missing, and training saw no missing values in it"
UNKNOWN = "town holds a category that training did not see"
#: What each row lacks, and what is said of it.
STRANGE = {"missing": ({"age": None}, MISSING), "unknown": ({"town": "Rome"}, UNKNOWN)}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"size": rng.normal(size=300), "age": rng.normal(size=300)})
    X["town"] = rng.choice(["Bonn", "Ulm"], 300)
    X["member"] = rng.random(300) < 0.5
    X.loc[::9, "size"] = np.nan
    return X


@pytest.fixture(scope="module")
def estimator(table):
    y = table["size"].fillna(0) + (table["age"] > 0) * (table["town"] == "Ulm") + table["member"]
    return CSTCRegressor(costs=[1, 2, 3, 4], cost_weight=1e-4, n_weak_learners=20, random_state=0).fit(table, y)


@pytest.fixture(scope="module")
def loaded(estimator, tmp_path_factory):
    path = tmp_path_factory.mktemp("unseen") / "model.cstc"
    estimator.save(path)
    return cstc.load(path)


def row_of(table, changes=()):
    row = table.iloc[1].to_dict()
    return {**row, "member": bool(row["member"]), **dict(changes)}


def frame_of(table, changes, n=5):
    """Some rows of which two have the change."""
    rows = table.iloc[1 : n + 1].astype({"town": object}).copy()
    for name, value in dict(changes).items():
        rows.loc[rows.index[:2], name] = value
    return rows


def caught(use):
    """What a call returns, and the texts of its warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = use()
    assert all(entry.category is UnseenValueWarning for entry in found)
    return result, [str(entry.message).removeprefix("taken as missing: ") for entry in found]


def sources_of(rows):
    @extractor(provides=NAMES, instant=True)
    def everything(i):
        return rows[i]

    return [everything]


# ---------------------------------------------------------------------------------------- the same everywhere


@pytest.mark.parametrize("kind", STRANGE)
def test_tables_sessions_predictors_and_http_say_and_answer_the_same(table, estimator, loaded, kind, caplog):
    changes, reason = STRANGE[kind]
    rows = frame_of(table, changes)
    expected, said = caught(lambda: estimator.predict(rows))
    assert said == [reason]
    found, said = caught(lambda: loaded.predict(rows))
    assert said == [reason]
    np.testing.assert_array_equal(found, expected)
    told = row_of(table, changes)

    def by_session():
        session = Session(loaded)
        while wanted := session.wanted():
            session.tell({name: told[name] for name in wanted})
        return session.answer()

    answer, said = caught(by_session)
    assert (said, answer.warnings, answer.status) == ([reason], (reason,), "complete")
    assert answer.value == pytest.approx(expected[0])

    with OnDemandPredictor(loaded, sources_of([told] * 20)) as predictor:
        answers, said = caught(lambda: [predictor.predict(i) for i in range(10)])
        assert said == [reason]  # once for all rows
        many, said = caught(lambda: predictor.predict_many(range(20)))
        assert said == []
        for answer in (*answers, *many):
            assert answer.value == pytest.approx(expected[0])
            assert answer.warnings == (reason,)

    with OnDemandPredictor(loaded, [], given=NAMES) as predictor:
        client = TestClient(create_app(predictor))
        body = {"known": told}
        reply = [client.post("/predict", json=body).json() for _ in range(3)][-1]
        assert caplog.messages == [f"taken as missing: {reason}"]  # in the log of the service, once
        assert reply["warnings"] == [reason]
        assert reply["value"] == pytest.approx(expected[0])


@pytest.mark.parametrize("kind", STRANGE)
def test_strict_mode_makes_it_a_fault(table, loaded, kind):
    changes, reason = STRANGE[kind]
    told = row_of(table, changes)
    with pytest.raises(ValueError, match=f"known: {reason}"):
        Session(loaded, known=told, strict=True)
    session = Session(loaded, strict=True)
    with pytest.raises(ValueError, match=reason):
        session.check(told)
    while wanted := session.wanted():
        session.tell({name: told[name] for name in wanted})
    assert session.answer().status == "failed"
    assert reason in session.answer().reason
    with OnDemandPredictor(loaded, sources_of([told] * 3), strict=True) as predictor:
        with pytest.raises(SourceFailed, match=reason):
            predictor.predict(0)
        with pytest.raises(SourceFailed, match=reason):
            asyncio.run(predictor.apredict(0))
        with pytest.raises(SourceFailed, match=reason):
            predictor.predict_many(range(3))
        answer, said = caught(lambda: predictor.predict(0, strict=False))
        assert (answer.status, said) == ("complete", [reason])


@pytest.mark.parametrize("kind", STRANGE)
def test_strict_requests(table, loaded, kind, caplog):
    changes, reason = STRANGE[kind]
    told = row_of(table, changes)
    with OnDemandPredictor(loaded, sources_of([told] * 3), strict=True) as predictor:
        client = TestClient(create_app(predictor))
        for path, body in (("/predict", {"row": 0}), ("/predict/batch", {"rows": [{"row": 0}, {"row": 1}]})):
            reply = client.post(path, json=body)
            assert reply.status_code == 409
            assert reason in reply.json()["error"]["message"]
        assert client.post("/predict", json={"row": 0, "strict": False}).status_code == 200
        assert caplog.messages[-1] == f"taken as missing: {reason}"
        for path, body in (
            ("/predict", {"row": 0, "known": told}),
            ("/predict/batch", {"rows": [{"row": 0, "known": told}]}),
            ("/sessions", {"known": told}),
        ):
            reply = client.post(path, json=body)
            assert reply.status_code == 409
            assert reply.json()["error"]["message"] == f"strict: known: {reason}"
        opened = client.post("/sessions", json={}).json()
        reply = client.post(f"/sessions/{opened['id']}/tell", json={"values": told})
        assert reply.status_code == 409
        assert reason in reply.json()["error"]["message"]
        assert client.get(f"/sessions/{opened['id']}").json()["wanted"] == opened["wanted"]


def test_a_session_over_http_says_what_was_taken_as_missing(table, loaded):
    told = row_of(table, {"age": None, "town": "Rome"})
    with OnDemandPredictor(loaded, [], given=NAMES) as predictor:
        client = TestClient(create_app(predictor))
        state = client.post("/sessions", json={}).json()
        assert state["warnings"] == []
        while state["wanted"]:
            values = {name: told[name] for name in state["wanted"]}
            state = client.post(f"/sessions/{state['id']}/tell", json={"values": values}).json()
        assert sorted(state["warnings"]) == [MISSING, UNKNOWN]
        assert sorted(client.post(f"/sessions/{state['id']}/answer").json()["warnings"]) == [MISSING, UNKNOWN]


# --------------------------------------------------------------------------------------------------- details


def test_one_warning_for_a_call_names_every_column(table, estimator, loaded):
    rows = frame_of(table, {"age": np.nan, "town": "Rome"})
    for model in (estimator, loaded):
        for use in (model.predict, model.predict_cost, model.apply):
            assert caught(lambda use=use: use(rows))[1] == [f"{MISSING}; {UNKNOWN}"]
    wide = CSTCRegressor(n_weak_learners=5, random_state=0).fit(np.eye(40)[:, :20], np.arange(40.0))
    assert caught(lambda: wide.predict(np.full((3, 20), np.nan)))[1][0].endswith("; and 12 columns more")


def test_what_training_saw_is_no_surprise(table, estimator, loaded):
    rows = frame_of(table, {"size": np.nan})
    assert caught(lambda: (estimator.predict(rows), loaded.predict(rows)))[1] == []
    assert caught(lambda: Session(loaded, known={"size": None, "town": "Ulm"}))[1] == []


def test_the_warning_points_at_the_line_that_asked(table, estimator):
    with pytest.warns(UnseenValueWarning) as found:
        estimator.predict(frame_of(table, {"age": np.nan}))
    assert found[0].filename == __file__


def test_matrices_and_polars_and_sparse_ones(table, loaded):
    X = loaded.schema.matrix(table.iloc[1:6]).copy()
    X[0, 1] = np.nan
    assert caught(lambda: loaded.predict(X))[1] == [MISSING]
    assert caught(lambda: loaded.predict(csr_matrix(X)))[1] == [MISSING]
    X[0, 1:3] = 0.0, 7.0
    assert caught(lambda: loaded.predict(X))[1] == [UNKNOWN]
    rows = pl.DataFrame(
        {"size": [0.0], "age": [None], "town": ["Ulm"], "member": [True]}, schema_overrides={"age": pl.Float64}
    )
    assert caught(lambda: loaded.predict(rows))[1] == [MISSING]


def test_values_that_cancel_are_not_missing(loaded):
    X = np.array([[1.7e308, 1.7e308, 0.0, 0.0], [-1.7e308, -1.7e308, 0.0, 0.0]])
    assert caught(lambda: loaded.predict(X))[1] == []


def test_warnings_as_errors_leave_a_predictor_whole(table, loaded):
    told = row_of(table, {"age": None})
    with OnDemandPredictor(loaded, sources_of([told] * 3)) as predictor:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UnseenValueWarning)
            with pytest.raises(UnseenValueWarning, match=MISSING):
                predictor.predict_many(range(3))
        assert predictor.counters.as_dict()["answers"] == 3
        assert predictor.predict(0).warnings == (MISSING,)


def test_a_plain_input_is_needed_as_it_is(tmp_path):
    X = np.random.default_rng(0).normal(size=(100, 2))
    plain = CSTCRegressor(weak_learners="identity", method=Exact(max_iter=5, tol=1.0), cost_weight=1e-4, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain.fit(X, X[:, 0] + X[:, 1])
    gap = np.array([[np.nan, 0.0]])
    with pytest.raises(ValueError, match="NaN"):
        plain.predict(gap)
    with pytest.raises(ValueError, match="'x0' is missing, where training saw no missing values and the model needs"):
        plain.model_.predict(gap)
    with pytest.raises(ValueError, match="'x0' is missing, where training"):
        Session(plain, known={"x0": math.nan})


# -------------------------------------------------------------------------------------------------- booleans


def test_json_booleans_for_boolean_columns(table, loaded):
    assert loaded.schema.booleans == {"member"}
    with OnDemandPredictor(loaded, [], given=NAMES) as predictor:
        client = TestClient(create_app(predictor))
        told = row_of(table)
        for value, number in ((True, 1), (False, 0)):
            bodies = [{"known": told | {"member": sent}} for sent in (value, number, float(number))]
            values = {client.post("/predict", json=body).json()["value"] for body in bodies}
            assert len(values) == 1
            expected = loaded.predict(table.iloc[[1]].assign(member=value))[0]
            assert values.pop() == pytest.approx(expected)
        reply = client.post("/predict", json={"known": {"age": True}})
        assert reply.status_code == 422
        assert reply.json()["error"]["message"] == "age is true; it must be a number"
        reply = client.post("/predict", json={"known": {"member": "yes"}})
        assert reply.json()["error"]["message"] == "member is the text 'yes'; it must be true, false or a number"
        properties = client.get("/openapi.json").json()["components"]["schemas"]["PredictRequest"]["properties"]
        types = {name: entry["type"] for name, entry in properties["known"]["properties"].items()}
        assert types["member"] == ["boolean", "number", "null"]
        assert types["age"] == ["number", "null"]


def test_files_of_the_first_version_know_no_booleans(loaded):
    old = replace(loaded, schema=replace(loaded.schema, booleans=frozenset()))
    with OnDemandPredictor(old, [], given=NAMES) as predictor:
        reply = TestClient(create_app(predictor)).post("/predict", json={"known": {"member": True}})
    assert reply.status_code == 422


def test_classifiers_warn_too(table):
    model = CSTCClassifier(n_weak_learners=5, random_state=0).fit(table, table["member"])
    rows = frame_of(table, {"age": np.nan})
    for use in (model.predict, model.predict_proba, model.decision_function):
        assert caught(lambda use=use: use(rows))[1] == [MISSING]
