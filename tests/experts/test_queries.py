"""Documents of one query in several groups: what gates see of those beside them, and all groups walked at once."""

from types import SimpleNamespace

import numpy as np
import pytest

from cstc.experts.branches import _walked_together
from cstc.experts.gates import Policy
from cstc.experts.queries import Beside, Queries, Steps, WholeQueries, walk_groups
from experts.cases import make_chain

SEEN = WholeQueries(at=2, scale=10.0)


def chain(rng, n, prices, query, price_of_trees=0.0):
    """Some stages of a group with random scores; documents of it that teach gates stand in turned order."""
    experts = [
        SimpleNamespace(margins=rng.normal(size=(n, 1)), price=lambda _, k=k: price_of_trees * (k + 1))
        for k in range(len(prices))
    ]
    return SimpleNamespace(
        experts=experts,
        prices=np.array(prices),
        at=np.arange(n)[::-1],
        queries=Queries(query, SEEN),
        gate_price=price_of_trees,
        boosting=SimpleNamespace(costs=None),
    )


def test_those_in_other_groups_have_what_their_group_would_say_for_the_same_money():
    rng = np.random.default_rng(0)
    one, other = chain(rng, 3, [0.0, 5.0, 4.0], np.zeros(3)), chain(rng, 2, [1.0, 20.0], np.ones(2))
    beside = Beside(np.array([0, 0, 0, 1, 1]), [one, other])
    for price, stages in ((0.5, (0, 0)), (4.5, (2, 0)), (5.0, (1, 0)), (30.0, (1, 1))):
        margins = [each.experts[stage].margins[::-1] for each, stage in zip((one, other), stages, strict=True)]
        np.testing.assert_array_equal(beside.margins(price), np.concatenate(margins))


def test_gaps_and_places_count_those_in_other_groups():
    rng = np.random.default_rng(1)
    other = chain(rng, 4, [1.0], np.array([0, 0, 1, 1]))
    mine = np.array([[0.5], [-0.25], [2.0]])
    queries = Queries(np.array([0, 1, 1]), SEEN, Beside(np.array([0, 0, 1, 1]), [other]))
    found = queries.made(mine, price=3.0)
    theirs = 10.0 * other.experts[0].margins[::-1, 0]
    for row, query in enumerate((0, 1, 1)):
        everyone = [10.0 * mine[i, 0] for i in range(3) if (0, 1, 1)[i] == query]
        everyone += [theirs[i] for i in range(4) if (0, 0, 1, 1)[i] == query]
        bar = sorted(everyone, reverse=True)[1]
        assert found[row, 0] == pytest.approx(10.0 * mine[row, 0] - bar)
        assert found[row, 1] == sum(score > 10.0 * mine[row, 0] for score in everyone)


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_walked_in_step(monkeypatch, seed):
    """A gate is a number here: who is no further behind than that goes on."""
    rng = np.random.default_rng(seed)
    monkeypatch.setattr("cstc.experts.queries.said_of_places", lambda chain, gate, here, made: made[:, 0] + gate)
    groups = []
    for n, n_stages in ((7, 3), (5, 1), (6, 2)):
        prices = np.cumsum(rng.random(n_stages)).tolist()
        own = chain(rng, n, prices, rng.integers(0, 3, size=n), price_of_trees=0.5)
        groups.append((own, list(range(n_stages)), rng.uniform(0.0, 20.0, size=n_stages - 1).tolist()))
    found = walk_groups(groups)
    # plain: one document after the other, level by level
    documents = [(group, row) for group, (own, *_) in enumerate(groups) for row in range(len(own.at))]
    scores, stops, paid, going = {}, {}, dict.fromkeys(documents, 0.0), list(documents)
    for level in range(3):
        for group, row in going:
            own = groups[group][0]
            scores[group, row] = 10.0 * own.experts[level].margins[own.at[row], 0]
        still = []
        for group, row in going:
            own, stages, gates = groups[group]
            stops[group, row] = level
            if level == len(stages) - 1:
                continue
            query = own.queries.query[row]
            alike = [scores[each] for each in documents if groups[each[0]][0].queries.query[each[1]] == query]
            bar = sorted(alike, reverse=True)[min(2, len(alike)) - 1]
            paid[group, row] += 0.5
            if scores[group, row] - bar + gates[level] > 0:
                paid[group, row] += 0.5 * (level + 1)
                still.append((group, row))
        going = still
    for group, steps in enumerate(found):
        assert steps.stops.tolist() == [stops[group, row] for row in range(len(steps.stops))]
        np.testing.assert_allclose(steps.paid, [paid[group, row] for row in range(len(steps.paid))])


def test_a_group_whose_gates_do_worse_beside_others_gets_one_stage(monkeypatch):
    rng = np.random.default_rng(0)
    groups = []
    for n in (6, 4):
        losses = np.column_stack([np.full(n, 3.0), np.full(n, 1.0)])
        losses[-1, 0] = 0.5
        own = make_chain(rng.normal(size=(n, 2)), losses, (1.0, 2.0), ([0], [0, 1]))
        every = np.arange(n)
        planned = Policy(
            [0, 1], ["a gate"], np.zeros(n), 0.0, 1.0, np.array([0.0]), np.array([0.5, 0.5]), every, every % 2, every
        )
        groups.append((own, planned))
    walks = []

    def walk(given):
        """The first group stops too early as long as it has a gate; the second one does as it is best."""
        walks.append([len(gates) for *_, gates in given])
        first = np.zeros(6, dtype=int) if given[0][2] else np.ones(6, dtype=int)
        return [Steps(first, np.zeros(6)), Steps(np.array([1, 1, 1, 0]), np.full(4, -1.0))]

    monkeypatch.setattr("cstc.experts.branches.walk_groups", walk)
    (_, one), (_, other) = _walked_together(groups, cost_weight=0.1)
    assert walks == [[1, 1], [0, 1]]  # and once more with what is left
    assert one.stages == [1]
    assert not one.gates
    assert one.stops.tolist() == [1] * 6
    assert one.mean_value == one.loss == pytest.approx(1.2)
    assert other.stages == [0, 1]
    np.testing.assert_allclose(other.reached, [0.25, 0.75])
    np.testing.assert_allclose(other.paid, [1.0, 1.0, 1.0, 0.0])
    assert other.mean_value == pytest.approx(np.mean([1.1, 1.1, 1.1, 0.5]))
