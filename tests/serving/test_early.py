"""Early answers: the best that can be said from what is bought, and its bill."""

import re
from dataclasses import replace

import numpy as np
import pytest

import cstc.model.native as native
from cstc.serving import Session
from cstc.serving.walk import bits
from serving.outages import random_worlds
from serving.worlds import (
    COUNTING,
    NAMES,
    TASKS,
    ask_and_tell,
    best_prediction,
    can_be_computed,
    random_world,
    with_shares,
)


@pytest.mark.parametrize("fewest", [0, 1, 1000])
def test_an_early_answer_is_that_of_the_last_node_that_can_be_computed_or_averaged(fewest, monkeypatch):
    monkeypatch.setattr(bits, "FEWEST_LEARNERS", fewest)  # by compiled code, by bits and by pointers
    if fewest:
        monkeypatch.setattr(native, "_native", None)
    rng = np.random.default_rng(4)
    seen = set()
    for _ in range(40):
        world = random_world(rng, rng.choice(list(TASKS)), 10, evaluation=0.0)
        model = with_shares(rng, world.model)
        terminals = model.apply(world.X)
        for i, told in enumerate(world.rows):
            session = Session(model, budget=rng.uniform(0, model.costs.prices.sum()))
            asked = []
            while wanted := session.wanted():
                asked += wanted
                session.tell({name: told[name] for name in wanted})
            answer = session.answer()
            if answer.status == "complete":
                continue
            path = np.flatnonzero(model.shape.paths[terminals[i]]).tolist()
            assert answer.path == path[: len(answer.path)]
            known = np.isin(NAMES, asked)
            node, margins = best_prediction(model, world.X[i], answer.path, known)
            assert answer.node == node
            assert answer.terminal is None
            if not np.isnan(margins).any():
                np.testing.assert_allclose(answer.margins, margins, rtol=1e-9, atol=1e-9)
            assert re.search(r"features: the budget of .* does not reach further$", answer.basis)
            averaged = node >= 0 and not can_be_computed(model, world.X[i], node, known)
            seen.add("averaged" if averaged else len(answer.path) - answer.path.index(node) if node >= 0 else 0)
    assert {0, "averaged", 1, 2} <= seen  # the constant, the node where it stopped, the node before


@pytest.mark.parametrize("prefetch", COUNTING)
def test_an_early_answer_pays_for_the_learners_that_it_evaluates(prefetch, monkeypatch):
    rng = np.random.default_rng(6)
    early = 0
    for _ in range(40):
        world = random_world(rng, "regression", 10, evaluation=0.3)
        budgets = rng.uniform(0, 12, size=10)
        answers = []
        for fewest in (1, 1000):  # by bits and by pointers
            monkeypatch.setattr(bits, "FEWEST_LEARNERS", fewest)
            model = replace(world.model)
            sessions = [Session(model, budget=budget, prefetch=prefetch) for budget in budgets]
            answers.append([ask_and_tell(session, told) for session, told in zip(sessions, world.rows, strict=True)])
        for one, other, budget in zip(*answers, budgets, strict=True):
            assert one.cost <= budget
            for name in ("status", "node", "n_evaluated", "cost", "items", "path"):
                assert getattr(one, name) == getattr(other, name)
            np.testing.assert_allclose(one.margins, other.margins, rtol=1e-9, atol=1e-9)
            early += one.status == "budget" and one.node >= 0 and one.n_evaluated > 0
    assert early > 3


def test_waves_are_counted_once_where_learners_break_the_budget():
    """Where the learners of a step cost more than is left, the row turns to another expert, and only that one asks."""
    rng = np.random.default_rng(0)
    turned = 0
    for world in random_worlds(rng, 200):
        if not world.model.costs.evaluation or world.model.estimates is None:
            continue
        for told in world.rows:
            session = Session(world.model, budget=world.model.costs.full_cost * rng.uniform() ** 2)
            waves = 0
            while wanted := session.wanted():
                waves += 1
                session.tell({name: told[name] for name in wanted})
            answer = session.answer()
            told_waves = sorted({event["wave"] for event in answer.trail if event["event"] == "bought"})
            assert told_waves == list(range(1, waves + 1))
            turned += answer.status == "budget" and waves > 0
    assert turned > 20
