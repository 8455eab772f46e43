"""Sources that fail while a row is served: it goes on without them, what was called is paid, and nothing twice."""

import asyncio
import threading

import numpy as np
import pytest

from cstc import CSTCRegressor
from cstc.costs import CostModel
from cstc.serving import OnDemandPredictor, Session, extractor
from serving.outages import (
    Market,
    check_bill,
    random_budget,
    random_worlds,
    same_answer,
    serve,
    table_for,
    told_rows,
    trained_models,
)
from serving.worlds import chain_model


@pytest.fixture(scope="module")
def cases():
    """Models with rows, as the caller tells them."""
    X, models = trained_models()
    rng = np.random.default_rng(0)
    found = []
    for estimator in models.values():
        model = getattr(estimator, "model_", estimator)
        at = rng.choice(len(X), size=15, replace=False)
        table = table_for(model, X[at])
        found.append((model, table, told_rows(model, table)))
    found += [(world.model, world.X, world.rows) for world in random_worlds(rng, 24)]
    return found


def down_at_random(rng, model):
    """One source of the model: its features."""
    names = model.schema.feature_names
    if model.estimates is None:
        return [str(rng.choice(names))]
    home = model.estimates.source_features[rng.integers(len(model.estimates.source_names))]
    return [names[j] for j in np.flatnonzero(home)]


def items_of(model, features):
    at = [model.schema.feature_names.index(name) for name in features]
    return {model.costs.item_names[r] for r in np.flatnonzero(model.costs.items_of(at))} if at else set()


@pytest.mark.parametrize("prefetch", ["branch", "node"])
def test_a_failure_is_an_outage_and_the_price_of_the_calls(cases, prefetch):
    rng = np.random.default_rng(1)
    failed = same_path = 0
    for model, _, rows in cases:
        for _ in range(3):
            down = down_at_random(rng, model)
            for told in rows[:8]:
                session = Session(model, prefetch=prefetch)
                answer, asked = serve(session, told, down)
                check_bill(model, answer)
                known, _ = serve(Session(model, prefetch=prefetch, unavailable=asked_down(model, asked, down)), told)
                if not set(asked) & set(down):
                    assert answer.status == "complete"
                    continue
                if answer.status == "complete":  # fetched ahead, and no branch came there
                    assert prefetch == "node"
                    continue
                failed += 1
                assert (answer.status, answer.reason) == ("failed", "down")
                same_answer(answer, known.margins, answer.cost)
                assert answer.path == known.path
                assert answer.expected_loss == known.expected_loss
                assert answer.basis == known.basis.replace("unavailable", "failed")
                if prefetch == "branch":
                    assert set(answer.items) == set(known.items) | items_of(model, asked)
                    if items_of(model, set(asked) - set(down)) <= set(known.items):
                        extra = model.costs.bill(failed_only(model, answer, known))
                        assert answer.cost == pytest.approx(known.cost + extra, rel=1e-12)
                        same_path += 1
    assert failed > 100
    assert prefetch == "node" or same_path > 50


def asked_down(model, asked, down):
    """What a failure takes with it: the feature itself, and what comes from its source."""
    return down if model.estimates is not None else [name for name in down if name in asked]


def failed_only(model, answer, known):
    return np.array([name in answer.items and name not in known.items for name in model.costs.item_names])


@pytest.mark.parametrize("prefetch", ["branch", "node"])
def test_whatever_fails_and_comes_late_no_budget_is_exceeded(cases, prefetch):
    rng = np.random.default_rng(2)
    late = failed = 0
    for model, _, rows in cases:
        for told in rows:
            budget = random_budget(rng, model)
            names = model.schema.feature_names
            down = [name for name in names if rng.random() < 0.4]
            known = {name: told[name] for name in names if rng.random() < 0.1}
            paid = [item for item in model.costs.item_names if rng.random() < 0.1]
            session = Session(model, budget=budget, prefetch=prefetch, known=known, paid=paid)
            answer, asked = serve(session, told, down, rng)
            check_bill(model, answer, budget)
            assert not set(asked) & set(known)
            assert set(answer.items) == items_of(model, asked) - set(paid)
            late += any(entry.get("outcome") == "ok" for entry in answer.trail[-1:])
            failed += answer.status == "failed"
    assert late > 5
    assert failed > 50


def test_a_predictor_pays_each_source_once_whatever_fails(cases):
    rng = np.random.default_rng(3)
    statuses = set()
    for model, _, rows in cases:
        down = [name for name in model.schema.feature_names if rng.random() < 0.35]
        budget = random_budget(rng, model)
        for batch in (False, True):
            market = Market(model, rows, down)
            with market.predictor as predictor:
                if batch:
                    answers = predictor.predict_many(range(len(rows)), budget=budget)
                else:
                    answers = [predictor.predict(i, budget=budget) for i in range(len(rows))]
                assert len(set(market.calls)) == len(market.calls)
                for i, answer in enumerate(answers):
                    check_bill(model, answer, budget)
                    statuses.add(answer.status)
                    broken = [group for group in market.groups if not set(group).isdisjoint(down)]
                    told = serve_groups(Session(model, budget=budget), rows[i], broken, market.groups)
                    same_answer(answer, told.margins, told.cost)
                    assert (answer.status, answer.items) == (told.status, told.items)
        again = Market(model, rows, down)
        with again.predictor as predictor:
            answer = asyncio.run(predictor.apredict(0, budget=budget))
            same_answer(answer, answers[0].margins, answers[0].cost)
    assert {"complete", "failed", "budget"} <= statuses


def serve_groups(session, told, broken, groups):
    """Ask and tell as a predictor does: a source gives all that it has, and one that failed is not asked again."""
    dead = {name for group in broken for name in group}
    failed = set()
    while wanted := session.wanted():
        good = {}
        for group in groups:
            if not set(group).isdisjoint(wanted) and set(group).isdisjoint(dead):
                good |= {name: told[name] for name in group}
        bad = [name for name in wanted if name in dead]
        mine = {tuple(group): [name for name in bad if name in group] for group in broken}
        if good:
            session.receive(*_asked(session, good, wanted), None, None)
        for group, names in mine.items():
            if names:
                session.receive_failure(_columns(session, names), "down", None, None, charged=group not in failed)
                failed.add(group)
        session.resume()
    return session.answer()


def _columns(session, names):
    return tuple(session.feature_names.index(name) for name in names)


def _asked(session, good, wanted):
    got = dict(zip(_columns(session, good), good.values(), strict=True))
    return tuple(f for f in _columns(session, wanted) if f in got), got


def test_an_outage_that_is_known_is_not_paid(cases):
    rng = np.random.default_rng(4)
    spared = 0
    for model, _, rows in cases:
        down = down_at_random(rng, model)
        market = Market(model, rows, down)
        with market.predictor as predictor:
            for i in range(len(rows)):
                market.calls.clear()
                known = predictor.predict(i, unavailable=down)
                dead = {group[0] for group in market.groups if not set(group).isdisjoint(down)}
                assert dead.isdisjoint(name for _, name in market.calls)
                paid_for = [f for entry in known.trail if entry["event"] == "bought" for f in entry["features"]]
                assert set(known.items) == items_of(model, paid_for)
                assert not set(paid_for) & set(down)
                spared += known.status == "unavailable"
    assert spared > 50


@pytest.mark.parametrize("many", [False, True])
def test_a_deadline_after_a_failure(many):
    """a fails, the row goes on without it, b is there at once, and c does not come in time."""
    never = threading.Event()

    def source(name, fetch, **options):
        return extractor(provides=[name], name=name, **options)(fetch)

    def broken(row):
        raise OSError("down")

    sources = [
        source("a", broken),
        source("b", lambda row: 2.0),
        source("c", lambda row: float(never.wait(5.0)), timeout=10.0),
    ]
    model = chain_model(CostModel({"a": 1.0, "b": 2.0, "c": 4.0}), ["a", "b", "c"], [["a"], ["b"], ["c"]])
    with OnDemandPredictor(model, sources) as predictor:
        answer = predictor.predict_many([0], deadline=0.1)[0] if many else predictor.predict(0, deadline=0.1)
        never.set()
    assert (answer.status, answer.cost, answer.value) == ("deadline", 7.0, 2.0)  # b, and the means of a and c
    assert answer.basis == "1 of 3 features: a failed, the deadline came"
    assert "a" in answer.items  # the call that failed is paid, and so is the one that was given up
    outcomes = [entry["outcome"] for entry in answer.trail if entry["event"] == "bought"]
    assert [outcome.split(":")[0] for outcome in outcomes] == ["failed", "ok", "failed"]


def test_models_without_columns_are_made_once_and_not_kept_without_end():
    rng = np.random.default_rng(5)
    model = next(random_worlds(rng, 1)).model
    made, wrong = {}, []

    def ask(seed):
        order = np.random.default_rng(seed).permutation(2**6 - 1) + 1
        for mask in order.tolist():
            gone = [j for j in range(6) if mask >> j & 1]
            found = model.without(gone)
            if found is not made.setdefault(mask, found):
                wrong.append(mask)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 63
    assert not wrong
    assert model.without([]) is model


def test_an_extractor_can_be_named_as_down():
    """Its name stands for what it provides; nothing of it is called."""
    X = np.random.default_rng(0).normal(size=(400, 5))
    model = CSTCRegressor(costs=[1.0, 1.0, 2.0, 3.0, 4.0], cost_weight=0.001, n_weak_learners=10, random_state=0)
    model, rows = model.fit(X, X[:, 0] + X[:, 2] * X[:, 4]).model_, X.tolist()
    names = model.schema.feature_names
    calls = []

    def source(name, provides):
        return extractor(provides=provides, name=name)(
            lambda row: calls.append(name) or {each: rows[row][names.index(each)] for each in provides}
        )

    with OnDemandPredictor(model, [source("clinic", names[:2]), source("laboratory", names[2:])]) as predictor:
        one = predictor.predict(0, unavailable=["clinic"])
        many = predictor.predict_many([0, 1], unavailable=["clinic"])
        other = predictor.predict(0, unavailable=names[:2])
        with pytest.raises(ValueError, match="unavailable names 'kitchen', which is no source"):
            predictor.predict(0, unavailable=["kitchen"])
    assert "clinic" not in calls
    assert (one.value, one.cost) == (other.value, other.cost) == (many[0].value, many[0].cost)
