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

from cstc import CostModel, CSTCClassifier, CSTCRanker, CSTCRegressor, Exact, Paper
from cstc.datasets import QUADRANT_COSTS, make_quadrants
from cstc.paper.exact import STAGES, STARTS
from cstc.paper.method import TreeMethod

SMALL = {"n_weak_learners": 8, "learning_rate": 0.4, "n_jobs": 1, "random_state": 0}
PLAIN = {"weak_learners": "identity", "n_jobs": 1, "random_state": 0}
ESTIMATORS = [CSTCRegressor, CSTCClassifier, CSTCRanker]
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)
each_method = pytest.mark.parametrize("method", ["experts", "paper", "exact"])
small_steps = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def using(method, *, plain=False, **own):
    """Parameters of a small estimator; `own` are those of a tree that is solved for, which experts do not have."""
    own = {"depth": 2, "max_iter": 10} | own
    if method == "experts":
        return SMALL | {"method": "experts"}
    if method == "paper":
        return (PLAIN if plain else SMALL) | {"method": Paper(**own)}
    return PLAIN | {"method": Exact(**own)}


class QueriedRanker(CSTCRanker):
    """A ranker that makes up its queries: scikit-learn's checks know no `qid`."""

    def fit(self, X, y, sample_weight=None):
        qid = None if y is None else np.arange(len(np.asarray(y))) // 5
        return super().fit(X, y, qid=qid, sample_weight=sample_weight)

    def score(self, X, y):
        return super().score(X, y, qid=np.arange(len(y)) // 5)


def expected_failures(estimator):
    reason = "folds or held-out rows are drawn: two rows of weight 1 are not one row of weight 2"
    return {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in ("dense", "sparse")}


@small_steps
@parametrize_with_checks(
    [
        CSTCRegressor(**SMALL),
        CSTCClassifier(**SMALL),
        QueriedRanker(**SMALL),
        CSTCRegressor(**using("exact")),
        CSTCClassifier(**using("exact", max_iter=2)),
        CSTCRegressor(**using("paper", max_iter=2)),
        CSTCClassifier(**using("paper", max_iter=2, plain=True)),
        QueriedRanker(**using("paper", max_iter=2)),
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


def judged(data, estimator, method):
    """With rows that judge, where the method takes them."""
    return data if method == "experts" else with_validation(data, make_data(estimator, seed=1))


def answers(model, X):
    """All that a model says about rows, as one array."""
    margins = model.predict_proba(X)[:, 1:].T if isinstance(model, CSTCClassifier) else [model.predict(X)]
    return np.vstack([*margins, model.predict_cost(X), model.predict_cost(X, counting="learner"), model.apply(X)])


# -- scikit-learn habits -------------------------------------------------------------------------------------------


@each_estimator
def test_clone_and_repr_keep_the_parameters(estimator):
    costs = CostModel({"a": 1, "draw": 2}, {"b": ["draw"]})
    model = estimator(costs=costs, cost_weight=0.3, n_weak_learners=7)
    copied = clone(model)
    assert copied.get_params()["costs"] == costs
    assert "cost_weight=0.3" in repr(copied)
    assert "n_weak_learners=7" in repr(copied)
    assert copied.set_params(weak_learner_depth=6).weak_learner_depth == 6
    assert model.weak_learner_depth is None


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
    settings = using(method, max_iter=3)
    one, two = estimator(**settings).fit(**data), estimator(**settings).fit(**data)
    np.testing.assert_array_equal(answers(one, data["X"]), answers(two, data["X"]))
    assert (one.expected_cost_, one.mean_cost_) == (two.expected_cost_, two.mean_cost_)
    other = estimator(**settings | {"random_state": 1}).fit(**data)
    assert (answers(one, data["X"]) != answers(other, data["X"])).any()


def test_pipeline_and_searches():
    data = make_data(CSTCRegressor)
    pipeline = make_pipeline(StandardScaler(), CSTCRegressor(**SMALL))
    assert cross_val_score(pipeline, **data, cv=2).min() > 0.3
    grid = {"cstcregressor__cost_weight": [0.001, 100.0]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(**data)
    assert search.best_params_ == {"cstcregressor__cost_weight": 0.001}
    assert search.best_estimator_[-1].predict_cost(data["X"]).mean() > 0


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
        estimator(**using("exact"), verbose=verbose).fit(**data)
        out, err = capfd.readouterr()
        assert out == ""
        said.append(err.splitlines())
    assert said[0] == []
    assert all(line.startswith("cstc fit: ") for line in said[1])
    assert said[1][-1].split("done in")[0] == "cstc fit: 100% [====================] "
    assert all(line.startswith(f"[{estimator.__name__}] ") for line in said[2])
    assert any("step 1: loss" in line for line in said[2])


# -- how the fit converged -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["paper", "exact"])
@each_estimator
def test_too_few_steps_are_told(estimator, method):
    with pytest.warns(
        ConvergenceWarning, match="the loss still fell after max_iter=1 steps; a larger max_iter"
    ) as told:
        estimator(**using(method, max_iter=1)).fit(**make_data(estimator))
    assert told[0].filename == __file__


@each_method
def test_enough_steps_are_not_told(method):
    CSTCRegressor(**using(method, max_iter=500, tol=1e-3)).fit(**make_data(CSTCRegressor))


@small_steps
@pytest.mark.parametrize(
    ("method", "solver"),
    [("experts", None), ("paper", "cyclic"), ("paper", "joint"), ("exact", "cyclic"), ("exact", "joint")],
)
@each_estimator
def test_the_loss_never_rises_within_a_stage(estimator, method, solver):
    model = estimator(**using(method, max_iter=5, solver=solver)).fit(**make_data(estimator))
    assert len(model.loss_history_) == (len(STARTS) * len(STAGES) if method == "exact" else 1)
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
    model = estimator(costs=CostModel([1, 2, 3, 4], evaluation=0.1), **using(method, max_iter=3))
    model.fit(**judged(data, estimator, method), sample_weight=weights)
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
    model = CSTCRegressor(**SMALL, cost_weight=0, costs=[5, 5, 5, 5]).fit(**make_data(CSTCRegressor))
    np.testing.assert_array_equal(model.with_costs(None).costs_.prices, [1, 1, 1, 1])


@small_steps
@pytest.mark.parametrize(("method", "plain"), [("experts", False), ("paper", False), ("paper", True), ("exact", True)])
@each_estimator
def test_an_unaffordable_world_gives_the_free_model(estimator, method, plain):
    data = make_data(estimator)
    model = estimator(**using(method, max_iter=30, plain=plain), cost_weight=1e4)
    model.fit(**judged(data, estimator, method))
    assert (model.predict_cost(data["X"]) == 0).all()
    assert model.mean_cost_ == model.expected_cost_ == 0
    said = model.predict_proba(data["X"])[:, 1] if estimator is CSTCClassifier else model.predict(data["X"])
    np.testing.assert_allclose(said, data["y"].mean(), rtol=1e-3)


@each_estimator
def test_a_higher_cost_weight_buys_less(estimator):
    data = make_data(estimator)
    weights = (0.0, 0.1, 0.4, 10.0)
    costs = [estimator(cost_weight=weight, **SMALL).fit(**data).predict_cost(data["X"]).mean() for weight in weights]
    assert (np.diff(costs) <= 0.02 * 4).all()
    assert costs[0] > 0 == costs[-1]


# -- data of all kinds ---------------------------------------------------------------------------------------------


@small_steps
@pytest.mark.parametrize("method", ["experts", "paper"])
@each_estimator
def test_missing_values_and_categories(estimator, method):
    data = make_data(estimator)
    X = data["X"].copy()
    X[:, 2] = np.random.default_rng(0).integers(0, 6, len(X))
    X[::5] = np.nan
    model = estimator(categorical_features=[2], cost_weight=1e-3, **using(method, max_iter=3))
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
    model = CSTCClassifier(**using(method, max_iter=3)).fit(X, y)
    assert model.classes_.tolist() == ["low", "middle", "top"]
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(model.predict(X), model.classes_[probabilities.argmax(axis=1)])
    np.testing.assert_array_equal(model.decision_function(X).argmax(axis=1), probabilities.argmax(axis=1))
    assert model.score(X, y) > 0.8


@small_steps
@each_method
def test_two_classes_of_text(method):
    data = make_data(CSTCClassifier)
    X, y = data["X"], np.where(data["y"], "ill", "well")
    judges = {} if method == "experts" else {"X_val": X[:50], "y_val": y[:50]}
    model = CSTCClassifier(**using(method)).fit(X, y, **judges)
    assert model.classes_.tolist() == ["ill", "well"]
    margins = model.decision_function(X)
    assert margins.shape == (200,)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-margins)))
    np.testing.assert_array_equal(model.predict(X), np.where(margins > 0, "well", "ill"))


@small_steps
@pytest.mark.parametrize("method", ["paper", "exact"])
def test_single_precision_is_nearly_the_same_and_not_the_same(method):
    data = make_data(CSTCRegressor)
    double, single = (CSTCRegressor(**using(method, dtype=dtype)).fit(**data) for dtype in ("float64", "float32"))
    np.testing.assert_allclose(single.score(**data), double.score(**data), atol=0.02)
    assert (single.predict(data["X"]) != double.predict(data["X"])).any()


# -- weights -------------------------------------------------------------------------------------------------------


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
@each_method
@each_estimator
def test_rows_without_weight_do_not_count(estimator, method):
    data = make_data(estimator)
    weights = np.tile([1.0, 0.0], 100)
    kept = {name: value[::2] for name, value in data.items()}
    spoilt = data | {"X": np.where(weights[:, None] > 0, data["X"], 99.0)}
    whole = estimator(**using(method)).fit(**spoilt, sample_weight=weights)
    part = estimator(**using(method)).fit(**kept)
    np.testing.assert_array_equal(answers(whole, data["X"]), answers(part, data["X"]))
    if method != "experts":  # nor do they where they judge
        spoilt_judges = with_validation(kept, spoilt) | {"sample_weight_val": weights}
        whole = estimator(**using(method)).fit(**spoilt_judges)
        part = estimator(**using(method)).fit(**with_validation(kept, kept))
        np.testing.assert_array_equal(answers(whole, data["X"]), answers(part, data["X"]))


@small_steps
@pytest.mark.parametrize(
    ("estimator", "method"), [(CSTCRegressor, "exact"), (CSTCRegressor, "paper"), (CSTCClassifier, "paper")]
)
def test_a_row_of_weight_two_is_two_rows(estimator, method):
    """Exactly so where nothing is drawn by row and no prior counts rows: inputs as learners, validation data given."""
    data, other = make_data(estimator), make_data(estimator, seed=1)
    twice = {name: np.concatenate([value, value[:50]]) for name, value in data.items()}
    settings = using(method, max_iter=20, plain=True)
    weights = np.repeat([2.0, 1.0], [50, 150])
    weighted = estimator(**settings).fit(**with_validation(data, other), sample_weight=weights)
    repeated = estimator(**settings).fit(**with_validation(twice, other))
    np.testing.assert_allclose(answers(weighted, data["X"]), answers(repeated, data["X"]), rtol=1e-3, atol=1e-3)


# -- the held-out part ---------------------------------------------------------------------------------------------


@pytest.fixture
def seen(monkeypatch):
    """The columns that a fit has learned from, with the rows that taught and the rows that judged."""
    found = []
    start = TreeMethod._start

    def spy(self, problem):
        columns, shape = start(self, problem)
        found.append(columns)
        return columns, shape

    monkeypatch.setattr(TreeMethod, "_start", spy)
    return found


each_judged = pytest.mark.parametrize("method", ["paper", "exact"])


@small_steps
@each_judged
def test_whole_queries_are_held_out(seen, method):
    CSTCRanker(**using(method, validation_fraction=0.25)).fit(**make_data(CSTCRanker))
    taught, judged = seen[0].train.rows, seen[0].validation.rows
    assert (len(taught), len(judged)) == (150, 50)
    assert not np.intersect1d(taught.qid, judged.qid).size


@small_steps
@each_judged
def test_classes_are_held_out_in_proportion(seen, method):
    X, y = make_data(CSTCClassifier)["X"], np.repeat([0, 1], [190, 10])
    CSTCClassifier(**using(method)).fit(X, y)
    assert np.bincount(seen[0].validation.y).tolist() == [38, 2]


@small_steps
@each_judged
@each_estimator
def test_given_validation_data_is_used_as_it_is(estimator, method, seen):
    data, other = make_data(estimator), make_data(estimator, n=60, seed=1)
    weights = np.arange(1.0, 61.0)
    estimator(**using(method)).fit(**with_validation(data, other), sample_weight_val=weights)
    columns = seen[0]
    for part, expected in ((columns.train, data), (columns.validation, other)):
        np.testing.assert_array_equal(part.rows.X, expected["X"])
        np.testing.assert_allclose(columns.units.margins(part.y), expected["y"], atol=1e-12)
    np.testing.assert_array_equal(columns.validation.weights, weights)
