"""The tree as a picture: every node and every price is there, whatever the shape and whatever the names."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given

from builders import PROPERTY, SHAPES, each_shape, random_model, random_shape, seeds
from cstc.model import TreeShape
from cstc.model.sketch import NAMES_WIDTH, layout, sketch

SVG = "{http://www.w3.org/2000/svg}"
GOLDEN = Path(__file__).parent.parent / "golden" / "model-v1.cstc"


def drawn(model):
    """The picture, parsed: it must be well-formed XML to be shown alike everywhere."""
    return ElementTree.fromstring(f"<html>{sketch(model)}</html>").find(f".//{SVG}svg")


def texts(model):
    return [text.text for text in drawn(model).iter(f"{SVG}text")]


def told(model):
    """What appears when the mouse rests on a node or on a terminal."""
    return [title.text for title in drawn(model).iter(f"{SVG}title")]


def named(model, names):
    return replace(model, costs=replace(model.costs, item_names=names))


def model_of(shape, seed=0, **options):
    return random_model(np.random.default_rng(seed), shape, density=0.5, **options)


def random_parents(n, seed):
    """A tree of n nodes that grew wherever there was a free place."""
    rng = np.random.default_rng(seed)
    free, parents, is_upper = [(0, True), (0, False)], [-1], [True]
    for node in range(1, n):
        parent, above = free.pop(int(rng.integers(len(free))))
        parents.append(parent)
        is_upper.append(above)
        free += [(node, True), (node, False)]
    return TreeShape.from_parents(parents, is_upper)


# -- what is shown -----------------------------------------------------------------------------------------------


@each_shape
def test_every_node_edge_and_way_out_is_drawn(shape):
    picture = drawn(model_of(shape))
    assert len(list(picture.iter(f"{SVG}circle"))) == shape.n_nodes
    assert len(list(picture.iter(f"{SVG}path"))) == shape.n_nodes - 1
    assert sum(rect.get("width") == "10" for rect in picture.iter(f"{SVG}rect")) == shape.is_predictive.sum()


def by_hand(model):
    """For each node and each terminal: the names it newly buys and all that was paid, learner by learner."""
    uses, shape, costs = model.pool.learner_uses(model.costs.feature_items), model.shape, model.costs

    def bill(learners):
        items = {item for learner in learners for item in np.flatnonzero(uses[learner])}
        return items, sum(costs.prices[item] for item in items) + costs.evaluation * len(learners)

    known, nodes = {-1: set()}, []
    for node in range(shape.n_nodes):
        own = model.predict_weights[:, node].any(axis=1) if shape.is_leaf[node] else model.route_weights[:, node] != 0
        known[node] = known[int(shape.parents[node])] | set(np.flatnonzero(own))
        items, paid = bill(known[node])
        nodes.append((items - bill(known[int(shape.parents[node])])[0], paid))
    ends = []
    for node in np.flatnonzero(shape.is_predictive):
        items, paid = bill(known[node] | set(np.flatnonzero(model.predict_weights[:, node].any(axis=1))))
        ends.append((node, items - bill(known[node])[0], paid))
    return nodes, ends


@PROPERTY
@given(seeds)
def test_purchases_and_prices_are_those_of_the_bill(seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, random_shape(rng))
    names, found = model.costs.item_names, told(model)
    nodes, ends = by_hand(model)
    for node, (items, paid) in enumerate(nodes):
        line = next(text for text in found if text.startswith(f"v{node} "))
        buys = line.partition("newly buys ")[2].partition(";")[0]
        assert sorted(buys.split(", ")) == (sorted(names[item] for item in items) or ["nothing"])
        assert line.endswith(f"paid so far {paid:.2f}")
    for node, items, paid in ends:
        line = next(text for text in found if text.startswith(f"rows that leave at v{node} "))
        buys = line.partition("newly buy ")[2].partition(";")[0]
        assert sorted(buys.split(", ")) == (sorted(names[item] for item in items) or [""])
        assert line.endswith(f"they pay {paid:.2f}")
    shown = texts(model)
    assert {f"{cost:.2f}" for cost in model.terminal_costs()} <= set(shown)
    assert {f"{paid:.2f}" for _, paid in nodes} <= set(shown)


def test_which_rows_go_where_is_told():
    found = told(model_of(TreeShape.full(2)))
    assert any(text.startswith("v1 takes rows whose margin at v0 is above its threshold;") for text in found)
    assert any(text.startswith("v2 takes rows whose margin at v0 is at or below its threshold;") for text in found)


def test_expensive_items_come_first_and_a_free_lunch_is_called_so():
    model = model_of(SHAPES["chain"], n_trees=20, n_items=3)
    model = replace(model, costs=replace(model.costs, prices=np.array([1.0, 7.0, 3.0])))
    shown = texts(model)
    assert "item 1, item 2, item 0" in shown  # the first gate asks for all
    assert "nothing new" in shown


# -- shapes ------------------------------------------------------------------------------------------------------

LARGE = {
    "chain": TreeShape.chain(64),
    "full": TreeShape.full(6),
    **{f"random {seed}": random_parents(64, seed) for seed in range(5)},
}


@pytest.mark.parametrize("shape", [*SHAPES.values(), *LARGE.values()], ids=[*SHAPES, *LARGE])
def test_no_line_runs_through_a_node_that_it_does_not_belong_to(shape):
    lines, lanes = layout(shape)
    assert sorted(lines) == list(range(shape.n_nodes))
    assert lanes.max() <= np.log2(shape.n_nodes + 1)
    for node in range(1, shape.n_nodes):
        parent = shape.parents[node]
        assert lines[parent] < lines[node]
        between = (lines > lines[parent]) & (lines < lines[node]) & (lanes == lanes[node])
        assert not between.any()
        assert lanes[node] == lanes[parent] or lines[node] == lines[parent] + 1  # a bend is one line high


@pytest.mark.parametrize("shape", LARGE.values(), ids=LARGE)
def test_sixty_four_nodes_with_long_names_stay_in_their_columns(shape):
    names = [f"{j} a feature with a name that never ends " + "and goes on " * 14 for j in range(5)]
    model = named(model_of(shape, n_trees=30), names)
    picture = drawn(model)
    assert float(picture.get("width")) < NAMES_WIDTH + 500
    for text in picture.iter(f"{SVG}text"):
        assert 0 <= float(text.get("x")) < float(picture.get("width"))
        assert 0 < float(text.get("y")) < float(picture.get("height"))
        assert len(text.text) <= 60
    assert any(text.endswith("more") and "… and" in text for text in texts(model))
    assert len(sketch(model)) < 200_000


@pytest.mark.parametrize("letter", ["W", "特", "i", "🙂"])
def test_wide_letters_take_their_place(letter):
    shown = [text for text in texts(named(model_of(SHAPES["leaf"]), [letter * 200] * 5)) if text.startswith(letter * 5)]
    assert shown
    longest = {"W": 30, "特": 26, "i": 80, "🙂": 26}[letter]  # letters of 13 pixels and less in 340
    assert all(text.count(letter) <= longest for text in shown)


def test_many_items_are_counted_and_quick():
    model = model_of(SHAPES["leaf"], n_trees=60, n_items=700)
    assert any(text.endswith(" more") for text in texts(model))
    assert max(map(len, told(model))) < 2000


# -- names are text ----------------------------------------------------------------------------------------------


def test_names_are_escaped():
    names = ["<script>alert(1)</script>", "a & b", 'say "no"', "line\nend\x00\x1b", "</svg>"]
    model = named(model_of(SHAPES["leaf"], n_trees=40), names)
    assert "<script" not in sketch(model)
    assert sketch(model).count("</svg>") == 1
    everything = " ".join(told(model))
    assert all(name in everything for name in names[:3])
    assert "line end" in everything


# -- light and dark ----------------------------------------------------------------------------------------------


def test_ink_is_the_colour_of_the_page():
    picture = drawn(model_of(SHAPES["full of depth 2"]))
    assert picture.get("fill") == "currentColor"
    assert all(text.get("fill") is None for text in picture.iter(f"{SVG}text"))
    assert all(path.get("stroke") == "currentColor" for path in picture.iter(f"{SVG}path"))
    assert "<style" not in sketch(model_of(SHAPES["leaf"]))  # it would reach other cells of the notebook


# -- alone -------------------------------------------------------------------------------------------------------


def test_a_loaded_model_is_drawn_with_numpy_alone():
    code = (
        "import sys, cstc\n"
        f"model = cstc.load({str(GOLDEN)!r})\n"
        "assert '<svg' in model._repr_html_()\n"
        "others = {'sklearn', 'scipy', 'pandas', 'polars', 'matplotlib', 'narwhals'}\n"
        "print(others.intersection(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.stdout == "set()\n", run.stderr
