"""A mixture over HTTP: which model answers goes by the id, and the document says what there is."""

import numpy as np
import pytest

from cstc.serving import OnDemandPredictor
from cstc.serving.http.app import create_app
from model_files import random_mixture, random_rows
from serving.http.test_app import CheckedClient, refusal


@pytest.fixture(scope="module")
def mixture():
    """One whose models differ in what rows pay."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        mixture = random_mixture(rng, "logistic").with_limit(None)
        if mixture.schema.categories:
            continue
        X = random_rows(rng, mixture, n=40, missing=False)
        costs = [tree.predict_cost(X) for tree in mixture.trees]
        if 0.2 < mixture.share < 0.8 and (costs[0] != costs[1]).mean() > 0.4:
            return mixture, X
    raise AssertionError("no such mixture")


@pytest.fixture
def served(mixture):
    model, X = mixture
    names = model.schema.feature_names
    with OnDemandPredictor(model, [], given=names) as predictor:
        yield CheckedClient(create_app(predictor)), model, [dict(zip(names, row.tolist(), strict=True)) for row in X], X


def test_a_row_is_answered_by_the_model_of_its_id(served):
    client, model, rows, X = served
    ids = [f"row {k}" for k in range(len(rows))]
    expected = model.decision_function(X, ids=ids)
    up = model.takes_costlier(len(rows), ids)
    for k, known in enumerate(rows):
        answer = client.post("/predict", json={"known": known, "id": ids[k]}).json()
        assert answer["margins"] == pytest.approx(expected[k].tolist())
        assert f"takes the {'more expensive' if up[k] else 'cheaper'} one" in answer["taken"]
    body = {"rows": [{"known": known, "id": name} for known, name in zip(rows, ids, strict=True)]}
    answers = client.post("/predict/batch", json=body).json()["answers"]
    assert [answer["margins"] for answer in answers] == [pytest.approx(margins.tolist()) for margins in expected]
    for k in (0, 1, 2):  # what is known costs nothing, so a session is told
        state = client.post("/sessions", json={"id": ids[k]}).json()
        while state["wanted"]:
            values = {name: rows[k][name] for name in state["wanted"]}
            state = client.post(f"/sessions/{state['id']}/tell", json={"values": values}).json()
        answer = client.post(f"/sessions/{state['id']}/answer").json()
        assert answer["cost"] == pytest.approx(model.predict_cost(X, ids=ids)[k])


def test_what_is_no_id(served):
    client, _, rows, _ = served
    for wrong in (1.5, True, [], "", "x" * 10_000):
        message = refusal(client.post("/predict", json={"known": rows[0], "id": wrong}), 422)
        assert "a whole number or null" in message
    assert client.post("/predict", json={"known": rows[0], "id": None}).status_code == 200
    assert client.post("/predict", json={"known": rows[0], "id": 7}).status_code == 200


def test_the_document_speaks_of_it_only_where_there_is_a_mixture(served, mixture):
    client, model, _, _ = served
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    assert "taken" in schemas["Answer"]["properties"]
    with OnDemandPredictor(model.cheaper, [], given=model.schema.feature_names) as predictor:
        other = CheckedClient(create_app(predictor)).get("/openapi.json").json()["components"]["schemas"]
    assert "taken" not in other["Answer"]["properties"]
    assert "id" in other["PredictRequest"]["properties"]  # whoever serves may put a mixture in its place
