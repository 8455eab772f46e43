"""Margins that keep their promise: the scale and the shift, against what is known and against differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax

from cstc.experts import calibration as module
from cstc.experts.calibration import calibration, graded_expert
from cstc.experts.expectation import AGREEING, agreed
from cstc.experts.expert import Expert
from cstc.losses import ErrorLoss, LogisticLoss, SoftmaxLoss
from cstc.model import Decisions, TreePool, probabilities
from cstc.model.build import Score
from cstc.rows import Rows


def drawn(n, n_classes, seed):
    """Honest margins, and labels that keep their promise."""
    rng = np.random.default_rng(seed)
    margins = 1.5 * rng.normal(size=(n, 1 if n_classes == 2 else n_classes))
    shares = probabilities(margins, "logistic" if n_classes == 2 else "softmax")
    y = (rng.random((n, 1)) > np.cumsum(shares, axis=1)).sum(axis=1).clip(0, n_classes - 1)
    return margins, y


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("too_sure", [0.5, 1.0, 3.0])
def test_the_scale_takes_back_what_margins_are_too_sure_of(n_classes, too_sure):
    margins, y = drawn(20_000, n_classes, 0)
    loss = LogisticLoss() if n_classes == 2 else SoftmaxLoss(3)
    scale, shift = calibration(loss, too_sure * margins + 0.3, y, np.ones(len(y)))
    assert scale * too_sure == pytest.approx(1.0, abs=0.05)
    moved = scale * (too_sure * margins + 0.3) + shift
    shares, honest = (probabilities(each, loss.link) for each in (moved, margins))
    assert np.abs(shares - honest).mean() < 0.01


def test_few_rows_move_margins_little():
    margins, y = drawn(8, 2, 1)
    scale, shift = calibration(LogisticLoss(), 3 * margins, y, np.ones(8))
    assert 0.3 < scale < 1.5
    assert abs(shift[0]) < 1.0


def test_it_is_the_least_of_what_it_minimises():
    margins, y = drawn(300, 3, 2)
    loss, weights = SoftmaxLoss(3), np.random.default_rng(3).uniform(0.5, 2, 300)
    scale, shift = calibration(loss, margins, y, weights)

    def total(scale, shift):
        value = -log_softmax(scale * margins + shift, axis=1)[np.arange(300), y]
        as_it_is = (scale - 1) ** 2 + shift @ shift
        return (weights / weights.mean()) @ value + module.AS_IT_IS * as_it_is

    least = total(scale, shift)
    for step in (1e-3, -1e-3):
        assert total(scale + step, shift) >= least - 1e-6
        for k in range(3):
            assert total(scale, shift + step * np.eye(3)[k]) >= least - 1e-6


@pytest.mark.parametrize("n_classes", [2, 3])
def test_several_experts_agree_on_the_mean_of_their_probabilities(n_classes):
    margins, y = drawn(500, n_classes, 4)
    loss = LogisticLoss() if n_classes == 2 else SoftmaxLoss(3)
    rng = np.random.default_rng(5)
    candidates = [margins + noise * rng.normal(size=margins.shape) for noise in (0.1, 0.2, 0.3, 5.0, 9.0)]
    rows = Rows(None, y, np.ones(500))
    found = probabilities(agreed(loss, candidates, rows), loss.link)
    best = np.mean([probabilities(each, loss.link) for each in candidates[:AGREEING]], axis=0)
    np.testing.assert_allclose(found, best, atol=1e-9)


def test_the_loss_in_money_is_what_decisions_cost():
    decisions = Decisions(np.array([[0.0, 300.0], [5000.0, 0.0]]))
    loss = ErrorLoss(LogisticLoss(), decisions)
    margins, y = drawn(200, 2, 6)
    shares = probabilities(margins, "logistic")
    for row in range(200):
        costs = [shares[row, 1] * 5000.0, shares[row, 0] * 300.0]
        decided = int(np.argmin(costs))
        assert loss.value(margins, y)[row] == decisions.costs[y[row], decided]
        truth = np.array([0.3, 0.7])
        expected = loss.expected(margins, np.tile(truth, (200, 1)))[row]
        assert expected == pytest.approx(truth @ decisions.costs[:, decided])
    assert loss.risk(margins, y) == pytest.approx(loss.value(margins, y).mean())


# -- scores without a unit -----------------------------------------------------------------------------------------


def scored(scores):
    """An expert that answers with twice its only column, whose out-of-fold margins are the scores."""
    twice = Score(TreePool.identity(1), np.full((1, 1), 2.0), np.zeros(1))
    return Expert(twice, np.asarray(scores, dtype=float)[:, None])


def test_scores_without_a_unit_are_put_onto_grades_by_least_squares():
    rng = np.random.default_rng(0)
    scores, weights = rng.normal(size=50), rng.uniform(0.5, 2.0, size=50)
    y = 3 * scores + 1 + rng.normal(size=50)
    expert = graded_expert(scored(scores), Rows(None, y, weights))
    slope, level = np.polyfit(scores, y, 1, w=np.sqrt(weights))
    np.testing.assert_allclose(expert.margins[:, 0], slope * scores + level)
    # what predicts is moved with what is known out of fold
    np.testing.assert_allclose(expert.score.weights, 2 * slope)
    np.testing.assert_allclose(expert.score.intercept, level)


def test_only_rows_at_which_an_expert_was_heard_say_what_its_scores_mean():
    heard = np.arange(20) % 2 == 0
    scores = np.arange(20.0)
    y = np.where(heard, 2 * scores + 1, 100.0)
    expert = graded_expert(scored(scores), Rows(None, y, np.ones(20)), heard)
    np.testing.assert_allclose(expert.margins[:, 0], 2 * scores + 1)


@pytest.mark.parametrize("scores", [[1.0, 1.0, 1.0], [3.0, 2.0, 1.0]], ids=["one score", "the wrong way round"])
def test_scores_that_say_nothing_become_the_mean(scores):
    expert = graded_expert(scored(scores), Rows(None, np.array([0.0, 1.0, 2.0]), np.ones(3)))
    np.testing.assert_allclose(expert.margins[:, 0], 1.0)
