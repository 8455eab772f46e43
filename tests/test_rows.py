"""Rows, the units of their targets, folds, and rows that are held out."""

import numpy as np
import pandas as pd
import pytest

from builders import LOSSES
from cstc.rows import Rows, Units, check_queries, folds_of, hold_out, part


def some_rows(n=30, **changes):
    rng = np.random.default_rng(0)
    parts = {"X": rng.normal(size=(n, 4)), "y": np.arange(float(n)), "weights": rng.uniform(0.5, 2, n)}
    return Rows(**parts | {"qid": np.arange(n) // 3} | changes)


# -- the container ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        (np.asarray, np.array([7, 2, 2])),
        (np.asarray, np.arange(30) % 4 == 1),
        (pd.DataFrame, np.array([7, 2, 2])),
        (list, np.array([7, 2, 2])),
    ],
    ids=["matrix", "matrix and mask", "table", "list"],
)
def test_some_rows_with_all_that_belongs_to_them(kind, at):
    rows = some_rows()
    taken = Rows(kind(rows.X), rows.y, rows.weights, rows.qid).take(at)
    np.testing.assert_array_equal(np.asarray(taken.X), rows.X[at])
    for name in ("y", "weights", "qid"):
        np.testing.assert_array_equal(getattr(taken, name), getattr(rows, name)[at])
    assert len(taken) == len(taken.y)
    assert isinstance(taken.X, type(kind(rows.X)))


def test_what_rows_do_not_have_they_do_not_get():
    taken = Rows(np.zeros((3, 2)), [1, 2, 3]).take(np.array([0, 2]))
    assert taken.weights is None
    assert taken.qid is None
    assert taken.y.tolist() == [1, 3]


def test_some_columns():
    rows = some_rows()
    two = rows.on(np.array([3, 1]))
    np.testing.assert_array_equal(two.X, rows.X[:, [3, 1]])
    assert two.y is rows.y
    assert two.weights is rows.weights
    assert two.qid is rows.qid
    assert rows.on(np.arange(4)) is rows  # nothing is copied for nothing


# -- units --------------------------------------------------------------------------------------------------------


def test_standard_targets_have_mean_zero_and_deviation_one():
    rows = some_rows()
    units = Units.of(rows, LOSSES["squared"])
    standard = units.standard(rows)
    assert np.average(standard.y, weights=rows.weights) == pytest.approx(0, abs=1e-12)
    assert np.average(standard.y**2, weights=rows.weights) == pytest.approx(1)
    np.testing.assert_allclose(units.margins(standard.y[:, None])[:, 0], rows.y)
    np.testing.assert_array_equal(rows.y, np.arange(30.0))  # those given are left alone
    assert standard.X is rows.X
    assert standard.weights is rows.weights


def test_units_leave_the_order_of_models_as_it_was():
    """risk + cost_weight * cost, in both units: the same up to one factor."""
    rng, loss, rows = np.random.default_rng(1), LOSSES["squared"], some_rows()
    units = Units.of(rows, loss)
    standard = units.standard(rows)
    for _ in range(5):
        margins, cost = rng.normal(size=(30, 1)), rng.uniform(0, 9)
        own = loss.risk(units.margins(margins), rows.y, rows.weights) + 0.3 * cost
        there = loss.risk(margins, standard.y, rows.weights) + units.standard_weight(0.3) * cost
        assert units.risk(there) == pytest.approx(own)


@pytest.mark.parametrize("name", ["logistic", "softmax"])
def test_classes_have_no_units(name):
    rows = some_rows(y=np.arange(30) % 3)
    units = Units.of(rows, LOSSES[name])
    assert units == Units(0.0, 1.0)
    assert units.standard(rows) is rows
    assert units.standard_weight(0.3) == units.risk(0.3) == 0.3


def test_a_target_that_never_changes_has_a_unit_too():
    """Its mean is not rounded, or what is left would be taken for its unit."""
    rows = some_rows(y=np.full(30, 0.1))
    units = Units.of(rows, LOSSES["squared"])
    assert units == Units(0.1, 1.0)
    assert not units.standard(rows).y.any()


# -- folds --------------------------------------------------------------------------------------------------------


def test_folds_are_of_equal_size_and_drawn():
    rows = some_rows(qid=None)
    folds = folds_of(rows, 4, random_state=0)
    assert np.bincount(folds).tolist() == [8, 8, 7, 7]
    np.testing.assert_array_equal(folds, folds_of(rows, 4, random_state=0))
    assert (folds != folds_of(rows, 4, random_state=1)).any()
    assert (folds[1:] < folds[:-1]).any()  # not in the order of the rows


def test_folds_keep_queries_whole():
    qid = np.repeat(np.random.default_rng(0).permutation(20), np.arange(20) % 4 + 1)
    folds = folds_of(some_rows(len(qid), qid=qid), 5, random_state=0)
    assert all(len(np.unique(folds[qid == query])) == 1 for query in range(20))
    first = folds[[np.flatnonzero(qid == query)[0] for query in range(20)]]
    assert np.bincount(first).tolist() == [4] * 5
    assert (folds != folds_of(some_rows(len(qid), qid=qid), 5, random_state=1)).any()


def test_folds_have_an_even_share_of_each_class():
    y = np.random.default_rng(5).permutation(np.repeat([0, 1, 2], [72, 20, 8]))
    rows = some_rows(100, y=y, qid=None)
    folds = folds_of(rows, 4, random_state=0, by_class=True)
    for k, n in enumerate([18, 5, 2]):
        assert np.bincount(folds[y == k]).tolist() == [n] * 4
    assert (folds != folds_of(rows, 4, random_state=1, by_class=True)).any()
    by_chance = folds_of(rows, 4, random_state=0)
    assert len(set(np.bincount(by_chance[y == 0]))) > 1


# -- rows that are held out ---------------------------------------------------------------------------------------


def test_a_share_of_the_rows_is_held_out():
    rows = some_rows(50, qid=None)
    held_out = hold_out(rows, 0.3, random_state=0)
    assert held_out.dtype == bool
    assert held_out.sum() == 15
    np.testing.assert_array_equal(held_out, hold_out(rows, 0.3, random_state=0))
    assert (held_out != hold_out(rows, 0.3, random_state=1)).any()


def test_whole_queries_are_held_out():
    qid = np.repeat(np.arange(12), np.arange(12) % 3 + 1)
    rows = some_rows(len(qid), qid=qid)
    held_out = hold_out(rows, 0.25, random_state=0)
    assert len(np.unique(qid[held_out])) == 3
    assert not set(qid[held_out]) & set(qid[~held_out])
    assert (held_out != hold_out(rows, 0.25, random_state=1)).any()


def test_one_query_cannot_be_held_out():
    with pytest.raises(ValueError, match="qid holds one query; at least 2 are needed to hold one out"):
        hold_out(some_rows(qid=np.zeros(30)), 0.2, random_state=0)


@pytest.mark.parametrize("random_state", range(5))
def test_classes_are_held_out_in_proportion(random_state):
    y = np.repeat([0, 1, 2], [80, 15, 5])
    held_out = hold_out(some_rows(100, y=y, qid=None), 0.2, random_state, by_class=True)
    assert np.bincount(y[held_out]).tolist() == [16, 3, 1]


@pytest.mark.parametrize(
    ("counts", "fraction"),
    [([29, 1], 0.2), ([20, 10, 10], 0.05), ([2, 2, 2, 2], 0.6)],
    ids=["a class of one row", "fewer rows held out than classes", "fewer rows left than classes"],
)
def test_classes_too_small_for_both_sides_are_held_out_by_chance(counts, fraction):
    y = np.repeat(np.arange(len(counts)), counts)
    rows = some_rows(len(y), y=y, qid=None)
    held_out = hold_out(rows, fraction, random_state=0, by_class=True)
    assert held_out.sum() == np.ceil(fraction * len(y))
    np.testing.assert_array_equal(held_out, hold_out(rows, fraction, random_state=0))


# -- rows that teach and rows that judge ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_parts_in_standard_units_of_all_training_rows(name):
    loss = LOSSES[name]
    y = np.repeat([0, 1], [90, 10]) if loss.has_classes else np.random.default_rng(3).normal(5, 9, 100)
    rows = some_rows(100, y=y, qid=None)
    parts = part(rows, None, loss, 0.2, random_state=0)
    judges = hold_out(rows, 0.2, random_state=0, by_class=loss.has_classes)
    assert parts.units == Units.of(rows, loss)
    assert parts.were_held_out
    for found, at in ((parts.train, ~judges), (parts.validation, judges), (parts.everything, judges | ~judges)):
        np.testing.assert_array_equal(found.X, rows.X[at])
        np.testing.assert_array_equal(found.y, parts.units.standard(rows).y[at])
        np.testing.assert_array_equal(found.weights, rows.weights[at])
    assert not loss.has_classes or parts.validation.y.sum() == 2  # classes in proportion


def test_given_rows_judge_in_the_units_of_the_others():
    rows, given = some_rows(), some_rows(12, y=np.arange(12.0) + 100)
    parts = part(rows, given, LOSSES["squared"], 0.2, random_state=0)
    assert not parts.were_held_out
    assert len(parts.train) == len(rows)
    assert parts.units == Units.of(rows, LOSSES["squared"])
    np.testing.assert_allclose(parts.units.margins(parts.validation.y), given.y)


# -- queries ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qid", [[9, 9, 4, 7, 7], ["b", "b", "a", "c", "c"], pd.Series([3.5, 3.5, 1, 2, 2])])
def test_queries_are_numbered_in_the_order_of_the_rows(qid):
    assert check_queries(qid, np.array([0, 1, 0, 0, 2]), "qid").tolist() == [0, 0, 1, 2, 2]


@pytest.mark.parametrize(
    ("qid", "message"),
    [
        (None, "qid_val is missing; a ranker needs the query of each row: qid_val=..."),
        ([1, 1], "qid_val has shape (2,), y has 3 rows; give one query id per row"),
        ([[1], [1], [2]], "qid_val has shape (3, 1), y has 3 rows; give one query id per row"),
        ([1, np.nan, 2], "qid_val holds missing values; give the query of every row"),
        (np.array(["a", None, "b"]), "qid_val holds missing values; give the query of every row"),
        ([1, 2, 1], "query 1 comes back after other queries; sort the rows by qid_val"),
        (["a", "b", "a"], "query 'a' comes back after other queries; sort the rows by qid_val"),
    ],
)
def test_queries_that_cannot_be(qid, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        check_queries(qid, np.array([1, 0, 2]), "qid_val")
    assert str(error.value) == message


def test_grades_without_a_relevant_document():
    with pytest.raises(ValueError, match="no query has a relevant document: all grades are 0"):
        check_queries([1, 1, 2], np.zeros(3), "qid")
