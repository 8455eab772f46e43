"""The Jaccard matrix and the extraction by depth: numbers that are the model's own, pictures that can be read."""

import numpy as np
import pytest

import builders
from cstc import CSTCClassifier, CSTCRegressor, Exact, Paper
from cstc.datasets import QUADRANT_COSTS, make_quadrants
from cstc.model import TreeShape
from cstc.plotting import ExtractionDisplay, JaccardDisplay

matplotlib = pytest.importorskip("matplotlib")
pytest.importorskip("matplotlib.pyplot")
matplotlib.use("Agg")


@pytest.fixture(scope="module")
def quadrants():
    X, y = make_quadrants(800, random_state=0)
    options = {"weak_learners": "identity", "method": Exact(max_iter=2000), "random_state": 0}
    return CSTCRegressor(costs=QUADRANT_COSTS, cost_weight=0.03, **options).fit(X, y), X, y


def fitted(model):
    estimator = CSTCRegressor()
    estimator.model_, estimator.n_features_in_, estimator._categories = model, model.costs.feature_items.shape[0], {}
    return estimator


def features_of(model, learners):
    """The columns that any of the given learners compares or multiplies."""
    found = set()
    for t in learners:
        waiting = [int(model.pool.roots[t])]
        while waiting:
            at = waiting.pop()
            found |= {int(column) for column in (model.pool.feature[at], model.pool.linear_feature[at]) if column >= 0}
            if model.pool.feature[at] >= 0:
                waiting += [int(model.pool.left[at]), int(model.pool.right[at])]
    return found


@pytest.mark.parametrize("seed", range(4))
def test_both_count_the_features_of_the_learners_in_use(seed):
    rng = np.random.default_rng(seed)
    shape = builders.random_shape(rng)
    model, X = builders.random_model(rng, shape), builders.random_table(rng, 300)
    y = rng.normal(size=300)
    display = JaccardDisplay.from_estimator(fitted(model), X, y)
    node = model.shape.terminal_parents[model.apply(X)]
    order = sorted(np.unique(node), key=lambda k: -y[node == k].mean())
    sets = [features_of(model, np.flatnonzero(model.predict_weights[:, k, 0])) for k in order]
    for i, a in enumerate(sets):
        for j, b in enumerate(sets):
            assert display.similarity[i, j] == pytest.approx(len(a & b) / len(a | b) if a | b else 1.0)
    assert display.names == [f"v{k}" for k in order]
    display = ExtractionDisplay.from_estimator(fitted(model), X)
    prices = model.costs.feature_prices
    reached = model.shape.paths[np.unique(model.apply(X))].any(axis=0)
    for depth, row in enumerate(display.shares):
        used = set()
        for k in np.flatnonzero(reached & (model.shape.depths <= depth)):
            used |= features_of(model, np.flatnonzero(model.route_weights[:, k]))
            if model.shape.is_predictive[k]:
                used |= features_of(model, np.flatnonzero(model.predict_weights[:, k, 0]))
        expected = [np.mean([j in used for j in np.flatnonzero(prices == price)]) for price in display.prices]
        np.testing.assert_allclose(row, expected)


def test_quadrants_share_the_signs_only(quadrants):
    model, X, y = quadrants
    display = JaccardDisplay.from_estimator(model, X, y)
    apart = display.similarity[~np.eye(len(display.names), dtype=bool)]
    assert len(display.names) == 4
    assert (np.diag(display.similarity) == 1).all()
    assert (apart < 0.6).all()
    averages = [float(label.replace("\N{MINUS SIGN}", "-")) for label in display.labels]
    assert averages == sorted(averages, reverse=True)


def test_dear_features_of_the_quadrants_come_last(quadrants):
    model, X, _ = quadrants
    display = ExtractionDisplay.from_estimator(model, X)
    assert display.prices.tolist() == [1.0, 10.0]
    assert display.counts.tolist() == [2, 4]
    assert (np.diff(display.shares, axis=0) >= 0).all()
    assert display.shares[-1].tolist() == [1.0, 1.0]
    assert display.shares[0, 1] == 0.0 < display.shares[0, 0]


def test_texts_fit_into_the_picture(quadrants):
    model, X, y = quadrants
    for display in (JaccardDisplay.from_estimator(model, X, y), ExtractionDisplay.from_estimator(model, X)):
        figure = display.figure_
        figure.canvas.draw()
        width, height = figure.canvas.get_width_height()
        for text in figure.findobj(matplotlib.text.Text):
            if text.get_text().strip() and text.get_visible():
                box = text.get_window_extent()
                assert -1 <= box.x0 <= box.x1 <= width + 1, text.get_text()
                assert -1 <= box.y0 <= box.y1 <= height + 1, text.get_text()


def test_drawn_into_given_axes_and_again(quadrants):
    model, X, y = quadrants
    _, axes = matplotlib.pyplot.subplots(1, 2)
    jaccard = JaccardDisplay.from_estimator(model, X, y, ax=axes[0])
    extraction = ExtractionDisplay.from_estimator(model, X, ax=axes[1])
    assert jaccard.ax_ is axes[0]
    assert extraction.ax_ is axes[1]
    assert jaccard.plot().figure_ is not axes[0].figure


def test_bad_input(quadrants):
    model, X, y = quadrants
    with pytest.raises(ValueError, match="one name and one label for each"):
        JaccardDisplay.from_predictions([[True, False]], ["a", "b"])
    with pytest.raises(ValueError, match="a row for each classifier"):
        JaccardDisplay.from_predictions([True, False], ["a", "b"])
    with pytest.raises(ValueError, match="a column for each price"):
        ExtractionDisplay.from_predictions([[0.1, 0.2]], [1], [3])
    with pytest.raises(ValueError, match="between 0 and 1"):
        ExtractionDisplay.from_predictions([[1.5]], [1], [3])
    with pytest.raises(ValueError, match="inconsistent"):
        JaccardDisplay.from_estimator(model, X, y[:5])
    classes = np.digitize(y, [-1, 1])
    method = Exact(max_iter=20, tol=1e-2)
    three = CSTCClassifier(weak_learners="identity", method=method, random_state=0).fit(X, classes)
    with pytest.raises(ValueError, match="at most two classes"):
        JaccardDisplay.from_estimator(three, X, classes)


def test_a_tree_of_one_node():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    model = CSTCRegressor(method=Paper(depth=1), n_weak_learners=5, random_state=0, n_jobs=1).fit(X, X[:, 0])
    assert model.model_.shape.n_nodes == TreeShape.full(1).n_nodes
    assert JaccardDisplay.from_estimator(model, X, X[:, 0]).similarity.tolist() == [[1.0]]
    assert len(ExtractionDisplay.from_estimator(model, X).shares) == 1
