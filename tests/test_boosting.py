"""How trees are boosted: parameters that reach LightGBM, where boosting starts, the order of documents."""

from dataclasses import replace

import lightgbm
import numpy as np
import pytest

import reference
from boosted import FEW, MANY, N, each_loss_name, margins_of, problem
from builders import LOSSES
from cstc.boosting import Lambdarank, rounds_of
from cstc.lightgbm_engine import Binned, bin_blocks, boost
from cstc.lightgbm_trees import flatten_booster, trees_of
from cstc.rows import Rows, Units


@each_loss_name
def test_boosting_starts_at_the_best_constant_of_some_rows(loss_name):
    boosting, rows = problem(loss_name)
    some = rows.take(np.arange(50))
    other = boosting.starting_at(some, n_rounds=7)
    np.testing.assert_array_equal(other.constant, LOSSES[loss_name].constant(some.y, some.weights))
    assert (other.n_rounds, other.depth) == (7, boosting.depth)
    far = replace(boosting, constant=boosting.constant + np.arange(1, len(boosting.constant) + 1))
    start, moved = (trees_of(boost(each, rows), len(each.constant))[0].transform(rows.X) for each in (boosting, far))
    assert not np.allclose(start, moved)  # the trees make up for another start


@each_loss_name
def test_lightgbm_starts_from_the_constant_of_each_class(loss_name):
    """Its own metric before anything was learned is the risk of the constant."""
    boosting, rows = problem(loss_name)
    found = {}
    data = boosting.dataset(rows)
    parameters = boosting.parameters(N) | {"learning_rate": 1e-12}
    lightgbm.train(parameters, data, 1, valid_sets=[data], callbacks=[lightgbm.record_evaluation(found)])
    (metric,) = found["training"].values()
    expected = LOSSES[loss_name].risk(np.tile(boosting.constant, (N, 1)), rows.y, rows.weights)
    assert metric[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("n", "least"), [(400, 20), (60, 6), (8, 1)])
def test_a_leaf_holds_enough_rows_and_a_small_sample_can_be_split(n, least):
    X = np.arange(float(n))[:, None]
    boosting, rows = problem(X=X, y=X[:, 0], prices=(1,), depth=12, n_rounds=1)
    pool = flatten_booster(boost(boosting, rows))
    counts = np.unique(pool.leaves(X)[:, 0], return_counts=True)[1]
    assert len(counts) > 1
    assert least <= counts.min() < 2 * least + 1


@pytest.mark.parametrize(
    "option", [{"depth": 1}, {"learning_rate": 0.5}, {"l2": 50.0}, {"feature_fraction": 0.4}, {"row_fraction": 0.5}]
)
def test_each_parameter_of_boosting_reaches_lightgbm(option):
    boosting, rows = problem()
    usual, other = (margins_of(each, boost(each, rows), rows.X) for each in (boosting, replace(boosting, **option)))
    assert not np.allclose(usual, other)


def test_categories_follow_their_columns():
    boosting, rows = problem(categorical=(MANY, FEW))
    columns = np.array([FEW, 0, MANY])
    some = boosting.on(columns)
    assert list(some.categorical) == [0, 2]
    pool = flatten_booster(boost(some, rows.on(columns)))
    assert set(pool.feature[pool.category_start >= 0]) <= {0, 2}
    assert (pool.category_start >= 0).any()


# -- for the order of documents ------------------------------------------------------------------------------------


SIZES = np.array([7, 3, 12, 8, 10])


def documents(n_copies=20):
    """Grades by the first column, in queries of different sizes; targets in standard units."""
    rng = np.random.default_rng(0)
    sizes = np.tile(SIZES, n_copies)
    X = rng.normal(size=(sizes.sum(), 3))
    units = Units(offset=1.0, scale=0.5)
    grades = np.clip(np.round(X[:, 0] + 0.3 * rng.normal(size=len(X)) + 1), 0, 4)
    qid = np.repeat(np.arange(len(sizes)), sizes)
    return Rows(X, (grades - 1.0) / 0.5, np.ones(len(X)), qid), grades, units


def for_order(rows, units, **changes):
    boosting, _ = problem(X=rows.X, y=rows.y, weights=rows.weights, prices=(1, 2, 3), **changes)
    return replace(boosting, lambdarank=Lambdarank.of(rows, 3, units))


def test_queries_and_grades_of_some_rows():
    rows, grades, units = documents(1)
    ranking = Lambdarank.of(rows, 3, units)
    np.testing.assert_array_equal(ranking.sizes, SIZES)
    at = np.flatnonzero(np.isin(rows.qid, [0, 2, 3]))
    data = ranking.put_into(lightgbm.Dataset(rows.X[at]), rows, at)
    np.testing.assert_array_equal(data.get_label(), grades[at])
    np.testing.assert_array_equal(data.get_group(), SIZES[[0, 2, 3]])


def test_of_many_rows_whole_queries_stop_boosting():
    rows, _, units = documents(20)
    ranking = Lambdarank.of(rows, 3, units)
    out = np.flatnonzero(rows.qid % 2 == 0)
    some = ranking.some_of(out, 150)
    assert 75 < len(some) <= 250
    for query in np.unique(rows.qid[some]):
        assert np.isin(np.flatnonzero(rows.qid == query), some).all()
    np.testing.assert_array_equal(ranking.some_of(out, len(out)), out)


@pytest.mark.parametrize("binned_once", [False, True])
def test_trees_grow_for_the_order_of_documents(binned_once, monkeypatch):
    """The same trees as LightGBM's own, from rows that are binned once or anew."""
    if binned_once:
        monkeypatch.setattr("cstc.lightgbm_engine.MANY_ROWS", 10)
    rows, grades, units = documents()
    boosting = for_order(rows, units, early_stopping=3)
    columns, out = np.arange(3), rows.qid % 4 == 0
    plain = replace(boosting, lambdarank=None)
    blocks = bin_blocks(plain, rows, [columns])
    assert (blocks is not None) == binned_once
    binned = Binned(boosting, rows, columns, blocks)
    without, whole = binned.boost_without(out), binned.boost_all(4)
    parameters = boosting.parameters((~out).sum())
    assert (parameters["objective"], parameters["eval_at"], parameters["lambdarank_truncation_level"]) == (
        "lambdarank",
        [3],
        30,
    )
    sizes = np.bincount(rows.qid)
    if not binned_once:
        train = lightgbm.Dataset(rows.X[~out], grades[~out], group=sizes[np.unique(rows.qid[~out])])
        judges = train.create_valid(rows.X[out], grades[out], group=sizes[np.unique(rows.qid[out])])
        stop = lightgbm.early_stopping(3, verbose=False)
        own = lightgbm.train(parameters, train, boosting.n_rounds, valid_sets=[judges], callbacks=[stop])
        np.testing.assert_allclose(without.predict(rows.X, num_iteration=rounds_of(without)), own.predict(rows.X))
    for booster in (without, whole):
        assert reference.ndcg(grades, booster.predict(rows.X), rows.qid, 3) > 0.8
    # what was binned for the loss is still that
    again = Binned(plain, rows, columns, blocks).boost_all(4)
    fresh = Binned(plain, rows, columns, bin_blocks(plain, rows, [columns])).boost_all(4)
    np.testing.assert_array_equal(again.predict(rows.X), fresh.predict(rows.X))
