"""Methods as parameters: by name and as objects, nested as scikit-learn nests estimators, and what they refuse."""

import pickle
import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cstc import CSTCClassifier, CSTCRanker, CSTCRegressor, Exact, Experts, Frontier, Paper

ESTIMATORS = [CSTCRegressor, CSTCClassifier, CSTCRanker]
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)
each_method = pytest.mark.parametrize("kind", [Paper, Experts, Exact])
small_steps = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

BOOSTED = {"n_weak_learners": 12, "weak_learner_depth": 2, "learning_rate": 0.3, "random_state": 0, "n_jobs": 1}
PLAIN = {"weak_learners": "identity", "random_state": 0, "n_jobs": 1}
OPTIONS = {Paper: BOOSTED, Experts: BOOSTED, Exact: PLAIN}
QUICK = {"depth": 2, "max_iter": 20, "tol": 1e-3}

#: The parameters that the estimators had when three methods shared them, and where they are now.
MOVED = {
    "depth": "depth is a parameter of Paper and Exact now: method=Paper(depth=...)",
    "max_nodes": "max_nodes is a parameter of Paper and Exact now: method=Paper(max_nodes=...)",
    "l1_weight": "l1_weight is a parameter of Paper and Exact now: method=Paper(l1_weight=...)",
    "solver": "solver is a parameter of Paper and Exact now: method=Paper(solver=...)",
    "max_iter": "max_iter is a parameter of Paper and Exact now: method=Paper(max_iter=...)",
    "tol": "tol is a parameter of Paper and Exact now: method=Paper(tol=...)",
    "validation_fraction": "validation_fraction is a parameter of Paper and Exact now: method=Paper(validation_",
    "dtype": "dtype is a parameter of Paper and Exact now: method=Paper(dtype=...)",
    "pruning": "pruning is a parameter of Paper now: method=Paper(pruning=...)",
    "fine_tuning": "fine_tuning is a parameter of Paper now: method=Paper(fine_tuning=...)",
    "cross_fit": "cross_fit is no parameter any more: it is `folds` of Experts now: method=Experts(folds=...)",
    "cost_strengths": "cost_strengths is no parameter any more",
}


def error(message, kind=ValueError):
    return pytest.raises(kind, match=re.escape(message))


def make_data(n=240, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, np.where(X[:, 0] > 0, 3.0 + X[:, 1], -3.0 + X[:, 2]) + 0.2 * rng.normal(size=n)


X, Y = make_data()


def targets(estimator, y):
    if estimator is CSTCRegressor:
        return {"y": y}
    if estimator is CSTCClassifier:
        return {"y": (y > 0).astype(int)}
    return {"y": np.clip(np.round(y + 2), 0, 4), "qid": np.arange(len(y)) // 6}


def fit(estimator, method, X=X, y=Y, judges=None, **options):
    """Fit with a method; `judges` are X and y of validation data."""
    given = {} if judges is None else {"X_val": judges[0]}
    if judges is not None:
        given |= {f"{name}_val": values for name, values in targets(estimator, judges[1]).items()}
    kind = Exact if options.get("weak_learners") == "identity" else Paper
    options = {"costs": [1.0, 2.0, 2.0, 5.0]} | OPTIONS[kind] | options
    return estimator(method=method, **options).fit(X, **targets(estimator, y), **given)


# -- by name and as an object --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "kind", "options"),
    [(["paper"], Paper, {}), (["experts", "auto"], Experts, {}), (["exact", "auto"], Exact, PLAIN)],
)
@each_estimator
def test_a_name_is_the_method_with_its_defaults(estimator, names, kind, options):
    expected = fit(estimator, kind(), **options)
    for name in names:
        model = fit(estimator, name, **options)
        np.testing.assert_array_equal(model.predict(X), expected.predict(X))
        np.testing.assert_array_equal(model.predict_cost(X), expected.predict_cost(X))
        assert model.method == name
    assert len(np.unique(expected.predict(X))) > 1


@small_steps
@each_method
def test_a_fit_leaves_the_method_as_it_is(kind):
    method = kind(folds=2) if kind is Experts else kind(**QUICK)
    before = dict(vars(method))
    model = fit(CSTCRegressor, method, **OPTIONS[kind])
    assert vars(method) == before
    assert model.method is method
    # so one object can serve two estimators
    again = fit(CSTCRegressor, method, **OPTIONS[kind])
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@small_steps
def test_only_experts_have_candidates():
    for method, options in ((Paper(**QUICK), BOOSTED), (Exact(**QUICK), PLAIN)):
        assert fit(CSTCRegressor, method, **options).candidates_ == []
    model = fit(CSTCRegressor, Experts(folds=2), cost_weight=0.05)
    taken = [row for row in model.candidates_ if row.verdict == "taken"]
    assert len(taken) == 1
    assert len({row.name for row in model.candidates_}) == len(model.candidates_) > 1
    assert taken[0].expected_loss == np.nanmin([row.expected_loss for row in model.candidates_])
    assert all(row.verdict for row in model.candidates_)


# -- nesting -------------------------------------------------------------------------------------------------------


@each_method
@each_estimator
def test_parameters_are_nested(estimator, kind):
    method = kind()
    model = estimator(method=method, cost_weight=0.3)
    params = model.get_params()
    assert params["method"] is method
    own = {name.removeprefix("method__"): value for name, value in params.items() if name.startswith("method__")}
    assert own == method.get_params() != {}
    assert not any(name.startswith("method__") for name in model.get_params(deep=False))
    name = next(iter(own))
    changed = clone(model).set_params(**{f"method__{name}": 7}, cost_weight=0.5)
    assert (getattr(changed.method, name), changed.cost_weight) == (7, 0.5)
    assert (getattr(model.method, name), model.cost_weight) == (own[name], 0.3)  # a clone has a method of its own
    assert type(changed.method) is kind
    assert f"method={kind.__name__}({name}=7)" in repr(changed)
    copied = pickle.loads(pickle.dumps(changed))
    assert copied.get_params() | {"method": 0} == changed.get_params() | {"method": 0}


@each_estimator
def test_a_method_and_its_parameters_can_be_set_at_once(estimator):
    model = estimator().set_params(method=Paper(), method__depth=2, method__solver="joint")
    assert (model.method.depth, model.method.solver) == (2, "joint")
    assert estimator(method=Paper()).set_params(method="experts").method == "experts"
    with error("Invalid parameter 'folds' for estimator Paper()"):
        estimator(method=Paper()).set_params(method__folds=3)
    with error("Invalid parameter 'nonsense' for estimator"):
        estimator().set_params(nonsense=3)


@each_estimator
@pytest.mark.parametrize("name", MOVED)
def test_old_names_say_where_they_went(estimator, name):
    assert name not in estimator().get_params()
    for model in (estimator(), estimator(method=Paper())):
        with error(MOVED[name]):
            model.set_params(**{name: 1})
    with error(MOVED[name]):  # nested in others too
        Frontier(estimator()).set_params(**{f"estimator__{name}": 1})
    with error(MOVED[name]):
        make_pipeline(StandardScaler(), estimator()).set_params(**{f"{estimator.__name__.lower()}__{name}": 1})


def test_old_names_are_where_they_are_said_to_be():
    for name, message in MOVED.items():
        for kind in (Paper, Exact):
            assert (name in kind().get_params()) == (kind.__name__ in message.partition(" now:")[0])
    assert "folds" in Experts().get_params()


@each_estimator
@pytest.mark.parametrize(
    ("method", "shown"), [("auto", "'auto'"), ("paper", "'paper'"), (None, "None"), (Paper, "Paper, a class")]
)
def test_a_name_has_no_parameters_to_set(estimator, method, shown):
    with error(
        f"method is {shown}, which has no parameters to set; give an object first: "
        "set_params(method=Paper()).set_params(method__depth=...)"
    ):
        estimator(method=method).set_params(method__depth=2)
    with error("set_params(method=Experts()).set_params(method__folds=...)"):
        estimator(method=method).set_params(method__folds=2)


@small_steps
def test_a_search_over_parameters_of_the_method():
    estimator = CSTCClassifier(method=Paper(max_iter=5), **BOOSTED)
    grid = {"method__depth": [2, 3], "cost_weight": [0.001, 10.0]}
    search = GridSearchCV(estimator, grid, cv=2).fit(X, (Y > 0).astype(int))
    assert search.best_params_["cost_weight"] == 0.001
    assert search.best_estimator_.method.depth == search.best_params_["method__depth"]
    assert search.best_estimator_.method.max_iter == 5
    assert estimator.method.depth == 3
    assert len(search.cv_results_["params"]) == 4
    methods = GridSearchCV(CSTCClassifier(**BOOSTED), {"method": ["experts", Paper(**QUICK)]}, cv=2)
    assert np.isfinite(methods.fit(X, (Y > 0).astype(int)).cv_results_["mean_test_score"]).all()


# -- what is refused -----------------------------------------------------------------------------------------------


@each_estimator
@pytest.mark.parametrize(
    ("method", "shown"),
    [
        ("Paper", "'Paper'"),
        ("", "''"),
        (None, "None"),
        (Paper, "Paper, a class"),
        (Experts, "Experts, a class"),
        (CSTCRegressor(), "CSTCRegressor()"),
        (["paper"], "['paper']"),
    ],
)
def test_what_is_no_method(estimator, method, shown):
    with error(
        f"method is {shown}; it must be 'auto', 'paper', 'experts', 'exact', or an object such as Paper(depth=3)"
    ):
        fit(estimator, method)


@each_estimator
@pytest.mark.parametrize("options", [BOOSTED, PLAIN], ids=["boosted", "identity"])
def test_refined_is_exact_now(estimator, options):
    with error("method 'refined' is 'exact' now, for weak_learners='identity'; boosted trees: 'experts'"):
        fit(estimator, "refined", **options)


@each_estimator
def test_methods_and_what_they_are_built_on(estimator):
    for method in ("exact", Exact()):
        with error("method Exact is for weak_learners='identity', not for 'boosted'; take method='auto', or 'paper'"):
            fit(estimator, method)
    for method in ("experts", Experts()):
        with error("method Experts is for weak_learners='boosted', not for 'identity'; take method='auto', or 'paper'"):
            fit(estimator, method, **PLAIN)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_weak_learners", 100),
        ("weak_learner_depth", 5),
        ("learning_rate", 0.2),
        ("early_stopping", None),
        ("device", "cuda"),
    ],
)
@each_estimator
def test_nothing_is_said_of_boosting_where_nothing_is_boosted(estimator, name, value):
    for method in ("auto", "paper", Exact()):
        with error(f"{name} is {value!r}, and with weak_learners='identity' nothing is boosted; leave it out, or take"):
            fit(estimator, method, **PLAIN | {name: value})


@small_steps
def test_defaults_of_boosting_may_be_repeated():
    defaults = {name: CSTCRegressor().get_params()[name] for name in BOOSTED if name not in PLAIN}
    assert len(defaults) == 3
    fit(CSTCRegressor, Exact(**QUICK), **PLAIN | defaults)


# -- validation data -----------------------------------------------------------------------------------------------


@each_estimator
@pytest.mark.parametrize("method", ["auto", "experts", Experts(folds=2)])
def test_experts_refuse_validation_data(estimator, method):
    message = "X_val and y_val are given, and Experts has no use for them: it is cross-fitted. Give these rows to fit"
    with error(message):
        fit(estimator, method, judges=make_data(100, seed=1))


@small_steps
@each_estimator
@pytest.mark.parametrize(("method", "options"), [(Paper(**QUICK), BOOSTED), (Exact(**QUICK), PLAIN)])
def test_validation_data_changes_the_model(estimator, method, options):
    """Labels that contradict the training rows: whatever they are asked for, the answer is another one."""
    X_val, y_val = make_data(100, seed=1)
    agreeing = fit(estimator, method, judges=(X_val, y_val), **options)
    contrary = fit(estimator, method, judges=(X_val, -y_val), **options)
    held_out = fit(estimator, method, **options)
    margins = agreeing.model_.decision_function(X)
    assert (margins != contrary.model_.decision_function(X)).any()
    assert (margins != held_out.model_.decision_function(X)).any()
    assert agreeing.model_.pool.n_learners > 0


def test_a_frontier_chooses_with_rows_that_its_fits_never_see():
    X_val, y_val = make_data(100, seed=1)
    estimator = CSTCRegressor(costs=[1.0, 2.0, 2.0, 5.0], method=Experts(folds=2), **BOOSTED)
    frontier = Frontier(estimator, cost_weights=[0.05]).fit(X, Y, X_val=X_val, y_val=y_val)
    model = next(model for model in frontier.tried_models_ if model.cost_weight == 0.05)
    alone = clone(estimator).set_params(cost_weight=0.05).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), alone.predict(X))


# -- no parameter that does nothing --------------------------------------------------------------------------------

TREE = {
    "depth": 3,
    "max_nodes": 2,
    "l1_weight": 0.05,
    "solver": "joint",
    "max_iter": 1,
    "tol": 0.3,
    "validation_fraction": 0.4,
    "dtype": "float32",
}
CHANGES = {
    Paper: TREE | {"gate_slope": 0.3, "pruning": False, "fine_tuning": False},
    Exact: TREE | {"solver": "cyclic"},
    Experts: {"folds": 3, "rows_per_fit": 120, "fallbacks": False, "sources": {"both": ["x0", "x1"]}}
    | {"engine": "xgboost"},
}
#: Prices and a weight under which pruning has something to leave and something to take away.
ROOMY = {"cost_weight": 0.02, "costs": [1.0, 2.0, 2.0, 5.0]}


def answers(estimator, rows=X):
    """All that a model says of rows, whose last column may hold a category that matters."""
    model = estimator.fit(rows, Y + 3.0 * (rows[:, 3] == 2)).model_
    found = [model.predict(rows), model.predict_cost(rows), model.predict_cost(rows, "learner")]
    found += [model.predict(rows, unavailable=["x0"]), model.predict_cost(rows, budget=2.0)]
    known = getattr(model, "costlier", model).estimates
    n_lost = len(model.columns_named([known.source_names[0]])) if known else 0  # with one source
    return np.concatenate([*found, [n_lost]])


@pytest.fixture(scope="module")
def usual():
    """What each method answers with parameters that leave room for changes, and the estimator that does."""
    found = {}
    for kind, options in OPTIONS.items():
        method = kind(folds=2) if kind is Experts else kind(depth=2, max_iter=60)
        estimator = CSTCRegressor(method=method, **options, **ROOMY)
        found[kind] = estimator, answers(estimator)
    return found


@small_steps
@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind, changes in CHANGES.items() for name in changes],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_every_parameter_of_a_method_matters(usual, kind, name):
    if name == "engine":
        pytest.importorskip("xgboost", reason="XGBoost is not installed: pip install xgboost-cpu")
    estimator, before = usual[kind]
    changed = clone(estimator).set_params(**{f"method__{name}": CHANGES[kind][name]})
    assert (answers(changed) != before).any()


@pytest.mark.parametrize("kind", [Paper, Experts])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_weak_learners", 5),
        ("weak_learner_depth", 3),
        ("learning_rate", 0.1),
        ("early_stopping", 1),
        ("cost_weight", 0.2),
        ("mean_cost", 1.5),
        ("costs", [5.0, 1.0, 1.0, 1.0]),
        ("categorical_features", [3]),
        ("random_state", 1),
    ],
)
@small_steps
def test_every_parameter_of_an_estimator_matters(usual, kind, name, value):
    estimator, before = usual[kind]
    rows = X.copy()
    if name == "categorical_features":
        rows[:, 3] = np.arange(len(rows)) % 4
        before = answers(clone(estimator), rows)
    elif name == "early_stopping":  # many large steps, of which the last ones do harm
        estimator = clone(estimator).set_params(n_weak_learners=60, learning_rate=0.9, early_stopping=None)
        before = answers(clone(estimator), rows)
    elif name == "mean_cost":  # instead of a cost weight
        estimator = clone(estimator).set_params(cost_weight=None)
        before = answers(clone(estimator), rows)
    assert (answers(clone(estimator).set_params(**{name: value}), rows) != before).any()


def test_every_parameter_is_tried_here():
    for kind, changes in CHANGES.items():
        assert changes.keys() == kind().get_params().keys()
