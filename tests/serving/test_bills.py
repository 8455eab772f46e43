"""What serving charges is the very number that `predict_cost` gives: a budget of just that is enough."""

from dataclasses import replace

import numpy as np
import pytest

from cstc.serving import OnDemandPredictor, extractor
from serving.worlds import NAMES, TASKS, random_world


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
