"""The model file: what goes in comes out, and nothing else comes out."""

import hashlib
import importlib.util
import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from dataclasses import fields, replace
from datetime import UTC, date, datetime
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest

import cstc
import model_files
from cstc import CSTCClassifier, CSTCRanker, CSTCRegressor, Exact, Experts, ModelFileError
from cstc.model import Schema, Training, TreePool, TreeShape
from cstc.model.file import load_named
from model_files import (
    TASKS,
    as_version_1,
    as_version_2,
    get,
    pack,
    put,
    random_mixture,
    random_model,
    random_queries,
    random_query_tree,
    random_rows,
    smoke,
    unpack,
    with_digest,
)

TESTS = Path(__file__).parents[1]
SMALL = {"n_weak_learners": 5, "method": Experts(folds=2), "random_state": 0, "n_jobs": 1}


def assert_same_model(model, other):
    for field in fields(TreePool):
        assert np.array_equal(getattr(model.pool, field.name), getattr(other.pool, field.name)), field.name
    names = ("predict_weights", "predict_intercepts", "route_weights", "thresholds", "constant")
    for name in (*names, "fallback_weights", "fallback_intercepts"):
        assert np.array_equal(getattr(model, name), getattr(other, name)), name
    assert_same_estimates(model.estimates, other.estimates)
    assert np.array_equal(model.schema.means, other.schema.means)
    assert np.array_equal(model.shape.upper, other.shape.upper)
    assert np.array_equal(model.shape.lower, other.shape.lower)
    assert model.link == other.link
    assert model.costs.item_names == other.costs.item_names
    assert np.array_equal(model.costs.prices, other.costs.prices)
    assert np.array_equal(model.costs.feature_items, other.costs.feature_items)
    assert model.costs.evaluation == other.costs.evaluation
    assert model.schema.feature_names == other.schema.feature_names
    assert model.schema.categories == other.schema.categories
    assert np.array_equal(model.schema.may_miss, other.schema.may_miss)
    if model.schema.classes is None:
        assert other.schema.classes is None
    else:
        assert model.schema.classes.dtype == other.schema.classes.dtype
        assert model.schema.classes.tolist() == other.schema.classes.tolist()
    assert model.schema.booleans == other.schema.booleans
    assert_same_training(model.training, other.training)
    assert model.limit == other.limit
    assert (model.decisions is None) == (other.decisions is None)
    if model.decisions is not None:
        assert np.array_equal(model.decisions.costs, other.decisions.costs)


def assert_same_estimates(estimates, other):
    assert (estimates is None) == (other is None)
    if estimates is not None:
        for name in ("losses", "path_losses", "harm", "sets", "set_harm", "source_features"):
            assert np.array_equal(getattr(estimates, name), getattr(other, name)), name
        assert estimates.source_names == other.source_names
        assert estimates.cost_weight == other.cost_weight


def assert_same_training(training, other):
    assert (training.rows, training.mean_cost, training.trained) == (other.rows, other.mean_cost, other.trained)
    assert (training.reached is None) == (other.reached is None)
    if training.reached is not None:
        assert np.array_equal(training.reached, other.reached)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.cstc"


@pytest.fixture
def members(path):
    """The members of a file of two classes with several learners, categories and nodes."""
    for seed in range(1000):
        model = random_model(np.random.default_rng(seed), "logistic")
        pool, has_categories = model.pool, model.pool.category_start >= 0
        if model.shape.n_nodes > 2 and pool.n_learners > 3 and pool.feature[0] >= 0 and sum(has_categories) > 1:
            break
    cstc.save(model, path)
    return unpack(path.read_bytes())


def load_members(path, members):
    path.write_bytes(pack(with_digest(members)))
    return cstc.load(path)


# -- there and back ----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::cstc.UnseenValueWarning")
@pytest.mark.parametrize("link", TASKS)
@pytest.mark.parametrize("seed", range(20))
def test_random_models_come_back_as_they_were(path, link, seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, link)
    cstc.save(model, path)
    loaded = cstc.load(path)
    assert_same_model(model, loaded)
    X = random_rows(rng, model, n=50)
    assert np.array_equal(model.decision_function(X), loaded.decision_function(X), equal_nan=True)
    assert np.array_equal(model.apply(X), loaded.apply(X))
    for counting in ("branch",) if model.limit is not None else ("branch", "learner"):
        assert np.array_equal(model.predict_cost(X, counting), loaded.predict_cost(X, counting))
    smoke(loaded, rng)


@pytest.mark.filterwarnings("ignore::cstc.UnseenValueWarning")
@pytest.mark.parametrize("seed", range(12))
def test_random_mixtures_come_back_as_they_were(path, seed):
    rng = np.random.default_rng(seed)
    mixture = random_mixture(rng, TASKS[seed % 3])
    mixture.save(path)
    loaded = cstc.load(path)
    assert isinstance(loaded, cstc.Mixture)
    assert (loaded.share, loaded.seed) == (mixture.share, mixture.seed)
    for tree, other in zip(mixture.trees, loaded.trees, strict=True):
        assert_same_model(tree, other)
    X = random_rows(rng, mixture, n=50)
    assert np.array_equal(mixture.decision_function(X), loaded.decision_function(X), equal_nan=True)
    assert np.array_equal(mixture.predict_cost(X), loaded.predict_cost(X))
    smoke(loaded, rng)
    again = path.with_name("again.cstc")
    cstc.save(loaded, again)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"share": 1.5}, "share is 1.5; it must be a number from 0 to 1"),
        ({"share": 1}, "'share' in mixture.json is a int; it must be a float"),
        ({"seed": -1}, "seed is -1; it must be a whole number from 0 to"),
        ({"further": 1}, "mixture.json has the entries"),
    ],
)
def test_what_joins_two_models_is_checked(path, change, message):
    random_mixture(np.random.default_rng(1)).save(path)
    members = unpack(path.read_bytes())
    document = json.loads(members["mixture.json"]) | change
    with pytest.raises(ModelFileError, match=message):
        load_members(path, members | {"mixture.json": json.dumps(document).encode()})


def test_the_models_of_a_mixture_are_checked_and_belong_together(path):
    rng = np.random.default_rng(1)
    mixture = random_mixture(rng)
    mixture.save(path)
    whole = path.read_bytes()
    members = unpack(whole)
    with pytest.raises(ModelFileError, match=r"costlier\.cstc: it does not end as a model file does"):
        load_members(path, members | {"costlier.cstc": members["costlier.cstc"][:-5]})
    with pytest.raises(ModelFileError, match=r"cheaper\.cstc: it is a mixture; a mixture is of two models that are"):
        load_members(path, members | {"cheaper.cstc": whole})
    mixture.cheaper.with_costs(np.full(len(mixture.schema.feature_names), 3.0)).save(path)
    with pytest.raises(ModelFileError, match="the two models of a mixture must have the same prices"):
        load_members(path, members | {"cheaper.cstc": path.read_bytes()})


@pytest.mark.filterwarnings("ignore::cstc.UnseenValueWarning")
@pytest.mark.parametrize("seed", range(12))
def test_random_models_of_whole_queries_come_back_as_they_were(path, seed):
    rng = np.random.default_rng(seed)
    model = random_query_tree(rng, n_groups=1 + seed % 3)
    model.save(path)
    loaded = cstc.load(path)
    assert isinstance(loaded, cstc.QueryTree)
    assert loaded.at == model.at
    assert_same_model(model.tree, loaded.tree)
    X, qid = random_rows(rng, model, n=50), random_queries(rng, 50)
    assert np.array_equal(model.predict(X, qid=qid), loaded.predict(X, qid=qid), equal_nan=True)
    assert np.array_equal(model.predict_cost(X, qid=qid), loaded.predict_cost(X, qid=qid))
    smoke(loaded, rng)
    again = path.with_name("again.cstc")
    cstc.save(loaded, again)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"at": 0}, "at is 0; it must be a whole number, 1 or more"),
        ({"at": 5.0}, "'at' in queries.json is a float; it must be a int"),
        ({"further": 1}, "queries.json has the entries"),
    ],
)
def test_what_is_said_of_whole_queries_is_checked(path, change, message):
    random_query_tree(np.random.default_rng(1)).save(path)
    members = unpack(path.read_bytes())
    document = json.loads(members["queries.json"]) | change
    with pytest.raises(ModelFileError, match=message):
        load_members(path, members | {"queries.json": json.dumps(document).encode()})


def test_the_tree_of_whole_queries_is_one_for_that(path):
    random_query_tree(np.random.default_rng(1)).save(path)
    whole = path.read_bytes()
    members = unpack(whole)
    with pytest.raises(ModelFileError, match=r"tree\.cstc: it is a model of whole queries; whole queries are answered"):
        load_members(path, members | {"tree.cstc": whole})
    golden().golden_model_2().save(path)
    with pytest.raises(ModelFileError, match="a model of whole queries predicts scores"):
        load_members(path, members | {"tree.cstc": path.read_bytes()})
    manifest = json.loads(members["manifest.json"]) | {"version": 3}
    with pytest.raises(ModelFileError, match="its members are not those of a model"):
        load_members(path, members | {"manifest.json": json.dumps(manifest).encode()})


def test_a_loaded_model_is_saved_as_the_same_bytes(path):
    model = random_model(np.random.default_rng(5), "softmax")
    model.save(path)
    again = path.with_name("again.cstc")
    cstc.load(path).save(again)
    assert again.read_bytes() == path.read_bytes()


def frame(rng, n=160):
    """Numbers with gaps, and a column of text."""
    table = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "c"])
    table["town"] = rng.choice(["Bonn", "Köln", "Ulm"], size=n)
    table.loc[::7, "b"] = np.nan
    return table


COSTS = cstc.CostModel(
    {"a": 1.0, "draw": 2.1, "b": 0.5, "c": 3.0, "town": 0.0}, {"b": ["draw"], "c": ["draw"]}, evaluation=0.01
)


def fitted(task, rng):
    """A small estimator of each kind with shared items, and its table."""
    X = frame(rng)
    score = X["a"] + (X["town"] == "Ulm") - 0.5 * X["b"].fillna(0)
    if task == "regression":
        return CSTCRegressor(costs=COSTS, **SMALL).fit(X, score), X
    if task == "ranking":
        grades = np.clip(np.round(score + 1), 0, 4)
        return CSTCRanker(costs=COSTS, **SMALL).fit(X, grades, qid=np.repeat(np.arange(16), 10)), X
    if task == "two classes":
        return CSTCClassifier(costs=COSTS, **SMALL).fit(X, score > 0), X
    if task == "three classes":
        names = np.array(["low", "middle", "high"])[np.digitize(score, [-0.5, 0.5])]
        return CSTCClassifier(costs=COSTS, **SMALL).fit(X, names), X
    if task == "constant":
        return CSTCRegressor(costs=COSTS, cost_weight=1e6, **SMALL).fit(X, score), X
    estimator = CSTCRegressor(weak_learners="identity", method=Exact(max_iter=20, tol=1e-2), random_state=0)
    return estimator.fit(X[["a", "c"]], score), X[["a", "c"]]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("task", ["regression", "ranking", "two classes", "three classes", "constant", "identity"])
def test_estimators_save_what_they_predict_with(path, task):
    estimator, X = fitted(task, np.random.default_rng(3))
    estimator.save(path)
    loaded = cstc.load(path)
    assert_same_model(estimator.model_, loaded)
    matrix = X.to_numpy(dtype=object)
    for j, name in enumerate(X):
        if name in loaded.schema.categories:
            matrix[:, j] = [loaded.schema.categories[name].index(value) for value in X[name]]
    matrix = matrix.astype(float)
    answers = loaded.predict(matrix)
    assert answers.dtype == estimator.predict(X).dtype
    assert np.array_equal(answers, estimator.predict(X))
    assert np.array_equal(loaded.predict_cost(matrix), estimator.predict_cost(X))
    if task == "constant":
        assert loaded.predict_cost(matrix).max() == 0
    before = path.read_bytes()
    cstc.save(estimator, path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "classes",
    [
        np.array(["b", "aé"]),
        np.array(["b", "a"], dtype=object),
        np.array([3, -(2**60)]),
        np.array([0, 2**63], dtype=np.uint64),
        np.array([1, 2], dtype=np.int8),
        np.array([0.1, -1e300]),
        np.array([0.1, 0.7], dtype=np.float32),
        np.array([False, True]),
    ],
    ids=lambda classes: classes.dtype.name,
)
def test_classes_keep_their_type(path, classes):
    model = random_model(np.random.default_rng(0), "logistic")
    cstc.save(replace(model, schema=replace(model.schema, classes=classes)), path)
    loaded = cstc.load(path).schema.classes
    assert loaded.dtype == classes.dtype
    assert loaded.tolist() == classes.tolist()


def test_a_loaded_model_can_be_saved_again_and_again(path):
    cstc.save(random_model(np.random.default_rng(5), "softmax"), path)
    first = path.read_bytes()
    cstc.save(cstc.load(path), path)
    assert path.read_bytes() == first


def test_whatever_the_memory_looks_like_the_bytes_are_the_same(path):
    model = random_model(np.random.default_rng(8), "softmax")
    cstc.save(model, path)
    first = path.read_bytes()
    pool = model.pool
    other = replace(
        model,
        pool=pool._replace(left=pool.left.astype(np.int32), feature=np.asfortranarray(np.repeat(pool.feature, 2)[::2])),
        predict_weights=np.asfortranarray(model.predict_weights),
        predict_intercepts=np.asfortranarray(model.predict_intercepts),
        schema=replace(model.schema, categories=dict(reversed(model.schema.categories.items()))),
    )
    cstc.save(other, path)
    assert path.read_bytes() == first


def test_every_member_is_json_or_an_array_that_numpy_reads(members):
    for name, content in members.items():
        if name.endswith(".json"):
            json.loads(content)
        else:
            np.load(io.BytesIO(content), allow_pickle=False)


# -- files of earlier versions -----------------------------------------------------------------------------------


def golden():
    spec = importlib.util.spec_from_file_location("make_golden", TESTS / "golden" / "make_golden.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version_is_read_for_ever(version):
    expected = json.loads((TESTS / "golden" / f"model-v{version}.json").read_text())
    answers = golden().answers(cstc.load(TESTS / "golden" / f"model-v{version}.cstc"))
    assert answers.keys() - expected.keys() == ({"without glucose", "cost without glucose"} if version == 1 else set())
    for name, values in expected.items():
        if name in ("rows", "predict", "apply", "items by branch"):
            assert answers[name] == values
        else:
            np.testing.assert_allclose(answers[name], values, rtol=1e-12, atol=1e-12)


def test_what_later_versions_add_is_unknown_in_the_first():
    model = cstc.load(TESTS / "golden" / "model-v1.cstc")
    assert_same_model(model, golden().golden_model())
    assert_same_training(model.training, Training())
    assert model.schema.booleans == frozenset()
    assert_same_model(cstc.load(TESTS / "golden" / "model-v2.cstc"), golden().golden_model_2())
    assert_same_model(cstc.load(TESTS / "golden" / "model-v3.cstc"), golden().golden_model_3())


def test_a_mixture_of_version_3_is_read_for_ever():
    expected = json.loads((TESTS / "golden" / "mixture-v3.json").read_text())
    mixture = cstc.load(TESTS / "golden" / "mixture-v3.cstc")
    assert golden().mixture_answers(mixture)["coins"] == expected["coins"]  # on every machine the same
    np.testing.assert_allclose(golden().mixture_answers(mixture)["cost"], expected["cost"], rtol=1e-12)


@pytest.mark.parametrize(("version", "made"), [(4, "golden_queries"), (5, "golden_chains")])
def test_whole_queries_of_each_version_are_read_for_ever(version, made):
    expected = json.loads((TESTS / "golden" / f"queries-v{version}.json").read_text())
    model = cstc.load(TESTS / "golden" / f"queries-v{version}.cstc")
    answers = golden().query_answers(model)
    assert answers["apply"] == expected["apply"]
    for name, values in expected.items():
        np.testing.assert_allclose(answers[name], values, rtol=1e-12, atol=1e-12)
    assert_same_model(model.tree, getattr(golden(), made)().tree)
    assert model.at == 2


def test_the_bytes_are_the_same_on_every_machine(path):
    """To go on with the files of the next version when `save` writes that; the tests above stay."""
    cstc.save(golden().golden_model_3(), path)
    assert path.read_bytes() == (TESTS / "golden" / "model-v3.cstc").read_bytes()
    cstc.save(golden().golden_mixture(), path)
    assert path.read_bytes() == (TESTS / "golden" / "mixture-v3.cstc").read_bytes()
    cstc.save(golden().golden_queries(), path)
    assert path.read_bytes() == (TESTS / "golden" / "queries-v4.cstc").read_bytes()
    cstc.save(golden().golden_chains(), path)
    assert path.read_bytes() == (TESTS / "golden" / "queries-v5.cstc").read_bytes()


@pytest.mark.parametrize("older", [as_version_1, as_version_2])
def test_an_old_file_is_saved_as_a_new_one(path, older):
    cstc.save(random_model(np.random.default_rng(3), "softmax"), path)
    path.write_bytes(older(path.read_bytes()))
    old = cstc.load(path)
    old.save(path)
    assert json.loads(unpack(path.read_bytes())["manifest.json"])["version"] == 3
    assert_same_model(old, cstc.load(path))


# -- what is known of the training -------------------------------------------------------------------------------


def test_a_model_remembers_its_training(path):
    estimator, X = fitted("two classes", np.random.default_rng(3))
    estimator.save(path, trained="2026-11-16")
    training = cstc.load(path).training
    assert training.rows == len(X)
    assert training.mean_cost == estimator.mean_cost_
    shares = np.bincount(estimator.apply(X), minlength=estimator.model_.shape.n_terminals) / len(X)
    np.testing.assert_allclose(training.reached, shares)
    assert training.trained == "2026-11-16"
    assert estimator.model_.training.trained is None  # the file has the date, the model was not touched


def test_rows_without_weight_are_no_training_rows_and_weights_are_numbers_of_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    weights = rng.integers(0, 3, size=120).astype(float)
    estimator = CSTCRegressor(cost_weight=0.05, **SMALL).fit(X, X[:, 0] + X[:, 1], sample_weight=weights)
    training = estimator.model_.training
    assert training.rows == (weights > 0).sum()
    shares = np.bincount(estimator.apply(X), weights, minlength=len(training.reached)) / weights.sum()
    np.testing.assert_allclose(training.reached, shares)
    np.testing.assert_allclose(training.mean_cost, np.average(estimator.predict_cost(X), weights=weights))


def test_other_prices_are_not_those_of_the_training():
    model = golden().golden_model_2().with_costs(np.ones(5))
    assert model.training.mean_cost is None
    assert model.training.rows == 442


@pytest.mark.parametrize(
    ("trained", "text"),
    [
        ("2026-11-16", "2026-11-16"),
        (date(2026, 11, 16), "2026-11-16"),
        (datetime(2026, 11, 16, 8, 30, tzinfo=UTC), "2026-11-16T08:30:00+00:00"),
    ],
)
def test_the_date_of_training(path, trained, text):
    model = golden().golden_model()
    model.save(path, trained=trained)
    loaded = cstc.load(path)
    assert loaded.training.trained == text
    before = path.read_bytes()
    cstc.save(loaded, path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("trained", ["yesterday", "2026-13-01", "", 20261116, "2026-11-16 or so"])
def test_what_is_no_date_is_not_saved(path, trained):
    with pytest.raises(ValueError, match=r"trained is .*; give a date, such as '2026-11-16'"):
        golden().golden_model().save(path, trained=trained)
    assert not path.exists()


@pytest.mark.parametrize(
    ("training", "message"),
    [
        (Training(rows=0), "the number of training rows is 0; it must be a whole number from 1"),
        (Training(rows=True), "the number of training rows is True"),
        (Training(mean_cost=-1.0), "the mean cost in training is -1.0; it must be a finite number, 0 or more"),
        (Training(mean_cost="3"), "the mean cost in training is '3'"),
        (Training(reached=np.array([1.0])), r"reached has shape \(1,\); it must be \(2\)"),
        (Training(reached=[0.5, 0.5]), "reached has list; it must be an array of numbers"),
        (Training(trained="once"), "the date of training is 'once'; it must be a text as ISO 8601 writes dates"),
        (Training(trained=date(2026, 11, 16)), "the date of training is datetime.date"),
    ],
)
def test_a_training_that_cannot_be_is_not_saved(path, training, message):
    with pytest.raises(ModelFileError, match=message):
        cstc.save(replace(golden().golden_model(), training=training), path)
    assert not path.exists()


def test_columns_of_true_and_false_are_remembered(path):
    X = frame(np.random.default_rng(1))
    X["flag"] = X["a"] > 0
    X["mixed"] = np.where(X["c"] > 0, True, None)
    model = CSTCRegressor(**SMALL).fit(X, X["a"])
    model.save(path)
    assert cstc.load(path).schema.booleans == {"flag", "mixed"}
    flags = (X[["a", "c"]] > 0).to_numpy()
    assert CSTCRegressor(**SMALL).fit(flags, X["a"]).model_.schema.booleans == {"x0", "x1"}
    model = golden().golden_model()
    for names in (frozenset(["smoker"]), frozenset(["nobody"]), ["age"]):
        with pytest.raises(ModelFileError, match="booleans"):
            cstc.save(replace(model, schema=replace(model.schema, booleans=names)), path)


def test_a_file_says_what_it_is(path):
    model = golden().golden_model_2()
    model.save(path)
    loaded, identity = load_named(path)
    assert_same_model(model, loaded)
    assert identity == (path.name, hashlib.sha256(path.read_bytes()).hexdigest())


# -- writing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_crash_leaves_the_old_file_whole(path, monkeypatch, step):
    old, new = (random_model(np.random.default_rng(seed), "identity") for seed in (1, 2))
    cstc.save(old, path)
    before = path.read_bytes()

    def crash(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, step, crash)
        with pytest.raises(KeyboardInterrupt):
            cstc.save(new, path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and POSIX signals")
def test_a_killed_process_leaves_the_old_file_whole(path):
    cstc.save(random_model(np.random.default_rng(1), "identity"), path)
    before = path.read_bytes()
    killed = """
import os, signal, sys, cstc
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
cstc.save(cstc.load(sys.argv[1]), sys.argv[1])
"""
    done = subprocess.run([sys.executable, "-c", killed, str(path)], check=False)
    assert done.returncode == -9
    assert path.read_bytes() == before


def test_a_link_is_followed_and_the_rights_are_those_of_a_new_file(path, tmp_path):
    model = random_model(np.random.default_rng(1), "identity")
    link = tmp_path / "link.cstc"
    link.symlink_to(path)
    cstc.save(model, link)
    assert link.is_symlink()
    (tmp_path / "plain").write_bytes(b"")
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_file_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cstc.save(random_model(np.random.default_rng(1), "identity"), "here.cstc")
    assert cstc.load("here.cstc").link == "identity"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere' does not exist; make it first"):
        cstc.save(random_model(np.random.default_rng(1), "identity"), tmp_path / "nowhere" / "model.cstc")


def test_only_models_are_saved(path):
    with pytest.raises(TypeError, match="CSTCRegressor cannot be saved; give a fitted estimator"):
        cstc.save(CSTCRegressor(), path)
    with pytest.raises(ValueError, match="not fitted"):
        CSTCRegressor().save(path)
    assert not path.exists()


def test_a_model_that_could_not_be_loaded_is_not_saved(path):
    model = random_model(np.random.default_rng(1), "identity")
    with pytest.raises(ModelFileError, match=r"constant\[0\] is nan; it must be a finite number"):
        cstc.save(replace(model, constant=np.array([np.nan])), path)
    schema = Schema(["x"], {}, np.array([1]))
    with pytest.raises(ModelFileError, match="may_miss has dtype int64; it must be an array of true or false"):
        cstc.save(replace(model, schema=schema), path)
    assert not path.exists()


# -- reading -----------------------------------------------------------------------------------------------------


def test_loading_imports_numpy_and_nothing_heavy(path):
    cstc.save(random_model(np.random.default_rng(1), "softmax"), path)
    script = """
import sys, cstc
model = cstc.load(sys.argv[1])
import numpy as np
X = np.zeros((3, len(model.schema.feature_names)))
model.predict(X), model.predict_cost(X)
heavy = {"sklearn", "scipy", "lightgbm", "pandas", "polars", "narwhals", "matplotlib", "joblib"}
sys.exit(str(heavy & sys.modules.keys()) if heavy & sys.modules.keys() else 0)
"""
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_file_is_the_systems_own_error(path):
    with pytest.raises(FileNotFoundError):
        cstc.load(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_what_is_no_file_is_not_waited_for(path):
    os.mkfifo(path)
    with pytest.raises(ModelFileError, match="no plain file"):
        cstc.load(path)
    with pytest.raises(ModelFileError, match="no plain file"):
        cstc.load(path.parent)


@pytest.mark.parametrize("version", [6, 17])
def test_a_later_version_is_named(path, members, version):
    members["manifest.json"] = json.dumps({"format": "cstc-model", "version": version, "new": True}).encode()
    members["arrays/of_the_future.npy"] = b""
    path.write_bytes(pack(members))
    with pytest.raises(ModelFileError, match=f"it has version {version} of the format and this cstc reads up to 5"):
        cstc.load(path)


def test_a_changed_member_is_noticed(path, members):
    prices = get(members, "prices")
    put(members, "prices", prices + 1)
    path.write_bytes(pack(members))
    with pytest.raises(ModelFileError, match=f"^{path}: its content does not have the digest that its manifest names"):
        cstc.load(path)
    assert np.array_equal(load_members(path, members).costs.prices, prices + 1)


def test_limits_hold_and_can_be_raised(path):
    cstc.save(random_model(np.random.default_rng(0), "logistic"), path)
    with pytest.raises(ModelFileError, match="the limit is 1000; a larger max_bytes allows it"):
        cstc.load(path, max_bytes=1000)
    cstc.load(path, max_bytes=10**9)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["../model.json"], "no absolute names, no '..'"),
        (["/tmp/x"], "no absolute names"),
        (["arrays/../x.npy"], "no absolute names, no '..'"),
        (["C:\\x"], "no absolute names"),
        (["extra.npy"], r"missing \[\], strange \['extra.npy'\]"),
    ],
)
def test_names_of_members(path, members, names, message):
    with pytest.raises(ModelFileError, match=message):
        load_members(path, members | dict.fromkeys(names, b""))


def test_members_that_are_doubled_missing_or_compressed(path, members):
    path.write_bytes(pack([*members.items(), ("model.json", b"{}")]))
    with pytest.raises(ModelFileError, match=r"'model.json' is there twice"):
        cstc.load(path)
    path.write_bytes(pack({name: members[name] for name in members if name != "arrays/left.npy"}))
    with pytest.raises(ModelFileError, match=r"missing \['arrays/left.npy'\]"):
        cstc.load(path)
    path.write_bytes(pack(members, zipfile.ZIP_DEFLATED))
    with pytest.raises(ModelFileError, match="is compressed or encrypted"):
        cstc.load(path)
    path.write_bytes(pack({"other.txt": b"x"}))
    with pytest.raises(ModelFileError, match=r"no manifest.json: it is no model file"):
        cstc.load(path)


def changed(name, change):
    """A mutation of one array."""

    def mutate(members):
        array = get(members, name)
        result = change(array)
        put(members, name, array if result is None else result)

    return mutate


def at(index, value):
    return lambda array: array.__setitem__(index, value)


def in_json(**entries):
    def mutate(members):
        members["model.json"] = json.dumps(json.loads(members["model.json"]) | entries).encode()

    return mutate


def in_training(**entries):
    def mutate(members):
        in_json(training=json.loads(members["model.json"])["training"] | entries)(members)

    return mutate


def tree(upper, lower):
    """Another tree of classifiers, as many nodes as before."""

    def mutate(members):
        put(members, "upper", np.array(upper, dtype="<i4"))
        put(members, "lower", np.array(lower, dtype="<i4"))
        n = len(upper)
        put(members, "thresholds", np.zeros(n))
        put(members, "predict_intercepts", np.zeros((n, 1)))
        for kind in ("predict", "route"):
            put(members, f"{kind}_places", np.zeros(0, dtype="<i8"))
            put(members, f"{kind}_values", np.zeros(0))

    return mutate


WRONG = {
    "type": (changed("left", lambda a: a.astype("<i8")), "the array left is of type '<i8'; it must be '<i4'"),
    "dimensions": (changed("left", lambda a: a[None]), "the array left has 2 dimensions; it must have 1"),
    "length": (changed("value", lambda a: a[:-1]), r"value has shape \(\d+,\); it must be \(\d+\)"),
    "NaN": (changed("threshold", at(0, np.nan)), r"threshold\[0\] is nan; it must be a finite number"),
    "infinite weight": (changed("predict_values", at(0, np.inf)), "predict_weights.* is inf"),
    "huge weight": (changed("predict_values", at(0, 1e305)), "the margins may exceed 1e.300"),
    "negative price": (changed("prices", at(0, -1.0)), r"prices\[0\] is negative; a price is 0 or more"),
    "prices beyond counting": (changed("prices", lambda a: np.full_like(a, 1.7e308)), "prices together are more"),
    "feature": (changed("feature", at(0, 99)), r"feature\[0\] is 99; it must be from -1 to"),
    "child": (changed("left", at(0, 10**6)), r"left\[0\] is 1000000; it must be from 0 to"),
    "circle": (changed("left", at(0, 0)), "position 0 of the weak learners is reached 2 times"),
    "shared learner": (changed("roots", lambda a: np.full_like(a, a[0])), "is reached \\d+ times"),
    "category piece": (changed("category_left", lambda a: a[:1]), "category_"),
    "places": (changed("predict_places", lambda a: a[::-1]), "predict_places must grow"),
    "places beyond": (changed("predict_places", at(-1, 10**12)), "predict_places must grow .* and be from 0 to"),
    "places and values": (changed("route_places", lambda a: a[:-1]), r"route_places has \d+ entries, route_values"),
    "flags": (
        lambda members: members.update({"arrays/may_miss.npy": members["arrays/may_miss.npy"][:-1] + b"\x07"}),
        "may_miss holds bytes that are neither true nor false",
    ),
    "tree leads back": (tree([1, 0, -1], [2, -2, -1]), r"upper\[1\] leads back; a parent comes before its children"),
    "tree beyond": (tree([5, -1, -2], [2, -1, -2]), r"upper\[0\] names a classifier that is not there; there are 3"),
    "node twice": (tree([1, -1], [1, -1]), "classifier 1 is reached 2 times"),
    "node never": (tree([1, -1, -2], [-3, -1, -2]), "classifier 2 is reached 0 times"),
    "terminal twice": (tree([1, -1], [-1, -1]), "the 2 terminals must be numbered 0 to 1, each once"),
    "two terminals": (tree([-1], [-2]), "a leaf classifier has one terminal for both"),
    "link": (in_json(link="probit"), "link is 'probit'; it must be one of"),
    "link and classes": (in_json(link="softmax"), "link 'softmax' needs as many outputs as classes, 2 or more"),
    "no classes": (
        in_json(classes=None),
        "link 'logistic' needs 1 output and 2 classes; the model has 1 outputs and no",
    ),
    "same classes": (in_json(classes={"type": "str", "values": ["a", "a"]}), "classes hold 'a' twice"),
    "mixed classes": (in_json(classes={"type": "int64", "values": [1, True]}), "classes must all be of type int"),
    "large class": (in_json(classes={"type": "int8", "values": [1, 300]}), "a class is outside of what int8 holds"),
    "types of classes": (in_json(classes={"type": "object_", "values": [1, 2]}), "classes are of type 'object_'"),
    "booleans": (in_json(booleans=["x", "x"]), "booleans must be a list of feature names, each of them once"),
    "booleans that are no features": (in_json(booleans=["nobody"]), "booleans name 'nobody', which is not one of"),
    "training": (in_json(training={}), "training has the entries .*; it must have"),
    "training rows": (in_training(rows=-1), "the number of training rows is -1"),
    "many training rows": (in_training(rows=10**30), "the number of training rows is 1000"),
    "training cost": (in_training(mean_cost=float("inf")), "the mean cost in training is inf"),
    "training cost that is none": (in_training(mean_cost=float("nan")), "the mean cost in training is nan"),
    "shares": (in_training(reached=[0.5]), "reached has shape"),
    "shares that are none": (in_training(reached=["x"]), "'reached' in training must be a list of numbers"),
    "date": (in_training(trained="x" * 10_000), "the date of training is 'xxx"),
    "date that is none": (in_training(trained=5), "'trained' in training is a int; it must be a str or NoneType"),
    "features": (in_json(features=["x"]), r"may_miss has shape \(\d+,\); it must be \(1\)"),
    "same features": (in_json(features=["x", "x"]), "feature names hold 'x' twice"),
    "categories": (in_json(categories={"nobody": ["a"]}), "categories are given for 'nobody', which is not one of"),
    "evaluation": (in_json(evaluation=-0.5), "the price of an evaluation is -0.5"),
    "evaluation as text": (in_json(evaluation="1"), "'evaluation' in model.json is a str; it must be a float"),
    "entry": (in_json(surprise=1), "model.json has the entries"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(path, members, case):
    mutate, message = WRONG[case]
    load_members(path, members)
    mutate(members)
    with pytest.raises(ModelFileError, match=message) as caught:
        load_members(path, members)
    assert str(caught.value).startswith(str(path))


def test_route_weights_at_a_leaf_are_refused(path):
    """They would be charged and never used."""
    model = random_model(np.random.default_rng(1), "identity")
    model = replace(
        model,
        shape=TreeShape.full(1),
        predict_weights=model.predict_weights[:, :1],
        predict_intercepts=model.predict_intercepts[:1],
        route_weights=np.ones((model.pool.n_learners, 1)),
        thresholds=np.zeros(1),
    )
    with pytest.raises(ModelFileError, match="classifier 0 is a leaf and routes nowhere, but has route weights"):
        cstc.save(model, path)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited by address space")
def test_2000_mutated_files():
    """Each loads a model that works or raises ModelFileError, within 1 GiB and its time; `make fuzz` runs 100,000."""
    fuzz = [sys.executable, str(TESTS / "fuzz_model_file.py"), "--mutations", "2000", "--seed", "0"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(fuzz, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failed" in done.stdout


# -- other ways to keep an estimator -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("way", ["pickle", "joblib", "skops"])
def test_estimators_survive_pickle_joblib_and_skops(tmp_path, way):
    estimator, X = fitted("three classes", np.random.default_rng(4))
    if way == "pickle":
        copy = pickle.loads(pickle.dumps(estimator))
    elif way == "joblib":
        joblib.dump(estimator, tmp_path / "model.joblib")
        copy = joblib.load(tmp_path / "model.joblib")
    else:
        skops = pytest.importorskip("skops.io")
        dumped = skops.dumps(estimator)
        copy = skops.loads(dumped, trusted=skops.get_untrusted_types(data=dumped))
    assert np.array_equal(copy.predict_proba(X), estimator.predict_proba(X))
    assert np.array_equal(copy.predict_cost(X), estimator.predict_cost(X))
    assert_same_model(copy.model_, estimator.model_)


def test_the_random_models_are_of_all_kinds():
    """What the tests above rest on."""
    models = [random_model(np.random.default_rng(seed)) for seed in range(200)]
    assert {model.link for model in models} == set(model_files.TASKS)
    assert any(model.pool.n_learners == 0 for model in models)
    assert any((model.pool.category_start >= 0).any() for model in models)
    assert any((model.pool.linear_feature >= 0).any() for model in models)
    assert any(model.pool.zero_is_missing.any() for model in models)
    assert any(model.shape.n_nodes > 4 for model in models)
    assert any(model.costs.n_items != len(model.schema.feature_names) for model in models)


def test_a_model_without_features_is_not_saved(tmp_path):
    model = random_model(np.random.default_rng(0), "regression")
    nothing = replace(model, schema=Schema([], {}, np.zeros(0, dtype=bool)))
    with pytest.raises(ModelFileError, match="there are no feature names; a model has at least one feature"):
        cstc.save(nothing, tmp_path / "model.cstc")
    assert not list(tmp_path.iterdir())
