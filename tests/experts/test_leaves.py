"""How small the leaves of a group's experts are."""

import numpy as np
import pytest

from cstc.experts import leaves
from cstc.experts.leaves import with_leaves
from experts.cases import boosting, resolved, rows_of

N = 500
FOLDS = np.arange(N) % 5
ALL = np.arange(3)


def given(noise):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    rows = rows_of(X, X[:, 0] + noise * rng.normal(size=N))
    return boosting(resolved([1.0, 2.0, 3.0]), n_rounds=80).starting_at(rows), rows


@pytest.mark.parametrize(("noise", "least"), [(0.0, 5), (1.0, 20)])
def test_leaves_are_small_where_labels_have_no_noise(noise, least):
    model, rows = given(noise)
    found = with_leaves(model, rows, FOLDS, ALL)
    assert found.least_leaf == least
    assert found.parameters(N)["min_data_in_leaf"] == least


def test_of_many_rows_or_without_columns_nothing_is_tried(monkeypatch):
    monkeypatch.setattr(leaves, "grow_experts", None)
    model, rows = given(0.0)
    assert with_leaves(model, rows, FOLDS, np.zeros(0, dtype=int)) is model
    monkeypatch.setattr(leaves, "MANY_ROWS", N)
    assert with_leaves(model, rows, FOLDS, ALL) is model
