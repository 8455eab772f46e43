"""How much is learned from how many rows."""

import pytest

from cstc import Exact, Experts, Paper
from cstc.capacity import FEW, Capacity, capacity_for, folds_for, rounds_on_all


@pytest.mark.parametrize(
    ("n_rows", "capacity", "folds"),
    [
        (1, (200, 4, 16), 5),
        (9_999, (200, 4, 16), 5),
        (10_000, (200, 8, 31), 3),
        (10_049, (200, 8, 31), 3),  # rounds are counted downwards
        (10_050, (201, 8, 31), 3),
        (49_999, (999, 8, 31), 3),
        (50_000, (1000, 8, 31), 2),
        (149_999, (2999, 8, 31), 2),
        (150_000, (3000, 8, 31), 2),
        (150_050, (3000, 8, 31), 2),
        (10_000_000, (3000, 8, 31), 2),
    ],
)
def test_the_rule(n_rows, capacity, folds):
    assert capacity_for(n_rows) == Capacity(*capacity)
    assert folds_for(n_rows) == folds


def test_few_rows_have_full_trees():
    assert FEW.n_leaves == 2**FEW.depth
    assert capacity_for(9_999) is FEW


def test_only_experts_grow_with_the_rows():
    for n_rows in (100, 10_000, 1_000_000):
        assert Experts().capacity(n_rows) == capacity_for(n_rows)
        assert Paper().capacity(n_rows) == Exact().capacity(n_rows) == FEW


@pytest.mark.parametrize(
    ("rounds", "n_folds", "more"),
    [
        (100, 2, 141),  # twice as many rows: the square root of two
        (100, 3, 122),
        (100, 5, 112),
        (100, 1000, 100),
        (1, 5, 1),
        (0, 2, 1),  # never none
    ],
)
def test_more_rows_bear_more_rounds(rounds, n_folds, more):
    assert rounds_on_all(rounds, n_folds) == more
