"""Expected losses, and the shift that makes their mean what was observed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cstc.expectation import Expectation, calibrated
from cstc.losses import LogisticLoss, SoftmaxLoss, SquaredLoss


def example(name, seed, n=400):
    """A loss, margins of the truth, and labels."""
    rng = np.random.default_rng(seed)
    if name == "squared":
        truth = rng.normal(size=(n, 1))
        return SquaredLoss(), truth, truth[:, 0] + rng.normal(size=n)
    if name == "logistic":
        truth = rng.normal(size=(n, 1))
        return LogisticLoss(), truth, (rng.random(n) < 1 / (1 + np.exp(-truth[:, 0]))).astype(int)
    truth = rng.normal(size=(n, 3))
    shares = np.exp(truth) / np.exp(truth).sum(axis=1, keepdims=True)
    return SoftmaxLoss(3), truth, (rng.random((n, 1)) > shares.cumsum(axis=1)).sum(axis=1).clip(0, 2)


LOSSES = ("squared", "logistic", "softmax")


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(LOSSES), st.integers(0, 2**32 - 1), st.floats(0.0, 2.0), st.floats(0.0, 2.0))
def test_with_its_shift_it_is_on_average_what_was_observed(name, seed, error, other_error):
    loss, truth, y = example(name, seed)
    rng = np.random.default_rng(seed + 1)
    weights = rng.uniform(0.5, 2.0, size=len(y))
    best, other = (truth + size * rng.normal(size=truth.shape) for size in (error, other_error))
    expected = Expectation(loss, best, y, weights)
    observed = np.average(loss.value_and_derivative(other, y)[0], weights=weights)
    assert np.average(expected(other) + expected.shift(other), weights=weights) == pytest.approx(observed)


@pytest.mark.parametrize("name", LOSSES)
def test_the_luck_of_some_rows_is_not_charged(name):
    """Judged at a fold or at all rows, the same margins are expected to lose about the same."""
    loss, truth, y = example(name, 3, n=4000)
    rng = np.random.default_rng(5)
    best, other = (truth + size * rng.normal(size=truth.shape) for size in (0.1, 0.5))
    expected = Expectation(loss, best, y, np.ones(len(y)))
    unlucky = np.argsort(-loss.value_and_derivative(best, y)[0])[:800]  # as no fold would ever be
    everywhere, there = expected.shift(other), expected.shift(other[unlucky], unlucky)
    luck = np.mean((loss.value_and_derivative(best, y)[0])[unlucky]) - np.mean(loss.value_and_derivative(best, y)[0])
    assert abs(there - everywhere) < 0.35 * luck


@pytest.mark.parametrize("name", LOSSES)
def test_errors_of_the_best_are_not_charged_to_others(name):
    """Two predictions that are equally good are expected to lose the same, though one of them is taken as the best."""
    loss, truth, y = example(name, 1, n=20_000)
    rng = np.random.default_rng(7)
    one, two = (truth + 0.4 * rng.normal(size=truth.shape) for _ in range(2))
    none = np.tile(truth.mean(axis=0), (len(y), 1))
    expected = Expectation(loss, one, y, np.ones(len(y)))
    mean_one, mean_two, mean_none = (np.mean(expected(each) + expected.shift(each)) for each in (one, two, none))
    assert abs(mean_two - mean_one) < 0.1 * (mean_none - mean_one)
    assert np.mean(expected(two)) - np.mean(expected(one)) > 0.1 * (mean_none - mean_one)  # without its shift


def test_overconfident_margins_are_shrunk():
    loss, truth, y = example("logistic", 0, n=5000)
    mean = loss.mean(calibrated(loss, np.zeros(1), [1.6 * truth], y, np.ones(5000)))
    assert mean == pytest.approx(1 / (1 + np.exp(-truth[:, 0])), abs=0.05)
