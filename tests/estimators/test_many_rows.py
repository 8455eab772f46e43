"""What is different where rows are many: 10,000 and more."""

import numpy as np
import pytest

from cstc import CSTCClassifier, CSTCRegressor
from cstc.experts import gates

N = 10_000
FEW_ROUNDS = {"n_weak_learners": 15, "random_state": 0, "costs": [1.0, 2.0, 4.0, 8.0]}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4))
    return X, X @ [1.0, 0.7, 0.5, 0.3] + rng.normal(size=N)


def test_gates_predict_gains_and_nothing_else(rows, monkeypatch):
    """Classes are far from even here: starting scores of the experts must not get into the gates."""
    X, y = rows
    heard = []
    learn = gates._learn_gate

    def listened(chain, stage, gain):
        gate, said = learn(chain, stage, gain)
        heard.append((gain, said))
        return gate, said

    monkeypatch.setattr(gates, "_learn_gate", listened)
    CSTCClassifier(cost_weight=0.005, **FEW_ROUNDS).fit(X, (y > 2).astype(int))
    assert heard
    for gain, said in heard:
        assert abs(said.mean() - gain.mean()) < 0.1 * gain.std()
        assert np.corrcoef(said, gain)[0, 1] > 0.05


def test_the_answer_and_its_cost_come_together(rows):
    X, y = rows
    model = CSTCClassifier(cost_weight=0.005, **FEW_ROUNDS).fit(X, (y > 0).astype(int))
    for method in (model.predict, model.predict_proba):
        answer, cost = method(X[:100], return_cost=True)
        np.testing.assert_array_equal(answer, method(X[:100]))
        np.testing.assert_array_equal(cost, model.predict_cost(X[:100]))


@pytest.mark.parametrize("n_jobs", [2, -1])
def test_the_model_does_not_depend_on_the_number_of_threads(rows, n_jobs):
    X, y = rows
    one, more = (CSTCRegressor(cost_weight=0.02, n_jobs=n, **FEW_ROUNDS).fit(X, y) for n in (1, n_jobs))
    np.testing.assert_array_equal(one.predict(X[:500]), more.predict(X[:500]))
    np.testing.assert_array_equal(one.predict_cost(X[:500]), more.predict_cost(X[:500]))
    assert one.model_.shape.n_nodes > 1
