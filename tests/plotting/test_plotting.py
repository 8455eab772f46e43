"""The numbers in the pictures are the model's own, and the pictures can be read."""

import re
import subprocess
import sys
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import builders
from builders import SHAPES
from cstc import CSTCClassifier, CSTCRegressor, Exact, Experts, Frontier
from cstc.baselines import EarlyExit
from cstc.datasets import QUADRANT_COSTS, make_quadrants, make_yahoo_like
from cstc.model import COUNTINGS, TreePool, TreeShape
from cstc.plotting import COLOURS, CostQualityDisplay, NodePredictionsDisplay, TreeDisplay

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
DRAWN = SHAPES | {"chain of 10": TreeShape.chain(10), "quadrants": TreeShape.full(3)}


def fitted(model):
    """An estimator around a model that no training has made."""
    estimator = CSTCRegressor()
    estimator.model_, estimator.n_features_in_, estimator._categories = model, model.costs.feature_items.shape[0], {}
    return estimator


@pytest.fixture(scope="module")
def quadrants():
    X, y = make_quadrants(800, random_state=0)
    options = {"weak_learners": "identity", "method": Exact(max_iter=2000), "random_state": 0}
    return CSTCRegressor(costs=QUADRANT_COSTS, cost_weight=0.03, **options).fit(X, y), X, y


def texts_of(figure):
    """Every non-empty text of a figure and its box in pixels."""
    figure.canvas.draw()
    texts = [text for text in figure.findobj(matplotlib.text.Text) if text.get_text().strip() and text.get_visible()]
    return [(text.get_text(), text.get_window_extent()) for text in texts]


# ------------------------------------------------------------------------------------ TreeDisplay


@pytest.mark.parametrize("counting", COUNTINGS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_purchases_along_the_tree_add_up_to_the_cost_of_the_model(shape, counting):
    rng = np.random.default_rng(0)
    model, X = builders.random_model(rng, shape), builders.random_table(rng, 300)
    flow = TreeDisplay.from_estimator(fitted(model), X, counting=counting).flow
    cost = model.predict_cost(X, counting)
    spent = flow.node_shares @ flow.node_prices + flow.terminal_shares @ flow.terminal_prices
    assert spent == pytest.approx(cost.mean())
    for terminal in range(shape.n_terminals):
        here = model.apply(X) == terminal
        on_path = flow.visits[here].any(axis=0)
        assert flow.terminal_shares[terminal] == here.mean()
        if here.any():
            assert flow.terminal_costs[terminal] == pytest.approx(cost[here].mean())
            assert (on_path == shape.paths[terminal]).all()
        else:
            assert np.isnan(flow.terminal_costs[terminal])


def test_bought_items_are_named_where_they_are_bought_first(quadrants):
    model, X, y = quadrants
    display = TreeDisplay.from_estimator(model, X, y)
    bought = [set(np.flatnonzero(items)) for items in display.flow.node_items]
    assert bought[0] | bought[1] == bought[0] | bought[2] == {0, 1}  # the signs
    assert sorted(item for node in bought[3:] for item in node) == [2, 3, 4, 5]
    assert display.flow.node_prices.tolist() == [1, 1, 1, 10, 10, 10, 10]
    assert display.flow.terminal_costs.tolist() == [12] * 4


@pytest.mark.parametrize("shape", DRAWN.values(), ids=DRAWN)
def test_no_text_of_a_tree_covers_another_or_leaves_the_picture(shape):
    rng = np.random.default_rng(1)
    model, X = builders.random_model(rng, shape), builders.random_table(rng, 500)
    display = TreeDisplay.from_estimator(fitted(model), X, rng.normal(size=500))
    texts = texts_of(display.figure_)
    assert sum(text.startswith("$v^") for text, _ in texts) == shape.n_nodes
    assert sum(text.startswith(("cost", "no rows")) for text, _ in texts) >= shape.n_terminals
    width, height = display.figure_.canvas.get_width_height()
    for text, box in texts:
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= width, text
        assert box.y1 <= height, text
    for (one, box), (other, other_box) in combinations(texts, 2):
        assert not box.padded(-1).overlaps(other_box.padded(-1)), (one, other)


def test_average_labels_of_numbers_and_classes(quadrants):
    model, X, y = quadrants
    display = TreeDisplay.from_estimator(model, X, y)
    assert display.labels[0] == f"{y.mean():.2f}".replace("-", "−")
    assert display.values[3] == pytest.approx(y[model.apply(X) == 0].mean())
    assert TreeDisplay.from_estimator(model, X).labels is None
    names = np.array(["low", "high"])[(y > 0).astype(int)]
    classifier = CSTCClassifier(n_weak_learners=10, random_state=0).fit(X, names)
    share = max(np.mean(names == "low"), np.mean(names == "high"))
    name = "low" if np.mean(names == "low") == share else "high"
    assert TreeDisplay.from_estimator(classifier, X, names).labels[0] == f"{name}: {share:.0%}"
    many = CSTCClassifier(n_weak_learners=10, random_state=0).fit(X, np.digitize(y, [-1, 1]))
    assert TreeDisplay.from_estimator(many, X, np.digitize(y, [-1, 1])).labels[0].startswith("class ")


LONG = ["the concentration of glucose in the blood after fasting for eight hours", "m" * 70, "age", "W" * 12, "ecg"]


@pytest.mark.parametrize("shape", [TreeShape.full(1), TreeShape.full(3), TreeShape.full(5, max_nodes=20)])
@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_names_of_any_length_stay_within_the_picture(shape, n_classes):
    rng = np.random.default_rng(2)
    terminals, costs = rng.integers(0, shape.n_terminals, 400), rng.gamma(2, 5, 400)
    classes = np.array([f"the class of a long name that ends with {k}" for k in range(n_classes)])
    y = classes[np.where(rng.random(400) < 0.7, terminals % n_classes, rng.integers(0, n_classes, 400))]
    node_items = (rng.random((shape.n_nodes, 5)) < 0.6) * rng.random((shape.n_nodes, 5))
    items = dict(zip(LONG, [5, 3, 1, 7, 2], strict=True))
    display = TreeDisplay.from_predictions(shape, terminals, costs, y, node_items=node_items, items=items)
    texts = texts_of(display.figure_)
    width, height = display.figure_.canvas.get_width_height()
    for text, box in texts:
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= width, text
        assert box.y1 <= height, text
    for (one, box), (other, other_box) in combinations(texts, 2):
        assert not box.padded(-1).overlaps(other_box.padded(-1)), (one, other)


def test_more_than_two_classes_have_colours_and_a_legend():
    shape = TreeShape.full(2)
    terminals, y = np.array([0, 0, 0, 1, 1]), np.array(["b", "b", "b", "c", "a"])
    display = TreeDisplay.from_predictions(shape, terminals, np.ones(5), y)
    circles = [patch for patch in display.ax_.patches if isinstance(patch, matplotlib.patches.Circle)]
    faces = [matplotlib.colors.to_hex(circle.get_facecolor()).upper() for circle in circles]
    assert faces[:3] == [COLOURS[1], COLOURS[1], COLOURS[0]]  # of equal ones the first
    assert faces[3:] == [COLOURS[0], COLOURS[1]]  # no node has most of c
    assert {"a", "b", "most frequent nowhere: c"} <= {text for text, _ in texts_of(display.figure_)}
    two = TreeDisplay.from_predictions(shape, terminals, np.ones(5), np.where(y == "a", "b", y))
    assert two.classes is None


def test_every_one_of_many_classes_is_in_the_legend():
    """Ten classes of one letter, narrow ones too: with a colour, or among those that no node has most of."""
    shape, letters = TreeShape.full(4), np.array(list("abcdefghij"))
    terminals = np.repeat(np.arange(shape.n_terminals), 10)
    y = letters[terminals % 8]  # no node has most of i and j
    y[:2] = "i", "j"
    display = TreeDisplay.from_predictions(shape, terminals, np.ones(len(y)), y)
    written = [text for text, _ in texts_of(display.figure_)]
    assert set("abcdefgh") <= set(written)
    assert "most frequent nowhere: i, j" in written
    y = letters[terminals % 8 + 2]
    y[:2] = "a", "b"
    display = TreeDisplay.from_predictions(shape, terminals, np.ones(len(y)), y)
    assert "i" in [text for text, _ in texts_of(display.figure_)]
    many = np.array([f"kind {k}" for k in range(20)])
    y = np.array(["kind 0"] * 300 + many.tolist())
    display = TreeDisplay.from_predictions(TreeShape.full(1), np.zeros(len(y), dtype=int), np.ones(len(y)), y)
    (rest,) = [text for text, _ in texts_of(display.figure_) if text.startswith("most frequent nowhere")]
    assert rest.startswith("most frequent nowhere: kind 1")


def test_items_on_which_most_is_spent_are_named_first_and_the_rest_is_counted():
    items = {f"item number {k}": price for k, price in enumerate([1, 9, 5, 7, 3, 2, 1, 1, 1, 1])}
    display = TreeDisplay.from_predictions(
        TreeShape.full(1), [0], [3.0], node_items=np.ones((1, 10)), items=items, caption=False
    )
    names = " ".join(next(text for text, _ in texts_of(display.figure_) if "item" in text).split())
    listed, more = re.fullmatch(r"(.*) and (\d+) more", names).groups()
    listed = listed.split(", ")
    ordered = [f"item number {k}" for k in (1, 3, 2, 4, 5, 0, 6, 7, 8, 9)]
    assert len(listed) >= 3
    assert listed == ordered[: len(listed)]
    assert int(more) == 10 - len(listed)


def test_a_tree_of_one_node_is_as_large_as_its_picture():
    display = TreeDisplay.from_predictions(TreeShape.full(1), [0], [3.0], ["a"], caption=False)
    boxes = [box for _, box in texts_of(display.figure_)]
    width, height = display.figure_.canvas.get_width_height()
    assert max(box.x1 for box in boxes) - min(box.x0 for box in boxes) > 0.6 * width
    assert max(box.y1 for box in boxes) - min(box.y0 for box in boxes) > 0.3 * height
    _, ax = matplotlib.pyplot.subplots(figsize=(8, 4))
    display.plot(ax, caption=False)
    assert max(text.get_fontsize() for text in ax.texts) > 10  # letters grow with the axes


@pytest.mark.parametrize("shape", [TreeShape.full(1), TreeShape.full(3), TreeShape.chain(5), TreeShape.full(4)])
@pytest.mark.parametrize("layout", [None, "constrained"])
@pytest.mark.parametrize("size", [(10, 4), (4, 3), (6, 9), (16, 14)])
def test_in_given_axes_of_any_size_no_text_of_a_tree_covers_another(shape, layout, size):
    """The caption in particular lies below the names of what the lowest node buys."""
    rng = np.random.default_rng(3)
    terminals, costs = rng.integers(0, shape.n_terminals, 300), rng.gamma(2, 5, 300)
    y = np.array(["malignant", "benign", "unknown"])[rng.integers(0, 3, 300)]
    node_items = np.zeros((shape.n_nodes, 6))
    node_items[:, :2] = 0.3
    lowest = 0
    while shape.lower[lowest] >= 0:
        lowest = shape.lower[lowest]
    node_items[lowest] = 1.0  # more lines than the others have
    items = {"texture": 5, "area": 3, "fractal dimension": 1, "smoothness": 7, "concave points": 2, "symmetry": 3}
    figure, ax = matplotlib.pyplot.subplots(figsize=size, layout=layout)
    figure.suptitle("one of the trees")
    TreeDisplay.from_predictions(shape, terminals, costs, y, node_items=node_items, items=items, ax=ax)
    figure.canvas.draw()
    texts, room = [(text.get_text(), text.get_window_extent()) for text in ax.texts], ax.get_window_extent()
    assert any(text.startswith("Above a node") for text, _ in texts)
    for text, box in texts:
        assert room.x0 - 1 <= box.x0 <= box.x1 <= room.x1 + 1, text
        assert room.y0 - 1 <= box.y0 <= box.y1 <= room.y1 + 1, text
    for (one, box), (other, other_box) in combinations(texts, 2):
        assert not box.padded(-1).overlaps(other_box.padded(-1)), (one, other)


def test_rows_come_closer_in_flat_axes_before_letters_become_smaller():
    shape, given = TreeShape.chain(4), ([0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0], ["a", "b", "a", "b"])
    whole = TreeDisplay.from_predictions(shape, *given)
    width, height = whole.figure_.get_size_inches()

    def drawn_in(part):
        figure = matplotlib.pyplot.figure(figsize=(width, part * height))
        whole.plot(figure.add_axes((0, 0, 1, 1)))
        return max(text.get_fontsize() for text in whole.ax_.texts), np.ptp(whole.ax_.get_ylim())

    (letters, rows), (flat_letters, flat_rows), (small_letters, _) = map(drawn_in, (1.0, 0.8, 0.3))
    assert flat_letters == pytest.approx(letters)
    assert flat_rows < 0.9 * rows
    assert small_letters < 0.8 * letters


def test_tree_is_drawn_into_given_axes_and_again(quadrants):
    model, X, y = quadrants
    figure, axes = matplotlib.pyplot.subplots(1, 2)
    display = TreeDisplay.from_estimator(model, X, y, ax=axes[0], caption=False)
    assert display.ax_ is axes[0]
    assert display.plot(axes[1]).figure_ is figure


def test_a_tree_of_arrays_is_that_of_the_estimator(quadrants):
    model, X, y = quadrants
    drawn = TreeDisplay.from_estimator(model, X, y)
    items = dict(zip(model.costs_.item_names, model.costs_.prices, strict=True))
    given = (model.model_.shape, model.apply(X), model.predict_cost(X), y)
    again = TreeDisplay.from_predictions(*given, node_items=drawn.flow.node_items, items=items)
    notes = ["Above", "Below"]  # the caption does not know how the costs were counted
    one, other = (
        [text for text, _ in texts_of(display.figure_) if text.split()[0] not in notes] for display in (drawn, again)
    )
    assert one == other
    bare = TreeDisplay.from_predictions(*given)
    assert not [text for text, _ in texts_of(bare.figure_) if "buys" in text or text.startswith("+")]


def test_arrays_that_are_no_tree(quadrants):
    model, X, y = quadrants
    shape, terminals, costs = model.model_.shape, model.apply(X), model.predict_cost(X)
    for changes, message in (
        ({"terminals": terminals + 1}, "terminals range from 1 to 4; the tree has 0 to 3"),
        ({"terminals": terminals / 2}, "one whole number for each row"),
        ({"costs": costs[1:]}, "there are 800 terminals"),
        ({"y": y[1:]}, "inconsistent numbers of samples"),
        ({"node_items": np.ones((7, 2)), "items": {"a": 1.0}}, r"shape \(7, 2\); the tree has 7 nodes, .* 1 items"),
    ):
        with pytest.raises(ValueError, match=message):
            TreeDisplay.from_predictions(**{"shape": shape, "terminals": terminals, "costs": costs, "y": y} | changes)


# ------------------------------------------------------------------------- NodePredictionsDisplay


def test_weights_and_predictions_of_the_leaves_are_those_of_the_model(quadrants):
    model, X, y = quadrants
    display = NodePredictionsDisplay.from_estimator(model, X, y, groups=X[:, 0] > 0)
    parents = model.model_.shape.terminal_parents[model.apply(X)]
    np.testing.assert_allclose(display.predictions[np.arange(len(X)), parents], model.predict(X))
    for node, feature in zip(range(3, 7), range(2, 6), strict=True):
        assert display.weights[feature, node] == pytest.approx(1, abs=0.01)
    # the first two levels look at the signs only
    assert not display.weights[2:, :3].any()


@pytest.mark.parametrize("shape", DRAWN.values(), ids=DRAWN)
def test_every_node_has_its_two_panels(shape):
    rng = np.random.default_rng(2)
    weights = builders.random_tree(rng, shape, builders.N_FEATURES)
    model = replace(
        builders.random_model(rng, shape),
        pool=TreePool.identity(builders.N_FEATURES),
        predict_weights=weights.predict_weights,
        route_weights=weights.route_weights,
    )
    X = np.nan_to_num(builders.random_table(rng, 200))
    figure = NodePredictionsDisplay.from_estimator(fitted(model), X, rng.normal(size=200)).figure_
    assert len(figure.axes) == 1 + 2 * shape.n_nodes
    titles = [axes.get_title() for axes in figure.axes]
    assert sum("of rows" in title for title in titles) == shape.n_nodes


def test_a_node_that_only_routes_shows_what_it_routes_with(quadrants):
    model, X, y = quadrants
    weights = model.model_.predict_weights.copy()
    weights[:, 0] = 0.0
    other = fitted(replace(model.model_, predict_weights=weights))
    display = NodePredictionsDisplay.from_estimator(other, X, y)
    np.testing.assert_allclose(display.weights[:2, 0] != 0, model.model_.route_weights[:2, 0] != 0)
    assert display.weights[:, 0].any()


def test_panels_of_arrays_must_fit_together(quadrants):
    model, X, y = quadrants
    drawn = NodePredictionsDisplay.from_estimator(model, X, y)
    given = (model.model_.shape, model.apply(X), model.predict_cost(X), y)
    again = NodePredictionsDisplay.from_predictions(*given, drawn.predictions, drawn.weights, drawn.prices)
    assert [text for text, _ in texts_of(again.figure_)] == [text for text, _ in texts_of(drawn.figure_)]
    with pytest.raises(ValueError, match=r"weights \(6, 7\); with 800 rows, 7 nodes and 5 prices"):
        NodePredictionsDisplay.from_predictions(*given, drawn.predictions, drawn.weights, drawn.prices[1:])
    with pytest.raises(ValueError, match="feature_names has 1 entries, there are 6 prices"):
        NodePredictionsDisplay.from_predictions(
            *given, drawn.predictions, drawn.weights, drawn.prices, feature_names=["a"]
        )


def test_models_that_it_cannot_show(quadrants):
    model, X, y = quadrants
    boosted = CSTCRegressor(n_weak_learners=5, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="weak_learners='identity'"):
        NodePredictionsDisplay.from_estimator(boosted, X, y)
    with pytest.raises(ValueError, match="feature_names has 2 entries, X has 6 features"):
        NodePredictionsDisplay.from_estimator(model, X, y, feature_names=["a", "b"])


# ----------------------------------------------------------------------------- CostQualityDisplay


def test_curves_are_drawn_by_rising_cost_in_different_ways():
    display = CostQualityDisplay.from_predictions(
        [[12, 2, 5], [20]], [[0.8, 0.7, 0.78], 0.81], ["tree", "all features"], quality_name="accuracy"
    )
    assert display.costs[0].tolist() == [2, 5, 12]
    assert display.qualities[0].tolist() == [0.7, 0.78, 0.8]
    one, other = display.ax_.lines
    assert one.get_color() != other.get_color()
    assert one.get_marker() != other.get_marker()
    assert display.ax_.get_ylabel() == "accuracy"
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == ["tree", "all features"]


def test_many_curves_can_be_told_apart():
    names = [f"system {number}" for number in range(20)]
    display = CostQualityDisplay.from_predictions([[1, 2]] * 20, [[0.1, 0.2]] * 20, names)
    assert len({(line.get_color(), line.get_marker()) for line in display.ax_.lines}) == 20
    display.figure_.canvas.draw()
    assert display.ax_.get_legend().get_window_extent().x0 >= display.ax_.get_window_extent().x1


def test_every_colour_is_seen_on_white():
    for colour in COLOURS:
        parts = np.array(matplotlib.colors.to_rgb(colour))
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        assert 1.05 / (linear @ [0.2126, 0.7152, 0.0722] + 0.05) > 2, colour  # contrast as WCAG defines it


def test_a_fitted_estimator_is_a_point(quadrants):
    model, X, y = quadrants
    display = CostQualityDisplay.from_estimator(model, X, y, name="tree")
    assert display.costs[0].tolist() == [pytest.approx(model.predict_cost(X).mean())]
    assert display.qualities[0].tolist() == [pytest.approx(model.score(X, y))]
    assert (display.quality_name, display.names) == ("R²", ["tree"])
    weights = np.arange(len(y)) + 1.0
    display = CostQualityDisplay.from_estimator(
        model, X, y, sample_weight=weights, quality="neg_mean_absolute_error", counting="learner", ax=display.ax_
    )
    assert display.costs[0] == pytest.approx([np.average(model.predict_cost(X, "learner"), weights=weights)])
    expected = -np.average(np.abs(y - model.predict(X)), weights=weights)
    assert display.qualities[0] == pytest.approx([expected])
    one, other = display.ax_.lines  # the second joined the first
    assert one.get_color() != other.get_color()


def test_a_frontier_is_a_curve_and_early_exit_gets_its_queries():
    X, y, qid, _ = make_yahoo_like(20, random_state=0)
    X = X[:, :30]
    options = {"costs": [1.0] * 30, "n_weak_learners": 5, "random_state": 0, "n_jobs": 1}
    exits = EarlyExit(**options).frontier(X, y, qid=qid, n_points=4)
    display = CostQualityDisplay.from_estimator(exits, X, y, qid=qid)
    assert display.quality_name == "NDCG@5"
    assert len(display.costs[0]) == len(exits.models_)
    assert exits.models_[-1].predict_cost(X, qid=qid).mean() in display.costs[0]
    estimator = CSTCClassifier(**options, method=Experts(folds=2))
    own = Frontier(estimator, cost_weights=[0.01], quality="accuracy").fit(X, y > 1)
    display = CostQualityDisplay.from_estimator(own, X, y > 1)
    assert display.quality_name == "accuracy"
    assert own.models_[-1].score(X, y > 1) in display.qualities[0]
    with pytest.raises(TypeError, match="LinearRegression is no CSTC estimator"):
        CostQualityDisplay.from_estimator(LinearRegression().fit(X, y), X, y)
    for unfitted in (clone(own), CSTCClassifier()):
        with pytest.raises(NotFittedError):
            CostQualityDisplay.from_estimator(unfitted, X, y)


def test_curves_must_fit_together():
    with pytest.raises(ValueError, match="2, 1 and 1 entries"):
        CostQualityDisplay.from_predictions([[1], [2]], [[1]], ["tree"])
    with pytest.raises(ValueError, match=r"'tree' has costs of shape \(2,\) and qualities of shape \(1,\)"):
        CostQualityDisplay.from_predictions([[1, 2]], [[1]], ["tree"])
    points = [[1, 2]], [[0.1, 0.2]], ["tree"]
    with pytest.raises(ValueError, match="quality_errors has 2 entries for 1 curves"):
        CostQualityDisplay.from_predictions(*points, quality_errors=[[0.1, 0.1], None])
    with pytest.raises(ValueError, match=r"'tree' has cost_errors of shape \(1,\) and 2 points"):
        CostQualityDisplay.from_predictions(*points, cost_errors=[[0.1]])
    with pytest.raises(ValueError, match="'tree' has quality_errors below 0"):
        CostQualityDisplay.from_predictions(*points, quality_errors=[[0.1, -0.1]])


def test_standard_errors_are_light_bars_in_the_order_of_the_points():
    display = CostQualityDisplay.from_predictions(
        [[5, 2], [9]],
        [[0.8, 0.7], [0.9]],
        ["tree", "all features"],
        cost_errors=[[0.5, 0.2], None],
        quality_errors=[[0.08, None], None],
    )
    assert len(display.ax_.lines) == 2  # bars are no curves
    assert display.cost_errors[0].tolist() == [0.2, 0.5]
    assert display.cost_errors[1] is None
    across, up = display.ax_.collections
    assert np.array(across.get_segments())[:, :, 0].tolist() == [[1.8, 2.2], [4.5, 5.5]]
    unknown, known = up.get_segments()
    assert known[:, 1].tolist() == pytest.approx([0.72, 0.88])
    assert len(unknown) == 0
    assert across.get_alpha() < 0.5
    assert matplotlib.colors.to_hex(across.get_color()[0]).lower() == display.ax_.lines[0].get_color().lower()


# ------------------------------------------------------------------------------------ the library


def test_matplotlib_is_imported_only_for_drawing(quadrants, monkeypatch):
    code = "import cstc.plotting, sys; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'cstc\[plot\]'"):
        TreeDisplay.from_estimator(*quadrants)


def test_only_fitted_trees_are_drawn(quadrants):
    _, X, y = quadrants
    with pytest.raises(NotFittedError):
        TreeDisplay.from_estimator(CSTCRegressor(), X, y)
    with pytest.raises(TypeError, match="LinearRegression is no CSTC estimator"):
        TreeDisplay.from_estimator(LinearRegression().fit(X, y), X, y)
    with pytest.raises(ValueError, match="counting"):
        TreeDisplay.from_estimator(*quadrants, counting="both")


def test_names_of_users_are_no_formulas(quadrants, tmp_path):
    display = CostQualityDisplay.from_predictions([[1, 2]], [[0.5, 0.6]], ["in $US and $x^"], cost_name="cost in $, $^")
    display.figure_.savefig(tmp_path / "curves.png")
    assert display.ax_.get_legend_handles_labels()[1] == [r"in \$US and \$x^"]
    model, X, y = quadrants
    tree = TreeDisplay.from_estimator(model, X, y)
    tree.labels = [r"a $\frac$ b"] * len(tree.labels)
    tree.plot().figure_.savefig(tmp_path / "tree.png")


def test_the_axis_says_how_cost_is_counted(quadrants):
    model, X, y = quadrants
    labels = [CostQualityDisplay.from_estimator(model, X, y, counting=each).ax_.get_xlabel() for each in COUNTINGS]
    assert labels[0] != labels[1]
    assert "every used learner" in labels[COUNTINGS.index("learner")]


@pytest.mark.parametrize(
    ("costs", "qualities", "names", "message"),
    [([], [], [], "nothing to draw"), ([[]], [[]], ["a"], "no point"), ([[np.nan]], [[1]], ["a"], "not finite")],
)
def test_curves_without_points_are_refused(costs, qualities, names, message):
    with pytest.raises(ValueError, match=message):
        CostQualityDisplay.from_predictions(costs, qualities, names)


def test_costs_that_spread_are_drawn_on_a_logarithmic_axis():
    near = CostQualityDisplay.from_predictions([[0, 1, 30]], [[0.1, 0.2, 0.3]], ["a"])
    assert near.ax_.get_xscale() == "linear"
    far = CostQualityDisplay.from_predictions([[0, 1, 31]], [[0.1, 0.2, 0.3]], ["a"])
    assert far.ax_.get_xscale() == "symlog"
    places = far.ax_.transData.transform([(0, 0), (1, 0), (3, 0), (9, 0)])[:, 0]
    assert places[2] - places[1] == pytest.approx(places[3] - places[2])
    assert 0 < places[1] - places[0] < places[3] - places[1]
    assert [tick.get_text() for tick in far.ax_.get_xticklabels()] == ["0", "1", "2", "5", "10", "20"]
    plain = CostQualityDisplay.from_predictions([[0, 1, 31]], [[0.1, 0.2, 0.3]], ["a"], log_cost=False)
    assert plain.ax_.get_xscale() == "linear"
    asked = CostQualityDisplay.from_predictions([[1, 2]], [[0.1, 0.2]], ["a"], log_cost=True)
    assert asked.ax_.get_xscale() == "symlog"
    free = CostQualityDisplay.from_predictions([[0]], [[0.1]], ["a"], log_cost=True)
    assert free.ax_.get_xscale() == "linear"  # nothing to take a logarithm of
    more = CostQualityDisplay.from_predictions([[100]], [[0.3]], ["b"], ax=near.ax_)
    assert more.ax_.get_xscale() == "symlog"  # by all curves that are there


def test_a_line_is_at_the_budget():
    display = CostQualityDisplay.from_predictions([[1, 2]], [[0.1, 0.2]], ["a"], budget=1.5)
    assert "budget 1.5" in [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert [1.5, 1.5] in [list(line.get_xdata()) for line in display.ax_.lines]
    with pytest.raises(ValueError, match="budget is -1; it must be a finite number, 0 or more"):
        CostQualityDisplay.from_predictions([[1]], [[0.1]], ["a"], budget=-1)
    with pytest.raises(ValueError, match="log_cost is 'yes'; it must be True, False or None"):
        CostQualityDisplay.from_predictions([[1]], [[0.1]], ["a"], log_cost="yes")


def test_a_frontier_draws_a_line_at_what_was_asked_for(quadrants):
    _, X, y = quadrants
    estimator = CSTCRegressor(costs=QUADRANT_COSTS, n_weak_learners=10, random_state=0)
    frontier = Frontier(estimator, cost_weights=[10.0, 0.01]).fit(X, y)
    names = {"mean_cost": "budget 40", "p95_cost": "limit of 95% of inputs 40", "max_cost": "limit of every input 40"}
    for asked, name in names.items():
        drawn = frontier.plot(**{asked: 40.0})
        assert name in [text.get_text() for text in drawn.ax_.get_legend().get_texts()]
    assert frontier.plot(mean_cost=float("inf")).budget is None
    assert frontier.plot(log_cost=True).ax_.get_xscale() == "symlog"
