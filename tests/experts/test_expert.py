"""Experts: out of fold at the training rows; at all others the mean of their members, or of an ensemble on all rows."""

from dataclasses import replace

import numpy as np
import pytest

from cstc.capacity import rounds_on_all
from cstc.experts import members as module
from cstc.experts.expert import Expert, constant_expert, grow_experts, scores_of
from cstc.lightgbm_engine import Binned, bin_blocks
from cstc.lightgbm_trees import trees_of
from cstc.losses import LogisticLoss, SoftmaxLoss, SquaredLoss
from cstc.model.build import Score
from experts.cases import boosting, grow_expert, resolved, rows_of, table

NOTHING = np.array([], dtype=int)
each_loss = pytest.mark.parametrize(
    ("loss", "constant"),
    [(SquaredLoss(), (0.3,)), (LogisticLoss(), (-0.5,)), (SoftmaxLoss(3), (0.1, -0.2, 0.1))],
    ids=["squared", "logistic", "softmax"],
)


def said(expert, X):
    """Margins of new rows."""
    return expert.score.pool.transform(X) @ expert.score.weights + expert.score.intercept


def test_margins_of_a_fold_come_from_members_that_never_saw_it():
    X, _ = table(300)
    y = X[:, 0] + X[:, 1] ** 2
    folds = np.arange(300) % 3
    model = boosting(resolved(np.ones(6)))
    one = grow_expert(model, rows_of(X, y), folds, np.array([0, 1]))
    two = grow_expert(model, rows_of(X, np.where(folds == 1, -y, y)), folds, np.array([0, 1]))
    assert np.array_equal(one.margins[folds == 1], two.margins[folds == 1])
    assert not np.array_equal(one.margins[folds == 0], two.margins[folds == 0])


def test_rows_are_heard_some_at_a_time(monkeypatch):
    X, _ = table(300)
    grow = boosting(resolved(np.ones(6))), rows_of(X, X[:, 0] + X[:, 1] ** 2), np.arange(300) % 3, np.array([0, 1])
    at_once = grow_expert(*grow).margins
    sizes = []
    cells_at = module.cells_at
    monkeypatch.setattr(module, "cells_at", lambda X, at, columns: sizes.append(len(at)) or cells_at(X, at, columns))
    monkeypatch.setattr(module, "HEARD_ROWS", 40)
    assert np.array_equal(grow_expert(*grow).margins, at_once)
    assert sizes == [40, 40, 20] * 3


@each_loss
def test_an_expert_is_the_mean_of_its_members_and_stays_on_its_columns(loss, constant):
    X, rng = table(300)
    y = rng.integers(max(2, loss.n_outputs), size=300) if loss.has_classes else X[:, 2]
    folds = np.arange(300) % 4
    expert = grow_expert(boosting(resolved(np.ones(6)), constant, loss), rows_of(X, y), folds, np.array([2, 4]))
    assert set(np.unique(expert.score.pool.feature)) <= {-1, 2, 4}
    outputs = expert.score.pool.transform(X)
    member = np.repeat(np.arange(4), expert.score.pool.n_learners // 4)
    alone = np.array([
        outputs[:, member == fold] @ expert.score.weights[member == fold] * 4 + constant for fold in range(4)
    ])
    for fold in range(4):
        assert np.allclose(alone[fold, folds == fold], expert.margins[folds == fold])
    assert np.allclose(said(expert, X), alone.mean(axis=0))


def test_an_expert_on_nothing_is_the_constant():
    X, _ = table(50)
    model = boosting(resolved(np.ones(6)), (0.7,))
    for expert in (grow_expert(model, rows_of(X, X[:, 0]), np.arange(50) % 2, NOTHING), constant_expert([0.7], 50)):
        assert expert.score.pool.n_learners == 0
        assert expert.margins.shape == (50, 1)
        assert np.all(expert.margins == 0.7)
        assert np.all(said(expert, X) == 0.7)


def test_weights_count_as_rows():
    X, _ = table(400)
    folds = np.arange(400) % 2
    heavy = X[:, 1] > 0
    rows = rows_of(X, np.where(heavy, 1.0, -1.0), np.where(heavy, 1.0, 1e-4))
    expert = grow_expert(boosting(resolved(np.ones(6))), rows, folds, np.array([0]))
    assert np.mean(expert.margins) > 0.8  # x0 does not tell the kinds apart: heavy rows decide


def test_where_trees_have_a_price_new_rows_get_one_ensemble_on_all_rows():
    X, rng = table(600)
    rows, folds = rows_of(X, X[:, 0] + 0.1 * rng.normal(size=600)), np.arange(600) % 3
    free, paid = (
        grow_expert(boosting(resolved(np.ones(6), evaluation=price)), rows, folds, np.array([0, 1]))
        for price in (0.0, 0.5)
    )
    assert (free.score.pool.n_learners, paid.score.pool.n_learners) == (3 * 30, 30)
    assert np.array_equal(free.margins, paid.margins)  # what gates learn from is out of fold all the same
    assert np.array_equal(np.unique(paid.score.weights), [1.0])
    assert np.mean((said(paid, X)[:, 0] - rows.y) ** 2) < 0.05


@pytest.mark.parametrize("evaluation", [0.0, 0.5])
def test_all_members_take_the_same_number_of_rounds(evaluation, monkeypatch):
    X, rng = table(600)
    rows = rows_of(X, X[:, 0] + rng.normal(size=600))
    taken = []

    def watched(booster, n_outputs, n_rounds=None):
        taken.append(n_rounds)
        return trees_of(booster, n_outputs, n_rounds)

    monkeypatch.setattr(module, "trees_of", watched)
    model = boosting(resolved(np.ones(6), evaluation=evaluation), early_stopping=5, n_rounds=200)
    expert = grow_expert(model, rows, np.arange(600) % 3, np.array([0, 1]))
    assert len(set(taken)) == 1
    assert 1 < taken[0] < 100
    assert expert.score.pool.n_learners == taken[0] * (1 if evaluation else 3)


def test_of_a_class_that_it_never_met_a_member_knows_nothing():
    X, _ = table(300)
    folds = np.arange(300) % 3
    y = np.where(X[:, 0] > 0, 1, 0)
    y[folds == 2] = np.where(X[folds == 2, 1] > 0, 2, y[folds == 2])  # class 2 lies in one fold
    constant = (0.2, 0.1, -0.3)
    expert = grow_expert(
        boosting(resolved(np.ones(6)), constant, SoftmaxLoss(3)), rows_of(X, y), folds, np.array([0, 1])
    )
    assert np.all(expert.margins[y == 2] == constant)
    assert not np.any(np.all(expert.margins[y != 2] == constant, axis=1))


def test_columns_of_categories_keep_their_place():
    X, rng = table(600)
    X[:, 4] = rng.integers(6, size=600)
    y = np.isin(X[:, 4], [1, 4]) * 2.0
    model = boosting(resolved(np.ones(6)), categorical=(4,), n_rounds=1, depth=1, learning_rate=1.0)
    expert = grow_expert(model, rows_of(X, y), np.arange(600) % 2, np.array([2, 4]))
    assert (expert.score.pool.category_count > 0).any()
    assert np.allclose(said(expert, X)[:, 0], y, atol=0.2)  # a single split: only a set of categories can do it


# -- many rows ----------------------------------------------------------------------------------------------------

MANY = 900
SETS = [np.array([1, 3]), np.array([1, 2, 3]), np.arange(6)]


@pytest.fixture
def many(monkeypatch):
    """So few rows are many here."""
    for name in ("cstc.lightgbm_engine.MANY_ROWS", "cstc.experts.expert.MANY_ROWS"):
        monkeypatch.setattr(name, MANY)


@pytest.fixture
def on_all(monkeypatch):
    """How many rounds each ensemble on all rows had, as they are grown."""
    grown, plain = [], Binned.boost_all
    monkeypatch.setattr(Binned, "boost_all", lambda self, rounds, weight: grown.append(rounds) or plain(self, rounds))
    return grown


def many_rows(loss=None):
    X, rng = table(MANY)
    score = X[:, 1] + X[:, 3] ** 2 + 0.3 * rng.normal(size=MANY)
    y = np.digitize(score, [0.5, 2.0][: max(2, loss.n_outputs) - 1]) if loss and loss.has_classes else score
    return rows_of(X, y, rng.uniform(0.5, 2.0, MANY)), np.arange(MANY) % 3


def grow_many(model, rows, folds, sets=SETS):
    return grow_experts([(columns, model) for columns in sets], rows, folds, bin_blocks(model, rows, sets))


@each_loss
def test_of_many_rows_the_answer_is_half_of_an_ensemble_on_all_rows_and_half_of_the_members(loss, constant, many):
    rows, folds = many_rows(loss)
    k, rounds, n_outputs = 3, 30, len(constant)
    model = boosting(resolved(np.ones(6)), constant, loss)
    blocks = bin_blocks(model, rows, SETS)
    assert blocks is not None
    for columns, expert in zip(SETS, grow_many(model, rows, folds), strict=True):
        score = expert.score
        assert set(np.unique(score.pool.feature)) <= {-1, *columns}
        # 1. the members first: each says out of fold what the margins are
        outputs, per_member = score.pool.transform(rows.X), rounds * n_outputs
        member = np.arange(score.pool.n_learners) // per_member
        assert np.unique(score.weights[member < k]) == pytest.approx([0.0, 0.5 / k] if n_outputs > 1 else [0.5 / k])
        alone = [outputs[:, member == fold] @ score.weights[member == fold] * 2 * k + constant for fold in range(k)]
        for fold in range(k):
            assert np.allclose(alone[fold][folds == fold], expert.margins[folds == fold])
        # 2. then the ensemble on all rows, which has more rounds
        binned = Binned(model, rows, columns, blocks)
        more = rounds_on_all(rounds, k)
        assert more > rounds
        pool, weights = trees_of(binned.boost_all(more), n_outputs, more)
        on_all_rows = pool.on_columns(binned.columns).scores(rows.X, weights) + constant
        last = member >= k
        assert last.sum() == pool.n_learners
        assert np.allclose(outputs[:, last] @ score.weights[last] * 2 + constant, on_all_rows)
        # 3. and half of each
        assert np.allclose(said(expert, rows.X), 0.5 * np.mean(alone, axis=0) + 0.5 * on_all_rows)


def test_the_ensemble_on_all_rows_is_grown_when_it_is_first_asked_for(many, on_all):
    rows, folds = many_rows()
    costs = resolved(np.ones(6))
    experts = grow_many(boosting(costs), rows, folds)
    assert [expert.price(costs) for expert in experts] == [0.0] * 3  # of trees that are not there yet
    assert all(np.isfinite(expert.margins).all() for expert in experts)
    assert on_all == []
    score = experts[1].score
    assert isinstance(score, Score)
    assert experts[1].score is score
    assert on_all == [rounds_on_all(30, 3)]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_expert_of_several_nodes_is_grown_once(n_jobs, many, on_all):
    rows, folds = many_rows()
    how = replace(boosting(resolved(np.ones(6))), n_jobs=n_jobs)
    one, two, three = grow_many(how, rows, folds)
    free = constant_expert(np.zeros(1), MANY)
    nodes = [free, one, two, one, one, two]
    scores = scores_of(nodes, how)
    assert len(on_all) == 2  # nobody asked for the third
    assert [score is node.score for score, node in zip(scores, nodes, strict=True)] == [True] * 6
    assert scores[1] is scores[3] is scores[4]
    assert scores_of(nodes, how)[1] is scores[1]
    assert len(on_all) == 2
    assert not isinstance(three._score, Score)
    assert scores_of([], how) == []


def test_scores_do_not_depend_on_who_is_grown_first(many):
    rows, folds = many_rows()
    how = boosting(resolved(np.ones(6)))
    one, other = (grow_many(how, rows, folds) for _ in range(2))
    alone = replace(how, n_jobs=1)
    for ours, theirs in zip(scores_of(one, replace(how, n_jobs=2)), scores_of(other[::-1], alone)[::-1], strict=True):
        assert np.array_equal(ours.pool.value, theirs.pool.value)
        assert np.array_equal(ours.pool.threshold, theirs.pool.threshold)
        assert np.array_equal(ours.weights, theirs.weights)


@each_loss
def test_of_many_rows_only_the_ensemble_on_all_rows_answers_where_trees_have_a_price(loss, constant, many, on_all):
    rows, folds = many_rows(loss)
    costs = resolved(np.ones(6), evaluation=0.5)
    experts = grow_many(boosting(costs, constant, loss), rows, folds)
    free = grow_many(boosting(resolved(np.ones(6)), constant, loss), rows, folds)
    more = rounds_on_all(30, 3)
    for expert, other in zip(experts, free, strict=True):
        n_trees = expert.score.pool.n_learners
        assert 0 < n_trees <= more * len(constant)
        assert expert.price(costs) == 0.5 * n_trees
        assert set(np.unique(expert.score.weights)) <= {0.0, 1.0}
        assert np.array_equal(expert.margins, other.margins)  # gates learn the same from either
    assert on_all == [more] * 3


def test_margins_of_many_rows_are_those_of_the_members_alone(many, monkeypatch):
    rows, folds = many_rows()
    model = boosting(resolved(np.ones(6)), early_stopping=5)
    experts = grow_many(model, rows, folds)
    before = [expert.margins.copy() for expert in experts]
    scores_of(experts, model)
    monkeypatch.setattr("cstc.experts.expert.MANY_ROWS", MANY + 1)  # the same bins, and no ensemble on all rows
    for expert, margins, few in zip(experts, before, grow_many(model, rows, folds), strict=True):
        assert np.array_equal(expert.margins, margins)
        assert np.array_equal(few.margins, margins)
        assert few.score.pool.n_learners < expert.score.pool.n_learners


def test_margins_of_many_rows_never_saw_their_fold(many):
    rows, folds = many_rows()
    model = boosting(resolved(np.ones(6)))
    one = grow_many(model, rows, folds)
    two = grow_many(model, rows_of(rows.X, np.where(folds == 1, -rows.y, rows.y), rows.weights), folds)
    for ours, theirs in zip(one, two, strict=True):
        assert np.array_equal(ours.margins[folds == 1], theirs.margins[folds == 1])
        assert not np.array_equal(ours.margins[folds == 0], theirs.margins[folds == 0])


def test_an_expert_keeps_nothing_that_its_score_was_grown_from():
    score = constant_expert(np.zeros(1), 3).score
    asked = []
    expert = Expert(lambda: asked.append(1) or score, np.zeros((3, 1)))
    assert expert.score is expert.score is score
    assert asked == [1]
    assert vars(expert)["_score"] is score
