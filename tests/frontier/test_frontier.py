"""The frontier: its range, what it keeps, choosing from it, sharing, and checkpoints that survive kill -9."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.metrics import make_scorer, mean_absolute_error, r2_score, roc_auc_score

import cstc.experts.chain
import cstc.experts.lazy
import cstc.paper.features
from cstc import CostModel, CSTCClassifier, CSTCRanker, CSTCRegressor, Exact, Experts, Frontier, Paper
from cstc.frontier._checkpoint import Checkpoint
from cstc.frontier._identity import settings_identity
from cstc.metrics import ndcg

QUICK = {"n_weak_learners": 10, "method": Experts(folds=2), "random_state": 0, "n_jobs": 1}
PRICES = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]


def regression(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    return X, X @ [1.0, 0.9, 0.8, 0.7, 0.6, 0.5] + rng.normal(scale=0.5, size=n)


def classes(n_classes, n=400):
    return make_classification(n, 6, n_informative=5, n_redundant=0, n_classes=n_classes, random_state=1)


def queries(n_queries=50):
    X, relevance = regression(10 * n_queries)
    cuts = np.quantile(relevance, [0.4, 0.7, 0.9])
    return X, np.searchsorted(cuts, relevance).astype(float), np.repeat(np.arange(n_queries), 10)


def two(estimator=None, **options):
    """A cheap frontier: given weights, regression."""
    X, y = regression()
    estimator = estimator or CSTCRegressor(costs=PRICES, **QUICK)
    options = {"cost_weights": [0.1, 0.02]} | options
    return Frontier(estimator, **options).fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])


@pytest.fixture(scope="module")
def fitted():
    """Frontiers of three tasks, with the rows that chose."""
    found = {}
    X, y = regression(seed=3)  # whose full model is in the table
    estimator = CSTCRegressor(costs=PRICES, **QUICK)
    frontier = Frontier(estimator, n_weights=12).fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    found["regressor"] = frontier, X[300:], y[300:], None
    X, y = classes(2)
    estimator = CSTCClassifier(costs=PRICES, **QUICK)
    frontier = Frontier(estimator, n_weights=12).fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    found["classifier"] = frontier, X[300:], y[300:], None
    X, y, qid = queries()
    given = {"X_val": X[400:], "y_val": y[400:], "qid_val": qid[400:]}
    estimator = CSTCRanker(costs=PRICES, **QUICK)
    frontier = Frontier(estimator, n_weights=12).fit(X[:400], y[:400], qid=qid[:400], **given)
    found["ranker"] = frontier, X[400:], y[400:], qid[400:]
    return found


TASKS = ("regressor", "classifier", "ranker")
each_task = pytest.mark.parametrize("task", TASKS)


# -- range, order, table -------------------------------------------------------------------------------------------


@each_task
def test_range_goes_from_free_to_full(fitted, task):
    frontier, X_val, *_ = fitted[task]
    tried = frontier.tried_
    weights = tried.column("cost_weight")
    assert len(tried) <= 12
    assert 0.0 in weights
    assert frontier.table_[0]["max_cost"] == 0.0
    assert frontier.models_[0].predict_cost(X_val).max() == 0.0
    # a smaller weight would buy little more: what only the full model buys is worth nothing
    paid = tried.column("mean_cost")[weights > 0]
    assert paid[weights[weights > 0].argmin()] > 0.75 * paid.max()  # gates stop other rows in the other order
    assert len({row["mean_cost"] for row in tried}) >= 6  # few fits are spent where nothing changes


@each_task
def test_weights_are_powers_of_two_or_of_its_roots(fitted, task):
    weights = fitted[task][0].tried_.column("cost_weight")
    mantissas, _ = np.frexp(weights[weights > 0])
    assert set(mantissas) <= {0.5 * 2.0 ** (k / 4) for k in range(4)}
    assert (mantissas == 0.5).sum() >= 4


@each_task
def test_sorted_and_not_dominated(fitted, task):
    frontier = fitted[task][0]
    costs, qualities = frontier.table_.column("mean_cost"), frontier.table_.column("quality")
    assert len(frontier.models_) == len(frontier.table_) >= 3
    assert (np.diff(costs) > 0).all()
    is_full = frontier.table_.column("cost_weight") == 0
    assert (np.diff(qualities[~is_full]) > 0).all()
    # the full model may look worse than a cheaper one, by no more than a standard error of the difference
    lacks, errors = frontier._evidence.shortfalls()
    assert is_full.sum() == 1 or task == "classifier"  # where it is worse by more than that
    assert is_full.any() == is_full[frontier._evidence.best]
    assert (lacks + errors >= 0).all()
    for row in frontier.tried_:  # each that was left out is beaten, or matched at no more cost
        assert any(
            kept["mean_cost"] <= row["mean_cost"] and kept["quality"] >= row["quality"] for kept in frontier.table_
        )


@each_task
def test_table_says_what_the_models_do(fitted, task):
    frontier, X_val, y_val, qid_val = fitted[task]
    for model, row in zip(frontier.models_, frontier.table_, strict=True):
        cost = model.predict_cost(X_val)
        assert row["cost_weight"] == model.cost_weight
        assert (row["mean_cost"], row["max_cost"]) == (cost.mean(), cost.max())
        assert row["p95_cost"] == np.percentile(cost, 95)
        expected = {
            "regressor": lambda m: r2_score(y_val, m.predict(X_val)),
            "classifier": lambda m: roc_auc_score(y_val, m.predict_proba(X_val)[:, 1]),
            "ranker": lambda m: ndcg(y_val, m.predict(X_val), qid_val),
        }[task](model)
        assert row["validation_quality"] == pytest.approx(expected)
        assert row["nodes"] == model.model_.shape.n_nodes
        assert row["items"] >= model.model_.bought_items(X_val).any(axis=0).sum()
    assert frontier.quality_name_ == {"regressor": "R²", "classifier": "AUC", "ranker": "NDCG@5"}[task]


def test_table_as_text_and_frame(fitted):
    table = fitted["regressor"][0].table_
    lines = repr(table).splitlines()
    assert len(lines) == len(table) + 1
    assert "mean cost" in lines[0]
    assert "  validation R²  " in lines[0]
    last = table[-1]
    assert f"{last['mean_cost']:.2f} ± {last['mean_cost_error']:.2f}" in lines[-1]
    assert f"{last['quality']:.4f} ± {last['quality_error']:.4f}" in lines[-1]
    assert f"{last['quality']:.4f} ± {last['quality_error']:.4f}" in table._repr_html_()
    assert "error" not in table._repr_html_()
    frame = table.to_pandas()
    figures = ["mean_cost", "p95_cost", "max_cost", "quality", "validation_quality"]
    both = [name for figure in figures for name in (figure, f"{figure}_error")]
    assert list(frame) == ["cost_weight", *both, "nodes", "items"]
    assert [dict(row) for _, row in frame.iterrows()] == table.rows


def test_more_classes_are_judged_by_their_mean_auc():
    X, y = classes(3)
    frontier = Frontier(CSTCClassifier(costs=PRICES, **QUICK), cost_weights=[0.01])
    frontier.fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    expected = roc_auc_score(y[300:], frontier.models_[-1].predict_proba(X[300:]), multi_class="ovr", average="macro")
    assert frontier.table_[-1]["validation_quality"] == pytest.approx(expected)


def test_nothing_worth_buying_and_nothing_to_pay():
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(200, 2)), rng.normal(size=200)
    frontier = Frontier(CSTCRegressor(costs=[1e6, 1e6], **QUICK), cost_weights=[1.0]).fit(X, noise)
    assert [row["mean_cost"] for row in frontier.table_] == [0.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert frontier.best(mean_cost=3) is frontier.models_[0]
    frontier = Frontier(CSTCRegressor(costs=[0, 0], **QUICK)).fit(X, X[:, 0])
    assert len(frontier.tried_) == 1
    assert frontier.table_[0]["mean_cost"] == 0.0


def test_free_features_and_price_of_evaluation():
    X, y = regression()
    costs = CostModel({"x0": 0.0, "x1": 0.0, "x2": 4.0, "x3": 8.0, "x4": 16.0, "x5": 32.0})
    frontier = Frontier(CSTCRegressor(costs=costs, **QUICK), n_weights=5).fit(X, y)
    assert frontier.table_[0]["max_cost"] == 0.0
    assert frontier.table_[0]["items"] > 0  # what is free is used
    costs = CostModel([0.0] * 6, evaluation=1.0)
    frontier = Frontier(CSTCRegressor(costs=costs, **QUICK), n_weights=5).fit(X, y)
    assert frontier.table_[0]["max_cost"] == 0.0
    assert len(frontier.table_) > 1


# -- choosing ------------------------------------------------------------------------------------------------------


def test_best_for_a_budget_and_for_a_quality(fitted):
    frontier = fitted["regressor"][0]
    table = frontier.table_
    for at, row in enumerate(table):
        assert frontier.best(mean_cost=row["mean_cost"]) is frontier.models_[at]
        if row["cost_weight"] > 0:  # the full model is no better than the one before it
            assert frontier.best(quality=row["quality"], paired=False) is frontier.models_[at]
    assert frontier.best(mean_cost=1e9) is frontier.models_[-1]
    between = (table[1]["mean_cost"] + table[2]["mean_cost"]) / 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a hole between them, if there is one: test_budgets has that
        assert frontier.best(mean_cost=between) is frontier.models_[1]
    between = (table[1]["quality"] + table[2]["quality"]) / 2
    assert frontier.best(quality=between, paired=False) is frontier.models_[2]


def test_best_warns_when_it_cannot_give_what_is_asked(fitted):
    frontier = fitted["regressor"][0]
    with pytest.warns(UserWarning, match=r"0\.01 is below the .* of the cheapest model that buys anything"):
        model = frontier.best(mean_cost=0.01)
    assert model is frontier.models_[0]
    assert model.mean_cost_ == 0.0
    with pytest.warns(UserWarning, match=r"no model has R² 2 or more; this is the best one"):
        assert frontier.best(quality=2) is frontier.models_[-1]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({}, "give one of mean_cost=, p95_cost=, max_cost= and quality="),
        ({"mean_cost": 1, "quality": 1}, "give one of mean_cost=, p95_cost=, max_cost= and quality="),
        ({"mean_cost": 1, "max_cost": 1}, "give one of mean_cost=, p95_cost=, max_cost= and quality="),
        ({"p95_cost": -1}, "p95_cost is -1; give a number, 0 or more"),
        ({"max_cost": float("inf")}, "max_cost is inf; give a number, 0 or more"),
        ({"max_cost": True}, "max_cost is True; give a number, 0 or more"),
        ({"max_cost": "much"}, "max_cost is 'much'; give a number, 0 or more"),
        ({"mean_cost": -1}, "0 or more"),
        ({"mean_cost": "much"}, "give a number"),
        ({"quality": float("nan")}, "give a number"),
        ({"quality": 0.1, "paired": "yes"}, "paired is 'yes'; it must be True or False"),
        ({"mean_cost": 1, "paired": False}, "paired=False belongs to quality="),
    ],
)
def test_best_refuses(fitted, wanted, message):
    with pytest.raises(ValueError, match=message):
        fitted["regressor"][0].best(**wanted)


def test_given_weights_always_come_with_the_free_model():
    frontier = two()
    assert set(frontier.tried_.column("cost_weight")) > {0.1, 0.02}
    assert frontier.table_[0]["max_cost"] == 0.0
    frontier = two(cost_weights=[1e9, 0.02])
    assert set(frontier.tried_.column("cost_weight")) == {1e9, 0.02}


# -- sharing, rows, meta-estimator ---------------------------------------------------------------------------------


def test_experts_are_grown_once(monkeypatch):
    grown, screened = [], []
    grow_experts, screen = cstc.experts.chain.grow_experts, cstc.experts.lazy.LazyExperts._screen

    def counted(wanted, rows, folds, blocks, **options):
        grown.extend((columns.tobytes(), len(rows)) for columns, _ in wanted)
        return grow_experts(wanted, rows, folds, blocks, **options)

    def noted(self, k):
        screened.append(k)
        return screen(self, k)

    monkeypatch.setattr(cstc.experts.chain, "grow_experts", counted)
    monkeypatch.setattr(cstc.experts.lazy.LazyExperts, "_screen", noted)
    X, y = regression()
    rows = X[:300], y[:300]

    def alone(weight):
        return CSTCRegressor(costs=PRICES, cost_weight=weight, **QUICK).fit(*rows)

    weights = [2.0**-k for k in range(2, 8)]
    single = {weight: alone(weight) for weight in weights[:2]}
    n_alone = len(grown) / 2
    grown.clear()
    screened.clear()
    frontier = two(cost_weights=[*weights, 1e9])
    whole = [columns for columns, n in grown if n == 300]
    assert len(set(whole)) == len(whole) <= n_alone  # each expert on all rows once, however many weights there are
    assert frontier.n_ensembles_ == len(grown) + len(set(screened))  # and the lazy ones; none of them competes here
    models = {model.cost_weight: model for model in frontier.tried_models_}
    for weight, model in single.items():
        np.testing.assert_array_equal(model.predict(X), models[weight].predict(X))


def paper(**changes):
    """The paper's method in few steps; `changes` are parameters of the estimator or of the method."""
    method = Paper(depth=2, max_iter=50, tol=1e-3, solver="joint")
    own = {name: changes.pop(name) for name in list(changes) if name in method.get_params()}
    options = QUICK | {"n_weak_learners": 15, "method": method.set_params(**own)}
    return CSTCRegressor(costs=PRICES, **options | changes)


def test_the_papers_learners_are_grown_once(monkeypatch):
    grown = []
    original = cstc.paper.features.grow
    monkeypatch.setattr(cstc.paper.features, "grow", lambda *a, **k: grown.append(1) or original(*a, **k))
    frontier = two(paper(), cost_weights=[0.08, 0.04, 0.02, 0.01])
    assert len(grown) == frontier.n_ensembles_ == 1
    assert len(frontier.tried_models_) >= 4
    plain = CSTCRegressor(costs=PRICES, weak_learners="identity", method=Exact(depth=2, tol=1e-3), random_state=0)
    assert two(plain).n_ensembles_ == 0  # plain inputs are not grown


def test_the_first_of_the_papers_models_is_that_of_a_single_fit():
    """Sharing changes nothing; the others start elsewhere, and end at a loss that is no worse."""
    X, y = regression()
    weights = [0.02, 0.01, 0.005, 0.002, 0.0]
    frontier = two(paper(), cost_weights=weights)
    models = {model.cost_weight: model for model in frontier.tried_models_}
    for weight in weights:
        single = paper(cost_weight=weight).fit(X[:300], y[:300])
        if weight == 0.02:
            np.testing.assert_array_equal(single.predict(X), models[weight].predict(X))
        assert models[weight].loss_history_[0][-1] <= 1.01 * single.loss_history_[0][-1]


def test_a_solution_is_the_start_of_the_next_smaller_weight(monkeypatch):
    starts = {}
    original = CSTCRegressor._fit_rows

    def fit(self, *rows, start=None, **options):
        starts[self.cost_weight] = start
        return original(self, *rows, start=start, **options)

    monkeypatch.setattr(CSTCRegressor, "_fit_rows", fit)
    frontier = two(paper(), cost_weights=[100.0, 50.0, 0.01, 0.005, 0.0003, 0.00015, 0.0])
    solutions = {model.cost_weight: model._solution for model in frontier.tried_models_}
    assert starts[0.005] is solutions[0.01] is not None
    assert starts[0.00015] is solutions[0.0003] is not None
    assert starts[50.0] is None  # a model that buys nothing is no start
    assert starts[0.01] is starts[0.0003] is None  # too far away
    assert starts[0.0] is None
    # experts have no solution to start from, and the exact method goes its way from the beginning
    plain = CSTCRegressor(costs=PRICES, weak_learners="identity", method=Exact(depth=2, tol=1e-3), random_state=0)
    for estimator in (CSTCRegressor(costs=PRICES, **QUICK), plain):
        starts.clear()
        two(estimator, cost_weights=[0.01, 0.005])
        assert starts[0.01] is starts[0.005] is None


@pytest.mark.parametrize("n_left", [1, 3])
def test_a_checkpoint_goes_on_from_stored_solutions(tmp_path, n_left):
    """Models that start from each other: whatever was finished, the rest ends the same."""
    weights = [0.02, 0.015, 0.01, 0.007, 0.005, 0.003]
    whole = two(paper(), cost_weights=weights, checkpoint=tmp_path)
    for weight in weights[-n_left:]:
        (tmp_path / f"model-{weight!r}.json").unlink()
    again = two(paper(), cost_weights=weights, checkpoint=tmp_path)
    assert_same(whole, again, regression()[0])
    assert again.tried_ == whole.tried_ == two(paper(), cost_weights=weights).tried_


def test_tried_models_are_those_of_the_table(fitted):
    frontier, X, y, _ = fitted["regressor"]
    assert len(frontier.tried_models_) == len(frontier.tried_) >= len(frontier.models_)
    for model, row in zip(frontier.tried_models_, frontier.tried_, strict=True):
        assert model.cost_weight == row["cost_weight"]
        assert model.score(X, y) == pytest.approx(row["validation_quality"])


def test_rows_that_choose_teach_nothing():
    """Other validation labels: the same models."""
    X, y = regression()
    estimator = CSTCRegressor(costs=PRICES, **QUICK)
    predictions = []
    for sign in (1, -1):
        frontier = Frontier(estimator, cost_weights=[0.02]).fit(X[:300], y[:300], X_val=X[300:], y_val=sign * y[300:])
        predictions.append({model.cost_weight: model.predict(X) for model in frontier.models_})
    common = predictions[0].keys() & predictions[1].keys()
    assert common
    for weight in common:
        np.testing.assert_array_equal(predictions[0][weight], predictions[1][weight])


@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame, pl.DataFrame, list])
def test_holds_out_its_own_validation_rows(kind, monkeypatch):
    X, y = classes(3, n=200)
    seen = []
    original = CSTCClassifier._fit_rows

    def fit(self, taught, *rest, **options):
        seen.append(np.asarray(taught.y))
        return original(self, taught, *rest, **options)

    monkeypatch.setattr(CSTCClassifier, "_fit_rows", fit)
    rows = kind(X) if kind in (np.asarray, list) else kind({f"c{j}": X[:, j] for j in range(6)})
    frontier = Frontier(CSTCClassifier(**QUICK), cost_weights=[0.05], validation_fraction=0.25).fit(rows, y)
    assert {len(part) for part in seen} == {150}
    assert all((part == seen[0]).all() for part in seen)
    np.testing.assert_allclose(np.bincount(seen[0]) / 150, np.bincount(y) / 200, atol=0.01)
    assert frontier.n_features_in_ == 6
    assert hasattr(frontier, "feature_names_in_") == (kind in (pd.DataFrame, pl.DataFrame))


def test_ranker_holds_out_whole_queries(monkeypatch):
    X, y, qid = queries()
    seen = []
    original = CSTCRanker._fit_rows

    def fit(self, taught, *rest, **options):
        seen.append(taught.qid)
        return original(self, taught, *rest, **options)

    monkeypatch.setattr(CSTCRanker, "_fit_rows", fit)
    Frontier(CSTCRanker(costs=PRICES, **QUICK), cost_weights=[0.02]).fit(X, y, qid=qid)
    found, counts = np.unique(seen[0], return_counts=True)
    assert len(found) == 40
    assert (counts == 10).all()


def test_weights_of_rows():
    X, y = regression()
    twice = np.where(np.arange(100) < 30, 2.0, 1.0)
    estimator = CSTCRegressor(costs=PRICES, **QUICK)
    options = {"X_val": X[300:], "y_val": y[300:]}
    weighted = Frontier(estimator, cost_weights=[0.02]).fit(
        X[:300], y[:300], sample_weight=np.ones(300), sample_weight_val=twice, **options
    )
    again = np.repeat(np.arange(300, 400), twice.astype(int))
    repeated = Frontier(estimator, cost_weights=[0.02]).fit(X[:300], y[:300], X_val=X[again], y_val=y[again])
    for name in ("mean_cost", "validation_quality"):
        np.testing.assert_allclose(weighted.table_.column(name), repeated.table_.column(name))
    sampled = Frontier(estimator, cost_weights=[0.02]).fit(X, y, sample_weight=np.arange(400.0))
    assert len(sampled.table_) == 2


def test_own_quality():
    def closeness(estimator, X, y):
        return -mean_absolute_error(y, estimator.predict(X))

    for quality in (closeness, "neg_mean_absolute_error", make_scorer(mean_absolute_error, greater_is_better=False)):
        frontier = two(quality=quality)
        X, y = regression()
        assert frontier.table_[-1]["quality"] == pytest.approx(
            -mean_absolute_error(y[300:], frontier.models_[-1].predict(X[300:]))
        )
    assert two(quality=closeness).quality_name_ == "closeness"
    X, y, qid = queries()
    ranker = CSTCRanker(costs=PRICES, **QUICK)
    at_one = Frontier(ranker, cost_weights=[0.02], quality=lambda m, X, y, qid: m.score(X, y, qid=qid, k=1))
    assert at_one.fit(X, y, qid=qid).table_[-1]["quality"] <= 1.0
    with pytest.raises(ValueError, match=r"quality of the model with cost_weight=0\.1 is nan"):
        two(quality=lambda model, X, y: np.nan)


def test_clone_parameters_and_the_given_estimator():
    estimator = CSTCRegressor(costs=PRICES, **QUICK)
    before = {name: value for name, value in estimator.get_params().items()}
    frontier = Frontier(estimator, cost_weights=[0.02], checkpoint=None)
    other = clone(frontier).set_params(estimator__method__folds=3, estimator__learning_rate=0.2, n_weights=5)
    assert (other.estimator.method.folds, other.estimator.learning_rate, other.n_weights) == (3, 0.2, 5)
    assert (estimator.method.folds, estimator.learning_rate) == (2, 0.1)
    X, y = regression()
    frontier.fit(X, y)
    assert estimator.get_params() == before
    assert not hasattr(estimator, "model_")
    assert not hasattr(clone(frontier), "models_")


def test_one_random_state_for_all_models():
    for random_state in (None, np.random.RandomState(3)):
        frontier = two(CSTCRegressor(costs=PRICES, **QUICK | {"random_state": random_state}))
        assert len({model.random_state for model in frontier.models_}) == 1
        assert isinstance(frontier.models_[0].random_state, int)


def test_progress(capsys):
    two(verbose=2)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    for number, line in enumerate(lines, 1):
        assert line.startswith(f"[Frontier] model {number}, at most {3 - number} left: cost_weight ")
        assert all(word in line for word in ("mean cost", "R²", " s"))
    two(verbose=1)
    assert re.fullmatch(r"cstc frontier: 100% \[=+\] 3 models done in \d+ s\n", capsys.readouterr().err)
    two()
    assert capsys.readouterr() == ("", "")


def test_each_fit_shows_what_the_estimator_says_where_the_frontier_has_no_line(capsys):
    loud = CSTCRegressor(costs=PRICES, **QUICK | {"verbose": 2})
    for verbose, speakers in ((0, {"[CSTCRegressor]"}), (1, {"cstc"}), (2, {"[CSTCRegressor]", "[Frontier]"})):
        two(loud, verbose=verbose)
        assert {line.split(" ")[0] for line in capsys.readouterr().err.splitlines()} == speakers


def test_plot(fitted):
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    frontier = fitted["regressor"][0]
    display = frontier.plot()
    assert len(display.ax_.lines) == 1
    assert display.ax_.get_ylabel() == "R²"
    assert display.qualities[0].tolist() == frontier.table_.column("quality").tolist()
    assert display.quality_errors[0].tolist() == frontier.table_.column("quality_error").tolist()
    assert display.cost_errors[0].tolist() == frontier.table_.column("mean_cost_error").tolist()
    others = {"all features": (63.0, 0.9), "again": frontier}
    budget = frontier.table_[2]["mean_cost"] + 1e-6
    display = frontier.plot(mean_cost=budget, others=others, name="tree")
    # beside others all are drawn by what the same rows say
    assert display.chosen == (frontier.table_[2]["mean_cost"], frontier.table_[2]["validation_quality"])
    assert sorted(display.qualities[0]) == sorted(frontier.table_.column("validation_quality"))
    assert display.quality_errors[1] is None
    assert display.names == ["tree", "all features", "again"]
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert texts[-1].startswith("chosen: cost")
    assert frontier.plot(quality=0.1, ax=pyplot.figure().add_subplot()).chosen[1] >= 0.1
    pyplot.close("all")


# -- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_weights": 1}, "n_weights is 1; it must be a whole number, 2 or more"),
        ({"n_weights": 2.5}, "n_weights is 2.5"),
        ({"cost_weights": []}, r"cost_weights is \[\]"),
        ({"cost_weights": 0.1}, "cost_weights is 0.1"),
        ({"cost_weights": [-1.0]}, "0 or more"),
        ({"cost_weights": [np.inf]}, "finite"),
        ({"cost_weights": ["a"]}, "finite numbers"),
        ({"quality": 3}, "quality is 3"),
        ({"quality": "no such"}, "no such"),
        ({"validation_fraction": 1.0}, "validation_fraction is 1.0"),
        ({"checkpoint": 3}, "checkpoint is 3"),
        ({"verbose": -1}, "verbose is -1"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        two(**options)


def test_bad_estimators_and_rows():
    X, y = regression(100)
    for wrong in (CSTCRegressor, r2_score, None):
        with pytest.raises(TypeError, match="give a CSTCRegressor, a CSTCClassifier or a CSTCRanker"):
            Frontier(wrong).fit(X, y)
    estimator = CSTCRegressor(**QUICK)
    for options, message in (
        ({"X_val": X}, "y_val is missing"),
        ({"y_val": y}, "X_val is missing"),
        ({"sample_weight_val": y}, "sample_weight_val belongs to X_val"),
        ({"qid": y}, "no use for it"),
        ({"X_val": X[:1], "y_val": y[:1]}, "at least 2 validation rows"),
        ({"X_val": X, "y_val": y, "sample_weight_val": np.zeros(100)}, "weight zero|non-zero"),
        ({"X_val": X[:, :3], "y_val": y}, "3 features"),
    ):
        with pytest.raises(ValueError, match=message):
            Frontier(estimator, cost_weights=[0.1]).fit(X, y, **options)
    with pytest.raises(ValueError, match="qid is missing"):
        Frontier(CSTCRanker(**QUICK)).fit(X, np.abs(y))
    labels = (y > 0).astype(int)
    with pytest.raises(ValueError, match="hold one class"):
        Frontier(CSTCClassifier(**QUICK)).fit(X, labels, X_val=X[labels == 0], y_val=labels[labels == 0])
    with pytest.raises(ValueError, match="a class that y does not have"):
        Frontier(CSTCClassifier(**QUICK)).fit(X, labels, X_val=X, y_val=labels + 1)


def test_rare_classes_that_the_frontier_held_out_itself():
    X, _ = regression(100)
    frontier = Frontier(CSTCClassifier(**QUICK), cost_weights=[0.1])
    messages = set()
    for positive in range(0, 100, 7):
        labels = (np.arange(100) == positive).astype(int)
        with pytest.raises(
            ValueError, match=r"held out 20 of the 100 rows itself.* X_val and y_val with both"
        ) as caught:
            frontier.fit(X, labels)
        messages.add(str(caught.value).split(":")[0])
    assert messages == {
        "no row of class 1 is left to learn from",
        "the validation rows hold one class, [0], and AUC needs two",
    }


# -- checkpoint ----------------------------------------------------------------------------------------------------


def assert_same(one, other, X):
    assert one.table_ == other.table_
    assert one.tried_ == other.tried_
    for a, b in zip(one.models_, other.models_, strict=True):
        np.testing.assert_array_equal(a.predict(X), b.predict(X))
        np.testing.assert_array_equal(a.predict_cost(X), b.predict_cost(X))
        for name in ("expected_cost_", "mean_cost_", "n_iter_", "n_features_in_"):
            assert getattr(a, name) == getattr(b, name), name
        for left, right in zip(a.loss_history_, b.loss_history_, strict=True):
            np.testing.assert_array_equal(left, right)
        assert a.get_params() | {"method": None} == b.get_params() | {"method": None}  # those of the method are there
        assert type(a.method) is type(b.method)
        assert [row.name for row in a.candidates_] == [row.name for row in b.candidates_]
        for left, right in zip(a.candidates_, b.candidates_, strict=True):
            assert type(left) is type(right)
            np.testing.assert_equal(tuple(left), tuple(right))  # NaN where one was not grown


def never(self, *rest, **options):
    raise AssertionError("a finished model is fitted again")


def test_finished_models_are_restored_as_full_estimators(tmp_path, monkeypatch):
    X, y = classes(3, n=200)
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(6)]).assign(kind=np.where(X[:, 0] > 0, "a", "b"))
    names = np.array(["low", "mid", "high"])[y]
    estimator = CSTCClassifier(costs={f"c{j}": p for j, p in enumerate(PRICES)} | {"kind": 1.0}, **QUICK)
    frontier = Frontier(estimator, n_weights=5, checkpoint=tmp_path / "new" / "folder")
    first = clone(frontier).fit(frame, names)
    assert all([row.verdict for row in model.candidates_].count("taken") == 1 for model in first.models_)
    monkeypatch.setattr(CSTCClassifier, "_fit_rows", never)
    second = clone(frontier).fit(frame, names)
    assert_same(first, second, frame)
    for a, b in zip(first.models_, second.models_, strict=True):
        assert vars(a).keys() == vars(b).keys()
        np.testing.assert_array_equal(a.predict_proba(frame), b.predict_proba(frame))
        np.testing.assert_array_equal(a.classes_, b.classes_)
        np.testing.assert_array_equal(a.feature_names_in_, b.feature_names_in_)
        other = CostModel({f"c{j}": 1.0 for j in range(6)} | {"kind": 1.0})
        assert a.with_costs(other).expected_cost_ == b.with_costs(other).expected_cost_
    assert not [name for name in (tmp_path / "new" / "folder").iterdir() if name.suffix not in (".json", ".cstc")]


def test_a_drawn_random_state_is_kept(tmp_path):
    estimator = CSTCRegressor(costs=PRICES, **QUICK | {"random_state": None})
    first, second = (two(estimator, checkpoint=tmp_path) for _ in range(2))
    assert_same(first, second, regression()[0])


class Closeness:
    """A quality with a parameter, and no text of its own."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def __call__(self, estimator, X, y):
        return -self.scale * mean_absolute_error(y, estimator.predict(X))


def scaled_closeness(estimator, X, y, scale=1.0):
    return Closeness(scale)(estimator, X, y)


@pytest.mark.parametrize(
    "make",
    [
        lambda: functools.partial(scaled_closeness, scale=2.0),
        Closeness,
        lambda: Closeness().__call__,
        lambda: make_scorer(functools.partial(mean_absolute_error), greater_is_better=False),
    ],
    ids=["partial", "object", "method", "scorer"],
)
def test_a_quality_is_known_again_wherever_it_lies_in_memory(tmp_path, make):
    first, second = make(), make()
    text = json.dumps(settings_identity(Frontier(CSTCRegressor(), quality=first), CSTCRegressor())["frontier"])
    assert "0x" not in text
    two(quality=first, checkpoint=tmp_path)
    two(quality=second, checkpoint=tmp_path)


def test_partials_of_other_arguments_are_other_qualities(tmp_path):
    two(quality=functools.partial(scaled_closeness, scale=2.0), checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"frontier.quality.keywords.scale is 3.0 here and 2.0"):
        two(quality=functools.partial(scaled_closeness, scale=3.0), checkpoint=tmp_path)


def test_ranker_checkpoint(tmp_path, monkeypatch):
    X, y, qid = queries()
    frontier = Frontier(CSTCRanker(costs=PRICES, **QUICK), cost_weights=[0.02], checkpoint=tmp_path)
    first = clone(frontier).fit(X, y, qid=qid)
    monkeypatch.setattr(CSTCRanker, "_fit_rows", never)
    assert_same(first, clone(frontier).fit(X, y, qid=qid), X)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A checkpoint of `two`."""
    folder = tmp_path_factory.mktemp("finished")
    two(checkpoint=folder)
    return folder


@pytest.mark.parametrize(
    ("parameters", "options", "message"),
    [
        ({"method": Experts(folds=3)}, {}, "parameters.method.Experts.folds is 3 here and 2 in the checkpoint"),
        ({"method": "experts"}, {}, "parameters.method.Experts.folds is null here and 2 in the checkpoint"),
        ({"method": Paper()}, {}, 'parameters.method.Paper is given here and "absent" in the checkpoint'),
        ({"n_weak_learners": 11}, {}, "parameters.n_weak_learners is 11 here and 10 in the checkpoint"),
        ({"random_state": 1}, {}, "random_state is 1 here and 0"),
        ({"costs": [1.0, 2.0, 4.0, 8.0, 16.0, 33.0]}, {}, "costs.prices.x5 is 33.0 here and 32.0"),
        ({"costs": CostModel(PRICES, evaluation=1.0)}, {}, "costs.evaluation is 1.0 here"),
        ({}, {"cost_weights": [0.1]}, r"frontier.cost_weights is \[0.1\] here"),
        ({}, {"cost_weights": None}, "frontier.n_weights is 24 here"),
        ({}, {"quality": "r2"}, 'frontier.quality is "r2" here and null'),
    ],
)
def test_checkpoint_of_other_settings(finished, parameters, options, message):
    estimator = CSTCRegressor(**{"costs": PRICES} | QUICK | parameters)
    with pytest.raises(ValueError, match=f"belongs to a fit of other data or settings: .*{message}"):
        two(estimator, checkpoint=finished, **options)


def test_a_checkpoint_knows_the_parameters_of_its_method(tmp_path, monkeypatch):
    shallow, deep = Paper(depth=2, max_iter=50, tol=1e-3), Paper(depth=3, max_iter=50, tol=1e-3)
    options = QUICK | {"costs": PRICES}
    two(CSTCRegressor(**options | {"method": shallow}), checkpoint=tmp_path / "shallow")
    with pytest.raises(ValueError, match=r"parameters\.method\.Paper\.depth is 3 here and 2 in the checkpoint"):
        two(CSTCRegressor(**options | {"method": deep}), checkpoint=tmp_path / "shallow")
    # a name is the method with its defaults
    first = two(CSTCRegressor(**options | {"method": "paper"}), cost_weights=[0.1], checkpoint=tmp_path / "named")
    monkeypatch.setattr(CSTCRegressor, "_fit_rows", never)
    again = two(CSTCRegressor(**options | {"method": Paper()}), cost_weights=[0.1], checkpoint=tmp_path / "named")
    assert first.tried_ == again.tried_
    auto = [
        settings_identity(Frontier(CSTCRegressor()), CSTCRegressor(method=method, **more))
        for method, more in (("auto", {}), (Experts(), {}), ("auto", {"weak_learners": "identity"}))
    ]
    assert auto[0] == auto[1] != auto[2]


def test_settings_that_change_nothing(finished):
    estimator = CSTCRegressor(costs=np.array(PRICES), **QUICK | {"verbose": 1, "n_jobs": 1, "cost_weight": 7.0})
    assert len(two(estimator, checkpoint=str(finished), verbose=0).models_) >= 2


def test_checkpoint_of_other_data(finished):
    X, y = regression()
    frontier = Frontier(CSTCRegressor(costs=PRICES, **QUICK), cost_weights=[0.1, 0.02], checkpoint=finished)
    train, val = (X[:300], y[:300]), {"X_val": X[300:], "y_val": y[300:]}
    changed = X[:300].copy()
    changed[7, 3] += 1e-9
    for rows, options, message in (
        ((changed, y[:300]), val, "data.X has other values. "),
        ((X[:300], -y[:300]), val, "data.y has other values. "),
        ((X[:200], y[:200]), val, r"data.X has other values \(200x6 here, 300x6 in the checkpoint\)"),
        (train, val | {"sample_weight": np.ones(300)}, "data.sample_weight has other values"),
        (train, {"X_val": X[310:], "y_val": y[310:]}, "validation data.X has other values"),
        (train, {}, 'validation data is "held out" here and given'),
        ((pd.DataFrame(X[:300], columns=list("abcdef")), y[:300]), {}, r"data.columns is \[.a"),
    ):
        with pytest.raises(ValueError, match=message):
            frontier.fit(*rows, **options)
    with pytest.raises(ValueError, match='estimator is "CSTCClassifier" here'):
        clone(frontier).set_params(estimator=CSTCClassifier(costs=PRICES, **QUICK)).fit(X, y > 0)


def test_folders_that_are_no_checkpoint(tmp_path, finished):
    (tmp_path / "file").write_text("text")
    with pytest.raises(ValueError, match="is a file; give a folder"):
        two(checkpoint=tmp_path / "file")
    with pytest.raises(ValueError, match="a folder with other files in it"):
        two(checkpoint=tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    (copy / "model-0.1.cstc").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"model-0\.1\.cstc of the checkpoint cannot be read"):
        two(checkpoint=copy)
    (copy / "model-0.1.json").write_text(json.dumps({"fingerprint": "other"}))
    with pytest.raises(ValueError, match="belongs to another fit"):
        two(checkpoint=copy)
    (copy / "settings.json").write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        two(checkpoint=copy)
    (copy / "settings.json").write_text(json.dumps({"format": "cstc-checkpoint", "version": 99}))
    with pytest.raises(ValueError, match="version is 4 here and 99 in the checkpoint"):
        two(checkpoint=copy)


def test_a_failed_fit_leaves_no_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="depth is 0"):
        two(paper(depth=0), checkpoint=tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize("keep", ["settings", "model without its state", "one model"])
def test_every_state_between_two_writes(finished, tmp_path, keep):
    """What kill -9 can leave: files are written in one order, each whole, perhaps with one unfinished."""
    (tmp_path / ".cstc-0123.tmp").write_bytes(b"half")
    names = {
        "settings": ["settings.json"],
        "model without its state": ["settings.json", "model-0.1.cstc"],
        "one model": ["settings.json", "model-0.1.cstc", "model-0.1.json"],
    }[keep]
    for name in names:
        shutil.copy(finished / name, tmp_path)
    assert_same(two(), two(checkpoint=tmp_path), regression()[0])
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in finished.iterdir()}


SCRIPT = """
import sys
import numpy as np
from cstc import CSTCRegressor, Experts, Frontier
rng = np.random.default_rng(0)
X = rng.normal(size=(400, 6))
y = X @ [1.0, 0.9, 0.8, 0.7, 0.6, 0.5] + rng.normal(scale=0.5, size=400)
estimator = CSTCRegressor(
    costs=[1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
    n_weak_learners=10, method=Experts(folds=2), random_state=0, n_jobs=1,
)
print("ready", flush=True)
Frontier(estimator, n_weights=8, checkpoint=sys.argv[1]).fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
"""

SLOWLY = """
import sys, time
from cstc import Experts
preview = Experts.preview
def slowly(self, problem):
    time.sleep(float(sys.argv[2]))
    return preview(self, problem)
Experts.preview = slowly
"""


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_killed_five_times(tmp_path):
    X, y = regression()
    rows = {"X_val": X[300:], "y_val": y[300:]}
    frontier = Frontier(CSTCRegressor(costs=PRICES, **QUICK), n_weights=8)
    started = time.perf_counter()
    undisturbed = clone(frontier).fit(X[:300], y[:300], **rows)
    usual = time.perf_counter() - started
    rng = np.random.default_rng(5)
    folder, killed = tmp_path / "checkpoint", 0
    for attempt in range(5):
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder)], stdout=subprocess.PIPE, text=True)
        with process:
            assert process.stdout.readline() == "ready\n"
            time.sleep(rng.uniform(0, 0.4) * usual)
            while attempt == 4 and process.poll() is None and not list(folder.glob("*.cstc")):
                time.sleep(0.01)  # on a busy machine nothing may be finished yet
            process.kill()
        killed += process.returncode == -signal.SIGKILL
    assert killed >= 3  # a process may have come to its end before
    done = len(list(folder.glob("*.cstc"))) if folder.exists() else 0
    assert_same(undisturbed, frontier.set_params(checkpoint=folder).fit(X[:300], y[:300], **rows), X)
    assert done > 0
    assert Checkpoint(folder).settings["random_state"] == 0


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_interrupted_and_called_again(tmp_path):
    X, y = regression()
    rows = {"X_val": X[300:], "y_val": y[300:]}
    estimator = CSTCRegressor(costs=PRICES, **QUICK | {"n_weak_learners": 100})
    frontier = Frontier(estimator, n_weights=8)
    undisturbed = clone(frontier).fit(X[:300], y[:300], **rows)
    script = SLOWLY + SCRIPT.replace("n_weak_learners=10", "n_weak_learners=100")
    for attempt in range(5):  # on busy cores the fit may end before the signal is there, so it takes longer and longer
        folder = tmp_path / str(attempt)
        command = [sys.executable, "-c", script, str(folder), str(0.1 * attempt)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            while process.poll() is None and len(list(folder.glob("model-*.json"))) < 2:
                time.sleep(0.005)
            sent = time.perf_counter()
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[1]
            assert time.perf_counter() - sent < 3.0
        if process.returncode != 0:
            break
    assert process.returncode != 0
    assert said.strip().endswith("KeyboardInterrupt")
    done = len(list(folder.glob("*.cstc")))
    assert 2 <= done < len(undisturbed.tried_)
    assert_same(undisturbed, frontier.set_params(checkpoint=folder).fit(X[:300], y[:300], **rows), X)


def test_an_interrupted_frontier_is_what_it_was(monkeypatch):
    frontier = two()
    before = dict(vars(frontier))
    with monkeypatch.context() as patched:
        patched.setattr(Experts, "train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            frontier.fit(*regression(200))
    assert vars(frontier) == before


def interrupted(self, problem):
    raise KeyboardInterrupt


def test_what_is_not_fitted_or_no_curve():
    frontier = Frontier(CSTCRegressor(costs=[1.0, 2.0]))
    with pytest.raises(NotFittedError):
        frontier.best(mean_cost=1)
    X = np.random.default_rng(0).normal(size=(120, 2))
    frontier = Frontier(CSTCRegressor(costs=[1.0, 2.0], n_weak_learners=5), cost_weights=[0.1, 0.0]).fit(X, X[:, 0])
    for others in ([1, 2], {"a": 5}, {"a": (1, 2, 3)}):
        with pytest.raises(ValueError, match="others"):
            frontier.plot(others=others)
