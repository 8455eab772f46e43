"""Two models and a coin for each row: the same coin everywhere, a mean that is met, and all that a model does."""

import json
import pickle
import re
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cstc
from builders import PROPERTY, seeds
from cstc import CSTCClassifier, Experts, Mixture
from cstc.model.coins import coin, coins, turn
from cstc.model.mixture import share_for
from cstc.serving import OnDemandPredictor, Session, extractor
from cstc.serving.mixture import compile_model
from model_files import random_mixture, random_model, random_rows

PRICES = [1.0, 2.0, 4.0, 8.0, 16.0]
IDS = [f"patient {k}" for k in range(300)]


def error(message, kind=ValueError):
    return pytest.raises(kind, match=re.escape(message))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    return X, (X.sum(axis=1) + 0.3 * rng.normal(size=300) > 0).astype(int)


@pytest.fixture(scope="module")
def trees(data):
    options = {"n_weak_learners": 20, "method": Experts(folds=2), "random_state": 0, "n_jobs": 1}
    fits = [CSTCClassifier(costs=PRICES, cost_weight=weight, **options).fit(*data) for weight in (0.03, 0.001)]
    return [fit.model_ for fit in fits]


@pytest.fixture(scope="module")
def mixture(trees):
    return Mixture(*trees, share=0.4, seed=3)


# -- coins ---------------------------------------------------------------------------------------------------------


def test_coins_are_the_same_in_every_process():
    told = [coin(7, "a"), coin(7, "ä"), coin(0, 12), turn(3, 5), coins(3, None, 9).tolist()]
    program = (
        "import json; from cstc.model.coins import coin, coins, turn; "
        "print(json.dumps([coin(7, 'a'), coin(7, 'ä'), coin(0, 12), turn(3, 5), coins(3, None, 9).tolist()]))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == told
    assert coins(3, None, 9).tolist() == [turn(3, k) for k in range(9)]
    assert coins(3, ["a", 2], 2).tolist() == [coin(3, "a"), coin(3, 2)]


def test_a_number_is_one_id_whatever_its_type():
    expected = coin(1, 17)
    assert {coin(1, "17"), coin(1, 17.0), coin(1, np.int64(17)), coin(1, np.float32(17)), coin(1, np.str_("17"))} == {
        expected
    }
    by_series = coins(1, pd.Series([17, 18], index=[5, 3]), 2)
    assert by_series.tolist() == [coin(1, 17), coin(1, 18)]
    assert coin(1, 17.5) != expected
    assert coin(2, 17) != expected


@PROPERTY
@given(seeds, st.floats(0, 1))
def test_coins_are_spread_evenly(seed, share):
    n = 2000
    by_id = (coins(seed, range(n), n) < share).mean()
    assert abs(by_id - share) < 5 * np.sqrt(share * (1 - share) / n) + 1e-9  # as by chance
    for start in (0, 371):  # in turn: of any rows in a row, up to a few
        n_up = (coins(seed, None, start + 200)[start:] < share).sum()
        assert abs(n_up - 200 * share) <= 4


# -- which model answers -------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::cstc.UnseenValueWarning")
@PROPERTY
@given(seeds)
def test_each_row_is_answered_by_one_of_both(seed):
    rng = np.random.default_rng(seed)
    mixture = random_mixture(rng)
    X = random_rows(rng, mixture, n=30)
    ids = [f"row {k}" for k in rng.integers(10**6, size=30)]
    for given_ids in (None, ids):
        up = mixture.takes_costlier(30, given_ids)
        assert up.tolist() == [c < mixture.share for c in coins(mixture.seed, given_ids, 30)]
        own = {} if given_ids is None else {"ids": given_ids}
        margins, cost = mixture.decision_and_cost(X, **own)
        for k, tree in enumerate(mixture.trees):
            at = up == bool(k)
            expected = tree.decision_and_cost(X)
            assert np.array_equal(margins[at], expected[0][at], equal_nan=True)
            assert np.array_equal(cost[at], expected[1][at])
            assert np.array_equal(mixture.predict(X, **own)[at], tree.predict(X)[at], equal_nan=tree.link == "identity")
            assert np.array_equal(mixture.bought_items(X, **own)[at], tree.bought_items(X)[at])
            shift = k * mixture.cheaper.n_terminals
            assert np.array_equal(mixture.apply(X, **own)[at], tree.apply(X)[at] + shift)
            budget = float(rng.random() * 3)
            within = mixture.predict_cost(X, budget=budget, **own)
            assert np.array_equal(within[at], tree.predict_cost(X, budget=budget)[at])
        assert np.array_equal(mixture.decision_function(X, **own), margins, equal_nan=True)


@PROPERTY
@given(seeds, st.floats(0, 1))
def test_the_mean_is_met_in_expectation(trees, data, seed, part):
    """Over seeds of the coins, for any rows: by ids as chance has it, and in turn nearly exactly."""
    X = data[0]
    costs = [tree.predict_cost(X) for tree in trees]
    low, high = costs[0].mean(), costs[1].mean()
    target = low + part * (high - low)
    share = share_for(target, low, high)
    assert (1 - share) * low + share * high == pytest.approx(target)
    found = []
    for k in range(40):
        mixture = Mixture(*trees, share=share, seed=(seed + k) % 2**31)
        up = mixture.takes_costlier(len(X), IDS)
        found.append(np.where(up, costs[1], costs[0]).mean())
    spread = np.sqrt(share * (1 - share) * ((costs[1] - costs[0]) ** 2).sum()) / len(X)  # of one draw
    assert abs(np.mean(found) - target) <= 5 * spread / np.sqrt(40) + 1e-9


def test_a_row_takes_the_same_model_everywhere(mixture, data, tmp_path):
    X = data[0]
    mixture.save(tmp_path / "mixture.cstc")
    loaded = cstc.load(tmp_path / "mixture.cstc")
    up = mixture.takes_costlier(300, IDS)
    assert 90 < up.sum() < 150
    expected = mixture.predict_cost(X, ids=IDS)
    assert np.array_equal(loaded.predict_cost(X, ids=IDS), expected)
    travelled = pickle.loads(pickle.dumps(loaded))
    assert np.array_equal(travelled.predict_cost(X, ids=IDS), expected)

    @extractor(provides=mixture.schema.feature_names, instant=True)
    def table(row):
        return X[IDS.index(row) if isinstance(row, str) else row[0]]

    with OnDemandPredictor(loaded, [table]) as predictor:
        by_key = [predictor.predict(name).cost for name in IDS[:60]]
        by_id = [predictor.predict([k], id=IDS[k]).cost for k in range(60)]
        many = [answer.cost for answer in predictor.predict_many([[k] for k in range(60)], ids=IDS[:60])]
        assert by_key == by_id == many == pytest.approx(expected[:60])
        counted = predictor.counters.as_dict()
        assert counted["answers"] == 180
        assert max(path["terminal"] for path in counted["paths"]) < loaded.n_terminals
        n_up = sum(p["answers"] for p in counted["paths"] if p["terminal"] >= loaded.cheaper.n_terminals)
        assert n_up == 3 * up[:60].sum()
        assert counted["drift"]["training_spend"] == pytest.approx(mixture.training.mean_cost)


def test_rows_without_an_id_take_turns_on_demand(mixture, data):
    X = data[0]

    @extractor(provides=mixture.schema.feature_names, instant=True)
    def table(row):
        return X[row[0]]

    fresh = replace(mixture)  # its numbers begin at 0
    with OnDemandPredictor(fresh, [table]) as predictor:
        costs = [predictor.predict([k]).cost for k in range(30)]
        costs += [answer.cost for answer in predictor.predict_many([[k] for k in range(30, 60)])]
    assert costs == pytest.approx(mixture.predict_cost(X[:60]))
    with error("ids must have one entry for each of the 2 rows; it has 1"):
        OnDemandPredictor(fresh, [table]).predict_many([[0], [1]], ids=["a"])


def test_a_session_takes_an_id(mixture, data):
    for name in IDS[:20]:
        session = Session(mixture, id=name)
        which, why = mixture.tree_for(name)
        assert session.wanted() == Session(mixture.trees[which]).wanted()
        assert session.answer().taken == why
    assert Session(mixture.cheaper, id="anything").answer().taken == ""
    with error("id is nan; a row needs a text or a number of its own"):
        Session(mixture, id=float("nan"))
    assert compile_model(mixture) is compile_model(mixture)


# -- why -----------------------------------------------------------------------------------------------------------


def test_the_explanation_begins_with_the_model_that_the_row_takes(mixture, data):
    X = data[0]
    for k in range(12):
        up = mixture.takes_costlier(300, IDS)[k]
        explanation = mixture.explain(X[k], id=IDS[k])
        assert explanation.cost == pytest.approx(mixture.predict_cost(X, ids=IDS)[k])
        which, part = ("more expensive", "40.0%") if up else ("cheaper", "60.0%")
        first = f"Of two models this row takes the {which} one, as {part} of all rows do: the coin that was drawn from"
        text = " ".join(str(explanation).split())
        assert text.startswith(f"{first} its id, '{IDS[k]}', is {coin(3, IDS[k]):.4f}")
        assert explanation.to_dict()["taken"] == explanation.taken
        assert first in explanation.to_html()
        assert json.loads(explanation.to_json())["taken"].startswith(first)
    by_number = mixture.explain(X[5], number=5)
    assert by_number.cost == pytest.approx(mixture.predict_cost(X)[5])
    assert f"its number, 5, is {turn(3, 5):.4f}" in by_number.taken
    assert "taken" not in mixture.cheaper.explain(X[0]).to_dict()


def test_importance_is_a_mean_over_the_rows_of_both(mixture, data):
    X, y = data
    up = mixture.takes_costlier(300, IDS)
    table = {row["item"]: row for row in mixture.item_importance(X, y, ids=IDS)}
    parts = [
        {row["item"]: row for row in tree.item_importance(X[up == k], y[up == k])}
        for k, tree in enumerate(mixture.trees)
    ]
    bought = mixture.bought_items(X, ids=IDS).mean(axis=0)
    for j, name in enumerate(mixture.costs.item_names):
        if name in table:
            assert table[name]["bought"] == pytest.approx(bought[j])
            saved = [(up == k).mean() * part[name]["loss_saved"] for k, part in enumerate(parts) if name in part]
            assert table[name]["loss_saved"] == pytest.approx(sum(saved))
            errors = [(up == k).mean() * part[name]["loss_saved_error"] for k, part in enumerate(parts) if name in part]
            assert table[name]["loss_saved_error"] == pytest.approx(np.hypot(*errors) if errors[1:] else errors[0])
    assert sum(row["spent"] for row in table.values()) == pytest.approx(mixture.predict_cost(X, ids=IDS).mean())
    spent = [row["spent"] for row in mixture.item_importance(X, y, ids=IDS)]
    assert spent == sorted(spent, reverse=True)
    with error("y has shape (3,); X has 300 rows"):
        mixture.item_importance(X, y[:3])
    with error("X has no rows"):
        mixture.item_importance(X[:0])


# -- other prices and limits ---------------------------------------------------------------------------------------


def test_other_prices_and_limits_hold_for_both(mixture, data):
    X = data[0]
    other = mixture.with_costs([5.0, 4.0, 3.0, 2.0, 1.0])
    np.testing.assert_allclose(other.predict_cost(X, ids=IDS), mixture.bought_items(X, ids=IDS) @ [5.0, 4, 3, 2, 1])
    limited = mixture.with_limit(4)
    assert limited.limit == 4.0
    assert limited.predict_cost(X).max() <= 4
    assert np.array_equal(limited.predict_cost(X, ids=IDS), mixture.predict_cost(X, budget=4, ids=IDS))
    assert limited.with_limit(None).limit is None
    down = mixture.predict_cost(X, unavailable=["x0"], ids=IDS)
    up = mixture.takes_costlier(300, IDS)
    assert np.array_equal(down[up], mixture.costlier.predict_cost(X, unavailable=["x0"])[up])


def test_what_both_know_of_training_is_mixed(mixture, tmp_path):
    first, second = (tree.training for tree in mixture.trees)
    assert mixture.training.mean_cost == pytest.approx(0.6 * first.mean_cost + 0.4 * second.mean_cost)
    assert mixture.training.reached.sum() == pytest.approx(1)
    assert len(mixture.training.reached) == mixture.n_terminals == len(mixture.terminal_costs())
    assert mixture.training.rows == 300
    mixture.save(tmp_path / "m.cstc", trained="2026-11-16")
    assert cstc.load(tmp_path / "m.cstc").training.trained == "2026-11-16"
    assert mixture.with_limit(4).training.mean_cost is None
    assert repr(mixture).startswith("<Mixture: 60.0% of rows take <FittedTree: ")
    assert "60.0% take the first of two models and 40.0% the other" in mixture._repr_html_()


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), "half", True])
def test_what_is_no_share(trees, share):
    with error(f"share is {share!r}; it must be a number from 0 to 1"):
        Mixture(*trees, share=share)


@pytest.mark.parametrize("seed", [-1, 0.5, "x", True, 2**60])
def test_what_is_no_seed(trees, seed):
    with error(f"seed is {seed!r}; it must be a whole number from 0 to"):
        Mixture(*trees, share=0.5, seed=seed)


def test_models_that_do_not_belong_together(trees, data):
    cheaper, costlier = trees
    with error("cheaper is a CSTCClassifier; a mixture is of two FittedTrees", TypeError):
        Mixture(CSTCClassifier(), costlier, share=0.5)
    with error("the two models of a mixture must have the same prices"):
        Mixture(cheaper.with_costs(np.ones(5)), costlier, share=0.5)
    with error("the two models of a mixture must have the same limit"):
        Mixture(cheaper.with_limit(3), costlier, share=0.5)
    renamed = replace(cheaper.schema, feature_names=list("abcde"))
    with error("the two models of a mixture must have the same columns"):
        Mixture(replace(cheaper, schema=renamed), costlier, share=0.5)
    other = replace(cheaper.schema, classes=np.array(["no", "yes"]))
    with error("the two models of a mixture must have the same classes"):
        Mixture(replace(cheaper, schema=other), costlier, share=0.5)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ("abc", "ids is 'abc'; give one id for each row"),
        (7, "ids is 7; give one id for each row"),
        (["a", "b"], "ids has 2 entries, X has 3 rows; give one for each row"),
        (["a", None, "c"], "ids has None for row 1; each row needs a text or a number of its own"),
        ([1.0, 2.0, float("nan")], "ids has nan for row 2"),
    ],
)
def test_what_are_no_ids(mixture, data, ids, message):
    with error(message):
        mixture.predict(data[0][:3], ids=ids)


def test_numbers_have_no_probabilities():
    mixture = random_mixture(np.random.default_rng(0), "identity")
    with error("predict_proba needs a classifier"):
        mixture.predict_proba(np.zeros((1, len(mixture.schema.feature_names))))


def test_a_plain_model_takes_ids_too_and_all_rows_take_it():
    """Whoever loads a file need not know whether a mixture is in it."""
    rng = np.random.default_rng(4)
    model = random_model(rng, "logistic")
    X = random_rows(rng, model, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for ask in (model.predict, model.predict_proba, model.predict_cost, model.apply, model.bought_items):
            np.testing.assert_array_equal(ask(X, ids=list("abcde")), ask(X))
            with pytest.raises(ValueError, match="ids has 2 entries, X has 5 rows"):
                ask(X, ids=["a", "b"])
