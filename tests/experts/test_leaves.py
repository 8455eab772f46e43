"""How small leaves are."""

import numpy as np
import pytest

from cstc.experts import leaves
from cstc.experts.leaves import with_leaves
from experts.cases import boosting, resolved, rows_of

N = 1200
FOLDS = np.arange(N) % 5


def given(noise, weights=None):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    rows = rows_of(X, X[:, 0] + noise * rng.normal(size=N), weights)
    return boosting(resolved([1.0, 2.0, 3.0]), n_rounds=80).starting_at(rows), rows


@pytest.mark.parametrize(("noise", "least"), [(0.0, 5), (1.0, 20)])
def test_leaves_are_small_where_labels_have_no_noise(noise, least):
    model, rows = given(noise)
    found = with_leaves(model, rows, FOLDS)
    assert found.least_leaf == least
    assert found.parameters(N)["min_data_in_leaf"] == least


def test_rows_of_the_folds_that_judge_teach_nobody(monkeypatch):
    seen = []

    def grow(wanted, rows, *, parts, names):
        seen.append((len(wanted), parts))
        return leaves_grow(wanted, rows, parts=parts, names=names)

    leaves_grow = leaves.grow_experts
    monkeypatch.setattr(leaves, "grow_experts", grow)
    with_leaves(*given(0.0), FOLDS)
    ((n_wanted, parts),) = seen
    assert n_wanted == 2
    assert [set(FOLDS[part]) for part in parts] == [{0}, {1}]


@pytest.mark.parametrize(("name", "bound"), [("MANY_ROWS", N), ("LEAST_ROWS", N + 1)])
def test_of_many_and_of_few_rows_nothing_is_tried(name, bound, monkeypatch):
    monkeypatch.setattr(leaves, name, bound)
    monkeypatch.setattr(leaves, "grow_experts", None)
    model, rows = given(0.0)
    assert with_leaves(model, rows, FOLDS) is model
