"""Members: grown without their own rows, with one number of rounds for all, here as on workers."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import lightgbm
import numpy as np
import pytest

from builders import LOSSES
from cstc.boosting import Boosting, rounds_of
from cstc.cluster import Workers
from cstc.costs import CostModel
from cstc.experts.members import Wanted, grow_members
from cstc.lightgbm_engine import bin_blocks, boost
from cstc.lightgbm_trees import trees_of
from cstc.rows import Rows, Units

each_loss_name = pytest.mark.parametrize("loss_name", list(LOSSES))
N, ALL = 400, np.arange(4)


def problem(loss_name="squared", y=None, **changes):
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(N, 4)), 1)
    X[:, 3] = rng.integers(0, 3, N)
    X[rng.random(X.shape) < 0.1] = np.nan
    score = np.nan_to_num(X[:, 0], nan=1.0) + (X[:, 3] == 1) + 0.5 * rng.normal(size=N)
    if y is None:
        y = {
            "squared": score - score.mean(),
            "logistic": (score > 0).astype(int),
            "softmax": np.digitize(score, [-0.5, 0.8]),
        }[loss_name]
    names = [f"x{j}" for j in range(4)]
    options = {"n_rounds": 10, "depth": 3, "learning_rate": 0.3, "early_stopping": None, "categorical": (3,)}
    boosting = Boosting(
        loss=LOSSES[loss_name], costs=CostModel([1.0, 2.0, 1.0, 3.0]).resolve(names), **options | changes
    )
    rows = Rows(X, y, 0.5 + rng.random(N))
    return boosting.starting_at(rows), rows


def parts_of(folds):
    return [folds == fold for fold in np.unique(folds)]


def grow(boosting, rows, folds, **options):
    wanted = Wanted(ALL, boosting, parts_of(folds), **options)
    return grow_members([wanted], rows, bin_blocks(boosting, rows, [ALL]))[0]


def scores_of(trees, X):
    pool, weights = trees
    return pool.transform(X) @ weights


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("patience", [None, 1, 20])
@each_loss_name
def test_members_lack_their_own_rows_and_have_one_number_of_rounds(loss_name, patience, shared, monkeypatch):
    boosting, rows = problem(loss_name, n_rounds=15, early_stopping=patience, learning_rate=0.5)
    monkeypatch.setattr("cstc.lightgbm_engine.MANY_ROWS", N if shared else N + 1)
    # whose bins all parts have
    whole = boosting.dataset(rows, parameters={"feature_pre_filter": False}).construct() if shared else None
    folds = np.random.default_rng(0).integers(0, 3, N)
    members = grow(boosting, rows, folds, cost_weight=0.01)
    stops = []
    for fold in range(3):
        kept, out = rows.take(folds != fold), rows.take(folds == fold)
        stop = [lightgbm.early_stopping(patience, verbose=False)] if patience else []
        prices = list(boosting.loss.gain_unit * 0.01 * boosting.costs.divided_prices)
        parameters = boosting.parameters(len(kept)) | {"cegb_penalty_feature_lazy": prices}
        parameters |= {"feature_pre_filter": False} if shared else {}
        data = boosting.dataset(kept, reference=whole, parameters={"feature_pre_filter": False} if shared else {})
        judges = boosting.dataset(out, reference=data)
        stopped = lightgbm.train(parameters, data, 15, valid_sets=[judges] if patience else [], callbacks=stop)
        stops.append(rounds_of(stopped))
        alone = trees_of(lightgbm.train(parameters, data, members.rounds), len(boosting.constant), members.rounds)
        np.testing.assert_allclose(members.heard[fold].scores, scores_of(alone, out.X), atol=1e-12)
        np.testing.assert_allclose(members.heard[fold].scores, scores_of(members.trees[fold], out.X), atol=1e-12)
    assert members.rounds == max(1, round(np.mean(stops)))
    assert members.rounds == 15 or patience
    if patience == 1:
        assert min(stops) < members.rounds or loss_name == "logistic"  # some member went on after it had stopped


@each_loss_name
def test_what_a_member_says_does_not_depend_on_the_labels_of_rows_that_it_lacks(loss_name):
    boosting, rows = problem(loss_name)
    folds, changed = np.arange(N) % 4, rows.y.copy()
    changed[10] = rows.y[10] + 5 if loss_name == "squared" else 1 - min(rows.y[10], 1)
    before, after = (grow(boosting, replace(rows, y=y), folds) for y in (rows.y, changed))
    for fold in range(4):
        same = np.array_equal(before.heard[fold].scores, after.heard[fold].scores)
        assert same == (fold == folds[10])


def test_members_do_not_flatter():
    """On pure noise, trees look useful on their own rows, and useless on others."""
    boosting, rows = problem(y=np.random.default_rng(0).normal(size=N), n_rounds=20)
    folds = np.arange(N) % 5
    own = boosting.constant + scores_of(trees_of(boost(boosting, rows), 1), rows.X)
    honest = np.tile(boosting.constant, (N, 1))
    for out, heard in zip(parts_of(folds), grow(boosting, rows, folds).heard, strict=True):
        honest[out] += heard.scores
    assert LOSSES["squared"].risk(own, rows.y) < 0.8 * rows.y.var()
    assert LOSSES["squared"].risk(honest, rows.y) > rows.y.var()


# -- on workers ----------------------------------------------------------------------------------------------------


def assert_same_trees(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one[1], other[1])
        for name, value in vars(other[0]).items():
            if not name.startswith("_"):
                np.testing.assert_array_equal(getattr(one[0], name), value, err_msg=name)


@pytest.mark.parametrize("buys", [True, False])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("patience", [None, 1])
@each_loss_name
def test_workers_grow_the_same_members(loss_name, patience, shared, buys, monkeypatch, tmp_path):
    boosting, rows = problem(loss_name, n_rounds=15, early_stopping=patience, learning_rate=0.5)
    monkeypatch.setattr("cstc.lightgbm_engine.MANY_ROWS", N if shared else N + 1)
    parts = parts_of(np.random.default_rng(0).integers(0, 3, N))
    at = np.flatnonzero(np.arange(N) % 7)
    sets = [np.array([2, 0]), np.array([0, 2, 3])]
    for some in (slice(None), at):
        some_rows = rows if isinstance(some, slice) else rows.take(some)
        wanted = [Wanted(columns, boosting, [out[some] for out in parts], 0.0, buys) for columns in sets]
        with monkeypatch.context() as patch:
            patch.setattr("cstc.lightgbm_engine.MANY_ROWS", len(some_rows) if shared else N + 1)
            blocks = bin_blocks(boosting, some_rows, sets)
        here = grow_members(wanted, some_rows, blocks)
        with ThreadPoolExecutor(2) as pool, Workers(pool, tmp_path) as workers:
            stored = replace(rows, part=workers.publish(rows, Units()))
            far = [replace(each, boosting=replace(boosting, workers=workers)) for each in wanted]
            there = grow_members(far, stored if isinstance(some, slice) else stored.take(some), blocks)
            for one, other in zip(there, here, strict=True):
                assert one.rounds == other.rounds
                np.testing.assert_array_equal(one.columns, other.columns)
                assert_same_trees(one.trees, other.trees)
                assert_same_trees([one.on_all(7)], [other.on_all(7)])
                for said, expected in zip(one.heard, other.heard, strict=True):
                    np.testing.assert_array_equal(said.scores, expected.scores)
                    if buys:
                        np.testing.assert_array_equal(said.items, expected.items)
        assert not list(tmp_path.iterdir())
