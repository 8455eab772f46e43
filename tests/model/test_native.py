"""The compiled walk does what numpy does, to the last bit."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cstc.model.native as native
from builders import N_FEATURES, PROPERTY, SHAPES, random_model, random_pool, random_shape, random_table, seeds
from cstc.model import TreePool
from cstc.model.averaging import without

pytestmark = pytest.mark.skipif(not native.available(), reason="the compiled walk was not built")


def walks(model, X):
    """Both walks of the same rows."""
    compiled = model.walk(X, items=True)
    found, native._native = native._native, None
    try:
        plain = model.walk(X, items=True)
    finally:
        native._native = found
    return compiled, plain


def same(compiled, plain):
    np.testing.assert_array_equal(compiled.margins, plain.margins)
    np.testing.assert_array_equal(compiled.terminals, plain.terminals)
    np.testing.assert_array_equal(compiled.items, plain.items)


@PROPERTY
@given(seeds)
def test_every_bit_is_the_same(seed):
    """NaN, categories, zero as missing, linear leaves, several outputs, more than 64 items, blocks not full."""
    rng = np.random.default_rng(seed)
    n_items = int(rng.choice([3, 64, 65, 200]))
    n_outputs, n_trees = int(rng.integers(1, 4)), int(rng.integers(1, 30))
    model = random_model(rng, random_shape(rng), n_outputs, n_trees=n_trees, n_items=n_items)
    same(*walks(model, random_table(rng, int(rng.choice([0, 1, 3, 128, 129, 500, 700])))))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_every_shape(shape):
    rng = np.random.default_rng(0)
    same(*walks(random_model(rng, shape, 2, n_trees=20), random_table(rng, 700)))


def test_many_rows_in_threads(monkeypatch):
    rng = np.random.default_rng(0)
    model, X = random_model(rng, SHAPES["chain"], n_trees=20), random_table(rng, 6 * native.ROWS_OF_A_THREAD + 17)
    one = model.walk(X, items=True)
    monkeypatch.setattr(native, "usable_cores", lambda: 5)
    same(model.walk(X, items=True), one)


def test_an_error_in_a_thread_reaches_the_caller(monkeypatch):
    monkeypatch.setattr(native, "usable_cores", lambda: 3)
    n = 4 * native.ROWS_OF_A_THREAD

    def part(start, stop):
        if stop == n:
            raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        native._in_threads(part, n)


@pytest.mark.parametrize(
    "change", [np.asfortranarray, lambda X: X.astype(np.float32), lambda X: X[::2], lambda X: X[:, ::-1]]
)
def test_rows_of_any_layout(change):
    rng = np.random.default_rng(0)
    model, X = random_model(rng, SHAPES["one-sided"], n_trees=20), change(random_table(rng, 300))
    same(model.walk(X, items=True), model.walk(np.ascontiguousarray(X, dtype=np.float64), items=True))


@PROPERTY
@given(seeds)
def test_scores_of_a_pool(seed):
    rng = np.random.default_rng(seed)
    pool, X = random_pool(rng, n_trees=10), random_table(rng, 200)
    weights = rng.normal(size=(pool.n_learners, 2))
    items = np.eye(N_FEATURES, dtype=bool)
    scores, bought = pool.scores_and_items(X, weights, items)
    np.testing.assert_allclose(scores, pool.transform(X) @ weights, rtol=1e-12, atol=1e-12)
    leaves = pool.leaves(X)
    uses = pool.position_uses(items)
    np.testing.assert_array_equal(bought, uses[leaves].any(axis=1))
    found, native._native = native._native, None
    try:
        plain_scores, plain_bought = pool.scores_and_items(X, weights, items)
    finally:
        native._native = found
    np.testing.assert_array_equal(scores, plain_scores)
    np.testing.assert_array_equal(bought, plain_bought)


@pytest.mark.parametrize(
    "change",
    [
        {"roots": 10_000},
        {"left": -1},
        {"right": 10_000},
        {"feature": N_FEATURES},
        {"linear_feature": N_FEATURES},
        {"category_count": 10_000},
    ],
    ids=str,
)
def test_positions_that_do_not_exist_never_reach_c(change):
    pool = random_pool(np.random.default_rng(1), n_trees=20)
    (name, value), = change.items()
    values = getattr(pool, name).copy()
    at = np.flatnonzero(pool.category_start >= 0)[:1] if name == "category_count" else [0]
    values[at] = value
    if name == "category_count":
        assert len(at)
    changed = TreePool(**{field: getattr(pool, field) for field in pool.__dataclass_fields__} | {name: values})
    with pytest.raises(ValueError, match="do not exist"):
        native.Packed(changed, N_FEATURES)


def test_it_can_be_switched_off():
    code = "import cstc.model.native as native; print(native.available())"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | {"CSTC_NATIVE": "0"}
    )
    assert run.stdout.strip() == "False"


def test_cores_are_those_that_may_be_used(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    most = native.usable_cores()
    assert most >= 1
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert native.usable_cores() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "1000")
    assert native.usable_cores() == most


@PROPERTY
@given(seeds, st.sampled_from([0.1, 0.5, 1.0]))
def test_learners_without_columns_have_the_same_positions(seed, part):
    rng = np.random.default_rng(seed)
    pool = random_pool(rng, n_trees=8)
    pool = pool._replace(share_left=rng.choice([0.0, 64 / 254, 0.5, 1.0], pool.n_positions))
    dead = np.flatnonzero(rng.random(N_FEATURES) < part)
    means = rng.normal(size=N_FEATURES)
    compiled, owner = without(pool, dead, means)
    found, native._native = native._native, None
    try:
        plain, plain_owner = without(pool, dead, means)
    finally:
        native._native = found
    np.testing.assert_array_equal(owner, plain_owner)
    for name in (field.name for field in dataclasses.fields(pool)):
        mine, other = getattr(compiled, name), getattr(plain, name)
        np.testing.assert_array_equal(mine, other, err_msg=name)
        assert mine.dtype == other.dtype, name


def test_learners_that_go_round_in_circles_are_not_rewritten():
    rng = np.random.default_rng(0)
    pool = random_pool(rng, n_trees=1)
    split = int(np.flatnonzero(pool.feature >= 0)[-1])
    everything = np.full(pool.n_positions, True)
    for child in (int(pool.roots[0]), pool.n_positions):
        left = pool.left.copy()
        left[split] = child
        with pytest.raises(ValueError, match="over 1000 levels deep"):
            native.rewritten(pool._replace(left=left), np.array([0]), ~everything, ~everything, np.zeros(N_FEATURES))
    arrays = [np.zeros(2, dtype=np.int64)] * 5 + [np.zeros(2)] * 2 + [np.zeros(2, dtype=np.uint8), np.zeros(2)]
    for number in (0, 3, 6, 8):
        wrong = [*arrays]
        wrong[number] = np.zeros(3, dtype=np.uint8)
        with pytest.raises(ValueError, match="wrong size"):
            native._native.rewrite(*wrong)
