"""Which candidate is taken in money: against a plain loop over rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_classification

from cstc import CSTCClassifier
from cstc.experts.candidates import candidates_for
from cstc.experts.worthwhile import HURDLE, weighed_in_money
from cstc.rows import Rows

X, Y = make_classification(500, 5, n_informative=4, n_redundant=0, flip_y=0.1, random_state=2)
ERRORS = np.array([[0.0, 60.0], [200.0, 0.0]])


@pytest.fixture(scope="module")
def family():
    shared: dict = {}
    model = CSTCClassifier(costs=[1, 2, 4, 8, 16], error_costs=ERRORS, n_weak_learners=30, random_state=0, n_jobs=1)
    model._fit_rows(Rows(X, Y, np.linspace(0.5, 1.5, 500)), Rows(None, None), shared=shared)
    return shared["family"][0]


def saved_by(family, candidate, free_margins, cost_weight):
    """Row by row, what a candidate saves against buying nothing: expected by the agreed probabilities, and observed."""
    grower, truth = family.grower, family.grown.expected._mean
    at, margins = candidate.nodes(grower.boosting.costs).out_of_fold()
    rows, paid = candidate.paid()
    bills = dict(zip(rows.tolist(), paid.tolist(), strict=True))
    found = []
    for row, margin in zip(at.tolist(), margins[:, 0].tolist(), strict=True):
        costs = []
        for each in (free_margins[row, 0], margin):
            share = 1 / (1 + np.exp(-each))
            decided = int(np.argmin(np.array([1 - share, share]) @ ERRORS))
            costs.append((truth[row] @ ERRORS[:, decided], ERRORS[grower.rows.y[row], decided]))
        pays = cost_weight * bills[row]
        found.append([costs[0][0] - costs[1][0] - pays, costs[0][1] - costs[1][1] - pays])
    return np.array(found)


@pytest.mark.parametrize("cost_weight", [0.01, 1.0, 3.0, 30.0])
def test_the_one_that_saves_most_is_taken_if_it_saves_more_than_chance(family, cost_weight):
    candidates = candidates_for(family, cost_weight)
    listed, taken = weighed_in_money(family, candidates, cost_weight)
    weights = family.grower.rows.weights
    free = family.grown.chains[0].experts[0].margins
    saved = {
        each.name: saved_by(family, each, free, cost_weight) for each in candidates if each.grown is not None
    }
    means = {name: (weights @ found / weights.sum()).mean() for name, found in saved.items()}
    best = max(means, key=means.get)
    observed = saved[best][:, 1]
    spread = weights @ (observed - weights @ observed / weights.sum()) ** 2 / weights.sum()
    error = np.sqrt(spread * (weights**2).sum()) / weights.sum()
    assert taken.name == (best if means[best] > HURDLE * error else "buys nothing")
    assert [each.name for each in listed if not each.why_not] == [taken.name]
    assert listed[0].name == "buys nothing"
