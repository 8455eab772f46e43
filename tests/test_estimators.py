"""scikit-learn's own checks, run on all three estimators, and what the estimators promise beyond them."""

import pickle

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import cstc.estimators._base
from cstc import CostModel, CSTCClassifier, CSTCRanker, CSTCRegressor
from cstc.datasets import QUADRANT_COSTS, make_quadrants
from cstc.training import STAGES, STARTS

SMALL = {"n_weak_learners": 8, "learning_rate": 0.4, "max_iter": 10, "depth": 2, "n_jobs": 1, "random_state": 0}
ESTIMATORS = [CSTCRegressor, CSTCClassifier, CSTCRanker]
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)
each_method = pytest.mark.parametrize("method", ["experts", "refined", "paper"])
small_steps = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class QueriedRanker(CSTCRanker):
    """A ranker that makes up its queries: scikit-learn's checks know no `qid`."""

    def fit(self, X, y, sample_weight=None):
        qid = None if y is None else np.arange(len(np.asarray(y))) // 5
        return super().fit(X, y, qid=qid, sample_weight=sample_weight)

    def score(self, X, y):
        return super().score(X, y, qid=np.arange(len(y)) // 5)


def expected_failures(estimator):
    reason = "folds or held-out rows are drawn: two rows of weight 1 are not one row of weight 2"
    return {"check_sample_weight_equivalence_on_dense_data": reason}


@small_steps
@parametrize_with_checks(
    [
        CSTCRegressor(**SMALL),
        CSTCClassifier(**SMALL),
        QueriedRanker(**SMALL),
        CSTCRegressor(**SMALL, weak_learners="identity"),
        CSTCRegressor(**SMALL | {"max_iter": 2}, method="paper"),
        CSTCClassifier(**SMALL | {"max_iter": 2}, method="paper", weak_learners="identity"),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# -- data ----------------------------------------------------------------------------------------------------------


def make_data(estimator, n=200, seed=0):
    """Two features that matter and two that do not; arguments of `fit`."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    score = X[:, 0] + (X[:, 1] > 0) + 0.1 * rng.normal(size=n)
    if issubclass(estimator, CSTCRegressor):
        return {"X": X, "y": score}
    if issubclass(estimator, CSTCClassifier):
        return {"X": X, "y": (score > 0.5).astype(int)}
    return {"X": X, "y": np.clip(np.round(score + 1), 0, 4), "qid": np.arange(n) // 5}


def with_validation(data, other):
    return data | {f"{name}_val": value for name, value in other.items()}


def answers(model, X):
    """All that a model says about rows, as one array."""
    margins = model.predict_proba(X)[:, 1:].T if isinstance(model, CSTCClassifier) else [model.predict(X)]
    return np.vstack([*margins, model.predict_cost(X), model.predict_cost(X, counting="learner"), model.apply(X)])


# -- scikit-learn habits -------------------------------------------------------------------------------------------


@each_estimator
def test_clone_and_repr_keep_the_parameters(estimator):
    costs = CostModel({"a": 1, "draw": 2}, {"b": ["draw"]})
    model = estimator(costs=costs, cost_weight=0.3, cost_strengths=(0.0, 2.0))
    copied = clone(model)
    assert copied.get_params()["costs"] == costs
    assert "cost_weight=0.3" in repr(copied)
    assert copied.set_params(depth=4).depth == 4


@small_steps
@each_estimator
def test_pickle_and_joblib(estimator, tmp_path):
    data = make_data(estimator)
    model = estimator(**SMALL).fit(**data)
    joblib.dump(model, tmp_path / "model.joblib")
    for copied in (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model.joblib")):
        np.testing.assert_array_equal(answers(copied, data["X"]), answers(model, data["X"]))


@small_steps
@each_method
@each_estimator
def test_random_state_gives_the_same_model_twice(estimator, method):
    data = make_data(estimator)
    settings = SMALL | {"method": method, "max_iter": 3}
    one, two = estimator(**settings).fit(**data), estimator(**settings).fit(**data)
    np.testing.assert_array_equal(answers(one, data["X"]), answers(two, data["X"]))
    assert (one.expected_cost_, one.mean_cost_) == (two.expected_cost_, two.mean_cost_)
    other = estimator(**settings | {"random_state": 1}).fit(**data)
    assert (answers(one, data["X"]) != answers(other, data["X"])).any()


@small_steps
def test_pipeline_and_searches():
    data = make_data(CSTCRegressor)
    pipeline = make_pipeline(StandardScaler(), CSTCRegressor(**SMALL))
    assert cross_val_score(pipeline, **data, cv=2).min() > 0.3
    grid = {"cstcregressor__cost_weight": [0.001, 100.0]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(**data)
    assert search.best_params_ == {"cstcregressor__cost_weight": 0.001}
    assert search.best_estimator_[-1].predict_cost(data["X"]).mean() > 0


@small_steps
def test_a_ranker_is_cross_validated_by_whole_queries():
    data = make_data(CSTCRanker)
    with sklearn.config_context(enable_metadata_routing=True):
        model = CSTCRanker(**SMALL).set_fit_request(qid=True).set_score_request(qid=True)
        params = {"qid": data["qid"], "groups": data["qid"]}
        scores = cross_val_score(model, data["X"], data["y"], cv=GroupKFold(3), params=params)
    assert scores.min() > 0.7


@small_steps
@each_estimator
def test_verbose_speaks_on_stderr(estimator, capfd):
    data = make_data(estimator)
    said = []
    for verbose in range(3):
        estimator(**SMALL, method="refined", verbose=verbose).fit(**data)
        out, err = capfd.readouterr()
        assert out == ""
        said.append(err.splitlines())
    assert said[0] == []
    assert all(line.startswith(f"[{estimator.__name__}] ") for line in said[1] + said[2])
    assert not any("step 1:" in line for line in said[1])
    assert any("step 1: loss" in line for line in said[2])


# -- how the fit converged -----------------------------------------------------------------------------------------


@each_estimator
def test_too_few_steps_are_told(estimator):
    with pytest.warns(
        ConvergenceWarning, match="the loss still fell after max_iter=1 steps; a larger max_iter"
    ) as told:
        estimator(**SMALL | {"max_iter": 1, "method": "refined"}).fit(**make_data(estimator))
    assert told[0].filename == __file__


def test_enough_steps_are_not_told():
    CSTCRegressor(**SMALL | {"max_iter": 500, "tol": 1e-3, "method": "refined"}).fit(**make_data(CSTCRegressor))


@small_steps
@pytest.mark.parametrize("solver", ["joint", "cyclic"])
@each_method
@each_estimator
def test_the_loss_never_rises_within_a_stage(estimator, method, solver):
    model = estimator(**SMALL | {"max_iter": 5}, method=method, solver=solver).fit(**make_data(estimator))
    assert len(model.loss_history_) == (len(STARTS) * len(STAGES) if method == "refined" else 1)
    for stage in model.loss_history_:
        assert (np.diff(stage) <= 0).all()
    assert model.n_iter_ == sum(len(stage) - 1 for stage in model.loss_history_)
    assert 1 <= model.n_iter_ <= (12 if method == "experts" else 5 * len(model.loss_history_))


# -- cost ----------------------------------------------------------------------------------------------------------


@small_steps
@each_method
@each_estimator
def test_mean_cost_is_that_of_the_training_rows(estimator, method):
    data = make_data(estimator)
    weights = np.random.default_rng(0).uniform(0.5, 2, 200)
    model = estimator(costs=CostModel([1, 2, 3, 4], evaluation=0.1), method=method, **SMALL | {"max_iter": 3})
    model.fit(**with_validation(data, make_data(estimator, seed=1)), sample_weight=weights)
    cost = model.predict_cost(data["X"])
    assert model.mean_cost_ == pytest.approx(np.average(cost, weights=weights))
    assert (cost <= model.predict_cost(data["X"], counting="learner")).all()
    terminals = model.model_.terminal_costs()
    np.testing.assert_allclose(model.predict_cost(data["X"], "learner"), terminals[model.apply(data["X"])])
    assert terminals.min() - 1e-9 <= model.expected_cost_ <= terminals.max() + 1e-9


def test_quadrants_pay_for_both_signs_and_one_label():
    X, y = make_quadrants(600, random_state=0)
    model = CSTCRegressor(costs=QUADRANT_COSTS, cost_weight=0.03, weak_learners="identity", random_state=0)
    model.fit(X[:400], y[:400], X_val=X[400:], y_val=y[400:])
    assert model.mean_cost_ == 12.0
    assert model.expected_cost_ == pytest.approx(12.0, abs=0.5)
    assert len(np.unique(model.apply(X))) == 4


@small_steps
@each_estimator
def test_new_prices_change_the_bill_and_not_the_answer(estimator):
    data = make_data(estimator)
    X = data["X"]
    model = estimator(costs=[1, 2, 3, 4], **SMALL).fit(**data)
    dearer = model.with_costs([2, 4, 6, 8])
    np.testing.assert_array_equal(dearer.predict(X), model.predict(X))
    np.testing.assert_array_equal(dearer.apply(X), model.apply(X))
    for counting in ("branch", "learner"):
        np.testing.assert_allclose(dearer.predict_cost(X, counting), 2 * model.predict_cost(X, counting))
    assert dearer.expected_cost_ == pytest.approx(2 * model.expected_cost_)
    assert dearer.costs == [2, 4, 6, 8]
    assert not hasattr(dearer, "mean_cost_")
    back = dearer.with_costs({"x0": 1, "x1": 2, "x2": 3, "x3": 4})
    np.testing.assert_array_equal(answers(back, X), answers(model, X))
    assert model.mean_cost_ > 0
    assert model.costs == [1, 2, 3, 4]


def test_no_new_prices_are_one_for_each_feature():
    model = CSTCRegressor(**SMALL, cost_weight=0, costs=[5, 5, 5, 5], tol=1e-2).fit(**make_data(CSTCRegressor))
    np.testing.assert_array_equal(model.with_costs(None).costs_.prices, [1, 1, 1, 1])


@small_steps
@each_method
@each_estimator
@pytest.mark.parametrize("weak_learners", ["boosted", "identity"])
def test_an_unaffordable_world_gives_the_free_model(estimator, method, weak_learners):
    if method == "experts" and weak_learners == "identity":
        method = "auto"
    data = make_data(estimator)
    model = estimator(**SMALL | {"max_iter": 30}, cost_weight=1e4, method=method, weak_learners=weak_learners)
    model.fit(**with_validation(data, make_data(estimator, seed=1)))
    assert (model.predict_cost(data["X"]) == 0).all()
    assert model.mean_cost_ == model.expected_cost_ == 0
    said = model.predict_proba(data["X"])[:, 1] if estimator is CSTCClassifier else model.predict(data["X"])
    np.testing.assert_allclose(said, data["y"].mean(), rtol=1e-3)


@small_steps
@each_estimator
def test_a_higher_cost_weight_buys_less(estimator):
    data = make_data(estimator)
    weights = (0.0, 0.1, 0.4, 10.0)
    costs = [estimator(cost_weight=weight, **SMALL).fit(**data).predict_cost(data["X"]).mean() for weight in weights]
    assert (np.diff(costs) <= 0.02 * 4).all()
    assert costs[0] > 0 == costs[-1]


# -- data of all kinds ---------------------------------------------------------------------------------------------


@small_steps
@each_method
@each_estimator
def test_missing_values_and_categories(estimator, method):
    data = make_data(estimator)
    X = data["X"].copy()
    X[:, 2] = np.random.default_rng(0).integers(0, 6, len(X))
    X[::5] = np.nan
    model = estimator(categorical_features=[2], cost_weight=1e-3, method=method, **SMALL | {"max_iter": 3})
    model.fit(**data | {"X": X})
    assert np.isfinite(answers(model, X)).all()
    assert len(np.unique(model.predict(X))) > 1
    assert model.model_.schema.may_miss.all()
    unseen = np.where(np.arange(4) == 2, 77.0, X[1])
    assert np.isfinite(answers(model, unseen[None])).all()


@small_steps
@each_method
def test_more_than_two_classes(method):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.array(["low", "middle", "top"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    model = CSTCClassifier(method=method, **SMALL | {"max_iter": 3}).fit(X, y)
    assert model.classes_.tolist() == ["low", "middle", "top"]
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(model.predict(X), model.classes_[probabilities.argmax(axis=1)])
    np.testing.assert_array_equal(model.decision_function(X).argmax(axis=1), probabilities.argmax(axis=1))
    assert model.score(X, y) > 0.8


@small_steps
def test_two_classes_of_text():
    data = make_data(CSTCClassifier)
    X, y = data["X"], np.where(data["y"], "ill", "well")
    model = CSTCClassifier(**SMALL).fit(X, y, X_val=X[:50], y_val=y[:50])
    assert model.classes_.tolist() == ["ill", "well"]
    margins = model.decision_function(X)
    assert margins.shape == (200,)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-margins)))
    np.testing.assert_array_equal(model.predict(X), np.where(margins > 0, "well", "ill"))


@small_steps
def test_single_precision_is_nearly_the_same():
    data = make_data(CSTCRegressor)
    double, single = (CSTCRegressor(**SMALL, dtype=dtype).fit(**data) for dtype in ("float64", "float32"))
    np.testing.assert_allclose(single.score(**data), double.score(**data), atol=0.02)


# -- weights -------------------------------------------------------------------------------------------------------


@small_steps
def test_class_weights_are_sample_weights():
    data = make_data(CSTCClassifier)
    by_class = CSTCClassifier(**SMALL, class_weight={0: 1, 1: 5}).fit(**data)
    by_row = CSTCClassifier(**SMALL).fit(**data, sample_weight=np.where(data["y"] == 1, 5, 1))
    np.testing.assert_array_equal(answers(by_class, data["X"]), answers(by_row, data["X"]))
    rare = data | {"y": np.repeat([0, 1], [180, 20])}
    for weight, share in ((None, 0.1), ("balanced", 0.5)):
        model = CSTCClassifier(**SMALL, class_weight=weight, cost_weight=100.0).fit(**rare)
        np.testing.assert_allclose(model.predict_proba(data["X"])[:, 1], share, rtol=1e-3)


@small_steps
@each_estimator
def test_rows_without_weight_do_not_count(estimator):
    data, other = make_data(estimator), make_data(estimator, seed=1)
    weights = np.tile([1.0, 0.0], 100)
    kept = {name: value[::2] for name, value in data.items()}
    spoilt = data | {"X": np.where(weights[:, None] > 0, data["X"], 99.0)}
    whole = estimator(**SMALL).fit(**with_validation(spoilt, other), sample_weight=weights)
    part = estimator(**SMALL).fit(**with_validation(kept, other))
    np.testing.assert_array_equal(answers(whole, data["X"]), answers(part, data["X"]))


@small_steps
@pytest.mark.parametrize(
    ("estimator", "method"), [(CSTCRegressor, "refined"), (CSTCRegressor, "paper"), (CSTCClassifier, "paper")]
)
def test_a_row_of_weight_two_is_two_rows(estimator, method):
    """Exactly so where nothing is drawn by row and no prior counts rows: inputs as learners, validation data given."""
    data, other = make_data(estimator), make_data(estimator, seed=1)
    twice = {name: np.concatenate([value, value[:50]]) for name, value in data.items()}
    settings = SMALL | {"max_iter": 20, "weak_learners": "identity", "method": method}
    weights = np.repeat([2.0, 1.0], [50, 150])
    weighted = estimator(**settings).fit(**with_validation(data, other), sample_weight=weights)
    repeated = estimator(**settings).fit(**with_validation(twice, other))
    np.testing.assert_allclose(answers(weighted, data["X"]), answers(repeated, data["X"]), rtol=1e-3, atol=1e-3)


# -- the held-out part ---------------------------------------------------------------------------------------------


@pytest.fixture
def given(monkeypatch):
    """What training is given: the sample, validation data or None, and the rows that are held out."""
    seen = []
    train = cstc.estimators._base.train

    def spy(*arguments):
        seen.extend(arguments[:3])
        return train(*arguments)

    monkeypatch.setattr(cstc.estimators._base, "train", spy)
    return seen


@small_steps
def test_whole_queries_are_held_out(given):
    CSTCRanker(**SMALL, method="refined", validation_fraction=0.25).fit(**make_data(CSTCRanker))
    sample, validation, held_out = given
    assert validation is None
    assert held_out.sum() == 50
    assert not np.intersect1d(sample.qid[held_out], sample.qid[~held_out]).size


@small_steps
def test_classes_are_held_out_in_proportion(given):
    X, y = make_data(CSTCClassifier)["X"], np.repeat([0, 1], [190, 10])
    CSTCClassifier(**SMALL, method="refined").fit(X, y)
    assert np.bincount(y[given[2]]).tolist() == [38, 2]


@small_steps
@each_estimator
def test_given_validation_data_is_used_as_it_is(estimator, given):
    data, other = make_data(estimator), make_data(estimator, n=60, seed=1)
    weights = np.arange(1.0, 61.0)
    estimator(**SMALL).fit(**with_validation(data, other), sample_weight_val=weights)
    for part, expected in zip(given[:2], (data, other), strict=True):
        np.testing.assert_array_equal(part.X, expected["X"])
        np.testing.assert_array_equal(part.y, expected["y"])
    np.testing.assert_array_equal(given[1].weights, weights)
    assert not given[2].any()
