"""The three risks: values, derivatives, curvature, best constants."""

import numpy as np
import pytest

import reference
from builders import LOSSES, random_targets
from cstc.losses import SoftmaxLoss

each_loss = pytest.mark.parametrize("loss", [*LOSSES.values(), SoftmaxLoss(5)], ids=[*LOSSES, "softmax of 5"])


def case(loss, n=30):
    rng = np.random.default_rng(0)
    return 2 * rng.normal(size=(n, loss.n_outputs)), random_targets(rng, loss, n), rng.uniform(0.1, 2, n)


@each_loss
def test_value_equals_the_reference(loss):
    margins, y, _ = case(loss)
    expected = [reference.risk(loss.name, row, target) for row, target in zip(margins, y, strict=True)]
    np.testing.assert_allclose(loss.value_and_derivative(margins, y)[0], expected, rtol=1e-12)


@each_loss
def test_derivative_equals_central_differences(loss):
    margins, y, _ = case(loss)
    derivative = loss.value_and_derivative(margins, y)[1]
    assert derivative.shape == margins.shape
    for q in range(loss.n_outputs):
        step = 1e-5 * np.eye(loss.n_outputs)[q]
        above, below = (loss.value_and_derivative(margins + s, y)[0] for s in (step, -step))
        np.testing.assert_allclose(derivative[:, q], (above - below) / 2e-5, rtol=1e-7, atol=1e-9)


@each_loss
def test_curvature_bounds_the_second_derivative(loss):
    margins, y, _ = case(loss, n=200)
    columns = []
    for q in range(loss.n_outputs):
        step = 1e-5 * np.eye(loss.n_outputs)[q]
        above, below = (loss.value_and_derivative(margins + s, y)[1] for s in (step, -step))
        columns.append((above - below) / 2e-5)
    hessians = np.stack(columns, axis=2)
    largest = np.linalg.eigvalsh((hessians + hessians.transpose(0, 2, 1)) / 2).max()
    assert 0.5 * loss.curvature < largest <= loss.curvature * (1 + 1e-6)


@each_loss
def test_constant_is_the_best_constant(loss):
    _, y, weights = case(loss)
    constant = loss.constant(y, weights)
    _, derivative = loss.value_and_derivative(np.tile(constant, (len(y), 1)), y)
    np.testing.assert_allclose(weights @ derivative, 0, atol=1e-9)


@pytest.mark.parametrize("loss", [LOSSES["logistic"], LOSSES["softmax"]], ids=["logistic", "softmax"])
def test_extreme_margins_and_absent_classes_stay_finite(loss):
    margins = np.array([[1e4], [-1e4]]) * np.eye(loss.n_outputs)[0]
    y = np.zeros(2, dtype=int)
    value, derivative = loss.value_and_derivative(margins, y)
    assert np.isfinite(value).all()
    assert np.isfinite(derivative).all()
    assert value.max() >= 9999
    assert np.isfinite(loss.constant(y, np.ones(2))).all()
