"""A mean cost instead of a cost weight: which weight is found, and that the mean is met."""

import re
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import cstc
from builders import PROPERTY, seeds
from cstc import CostModel, CSTCClassifier, CSTCRanker, CSTCRegressor, Exact, Experts, Frontier, Mixture, Paper
from cstc.costs import ResolvedCosts
from cstc.estimators import _mean_cost as module
from cstc.estimators._mean_cost import FINEST, MOST_LOOKS, NEAR, STRIDES
from cstc.losses import SquaredLoss
from cstc.model.mixture import share_for
from cstc.progress import QUIET
from cstc.rows import Rows
from cstc.serving import OnDemandPredictor, extractor

PRICES = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
QUICK = {"n_weak_learners": 15, "method": Experts(folds=2), "random_state": 0, "n_jobs": 1}


def error(message, kind=ValueError):
    return pytest.raises(kind, match=re.escape(message))


def make_data(n=500, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    return X, X @ [1.0, 0.9, 0.8, 0.7, 0.6, 0.5] + rng.normal(scale=0.5, size=n)


X, Y = make_data()


def targets(estimator):
    if estimator is CSTCRegressor:
        return {"y": Y}
    if estimator is CSTCClassifier:
        return {"y": (Y > 0).astype(int)}
    return {"y": np.clip(np.round(Y + 2), 0, 4), "qid": np.arange(len(Y)) // 5}


# -- the search, with costs that are made up -----------------------------------------------------------------------


def problem(risk=1.0):
    """All that a search asks a problem for: rows whose constant has a risk, and prices from 1 to 32."""
    y = np.array([-1.0, 1.0]) * np.sqrt(risk)
    costs = ResolvedCosts([f"x{j}" for j in range(6)], np.array(PRICES), np.eye(6, dtype=bool), 0.0)
    rows, loss = Rows(np.zeros((2, 6)), y, np.ones(2)), SquaredLoss()
    return SimpleNamespace(costs=costs, rows=rows, loss=loss, stakes=loss, progress=QUIET, random_state=0)


@dataclass
class Curve:
    """A mean cost for each cost weight, and what becomes of it when the model is built."""

    steps: np.ndarray  # powers of two at which the cost falls
    costs: np.ndarray  # from the smallest weight on, one more than steps
    more: float = 1.0  # a model that is built costs so many times as much

    def __post_init__(self):
        self.looked, self.n_built = [], 0

    def cost(self, weight):
        power = -np.inf if weight == 0 else np.log2(weight)
        return float(self.costs[np.searchsorted(self.steps, power)])

    def preview(self, weight):
        self.looked.append(weight)

        def build():
            self.n_built += 1
            return f"model {weight!r}", self.more * self.cost(weight)

        return self.cost(weight), build


def found(curve, mean_cost):
    return module._Search(mean_cost, curve.preview, problem()).run()


def random_curve(rng, monotone=True):
    n = int(rng.integers(1, 12))
    steps = np.sort(rng.uniform(-14, -1, size=n))
    costs = np.sort(rng.uniform(0, 63, size=n + 1))[::-1]
    if not monotone:
        costs = costs * rng.uniform(0.8, 1.25, size=n + 1)
    costs[0], costs[-1] = 63.0, 0.0
    return Curve(steps, costs)


@PROPERTY
@given(seeds, st.floats(0.01, 62))
def test_the_neighbours_of_any_steady_curve_are_found(seed, mean_cost):
    """Enumerated: of all costs that the curve has, the next lower and the next higher one, unless one is near."""
    curve = random_curve(np.random.default_rng(seed))
    looks = found(curve, mean_cost)
    assert len(curve.looked) == len(set(curve.looked)) <= MOST_LOOKS
    assert all(look.trained == f"model {look.weight!r}" for look in looks)
    below = looks[0].cost
    assert below <= mean_cost
    if len(looks) == 1:
        assert below >= NEAR * mean_cost
        return
    # steps that lie nearer to each other than weights are told apart may be missed
    widths = np.diff(curve.steps)
    seen = np.concatenate([[True], widths > 2 * FINEST, [True]])
    between = (curve.costs > below) & (curve.costs < looks[1].cost) & (curve.costs != mean_cost)
    if len(curve.looked) < MOST_LOOKS:
        assert not (between & seen).any()
    share = share_for(mean_cost, below, looks[1].cost)
    assert (1 - share) * below + share * looks[1].cost == pytest.approx(mean_cost)


@PROPERTY
@given(seeds, st.floats(0.01, 62))
def test_a_curve_that_goes_up_and_down_still_meets_the_mean(seed, mean_cost):
    curve = random_curve(np.random.default_rng(seed), monotone=False)
    looks = found(curve, mean_cost)
    assert len(set(curve.looked)) == len(curve.looked) <= MOST_LOOKS
    assert looks[0].cost <= mean_cost * (1 + 1e-6)
    if len(looks) == 1:
        assert looks[0].cost >= NEAR * mean_cost
    else:
        assert looks[1].cost > mean_cost


def test_few_models_are_built():
    curve = random_curve(np.random.default_rng(1))
    looks = found(curve, 20.0)
    assert curve.n_built <= 2 < len(curve.looked)
    assert len(looks) <= 2


def test_a_model_that_costs_more_once_it_is_built_is_not_within():
    curve = Curve(np.arange(-14.0, -1.0, 0.25), np.linspace(63, 0, 53), more=1.1)
    looks = found(curve, 20.0)
    assert looks[0].cost <= 20
    assert looks[0].cost == pytest.approx(1.1 * curve.cost(looks[0].weight))
    assert looks[0].cost >= NEAR * 20 or looks[1].cost > 20


def test_the_whole_bill_and_nothing():
    curve = random_curve(np.random.default_rng(2))
    for mean_cost in (63.0, 63.0 * (1 - 1e-12), 1e6):
        curve.looked = []
        looks = found(curve, mean_cost)
        assert [look.weight for look in looks] == [0.0]
        assert curve.looked == [0.0]
    (look,) = found(curve, 0.0)
    assert look.cost == 0.0


def test_weights_beyond_all_risk_are_tried_where_the_largest_buys_still():
    curve = Curve(np.array([3.0]), np.array([63.0, 0.0]))  # free features single out rows with much risk
    (look,) = found(curve, 0.0)
    assert look.cost == 0.0
    assert look.weight > 2.0**3
    curve = Curve(np.zeros(0), np.array([63.0]))  # nothing is ever cheaper
    with pytest.warns(UserWarning, match=r"no cost weight has a mean cost of 5 or less; this is the cheapest model"):
        (look,) = found(curve, 5.0)
    assert look.cost == 63.0
    assert len(curve.looked) <= MOST_LOOKS + STRIDES


# -- with estimators -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [CSTCRegressor, CSTCClassifier, CSTCRanker])
@pytest.mark.parametrize("mean_cost", [0.5, 6.0, 25.0])
def test_a_mean_cost_is_met_on_new_rows(estimator, mean_cost):
    model = estimator(costs=PRICES, mean_cost=mean_cost, **QUICK).fit(X, **targets(estimator))
    new, _ = make_data(4000, seed=1)
    assert 0.8 * mean_cost < model.predict_cost(new).mean() < 1.1 * mean_cost
    assert model.mean_cost_ <= mean_cost * (1 + 1e-9)
    is_mixture = isinstance(model.model_, Mixture)
    assert isinstance(model.cost_weight_, tuple) == is_mixture
    assert len(model.predict(new)) == 4000


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (Paper(depth=2, max_iter=40), {"n_weak_learners": 10}),
        (Exact(depth=2, max_iter=60), {"weak_learners": "identity"}),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_other_methods_meet_it_on_rows_that_are_held_out(method, options):
    given_rows = {"X_val": X[350:], "y_val": Y[350:]}
    model = CSTCRegressor(costs=PRICES, mean_cost=20.0, method=method, random_state=0, n_jobs=1, **options)
    model.fit(X[:350], Y[:350], **given_rows)
    trees = model.model_.trees if isinstance(model.model_, Mixture) else (model.model_,)
    costs = [tree.predict_cost(X[350:]).mean() for tree in trees]
    if len(costs) == 1:
        assert NEAR * 20 <= costs[0] <= 20
    else:
        share = model.model_.share
        assert (1 - share) * costs[0] + share * costs[1] == pytest.approx(20)
        assert costs[0] < NEAR * 20 < 20 < costs[1]


def test_the_weight_that_is_found_gives_the_same_model_by_itself():
    """What fits share does not change them."""
    for mean_cost in (6.0, 25.0):
        model = CSTCRegressor(costs=PRICES, mean_cost=mean_cost, **QUICK).fit(X, Y)
        weights = model.cost_weight_ if isinstance(model.cost_weight_, tuple) else (model.cost_weight_,)
        trees = getattr(model.model_, "trees", (model.model_,))
        for weight, tree in zip(weights, trees, strict=True):
            alone = CSTCRegressor(costs=PRICES, cost_weight=weight, **QUICK).fit(X, Y)
            assert alone.cost_weight_ == weight
            assert np.array_equal(alone.predict(X), tree.predict(X))
            assert np.array_equal(alone.predict_cost(X), tree.predict_cost(X))


def hole(mean_cost=8.0, **options):
    """One feature that says all, and is all that can be bought: nothing lies between free and 16."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = (X[:, 1] > 0).astype(int)
    model = CSTCClassifier(costs=CostModel([0.0, 16.0]), mean_cost=mean_cost, **QUICK | options)
    return model.fit(X, y), X, y


def test_a_hole_is_filled_by_a_mixture():
    model, X, y = hole()
    assert isinstance(model.model_, Mixture)
    assert model.model_.share == pytest.approx(0.5, abs=0.02)
    assert model.predict_cost(X).mean() == pytest.approx(8, abs=0.2)
    assert 0.65 < model.score(X, y) < 0.85
    assert model.expected_cost_ == pytest.approx(8, abs=0.3)
    assert len(model.cost_weight_) == 2
    assert model.cost_weight_[0] > model.cost_weight_[1]
    assert sum(row.verdict == "taken" for row in model.candidates_) == 2
    ids = [f"row {k}" for k in range(len(X))]
    up = model.model_.takes_costlier(len(X), ids)
    assert np.array_equal(model.predict_cost(X, ids=ids), np.where(up, 16.0, 0.0))
    assert np.array_equal(model.predict(X, ids=ids)[up], y[up])
    assert np.array_equal(model.predict_proba(X, ids=ids)[up].argmax(axis=1), y[up])
    assert ((model.decision_function(X, ids=ids) > 0)[up] == y[up]).all()
    assert (model.apply(X, ids=ids) >= model.model_.cheaper.n_terminals).tolist() == up.tolist()
    assert "row 3" in model.explain(X[3], id="row 3").taken
    assert model.explain(X[7], number=7).cost == model.predict_cost(X)[7]
    (row,) = [row for row in model.item_importance(X, y, ids=ids) if row["item"] == "x1"]
    assert row["bought"] == pytest.approx(up.mean())


def test_a_mixture_of_an_estimator_is_saved_served_and_repriced(tmp_path):
    model, X, _ = hole()
    model.save(tmp_path / "model.cstc")
    loaded = cstc.load(tmp_path / "model.cstc")
    assert np.array_equal(loaded.predict_cost(X), model.predict_cost(X))

    @extractor(provides=["x0", "x1"], instant=True)
    def table(row):
        return X[int(row)]

    keys = [str(k) for k in range(50)]
    with OnDemandPredictor(model, [table]) as predictor:
        assert [predictor.predict(key).cost for key in keys] == model.predict_cost(X[:50], ids=keys).tolist()
    cheaper = model.with_costs([0.0, 4.0])
    assert cheaper.predict_cost(X).mean() == pytest.approx(2, abs=0.1)
    assert cheaper.expected_cost_ == pytest.approx(model.expected_cost_ / 4)
    assert model.with_limit(3).predict_cost(X).max() == 0.0
    assert "Of all rows" in model._repr_html_()


def test_a_mixture_has_no_picture_of_one_tree_but_its_explanations_have():
    plotting = pytest.importorskip("cstc.plotting")
    model, X, _ = hole()
    with error("this model is a mixture of two trees, and the picture is of one; draw that of an estimator with"):
        plotting.TreeDisplay.from_estimator(model, X)
    for k in range(6):
        display = plotting.ExplanationDisplay.from_estimator(model, X[k], number=k)
        assert display.explanation.cost == model.predict_cost(X)[k]
        display = plotting.ExplanationDisplay.from_estimator(model.model_, X[k], id=f"row {k}")
        assert f"row {k}" in display.explanation.taken


def test_the_full_and_the_free_model():
    y = (Y > 0).astype(int)
    full = CSTCClassifier(costs=PRICES, mean_cost=63, **QUICK).fit(X, y)
    assert full.cost_weight_ == 0.0
    alone = CSTCClassifier(costs=PRICES, cost_weight=0, **QUICK).fit(X, y)
    assert np.array_equal(full.predict_proba(X), alone.predict_proba(X))
    free = CSTCClassifier(costs=PRICES, mean_cost=0, **QUICK).fit(X, y)
    assert free.predict_cost(X).max() == 0.0
    unpaid = CSTCClassifier(costs=np.zeros(6), mean_cost=0, **QUICK).fit(X, y)
    assert unpaid.cost_weight_ == 0.0


def test_rows_count_by_their_weights_and_not_by_those_of_classes():
    y = (Y > 1.0).astype(int)
    model = CSTCClassifier(costs=PRICES, mean_cost=10, class_weight={0: 1, 1: 30}, **QUICK).fit(X, y)
    new, _ = make_data(4000, seed=1)
    assert 7 < model.predict_cost(new).mean() < 12
    weights = np.where(X[:, 0] > 0, 5.0, 0.2)
    model = CSTCClassifier(costs=PRICES, mean_cost=10, **QUICK).fit(X, y, sample_weight=weights)
    drawn = np.where(new[:, 0] > 0, 5.0, 0.2)
    assert 7 < np.average(model.predict_cost(new), weights=drawn) < 12.5


def test_ids_are_checked_where_one_model_answers_all_rows():
    model = CSTCRegressor(costs=PRICES, **QUICK).fit(X, Y)
    assert model.cost_weight_ == 0.01
    ids = [str(k) for k in range(len(X))]
    assert np.array_equal(model.predict(X, ids=ids), model.predict(X))
    with error("ids has 2 entries, X has 500 rows"):
        model.predict(X, ids=["a", "b"])


def test_the_default_weight_is_what_it_was():
    alone = CSTCRegressor(costs=PRICES, **QUICK).fit(X, Y)
    named = CSTCRegressor(costs=PRICES, cost_weight=0.01, **QUICK).fit(X, Y)
    assert np.array_equal(alone.predict_cost(X), named.predict_cost(X))


def test_what_does_not_go_together():
    with error("cost_weight is 0.1 and mean_cost is 5; give one of them"):
        CSTCRegressor(cost_weight=0.1, mean_cost=5, **QUICK).fit(X, Y)
    with error("mean_cost of the estimator is 5, and a Frontier fits all cost weights itself"):
        Frontier(CSTCRegressor(mean_cost=5, **QUICK)).fit(X, Y)
    assert clone(CSTCRanker(mean_cost=5)).mean_cost == 5


def test_the_search_is_told_of(capsys):
    CSTCRegressor(costs=PRICES, mean_cost=10, verbose=2, **QUICK).fit(X, Y)
    told = capsys.readouterr()
    assert re.search(r"cost weight [\d.e-]+: mean cost [\d.]+, 10 asked for", told.out + told.err)
    CSTCRegressor(costs=PRICES, mean_cost=10, verbose=1, **QUICK).fit(X, Y)
