"""Decisions of least expected cost, against enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cstc.model import Decisions

PRICE = st.floats(0, 1e4, allow_nan=False)


@st.composite
def priced(draw):
    n = draw(st.integers(2, 4))
    costs = draw(st.lists(st.lists(PRICE, min_size=n, max_size=n), min_size=n, max_size=n))
    if draw(st.booleans()):
        costs = [[*row, draw(PRICE)] for row in costs]
    weights = draw(st.lists(st.lists(st.floats(0.01, 1), min_size=n, max_size=n), min_size=1, max_size=5))
    shares = np.array([np.array(row) / sum(row) for row in weights])
    return Decisions(np.array(costs)), shares


@settings(max_examples=200, deadline=None)
@given(priced())
def test_what_is_taken_costs_least_by_enumeration(case):
    decisions, shares = case
    n, n_decisions = decisions.costs.shape
    for row, taken in zip(shares, decisions.taken(shares), strict=True):
        costs = [sum(row[c] * decisions.costs[c, d] for c in range(n)) for d in range(n_decisions)]
        assert costs[taken] <= min(costs) + 1e-9 * (1 + max(costs))
        assert decisions.of_one(row.tolist()) == taken  # serving adds up the same numbers in the same order


def test_a_missed_case_that_costs_more_moves_the_threshold():
    decisions = Decisions(np.array([[0.0, 300.0], [5000.0, 0.0]]))
    sick = np.array([0.05, 300 / 5300 - 1e-6, 300 / 5300 + 1e-6, 0.9])
    taken = decisions.taken(np.column_stack([1 - sick, sick]))
    assert taken.tolist() == [0, 0, 1, 1]
    assert decisions.observed(np.array([0, 1, 0, 1]), np.column_stack([1 - sick, sick])).tolist() == [0, 5000, 300, 0]


def test_a_further_column_refers_where_both_decisions_would_cost_more():
    decisions = Decisions(np.array([[0.0, 100.0, 20.0], [100.0, 0.0, 20.0]]))
    shares = np.array([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]])
    assert decisions.can_refer
    assert decisions.answers(shares, np.array(["well", "sick"])).tolist() == ["well", None, "sick"]


def test_of_equal_decisions_the_first_is_taken():
    decisions = Decisions(np.array([[0.0, 1.0], [1.0, 0.0]]))
    shares = np.array([[0.5, 0.5]])
    assert decisions.taken(shares).tolist() == [0] == [decisions.of_one([0.5, 0.5])]


@pytest.mark.parametrize("n", [2, 3])
def test_without_a_further_column_answers_keep_the_type_of_the_classes(n):
    decisions = Decisions(1.0 - np.eye(n))
    answers = decisions.answers(np.eye(n), np.arange(n) * 10)
    assert answers.dtype == np.arange(n).dtype
    assert answers.tolist() == [10 * k for k in range(n)]
