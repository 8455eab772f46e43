"""The ways in Python through the learners give the same: pointers and bits; compiled code: test_native_walk.py."""

import numpy as np
import pytest

from builders import N_FEATURES, random_pool, random_table
from cstc.serving.compiled import compile_tree
from cstc.serving.walk import bits, choice
from cstc.serving.walk.bits import BitPlan
from cstc.serving.walk.choice import plan_in_python
from cstc.serving.walk.pointers import PointerPlan
from cstc.serving.walk.trees import trees_of


def told_in_random_order(rng, walk, row):
    """Fill one missing feature after the other; what was missing at each time."""
    missing = []
    while features := walk.advance():
        missing.append(list(features))
        feature = int(rng.choice(features))
        walk.fill(feature, float(row[feature]))
    return missing


@pytest.mark.parametrize("depth", [1, 3, 4])
def test_both_ways_and_the_pool_give_the_same(depth):
    rng = np.random.default_rng(depth)
    for _ in range(40):
        pool = random_pool(rng, n_trees=int(rng.integers(1, 20)), depth=depth)
        X = random_table(rng, 10)
        X[0, : N_FEATURES - 1] = 1e-36  # zero for LightGBM, but not the same as zero for a threshold of 0
        weights = rng.normal(size=(pool.n_learners, 2))
        expected = pool.transform(X) @ weights
        plans = [plan(trees_of(pool), N_FEATURES) for plan in (PointerPlan, BitPlan)]
        for i, row in enumerate(X):
            seed = rng.integers(10**6)
            missing, sums = [], []
            for plan in plans:
                walk = plan.start()
                everything = plan.step(list(range(pool.n_learners)))
                walk.begin(everything)
                assert walk.pending == pool.n_learners
                missing.append(told_in_random_order(np.random.default_rng(seed), walk, row))
                assert walk.pending == 0
                sums.append(walk.sums(plan.weights(weights)))
                new, again = walk.try_sums(everything, plan.weights(weights))
                assert new == 0
                np.testing.assert_array_equal(again, sums[-1])
            assert missing[0] == missing[1]
            np.testing.assert_allclose(sums[0], sums[1], rtol=1e-12)
            np.testing.assert_allclose(sums[0], expected[i], rtol=1e-9, atol=1e-12)


def test_what_is_missing_is_certainly_needed():
    rng = np.random.default_rng(0)
    pool = random_pool(rng, n_trees=30, depth=4, identity=False)
    needed = pool.position_uses(np.eye(N_FEATURES, dtype=bool))
    for row in random_table(rng, 20):
        on_branches = set(np.flatnonzero(needed[pool.leaves(row[None, :])[0]].any(axis=0)).tolist())
        plan = BitPlan(trees_of(pool), N_FEATURES)
        walk = plan.start()
        walk.begin(plan.step(list(range(pool.n_learners))))
        seen = {feature for wave in told_in_random_order(rng, walk, row) for feature in wave}
        assert seen == on_branches


def test_trying_reports_what_is_new_and_what_must_wait():
    rng = np.random.default_rng(1)
    pool = random_pool(rng, n_trees=6, depth=2, identity=False)
    X = random_table(rng, 1, missing=0.0)
    for plan in (PointerPlan(trees_of(pool), N_FEATURES), BitPlan(trees_of(pool), N_FEATURES)):
        walk = plan.start()
        everything, weights = plan.step(list(range(6))), plan.weights(np.ones((6, 1)))
        assert walk.try_sums(everything, weights) is None
        walk.begin(plan.step([0, 1]))
        for feature in range(N_FEATURES):
            walk.fill(feature, float(X[0, feature]))
        walk.advance()
        new, sums = walk.try_sums(everything, weights)
        assert new == 4
        assert sums[0] == pytest.approx(pool.transform(X).sum())


def test_blocks_give_the_same_as_one_plan():
    rng = np.random.default_rng(4)
    for _ in range(30):
        n = int(rng.integers(4, 30))
        pool = random_pool(rng, n_trees=n, depth=3)
        n = pool.n_learners
        block = rng.integers(-1, 3, size=n)  # -1: no step needs it
        together = np.array([block == number for number in (2, 0, 1)])
        plan = plan_in_python(pool, N_FEATURES, together)
        whole = PointerPlan(trees_of(pool), N_FEATURES)
        for row in random_table(rng, 5, missing=0.0):
            seed = rng.integers(10**6)
            results = []
            for each in (plan, whole):
                walk, heard = each.start(), []
                order = np.random.default_rng(seed)
                for number in (0, 2, 1):  # what one block has bought the next one knows
                    members = np.flatnonzero(block == number).tolist()
                    step, weights = each.step(members), each.weights((block == number)[:, None].astype(float))
                    before = walk.try_sums(step, weights)
                    walk.begin(step)
                    assert walk.pending == len(members)
                    asked = told_in_random_order(order, walk, row)
                    heard.append((before, asked, walk.pending, walk.sums(weights), walk.try_sums(step, weights)))
                results.append(heard)
            assert results[0] == results[1]


def test_blocks_are_joined_by_sets_that_overlap():
    together = np.zeros((5, 8), dtype=bool)
    for number, members in enumerate([[4, 5], [0, 1], [1, 2], [6], [5, 6]]):
        together[number, members] = True
    assert [block.tolist() for block in choice._blocks(together)] == [[4, 5, 6], [0, 1, 2]]
    assert [block.tolist() for block in choice._blocks(np.zeros((3, 4), dtype=bool))] == [[]]


def test_a_step_does_not_mix_blocks():
    rng = np.random.default_rng(5)
    pool = random_pool(rng, n_trees=4, depth=2, identity=False)
    plan = plan_in_python(pool, N_FEATURES, np.eye(4, dtype=bool))
    with pytest.raises(ValueError, match="different blocks"):
        plan.step([0, 1])


def test_masks_of_all_blocks_together_are_limited(monkeypatch):
    rng = np.random.default_rng(6)
    pool = random_pool(rng, 2 * bits.FEWEST_LEARNERS, identity=False)
    together = np.repeat(np.eye(2, dtype=bool), bits.FEWEST_LEARNERS, axis=1)
    assert [type(plan) for plan in plan_in_python(pool, N_FEATURES, together).plans] == [BitPlan, BitPlan]
    most = BitPlan.n_table_bytes(trees_of(pool)[: bits.FEWEST_LEARNERS])
    monkeypatch.setattr(bits, "MOST_BYTES", most)
    assert [type(plan) for plan in plan_in_python(pool, N_FEATURES, together).plans] == [BitPlan, PointerPlan]


def in_one(pool):
    return plan_in_python(pool, N_FEATURES, np.ones((1, pool.n_learners), dtype=bool))


def test_many_small_trees_go_by_bits():
    rng = np.random.default_rng(2)
    assert isinstance(in_one(random_pool(rng, bits.FEWEST_LEARNERS, identity=False)), BitPlan)
    assert isinstance(in_one(random_pool(rng, 5, identity=False)), PointerPlan)
    assert isinstance(in_one(random_pool(rng, bits.FEWEST_LEARNERS, depth=9, identity=False)), PointerPlan)
    assert isinstance(in_one(random_pool(rng, 3, identity=False).subset(np.arange(0))), PointerPlan)


@pytest.mark.parametrize("width", [8, 16, 32])
def test_first_and_last_bit(width):
    rng = np.random.default_rng(width)
    depth = {8: 2, 16: 4, 32: 5}[width]
    while True:
        pool = random_pool(rng, 20, depth=depth, identity=False)
        if width // 2 < max(map(BitPlan.n_bits, trees_of(pool))) <= width:
            plan = BitPlan(trees_of(pool), N_FEATURES)
            break
    assert plan.width == width
    walk = plan.start()
    for _ in range(50):
        words = rng.integers(1, 2**width, size=20, dtype=np.uint64)
        walk._alive = sum(int(word) << (width * k) for k, word in enumerate(words))
        codes = walk._codes(walk._words(plan.step(list(range(20)))))
        assert (codes // width).tolist() == [(int(w) & -int(w)).bit_length() - 1 for w in words]
        assert (codes % width).tolist() == [int(w).bit_length() - 1 for w in words]


def test_a_model_is_compiled_once():
    from serving.worlds import random_world

    model = random_world(np.random.default_rng(0), "regression", 1).model
    assert compile_tree(model) is compile_tree(model)
    assert compile_tree(compile_tree(model)) is compile_tree(model)
