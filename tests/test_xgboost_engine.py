"""Ensembles by XGBoost: the same face as LightGBM's, flat trees that answer as XGBoost does, and what goes wrong."""

import gc
import re
import subprocess
import sys
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import cstc
from builders import LOSSES
from cstc import CSTCClassifier, CSTCRanker, CSTCRegressor, Experts
from cstc import on_device as device_module
from cstc import xgboost_engine as engine
from cstc.boosting import GATE_ROUNDS, Boosting, agreed_rounds, rounds_of
from cstc.costs import CostModel
from cstc.engines import bin_for_all, bin_for_one, grow, regression
from cstc.experts import lazy as module
from cstc.experts.members import Wanted, grow_members
from cstc.lightgbm_engine import go_on
from cstc.lightgbm_trees import flatten_booster, trees_of
from cstc.on_device import Arrays, check_cuda
from cstc.rows import Rows, folds_of

xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed: pip install xgboost-cpu")

each_loss_name = pytest.mark.parametrize("loss_name", list(LOSSES))
CODED = 3  # the column of categories
N = 400
ALL = np.arange(5)


def table(seed=0, n=N, *, missing=0.1):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 5)), 1)
    X[:, CODED] = rng.integers(0, 12, n)
    X[rng.random(X.shape) < missing] = np.nan
    return X


def target(X, loss_name, seed=0):
    rng = np.random.default_rng(seed)
    effect = rng.normal(size=12)[np.nan_to_num(X[:, CODED]).astype(int)]
    score = np.nan_to_num(X[:, 0], nan=1.0) + effect + 0.3 * rng.normal(size=len(X))
    if loss_name == "squared":
        return score - score.mean()
    return (score > 0).astype(int) if loss_name == "logistic" else np.digitize(score, [-0.5, 0.8])


def problem(loss_name="squared", *, X=None, y=None, weights=None, **options):
    """How to boost, from the best constant on, and the rows to boost on."""
    X = table() if X is None else X
    y = target(X, loss_name) if y is None else y
    weights = np.random.default_rng(1).uniform(0.5, 2, len(X)) if weights is None else weights
    rows = Rows(X, y, weights)
    settings = {"n_rounds": 10, "depth": 3, "learning_rate": 0.2, "early_stopping": None, "n_jobs": 1}
    settings |= {"engine": "xgboost", "categorical": (CODED,)} | options
    costs = CostModel(np.ones(X.shape[1])).resolve([f"x{j}" for j in range(X.shape[1])])
    return Boosting(loss=LOSSES[loss_name], costs=costs, **settings).starting_at(rows), rows


def margins_of(boosting, booster, X, n_rounds=None):
    pool, weights = trees_of(booster, len(boosting.constant), n_rounds)
    return pool.transform(X) @ weights + boosting.constant


def own_margins(boosting, ensemble, X, n_rounds):
    """As XGBoost itself says them."""
    types = ["c" if column in boosting.categorical else "q" for column in range(X.shape[1])]
    start = np.tile(boosting.constant, (len(X), 1))
    data = xgboost.DMatrix(X, base_margin=start, feature_types=types, enable_categorical=True, nthread=1)
    found = ensemble._booster.predict(data, output_margin=True, iteration_range=(0, n_rounds))
    return found.reshape(len(X), -1)


# -- ensembles -----------------------------------------------------------------------------------------------------


@each_loss_name
def test_an_ensemble_is_the_constant_plus_its_trees(loss_name):
    boosting, rows = problem(loss_name, row_fraction=0.5, feature_fraction=0.6)
    ensemble, loss = grow(boosting, rows), LOSSES[loss_name]
    assert ensemble.current_iteration() == 10
    for n_rounds in (10, 4):
        own = own_margins(boosting, ensemble, rows.X, n_rounds)
        np.testing.assert_allclose(margins_of(boosting, ensemble, rows.X, n_rounds), own, atol=1e-6)
    alone = loss.risk(np.tile(boosting.constant, (N, 1)), rows.y, rows.weights)
    assert loss.risk(margins_of(boosting, ensemble, rows.X), rows.y, rows.weights) < 0.8 * alone


@each_loss_name
def test_boosting_starts_from_the_constant(loss_name):
    boosting, rows = problem(loss_name)
    far = replace(boosting, constant=boosting.constant + np.arange(1, len(boosting.constant) + 1))
    start, moved = (trees_of(grow(each, rows), len(each.constant))[0].transform(rows.X) for each in (boosting, far))
    assert start.shape != moved.shape or not np.allclose(start, moved)


def test_weights_of_rows_count_and_their_sum_does_not():
    boosting, rows = problem()
    first, more, other = (
        margins_of(boosting, grow(boosting, replace(rows, weights=weights)), rows.X)
        for weights in (rows.weights, 64 * rows.weights, rows.weights[::-1])
    )
    np.testing.assert_allclose(more, first, atol=1e-6)
    assert not np.allclose(other, first)


@pytest.mark.parametrize(
    "option",
    [
        {"depth": 1},
        {"learning_rate": 0.5},
        {"l2": 50.0},
        {"feature_fraction": 0.4},
        {"row_fraction": 0.5},
        {"n_leaves": 3},
        {"max_bin": 4},
        {"categorical": ()},
    ],
    ids=lambda option: next(iter(option)),
)
def test_each_parameter_of_boosting_reaches_xgboost(option):
    boosting, rows = problem()
    usual, other = (margins_of(each, grow(each, rows), rows.X) for each in (boosting, replace(boosting, **option)))
    assert not np.allclose(usual, other)


def test_a_tree_has_at_most_so_many_leaves():
    boosting, rows = problem(depth=6, n_leaves=5)
    pool = flatten_booster(grow(boosting, rows))
    leaves = np.bincount(pool.owners[pool.feature < 0])
    assert leaves.max() == 5
    assert pool.depth > 2  # they need not lie side by side


@pytest.mark.parametrize(("n", "least"), [(400, 20), (60, 6), (8, 1)])
def test_a_leaf_holds_enough_rows_and_a_small_sample_can_be_split(n, least):
    X = np.arange(float(n))[:, None]
    boosting, rows = problem(X=X, y=X[:, 0], depth=12, n_rounds=1, weights=np.ones(n), categorical=())
    counts = np.unique(flatten_booster(grow(boosting, rows)).leaves(X)[:, 0], return_counts=True)[1]
    assert len(counts) > 1
    assert least <= counts.min() < 2 * least + 1


def test_seed_gives_the_same_trees_twice_and_others_give_others():
    boosting, rows = problem(random_state=3, feature_fraction=0.5, row_fraction=0.5)
    one, two, other = (
        margins_of(each, grow(each, rows), rows.X) for each in (boosting, boosting, replace(boosting, random_state=4))
    )
    np.testing.assert_array_equal(one, two)
    assert not np.allclose(one, other)


def test_rows_that_judge_stop_boosting_and_it_can_go_on():
    y = np.random.default_rng(0).normal(size=N)
    judges = Rows(table(1), y[::-1], np.ones(N))
    boosting, rows = problem(y=y, n_rounds=50, early_stopping=3)
    ensemble = grow(boosting, rows, judges)
    best = rounds_of(ensemble)
    assert 0 < best < ensemble.current_iteration() == best + 3
    risks = [
        boosting.loss.risk(margins_of(boosting, ensemble, judges.X, n_rounds), judges.y)
        for n_rounds in range(1, best + 4)
    ]
    assert np.argmin(risks) == best - 1
    go_on(ensemble, best + 9)
    assert ensemble.current_iteration() == best + 9
    whole = grow(replace(boosting, early_stopping=None, n_rounds=best + 9), rows)
    np.testing.assert_array_equal(
        margins_of(boosting, ensemble, rows.X, best + 9), margins_of(boosting, whole, rows.X, best + 9)
    )


def test_constant_columns_teach_nothing():
    boosting, rows = problem(X=np.ones((50, 5)), y=np.arange(50.0), row_fraction=0.5, categorical=())
    assert trees_of(grow(boosting, rows), 1)[0].n_learners == 0


def test_values_beyond_single_precision_are_its_largest():
    X = table(missing=0.0)
    X[:200, 0], X[200:, 0] = 1e300, -1e300
    boosting, rows = problem(X=X, y=np.repeat([1.0, -1.0], 200))
    with np.errstate(over="ignore"):
        margins = margins_of(boosting, grow(boosting, rows), X)
    assert (margins[:200] > 0.5).all()
    assert (margins[200:] < -0.5).all()


# -- members -------------------------------------------------------------------------------------------------------


@each_loss_name
def test_members_lack_their_part_and_agree_on_rounds(loss_name):
    boosting, rows = problem(loss_name, n_rounds=40, early_stopping=3, row_fraction=0.8, feature_fraction=0.7)
    columns = np.array([0, CODED, 4])
    folds = folds_of(rows, 3, 0)
    parts = [folds == fold for fold in range(3)]
    found = []
    for n_jobs in (1, 3):
        each = replace(boosting, n_jobs=n_jobs)
        matrix = bin_for_all(each, rows, [columns])
        (members,) = grow_members([Wanted(columns, each, parts)], rows, matrix)
        found.append(members)
    members = found[0]
    alone = [bin_for_one(boosting, rows, columns, None).boost_without(out) for out in parts]
    assert members.rounds == agreed_rounds([rounds_of(each) for each in alone])
    for number, out in enumerate(parts):
        (pool, weights), (other, _), heard = (each[number] for each in (members.trees, found[1].trees, members.heard))
        for name, values in vars(pool).items():
            if isinstance(values, np.ndarray):
                np.testing.assert_array_equal(values, getattr(other, name))  # whatever the number of threads
        said = pool.transform(rows.X[out][:, columns]) @ weights
        np.testing.assert_allclose(heard.scores, said, atol=1e-12)
        # what it lacks teaches it nothing
        changed = replace(rows, y=np.where(out, rows.y[::-1], rows.y))
        again = bin_for_one(boosting, changed, columns, None).boost_without(out)
        first, before = (flatten_booster(each, 1).transform(rows.X[:, columns]) for each in (again, alone[number]))
        np.testing.assert_array_equal(first, before)
    pool, weights = members.on_all(7)
    whole = bin_for_one(boosting, rows, columns, None).boost_all(7)
    np.testing.assert_array_equal(pool.value, trees_of(whole, len(boosting.constant), 7)[0].value)


def test_some_rows_judge_many(monkeypatch):
    boosting, rows = problem(n_rounds=5, early_stopping=3)
    seen, of = [], engine._data

    def watched(boosting, cells, *others):
        seen.append(len(cells))
        return of(boosting, cells, *others)

    monkeypatch.setattr(engine, "_data", watched)
    monkeypatch.setattr(engine, "MANY_ROWS", N)
    monkeypatch.setattr(engine, "MOST_JUDGES", 30)
    bin_for_one(boosting, rows, ALL, None).boost_without(np.arange(N) % 2 == 0)
    assert seen == [200, 30]


# -- gates ---------------------------------------------------------------------------------------------------------


def test_gates_are_regressions_with_their_mean():
    boosting, rows = problem()
    rng = np.random.default_rng(0)
    rows = replace(rows, weights=rows.weights / rows.weights.mean())
    at, columns = np.sort(rng.choice(N, 300, replace=False)), np.array([0, 1, CODED])
    learner = regression(boosting, rows, at, columns, None)
    X = rows.X[np.ix_(at, columns)]
    targets = [100.0 + 3.0 * (np.nan_to_num(X[:, 0]) > 0), -5.0 - np.nan_to_num(X[:, 1])]
    for target in targets:  # the second one on the same bins
        pool = flatten_booster(learner.fit(target))
        assert pool.n_learners == GATE_ROUNDS
        assert pool.depth <= 3
        said = pool.transform(X).sum(axis=1)
        assert np.var(said - target) < 0.2 * np.var(target)
        means = [np.average(values, weights=rows.weights[at]) for values in (said, target)]
        assert means[0] == pytest.approx(means[1], abs=0.05)
    fresh = flatten_booster(regression(boosting, rows, at, columns, None).fit(targets[1]))
    np.testing.assert_array_equal(fresh.transform(X), pool.transform(X))
    noise = flatten_booster(learner.fit(np.full(300, 7.0)))
    np.testing.assert_allclose(noise.transform(X).sum(axis=1), 7.0, atol=1e-5)


# -- estimators ----------------------------------------------------------------------------------------------------

KINDS = {"squared": CSTCRegressor, "logistic": CSTCClassifier, "softmax": CSTCClassifier}
SMALL = {"n_weak_learners": 15, "random_state": 0, "n_jobs": 1, "cost_weight": 0.01}


@each_loss_name
def test_estimators_answer_without_xgboost(loss_name, tmp_path):
    """A fitted model is flat trees: saved, it is loaded and asked where XGBoost cannot be imported."""
    X = table(n=600)
    y = target(X, loss_name)
    options = SMALL | {"categorical_features": [CODED], "method": Experts(engine="xgboost", folds=3)}
    model = KINDS[loss_name](**options).fit(X[:400], y[:400])
    other = KINDS[loss_name](**options | {"method": Experts(folds=3)}).fit(X[:400], y[:400])
    assert not np.array_equal(model.model_.decision_function(X), other.model_.decision_function(X))
    assert model.score(X[400:], y[400:]) > other.score(X[400:], y[400:]) - 0.1
    model.save(tmp_path / "model.cstc")
    np.save(tmp_path / "X.npy", X)
    code = (
        "import sys; sys.modules['xgboost'] = sys.modules['lightgbm'] = None\n"
        "import cstc, numpy as np\n"
        f"model = cstc.load({str(tmp_path / 'model.cstc')!r}); X = np.load({str(tmp_path / 'X.npy')!r})\n"
        f"np.save({str(tmp_path / 'said.npy')!r}, np.column_stack([model.decision_function(X), model.predict_cost(X)]))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    said = np.column_stack([model.model_.decision_function(X), model.model_.predict_cost(X)])
    np.testing.assert_array_equal(np.load(tmp_path / "said.npy"), said)


def test_a_ranker():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y, qid = np.clip(np.round(X[:, 0] + X[:, 1] + 1.5), 0, 4), np.arange(400) // 10
    model = CSTCRanker(method=Experts(engine="xgboost"), **SMALL).fit(X, y, qid=qid)
    assert model.score(X, y, qid=qid) > 0.9


def test_the_model_does_not_depend_on_the_number_of_threads():
    X = table(n=500)
    y = target(X, "logistic")
    one, two = (
        CSTCClassifier(**SMALL | {"n_jobs": n_jobs}, method=Experts(engine="xgboost", folds=3)).fit(X, y).model_
        for n_jobs in (1, 2)
    )
    np.testing.assert_array_equal(one.decision_function(X), two.decision_function(X))
    np.testing.assert_array_equal(one.predict_cost(X), two.predict_cost(X))


def test_samples_of_rows_teach_too(monkeypatch):
    X = table(n=600)
    grown, of = [], engine.grow_by_xgboost
    monkeypatch.setattr("cstc.engines.grow_by_xgboost", lambda *given: grown.append(1) or of(*given))
    method = Experts(engine="xgboost", rows_per_fit=200, folds=2)
    model = CSTCRegressor(**SMALL, method=method).fit(X, target(X, "squared"))
    assert grown
    assert model.score(X, target(X, "squared")) > 0.3


def test_lazy_experts_learn_from_some_rows_by_lightgbm(monkeypatch):
    """Rows of different groups need different features: there a lazy expert, or branches, have a chance."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 5))
    X[:, 0] = np.arange(1500) % 4
    y = 3.0 * X[np.arange(1500), 1 + X[:, 0].astype(int)]
    monkeypatch.setattr(module, "MOST_TAUGHT", 700)
    taught, of = [], module.grow_members

    def watched(wanted, rows, blocks):
        taught.append(len(rows))
        return of(wanted, rows, blocks)

    monkeypatch.setattr(module, "grow_members", watched)
    monkeypatch.setattr(module.LazyExperts, "competes", lambda *given: True)
    options = SMALL | {"costs": [0.1, 1.0, 1.0, 1.0, 1.0], "cost_weight": 0.3, "n_weak_learners": 60}
    model = CSTCRegressor(**options, method=Experts(engine="xgboost", folds=3, fallbacks=False)).fit(X, y)
    assert set(taught) == {700}
    assert any("lazy end" in candidate.name and np.isfinite(candidate.expected_loss) for candidate in model.candidates_)
    taught.clear()
    CSTCRegressor(**options, method=Experts(folds=3, fallbacks=False)).fit(X, y)
    assert set(taught) == {1500}


# -- a device, with numpy in its place -------------------------------------------------------------------------------


class Device(Arrays):
    """Numpy as a device with so many bytes."""

    def __init__(self, free, room=np.inf):
        super().__init__(np)
        self.left, self.room = free, room

    def free(self):
        return self.left

    def put(self, values):
        if values.nbytes > self.room:
            raise MemoryError("the device is full")
        return np.array(values)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_cells_are_cut_from_the_device_as_from_the_host(dtype):
    X = table().astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        there, here = (engine.Matrix(X, (CODED,), "cuda", arrays) for arrays in (Device(1 << 30), None))
    assert there._there is not None
    assert there.n_categories == here.n_categories == {CODED: 12}
    for columns in (np.array([4, 0]), ALL):
        for at in (None, np.array([7, 3, 200])):
            cells = there.cells(columns, at)
            np.testing.assert_array_equal(cells, here.cells(columns, at))
            assert cells.dtype == np.float32
            np.testing.assert_array_equal(cells, X[:, columns][slice(None) if at is None else at].astype(np.float32))


@pytest.mark.parametrize(
    ("device", "why"),
    [
        (Device(100), "about 0.0 GiB would be good to have on the GPU, and 0.0 are free: the columns of each ensemble"),
        (Device(1 << 30, room=10), "the GPU has no room for all rows: the columns of each ensemble are sent there"),
    ],
)
def test_too_little_room_for_the_matrix_is_said(device, why):
    with pytest.warns(UserWarning, match=re.escape(why)):
        matrix = engine.Matrix(table(), (), "cuda", device)
    np.testing.assert_array_equal(matrix.cells(ALL), table().astype(np.float32))


def test_where_an_ensemble_does_not_fit_the_matrix_leaves_the_device():
    matrix = engine.Matrix(table(), (), "cuda", Device(1 << 30))

    def grow():
        if matrix._there is not None:
            raise xgboost.core.XGBoostError("[15:51] device_helpers.cuh: Memory allocation error on worker 0")
        return "grown"

    with pytest.warns(UserWarning, match="the GPU has too little room left"):
        assert engine._in_its_memory(grow, matrix, N, 5) == "grown"

    def never():
        raise xgboost.core.XGBoostError("cudaErrorMemoryAllocation: out of memory")

    expected = (
        "the device has too little memory for an ensemble on 473134 rows and 519 columns, which needs about 3.7 GiB; "
        "take method=Experts(rows_per_fit=...) with fewer rows, or device='cpu'"
    )
    with pytest.raises(MemoryError, match=re.escape(expected)):
        engine._in_its_memory(never, matrix, 473_134, 519)
    with pytest.raises(xgboost.core.XGBoostError, match="something else"):
        engine._in_its_memory(_fail, matrix, 1, 1)


def test_two_that_find_the_device_full_are_both_tried_again():
    """The second one finds that the matrix has left already."""
    matrix = engine.Matrix(table(), (), "cuda", Device(1 << 30))
    both, tries = threading.Barrier(2), threading.local()

    def grow():
        if not hasattr(tries, "first"):
            tries.first = True
            both.wait(timeout=30)
            raise xgboost.core.XGBoostError("out of memory")
        return "grown"

    def grow_both():
        with ThreadPoolExecutor(2) as threads:
            found = [threads.submit(engine._in_its_memory, grow, matrix, N, 5) for _ in range(2)]
            return [each.result() for each in found]

    with pytest.warns(UserWarning, match="the GPU has too little room left"):
        assert grow_both() == ["grown", "grown"]


def test_bins_of_gates_leave_the_device_with_the_matrix():
    boosting, rows = problem("squared")
    matrix = engine.Matrix(rows.X, (CODED,), "cpu")
    gate = engine.XGRegression(boosting, rows, np.arange(N), ALL, matrix)
    first = gate.fit(rows.y).flatten(3)
    assert gate.keeps_bins
    assert matrix.takes_room

    def grow():
        if matrix.takes_room:
            raise xgboost.core.XGBoostError("out of memory")
        return "grown"

    assert engine._in_its_memory(grow, matrix, N, 5) == "grown"
    assert not gate.keeps_bins
    again = gate.fit(rows.y).flatten(3)  # they are made anew
    np.testing.assert_array_equal(again.threshold, first.threshold)
    np.testing.assert_array_equal(again.value, first.value)


def test_who_keeps_bins_may_change_while_others_look():
    """Gates of several stages are learned side by side."""
    boosting, rows = problem("squared")
    matrix = engine.Matrix(rows.X, (CODED,), "cpu")
    kept = []

    def borrow():
        for _ in range(2000):
            kept.append(engine.XGRegression(boosting, rows, np.arange(N), ALL, matrix))

    with ThreadPoolExecutor(1) as threads:
        borrowing = threads.submit(borrow)
        while not borrowing.done():
            assert not matrix.takes_room
        borrowing.result()
    assert len(kept) == 2000


def test_nothing_stays_on_the_device_after_a_fit(monkeypatch):
    """Nor waits for the collector of cycles, which knows nothing of a GPU."""
    matrices, start = [], engine.Matrix.__init__

    def watched(self, *given):
        start(self, *given)
        matrices.append(weakref.ref(self))

    monkeypatch.setattr(engine.Matrix, "__init__", watched)
    options = {"costs": np.arange(1.0, 6.0), "cost_weight": 0.01, "random_state": 0, "n_jobs": 1}
    gc.collect()
    gc.disable()
    try:
        model = CSTCRegressor(method=Experts(engine="xgboost"), n_weak_learners=5, **options).fit(X, Y)
    finally:
        gc.enable()
    assert model.model_.n_nodes >= 1
    assert matrices
    assert all(matrix() is None for matrix in matrices)


def _fail():
    raise xgboost.core.XGBoostError("something else")


# -- what is missing -----------------------------------------------------------------------------------------------

X, Y = table(), target(table(), "squared")


def fit(error, message, X=X, executor=None, **options):
    with pytest.raises(error, match=re.escape(message)):
        CSTCRegressor(n_weak_learners=5, n_jobs=1, **options).fit(X, Y, executor=executor)


def test_no_xgboost(monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", None)
    how = "needs XGBoost; install it with: pip install 'cstc[gpu]'"
    fit(ImportError, f"engine='xgboost' {how}", method=Experts(engine="xgboost"))
    with pytest.raises(ImportError, match=re.escape(f"device='cuda' {how}")):
        check_cuda()


@pytest.mark.parametrize("method", ["experts", "paper"])
def test_an_xgboost_without_cuda(monkeypatch, method):
    monkeypatch.setattr(xgboost, "build_info", lambda: {"USE_CUDA": False})
    fit(RuntimeError, "needs an XGBoost with CUDA, and this one was built without it", device="cuda", method=method)


class Driver:
    """A driver that says something."""

    def __init__(self, started=0, count=0):
        self._started, self._count = started, count

    def cuInit(self, flags):
        return self._started

    def cuDeviceGetCount(self, where):
        where._obj.value = self._count
        return 0


def test_a_gpu_that_is_full(monkeypatch):
    """Not even the tree that is tried first fits: that is no fault of the driver."""

    class Full:
        def __init__(self, parameters, data):
            raise xgboost.core.XGBoostError("device_vector.cuh: Memory allocation error on worker 0: bad_alloc")

    monkeypatch.setattr(xgboost, "build_info", lambda: {"USE_CUDA": True})
    monkeypatch.setattr(device_module, "_driver_problem", lambda: "")
    monkeypatch.setattr(xgboost, "Booster", Full)
    fit(MemoryError, "the GPU has no memory left even for one small tree; other programs hold it", device="cuda")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("cupy", MemoryError("out of memory allocating 512 bytes")),
        ("torch", RuntimeError("CUDA out of memory. Tried to allocate 2.00 MiB.")),
    ],
)
def test_a_library_that_finds_a_gpu_full_can_use_it(monkeypatch, name, error):
    """So that what needs the room says how much."""

    def put(values):
        raise error

    for library in ("cupy", "torch"):
        there = SimpleNamespace(__name__=library, asarray=put, from_numpy=put) if library == name else None
        monkeypatch.setitem(sys.modules, library, there)
    assert device_module.arrays_on("cuda").name == name


def test_a_library_that_cannot_use_the_gpu_is_passed_over(monkeypatch):
    def put(values):
        raise RuntimeError("CUDA driver version is insufficient for CUDA runtime version")

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(__name__="cupy", asarray=put))
    monkeypatch.setitem(sys.modules, "torch", None)
    assert device_module.arrays_on("cuda") is None


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        (None, "needs an NVIDIA GPU, and there is no driver for one on this machine; take device='cpu'"),
        (Driver(803), "needs an NVIDIA GPU, and its driver cannot be started (error 803 of CUDA)"),
        (Driver(), "the driver sees none (CUDA_VISIBLE_DEVICES may hide it)"),
    ],
)
def test_no_gpu_that_can_be_used(monkeypatch, driver, message):
    def load(name):
        assert name == device_module.DRIVER
        if driver is None:
            raise OSError("no such file")
        return driver

    monkeypatch.setattr(device_module.ctypes, "CDLL", load)
    monkeypatch.setattr(xgboost, "build_info", lambda: {"USE_CUDA": True})
    fit(RuntimeError, message, device="cuda")


@pytest.mark.skipif(bool(xgboost.build_info().get("USE_CUDA")), reason="this XGBoost may find the GPU that is told of")
@pytest.mark.filterwarnings("ignore:.*Device is changed from GPU to CPU:UserWarning")  # XGBoost says so, too
def test_an_xgboost_that_takes_the_cpu_instead(monkeypatch):
    monkeypatch.setattr(device_module.ctypes, "CDLL", lambda name: Driver(count=1))
    monkeypatch.setattr(xgboost, "build_info", lambda: {"USE_CUDA": True})
    fit(RuntimeError, f"device='cuda': XGBoost {xgboost.__version__} ", device="cuda")


def test_lightgbm_has_no_cuda():
    message = "device is 'cuda' and engine is 'lightgbm', which comes without CUDA"
    fit(ValueError, message, device="cuda", method=Experts(engine="lightgbm"))


def test_sparse_rows_and_workers_are_for_lightgbm():
    method = Experts(engine="xgboost")
    message = "X is a sparse matrix, and XGBoost would take what it does not hold as missing"
    fit(ValueError, message, csr_matrix(X), method=method)
    message = "executor= gives ensembles to workers, which grow them with LightGBM"
    with ThreadPoolExecutor(1) as executor:
        fit(ValueError, message, executor=executor, method=method)


def test_without_cupy_bins_are_made_on_the_cpu_and_that_is_said(monkeypatch):
    monkeypatch.setattr(engine, "arrays_on", lambda device: None)
    boosting, rows = problem()
    with pytest.warns(UserWarning, match="columns are binned on the CPU, which takes longer"):
        engine.Matrix.of(replace(boosting, device="cuda"), rows)


def test_arrays_on_a_cpu_are_none():
    assert device_module.arrays_on("cpu") is None


def test_nothing_is_imported_before_it_is_needed():
    code = "import sys, cstc; cstc.CSTCRegressor(); assert not {'xgboost', 'cupy', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert cstc.__version__
