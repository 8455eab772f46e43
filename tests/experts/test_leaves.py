"""How small leaves are."""

import numpy as np
import pytest

from cstc.experts import leaves
from cstc.experts.leaves import leaves_for_all, leaves_for_group
from experts.cases import boosting, resolved, rows_of

N = 1200
FOLDS = np.arange(N) % 5
ALL = np.arange(3)


def given(noise, n=N):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    rows = rows_of(X, X[:, 0] + noise * rng.normal(size=n))
    return boosting(resolved([1.0, 2.0, 3.0]), n_rounds=80).starting_at(rows), rows


@pytest.mark.parametrize(("noise", "least"), [(0.0, 5), (1.0, 20)])
def test_leaves_are_small_where_labels_have_no_noise(noise, least):
    model, rows = given(noise)
    found = leaves_for_all(model, rows, FOLDS)
    assert found.least_leaf == least
    assert found.parameters(N)["min_data_in_leaf"] == least


@pytest.mark.parametrize(("noise", "least"), [(0.0, 5), (1.0, 20)])
def test_a_group_has_leaves_of_its_own(noise, least):
    model, rows = given(noise, 500)
    assert leaves_for_group(model, rows, np.arange(500) % 5, ALL).least_leaf == least


def test_of_all_rows_two_folds_judge_and_of_a_group_all(monkeypatch):
    seen = []
    grow = leaves.grow_experts

    def watched(wanted, rows, *, parts, names):
        seen.append((len(wanted), [set(FOLDS[part]) for part in parts]))
        return grow(wanted, rows, parts=parts, names=names)

    monkeypatch.setattr(leaves, "grow_experts", watched)
    model, rows = given(1.0)
    leaves_for_all(model, rows, FOLDS)
    leaves_for_group(model, rows, FOLDS, ALL)
    assert seen == [(2, [{0}, {1}]), (2, [{0}, {1}, {2}, {3}, {4}])]


@pytest.mark.parametrize(("name", "bound"), [("MANY_ROWS", N), ("LEAST_ROWS", N + 1)])
def test_of_many_and_of_few_rows_nothing_is_tried(name, bound, monkeypatch):
    monkeypatch.setattr(leaves, name, bound)
    monkeypatch.setattr(leaves, "grow_experts", None)
    model, rows = given(0.0)
    assert leaves_for_all(model, rows, FOLDS) is model


def test_a_group_of_many_rows_or_without_columns_tries_nothing(monkeypatch):
    monkeypatch.setattr(leaves, "grow_experts", None)
    model, rows = given(0.0)
    assert leaves_for_group(model, rows, FOLDS, np.zeros(0, dtype=int)) is model
    monkeypatch.setattr(leaves, "MANY_ROWS", N)
    assert leaves_for_group(model, rows, FOLDS, ALL) is model
