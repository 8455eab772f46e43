"""Rankers: what they are boosted for, and the places that count."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.base import clone

from cstc import CSTCRanker, Experts, Frontier
from cstc.boosting import Boosting, Lambdarank
from cstc.experts.chain import ChainGrower
from cstc.metrics import ndcg, ndcg_by_query, places_of, quality_named, quality_of

PRICES = [1.0, 4.0, 4.0, 8.0]
SMALL = {"costs": PRICES, "n_weak_learners": 20, "random_state": 0, "n_jobs": 1}


def queries(n_queries=60, size=12, seed=0):
    """Grades by the place in the query: their level differs from query to query, and nothing tells it."""
    rng = np.random.default_rng(seed)
    n = n_queries * size
    X, qid = rng.normal(size=(n, 4)), np.repeat(np.arange(n_queries), size)
    signal = X[:, 0] + X[:, 1] * (X[:, 2] > 0) + 0.3 * rng.normal(size=n)
    order = np.argsort(np.argsort(signal.reshape(n_queries, size), axis=1), axis=1).ravel()
    return X, np.clip(order - size + 4, 0, 3).astype(float), qid


X, Y, QID = queries()


def fit(**options):
    return CSTCRanker(**SMALL | options).fit(X, Y, qid=QID)


def test_each_objective_gives_another_model_in_the_units_of_grades():
    models = {name: fit(objective=name, cost_weight=1e-3) for name in ("regression", "lambdarank")}
    assert {name: model.objective_ for name, model in models.items()} == {name: name for name in models}
    one, other = (model.predict(X) for model in models.values())
    assert not np.allclose(one, other)
    for model in models.values():
        predicted = model.predict(X)
        assert model.score(X, Y, qid=QID) > 0.8
        assert predicted.mean() == pytest.approx(Y.mean(), abs=0.1)
        assert ((predicted - Y) ** 2).mean() < 0.8 * Y.var()


@pytest.mark.parametrize("winner", ["regression", "lambdarank"])
def test_auto_takes_what_orders_better_out_of_fold(winner, monkeypatch):
    """The expert on all features is the one that both are tried with; here one of them is made to look bad."""
    import cstc.experts.chain as module

    told, n_grown = [], []
    grow = module._ExpertStore.grow

    def counted(self, wanted, names, blocks):
        before = len(self)
        grow(self, wanted, names, blocks)
        n_grown.append(len(self) - before)

    def judged(grades, scores, qid, k):
        found = ndcg_by_query(grades, scores, qid, k)
        told.append((k, found.mean()))
        assert set(grades) == set(Y)
        is_order = len(told) == 2  # regression is asked first
        # in half of the queries nothing differs: the gain is about 0.5 of `more`, its standard error 0.06 of it
        more = np.arange(len(found)) % 2 * (1.0 if winner == "lambdarank" else -1.0)
        return more if is_order else np.zeros(len(found))

    monkeypatch.setattr(module._ExpertStore, "grow", counted)
    monkeypatch.setattr(module, "ndcg_by_query", judged)
    model = fit(objective="auto", at=3, cost_weight=1e-3)
    assert model.objective_ == winner
    assert [k for k, _ in told] == [3, 3]
    assert min(value for _, value in told) > 0.5
    assert n_grown[0] == 2
    np.testing.assert_allclose(model.predict(X), fit(objective=winner, at=3, cost_weight=1e-3).predict(X))


def test_auto_does_not_take_luck_for_a_better_order(monkeypatch):
    """A gain that is smaller than two of its standard errors is none."""
    import cstc.experts.chain as module

    rng, asked = np.random.default_rng(0), []

    def judged(grades, scores, qid, k):
        asked.append(k)
        noise = rng.normal(size=len(np.unique(qid)))
        return 1.8 * noise.std() / np.sqrt(len(noise)) + noise - noise.mean() if len(asked) == 2 else 0 * noise

    monkeypatch.setattr(module, "ndcg_by_query", judged)
    assert fit(objective="auto", cost_weight=1e-3).objective_ == "regression"
    assert len(asked) == 2


def test_auto_is_regression_where_grades_are_no_whole_numbers():
    model = CSTCRanker(**SMALL).fit(X, Y + 0.5, qid=QID)
    assert model.objective_ == "regression"


def test_auto_is_regression_for_the_methods_of_the_paper():
    for options in ({"method": "paper"}, {"weak_learners": "identity", "n_weak_learners": None}):
        assert fit(**options).objective_ == "regression"


def test_auto_is_regression_where_samples_teach():
    assert fit(method=Experts(rows_per_fit=300)).objective_ == "regression"


def test_a_frontier_chooses_the_objective_once_and_a_checkpoint_remembers_it(tmp_path, monkeypatch):
    chosen = []
    find = ChainGrower._for_objective

    def counted(self, *given):
        chosen.append(find(self, *given))
        return chosen[-1]

    monkeypatch.setattr(ChainGrower, "_for_objective", counted)
    estimator = CSTCRanker(**SMALL, objective="lambdarank", at=3)
    frontier = Frontier(estimator, n_weights=4, checkpoint=tmp_path / "checkpoint").fit(X, Y, qid=QID)
    assert len(chosen) == 1
    assert isinstance(chosen[0], Boosting)
    assert isinstance(chosen[0].lambdarank, Lambdarank)
    again = Frontier(clone(estimator), n_weights=4, checkpoint=tmp_path / "checkpoint").fit(X, Y, qid=QID)
    assert len(chosen) == 1
    for one in (frontier, again):
        assert {model.objective_ for model in one.tried_models_} == {"lambdarank"}
    json.dumps(frontier.models_[0]._state())


# -- places ----------------------------------------------------------------------------------------------------------


def test_the_score_looks_at_the_places_that_the_ranker_was_asked_for():
    model = fit(at=2)
    predicted = model.predict(X)
    assert model.score(X, Y, qid=QID) == ndcg(Y, predicted, QID, 2)
    assert model.score(X, Y, qid=QID, k=7) == ndcg(Y, predicted, QID, 7) != model.score(X, Y, qid=QID)


def test_a_frontier_is_judged_at_these_places():
    test_X, test_y, test_qid = queries(seed=1)
    frontier = Frontier(CSTCRanker(**SMALL, at=2), n_weights=3).fit(
        X, Y, qid=QID, X_val=test_X, y_val=test_y, qid_val=test_qid
    )
    assert frontier.quality_name_ == "NDCG@2"
    for model, row in zip(frontier.models_, frontier.table_, strict=True):
        assert row["validation_quality"] == pytest.approx(ndcg(test_y, model.predict(test_X), test_qid, 2))


def test_names_of_qualities_tell_their_places():
    assert [places_of(name) for name in ("NDCG@1", "NDCG@25", "NDCG@0", "NDCG@", "AUC")] == [1, 25, None, None, None]
    name, quality = quality_of(None, CSTCRanker(at=7))
    assert name == "NDCG@7"
    assert type(quality) is type(quality_named("NDCG@3"))
    assert quality_named("mine") is None


@pytest.mark.parametrize("share", [0.0, 0.9])
def test_what_places_are_worth_reaches_the_gates(share, monkeypatch):
    """Where a place decides something of what an error weighs, the places that count change what is bought."""
    monkeypatch.setattr("cstc.experts.method.PLACED", share)
    at_one, at_all = (fit(at=at, objective="regression", cost_weight=0.01) for at in (1, 12))
    assert np.array_equal(at_one.predict_cost(X), at_all.predict_cost(X)) == (share == 0.0)


def test_workers_boost_for_the_order_of_documents_too(tmp_path):
    """Who grows the ensembles knows the queries, and the model is the same."""
    ranker = CSTCRanker(**SMALL, objective="lambdarank", cost_weight=1e-3)
    here = clone(ranker).fit(X, Y, qid=QID)
    with ThreadPoolExecutor(2) as executor:
        there = clone(ranker).fit(X, Y, qid=QID, executor=executor, scratch=tmp_path)
    assert there.objective_ == "lambdarank"
    np.testing.assert_array_equal(there.predict(X), here.predict(X))
    np.testing.assert_array_equal(there.predict_cost(X), here.predict_cost(X))
