"""Cheap features that say which of the expensive ones matters."""

import numpy as np
import pytest

from cstc import CSTCClassifier, CSTCRegressor
from cstc.datasets import make_selectors

KINDS = {
    "signs": {},
    "noise": {"n_noise": 3},
    "a category": {"levels": (4,), "categories": True},
    "nested": {"levels": (2, 3), "nested": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_known_from_its_selectors_and_one_feature(kind):
    data = make_selectors(500, random_state=0, **KINDS[kind])
    names = np.array(data.feature_names)
    cheap, expensive = (np.flatnonzero(np.char.startswith(names, letter)) for letter in "sz")
    np.testing.assert_array_equal(data.y, data.X[np.arange(500), expensive[data.group]])
    assert set(data.group) == set(range(len(expensive)))
    # the group follows from the selectors that matter for it, and their prices with the feature's are the optimum
    nested = KINDS[kind].get("nested", False)
    levels = KINDS[kind].get("levels", (2, 2))
    for number in range(len(expensive)):
        at = data.group == number
        told_by = [column for column in cheap if len(np.unique(data.X[at, column])) == 1]
        assert len(told_by) == len(levels)
        same = (data.X[:, told_by] == data.X[at][0, told_by]).all(axis=1)
        assert np.array_equal(same, at)
        assert data.costs.price_of({*names[told_by], names[expensive[number]]}) == data.optimum
    assert len(cheap) == (1 + levels[0] if nested else len(levels))


def test_nothing_is_told_by_one_selector_alone():
    data = make_selectors(40_000, random_state=0)
    for column in (0, 1):
        for level in (-1.0, 1.0):
            assert abs(data.y[data.X[:, column] == level].mean()) < 0.03
    assert abs(np.corrcoef(data.X[:, 2], data.y)[0, 1] - 0.25) < 0.02


def test_labels_with_noise_and_other_prices():
    data = make_selectors(20_000, noise=0.5, n_noise=2, prices=(2.0, 7.0, 3.0), random_state=1)
    assert np.std(data.y - data.X[np.arange(20_000), 2 + data.group]) == pytest.approx(0.5, rel=0.02)
    assert data.costs.price_of({"s0", "s1", "z3", "n0"}) == 14.0
    assert data.optimum == 11.0


def test_the_same_state_draws_the_same_rows():
    one, other = (make_selectors(50, random_state=3) for _ in range(2))
    assert np.array_equal(one.X, other.X)
    assert not np.array_equal(one.X, make_selectors(50, random_state=4).X)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"levels": ()}, "levels is"),
        ({"levels": (2, 1)}, "2 or more for each selector"),
        ({"levels": (2.5,)}, "levels is"),
        ({"n_samples": 0}, "there must be a row"),
        ({"n_noise": -1}, "neither of the others may be negative"),
        ({"noise": -0.1}, "neither of the others may be negative"),
        ({"prices": (1.0, 2.0)}, "prices has 2 entries"),
    ],
)
def test_bad_input(wrong, message):
    with pytest.raises(ValueError, match=message):
        make_selectors(**wrong)


# -- what the method makes of them --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["signs", "a category"])
def test_each_row_buys_its_selectors_and_the_feature_that_they_name(kind):
    n = 2400
    data = make_selectors(n + 2000, random_state=0, **KINDS[kind])
    model = CSTCRegressor(
        costs=data.costs,
        cost_weight=0.01,
        n_weak_learners=60,
        categorical_features=data.categorical_features or None,
        random_state=0,
        n_jobs=1,
    )
    X = {name: data.X[:, column] for column, name in enumerate(data.feature_names)}
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(X)
    model.fit(X[:n], data.y[:n])
    assert (model.predict_cost(X[n:]) == data.optimum).all()
    assert model.score(X[n:], data.y[n:]) > 0.98


def test_plain_inputs_find_groups_that_have_equal_means():
    data = make_selectors(2000, random_state=0)
    prices = [data.costs.prices[name] for name in data.feature_names]
    model = CSTCRegressor(costs=prices, cost_weight=0.03, weak_learners="identity", random_state=0, n_jobs=1)
    model.fit(data.X[:1000], data.y[:1000])
    assert (model.predict_cost(data.X[1000:]) == 12.0).all()
    np.testing.assert_allclose(model.predict(data.X[1000:]), data.y[1000:], atol=1e-3)


def test_plain_inputs_find_groups_of_classes():
    data = make_selectors(3000, random_state=1)
    prices = [data.costs.prices[name] for name in data.feature_names]
    y = (data.y > 0).astype(int)
    model = CSTCClassifier(costs=prices, cost_weight=0.005, weak_learners="identity", random_state=0, n_jobs=1)
    model.fit(data.X[:2000], y[:2000])
    assert model.predict_cost(data.X[2000:]).mean() < 13.0
    assert model.score(data.X[2000:], y[2000:]) > 0.95
