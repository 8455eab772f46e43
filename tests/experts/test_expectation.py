"""Expected losses, and the shift that makes their mean what was observed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cstc.experts.expectation import Expectation, calibrated
from cstc.losses import LogisticLoss, SoftmaxLoss, SquaredLoss
from experts.cases import rows_of


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


def expectation(loss, best, y, weights=None):
    return Expectation(loss, best, rows_of(np.zeros((len(y), 1)), y, weights))


LOSSES = ("squared", "logistic", "softmax")


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(LOSSES), st.integers(0, 2**32 - 1), st.floats(0.0, 2.0), st.floats(0.0, 2.0))
def test_with_its_shift_it_is_on_average_what_was_observed(name, seed, error, other_error):
    loss, truth, y = example(name, seed)
    rng = np.random.default_rng(seed + 1)
    weights = rng.uniform(0.5, 2.0, size=len(y))
    best, other = (truth + size * rng.normal(size=truth.shape) for size in (error, other_error))
    expected = expectation(loss, best, y, weights)
    observed = np.average(loss.value_and_derivative(other, y)[0], weights=weights)
    assert np.average(expected(other) + expected.shift(other), weights=weights) == pytest.approx(observed)


@pytest.mark.parametrize("name", LOSSES)
def test_expected_is_the_mean_over_labels_of_the_best(name):
    """If the best expert is right, differences of expected losses are those over many labels drawn from it."""
    loss, truth, _ = example(name, 0, n=1)
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, *truth.shape))
    if name == "squared":
        labels = truth[0, 0] + rng.normal(size=200_000)
    else:
        share = loss.mean(truth)[0]
        share = [1 - share, share] if name == "logistic" else share
        labels = rng.choice(len(share), p=share, size=200_000)
    observed = [loss.risk(np.repeat(margins, len(labels), axis=0), labels) for margins in (first, second)]
    expected = expectation(loss, truth, labels[:1])
    assert expected(first)[0] - expected(second)[0] == pytest.approx(observed[0] - observed[1], abs=0.03)


@pytest.mark.parametrize("name", LOSSES)
def test_of_some_rows_it_is_the_part_of_all(name):
    loss, truth, y = example(name, 2)
    other = truth + np.random.default_rng(3).normal(size=truth.shape)
    expected = expectation(loss, truth, y)
    at = np.arange(0, len(y), 3)
    assert np.array_equal(expected(other[at], at), expected(other)[at])
    assert expected.shift(other, np.arange(len(y))) == pytest.approx(expected.shift(other))


@pytest.mark.parametrize("name", LOSSES)
def test_the_luck_of_some_rows_is_not_charged(name):
    """Judged at a fold or at all rows, the same margins are expected to lose about the same."""
    loss, truth, y = example(name, 3, n=4000)
    rng = np.random.default_rng(5)
    best, other = (truth + size * rng.normal(size=truth.shape) for size in (0.1, 0.5))
    expected = expectation(loss, best, y)
    observed = loss.value_and_derivative(best, y)[0]
    unlucky = np.argsort(-observed)[:800]  # as no fold would ever be
    everywhere, there = expected.shift(other), expected.shift(other[unlucky], unlucky)
    luck = np.mean(observed[unlucky]) - np.mean(observed)
    assert abs(there - everywhere) < 0.35 * luck


@pytest.mark.parametrize("name", LOSSES)
def test_errors_of_the_best_are_not_charged_to_others(name):
    """Two predictions that are equally good are expected to lose the same, though one of them is taken as the best."""
    loss, truth, y = example(name, 1, n=20_000)
    rng = np.random.default_rng(7)
    one, two = (truth + 0.4 * rng.normal(size=truth.shape) for _ in range(2))
    none = np.tile(truth.mean(axis=0), (len(y), 1))
    expected = expectation(loss, one, y)
    mean_one, mean_two, mean_none = (np.mean(expected(each) + expected.shift(each)) for each in (one, two, none))
    assert abs(mean_two - mean_one) < 0.1 * (mean_none - mean_one)
    assert np.mean(expected(two)) - np.mean(expected(one)) > 0.1 * (mean_none - mean_one)  # without its shift


def test_overconfident_margins_are_shrunk():
    loss, truth, y = example("logistic", 0, n=5000)
    mean = loss.mean(calibrated(loss, np.zeros(1), [1.6 * truth], rows_of(truth, y)))
    assert mean == pytest.approx(1 / (1 + np.exp(-truth[:, 0])), abs=0.05)


def test_margins_shrink_towards_the_constant():
    loss, _, y = example("squared", 0, n=5000)
    noise = np.random.default_rng(1).normal(size=(5000, 1))
    constant = loss.constant(y, np.ones(5000))
    assert calibrated(loss, constant, [constant + noise], rows_of(noise, y)) == pytest.approx(constant[0], abs=0.2)


def test_the_best_is_that_of_the_rows_that_count():
    loss, truth, y = example("squared", 0, n=2000)
    kind = np.arange(2000) % 2 == 0
    one, two = (np.where(right[:, None], truth, -truth) for right in (kind, ~kind))
    for weights, best in ((np.where(kind, 1.0, 1e-3), one), (np.where(kind, 1e-3, 1.0), two)):
        found = calibrated(loss, np.zeros(1), [one, two], rows_of(truth, y, weights))
        assert np.mean(found * best) > 0.5


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(LOSSES), st.integers(0, 2**32 - 1))
def test_errors_are_multiplied_by_the_factor_of_their_row(name, seed):
    loss, truth, y = example(name, seed)
    rng = np.random.default_rng(seed + 1)
    factor, weights = rng.uniform(0.0, 3.0, size=len(y)), rng.uniform(0.5, 2.0, size=len(y))
    rows = rows_of(np.zeros((len(y), 1)), y, weights)
    other = truth + rng.normal(size=truth.shape)
    plain, expected = Expectation(loss, truth, rows), Expectation(loss, truth, rows, factor)
    np.testing.assert_allclose(expected(other), factor * plain(other))
    some = np.arange(0, len(y), 3)
    np.testing.assert_allclose(expected(other[some], some), factor[some] * plain(other[some], some))
    observed = np.average(factor * loss.value(other, y), weights=weights)
    assert np.average(expected(other) + expected.shift(other), weights=weights) == pytest.approx(observed)
