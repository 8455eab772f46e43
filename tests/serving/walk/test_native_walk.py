"""One row by compiled code: the waves, bills and answers of Python, and sums with the bits of the whole matrix."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cstc.model.native as native
from builders import N_FEATURES, PROPERTY, SHAPES, random_model, random_pool, random_shape, random_table, seeds
from cstc.costs import ResolvedCosts
from cstc.model import FittedTree, Schema, TreePool, TreeShape
from cstc.model.pool import add_in_order
from cstc.serving import OnDemandPredictor, Session, extractor
from cstc.serving.compiled import CompiledTree
from cstc.serving.walk import bits
from cstc.serving.walk.choice import BlockPlan, plan_for
from cstc.serving.walk.native import NativePlan
from cstc.serving.walk.pointers import PointerPlan
from cstc.serving.walk.trees import trees_of
from serving.worlds import NAMES, TASKS, random_world, without_features

pytestmark = pytest.mark.skipif(not native.available(), reason="the compiled walk was not built")


def native_plan(pool, n_features=N_FEATURES):
    return NativePlan(pool, native.Tree.flat(pool, n_features, np.zeros((pool.n_learners, 1))))


def compiled_in_python(model):
    """The model for sessions that know nothing of compiled code."""
    found, native._native = native._native, None
    try:
        return CompiledTree(model)
    finally:
        native._native = found


def same_numbers(a, b):
    np.testing.assert_array_equal(np.array(a, dtype=float), np.array(b, dtype=float))


# -------------------------------------------------------------------------------------------- the walk


@PROPERTY
@given(seeds)
def test_waits_for_the_same_as_pointers(seed):
    """NaN, categories, zero as missing, linear leaves; one missing feature after the other is told."""
    rng = np.random.default_rng(seed)
    pool = random_pool(rng, n_trees=int(rng.integers(1, 40)), depth=int(rng.integers(1, 6)))
    X = random_table(rng, 4)
    X[0, : N_FEATURES - 1] = 1e-36  # zero for LightGBM, but not the same as zero for a threshold of 0
    weights = rng.normal(size=(pool.n_learners, 2)) * (rng.random((pool.n_learners, 2)) < 0.7)
    used = np.flatnonzero(weights.any(axis=1))
    expected = add_in_order(pool.outputs(X, pool.leaves(X, used)), weights[used])
    plans = native_plan(pool), PointerPlan(trees_of(pool), N_FEATURES)
    first = np.flatnonzero(rng.random(pool.n_learners) < 0.5).tolist()
    rest = sorted(set(range(pool.n_learners)) - set(first))
    for row, expected_sums in zip(X, expected, strict=True):
        walks = [plan.start() for plan in plans]
        for learners in (first, rest):
            for plan, walk in zip(plans, walks, strict=True):
                walk.begin(plan.step(learners))
            while True:
                here, there = (list(walk.advance()) for walk in walks)
                assert here == there
                assert walks[0].pending == walks[1].pending
                tried = [w.try_sums(p.step(rest), p.weights(weights * 0)) for p, w in zip(plans, walks, strict=True)]
                assert (tried[0] is None) == (tried[1] is None)
                assert tried[0] is None or tried[0][0] == tried[1][0]
                if not here:
                    break
                feature = int(rng.choice(here))
                for walk in walks:
                    walk.fill(feature, float(row[feature]))
        same_numbers(walks[0].sums(plans[0].weights(weights)), expected_sums)
        new, again = walks[0].try_sums(plans[0].step(rest), plans[0].weights(weights))
        assert new == 0
        same_numbers(again, expected_sums)


def test_more_features_and_items_than_bits_of_a_word():
    rng = np.random.default_rng(0)
    n_features, n_items = 200, 150
    names = [f"f{j}" for j in range(n_features)]
    for _ in range(10):
        pools = [random_pool(rng, n_trees=4, identity=False) for _ in range(6)]
        columns = [np.sort(rng.choice(n_features, N_FEATURES, replace=False)) for _ in pools]
        pool = TreePool.concatenate([each.on_columns(to) for each, to in zip(pools, columns, strict=True)])
        model = random_model(rng, TreeShape.full(2), n_trees=pool.n_learners, identity=False)
        items = rng.random((n_features, n_items)) < 0.02
        items[:, 0] = True
        costs = ResolvedCosts([f"i{r}" for r in range(n_items)], rng.uniform(0.5, 4, n_items), items, 0.1)
        model = replace(model, pool=pool, costs=costs, schema=Schema(names, {}, np.ones(n_features, dtype=bool)))
        X = rng.integers(-4, 5, size=(20, n_features)) / 2.0
        margins, cost, bought = model.decision_function(X), model.predict_cost(X), model.bought_items(X)
        for i in range(len(X)):
            session = Session(model)
            while wanted := session.wanted():
                session.tell({name: X[i, int(name[1:])] for name in wanted})
            answer = session.answer()
            same_numbers(answer.margins, margins[i])
            assert answer.cost == pytest.approx(cost[i], rel=1e-12)
            assert list(answer.items) == [f"i{r}" for r in np.flatnonzero(bought[i])]


# ---------------------------------------------------------------------------------------- whole sessions


def played(session, told, rng):
    """All that a session asks, with its cost at every time, and its answer; sometimes more is told than was asked."""
    heard = []
    while wanted := session.wanted():
        heard.append((wanted, session.wanted_items(), session.cost))
        extra = rng.choice(NAMES, size=2).tolist() if rng.random() < 0.3 else []
        early = session.answer() if rng.random() < 0.3 else None
        heard.append(early and as_plain(early))
        if rng.random() < 0.05:
            session.fail(wanted[:1], "out of order")
            continue
        part = wanted[: int(rng.integers(1, len(wanted) + 1))]
        session.tell({name: told[name] for name in [*part, *extra]})
    return heard, as_plain(session.answer())


def as_plain(answer):
    """Answers add up in different orders, so numbers that were added are apart from what must be equal."""
    plain = answer.to_dict()
    sums = [plain.pop("value"), plain.pop("margins"), plain.pop("probabilities")]
    for step in plain["trail"]:
        sums.append(step.pop("margin"))
    return plain, sums


def close(a, b):
    if isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            close(x, y)
    elif isinstance(a, dict):
        close(list(a.items()), list(b.items()))
    elif isinstance(a, float) and isinstance(b, float):
        assert a == pytest.approx(b, rel=1e-9, abs=1e-9, nan_ok=True)
    else:
        assert a == b


@PROPERTY
@given(seed=seeds, task=st.sampled_from(sorted(TASKS)), prefetch=st.sampled_from(["branch", "node"]))
def test_sessions_ask_and_answer_as_in_python(seed, task, prefetch):
    """Any model, what is known and paid, budgets, failures, values that come along, early answers."""
    rng = np.random.default_rng(seed)
    world = random_world(rng, task, 6, evaluation=rng.choice([0.0, 0.3]))
    model = world.model
    in_python, margins = compiled_in_python(model), model.decision_function(world.X)
    most = model.predict_cost(world.X).max()
    for i, told in enumerate(world.rows):
        known = {name: told[name] for name in NAMES if rng.random() < 0.15}
        paid = [name for name in model.costs.item_names if rng.random() < 0.15]
        budget = None if rng.random() < 0.5 else float(rng.uniform(0, 1.2 * most))
        options = {"known": known, "paid": paid, "budget": budget, "prefetch": prefetch}
        seed = int(rng.integers(2**32))
        ours = played(Session(model, **options), told, np.random.default_rng(seed))
        theirs = played(Session(in_python, **options), told, np.random.default_rng(seed))
        close(ours, theirs)
        if ours[1][0]["status"] == "complete":
            same_numbers(ours[1][1][1], margins[i])


def told_generously(model, told, usable):
    """A session that is told all that it may ever ask for with its first wave, some of it in no usable form."""
    session = Session(model)
    if session.wanted():
        session.tell({name: value if ok else np.float32(value) for (name, value), ok in zip(told, usable, strict=True)})
    return session


def comings(answer):
    """For each node, the waves of values that came along."""
    found = {}
    for step in answer.trail:
        if step.get("outcome") == "came along":
            found.setdefault(step["node"], []).append(step["wave"])
    return found


@PROPERTY
@given(seeds)
def test_what_came_along_is_bought_wave_by_wave_as_in_python(seed):
    """Everything is at hand after the first wave, all of it or most of it as plain floats."""
    rng = np.random.default_rng(seed)
    model = random_model(rng, random_shape(rng), n_trees=int(rng.integers(1, 12)), density=rng.choice([0.3, 0.9]))
    in_python, X = compiled_in_python(model), random_table(rng, 5)
    margins, cost = model.decision_function(X), model.predict_cost(X)
    for i, row in enumerate(X.tolist()):
        usable = rng.random(N_FEATURES) < rng.choice([0.7, 1.0])
        told = list(zip(NAMES, row, strict=True))
        ours, theirs = (told_generously(which, told, usable) for which in (model, in_python))
        assert ours._values.held == pytest.approx(theirs._values.held, nan_ok=True)
        assert list(ours._values.known) == list(theirs._values.known)
        ours, theirs = ours.answer(), theirs.answer()
        close(as_plain(ours), as_plain(theirs))
        same_numbers(ours.margins, margins[i])
        assert ours.cost == pytest.approx(cost[i], rel=1e-12)


def test_a_node_may_take_several_waves_of_what_came_along():
    rng = np.random.default_rng(5)
    several = 0
    for _ in range(30):
        model = random_model(rng, TreeShape.full(2), n_trees=6, density=0.3)
        told = list(zip(NAMES, random_table(rng, 1)[0].tolist(), strict=True))
        ours, theirs = (
            told_generously(which, told, [True] * N_FEATURES).answer() for which in (model, compiled_in_python(model))
        )
        assert comings(ours) == comings(theirs)
        several += any(len(waves) > 1 for waves in comings(ours).values())
    assert several


def test_values_that_are_no_floats_go_the_usual_way():
    world = random_world(np.random.default_rng(1), "regression", 20, missing=False)
    for told in world.rows:
        answers = []
        for change in (float, np.float32, np.float64, lambda x: np.array(x)):
            session = Session(world.model)
            while wanted := session.wanted():
                values = {
                    name: told[name] if isinstance(told[name], str | None) else change(told[name]) for name in wanted
                }
                session.tell(values)
            answers.append(session.answer().margins)
        for other in answers[1:]:
            same_numbers(answers[0], other)


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan"), "text", None, 10**400])
def test_values_that_cannot_be_used_are_refused_as_before(bad):
    world = random_world(np.random.default_rng(3), "regression", 1, missing=False)
    session = Session(world.model)
    name = next(name for name in session.wanted() if name != NAMES[-1])
    session.tell({name: bad})
    assert name not in session.wanted()
    while wanted := session.wanted():
        session.tell({other: world.rows[0][other] for other in wanted})
    answer = session.answer()
    assert answer.status == "failed"
    _, margins, _ = without_features(world.model, world.X[0], [name])
    np.testing.assert_allclose(answer.margins, margins, rtol=1e-9, atol=1e-9)


def test_a_predictor_gives_the_bits_of_the_matrix():
    rng = np.random.default_rng(2)
    for task in TASKS:
        world = random_world(rng, task, 40)

        @extractor(provides=NAMES)
        def source(i, world=world):
            return world.rows[i]

        margins, cost = world.model.decision_function(world.X), world.model.predict_cost(world.X)
        with OnDemandPredictor(world.model, [source]) as predictor:
            for i, many in enumerate(predictor.predict_many(range(40))):
                one = predictor.predict(i)
                same_numbers(one.margins, margins[i])
                same_numbers(many.margins, margins[i])
                assert one.cost == many.cost == pytest.approx(cost[i], rel=1e-12)
                assert one.path == many.path


def test_the_choice_of_a_plan(monkeypatch):
    model = random_world(np.random.default_rng(0), "regression", 1).model
    assert isinstance(plan_for(model), NativePlan)
    monkeypatch.setattr(native, "_native", None)
    monkeypatch.setattr(bits, "FEWEST_LEARNERS", 10**6)
    assert isinstance(plan_for(model), PointerPlan | BlockPlan)


# ------------------------------------------------------------------------------------ one row of a matrix


@PROPERTY
@given(seeds)
def test_one_row_is_as_among_others(seed):
    rng = np.random.default_rng(seed)
    n_items = int(rng.choice([3, 65, 200]))
    n_outputs, n_trees = int(rng.integers(1, 4)), int(rng.integers(1, 30))
    model = random_model(rng, random_shape(rng), n_outputs, n_trees=n_trees, n_items=n_items)
    X = random_table(rng, 140)
    whole = model.walk(X, items=True)
    for i in (0, 1, 77, 139):
        one = model.walk(X[i : i + 1], items=True)
        np.testing.assert_array_equal(one.margins[0], whole.margins[i])
        assert one.terminals[0] == whole.terminals[i]
        np.testing.assert_array_equal(one.items[0], whole.items[i])
        np.testing.assert_array_equal(model.predict_cost(X[i : i + 1]), model.predict_cost(X)[i : i + 1])


def test_one_row_of_any_layout():
    rng = np.random.default_rng(0)
    model = random_model(rng, SHAPES["one-sided"], n_trees=20)
    for row in random_table(rng, 30):
        expected = model.decision_function(row[None, :])
        raw = np.zeros(8 * N_FEATURES + 1, dtype=np.uint8)
        unaligned = raw[1:].view(np.float64).reshape(1, -1)
        unaligned[:] = row
        wide = np.zeros((1, 2 * N_FEATURES))
        wide[:, ::2] = row
        for same in (row[None, :].astype(np.float32), unaligned, wide[:, ::2], row[None, ::-1].copy()[:, ::-1]):
            np.testing.assert_array_equal(model.decision_function(same), expected)
        np.testing.assert_array_equal(model.decision_function([row.tolist()]), expected)


def test_infinite_values_are_found_wherever_they_are():
    X = np.zeros((100, 100))
    X[3, 4] = np.nan
    for change in (np.ascontiguousarray, np.asfortranarray, lambda X: X[:, ::2], lambda X: X[::-1]):
        assert not native.any_infinite(change(X))
        for value in (np.inf, -np.inf):
            Y = X.copy()
            Y[-2, -2] = value
            assert native.any_infinite(change(Y))
    assert not native.any_infinite(np.zeros((0, 3)))


def test_a_model_that_has_predicted_can_be_copied_and_pickled():
    rng = np.random.default_rng(0)
    model, X = random_model(rng, SHAPES["chain"], n_trees=5), random_table(rng, 9)
    expected = model.decision_function(X)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert isinstance(other, FittedTree)
        np.testing.assert_array_equal(other.decision_function(X), expected)


# ------------------------------------------------------------------------------------------ what C refuses


def test_learners_in_circles_are_refused():
    pool = random_pool(np.random.default_rng(1), n_trees=20)
    at = int(np.flatnonzero(pool.feature >= 0)[0])
    left = pool.left.copy()
    left[at] = at
    changed = TreePool(**{name: getattr(pool, name) for name in pool.__dataclass_fields__} | {"left": left})
    with pytest.raises(ValueError, match="circles"):
        native.Packed(changed, N_FEATURES)


def arrays_of(model):
    """What a tree is made of in C, and the numbers of features and outputs."""
    seen = []

    class Spy:
        @staticmethod
        def Tree(*arguments):
            seen.append(arguments)
            return native_module.Tree(*arguments)

    native_module, native._native = native._native, Spy
    try:
        native.Tree(
            model.pool,
            N_FEATURES,
            routes=model.route_weights,
            predicts=model.predict_weights,
            shape=model.shape,
            thresholds=model.thresholds,
            intercepts=model.predict_intercepts,
        )
    finally:
        native._native = native_module
    return seen[0]


N_ARRAYS = 17


@pytest.mark.parametrize("which", [*range(4), *range(5, N_ARRAYS)])
def test_arrays_that_do_not_fit_together_are_refused(which):
    """All but the table of categories, whose length `Packed` has checked."""
    model = random_model(np.random.default_rng(0), SHAPES["full of depth 2"], n_trees=12)
    arrays, *sizes = arrays_of(model)
    assert len(arrays) == N_ARRAYS
    for changed in (arrays[which][:-1], np.concatenate([arrays[which], arrays[which][:1]])):
        if which in (0, 1) and len(changed) > len(arrays[which]):
            continue  # a position or learner that nobody names
        with pytest.raises(ValueError, match=r"fit together|size"):
            native._native.Tree((*arrays[:which], changed, *arrays[which + 1 :]), *sizes)
    with pytest.raises(ValueError, match="number of arrays"):
        native._native.Tree(arrays[:-1], *sizes)


@pytest.mark.parametrize("which", [5, 6, 7, 9, 10, 11, 13, 14])
@pytest.mark.parametrize("value", [-(10**9), 10**9])
def test_numbers_out_of_range_are_refused(which, value):
    """Where sums begin, their learners and outputs, and the children of nodes; below zero, these are terminals."""
    model = random_model(np.random.default_rng(0), SHAPES["full of depth 2"], n_trees=12)
    arrays, *sizes = arrays_of(model)
    if which >= 13 and value < 0:
        return
    changed = arrays[which].copy()
    changed[len(changed) // 2] = value
    with pytest.raises(ValueError, match="fit together"):
        native._native.Tree((*arrays[:which], changed, *arrays[which + 1 :]), *sizes)


def test_rows_of_the_wrong_size_are_refused():
    model = random_model(np.random.default_rng(0), SHAPES["leaf"], n_trees=3)
    run = native._native.Tree(*arrays_of(model)).run
    rows, margins, terminals = np.zeros((4, N_FEATURES)), np.zeros((4, 1)), np.zeros(4, dtype=np.int32)
    run(rows, margins, terminals, None, None)
    words = np.zeros((4, 1), dtype=np.uint64)
    for wrong in (
        (rows[:3], margins, terminals, None, None),
        (rows, margins[:3], terminals, None, None),
        (rows, margins, terminals[:3], None, None),
        (rows, margins, terminals, words, words),
    ):
        with pytest.raises(ValueError, match="wrong size"):
            run(*wrong)
    with pytest.raises(TypeError):
        run(rows, margins, terminals)


def test_a_walk_refuses_what_does_not_exist():
    pool = random_pool(np.random.default_rng(0), n_trees=5, identity=False)
    plan = native_plan(pool)
    walk = plan.start()
    for feature in (-1, N_FEATURES, 2**70):
        with pytest.raises((ValueError, OverflowError)):
            walk.fill(feature, 1.0)
    with pytest.raises(TypeError):
        walk.fill(0, "text")
    for learners in ([-1], [pool.n_learners]):
        with pytest.raises(ValueError, match="do not exist"):
            walk.begin(plan.step(learners))
        with pytest.raises(ValueError, match="do not exist"):
            walk.try_sums(plan.step(learners), plan.weights(np.ones((5, 1))))
    with pytest.raises(ValueError, match="do not exist"):
        walk.begin(b"123")
    with pytest.raises(TypeError):
        walk.begin([0])
    with pytest.raises(ValueError, match="not evaluated"):
        walk.sums(plan.weights(np.ones((5, 1))))
    with pytest.raises(ValueError, match="not evaluated"):
        walk.sums((np.array([(1.0, 99, 0)], dtype="<f8,<i4,<i4").tobytes(), 1))
    with pytest.raises(ValueError, match="wrong size"):
        walk.sums((b"123", 1))
    with pytest.raises(TypeError):
        walk.sums(b"")
    kinds = bytes([1]) * N_FEATURES
    with pytest.raises(ValueError, match="no such feature"):
        walk.fill_floats((N_FEATURES,), {N_FEATURES: 1.0}, {}, kinds, False)
    with pytest.raises(ValueError, match="another number"):
        walk.fill_floats((0,), {0: 1.0}, {}, kinds[1:], False)
    with pytest.raises(ValueError, match="twice"):
        walk.fill_floats((0, 0), {0: 1.0}, {}, kinds, True)
    with pytest.raises(TypeError):
        walk.go((), ())
    charges, bill = [1] * N_FEATURES, [0, 0, 0]
    for wrong in ([], [*charges, 1], tuple(charges)):
        with pytest.raises(TypeError):
            walk.go_buying([], [], {}, {}, kinds, wrong, bill)
    with pytest.raises(TypeError):
        walk.go_buying([], [], {}, {}, kinds, charges, [0, 0])
    with pytest.raises(ValueError, match="another number"):
        walk.go_buying([], [], {}, {}, kinds[1:], charges, bill)
    with pytest.raises(ValueError, match="no such feature"):
        walk.go_buying([], [], {}, {N_FEATURES: 1.0}, kinds, charges, bill)
