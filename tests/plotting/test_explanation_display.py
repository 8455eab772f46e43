"""The picture of an explanation has its numbers, and all of its words can be read."""

import numpy as np
import pytest

from cstc.plotting import ExplanationDisplay
from cstc.serving.explain import Belief, Explanation, Forecast, NextPurchase, Step

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
LONG = "a name of a measurement that nobody can remember $x_1$ and that goes on and on"


def belief(rng, n_classes):
    if n_classes is None:
        return Belief(float(rng.normal(100, 20)), None, 12.5)
    shares = rng.dirichlet(np.ones(n_classes))
    return Belief(int(shares.argmax()), dict(enumerate(shares.tolist())), float(1 - shares.max()))


def explanation(n_classes, n_steps, *, name="item", following=True, price=None, known=True):
    rng = np.random.default_rng(0)
    start = belief(rng, n_classes) if known else Belief(100.0)
    steps, before, spent = [], start, 0.0
    for number in range(n_steps):
        cost = float(rng.integers(0, 9)) if price is None else price
        spent += cost
        names = [f"{name} {number}.{each}" for each in range(1 + number % 6)]
        after = belief(rng, n_classes)
        items = dict.fromkeys(names, cost / len(names))
        steps.append(Step(number, dict.fromkeys(names, 1.0), {}, items, cost, spent, before, after, None, "Because."))
        before = after
    forecast = Forecast(0.1, 5.0, -0.1, 1.2, -3.8, True)
    more = NextPurchase(n_steps, [f"{name} next"], {f"{name} next": 5.0}, 5.0, forecast) if following else None
    return Explanation(before, start, {}, steps, "It stopped.", more, spent)


def texts_of(figure):
    figure.canvas.draw()
    texts = [text for text in figure.findobj(matplotlib.text.Text) if text.get_text().strip() and text.get_visible()]
    ax = figure.axes[0]
    far = [tick.label1 for tick in ax.xaxis.get_major_ticks() if not 0 <= tick.get_loc() <= ax.get_xlim()[1]]
    return [(text.get_text(), text.get_window_extent()) for text in texts if text not in far]  # those are not drawn


@pytest.mark.parametrize("name", ["item", LONG], ids=["short", "long"])
@pytest.mark.parametrize("n_steps", [0, 1, 3, 14])
@pytest.mark.parametrize("n_classes", [None, 2, 3, 10])
def test_all_words_are_inside_and_none_covers_another(n_classes, n_steps, name):
    display = ExplanationDisplay.from_explanation(explanation(n_classes, n_steps, name=name))
    width, height = display.figure_.canvas.get_width_height()
    texts = texts_of(display.figure_)
    for text, box in texts:
        assert box.x0 >= 0, text
        assert box.x1 <= width, text
        assert box.y0 >= 0, text
        assert box.y1 <= height, text
    for place, (text, box) in enumerate(texts):
        for other, there in texts[place + 1 :]:
            assert not box.shrunk(0.9, 0.7).overlaps(there.shrunk(0.9, 0.7)), (text, other)


def test_lines_are_the_predictions():
    told = explanation(3, 4, price=2.0)
    ax = ExplanationDisplay.from_explanation(told).ax_
    ends = {float(line.get_ydata()[-1]) for line in ax.lines if line.get_marker() == "o"}
    assert ends == set(told.outcome.probabilities.values())
    points = [line for line in ax.lines if line.get_marker() == "o"]
    assert all(line.get_xdata().tolist() == [0, 2, 4, 6, 8] for line in points)
    assert any(line.get_linestyle() == ":" for line in ax.lines)


def test_nothing_is_dotted_where_nothing_follows():
    ax = ExplanationDisplay.from_explanation(explanation(None, 2, following=False, known=False)).ax_
    assert not any(line.get_linestyle() == ":" for line in ax.lines)
    assert len(ax.collections) == 2  # a band for each prediction whose error is known


def test_from_estimator_and_into_given_axes():
    from sklearn.datasets import load_iris

    from cstc import CSTCClassifier

    X, y = load_iris(return_X_y=True)
    model = CSTCClassifier(n_weak_learners=10, random_state=0).fit(X, y)
    _, ax = matplotlib.pyplot.subplots()
    display = ExplanationDisplay.from_estimator(model, X[0], budget=3, ax=ax)
    assert display.ax_ is ax
    assert display.explanation.to_dict() == model.explain(X[0], budget=3).to_dict()
    assert ExplanationDisplay.from_estimator(model.model_, X[0]).explanation.cost == model.predict_cost(X[:1])[0]
    with pytest.raises(TypeError, match="give a fitted cstc estimator"):
        ExplanationDisplay.from_estimator("model", X[0])
