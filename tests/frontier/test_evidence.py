"""What is known of models: quality by all rows that did not teach, paired differences, and who is beaten by whom."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_classification
from sklearn.metrics import r2_score, roc_auc_score

from cstc import CSTCClassifier, CSTCRanker, CSTCRegressor, Exact, Experts, Frontier
from cstc.frontier._evidence import Evidence, Known, Point, not_dominated, weighed
from cstc.metrics import ndcg
from cstc.resampling import N_DRAWS

QUICK = {"n_weak_learners": 10, "method": Experts(folds=2), "random_state": 0, "n_jobs": 1}
PRICES = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
WEIGHTS = [0.2, 0.05, 0.01, 0.0]


def regression(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    return X, X @ [1.0, 0.9, 0.8, 0.7, 0.6, 0.5] + rng.normal(scale=0.5, size=n)


def fit(estimator, X, y, n=300, **options):
    """Given weights, the first rows to learn from, the others to choose by."""
    given = {name: options.pop(name) for name in ("qid", "sample_weight") if name in options}
    rows = {name: values[:n] for name, values in given.items()}
    rows |= {f"{name}_val": values[n:] for name, values in given.items()}
    frontier = Frontier(estimator, **{"cost_weights": WEIGHTS} | options)
    return frontier.fit(X[:n], y[:n], X_val=X[n:], y_val=y[n:], **rows)


def known(quality, draws, n=1.0):
    return Known(float(quality), np.asarray(draws, dtype=float), n)


def point(cost, quality, noise, weight=1.0, unseen=None):
    """A point whose samples lie around its quality."""
    row = {"mean_cost": float(cost), "quality": float(quality), "cost_weight": weight, "quality_error": 0.0}
    return Point(SimpleNamespace(), row, known(quality, quality + np.asarray(noise)), unseen)


# -- two kinds of rows ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["regressor", "classifier", "classes", "ranker"])
def test_quality_is_the_mean_of_both_kinds_of_rows(task):
    """By their number; the level of the full model, and what others lack of it."""
    if task == "regressor":
        (X, y), qid, estimator = regression(), None, CSTCRegressor(costs=PRICES, **QUICK)
    elif task == "ranker":
        X, y = regression()
        y, qid = np.searchsorted(np.quantile(y, [0.4, 0.7, 0.9]), y).astype(float), np.repeat(np.arange(40), 10)
        estimator = CSTCRanker(costs=PRICES, **QUICK)
    else:
        shape = {"n_informative": 5, "n_redundant": 0, "n_classes": 2 if task == "classifier" else 3}
        (X, y), qid = make_classification(400, 6, random_state=1, **shape), None
        estimator = CSTCClassifier(costs=PRICES, **QUICK)
    frontier = fit(estimator, X, y, **{} if qid is None else {"qid": qid})
    for model, row in zip(frontier.tried_models_, frontier.tried_, strict=True):
        margins = model._out_of_fold.margins.astype(float)
        if task == "regressor":
            told = r2_score(y[:300], margins[:, 0])
        elif task == "ranker":
            told = ndcg(y[:300], margins[:, 0], qid[:300])
        elif task == "classifier":
            told = roc_auc_score(y[:300], margins[:, 0])
        else:
            shares = np.exp(margins) / np.exp(margins).sum(axis=1, keepdims=True)
            told = roc_auc_score(y[:300], shares, multi_class="ovr", average="macro")
        assert row["quality"] == pytest.approx(0.75 * told + 0.25 * row["validation_quality"], abs=1e-6)
        assert row["quality_error"] < row["validation_quality_error"] or row["mean_cost"] == 0


def test_rows_without_weight_say_nothing():
    """Out of fold, rows are numbered without them, and without those of a class that does not count."""
    X, y = make_classification(400, 6, n_informative=5, n_redundant=0, n_classes=3, random_state=1)
    weights = np.where((np.arange(400) % 5 == 0) | ((np.arange(400) >= 300) & (y == 2)), 0.0, 1.0)
    estimator = CSTCClassifier(costs=PRICES, class_weight={0: 1.0, 1: 2.0, 2: 0.0}, **QUICK)
    frontier = fit(estimator, X, y, sample_weight=weights, cost_weights=[0.01])
    kept = np.flatnonzero((weights[:300] > 0) & (y[:300] != 2))
    assert (weights[300:] == 0).any()
    for model, row in zip(frontier.tried_models_, frontier.tried_, strict=True):
        unseen = model._out_of_fold
        assert unseen.rows.tolist() == list(range(len(kept)))
        shares = np.exp(unseen.margins) / np.exp(unseen.margins).sum(axis=1, keepdims=True)
        told = np.mean([roc_auc_score(y[kept] == k, shares[:, k]) for k in (0, 1)])
        n = (weights[300:] > 0).sum()
        expected = (len(kept) * told + n * row["validation_quality"]) / (len(kept) + n)
        assert row["quality"] == pytest.approx(expected, abs=1e-6)


def test_methods_that_are_not_cross_fitted_have_validation_rows_alone():
    X, y = regression()
    plain = CSTCRegressor(costs=PRICES, weak_learners="identity", method=Exact(depth=2, tol=1e-3), random_state=0)
    frontier = fit(plain, X, y, cost_weights=[0.02, 0.1])
    for row in frontier.tried_:
        assert row["quality"] == row["validation_quality"]
        assert row["quality_error"] == row["validation_quality_error"]
    assert "validation" not in repr(frontier.table_)
    assert frontier.table_[-1]["quality_error"] > 0


@pytest.mark.parametrize("apart", [2.9, 3.1])
def test_the_level_is_that_of_validation_rows_where_the_other_one_differs_by_more_than_noise(apart):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(4, N_DRAWS))
    noise /= noise.std(axis=1, ddof=1, keepdims=True)
    gap = apart * np.sqrt(2)
    full = point(10, 5.0, noise[0], weight=0.0, unseen=known(5.0 - gap, 5.0 - gap + noise[1], 3.0))
    cheap = point(1, 4.0, noise[2], unseen=known(3.5 - gap, 3.5 - gap + noise[3], 3.0))
    found = weighed([cheap, full], full)
    level = 5.0 - 0.75 * gap if apart < 3 else 5.0
    assert found[1].quality == pytest.approx(level)
    assert found[0].quality == pytest.approx(level - 0.25 * 1.0 - 0.75 * 1.5)
    shares = [0.25, 0.75] if apart < 3 else [1.0, 0.0]
    assert found[1].row["quality_error"] == pytest.approx(np.std(shares @ noise[:2], ddof=1))
    difference = found[1].known.less(found[0].known)
    expected = 0.25 * (noise[0] - noise[2]) + 0.75 * (noise[1] - noise[3])
    assert difference.error == pytest.approx(np.std(expected, ddof=1))


def test_without_rows_out_of_fold_points_stay_as_they_are():
    points = [point(1, 0.5, np.zeros(5)), point(2, 0.6, np.zeros(5), weight=0.0, unseen=known(0.5, np.zeros(5)))]
    assert weighed(points, points[1]) is points


# -- who is beaten -------------------------------------------------------------------------------------------------


def plain_rule(points, full):
    """Who stays, said as it is promised: slowly, pair by pair."""
    kept = []
    for number, one in enumerate(points):
        beaten = False
        for other in points[:number]:
            if one is full:
                error = np.std(other.known.draws - one.known.draws, ddof=1)
                beaten |= other.quality - one.quality > error
                beaten |= other.cost == one.cost and other.quality == one.quality
            else:
                beaten |= other.quality >= one.quality
        if not beaten:
            kept.append(one)
    return kept


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_who_is_beaten_and_who_is_cheapest(data):
    """Against plain loops, with ties of cost and of quality."""
    n = data.draw(st.integers(1, 7))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    costs, qualities = np.sort(rng.integers(0, 6, n)), rng.integers(0, 6, n) / 4
    points = [
        point(cost, quality, rng.normal(size=30) * data.draw(st.sampled_from([0.1, 0.5])), weight)
        for cost, quality, weight in zip(costs, qualities, rng.permutation(n), strict=True)
    ]
    points.sort(key=lambda each: (each.cost, -each.quality))
    full = data.draw(st.sampled_from([None, *points]))
    kept = not_dominated(points, full)
    assert kept == plain_rule(points, full)
    others = [each.quality for each in kept if each is not full]
    assert others == sorted(set(others))  # from bad to good

    evidence = Evidence.of(kept, full)
    best = kept[evidence.best]
    if full in kept:  # it is what others are measured by, unless one of them is really better
        gains = [(each.known.less(full.known).error, each.quality - full.quality) for each in kept]
        assert (best is full) == all(gain <= error for error, gain in gains)
    else:
        assert best.quality == max(each.quality for each in kept)
    wanted = data.draw(st.sampled_from([0.1, 0.5, 1.0, 1.2, 2.0]))
    enough = [each.quality >= wanted for each in kept]
    assert evidence.cheapest(wanted, paired=False) == (enough.index(True) if any(enough) else None)
    if best.quality >= wanted:
        errors = [np.std(best.known.draws - each.known.draws, ddof=1) for each in kept]
        lacks = [best.quality - each.quality for each in kept]
        enough = [lack + error <= best.quality - wanted for lack, error in zip(lacks, errors, strict=True)]
    found = evidence.cheapest(wanted, paired=True)
    assert found == (enough.index(True) if any(enough) else None)
    assert found is None or kept[found].quality >= wanted  # what is asked for is what the table says


def test_the_full_model_is_not_lost_to_noise_and_is_lost_to_what_is_better():
    noise = np.random.default_rng(0).normal(size=100)
    noise /= noise.std(ddof=1)
    full = point(9, 1.0, np.zeros(100), weight=0.0)
    for gain, stays in ((0.9, True), (1.1, False)):
        cheaper = point(3, 1.0 + gain, noise)
        assert (full in not_dominated([cheaper, full], full)) == stays
    twin = point(9, 1.0, np.zeros(100))
    assert not_dominated([twin, full], full) == [twin]  # the same model at the same price is no loss


def test_unknown_errors_count_as_none():
    nothing = np.full(20, np.nan)
    cheap, full = point(1, 0.9, nothing), point(2, 1.0, nothing, weight=0.0)
    assert not_dominated([cheap, full], full) == [cheap, full]
    assert Evidence.of([cheap, full], full).cheapest(0.85, paired=True) == 0


# -- of a frontier -------------------------------------------------------------------------------------------------


def test_best_asks_for_more_than_luck():
    X, y = regression(seed=3)  # whose full model is in the table
    frontier = fit(CSTCRegressor(costs=PRICES, **QUICK), X, y, n=300, cost_weights=None, n_weights=12)
    full = frontier.tried_[[row["cost_weight"] for row in frontier.tried_].index(0.0)]
    stepped_back = 0
    for share in np.linspace(0.3, 1.0, 30):
        wanted = share * full["quality"]
        sure, lucky = frontier.best(quality=wanted), frontier.best(quality=wanted, paired=False)
        at, before = frontier.models_.index(sure), frontier.models_.index(lucky)
        assert before <= at
        assert frontier.table_[at]["quality"] >= wanted
        stepped_back += at > before
    assert stepped_back > 3  # or nothing would be tested
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert frontier.best(quality=full["quality"]).cost_weight == 0.0
    best = max(frontier.table_, key=lambda row: row["quality"])
    assert best["quality"] > full["quality"]  # which has nothing to spare here: the table alone decides
    assert frontier.best(quality=best["quality"]).cost_weight == best["cost_weight"]


def test_the_same_samples_judge_all_models_and_a_resumed_frontier_ends_the_same(tmp_path):
    X, y = regression()
    estimator = CSTCRegressor(costs=PRICES, **QUICK)
    whole = fit(estimator, X, y, checkpoint=tmp_path)
    (tmp_path / "model-0.05.json").unlink()
    again = fit(estimator, X, y, checkpoint=tmp_path)
    assert again.tried_ == whole.tried_ == fit(estimator, X, y).tried_
    np.testing.assert_array_equal(again._evidence.draws, whole._evidence.draws)
    for one, other in zip(whole.tried_models_, again.tried_models_, strict=True):
        np.testing.assert_array_equal(one._out_of_fold.margins, other._out_of_fold.margins)


def test_scorers_are_asked_on_few_samples_of_validation_rows():
    X, y = regression()
    asked = []

    def own(model, X, y):
        asked.append(len(X))
        return r2_score(y, model.predict(X))

    frontier = fit(CSTCRegressor(costs=PRICES, **QUICK), X, y, quality=own)
    built_in = fit(CSTCRegressor(costs=PRICES, **QUICK), X, y)
    assert asked.count(100) == len(asked) == 21 * len(frontier.tried_)
    for row, other in zip(frontier.tried_, built_in.tried_, strict=True):
        assert row["quality"] == row["validation_quality"] == pytest.approx(other["validation_quality"])
        if row["mean_cost"] > 0:
            assert row["quality_error"] == pytest.approx(other["validation_quality_error"], rel=0.5)


def test_queries_that_are_drawn_twice_are_two_queries():
    X, y = regression()
    y, qid = np.searchsorted(np.quantile(y, [0.4, 0.7, 0.9]), y).astype(float), np.repeat(np.arange(40), 10)
    sizes = []

    def own(model, X, y, qid):
        sizes.append(np.unique(qid, return_counts=True)[1].tolist())
        return model.score(X, y, qid=qid)

    frontier = fit(CSTCRanker(costs=PRICES, **QUICK), X, y, qid=qid, quality=own)
    assert all(each == [10] * 10 for each in sizes)
    built_in = fit(CSTCRanker(costs=PRICES, **QUICK), X, y, qid=qid)
    for row, other in zip(frontier.tried_, built_in.tried_, strict=True):
        assert row["quality"] == pytest.approx(other["validation_quality"])
        assert row["quality_error"] == pytest.approx(other["validation_quality_error"], rel=0.5)


def test_a_scorer_that_cannot_judge_samples_has_no_standard_error():
    X, y = regression()

    def own(model, X, y):
        assert len(np.unique(y)) == 100  # which no sample has
        return r2_score(y, model.predict(X))

    frontier = fit(CSTCRegressor(costs=PRICES, **QUICK), X, y, quality=own)
    assert {row["quality_error"] for row in frontier.tried_} == {None}
    assert "None" not in repr(frontier.table_)
    wanted = 0.5 * frontier.table_[-1]["quality"]
    assert frontier.best(quality=wanted) is frontier.best(quality=wanted, paired=False)


def test_of_many_rows_all_models_are_judged_by_the_same_out_of_fold_rows(monkeypatch):
    """Gates learn from some of many rows; the full model, which has none, is known at all of them."""
    monkeypatch.setattr("cstc.experts.chain.MOST_TEACHERS", 150)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = (X[:, 0] + X[:, 1] + rng.normal(size=400) > 0).astype(int)
    estimator = CSTCClassifier(costs=[1, 2, 3], n_weak_learners=5, random_state=0)
    frontier = Frontier(estimator, cost_weights=[0.0, 0.001, 0.01]).fit(X, y)
    rows = [model._out_of_fold.rows for model in frontier.tried_models_ if model._out_of_fold is not None]
    assert len(rows) >= 3
    assert all(np.array_equal(each, rows[0]) for each in rows)
    assert len(rows[0]) == 150
