"""Columns that are binned once for many sets of them give the trees that binning each set anew would give."""

import gc
import warnings
import weakref
from dataclasses import replace

import lightgbm
import numpy as np
import pytest

from builders import LOSSES
from cstc.binning import ColumnBlocks
from cstc.boosting import GATE_ROUNDS, Boosting
from cstc.costs import CostModel
from cstc.lightgbm_engine import SHARED_BINS, Binned, GainRegression, bin_blocks
from cstc.lightgbm_trees import flatten_booster
from cstc.losses import SquaredLoss
from cstc.rows import Rows

N, WIDTH = 1500, 8
CATEGORICAL = (3, 6)
CONSTANT, MOSTLY_ZERO = 5, 7
ALL = np.arange(WIDTH)
#: Nested, overlapping and apart from each other; the last one has no column that says anything.
SETS = [np.array(columns) for columns in ([0], [0, 5], [0, 3, 5], [0, 3, 5, 7], ALL, [1, 2, 6], [CONSTANT])]


def make_rows(seed=0):
    """Numbers, two columns of categories, a constant one and one that is mostly zero; missing values in all others."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, WIDTH))
    X[:, 3], X[:, 6] = rng.integers(0, 30, N), rng.integers(0, 3, N)
    X[rng.random(N) < 0.9, MOSTLY_ZERO] = 0.0
    X[rng.random(X.shape) < 0.1] = np.nan
    X[:, CONSTANT] = 1.0
    known = np.nan_to_num(X)
    y = known[:, 0] + known[:, 3] % 5 + known[:, 1] * known[:, 7] + (known[:, 6] == 1) + 0.1 * rng.normal(size=N)
    return Rows(X, (y - y.mean()) / y.std(), rng.uniform(0.5, 2.0, N))


def make_boosting(**changes):
    """With all that draws columns or rows: trees are the same only if columns stand in the same order."""
    costs = CostModel(np.ones(WIDTH)).resolve([f"x{j}" for j in range(WIDTH)])
    drawn = {"feature_fraction": 0.7, "row_fraction": 0.8, "l2": 2.0, "max_bin": 127}
    usual = {"n_rounds": 8, "depth": 4, "learning_rate": 0.2, "early_stopping": None, "n_jobs": 1}
    return Boosting(SquaredLoss(), costs, categorical=CATEGORICAL, **(usual | drawn | changes))


@pytest.fixture(autouse=True)
def many_rows(monkeypatch):
    monkeypatch.setattr("cstc.lightgbm_engine.MANY_ROWS", N)


def binned_anew(boosting, rows, columns):
    """The same columns in the same order, binned for themselves."""
    return boosting.on(columns).dataset(replace(rows, X=rows.X[:, columns]), parameters=SHARED_BINS).construct()


def assert_same_trees(one, other):
    one, other = flatten_booster(one), flatten_booster(other)
    for name, values in vars(one).items():
        if isinstance(values, np.ndarray):
            np.testing.assert_array_equal(values, getattr(other, name), err_msg=name)
    return one


@pytest.mark.parametrize("columns", SETS, ids=str)
def test_trees_are_those_of_columns_that_are_binned_anew(columns):
    boosting, rows = make_boosting(), make_rows()
    binned = Binned(boosting, rows, columns, bin_blocks(boosting, rows, SETS))
    assert sorted(binned.columns) == sorted(columns)
    assert [binned.columns[at] for at in binned.boosting.categorical] == [
        column for column in binned.columns if column in CATEGORICAL
    ]
    whole = binned_anew(boosting, rows, binned.columns)
    parameters = binned._parameters(N, 0.0)
    pool = assert_same_trees(binned.boost_all(8), lightgbm.train(parameters, whole, 8))
    by_category = pool.category_start >= 0
    assert set(binned.columns[pool.feature[by_category]]) <= set(CATEGORICAL)
    assert by_category.any() == np.isin(CATEGORICAL, columns).any()  # they matter, or nothing would be tested
    assert (pool.feature >= 0).any() == (len(columns) > 1 or 0 in columns)


@pytest.mark.parametrize("columns", SETS, ids=str)
def test_folds_are_cut_out_of_them(columns):
    boosting, rows = make_boosting(), make_rows()
    binned = Binned(boosting, rows, columns, bin_blocks(boosting, rows, SETS))
    out = np.arange(N) % 3 == 0
    kept = np.flatnonzero(~out)
    part = binned_anew(boosting, rows, binned.columns).subset(kept.tolist()).construct()
    part.set_weight(rows.weights[kept] / rows.weights[kept].mean())
    parameters = binned._parameters(len(kept), 0.0)
    assert_same_trees(binned.boost_without(out), lightgbm.train(parameters, part, 8))


def test_missing_values_go_where_they_would_go():
    """A column of which only the missing values matter, behind another one."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, WIDTH))
    X[rng.random(N) < 0.3, 2] = np.nan
    rows = Rows(X, np.where(np.isnan(X[:, 2]), 1.0, -1.0), np.ones(N))
    boosting = make_boosting(feature_fraction=1.0, depth=1, n_rounds=1, learning_rate=1.0, l2=0.0)
    boosting = replace(boosting, categorical=())
    columns = np.array([0, 2])
    binned = Binned(boosting, rows, columns, bin_blocks(boosting, rows, [np.array([0]), columns]))
    pool = flatten_booster(binned.boost_all(1)).on_columns(binned.columns)
    np.testing.assert_allclose(pool.transform(X)[:, 0], rows.y, atol=0.05)


def blocks_of(sets, made=None, rows=None, n_jobs=1):
    boosting, rows = make_boosting(), rows or make_rows()

    def make(columns):
        if made is not None:
            made.append(columns.tolist())
        return boosting.on(columns).dataset(rows.on(columns), parameters=SHARED_BINS)

    return ColumnBlocks(make, sets, N, n_jobs)


def test_every_column_is_binned_once():
    made = []
    blocks = blocks_of(SETS, made)
    assert sorted(column for block in made for column in block) == ALL.tolist()
    assert [1, 2, 6] in made  # columns that always come together
    for columns in SETS:
        blocks.together(columns)
    assert len(made) == 6


def test_blocks_of_many_cells_are_cut_in_order(monkeypatch):
    monkeypatch.setattr("cstc.binning.BLOCK_CELLS", 2 * N + 1)
    made = []
    blocks = blocks_of([ALL, np.array([1, 2, 6])], made)
    assert made == [[0, 3], [4, 5], [7], [1, 2], [6]]
    assert blocks.order(ALL).tolist() == [0, 3, 4, 5, 7, 1, 2, 6]


def test_one_block_alone_is_taken_as_it_is():
    made = []
    blocks = blocks_of([ALL], made)
    assert blocks.order(ALL).tolist() == ALL.tolist()
    assert blocks.together(ALL) is blocks._binned[0]
    assert made == [ALL.tolist()]


def test_sets_that_are_put_together_leave_blocks_as_they_are():
    blocks = blocks_of(SETS)
    widths = [block.num_feature() for block in blocks._binned.values()]
    for columns in SETS:
        for rows, n in ((None, N), (np.arange(0, N, 3), N // 3)):
            data = blocks.together(columns, rows)
            assert data.num_feature() == len(blocks.order(columns)) == len(columns)
            assert data.num_data() == n
    assert [block.num_feature() for block in blocks._binned.values()] == widths
    assert [block.num_data() for block in blocks._binned.values()] == [N] * len(widths)


def test_nobody_keeps_what_is_put_together():
    """Of many rows, the copies of dozens of stages would be many times the blocks."""
    boosting, rows = make_boosting(), make_rows()
    blocks = bin_blocks(boosting, rows, SETS)
    binned = Binned(boosting, rows, ALL, blocks)
    gone = [weakref.ref(blocks.together(ALL)), weakref.ref(binned.boost_all(2).train_set)]
    gone.append(weakref.ref(binned.boost_without(np.arange(N) % 2 == 0).train_set))
    gc.collect()
    assert [each() for each in gone] == [None] * 3


def test_a_set_that_cuts_blocks_has_all_its_columns():
    """Such as the features that are left when a source is down: nobody knew of them when blocks were made."""
    rows, boosting = make_rows(), make_boosting()
    for unexpected in (np.array([1, 6]), np.array([0, 2, 3])):
        blocks = blocks_of(SETS, rows=rows)
        data, order = blocks.together(unexpected), blocks.order(unexpected)
        assert blocks._rests.keys() == {np.setdiff1d(unexpected, [0, 3]).tobytes()}
        assert sorted(order.tolist()) == unexpected.tolist()
        anew = binned_anew(boosting, rows, order)
        assert data.num_feature() == len(unexpected)
        trees = [lightgbm.train(boosting.on(order).parameters(N) | SHARED_BINS, each, 3) for each in (data, anew)]
        assert_same_trees(*trees)


def test_targets_weights_and_starting_scores_come_along():
    rows = make_rows()
    boosting = make_boosting(constant=np.array([0.25]))
    blocks = bin_blocks(boosting, rows, SETS)
    for columns in SETS:
        data = blocks.together(columns)
        np.testing.assert_array_equal(data.get_field("label"), rows.y.astype(np.float32))
        np.testing.assert_allclose(data.get_field("weight"), rows.weights / rows.weights.mean(), rtol=1e-6)
        np.testing.assert_array_equal(data.get_field("init_score"), np.full(N, 0.25))


def test_no_sets_are_no_blocks():
    assert blocks_of([])._binned == {}


def test_few_rows_have_none(monkeypatch):
    boosting, rows = make_boosting(), make_rows()
    monkeypatch.setattr("cstc.lightgbm_engine.MANY_ROWS", N + 1)
    assert bin_blocks(boosting, rows, SETS) is None


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_nobody_is_warned(n_jobs, capfd):
    """Of values that are not kept, and of categories that the bins know all the same."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        boosting, rows = make_boosting(n_jobs=n_jobs), make_rows()
        blocks = bin_blocks(boosting, rows, SETS)
        for columns in SETS:
            Binned(boosting, rows, columns, blocks).boost_all(2)
            GainRegression(boosting, rows, np.arange(0, N, 2), columns, blocks).fit(rows.y[::2])
    assert shown == []
    assert capfd.readouterr() == ("", "")


# -- gates ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", SETS, ids=str)
def test_gates_learn_what_they_would_learn_from_columns_that_are_binned_anew(columns):
    boosting, rows = make_boosting(), make_rows()
    at, gain = np.arange(1, N, 2), 0.3 + np.nan_to_num(rows.X[1::2, 0])
    regression = GainRegression(boosting, rows, at, columns, bin_blocks(boosting, rows, SETS))
    part = binned_anew(boosting, rows, regression.columns).subset(at.tolist()).construct()
    part.set_weight(rows.weights[at]).set_field("init_score", None).set_label(gain)
    pool = assert_same_trees(regression.fit(gain), lightgbm.train(regression._parameters, part, GATE_ROUNDS))
    said = pool.on_columns(regression.columns).scores(rows.X[at], np.ones((pool.n_learners, 1)))[:, 0]
    if 0 in columns:
        assert np.mean((said - gain) ** 2) < 0.05 * np.var(gain)


@pytest.mark.parametrize("loss_name", list(LOSSES))
def test_gates_start_from_zero_whatever_experts_start_from(loss_name):
    rows, at, gain = make_rows(), np.arange(0, N, 2), np.full(N // 2, 0.5)
    gain[: N // 4] = -0.1
    constant = {"squared": [3.0], "logistic": [-2.0], "softmax": [1.0, 0.5, -1.5]}[loss_name]
    plain = make_boosting()
    other = replace(plain, loss=LOSSES[loss_name], constant=np.array(constant))
    rows = replace(rows, y=np.arange(N) % max(2, len(constant)))
    regressions = [GainRegression(each, rows, at, ALL, bin_blocks(each, rows, SETS)) for each in (plain, other)]
    pool = assert_same_trees(*(each.fit(gain) for each in regressions)).on_columns(regressions[0].columns)
    said = pool.scores(rows.X[at], np.ones((pool.n_learners, 1)))[:, 0]
    mean, expected = (np.average(values, weights=rows.weights[at]) for values in (said, gain))
    assert mean == pytest.approx(expected, abs=0.02)
