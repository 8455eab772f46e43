"""The service: every endpoint, every refusal, limits, expiry, many clients, and how it ends."""

import asyncio
import hashlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

import jsonschema_rs
import numpy as np
import pytest
from starlette.testclient import TestClient

import cstc
from builders import CATEGORICAL
from cstc.model import Training
from cstc.model.file import load_named
from cstc.serving import OnDemandPredictor, Session, extractor
from cstc.serving.http.app import Limits, create_app
from cstc.serving.http.server import _listen, is_loopback, read_token, serve
from cstc.serving.http.store import NoRoom, SessionStore
from serving.worlds import NAMES, TASKS, Sources, random_world, without_features

CATEGORY = NAMES[CATEGORICAL]


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class CheckedClient(TestClient):
    """A client that holds every response to the service's own OpenAPI document."""

    def __init__(self, app, **options):
        super().__init__(app, **options)
        route = next(route for route in app.routes if route.path == "/openapi.json")
        self._document = json.loads(route.endpoint.__self__._document)
        self._validators = {}

    def request(self, method, url, **options):
        response = super().request(method, url, **options)
        path = str(url)
        if path.startswith("/sessions/"):
            path = "/".join(["/sessions/{id}", *path.split("/")[3:]])
        operation = self._document["paths"].get(path, {}).get(method.lower())
        if operation is not None:
            described = operation["responses"][str(response.status_code)]
            for media_type, content in described.get("content", {}).items():
                assert response.headers["content-type"].startswith(media_type)
                if media_type == "application/json":
                    self._validator(content["schema"]).validate(response.json())
        return response

    def _validator(self, schema):
        key = json.dumps(schema)
        if key not in self._validators:
            whole = schema | {"components": self._document["components"]}
            self._validators[key] = jsonschema_rs.validator_for(whole)
        return self._validators[key]


@pytest.fixture
def world():
    return random_world(np.random.default_rng(4), "multiclass", missing=False)


@pytest.fixture
def predictor(world):
    sources = Sources(np.random.default_rng(5), world.rows, instant=True)
    with OnDemandPredictor(world.model, sources.extractors) as predictor:
        yield predictor


@pytest.fixture
def client(predictor):
    return CheckedClient(create_app(predictor))


def refusal(response, status):
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error["status"] == status
    return error["message"]


def expensive_row(predictor, world):
    """A row that buys something."""
    return next(i for i in range(len(world.rows)) if predictor.predict(i).items)


def expensive_row_of(model, world):
    return int(np.argmax(model.predict_cost(world.X)))


# ----------------------------------------------------------------------------------------- predictions


@pytest.mark.parametrize("task", TASKS)
def test_predict_equals_the_predictor(task):
    rng = np.random.default_rng([6, list(TASKS).index(task)])
    world = random_world(rng, task, 20)
    with OnDemandPredictor(world.model, Sources(rng, world.rows, instant=True).extractors) as predictor:
        client = CheckedClient(create_app(predictor))
        for i in range(len(world.rows)):
            expected = predictor.predict(i).to_dict()
            found = client.post("/predict", json={"row": i}).json()
            for answer in (expected, found):
                del answer["seconds"]
                for entry in answer["trail"]:
                    entry.pop("latency", None)
            assert found == without_nan(expected)


def without_nan(value):
    if isinstance(value, dict):
        return {name: without_nan(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [without_nan(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def test_known_features_paid_items_and_budget(client, predictor, world):
    i = expensive_row(predictor, world)
    full = client.post("/predict", json={"row": i}).json()
    free = client.post("/predict", json={"row": i, "known": world.rows[i]}).json()
    assert free["value"] == full["value"]
    assert not free["items"]
    paid = client.post("/predict", json={"row": i, "paid": list(full["items"])}).json()
    assert not paid["items"]
    poor = client.post("/predict", json={"row": i, "budget": full["cost"] / 2, "trail": False}).json()
    assert poor["status"] == "budget"
    assert poor["cost"] <= full["cost"] / 2
    assert "trail" not in poor
    node = client.post("/predict", json={"row": i, "prefetch": "node"}).json()
    assert node["cost"] >= full["cost"]


def test_strict_answers_409_with_what_was_found(client, predictor, world):
    i = expensive_row(predictor, world)
    response = client.post("/predict", json={"row": i, "budget": 0, "strict": True})
    assert "budget" in refusal(response, 409)
    assert response.json()["answers"][0]["status"] == "budget"
    rows = [{"row": i, "known": world.rows[i]}, {"row": i, "budget": 0}]
    response = client.post("/predict/batch", json={"rows": rows, "strict": True})
    refusal(response, 409)
    assert response.json()["error"]["where"] == "rows[1]"
    assert len(response.json()["answers"]) == 2
    assert client.post("/predict", json={"row": i, "strict": True}).status_code == 200


def test_batch(client, predictor, world):
    rows = [{"row": i} for i in range(20)]
    found = client.post("/predict/batch", json={"rows": rows}).json()
    expected = predictor.predict_many(range(20))
    assert [answer["value"] for answer in found["answers"]] == [answer.value for answer in expected]
    assert found["cost"] == pytest.approx(sum(answer.cost for answer in expected))
    poor = client.post("/predict/batch", json={"rows": [{"row": 1}, {"row": 1, "budget": 1e9}], "budget": 0}).json()
    assert poor["answers"][0]["cost"] == 0
    assert poor["answers"][1]["status"] == "complete"
    assert client.post("/predict/batch", json={"rows": []}).json() == {"answers": [], "cost": 0.0}


def test_sources_that_fail_or_are_late_do_not_keep_the_answer(world):
    @extractor(provides=NAMES)
    def broken(row):
        if row == "slow":
            time.sleep(0.4)
        raise OSError("the line is dead")

    with OnDemandPredictor(world.model, [broken], idle=0.1) as predictor:
        client = CheckedClient(create_app(predictor, limits=Limits(seconds=0.1)))
        answer = client.post("/predict", json={"row": 1}).json()
        assert answer["status"] == "failed"
        assert "the line is dead" in answer["reason"]
        for deadline in (None, 0.05, 1000):  # never beyond the service's own limit
            began = time.perf_counter()
            late = client.post("/predict", json={"row": "slow", "deadline": deadline}).json()
            assert late["status"] == "deadline"
            assert time.perf_counter() - began < 0.35


def test_rows_are_any_json_value(world):
    seen = []

    @extractor(provides=NAMES, instant=True)
    def keep(row):
        seen.append(row)
        return world.rows[0]

    with OnDemandPredictor(world.model, [keep]) as predictor:
        client = CheckedClient(create_app(predictor))
        rows = [None, True, 3, 2.5, "an id", "\ud800", ["a", 1], {"table": "patients", "id": 7}]
        for row in rows:
            body = json.dumps({"row": row})
            headers = {"Content-Type": "application/json; charset=utf-8"}
            assert client.post("/predict", content=body, headers=headers).status_code == 200
        assert seen == rows


def test_without_extractors_clients_bring_the_features(world):
    with OnDemandPredictor(world.model, [], given=NAMES) as predictor:
        client = CheckedClient(create_app(predictor))
        answer = client.post("/predict", json={"known": world.rows[0]}).json()  # and no row
        assert answer["status"] == "complete"
        assert answer["value"] == world.model.predict(world.X[:1])[0]
        nothing = client.post("/predict", json={}).json()
        assert nothing["status"] in ("unavailable", "complete")


def test_a_margin_that_is_no_number_is_null():
    rng = np.random.default_rng(0)
    world = random_world(rng, "regression", missing=True)
    with OnDemandPredictor(world.model, [], given=NAMES) as predictor:
        client = CheckedClient(create_app(predictor))
        told = [dict.fromkeys(NAMES), *world.rows]
        rows = [{"known": without_nan(row)} for row in told]
        answers = client.post("/predict/batch", json={"rows": rows}).json()["answers"]
        expected = without_nan([predictor.predict(None, known=row).value for row in told])
        assert [answer["value"] for answer in answers] == expected
        assert None in expected


# -------------------------------------------------------------------------------------------- sessions


def test_ask_and_tell_equals_predict(client, predictor, world):
    for i, told in enumerate(world.rows[:20]):
        state = client.post("/sessions", json={}).json()
        while not state["finished"]:
            price = sum(state["items"].values())
            before = state["cost"]
            values = {name: told[name] for name in state["wanted"]}
            state = client.post(f"/sessions/{state['id']}/tell", json={"values": values}).json()
            assert state["cost"] >= before + price - 1e-9
        expected = predictor.predict(i)
        for _ in range(2):  # asked for again, the answer is the same
            answer = client.post(f"/sessions/{state['id']}/answer").json()
            assert (answer["value"], answer["status"], answer["items"]) == (expected.value, "complete", expected.items)
            assert answer["cost"] == pytest.approx(expected.cost)


def open_session(client, **body):
    response = client.post("/sessions", json=body)
    assert response.status_code == 201
    assert response.headers["location"] == f"/sessions/{response.json()['id']}"
    return response.json()


def test_a_session_answers_early_and_then_is_over(client, predictor):
    before = predictor.counters.as_dict()
    state = open_session(client)
    assert state["wanted"]
    path = f"/sessions/{state['id']}"
    assert client.get(path).json() == state
    answer = client.post(f"{path}/answer").json()
    assert answer["status"] == "stopped"
    after = client.get(path).json()
    assert after["finished"]
    assert not after["wanted"]
    for body, action in (({"values": {}}, "tell"), ({"features": ["x0"], "reason": "away"}, "fail")):
        assert "was answered" in refusal(client.post(f"{path}/{action}", json=body), 409)
    assert client.delete(path).status_code == 204
    assert "gone" in refusal(client.get(path), 410)
    counts = predictor.counters.as_dict()
    assert counts["answers"] == before["answers"] + 1
    assert counts["statuses"]["stopped"] == before["statuses"]["stopped"] + 1


def test_a_session_is_told_of_failures(client, world):
    state = open_session(client)
    path, wanted = f"/sessions/{state['id']}", state["wanted"]
    stray = next((name for name in NAMES if name not in wanted), None)
    if stray is not None:
        response = client.post(f"{path}/fail", json={"features": [stray], "reason": "away"})
        assert "not wanted" in refusal(response, 409)
    failed = client.post(
        f"{path}/fail", json={"features": wanted, "reason": "the lab is closed", "charged": False}
    ).json()
    assert not set(failed["wanted"]) & set(wanted)
    while failed["wanted"]:
        values = {name: world.rows[0][name] for name in failed["wanted"]}
        failed = client.post(f"{path}/tell", json={"values": values}).json()
    assert failed["finished"]
    answer = client.post(f"{path}/answer").json()
    assert answer["status"] == "failed"
    assert "the lab is closed" in answer["reason"]
    assert answer["basis"].endswith(" failed")
    _, margins, items = without_features(world.model, world.X[0], wanted)
    assert answer["margins"] == pytest.approx(margins, rel=1e-9)
    assert set(answer["items"]) == items


def test_what_is_down_is_not_asked_for(client, predictor, world):
    down = 0
    for i in range(10):
        whole = client.post("/predict", json={"row": i}).json()
        assert (whole["basis"], whole["expected_loss"]) == ("", 0.0)
        bought = [name for entry in whole["trail"] if entry["event"] == "bought" for name in entry["features"]]
        if not bought:
            continue
        path, margins, items = without_features(world.model, world.X[i], bought[:1])
        answer = client.post("/predict", json={"row": i, "unavailable": bought[:1]}).json()
        body = {"rows": [{"row": i}, {"row": i, "budget": 0}], "unavailable": bought[:1]}
        batch, poor = client.post("/predict/batch", json=body).json()["answers"]
        state = open_session(client, unavailable=bought[:1])
        at = f"/sessions/{state['id']}"
        while state["wanted"]:
            assert bought[0] not in state["wanted"]
            values = {name: world.rows[i][name] for name in state["wanted"]}
            state = client.post(f"{at}/tell", json={"values": values}).json()
        told = client.post(f"{at}/answer").json()
        for found in (answer, batch, told):
            assert found["margins"] == pytest.approx(margins, rel=1e-9)
            assert found["path"] == path
            assert set(found["items"]) == items
            assert found["status"] in ("complete", "unavailable")
            assert found["expected_loss"] == (0.0 if found["status"] == "complete" else None)
            assert found["basis"].endswith("" if found["status"] == "complete" else f"{bought[0]} unavailable")
        assert poor["cost"] == 0
        down += answer["status"] == "unavailable"
        strict = client.post("/predict", json={"row": i, "unavailable": bought[:1], "strict": True})
        assert strict.status_code == (409 if answer["status"] == "unavailable" else 200)
    assert down > 2


def test_a_failure_that_decides_sends_the_row_another_way():
    model = next(
        candidate.model
        for candidate in (random_world(np.random.default_rng(k), "regression", missing=False) for k in range(100))
        if len(Session(candidate.model).wanted()) > 1
    )
    with OnDemandPredictor(model, [], given=NAMES) as predictor:
        client = CheckedClient(create_app(predictor))
        state = open_session(client)
        path, (first, second, *_) = f"/sessions/{state['id']}", state["wanted"]
        failed = client.post(f"{path}/fail", json={"features": [first], "reason": "closed"}).json()
        assert first not in failed["wanted"]
        late = {"values": {second: "kind 1" if second == CATEGORY else 1.0}}
        told = [client.post(f"{path}/tell", json=late).json() for _ in range(2)]  # it was on its way
        assert failed["cost"] <= told[0]["cost"] == told[1]["cost"]
        again = client.post(f"{path}/fail", json={"features": [first], "reason": "closed"})
        assert "not wanted now" in refusal(again, 409)
        told = told[1:]
        while wanted := told[0]["wanted"]:
            values = {name: "kind 1" if name == CATEGORY else 1.0 for name in wanted}
            told = [client.post(f"{path}/tell", json={"values": values}).json()]
        again = client.post(f"{path}/fail", json={"features": [first], "reason": "closed"})
        assert "the session is finished" in refusal(again, 409)
        answer = client.post(f"{path}/answer").json()
        assert (answer["status"], answer["reason"]) == ("failed", "closed")
        assert answer["cost"] == told[0]["cost"]
        assert predictor.counters.as_dict()["spend"] == answer["cost"]


def test_a_value_that_cannot_be_used_changes_nothing(client, world):
    state = open_session(client)
    path = f"/sessions/{state['id']}"
    good = {name: world.rows[0][name] for name in state["wanted"]}
    name = next(name for name in NAMES if name != CATEGORY)
    for bad in ("ten", True, None, [1], 10**400):
        body = json.dumps({"values": good | {name: bad}})
        response = client.post(f"{path}/tell", content=body, headers={"Content-Type": "application/json"})
        refusal(response, 422)
        assert client.get(path).json() == state
    assert client.post(f"{path}/tell", json={"values": good}).status_code == 200


def test_sessions_expire(predictor):
    clock = Clock()
    client = CheckedClient(create_app(predictor, limits=Limits(session_seconds=60), clock=clock))
    ids = [open_session(client)["id"] for _ in range(3)]
    clock.now += 40
    assert client.get(f"/sessions/{ids[0]}").json()["expires_in"] == 60  # used, so it stays
    clock.now += 30
    assert client.get(f"/sessions/{ids[0]}").status_code == 200
    for action, body in (("", None), ("/tell", {"values": {}}), ("/fail", {"features": ["x0"], "reason": "x"})):
        path = f"/sessions/{ids[1]}{action}"
        response = client.get(path) if body is None else client.post(path, json=body)
        assert "not used for 60 s; open another one" in refusal(response, 410)
    assert "POST /sessions" in refusal(client.post("/sessions/no-such-session/answer"), 404)
    assert "POST /sessions" in refusal(client.get("/sessions/" + ids[0][:-1]), 404)
    assert "cstc_sessions_expired_total 2\n" in client.get("/metrics").text
    assert "cstc_sessions_open 1\n" in client.get("/metrics").text


def test_what_a_lost_session_bought_is_counted(predictor, world):
    clock = Clock()
    client = CheckedClient(create_app(predictor, limits=Limits(session_seconds=60), clock=clock))
    spent = 0.0
    for way in ("expire", "remove", "answer"):
        state = open_session(client)
        values = {name: world.rows[0][name] for name in state["wanted"]}
        state = client.post(f"/sessions/{state['id']}/tell", json={"values": values}).json()
        assert state["cost"] > 0
        if way == "expire":
            clock.now += 61
        elif way == "remove":
            client.delete(f"/sessions/{state['id']}")
        else:
            client.post(f"/sessions/{state['id']}/answer")
            clock.now += 61
        client.get("/metrics")  # an answered session that expires is not counted again
        found = predictor.counters.as_dict()
        assert found["spend"] - spent == pytest.approx(state["cost"])
        spent = found["spend"]
    assert found["answers"] == 3
    assert sum(item["spend"] for item in found["items"].values()) > 0


def test_so_many_sessions_and_no_more(predictor):
    clock = Clock()
    client = CheckedClient(create_app(predictor, limits=Limits(sessions=2, session_seconds=60), clock=clock))
    first, second = open_session(client)["id"], open_session(client)["id"]
    clock.now += 20
    response = client.post("/sessions", json={})
    assert "2 sessions are open" in refusal(response, 429)
    assert response.headers["retry-after"] == "40"
    client.post(f"/sessions/{first}/answer")
    third = open_session(client)["id"]  # in the place of the one that was answered
    refusal(client.get(f"/sessions/{first}"), 410)
    refusal(client.post("/sessions", json={}), 429)
    client.delete(f"/sessions/{third}")
    open_session(client)
    clock.now += 45
    assert "cstc_sessions_open 1\n" in client.get("/metrics").text  # the second has expired
    refusal(client.get(f"/sessions/{second}"), 410)


def test_store_tells_own_ids_from_others():
    store, other = SessionStore(1, 10.0), SessionStore(1, 10.0)
    entry = store.add(None)
    assert store.is_own(entry.id)
    assert not other.is_own(entry.id)
    for id in ("", "x", "é" * 40, entry.id[::-1], "\ud800"):
        assert not store.is_own(id)
    with pytest.raises(NoRoom):
        store.add(None)


# ------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "empty"),
        (b"{", "line 1"),
        (b"{'row': 1}", "not JSON"),
        (b'{"row": NaN}', "NaN is not JSON"),
        (b'{"row": 1, "budget": Infinity}', "Infinity is not JSON"),
        (b'{"row": 1, "known": {"x0": -Infinity}}', "Infinity is not JSON"),
        (b'{"row": 1e999}', "too large"),
        (b'{"row": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"row": 1, "row": 2}', "'row' stands twice"),
        (b'{"row": "\xff"}', "UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_bodies_that_are_not_json(client, body, message):
    response = client.post("/predict", content=body, headers={"Content-Type": "application/json"})
    assert message in refusal(response, 400)


@pytest.mark.parametrize(
    ("body", "where", "message"),
    [
        (3, None, "must be an object"),
        ({}, None, "'row' is missing"),
        ({"row": 1, "budjet": 3}, "budjet", "the fields are 'row', 'known', 'paid', 'budget'"),
        ({"row": 1, "x0": 3}, "x0", "values of features go into 'known'"),
        ({"row": 1, "known": {"agee": 3}}, "known.agee", "unknown feature 'agee'; the model's features are 'x0', 'x1'"),
        ({"row": 1, "known": {"x0": "ten"}}, "known.x0", "the text 'ten'; it must be a number"),
        ({"row": 1, "known": {"x0": True}}, "known.x0", "x0 is true; it must be a number"),
        ({"row": 1, "known": {"x0": None}}, "known.x0", "training saw no missing values"),
        ({"row": 1, "known": {"x0": [1]}}, "known.x0", "x0 is a list; it must be a number"),
        ({"row": 1, "known": {CATEGORY: {}}}, f"known.{CATEGORY}", "must be one category"),
        ({"row": 1, "known": {CATEGORY: "k" * 1001}}, f"known.{CATEGORY}", "at most 1000 are taken"),
        ({"row": 1, "known": ["x0"]}, "known", "must be an object of features"),
        ({"row": 1, "paid": "item 0"}, "paid", "must be a list of names"),
        (
            {"row": 1, "paid": ["x0", "item 99"]},
            "paid[1]",
            "unknown item 'item 99'; the model's items are",
        ),
        ({"row": 1, "unavailable": "item 0"}, "unavailable", "must be a list of names"),
        ({"row": 1, "unavailable": 3}, "unavailable", "must be a list of names"),
        ({"row": 1, "unavailable": None}, "unavailable", "must be a list of names"),
        ({"row": 1, "unavailable": [["x0"]]}, "unavailable[0]", "unknown source, item or feature ['x0']"),
        (
            {"row": 1, "unavailable": ["x0", "the moon"]},
            "unavailable[1]",
            "unknown source, item or feature 'the moon'; the model's sources, items and features are",
        ),
        ({"row": 1, "budget": "40"}, "budget", "the text '40'; it must be a number, 0 or more, or null"),
        ({"row": 1, "budget": -1}, "budget", "-1; it must be a number, 0 or more"),
        ({"row": 1, "budget": True}, "budget", "is true"),
        ({"row": 1, "budget": 10**400}, "budget", "it must be a number"),
        ({"row": 1, "deadline": -0.1}, "deadline", "it must be seconds, 0 or more, or null"),
        ({"row": 1, "strict": "yes"}, "strict", "it must be true or false"),
        ({"row": 1, "prefetch": "all"}, "prefetch", "one of 'branch', 'node', or null"),
    ],
)
def test_requests_that_do_not_fit(client, body, where, message):
    response = client.post("/predict", json=body)
    assert message in refusal(response, 422)
    assert response.json()["error"]["where"] == where


def test_batches_that_do_not_fit(predictor):
    client = CheckedClient(create_app(predictor, limits=Limits(rows=3)))
    response = client.post("/predict/batch", json={"rows": [{"row": 1}] * 4})
    assert "at most 3" in refusal(response, 422)
    response = client.post("/predict/batch", json={"rows": [{"row": 1}, {"row": 1, "known": {"x9": 1}}]})
    refusal(response, 422)
    assert response.json()["error"]["where"] == "rows[1].known.x9"
    for rows in ({}, None, [3], [{"row": 1, "paid": []}], [{}]):
        refusal(client.post("/predict/batch", json={"rows": rows}), 422)


def test_failures_that_do_not_fit(client):
    path = f"/sessions/{open_session(client)['id']}/fail"
    for body in ({"features": []}, {"features": [], "reason": "x"}, {"features": ["x0"], "reason": ""}):
        refusal(client.post(path, json=body), 422)
    refusal(client.post(path, json={"features": ["x0"], "reason": "x" * 1001}), 422)


def test_bodies_that_are_too_long(predictor):
    client = CheckedClient(create_app(predictor, limits=Limits(body_bytes=200)))
    assert "at most 200" in refusal(client.post("/predict", json={"row": "x" * 300}), 413)

    def parts():
        for _ in range(100):
            yield b" " * 100

    headers = {"Content-Type": "application/json"}
    assert "more than 200" in refusal(client.post("/predict", content=parts(), headers=headers), 413)
    assert client.post("/predict", json={"row": 1}).status_code == 200


def test_a_body_that_does_not_come(predictor):
    app = create_app(predictor, limits=Limits(body_seconds=0.05))
    sent = []

    async def receive():
        await asyncio.sleep(60)

    async def send(message):
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"content-length", b"10")]
    scope = {"type": "http", "method": "POST", "path": "/predict", "headers": headers, "query_string": b""}
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 408


def test_other_types_paths_and_methods(client):
    for headers in ({}, {"Content-Type": "text/plain"}, {"Content-Type": "application/jsonp"}):
        response = client.post("/predict", content=b'{"row": 1}', headers=headers)
        assert "application/json" in refusal(response, 415)
    for path in ("/", "/predict/", "/sessions/a/b/c", "/docs"):
        assert "/openapi.json" in refusal(client.get(path), 404)
    for method, path, allowed in (
        ("GET", "/predict", {"POST"}),
        ("PUT", "/sessions", {"POST"}),
        ("POST", "/sessions/x", {"GET", "HEAD", "DELETE"}),
        ("POST", "/metrics", {"GET", "HEAD"}),
    ):
        response = client.request(method, path)
        assert f"{method} is not possible" in refusal(response, 405)
        assert set(response.headers["allow"].split(", ")) == allowed


def test_token(predictor):
    client = CheckedClient(create_app(predictor, token="open sesame"))
    paths = ["/metrics", "/openapi.json", "/nowhere", "/sessions/x"]
    for authorization in (None, "Bearer wrong", "Bearer ", "Basic open sesame", "open sesame", "Bearer \xe9"):
        headers = {} if authorization is None else {"Authorization": authorization.encode("latin-1")}
        responses = [client.get(path, headers=headers) for path in paths]
        responses.append(client.post("/predict", json={"row": 1}, headers=headers))
        for response in responses:
            assert "Authorization: Bearer" in refusal(response, 401)
            assert response.headers["www-authenticate"] == "Bearer"
            assert "sesame" not in response.text
    assert client.get("/health").status_code == 200
    for authorization in ("Bearer open sesame", "bearer open sesame"):
        assert client.post("/predict", json={"row": 1}, headers={"Authorization": authorization}).status_code == 200


def test_hosts(predictor):
    app = create_app(predictor, hosts=["localhost", "127.0.0.1", "::1"])
    client = CheckedClient(app)
    for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:80", "[::1]:8000", "[::1]"):
        assert client.get("/health", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "localhost.evil.example:8000", "", "127.0.0.1.evil.example"):
        refusal(client.get("/health", headers={"Host": host}), 421)


def test_a_fault_of_the_service_is_500_without_details(predictor, monkeypatch):
    app = create_app(predictor)
    client = CheckedClient(app, raise_server_exceptions=False)

    async def broken(*args, **options):
        raise RuntimeError("secret")

    monkeypatch.setattr(predictor, "apredict", broken)
    response = client.request("POST", "/predict?", json={"row": 1})
    assert "not of the request" in refusal(response, 500)
    assert "secret" not in response.text
    assert 'cstc_http_requests_total{endpoint="predict",status="500"} 1' in client.get("/metrics").text


@pytest.mark.parametrize("name", [field.name for field in fields(Limits)])
def test_limits_are_numbers_above_zero(name):
    for value in (0, -1, math.nan, math.inf, "10", None, True):
        with pytest.raises(ValueError, match=f"{name} is .*; it must be a number above 0"):
            Limits(**{name: value})


# --------------------------------------------------------------------------------- about the service


def test_health_metrics_and_document(client):
    nothing = {"name": None, "sha256": None, "rows": None, "trained": None}
    assert client.get("/health").json() == {"status": "ok", "version": cstc.__version__, "model": nothing}
    client.post("/predict", json={"row": 1})
    client.post("/predict", json={})
    response = client.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = response.text.splitlines()
    assert 'cstc_http_requests_total{endpoint="predict",status="200"} 1' in lines
    assert 'cstc_http_requests_total{endpoint="predict",status="422"} 1' in lines
    assert 'cstc_answers_total{status="complete"} 1' in lines
    samples = [line for line in lines if not line.startswith("#")]
    assert len(samples) == len({line.rpartition(" ")[0] for line in samples})
    document = client.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    assert "security" not in document
    assert document["components"]["schemas"]["PredictRequest"]["required"] == ["row"]


def test_health_names_the_model(world, tmp_path):
    path = tmp_path / "credit.cstc"
    trained = replace(world.model, training=Training(rows=1234))
    trained.save(path, trained="2026-11-16")
    model, identity = load_named(path)
    with OnDemandPredictor(model, [], given=NAMES) as predictor:
        found = CheckedClient(create_app(predictor, model=identity)).get("/health").json()["model"]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert found == {"name": "credit.cstc", "sha256": digest, "rows": 1234, "trained": "2026-11-16"}


def test_metrics_hold_answers_against_training(world):
    shares = np.full(world.model.shape.n_terminals, 1 / world.model.shape.n_terminals)
    model = replace(world.model, training=Training(mean_cost=2.0, reached=shares))
    sources = Sources(np.random.default_rng(5), world.rows, instant=True)
    with OnDemandPredictor(model, sources.extractors) as predictor:
        client = CheckedClient(create_app(predictor))
        for i in range(10):
            client.post("/predict", json={"row": i})
        samples = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if line[0] != "#")
    cost = model.predict_cost(world.X[:10])
    assert float(samples["cstc_drift_spend_ratio"]) == pytest.approx(cost.mean() / 2)
    found = np.bincount(model.apply(world.X[:10]), minlength=len(shares)) / 10
    assert float(samples["cstc_drift_path_distance"]) == pytest.approx(np.abs(found - shares).sum() / 2)
    assert samples["cstc_drift_answers"] == "10"
    assert float(samples["cstc_training_mean_spend"]) == 2.0
    assert samples['cstc_cost_bucket{le="+Inf"}'] == samples["cstc_latency_seconds_count"] == "10"


def test_names_of_any_kind(world):
    names = ["größe", 'a "b"', "x/y", "$ref", "", "\n"]
    schema = replace(world.model.schema, feature_names=names, categories={})
    costs = replace(world.model.costs, item_names=[f'it"em\n{r}' for r in range(world.model.costs.n_items)])
    with OnDemandPredictor(replace(world.model, schema=schema, costs=costs), [], given=names) as predictor:
        client = CheckedClient(create_app(predictor))
        known = dict(zip(names, world.X[0].tolist(), strict=True))
        assert client.post("/predict", json={"known": known}).json()["status"] == "complete"
        assert client.get("/metrics").status_code == 200


# ------------------------------------------------------------------------------------- many clients


def test_many_requests_at_once(world):
    running, most = 0, 0

    @extractor(provides=NAMES, timeout=5)
    async def slow(row):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        return world.rows[row]

    with OnDemandPredictor(world.model, [slow]) as predictor:
        app = create_app(predictor)
        expected = world.model.predict(world.X).tolist()

        async def ask_all():
            found = await asyncio.gather(*(send(app, {"row": i}) for i in range(len(world.rows))))
            assert {status for status, _, _ in found} == {200}
            return [answer["value"] for _, _, answer in found]

        assert asyncio.run(ask_all()) == expected
        assert most > 20
        assert predictor.counters.as_dict()["answers"] == len(expected)


async def send(app, body, path="/predict"):
    """One request on this event loop: status, headers and JSON."""
    sent = []
    parts = [{"type": "http.request", "body": json.dumps(body).encode()}]

    async def receive():
        return parts.pop()

    async def keep(message):
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
    await app(scope, receive, keep)
    return sent[0]["status"], dict(sent[0]["headers"]), json.loads(sent[1]["body"])


def test_a_large_batch_does_not_keep_other_requests_waiting(world):
    threads = set()

    @extractor(provides=NAMES, instant=True)
    def table(row):
        threads.add(threading.current_thread())
        time.sleep(0.005)
        return world.rows[row % len(world.rows)]

    with OnDemandPredictor(world.model, [table]) as predictor:
        app = create_app(predictor)
        i = expensive_row(predictor, world)
        threads.clear()

        async def others():
            batch = asyncio.create_task(send(app, {"rows": [{"row": i}] * 100}, "/predict/batch"))
            times = []
            while not batch.done():
                began = time.perf_counter()
                assert (await send(app, {"known": world.rows[i], "row": i}))[0] == 200
                times.append(time.perf_counter() - began)
                await asyncio.sleep(0.005)
            status, _, answers = await batch
            assert status == 200
            assert len(answers["answers"]) == 100
            return times

        times = asyncio.run(others())  # the batch alone takes half a second
        assert len(times) > 5
        assert float(np.median(times)) < 0.1
        assert threading.current_thread() not in threads


def test_async_sources_of_a_batch_run_on_the_loop_of_the_service(world):
    loops = set()

    @extractor(provides=NAMES, batch=True)
    async def table(rows):
        loops.add(asyncio.get_running_loop())
        return [world.rows[row] for row in rows]

    with OnDemandPredictor(world.model, [table]) as predictor:

        async def ask():
            _, _, found = await send(create_app(predictor), {"rows": [{"row": i} for i in range(40)]}, "/predict/batch")
            assert loops <= {asyncio.get_running_loop()}
            return [answer["value"] for answer in found["answers"]]

        assert asyncio.run(ask()) == world.model.predict(world.X[:40]).tolist()
        assert loops


def test_so_many_rows_at_the_same_time_and_no_more(world):
    @extractor(provides=NAMES)
    async def slow(row):
        await gate.wait()
        return world.rows[row]

    with OnDemandPredictor(world.model, [slow]) as predictor:
        i = expensive_row_of(world.model, world)
        app = create_app(predictor, limits=Limits(predictions=3))

        async def ask():
            nonlocal gate
            gate = asyncio.Event()
            running = [asyncio.create_task(send(app, {"row": i})) for _ in range(2)]
            await asyncio.sleep(0.05)
            refused = [await send(app, {"rows": [{"row": i}] * 2}, "/predict/batch")]
            running.append(asyncio.create_task(send(app, {"row": i})))
            await asyncio.sleep(0.05)
            refused += [await send(app, {"row": i}), await send(app, {"rows": []}, "/predict/batch")]
            bought = predictor.counters.as_dict()["spend"]
            gate.set()
            assert [status for status, _, _ in await asyncio.gather(*running)] == [200] * 3
            alone = await send(app, {"rows": [{"row": i}] * 5}, "/predict/batch")  # nothing else is there to wait for
            return refused, bought, alone

        gate = None
        refused, bought, alone = asyncio.run(ask())
        for (status, headers, body), n_rows in zip(refused, (2, 3, 3), strict=True):
            assert status == 503
            assert headers[b"retry-after"] == b"1"
            message = body["error"]["message"]
            assert message.startswith(f"{n_rows} rows are being worked on, and no more than 3 may be")
            assert message.endswith("nothing was bought: try again in 1 s")
        assert bought == 0
        assert alone[0] == 200
        metrics = CheckedClient(app).get("/metrics").text
        assert "cstc_predictions_refused_total 3\n" in metrics
        assert "cstc_predictions_in_flight 0\n" in metrics


def test_a_prediction_that_is_not_waited_for_leaves_its_place(world):
    @extractor(provides=NAMES)
    async def slow(row):
        await asyncio.sleep(60)

    with OnDemandPredictor(world.model, [slow]) as predictor:
        app = create_app(predictor, limits=Limits(predictions=1))

        async def leave():
            for _ in range(3):
                task = asyncio.create_task(send(app, {"row": expensive_row_of(world.model, world)}))
                await asyncio.sleep(0.02)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

        asyncio.run(leave())
        assert "cstc_predictions_in_flight 0\n" in CheckedClient(app).get("/metrics").text


# ----------------------------------------------------------------------------------- a real server


def test_loopback():
    for host in ("127.0.0.1", "localhost", "LocalHost", "::1", "[::1]", "127.3.4.5"):
        assert is_loopback(host)
    for host in ("0.0.0.0", "::", "", "192.168.0.1", "example.com", "localhost.example.com"):
        assert not is_loopback(host)


def test_other_machines_need_a_token(predictor):
    for host in ("0.0.0.0", "::", "example.com"):
        with pytest.raises(ValueError, match=r"can be reached from other machines.*set CSTC_TOKEN"):
            serve(predictor, host=host, port=0)


def test_token_in_the_environment(monkeypatch):
    monkeypatch.delenv("CSTC_TOKEN", raising=False)
    assert read_token() is None
    monkeypatch.setenv("CSTC_TOKEN", "secret")
    assert read_token() == "secret"
    for wrong in ("", " ", " secret", "secret\n", "geheimnisgrößer"):
        monkeypatch.setenv("CSTC_TOKEN", wrong)
        with pytest.raises(ValueError, match="CSTC_TOKEN"):
            read_token()


def test_a_port_that_is_taken(predictor):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1, port {port}"):
            serve(predictor, port=port)


def test_answers_do_not_wait_for_the_client_to_confirm_their_head():
    with _listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP  # only then asyncio sets TCP_NODELAY


SOURCES = """
import time
from cstc.serving import extractor

@extractor(provides={names})
def table(row):
    time.sleep(row["seconds"])
    return row["values"]

sources = [table]
"""


@pytest.fixture
def server(tmp_path, world):
    """`cstc serve` in a process of its own."""
    cstc.save(world.model, tmp_path / "model.cstc")
    (tmp_path / "my_sources.py").write_text(textwrap.dedent(SOURCES).format(names=NAMES))
    command = [sys.executable, "-W", "error", "-m", "cstc", "serve", "model.cstc", "-e", "my_sources:sources"]
    environment = {name: value for name, value in os.environ.items() if name != "CSTC_TOKEN"}
    process = subprocess.Popen(
        [*command, "--port", "0", "--max-body", "2000"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        words = process.stdout.readline().split()
        assert words, process.stderr.read()
        process.port = int(words[3].rpartition(":")[2])
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ask(port, body, path="/predict", host="127.0.0.1"):
    """One request over a connection of its own: status and JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(f"{head}Connection: close\r\n\r\n".encode() + content)
        received = b""
        while part := connection.recv(65536):
            received += part
    header, _, text = received.partition(b"\r\n\r\n")
    return int(header.split()[1]), json.loads(text)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_shutdown_answers_what_is_in_flight(server, world, number):
    row = {"seconds": 0.0, "values": world.rows[0]}
    assert ask(server.port, {"row": row})[0] == 200
    assert ask(server.port, {"row": "x" * 3000})[0] == 413
    assert ask(server.port, {"row": row}, host="evil.example")[0] == 421
    with ThreadPoolExecutor(8) as threads:
        futures = [threads.submit(ask, server.port, {"row": row | {"seconds": 0.8}}) for _ in range(8)]
        time.sleep(0.4)
        server.send_signal(number)
        time.sleep(0.2)
        with pytest.raises(OSError):  # noqa: PT011  refused or reset: nobody takes new ones
            ask(server.port, {"row": row})
        for future in futures:
            status, answer = future.result()
            assert status == 200
            assert answer["status"] == "complete"
    assert server.wait(10) == 0
    assert server.stderr.read() == ""


def test_the_service_logs_what_fails_and_what_it_never_saw(server, world):
    """With warnings as errors, as this one runs: the client asked, and gets its answer."""
    row = {"seconds": 0.0, "values": world.rows[0] | {CATEGORY: "secret kind"}}
    status, answer = ask(server.port, {"row": row, "known": {CATEGORY: "secret kind"}})
    assert (status, answer["warnings"]) == (200, [f"{CATEGORY} holds a category that training did not see"])
    assert ask(server.port, {"row": {"secret": 1}})[1]["status"] == "failed"
    assert ask(server.port, {"row": {"secret": 1}}, "/predict/batch")[0] == 422
    assert ask(server.port, {"rows": [{"row": row}, {"row": {"secret": 1}}]}, "/predict/batch")[0] == 200
    server.send_signal(signal.SIGTERM)
    assert server.wait(10) == 0
    text = server.stderr.read()
    assert f"WARNING taken as missing: {CATEGORY} holds a category that training did not see" in text
    assert text.count("taken as missing") == 1
    assert "WARNING source table raised an exception (KeyError) for row given as dict" in text
    assert "WARNING source table raised an exception (KeyError) for row number 1" in text
    assert "secret" not in text


def test_threads_do_not_pile_up(predictor):
    before = threading.active_count()
    client = CheckedClient(create_app(predictor))
    for i in range(20):
        client.post("/predict", json={"row": i})
    assert threading.active_count() <= before + 1
