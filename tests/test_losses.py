"""The three risks: values, derivatives, curvature, constants, what margins promise, and how LightGBM boosts them."""

import lightgbm
import numpy as np
import pytest

import reference
from builders import LOSSES, random_targets
from cstc.losses import SoftmaxLoss
from cstc.model import LINKS, probabilities

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
    best = loss.risk(np.tile(constant, (len(y), 1)), y, weights)
    for q in range(loss.n_outputs):
        for step in (-0.1, 0.1):
            other = np.tile(constant + step * np.eye(loss.n_outputs)[q], (len(y), 1))
            assert loss.risk(other, y, weights) > best


@pytest.mark.parametrize("loss", [LOSSES["logistic"], LOSSES["softmax"]], ids=["logistic", "softmax"])
def test_extreme_margins_and_absent_classes_stay_finite(loss):
    margins = np.array([[1e4], [-1e4]]) * np.eye(loss.n_outputs)[0]
    y = np.zeros(2, dtype=int)
    value, derivative = loss.value_and_derivative(margins, y)
    assert np.isfinite(value).all()
    assert np.isfinite(derivative).all()
    assert value.max() >= 9999
    assert np.isfinite(loss.constant(y, np.ones(2))).all()


@each_loss
def test_risk_is_the_weighted_mean(loss):
    margins, y, weights = case(loss)
    values = [reference.risk(loss.name, row, target) for row, target in zip(margins, y, strict=True)]
    assert loss.risk(margins, y) == pytest.approx(np.mean(values))
    assert loss.risk(margins, y, weights) == pytest.approx(weights @ values / weights.sum())


# -- link, promise and expectation ---------------------------------------------------------------------------------


@each_loss
def test_mean_is_what_the_link_makes_of_margins(loss):
    margins = case(loss)[0]
    expected = {
        "identity": lambda: margins[:, 0],
        "logistic": lambda: probabilities(margins, "logistic")[:, 1],
        "softmax": lambda: probabilities(margins, "softmax"),
    }[loss.link]()
    np.testing.assert_array_equal(loss.mean(margins), expected)
    assert loss.link in LINKS
    assert loss.has_classes == (loss.link != "identity")


@each_loss
def test_the_derivative_is_the_mean_less_the_truth(loss):
    """All three are of this kind, squared risk with a factor of 2: a promise is where margins stop being pulled."""
    margins, y, _ = case(loss)
    truth = np.eye(loss.n_outputs)[y] if loss.n_outputs > 1 else y
    factor = 2.0 if loss.name == "squared" else 1.0
    pull = loss.value_and_derivative(margins, y)[1].reshape(np.shape(truth))
    np.testing.assert_allclose(pull, factor * (loss.mean(margins) - truth), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("loss", [LOSSES["logistic"], LOSSES["softmax"]], ids=["logistic", "softmax"])
def test_expected_risk_of_classes_weighs_each_class_by_its_share(loss):
    margins = case(loss)[0]
    mean = loss.mean(case(loss)[0][::-1])
    shares = mean if loss.n_outputs > 1 else np.column_stack([1 - mean, mean])
    expected = [
        sum(share * reference.risk(loss.name, row, k) for k, share in enumerate(of_row))
        for row, of_row in zip(margins, shares, strict=True)
    ]
    np.testing.assert_allclose(loss.expected(margins, mean), expected, rtol=1e-12)


def test_expected_squared_risk_is_that_of_a_sample_less_its_variance():
    loss, rng = LOSSES["squared"], np.random.default_rng(1)
    margins, mean, noise = rng.normal(size=(5, 1)), rng.normal(size=5), rng.normal(size=400)
    noise -= noise.mean()
    for i in range(5):
        observed = loss.risk(np.tile(margins[i], (400, 1)), mean[i] + noise)
        assert loss.expected(margins, mean)[i] == pytest.approx(observed - noise.var())


@each_loss
def test_expected_risk_is_least_where_the_promise_is_true(loss):
    margins = case(loss)[0]
    best = loss.expected(margins, loss.mean(margins))
    for q in range(loss.n_outputs):
        for step in (-0.1, 0.1):
            assert (loss.expected(margins + step * np.eye(loss.n_outputs)[q], loss.mean(margins)) > best).all()


# -- boosting ------------------------------------------------------------------------------------------------------


def one_split(loss, gradient_step):
    """One split by LightGBM on a column of two values, without shrinkage: its gain, and the risk that it takes away."""
    rng = np.random.default_rng(2)
    X, weights = np.repeat([[0.0], [1.0]], 300, axis=0), np.ones(600)
    y = random_targets(rng, loss, 600)
    y = y + 0.3 * X[:, 0] if loss.name == "squared" else np.where(rng.random(600) < 0.15 * X[:, 0], 0, y)
    start = loss.constant(y, weights)
    parameters = {
        "objective": loss.objective,
        "num_leaves": 2,
        "learning_rate": gradient_step,
        "boost_from_average": False,
        "min_data_in_leaf": 1,
        "min_sum_hessian_in_leaf": 0.0,
        "num_threads": 1,
        "verbosity": -1,
    } | ({"num_class": loss.n_outputs} if loss.n_outputs > 1 else {})
    data = lightgbm.Dataset(X, y, weight=weights, init_score=np.repeat(start, 600))
    booster = lightgbm.train(parameters, data, 1)
    trees = [tree["tree_structure"] for tree in booster.dump_model()["tree_info"]]
    gain = sum(tree["split_gain"] for tree in trees if "split_gain" in tree)
    added = booster.predict(X, raw_score=True).reshape(600, -1)
    before = loss.value_and_derivative(np.tile(start, (600, 1)), y)[0].sum()
    return gain, before - loss.value_and_derivative(start + added, y)[0].sum()


@pytest.mark.parametrize("loss", [LOSSES["squared"], LOSSES["logistic"]], ids=["squared", "logistic"])
def test_gain_of_lightgbm_is_the_drop_of_the_summed_risk_times_its_unit(loss):
    """A small effect, where the risk is nearly the parabola that the gain is computed from."""
    gain, drop = one_split(loss, 1.0)
    assert drop > 1
    assert gain == pytest.approx(loss.gain_unit * drop, rel=0.02)


def test_gain_of_several_classes_is_in_the_same_unit():
    """Each class has a tree, and the classes share one drop: the gains of the trees add up to it."""
    gain, drop = one_split(LOSSES["softmax"], 1.0)
    assert drop > 1
    assert gain == pytest.approx(LOSSES["softmax"].gain_unit * drop, rel=0.1)


@each_loss
def test_lightgbm_takes_the_objective_by_its_name_and_lowers_this_risk(loss):
    _, drop = one_split(loss, 0.1)
    assert drop > 0
