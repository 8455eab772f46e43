"""What serving charges is the very number that `predict_cost` gives, and never above the budget."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import PROPERTY
from cstc.serving import OnDemandPredictor, Session, extractor
from serving.worlds import COUNTING, NAMES, TASKS, ask_and_tell, random_world


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("in_cents", [True, False])
def test_the_cost_is_the_same_number_and_a_budget_of_it_is_enough(task, in_cents):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        world = random_world(rng, task, n=8, evaluation=0.0 if seed % 2 else None)
        if in_cents:
            prices = rng.integers(1, 2000, len(world.model.costs.prices)) / 100
            world.model = replace(world.model, costs=replace(world.model.costs, prices=prices))
        source = extractor(provides=NAMES, instant=True)(lambda i, world=world: world.rows[i])
        # one source for all: what comes along unasked is charged when the path needs it
        with OnDemandPredictor(world.model, [source]) as predictor:
            for i, cost in enumerate(world.model.predict_cost(world.X)):
                answer = predictor.predict(i, budget=cost)
                assert (answer.status, answer.cost) == ("complete", cost)


@PROPERTY
@given(seed=st.integers(0, 10**6), prefetch=st.sampled_from(sorted(COUNTING)))
def test_the_budget_is_never_exceeded(seed, prefetch):
    rng = np.random.default_rng(seed)
    world = random_world(rng, rng.choice(list(TASKS)), 8, evaluation=rng.choice([0.0, 0.3]))
    model = world.model
    cost = model.predict_cost(world.X, COUNTING[prefetch])
    for i, told in enumerate(world.rows):
        budget = float(rng.choice([0.0, rng.uniform(0, 1.2 * cost[i] + 0.1), cost[i] * (1 + 1e-12)]))
        answer = ask_and_tell(Session(model, budget=budget, prefetch=prefetch), told)
        assert answer.cost <= budget
        assert answer.cost == pytest.approx(sum(answer.items.values()) + model.costs.evaluation * answer.n_evaluated)
        if answer.status == "complete":
            assert answer.cost == pytest.approx(cost[i], rel=1e-12)
        else:
            assert answer.status == "budget"
            assert cost[i] > budget
            assert "budget" in answer.reason
        if budget >= cost[i] * (1 + 1e-12):
            assert answer.status == "complete"


@pytest.mark.parametrize("budget", [-1, math.nan, "much"])
def test_a_budget_must_be_a_number(budget):
    world = random_world(np.random.default_rng(0), "regression", 1)
    with pytest.raises(ValueError, match="budget is"):
        Session(world.model, budget=budget)
