"""Choosing by percentiles and hard limits, holes in a frontier, and what fills them."""

import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score

import cstc
from builders import PROPERTY, seeds
from cstc import CostModel, CSTCClassifier, CSTCRanker, CSTCRegressor, Experts, Frontier, Mixture
from cstc.baselines import CEGB, EarlyExit
from cstc.experts.method import Experts as Method
from cstc.frontier import _refine as module
from cstc.frontier._budgets import NEAR
from cstc.frontier._evidence import Known, Point
from cstc.frontier._refine import FINEST, MOST_FITS, bisect

QUICK = {"n_weak_learners": 10, "method": Experts(folds=2), "random_state": 0, "n_jobs": 1}
PRICES = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]


def error(message, kind=ValueError):
    return pytest.raises(kind, match=re.escape(message))


@pytest.fixture(scope="module")
def data():
    X, y = make_classification(500, 6, n_informative=5, n_redundant=0, random_state=1)
    return {"X": X[:300], "y": y[:300], "X_val": X[300:400], "y_val": y[300:400]}, X[400:], y[400:]


@pytest.fixture(scope="module")
def frontier(data):
    return Frontier(CSTCClassifier(costs=PRICES, **QUICK), n_weights=12).fit(**data[0])


def holed(**options):
    """Two features, of which one says all and costs 16: nothing lies between free and 16."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = (X[:, 1] + 0.3 * rng.normal(size=400) > 0).astype(int)
    given = {"X": X[:250], "y": y[:250], "X_val": X[250:], "y_val": y[250:]}
    options = {"n_weights": 5} | options
    return Frontier(CSTCClassifier(costs=CostModel([0.0, 16.0]), **QUICK), **options).fit(**given), given


# -- percentiles and limits ----------------------------------------------------------------------------------------


def test_best_for_a_percentile(frontier):
    table = frontier.tried_
    for most in sorted({row["p95_cost"] for row in table} | {5.0, 20.0, 1e9}):
        within = [row for row in table if row["p95_cost"] <= most]
        model = frontier.best(p95_cost=most)
        row = table[frontier.tried_models_.index(model)]
        assert row["p95_cost"] <= most
        assert row["quality"] == max(each["quality"] for each in within)


def test_a_percentile_that_no_model_has(data):
    rows = data[0]
    costs = [4.0, 4.0, 4.0, 8.0, 16.0, 32.0]
    found = CEGB(task="classification", costs=costs, n_weak_learners=10, random_state=0, n_jobs=1)
    found = found.frontier(**rows, values=[1e-6])
    with pytest.warns(UserWarning, match=r"no model has a 95th percentile of the cost of 1 or less; this is the one"):
        assert found.best(p95_cost=1) is found.tried_models_[0]


@pytest.mark.parametrize("limit", [0, 1.0, 3.5, 10, 30, 1000])
def test_best_within_a_hard_limit(frontier, data, limit):
    """Enumerated: every model under the limit, on the validation rows; and no new row pays more."""
    rows, X, _ = data
    best = frontier.best(max_cost=limit)
    assert best.model_.limit == float(limit)
    qualities = []
    for model in frontier.tried_models_:
        shares = model.predict_proba(rows["X_val"], budget=limit)[:, 1]
        qualities.append(roc_auc_score(rows["y_val"], shares))
    assert roc_auc_score(rows["y_val"], best.predict_proba(rows["X_val"])[:, 1]) == pytest.approx(max(qualities))
    assert best.predict_cost(X).max() <= limit
    assert best.predict_cost(rows["X"]).max() <= limit
    assert frontier.models_[-1].model_.limit is None


def test_a_limit_goes_where_the_model_goes(frontier, data, tmp_path):
    best = frontier.best(max_cost=7)
    best.save(tmp_path / "model.cstc")
    assert cstc.load(tmp_path / "model.cstc").predict_cost(data[1]).max() <= 7


def test_limits_of_numbers_and_of_rankings():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    y = X @ [1.0, 0.9, 0.8, 0.7, 0.6, 0.5] + rng.normal(scale=0.5, size=400)
    found = Frontier(CSTCRegressor(costs=PRICES, **QUICK), n_weights=6, quality="neg_mean_absolute_error").fit(X, y)
    assert found.best(max_cost=6).predict_cost(X).max() <= 6
    qid = np.arange(400) // 8
    grades = np.clip(np.round(y + 2), 0, 4)
    found = Frontier(CSTCRanker(costs=PRICES, **QUICK), n_weights=6).fit(X, grades, qid=qid)
    assert found.best(max_cost=6).predict_cost(X).max() <= 6


def test_limits_of_other_systems(data):
    rows, X, _ = data
    options = {"costs": PRICES, "n_weak_learners": 10, "random_state": 0, "n_jobs": 1}
    found = CEGB(task="classification", **options).frontier(**rows, n_points=4)
    best = found.best(max_cost=9)
    assert best.predict_cost(X).max() <= 9
    assert best.model_.limit == 9.0
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    found = EarlyExit(task="ranking", **options).frontier(
        X, np.clip(np.round(X[:, 0] + 1), 0, 4), qid=np.arange(200) // 10, n_points=2
    )
    with error("EarlyExit takes no limit: who leaves is decided by all documents of a query"):
        found.best(max_cost=9)


def test_the_picture_marks_what_best_gives(frontier):
    for asked in ({"p95_cost": 20.0}, {"max_cost": 10.0}, {"mean_cost": frontier.table_[2]["mean_cost"]}):
        display = frontier.plot(**asked)
        assert display.chosen is not None
        cost, quality = display.chosen
        assert cost <= max(asked.values())
        assert quality <= 1.0
    with error("give one of mean_cost=, p95_cost=, max_cost= and quality="):
        frontier.plot(p95_cost=3, max_cost=3)


# -- holes ---------------------------------------------------------------------------------------------------------


def test_best_says_where_there_is_a_hole():
    found, _ = holed()
    costs = found.table_.column("mean_cost")
    assert costs[0] == 0
    assert costs[1] > 10
    message = r"is below the .* of the cheapest .*; this is the free one; refine\(X, y, \.\.\., mean_cost=8\) fits more"
    with pytest.warns(UserWarning, match=message):
        assert found.best(mean_cost=8) is found.models_[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.best(mean_cost=costs[1])
        found.best(mean_cost=1e9)  # nothing is more expensive
        found.best(mean_cost=0)


def test_a_hole_between_two_models_that_buy(frontier):
    costs = frontier.table_.column("mean_cost")
    for at in range(1, len(costs) - 1):
        asked = costs[at] + 0.95 * (costs[at + 1] - costs[at])
        if costs[at] < NEAR * asked:
            message = re.escape(f"no model lies between the mean costs {costs[at]:.4g} and {costs[at + 1]:.4g}")
            with pytest.warns(UserWarning, match=message):
                assert frontier.best(mean_cost=asked) is frontier.models_[at]
            break
    else:
        pytest.fail("this frontier has no hole")


def test_a_mixture_fills_a_hole_that_no_weight_lies_in():
    found, given = holed()
    n_before = len(found.tried_)
    assert found.refine(**given, mean_cost=8) is found
    assert len(found.tried_) <= n_before + MOST_FITS + 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = found.best(mean_cost=8)
    assert isinstance(model.model_, Mixture)
    row = found.table_[found.models_.index(model)]
    assert row["cost_weight"] is None
    assert row["mean_cost"] == pytest.approx(8)
    costs = [tree.predict_cost(given["X_val"]) for tree in model.model_.trees]
    share = model.model_.share
    assert (1 - share) * costs[0].mean() + share * costs[1].mean() == pytest.approx(8)
    assert row["max_cost"] == max(cost.max() for cost in costs)
    assert found.table_[0]["quality"] < row["quality"] < found.table_[-1]["quality"]
    assert model.predict_cost(given["X_val"]).mean() == pytest.approx(8, abs=0.5)
    assert model.cost_weight_[0] > model.cost_weight_[1]
    assert model.mean_cost_ == pytest.approx(8, abs=1)
    assert repr(found).startswith("<Frontier of CSTCClassifier")
    # once it is there, nothing is left to do; another one is added beside it
    table = found.table_
    assert found.refine(**given, mean_cost=8).table_ == table
    found.refine(**given, mean_cost=4)
    assert [row["mean_cost"] for row in found.table_ if row["cost_weight"] is None] == pytest.approx([4, 8])
    assert found.best(max_cost=3).predict_cost(given["X"]).max() <= 3


def test_weights_in_a_hole_are_found(data):
    rows, _, _ = data
    found = Frontier(CSTCClassifier(costs=PRICES, **QUICK), cost_weights=[0.0, 0.05]).fit(**rows)
    n_before = len(found.tried_)
    costs = found.tried_.column("mean_cost")
    asked = float(costs.max() / 3)
    found.refine(**rows, mean_cost=asked)
    new = [row for row in found.tried_ if row["cost_weight"] not in (None, 0.0, 0.05)]
    assert len(found.tried_) > n_before
    assert any(NEAR * asked <= row["mean_cost"] <= asked for row in new)


def test_refine_takes_the_rows_of_fit_alone():
    found, given = holed()
    table = found.table_
    message = "refine takes the rows that fit was given, with the same prices and parameters; here"
    with error(f"{message} 'data.X' is not the same"):
        found.refine(**given | {"X": given["X"] + 1e-9}, mean_cost=8)
    with error(f"{message} 'validation data.y' is not the same"):
        found.refine(**given | {"y_val": 1 - given["y_val"]}, mean_cost=8)
    found.estimator.set_params(costs=CostModel([0.0, 17.0]))
    with error(f"{message} 'costs.prices.x1' is not the same"):
        found.refine(**given, mean_cost=8)
    found.estimator.set_params(costs=CostModel([0.0, 16.0]), n_weak_learners=11)
    with error(f"{message} 'parameters.n_weak_learners' is not the same"):
        found.refine(**given, mean_cost=8)
    assert found.table_ == table
    with error("mean_cost is -1; give a number, 0 or more"):
        found.refine(**given, mean_cost=-1)
    with pytest.raises(NotFittedError):
        Frontier(CSTCClassifier()).refine(**given, mean_cost=8)


def test_rows_that_the_frontier_held_out_are_held_out_again():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = (X[:, 1] > 0).astype(int)
    options = QUICK | {"random_state": None}  # a number that was drawn stays drawn
    found = Frontier(CSTCClassifier(costs=[0.0, 16.0], **options), n_weights=4).fit(X, y)
    model = found.refine(X, y, mean_cost=8).best(mean_cost=8)
    assert NEAR * 8 <= found.table_[found.models_.index(model)]["mean_cost"] <= 8


def test_a_checkpoint_serves_refine_too(data, tmp_path, monkeypatch):
    rows, _, _ = data
    options = {"cost_weights": [0.0, 0.05], "checkpoint": tmp_path / "models"}
    found = Frontier(CSTCClassifier(costs=PRICES, **QUICK), **options).fit(**rows)
    asked = float(found.tried_.column("mean_cost").max() / 3)
    found.refine(**rows, mean_cost=asked)
    fits = []
    monkeypatch.setattr(Method, "train", lambda self, problem: fits.append(problem.cost_weight))
    again = Frontier(CSTCClassifier(costs=PRICES, **QUICK), **options).fit(**rows)
    again.refine(**rows, mean_cost=asked)
    assert not fits  # all of it was there
    assert again.tried_ == found.tried_
    assert again.table_ == found.table_


def test_refine_says_if_nothing_was_worth_it(monkeypatch):
    found, given = holed()
    worse = module.mixture_of

    def spoilt(*arguments):
        point = worse(*arguments)
        known = Known(0.0, np.zeros_like(point.known.draws), point.known.n)
        return Point(point.model, point.row | {"quality": 0.0}, known, known)

    monkeypatch.setattr("cstc.frontier._frontier.mixture_of", spoilt)
    with pytest.warns(UserWarning, match=r"nothing that was found around a mean cost of 8, not even a mixture"):
        found.refine(**given, mean_cost=8)
    assert [row["cost_weight"] for row in found.tried_].count(None) == 1
    assert all(row["cost_weight"] is not None for row in found.table_)


# -- the bisection, with costs that are made up --------------------------------------------------------------------


class MadeUp:
    """Fits of a curve from weights to costs, which fall in steps."""

    def __init__(self, steps, costs):
        self.steps, self.costs = steps, costs
        self.points, self.fitted = {}, []

    def __call__(self, weight):
        if weight not in self.points:
            self.fitted.append(weight)
            power = -np.inf if weight == 0 else np.log2(weight)
            cost = float(self.costs[np.searchsorted(self.steps, power)])
            row = {"cost_weight": weight, "mean_cost": cost, "quality": cost, "max_cost": cost}
            self.points[weight] = Point(SimpleNamespace(mean_cost_=cost), row, Known(cost, np.full(2, cost), 1.0))
        return self.points[weight]


@PROPERTY
@given(seeds, st.floats(0.5, 60))
def test_bisection_finds_what_lies_in_a_hole(seed, asked):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    steps = np.sort(rng.uniform(-12, -2, size=n))
    costs = np.sort(rng.uniform(0, 63, size=n + 1))[::-1]
    costs[0], costs[-1] = 63.0, 0.0
    is_steady = rng.random() < 0.5
    if not is_steady:
        costs[1:-1] *= rng.uniform(0.8, 1.25, size=n - 1)
    fits = MadeUp(steps, costs)
    for weight in (2.0**-13, 0.5):
        fits(weight)
    fits.fitted.clear()
    bisect(fits, asked)
    assert len(set(fits.fitted)) == len(fits.fitted) <= MOST_FITS
    tried = [point.cost for point in fits.points.values()]
    below, above = max(c for c in tried if c <= asked), min((c for c in tried if c > asked), default=np.inf)
    if is_steady and below < NEAR * asked and len(fits.fitted) < MOST_FITS:  # no wide step lies in a hole
        wide = np.concatenate([[True], np.diff(steps) > 2 * FINEST, [True]])
        assert not (wide & (costs > below) & (costs < above)).any()


def test_bisection_below_the_smallest_weight_ends_where_more_is_worth_nothing():
    fits = MadeUp(np.array([-3.0]), np.array([40.0, 0.0]))
    for weight in (0.125, 0.5):
        fits(weight)
    row = {"cost_weight": 0.0, "mean_cost": 63.0, "quality": 1.0, "max_cost": 63}
    fits.points[0.0] = Point(SimpleNamespace(), row, Known(1.0, np.ones(2), 1.0))
    fits.fitted.clear()
    bisect(fits, 60.0)
    assert len(fits.fitted) == 1
