"""Experts: out of fold at the training rows, the mean of their members at all others."""

import numpy as np
import pytest

from cstc.boosting import trees_of
from cstc.experts import expert as module
from cstc.experts.expert import constant_expert
from cstc.losses import LogisticLoss, SoftmaxLoss, SquaredLoss
from experts.cases import boosting, grow_expert, resolved, rows_of, table

NOTHING = np.array([], dtype=int)


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


@pytest.mark.parametrize(
    ("loss", "constant"),
    [(SquaredLoss(), (0.3,)), (LogisticLoss(), (-0.5,)), (SoftmaxLoss(3), (0.1, -0.2, 0.1))],
    ids=["squared", "logistic", "softmax"],
)
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
